"""The compiled loops, of which there is a module for each kind of processor: the last one that runs here is taken.

PGMENGINE_KERNELS=base, avx2 or avx512 in the environment takes another one that runs here.
"""

import os
from importlib import import_module

from pgmengine._kernels.base import PROCESSORS
from pgmengine.errors import PgmError


def _chosen() -> str:
    name = os.environ.get("PGMENGINE_KERNELS") or PROCESSORS[-1]
    if name not in PROCESSORS:
        raise PgmError(f"PGMENGINE_KERNELS is {name!r}; what runs on this processor is {', '.join(PROCESSORS)}")
    return name


PROCESSOR = _chosen()
globals().update({name: what for name, what in vars(import_module(f"{__name__}.{PROCESSOR}")).items() if name[0] != "_"})

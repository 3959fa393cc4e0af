"""The compiled loops, of which there is a module for each kind of processor: the last one that runs
here is taken.

PGMENGINE_KERNELS=base, avx2 or avx512 in the environment takes another one that runs here.
"""

import os
from importlib import import_module
from importlib.util import find_spec

from pgmengine._kernels import base
from pgmengine.base.errors import PgmError

PROCESSORS = tuple(
    name for name in base.PROCESSORS if find_spec(f"{__name__}.{name}")
)  # some may not have been built


def _chosen() -> str:
    name = os.environ.get("PGMENGINE_KERNELS") or PROCESSORS[-1]
    if name not in PROCESSORS:
        raise PgmError(
            f"PGMENGINE_KERNELS is {name!r}; what runs on this processor is {', '.join(PROCESSORS)}"
        )
    return name


PROCESSOR = _chosen()
_own = vars(import_module(f"{__name__}.{PROCESSOR}"))
globals().update(
    {name: what for name, what in _own.items() if name[0] != "_" and name != "PROCESSORS"}
)

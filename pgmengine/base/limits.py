"""The largest numbers taken, of parameters, data and hints: chains in single precision can sum what
they multiply.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pgmengine._kernels import LARGEST as LARGEST

IN_RANGE = f"a finite number of size up to {LARGEST:g}"


def in_range(values: Any) -> Any:
    """Which numbers are finite and not beyond LARGEST."""
    return np.abs(values) <= LARGEST  # not so for NaN

"""Limits of numbers and arrays that all rooms share.

LARGEST is the largest absolute value of parameters, data and soft evidence. Compiled chains compute
in single precision, whose largest number is 3.4e38. Products of two numbers within this limit stay
below that, and so do sums of such products over many units.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pgmengine._kernels import LARGEST as LARGEST
from pgmengine.base.types import Array

# Relative rounding error of single precision.
SINGLE_ROUNDING = 2.0**-24

# The most axes of an array of numpy, and the most levels of lists within lists.
MAX_AXES = 64

IN_RANGE = f"a finite number of size up to {LARGEST:g}"


def in_range(values: ArrayLike) -> Array:
    """Return whether each number is finite and at most LARGEST in size."""
    # Both comparisons are False for NaN. Absolute values would be a second copy of large weights.
    values = np.asarray(values)
    return np.asarray((values <= LARGEST) & (values >= -LARGEST))

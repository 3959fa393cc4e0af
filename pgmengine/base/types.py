"""Types that every room shares."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

# Numbers with any number of axes; docstrings give the shapes.
Array: TypeAlias = NDArray[Any]

# Values of all units, flat: layer -> (rows, width of the layer).
States: TypeAlias = dict[str, Array]

# A seed, a generator, or None for fresh randomness from the system.
RngLike: TypeAlias = "int | np.random.Generator | None"

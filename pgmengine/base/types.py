"""Types that every room shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    import pandas as pd

# Numbers with any number of axes; docstrings give the shapes.
Array: TypeAlias = NDArray[Any]

# Values of all units, flat: layer -> (rows, width of the layer).
States: TypeAlias = dict[str, Array]

# A seed, a generator, or None for fresh randomness from the system.
RngLike: TypeAlias = "int | np.random.Generator | None"

# A parameter: a dense array, or a scipy sparse array whose stored entries are the parameters. They
# share @, .T and slicing; scipy has no type annotations, so that both are Any for a type checker.
Weight: TypeAlias = Any

# Parameter name -> its numbers.
Params: TypeAlias = Mapping[str, Weight]

# The condition of chains, a method, a phase or an optimizer, from which it can continue if the
# parameters and the random numbers are also restored: name -> array.
Snapshot: TypeAlias = dict[str, Array]

# Values of layers as users give them: layer -> (size,) or (rows, size), with NaN where a value is
# missing; or a DataFrame with a column for each unit.
LayerValues: TypeAlias = "Mapping[str, ArrayLike] | pd.DataFrame"

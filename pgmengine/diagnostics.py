"""Diagnostics of Markov chains.

For small models there are exact transition matrices and their spectra. For all models there are
autocorrelation times, and counts of changes between known modes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.base.types import Array
from pgmengine.engine.spectrum import joint_states, slem, transition_matrix
from pgmengine.infer.diagnostics.autocorrelation import (
    Times,
    autocorrelation_function,
    autocorrelation_time,
    autocorrelation_time_ar,
    autocorrelation_time_means,
    autocorrelation_times,
)
from pgmengine.infer.diagnostics.convergence import chain_statistics, series_statistics
from pgmengine.model.containers import as_floats

__all__ = [
    "Times",
    "autocorrelation_function",
    "autocorrelation_time",
    "autocorrelation_time_ar",
    "autocorrelation_time_means",
    "autocorrelation_times",
    "chain_statistics",
    "class_changes",
    "joint_states",
    "nearest_modes",
    "series_statistics",
    "slem",
    "transition_matrix",
]


def __dir__() -> list[str]:
    """Return the public names, for completion."""
    return __all__


def nearest_modes(states: ArrayLike, modes: ArrayLike) -> Array:
    """Return the number of the mode with the smallest Hamming distance from each state.

    Parameters
    ----------
    states : (..., d).
    modes : (m, d).

    Returns
    -------
    Numbers (...,) from 0 to m - 1; -1 where several modes are equally near.

    >>> import pgmengine as pgm
    >>> pgm.diagnostics.nearest_modes([[0, 0, 1], [1, 1, 0]], [[0, 0, 0], [1, 1, 1]])
    array([0, 1])
    """
    x, centres = as_floats(states, "states"), as_floats(modes, "modes")
    distance = (x[..., None, :] != centres).sum(axis=-1)
    tied = (distance == distance.min(axis=-1, keepdims=True)).sum(axis=-1) > 1
    return np.where(tied, -1, distance.argmin(axis=-1))


def class_changes(states: ArrayLike, modes: ArrayLike) -> Array | int:
    """Count how often the nearest mode of a chain changes.

    Use it to compare samplers on data with known modes (`datasets.artificial_modes`). States that
    are equally near to several modes are left out.

    Parameters
    ----------
    states : (steps, d), or (steps, chains, d).
    modes : (m, d).

    Returns
    -------
    The number of changes, or an array (chains,) of them.

    References
    ----------
    Brügge, Fischer and Igel (2013), "The flip-the-state transition operator for restricted
    Boltzmann machines".

    >>> import pgmengine as pgm
    >>> pgm.diagnostics.class_changes([[0, 0], [0, 1], [1, 1], [1, 1]], [[0, 0], [1, 1]])
    1
    """
    labels = nearest_modes(states, modes)
    if labels.ndim == 1:
        kept = labels[labels >= 0]
        return int((kept[1:] != kept[:-1]).sum())
    x = as_floats(states, "states")
    return np.array([class_changes(x[:, c], modes) for c in range(labels.shape[1])])

"""Exact transition matrices of sweeps, and their spectrum, for models with few joint states."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.base.errors import PgmError
from pgmengine.base.numerics import softmax
from pgmengine.base.types import Array, States
from pgmengine.engine.reference import moves
from pgmengine.engine.visits import visited
from pgmengine.evidence.target import Target
from pgmengine.model.containers import as_floats

if TYPE_CHECKING:
    from pgmengine.engine.kernels import Kernel

# The most states of a transition matrix, which then takes 0.5 GiB.
MAX_MATRIX_STATES = 8192


def joint_states(target: Target) -> States:
    """Return all joint states of the free units of a target.

    Parameters
    ----------
    target : a target with one row of evidence.

    Returns
    -------
    Layer -> (states, width of the layer), flat values. The last free unit changes fastest.

    Raises
    ------
    PgmError
        For several rows, units with infinitely many values, and more than 8192 states.

    >>> import pgmengine as pgm
    >>> pgm.diagnostics.joint_states(pgm.rbm(1, 1, rng=0).given())["h"].ravel()
    array([0., 1., 0., 1.])
    """
    grid = _grid(target)
    index = _digits([len(support) for _, _, support in grid])
    out = {
        name: np.repeat(value, index.shape[1], axis=0)
        for name, value in target.evidence.values.items()
    }
    for (name, unit, support), digit in zip(grid, index, strict=True):
        columns = target.structure.layers[name].columns(np.array([unit]))
        out[name][:, columns] = support[digit]
    return out


def _digits(sizes: list[int]) -> Array:
    """Return the digits (places, numbers) of all numbers in a mixed radix, in ascending order."""
    return np.indices(sizes).reshape(len(sizes), -1) if sizes else np.zeros((0, 1), dtype=int)


def _grid(target: Target) -> list[tuple[str, int, Array]]:
    """Return (layer, unit, support) of the free units."""
    if target.rows != 1:
        raise PgmError(f"the target has {target.rows} rows of evidence, expected one")
    grid, states = [], 1
    for name, layer in target.structure.layers.items():
        for unit in np.flatnonzero(target.free[name][0]):
            support = layer.unit.support
            if support is None:
                raise PgmError(
                    f"layer {name!r} has {layer.unit!r} units, whose states cannot be enumerated"
                )
            grid.append((name, int(unit), support.reshape(len(support), layer.unit.width)))
            states *= len(support)
    if states > MAX_MATRIX_STATES:
        raise PgmError(
            f"the target has {states} joint states, and a transition matrix may have at most "
            f"{MAX_MATRIX_STATES}; observe some units"
        )
    return grid


def transition_matrix(target: Target, kernel: Kernel) -> Array:
    """Return the transition matrix of one sweep.

    Use it to compare kernels by their spectrum on small models (`slem`), or to prove that a kernel
    leaves its distribution invariant. The units move one after the other in the order of a sweep.
    Units that a sweep moves at once are independent given the others, so that their order does not
    matter.

    Parameters
    ----------
    target : a target with one row of evidence and at most 8192 joint states.
    kernel : a Markov transition of single units, such as pgm.Gibbs(); of pgm.TreeGibbs() these are
        the moves before it draws a forest.

    Returns
    -------
    T (states, states) with T[x, y] = p(next = y | current = x), states as in `joint_states`.

    Raises
    ------
    PgmError
        For a target whose states cannot be enumerated.

    >>> import pgmengine as pgm
    >>> pgm.diagnostics.transition_matrix(pgm.rbm(1, 1, rng=0).given(), pgm.Gibbs()).shape
    (4, 4)
    """
    from scipy.sparse import csr_array

    grid = _grid(target)
    sizes = [len(support) for _, _, support in grid]
    states = int(np.prod(sizes))
    log_p = target.take(np.zeros(states, dtype=int)).log_density(joint_states(target))
    digits = _digits(sizes)
    matrix = np.eye(states)
    order = [name for names in visited(target) for name in names]
    for u in sorted(range(len(grid)), key=lambda u: order.index(grid[u][0])):
        step = int(np.prod(sizes[u + 1 :]))
        reached = (np.arange(states) - digits[u] * step)[:, None] + step * np.arange(sizes[u])
        weights = log_p[reached]
        # If the states of the other units are impossible, the unit moves to any state.
        impossible = np.isneginf(weights).all(axis=1, keepdims=True)
        prob = softmax(np.where(impossible, 0.0, weights))
        # At beta = 0 sweeps draw from the conditionals, whatever the kernel.
        move = prob if target.beta[0] == 0 else moves(kernel, prob, digits[u])
        entries = (move.ravel(), (np.repeat(np.arange(states), sizes[u]), reached.ravel()))
        matrix = matrix @ csr_array(entries, shape=(states, states))
    return matrix


def slem(matrix: ArrayLike) -> float:
    """Return the second largest eigenvalue modulus of a transition matrix.

    After many steps, each step reduces the distance to the stationary distribution by this factor.

    Parameters
    ----------
    matrix : (states, states), a transition matrix.

    Returns
    -------
    The modulus, from 0 to 1; 0 for a single state.

    >>> import pgmengine as pgm
    >>> round(pgm.diagnostics.slem([[0.9, 0.1], [0.2, 0.8]]), 6)
    0.7
    """
    sizes = np.sort(np.abs(np.linalg.eigvals(as_floats(matrix, "matrix"))))
    return float(sizes[-2]) if len(sizes) > 1 else 0.0

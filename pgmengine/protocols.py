"""Protocols: the contracts between the rooms, each a base class or a typing.Protocol.

Imports only `base` at run time. Names of later rooms appear in annotations alone, so that a
contract can mention a Model or a Target without a dependency on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from pgmengine.base.types import Array, Weight

if TYPE_CHECKING:
    from pgmengine.graph.layer import Layer

# --- Graph and engine: couplings of layers, and Markov transitions of units ---


class Coupling(Protocol):
    """An edge of the layer graph, which is bilinear in the values of its two layers: x_a W x_b.

    Attributes
    ----------
    a, b : names of the layers; the parent and the child of a directed coupling.
    directed : whether the coupling adds to the input of its child instead of to the log density.
    key : name of the coupling; its weight is params[key + ".weight"].
    """

    @property
    def a(self) -> str: ...  # noqa: D102

    @property
    def b(self) -> str: ...  # noqa: D102

    @property
    def directed(self) -> bool: ...  # noqa: D102

    @property
    def key(self) -> str: ...  # noqa: D102

    def within(self, layer: Layer) -> Coupling:
        """Return the coupling with what it needs to know about its first layer."""

    def blocks(self, weight: Weight) -> Iterator[tuple[str, str, Weight]]:
        """Yield (to, from, M) for both ends: the field of layer `to` gains x_from @ M."""

    def parameters(self, weight: Weight) -> Weight:
        """Return 1 where an entry of the weight is a parameter, and 0 elsewhere."""

    def statistics(self, weight: Weight, xa: Array, xb: Array) -> Weight:
        """Return the derivative of the log density in the weight, summed over rows.

        xa (rows, width of a) are values; xb (rows, width of b) are values, or the scores of the
        children of a directed coupling.
        """

    def projected(self, weight: Weight, found: Weight) -> Weight:
        """Return the part of a matrix of derivatives that changes parameters."""


class Kernel(Protocol):
    """A Markov transition of one unit given all others.

    A class may set `flip_share`, the share from 0 to 1 of FlipState beside Gibbs, and is then run
    by compiled sweeps. The transition of all others is called as it is written.
    """

    def transition(self, prob: Array, current: Array) -> Array:
        """Return the probabilities (..., K) of the next state.

        prob (..., K) are the conditional probabilities of the states given all other units, current
        (...,) the present states.
        """

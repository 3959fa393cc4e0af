"""Families of models: functions that declare common graphs by GraphBuilder."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pgmengine.base.errors import PgmError
from pgmengine.base.types import RngLike, Weight
from pgmengine.declare.builder import GraphBuilder
from pgmengine.model.model import Model
from pgmengine.units import Binary, Categorical, Input, MultiValued, Spin, Unit


def rbm(
    visible_size: int,
    hidden_size: int,
    visible: Unit | None = None,
    hidden: Unit | None = None,
    rng: RngLike = None,
) -> Model:
    """Restricted Boltzmann machine: layers "v" and "h", one undirected coupling.

    >>> import pgmengine as pgm
    >>> pgm.rbm(784, 500, rng=0)
    Restricted Boltzmann machine: 2 layers, 1 coupling, 393,284 parameters
      v: 784 Binary
      h: 500 Binary
      couplings: v-h
    """
    b = GraphBuilder()
    b.layer("v", visible or Binary(), visible_size)
    b.layer("h", hidden or Binary(), hidden_size)
    b.couple("v", "h")
    return b.build(rng)


def _stack(sizes: Sequence[int], unit: Unit | None) -> tuple[GraphBuilder, list[str]]:
    """Return a builder with a stack of layers, and their names, visible first."""
    if len(sizes) < 2:
        raise PgmError(f"sizes must hold at least two layers, visible first, not {list(sizes)}")
    names = ["v", *(f"h{i}" for i in range(1, len(sizes)))]
    b = GraphBuilder()
    for name, size in zip(names, sizes, strict=True):
        b.layer(name, unit or Binary(), size)
    return b, names


def dbm(sizes: Sequence[int], unit: Unit | None = None, rng: RngLike = None) -> Model:
    """Deep Boltzmann machine: layers "v", "h1", "h2", ..., undirected couplings between neighbours.

    >>> import pgmengine as pgm
    >>> pgm.dbm([6, 4, 2], rng=0)
    Boltzmann machine: 3 layers, 2 couplings, 44 parameters
      v: 6 Binary
      h1: 4 Binary
      h2: 2 Binary
      couplings: v-h1, h1-h2
    """
    b, names = _stack(sizes, unit)
    for below, above in zip(names, names[1:], strict=False):
        b.couple(below, above)
    return b.build(rng)


def sbn(sizes: Sequence[int], unit: Unit | None = None, rng: RngLike = None) -> Model:
    """Sigmoid belief network, visible first: layers "v", "h1", "h2", ..., arrows h2 -> h1 -> v.

    >>> import pgmengine as pgm
    >>> pgm.sbn([6, 4, 2], rng=0)
    Bayesian network: 3 layers, 2 directed couplings, 44 parameters
      v: 6 Binary
      h1: 4 Binary
      h2: 2 Binary
      couplings: h1->v, h2->h1
    """
    b, names = _stack(sizes, unit)
    for below, above in zip(names, names[1:], strict=False):
        b.cause(above, below)
    return b.build(rng)


def dbn(sizes: Sequence[int], unit: Unit | None = None, rng: RngLike = None) -> Model:
    """Deep belief network: an undirected coupling of the two top layers, and arrows below.

    >>> import pgmengine as pgm
    >>> pgm.dbn([6, 4, 2], rng=0)
    Graphical model: 3 layers, 1 directed coupling, 1 coupling, 44 parameters
      v: 6 Binary
      h1: 4 Binary
      h2: 2 Binary
      couplings: h1->v, h1-h2
    """
    b, names = _stack(sizes, unit)
    for below, above in zip(names[:-2], names[1:-1], strict=True):
        b.cause(above, below)
    b.couple(names[-2], names[-1])
    return b.build(rng)


def drbm(
    inputs: int, hidden_size: int, classes: int, hidden: Unit | None = None, rng: RngLike = None
) -> Model:
    """Discriminative RBM (Yokoyama, Katsumata and Yasuda 2019): layers "x", "h" and "y".

    Layer "x" has Input units, "y" one Categorical(classes) unit.

    >>> import pgmengine as pgm
    >>> pgm.drbm(784, 200, 10, rng=0)
    Boltzmann machine: 3 layers, 2 couplings, 159,010 parameters
      x: 784 Input
      h: 200 MultiValued(s=inf)
      y: 1 Categorical(k=10)
      couplings: x-h, h-y
    """
    b = GraphBuilder()
    b.layer("x", Input(), inputs)
    b.layer("h", hidden or MultiValued(math.inf), hidden_size)
    b.layer("y", Categorical(classes), 1)
    b.couple("x", "h")
    b.couple("h", "y")
    return b.build(rng)


def boltzmann_machine(
    size: int, unit: Unit | None = None, weight: Weight | None = None, rng: RngLike = None
) -> Model:
    """Boltzmann machine: one layer "x" of Spin units with a lateral coupling.

    Each pair of units counts once in the log density.

    >>> import pgmengine as pgm
    >>> pgm.boltzmann_machine(5, rng=0)
    Boltzmann machine: 1 layer, 1 coupling, 15 parameters
      x: 5 Spin
      couplings: x-x
    """
    b = GraphBuilder()
    b.layer("x", unit or Spin(), size)
    b.couple("x", "x", weight=weight)
    return b.build(rng)

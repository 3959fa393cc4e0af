"""Families of models: functions that declare common graphs by GraphBuilder."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pgmengine.base.errors import PgmError, told
from pgmengine.base.names import is_sequence
from pgmengine.base.types import RngLike, Weight
from pgmengine.declare.builder import GraphBuilder
from pgmengine.declare.model import Model
from pgmengine.units import Binary, Categorical, Input, MultiValued, Spin, Unit


def rbm(
    visible_size: int,
    hidden_size: int,
    visible: Unit | None = None,
    hidden: Unit | None = None,
    rng: RngLike = None,
) -> Model:
    """Return a restricted Boltzmann machine: layers "v" and "h", one undirected coupling.

    Use it for the distribution of data vectors, with hidden units that are independent given the
    data.

    Parameters
    ----------
    visible_size, hidden_size : the numbers of units of the layers.
    visible, hidden : the types of their units, Binary() by default.
    rng : a seed or a generator, for the drawn weights.

    Returns
    -------
    The model, with biases of 0 and drawn weights.

    Raises
    ------
    PgmError for sizes below 1, and for two layers of unbounded units.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> pgm.rbm(784, 500, rng=0)
    Restricted Boltzmann machine: 2 layers, 1 coupling, 393,284 parameters
      v: 784 Binary
      h: 500 Binary
      couplings: v-h
    """
    b = GraphBuilder()
    b.layer("v", Binary() if visible is None else visible, visible_size)
    b.layer("h", Binary() if hidden is None else hidden, hidden_size)
    b.couple("v", "h")
    return b.build(rng)


def _stack(sizes: Sequence[int], unit: Unit | None) -> tuple[GraphBuilder, list[str]]:
    """Return a builder with a stack of layers, and their names, visible first."""
    counts = list(sizes) if is_sequence(sizes) else []
    if len(counts) < 2:
        raise PgmError(
            "sizes must be the numbers of units of at least two layers, visible first, such as "
            f"[12, 6], not {told(sizes)}"
        )
    names = ["v", *(f"h{i}" for i in range(1, len(counts)))]
    b = GraphBuilder()
    for name, size in zip(names, counts, strict=True):
        b.layer(name, Binary() if unit is None else unit, size)
    return b, names


def dbm(sizes: Sequence[int], unit: Unit | None = None, rng: RngLike = None) -> Model:
    """Return a deep Boltzmann machine: layers "v", "h1", "h2", ..., each coupled to the next.

    Use it for several layers of features that influence each other in both directions. `pretrain`
    gives it a good start.

    Parameters
    ----------
    sizes : the numbers of units of the layers, visible first; at least two.
    unit : the type of all units, Binary() by default.
    rng : a seed or a generator, for the drawn weights.

    Returns
    -------
    The model, with biases of 0 and drawn weights.

    Raises
    ------
    PgmError for fewer than two layers, sizes below 1, and units that cannot be coupled.

    References
    ----------
    Salakhutdinov and Hinton (2009), Deep Boltzmann machines.

    Examples
    --------
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
    """Return a sigmoid belief network: layers "v", "h1", "h2", ..., with arrows h2 -> h1 -> v.

    Use it for data that are drawn from hidden causes. The model is normalised, and mean field
    bounds the probability of the data.

    Parameters
    ----------
    sizes : the numbers of units of the layers, visible first; at least two.
    unit : the type of all units, Binary() by default.
    rng : a seed or a generator, for the drawn weights.

    Returns
    -------
    The model, with biases of 0 and drawn weights.

    Raises
    ------
    PgmError for fewer than two layers, sizes below 1, and units that cannot be coupled.

    References
    ----------
    Neal (1992), Connectionist learning of belief networks.

    Examples
    --------
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
    """Return a deep belief network: an undirected coupling of the two top layers, arrows below.

    Use it where an RBM is the prior of the hidden causes of a belief network.

    Parameters
    ----------
    sizes : the numbers of units of the layers, visible first; at least two.
    unit : the type of all units, Binary() by default.
    rng : a seed or a generator, for the drawn weights.

    Returns
    -------
    The model, with biases of 0 and drawn weights.

    Raises
    ------
    PgmError for fewer than two layers, sizes below 1, and units that cannot be coupled.

    References
    ----------
    Hinton, Osindero and Teh (2006), A fast learning algorithm for deep belief nets.

    Examples
    --------
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
    """Return a discriminative RBM: layers "x", "h" and "y", with couplings x-h and h-y.

    Use it to classify. Layer "x" has Input units, which are always observed, and "y" has one
    Categorical unit, so that learning maximises p(class | x).

    Parameters
    ----------
    inputs : the number of features.
    hidden_size : the number of hidden units.
    classes : the number of classes, at least 2.
    hidden : the type of the hidden units, MultiValued(math.inf) by default.
    rng : a seed or a generator, for the drawn weights.

    Returns
    -------
    The model, with biases of 0 and drawn weights.

    Raises
    ------
    PgmError for sizes below 1, and for fewer than two classes.

    References
    ----------
    Yokoyama, Katsumata and Yasuda (2019), "Restricted Boltzmann machine with multivalued hidden
    variables: a model suppressing over-fitting".

    Examples
    --------
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
    b.layer("h", MultiValued(math.inf) if hidden is None else hidden, hidden_size)
    b.layer("y", Categorical(classes), 1)
    b.couple("x", "h")
    b.couple("h", "y")
    return b.build(rng)


def boltzmann_machine(
    size: int, unit: Unit | None = None, weight: Weight | None = None, rng: RngLike = None
) -> Model:
    """Return a Boltzmann machine: one layer "x" of Spin units, all coupled with each other.

    Use it for Ising models and spin glasses. Each pair of units counts once in the log density.

    Parameters
    ----------
    size : the number of units.
    unit : the type of the units, Spin() by default.
    weight : (size, size) symmetric with a zero diagonal, dense or a scipy sparse array; drawn by
        default.
    rng : a seed or a generator, for the drawn weights.

    Returns
    -------
    The model, with biases of 0.

    Raises
    ------
    PgmError for a size below 1, unbounded units, and a weight of another shape or without symmetry.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> pgm.boltzmann_machine(5, rng=0)
    Boltzmann machine: 1 layer, 1 coupling, 15 parameters
      x: 5 Spin
      couplings: x-x
    """
    b = GraphBuilder()
    b.layer("x", Spin() if unit is None else unit, size)
    b.couple("x", "x", weight=weight)
    return b.build(rng)

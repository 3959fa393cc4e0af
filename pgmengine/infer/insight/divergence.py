"""divergence: the Kullback-Leibler divergence of two models of the same variables, in nats.

    KL(p || q) = E_p[s_p(x) - s_q(x)] - log Z_p + log Z_q

s is the log density of a model, not normalised, and a sum of factors of few units. Where
elimination answers, E_p of each factor follows from the joint distribution of its units under p,
all of which come from one junction tree. A real child of states without children of its own sums
to one and has no factor; its divergence given its parents has a formula (`Unit.divergence`), whose
mean is taken over the joint distribution of the parents in both models. Elsewhere the mean is one
over draws from p, with its standard error.

Units are matched by their names, and states by theirs.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np

from pgmengine.base.checks import seeded
from pgmengine.base.errors import InternalError, PgmError
from pgmengine.base.names import nearest
from pgmengine.base.types import Array, RngLike
from pgmengine.declare.model import Model, ModelLike, as_model
from pgmengine.evidence.target import one_for_all
from pgmengine.infer.exact.exact import Exact
from pgmengine.infer.exact.junction_tree.conditioned_model import Form, condition
from pgmengine.infer.exact.junction_tree.marginalised import InfiniteTerm
from pgmengine.infer.question.ask import infer
from pgmengine.infer.question.prepared import MethodLike, as_method
from pgmengine.infer.results.by_name import Joint
from pgmengine.infer.results.result import Result
from pgmengine.model.graph.unit_graph import unit_graph
from pgmengine.model.layer import Layer
from pgmengine.model.names.unit_names import Member, Place

# The most sets of units whose joint distributions are asked for together, and the most units and
# states of one of them.
MAX_SCOPES, MAX_UNITS, MAX_STATES = 5_000, 20, 2**20

# Rounding of a difference of sums that is 0, as a share of the sizes of the sums.
ROUNDING = 1e-12

Scope = tuple[Hashable, ...]


class Divergence(float):
    """The divergence of a model from another one in nats: a number, and how far to trust it.

    Attributes
    ----------
    error : its standard error; 0 where it is exact.
    kind : "exact", or "estimate".
    warnings : the warnings of the answers from which it comes.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> p, q = (pgm.network({"x": 2}, "x").with_params({"x|.table": np.log(t)})
    ...         for t in ([0.5, 0.5], [0.9, 0.1]))
    >>> pgm.divergence(p, q)
    Divergence: 0.5108 (exact)
    """

    error: float
    kind: str
    warnings: tuple[str, ...]

    def __new__(
        cls, value: float, error: float = 0.0, kind: str = "exact", warnings: tuple[str, ...] = ()
    ) -> Divergence:
        """Return a number with its error, kind and warnings."""
        out = super().__new__(cls, value)
        out.error, out.kind, out.warnings = error, kind, warnings
        return out

    def __repr__(self) -> str:
        error = "" if self.kind == "exact" else f" ± {self.error:.2g}"
        return "\n  ".join([f"Divergence: {float(self):.4g}{error} ({self.kind})", *self.warnings])


def divergence(
    p: ModelLike, q: ModelLike, method: MethodLike | None = None, rng: RngLike = None
) -> Divergence:
    """Return the Kullback-Leibler divergence KL(p || q) of two models of the same variables.

    Use it to see how far a learned model is from the truth, or one fit from another: it is the
    mean of log p(x) - log q(x) over states from p, 0 only for equal distributions, and infinite
    where q rules out a state of p. It is exact where elimination answers about p and q, also with
    Normal children; otherwise an estimate by draws from p.

    Parameters
    ----------
    p, q : the models, or Fits, whose units have the same names and states, in any order.
    method : of the draws from p, and of log Z if it gives it; Auto() by default. A method that is
        given is used in place of elimination.
    rng : an integer or a numpy Generator, for the draws.

    Returns
    -------
    A Divergence: a float with `error`, `kind` and `warnings`.

    Raises
    ------
    PgmError for variables that only one model has or that have other states in the other one, and
    where no method answers.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> few = {"rain": [0, 0, 0, 1], "wet": [0, 0, 1, 1]}
    >>> net = pgm.network("rain -> wet", states={"rain": 2, "wet": 2})
    >>> truth = pgm.fit(net, few, progress=False)
    >>> draws = pgm.infer(truth, want=("samples",), method=pgm.Forward(draws=2000), rng=0)
    >>> rows = {name: draws.samples[name][:, 0] for name in few}
    >>> found = pgm.divergence(truth, pgm.fit(net, rows, progress=False))
    >>> bool(0 < found < 0.01), found.kind
    (True, 'exact')

    References
    ----------
    Kullback and Leibler (1951), On information and sufficiency.
    """
    one, two, drawn = _named(p, "p"), _named(q, "q"), seeded(rng)
    _check_same(one, two)
    found = None if method is not None else _exact(one, two)
    return _estimate(one, two, method, drawn) if found is None else found


@dataclass(frozen=True, eq=False)
class NamedModel:
    """A model with its units by name."""

    model: Model

    @cached_property
    def places(self) -> dict[Hashable, Place]:
        """Name -> place of all units."""
        return self.model.structure.names.by_key()

    @cached_property
    def keys(self) -> list[Hashable]:
        """The name of each unit, numbered over all layers."""
        first = self.model.structure.first_unit
        return sorted(self.places, key=lambda key: first[self.places[key][0]] + self.places[key][1])

    def layer(self, key: Hashable) -> Layer:
        """Return the layer of a unit."""
        return self.model.structure.layers[self.places[key][0]]

    def states(self, key: Hashable) -> list[Any]:
        """Return the names of the states of a unit, their values or numbers; none for reals."""
        layer = self.layer(key)
        support = layer.unit.support
        if support is None:
            return []
        plain = range(len(support)) if layer.unit.width > 1 else support.tolist()
        return list(layer.state_names or plain)

    def factors(self) -> Iterator[tuple[Scope, Array]]:
        """Yield the scope and the logarithms of the entries of each factor of finite units."""
        target = one_for_all(self.model.given(), np.arange(1))
        conditioned = condition(target, Form())
        keys = [self.keys[i] for i in np.flatnonzero(conditioned.free.number >= 0)]
        for term in conditioned.terms:
            if isinstance(term, InfiniteTerm):
                continue
            values, begin = term.values(target)[:, 0], 0
            for first, last in zip(term.scopes.start, term.scopes.start[1:], strict=False):
                units = term.scopes.scope[first:last]
                shape = conditioned.states[units]
                end = begin + math.prod(shape.tolist())
                yield tuple(keys[i] for i in units), values[begin:end].reshape(shape)
                begin = end


def _named(given: ModelLike, name: str) -> NamedModel:
    """Return an argument as a model; PgmError with the name of the argument for anything else."""
    try:
        return NamedModel(as_model(given))
    except PgmError as error:
        raise PgmError(f"divergence: {name}: {error}") from None


def _check_same(one: NamedModel, two: NamedModel) -> None:
    """PgmError unless both models have the same units with the same states."""
    for mine, theirs, name, other in ((one, two, "p", "q"), (two, one, "q", "p")):
        for key in mine.places:
            if key not in theirs.places:
                near = nearest(key, theirs.places)
                raise PgmError(f"divergence: {name} has {key!r}, and {other} has none{near}")
            a, b = mine.states(key), theirs.states(key)
            if {(type(x) is bool, x) for x in a} != {(type(x) is bool, x) for x in b}:
                raise PgmError(
                    f"divergence: {key!r} has the states {a or 'of real numbers'} in {name}, and "
                    f"{b or 'real numbers'} in {other}; expected the same"
                )


def _exact(one: NamedModel, two: NamedModel) -> Divergence | None:
    """Return the exact divergence; None where elimination does not answer."""
    if one.model.structure.compact_gates or two.model.structure.compact_gates:
        return None
    try:
        terms = [(scope, logs) for scope, logs in one.factors()]
        theirs = [(scope, _in_order(one, two, scope, logs)) for scope, logs in two.factors()]
        real = _of_reals(one, two)
        if real is None:
            return None
        scopes = list(dict.fromkeys(scope for scope, _ in (*terms, *theirs, *real)))
        if len(scopes) > MAX_SCOPES or any(len(scope) > MAX_UNITS for scope in scopes):
            return None
        wanted = {scope: Joint(*cast(tuple[Member, ...], scope)) for scope in scopes if scope}
        ours = infer(one.model, None, ("log_z", *wanted.values()), Exact(), progress=False)
        other = infer(two.model, None, ("log_z",), Exact(), progress=False)
    except PgmError:
        # A table or a tree that is too large; draws may answer.
        return None
    joints = {scope: ours.answers["joint"][w.units] for scope, w in wanted.items()} | {(): 1.0}
    parts = [float(other.log_z[0]), -float(ours.log_z[0])]
    parts += [_mean(joints[scope], logs) for scope, logs in (*terms, *real)]
    parts += [-_mean(joints[scope], logs) for scope, logs in theirs]
    size, value = sum(map(abs, parts)), math.fsum(parts)
    return Divergence(0.0 if value < ROUNDING * size else value)


def _mean(prob: Array, logs: Array) -> float:
    """Return the sum of p times a logarithm, which may be -inf where p is 0."""
    if np.shape(prob) != logs.shape:
        raise InternalError(f"a joint distribution {np.shape(prob)} of a factor {logs.shape}")
    return float(np.sum(np.where(prob > 0, prob, 0.0) * np.where(prob > 0, logs, 0.0)))


def _in_order(one: NamedModel, two: NamedModel, scope: Scope, logs: Array) -> Array:
    """Return entries of the second model with the states in the order of the first one."""
    for axis, key in enumerate(scope):
        mine, theirs = one.states(key), two.states(key)
        logs = logs.take([theirs.index(state) for state in mine], axis=axis)
    return logs


def _of_reals(one: NamedModel, two: NamedModel) -> list[tuple[Scope, Array]] | None:
    """Return the divergence of each real child given all its parents; None without a formula."""
    out = list[tuple[Scope, Array]]()
    for key in one.keys:
        if one.states(key):
            continue
        if not (_is_leaf(one, key) and _is_leaf(two, key)):
            return None
        scope = tuple(dict.fromkeys([*_parents(one, key), *_parents(two, key)]))
        sizes = [len(one.states(parent)) for parent in scope]
        if not all(sizes) or math.prod(sizes) > MAX_STATES:
            return None
        grid = np.indices(sizes).reshape(len(sizes), -1)
        inputs = (_inputs(named, key, scope, grid, one) for named in (one, two))
        found = one.layer(key).unit.divergence(next(inputs), two.layer(key).unit, next(inputs))
        if found is None:
            return None
        out.append((scope, found.reshape(sizes)))
    return out


def _is_leaf(named: NamedModel, key: Hashable) -> bool:
    """Whether a unit can only be a child."""
    return named.layer(key).unit.child_only


def _parents(named: NamedModel, key: Hashable) -> list[Hashable]:
    """Return the names of the parents of a unit by arrows."""
    s, (layer, unit) = named.model.structure, named.places[key]
    return [named.keys[i] for i in unit_graph(named.model).parents.of(s.first_unit[layer] + unit)]


def _inputs(
    named: NamedModel, key: Hashable, scope: Scope, grid: Array, order: NamedModel
) -> Array:
    """Return the inputs (states, width) of a real child at joint states of its parents.

    `grid` (parents, states) has numbers of states in the order of the model `order`.
    """
    s, n = named.model.structure, grid.shape[1]
    x = {name: np.zeros((n, layer.width)) for name, layer in s.layers.items()}
    for parent, numbers in zip(scope, grid, strict=True):
        layer, own = named.layer(parent), named.states(parent)
        number = np.array([own.index(state) for state in order.states(parent)])[numbers]
        assert layer.unit.support is not None
        at = layer.columns(np.array([named.places[parent][1]]))
        x[layer.name][:, at] = layer.unit.support[number].reshape(n, -1)
    name, unit = named.places[key]
    return s.layers[name].shaped(named.model.inputs(x, name))[:, unit]


def _estimate(
    one: NamedModel, two: NamedModel, method: MethodLike | None, rng: np.random.Generator
) -> Divergence:
    """Return the divergence by draws from the first model."""
    draws = infer(one.model, None, ("samples",), method, rng=rng, progress=False)
    by = None if method is None or "log_z" not in as_method(method).gives else method
    sums = [infer(x.model, None, ("log_z",), by, rng=rng, progress=False) for x in (one, two)]
    if lower := [r.kind for r in sums if r.kind not in ("exact", "estimate")]:
        raise PgmError(
            f"divergence: log Z is a {lower[0]} by {sums[0].method!r}, expected an exact answer or "
            "an estimate; give another method"
        )
    outside = False

    def difference(x: Any) -> Array:
        """Return log p - log q of the draws, not normalised, and 0 where q rules them out."""
        nonlocal outside
        states = {name: _as_given(one, name, draw[:, 0]) for name, draw in x.items()}
        ours, theirs = one.model.log_density(states), two.model.log_density(states)
        never = np.isneginf(theirs)
        outside = bool((never & np.isfinite(ours)).any())
        return np.where(never, 0.0, ours - np.where(never, 0.0, theirs))

    found = draws.expectation(difference)
    if outside:
        # One state of p that q rules out is a proof.
        return Divergence(math.inf)
    warnings = tuple(dict.fromkeys(w for r in (draws, *sums) for w in r.warnings))
    errors = [float(found.error), *map(_error, sums)]
    value = float(found.mean) - float(sums[0].log_z[0]) + float(sums[1].log_z[0])
    return Divergence(value, math.hypot(*errors), "estimate", warnings)


def _as_given(named: NamedModel, name: Hashable, draws: Array) -> Array:
    """Return draws of a layer or a variable as evidence takes them."""
    layer = named.model.structure.layers.get(cast(str, name))
    return draws if layer is None or not layer.unit.cells else layer.unit.numbers_of(draws)


def _error(result: Result) -> float:
    """Return the standard error of log Z."""
    return 0.0 if result.kind == "exact" else float(result.log_z_error[0])

"""Elimination: exact answers on graphs of small width, by message passing on a junction tree.

Each evidence pattern has its conditioned model (factors over the free units), an elimination order,
and a junction tree; rows of one pattern are lanes of one pass. log Z needs the collect pass only,
marginals and expectations the distribute pass as well. The mode is the same schedule with the
maximum in place of the sum, and draws go backward through the tree.

References: Lauritzen and Spiegelhalter (1988); Shafer and Shenoy (1990); Koller and Friedman
(2009), chapter 10.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pgmengine._kernels import JunctionTree
from pgmengine.base.checks import check_limit, check_whole, seeded
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, RngLike, States
from pgmengine.graph.queries import hinted
from pgmengine.graph.target import Target
from pgmengine.graph.variables import find
from pgmengine.infer.answers import add_gradients, evidence_patterns
from pgmengine.infer.by_name import Joint
from pgmengine.infer.exact.answered import Answer, check_possible, exact_answers, put
from pgmengine.infer.exact.conditioned import Conditioned, JointTerm, condition
from pgmengine.infer.exact.expected import Expected
from pgmengine.infer.exact.order import Order, best_order
from pgmengine.infer.exact.summed import InfiniteTerm
from pgmengine.infer.prepared import Method, Prepared, Scheme
from pgmengine.infer.result import WANTS, Result, quantity
from pgmengine.protocols import Accumulator

# Seconds for a table entry and a pass.
ENTRY = 3e-9

# Quantities that need the marginals of units, and those that need the factors of all parameters.
MOMENTS = {"marginals", "pairs", "gradient", "joint"}
PAIRS = {"pairs", "gradient"}

# Bytes of the rows that share a pass.
ROWS_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Elimination(Method):
    """Exact answers by message passing on a junction tree.

    Use it for graphs of small width, of any size: chains, trees, lattices of a small side, Bayesian
    networks and factor graphs. `Exact` takes it wherever it is cheaper than enumeration.

    Parameters
    ----------
    max_states : the largest number of table entries of all cliques together.
    draws : number of samples where they are wanted.

    >>> import pgmengine as pgm
    >>> chain = pgm.GraphBuilder()
    >>> chain.layer("x", pgm.Spin(), 100)
    >>> neighbours = [[i, i + 1] for i in range(99)]
    >>> chain.tables(("x", "x"), neighbours, [[2.0, 1.0], [1.0, 2.0]])
    >>> r = pgm.infer(chain.build(), want=("log_z",), method=pgm.Elimination())
    >>> r.log_z.round(3), r.stats["width"]
    (array([109.454]), 2.0)
    """

    gives = frozenset(WANTS) - {"bound"} | {"joint"}
    source = "elimination gives log_z itself,"
    guarantee = "exact"

    max_states: float = 2**27
    draws: int = 1000

    def __post_init__(self) -> None:
        check_limit(self, "max_states")
        check_whole(self, "draws")

    def scheme(self, target: Target, want: tuple[str, ...]) -> Scheme:
        """Find an order for every evidence pattern; refuse above max_states."""
        try:
            parts = _parts(target, want)
        except PgmError as error:
            return Scheme(refusal=str(error))
        trees = [tree for part in parts.values() for tree in part]
        if "mode" in want and any(any(t.conditioned.places(InfiniteTerm)) for t in trees):
            return Scheme(refusal="units with infinitely many values are summed out, not maximised")
        most = max(trees, key=lambda tree: tree.order.entries)
        work = sum(tree.work(self.draws, want) for tree in trees)
        if most.order.entries > self.max_states:
            refusal = (
                f"the best elimination order needs 2^{np.log2(most.order.entries):.4g} table "
                f"entries, the limit is 2^{np.log2(self.max_states):.4g}; its width is "
                f"{most.order.largest:.4g}, and no order has less than {most.order.bound:.4g}"
            )
            return Scheme(work=work, refusal=refusal)
        memory = max(tree.bytes(want) for tree in trees)
        return Scheme(most.described, work, memory, work * ENTRY, parts)

    def answer(
        self, question: Prepared, rng: RngLike, state: Any = None, executor: Executor | None = None
    ) -> Result:
        """Pass messages on the tree of every evidence pattern."""
        target, parts = question.target, question.basis
        generator = seeded(rng) if "samples" in question.want else None
        log_z, found = _eliminated(parts["posterior"], target, question.want, self.draws, generator)
        answers = exact_answers(target, log_z, found)
        if "log_prob" in question.want:
            answers["log_prob"] = log_z - _normaliser(parts, target)
        trees = parts["posterior"]
        width = max((tree.order.largest for tree in trees), default=0.0)
        entries = float(sum(tree.order.entries for tree in trees))
        return question.result(answers, {"width": width, "entries": entries})

    def expect(
        self, target: Target, weights: Array, total: Accumulator, rng: np.random.Generator
    ) -> None:
        """Add the sum over rows of weight * E[d log_density | row] to the sum of a phase."""
        total.arrays(self.gradient(target, weights), 1.0, float(weights.sum()))

    def gradient(self, target: Target, weights: Array) -> dict[str, Any]:
        """Return the sum over rows of weight * E[d log_density | row], parameter by parameter."""
        weighed = replace(target, weights=target.weighed(weights))
        question = self.prepare(weighed, ("gradient",))
        question.check()
        trees = question.basis["posterior"]
        found: dict[str, Any] = _eliminated(trees, weighed, ("gradient",), 0, None)[1]["gradient"]
        return found


@dataclass(frozen=True, eq=False)
class _Tree:
    """Rows of one evidence pattern, with their factors and junction tree."""

    rows: Array
    conditioned: Conditioned
    order: Order
    tree: JunctionTree

    def work(self, draws: int, want: tuple[str, ...]) -> float:
        """Return the number of table entries of all passes and rows."""
        kinds = {quantity(w) for w in want}
        passes = 1 + 2 * bool(MOMENTS & kinds) + ("mode" in kinds)
        drawn = draws * len(self.conditioned.free.states) * ("samples" in kinds)
        return len(self.rows) * (passes * self.order.entries + drawn)

    def bytes(self, want: tuple[str, ...]) -> float:
        """Return the most memory of a pass over some rows."""
        moments = bool(MOMENTS & {quantity(w) for w in want})
        return float(self.tree.bytes(min(len(self.rows), self.at_once(want)), moments))

    def at_once(self, want: tuple[str, ...]) -> int:
        """Return the number of rows that share a pass."""
        moments = bool(MOMENTS & {quantity(w) for w in want})
        return int(max(1, ROWS_BYTES // max(self.tree.bytes(1, moments), 1)))

    @property
    def described(self) -> str:
        """The tree in words."""
        return (
            f"junction tree of {self.tree.cliques} cliques, largest 2^{self.order.largest:.4g} "
            f"states, 2^{np.log2(max(self.order.entries, 1)):.4g} in all"
        )


def _parts(target: Target, want: tuple[str, ...]) -> dict[str, list[_Tree]]:
    """Return the trees of the posterior, and of the model without evidence for log_prob."""
    parts = {"posterior": _trees(target, want)}
    if "log_prob" in want and not _normalised(target):
        parts["without evidence"] = _trees(target.nothing_observed, ("log_z",))
    return parts


def _normalised(target: Target) -> bool:
    """Whether log Z without evidence is 0."""
    return target.structure.normalized and target.untempered


def _normaliser(parts: dict[str, list[_Tree]], target: Target) -> Array | float:
    """Return log Z without evidence."""
    if _normalised(target):
        return 0.0
    trees = parts["without evidence"]
    return _eliminated(trees, target.nothing_observed, ("log_z",), 0, None)[0]


def _trees(target: Target, want: tuple[str, ...]) -> list[_Tree]:
    """Return a tree for every evidence pattern."""
    kinds = {quantity(w) for w in want}
    structural = bool(PAIRS & kinds)
    prune = not kinds & {"samples", "mode", *MOMENTS}
    joints = tuple(_units(target, w) for w in want if isinstance(w, Joint))
    return [_tree(target, rows, prune, structural, joints) for rows in evidence_patterns(target)]


def _units(target: Target, joint: Joint) -> tuple[int, ...]:
    """Return the units of a Joint, numbered over all layers."""
    places = (find(target.structure, unit, str(joint)) for unit in joint.units)
    return tuple(target.structure.first_unit[layer] + i for layer, i in places)


def _tree(
    target: Target, rows: Array, prune: bool, structural: bool, joints: tuple[tuple[int, ...], ...]
) -> _Tree:
    """Return the tree of one evidence pattern, remembered by the structure."""
    # Hints are no part of the pattern, so that their rows are looked at all together.
    one = target.take(rows if target.soft else rows[:1])
    masks = [mask[0] for both in (one.free, one.cut) for mask in both.values()]
    masks += [hinted(one, name).any(axis=0) for name in one.soft]
    acting = one.model.parameter_places if structural else one.model.nonzero_places
    seen = tuple(m.tobytes() for m in masks)
    key = ("tree", prune, structural, one.untempered, joints, *one.soft, *seen, *acting)

    def make() -> tuple[Conditioned, Order, JunctionTree]:
        conditioned = condition(one, prune, structural, joints)
        states, scopes = conditioned.free.states, conditioned.scopes
        order = best_order(states, scopes.start, scopes.scope)
        return conditioned, order, JunctionTree(states, scopes.start, scopes.scope, order.order)

    return _Tree(rows, *target.structure.memo.recall(key, make))


def _eliminated(
    trees: list[_Tree],
    target: Target,
    want: tuple[str, ...],
    draws: int,
    rng: np.random.Generator | None,
) -> tuple[Array, Answer]:
    """Return log_z (rows,), and the other answers: quantity -> layer or coupling -> (rows, ...)."""
    log_z, answers = np.empty(target.rows), Answer()
    needs_posterior = any(w not in ("log_z", "log_prob") for w in want)
    for tree, rows in _jobs(trees, want):
        some = target if len(rows) == target.rows else target.take(rows)
        log_z[rows], more = _solved(tree, some, want, draws, rng)
        if needs_posterior:
            check_possible(log_z[rows], rows, target)
        if "gradient" in more:
            answers["gradient"] = add_gradients(answers.get("gradient"), more.pop("gradient"))
        for what, values in more.items():
            put(answers.setdefault(what, {}), values, rows, target.rows)
    return log_z, answers


def _jobs(trees: list[_Tree], want: tuple[str, ...]) -> Iterator[tuple[_Tree, Array]]:
    """Yield the rows that share a pass, with their tree."""
    for tree in trees:
        step = tree.at_once(want)
        for first in range(0, len(tree.rows), step):
            yield tree, tree.rows[first : first + step]


def _solved(
    tree: _Tree, target: Target, want: tuple[str, ...], draws: int, rng: np.random.Generator | None
) -> tuple[Array, Answer]:
    """Return log_z of some rows of a pattern, and the other answers."""
    kinds, conditioned = {quantity(w) for w in want}, tree.conditioned
    moments = bool(MOMENTS & kinds)
    asked = _asked_factors(conditioned, kinds)
    parts = conditioned.tables(target)
    wide = [part.shape[1] > 1 or target.rows == 1 for part in parts]
    counts = [len(term.scopes) for term in conditioned.terms]
    found = tree.tree.run(
        np.concatenate([np.empty(0), *(part.ravel() for part in parts)]),
        lanes=target.rows,
        wide=np.repeat(np.array(wide, dtype=np.uint8), counts),
        marginals=moments,
        expected=asked if moments else None,
        mode="mode" in kinds,
        draws=draws if "samples" in kinds else 0,
        key=None if rng is None else rng.integers(0, 2**32, 4, dtype=np.uint32),
    )
    log_z = found["log_z"] + conditioned.constant(target)
    answers = Answer()
    if moments and not np.isneginf(log_z).any():
        e = Expected(target, conditioned, found["marginals"], asked, found["expected"])
        answers = _expected(e, want)
    if "mode" in kinds:
        answers["mode"] = _values(conditioned, target, found["mode"], None)
    if "samples" in kinds:
        each = [_values(conditioned, target, states, rng) for states in found["samples"]]
        answers["samples"] = {n: np.stack([x[n] for x in each], axis=1) for n in each[0]}
    return log_z, answers


def _asked_factors(conditioned: Conditioned, kinds: set[str]) -> Array:
    """Return the factors whose marginals are needed, ascending."""
    if PAIRS & kinds:
        return np.arange(len(conditioned.scopes))
    # Means of units with infinitely many values are read from the factors of their neighbours.
    places = [place for _, place in conditioned.places((InfiniteTerm, JointTerm))]
    ranges = [np.arange(place.start, place.stop) for place in places]
    return np.concatenate([np.empty(0, dtype=np.int64), *ranges])


def _expected(e: Expected, want: tuple[str, ...]) -> Answer:
    """Return the answers that are expectations."""
    target, answers = e.target, Answer()
    if "marginals" in want:
        answers["mean"], answers["prob"] = e.mean, e.prob
    if "pairs" in want:
        answers["pairs"] = {c.key: e.pairs(c) for c in target.structure.couplings}
    if "gradient" in want:
        answers["gradient"] = e.gradient(target.weighed(np.ones(target.rows)))
    if joints := [w for w in want if isinstance(w, Joint)]:
        found = e.joints([_units(target, w) for w in joints])
        answers["joint"] = {w.units: table for w, table in zip(joints, found, strict=True)}
    return answers


def _values(
    conditioned: Conditioned, target: Target, states: Array, rng: np.random.Generator | None
) -> States:
    """Return complete flat values (rows, width) from the states (rows, n) of the free units.

    Units with infinitely many values are drawn given all others.
    """
    x = {name: value.copy() for name, value in target.evidence.values.items()}
    start = 0
    for name, units in conditioned.free.layers.items():
        layer = target.structure.layers[name]
        support = layer.unit.support
        assert support is not None
        mine = support[states[:, start : start + len(units)]]
        x[name][:, layer.columns(units)] = mine.reshape(len(mine), -1)
        start += len(units)
    for term, _ in conditioned.places(InfiniteTerm) if rng is not None else ():
        layer = target.structure.layers[term.name]
        drawn = layer.unit.sample(layer.shaped(target.natural(x, term.name)), rng)
        free = target.components(term.name, target.free[term.name])
        x[term.name] = np.where(free, layer.flat(drawn), x[term.name])
    return x

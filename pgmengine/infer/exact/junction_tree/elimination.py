"""Elimination: exact answers on graphs of small width, by message passing on a junction tree.

Each evidence pattern has its conditioned model (factors over the free units), an elimination order,
and a junction tree. One pass answers all rows of a pattern, which are lanes of the tables. Rows of
rare patterns share a tree (shared_rows.py). log Z needs only the collect pass; marginals and
expectations also need the distribute pass. The mode uses the same schedule with the maximum in
place of the sum. Samples are drawn from the root of the tree to its leaves.

References: Lauritzen and Spiegelhalter (1988); Shafer and Shenoy (1990); Koller and Friedman
(2009), chapter 10.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pgmengine._kernels import run_restricted
from pgmengine.base.checks import check_limit, check_whole, seeded
from pgmengine.base.display import counted
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, RngLike, Snapshot, States
from pgmengine.base.work.division import blocks
from pgmengine.evidence.extended.extended_targets import unfolded_target
from pgmengine.evidence.target import Target
from pgmengine.infer.exact.gathered import Answer, Gathered, check_possible, exact_answers
from pgmengine.infer.exact.junction_tree.causal_independence import shares
from pgmengine.infer.exact.junction_tree.conditioned_model import Conditioned
from pgmengine.infer.exact.junction_tree.tree_expectations import FromMarginals, absent_layers
from pgmengine.infer.exact.junction_tree.trees import MAX_PASS_BYTES, NEED_MARGINALS, Limits, Tree
from pgmengine.infer.exact.planning import PlannedTrees, lifted, planned_trees
from pgmengine.infer.exact.shared_rows import observed_states
from pgmengine.infer.question.prepared import AnyMethod, AnyPrepared, Method, Prepared
from pgmengine.infer.results.result import WANTS, Plan, Result, quantity
from pgmengine.model.forms.gate import Steps
from pgmengine.model.tables import BLOCK_ENTRIES
from pgmengine.model.terms.term import Term

# Gates with at most so many entries are always tables. A child that is observed to be absent is a
# factor of each parent alone in the small tables of larger gates, however few its parents are.
MAX_WHOLE_GATE_ENTRIES = 8

# Whole tables are planned as well if the small tables take longer than so many seconds, and if no
# gate has more entries. Otherwise the small tables are taken, unless they do not fit.
MAX_SECONDS_NOT_COMPARED, MAX_ENTRIES_PLANNED_TWICE = 0.02, 2**12


@dataclass(frozen=True)
class Elimination(Method[PlannedTrees]):
    """Exact answers by message passing on a junction tree.

    Use it for graphs of small width, of any size: chains, trees, lattices of a small side, Bayesian
    networks and factor graphs. `Exact` takes it wherever it is cheaper than enumeration.

    Parameters
    ----------
    max_states : the largest number of table entries of all cliques together.
    draws : number of samples where they are wanted.
    max_work : the largest number of table entries of all passes where the tree needs more than
        `max_states` entries. It is then conditioned on a cutset, with one pass for each joint state
        of the cutset. 0 for no cutset.

    >>> import pgmengine as pgm
    >>> chain = pgm.GraphBuilder()
    >>> x = chain.layer("x", pgm.Spin(), 100)
    >>> neighbours = [[i, i + 1] for i in range(99)]
    >>> chain.tables(("x", "x"), neighbours, [[2.0, 1.0], [1.0, 2.0]])
    >>> r = pgm.infer(chain.build(), want=("log_z",), method=pgm.Elimination())
    >>> r.log_z.round(3), r.stats["width"]
    (array([109.456]), 2.0)
    """

    gives = frozenset(WANTS) - {"bound"} | {"joint", "modes"}
    subtracts = True
    source = "elimination gives log_z itself,"
    guarantee = "exact"
    statistics = {"width": (), "entries": ()}

    max_states: float = 2**30
    draws: int = 1000
    max_work: float = 2**36

    def __post_init__(self) -> None:
        check_limit(self, "max_states", "max_work")
        check_whole(self, "draws")

    def scheme(self, target: Target, want: tuple[str, ...]) -> Plan[PlannedTrees]:
        """Find an order for every evidence pattern; refuse above max_states.

        Gates are planned as small tables first, and then as whole tables where it may be cheaper.
        """
        gates = unfoldable(target, want)
        if not gates:
            return self._of_trees(target, want)
        small = self._of_trees(unfolded_target(target, gates), want)
        if small.basis is not None:
            why = f"{small.why}, with the auxiliary variables of {counted(len(gates), 'gate')}"
            small = replace(small, why=why, basis=replace(small.basis, gates=gates))
        large = max(_entries(one) for one in gates) > MAX_ENTRIES_PLANNED_TWICE
        if not small.refusal and (large or small.seconds <= MAX_SECONDS_NOT_COMPARED):
            return small
        whole = self._of_trees(target, want)
        return whole if whole.seconds <= small.seconds and not whole.refusal else small

    def _of_trees(self, target: Target, want: tuple[str, ...]) -> Plan[PlannedTrees]:
        """Return the plan of a target as it is."""
        try:
            trees = planned_trees(target, want, Limits(self.max_states, self.max_work))
        except PgmError as error:
            return Plan(refusal=str(error))
        return trees.scheme(target, self.draws)

    def answer(
        self, question: AnyPrepared, rng: RngLike, state: Snapshot | None, executor: Executor | None
    ) -> Result:
        """Pass messages on the tree of every evidence pattern."""
        planned: PlannedTrees = question.basis
        if planned.gates:
            return of_unfolded(
                self, question, lambda whole: self.answer(whole, rng, state, executor)
            )
        target, trees = question.target, planned.on(question.target)
        generator = seeded(rng) if "samples" in question.want else None
        log_z, found = self._all(trees, target, generator)
        return question.result(exact_answers(question, log_z, found), trees.stats.copy())

    def _all(
        self, trees: PlannedTrees, target: Target, rng: np.random.Generator | None
    ) -> tuple[Array, Answer]:
        """Return log_z (rows,) of the posterior, and the other answers."""
        want = trees.without_modes if trees.modes else trees.want
        if not trees.slope:
            log_z, found = _eliminated(trees.posterior, target, want, self.draws, rng)
        else:
            rest = tuple(w for w in want if w != "gradient")
            log_z, found = _eliminated(trees.posterior, target, rest, self.draws, rng)
            check_possible(log_z, np.arange(target.rows), target)
            found |= _eliminated(trees.slope, lifted(target), ("gradient",), 0, None)[1]
        if trees.modes:
            check_possible(log_z, np.arange(target.rows), target)
            found |= trees.found_modes(target)
        return log_z, found


def of_unfolded(
    method: AnyMethod, question: AnyPrepared, answer: Callable[[AnyPrepared], Result]
) -> Result:
    """Return the answer about the gates' auxiliary variables, without these.

    The basis of the plan has the gates that it unfolds; `answer` takes the question without gates.
    """
    target = unfolded_target(question.target, question.basis.gates)
    plan = replace(question.plan, basis=replace(question.basis, gates=()))
    found = answer(Prepared(method, question.want, plan, target))
    return found.without_added(target.model, question.target.model)


def unfoldable(target: Target, want: tuple[str, ...]) -> tuple[Term, ...]:
    """Return the gates with tables that a question may take apart into small tables.

    Only sums over all states may: the mode is a maximum. At beta < 1 the sum over auxiliary
    variables is not the power of the conditional.
    """
    gates = target.structure.gates
    if not gates or not target.untempered:
        return ()
    if not {"mode", "modes"}.isdisjoint(map(quantity, want)):
        return ()
    return tuple([one for one in gates if _entries(one) > MAX_WHOLE_GATE_ENTRIES])


def _entries(one: Term) -> int:
    """Return the number of entries of the whole conditional of a gate."""
    assert isinstance(one.form, Steps)
    return one.form.entries


def _eliminated(
    trees: list[Tree],
    target: Target,
    want: tuple[str, ...],
    draws: int,
    rng: np.random.Generator | None,
) -> tuple[Array, Answer]:
    """Return log_z (rows,), and the other answers: quantity -> layer or coupling -> (rows, ...)."""
    gathered, kinds = Gathered(target, "elimination"), {*map(quantity, want)}
    for tree in trees:
        for rows in blocks(tree.rows, tree.at_once(kinds, draws)):
            gathered.add(rows, *_solved(tree, target, rows, want, kinds, draws, rng))
    return gathered.complete()


def _solved(
    tree: Tree,
    whole: Target,
    rows: Array,
    want: tuple[str, ...],
    kinds: set[str],
    draws: int,
    rng: np.random.Generator | None,
) -> tuple[Array, Answer]:
    """Return log_z of some rows of a pattern, and the other answers; they share a pass."""
    given = whole if len(rows) == whole.rows else whole.take(rows)
    conditioned = tree.conditioned
    moments, posterior = not NEED_MARGINALS.isdisjoint(kinds), bool(kinds - {"log_z"})
    asked = conditioned.asked(kinds)
    target = tree.given(given)
    if tree.possible is not None and not tree.possible.cards.all():
        log_z = np.full(target.rows, -np.inf)
        if posterior:
            check_possible(log_z, rows, whole)
        return log_z, Answer()
    infinite = bool(conditioned.infinite or conditioned.absent)
    asking: dict[str, Any] = {
        "marginals": moments,
        "expected": asked if moments else None,
        "mode": "mode" in kinds and not infinite,
        "draws": draws if "samples" in kinds else 0,
        "key": None if rng is None else rng.integers(0, 2**32, 4, dtype=np.uint32),
    }
    seen, likely = None, None
    if tree.restricted is not None:
        seen = observed_states(given, conditioned, tree.possible)
    elif tree.shared:
        # Entries of tables have all states; those that were removed leave with their entries.
        likely = observed_states(given, conditioned, None)
    tables = conditioned.tables(target, likely)
    found = _run(tree, tables, target.rows, seen, **asking)
    if "mode" in kinds and infinite:
        largest = conditioned.largest(target, likely, given)
        found["mode"] = _run(tree, largest, target.rows, seen, mode=True)["mode"]
    log_z = found["log_z"] + conditioned.constant(target)
    if posterior:
        check_possible(log_z, rows, whole)
    answers = Answer()
    if moments:
        units = tree.all_states(found["marginals"])
        factors = tree.all_entries(asked, found["expected"])
        on = _separate(tree, target, log_z) if "marginals" in kinds else {}
        e = FromMarginals(target, conditioned, units, asked, factors, on, given)
        answers = e.answers(want)
    if "mode" in kinds:
        x = values_of_states(conditioned, target, tree.named(found["mode"])[:, None])
        x = with_other_units(conditioned, target, given, x, None)
        answers["mode"] = {name: value[:, 0] for name, value in x.items()}
    if "samples" in kinds and rng is not None:
        drawn = tree.named(found["samples"].swapaxes(0, 1))
        x = values_of_states(conditioned, target, drawn)
        answers["samples"] = with_other_units(conditioned, target, given, x, rng)
    return log_z, answers


def _separate(tree: Tree, target: Target, log_z: Array) -> States:
    """Return the probabilities (rows, units) of 1 of the units that are in no factor.

    Each unit is 0 with the probability E[e^-z], which is Z with this unit observed to be 0, divided
    by Z. The sum z over the parents changes only the tables of single units, so that all units are
    lanes of one pass.
    """
    conditioned, rows, out = tree.conditioned, target.rows, States()
    for name, units in conditioned.separate.items():
        at_once = max(1, int(MAX_PASS_BYTES // max(tree.tree.bytes(rows), 1)))
        chunks = [units[i : i + at_once] for i in range(0, len(units), at_once)]
        found = [_log_off(tree, target, name, chunk) for chunk in chunks]
        out[name] = -np.expm1(np.concatenate(found, axis=1) - log_z[:, None])
    return out


def _log_off(tree: Tree, target: Target, name: str, units: Array) -> Array:
    """Return log Z (rows, units) with one more unit observed to be 0, for each of some units."""
    conditioned, free = tree.conditioned, tree.conditioned.free
    lanes = target.rows, len(units)
    added = np.zeros((int(free.states.sum()), len(units)))
    first = np.cumsum([0, *free.states])
    for c in target.structure.arrows_into[name]:
        parents = free.layers.get(c.a, np.empty(0, dtype=int))
        places = first[free.of(target, c.a, parents)][:, None] + np.arange(
            target.structure.state_counts[c.a]
        )
        added[places.ravel()] += shares(target, c, parents, units)
    parts = conditioned.tables(target)
    # The first tables are those of single units, because the children hang on arrows.
    alone, others = (parts[:1], parts[1:]) if len(added) else ([], parts)
    parts = [
        np.broadcast_to(p[:, :, None] + added[:, None], (len(p), *lanes)).reshape(len(p), -1)
        for p in alone
    ]
    parts += [np.repeat(p, len(units), axis=1) if p.shape[1] > 1 else p for p in others]
    found = _run(tree, parts, target.rows * len(units))
    leaks = target.model.inputs(target.evidence.values, name)[:, units]
    total: Array = found["log_z"].reshape(lanes) + conditioned.constant(target)[:, None] - leaks
    return total


def _run(
    tree: Tree, parts: list[Array], lanes: int, seen: Array | None = None, **asking: Any
) -> dict[str, Array]:
    """Pass messages for the entries (entries, lanes or 1) of all terms.

    `seen` has the observed states of rows with passes of their own, and is None otherwise.
    """
    if tree.cutset is not None:
        return tree.cutset.run((tree.lane(parts, row) for row in range(lanes)), **asking)
    values, wide = tree.values(parts, lanes)
    if seen is not None:
        return run_restricted(tree.tree, values[0], seen, wide=wide, **asking)
    found: dict[str, Array] = tree.tree.run(values, lanes=lanes, wide=wide, **asking)
    return found


def values_of_states(conditioned: Conditioned, target: Target, states: Array) -> States:
    """Return complete flat values (rows, draws, width) from states (rows, draws, n) of free units.

    Free units with infinitely many values are 0. Draws are the first axis in memory, as in the
    answer, so that they are not copied there.
    """
    s, x, start = target.structure, States(), 0
    rows, draws = states.shape[:2]
    for name, layer in s.layers.items():
        units = conditioned.free.layers.get(name, np.empty(0, dtype=np.int64))
        mine = states[..., start : start + len(units)]
        start += len(units)
        out = np.full((draws, rows, layer.width), np.nan)
        if len(units) < layer.size:
            out[:] = target.evidence.values[name]
        if len(units):
            assert layer.unit.support is not None
            columns = slice(None) if len(units) == layer.size else layer.columns(units)
            # A few draws are converted at a time, so that no second copy of all values is made.
            step = max(1, BLOCK_ENTRIES // (rows * layer.width))
            for first in range(0, draws, step):
                drawn = layer.unit.support.take(
                    mine[:, first : first + step].swapaxes(0, 1), axis=0
                )
                out[first : first + step, :, columns] = drawn.reshape(*drawn.shape[:2], -1)
        x[name] = out.swapaxes(0, 1)
    return x


def with_other_units(
    conditioned: Conditioned,
    target: Target,
    given: Target,
    x: States,
    rng: np.random.Generator | None,
) -> States:
    """Draw the units with infinitely many values, and the units in no factor, given all others.

    `x` has the states (rows, draws, width) of the other units. Without `rng`, these units get their
    most probable values. `given` are the rows as they were given, from which no unit is absent.
    """
    terms = [term.name for term, _ in conditioned.infinite]
    names = dict.fromkeys(terms + absent_layers(given, target))
    if not names and not conditioned.separate:
        return x
    rows, draws = next(iter(x.values())).shape[:2]
    each = given.take(np.repeat(np.arange(rows), draws))
    flat = {name: value.reshape(rows * draws, -1) for name, value in x.items()}
    for name in names:
        layer = target.structure.layers[name]
        eta = layer.shaped(each.natural(flat, name))
        drawn = layer.unit.mode(eta) if rng is None else layer.unit.sample(eta, rng)
        free = each.components(name, each.free[name])
        flat[name] = np.where(free, layer.flat(drawn), flat[name])
    for name, units in conditioned.separate.items():
        assert rng is not None
        drawn = target.structure.layers[name].unit.sample(each.natural(flat, name), rng)
        flat[name] = flat[name].copy()
        flat[name][:, units] = drawn[:, units]
    return {name: value.reshape(rows, draws, -1) for name, value in flat.items()}

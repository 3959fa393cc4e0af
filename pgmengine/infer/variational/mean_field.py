"""Mean field: the best distribution of independent units, with its lower bound of log Z.

log Z >= E_Q[log_density] + H(Q) for every Q (Jensen). Q is a product of distributions of units. If
no free unit has directed children or is in a table, each distribution is in the family of its unit
(factors.py). Otherwise it is a table of probabilities (unit_tables.py), and the normalisers of the
children are bounded as well (Saul, Jaakkola and Jordan 1996). Tables with entries of 0 need a start
on possible states (support.py). In both cases the bound never decreases from one update to the
next.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pgmengine._kernels import LANES
from pgmengine.base.checks import check_number, check_whole, real, seeded
from pgmengine.base.errors import PgmError, told
from pgmengine.base.types import Array, RngLike, Snapshot, States
from pgmengine.evidence.target import Target
from pgmengine.infer.accumulator import Accumulator
from pgmengine.infer.question.prepared import AnyPrepared, Method
from pgmengine.infer.results.answer_bytes import peak_bytes
from pgmengine.infer.results.axes import public, squeeze
from pgmengine.infer.results.result import WANTS, Plan, Result, Status, quantity
from pgmengine.infer.variational.conditions import obstacle
from pgmengine.infer.variational.round_prices import rounds_seconds
from pgmengine.infer.variational.saddles import STEP_OF_START, leave_saddles
from pgmengine.infer.variational.support import impossible_table
from pgmengine.infer.variational.unit_families import Factors
from pgmengine.infer.variational.unit_tables import Belief
from pgmengine.model.couplings import Coupling, only_parameters
from pgmengine.model.layer import Layer
from pgmengine.model.weights import count, is_sparse

# Bytes of the graph (packed_graph.py) for each weight.
WEIGHT_BYTES = 100.0

# Bytes for each stored weight of a sparse coupling: its place, its size, and copies of them.
SPARSE_WEIGHT_BYTES = 32.0

# Bytes of the arrays of tables for each table entry.
TABLE_ENTRY_BYTES = 40.0

# Numbers of rounds that plans expect: to reach a fixed point, to show that it is a maximum, and to
# leave it if it is a saddle. Saddles come from symmetries, which evidence and biases break, so that
# most questions with evidence or biases have no saddle to leave.
EXPECTED_ROUNDS = 12
EXPECTED_RETURN_ROUNDS = 5
EXPECTED_ESCAPE_ROUNDS = 100

# Smallest number of rounds that gives a useful bound, if there is no time to reach a fixed point.
MIN_USEFUL_ROUNDS = 5


@dataclass(frozen=True)
class MeanField(Method[None]):
    """The mean-field fixed point, with its lower bound of log Z.

    Use it for a proven lower bound, and for quick means. In directed models it also bounds log
    p(evidence). It is exact if the free units are independent given the evidence and have no
    directed children. Means and probabilities are those of Q, an approximation that may describe
    only one of several modes. `Result.kind` is "lower bound", which refers to log_z and log_prob.

    Parameters
    ----------
    updates : the largest number of rounds.
    tolerance : rounds end when no mean changes by more. The error of the bound is then of the order
        of the squared tolerance.
    precision : np.float64, or np.float32 for half the time and seven digits. np.float32 needs a
        model in which no free unit has directed children.
    xi : None for the best bound of the children's normalisers, E[A(z)] <= xi E[z] + log sum_k h_k
        E[e^((y_k - xi) z)]. A number from 0 (the least value of a child) to 1 (the largest value)
        fixes xi there, which is looser and takes less time. For Categorical(k) children xi is a
        vector, and a number a means (a/k, ..., a/k); with large weights its best value may be
        missed, and the bound still holds.
    restarts : number of random starts besides the first start; each row keeps its best bound.

    A fixed point that is a saddle, as in models with a symmetry, is left: a small step shows that
    it is one, and runs from high to low temperature lead to a maximum. The step and these runs are
    the same at every call. They are not made if `updates` rounds do not reach a fixed point.

    In models whose tables have entries of 0, the bound needs a Q on possible states. If none is
    found, the bound is -inf, and the status is IMPOSSIBLE.

    `stats` has two entries. `rounds` is the number of rounds, without those that showed that a
    fixed point is a maximum. `change` is the largest change of a mean (or probability) in the last
    round of the first start.

    >>> import pgmengine as pgm
    >>> model = pgm.sbn([4, 3, 2], rng=0)
    >>> evidence, want = {"v": [0, 1, 1, 0]}, ("log_z",)
    >>> bound = pgm.infer(model, evidence, want, method=pgm.MeanField())
    >>> bool(bound.log_z[0] <= pgm.infer(model, evidence, want).log_z[0])
    True
    """

    gives = frozenset(WANTS) - {"mode", "samples"}
    subtracts = True
    source = "means give"
    guarantee = "lower bound"
    statistics = {"rounds": (), "change": ()}

    updates: int = 200
    tolerance: float = 1e-7
    precision: type = np.float64
    xi: float | None = None
    restarts: int = 0

    def __post_init__(self) -> None:
        if self.xi is not None and not 0 <= real(self.xi) <= 1:
            raise PgmError(
                f"MeanField: xi must be None or a number from 0 to 1, not {told(self.xi)}"
            )
        check_whole(self, "updates")
        check_whole(self, "restarts", least=0)
        check_number(self, "tolerance")
        try:
            known = np.dtype(self.precision) in (np.float64, np.float32)
        except (TypeError, ValueError):
            known = False
        if not known:
            raise PgmError(
                f"MeanField: precision must be np.float64 or np.float32, not {told(self.precision)}"
            )

    def scheme(self, target: Target, want: tuple[str, ...]) -> Plan[None]:
        """Return the work of all rounds; refuse questions that a bound cannot answer."""
        s, tables = target.structure, by_tables(target)
        if why := _obstacle(target):
            return Plan(refusal=why)
        entries = {c: count(target.model.weight(c)) for c in s.couplings}
        work = sum(2.0 * n * (20 if c.directed else 1) for c, n in entries.items())
        work += 8.0 * float(s.table_index.axis_entries.sum())
        numbers = sum([_state_numbers(layer) for layer in s.layers.values()])
        # Means, fields and changes of all states, of the rows of whole vectors where Q has tables;
        # random starts are beside the best Q so far.
        rows = -(-target.rows // LANES) * LANES if tables else target.rows
        arrays = (10 if tables else 8) * (1.6 if self.restarts else 1.0)
        working = 8.0 * rows * (arrays * numbers + (0 if tables else 4) * _coupled_inside(target))
        sparse = [n for c, n in entries.items() if is_sparse(target.model.weight(c))]
        working += SPARSE_WEIGHT_BYTES * sum(sparse) * (not tables)
        if "pairs" in map(quantity, want):
            # Masks of the pairs that belong to a parameter.
            working += sum([4.0 * s.layers[c.a].width * s.layers[c.b].width for c in s.couplings])
        working += WEIGHT_BYTES * sum(entries.values()) * tables
        working += 16.0 * target.rows * len(s.table_index.child)
        working += TABLE_ENTRY_BYTES * len(target.model.table_entries)
        rounds = self._expected_rounds(target)
        # Questions are divided by work, which counts only the rounds of the starts.
        work *= target.rows * (1 + self.restarts) * self.updates / 8
        memory = peak_bytes(target, want, 0, work, working, 8.0 * target.rows * numbers)
        seconds, how = rounds_seconds(target, rounds, tables), f"at most {self.updates} rounds"
        return Plan(why=how, work=work, bytes=memory, seconds=seconds)

    def rounds_within(self, target: Target, seconds: float) -> float:
        """Return the number of rounds, over all starts, that take about `seconds`."""
        none, one = (rounds_seconds(target, rounds, by_tables(target)) for rounds in (0, 1))
        return max(seconds - none, 0.0) / (one - none) if one > none else np.inf

    def faster(self, target: Target, want: tuple[str, ...], seconds: float) -> MeanField | None:
        """Return mean field with fewer rounds; its bound is proven as well."""
        # A start may need as many rounds again to find or to leave a saddle.
        updates = int(min(self.rounds_within(target, seconds) / (2 + self.restarts), self.updates))
        return replace(self, updates=updates) if updates >= MIN_USEFUL_ROUNDS else None

    def _expected_rounds(self, target: Target) -> float:
        """Return the expected number of rounds: of all starts, and of leaving a saddle."""
        if target.pattern.independent:
            return 1.0
        known = target.model.biased or any(m.any() for m in target.pattern.observed.values())
        more = EXPECTED_RETURN_ROUNDS if known else EXPECTED_ESCAPE_ROUNDS
        return min(self.updates, EXPECTED_ROUNDS) * (1.0 + self.restarts) + min(self.updates, more)

    def answer(
        self, question: AnyPrepared, rng: RngLike, state: Snapshot | None, executor: Executor | None
    ) -> Result:
        """Go to the fixed point from the first start, or from the snapshot of a result."""
        target = question.target
        if state is not None:
            self._check_state(target, self._start(target).state, state)
        q = self._start(target, state)
        rounds, change = q.settle(self.updates, self.tolerance)
        if self.restarts:
            q, rounds = self._best(q, rounds, seeded(rng))
        if change <= self.tolerance and not target.pattern.independent:
            q, more = leave_saddles(q, self._start, self.updates, self.tolerance)
            rounds += more
        stats = {"rounds": rounds, "change": change}
        warnings = _impossible(q)
        status = Status.IMPOSSIBLE if warnings else Status.OK
        answers = self._answers(q, question.want)
        return question.result(answers, stats, status, warnings, state=q.state)

    def _answers(self, q: Factors | Belief, wanted: tuple[str, ...]) -> dict[str, Any]:
        target, answers = q.target, dict[str, Any]()
        if "marginals" in wanted:
            finite = [
                n for n, layer in target.structure.layers.items() if layer.unit.support is not None
            ]
            # Copied, so that results share no memory with the evidence.
            mean = {n: np.array(v) for n, v in q.mean.items()}
            answers = {
                "mean": public(target, mean),
                "prob": squeeze(target, {n: q.prob(n) for n in finite}),
            }
        if "pairs" in wanted:
            mean = q.mean
            answers["pairs"] = squeeze(
                target, {c.key: _pairs(target, mean, c) for c in target.structure.couplings}
            )
        if "gradient" in wanted:
            answers["gradient"] = q.gradient(np.ones(target.rows))
        if asked := {"bound", "log_z"} & set(wanted):
            bound = q.bound()
            answers |= {name: bound for name in asked}
        if "log_z" in wanted:
            answers |= {
                "log_z_error": np.zeros(target.rows),
                "log_z_interval": np.stack((bound, np.full(target.rows, np.inf)), axis=1),
            }
        return answers

    def _start(
        self,
        target: Target,
        state: States | None = None,
        rng: np.random.Generator | None = None,
        step: float = 0.0,
    ) -> Factors | Belief:
        """Return the first Q of the rounds."""
        if by_tables(target):
            return Belief(target, self.xi, state, rng, step=step)
        return Factors(target, self.precision, state, self.tolerance, rng, step)

    def _check_state(self, target: Target, expected: States, state: Snapshot) -> None:
        """Raise PgmError for a state of another model, evidence pattern or number of rows."""
        if not isinstance(state, Mapping):
            raise PgmError(
                f"MeanField: state must be the state of another result, not {type(state).__name__}"
            )
        for name, value in expected.items():
            shape = np.shape(state[name]) if name in state else None
            if shape != value.shape:
                what = target.structure.layers[name].title
                raise PgmError(
                    f"MeanField: the state does not fit: {what} has shape {shape}, "
                    f"expected {value.shape}"
                )

    def _best(
        self, q: Factors | Belief, rounds: int, rng: np.random.Generator
    ) -> tuple[Factors | Belief, int]:
        """Return the best of several starts for each row, and the number of rounds."""
        target, bound, state = q.target, q.bound(), q.state
        for _ in range(self.restarts):
            found, other, more = self._from_random(target, rng)
            better, rounds = found > bound, rounds + more
            bound = np.where(better, found, bound)
            state = {
                name: np.where(better[:, None], other[name], value) for name, value in state.items()
            }
        q = self._start(target, state)
        return q, rounds + q.settle(self.updates, self.tolerance)[0]

    def _from_random(self, target: Target, rng: np.random.Generator) -> tuple[Array, States, int]:
        """Return the bound and the snapshot of a random start, and the number of its rounds."""
        q = self._start(target, rng=rng)
        rounds = q.settle(self.updates, self.tolerance)[0]
        return q.bound(), q.state, rounds

    def expect(
        self,
        target: Target,
        weights: Array,
        total: Accumulator,
        rng: np.random.Generator | None = None,
    ) -> Factors | Belief:
        """Add the gradient of the bound, summed over rows with weights, to `total`.

        Returns Q; PgmError where there is no bound.
        """
        if why := _obstacle(target):
            raise PgmError(f"MeanField refused: {why}")
        # The start is not the reference itself, because a few rounds would not leave a saddle.
        q = self._start(target, step=STEP_OF_START)
        q.settle(self.updates, self.tolerance)
        if warnings := _impossible(q):
            raise PgmError(f"MeanField: {warnings[0]}")
        q.add_slopes(weights, total)
        return q


def _coupled_inside(target: Target) -> int:
    """Return the numbers of states of layers that are coupled with themselves."""
    s = target.structure
    layers = [s.layers[name] for name in s.layers if any(n == name for _, n in s.meetings[name])]
    return sum([_state_numbers(layer) for layer in layers])


def _state_numbers(layer: Layer) -> int:
    """Return the numbers of a row that are one for each state of each unit."""
    support = layer.unit.support
    return int(layer.size * max(1 if support is None else len(support), layer.unit.width))


def _obstacle(target: Target) -> str:
    """Return the reason why a target has no bound here, or an empty string."""
    return obstacle(target) if by_tables(target) else ""


def by_tables(target: Target) -> bool:
    """Return whether free units have directed children or are in tables, so that Q needs tables.

    Otherwise each unit stays in its own family.
    """
    return target.pattern.free_parents or bool(target.pattern.in_tables)


def _impossible(q: Factors | Belief) -> tuple[str, ...]:
    """Return a warning if a row has no bound, because Q has not found a possible state."""
    if not isinstance(q, Belief) or q.constants.hard is None or (possible := q.possible()).all():
        return ()
    row = int(np.flatnonzero(~possible)[0])
    return (
        f"row {q.target.row_numbers[row]}: no possible state was found to start from, and its "
        f"bound is -inf; the best states have an entry of 0 in {impossible_table(q, row)!r}",
    )


def _pairs(target: Target, mean: States, c: Coupling) -> Array:
    """Return E_Q[x_a x_b'], (rows, width of a, width of b): products of means.

    Two components of one unit have 0.
    """
    found, layer = np.einsum("ri,rj->rij", mean[c.a], mean[c.b]), target.structure.layers[c.a]
    if c.a == c.b:
        unit = layer.owners(np.arange(layer.width))
        np.copyto(found, 0.0, where=unit[:, None] == unit)
    return only_parameters(c, target.model.weight(c), found)

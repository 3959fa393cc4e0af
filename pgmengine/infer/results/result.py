"""Plans, statuses and results: how a method would answer, how the run ended, and the answers.

The answers in a result depend on `want` alone, not on the method: `ANSWERS` maps each answer to its
wanted quantity. All else that a method reports is in `stats`, whose axes the method declares
(`Method.statistics`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

import numpy as np

from pgmengine.base.errors import NoSuchName, NotAsked, listed
from pgmengine.base.names import nearest
from pgmengine.base.types import Array, Snapshot
from pgmengine.base.work.pace import pace
from pgmengine.declare.handles import Units
from pgmengine.evidence.target import Target
from pgmengine.infer.results import information
from pgmengine.infer.results.arviz import to_arviz, to_frame
from pgmengine.infer.results.by_name import (
    Joints,
    Mode,
    OfUnits,
    asked,
    assignment,
    assignment_of,
    drawn_states,
    marginal,
    same_units,
    samples_frame,
)
from pgmengine.infer.results.expectation import Expectation, expectation
from pgmengine.infer.results.overview import result_html, result_text
from pgmengine.model.names.unit_names import Member, Names
from pgmengine.model.parameters import Parameters

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

WANTS = ("marginals", "log_z", "log_prob", "samples", "mode", "pairs", "gradient", "bound")

# Name of an answer -> the wanted quantity to which it belongs. Most have the name of the quantity.
ANSWERS = {name: name for name in (*WANTS, "joint") if name != "marginals"}
ANSWERS |= {"mean": "marginals", "prob": "marginals", "modes": "modes"}
ANSWERS |= {"log_z_error": "log_z", "log_z_interval": "log_z", "log_prob_interval": "log_prob"}
ANSWERS |= {"prob_interval": "marginals", "mode_gap": "mode"}


class Status(Enum):
    """How a run ended; the value is a message with advice.

    OK means that no diagnostic has found a fault. It is not a proof: diagnostics of samples cannot
    see a part of the space that no chain has visited.
    """

    OK = "no diagnostic found a fault"
    NOT_MIXED = "the chains did not mix: draw longer, or use a tempering method"
    FEW_TRIPS = (
        "the chains made too few round trips on their ladder: use more temperatures, or draw longer"
    )
    FEW_WEIGHTS = (
        "a few draws have most of the importance weight: use more temperatures, chains or draws"
    )
    ONE_SIDED = (
        "nothing independent confirms the estimate: annealing down began where annealing up had "
        "ended, and no run from another reference agrees; use more chains or temperatures"
    )
    CONTRADICTED = (
        "something that is known for sure does not agree with the estimate: a part of the space "
        "was missed"
    )
    ROUNDED = (
        "log weights are so large that rounding reaches some answers, which are NaN: the warnings "
        "name rows and terms"
    )
    ESTIMATED_BOUND = (
        "log_prob is an estimate of a lower bound: a bound of each row less an estimate of log Z; "
        "the error is the one of log Z, and log p itself is higher by the unknown gap of the bound"
    )
    NOT_CONVERGED = "messages did not converge: allow more sweeps, or use another method"
    OSCILLATING = (
        "messages go round without converging: try another damping, such as "
        "BeliefPropagation(damping=0.6), or another method"
    )
    IMPOSSIBLE = "no possible state was found to start from: use more restarts, or another method"

    @property
    def good(self) -> bool:
        """Whether no diagnostic has found a fault."""
        return self is Status.OK

    @property
    def rank(self) -> int:
        """The place among all statuses, the most important one first and OK last."""
        return WORST_FIRST.index(self)

    @property
    def known_wrong(self) -> bool:
        """Whether the answer is known to be wrong; it does not replace a doubtful one."""
        return self in (Status.CONTRADICTED, Status.IMPOSSIBLE)


WORST_FIRST = (
    *(Status.CONTRADICTED, Status.IMPOSSIBLE, Status.OSCILLATING, Status.NOT_CONVERGED),
    *(Status.FEW_TRIPS, Status.NOT_MIXED),
    *(Status.FEW_WEIGHTS, Status.ONE_SIDED, Status.ROUNDED, Status.ESTIMATED_BOUND, Status.OK),
)


def duration(seconds: float) -> str:
    """Return a length of time as text, such as "0.02 s", "35 min" or "400 days".

    >>> duration(0.0213), duration(5400), duration(1e6)
    ('0.021 s', '90 min', '12 days')
    """
    if seconds < 120:
        return f"{seconds:.2g} s"
    units = (("min", 60.0), ("h", 3600.0), ("days", 86400.0))
    name, size = next((u for u in units[:2] if seconds < 120 * u[1]), units[2])
    return f"{seconds / size:.2g} {name}"


def duration_here(seconds: float) -> str:
    """Return the length of time on this machine that a plan has computed, as text."""
    return duration(seconds * pace())


# Seconds of planning above which a plan names them.
MIN_SHOWN_PREPARATION = 1.0


# The results of planning that the answers of a method need, such as a cover.
Basis = TypeVar("Basis")


@dataclass(frozen=True)
class Plan(Generic[Basis]):
    """The way in which a method would answer a question, and its cost.

    Attributes
    ----------
    method : name of the method.
    guarantee : "exact", "bounds", "lower bound", "estimate" or "approximation".
    why : the way in which it would answer.
    work : unit updates.
    bytes : peak memory.
    refusal : the reason why it cannot answer, or an empty string.
    seconds : time on one core, an estimate; 0 where the method gives none. It is the time on the
        machine of the prices, the same everywhere. Text has the time on this machine, which is its
        pace (`pgmengine doctor`) times as long.
    most_seconds : the longest time, above `seconds` where it depends on what the run finds. Limits
        of time hold for it.
    basis : results of planning that the answer needs; None in the plan of a result.
    terms : the plans of log Z with the evidence and, unless it is 0, without, if log_prob is their
        difference.
    preparation : seconds that planning took, by the clock of this machine; `seconds` does not
        contain them, and no decision depends on them.
    """

    method: str = ""
    guarantee: str = ""
    why: str = ""
    work: float = 0.0
    bytes: float = 0.0
    refusal: str = ""
    seconds: float = 0.0
    most_seconds: float = 0.0
    basis: Basis = field(default=cast(Any, None), compare=False, repr=False)
    terms: tuple[Plan[Basis], ...] = field(default=(), compare=False, repr=False)
    preparation: float = field(default=0.0, compare=False, repr=False)

    @cached_property
    def bare(self) -> Plan[Any]:
        """The plan without results of planning, which may be large."""
        # dataclasses.replace takes ten times as long.
        how = self.method, self.guarantee, self.why, self.work, self.bytes, self.refusal
        return Plan(*how, self.seconds, self.most_seconds, preparation=self.preparation)

    @property
    def accepted(self) -> bool:
        """Whether the method can answer."""
        return not self.refusal

    def __str__(self) -> str:
        if self.refusal:
            return f"{self.method}: refused, {self.refusal}"
        sizes = [size for size in self.sizes if size]
        if self.preparation >= MIN_SHOWN_PREPARATION:
            sizes.append(f"after {duration(self.preparation)} of planning")
        return f"{self.method}: {self.guarantee}; {self.why}; about {', '.join(sizes)}"

    @property
    def sizes(self) -> tuple[str, str, str]:
        """Unit updates, time (empty if there is no estimate) and memory as text."""
        time = duration_here(self.seconds) if self.seconds else ""
        longest = duration_here(max(self.seconds, self.most_seconds))
        if time and longest != time:
            number, unit = time.split()
            time = f"{number if longest.endswith(unit) else time} to {longest}"
        return f"{self.work:.2g} unit updates", time, f"{self.bytes / 2**20:.3g} MiB"


AnyPlan: TypeAlias = Plan[Any]

# Guarantees from the strongest to the weakest. A result of several parts has the weakest one.
# Bounds are proven on both sides. An approximation has neither a proof nor an error.
GUARANTEES = ("exact", "bounds", "lower bound", "estimate", "approximation")


def weakest(kinds: Iterable[str]) -> str:
    """Return the weakest guarantee; an unknown one is weaker than all known ones."""
    order = {kind: place for place, kind in enumerate(GUARANTEES)}
    return max(kinds, key=lambda kind: order.get(kind, len(order)))


def joint_plan(plans: Sequence[AnyPlan], why: str) -> AnyPlan:
    """Return one plan in place of several that are run one after the other."""
    return Plan(
        " + ".join(dict.fromkeys(name for p in plans for name in p.method.split(" + "))),
        weakest(p.guarantee for p in plans),
        why,
        sum(p.work for p in plans),
        max(p.bytes for p in plans),
        seconds=sum(p.seconds for p in plans),
        most_seconds=sum(p.most_seconds for p in plans),
        preparation=sum(p.preparation for p in plans),
    )


def quantity(wanted: str) -> str:
    """Return the name of a wanted quantity; "joint" for any Joint, and "modes" for any Mode."""
    return wanted.quantity if isinstance(wanted, OfUnits) else wanted


class Named(dict[str, Any]):
    """An answer by layer, coupling or parameter; an unknown name raises NoSuchName.

    The answer for the name of a unit has the shape of a layer of one unit. Iteration gives layers
    only. `by_unit` has the answers for the units of some layers, along the same axis: state
    probabilities in place of means, and the answers of layers with several axes in one.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        answer: str,
        names: Names | None = None,
        axis: int = 0,
        by_unit: Mapping[str, Array] | None = None,
    ) -> None:
        super().__init__(values)
        self.answer, self.names, self.axis = answer, names or Names({}), axis
        self.by_unit = by_unit or {}

    def __contains__(self, name: object) -> bool:
        place = None if super().__contains__(name) else self.names.place(name)
        return super().__contains__(name if place is None else place[0])

    def get(self, name: Any, default: Any = None) -> Any:
        """Return the answer for a name, or the default."""
        return self[name] if name in self else default

    def __missing__(self, name: str) -> Any:
        if (place := self.names.place(name)) is not None and place[0] in self:
            layer, unit = place
            return np.take(self.by_unit.get(layer, self[layer]), [unit], axis=self.axis)
        finite = "; only layers of finitely many states have state probabilities"
        why = finite if self.answer == "prob" else ""
        known = [str(key) for key in (self.names.declared(self) if self.names.layers else self)]
        near = nearest(name, [*known, *self.names.unique])
        raise NoSuchName(f"{self.answer} has no {name!r}, it has {listed(known)}{why}{near}")

    def __reduce__(self) -> Any:
        return Named, (dict(self), self.answer, self.names, self.axis, dict(self.by_unit))


@dataclass(frozen=True, eq=False)
class Result:
    """Answers of one inference: the quantities asked for with `want=` are attributes.

    Reading an answer that was not asked for raises NotAsked. Arrays by layer have no axis of rows
    if neither the evidence nor the soft evidence had one.

    Attributes
    ----------
    kind : the guarantee: "exact", "bounds" (proven, on both sides), "lower bound", "estimate" (with
        an error) or "approximation" (neither).
    method : the method that answered.
    plan : its plan.
    status : how the run ended.
    refused : plans of the candidates that did not answer, each with the reason.
    stats : statistics of the run; the class of the method documents them.
    state : a snapshot from which `infer(state=)` continues, or None if the method has none.
    warnings : reasons not to trust the answers, one line each.
    target : the model and its evidence; None in results of the `run` of a method.
    ways : calls that may do better where the status is not good, one line each.
    parameter_intervals : answer -> ends of its intervals of 95 %, which include the error of
        learning, as the answer with a further axis (..., 2); empty unless the question was about
        Models, or had parameters=True. `marginal_interval` has those of probabilities by name.
    """

    answers: Mapping[str, Any]
    kind: str
    method: Any
    plan: AnyPlan
    status: Status = Status.OK
    refused: tuple[AnyPlan, ...] = ()
    stats: Mapping[str, Any] = field(default_factory=dict)
    state: Snapshot | None = None
    warnings: tuple[str, ...] = ()
    target: Target | None = None
    ways: tuple[str, ...] = ()
    parameter_intervals: Mapping[str, Any] = field(default_factory=dict)

    def to(self, target: Target, answers: Mapping[str, Any]) -> Result:
        """Return the result with its target, and with these answers alone."""
        # dataclasses.replace takes three times as long.
        run = (self.kind, self.method, self.plan, self.status, self.refused, self.stats)
        return Result(answers, *run, self.state, self.warnings, target)

    def without_added(self, whole: Parameters, model: Parameters) -> Result:
        """Return a result about a model with more layers without the answers for these layers."""
        added = {*whole.structure.layers} - {*model.structure.layers}
        added |= {*whole.params} - {*model.params}
        answers, stats = (
            {
                name: {key: v for key, v in value.items() if key not in added}
                if isinstance(value, Mapping)
                else value
                for name, value in part.items()
            }
            for part in (self.answers, self.stats)
        )
        return replace(self, answers=answers, stats=stats)

    def of_plan(self, plan: AnyPlan) -> Result:
        """Return the result with another plan, of which its own was a part."""
        # dataclasses.replace takes three times as long.
        run = (self.kind, self.method, plan, self.status, self.refused, self.stats)
        return Result(self.answers, *run, self.state, self.warnings, self.target)

    def less(self, whole: Result | None) -> Result:
        """Return the result with log_prob = log_z - log_z without evidence, taken from `whole`.

        None stands for a model whose log Z without evidence is 0.
        """
        answers, stats = dict(self.answers), dict(self.stats)
        log_z, error = (answers.get(name) for name in ("log_z", "log_z_error"))
        if whole is not None:
            answers["log_prob"], more = log_z - whole.log_z, whole.answers.get("log_z_error")
            error = None if error is None or more is None else np.hypot(error, more)
        else:
            answers["log_prob"] = log_z
        kinds = (self.kind, *([whole.kind] if whole else []))
        if "bounds" in kinds:
            # The least log p is the lower bound with the evidence, less the upper bound without.
            every = 0.0 if whole is None else whole.ends_of_log_z[:, ::-1]
            answers["log_prob_interval"] = self.ends_of_log_z - every
        # Exact terms have no error; an estimate says its own also where it is 0.
        if error is not None and ("estimate" in kinds or np.any(error > 0)):
            stats["log_prob_error"] = error
        kind = weakest(kinds)
        if whole is None:
            return replace(self, answers=answers, stats=stats, kind=kind)
        notes = self.warnings + tuple(f"without evidence, {line}" for line in whole.warnings)
        worst = min(self.status, whole.status, key=lambda status: status.rank)
        lines = tuple(dict.fromkeys(notes))
        return replace(self, answers=answers, stats=stats, warnings=lines, status=worst, kind=kind)

    @property
    def mean(self) -> Mapping[str, Array]:
        """Posterior means: layer -> (rows, size[, k]).

        Under the name of a variable, or of a unit whose states have names, it has the probabilities
        of all states, (rows, 1, states), as `prob` has.
        """
        return self._named("mean")

    @property
    def prob(self) -> Mapping[str, Array]:
        """Posterior probabilities of states: layer -> (rows, size, states), finite layers only."""
        return self._named("prob")

    @property
    def mode(self) -> Mapping[str, Array]:
        """The most probable complete state: layer -> (rows, size[, k])."""
        return self._named("mode")

    @property
    def samples(self) -> Mapping[str, Array]:
        """Draws of the posterior: layer -> (draws, rows, size[, k]), one chain after another.

        They are values of units: of a variable with two states 0 is the first state and 1 the
        second, and of one with more states a one-hot row. `samples_frame()` and `expectation` have
        the names of states.
        """
        return self._named("samples")

    @property
    def pairs(self) -> Mapping[str, Array]:
        """E[x_a x_b'] by coupling, (rows, width, width); NaN where the weight has no parameter."""
        return self._named("pairs")

    @property
    def joint(self) -> Mapping[tuple[Member | Units, ...], Array]:
        """Joint distributions by the units of each wanted Joint, (rows, states, states, ...).

        The units may be in another order and have any of their names, and a single unit may be
        named alone.
        """
        return Joints(self.raw("joint"), self._names)

    @property
    def gradient(self) -> Mapping[str, Array]:
        """E[d log_density / d parameter] summed over rows, by parameter."""
        return self._named("gradient")

    @property
    def log_z(self) -> Array:
        """Log partition function of the model given the evidence, (rows,)."""
        return self._array("log_z")

    @property
    def log_z_error(self) -> Array:
        """Standard error of log_z, (rows,); 0 where it is exact or a bound."""
        return self._array("log_z_error")

    @property
    def log_z_interval(self) -> Array:
        """Interval of log_z, (rows, 2); its upper end is inf for a lower bound."""
        return self._array("log_z_interval")

    @property
    def ends_of_log_z(self) -> Array:
        """The interval of log_z, (rows, 2), whose ends are equal where it is exact."""
        same = np.repeat(self.log_z[:, None], 2, axis=1)
        return np.asarray(self.answers.get("log_z_interval", same))

    @property
    def log_prob_interval(self) -> Array:
        """Proven bounds of log_prob, (rows, 2), of a result of the kind "bounds"."""
        return self._array("log_prob_interval")

    @property
    def prob_interval(self) -> Mapping[str, Array]:
        """Proven bounds of probabilities of states: layer -> (rows, size, states, 2)."""
        return self._named("prob_interval")

    @property
    def mode_gap(self) -> Array:
        """By how much log_density may be larger than at `mode`, (rows,); 0 where it is proved."""
        mode = self.raw("mode")
        rows = len(next(iter(mode.values()))) if self.target is None else self.target.rows
        return np.asarray(self.answers.get("mode_gap", np.zeros(rows)))

    @property
    def log_prob(self) -> Array:
        """Log probability of the evidence, (rows,): log_z - log_z without evidence."""
        return self._array("log_prob")

    @property
    def log_prob_error(self) -> Array:
        """Standard error of log_prob, (rows,); 0 where it is exact or a bound, NaN if unknown."""
        log_prob = self.log_prob
        if "log_prob_error" in self.stats or self.kind in ("estimate", "approximation"):
            return np.broadcast_to(self.stats.get("log_prob_error", np.nan), log_prob.shape)
        return np.zeros(log_prob.shape)

    @property
    def bound(self) -> Array:
        """A proven lower bound of log_z, (rows,)."""
        return self._array("bound")

    def marginal(self, name: Member | Units) -> dict[Hashable, float | Array]:
        """Return the probability of each state of a unit, by the names of the states.

        Parameters
        ----------
        name : a variable, (layer, number of a unit), an array of variables or a layer, or the
            handle of a part of one.

        Returns
        -------
        State -> probability; an array over rows if the evidence has rows. For an array, a layer or
        a part, its shape follows the axis of rows. States without names are numbers.
        """
        return marginal(asked(self.target).structure, self.raw("prob"), name)

    def marginal_interval(self, name: Member | Units) -> dict[Hashable, tuple[Any, Any]]:
        """Return the interval of 95 % of the probability of each state, with the error of learning.

        It needs a question with parameters=True. The interval lies about the answer of the learned
        model, and is as wide as its data leave the parameters open.

        Parameters
        ----------
        name : as in `marginal`.

        Returns
        -------
        State -> (lower end, upper end); arrays over rows if the evidence has rows.

        Raises
        ------
        NotAsked if the question had no parameters=True, or no marginals.
        """
        if "prob" not in self.parameter_intervals:
            raise NotAsked("intervals of marginals need parameters=True in infer")
        structure, prob = asked(self.target).structure, self.parameter_intervals["prob"]
        ends = [{n: p[..., end] for n, p in prob.items()} for end in (0, 1)]
        low, high = (marginal(structure, end, name) for end in ends)
        return {state: (low[state], high[state]) for state in low}

    def assignment(self, *names: Member | Units) -> dict[Hashable, Any]:
        """Return the most probable state by the names of units and states.

        Parameters
        ----------
        *names : the names of a wanted `pgm.Mode`, in any order, for the most probable states of
            these units, summed over all others. Without names it is the complete state, which needs
            want=("mode",).

        Returns
        -------
        Arrays of variables come first, each as one array, and then variables. A unit without a
        name has the key (layer, number), and a handle the key of its text, such as "z[3:]". Values
        are arrays over rows if the evidence has rows.

        Raises
        ------
        NotAsked if the question did not ask for it.
        """
        structure = asked(self.target).structure
        if not names:
            return assignment(structure, self.raw("mode"))
        modes = self.raw("modes")
        for units, states in modes.items():
            if same_units(structure.names, units, names):
                return assignment_of(structure, Mode(*units), states)
        wanted = ", ".join(map(repr, names))
        raise NotAsked(f"the mode of {wanted} was not computed: ask for want=(pgm.Mode({wanted}),)")

    def expectation(self, function: Callable[[Mapping[Any, Array]], Array]) -> Expectation:
        """Return the mean of a function of the draws, with its standard error.

        Use it for every number that is not a marginal: a magnetisation, an energy, the probability
        that two things happen together. Draws of a chain are correlated, and the error knows it. It
        needs want=("samples",).

        Parameters
        ----------
        function : takes the draws by name, and returns its value for each draw and row, (draws,
            rows, ...). A variable has the names of its states, (draws, rows), or their numbers if
            they have no names; an array of variables has its shape behind these axes. A layer has
            the values of its units, (draws, rows, size[, k]), as in `samples`.

        Returns
        -------
        An Expectation with `mean` and `error`, which have the rows first if the evidence has rows.

        Raises
        ------
        PgmError if the function returns another shape, or no numbers.

        >>> import numpy as np
        >>> import pgmengine as pgm
        >>> b = pgm.GraphBuilder()
        >>> s = b.layer("s", pgm.Spin(), 10)
        >>> b.couple(s[1:], s[:-1], 0.5)
        >>> r = pgm.infer(b.build(), want=("samples",), rng=0)
        >>> r.expectation(lambda x: np.abs(x["s"].mean(axis=-1)))
        Expectation: 0.3968 ± 0.0088
        >>> r = pgm.infer(pgm.read(pgm.datasets.asia()), want=("samples",), rng=0)
        >>> r.expectation(lambda x: (x["smoke"] == "yes") & (x["lung"] == "yes"))
        Expectation: 0.045 ± 0.0066
        """
        target, values = asked(self.target), self.raw("samples")
        draws = len(next(iter(values.values())))
        samples = drawn_states(target.structure, values)
        doubt = "" if self.status.good else self.status.name
        return expectation(
            function,
            samples,
            draws,
            target.rows,
            self._chains_of_draws(draws),
            target.evidence.has_rows,
            doubt,
        )

    def entropy(self, *names: Member | Units) -> Any:
        """Return the entropy of a unit given the evidence, or the joint one of several, in nats.

        Use it to see how much is still open: 0 for a state that is certain, log k for k states of
        equal probability.

        Parameters
        ----------
        *names : variables, (layer, number of a unit), arrays or layers by their names, or parts of
            them by handles. All have finitely many states.

        Returns
        -------
        A number, or an array over rows if the evidence has rows. Its standard error is
        `entropy_error(*names)`, 0 where the answer is exact.

        Raises
        ------
        NotAsked where the joint distribution of several units is neither known nor exact, and no
        draws were wanted.

        References
        ----------
        Shannon (1948), A mathematical theory of communication.

        >>> import pgmengine as pgm
        >>> r = pgm.infer(pgm.read(pgm.datasets.asia()), {"xray": "yes"})
        >>> round(r.entropy("lung"), 4), round(r.entropy("lung", "smoke"), 4)
        (0.6929, 1.1956)
        """
        return self._by_row(information.entropy(self, names)[0])

    def entropy_error(self, *names: Member | Units) -> Any:
        """Return the standard error of `entropy(*names)`; NaN where no draws tell it."""
        return self._by_row(information.entropy(self, names)[1])

    def mutual_information(self, one: Any, other: Any) -> Any:
        """Return the mutual information of two units, or groups, given the evidence, in nats.

        Use it to see which unobserved unit says most about another one: it is the mean by which the
        entropy of one falls when the other is observed, and 0 where both are independent.
        `pgm.best_observation` ranks all units by it.

        Parameters
        ----------
        one, other : a name as in `entropy`, or a list of names.

        Returns
        -------
        A number, or an array over rows if the evidence has rows. Its standard error is
        `mutual_information_error(one, other)`, 0 where the answer is exact.

        Raises
        ------
        NotAsked as in `entropy`.

        >>> import pgmengine as pgm
        >>> r = pgm.infer(pgm.read(pgm.datasets.asia()), {"xray": "yes"})
        >>> round(r.mutual_information("lung", "smoke"), 4)
        0.1182
        """
        return self._by_row(self._information(one, other)[0])

    def mutual_information_error(self, one: Any, other: Any) -> Any:
        """Return the standard error of `mutual_information(one, other)`."""
        return self._by_row(self._information(one, other)[1])

    def _information(self, one: Any, other: Any) -> tuple[Array, Array]:
        groups = (x if isinstance(x, list) else [x] for x in (one, other))
        return information.mutual_information(self, *groups)

    def _by_row(self, found: Array) -> Any:
        """Return numbers (rows,), or the only one where the evidence has no axis of rows."""
        return found if asked(self.target).evidence.has_rows else float(found[0])

    def _chains_of_draws(self, draws: int) -> int | None:
        """Return the number of chains of so many draws: 0 if there are none, None if unknown."""
        energy = self.stats.get("energy")
        if energy is not None:
            chains, each = energy.shape[:2]
            return int(chains) if chains * each == draws else None
        # The energies of chains are left out where a method without chains has answered some rows.
        methods = getattr(self.method, "methods", (self.method,))
        return None if any("energy" in getattr(m, "statistics", ()) for m in methods) else 0

    def samples_frame(self) -> pd.DataFrame:
        """Return the draws as a pandas DataFrame (extra "arviz"), with states by name.

        It has a column for each unit; variables come first. A unit without a name has the column
        (layer, number), which is a text in files. Evidence and data can be read from such files. It
        has a row for each draw, with the index (row, draw) if the evidence has rows.
        """
        target = asked(self.target)
        return samples_frame(target.structure, self.raw("samples"), target.evidence.has_rows)

    def to_arviz(self) -> xr.DataTree:
        """Return the samples as an ArviZ DataTree (extra "arviz").

        Groups: posterior, sample_stats, observed_data. Dimensions: chain, draw, row, the units of
        each layer by their labels, and states of Categorical units. Variables of the model have
        entries of their own, by their names. sample_stats has every statistic with the axes (chain,
        draw, row), such as the energy. If chains move over a ladder, the group tempering has their
        rung at every sweep, as the variable level.
        """
        return to_arviz(self)

    def to_frame(self) -> pd.DataFrame:
        """Return probabilities of states, means and evidence as a DataFrame (extra "arviz").

        It has one row for each row of evidence. Variables, and units whose states have names, have
        a column with the probability of each state: (variable, variable[state]), or variable[state]
        alone where all units are variables. Other units have columns (layer, unit) with their
        means, or (layer, unit[state]) where they are Categorical.
        """
        return to_frame(self)

    @property
    def _names(self) -> Names:
        """The names of all units; none for results of the `run` of a method."""
        return Names({}) if self.target is None else self.target.structure.names

    def _named(self, name: str) -> Named:
        if self.target is None or name not in ("mean", "prob", "prob_interval", "mode", "samples"):
            return Named(self.raw(name), name)
        s, values = self.target.structure, self.raw(name)
        axis = 2 if name == "samples" else int(self.target.evidence.has_rows)
        # Units have their answers from here where those of their layer have another form.
        by_unit = {n: v for n, v in values.items() if n in s.layers and s.layers[n].shape}
        if name == "mean":
            prob = {n: p for n, p in self.answers.get("prob", {}).items() if n in s.by_state}
            # The layer of a single variable has its name.
            values = values | {n: p for n, p in prob.items() if s.layers[n].is_variable}
            by_unit |= prob
        shaped = {n: s.layers[n].in_shape(values[n], axis) for n in by_unit if s.layers[n].shape}
        return Named(values | shaped, name, s.names, axis, by_unit)

    def _array(self, name: str) -> Array:
        found: Array = self.raw(name)
        return found

    def raw(self, name: str) -> Any:
        """Return an answer as the method gave it: layers have their units along one axis.

        Raises
        ------
        NotAsked if the question did not ask for it.
        """
        if name not in self.answers:
            own = {"joint": "pgm.Joint(...)", "modes": "pgm.Mode(...)"}
            wanted = own.get(name, repr(ANSWERS[name]))
            raise NotAsked(f"{name} was not computed: ask for it with want=({wanted},)")
        return self.answers[name]

    def __repr__(self) -> str:
        return result_text(self)

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        return result_html(self)

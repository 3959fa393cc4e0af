"""Plan, Status and Result: what a method would do, how it went, and its answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from pgmengine.base.errors import NoSuchName, NotAsked
from pgmengine.infer.arviz import to_arviz, to_frame

WANTS = ("marginals", "log_z", "log_prob", "samples", "mode", "pairs", "gradient", "bound")


class Status(Enum):
    """How a method ended; the value is the message and the advice.

    OK says that no diagnostic has found a fault. It is no proof: a part of the space that no chain
    has met is missed by all diagnostics of samples.
    """

    OK = "no diagnostic found a fault"
    NOT_MIXED = "the chains did not mix: draw longer, or use a tempering method"
    FEW_TRIPS = "the chains hardly travelled on their ladder: use more temperatures, or draw longer"
    FEW_WEIGHTS = "few draws carry the weight: use more temperatures, chains or draws"
    ONE_SIDED = (
        "no diagnostic found a fault, but annealing down began where annealing up had ended: "
        "a part of the space that both have missed would not show"
    )
    CONTRADICTED = "a proven lower bound lies above the estimate: a part of the space was missed"

    @property
    def good(self) -> bool:
        """Whether no diagnostic has found a fault."""
        return self in (Status.OK, Status.ONE_SIDED)


def duration(seconds: float) -> str:
    """A length of time as people say it: "0.02 s", "90 s", "35 min", "7 h", "400 days".

    >>> duration(0.0213), duration(5400), duration(1e6)
    ('0.021 s', '90 min', '12 days')
    """
    if seconds < 120:
        return f"{seconds:.2g} s"
    units = (("min", 60.0), ("h", 3600.0), ("days", 86400.0))
    name, size = next((u for u in units[:2] if seconds < 120 * u[1]), units[2])
    return f"{seconds / size:.2g} {name}"


@dataclass(frozen=True)
class Plan:
    """What a method would do for a target and what is wanted; `refusal` is empty when it can."""

    method: str
    guarantee: str = ""  # "exact" | "estimate" | "lower bound"
    why: str = ""
    work: float = 0.0  # unit updates
    bytes: float = 0.0
    refusal: str = ""
    seconds: float = 0.0  # on one core, an estimate; 0: the method does not say

    @property
    def accepted(self) -> bool:
        """True when the method can answer."""
        return not self.refusal

    def __str__(self) -> str:
        if self.refusal:
            return f"{self.method}: refused, {self.refusal}"
        sizes = ", ".join(size for size in self.sizes if size)
        return f"{self.method}: {self.guarantee}; {self.why}; about {sizes}"

    @property
    def sizes(self) -> tuple[str, str, str]:
        """Unit updates, time (empty if not known) and memory as text."""
        time = duration(self.seconds) if self.seconds else ""
        return f"{self.work:.2g} unit updates", time, f"{self.bytes / 2**20:.3g} MiB"


ANSWERS = {
    "mean": "marginals",
    "prob": "marginals",
    "log_z": "log_z",
    "log_prob": "log_prob",
    "samples": "samples",
    "mode": "mode",
    "pairs": "pairs",
    "gradient": "gradient",
    "log_z_error": "log_z",
    "log_z_interval": "log_z",
    "bound": "bound",
}


class Named(dict[str, Any]):
    """An answer by layer, coupling or parameter; says what there is when a name is not."""

    def __init__(self, values: Mapping[str, Any], answer: str) -> None:
        super().__init__(values)
        self.answer = answer

    def __missing__(self, name: str) -> Any:
        why = (
            "; only layers of finitely many states have state probabilities"
            if self.answer == "prob"
            else ""
        )
        raise NoSuchName(f"{self.answer} has no {name!r}, it has {', '.join(self)}{why}")

    def __reduce__(self) -> Any:
        return Named, (dict(self), self.answer)


@dataclass(frozen=True, eq=False)
class Result:
    """Answers of one inference; those asked for with `want=` are attributes.

    mean[layer] (rows, size[, k]), prob[layer] (rows, size, states) and mode[layer] have no rows
    axis when the evidence had none. log_z, log_prob, log_z_error are (rows,), log_z_interval (rows,
    2), up to inf where only a lower bound is known; bound (rows,) is a lower bound of log_z.
    samples[layer] (draws, rows, size[, k]). pairs[coupling] (rows, width, width) = E[x_a x_b'], NaN
    where the weight has no parameter; gradient[parameter] is E[d log_density] summed over rows.
    Reading an answer that was not asked for raises NotAsked.
    """

    answers: Mapping[str, Any]
    kind: str
    method: Any
    plan: Plan
    status: Status = Status.OK
    refused: tuple[Plan, ...] = ()
    stats: Mapping[str, Any] = field(default_factory=dict)
    state: Any = None
    warnings: tuple[str, ...] = ()
    target: Any = None  # what was asked about; known to answers of infer

    def to_arviz(self) -> Any:
        """The samples as an ArviZ DataTree (extra "arviz"): posterior, sample_stats, observed_data.

        Dimensions: chain, draw, row, the units of each layer by their labels, and states of
        Categorical units. sample_stats has the energy of each draw, whether it was adaptive (no
        draw is), and of tempered chains level and swap_accepted; where chains wander over
        temperatures, the group tempering has their level at every sweep.
        """
        return to_arviz(self)

    def to_frame(self) -> Any:
        """Means and evidence as a pandas DataFrame: one row for each of evidence, columns (layer,
        unit[, state]).
        """
        return to_frame(self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or "answers" not in self.__dict__:
            raise AttributeError(name)
        if name in self.answers:
            value = self.answers[name]
            return Named(value, name) if isinstance(value, dict) else value
        if name in ANSWERS:
            raise NotAsked(f"{name} was not computed: ask for it with want=({ANSWERS[name]!r},)")
        raise AttributeError(f"Result has no {name!r}")

    def __repr__(self) -> str:
        return (
            f"Result({', '.join(self.answers)}; {self.kind} by {self.method!r}; {self.status.value}; "
            f"{self.plan.why})"
        )

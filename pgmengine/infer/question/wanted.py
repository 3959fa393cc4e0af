"""Functions that all methods use: for wanted quantities, the axis of rows, and evidence patterns.

Inside the package, arrays are flat and have an axis of rows: layer -> (rows, width). Users see
(rows, size[, k]), without an axis of rows if neither the evidence nor the soft evidence had one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pgmengine.base.equal_rows import distinct, rows_by_kind, rows_of
from pgmengine.base.errors import PgmError, told
from pgmengine.base.types import Array, States
from pgmengine.base.work.executors import part_count
from pgmengine.evidence.target import Target
from pgmengine.infer.results.by_name import Mode, OfUnits, units_of
from pgmengine.infer.results.result import WANTS, Result, quantity
from pgmengine.model.parameters import Parameters
from pgmengine.model.structure import Structure
from pgmengine.model.weights import plus

# The axis of rows of each answer, in the arrays of methods.
ROWS_AXIS = {
    "log_z": 0,
    "log_z_error": 0,
    "log_z_interval": 0,
    "log_prob": 0,
    "bound": 0,
    "mean": 0,
    "prob": 0,
    "mode": 0,
    "pairs": 0,
    "joint": 0,
    "modes": 0,
    "samples": 1,
}
# Answers that have no axis of rows if the evidence has none.
SQUEEZED = frozenset({"mean", "prob", "mode", "pairs", "joint", "modes"})


# Quantities that results give without being asked for them, or as part of another quantity.
ELSEWHERE = {
    "energy": (
        ": its mean is the sum of -parameter * gradient over all parameters of r.gradient, which "
        "want=('gradient',) gives"
    ),
    "map": ": 'mode' is the most probable complete state, pgm.Mode(units) the one of some units",
    "mpe": ": 'mode' is the most probable complete state",
    "posterior": ": 'marginals' has the probability of each state of each variable",
    "entropy": (
        ": it is -scipy.special.xlogy(p, p).sum(-1) of p = r.prob[name], which want=('marginals',) "
        "gives"
    ),
    "mutual_information": (
        ": it is the sum of the entropies of two units less the entropy of r.joint[a, b], which "
        "want=(pgm.Joint(a, b),) gives; an entropy is -scipy.special.xlogy(p, p).sum()"
    ),
}


def check_want(s: Structure, want: Iterable[str]) -> tuple[str, ...]:
    """Return the wanted quantities as a tuple; PgmError for unknown names, also of units."""
    known = f"ask for any of {', '.join(WANTS)}, pgm.Joint(units), or pgm.Mode(units)"
    if isinstance(want, str):
        want = (want,)
    if not isinstance(want, Iterable):
        raise PgmError(f"want must be a name or several, not {told(want)}; {known}")
    wanted = tuple(want)
    modes = "mode" in wanted
    for name in wanted:
        if name in WANTS:
            continue
        if not isinstance(name, OfUnits):
            where = ELSEWHERE.get(name, "") if isinstance(name, str) else ""
            raise PgmError(f"want: {name!r} is unknown{where}; {known}")
        units_of(s, name)
        modes |= isinstance(name, Mode)
    if not wanted:
        raise PgmError(f"want is empty; {known}")
    if modes and (s.compact_gates or s.auxiliary):
        raise PgmError(
            "want: the mode needs the whole table of each conditional, and the one of "
            f"{_large_gate(s)} has too many entries; ask for marginals or samples"
        )
    return wanted


def _large_gate(s: Structure) -> str:
    """Return the child of a gate that is too large for a table, in words."""
    if s.compact_gates:
        return repr(s.names.of(s.compact_gates[0].first_child))
    return "a gate"


def without_added(result: Result, whole: Parameters, model: Parameters) -> Result:
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
        for part in (result.answers, result.stats)
    )
    return replace(result, answers=answers, stats=stats)


def public(target: Target, flat: States) -> dict[str, Array]:
    """Return flat arrays (rows, width) as (rows, size[, k]), or (size[, k]) without a rows axis."""
    out = {name: target.structure.layers[name].shaped(value) for name, value in flat.items()}
    return out if target.evidence.has_rows else {name: value[0] for name, value in out.items()}


def squeeze(target: Target, arrays: dict[str, Array]) -> dict[str, Array]:
    """Return arrays without their rows axis if the evidence had none."""
    if target.evidence.has_rows:
        return arrays
    return {name: value[0] for name, value in arrays.items()}


def evidence_patterns(target: Target) -> list[Array]:
    """Return the rows of each evidence pattern and beta, as a list of index arrays."""
    if target.rows == 1:
        return [np.zeros(1, dtype=int)]
    masks = [
        m
        for name in target.structure.layers
        for m in (target.pattern.observed[name], target.intervened[name])
    ]
    if (
        all((m == m[0]).all() for m in map(distinct, masks))
        and (target.beta == target.beta[0]).all()
    ):
        return [np.arange(target.rows)]
    return rows_by_kind(*(np.packbits(m, axis=1) for m in masks), target.beta[:, None])


def one_for_all(target: Target, rows: Array) -> Target:
    """Return a target of one row that stands for rows of one evidence pattern in a plan.

    It has their pattern and beta, and the values of the first row. Soft evidence is not a part of a
    pattern. The row therefore has soft evidence, with arbitrary values, wherever any of the rows
    has some: a unit is then barren in this row if it is barren in all rows.
    """
    one = target.take(rows[:1])
    if not target.soft:
        return one
    soft = {
        name: (distinct(field) != 0).any(axis=0, keepdims=True).astype(np.float64)
        for name, field in rows_of(target.soft, rows).items()
    }
    return replace(one, soft=soft)


def check_rows(target: Target, answers: Mapping[str, Any]) -> None:
    """Raise PgmError unless every answer has the rows of a target."""
    rows, has_rows = target.rows, target.evidence.has_rows
    for what, value in answers.items():
        axis = ROWS_AXIS.get(what)
        if axis is None or (what in SQUEEZED and not has_rows):
            continue
        for x in value.values() if isinstance(value, Mapping) else (value,):
            shape = np.shape(x)
            if len(shape) <= axis or shape[axis] != rows:
                raise PgmError(
                    f"{what} has the shape {shape}, expected {rows} rows on axis {axis}: the "
                    "method has not answered each row once"
                )


def add_gradients(total: dict[str, Any] | None, part: dict[str, Any]) -> dict[str, Any]:
    """Return the sum of two gradients, parameter by parameter."""
    if total is None:
        return part
    return {name: plus(total[name], value) for name, value in part.items()}


def peak_bytes(
    target: Target,
    want: tuple[str, ...],
    draws: int,
    work: float,
    working: float,
    statistics: float = 0.0,
    fixed: float = 0.0,
) -> float:
    """Return the peak memory of an answer in this process.

    It is the sum of the bytes of evidence, answers, `statistics` (with the snapshot), `working`
    arrays for all rows, and arrays of a `fixed` size. A large question is answered in parts of its
    rows (splitting.py). Only one part then has working arrays at a time, and answers and statistics
    are in memory twice: in parts, and joined.
    """
    parts = part_count(work, target.rows)
    result = (answer_bytes(target, want, draws) + statistics) * (1 + (parts > 1))
    return evidence_bytes(target) + result + working / parts + fixed


def evidence_bytes(target: Target) -> float:
    """Return the bytes of the evidence of several rows: values, masks and soft evidence."""
    if target.rows == 1:
        return 0.0
    pattern = target.pattern
    held = (target.evidence.values, pattern.observed, pattern.free, pattern.intervened, target.soft)
    return float(sum(distinct(array).nbytes for part in held for array in part.values()))


def answer_bytes(target: Target, want: tuple[str, ...], draws: int) -> float:
    """Return the bytes of the answers, with `draws` samples for each row."""
    layers, kinds = target.structure.layers, {*map(quantity, want)}
    width = target.structure.width
    numbers = 4.0 + width * (draws * ("samples" in kinds) + ("mode" in kinds))
    if "marginals" in kinds:
        counts = target.structure.state_counts
        numbers += width + sum([x.size * counts[name] for name, x in layers.items()])
    if "pairs" in kinds:
        numbers += sum(layers[c.a].width * layers[c.b].width for c in target.structure.couplings)
    gradient = target.model.parameter_count if "gradient" in kinds else 0
    return 8.0 * (target.rows * numbers + gradient)

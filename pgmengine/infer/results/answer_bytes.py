"""Bytes of the answers and of the evidence of a question, for plans."""

from __future__ import annotations

from pgmengine.base.equal_rows import distinct
from pgmengine.base.work.executors import part_count
from pgmengine.evidence.target import Target
from pgmengine.infer.results.result import quantity


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

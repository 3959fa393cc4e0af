"""The account of a fit: its rows, how many numbers it has learned, and their log-likelihood.

Akaike's and Schwarz's criteria need the number k of dimensions in which the distribution of the
model can move. It is a sum over parameters, each of which counts once in all of its places:

- a row of a conditional, or of a gate, has one number less than states that are possible and not
  fixed, because its probabilities add to one, also if no data or no parents reach it;
- biases, weights, and rows of inputs of real children (two numbers for a Normal, d (d + 3) / 2 for
  d columns with a full covariance) count one each.

Fixed and uninformed numbers do not count. Potentials, and biases and weights of one-hot units, are
more numbers than dimensions, because a constant moves from one to another without a change of the
distribution; so are two parameters at one place, and conditionals among couplings. k is not known
then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from pgmengine.base.equal_rows import equal_rows
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.declare.model import Model
from pgmengine.learn.full_batch.fixed_rows import with_kept
from pgmengine.learn.negative.exact_gradient import ExactGradient
from pgmengine.learn.phases.batch import joint_masks
from pgmengine.learn.run import Run
from pgmengine.learn.starting.symmetric_start import staying
from pgmengine.model.structure import Structure
from pgmengine.model.terms.input_rows import rows_of_inputs
from pgmengine.model.terms.term import Kind, Term
from pgmengine.model.weights import like, numbers

T = TypeVar("T")

# The largest difference of probabilities from shares of counts that is rounding.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Known(Generic[T]):
    """A fact about a fit, or the reason why it is not known."""

    value: T | None = None
    why: str = ""

    def get(self, what: str) -> T:
        """Return the fact; PgmError with the reason if it is not known."""
        if self.value is None:
            raise PgmError(f"{what} is not known: {self.why}")
        return self.value


@dataclass(frozen=True, eq=False)
class Account:
    """Facts about a fit that only its data and its start tell.

    Attributes
    ----------
    rows : the sum of the weights of all rows.
    numbers : how many numbers have learned.
    log_likelihood : of all rows, weighted, in nats.
    row_counts : parameter -> the sum of counts and pseudocounts behind each row of a conditional,
        over entries that are not fixed, where counting complete rows has learned everything. Counts
        of entries are this times their share of the probability.
    stays : parameter -> mask of its stored numbers that have not learned.
    """

    rows: float
    numbers: Known[int]
    log_likelihood: Known[float]
    row_counts: Known[Mapping[str, Array]]
    stays: Mapping[str, Array] = field(repr=False)


def zeros_of(model: Model) -> dict[str, Array]:
    """Return parameter of tables -> mask of impossible entries, for those that have some."""
    tables = model.structure.table_groups
    found = {key: np.asarray(np.isneginf(model.params[key])) for key in tables}
    return {key: mask for key, mask in found.items() if mask.any()}


def account_of(run: Run) -> Account:
    """Return the account of a fit that has ended."""
    model, whole = run.model, run.objective
    stays = joint_masks(
        run.idle if whole is None else whole.fixed, staying(run.optimizer, model.params)
    )
    own = zeros_of(model)
    # An entry that learning has made 0 could have become anything.
    never = {key: mask & own[key] for key, mask in zeros_of(run.start).items() if key in own}
    return Account(
        float(run.weights.sum()) if whole is None else whole.total,
        free_numbers(model, stays, never),
        _log_likelihood(run),
        _row_counts(run, stays, never),
        stays,
    )


def _log_likelihood(run: Run) -> Known[float]:
    """Return the log-likelihood of all rows of a fit, if the optimizer knows it exactly."""
    whole = run.objective
    if whole is None:
        return Known(
            why="learning saw mini-batches, and no likelihood of all rows; pgm.compare(fits, rows) "
            "has log p of rows"
        )
    if not (run.normalized or isinstance(run.negative, ExactGradient)):
        return Known(why=f"{type(run.negative).__name__} maximises another objective")
    if not whole.exact:
        by = type(whole.method).__name__
        return Known(why=f"{by} only estimates expectations given the data")
    # Counts have log p of all units, gradients the one of units that are not given.
    counted = run.normalized and run.optimizer.counts_entries
    try:
        value = (whole.counts if counted else whole.gradient)(run.model).value
    except PgmError as error:
        # What has been learned is not lost for that.
        return Known(why=str(error))
    if value is None:
        return Known(why="the log normaliser is not exact")
    return Known(value * whole.total)


def _row_counts(
    run: Run, stays: Mapping[str, Array], never: Mapping[str, Array]
) -> Known[Mapping[str, Array]]:
    """Return the sums of counts behind rows of conditionals."""
    whole, s = run.objective, run.model.structure
    if whole is None or not run.optimizer.counts_entries:
        by = type(run.optimizer).__name__
        return Known(why=f"learning by {by} has no counts of tables")
    if not whole.counted_once:
        why = "have gaps" if not whole.complete else "do not tell the contributions to gates"
        return Known(why=f"the counts of tables are expectations, because rows {why}")
    informed = {key for key in run.model.params if key not in stays or not stays[key].all()}
    if real := informed - {*s.table_groups}:
        return Known(why=f"{min(real)!r} is no table, and has no counts")
    out = dict[str, Array]()
    for key, counts in run.optimizer.entry_counts(whole, run.model).items():
        logs, kept = run.model.params[key], stays.get(key)
        free = np.ones(logs.shape, dtype=bool) if kept is None else ~kept
        some = free & ~never.get(key, np.False_)
        bare = some & (counts <= 0) & (some.sum(axis=-1, keepdims=True) > 1)
        if bare.any():
            at = np.argwhere(bare)[0].tolist()
            return Known(
                why=f"entry {at} of {key!r} has neither data nor a pseudocount, and so no "
                "distribution; fit with pgm.EM(pseudocount=1)"
            )
        if np.abs(np.exp(with_kept(logs, counts, kept)) - np.exp(logs)).max() > ROUNDING:
            return Known(why="learning ended before its first update")
        out[key] = np.where(free, counts, 0.0).sum(axis=-1)
    return Known(out)


def free_numbers(
    model: Model, stays: Mapping[str, Array], never: Mapping[str, Array]
) -> Known[int]:
    """Return how many numbers of a model are free.

    Parameters
    ----------
    model : the model.
    stays : parameter -> mask of its stored numbers that do not learn.
    never : parameter of tables -> mask of impossible entries.
    """
    s, total = model.structure, 0
    lateral = {f"{c.key}.weight": c for c in s.weighted}
    for key, t in s.parameters.items():
        value = model.params[key]
        free = np.ones(numbers(value).size) - np.ravel(stays.get(key, np.zeros(1)))
        if not free.any():
            continue
        if why := _redundant(s, key, t):
            return Known(why=f"{key!r} has more numbers than dimensions: {why}")
        if t.is_table:
            some = free.reshape(value.shape) * ~never.get(key, np.False_)
            total += int(np.maximum(some.sum(axis=-1) - 1, 0).sum())
        elif key in lateral:
            c = lateral[key]
            moved = int(np.count_nonzero(numbers(c.projected(value, like(value, free)))))
            total += moved // 2 if c.lateral else moved
        else:
            total += int(free.sum())
    if twice := next(_twice(s, stays), ""):
        return Known(why=f"{twice} has two parameters at one place, of which only the sum acts")
    return Known(total)


def _redundant(s: Structure, key: str, t: Term) -> str:
    """Return why the numbers of a parameter are more than its dimensions; "" if they are not."""
    if t.is_table and not t.conditional:
        return "only differences of log weights act"
    if t.is_table:
        return "" if s.normalized else "couplings can act on the units of a conditional as well"
    child = s.layers[t.layers[-1]]
    if child.unit.one_hot:
        return f"{child.title} is one-hot, so that only differences between its states act"
    if key in rows_of_inputs(s) or len(t.layers) == 1:
        return ""
    parent = s.layers[t.layers[0]]
    if parent.unit.one_hot or t.kind is Kind.ARROW_BY_STATE:
        return f"a constant moves from the rows of {parent.title} to other inputs of {child.title}"
    return ""


def _twice(s: Structure, stays: Mapping[str, Array]) -> Iterator[str]:
    """Yield layers, or pairs of them, in which two parameters act at one place."""
    seen = dict[tuple[str, ...], list[Array]]()
    for t in s.shared:
        # A coupling has no first end.
        order = range(len(t.layers)) if t.directed else np.argsort(t.layers, kind="stable")
        seen.setdefault(tuple(t.layers[i] for i in order), []).append(t.index[:, list(order)])
    for layers, index in seen.items():
        every = np.concatenate(index)
        own = any(layers in ((c.a, c.b), (c.b, c.a)) for c in s.weighted)
        if len(layers) == 1:
            every = np.append(every, np.argwhere(s.has_bias[layers[0]]), axis=0)
        elif layers[0] == layers[1]:
            every = np.sort(every, axis=1)
        if own or len(equal_rows(every)[0]) < len(every):
            yield " and ".join(repr(name) for name in dict.fromkeys(layers))

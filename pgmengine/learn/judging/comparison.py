"""compare: several fits side by side on held-out rows.

A fit scores the mean of log p(row). Its standard error is s / sqrt(n) over the rows, to which the
error of log Z is added in squares where that is an estimate; log Z is the same in all rows, and so
is its error. A difference to the best fit is the mean of paired differences, row by row, whose
standard error is much smaller than those of the two scores, because rows that are improbable are so
for all fits.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.base.checks import seeded
from pgmengine.base.display import as_html, as_text, counted, plain
from pgmengine.base.errors import NoSuchName, PgmError, listed, told
from pgmengine.base.names import nearest
from pgmengine.base.types import Array, RngLike
from pgmengine.declare.model import Model, ModelLike, as_model
from pgmengine.declare.template import Template, as_template
from pgmengine.infer.question.ask import infer
from pgmengine.infer.question.prepared import MethodLike
from pgmengine.infer.results.result import Result, weakest
from pgmengine.learn.fit import Fit

COLUMNS = ("fit", "log p of a row", "beside the best", "numbers", "bic", "aic", "kind")


@dataclass(frozen=True)
class Compared:
    """The scores of one fit.

    Attributes
    ----------
    name : its name.
    log_prob, error : the mean of log p(row) in nats, and its standard error.
    difference, difference_error : the mean of log p(row) less the one of the best fit, and its
        paired standard error; 0 for the best.
    numbers : how many numbers it has learned (`Fit.numbers`); None where this is not known.
    bic, aic : its information criteria on the rows it has learned from; NaN where they are not
        known, and for models that are no Fit.
    kind : the guarantee of log p, as of a Result; a "lower bound" is at most log p.
    warnings : the warnings of the answer.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> rows = {"x": [0, 1, 1, 1]}
    >>> fitted = pgm.fit(pgm.network("x", states={"x": 2}), rows, progress=False)
    >>> [one] = pgm.compare([fitted], rows)
    >>> one.numbers, round(one.log_prob, 2)
    (1, -0.58)
    """

    name: Hashable
    log_prob: float
    error: float
    difference: float
    difference_error: float
    numbers: int | None
    bic: float
    aic: float
    kind: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class Comparison:
    """Fits compared on the same rows, the best first, as `pgm.compare` returns it.

    Attributes
    ----------
    fits : the scores of each fit, from the largest mean of log p(row) to the smallest.
    rows : the number of rows.
    notes : reasons for which scores may not be comparable.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> rows = {"x": [0, 1, 1, 1]}
    >>> fitted = pgm.fit(pgm.network("x", states={"x": 2}), rows, progress=False)
    >>> found = pgm.compare({"x": fitted}, rows)
    >>> len(found), found.rows, found["x"].kind
    (1, 4, 'exact')
    """

    fits: tuple[Compared, ...]
    rows: int
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Return the number of fits."""
        return len(self.fits)

    def __iter__(self) -> Iterator[Compared]:
        """Iterate over the scores, the best first."""
        return iter(self.fits)

    def __getitem__(self, name: Hashable) -> Compared:
        """Return the scores of a fit by its name."""
        for one in self.fits:
            if one.name == name:
                return one
        names = [str(one.name) for one in self.fits]
        raise NoSuchName(f"no fit {name!r}, there are {listed(names)}{nearest(str(name), names)}")

    def __repr__(self) -> str:
        table = [COLUMNS, *map(_cells, self.fits)]
        wide = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join(map(str.ljust, row, wide)).rstrip() for row in table]
        return as_text("\n  ".join([self._head, *self.notes]), lines, len(lines))

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        rows = [_cells(one) for one in self.fits]
        return as_html(self._head, COLUMNS, rows, len(rows), self.notes)

    @property
    def _head(self) -> str:
        return f"Comparison: {counted(len(self), 'fit')} on {counted(self.rows, 'row')}"


def compare(
    fits: Mapping[Any, ModelLike | Template] | Sequence[ModelLike | Template],
    rows: Any,
    method: MethodLike | None = None,
    rng: RngLike = None,
) -> Comparison:
    """Return a table of fits, or models, with the log probability that each gives to held-out rows.

    Use it to choose among models of any families over the same columns: the best fit predicts rows
    best that no fit has seen. A difference of less than two of its standard errors may be chance.
    `bic` and `aic` judge by the rows of learning alone.

    Parameters
    ----------
    fits : name -> Fit or model, or a list of them, whose names are then 0, 1, ...
    rows : held-out rows, as the evidence of `infer`; missing values are summed over.
    method : of log p; Auto() by default.
    rng : an integer or a numpy Generator, for estimates.

    Returns
    -------
    A Comparison, the best fit first: `comparison["name"].difference`.

    Raises
    ------
    PgmError with the name of the fit where it cannot answer, and for a column that is a state for
    one model and a real number or an input for another, whose probabilities are not comparable.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> rows = {"rain": [0, 0, 1, 1] * 50, "wet": [0, 0, 1, 0] * 50}
    >>> states = {"rain": 2, "wet": 2}
    >>> fits = {
    ...     edges: pgm.fit(pgm.network(edges, states=states), rows, progress=False)
    ...     for edges in ("rain -> wet", "rain, wet")
    ... }
    >>> found = pgm.compare(fits, rows)
    >>> found.fits[0].name, bool(found["rain, wet"].difference < -0.1)
    ('rain -> wet', True)

    References
    ----------
    Vehtari, Gelman and Gabry (2017), Practical Bayesian model evaluation, section 5, for paired
    differences.
    """
    named = _named(fits)
    _check_columns(named, rows)
    # Each answer has the same random numbers, in whatever order the fits are.
    seed = int(seeded(rng).integers(2**63))
    found = {name: _log_prob(name, one, rows, method, seed) for name, one in named.items()}
    # An answer that is NaN comes last.
    means = {name: _mean(x.log_prob) for name, x in found.items()}
    order = sorted(found, key=lambda name: math.inf if math.isnan(means[name]) else -means[name])
    best = found[order[0]]
    scores = tuple(_compared(name, named[name], found[name], best) for name in order)
    return Comparison(scores, len(best.log_prob), tuple(_notes(named, scores)))


@dataclass(frozen=True, eq=False)
class _LogProb:
    """Log p of each row, the error that the rows have in common, and how it was found."""

    log_prob: Array
    error: float
    kind: str
    warnings: tuple[str, ...]


def _named(given: Any) -> dict[Any, Any]:
    """Return name -> Fit, model or template; PgmError for anything else."""
    if not isinstance(given, (Mapping, list, tuple)) or not given:
        raise PgmError(
            f"compare: fits must be a mapping name -> Fit, or a list of Fits, not {told(given)}"
        )
    named = dict(given if isinstance(given, Mapping) else enumerate(given))
    for name, one in named.items():
        if as_template(one) is None:
            try:
                as_model(one)
            except PgmError as error:
                raise PgmError(f"compare: fits[{name!r}]: {error}") from None
    return named


def _check_columns(named: Mapping[Any, Any], rows: Any) -> None:
    """PgmError for a column with another kind of values in another model."""
    models = {name: as_model(one) for name, one in named.items() if as_template(one) is None}
    if models and not (isinstance(rows, Mapping) or hasattr(rows, "columns")):
        raise PgmError(
            f"compare: rows must map columns to values, or be a DataFrame, not {told(rows)}"
        )
    for column in getattr(rows, "columns", rows) if models else ():
        kinds = dict[str, Any]()
        for name, model in models.items():
            if kind := _kind_of(model, column):
                kinds.setdefault(kind, name)
        if len(kinds) > 1:
            (a, one), (b, other) = list(kinds.items())[:2]
            raise PgmError(
                f"compare: column {column!r} is {a} in {one!r} and {b} in {other!r}: the "
                "probability of one and the density of the other are not comparable"
            )


def _kind_of(model: Model, column: Any) -> str:
    """Return how a model takes a column; "" for one that it does not know."""
    s = model.structure
    place = (column, 0) if column in s.layers else s.names.place(column)
    if place is None:
        return ""
    unit = s.layers[place[0]].unit
    if unit.observed_only:
        return "an input"
    return "a real number" if unit.support is None else "a state"


def _log_prob(name: Any, one: Any, rows: Any, method: MethodLike | None, seed: int) -> _LogProb:
    """Return log p of the rows; PgmError with the name of the fit."""
    try:
        found = infer(one, rows, ("log_prob",), method, rng=seed, progress=False)
    except PgmError as error:
        raise PgmError(f"compare: fits[{name!r}]: {error}") from error
    each: list[Result] = found if isinstance(found, list) else [found]
    errors = np.concatenate([r.log_prob_error for r in each])
    return _LogProb(
        np.concatenate([r.log_prob for r in each]),
        float(errors.mean()),
        weakest(r.kind for r in each),
        tuple(dict.fromkeys(w for r in each for w in r.warnings)),
    )


def _mean(values: Array) -> float:
    """Return the mean, -inf if a row is impossible."""
    return -math.inf if np.isneginf(values).any() else float(values.mean())


def _error(values: Array, *others: float) -> float:
    """Return the standard error of the mean, with further errors; NaN where it is infinite."""
    if len(values) < 2 or not np.isfinite(values).all():
        return math.nan
    return math.hypot(float(values.std(ddof=1)) / math.sqrt(len(values)), *others)


def _compared(name: Any, one: Any, own: _LogProb, best: _LogProb) -> Compared:
    """Return the scores of a fit beside the best one."""
    mean, top = _mean(own.log_prob), _mean(best.log_prob)
    difference, error = 0.0, 0.0
    if own is not best:
        possible = np.isfinite(own.log_prob).all() and np.isfinite(best.log_prob).all()
        difference = mean - top if math.isfinite(top) else math.nan
        error = (
            _error(own.log_prob - best.log_prob, own.error, best.error) if possible else math.nan
        )
    numbers, bic, aic = (_known(one, what) for what in ("numbers", "bic", "aic"))
    return Compared(
        name,
        mean,
        _error(own.log_prob, own.error),
        difference,
        error,
        None if numbers is None else int(numbers),
        math.nan if bic is None else bic,
        math.nan if aic is None else aic,
        own.kind,
        own.warnings,
    )


def _known(one: Any, what: str) -> float | None:
    """Return a number of a fit, or None where it is not known."""
    if not isinstance(one, Fit):
        return None
    try:
        return float(getattr(one, what))
    except PgmError:
        return None


def _notes(named: Mapping[Any, Any], scores: Sequence[Compared]) -> Iterator[str]:
    """Yield why scores may not be comparable."""
    rows = {one.account.rows for one in named.values() if isinstance(one, Fit) and one.account}
    if len(rows) > 1:
        yield (
            "bic and aic are of fits to different rows, "
            f"{listed([f'{n:g}' for n in sorted(rows)])} of them, and not comparable"
        )
    for one in scores:
        for warning in one.warnings[:1]:
            yield f"warning: {plain(one.name)}: {warning}"


def _cells(one: Compared) -> tuple[str, ...]:
    """Return the cells of a line."""
    best = one.difference == 0 and one.difference_error == 0
    at_least = "at least " if one.kind == "lower bound" else ""
    return (
        plain(one.name),
        at_least + _with_error(one.log_prob, one.error),
        "" if best else _with_error(one.difference, one.difference_error),
        "" if one.numbers is None else f"{one.numbers:,}",
        *("" if math.isnan(x) else f"{x:.6g}" for x in (one.bic, one.aic)),
        one.kind,
    )


def _with_error(value: float, error: float) -> str:
    """Return a number with its standard error, if that is known."""
    return f"{value:.4f}" + ("" if math.isnan(error) else f" ± {error:.2g}")

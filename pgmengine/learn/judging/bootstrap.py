"""bootstrap: models of fits to resampled rows.

Rows are drawn with replacement, as often as there are rows. A row that is drawn twice has twice
the weight, so that a resample is a vector of weights, Multinomial(number of rows, w / sum of w),
and no data are copied. Each fit begins at the learned model, so that exchangeable latent states
keep their places, and has the settings and the optimizer of the first one.

Reference: Efron (1979), Bootstrap methods: another look at the jackknife.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pgmengine.base.checks import check_executor, seeded, whole
from pgmengine.base.errors import PgmError, told
from pgmengine.base.types import Array, RngLike
from pgmengine.base.work.executors import run_jobs, spawn
from pgmengine.declare.model_draws import Models
from pgmengine.evidence.shards import Shards
from pgmengine.learn.starting.arguments import row_weights

if TYPE_CHECKING:
    from pgmengine.learn.fit import Fit

# The most parts into which the fits are divided. Each part takes the data to a worker once.
MAX_PARTS = 16


@dataclass(frozen=True, eq=False)
class Again:
    """A call of `fit` that can be made again.

    Attributes
    ----------
    call : `fit` with its settings, to be called with a model, data, weights and rng.
    rows : the number of rows.
    weights : `sample_weight`, as it was given.
    data : the data, as they were given; None in a copy that was pickled, because data may be large.
    """

    call: Callable[..., Fit]
    rows: int
    weights: Any
    data: Any

    def __reduce__(self) -> tuple[Any, ...]:
        return Again, (self.call, self.rows, self.weights, None)

    def fits(self, model: Any, data: Any, weights: Array, seeds: list[Any]) -> list[Any]:
        """Return the models of fits to some vectors of weights."""
        out = []
        for own, rng in zip(weights, seeds, strict=True):
            found = self.call(model, data, sample_weight=own, rng=rng)
            if found.interrupted:
                raise KeyboardInterrupt
            out.append(found.model)
        return out


def bootstrap(
    fit: Fit,
    n: int = 200,
    rng: RngLike = None,
    executor: Executor | None = None,
    *,
    data: Any = None,
) -> Models:
    """Return models that are fitted to resampled rows of the data of a fit.

    Use it to see how sure answers of a learned model are, where rows have gaps, variables are
    latent, or units have real values. Where complete rows were counted, `Fit.posterior` says the
    same in a hundredth of the time. `pgm.infer(models, ...)` gives intervals of answers.

    Parameters
    ----------
    fit : the fit. Its settings and its optimizer are used again, but for callbacks, a checkpoint
        and an executor; one of mini-batches makes as many updates as it made.
    n : the number of models, each of which takes a fit that begins at the learned model.
    rng : an integer or a numpy Generator.
    executor : any concurrent.futures.Executor, among whose workers the fits are divided; the models
        are the same.
    data : the data of the fit, the same rows in the same order. A Fit remembers the object that it
        was given, so that it is needed only after a Fit was pickled. Data must not have changed.

    Returns
    -------
    A Models with the learned model and the n others.

    Raises
    ------
    PgmError for what is no Fit, or a Fit without data, and for data of another number of rows.

    Notes
    -----
    Rows are resampled as independent ones. A row of weight 2 counts as two rows. Intervals over a
    bootstrap hold less often than they say where rows of tables have few data, because a resample
    knows nothing of states that were not seen: 91 in 100 times on networks of five variables and
    200 rows in the place of 95, and 83 where true tables had probabilities near 0.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> rows = {"rain": ["no", "no", None, "yes"] * 10, "wet": ["no", "yes", "yes", "yes"] * 10}
    >>> f = pgm.fit(pgm.network(rows, "rain -> wet"), rows, progress=False)
    >>> models = pgm.bootstrap(f, 40, rng=0)
    >>> r = pgm.infer(models, {"wet": "yes"})
    >>> low, high = r.marginal_interval("rain")["yes"]
    >>> low < r.marginal("rain")["yes"] < high
    True

    References
    ----------
    Efron (1979), Bootstrap methods: another look at the jackknife.
    """
    again = getattr(fit, "again", None)
    if not isinstance(again, Again):
        raise PgmError(f"bootstrap: fit must be a Fit that pgm.fit has made, not {told(fit)}")
    count, source = whole("bootstrap: n", n), seeded(rng)
    check_executor(executor)
    rows = again.data if data is None else data
    if rows is None:
        raise PgmError("bootstrap: this Fit was pickled without its data: give them as data=")
    if isinstance(rows, Shards):
        raise PgmError("bootstrap: rows of Shards have no weights: give one table as data=")
    weights = row_weights(again.rows, again.weights)
    total = max(1, round(float(weights.sum())))
    drawn = source.multinomial(total, weights / weights.sum(), size=count).astype(float)
    seeds = spawn(source, count)
    step = -(-count // MAX_PARTS)
    jobs = [
        (fit.model, rows, drawn[i : i + step], seeds[i : i + step]) for i in range(0, count, step)
    ]
    found = run_jobs(executor, replace(again, data=None).fits, jobs, "fits to resampled rows")
    models = tuple(model for part in found for model in part)
    return Models(fit.model, models, "fitted to resampled rows")

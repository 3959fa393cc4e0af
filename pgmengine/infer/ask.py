"""infer and explain: one call for every question."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pgmengine.base.checks import check_method
from pgmengine.base.errors import PgmError
from pgmengine.base.progress import showing
from pgmengine.graph.model import Model
from pgmengine.infer.answers import check_want
from pgmengine.infer.auto import Auto, asked_for, drawing
from pgmengine.infer.explanation import Explanation, Part
from pgmengine.infer.result import ANSWERS, Result
from pgmengine.infer.splitting import answer

__all__ = ["Auto", "drawing", "explain", "infer"]


def infer(
    model: Model,
    evidence: Any = None,
    want: Iterable[str] = ("marginals",),
    method: Any = None,
    soft: Any = None,
    do: Any = None,
    rng: Any = None,
    state: Any = None,
    executor: Any = None,
    progress: bool = False,
) -> Result:
    """Ask a model anything under any pattern of evidence.

    Parameters
    ----------
    evidence : layer -> (size,) or (rows, size); NaN = not observed; omitted layers are free.
        Categorical layers take labels or one-hot rows. Or a pandas DataFrame with a column for each
        unit.
    want : any of "marginals", "log_z", "log_prob", "samples", "mode", "pairs", "gradient", and
        "bound", a lower bound of log_z.
    method : Auto() by default.
    soft : layer -> log-likelihood to add: log-odds for two-valued units, (..., k) log weights for
        Categorical.
    do : layer -> values; cuts the arrows into those units (directed layers only).
    rng : int or numpy Generator; the same rng gives the same bits on the same kind of processor,
        with the same versions of numpy and BLAS.
    state : a previous Result.state, to go on from.
    executor : any concurrent.futures.Executor (a process pool,
        `distributed.Client(...).get_executor()`, ...) on which to answer: in parts of rows, or of
        the chains of one row, where there is enough to do. The bits are the same as without. What a
        worker that died had to do is done again.
    progress : show a progress bar on work over two seconds, when the output is a terminal.

    >>> import pgmengine as pgm
    >>> r = pgm.infer(pgm.rbm(4, 2, rng=0), {"v": [[1, 0, 1, 1]]}, want=("marginals", "log_prob"))
    >>> r.mean["h"].shape, r.kind
    ((1, 2), 'exact')
    """
    _check(model, method)
    target, wanted, chosen = (
        model.given(evidence, soft=soft, do=do),
        check_want(want),
        method or Auto(),
    )
    with showing(progress):
        if isinstance(chosen, Auto):
            result = chosen.run_on(executor, target, wanted, rng, state)
        else:
            result = answer(executor, chosen, target, wanted, rng, state)
    if missing := [w for w in wanted if not any(ANSWERS.get(name) == w for name in result.answers)]:
        raise PgmError(
            f"{result.method!r} was asked for {', '.join(missing)}, but its answers are "
            f"{', '.join(result.answers)}"
        )
    return replace(result, answers=asked_for(result.answers, wanted, ANSWERS), target=target)


def explain(
    model: Model,
    evidence: Any = None,
    want: Iterable[str] = ("marginals",),
    method: Any = None,
    soft: Any = None,
    do: Any = None,
) -> Explanation:
    """The plan as text, without running: what each candidate would do, and which one answers; a
    table to rich.print.

    >>> import pgmengine as pgm
    >>> print(pgm.explain(pgm.rbm(4, 2, rng=0), want=("log_z",)).splitlines()[0])
    wanted: log_z; 1 evidence row, 0 of 6 units observed
    """
    _check(model, method)
    target = model.given(evidence, soft=soft, do=do)
    wanted = check_want(want)
    chooser = (
        method if isinstance(method, Auto) else Auto(candidates=(method,)) if method else Auto()
    )
    seen = int(sum(mask.sum() for mask in target.evidence.observed.values()))
    units = sum(layer.size for layer in model.structure.layers.values())
    share = (
        f"{seen} of {units} units observed"
        if target.rows == 1
        else (f"{seen / target.rows:.4g} of {units} units observed on average")
    )
    head = (
        f"wanted: {', '.join(wanted)}; {target.rows} evidence row{'s' * (target.rows > 1)}, {share}"
    )
    parts = [(q, chooser.plans_of(q)) for q in chooser.questions(target, wanted)]
    return Explanation(
        head, [Part("" if len(parts) == 1 else q.title, tuple(plans)) for q, plans in parts]
    )


def _check(model: Any, method: Any) -> None:
    """PgmError for what is no model, or no method."""
    if not isinstance(model, Model):
        raise PgmError(
            f"model must be a Model, not {type(model).__name__}"
            + (
                "; it has one, as .model"
                if isinstance(getattr(model, "model", None), Model)
                else ""
            )
        )
    if method is not None:
        check_method(method)

"""Findings of the fits of estimators, as the warnings that users of scikit-learn expect.

`pgm.fit` logs a finding with advice in its own arguments. An estimator warns instead, in the names
of its own parameters. The text is the same for each fit, without numbers, so that Python's filters
of warnings can tell repetitions; the numbers are in the attribute `findings_`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from pgmengine.base.extras import needed_by
from pgmengine.learn.monitoring.finding import MORE_UPDATES, Finding, FindingKind

with needed_by("pgmengine.sklearn"):
    from sklearn.base import BaseEstimator
    from sklearn.exceptions import ConvergenceWarning

SIGNS = {
    FindingKind.STILL_RISING: "learning was still rising in the second half of the passes",
    FindingKind.AT_BASE_RATES: (
        "the model is hardly better than independent columns (no model is, if they are independent)"
    ),
    FindingKind.FELL: "the score of the training rows fell during learning",
}

# What to do about each sign, and the parameter for it. Estimators without the parameter do not say
# it.
ADVICE = {
    FindingKind.STILL_RISING: (
        ("make more passes over the data", "n_iter"),
        ("take larger steps", "optimizer"),
    ),
    FindingKind.AT_BASE_RATES: (
        ("make more passes over the data", "n_iter"),
        ("take larger steps", "optimizer"),
        ("take more hidden units", "n_components"),
    ),
    FindingKind.FELL: (
        ("take smaller steps or steps that fall", "optimizer"),
        ("take a trainer whose chains mix better", "negative"),
    ),
}

# How to tell whether the advice helps.
JUDGED = {
    FindingKind.STILL_RISING: (
        " (the likelihood rises; rows or cells that you keep apart tell whether the answers become "
        "better, too)"
    )
}


def warn_of(estimator: BaseEstimator, findings: Iterable[Finding]) -> None:
    """Warn of each kind of finding once; the warning names the line that has called `fit`."""
    parameters = dict.fromkeys(estimator.get_params(deep=False), "")
    parameters["n_iter"] = str(MORE_UPDATES * estimator.n_iter_)
    for kind in dict.fromkeys(finding.kind for finding in findings):
        advice = [
            f"{what} ({name}={parameters[name]})"
            for what, name in ADVICE[kind]
            if name in parameters
        ]
        warnings.warn(
            f"{type(estimator).__name__}: {SIGNS[kind]}: {', or '.join(advice)}"
            f"{JUDGED.get(kind, '')}; see findings_",
            ConvergenceWarning,
            stacklevel=3,
        )

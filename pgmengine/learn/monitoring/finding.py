"""A finding: a sign at the end of a fit that its model could be much better."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

# The number of updates to try, as a multiple of those that were made: twice as many gain about as
# much as the second half did, so that they seldom are enough.
MORE_UPDATES = 4


class FindingKind(Enum):
    """Signs at the end of a fit that its model could be much better; the value says what to do.

    >>> import pgmengine as pgm
    >>> pgm.FindingKind.FELL.value.startswith("take smaller steps")
    True
    """

    STILL_RISING = (
        "make more updates (epochs=, updates=), or take larger steps (optimizer=), as long as rows "
        "that are kept apart become more probable, too"
    )
    AT_BASE_RATES = (
        "make more updates or take larger steps, or take another trainer (negative=) or more "
        "hidden units; if the data are independent, no model is better"
    )
    FELL = (
        "take smaller steps or steps that fall (optimizer=), or a trainer whose chains mix better "
        "(negative=)"
    )
    UNUSED_STATES = (
        "take fewer states if they are classes that learning is to find, or begin elsewhere: where "
        "all states have equal parameters, learning begins at random starts"
    )
    UNSEEN_STATES = (
        "give more rows, or rows in which the variable is observed; begin elsewhere, or keep its "
        "tables as they are by pgm.Fixed (optimizer=)"
    )
    OTHER_SIGMA = (
        "no fit learns sigma; declare this one and fit again, several times if need be, or take "
        "pgm.Normal() units, which learn a standard deviation for each state"
    )
    COLLAPSED = (
        "the likelihood would grow without limit there, so that it says nothing about the model: "
        "take fewer states, begin elsewhere, or declare a larger pgm.Normal(least_sigma=), such as "
        "the step to which the data are rounded"
    )


@dataclass(frozen=True)
class Finding:
    """A sign at the end of a fit that its model could be much better.

    The score is the log-likelihood if that is cheap, else a bound or a pseudo-likelihood, less the
    same quantity for independent units with the means of the data. It is measured on some of the
    training rows.

    Attributes
    ----------
    kind : the sign: the score rose in the second half of the updates (STILL_RISING), it is hardly
        above the score of independent units (AT_BASE_RATES), it FELL, latent variables have states
        of which the data expect less than one use (UNUSED_STATES, or UNSEEN_STATES where the states
        have names, so that each has a meaning), data spread about their means otherwise than the
        sigma of a layer says (OTHER_SIGMA), or Normal units have the smallest standard deviation
        that they can have (COLLAPSED). The value of the kind says what to do.
    nats : the rise or fall of the score, or its difference from independent units, in nats a row;
        NaN for the other kinds.
    error : standard error of `nats`; 0 for a change that was measured on all rows.
    states : the unused or collapsed states and their variables in words, or the layer of
        OTHER_SIGMA, else an empty string.
    updates : the number of updates after which learning was STILL_RISING, else 0.
    sigma : the standard deviation of the data about their means, for OTHER_SIGMA, or the one in
        use, for COLLAPSED, else 0.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> x = pgm.datasets.bars_and_stripes().x_train
    >>> fitted = pgm.fit(pgm.rbm(16, 8, rng=0), {"v": x}, updates=40, progress=False)
    >>> [finding.kind.name for finding in fitted.findings]
    ['STILL_RISING']
    """

    kind: FindingKind
    nats: float
    error: float
    states: str = ""
    updates: int = 0
    sigma: float = 0.0

    def __str__(self) -> str:
        return self.described(f"{abs(self.nats):.3g} nats a row")

    def described(self, number: str) -> str:
        """Return the sign in words with `number` for the rise or fall, and what to do."""
        said = {
            FindingKind.STILL_RISING: f"learning was still rising, by {number} in its second half",
            FindingKind.AT_BASE_RATES: (
                "the model is hardly better than independent units with the means of the data"
            ),
            FindingKind.FELL: f"the score of the training rows fell by {number}",
            FindingKind.UNUSED_STATES: f"the data do not use {self.states}",
            FindingKind.UNSEEN_STATES: (
                f"the learned model expects less than one use of {self.states} in the data"
            ),
            FindingKind.OTHER_SIGMA: (
                f"{self.states}, and the data spread by {self.sigma:.4g} about the means"
            ),
            FindingKind.COLLAPSED: (
                f"{self.states} collapsed onto one value or a few equal ones, with the smallest "
                f"standard deviation that counts, {self.sigma:.4g}"
            ),
        }
        more = f" ({self.updates} updates were made, try {MORE_UPDATES * self.updates})"
        return f"{said[self.kind]}: {self.kind.value}{more if self.updates else ''}"

"""The functions noisy_or, noisy_and, noisy_max and noisy_min, which users give as values.

They check their own arguments. The number of parents and the states are checked when the model is
built (noisy_forms.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pgmengine.base.checks import real
from pgmengine.base.errors import PgmError, told
from pgmengine.base.names import is_several
from pgmengine.declare.values.noisy_forms import NoisyExtreme, NoisyLogic


def noisy_or(
    probabilities: Iterable[Any], leak: float = 0.0, on: str | int | None = None
) -> NoisyLogic:
    """Return a noisy-or, as the values of the conditional of a child with two states.

    Use it for effects with independent causes, such as symptoms of diseases: n numbers stand for a
    table with 2^n rows. The child is off only if the leak and all parents fail to turn it on,

        p(off | parents) = (1 - leak) * product over the parents that are on of (1 - probability)

    Elimination does not expand the table: its cost grows linearly with the number of parents.

    Parameters
    ----------
    probabilities : for each parent in order, the probability that it turns the child on, alone and
        without the leak. It is a number for a parent with two states, which acts in its state that
        is on. Otherwise it is a number for each state, or a dictionary from states to numbers, in
        which states that are left out have 0.
    leak : the probability that the child is on although no parent turns it on.
    on : the name or number of the state that is on, in the child and in parents that have a state
        of this name. The default is the second state, which is refused for states such as "yes",
        "no", in this order.

    Returns
    -------
    The values for `GraphBuilder.conditional`.

    Raises
    ------
    PgmError for a leak outside of [0, 1]; other errors are found when the model is built.

    References
    ----------
    Pearl (1988); Henrion (1989); Diez and Druzdzel (2006). With a leak, Diez and pgmengine give the
    probabilities of the parents without the leak, and Henrion gives them together with it:
    1 - p_Henrion = (1 - p) (1 - leak).

    >>> import pgmengine as pgm
    >>> b = pgm.GraphBuilder()
    >>> for cause in ("cold", "flu"):
    ...     _ = b.variable(cause, states=("no", "yes"))
    ...     b.conditional(cause, (), [0.9, 0.1])
    >>> fever = b.variable("fever", states=("no", "yes"))
    >>> b.conditional("fever", ("cold", "flu"), pgm.noisy_or([0.4, 0.8], leak=0.01))
    >>> r = pgm.infer(b.build(), {"cold": "yes", "flu": "no"})
    >>> round(float(r.marginal("fever")["yes"]), 6)
    0.406
    """
    return NoisyLogic(_listed(probabilities, "noisy_or"), _leak(leak, "noisy_or"), on, False)


def noisy_and(
    probabilities: Iterable[Any], leak: float = 0.0, on: str | int | None = None
) -> NoisyLogic:
    """Return a noisy-and, as the values of the conditional of a child with two states.

    Use it for effects that need all of their conditions. A parent that is on meets its condition
    with its probability, and a parent that is off does not meet it. The child is on if all
    conditions are met, or else with the probability of the leak,

        p(on | parents) = leak + (1 - leak) * product over all parents of p_i

    where p_i is the probability of the parent if it is on, and 0 if it is off.

    Parameters
    ----------
    probabilities : for each parent in order, as in `noisy_or`: a number, or a number for each
        state. With a number for the state that is off, a parent may meet its condition when off.
    leak : the probability that the child is on although some condition is not met.
    on : the name or number of the state that is on, as in `noisy_or`.

    Returns
    -------
    The values for `GraphBuilder.conditional`.

    Raises
    ------
    PgmError for a leak outside of [0, 1]; other errors are found when the model is built.

    References
    ----------
    Diez and Druzdzel (2006).

    >>> import pgmengine as pgm
    >>> b = pgm.GraphBuilder()
    >>> for need in ("fuel", "spark"):
    ...     _ = b.variable(need, states=("no", "yes"))
    ...     b.conditional(need, (), [0.1, 0.9])
    >>> starts = b.variable("starts", states=("no", "yes"))
    >>> b.conditional("starts", ("fuel", "spark"), pgm.noisy_and([0.95, 0.9]))
    >>> r = pgm.infer(b.build(), {"fuel": "yes", "spark": "yes"})
    >>> round(float(r.marginal("starts")["yes"]), 6)
    0.855
    """
    return NoisyLogic(_listed(probabilities, "noisy_and"), _leak(leak, "noisy_and"), on, True)


def noisy_max(tables: Iterable[Any], leak: Any = None) -> NoisyExtreme:
    """Return a noisy-max, as the values of the conditional of a child with ordered states.

    Use it for effects of several degrees with independent causes. The states of the child are in
    ascending order, and the first one means that the effect is absent. Each parent brings the child
    to a degree at random, and so does the leak. The child has the largest of these degrees,

        p(child <= k | parents) = leak(<= k) * product over the parents of table_i(<= k | x_i)

    Elimination does not expand the table: its cost grows linearly with the number of parents. For
    states in descending order there is `noisy_min`.

    Parameters
    ----------
    tables : for each parent in order, the distribution of the degree that it causes, given its
        state, (states of the parent, states of the child). A row may also be a state of the child,
        which then has probability one, or a dictionary from states to probabilities. Rows may be
        given by a dictionary from the states of the parent; states that are left out cause nothing.
    leak : the distribution of the leak (states of the child,); None = it causes nothing.

    Returns
    -------
    The values for `GraphBuilder.conditional`.

    Raises
    ------
    PgmError when the model is built: for tables of another number or shape, and for rows that do
    not sum to one.

    References
    ----------
    Diez (1993); Diez and Galan (2003).

    >>> import pgmengine as pgm
    >>> b = pgm.GraphBuilder()
    >>> for cause in ("cold", "flu"):
    ...     _ = b.variable(cause, states=("no", "yes"))
    ...     b.conditional(cause, (), [0.9, 0.1])
    >>> fever = b.variable("fever", states=("none", "mild", "high"))
    >>> cold, flu = {"yes": [0.5, 0.4, 0.1]}, {"yes": [0.1, 0.3, 0.6]}
    >>> b.conditional("fever", ("cold", "flu"), pgm.noisy_max([cold, flu]))
    >>> r = pgm.infer(b.build(), {"cold": "yes", "flu": "yes"})
    >>> {state: round(float(p), 3) for state, p in r.marginal("fever").items()}
    {'none': 0.05, 'mild': 0.31, 'high': 0.64}
    """
    return NoisyExtreme(_listed(tables, "noisy_max"), leak, True)


def noisy_min(tables: Iterable[Any], leak: Any = None) -> NoisyExtreme:
    """Return a noisy-min, as the values of the conditional of a child with ordered states.

    Use it for a noisy-max whose states are in descending order, where the last state means that the
    effect is absent, and for a chain that is as strong as its weakest part. The child has the
    smallest state of all contributions,

        p(child >= k | parents) = leak(>= k) * product over the parents of table_i(>= k | x_i)

    Parameters
    ----------
    tables : for each parent in order, the distribution of its contribution, as in `noisy_max`.
    leak : the distribution of the leak (states of the child,); None = the last state.

    Returns
    -------
    The values for `GraphBuilder.conditional`.

    Raises
    ------
    PgmError when the model is built, as for `noisy_max`.

    References
    ----------
    Diez and Druzdzel (2006).

    >>> import pgmengine as pgm
    >>> b = pgm.GraphBuilder()
    >>> for part in ("pump", "pipe"):
    ...     _ = b.variable(part, states=("old", "new"))
    ...     b.conditional(part, (), [0.5, 0.5])
    >>> flow = b.variable("flow", states=("low", "high"))
    >>> wear = {"old": [0.3, 0.7], "new": "high"}
    >>> b.conditional("flow", ("pump", "pipe"), pgm.noisy_min([wear, wear]))
    >>> r = pgm.infer(b.build(), {"pump": "old", "pipe": "old"})
    >>> round(float(r.marginal("flow")["high"]), 6)
    0.49
    """
    return NoisyExtreme(_listed(tables, "noisy_min"), leak, False)


def _listed(given: Iterable[Any], name: str) -> tuple[Any, ...]:
    """Return an item for each parent; PgmError unless they are several in order."""
    if not is_several(given) or isinstance(given, (Mapping, set, frozenset)):
        raise PgmError(
            f"{name} needs a list with an item for each parent, in order, not {told(given)}"
        )
    return tuple(given)


def _leak(given: float, name: str) -> float:
    """Return a leak as a float; PgmError unless it is a probability."""
    if not 0 <= real(given) <= 1:
        raise PgmError(f"{name}: leak must be a probability from 0 to 1, not {told(given)}")
    return real(given)

"""Wanted quantities: the names that `want=` takes, and the advice about others."""

from __future__ import annotations

from collections.abc import Iterable

from pgmengine.base.errors import PgmError, told
from pgmengine.infer.results.by_name import Mode, OfUnits, units_of
from pgmengine.infer.results.result import WANTS
from pgmengine.model.structure import Structure

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

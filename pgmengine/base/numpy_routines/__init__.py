"""Plain routines, in the place of the compiled ones where the package has no compiled module.

The names and arguments are those of `pgmengine._kernels`. Routines of exact answers, products,
draws from tables, optimizers and diagnostics are written in numpy. Sweeps and enumeration are those
of their reference implementations, engine/reference.py and numpy_enumerator.py, which are chosen
because no unit here has as many as MOST_STATES states; those of chains are `log_chain_sums` and
`log_best_paths`. Everything else is refused.
"""

from __future__ import annotations

from typing import Any

from pgmengine.base.errors import PgmError
from pgmengine.base.numpy_routines.draws import draw_step, shuffled, tally, uniforms
from pgmengine.base.numpy_routines.orders import (
    FILL,
    FILL_LOG,
    FILL_STATES,
    SIZE,
    WEIGHT,
    WEIGHT_FILL,
    Orders,
    checked_factors,
)
from pgmengine.base.numpy_routines.products import (
    ADAM,
    ADAMAX,
    LARGEST,
    SGD,
    across,
    add_product,
    add_times,
    ascend,
    outer,
    pack,
)
from pgmengine.base.numpy_routines.series import CONSTANT, MOVES, SLOW, STUCK, judge
from pgmengine.base.numpy_routines.states import possible_states
from pgmengine.base.numpy_routines.tree_sums import JunctionTree, restricted_entries, run_restricted

# The reason why the plain routines are used, and the way to the compiled ones.
NOT_INSTALLED = (
    "pgmengine was installed without its compiled routines: install a C compiler (on Debian: gcc "
    "and python3-dev), and install pgmengine again"
)
TURNED_OFF = "PGMENGINE_KERNELS=plain has turned them off: leave this variable out"
why = NOT_INSTALLED

PROCESSOR = "plain"
PROCESSORS = (PROCESSOR,)
LANES = 1
MOST_STATES = MOST_STATES_OF_A_STEP = 0


def use(name: str) -> int:
    """Refuse to change to another kind, which is not there."""
    if name != PROCESSOR:
        raise missing(f"PGMENGINE_KERNELS={name}")
    return LANES


def build_record() -> dict[str, Any]:
    """Return empty answers: nothing was built."""
    words = (
        "compiler",
        "flags",
        "unit_flags",
        "added_flags",
        "kinds",
        "kind_flags",
        "platform",
        "cython",
    )
    return {**dict.fromkeys(words, ""), "epoch": "", "without_gil": False}


def missing(what: str) -> PgmError:
    """Return the error of a routine that has no plain form."""
    return PgmError(f"{what} needs the compiled routines. {why}, or ask for another method")


class _Missing:
    """A class of routines that has no plain form."""

    what = ""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise missing(self.what)


class Chains(_Missing):
    """Sweeps of layers."""

    what = "a compiled sweep of layers"


class TabledSweeps(_Missing):
    """Sweeps of single units."""

    what = "a compiled sweep of single units"


class GrayWalk(_Missing):
    """Enumeration in Gray-code order."""

    what = "compiled enumeration"


class Graph(_Missing):
    """Mean field of units with directed children or tables."""

    what = "mean field of tables and arrows"


class Weights(Graph):
    """The numbers of a model in mean field."""


class Belief(Graph):
    """Rounds of mean field."""


class Messages(_Missing):
    """Messages on a factor graph."""

    what = "belief propagation"


class Updates(_Missing):
    """Whole updates of learning."""

    what = "a compiled update"


class Ladder(Updates):
    """The ladder of a compiled update."""


def _refused(what: str) -> Any:
    def refuse(*_: Any, **__: Any) -> Any:
        raise missing(what)

    return refuse


waves = _refused("a compiled sweep of single units")
move_clusters = _refused("a compiled move of clusters")
update_inside = _refused("a compiled round of a layer coupled with itself")
make_updates = _refused("a compiled update")
means = _refused("a compiled update")
sum_paths = best_paths = _refused("a compiled pass over chains")
OPERATIONS: dict[str, int] = {}

__all__ = [
    "ADAM", "ADAMAX", "Belief", "CONSTANT", "Chains", "FILL", "FILL_LOG", "FILL_STATES", "Graph",
    "GrayWalk", "JunctionTree", "LANES", "LARGEST", "Ladder", "MOST_STATES",
    "MOST_STATES_OF_A_STEP", "MOVES", "Messages", "OPERATIONS", "Orders", "PROCESSOR", "PROCESSORS",
    "SGD", "SIZE", "SLOW", "STUCK", "TabledSweeps", "Updates", "WEIGHT", "WEIGHT_FILL", "Weights",
    "across", "add_product", "add_times", "ascend", "best_paths", "build_record", "checked_factors",
    "draw_step", "judge", "make_updates", "means", "missing", "move_clusters", "outer", "pack",
    "possible_states", "restricted_entries", "run_restricted", "shuffled", "sum_paths", "tally",
    "uniforms", "update_inside", "use", "waves",
]  # fmt: skip

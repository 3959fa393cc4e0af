"""network: a directed network from its edges, with the states and kinds that columns of data have.

    column of text, booleans, integers, categories    a variable with a table, given its parents
    column of numbers                                 a layer of one Normal unit, the child of its
                                                      parents by an arrow from each of them

All tables are uniform, and all means 0, so that `fit` begins without an opinion.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pgmengine.base.errors import PgmError, listed
from pgmengine.base.names import nearest
from pgmengine.base.work.memory import no_room
from pgmengine.declare.builder import GraphBuilder
from pgmengine.declare.model import Model
from pgmengine.declare.networks.edges import is_edges, parents_of_edges
from pgmengine.declare.networks.tabular import check_acyclic
from pgmengine.evidence.column_kinds import ColumnKind, kind_of
from pgmengine.model.containers import PLAIN, array_of, columns_in
from pgmengine.model.names.origin import Origin
from pgmengine.units import Normal, Unit

# Arrays of the size of a table that learning has at the same time, about.
COPIES_OF_TABLES = 4

# The smallest standard deviation of a Normal unit, as a share of that of its column.
LEAST_SHARE = 1e-3


def network(data: Any, edges: Any = None, *, states: Mapping[str, Any] | None = None) -> Model:
    """Return a Bayesian network with given edges, whose variables are columns of data.

    Use it to begin with a spreadsheet: states and kinds are read from the columns, all tables are
    uniform, and `pgm.fit(model, data)` learns them. Printing the model shows what was read from
    each column. Without data, states are given.

    Parameters
    ----------
    data : a DataFrame of pandas or polars, a Table of pyarrow, or name -> column. Columns that no
        edge names are left out, also when `fit` and `infer` read whole tables later. It may
        also be name -> states, where each value is a number or a list of different names, or the
        edges themselves beside `states`.
    edges : pairs (parent, child), a networkx DiGraph, or a text such as "rain -> wet <- sprinkler",
        with statements between commas, semicolons or line breaks. A lone name is a variable without
        edges.
    states : name -> states in order, the number of states, or a unit such as `pgm.Normal()` for a
        column of numbers. It overrides what a column would say, and declares variables without a
        column, which are hidden.

    Text has states in the order of the alphabet, a column of categories has those of the
    categories in their order, booleans have False and True, and up to 30 different integers are
    states in ascending order. Whole numbers beside empty cells count as integers, since
    programs make fractions of them. All other numbers are Normal units with a mean and a standard
    deviation for each state of their parent. The rows of several parents add up: means, and
    logarithms of standard deviations.

    Returns
    -------
    The model. Variables are in the order of the columns.

    Raises
    ------
    PgmError for names of edges that are no columns, directed cycles, columns of one value, without
    values or of cells of several kinds, tables that do not fit into memory, and numbers as
    parents or without a parent.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> data = {
    ...     "rain": ["no", "yes", "no", "yes", "no", None],
    ...     "sprinkler": [True, False, True, False, False, False],
    ...     "wet": ["wet", "wet", "dry", "wet", "dry", "dry"],
    ...     "litres": [8.1, 6.2, 7.7, 5.9, 0.4, 0.1],
    ... }
    >>> model = pgm.network(data, "rain -> wet <- sprinkler, wet -> litres")
    >>> model
    Bayesian network: 3 variables, 1 layer, 2 arrows, 1 directed coupling, 10 parameters
      declared from 6 rows
      litres: 1 Normal(least_sigma=0.001, full=False); numbers, no empty cell
      couplings: wet->litres
      rain: no, yes; text, 1 of 6 cells empty
      sprinkler: False, True; booleans, no empty cell
      wet: dry, wet; text, no empty cell (given rain, sprinkler)
    >>> learned = pgm.fit(model, data, progress=False)
    >>> round(float(pgm.infer(learned, {"rain": "yes"}).marginal("wet")["wet"]), 2)
    0.63
    >>> pgm.network("rain -> wet", states={"rain": ["no", "yes"], "wet": 3}).variables
    ['rain', 'wet']
    """
    if edges is None:
        if not is_edges(data):
            raise PgmError(
                'edges are missing: give pgm.network(data, "rain -> wet"), or the edges with '
                "states={...}"
            )
        data, edges = None, data
    elif _are_states(data):
        if states is not None:
            raise PgmError("states are given twice, as the first argument and as states=")
        data, states = None, data
    if not isinstance(states, Mapping | None):
        raise PgmError(f"states must map names to states, not {type(states).__name__}")
    known = dict(states or {})
    parents = parents_of_edges(edges)
    columns = {} if data is None else _columns(data)
    parents = _in_order(parents, columns, known, data is not None)
    numbers = {name: i for i, name in enumerate(parents)}
    check_acyclic([*parents], [(numbers[x], [numbers[p] for p in parents[x]]) for x in parents])
    kinds = {x: kind_of(c, f"column {x!r}", x in known) for x, c in columns.items() if x in parents}
    _check_rows(kinds)
    given = {name: _states(name, kinds, known) for name in parents}
    model = _declared(parents, given).build()
    if data is None:
        return model
    rows = max((kind.rows for kind in kinds.values()), default=0)
    left_out = tuple(name for name in columns if name not in parents)
    text = {name: kind.text for name, kind in kinds.items()}
    origin = Origin(rows, text, left_out)
    return Model(replace(model.structure, origin=origin), model.params, fresh=model.fresh)


def _are_states(given: Any) -> bool:
    """Whether a mapping has the states of variables, and not columns of data.

    It does if each value is a number of states, a unit, or different names.
    """
    if not isinstance(given, Mapping):
        return False
    if any(isinstance(x, (int, Unit)) for x in given.values()):
        return True
    return bool(given) and all(map(_are_names, given.values()))


def _are_names(given: Any) -> bool:
    """Whether it is a list of different text, booleans or integers."""
    if not isinstance(given, (list, tuple, range)):
        return False
    plain = set(map(type, given)) <= PLAIN - {float, type(None)}
    return plain and len(set(given)) == len(given)


def _columns(data: Any) -> dict[Any, Any]:
    """Return name -> column; PgmError for names that occur twice, and for other data."""
    found = [*data.items()] if isinstance(data, Mapping) else columns_in(data)
    if not found:
        raise PgmError(
            f"data must be a DataFrame of pandas or polars, a Table of pyarrow, or name -> column, "
            f"with at least one column, not {type(data).__name__}"
        )
    names = [name for name, _ in found]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise PgmError(f"data has two columns {twice!r}, expected different names")
    return dict(found)


def _check_rows(kinds: Mapping[str, ColumnKind]) -> None:
    """PgmError for columns of different lengths."""
    first = next(iter(kinds), "")
    for name, kind in kinds.items():
        if kind.rows != kinds[first].rows:
            raise PgmError(
                f"column {name!r} has {kind.rows:,} rows, and column {first!r} has "
                f"{kinds[first].rows:,}; expected the same number of rows"
            )


def _in_order(
    parents: Mapping[str, list[str]],
    columns: Mapping[Any, Any],
    known: Mapping[str, Any],
    has_data: bool,
) -> dict[str, list[str]]:
    """Return the variables with their parents in the order of columns, then of declared states.

    PgmError for names that neither has.
    """
    for name in parents:
        if name not in columns and name not in known:
            near = nearest(name, [*columns, *known])
            if not has_data:
                raise PgmError(
                    f"edges: there are no data, and {name!r} has no states"
                    f"{near or '; name them in states='}"
                )
            raise PgmError(
                f"edges: {name!r} is no column of the data{near}; to make it a hidden variable, "
                f"give states={{{name!r}: 2}}"
            )
    if has_data and (idle := [name for name in known if name not in parents]):
        raise PgmError(
            f"states: {idle[0]!r} is in no edge{nearest(idle[0], parents)}; name it in the edges, "
            "where a lone name is a variable without edges"
        )
    order = [name for name in dict.fromkeys([*columns, *known]) if name in {*parents, *known}]
    return {name: parents.get(name, []) for name in order}


def _states(name: str, kinds: Mapping[str, ColumnKind], known: Mapping[str, Any]) -> Any:
    """Return the states of a variable, or the unit of numbers."""
    if name in known:
        given = known[name]
        if isinstance(given, Unit) and (not isinstance(given, Normal) or given.full):
            raise PgmError(f"states: {name!r} has the unit {given!r}, expected pgm.Normal()")
        named = hasattr(given, "__array__") or isinstance(given, range)
        return array_of(given, f"states of {name!r}").tolist() if named else given
    kind = kinds[name]
    if kind.states is not None:
        return kind.states
    # A power of ten, which is short to print.
    least = LEAST_SHARE * 10.0 ** min(math.floor(math.log10(kind.sd)), 0)
    return Normal(float(f"{least:.0e}"))


def _declared(parents: Mapping[str, list[str]], given: Mapping[str, Any]) -> GraphBuilder:
    """Return a builder with all variables, and their uniform tables and arrows of zeros."""
    b = GraphBuilder()
    handles = {
        name: b.layer(name, states, 1, labels=[name])
        if isinstance(states, Normal)
        else b.variable(name, states)
        for name, states in given.items()
    }
    count = {v.name: v.count for v in b.variables}
    for name, above in parents.items():
        _check_family(name, above, count)
        if name in count:
            shape = (*(count[x] for x in above), count[name])
            b.conditional(name, above, np.full(shape, 1 / count[name]))
            continue
        for parent in above:
            b.cause(
                handles[parent], handles[name], np.zeros((count[parent], 2)), f"{parent}->{name}"
            )
    return b


def _check_family(name: str, above: list[str], count: Mapping[str, int]) -> None:
    """PgmError for numbers as parents or without parents, and for a table that is too large."""
    if real := [x for x in above if x not in count]:
        raise PgmError(
            f"edges: {real[0]!r} -> {name!r}: {real[0]!r} holds numbers, and only variables with "
            f"states have children; cut it into bins, such as pandas.cut(frame[{real[0]!r}], 3, "
            f'labels=["low", "middle", "high"]), or turn the arrow around'
        )
    if name not in count:
        if not above:
            raise PgmError(
                f"edges: {name!r} holds numbers and has no parent; give it a parent with states, "
                "or cut it into bins"
            )
        return
    sizes = [count[x] for x in (*above, name)]
    if why := no_room(8 * COPIES_OF_TABLES * math.prod(sizes), "merge states, or cut arrows"):
        text = listed([f"{x!r} has {count[x]:,} states" for x in (name, *above)])
        raise PgmError(
            f"edges: the table of {name!r} given {listed([*map(repr, above)])} has "
            f"{math.prod(sizes):,} entries, since {text}: {why}"
        )

"""Models with the auxiliary variables of their gates.

A gate with n parents becomes n conditionals with two parents each: p(a_1 | x_1), p(a_2 | a_1, x_2),
..., p(child | a_n-1, x_n). The conditional of the child is the last one, so that do() on the child
removes it, and the other auxiliary variables are then barren. Auxiliary variables have layers of
their own after the layers of the model, whose units keep their numbers.

The sum over the auxiliary variables is the conditional of the gate. The maximum over states is not
the maximum over the states of the model's own variables, so that the mode has no such form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pgmengine.base.types import Weight
from pgmengine.model.gates.gate import PlacedGate
from pgmengine.model.layer import Layer
from pgmengine.model.tables import Tables
from pgmengine.model.variables import Variable, free_name

if TYPE_CHECKING:
    from pgmengine.model.structure import Structure


def unfolded_params(
    structure: Structure, gates: Sequence[PlacedGate], params: Mapping[str, Weight]
) -> dict[str, Weight]:
    """Return parameters with the small tables of some gates in place of their conditionals.

    `structure` has the auxiliary variables, as `unfolded_structure` returns it.
    """
    gone = {f"{one.name}.table" for one in gates}
    out: dict[str, Weight] = {k: v for k, v in params.items() if k not in gone}
    for name in structure.auxiliary:
        out[f"{name}.bias"] = np.zeros(structure.layers[name].bias_shape)
    for one in gates:
        for i, table in enumerate(one.gate.small_tables()):
            with np.errstate(divide="ignore"):
                out[f"{_part(one, i)}.table"] = np.log(table)
    return out


def unfolded_structure(s: Structure, gates: Sequence[PlacedGate]) -> Structure:
    """Return a structure with auxiliary variables, and their tables in place of the gates'."""
    labels = dict[int, list[str]]()
    # For each gate: the number of states and the unit of each auxiliary variable.
    chains = list[list[tuple[int, int]]]()
    for one in gates:
        chain = list[tuple[int, int]]()
        for parent, table in zip(one.scope[:-2], one.gate.small_tables(), strict=False):
            own = labels.setdefault(table.shape[-1], [])
            chain.append((table.shape[-1], len(own)))
            own.append(f"{s.names.of(one.scope[-1])} after {s.names.of(parent)}")
        chains.append(chain)
    taken = {*s.layers, *(x for layer in s.layers.values() for x in layer.labels or ())}
    names = {count: free_name(f"auxiliary{count}", taken) for count in labels}
    added = {
        names[count]: Layer(names[count], Variable("", count).unit, len(own), tuple(own))
        for count, own in labels.items()
    }
    gone = {one.name for one in gates}
    tables = [t for t in s.tables if t.name not in gone]
    for one, chain in zip(gates, chains, strict=True):
        places = [(names[count], unit) for count, unit in chain]
        tables += _tables_of(one, places)
    return replace(
        s,
        layers={**s.layers, **added},
        tables=tuple(tables),
        gates=tuple(one for one in s.gates if one.name not in gone),
        auxiliary=s.auxiliary | frozenset(added),
    )


def _tables_of(one: PlacedGate, places: list[tuple[str, int]]) -> list[Tables]:
    """Return the conditionals of a gate, whose auxiliary variables are at some places."""
    *parents, child = one.scope
    out = list[Tables]()
    for i, (*before, after) in enumerate(_scopes(parents, [*places, child])):
        scope = (*before, after)
        index = np.array([[unit for _, unit in scope]], dtype=np.int64)
        out.append(Tables(_part(one, i), tuple(layer for layer, _ in scope), index, True))
    return out


def _scopes(
    parents: list[tuple[str, int]], after: list[tuple[str, int]]
) -> list[tuple[tuple[str, int], ...]]:
    """Return the scopes of the small tables: (x_1, a_1), (a_1, x_2, a_2), ..."""
    if not parents:
        return [(after[-1],)]
    first = (parents[0], after[0])
    links = zip(after[:-1], parents[1:], after[1:], strict=True)
    return [first, *links]


def _part(one: PlacedGate, i: int) -> str:
    """Return the name of one of the small tables of a gate."""
    return f"{one.name} #{i + 1}"

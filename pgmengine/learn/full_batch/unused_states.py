"""States of latent variables that the data do not use, so that they say nothing about them.

The uses of a state are its expected count, over all rows and places, in the conditionals of latent
units that are one array, or that share a table.
"""

from __future__ import annotations

import numpy as np

from pgmengine.base.errors import listed
from pgmengine.base.types import Array
from pgmengine.declare.model import Model
from pgmengine.learn.full_batch.objective import Objective
from pgmengine.learn.monitoring.finding import Finding, FindingKind
from pgmengine.learn.starting.symmetry import latent_units
from pgmengine.model.names.state_names import text_of
from pgmengine.model.structure import Structure

# A state with fewer expected uses in all rows and places together counts as unused. One that a
# single row has for itself has nearly one use.
MIN_USES = 0.5


def unused_states(objective: Objective, model: Model) -> tuple[Finding, ...]:
    """Return the findings about latent variables and arrays with states that are not used.

    States without names are classes, of which a model may have fewer. A state with a name has a
    meaning, and stays in the model.
    """
    if objective.complete or not objective.exact:
        return ()
    found = dict[FindingKind, list[str]]()
    for children, uses in _groups(objective, model):
        layer, unit = model.structure.names.at(min(children))
        of = model.structure.layers[layer]
        unused = np.flatnonzero(uses < MIN_USES)
        if len(unused) and uses.sum() >= len(uses) * MIN_USES:
            states = [text_of(of.state_names[k]) if of.state_names else str(k) for k in unused]
            name = layer if of.is_array else model.structure.names.of((layer, unit))
            kind = "state" if len(states) == 1 else "states"
            sign = FindingKind.UNSEEN_STATES if of.state_names else FindingKind.UNUSED_STATES
            found.setdefault(sign, []).append(f"{kind} {listed(states)} of {name!r}")
    return tuple(Finding(sign, np.nan, 0.0, listed(words)) for sign, words in found.items())


def _groups(objective: Objective, model: Model) -> list[tuple[set[int], Array]]:
    """Return latent units that belong together, and the expected uses of their states."""
    s, latent = model.structure, latent_units(objective.target)
    children = _children(s)
    counts = objective.counts(model).slopes if latent.any() and children else {}
    groups: list[tuple[set[int], Array]] = []
    for key, units in children.items():
        if not latent[[*units]].all():
            continue
        found = np.asarray(counts[key])
        whole, uses = _with_arrays(s, units), found.reshape(-1, found.shape[-1]).sum(axis=0)
        for other in [group for group in groups if group[0] & whole]:
            groups.remove(other)
            whole, uses = whole | other[0], uses + other[1]
        groups.append((whole, uses))
    return groups


def _children(s: Structure) -> dict[str, set[int]]:
    """Return the parameter of each conditional -> its children, as numbers of units."""
    children, first = dict[str, set[int]](), 0
    for t in s.tables:
        own = s.table_index.child[first : first + len(t.index)]
        first += len(t.index)
        # Contributions to a gate are no states of its child.
        if t.conditional and (t.form is None or t.form.closed):
            children.setdefault(t.key, set()).update(map(int, own))
    return children


def _with_arrays(s: Structure, units: set[int]) -> set[int]:
    """Return the units, with all units of the arrays that hold some of them."""
    out = set(units)
    for name, layer in s.layers.items():
        whole = set(range(s.first_unit[name], s.first_unit[name] + layer.size))
        if layer.is_array and whole & units:
            out |= whole
    return out

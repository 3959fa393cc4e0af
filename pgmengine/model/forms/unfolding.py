"""Models with the auxiliary variables of their gates.

A gate with n parents becomes n conditionals with two parents each: p(a_1 | x_1), p(a_2 | a_1, x_2),
..., p(child | a_n-1, x_n), which are parts of the gate and have its parameter. The conditional of
the child is the last one, so that do() on the child removes it, and the other auxiliary variables
are then barren. Auxiliary variables have layers of their own after the layers of the model, whose
units keep their numbers.

The sum over the auxiliary variables is the conditional of the gate. The maximum over states is not
the maximum over the states of the model's own variables, so that the mode has no such form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pgmengine.base.types import Weight
from pgmengine.model.forms.gate import Steps
from pgmengine.model.layer import Layer
from pgmengine.model.names.variables import Variable, free_name
from pgmengine.model.terms.term import Kind, Term

if TYPE_CHECKING:
    from pgmengine.model.structure import Structure


def unfolded_params(structure: Structure, params: Mapping[str, Weight]) -> dict[str, Weight]:
    """Return the parameters of a structure with auxiliary variables, which have no bias."""
    biases = {
        f"{name}.bias": np.zeros(structure.layers[name].bias_shape) for name in structure.auxiliary
    }
    return {**biases, **params}


def unfolded_structure(s: Structure, gates: Sequence[Term]) -> Structure:
    """Return a structure with auxiliary variables, and parts of some gates in place of them."""
    labels = dict[int, list[str]]()
    # For each gate: the parts, and the states of each auxiliary variable with its units by place.
    chains = list[tuple[tuple[Steps, ...], list[tuple[int, list[int]]]]]()
    for one in gates:
        assert isinstance(one.form, Steps)
        parts, chain = one.form.parts(), list[tuple[int, list[int]]]()
        for axis, part in enumerate(parts[:-1]):
            own = labels.setdefault(part.shape[-1], [])
            chain.append((part.shape[-1], [*range(len(own), len(own) + len(one.index))]))
            own += [_label(s, one, units, axis) for units in one.index.tolist()]
        chains.append((parts, chain))
    taken = {*s.layers, *(x for layer in s.layers.values() for x in layer.labels or ())}
    names = {count: free_name(f"auxiliary{count}", taken) for count in labels}
    added = {
        names[count]: Layer(names[count], Variable("", count).unit, len(own), tuple(own))
        for count, own in labels.items()
    }
    gone = {one.store for one in gates}
    terms = [t for t in s.terms if t.store not in gone]
    for one, (parts, chain) in zip(gates, chains, strict=True):
        terms += _parts_of(one, parts, [(names[count], units) for count, units in chain])
    return replace(
        s,
        layers={**s.layers, **added},
        terms=tuple(terms),
        compact=s.compact - gone,
        auxiliary=s.auxiliary | frozenset(added),
    )


def _label(s: Structure, one: Term, units: list[int], axis: int) -> str:
    """Return the label of the auxiliary variable after a parent."""
    child, parent = (s.names.of((one.layers[i], units[i])) for i in (-1, axis))
    return f"{child} after {parent}"


def _parts_of(one: Term, parts: Sequence[Steps], after: list[tuple[str, list[int]]]) -> list[Term]:
    """Return the parts of a gate; the auxiliary variable after each is in a layer, at units."""
    *parents, child = zip(one.layers, one.index.T.tolist(), strict=True)
    which = None if len(one.index) == 1 else np.zeros(len(one.index), dtype=np.int64)
    ends, out = [*after, child], list[Term]()
    for i, (part, end) in enumerate(zip(parts, ends, strict=True)):
        scope = [*ends[i - 1 : i], *parents[i : i + 1], end]
        layers = tuple(layer for layer, _ in scope)
        index = np.array([units for _, units in scope], dtype=np.int64).T
        out.append(Term(one.key, Kind.CONDITIONAL, layers, index, (), which, part, i + 1))
    return out

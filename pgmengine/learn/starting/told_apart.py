"""Starts that clearly have no symmetry, by numbers that no other number equals.

Most fits begin at rows of their own for each state, and then the refinement of symmetry.py, which
looks at every entry in every step of every row, ends with a class for each number. Here the same
follows from the parameters, and from the units that terms join. The classes of the refinement are
at least as fine as these:

- Let a number that is equal to no other stand in row k of a term, for the state k of its only
  parent. States k of units in the term have this neighbour, and no other states have. If each state
  of each latent unit has such a number, states k and l of any latent units are told apart.
- Then entries of one table are, and inputs of the rows of arrows, as their neighbours are states
  and components of other numbers.

The answer is no where neither is sure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pgmengine.base.types import Array
from pgmengine.model.parameters import Parameters
from pgmengine.model.structure import Structure
from pgmengine.model.terms.term import Term


def told_apart(
    model: Parameters, colours: dict[str, Array], parts: Sequence[tuple[Structure, Array, Array]]
) -> bool:
    """Return whether it is sure that no two numbers would be exchanged.

    Parameters
    ----------
    model : the model at which learning begins, with all parameters.
    colours : parameter -> the colour of each number.
    parts : the structure of each length, its latent units and its informed units.
    """
    s = model.structure
    terms = {t.key: t for t in (*s.tables, *s.shared)}
    plain = all(_is_plain(part) for part, _, _ in parts) and _is_plain(s)
    if not plain or any(t.lead for t in terms.values()):
        return False
    _, number, times = np.unique(
        np.concatenate([*colours.values()]), return_inverse=True, return_counts=True
    )
    ends = np.cumsum([c.size for c in colours.values()])
    single = dict(zip(colours, np.split(times[number] == 1, ends[:-1]), strict=True))
    equal = [
        (colour, term.kind, len(shape), *place)
        for key, term in terms.items()
        for shape in (np.shape(model.params[key]),)
        for place in np.argwhere(~single[key].reshape(shape)).tolist()
        for colour in (int(colours[key].reshape(shape)[tuple(place)]),)
    ]
    if len(set(equal)) < len(equal):
        return False
    # The terms with a number of its own for each state of the parent.
    telling = {
        key
        for key, t in terms.items()
        if len(t.layers) == 2 and single[key].reshape(len(model.params[key]), -1).any(axis=1).all()
    }
    return all(_told(part, latent, informed, telling) for part, latent, informed in parts)


def _is_plain(s: Structure) -> bool:
    """Return whether there are only conditionals of at most one parent, and rows of arrows."""
    tables = all(t.conditional and t.form is None and len(t.layers) <= 2 for t in s.tables)
    arrows = all(t.directed and _has_rows_of_real_children(s, t) for t in s.shared)
    return tables and arrows and not s.weighted and not any(x.any() for x in s.has_bias.values())


def _has_rows_of_real_children(s: Structure, t: Term) -> bool:
    """Return whether arrows join components of states with components that are never exchanged."""
    parent, child = (s.layers[name].unit for name in t.layers)
    return parent.one_hot and not child.one_hot


def _told(s: Structure, latent: Array, informed: Array, telling: set[str]) -> bool:
    """Return whether each latent unit with states is the parent of an informed unit in a term."""
    told = np.repeat([n <= 1 for n in s.state_counts.values()], [x.size for x in s.layers.values()])
    for t in (*s.tables, *s.shared):
        if t.key in telling:
            parent, child = _units(s, t)
            told[parent[informed[child]]] = True
    return bool((told | ~latent).all())


def _units(s: Structure, t: Term) -> Array:
    """Return the units of the places of a term, numbered over all layers, (2, places)."""
    return np.asarray(t.index.T + np.array([[s.first_unit[name]] for name in t.layers]))

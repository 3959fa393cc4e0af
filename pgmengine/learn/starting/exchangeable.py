"""States of latent variables that learning could never tell apart, and exchangeable latent units.

A latent unit is one that no row observes. Two of its states are alike if all terms below the unit
treat them alike, and if everything above it that the data can tell apart gives them probabilities
of one ratio: p(state | row) then has this ratio in every row, so that each update leaves the rows
of children alike, and learning that begins there stays there for ever. Exchangeable units, and
states of several units that change places together, are found by symmetry.py.

States are divided into cells, from one cell for each unit, until no cell splits any more. Two
states stay in one cell if

- each table or coupling of other informed units has the same entries at both, where the entries of
  a latent child are added over the cells of its own states;
- the own conditional has columns of one ratio, unless all states of each parent are in one cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from pgmengine.base.types import Array
from pgmengine.declare.model import Model
from pgmengine.evidence.target import Target
from pgmengine.learn.phases.batch import in_all_places, joint_masks
from pgmengine.learn.starting.symmetry import Symmetry, learned_latents, rounded, symmetry_of
from pgmengine.model.weights import is_sparse, numbers


def exchangeable(
    model: Model,
    rows: Sequence[tuple[Target, Mapping[str, Array]]],
    fixed: Mapping[str, Array],
    labels: Mapping[str, Array],
) -> Symmetry:
    """Return the numbers that learning from a model could never tell apart.

    Parameters
    ----------
    model : the model at which learning begins.
    rows : the rows of each length, with a model of their own at these parameters, and their units
        that are given.
    fixed : parameter -> mask of the numbers that do not learn.
    labels : parameter -> further numbers that tell its numbers apart, such as pseudocounts.
    """
    found = symmetry_of(model, rows, fixed, labels)
    alike, others = dict[str, Array](), dict(fixed)
    names = dict.fromkeys(found.states)
    for target, given in rows:
        cells = Cells(target, given, labels)
        own, other = cells.masks()
        same = {key for key in own if np.shape(own[key]) == _shape(model, key)}
        alike = joint_masks(alike, {key: own[key] for key in same})
        others = joint_masks(others, {key: other[key] for key in same})
        names |= dict.fromkeys(cells.names())
        if all(key in others and others[key].all() for key in model.params):
            # Something tells every number from the others already; templates have many lengths.
            break
    alike = {key: some for key, mask in alike.items() if (some := mask & ~others[key]).any()}
    states = list(names) if alike else found.states
    return Symmetry(joint_masks(found.masks, alike), found.units, states)


def _shape(model: Model, key: str) -> tuple[int, ...]:
    """Return the shape of the mask of a parameter, or of the stored numbers of a sparse one."""
    value = model.params[key]
    return numbers(value).shape if is_sparse(value) else np.shape(value)


class Cells:
    """The cells of states that learning could never tell apart, of each latent unit of a target.

    Attributes
    ----------
    cells : unit -> (states,) the cell of each state.
    """

    def __init__(
        self, target: Target, given: Mapping[str, Array], labels: Mapping[str, Array]
    ) -> None:
        s = target.structure
        self.model, self.s, self.index = target.model, s, s.table_index
        latent, self.informed = learned_latents(target, given)
        count = np.repeat([*s.state_counts.values()], [x.size for x in s.layers.values()])
        units = np.flatnonzero(latent & (count > 1))
        self.cells = {int(u): np.zeros(count[u], dtype=np.int64) for u in units}
        self.coupled = {name for c in s.couplings for name in (c.a, c.b)}
        self.prob = target.model.table_prob if units.size else np.zeros(0)
        self.labels = np.zeros(len(self.prob))
        for store, part in s.table_places.items():
            t = s.stored_tables[store]
            # The numbers of a gate are no entries, and those of a leaf are several.
            if t.key in labels and units.size and (t.form is None or t.form.closed):
                own = labels[t.key]
                self.labels[part] = (t.form.logs(own) if t.form else own).ravel()
        self._known: dict[tuple[object, ...], Array] = {}
        self._refine()

    def _refine(self) -> None:
        """Split cells until none of them splits any more."""
        order, changed = list(self.cells), True
        while changed:
            changed = False
            for unit in order:
                before = self.cells[unit]
                if before.max() + 1 < len(before):
                    after = self._split(unit, before)
                    changed |= bool(after.max() > before.max())
                    self.cells[unit] = after
            # Both ends of a chain then need a few passes only.
            order.reverse()

    def _split(self, unit: int, cells: Array) -> Array:
        """Return the cells of a unit, divided by all terms in which it is."""
        parts = 0
        for part in self._parts(unit):
            parts += 1
            cells = _divided(cells, part)
            if cells.max() + 1 == len(cells):
                break
        # Nothing tells the states of a unit without any term; nothing can break their likeness.
        return cells if parts else np.arange(len(cells))

    def _parts(self, unit: int) -> Iterator[Array]:
        """Yield the division of the states of a unit by each term."""
        index = self.index
        for axis in index.of_unit(unit):
            table = int(index.table[axis])
            child = int(index.child[table])
            if child == unit:
                yield self._by_own(table)
            elif child < 0 or self.informed[child]:
                yield self._by_effect(table, int(axis - index.start[table]), child)
        layer, number = self.s.names.at(unit)
        if layer in self.coupled:
            yield from self._by_couplings(layer, number)

    def _entries(self, table: int) -> tuple[Array, Array]:
        """Return the probabilities of a table, and its labels, with an axis for each unit."""
        index = self.index
        entries = slice(index.first[table], index.first[table] + index.size[table])
        shape = index.states[index.start[table] : index.start[table + 1]]
        return self.prob[entries].reshape(shape), self.labels[entries].reshape(shape)

    def _by_effect(self, table: int, axis: int, child: int) -> Array:
        """Return the division of states by their entries in the table of another unit."""
        inner = self.cells.get(child)
        key = self.index.first[table], axis, b"" if inner is None else inner.tobytes()
        if key not in self._known:
            prob, labels = self._entries(table)
            if inner is not None:
                prob = prob @ (inner[:, None] == np.arange(inner.max() + 1))
            rows = [
                np.moveaxis(part, axis, 0).reshape(prob.shape[axis], -1) for part in (prob, labels)
            ]
            self._known[key] = _alike(np.concatenate(rows, axis=1))
        return self._known[key]

    def _by_own(self, table: int) -> Array:
        """Return the division of states by the ratios of their columns in their own table."""
        index = self.index
        above = index.unit[index.start[table] : index.start[table + 1] - 1].tolist()
        told = any(unit not in self.cells or self.cells[unit].any() for unit in above)
        key = index.first[table], told
        if key not in self._known:
            prob, labels = (part.reshape(-1, part.shape[-1]).T for part in self._entries(table))
            total = prob.sum(axis=1, keepdims=True)
            # Impossible states are no states that learning could use.
            parts = [np.where(total > 0, 0.0, np.arange(1.0, len(total) + 1)[:, None]), labels]
            parts += [prob / np.where(total > 0, total, 1.0)] if told else []
            self._known[key] = _alike(np.concatenate(parts, axis=1))
        return self._known[key]

    def _by_couplings(self, layer: str, number: int) -> Iterator[Array]:
        """Yield the division of states by the inputs that they give to other units."""
        of = self.s.layers[layer]
        support = of.unit.support
        assert support is not None
        values = support.reshape(-1, of.unit.width)
        columns = of.columns(np.array([number]))
        for c in self.s.couplings:
            weight = self.model.weight(c)
            # A child gives its parent no input.
            ends = (
                [(c.a, c.b, weight)]
                if c.directed
                else [(x, to, block) for to, x, block in c.blocks(weight)]
            )
            for source, to, block in ends:
                if source == layer:
                    own = block[columns]
                    if is_sparse(own):
                        own = own.toarray()
                    informed = self.informed[self.s.slices[to]]
                    yield _alike(values @ own[:, self.s.layers[to].components(informed)])

    def _several(self, unit: int) -> Array:
        """Return which states of a unit share their cell with others."""
        cells = self.cells[unit]
        return np.asarray(np.bincount(cells)[cells] > 1)

    def names(self) -> list[str]:
        """Return the names of the units with states that are alike."""
        names = self.s.names
        return [repr(names.of(names.at(u))) for u in self.cells if self._several(u).any()]

    def masks(self) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return parameter -> mask of the numbers that belong to such states, and to others."""
        alike = {unit: some for unit in self.cells if (some := self._several(unit)).any()}
        tables, others = self._in_tables(alike)
        weights = self._in_weights(alike)
        return {**tables, **weights}, {**others, **{key: ~mask for key, mask in weights.items()}}

    def _in_tables(self, alike: Mapping[int, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return the masks of the numbers of tables at such states, and at others."""
        index, s = self.index, self.s
        if not alike:
            masks = {
                key: np.zeros(t.parameter_shape(s.layers), dtype=bool)
                for key, t in s.table_groups.items()
            }
            return masks, {key: ~mask for key, mask in masks.items()}
        found = [np.zeros(s.stored_entries, dtype=bool) for _ in range(2)]
        for table in np.flatnonzero((index.child < 0) | self.informed[index.child]).tolist():
            axes = slice(index.start[table], index.start[table + 1])
            shape = index.states[axes]
            mask = np.zeros(shape, dtype=bool)
            for i, unit in enumerate(index.unit[axes].tolist()):
                if unit in alike:
                    mask |= alike[unit].reshape((-1,) + (1,) * (len(shape) - i - 1))
            entries = slice(index.first[table], index.first[table] + index.size[table])
            found[0][entries] |= mask.ravel()
            found[1][entries] |= ~mask.ravel()
        # A number is marked if an entry that depends on it is.
        own, other = (
            {key: n > 0 for key, n in self.model.parameter_counts(mask.astype(float)).items()}
            for mask in found
        )
        return own, other

    def _in_weights(self, alike: Mapping[int, Array]) -> dict[str, Array]:
        """Return the masks of weights that belong to alike states in all of their places."""
        s = self.s
        some = {name: np.zeros(layer.width, dtype=bool) for name, layer in s.layers.items()}
        for unit, states in alike.items():
            name, number = s.names.at(unit)
            layer = s.layers[name]
            some[name][layer.columns(np.array([number]))] = states if layer.unit.one_hot else True
        # A row for each of two states acts on the bias of the child, too.
        out = {f"{name}.bias": np.ones(x.bias_shape, dtype=bool) for name, x in s.layers.items()}
        weights = {c: self.model.weight(c) for c in s.couplings}
        for c, weight in weights.items():
            rows, columns = some[c.a], np.zeros_like(some[c.b]) if c.directed else some[c.b]
            if is_sparse(weight):
                at = weight.tocoo()
                out[f"{c.key}.weight"] = rows[at.row] | columns[at.col]
            else:
                out[f"{c.key}.weight"] = rows[:, None] | columns
        if s.shared:
            out = in_all_places(self.model, out, weights)
        return {key: out[key] for key in s.weight_names}


def _alike(rows: Array) -> Array:
    """Return a number (n,) for each of some rows, the same where they differ by rounding only."""
    numbers_of: dict[bytes, int] = {}
    plain = rounded(np.asarray(rows, dtype=np.float64))
    return np.array([numbers_of.setdefault(row.tobytes(), len(numbers_of)) for row in plain])


def _divided(cells: Array, part: Array) -> Array:
    """Return cells divided by another division, numbered from 0."""
    pairs: dict[tuple[int, int], int] = {}
    both = zip(cells.tolist(), part.tolist(), strict=True)
    return np.array([pairs.setdefault(pair, len(pairs)) for pair in both])

"""The log density of complete states in arrays of any library, such as torch or JAX.

It is the formula of `Parameters.flat_log_density`, term by term, with the parameters and the values
as arrays of the library, so that its derivatives in both are those of the library. Nothing is read
back from the arrays, which may lie on a GPU or be traced: a value that is no value of its unit
gives the row NaN. Positions come from the structure: couplings, arrows and biases of places act at
the entries of the expansion, tables at those of their index, and gates by their chain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.base.array_library import ArrayLibrary
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.declare.model import Model
from pgmengine.evidence.columns import Named, by_name
from pgmengine.model.couplings import Coupling
from pgmengine.model.forms.gate import Steps
from pgmengine.model.forms.table_forms import Leaves
from pgmengine.model.layer import Layer
from pgmengine.model.terms.expansion import Entries
from pgmengine.model.terms.term import Term
from pgmengine.model.weights import is_sparse, numbers


def array_log_density(
    model: Model, states: Mapping[Any, Any], params: Mapping[str, Any], lib: ArrayLibrary
) -> Any:
    """Return the log density (rows,) of states, in arrays of a library.

    Parameters
    ----------
    model : the model.
    states : layer or variable -> array, as `Result.samples` gives them, with an axis of rows.
    params : parameter -> array, in place of those of the model; a sparse one has its numbers.
    lib : the library of the arrays; all of them have one precision and one device.
    """
    s = model.structure
    x = _values(model, by_name(s, states, "states"), lib)
    like = next(iter(x.values()))
    given = {key: _given(model, key, value, lib) for key, value in params.items()}
    own = {k: lib.constant(numbers(v), like) for k, v in model.params.items() if k not in given}
    flat = {key: value.reshape(-1) for key, value in {**own, **given}.items()}
    return _Density(model, flat, x, lib).total()


def _given(model: Model, key: str, value: Any, lib: ArrayLibrary) -> Any:
    """Return a parameter as given; the rows of conditionals are normalised, as by with_params."""
    known = model.structure.parameters
    if key not in known:
        # This raises the error that lists the parameters.
        model.with_params({key: 0.0})
    own = model.params[key]
    shape = (own.nnz,) if is_sparse(own) else own.shape
    if tuple(value.shape) != tuple(shape):
        raise PgmError(f"parameter {key!r} has shape {tuple(value.shape)}, expected {shape}")
    return value - lib.log_sum(value)[..., None] if known[key].conditional else value


def _values(model: Model, given: list[Named], lib: ArrayLibrary) -> dict[str, Any]:
    """Return layer -> values (rows, size[, k]); numbers where users give them for components."""
    parts: dict[str, dict[int | None, Any]] = {}
    rows: dict[int, str] = {}
    for one in given:
        value = _read(one, lib)
        parts.setdefault(one.layer.name, {})[one.unit] = value
        rows.setdefault(len(value), one.where)
    if len(rows) > 1:
        (n, first), (m, other), *_ = rows.items()
        raise PgmError(f"{first} has {n} rows, and {other} has {m}; expected the same number")
    out = {}
    for name, layer in model.structure.layers.items():
        found = parts.get(name, {})
        missing = [] if None in found else [i for i in range(layer.size) if i not in found]
        if missing:
            raise PgmError(
                f"states need a value for every unit; {layer.place(missing[0])} has none"
            )
        each = [found[None]] if None in found else [found[i] for i in range(layer.size)]
        out[name] = lib.xp.concatenate(each, 1)
    return out


def _read(one: Named, lib: ArrayLibrary) -> Any:
    """Return the values (rows, units[, k]) of a layer, or of a single unit."""
    layer, unit, array = one.layer, one.layer.unit, one.value
    n, grid = (layer.size, layer.grid) if one.unit is None else (1, ())
    grids = {grid, (n,)} | ({()} if n == 1 else set())
    shape, last = tuple(array.shape), {unit.width, unit.cells} - {0, 1}
    if len(shape) > 1 and shape[-1] in last and shape[1:-1] in grids:
        values = array.reshape(shape[0], n, shape[-1])
        if unit.support is not None:
            return values
        return values[..., : unit.cells] if unit.cells else values[..., 0]
    alone = unit.width == 1 or unit.one_hot or (unit.support is None and not unit.cells)
    if not (alone and shape and shape[1:] in grids):
        ways = [("rows", *grid)] * alone + [("rows", *grid, k) for k in sorted(last)]
        expected = " or ".join(f"({', '.join(map(str, way))})" for way in ways)
        raise PgmError(f"{one.where} has shape {shape}, expected {expected}")
    labels = array.reshape(shape[0], n)
    if not unit.one_hot:
        return labels
    same = labels[..., None] == lib.constant(np.arange(float(unit.width)), labels)
    # A number that is no label has no one in its row, which is no value of the unit.
    return lib.xp.where(same, lib.constant(np.ones(1), labels), 0.0)


@dataclass(frozen=True, eq=False)
class _Density:
    """The terms of the log density at values, with the numbers (n,) of each parameter."""

    model: Model
    numbers: Mapping[str, Any]
    x: Mapping[str, Any]
    lib: ArrayLibrary

    def total(self) -> Any:
        """Return the sum of all terms, (rows,)."""
        s, total = self.model.structure, 0.0
        for name, layer in s.layers.items():
            own = self._conditional if name in s.directed_layers else self._undirected
            try:
                total = total + own(layer)
            except NotImplementedError as error:
                what = f"{layer.title} has {layer.unit!r} units, which torch and JAX do not know"
                raise PgmError(f"{what}: {error}") from None
            if s.conditioned[name].any():
                # Tables of conditionals contain the base measure; a wrong value stays NaN.
                tabled = self.lib.constant(s.conditioned[name].astype(np.float64), self.x[name])
                total = total - (self._base(layer) * tabled).sum(-1)
        for c in s.undirected:
            total = total + self._coupling(c)
        for t in s.tables_and_gates:
            if isinstance(t.form, Steps):
                total = total + self._gate(t, t.form)
        return total + self._tables() if s.tables else total

    def _at(self, positions: Array) -> Any:
        """Return positions as integers of the library, on the device of the values."""
        return self.lib.constant(positions.astype(np.int64), next(iter(self.x.values())))

    def _acting(self, e: Entries) -> Any:
        """Return the numbers of a term of places at its entries."""
        return e.factor * self.numbers[e.key][self._at(e.numbers)]

    def _flat(self, name: str) -> Any:
        """Return the values (rows, width) of a layer."""
        layer, x = self.model.structure.layers[name], self.x[name]
        if math.prod(x.shape[1:]) != layer.width:
            raise PgmError(
                f"{layer.title} has {layer.unit!r} units, which torch and JAX take as children "
                "without children of their own"
            )
        return x.reshape(len(x), layer.width)

    def _undirected(self, layer: Layer) -> Any:
        """Return the terms of the biases and base measures of a layer."""
        s, name = self.model.structure, layer.name
        x, key = self._flat(name), f"{name}.bias"
        total = x @ self.numbers[key] + self._base(layer).sum(-1)
        for e in s.expansion.terms(key):
            total = total + x[:, self._at(e.columns)] @ self._acting(e)
        return total

    def _base(self, layer: Layer) -> Any:
        """Return log h of the values of a layer, (rows, size)."""
        return layer.unit.log_h_in(self.lib, self.x[layer.name])

    def _conditional(self, layer: Layer) -> Any:
        """Return the sum of log p(x | input) of the units of a directed layer."""
        s, name, lib = self.model.structure, layer.name, self.lib
        x, zeta = self.x[name], self.numbers[f"{name}.bias"]
        zeta = zeta + lib.constant(np.zeros((len(x), 1)), zeta)
        for e in s.expansion.terms(f"{name}.bias"):
            zeta = lib.added(zeta, e.columns, self._acting(e))
        for c in s.arrows_into[name]:
            parents = self._flat(c.a)
            for rows, columns, weights in self._entries(c):
                zeta = lib.added(zeta, columns, parents[:, self._at(rows)] * weights)
            if (weight := self._dense(c)) is not None:
                zeta = zeta + parents @ weight
        shape = (len(x), layer.size) if layer.unit.width == 1 else (len(x), layer.size, -1)
        return layer.unit.log_conditional_in(lib, x, zeta.reshape(shape)).sum(-1)

    def _dense(self, c: Coupling) -> Any:
        """Return the own weight of a coupling, None if it has none or a sparse one."""
        own = self.model.params.get(key := f"{c.key}.weight")
        return None if own is None or is_sparse(own) else self.numbers[key].reshape(own.shape)

    def _entries(self, c: Coupling) -> Iterator[tuple[Array, Array, Any]]:
        """Yield rows, columns and numbers of a sparse weight, and of the terms of places."""
        own = self.model.params.get(key := f"{c.key}.weight")
        if own is not None and is_sparse(own):
            # Inside a layer each pair of units is stored in both orders.
            at, share = own.tocoo(), 0.5 if c.lateral else 1.0
            yield at.row, at.col, share * self.numbers[key]
        for e in self.model.structure.expansion.terms(key):
            yield e.rows, e.columns, self._acting(e)

    def _coupling(self, c: Coupling) -> Any:
        """Return the term of an undirected coupling."""
        a, b, total = self._flat(c.a), self._flat(c.b), 0.0
        for rows, columns, weights in self._entries(c):
            total = total + (a[:, self._at(rows)] * b[:, self._at(columns)]) @ weights
        if (weight := self._dense(c)) is not None:
            total = total + ((a @ weight) * b).sum(-1) * (0.5 if c.lateral else 1.0)
        return total

    def _states(self) -> Any:
        """Return the states (rows, units) of all units; 0 for infinitely many values."""
        found = []
        for name, layer in self.model.structure.layers.items():
            x = self.x[name]
            if layer.unit.support is None:
                found.append(self._at(np.zeros((len(x), layer.size))))
            else:
                found.append(layer.unit.nearest_in(self.lib, x)[0])
        return self.lib.xp.concatenate(found, 1)

    def _tables(self) -> Any:
        """Return the sum of the entries of all tables but those of gates."""
        s, xp = self.model.structure, self.lib.xp
        index, steps = s.table_index, self._states()
        like = next(iter(self.x.values()))
        steps = steps[:, self._at(index.unit)] * self._at(index.stride)
        sums = xp.concatenate([0 * steps[:, :1], xp.cumsum(steps, 1)], 1)
        at = sums[:, self._at(index.start[1:])] - sums[:, self._at(index.start[:-1])]
        entries = []
        for t in s.stored_tables.values():
            own = self.numbers[t.key]
            if isinstance(t.form, Steps):
                own = self.lib.constant(np.zeros(t.form.entries), like)
            elif isinstance(t.form, Leaves):
                own = own[self._at(t.form.number_of_entry.reshape(-1))]
            entries.append(own)
        return xp.concatenate(entries, 0)[at + self._at(index.first)].sum(-1)

    def _gate(self, t: Term, form: Steps) -> Any:
        """Return the term of a gate at all of its places, by its chain of contributions."""
        s, xp, lib = self.model.structure, self.lib.xp, self.lib
        units = t.index + [s.first_unit[name] for name in t.layers]
        states = self._states()[:, self._at(units.reshape(-1))].reshape(-1, units.shape[1])
        theta, draws = xp.exp(self.numbers[t.key]), form.all_draws
        ends = np.cumsum([0, *(step.rows.size * step.states for step in form.steps)])
        zero = lib.constant(np.zeros(ends[-1]), theta)
        links = lib.added(zero, draws.entry, theta[self._at(draws.number)])
        parents, here = (
            iter(range(states.shape[1] - 1)),
            lib.constant(np.ones((len(states), 1)), theta),
        )
        for step, begin, end in zip(form.steps, ends[:-1], ends[1:], strict=True):
            link = links[begin:end].reshape(*step.rows.shape, step.states)
            at = states[:, next(parents)] if step.has_parent else 0 * states[:, 0]
            here = xp.einsum("rj,jrk->rk", here, link[:, at])
        found = here[self._at(np.arange(len(states))), states[:, -1]]
        return xp.log(found).reshape(-1, len(units)).sum(-1)

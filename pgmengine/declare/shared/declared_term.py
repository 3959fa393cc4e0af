"""Shared couplings and biases as they are declared, and their conversion to `SharedTerm`.

The handles of a declaration broadcast together to the shape of the places, as those of a table do.
A value with the shape of one place is shared by all places; leading axes give places their own.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, Weight
from pgmengine.base.work.memory import no_room
from pgmengine.declare.handles import Units, broadcast_shape, in_words, units_of_member
from pgmengine.declare.scopes import free_parameter, numbers_of_places
from pgmengine.model.couplings import Arrow, Coupling, Lateral, Pair
from pgmengine.model.graph.parent_order import cycle_of
from pgmengine.model.names.unit_names import Member
from pgmengine.model.parameter_checks import check_shared
from pgmengine.model.shared.expansion import joins
from pgmengine.model.shared.shared_term import SharedTerm, place_shape, rows_by_state
from pgmengine.model.structure import Structure

# Bytes that each entry of a place takes: its row, column and number, and its stored entries.
BYTES_AN_ENTRY = 64


@dataclass(frozen=True, eq=False)
class DeclaredTerm:
    """A shared coupling, arrow or bias as it is declared.

    Attributes
    ----------
    scope : the two ends of a coupling, or the units of a bias.
    values : the parameter; None = drawn by build, or 0 for a bias.
    name : the name of the parameter, "" if the scope gives it. Equal names share a parameter.
    directed : whether it is a coupling of arrows.
    """

    scope: tuple[Member | Units, ...]
    values: Array | None
    name: str = ""
    directed: bool = False

    @property
    def what(self) -> str:
        """The declaration in words, for messages."""
        words, name = [in_words(m) for m in self.scope], f" {self.name!r}" if self.name else ""
        if len(words) == 1:
            return f"bias{name} of {words[0]}"
        return f"{'arrows' if self.directed else 'coupling'}{name} of ({', '.join(words)})"

    def placed(self, bare: Structure, taken: frozenset[str]) -> PlacedTerm:
        """Return the shared term over the layers of a structure.

        `taken` are names that its parameter cannot have if none is given.
        """
        what = self.what
        members = [units_of_member(bare.names, member, what) for member in self.scope]
        names = tuple(layer for layer, _, _ in members)
        shape = broadcast_shape([units.shape for _, units, _ in members], self.scope, what)
        index = np.stack([np.broadcast_to(x, shape).ravel() for _, x, _ in members], axis=1)
        block, rows = place_shape(bare.layers, names), None
        if self.directed and takes_rows(bare, names):
            # A row for each of the two states of the parent, as parents of more states have.
            rows = rows_by_state(bare.layers, names)
        by_state = self.values is not None and self.values.shape[-2:] == rows
        block = rows if by_state and rows is not None else block
        wide = [text for layer, _, text in members if bare.layers[layer].unit.width > 1]
        lead = () if self.values is None else _lead(self.values.shape, block, rows, wide, what)
        which = numbers_of_places(lead, shape, what)
        texts = [f"{text}[...]" if text in bare.layers else text for _, _, text in members]
        end = "bias" if len(names) == 1 else "weight"
        key = f"{('->' if self.directed else '-').join(texts)}.{end}"
        key = self.name or free_parameter(key, taken)
        term = SharedTerm(key, names, index, which, lead, self.directed, by_state)
        return PlacedTerm(term, self.values, what)


@dataclass(frozen=True, eq=False)
class PlacedTerm:
    """A shared term with the values that were declared for it, and its name in messages."""

    term: SharedTerm
    values: Array | None
    what: str


class Places(Protocol):
    """A shared term before the layers are known: declared by handles, or read from a file."""

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def scope(self) -> tuple[Member | Units, ...]: ...  # noqa: D102

    @property
    def values(self) -> Array | None: ...  # noqa: D102

    def placed(self, bare: Structure, taken: frozenset[str]) -> PlacedTerm: ...  # noqa: D102


def placed_terms(
    bare: Structure, declared: Iterable[Places], taken: frozenset[str]
) -> list[PlacedTerm]:
    """Return the shared terms of declarations over the layers of a structure.

    `taken` are names of parameters of whole layers.
    """
    out, groups = list[PlacedTerm](), dict[str, PlacedTerm]()
    for one in declared:
        earlier = groups.get(one.name)
        if one.values is None and earlier is not None and isinstance(one, DeclaredTerm):
            # The parameter has the values of its first declaration.
            one = replace(one, values=earlier.values)
        found = one.placed(bare, taken.union(groups))
        if not len(found.term.index):
            # A slice such as z[1:] of a single step is empty: the term acts nowhere.
            continue
        _check_places(bare, found)
        if earlier is not None:
            _check_same(bare, earlier, found)
        groups.setdefault(found.term.key, found)
        out.append(found)
    whole = {key for p in out for key in _whole_weights(p.term)}
    for key in taken.union(whole).intersection(groups):
        raise PgmError(
            f"{groups[key].what}: the name {key!r} is taken by a parameter of whole layers"
        )
    return out


def takes_rows(bare: Structure, names: Sequence[str]) -> bool:
    """Return whether arrows may have a row for each of the two states of the parent.

    Weights of noisy-or children stay above 0, which differences of two rows need not.
    """
    parent, child = bare.layers[names[0]].unit, bare.layers[names[-1]].unit
    two = parent.support is not None and np.shape(parent.support) in ((2,), (2, 1))
    return len(names) == 2 and two and not child.nonnegative


def _whole_weights(term: SharedTerm) -> tuple[str, ...]:
    """Return the names that the weight between the layers of a coupling may have."""
    if term.is_bias:
        return ()
    a, b = term.layers
    return (f"{a}->{b}.weight",) if term.directed else (f"{a}-{b}.weight", f"{b}-{a}.weight")


def _check_places(bare: Structure, placed: PlacedTerm) -> None:
    """PgmError if a place joins a unit with itself, or if the places do not fit into memory."""
    names, index = placed.term.layers, placed.term.index
    entries = len(index) * math.prod(float(bare.layers[name].unit.width) for name in names)
    if why := no_room(BYTES_AN_ENTRY * entries, "take fewer places"):
        raise PgmError(f"{placed.what}: {len(index)} places do not fit into memory: {why}")
    if len(names) < 2 or names[0] != names[1]:
        return
    same = np.flatnonzero(index[:, 0] == index[:, 1])
    if len(same):
        unit = bare.names.of((names[0], int(index[same[0], 0])))
        raise PgmError(f"{placed.what}: unit {unit!r} is coupled with itself")


def _lead(
    shape: tuple[int, ...],
    block: tuple[int, ...],
    rows: tuple[int, ...] | None,
    wide: Sequence[str],
    what: str,
) -> tuple[int, ...]:
    """Return the leading axes of values; PgmError unless the last ones are those of one place.

    `rows` is another shape of one place, and `wide` are the units with several components, one for
    each state, for the message.
    """
    lead = len(shape) - len(block)
    if lead < 0 or shape[lead:] != block:
        states = " and each ".join(f"state of {text}" for text in wide)
        pairs = zip(shape[max(lead, 0) :], block, strict=False)
        two = any(given == 2 and expected == 1 for given, expected in pairs)
        other = "" if rows is None else f", or {rows} with a row for each state of the parent"
        raise PgmError(
            f"{what} has shape {shape}, expected {block}{other}: one number for each {states}; "
            "axes of places come before these axes, if places have values of their own"
            + "; a unit of two states has the values 0 and 1: give what its second state adds, and "
            "the numbers of the first one by bias()" * two
        )
    return shape[:lead]


def _check_same(bare: Structure, first: PlacedTerm, other: PlacedTerm) -> None:
    """PgmError unless two declarations of one name have the same kind, shape and values."""
    what = f"{other.what}: the name is also of {first.what}"
    a, b = first.term, other.term
    if (a.is_bias, a.directed) != (b.is_bias, b.directed):
        raise PgmError(f"{what}: one is {_kind(b)}, and the other {_kind(a)}")
    if (shape := b.shape(bare.layers)) != a.shape(bare.layers):
        raise PgmError(f"{what}, whose shape is {a.shape(bare.layers)}, not {shape}")
    if first.values is None and other.values is not None:
        raise PgmError(f"{what}, which has no values: give them where the name comes first")
    if first.values is not None and not np.array_equal(first.values, np.asarray(other.values)):
        raise PgmError(f"{what}, which has other values: a shared parameter has one value")


def _kind(term: SharedTerm) -> str:
    """Return what a term is, in words."""
    return "a bias" if term.is_bias else "an arrow" if term.directed else "a coupling"


def with_couplings(
    own: Sequence[Coupling], terms: Sequence[SharedTerm]
) -> tuple[tuple[Coupling, ...], frozenset[str]]:
    """Return own couplings and those that shared terms add, and the keys of the added ones."""
    couplings = list(own)
    for t in terms:
        if t.is_bias or any(joins(c, t) for c in couplings):
            continue
        a, b = t.layers
        undirected: Coupling = Lateral(a) if a == b else Pair(a, b)
        couplings.append(Arrow(a, b) if t.directed else undirected)
    return tuple(couplings), frozenset(c.key for c in couplings[len(own) :])


def check_arrows_inside(structure: Structure, placed: Sequence[PlacedTerm]) -> None:
    """PgmError for shared arrows inside a layer that close a cycle, or that meet a weight."""
    joined: dict[str, list[Array]] = {}
    for p in placed:
        if not p.term.directed or p.term.layers[0] != p.term.layers[1]:
            continue
        name = p.term.layers[0]
        if f"{name}->{name}" not in structure.without_weight:
            raise PgmError(
                f"{p.what}: layer {name!r} has arrows with a weight of their "
                "own: give all arrows inside a layer by handles, or none"
            )
        edges = np.concatenate(joined.setdefault(name, []) + [p.term.index])
        joined[name] = [edges]
        if (edges[:, 0] < edges[:, 1]).all():
            continue
        if cycle := cycle_of(edges.tolist()):
            names = (structure.names.of((name, unit)) for unit in cycle)
            raise PgmError(f"{p.what}: the arrows form a cycle: {' -> '.join(names)}")


def values_of_terms(
    structure: Structure, placed: Sequence[PlacedTerm], rng: np.random.Generator
) -> dict[str, Weight]:
    """Return the parameters of shared terms; weights without values are drawn.

    They are uniform in +-sqrt(6 / (width of a + width of b)), as those of whole layers.
    """
    out: dict[str, Weight] = {}
    for p in placed:
        if p.term.key in out:
            continue
        values = p.values
        if values is None:
            values = _drawn(structure, p.term, rng)
        out[p.term.key] = check_shared(structure.layers, p.term, values, p.what)
    return out


def _drawn(structure: Structure, term: SharedTerm, rng: np.random.Generator) -> Array:
    """Return the first value of a shared term: 0 for a bias, else drawn."""
    shape = term.shape(structure.layers)
    if term.is_bias:
        return np.zeros(shape)
    a, b = (structure.layers[name] for name in term.layers)
    limit = np.sqrt(6.0 / (a.width + b.width))
    weight = np.asarray(rng.uniform(-limit, limit, shape))
    return np.abs(weight) if term.directed and b.unit.nonnegative else weight


def single_names(scopes: Iterable[Sequence[object]], variables: Container[str]) -> list[str]:
    """Return the single variables in scopes of couplings, which get layers of their own."""
    names = (m.name if isinstance(m, Units) else m for scope in scopes for m in scope)
    return [name for name in names if isinstance(name, str) and name in variables]

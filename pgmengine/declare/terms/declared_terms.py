"""Terms as they are declared, by names of units, and their conversion to `Term`, by numbers.

The members of a scope broadcast together, as in numpy, to the shape of the places. A value with the
shape of one place is shared by all places; leading axes give places their own.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, Weight
from pgmengine.base.work.memory import no_room
from pgmengine.declare.handles import Units, broadcast_shape, in_words, units_of_member
from pgmengine.declare.scopes import check_distinct, units_by_number
from pgmengine.declare.stored_forms import same_form
from pgmengine.declare.validate import check_groups, check_structure
from pgmengine.declare.values.forms import Axis, Form
from pgmengine.model.couplings import Coupling
from pgmengine.model.forms.gate import Steps, fits_as_table
from pgmengine.model.forms.table_forms import Formed
from pgmengine.model.graph.parent_order import cycle_of
from pgmengine.model.names.unit_names import Member
from pgmengine.model.structure import Structure, first_of
from pgmengine.model.tables import check_finite, check_log_table, check_logs, check_table
from pgmengine.model.terms.expansion import joins
from pgmengine.model.terms.term import KINDS_OF_TABLES, Kind, Term, place_shape

# Bytes that each entry of a table takes while tables are declared, its logarithm and one more
# number in steps that work on a whole table; and each entry of a weight in a place, with its row,
# column and number, and its stored entries.
BYTES_AN_ENTRY, BYTES_A_PLACE = 12, 64


@dataclass(frozen=True, eq=False)
class Declared:
    """A term as it is declared.

    Attributes
    ----------
    scope : the units of each axis; the layer of each axis where `index` is given.
    values : the parameter; a form that becomes entries of a table, or fewer numbers, when the units
        are known; None = drawn by build, or 0 for a bias.
    kind : the kind of term. Arrows whose values have a row for each state become ones by state.
    name : the name of the parameter, "" if the scope gives it. Equal names share a parameter.
    log : whether the values of a table are logarithms of entries.
    index : (n, m) numbers of units of n tables, None where the shapes of the scope give them. Each
        of the tables has entries of its own.
    """

    scope: tuple[Member | Units, ...]
    values: Array | Form | Formed | None
    kind: Kind
    name: str = ""
    log: bool = False
    index: Array | None = None

    @property
    def what(self) -> str:
        """The declaration in words, for messages."""
        words, scope = [in_words(m) for m in self.scope], tuple(map(str, self.scope))
        every = f"({', '.join(words)})"
        if self.index is not None:
            return f"tables of {scope!r}"
        if self.kind in KINDS_OF_TABLES:
            conditional = self.kind is Kind.CONDITIONAL
            what = f"conditional of {words[-1]}" if conditional else f"table of {every}"
            return f"{what}, {self.name!r}," if self.name else what
        of = f"{f' {self.name!r}' if self.name else ''} of"
        if self.kind is Kind.BIAS:
            return f"bias{of} {words[0]}"
        return f"{'arrows' if self.kind is Kind.ARROW else 'coupling'}{of} {every}"


@dataclass(frozen=True, eq=False)
class Placed:
    """A declared term over the layers of a structure.

    Attributes
    ----------
    term : the units of its places, and its kind.
    what : its name in messages.
    values : the numbers that were declared, None = drawn by build.
    declared : the declaration; None for a term of a file, whose tables are parameters.
    axes : the units of a table, for messages.
    stem : the name of the parameter, without an end such as ".table".
    """

    term: Term
    what: str
    values: Any
    declared: Declared | None = None
    axes: tuple[Axis, ...] = ()
    stem: str = ""


def placed_terms(bare: Structure, declared: Iterable[Declared]) -> list[Placed]:
    """Return declarations as terms over the layers of a structure; tables come last."""
    out, groups, stems = list[Placed](), dict[str, list[Placed]](), _names_of_whole(bare)
    for one in declared:
        earlier = groups[one.name][0] if one.name in groups else None
        if one.values is None and earlier is not None:
            # The parameter has the values of its first declaration.
            one = replace(one, values=earlier.values)
        found = _placed(bare, one, stems)
        stems.add(found.stem)
        if not len(found.term.index):
            # A slice such as z[1:] of a single step is empty: the term acts nowhere.
            continue
        group = groups.setdefault(found.term.key, [])
        if group:
            _check_same(bare, group[0], found)
        group.append(found)
        if not found.term.is_table:
            out.append(found)
    # Tables of one parameter follow each other.
    return out + [p for group in groups.values() for p in group if p.term.is_table]


def _names_of_whole(structure: Structure) -> set[str]:
    """Return the names of the biases and weights of whole layers."""
    weights = [f"{c.key}.weight" for c in structure.couplings]
    return {*(f"{name}.bias" for name in structure.layers), *weights}


def _whole_weights(term: Term) -> tuple[str, ...]:
    """Return the names that the weight between the layers of a coupling may have."""
    if term.is_bias or term.is_table:
        return ()
    a, b = term.layers
    return (f"{a}->{b}.weight",) if term.directed else (f"{a}-{b}.weight", f"{b}-{a}.weight")


def _placed(bare: Structure, one: Declared, taken: Container[str]) -> Placed:
    """Return a declaration as a term; `taken` are names that it cannot have if none is given."""
    what, kind, values = one.what, one.kind, one.values
    if not one.scope:
        raise PgmError("a table needs at least one unit in its scope")
    if one.index is None:
        members = [units_of_member(bare.names, member, what) for member in one.scope]
        shape = broadcast_shape([units.shape for _, units, _ in members], one.scope, what)
        layers = tuple([layer for layer, _, _ in members])
        index = np.stack([np.broadcast_to(x, shape).ravel() for _, x, _ in members], axis=1)
        texts = [text for _, _, text in members]
    else:
        texts = [str(member) for member in one.scope]
        layers, index = units_by_number(bare, texts, one.index, what)
        shape = (len(index),)
    axes, form, lead = tuple[Axis, ...](), None, tuple[int, ...]()
    if kind in KINDS_OF_TABLES:
        for layer in layers:
            check_finite(bare, layer)
        if one.index is None:
            check_distinct(bare, layers, index, what)
        axes = _axes(bare, one, layers)
        if isinstance(values, Form):
            values = values.resolved(axes, kind is Kind.CONDITIONAL, what)
        assert values is not None
        lead = _lead_of_tables(bare, one, layers, values, len(index))
        if isinstance(values, Formed):
            form, values = values.form, values.numbers
    else:
        assert not isinstance(values, (Form, Formed))
        if values is not None:
            values = bare.layers[layers[-1]].unit.padded(values)
        kind, lead = _lead_of_weights(bare, one, layers, texts, values, what)
    own = one.index is not None or (kind in KINDS_OF_TABLES and not lead and len(index) == 1)
    which = None if own else numbers_of_places(lead, shape, what)
    stem, end = _stem(bare, kind, texts, form.kind if form else "table")
    stem = one.name or free_parameter(stem, taken)
    term = Term(one.name or f"{stem}{end}", kind, layers, index, lead, which, form)
    return Placed(term, what, values, one, axes, stem)


def _stem(bare: Structure, kind: Kind, texts: Sequence[str], form: str) -> tuple[str, str]:
    """Return the name of a parameter that has none, and its end, which follows a number."""
    if kind is Kind.TABLE:
        return ",".join(texts), f".{form}"
    if kind is Kind.CONDITIONAL:
        return f"{texts[-1]}|{','.join(texts[:-1])}", f".{form}"
    texts = [f"{text}[...]" if text in bare.layers else text for text in texts]
    if kind is Kind.BIAS:
        return f"{texts[0]}.bias", ""
    return f"{('-' if kind is Kind.COUPLING else '->').join(texts)}.weight", ""


def _axes(bare: Structure, one: Declared, layers: Sequence[str]) -> tuple[Axis, ...]:
    """Return the name of each axis of a table, and its states."""
    out = list[Axis]()
    for member, layer in zip(one.scope, layers, strict=True):
        text = member.text if isinstance(member, Units) else str(member)
        out.append(Axis(text, bare.state_counts[layer], bare.layers[layer].state_names))
    return tuple(out)


def free_parameter(name: str, taken: Container[str]) -> str:
    """Return a name for a parameter: the name itself, or with #2, #3, ... if it is taken."""
    found, number = name, 2
    while found in taken:
        found, number = f"{name}#{number}", number + 1
    return found


def numbers_of_places(lead: tuple[int, ...], shape: tuple[int, ...], what: str) -> Array:
    """Return the number of the table of each place, where the leading axes of the values broadcast.

    PgmError if they do not broadcast to the shape of the places.
    """
    try:
        numbers = np.arange(math.prod(lead)).reshape(lead)
        return np.ascontiguousarray(np.broadcast_to(numbers, shape).ravel())
    except ValueError:
        raise PgmError(
            f"{what}: its leading axes {lead} do not broadcast, as in numpy, to {shape}, the shape "
            "of the places where it is used"
        ) from None


def _lead_of_tables(
    bare: Structure, one: Declared, layers: tuple[str, ...], values: Array | Formed, places: int
) -> tuple[int, ...]:
    """Return the leading axes of tables; PgmError unless the entries have them, or broadcast."""
    block, shape = place_shape(bare.layers, one.kind, layers), values.shape
    lead = shape[: max(len(shape) - len(block), 0)] if one.index is None else (places,)
    if isinstance(values, Formed):
        # Functions, sparse rows and gates give one table, which all places share.
        lead = ()
    if shape != (*lead, *block) and (one.index is None or shape != block):
        raise PgmError(f"{one.what} has shape {shape}, expected {(*lead, *block)}")
    return lead


def _lead_of_weights(
    bare: Structure,
    one: Declared,
    layers: tuple[str, ...],
    texts: Sequence[str],
    values: Array | None,
    what: str,
) -> tuple[Kind, tuple[int, ...]]:
    """Return the kind and the leading axes of values of a bias, coupling or arrow.

    PgmError unless the last axes of the values are those of one place.
    """
    kind, block = one.kind, place_shape(bare.layers, one.kind, layers)
    if values is None:
        return kind, ()
    rows = kind is Kind.ARROW and takes_rows(bare, layers)
    by_state = place_shape(bare.layers, Kind.ARROW_BY_STATE, layers) if rows else None
    if values.shape[-2:] == by_state:
        # A row for each of the two states of the parent, as parents of more states have.
        kind, block = Kind.ARROW_BY_STATE, by_state
    lead = len(values.shape) - len(block)
    if lead >= 0 and values.shape[lead:] == block:
        return kind, values.shape[:lead]
    wide = [text for text, name in zip(texts, layers, strict=True) if _width(bare, name) > 1]
    states = " and each ".join(f"state of {text}" for text in wide)
    pairs = zip(values.shape[max(lead, 0) :], block, strict=False)
    two = any(given == 2 and expected == 1 for given, expected in pairs)
    other = "" if by_state is None else f", or {by_state} with a row for each state of the parent"
    raise PgmError(
        f"{what} has shape {values.shape}, expected {block}{other}: one number for each {states}; "
        "axes of places come before these axes, if places have values of their own"
        + "; a unit of two states has the values 0 and 1: give what its second state adds, and "
        "the numbers of the first one by bias()" * two
    )


def _width(bare: Structure, name: str) -> int:
    return bare.layers[name].unit.width


def takes_rows(bare: Structure, names: Sequence[str]) -> bool:
    """Return whether arrows may have a row for each of the two states of the parent.

    Weights of noisy-or children stay above 0, which differences of two rows need not.
    """
    parent, child = bare.layers[names[0]].unit, bare.layers[names[-1]].unit
    two = parent.support is not None and np.shape(parent.support) in ((2,), (2, 1))
    return len(names) == 2 and two and not child.nonnegative


def _check_places(bare: Structure, term: Term, what: str) -> None:
    """PgmError if a weight joins a unit with itself, or if its places do not fit into memory."""
    names, index = term.layers, term.index
    if term.is_table:
        return
    entries = len(index) * math.prod(float(_width(bare, name)) for name in names)
    if why := no_room(BYTES_A_PLACE * entries, "take fewer places"):
        raise PgmError(f"{what}: {len(index)} places do not fit into memory: {why}")
    if len(names) < 2 or names[0] != names[1]:
        return
    same = np.flatnonzero(index[:, 0] == index[:, 1])
    if len(same):
        unit = bare.names.of((names[0], int(index[same[0], 0])))
        raise PgmError(f"{what}: unit {unit!r} is coupled with itself")


def _check_same(bare: Structure, first: Placed, other: Placed) -> None:
    """PgmError unless two declarations of one name have the same kind, shape and values."""
    a, b = first.term, other.term
    name = f" {b.key!r}" if b.is_table else ""
    what = f"{other.what}: the name{name} is also of {first.what}"
    if a.conditional != b.conditional and a.is_table == b.is_table:
        raise PgmError(f"{what}: one is a conditional, and the other is not")
    if a.kind is not b.kind and {a.kind, b.kind} != {Kind.ARROW, Kind.ARROW_BY_STATE}:
        raise PgmError(f"{what}: one is {_a(b)}, and the other {_a(a)}")
    logs = [bool(p.declared and p.declared.log) for p in (first, other)]
    if logs[0] != logs[1]:
        raise PgmError(f"{what}: one has log=True, and the other has not; give both alike")
    if (shape := b.shape(bare.layers)) != a.shape(bare.layers):
        raise PgmError(f"{what}, whose shape is {a.shape(bare.layers)}, not {shape}")
    if not same_form(a.form, b.form):
        raise PgmError(f"{what}: other entries of the two follow from one number")
    if first.values is None and other.values is not None:
        raise PgmError(f"{what}, which has no values: give them where the name comes first")
    if first.values is not None and not np.array_equal(first.values, np.asarray(other.values)):
        raise PgmError(f"{what}, which has other values: a shared parameter has one value")


def _a(term: Term) -> str:
    """Return the kind of a term in words."""
    kind = "arrow" if term.directed else term.kind.value
    return f"an {kind}" if term.directed else f"a {kind}"


def with_terms(structure: Structure, terms: Sequence[Term], words: Sequence[str]) -> Structure:
    """Return the structure with terms, and with the couplings of layers that they join.

    PgmError for names of parameters that are taken, and for places and couplings that a structure
    may not have. `words` are the names of terms in messages.
    """
    taken = _names_of_whole(structure).union(*map(_whole_weights, terms))
    for t, what in zip(terms, words, strict=True):
        _check_places(structure, t, what)
        if t.key in taken:
            raise PgmError(f"{what}: the name {t.key!r} is taken by a parameter of whole layers")
    added = _added_couplings(structure.couplings, terms)
    couplings = (*structure.couplings, *added)
    check_structure(Structure(structure.layers, couplings))
    gates = [t for t in terms if t.is_gate]
    small = fits_as_table([t.form for t in gates if isinstance(t.form, Steps)])
    whole = replace(
        structure,
        couplings=tuple(c.within(structure.layers[c.a]) for c in couplings),
        terms=tuple(terms),
        without_weight=frozenset(c.key for c in added),
        compact=frozenset(t.store for t, fits in zip(gates, small, strict=True) if not fits),
    )
    _check_arrows_inside(whole, words)
    check_groups(whole)
    return whole


def _added_couplings(own: Sequence[Coupling], terms: Iterable[Term]) -> list[Coupling]:
    """Return the couplings of layers that terms add to others."""
    added = list[Coupling]()
    for t in terms:
        if t.is_bias or t.is_table or any(joins(c, t) for c in (*own, *added)):
            continue
        a, b = t.layers
        added.append(Coupling(a, b, t.directed))
    return added


def _check_arrows_inside(structure: Structure, words: Sequence[str]) -> None:
    """PgmError for arrows of places inside a layer that close a cycle, or that meet a weight."""
    joined: dict[str, list[Array]] = {}
    for t, what in zip(structure.terms, words, strict=True):
        if not t.directed or t.layers[0] != t.layers[1]:
            continue
        name = t.layers[0]
        if f"{name}->{name}" not in structure.without_weight:
            raise PgmError(
                f"{what}: layer {name!r} has arrows with a weight of their "
                "own: give all arrows inside a layer by handles, or none"
            )
        edges = np.concatenate(joined.setdefault(name, []) + [t.index])
        joined[name] = [edges]
        if (edges[:, 0] < edges[:, 1]).all():
            continue
        if cycle := cycle_of(edges.tolist()):
            names = (structure.names.of((name, unit)) for unit in cycle)
            raise PgmError(f"{what}: the arrows form a cycle: {' -> '.join(names)}")


def values_of_terms(
    structure: Structure, placed: Sequence[Placed], rng: np.random.Generator
) -> dict[str, Weight]:
    """Return the parameters of terms; weights without values are drawn.

    They are uniform in +-sqrt(6 / (width of a + width of b)), as those of whole layers. The
    parameters of tables are views of one array, which is `Model.table_entries` where no table has a
    form, so that no answer copies large tables.
    """
    out: dict[str, Weight] = {}
    firsts = first_of(p.term for p in placed)
    first = [p for p in placed if firsts[p.term.key] is p.term]
    for p in first:
        if not p.term.is_table:
            values = _drawn(structure, p.term, rng) if p.values is None else p.values
            out[p.term.key] = p.term.checked(structure.layers, values, p.what)
    tables = [p for p in first if p.term.is_table]
    numbers, place = np.full(_checked_room(structure, tables), np.nan), 0
    for p in tables:
        shape = p.term.parameter_shape(structure.layers)
        own = numbers[place : place + math.prod(shape)].reshape(shape)
        if p.declared is None:
            own[...] = check_logs(structure, p.term, p.values)
        else:
            scope = [(a.name, a.states) for a in p.axes]
            if p.term.form:
                scope = [("row", tuple(range(shape[0]))), *scope[-1:]][: len(shape)]
            check = check_log_table if p.declared.log else check_table
            check(p.values, p.term.conditional, p.what, scope, own)
        out[p.term.key] = own
        place += own.size
    numbers.flags.writeable = False
    return out


def _checked_room(structure: Structure, tables: Sequence[Placed]) -> int:
    """Return the number of all numbers of tables; PgmError unless they fit into memory."""
    total = 0
    for p in tables:
        total += math.prod(p.term.parameter_shape(structure.layers))
        size = math.prod(p.term.shape(structure.layers))
        entries = 0 if p.term.store in structure.compact else size
        if why := no_room(BYTES_AN_ENTRY * (total + entries), "take a smaller scope"):
            raise PgmError(f"{p.what} with {size:.3g} entries does not fit: {why}")
    return total


def _drawn(structure: Structure, term: Term, rng: np.random.Generator) -> Array:
    """Return the first value of a term: 0 for a bias, else drawn."""
    shape = term.shape(structure.layers)
    if term.is_bias:
        return np.zeros(shape)
    a, b = (structure.layers[name] for name in term.layers)
    limit = np.sqrt(6.0 / (a.width + b.width))
    weight = np.asarray(rng.uniform(-limit, limit, shape))
    return np.abs(weight) if term.directed and b.unit.nonnegative else weight

"""Terms and variables as files store them: a record for each term, and arrays of units.

A record is plain data: the name, the layers and the number of places of a term. Tables and the
terms of weights and biases are two lists of records. The units of all places of a list are in one
array, because there may be hundreds of thousands of places, and the numbers of the places in their
parameters in another one. Parameters are stored by their names, those of tables as logarithms, so
that no bit is lost. The forms of tables are one array of whole numbers (stored_forms.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from pgmengine.base.checks import seeded
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.declare.builder import GraphBuilder, assembled
from pgmengine.declare.model import Model
from pgmengine.declare.scopes import check_numbers_of_units, check_units
from pgmengine.declare.stored_forms import Reader, of_links, whole_numbers
from pgmengine.declare.terms.declared_terms import Placed, takes_rows
from pgmengine.declare.validate import check_layers
from pgmengine.model.containers import as_floats
from pgmengine.model.forms.gate import Steps
from pgmengine.model.forms.table_forms import KINDS
from pgmengine.model.names.variables import check_shape
from pgmengine.model.structure import Structure, first_of
from pgmengine.model.tables import check_finite, rows_are_one
from pgmengine.model.terms.term import KINDS_OF_TABLES, Kind, Term

# A record, the lists of them in a declaration by name, or parameters by name.
Record: TypeAlias = "dict[str, Any]"

# The fields of every record, and their types; and those of the records of tables, of tables of
# earlier files, in which no places shared a table, and of other terms.
COMMON: dict[str, type] = {"name": str, "layers": list, "count": int}
OF_TABLES: dict[str, type] = {**COMMON, "conditional": bool, "named": bool, "lead": list}
OF_FORMED: dict[str, type] = {**OF_TABLES, "form": str}
OF_EARLIER: dict[str, type] = {**COMMON, "conditional": bool, "single": bool}
OF_OTHERS: dict[str, type] = {**COMMON, "lead": list, "directed": bool}

# The two lists of a declaration, and the tensors with the units and numbers of their places.
LISTS = ("tables", "shared")
UNITS, NUMBERS = (
    {name: f"{name}/units" for name in LISTS},
    {name: f"{name}/numbers" for name in LISTS},
)
# The tensors with the forms of tables, and with the units that are variables.
FORMS, VARIABLES = "tables/forms", "variables/units"

# The lists of a declaration that other readers do not know: also the gates of earlier files, and
# the names of the layers that are arrays of variables.
OWN_LISTS = (*LISTS, "gates", "arrays")
TENSORS = (*UNITS.values(), *NUMBERS.values(), FORMS, VARIABLES)

# The largest difference of logarithms between a gate of an earlier file and its table that is
# rounding. Learning changed tables in those versions.
MAX_GATE_ERROR = 1e-12


def term_records(structure: Structure) -> dict[str, list[Record]]:
    """Return a record of plain data for each term, in two lists; empty ones are left out."""
    formed = has_forms(structure)
    out: dict[str, list[Record]] = {name: [] for name in LISTS}
    for t in structure.terms:
        common = {"layers": list(t.layers), "count": len(t.index)}
        if t.is_table:
            # Names that users have not given are stored without their end.
            name = t.key.removesuffix(f".{t.form.kind if t.form else 'table'}")
            record = {"name": name, **common, "conditional": t.conditional}
            record |= {"named": name == t.key, "lead": list(t.lead)}
            record |= {"form": t.form.kind if t.form else ""} if formed else {}
        else:
            record = {"name": t.key, **common, "lead": list(t.lead), "directed": t.directed}
            # Files without such rows stay readable by earlier versions.
            record |= {"by_state": True} if t.kind is Kind.ARROW_BY_STATE else {}
        out["tables" if t.is_table else "shared"].append(record)
    return {name: records for name, records in out.items() if records}


def has_forms(structure: Structure) -> bool:
    """Whether some entries follow from fewer numbers."""
    return any(t.form for t in structure.tables_and_gates)


def term_tensors(structure: Structure) -> dict[str, Array]:
    """Return the units of all places and their numbers, the units of variables, and the forms.

    Units of places are numbered within their layers, and variables over all layers.
    """
    variables = [structure.first_unit[name] + i for name, i in structure.variables]
    out = {VARIABLES: np.array(variables, dtype=np.int64)}
    for name, terms in (("tables", structure.tables_and_gates), ("shared", structure.shared)):
        if terms or name == "tables":
            out[UNITS[name]] = _joined(t.index.ravel() for t in terms)
            out[NUMBERS[name]] = _joined(t.numbers for t in terms)
    if has_forms(structure):
        out[FORMS] = _joined(whole_numbers(t.form) for t in structure.tables_and_gates)
    return out


def _joined(parts: Iterable[Array]) -> Array:
    """Return arrays of whole numbers one after the other."""
    return np.concatenate([*parts, np.empty(0)]).astype(np.int64)


def parameters_of(lists: Record, names: Iterable[str]) -> list[str]:
    """Return the names of parameters that belong to records, or end as parameters of tables do."""
    named = set[object]()
    for key in LISTS:
        records = lists.get(key, ())
        for record in records if isinstance(records, list) else ():
            if isinstance(record, dict) and (key == "shared" or record.get("named")):
                named.add(str(record.get("name")))
    return [name for name in names if name.endswith(KINDS) or name in named]


def with_stored_terms(
    b: GraphBuilder, lists: Record, tensors: Mapping[str, Array], params: Record
) -> Model:
    """Return the model of declared layers and couplings with terms and variables of a file.

    Parameters
    ----------
    b : the layers and couplings.
    lists : the lists of the declaration that are in OWN_LISTS.
    tensors : as `term_tensors` returns them. Earlier files have no numbers of places.
    params : the parameters of the terms.

    Raises
    ------
    PgmError for damaged data, and for terms that a declaration may not have.
    """
    if absent := [name for name in (UNITS["tables"], VARIABLES) if name not in tensors]:
        raise PgmError(f"is damaged: the tensor {absent[0]!r} is missing")
    bare = _with_variables(b, _listed(lists.get("arrays", []), "'arrays'"), tensors[VARIABLES])
    shared, tables = (_read(bare, lists, tensors, name) for name in ("shared", "tables"))
    gates = _listed(lists.get("gates", []), "'gates'")
    earlier = [_gate(bare, entry, f"gates[{i}]") for i, entry in enumerate(gates)]
    tables, params = _with_earlier_gates(tables, earlier, params)
    words = [f"shared[{i}]" for i in range(len(shared))]
    words += [f"tables[{i}]" for i in range(len(tables))]
    known = first_of([*shared, *tables])
    for t, what in zip([*shared, *tables], words, strict=True):
        shapes = [one.parameter_shape(bare.layers) for one in (t, known[t.key])]
        if t.kind is not known[t.key].kind or shapes[0] != shapes[1]:
            raise PgmError(f"two tables have the same name: {what}, {t.key!r}")
    if extra := [key for key in params if key not in known]:
        raise PgmError(f"{extra[0]!r} belongs to no table of the declaration")
    if missing := [key for key in known if key not in params]:
        raise PgmError(f"parameter {missing[0]!r} is missing")
    placed = [
        Placed(t, what, as_floats(params[t.key], f"{t.key!r}"))
        for t, what in zip([*shared, *tables], words, strict=True)
    ]
    return Model(*assembled(bare, b.given, b.weights, placed, seeded(0)))


def _with_variables(b: GraphBuilder, arrays: Sequence[str], variables: Array) -> Structure:
    """Return the layers and couplings of a file, whose units are variables as it says."""
    check_layers(b.layers)
    bare = Structure({layer.name: layer for layer in b.layers}, tuple(b.couplings))
    places = _places(bare, _whole(variables, "variables"))
    held = {name for name, _ in places if not bare.layers[name].is_variable}
    layers = {
        name: replace(x, holds_variables=name in held, is_array=name in arrays)
        for name, x in bare.layers.items()
    }
    return replace(bare, layers=layers, variables=places)


def _listed(given: object, what: str) -> list[Any]:
    """Return a list; PgmError if it is something else."""
    if not isinstance(given, list):
        raise PgmError(f"{what} must be a list, not {type(given).__name__}")
    return given


def _whole(given: object, what: str) -> Array:
    """Return whole numbers (n,); PgmError if they are something else."""
    array = as_floats(given, what)
    if array.ndim != 1 or not (np.abs(array) < 2**53).all() or (array != np.floor(array)).any():
        raise PgmError(f"{what} must be a list of integers, not an array {array.shape}")
    return array


def _read(
    structure: Structure, lists: Record, tensors: Mapping[str, Array], name: str
) -> list[Term]:
    """Return the terms of one of the two lists of records."""
    records = _listed(lists.get(name, []), f"'{name}'")
    if not records and name == "shared":
        return []
    words = "the tables" if name == "tables" else "the shared places"
    flat = _whole(tensors.get(UNITS[name]), f"the units of {words}")
    which = tensors.get(NUMBERS[name])
    which = None if which is None else _whole(which, f"the numbers of {words}")
    forms = tensors.get(FORMS) if name == "tables" else None
    reader = None if forms is None else Reader(_whole(forms, f"the forms of {words}").astype(int))
    out, at, place = list[Term](), 0, 0
    for i, record in enumerate(records):
        what, types = f"{name}[{i}]", OF_OTHERS
        if name == "tables":
            types = OF_EARLIER if which is None else OF_FORMED if reader else OF_TABLES
        elif isinstance(record, Mapping) and "by_state" in record:
            types = {**OF_OTHERS, "by_state": bool}
        entry = _checked(structure, record, types, what)
        own = None if which is None else which[place:]
        out.append(_term(structure, entry, flat[at:], own, reader, what))
        at, place = at + out[-1].index.size, place + len(out[-1].index)
    if at != len(flat) or (which is not None and place != len(which)):
        raise PgmError(f"{words} have {len(flat)} axes, expected {at}")
    return out


def _checked(structure: Structure, record: object, types: Mapping[str, type], what: str) -> Any:
    """Return a record; PgmError unless it has these fields, and layers of the structure."""
    if (
        not isinstance(record, Mapping)
        or set(record) != set(types)
        or any(type(record[key]) is not kind for key, kind in types.items())
        or not all(isinstance(name, str) for name in record["layers"])
    ):
        fields = ", ".join(f"{key} ({kind.__name__})" for key, kind in types.items())
        raise PgmError(f"{what} is damaged, expected the fields {fields}")
    for name in record["layers"]:
        structure.names.layer(name, what=f"{what}: layer")
    return record


def _kind(entry: Record) -> Kind:
    """Return the kind of the term of a record."""
    if "conditional" in entry:
        return Kind.CONDITIONAL if entry["conditional"] else Kind.TABLE
    if len(entry["layers"]) == 1 or not entry["directed"]:
        return Kind.BIAS if len(entry["layers"]) == 1 else Kind.COUPLING
    return Kind.ARROW_BY_STATE if entry.get("by_state") else Kind.ARROW


def _term(
    structure: Structure,
    entry: Record,
    units: Array,
    numbers: Array | None,
    forms: Reader | None,
    what: str,
) -> Term:
    """Return the term of a record, whose units come first in `units`, as its numbers do."""
    kind, count, layers = _kind(entry), entry["count"], tuple(entry["layers"])
    tables, single = kind in KINDS_OF_TABLES, entry.get("single", False)
    # The logarithms of entries need finitely many states.
    for name in layers if tables else ():
        check_finite(structure, name)
    size, word = count * len(layers), "tables" if tables else "weights"
    if count < 1 or not 0 < size <= len(units) or (single and count > 1):
        raise PgmError(
            f"{what}: {min(count, 10**18):.6g} {word} of {len(layers)} axes, where {len(units)} "
            "units are left"
        )
    if not tables and (numbers is None or len(layers) > 2):
        raise PgmError(f"{what} is damaged: it has {len(layers)} layers, expected 1 or 2")
    check = check_units if tables else check_numbers_of_units
    index = check(structure, layers, units[:size].reshape(count, -1), what)
    if numbers is None:
        return Term(f"{entry['name']}.table", kind, layers, index, () if single else (count,))
    lead, own = _lead_and_which(entry, numbers, word, what)
    by_state = kind is Kind.ARROW_BY_STATE and takes_rows(structure, layers)
    if entry.get("by_state") and not by_state:
        raise PgmError(f"{what} has rows by state, which are for parents of two states")
    if not tables:
        return Term(entry["name"], kind, layers, index, lead, own)
    form = forms.next(entry["form"], what) if forms else None
    states = tuple(structure.state_counts[name] for name in layers)
    fits = form is None or (form.shape == states and not lead)
    if not fits or (isinstance(form, Steps) and kind is not Kind.CONDITIONAL):
        raise PgmError(f"{what} is damaged: its form does not fit its units, with {states} states")
    end = "" if entry["named"] else f".{form.kind if form else 'table'}"
    which = None if np.array_equal(own, np.arange(count)) else own
    return Term(f"{entry['name']}{end}", kind, layers, index, lead, which, form)


def _lead_and_which(
    entry: Record, numbers: Array, word: str, what: str
) -> tuple[tuple[int, ...], Array]:
    """Return the leading axes of a parameter, and the number of each place; none has no place."""
    lead, count = check_shape(entry["lead"], what) if entry["lead"] else (), entry["count"]
    every = np.arange(min(math.prod(lead), count + 1))
    if len(numbers) < count or not np.array_equal(np.unique(numbers[:count]), every):
        raise PgmError(f"{what}: the places have other {word} than those of its parameter")
    return lead, numbers[:count].astype(np.int64)


def _with_earlier_gates(
    tables: Sequence[Term], gates: Sequence[tuple[Term, Array]], params: Record
) -> tuple[list[Term], Record]:
    """Return tables and parameters with gates of an earlier file in place of their tables.

    A table that learning has changed is no gate and stays.
    """
    out, found = list(tables), dict(params)
    for gate, numbers in gates:
        before = f"{gate.key.removesuffix('.gate')}.table"
        with np.errstate(divide="ignore"):
            logs = np.log(numbers)
        if before in found:
            assert gate.form is not None
            one, two = as_floats(found[before], before), gate.form.logs(logs)
            if not np.allclose(one, two, rtol=MAX_GATE_ERROR, atol=MAX_GATE_ERROR):
                continue
            del found[before]
            out = [t for t in out if t.key != before]
        out.append(gate)
        found[gate.key] = logs
    return out, found


def _gate(structure: Structure, entry: object, what: str) -> tuple[Term, Array]:
    """Return a gate of an earlier file and its numbers.

    PgmError unless its links fit its units and sum to one.
    """
    if not isinstance(entry, Mapping) or set(entry) != {"name", "units", "start", "links"}:
        raise PgmError(f"{what} is damaged, expected the fields name, units, start and links")
    if not isinstance(entry["name"], str) or not isinstance(entry["links"], list):
        raise PgmError(f"{what} is damaged, expected a name as text, and a list of links")
    scope = _places(structure, _whole(entry["units"], f"{what}: units"))
    start = as_floats(entry["start"], f"{what}: start")
    links = tuple(as_floats(link, f"{what}: a link") for link in entry["links"])
    fits = start.ndim == 1 and all(link.ndim == 3 for link in links)
    if not fits or not all(
        before.shape[-1] == link.shape[0]
        for before, link in zip((start, *links), links, strict=False)
    ):
        raise PgmError(f"{what} is damaged: its links do not fit each other")
    for part in (start, *links):
        if not ((part >= 0).all() and rows_are_one(part)):
            raise PgmError(f"{what} is damaged: its rows are no probabilities that sum to one")
    gate = of_links(start, links)
    states = tuple(structure.state_counts[name] for name, _ in scope)
    if gate.shape != states:
        raise PgmError(f"{what} is damaged: it has the states {gate.shape}, its units {states}")
    index = np.array([[unit for _, unit in scope]], dtype=np.int64)
    layers = tuple(name for name, _ in scope)
    key = f"{entry['name']}.gate"
    return Term(key, Kind.CONDITIONAL, layers, index, form=gate.form), gate.numbers


def _places(structure: Structure, variables: Array) -> tuple[tuple[str, int], ...]:
    """Return the places of units that are numbered over all layers."""
    total = sum(layer.size for layer in structure.layers.values())
    if (
        len(np.unique(variables)) < len(variables)
        or not ((variables >= 0) & (variables < total)).all()
    ):
        raise PgmError(f"variables must be different units, 0..{total - 1}")
    names, firsts = list(structure.layers), list(structure.first_unit.values())
    owners = np.searchsorted(firsts, variables, side="right") - 1
    inside = variables - np.array(firsts)[owners]
    return tuple((names[o], int(i)) for o, i in zip(owners, inside, strict=True))

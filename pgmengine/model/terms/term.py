"""A term of the log density: a parameter, the units of each place where it acts, and its kind.

Places that share a parameter are one term, and terms with the same key share theirs. n(p) is the
number of the bias, weight or table of a place p, counted over the leading axes of the parameter:

    bias               the log density gains  value[n(p)] . x_i(p)
    coupling           the log density gains  x_i(p) W[n(p)] y_j(p)
    arrow              the input of unit j gains  x_i(p) W[n(p)]
    table, conditional the log density gains  the entry of table n(p) at the states of the units

The part of the parameter that belongs to one place has an axis of states for each unit of a table,
and an axis of components for each unit of a bias, coupling or arrow; () where all units have one
component. The entries of a table may follow from fewer numbers by a form (forms/table_forms.py),
which are then the parameter.

A parent of two states s_0, s_1 has one component, and arrows from it may have a row of numbers for
each of its states, as a parent of three or more has. The input of the child is linear in x_i:

    W_0 + (W_1 - W_0) (x_i - s_0) / (s_1 - s_0),

so that the rows act on the weight of x_i, and on the bias of the child.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np

from pgmengine.base.checks import IN_RANGE, in_range
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, Params
from pgmengine.model.containers import as_floats
from pgmengine.model.forms.gate import Steps
from pgmengine.model.forms.table_forms import TableForm
from pgmengine.model.layer import Layer


class Kind(Enum):
    """The way in which a term acts, by its name in descriptions and files."""

    BIAS = "bias"
    COUPLING = "coupling"
    ARROW = "arrow"
    ARROW_BY_STATE = "arrow by state"
    TABLE = "table"
    CONDITIONAL = "conditional"


# The kinds whose parameters have the logarithms of entries of tables.
KINDS_OF_TABLES = (Kind.TABLE, Kind.CONDITIONAL)


@dataclass(frozen=True, eq=False)
class Term:
    """A parameter and the places where it acts.

    Attributes
    ----------
    key : the name of the parameter.
    kind : the way in which it acts.
    layers : the layer of each unit of a place, (m,): of the two ends of a coupling, or of each axis
        of a table, whose last one is the child of a conditional.
    index : (n, m) units of these layers, a row for each place; no rows for the parameter of whole
        layers, which is the bias of all units, or the weight of all pairs.
    lead : the leading axes of the parameter; () for one bias, weight or table, which all places
        share.
    which : (n,) the number of each place, counted over `lead`; None = 0, 1, ..., n-1.
    form : the way from the parameter to the entries of a table; None where it has the entries
        themselves. The parameter has the shape of the form.
    part : the number of a part of a gate, from 1; 0 for a whole one, and for other terms.
    """

    key: str
    kind: Kind
    layers: tuple[str, ...]
    index: Array
    lead: tuple[int, ...] = ()
    which: Array | None = None
    form: TableForm | None = None
    part: int = 0

    @property
    def is_table(self) -> bool:
        """Whether it adds an entry of a table, given by the states of its units."""
        return self.kind in KINDS_OF_TABLES

    @property
    def conditional(self) -> bool:
        """Whether it is a table p(last | others)."""
        return self.kind is Kind.CONDITIONAL

    @property
    def is_gate(self) -> bool:
        """Whether it is a whole conditional with causal independence."""
        return isinstance(self.form, Steps) and not self.part

    @property
    def is_bias(self) -> bool:
        """Whether it is a bias."""
        return self.kind is Kind.BIAS

    @property
    def directed(self) -> bool:
        """Whether it has arrows from the first unit to the second."""
        return self.kind in (Kind.ARROW, Kind.ARROW_BY_STATE)

    @property
    def whole(self) -> bool:
        """Whether it is the bias of a whole layer, or the weight of two."""
        return not len(self.index)

    @property
    def store(self) -> tuple[str, int]:
        """The parameter and the part: tables that are alike in both have the same entries."""
        return self.key, self.part

    @property
    def first_child(self) -> tuple[str, int]:
        """The place (layer, unit) of the last unit of the first scope, for messages."""
        return self.layers[-1], int(self.index[0, -1])

    @property
    def numbers(self) -> Array:
        """The number of the bias, weight or table of each place, (n,)."""
        return np.arange(len(self.index)) if self.which is None else self.which

    def shape(self, layers: Mapping[str, Layer]) -> tuple[int, ...]:
        """Return the shape of the weights, or of the entries of tables."""
        return (*self.lead, *place_shape(layers, self.kind, self.layers))

    def parameter_shape(self, layers: Mapping[str, Layer]) -> tuple[int, ...]:
        """Return the shape of the parameter."""
        return self.form.size if self.form else self.shape(layers)

    def entries_of(self, params: Params) -> Array:
        """Return the logarithms of the entries of tables, (*lead, K_1, ..., K_m)."""
        own: Array = params[self.key]
        return self.form.logs(own) if self.form else own

    def one_by_one(self, values: Array) -> Array:
        """Return the parameter as (tables, K_1, ..., K_m); `numbers` are their places."""
        return values.reshape(-1, *values.shape[len(self.lead) :])

    def has_all_rows(self, layers: Mapping[str, Layer]) -> bool:
        """Return whether arrows have a row for each state of the parent, which contain a bias."""
        by_state = self.kind is Kind.ARROW_BY_STATE
        return self.directed and (by_state or layers[self.layers[0]].unit.one_hot)

    def checked(self, layers: Mapping[str, Layer], values: object, what: str = "") -> Array:
        """Return values of a bias, coupling or arrow as float64; PgmError unless they fit.

        Noisy-or units need values of at least 0. `what` is the declaration, for messages.
        """
        what = what or f"parameter {self.key!r}"
        array = np.array(as_floats(values, what), order="C")
        if array.shape != (shape := self.shape(layers)):
            raise PgmError(f"{what} has shape {array.shape}, expected {shape}")
        bounded = self.is_bias or self.directed
        bounded = bounded and layers[self.layers[-1]].unit.nonnegative
        for bad, expected in (
            (~in_range(array), IN_RANGE),
            ((array < 0) & bounded, ">= 0 for noisy-or units"),
        ):
            if bad.any():
                at = np.argwhere(bad)[0].tolist()
                place = f"entry {at} " if at else ""
                raise PgmError(f"{what}: {place}is {array[tuple(at)]}, expected {expected}")
        return array


def of_whole_layers(key: str, kind: Kind, *layers: str) -> Term:
    """Return the term of the bias of a whole layer, or of the weight of two."""
    return Term(key, kind, layers, np.empty((0, len(layers)), dtype=np.int64))


def place_shape(layers: Mapping[str, Layer], kind: Kind, names: tuple[str, ...]) -> tuple[int, ...]:
    """Return the shape of the part of a parameter that belongs to one place."""
    if kind in KINDS_OF_TABLES:
        return tuple([layers[name].state_count for name in names])
    widths = tuple([layers[name].unit.width for name in names])
    if kind is Kind.ARROW_BY_STATE:
        return 2, widths[1]
    return () if set(widths) == {1} else widths

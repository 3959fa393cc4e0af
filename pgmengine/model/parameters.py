"""Parameters: a structure and its parameters; the log density of states and its gradient.

    log_density(x) = sum over undirected layers of [bias . x + log h(x)]
                     + sum over undirected couplings of x_a W x_b
                     + sum over directed layers of log p(x_c | zeta_c)
                     + sum over tables of the entry at the states of their units

    zeta_c = bias_c + sum over parents of x_p J
    log p(x | zeta) = x link(zeta) + log h(x) - A(link(zeta))

The link is the identity for all units but NoisyOr. Entries of tables are logarithms. A unit with a
conditional table has no base measure of its own, because its table sums to one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from pgmengine.base.equal_rows import distinct
from pgmengine.base.errors import PgmError, listed
from pgmengine.base.types import Array, States, Weight
from pgmengine.base.work.cache import Cache
from pgmengine.model.couplings import Coupling, weighted_sum
from pgmengine.model.forms.gate import Steps
from pgmengine.model.forms.table_forms import Formed
from pgmengine.model.forms.unfolding import unfolded_params, unfolded_structure
from pgmengine.model.graph.unit_graph import arrows_inside, generations
from pgmengine.model.joined_tables import (
    MIN_UNCOPIED_ENTRIES,
    joined_entries,
    largest_entries,
    views_of,
    without_base,
)
from pgmengine.model.parameter_checks import check_bias, check_no_bias, check_weight
from pgmengine.model.structure import Structure
from pgmengine.model.tables import check_logs, joined_states, parameter_counts, table_gradient
from pgmengine.model.terms.term import Term
from pgmengine.model.training import Training, check_training
from pgmengine.model.weights import digest, is_sparse

if TYPE_CHECKING:
    from pgmengine.model.terms.input_rows import InputRows


def freeze(array: Weight) -> Weight:
    """Make a parameter read-only, because a model never changes, and return it."""
    for part in (array.data, array.indices, array.indptr) if is_sparse(array) else (array,):
        part.flags.writeable = False
    return array


class Parameters:
    """The structure and the parameters of a model, with quantities derived from both; immutable.

    The subclass `Model` is the public class: it adds evidence, displays and graphs.

    Attributes
    ----------
    structure : layers and couplings.
    params : parameter name -> numbers, read only: "v.bias", "v-h.weight", "h->v.weight", and
        "a,b.table" and "b|a.table" with the logarithms of tables, "b|a.gate" and "b|a.leaves" with
        those of the numbers of a gate, and of rows that joint states share.
    training : base rates of the data and last chains of the training, or None.
    fresh : whether all parameters are as the constructor chose them: biases of 0 and drawn weights.
        `fit` starts such a model at the base rates of the data.
    """

    def __init__(
        self,
        structure: Structure,
        params: Mapping[str, Weight],
        training: Training | None = None,
        fresh: bool = False,
    ) -> None:
        self.structure, self.fresh, self._training = structure, fresh, training
        self.params: Mapping[str, Weight] = MappingProxyType(
            {name: freeze(value) for name, value in params.items()}
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # A mapping proxy cannot be pickled, and executors send models to other processes.
        return type(self), (self.structure, dict(self.params), self.training, self.fresh)

    @property
    def counted_inputs(self) -> InputRows | None:
        """The rows of inputs whose sums take the place of derivatives; None in a usual model."""
        return None

    @property
    def training(self) -> Training | None:
        """Base rates of the data and last chains of the training; None without any."""
        return self._training

    def bias(self, name: str) -> Array:
        """Return the bias of a layer, flat (width,), with the biases that its places share."""
        bias: Array = self.expanded[f"{name}.bias"].reshape(-1)
        return bias

    def shared_bias(self, name: str) -> Array:
        """Return the part of the bias of a layer that its places share, flat (width,)."""
        one = self.structure.expansion.whole.get(f"{name}.bias")
        return np.zeros(()) if one is None else one.total(np.zeros(one.shape), self.params).ravel()

    def weight(self, coupling: Coupling) -> Weight:
        """Return the weight of a coupling, (width of a, width of b), with all shared parts."""
        return self.expanded[f"{coupling.key}.weight"]

    @cached_property
    def expanded(self) -> Mapping[str, Weight]:
        """The biases and weights of whole layers by name, to which shared terms are added.

        All methods read these. Without shared terms they are `params`.
        """
        if not self.structure.shared:
            return self.params
        found = self.structure.expanded(self.params)
        return MappingProxyType({name: freeze(value) for name, value in found.items()})

    def in_parameters(self, gradient: Mapping[str, Weight]) -> dict[str, Weight]:
        """Return derivatives in `expanded` as derivatives in `params`: sums over shared places."""
        s = self.structure
        return s.expansion.summed(gradient, self.params) if s.shared else dict(gradient)

    @cached_property
    def table_entries(self) -> Array:
        """The logarithms of all tables that are stored, one after the other.

        They are in the order of `Structure.table_places`.

        Large parameters with arrays of their own are replaced by views of this array.
        """
        stored = self.structure.stored_tables.values()
        entries = joined_entries(
            [t.entries_of(self.params) if t.form else self.params[t.key] for t in stored]
        )
        own = {t.key: self.params[t.key] for t in stored if not t.form}
        large = len(entries) >= MIN_UNCOPIED_ENTRIES
        if large and len(stored) > 1 and len(own) == len(stored):
            self.params = MappingProxyType({**self.params, **views_of(entries, own)})
            # It would keep the arrays that views have replaced.
            self.__dict__.pop("expanded", None)
        return entries

    def entries_of(self, t: Term) -> Array:
        """Return the logarithms of the entries of some tables, (*lead, K_1, ..., K_m)."""
        return t.entries_of(self.params)

    def formed(self, t: Term) -> Formed:
        """Return the values of a gate as its numbers."""
        assert t.form is not None
        return Formed(t.form, np.exp(self.params[t.key]))

    @cached_property
    def table_prob(self) -> Array:
        """The entries of all tables, without logarithms, in the order of `table_entries`."""
        return np.exp(self.table_entries)

    @cached_property
    def table_terms(self) -> Array:
        """The terms of the log density that the tables add, in the order of `table_entries`.

        Conditionals are divided by the base measure of their child, because the log density already
        contains the base measure of every unit.
        """
        return without_base(self.structure, self.table_entries)

    @cached_property
    def table_sizes(self) -> tuple[Array, Array]:
        """The largest |finite term| of each place's table, and whether all its terms are finite."""
        first, number = self.structure.table_index.stored
        terms = self.table_terms
        sizes, whole = largest_entries(terms, np.append(first, len(terms)))
        return (sizes, whole) if len(first) == len(number) else (sizes[number], whole[number])

    @cached_property
    def unfolded(self) -> Self:
        """The model with the auxiliary variables of its compact gates, which targets have."""
        gates = self.structure.compact_gates
        return self.unfold(gates) if gates else self

    def unfold(self, gates: Sequence[Term]) -> Self:
        """Return the model with the auxiliary variables of some of its gates."""
        s = self.structure
        key = ("unfolded", *(one.key for one in gates))

        def made() -> Any:
            # Structures cache plans, so that equal questions share a structure.
            structure: Structure = s.memo.recall(key, lambda: unfolded_structure(s, gates))
            params = unfolded_params(structure, self.params)
            return type(self)(structure, params, self.training)

        found: Self = self._unfoldings.recall(key, made)
        return found

    @cached_property
    def _unfoldings(self) -> Cache[Any]:
        """Names of gates -> the model with their auxiliary variables."""
        return Cache(most=2)

    @cached_property
    def own_weights(self) -> dict[str, Array]:
        """Layer -> (size, K) log weights of the states of units without neighbours and evidence.

        Layers with infinitely many values are absent.
        """
        s = self.structure
        out = {n: np.zeros((s.layers[n].size, k)) for n, k in s.state_counts.items() if k}
        for name in (self.biased | s.with_base).intersection(out):
            layer = s.layers[name]
            directed = name in s.directed_layers
            bias = s.no_evidence[name][0][0] if directed else self.bias(name)
            out[name] = layer.unit.log_weights(layer.shaped(bias))
        return out

    @cached_property
    def parameter_count(self) -> int:
        """The number of parameters."""
        # The size of a sparse array of scipy is the number of stored entries.
        return sum([value.size for value in self.params.values()])

    @cached_property
    def biased(self) -> frozenset[str]:
        """Layers with a bias other than 0."""
        names = self.structure.layers
        return frozenset([name for name in names if np.count_nonzero(self.bias(name))])

    @cached_property
    def neighbours(self) -> dict[str, tuple[tuple[str, Weight], ...]]:
        """Layer -> (other layer, M) of its undirected couplings: its field gains x_other @ M."""
        found: dict[str, list[tuple[str, Weight]]] = {name: [] for name in self.structure.layers}
        for c in self.structure.undirected:
            for to, source, block in c.blocks(self.weight(c)):
                found[to].append((source, block))
        return {name: tuple(blocks) for name, blocks in found.items()}

    @cached_property
    def generations(self) -> dict[str, list[Array]]:
        """Layer -> its units by generation; parents in the layer are in earlier generations."""
        return {
            name: generations(layer, arrows_inside(self, name))
            for name, layer in self.structure.layers.items()
        }

    @cached_property
    def nonzero_places(self) -> tuple[bytes, ...]:
        """Digests of the positions at which the weight of each coupling is not 0."""
        return tuple([digest(self.weight(c), zeros=False) for c in self.structure.couplings])

    @cached_property
    def parameter_places(self) -> tuple[bytes, ...]:
        """Digests of the positions at which the weight of each coupling has a parameter."""
        couplings = self.structure.couplings
        # Inside a layer, entries of 0 are not parameters of arrows; see Coupling.parameters.
        return tuple(
            digest(self.weight(c), zeros=not (c.directed and c.a == c.b)) for c in couplings
        )

    def with_params(self, params: Mapping[str, Weight]) -> Self:
        """Return a model with other values of the named parameters, checked as in build.

        Arrays are taken by the position of their entries: they know no names of units and states.
        """
        checks = self.structure.parameters
        unknown = [name for name in params if name not in checks]
        if unknown:
            # Layers that hold variables have internal names, so the message does not list their
            # biases.
            held = {f"{name}.bias" for name in self.structure.names.storage}
            known = listed([key for key in checks if key not in held])
            raise PgmError(f"parameter {unknown[0]!r} is unknown; the parameters are {known}")
        values = {name: self._checked(checks[name], value) for name, value in params.items()}
        merged = {**self.params, **values}
        check_no_bias(self.structure, merged)
        return type(self)(self.structure, merged, self.training, self.fresh and not params)

    def _checked(self, t: Term, value: Weight) -> Weight:
        """Return the value of a parameter; PgmError unless it fits the term."""
        s = self.structure
        if t.is_table:
            return check_logs(s, t, value)
        if not t.whole:
            return t.checked(s.layers, value)
        if t.is_bias:
            return check_bias(s.layers[t.layers[0]], value)
        (coupling,) = (c for c in s.weighted if f"{c.key}.weight" == t.key)
        return check_weight(s, coupling, value)

    def with_training(self, training: Training | None) -> Self:
        """Return the model with base rates and chains of a training, checked against its layers."""
        if training is not None:
            check_training(self.structure, training)
        return type(self)(self.structure, self.params, training, self.fresh)

    def with_labels(self, labels: Mapping[str, tuple[str, ...]]) -> Self:
        """Return the model with names of the units of some layers, layer -> labels."""
        if not labels:
            return self
        old = self.structure.layers
        layers = {n: replace(x, labels=labels.get(n, x.labels)) for n, x in old.items()}
        structure = replace(self.structure, layers=layers)
        return type(self)(structure, self.params, self.training, self.fresh)

    def inputs(self, x: States, name: str) -> Array:
        """Return zeta = bias + sum over parents of x_p J of a directed layer, (rows, width).

        It is 0 for Input units, because their bias has no effect.
        """
        zeta = (
            self.structure.no_evidence[name][0]
            if self.structure.layers[name].unit.observed_only
            else self.bias(name)
        )
        for arrow in self.structure.arrows_into[name]:
            zeta = zeta + distinct(x[arrow.a]) @ self.weight(arrow)
        return np.broadcast_to(zeta, x[name].shape)

    def flat_log_density(self, x: States) -> Array:
        """Return the log density of flat values, (rows,)."""
        total = np.zeros(next(iter(x.values())).shape[0])
        directed = set(self.structure.directed_layers)
        for name, layer in self.structure.layers.items():
            value = layer.shaped(x[name])
            if name in directed:
                total += layer.unit.log_conditional(value, layer.shaped(self.inputs(x, name))).sum(
                    axis=-1
                )
            else:
                total += x[name] @ self.bias(name) + layer.unit.log_h(value).sum(axis=-1)
        for c in self.structure.undirected:
            total += c.log_density(self.weight(c), x[c.a], x[c.b])
        for one in self.structure.compact_gates:
            total += self._gate_log_density(one, joined_states(self.structure, x))
        return np.asarray(total + self.table_log_density(x).sum(axis=1))

    def _gate_log_density(self, one: Term, states: Array) -> Array:
        """Return the term (rows,) of a gate at all of its places, at states of all units."""
        assert isinstance(one.form, Steps)
        units = one.index + [self.structure.first_unit[name] for name in one.layers]
        flat = states[:, units].reshape(-1, units.shape[1])
        found = one.form.log_prob(self.params[one.key], flat)
        return np.asarray(found.reshape(len(states), -1).sum(axis=1))

    def table_log_density(self, x: States) -> Array:
        """Return the term (rows, tables) that each table adds to the log density of flat values."""
        if not self.structure.tables:
            return np.zeros((len(next(iter(x.values()))), 0))
        entries = self.structure.table_index.entries(joined_states(self.structure, x))
        return self.table_terms.take(entries)

    def gradient(
        self,
        x: States,
        weights: Array | None = None,
        unscored: Mapping[str, Array] | None = None,
        tables: bool = True,
    ) -> dict[str, Weight]:
        """Return d log_density of flat values, summed over rows times their weights.

        The derivatives are those in the biases and weights of whole layers (`expanded`), and in the
        parameters of tables. `in_parameters` sums them over the places that share a parameter.

        Parameters
        ----------
        x : layer -> (rows, width). The undirected part is multilinear, so that x may also hold the
            means of independent units there.
        weights : (rows,); None = 1.
        unscored : layer -> (rows, size): units whose conditionals do not count.
        tables : whether to include the parameters of tables; x must then be states, not means.
        """
        s = self.structure
        rows = len(next(iter(x.values())))
        weights = np.ones(rows, dtype=next(iter(x.values())).dtype) if weights is None else weights
        # The factor of each unit in the derivatives in its bias and in its incoming arrows.
        reach: States = {}
        for name, layer in s.layers.items():
            reach[name] = x[name]
            if (s.child_tables[name] >= 0).any():
                # Units with a conditional have no bias.
                reach[name] = x[name] * layer.components(s.child_tables[name] < 0)
            if name in s.directed_layers:
                score = layer.flat(
                    layer.unit.score(layer.shaped(x[name]), layer.shaped(self.inputs(x, name)))
                )
                absent = (
                    None
                    if unscored is None or name not in unscored
                    else layer.components(unscored[name])
                )
                reach[name] = score if absent is None else np.where(absent, 0.0, score)
        gradient = {
            f"{n}.bias": weighted_sum(weights, reach[n]).reshape(self.params[f"{n}.bias"].shape)
            for n in s.layers
        }
        heavy = {
            (name, directed): weights[:, None] * (reach if directed else x)[name]
            for name, directed in {(c.b, c.directed) for c in s.couplings}
        }
        for c in s.couplings:
            slope = c.statistics(self.weight(c), x[c.a], heavy[c.b, c.directed])
            gradient[f"{c.key}.weight"] = slope
        return gradient | (self._table_gradient(x, weights, unscored or {}) if tables else {})

    def _table_gradient(
        self, x: States, weights: Array, unscored: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Return the part of `gradient` that belongs to tables."""
        s = self.structure
        if not s.tables:
            return {}
        entries = s.table_index.entries(joined_states(s, x))
        counted = np.repeat(weights[:, None], entries.shape[1], axis=1)
        for name, absent in unscored.items():
            units = np.flatnonzero(s.child_tables[name] >= 0)
            counted[:, s.child_tables[name][units]] *= ~absent[:, units]
        counts = np.bincount(entries.ravel(), counted.ravel(), len(self.table_entries))
        return self.table_slopes(counts)

    def table_slopes(self, counts: Array) -> dict[str, Array]:
        """Return the gradient of tables from the expected counts of their entries.

        The counts are in the order of `table_entries`; their array may become the gradient.
        """
        return table_gradient(self.structure, self.params, counts)

    def parameter_counts(self, counts: Array) -> dict[str, Array]:
        """Return the expected counts of the numbers of each parameter, from those of all entries.

        The counts are in the order of `table_entries`; the result may have views of their array.
        """
        return parameter_counts(self.structure, self.params, counts)

"""A mini-batch for the model phase: its observed units, the sampled ones, and their order.

Parameters that act only on given units have the gradient 0. Directed layers without given
descendants need not be sampled in the model phase: their conditionals sum to 1, so that the
expected gradient of their biases and of the weights into them is 0. Chains leave these layers out.
Their conditional means, computed parents first, take their place, because the gradient (x - E[x |
parents]) is 0 there. Both properties follow from the graph alone, not from weights or rows, so that
they hold for the whole fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from pgmengine.base.equal_rows import distinct, spread
from pgmengine.base.types import Array, States, Weight
from pgmengine.declare.model import Model
from pgmengine.engine.visits import colors
from pgmengine.evidence.evidence import Evidence
from pgmengine.evidence.relevance import EvidencePattern, informed_units
from pgmengine.evidence.target import Target
from pgmengine.learn.phases.statistics import Statistics
from pgmengine.model.couplings import Coupling
from pgmengine.model.parameters import Parameters
from pgmengine.model.structure import Structure
from pgmengine.model.terms.term import Term
from pgmengine.model.weights import is_sparse, like


@dataclass(frozen=True, eq=False)
class Batch:
    """A mini-batch as the model phase sees it.

    Attributes
    ----------
    model : the model at the present parameters.
    weights : (rows,) weights of the rows, 1 on average over all data.
    given : the rows with only the `given` units observed; None where no unit is given, so that
        the model phase is the same for all rows.
    complete : a function that draws the unobserved units of each row from the posterior, layer ->
        (rows, width).
    outward : the layers with data, and the other layers by their distance from these.
    precision : precision of the statistics.
    by_means : layers that chains leave out, whose conditional means take their place.
    data : the rows with all their data, for phases that look at them.
    """

    model: Model
    weights: Array
    given: Target | None
    complete: Callable[[], States]
    outward: tuple[tuple[str, ...], tuple[str, ...]]
    precision: type
    by_means: tuple[str, ...] = ()
    data: Target | None = None

    def nothing(self) -> Statistics:
        """Return empty statistics."""
        return Statistics(self.precision)

    def mean(self, x: States, weights: Array | None = None) -> Statistics:
        """Return the mean of d log_density over states x, as the expectation for each row.

        With weights (n,) of the states it is the sum of weight * d log_density.
        """
        if weights is None:
            count = len(next(iter(x.values())))
            weights = np.full(count, self.weights.mean() / count)
        out = Statistics(self.precision)
        out.points(at_means(self.model, x, self.by_means) if self.by_means else x, weights)
        return out


def at_means(model: Model, x: States, names: Sequence[str]) -> States:
    """Return states in which the layers are at their means given their parents."""
    x = dict(x)
    for name in names:
        layer = model.structure.layers[name]
        mean = layer.unit.mean(layer.unit.link(layer.shaped(model.inputs(x, name))))
        x[name] = layer.flat(mean).astype(x[name].dtype, copy=False)
    return x


def layers_by_means(s: Structure, given: Mapping[str, Array]) -> tuple[str, ...]:
    """Return the names of the layers that chains may leave out, parents first.

    These layers are directed, have no arrows inside and no given units, and are in no table or
    undirected coupling. All their children are such layers as well.
    """
    out: list[str] = []
    for name in reversed(s.directed_layers):
        children = {arrow.b for arrow in s.arrows_from[name]}
        meets = name in s.undirected_layers or s.tabled[name].any()
        if name not in given and not meets and children <= set(out):
            out.insert(0, name)
    return tuple(out)


def idle_entries(target: Target, given: Mapping[str, Array]) -> dict[str, Array]:
    """Return parameter -> mask of its stored numbers that stay as they are.

    They act on given units only, which are given and observed in all rows, so that E[. | row] =
    E[. | given]; or they are biases of units that have none. Parameters without such numbers are
    left out.
    """
    s = target.structure
    without_bias = {
        f"{name}.bias": ~_components(s, name, units)
        for name, units in s.has_bias.items()
        if not units.all()
    }
    if not given:
        return without_bias
    seen = {name: distinct(target.pattern.observed[name]).all(axis=0) for name in given}
    none = {name: np.zeros(layer.size, dtype=bool) for name, layer in s.layers.items()}
    known = none | {name: units & seen[name] for name, units in given.items()}
    # The units whose parents are all given and observed in all rows.
    whole = {
        name: units & all(known[arrow.a].all() for arrow in s.arrows_into[name])
        for name, units in known.items()
    }

    def places(t: Term) -> Array:
        inside = [known[name][t.index[:, axis]] for axis, name in enumerate(t.layers)]
        return np.asarray(np.logical_and.reduce(inside))

    ends = {c: (known[c.a], (whole if c.directed else known)[c.b]) for c in s.couplings}
    out = _by_parameter(target, whole, ends, places)
    out = {key: mask for key, mask in out.items() if mask.any()}
    return joint_masks(out, without_bias)


def uninformed_entries(target: Target, given: Mapping[str, Array]) -> dict[str, Array]:
    """Return parameter -> mask of its stored numbers that no row informs, so that they stay.

    They belong to conditionals of units that are barren in every row, or to undirected parts that
    nothing joins to the data. A parameter of several places is informed if one of them is.
    Parameters without such numbers are left out.
    """
    informed, s = informed_units(target, given), target.structure
    if informed.all():
        return {}
    barren = {name: ~informed[own] for name, own in s.slices.items()}
    every = {name: np.ones(layer.size, dtype=bool) for name, layer in s.layers.items()}

    def places(t: Term) -> Array:
        axes = range(len(t.layers))[-1 if t.conditional else 0 :]
        inside = [barren[t.layers[axis]][t.index[:, axis]] for axis in axes]
        return np.asarray(np.logical_and.reduce(inside))

    ends = {c: ((every if c.directed else barren)[c.a], barren[c.b]) for c in s.couplings}
    out = _by_parameter(target, barren, ends, places)
    for name, units in s.has_bias.items():
        out[f"{name}.bias"] &= _components(s, name, units)
    return {key: mask for key, mask in out.items() if mask.any()}


def joint_masks(first: Mapping[str, Array], second: Mapping[str, Array]) -> dict[str, Array]:
    """Return parameter -> mask of the numbers that are in one of two masks."""
    out = dict(first)
    for name, mask in second.items():
        out[name] = mask | out[name] if name in out else mask
    return out


def _by_parameter(
    target: Target,
    biases: Mapping[str, Array],
    ends: Mapping[Coupling, tuple[Array, Array]],
    places: Callable[[Term], Array],
) -> dict[str, Array]:
    """Return parameter -> mask of the stored numbers that belong to some units in all places.

    Parameters
    ----------
    target : the rows.
    biases : layer -> (size,) bool, the units whose biases are meant.
    ends : coupling -> the units of its two layers between which weights are meant.
    places : returns which places (n,) of tables are meant.
    """
    s, params = target.structure, target.model.params
    weights = {c: target.model.weight(c) for c in s.couplings}
    out = {f"{name}.bias": _components(s, name, biases[name]) for name in s.layers}
    for c, (first, second) in ends.items():
        rows, columns = _components(s, c.a, first), _components(s, c.b, second)
        out[f"{c.key}.weight"] = _stored(weights[c], rows, columns)
    if s.shared:
        out = in_all_places(target.model, out, weights)
    for t in s.tables:
        # A table is meant if all of its places are.
        mask, shape = np.ones(math.prod(t.lead), dtype=bool), np.shape(params[t.key])
        np.logical_and.at(mask, t.numbers, places(t))
        mask = np.broadcast_to(mask.reshape(t.lead + (1,) * (len(shape) - len(t.lead))), shape)
        out[t.key] = mask & out.get(t.key, True)
    return out


def in_all_places(
    model: Parameters, idle: Mapping[str, Array], weights: Mapping[Coupling, Weight]
) -> dict[str, Array]:
    """Return masks of the stored numbers of parameters from those of weights of whole layers.

    A parameter is idle if it is so in all of its places.
    """
    moving: dict[str, Weight] = {key: 1.0 - mask for key, mask in idle.items()}
    for c, weight in weights.items():
        key = f"{c.key}.weight"
        moving[key] = like(weight, moving[key])
    found = model.structure.expansion.unsigned().summed(moving, model.params)
    return {key: (n.data if is_sparse(n) else n) == 0 for key, n in found.items()}


def _components(s: Structure, name: str, units: Array) -> Array:
    """Return a mask of the components of a layer, in the shape of its bias."""
    layer = s.layers[name]
    return layer.components(units).reshape(layer.bias_shape)


def _stored(weight: Weight, rows: Array, columns: Array) -> Array:
    """Return a mask of the stored numbers of a weight that are in some rows and columns."""
    if is_sparse(weight):
        entries = weight.tocoo()
        found: Array = rows.ravel()[entries.row] & columns.ravel()[entries.col]
        return found
    return rows.reshape(-1, 1) & columns.ravel()


def outward(target: Target, given: Mapping[str, Array]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the layers with data that is not given, then the others by distance from these.

    Contrastive divergence visits the layers in this order. A layer that moves after the layers
    between it and the data depends on them within one sweep. Paths do not lead through layers whose
    units are all given.
    """
    import networkx as nx

    s = target.structure
    graph: nx.Graph = nx.Graph()
    free = {name: ~given[name] if name in given else np.True_ for name in s.layers}
    graph.add_nodes_from(name for name in s.layers if free[name].any())
    graph.add_edges_from((c.a, c.b) for c in s.couplings if c.a in graph and c.b in graph)
    joined = (pair for t in s.tables for pair in combinations(t.layers, 2))
    graph.add_edges_from((a, b) for a, b in joined if a in graph and b in graph)
    observed = {name: distinct(seen) for name, seen in target.pattern.observed.items()}
    data = {name for name in graph if (observed[name] & free[name]).any()}
    far = nx.multi_source_dijkstra_path_length(graph, data) if data else {}
    order = [name for color in colors(s) for name in color]
    rest = [name for name in order if name not in data]
    rest.sort(key=lambda name: far.get(name, len(order)))
    return tuple(n for n in order if n in data), tuple(rest)


def only(target: Target, units: Mapping[str, Array]) -> Target:
    """Return the target with evidence on some units only; without any such units it has one row."""
    s, e = target.structure, target.evidence
    blank = {
        name: [spread(part, e.pattern.rows) for part in s.no_evidence[name]] for name in s.layers
    }
    values = {name: blank[name][0] for name in s.layers}
    seen = {name: blank[name][1] for name in s.layers}
    for name, some in units.items():
        values[name], seen[name] = e.values[name], e.pattern.observed[name]
        if not some.all():
            kept = s.layers[name].components(some)
            values[name] = np.where(kept, values[name], blank[name][0])
            # An array whose rows are all equal is kept as one row.
            seen[name] = spread(distinct(seen[name]) & some, e.pattern.rows)
    out = _with_evidence(target, values, seen, target.intervened)
    return out if units else out.take(np.zeros(1, dtype=int))


def without(target: Target, names: Sequence[str]) -> Target:
    """Return the target with the layers set by do() to some value, so that chains skip them."""
    if not names:
        return target
    e, cut = target.evidence, dict(target.intervened)
    values, seen = dict(e.values), dict(e.pattern.observed)
    for name in names:
        layer = target.structure.layers[name]
        support = layer.unit.support
        one = np.zeros((1, 1)) if support is None else np.atleast_2d(support[0])
        some = np.tile(one, (1, layer.width // one.size))
        values[name] = np.broadcast_to(
            some.astype(e.values[name].dtype), (e.pattern.rows, layer.width)
        )
        seen[name] = cut[name] = np.broadcast_to(True, (e.pattern.rows, layer.size))
    return _with_evidence(target, values, seen, cut)


def _with_evidence(
    target: Target, values: States, seen: dict[str, Array], cut: dict[str, Array]
) -> Target:
    """Return the target with these values, observed units and units set by do()."""
    pattern = EvidencePattern(target.structure, target.rows, seen, cut)
    return replace(target, evidence=Evidence(target.evidence.has_rows, values, pattern))

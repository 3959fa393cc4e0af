"""A mini-batch as the model phase sees it: what is observed there, what is sampled, in which order.

Parameters that act on given layers alone have the gradient 0. And the model phase need not sample
layers below which nothing is given. These depend on the graph alone, not on weights or rows, so
that they are the same in all of a fit. Their conditionals sum to 1, so E[d log_density] with
respect to their biases and the weights into them is 0. Chains leave them out, and their conditional
means take their place, parents first: the score (x - E[x | parents]) is 0 there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import networkx as nx
import numpy as np

from pgmengine.base.types import Array, States
from pgmengine.graph.evidence import Evidence
from pgmengine.graph.model import Model
from pgmengine.graph.queries import EvidencePattern
from pgmengine.graph.rows import spread
from pgmengine.graph.structure import Structure
from pgmengine.graph.target import Target
from pgmengine.learn.statistics import Statistics


@dataclass(frozen=True, eq=False)
class Batch:
    """A mini-batch as the model phase sees it.

    Attributes
    ----------
    model : the model at the present parameters.
    weights : (rows,) weights of the rows, 1 on average over all data.
    given : the rows with only the `given` units observed; None where no unit is given, so that
        the model phase is the same for all rows.
    complete : draws the unobserved units of each row from the posterior, layer -> (rows, width).
    outward : the layers with data; the other layers by their distance from these.
    precision : precision of the statistics.
    settled : layers that chains leave out, whose conditional means take their place.
    """

    model: Model
    weights: Array
    given: Target | None
    complete: Callable[[], States]
    outward: tuple[tuple[str, ...], tuple[str, ...]]
    precision: type
    settled: tuple[str, ...] = ()

    def nothing(self) -> Statistics:
        """Return statistics without anything in them."""
        return Statistics(self.precision)

    def mean(self, x: States, weights: Array | None = None) -> Statistics:
        """Return the mean of d log_density over states x, which stands for every row.

        With weights (n,) of the states it is the sum of weight * d log_density.
        """
        if weights is None:
            count = len(next(iter(x.values())))
            weights = np.full(count, self.weights.mean() / count)
        out = Statistics(self.precision)
        out.points(at_means(self.model, x, self.settled) if self.settled else x, weights)
        return out


def at_means(model: Model, x: States, names: Sequence[str]) -> States:
    """Return states in which the layers are at their means given their parents."""
    x = dict(x)
    for name in names:
        layer = model.structure.layers[name]
        mean = layer.unit.mean(layer.unit.link(layer.shaped(model.inputs(x, name))))
        x[name] = layer.flat(mean).astype(x[name].dtype, copy=False)
    return x


def settled_layers(s: Structure, given: Mapping[str, Array]) -> tuple[str, ...]:
    """Return the names of the layers that chains may leave out, parents first.

    They are directed, without arrows inside, not given, in no table, and all their children are
    such layers.
    """
    out: list[str] = []
    for name in reversed(s.directed_layers):
        children = {arrow.b for arrow in s.arrows_from[name]}
        meets = name in s.undirected_layers or s.tabled[name].any()
        if name not in given and not meets and children <= set(out):
            out.insert(0, name)
    return tuple(out)


def idle_parameters(target: Target, given: Mapping[str, Array]) -> tuple[str, ...]:
    """Return the names of the parameters that act on given layers only.

    The layers have to be complete: then E[. | row] = E[. | given].
    """
    s = target.structure
    free = target.pattern.some_free
    known = {name for name, units in given.items() if units.all() and not free[name]}
    whole = {name for name in known if {arrow.a for arrow in s.arrows_into[name]} <= known}
    return (
        *(f"{name}.bias" for name in s.layers if name in whole),
        *(
            f"{c.key}.weight"
            for c in s.couplings
            if {c.a, c.b} <= known and (not c.directed or c.b in whole)
        ),
        *(t.key for t in s.tables if known.issuperset(t.layers)),
    )


def outward(target: Target, given: Mapping[str, Array]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the layers with data that are not given, and the others by their distance from these.

    It is the order in which contrastive divergence visits the layers: a layer that moves after the
    layers on its way from the data depends on them within one sweep; given layers let nothing
    through.
    """
    s = target.structure
    graph: nx.Graph = nx.Graph()
    free = {name: ~given[name] if name in given else np.True_ for name in s.layers}
    graph.add_nodes_from(name for name in s.layers if free[name].any())
    graph.add_edges_from((c.a, c.b) for c in s.couplings if c.a in graph and c.b in graph)
    joined = (pair for t in s.tables for pair in combinations(t.layers, 2))
    graph.add_edges_from((a, b) for a, b in joined if a in graph and b in graph)
    observed = target.pattern.observed
    data = {name for name in graph if (observed[name] & free[name]).any()}
    far = nx.multi_source_dijkstra_path_length(graph, data) if data else {}
    order = [name for color in s.colors for name in color]
    rest = [name for name in order if name not in data]
    rest.sort(key=lambda name: far.get(name, len(order)))
    return tuple(n for n in order if n in data), tuple(rest)


def only(target: Target, units: Mapping[str, Array]) -> Target:
    """Return the target with evidence on some units of layers only, one row if on none."""
    s, e = target.structure, target.evidence
    blank = {name: [spread(part, e.pattern.rows) for part in s.blank[name]] for name in s.layers}
    values = {name: blank[name][0] for name in s.layers}
    seen = {name: blank[name][1] for name in s.layers}
    for name, some in units.items():
        kept = np.repeat(some, s.layers[name].unit.width)
        values[name] = np.where(kept, e.values[name], values[name])
        seen[name] = e.pattern.observed[name] & some
    out = _with_evidence(target, values, seen, target.cut)
    return out if units else out.take(np.zeros(1, dtype=int))


def without(target: Target, names: Sequence[str]) -> Target:
    """Return the target with the layers set to any value by do(), so that chains leave them out."""
    if not names:
        return target
    e, cut = target.evidence, dict(target.cut)
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
    """Return the target with other values, observed units and units set by do()."""
    pattern = EvidencePattern(target.structure, target.rows, seen, cut)
    return replace(target, evidence=Evidence(target.evidence.has_rows, values, pattern))

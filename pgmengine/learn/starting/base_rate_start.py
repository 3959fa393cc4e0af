"""The start of learning of a fresh model: base rates of the data, in a centred model.

With inputs of 0 the units of an observed layer have the means of the data if A'(bias) = mean. The
drawn weights W add W x to the inputs of their neighbours, which is noise as long as nothing is
learned. A centred model adds W (x - E[x]) instead, which is 0 on average (Montavon and Mueller
2012). It is the same model with biases that are smaller by W E[x]. At the first update the units
are therefore independent with the means of the data, and no hidden unit has to act as a bias.

Normal children of arrows begin at the mean and the standard deviation of their data, in the unit of
the data, unless the model declares other inputs than 0.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pgmengine.base.checks import amount
from pgmengine.base.equal_rows import distinct
from pgmengine.base.types import Array, LayerValues, Params
from pgmengine.declare.model import Model, ModelLike, as_model
from pgmengine.evidence.columns import data_by_layer
from pgmengine.evidence.given import make_target
from pgmengine.evidence.target import Target
from pgmengine.infer.sampling.methods.base_rates import base_rates
from pgmengine.learn.full_batch.counting import Moments
from pgmengine.learn.steps.optimizers import floors, raised
from pgmengine.model.structure import Structure
from pgmengine.model.terms.term import Kind, Term, of_whole_layers
from pgmengine.model.weights import is_sparse, like, numbers

# The number of observations, at the mean that belongs to bias 0, that are added to the data of each
# bounded unit. Without them a mean at the edge of the range would have no finite bias.
ADDED_OBSERVATIONS = 1.0


def observed_means(target: Target, weights: Array) -> dict[str, Array]:
    """Return the mean of each unit over the rows that observe it, layer -> (size[, k]).

    Layers that no row observes are absent. ADDED_OBSERVATIONS observations at the mean of bias 0
    are added to the data of bounded units, and units that no row observes have this mean.
    """
    out = {}
    for name, layer in target.structure.layers.items():
        if layer.unit.cells:
            # Base rates are no start of groups, whose rows begin at the moments of the data.
            continue
        if not distinct(target.free[name]).any():
            # Every row observes the whole layer, and no mask is made.
            count = np.full(layer.size, weights.sum())
            total = (weights @ target.evidence.values[name]).reshape(layer.bias_shape)
        else:
            seen = np.where(target.free[name], 0.0, weights[:, None])
            if not seen.any():
                continue
            x = np.where(layer.components(seen > 0), target.evidence.values[name], 0.0)
            count = seen.sum(axis=0)
            total = np.einsum("ns,ns...->s...", seen, layer.shaped(x))
        if layer.unit.observed_only:
            out[name] = total / np.maximum(count, 1.0).reshape(-1, *[1] * (total.ndim - 1))
            continue
        middle = layer.unit.mean(np.zeros(layer.bias_shape))
        added = np.where(count == 0, 1.0, ADDED_OBSERVATIONS if layer.unit.bounded else 0.0)
        count, added = (a.reshape(-1, *[1] * (total.ndim - 1)) for a in (count, added))
        out[name] = (total + added * middle) / (count + added)
    return out


def started(model: Model, means: dict[str, Array]) -> tuple[Model, tuple[str, ...]]:
    """Return the centred model with these means, and the layers whose biases were set.

    Units with a conditional have no bias. Units of several components that are not one-hot keep
    their bias, because it does not follow from their means.
    """
    layers = model.structure.layers
    bias = {name: model.bias(name).copy() for name in layers}
    set_here = []
    for name, mean in means.items():
        unit = layers[name].unit
        if unit.observed_only or (unit.width > 1 and not unit.one_hot):
            continue
        if not (unit.canonical or unit.independent_causes):
            continue
        eta = unit.natural(mean)
        # The input z of a noisy-or unit is A(eta).
        bias[name] = np.ravel(eta if unit.canonical else unit.log_normalizer(eta))
        set_here.append(name)
    expected = {
        name: np.ravel(means[name])
        if name in means
        else np.ravel(layer.unit.mean(layer.unit.link(layer.shaped(bias[name]))))
        for name, layer in layers.items()
    }
    for c in model.structure.couplings:
        weight = model.weight(c)
        if c.directed:
            bias[c.b] = bias[c.b] - expected[c.a] @ weight
            continue
        for to, source, block in c.blocks(weight):
            bias[to] = bias[to] - expected[source] @ block
    return model.with_params(_with_biases(model, bias)), tuple(set_here)


def at_data(model: Model, moments: Mapping[str, Moments], fixed: Mapping[str, Array]) -> Model:
    """Return the model whose undeclared inputs of real children are the mean and spread of data.

    The inputs of a child are undeclared where its biases and its rows of arrows are 0. The first of
    these parameters then takes the moments of the data; `fixed` numbers stay. Drawn weights of a
    fresh model count in standard deviations of the data.

    Parameters
    ----------
    model : the model at which learning begins.
    moments : the moments of the data, by parameter.
    fixed : parameter -> mask of the numbers that stay.
    """
    s, out = model.structure, dict(model.params)
    for c in s.arrows if model.fresh else ():
        if (key := f"{c.key}.weight") in out:
            out[key] = like(out[key], numbers(out[key]) * sizes_of(model, moments, key))
    terms = [t for t in _levels(s) if t.key in moments]
    declared = {t.layers[-1]: np.zeros(s.layers[t.layers[-1]].size, dtype=bool) for t in terms}
    for t in terms:
        lead = moments[t.key].weight.size
        mask = np.asarray(model.params[t.key]) != 0
        mask = (mask | fixed.get(t.key, np.False_)).reshape(lead, -1).any(axis=1)
        child, number = _ends(t, declared)
        declared[t.layers[-1]][child] |= mask[number]
    for key in dict.fromkeys(t.key for t in terms):
        own, places = moments[key], [t for t in terms if t.key == key]
        moves = own.weight.ravel() > 0
        for t in places:
            child, number = _ends(t, declared)
            np.logical_and.at(moves, number, ~declared[t.layers[-1]][child])
        found = s.layers[places[0].layers[-1]].unit.inputs_of(own.mean, own.variance)
        if found is None or not moves.any():
            continue
        # Arrows have the same row for each state.
        rows = (1,) * (np.ndim(out[key]) - found.ndim)
        shape = (*own.weight.shape, *rows, found.shape[-1])
        some = moves.reshape(*shape[:-1], 1)
        out[key] = np.where(some, found.reshape(shape), out[key])
        for t in places:
            child, number = _ends(t, declared)
            declared[t.layers[-1]][child] |= moves[number]
    return Model(s, out, model.training, model.fresh)


def sizes_of(model: Model, moments: Mapping[str, Moments], name: str) -> Array:
    """Return the change of each stored number of a parameter that counts as one.

    It is the standard deviation of the data for numbers that add to the mean of Normal children.
    """
    s, value = model.structure, model.params[name]
    t = s.parameters[name]
    own = moments.get(f"{t.layers[-1]}.bias" if t.whole else name)
    unit = s.layers[t.layers[-1]].unit
    if own is None or unit.inputs_of(own.mean, own.variance) is None:
        return np.ones(numbers(value).size)
    each, cells = np.ones((*own.weight.shape, unit.width)), max(unit.cells, 1)
    wide = np.where(own.variance > 0, np.sqrt(own.variance), 1.0)
    each[..., :cells] = wide.reshape(*own.weight.shape, cells)
    if is_sparse(value):
        return np.asarray(each.ravel()[value.tocoo().col])
    if t.is_bias:
        return each.ravel()
    # Columns of a weight of whole layers are the components of all children.
    rows = each.reshape(1, -1) if t.whole else each[..., None, :]
    return np.broadcast_to(rows, np.shape(value)).ravel()


def _levels(s: Structure) -> list[Term]:
    """Return the biases of children of arrows, and the arrows with rows for all states."""
    own = [
        of_whole_layers(f"{name}.bias", Kind.BIAS, name)
        for name in s.layers
        if s.arrows_into[name] and s.has_bias[name].all()
    ]
    return own + [t for t in s.shared if t.is_bias or t.has_all_rows(s.layers)]


def _ends(t: Term, units: Mapping[str, Array]) -> tuple[Array, Array]:
    """Return the children of a term, and the number of its parameter that each of them has."""
    every = np.arange(len(units[t.layers[-1]]))
    return (every, every) if t.whole else (t.index[:, -1], t.numbers)


def _with_biases(model: Model, bias: dict[str, Array]) -> Params:
    """Return the parameters with these biases: 0 if a unit has none, and at least its floor."""
    s = model.structure
    params = {}
    for name, layer in s.layers.items():
        biased = layer.components(s.has_bias[name])
        own = bias[name] - model.shared_bias(name)
        found = np.where(biased, own, 0.0) if not layer.unit.observed_only else 0.0
        params[f"{name}.bias"] = np.broadcast_to(found, layer.width).reshape(layer.bias_shape)
    least = {k: v for k, v in floors(s).items() if k in params}
    return {k: np.array(v) for k, v in raised(params, least).items()}


def base_rate_start(model: ModelLike, data: LayerValues, strength: float = 0.05) -> Model:
    """Return the model with biases at the base rates of the data.

    With weights of zero the observed layers then have the means of the data. The first chains look
    like data, and learning need not find the biases first. Layers that `base_rates` leaves out keep
    their biases.

    Parameters
    ----------
    model : the model, whose weights stay as they are.
    data : layer -> (rows, size), or a DataFrame with a column for each unit.
    strength : weight of uniformly distributed states, as a share of the rows, that are added to the
        data of each unit with bounded values, so that a unit that never changes gets a finite bias.

    Returns
    -------
    The model with these biases and its own weights.

    Raises
    ------
    PgmError for values outside the support of their units, and a strength below 0.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> model = pgm.base_rate_start(pgm.rbm(2, 2, rng=0), {"v": [[0, 1], [1, 1]]})
    >>> bool(model.params["v.bias"][1] > model.params["v.bias"][0])
    True
    """
    model = as_model(model)
    amount("base_rate_start: strength", strength)
    data = data_by_layer(model.structure, data)
    rows, layers = make_target(model, data, what="data").rows, model.structure.layers
    bias = {}
    for name, eta in base_rates(model, data, strength * rows).items():
        unit = layers[name].unit
        # The input z of a noisy-or unit is A(eta).
        z = eta if unit.canonical else unit.log_normalizer(eta)
        # Units with a conditional have no bias.
        biased = layers[name].components(model.structure.has_bias[name])
        own = np.ravel(z) - model.shared_bias(name)
        bias[f"{name}.bias"] = np.reshape(own * biased, layers[name].bias_shape)
    return model.with_params(bias)

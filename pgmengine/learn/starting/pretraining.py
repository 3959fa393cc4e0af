"""A starting point of learning: the layers of a stack, pretrained pair by pair."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.base.checks import seeded
from pgmengine.base.errors import PgmError
from pgmengine.base.types import LayerValues
from pgmengine.declare.builder import GraphBuilder
from pgmengine.declare.model import Model, ModelLike, as_model
from pgmengine.evidence.columns import Values, data_by_layer
from pgmengine.evidence.given import make_target
from pgmengine.evidence.target import Target
from pgmengine.learn.fit import fit, pass_on
from pgmengine.learn.phases.positive import posterior_draw
from pgmengine.learn.starting.arguments import row_weights
from pgmengine.learn.starting.base_rate_start import observed_means, started
from pgmengine.learn.starting.defaults import SCALED_RATE, falling_rate
from pgmengine.learn.steps.optimizers import SGD
from pgmengine.learn.steps.scaled import Scaled
from pgmengine.learn.steps.schedules import linear_decay
from pgmengine.learn.steps.wrappers import AsOne
from pgmengine.model.couplings import Coupling
from pgmengine.model.layer import Layer
from pgmengine.model.weights import is_sparse

# The smallest number of draws of a layer, even if there are fewer rows.
MIN_LAYER_DRAWS = 1000


def pretrain(model: ModelLike, data: LayerValues, **settings: Any) -> Model:
    """Return a stack of layers pretrained greedily, pair by pair of layers.

    Deep models learn faster from such a start. The layers must form a path that begins at the only
    layer with data. Each coupling is learned as an RBM of the layer below and the layer above. Its
    data are the states of the layer below that the RBMs before it draw from the data. If a layer of
    an undirected model gets input from both sides, its RBM has two copies of the layer at the other
    end, whose parameters move as one. In the whole model the inputs from below and from above then
    add up to the right size.

    Parameters
    ----------
    model : the stack of layers, from whose parameters the RBMs begin to learn.
    data : layer -> (rows, size), or a DataFrame, for the first layer of the path.
    settings : settings of `fit`, for every RBM, except `checkpoint` and `state`; with copies the
        optimizer cannot be Centered. Callbacks see one RBM after the other.
        RBMs after the first learn from at least 1,000 rows, so that `epochs` means more updates for
        them if the data have fewer rows.

    Returns
    -------
    The model with pretrained parameters.

    Raises
    ------
    PgmError for other models or data; KeyboardInterrupt after Ctrl-C.

    References
    ----------
    Hinton, Osindero and Teh (2006), A fast learning algorithm for deep belief nets. Salakhutdinov
    and Hinton (2009), Deep Boltzmann machines.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> x = pgm.datasets.bars_and_stripes().x_train
    >>> model = pgm.pretrain(pgm.dbm([16, 8, 4], rng=0), {"v": x}, updates=50, progress=False)
    >>> f = pgm.fit(model, {"v": x}, updates=50, progress=False)
    """
    model = as_model(model)
    for name in ("checkpoint", "state"):
        if name in settings:
            raise PgmError(f"pretrain takes no {name}: it makes several fits")
    if settings.get("probabilities"):
        raise PgmError(
            "pretrain takes no probabilities: give states, such as rng.random(x.shape) < x"
        )
    data = data_by_layer(model.structure, data)
    if len(data) != 1:
        raise PgmError("pretrain: data must be layer -> (rows, size) of one layer")
    model.structure.names.layer(next(iter(data)), what="data: layer")
    weights, rng = settings.pop("sample_weight", None), settings.pop("rng", 0)
    target = make_target(model, data, what="data")
    weights = row_weights(target.rows, weights)
    if model.fresh:
        model, _ = started(model, observed_means(target, weights))
    x: Any = next(iter(data.values()))
    out: dict[str, Any] = {}
    for step in _steps(model, data):
        found, rows = _learned(model, step, x, settings | {"rng": rng, "sample_weight": weights})
        _merge(out, step, found)
        index = np.tile(np.arange(rows.rows), -(-MIN_LAYER_DRAWS // rows.rows))
        weights = weights[index]
        x = step.above.shaped(posterior_draw(rows.take(index), seeded(rng))[step.above.name])
    return model.with_params(out)


@dataclass(frozen=True)
class _Step:
    """A coupling on the path from the data; flipped if its weight has the upper layer first."""

    below: Layer
    above: Layer
    key: str
    flipped: bool
    # Whether each end has undirected input from both sides in the whole model.
    both: tuple[bool, bool]


def _steps(model: Model, data: Iterable[str]) -> list[_Step]:
    """Return the path that begins at the data; PgmError if there is none."""
    path = _path(model, data)
    undirected = [False, *(not c.directed for c, _, _ in path), False]
    return [
        _Step(below, above, c.key, c.a == above.name, (here and before, here and after))
        for (c, below, above), before, here, after in zip(
            path, undirected, undirected[1:], undirected[2:], strict=False
        )
    ]


def _path(model: Model, data: Iterable[str]) -> list[tuple[Coupling, Layer, Layer]]:
    """Return (coupling, layer below, layer above) for each step, beginning at the data."""
    s, name = model.structure, next(iter(data), "")
    left, out = list(s.couplings), list[tuple[Coupling, Layer, Layer]]()
    while True:
        here = [c for c in left if name in (c.a, c.b)]
        if len(here) != 1 or here[0].a == here[0].b:
            break
        c = here[0]
        other = c.b if c.a == name else c.a
        out.append((c, s.names.layer(name), s.names.layer(other)))
        left.remove(c)
        name = other
    sparse = any(is_sparse(model.weight(c)) for c in s.couplings)
    if left or not out or sparse or s.shared:
        raise PgmError(
            "pretrain needs layers in a path that starts at the one layer of data, with dense "
            "weights that no places share"
        )
    return out


def _learned(
    model: Model, step: _Step, x: Any, settings: Mapping[str, Any]
) -> tuple[Model, Target]:
    """Return the RBM of one coupling, and the rows that it was learned from."""
    lower = _copies(step.below, step.both[1] and not step.both[0])
    upper = _copies(step.above, step.both[0] and not step.both[1])
    ties, optimizer = _ties(lower, upper), settings.get("optimizer")
    rows = Values.fromkeys(lower, x)
    if ties:
        optimizer = AsOne(optimizer or Scaled(SGD(_falling(settings, len(x)))), ties)
    found = fit(_pair(model, step, lower, upper), rows, **{**settings, "optimizer": optimizer})
    pass_on(found)
    return found.model, found.model.given(rows)


def _falling(settings: Mapping[str, Any], rows: int) -> linear_decay:
    """Return the default rate of `fit` for the number of updates of these settings."""
    size = min(settings.get("batch_size", 100), rows)
    updates = settings.get("updates") or settings.get("epochs", 10) * -(-rows // size)
    return falling_rate(SCALED_RATE, updates)


def _merge(out: dict[str, Any], step: _Step, found: Model) -> None:
    """Add the parameters of an RBM to those of the whole model."""
    below, above, (from_below, from_above) = step.below.name, step.above.name, step.both
    weight = found.params[f"{below}-{above}.weight"] * (0.5 if from_below and from_above else 1.0)
    out[f"{step.key}.weight"] = weight.T if step.flipped else weight
    bias = found.params[f"{below}.bias"]
    # A layer between two undirected couplings gets the mean of the biases of both RBMs.
    out[f"{below}.bias"] = (out[f"{below}.bias"] + bias) / 2 if from_below else bias
    out[f"{above}.bias"] = found.params[f"{above}.bias"]


def _copies(layer: Layer, twice: bool) -> dict[str, Layer]:
    """Return name -> layer, for one copy or two."""
    return {layer.name: layer} | ({f"copy of {layer.name}": layer} if twice else {})


def _ties(lower: Iterable[str], upper: Iterable[str]) -> tuple[list[str], ...]:
    """Return the groups of parameters that stay equal."""
    groups = (
        [f"{b}.bias" for b in lower],
        [f"{a}.bias" for a in upper],
        [f"{b}-{a}.weight" for b in lower for a in upper],
    )
    return tuple(group for group in groups if len(group) > 1)


def _pair(
    model: Model, step: _Step, lower: Mapping[str, Layer], upper: Mapping[str, Layer]
) -> Model:
    """Return the RBM of one coupling before learning, between all copies of its ends."""
    weight = model.params[f"{step.key}.weight"]
    weight = np.ascontiguousarray(weight.T if step.flipped else weight)
    builder = GraphBuilder()
    for name, layer in {**lower, **upper}.items():
        builder.layer(name, layer.unit, layer.size, bias=model.params[f"{layer.name}.bias"])
    for b in lower:
        for a in upper:
            builder.couple(b, a, weight=weight)
    return builder.build()

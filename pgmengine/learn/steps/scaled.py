"""Scaled: steps whose size fits the units and the sizes of the layers; the default of `fit`.

A step along the gradient is stable if its rate times the largest eigenvalue of the Fisher
information stays below 2. The block of the bias of layer a is the covariance of its units, and the
block of a weight between layers a and b is about the product of the covariances of both. Their
largest eigenvalues grow with the variance of one unit, and with the number of units that vary
together, for which the total variance of the layer stands:

    s_a = 4 v_a (1 + T_a / 50),    T_a = sum_i var(x_i) / (4 v_a),

with v_a the largest variance of a unit of the layer, so that T_a is the total variance if units
were scaled to values 0 and 1. A weight moves by rate / (s_a s_b) times its gradient, and a bias by
a quarter of rate / s_a, because biases start at the base rates. The constants were chosen on RBMs
of 10 to 500 hidden units and the six data sets of benchmarks/defaults.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, Params, Snapshot
from pgmengine.learn.contracts import Optimizer
from pgmengine.learn.phases.statistics import Gradient
from pgmengine.learn.recorded.recorder import Recorder, Slopes, recording
from pgmengine.learn.steps.optimizers import SGD, check_optimizer
from pgmengine.model.layer import Layer
from pgmengine.model.structure import Structure
from pgmengine.model.weights import elementwise
from pgmengine.units.unit import Unit

# The total variance of a layer that halves its steps, if units are scaled to values 0 and 1.
HALVING_VARIANCE = 50.0
# The rate of biases, as a share of the rate of weights.
BIAS_STEP_SHARE = 0.25
# Scales of layers lie between this value and its inverse, unless a checkpoint is damaged.
MIN_LAYER_SCALE = 1e-40
# Means are moved by this share towards the middle of their range, so that their eta is finite.
INWARD_SHARE = 1e-3


@dataclass(frozen=True)
class Scaled:
    """Another optimizer, with the gradient scaled to the units and the sizes of the layers.

    One rate then suits units of all types and layers of all sizes. `fit` takes
    Centered(Scaled(SGD(rate))) with a falling rate by default. Gradients of tables stay as they
    are.

    Parameters
    ----------
    optimizer : the optimizer that makes the steps.

    Raises
    ------
    PgmError if `optimizer` is no optimizer.

    References
    ----------
    Hinton (2012), A practical guide to training restricted Boltzmann machines.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> x = pgm.datasets.bars_and_stripes().x_train
    >>> steps = pgm.Centered(pgm.Scaled(pgm.SGD(pgm.linear_decay(1.0, 200))))
    >>> f = pgm.fit(pgm.rbm(16, 4, rng=0), {"v": x}, optimizer=steps, updates=200, progress=False)
    """

    optimizer: Optimizer = SGD()

    def __post_init__(self) -> None:
        check_optimizer(self.optimizer, "Scaled: optimizer")

    def start(self, params: Params) -> Snapshot:
        """Return the moments of the optimizer, and scales of layers, which are not known yet."""
        names = [k.removesuffix(".bias") for k in params if k.endswith(".bias")]
        return self.optimizer.start(params) | {f"scale/{n}": np.full(1, np.nan) for n in names}

    def step(
        self, structure: Structure, params: Params, gradient: Gradient, moments: Snapshot, t: int
    ) -> Params:
        """Return the parameters after step t along the scaled gradient."""
        if np.isnan(moments[f"scale/{next(iter(structure.layers))}"][0]):
            means = gradient.data.means(structure)
            for name, layer in structure.layers.items():
                moments[f"scale/{name}"][0] = scale(layer, means.get(name))
        factor = _factors(structure, moments)
        scaled = {k: elementwise(partial(_times, f), gradient[k]) for k, f in factor.items()}
        return self.optimizer.step(structure, params, gradient.replaced(scaled), moments, t)

    def record(self, recorder: Recorder, slopes: Slopes) -> None:
        """Append the steps of the optimizer, whose gradient has a factor."""
        own = _factors(recorder.structure, recorder.moments)
        factors = {k: f * slopes.factors.get(k, 1.0) for k, f in own.items()}
        recording(self.optimizer)(recorder, Slopes(slopes.values, slopes.factors | factors))


def _factors(structure: Structure, moments: Mapping[str, Array]) -> dict[str, float]:
    """Return the factor of the gradient of each parameter."""
    s = {name: float(moments[f"scale/{name}"][0]) for name in structure.layers}
    if bad := [n for n, value in s.items() if not MIN_LAYER_SCALE < value < 1 / MIN_LAYER_SCALE]:
        raise PgmError(f"the state of Scaled has the scale {s[bad[0]]} for layer {bad[0]!r}")
    out = dict[str, float]()
    for key, t in structure.parameters.items():
        if t.is_table:
            continue
        each = [s[name] for name in t.layers]
        own = BIAS_STEP_SHARE / each[0] if t.is_bias else 1.0 / (each[0] * each[1])
        # A parameter moves by the mean of the steps that its places would take with parameters of
        # their own: its gradient, the sum over the places, is divided by their number.
        out[key] = own / structure.shared_counts.get(key, 1.0)
    return out


def _times(factor: float, slope: Array) -> Array:
    """Return a gradient times a number, in the precision of the gradient."""
    product: Array = slope * slope.dtype.type(factor)
    return product


def scale(layer: Layer, mean: Array | None) -> float:
    """Return the scale s_a of a layer with these means (width,), or without known means."""
    most = largest_variance(layer.unit)
    # In an unbounded layer all units may vary together, so the total variance is the largest one.
    total = layer.width / 4.0 if layer.unit.bounded else float(layer.width)
    known = layer.unit.one_hot or layer.unit.width == 1
    if mean is not None and known and layer.unit.bounded and not layer.unit.observed_only:
        middle = layer.unit.mean(np.zeros(layer.bias_shape))
        inside = layer.shaped(np.asarray(mean, dtype=np.float64))
        eta = layer.unit.natural(inside + INWARD_SHARE * (middle - inside))
        total = float(layer.unit.variance(eta).sum()) / (4 * most)
    return 4 * most * (1 + total / HALVING_VARIANCE)


def largest_variance(unit: Unit) -> float:
    """Return the largest variance that one component of a unit can have; 1/4 of Input units."""
    if unit.observed_only:
        return 0.25
    if unit.support is not None:
        values = np.reshape(unit.support, (len(unit.support), -1))
        return float(np.square(np.ptp(values, axis=0)).max()) / 4
    # A unit on the interval [-1, 1] has its largest variance if it takes only the values -1 and 1.
    return 1.0 if unit.curvature is None else float(unit.curvature)

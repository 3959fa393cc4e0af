"""Optimizers around another one: centred gradients, averages of the parameters."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.base.checks import check_number
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, Params, Snapshot, Weight
from pgmengine.base.work.threads import parts
from pgmengine.declare.model import Model
from pgmengine.learn.contracts import Optimizer
from pgmengine.learn.phases.statistics import Gradient
from pgmengine.learn.recorded.recorder import NotCompiled, Recorder, Slopes, recording
from pgmengine.learn.steps.optimizers import (
    PARAMETERS_PER_THREAD,
    SGD,
    check_optimizer,
    floors,
    projected,
    raised,
)
from pgmengine.learn.steps.scaled import Scaled
from pgmengine.model.couplings import Coupling
from pgmengine.model.structure import Structure
from pgmengine.model.terms.expansion import at_entries_of
from pgmengine.model.weights import count, is_sparse, like, numbers, plus

# The number of updates from one that enters the average to the next. Successive parameters differ
# little, and averaging costs as much as a step.
UPDATES_PER_AVERAGE = 10


@dataclass(frozen=True)
class Centered:
    """Another optimizer with the gradient of the centred model.

    The centred model is the same model in other coordinates. Learning has the same fixed points,
    and often reaches them sooner. The offsets o are running means of E[x | data]. The gradient of a
    weight becomes dW' = dW - o_a db_b^T - db_a o_b^T, and that of a bias db' = db less the sum of
    dW' o over its couplings. Only undirected couplings of layers without directed parents are
    centred.

    Parameters
    ----------
    optimizer : the optimizer that makes the steps.
    follow : share of the mean of each update in the offsets, from 0 to 1.

    Raises
    ------
    PgmError for settings out of their range.

    References
    ----------
    Montavon and Mueller (2012), Deep Boltzmann machines and the centering trick. Melchior, Fischer
    and Wiskott (2016), How to center deep Boltzmann machines.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> pgm.Centered(pgm.SGD(0.1)).follow
    0.01
    """

    optimizer: Optimizer = SGD()
    follow: float = 0.01

    def __post_init__(self) -> None:
        check_number(self, "follow", most=1)
        check_optimizer(self.optimizer, "Centered: optimizer")

    def start(self, params: Params) -> Snapshot:
        """Return the moments of the optimizer, and offsets, which are not known yet."""
        offsets = {
            f"offset/{k.removesuffix('.bias')}": np.full(v.size, np.nan)
            for k, v in params.items()
            if k.endswith(".bias")
        }
        return self.optimizer.start(params) | offsets

    def step(
        self, structure: Structure, params: Params, gradient: Gradient, moments: Snapshot, t: int
    ) -> Params:
        """Return the parameters after step t along the centred gradient."""
        means = gradient.data.means(structure)
        # Offsets of a damaged checkpoint may have any size; the step then reports divergence.
        with np.errstate(over="ignore", invalid="ignore"):
            centred = self._centred(structure, params, gradient, moments, means)
        return self.optimizer.step(structure, params, gradient.replaced(centred), moments, t)

    def record(self, recorder: Recorder, slopes: Slopes) -> None:
        """Append the offsets, the centred gradient, and the steps along it."""
        if slopes.factors:
            raise NotCompiled("Centered is inside Scaled: it would centre the scaled gradient")
        s, moments = recorder.structure, recorder.moments
        offsets = {}
        for name, means in recorder.means_of_data().items():
            offsets[name] = np.zeros_like(means)
            recorder.add(
                "follow",
                m=means.size,
                a=means,
                sums=moments[f"offset/{name}"],
                out=offsets[name],
                number=self.follow,
            )
        # Weights need the gradient of biases as it was.
        before = {name: slopes.values[f"{name}.bias"].reshape(-1) for name in s.layers}
        bias = {name: np.zeros_like(slope) for name, slope in before.items()}
        for name, slope in before.items():
            recorder.add("combine", m=slope.size, a=slope, b=slope, out=bias[name])
        for c in s.undirected:
            weight = slopes.values[f"{c.key}.weight"]
            of_a, of_b = np.zeros_like(before[c.a]), np.zeros_like(before[c.b])
            recorder.add(
                "centre",
                n=weight.shape[0],
                m=weight.shape[1],
                a=before[c.a],
                b=before[c.b],
                x=moments[f"offset/{c.a}"],
                c_=offsets[c.b],
                d=of_b,
                more=of_a,
                out=weight,
                parts=parts(weight.size, PARAMETERS_PER_THREAD),
            )
            for name, part in ((c.a, of_a), (c.b, of_b)):
                recorder.add(
                    "combine", m=part.size, a=bias[name], b=part, out=bias[name], number=-1.0
                )
        values = slopes.values | {f"{name}.bias": slope for name, slope in bias.items()}
        recording(self.optimizer)(recorder, Slopes(values, slopes.factors))

    def _centred(
        self,
        structure: Structure,
        params: Params,
        gradient: Gradient,
        moments: Snapshot,
        means: Mapping[str, Array],
    ) -> dict[str, Any]:
        """Return the parts of the gradient that centring changes, and update the offsets."""
        for name, mean in means.items():
            offset = moments[f"offset/{name}"]
            followed = (1 - self.follow) * offset + self.follow * mean
            offset[:] = np.where(np.isnan(offset), mean, followed)
        bias = {name: np.ravel(gradient[f"{name}.bias"]).astype(np.float64) for name in means}
        centred = self._weights(structure, params, gradient, moments, bias)
        out: dict[str, Any] = dict(centred)
        steps = {**gradient, **centred}
        if holds(self.optimizer, Scaled):
            # A shared parameter then moves by the mean over its places, and its biases have to
            # follow this step: followed by the sum, they would diverge.
            counts = structure.shared_counts.items()
            steps |= {key: np.asarray(steps[key] / n) for key, n in counts}
        for c in _centred_couplings(structure, means):
            slope = _of_whole_layers(structure, c, steps)
            # The offsets take the precision of the gradient, which would otherwise be converted as
            # a whole.
            a, b = (moments[f"offset/{name}"].astype(slope.dtype) for name in (c.a, c.b))
            for name, share in ((c.a, slope @ b), (c.b, a @ slope))[: 1 + (c.a != c.b)]:
                key = f"{name}.bias"
                before = out.get(key, gradient[key])
                # Units with a conditional have no bias, and given units keep theirs.
                biased = structure.layers[name].components(structure.has_bias[name])
                moved = biased & ~np.ravel(gradient.idle.get(key, np.False_))
                out[key] = before - (share * moved).reshape(np.shape(before))
        return out

    @staticmethod
    def _weights(
        structure: Structure,
        params: Params,
        gradient: Gradient,
        moments: Snapshot,
        bias: Mapping[str, Array],
    ) -> dict[str, Weight]:
        """Return the centred gradients of weights. One that places share has the sum over them."""
        out: dict[str, Weight] = {}
        whole = structure.expanded(params)
        for c in _centred_couplings(structure, bias):
            a, b = moments[f"offset/{c.a}"], moments[f"offset/{c.b}"]
            terms, key = ((-a, bias[c.b]), (-bias[c.a], b)), f"{c.key}.weight"
            shared = structure.expansion.whole.get(key)
            if shared is None:
                out[key] = c.projected(params[key], _plus_outer(gradient[key], terms))
                continue
            nothing = like(whole[key], np.zeros(count(whole[key])))
            added = c.projected(whole[key], _plus_outer(nothing, terms))
            for name, found in shared.summed(params.get(key), added).items():
                out[name] = np.asarray(out.get(name, gradient[name]) + found)
            if key in params:
                out[key] = plus(gradient[key], at_entries_of(params[key], added))
        return out


def _centred_couplings(structure: Structure, means: Container[str]) -> list[Coupling]:
    """Return the couplings that are centred: offsets exist only without directed parents."""
    return [c for c in structure.undirected if c.a in means and c.b in means]


def _of_whole_layers(structure: Structure, c: Coupling, steps: Params) -> Weight:
    """Return steps of parameters as a change of the weight between two whole layers."""
    key = f"{c.key}.weight"
    if (shared := structure.expansion.whole.get(key)) is None:
        return steps[key]
    return shared.total(steps.get(key), steps)


def holds(optimizer: object, kind: type) -> bool:
    """Return whether an optimizer, or one inside it, is of a kind."""
    while optimizer is not None and not isinstance(optimizer, kind):
        optimizer = getattr(optimizer, "optimizer", None)
    return optimizer is not None


def _plus_outer(slope: Any, terms: Sequence[tuple[Array, Array]]) -> Weight:
    """Return the gradient plus the sum of a b', at the stored entries of a sparse gradient."""
    if not is_sparse(slope):
        left, right = (
            np.stack([term[i] for term in terms], axis=1).astype(slope.dtype) for i in (0, 1)
        )
        total: Array = slope + left @ right.T
        return total
    entry = slope.tocoo()
    sums = sum(a[entry.row] * b[entry.col] for a, b in terms)
    sparse: Weight = like(slope, slope.data + sums)
    return sparse


@dataclass(frozen=True)
class AsOne:
    """An optimizer under which the parameters of each group move as one, by their summed gradient.

    Only pretraining uses it: whole weights are dense, and have no name that could tie them.
    """

    optimizer: Optimizer
    groups: tuple[list[str], ...]

    def __post_init__(self) -> None:
        check_optimizer(self.optimizer, "pretrain: optimizer")
        if holds(self.optimizer, Centered):
            raise PgmError(
                "pretrain takes no Centered optimizer for a layer between two couplings: centring "
                "would change each copy of a parameter in a different way"
            )

    def start(self, params: Params) -> Snapshot:
        """Return the moments of the optimizer."""
        return self.optimizer.start(params)

    def step(
        self, structure: Structure, params: Params, gradient: Gradient, moments: Snapshot, t: int
    ) -> Params:
        """Return the parameters after step t, in which those of a group are equal."""
        sums = dict[str, Weight]()
        for first, *others in self.groups:
            total = gradient[first]
            for name in others:
                total = plus(total, gradient[name])
            sums |= dict.fromkeys([first, *others], total)
        stepped = self.optimizer.step(structure, params, gradient.replaced(sums), moments, t)
        return {**stepped, **{name: stepped[one[0]] for one in self.groups for name in one}}


@dataclass(frozen=True)
class Averaged:
    """An optimizer that also keeps an average of the parameters, which `Fit.averaged` returns.

    While steps are large, parameters fluctuate around the point to which smaller steps would
    converge, and their average is nearer to it. Learning itself does not change. After t updates
    the average is a = theta_t for t <= 10; then a += max(10 follow, 10 / t) (theta_t - a) at every
    tenth update. At first this is the mean over all updates, without the initial parameters; later
    it is the mean over about the last 1 / follow updates.

    Parameters
    ----------
    optimizer : the optimizer that makes the steps.
    follow : share of the parameters of each update in the average, above 0, at most 1.

    Raises
    ------
    PgmError for settings out of their range.

    References
    ----------
    Polyak and Juditsky (1992), Acceleration of stochastic approximation by averaging.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> x, sgd = pgm.datasets.bars_and_stripes().x_train, pgm.SGD(0.1)
    >>> f = pgm.fit(pgm.rbm(16, 4, rng=0), {"v": x}, optimizer=pgm.Averaged(sgd, follow=0.01),
    ...             updates=50, progress=False)
    >>> f.averaged
    Restricted Boltzmann machine: 2 layers, 1 coupling, 84 parameters
      v: 16 Binary
      h: 4 Binary
      couplings: v-h
    """

    optimizer: Optimizer = SGD()
    follow: float = 1e-3

    def __post_init__(self) -> None:
        check_optimizer(self.optimizer, "Averaged: optimizer")
        check_number(self, "follow", most=1)
        if self.follow == 0:
            raise PgmError(
                "Averaged: follow must be above 0, or the average would stay where learning began"
            )

    def start(self, params: Params) -> Snapshot:
        """Return the moments of the optimizer, and the average."""
        average = {f"average/{k}": np.array(numbers(v)) for k, v in params.items()}
        return self.optimizer.start(params) | average

    def step(
        self, structure: Structure, params: Params, gradient: Gradient, moments: Snapshot, t: int
    ) -> Params:
        """Return the parameters after step t, and update the average."""
        stepped, made = self.optimizer.step(structure, params, gradient, moments, t), t + 1
        if made % UPDATES_PER_AVERAGE == 0 or made < UPDATES_PER_AVERAGE:
            share = min(max(UPDATES_PER_AVERAGE * self.follow, UPDATES_PER_AVERAGE / made), 1.0)
            for k, value in raised(stepped, floors(structure)).items():
                average = moments[f"average/{k}"]
                # Impossible entries of tables remain so: -inf less -inf would be NaN.
                with np.errstate(invalid="ignore"):
                    moved = share * (numbers(value) - average)
                stays = np.isneginf(average) | np.ravel(gradient.idle.get(k, np.False_))
                average += np.where(stays, 0.0, moved)
        return stepped

    def record(self, recorder: Recorder, slopes: Slopes) -> None:
        """Append the steps of the optimizer, and the average."""
        recording(self.optimizer)(recorder, slopes)
        for k, work in recorder.work.items():
            recorder.add(
                "average",
                layer=recorder.names[k],
                n=work.size,
                work=work,
                sums=recorder.moments[f"average/{k}"],
                number=self.follow,
                rest=float(UPDATES_PER_AVERAGE),
            )


def averaged(model: Model, state: Mapping[str, Array]) -> Model:
    """Return the model at the average in the snapshot of a fit; PgmError if there is none."""
    kept = {k: f"optimizer/average/{k}" for k in model.params}
    if any(name not in state for name in kept.values()):
        raise PgmError(
            "there is no average of the parameters: fit with an optimizer pgm.Averaged(optimizer)"
        )
    params = {k: like(value, np.array(state[kept[k]])) for k, value in model.params.items()}
    out = dict(projected(model.structure, params))
    for k, value in model.params.items():
        # Numbers that no row informs never moved, and may lie below the floor of others.
        own, mean = numbers(value), numbers(params[k])
        out[k] = like(value, np.where(mean == own, own, numbers(out[k])))
    return Model(model.structure, out)

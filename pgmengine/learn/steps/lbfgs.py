"""L-BFGS: steps of a full batch along directions that know the curvature of the last updates.

The direction is H g, with the gradient g and an approximation H of the inverse Hessian from the
last pairs s = change of parameters, y = change of -g, by the two-loop recursion (Nocedal and Wright
2006, algorithm 7.4). Without l1 the step satisfies the strong Wolfe conditions, by
scipy.optimize.line_search. With l1 it is OWL-QN (Andrew and Gao 2007): the pseudo-gradient takes
the place of the gradient, the direction keeps its signs, and a backtracking search stays in one
orthant.

Some units have a smallest input (Normal units, whose standard deviation has one). A parameter that
is the whole input of such units stays at this floor or above: points are raised to it, a slope that
leads below it counts as 0, and a step that meets it is found by backtracking. The initial H is a
multiple of the diagonal matrix of `input_scales`, because the curvature in the mean of a Normal
state with few close values is 1 / sigma^2: with a multiple of the identity, fits of mixtures with
such a state took up to 1,000 updates, with it 20 to 200.

The numbers of all parameters are one vector; those that add to the mean of Normal children count in
standard deviations of the data, so that their unit does not matter. The entries S_ij = S_ji of a
coupling inside a layer are one parameter, and both hold its derivative. The vector has sqrt(1/2)
S_ij for each of them, so that the inner product of its gradient with a change is the change of the
objective.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pgmengine.base.checks import check_number, check_whole, whole
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, Params, Snapshot
from pgmengine.declare.model import Model
from pgmengine.learn.full_batch.objective import Evaluation, Objective
from pgmengine.learn.full_batch.optimizer_contract import Ascended, FullBatch
from pgmengine.learn.starting.base_rate_start import sizes_of
from pgmengine.learn.starting.random_starts import begun
from pgmengine.learn.steps.optimizers import floors, noisy_or_floors
from pgmengine.model.structure import Structure
from pgmengine.model.terms.input_rows import rows_of_inputs
from pgmengine.model.weights import like, numbers

# Evaluations of the objective in one search along a direction.
MAX_EVALUATIONS = 30
# The share of the linear rise that a step has to reach, and the share of the slope that may remain.
LEAST_RISE_SHARE, LARGEST_SLOPE_SHARE = 1e-4, 0.9
# A rise of at most this share of the objective may be rounding.
ROUNDING_SHARE = 1e-14
# A pair is kept if its curvature s y exceeds this share of y y.
LEAST_CURVATURE_SHARE = 1e-10
# Updates of a start whose states are exchangeable, before they are changed at random.
UPDATES_BEFORE_STARTS = 20
# The largest share of the updates of a fit that these are.
UPDATES_BEFORE_STARTS_SHARE = 0.25


@dataclass(frozen=True)
class LBFGS(FullBatch):
    """L-BFGS on all rows, with exact gradients of the log-likelihood or the pseudo-likelihood.

    Use it for models with a cheap exact objective: fully visible Boltzmann machines, Ising and
    Potts models and tables of small width, conditional random fields (`given=`), small models with
    hidden units, and with `negative=pgm.PseudoGradient()` fully visible models of any size. Where
    the objective is concave, which holds without hidden units and directed parts, it reaches the
    maximum. An update of the fit is one iteration.

    Parameters
    ----------
    l1, l2 : strengths of the penalties l1 |w| + l2 w^2 / 2 of each weight of a coupling and each
        entry of an undirected table, in nats a row: the objective is the mean over rows. Biases and
        conditionals have no penalty. A weight inside a layer counts once.
    tolerance : learning ends when no derivative of the objective, in nats a row, is larger.
    memory : number of pairs that approximate the curvature.
    starts : number of starts, of which the best after some updates goes on: the given parameters,
        and random changes of the parameters of latent units. By default 1, or 12 random ones if
        latent units or their states are exchangeable, because no update could tell them apart; only
        these change. A fit with few updates has fewer starts, as theirs count.

    Notes
    -----
    `Fit.history["objective"]` has the objective less the penalties. Conditionals learn through the
    logarithms of their entries, whose rows are normalised. Entries of tables that are 0 stay 0.

    Raises
    ------
    PgmError for settings out of their range; when learning starts, for phases that are not exact,
    and for noisy-or units, whose parameters are bounded.

    References
    ----------
    Liu and Nocedal (1989), On the limited memory BFGS method for large scale optimization. Andrew
    and Gao (2007), Scalable training of L1-regularized log-linear models.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> x = [[0, 0, 1], [1, 1, 0], [1, 1, 1], [0, 1, 0], [1, 0, 0]]
    >>> b = pgm.GraphBuilder()
    >>> v = b.layer("v", pgm.Binary(), 3)
    >>> b.couple("v", "v")
    >>> f = pgm.fit(b.build(rng=0), {"v": x}, optimizer=pgm.LBFGS(l2=0.1), progress=False)
    >>> f.stopped
    'no derivative of the objective is above 1e-05'
    """

    l1: float = 0.0
    l2: float = 0.0
    tolerance: float = 1e-5
    memory: int = 10
    starts: int | None = None

    def __post_init__(self) -> None:
        check_number(self, "l1", "l2", "tolerance")
        check_whole(self, "memory")
        if self.starts is not None:
            whole("LBFGS: starts", self.starts)

    def start(self, params: Params) -> Snapshot:
        """Return room for the pairs; those that are not filled yet are 0."""
        count = sum(numbers(value).size for value in params.values())
        return {"s": np.zeros((self.memory, count)), "y": np.zeros((self.memory, count))}

    def ascend(self, objective: Objective, model: Model, moments: Snapshot, t: int) -> Ascended:
        """Return the model after iteration t."""
        if t == 0:
            _check(objective, model)
        made = 0
        if t == 0 and not objective.complete:
            model, made = self._begun(objective, model, moments)
        found = self._updated(objective, model, moments)
        return replace(found, updates=made + 1)

    def _begun(self, objective: Objective, model: Model, moments: Snapshot) -> tuple[Model, int]:
        """Return the model at which learning begins, and the updates made until then.

        Its moments replace the given ones.
        """
        symmetry, made = objective.exchangeable(model, {}), 0
        if symmetry.masks:
            # What exchangeable units have in common is learned before they are changed at random.
            most = int(UPDATES_BEFORE_STARTS_SHARE * objective.allowance.updates)
            for _ in range(min(UPDATES_BEFORE_STARTS, most)):
                if objective.allowance.interrupted():
                    break
                found = self._updated(objective, model, moments)
                model, made = found.model, made + 1
                if found.stopped:
                    break
        best = begun(
            objective,
            model,
            symmetry,
            self.starts,
            lambda: self.start(model.params),
            lambda one, own: self._updated(objective, one, own).model,
            lambda one: self._value(objective, one),
        )
        for name, value in best.moments.items():
            moments[name][:] = value
        return best.model, made + best.updates

    def _value(self, objective: Objective, model: Model) -> float:
        """Return the objective less the penalties."""
        return _Path(self, objective, model).value

    def _updated(self, objective: Objective, model: Model, moments: Snapshot) -> Ascended:
        """Return the model after an iteration."""
        path = _Path(self, objective, model)
        here, value, slope = path.here, path.value, path.pseudo(path.here, path.slope)
        if np.abs(slope).max(initial=0.0) <= self.tolerance:
            return Ascended(model, value, self._converged())
        found = None
        for along in (direction_of(slope, moments, path.metric), path.metric * slope):
            direction = path.inside(along, slope)
            if not direction @ slope > 0:
                continue
            first = 1.0 if moments["s"].any() else min(1.0, 1.0 / np.abs(direction).sum())
            found = path.search(slope, first * direction)
            if found is not None:
                break
            # A failed search leaves pairs that do not describe the curvature here.
            moments["s"][:] = moments["y"][:] = 0.0
        if found is None:
            return Ascended(model, value, "no step raises the objective beyond rounding")
        remember(moments, found - here, path.slope_before - path.slope)
        close = np.abs(path.pseudo(found, path.slope)).max(initial=0.0) <= self.tolerance
        return Ascended(path.model, path.value, self._converged() if close else "")

    def _converged(self) -> str:
        return f"no derivative of the objective is above {self.tolerance:g}"


class _Path:
    """The objective as a function of one vector, with the last point at which it was evaluated."""

    def __init__(self, settings: LBFGS, objective: Objective, model: Model) -> None:
        s = model.structure
        self.settings, self.objective, self.first = settings, objective, model
        names = list(model.params)
        sizes = [numbers(model.params[name]).size for name in names]
        self.ends = dict(zip(names, np.cumsum(sizes), strict=True))
        self.sizes = dict(zip(names, sizes, strict=True))
        inside = {f"{c.key}.weight" for c in s.couplings if c.lateral}
        penal = s.weight_names | {t.key for t in s.tables if not t.conditional}
        flat = np.concatenate([numbers(model.params[name]) for name in names])
        self.scale = self._each(lambda name: np.sqrt(0.5) if name in inside else 1.0)
        self.size = np.concatenate([sizes_of(model, objective.moments, name) for name in names])
        penalised = self._each(lambda name: 1.0 if name in penal else 0.0)
        self.moves = np.isfinite(flat)
        for name, mask in objective.fixed.items():
            self.moves[self._place(name)] &= ~np.broadcast_to(mask, mask.shape).ravel()
        self.l1 = settings.l1 * self.scale * penalised * self.size
        self.l2 = settings.l2 * penalised * self.size**2
        self.flat = flat
        self.here = np.where(self.moves, flat, 0.0) * self.scale / self.size
        self.least, self.metric = np.full(len(flat), -np.inf), np.ones(len(flat))
        for name, value in floors(s).items():
            self.least[self._place(name)] = np.broadcast_to(value, model.params[name].shape).ravel()
        for name, unit in rows_of_inputs(s).items():
            self.metric[self._place(name)] = unit.input_scales(model.params[name]).ravel()
        self.metric /= self.size**2
        # Numbers that do not move are 0 here.
        self.least[~self.moves] = -np.inf
        self.point = self.here
        self.model, self.value, self.slope = self._evaluated(model, self.here)
        self.slope_before = self.slope

    def _place(self, name: str) -> slice:
        return slice(int(self.ends[name]) - self.sizes[name], int(self.ends[name]))

    def _each(self, number: Callable[[str], float]) -> Array:
        """Return a number for each entry of the vector, by the name of its parameter."""
        return np.concatenate([np.full(n, number(name)) for name, n in self.sizes.items()])

    def _evaluated(self, model: Model, point: Array) -> tuple[Model, float, Array]:
        """Return the model, the objective and the gradient without the l1 penalty."""
        found: Evaluation = self.objective.gradient(model)
        assert found.value is not None
        each = [numbers(found.slopes[name]).astype(np.float64) for name in self.sizes]
        slope = np.where(self.moves, np.concatenate(each), 0.0) * self.scale * self.size
        own = np.where(self.moves, point, 0.0)
        penalty = float(self.l1 @ np.abs(own) + (self.l2 * own) @ own / 2)
        return model, found.value - penalty, slope - self.l2 * own

    def at(self, point: Array) -> tuple[float, Array]:
        """Return the objective at a vector, raised to the floors, and its gradient."""
        raised = np.maximum(point, self.least)
        if not np.array_equal(raised, self.point):
            theta = np.where(self.moves, raised * self.size / self.scale, self.flat)
            params = {
                name: like(value, theta[self._place(name)].copy())
                for name, value in self.first.params.items()
            }
            model = self.objective.at(params, self.first)
            self.model, self.value, self.slope = self._evaluated(model, raised)
            self.point = raised
        return self.value, np.where(point < self.least, 0.0, self.slope)

    def pseudo(self, point: Array, slope: Array) -> Array:
        """Return the gradient with the l1 penalty, the steepest one-sided slope at 0.

        A number at its floor has no slope below it.
        """
        slope = np.where((point <= self.least) & (slope < 0), 0.0, slope)
        if not self.settings.l1:
            return slope
        inward = np.sign(slope) * np.maximum(np.abs(slope) - self.l1, 0.0)
        return np.asarray(np.where(point == 0, inward, slope - self.l1 * np.sign(point)))

    def inside(self, direction: Array, slope: Array) -> Array:
        """Return a direction without steps below the floors or, with l1, against the slope."""
        out = np.where((self.here <= self.least) & (direction < 0), 0.0, direction)
        return np.where(out * slope > 0, out, 0.0) if self.settings.l1 else out

    def search(self, slope: Array, direction: Array) -> Array | None:
        """Return the vector after a step along a direction, or None if none is found."""
        value, self.slope_before = self.at(self.here)
        # Slopes jump where a number meets its floor: no step may satisfy the conditions of Wolfe.
        jumps = self.settings.l1 or (self.here + direction < self.least).any()
        found = (self._backtracked if jumps else self._wolfe)(value, slope, direction)
        if found is None or self._stays(value, slope, found):
            self.at(self.here)
            return None
        raised: Array = np.maximum(found, self.least)
        return raised

    def _stays(self, value: float, slope: Array, found: Array) -> bool:
        """Whether a step has raised the objective within rounding, and not halved the slope."""
        rise = self.at(found)[0] - value
        after = self.pseudo(np.maximum(found, self.least), self.slope)
        return bool(
            rise <= ROUNDING_SHARE * abs(value) and 2 * np.abs(after).max() > np.abs(slope).max()
        )

    def _wolfe(self, value: float, slope: Array, direction: Array) -> Array | None:
        """Return the point of a step that satisfies the strong Wolfe conditions."""
        from scipy.optimize import line_search

        with np.errstate(all="ignore"), warnings.catch_warnings():
            # A search without a result is seen by its size, which is None.
            warnings.simplefilter("ignore")
            size = line_search(
                lambda x: -self.at(x)[0],
                lambda x: -self.at(x)[1],
                self.here,
                direction,
                gfk=-slope,
                old_fval=-value,
                c1=LEAST_RISE_SHARE,
                c2=LARGEST_SLOPE_SHARE,
                maxiter=MAX_EVALUATIONS,
            )[0]
        return None if size is None else np.asarray(self.here + size * direction)

    def _backtracked(self, value: float, slope: Array, direction: Array) -> Array | None:
        """Return the first point of halved steps that rises enough, all within one orthant."""
        orthant = np.where(self.here == 0, np.sign(slope), np.sign(self.here))
        size = 1.0
        for _ in range(MAX_EVALUATIONS):
            point: Array = self.here + size * direction
            point = np.where((self.l1 > 0) & (point * orthant < 0), 0.0, point)
            point = np.maximum(point, self.least)
            rise = LEAST_RISE_SHARE * float(slope @ (point - self.here))
            if rise > 0 and self.at(point)[0] >= value + rise:
                return np.asarray(point)
            size /= 2
        return None


def _check(objective: Objective, model: Model) -> None:
    """Raise PgmError unless the objective and its gradient are exact, and parameters unbounded."""
    if bounded := noisy_or_floors(model.structure):
        raise PgmError(
            f"LBFGS: {next(iter(bounded))!r} belongs to noisy-or units, whose parameters have "
            "bounds that it does not keep; leave optimizer= out"
        )
    if objective.gradient(model).value is None:
        method = objective.method
        exact = objective.exact
        raise PgmError(
            "LBFGS needs an exact objective: "
            + (
                "take negative=pgm.ExactGradient() or pgm.PseudoGradient()"
                if exact
                else f"the data phase by {type(method).__name__} only estimates it; take an "
                "optimizer of mini-batches"
            )
        )


def direction_of(slope: Array, moments: Snapshot, metric: Array) -> Array:
    """Return H g by the two-loop recursion over the pairs, the last one first.

    It begins at a multiple of the diagonal matrix `metric`.
    """
    s, y = moments["s"], moments["y"]
    kept = [i for i in range(len(s)) if s[i].any()]
    if not kept:
        return metric * slope
    out, shares = slope.copy(), {}
    for i in kept:
        shares[i] = (s[i] @ out) / (s[i] @ y[i])
        out -= shares[i] * y[i]
    out *= metric * ((s[kept[0]] @ y[kept[0]]) / (y[kept[0]] @ (metric * y[kept[0]])))
    for i in reversed(kept):
        out += s[i] * (shares[i] - (y[i] @ out) / (s[i] @ y[i]))
    return out


def remember(moments: Snapshot, s: Array, y: Array) -> None:
    """Keep a pair as the first one, in place of the oldest, if its curvature is positive."""
    if s @ y > LEAST_CURVATURE_SHARE * (y @ y):
        for name, value in (("s", s), ("y", y)):
            moments[name][1:] = moments[name][:-1].copy()
            moments[name][0] = value


def concave(structure: Structure) -> bool:
    """Return whether the log-likelihood of complete data is concave: nothing is directed."""
    return not structure.arrows and not any(t.conditional for t in structure.tables)

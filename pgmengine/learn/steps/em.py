"""EM: counts of complete data, expected counts elsewhere, and the parameters that they determine.

An update has two steps. The E step takes the expected count N_jk of each entry of each conditional,
parents' states j and child's state k, given the rows at the present parameters. The M step makes

    p_jk = (1 - fixed probability of row j) (N_jk + a_jk) / sum over k of (N_jk + a_jk),

with the pseudocounts a, over the entries k that are not fixed. It maximises the expected complete
log-likelihood plus sum of a log p, so that the objective

    log-likelihood + sum over entries of a_jk log p_jk,

the log-posterior under Dirichlet priors with alpha = 1 + a, never falls (Dempster, Laird and Rubin
1977). With complete data the counts do not depend on the parameters: one update reaches the
maximum. Tables of several places that are one parameter have the sum of their counts and one prior,
and so have rows of a conditional that are one leaf. The numbers of a noisy gate are rows of
probabilities, too; their counts are expected numbers of contributions (model/forms/gate.py), which
depend on the parameters also where the data are complete.

Real children of arrows learn rows of inputs from sums in the place of counts
(model/terms/input_rows.py): a Normal child has the mean and the variance of its values in each
state of its parent. Its prior adds w values that deviate from the mean of the state by the standard
deviation s of the data, with w = ADDED_ROWS times the pseudocount,

    m = mean,  sigma^2 = (sum of (x - m)^2 + w s^2) / (N + w),

and the objective gains -w (log sigma + s^2 / (2 sigma^2)), which keeps deviations apart from 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from pgmengine.base.checks import amount, check_number, whole
from pgmengine.base.equal_rows import distinct
from pgmengine.base.errors import InternalError, PgmError, listed
from pgmengine.base.names import nearest
from pgmengine.base.types import Array, Params, Snapshot
from pgmengine.declare.model import Model
from pgmengine.evidence.target import Target
from pgmengine.learn.full_batch.fixed_rows import with_kept
from pgmengine.learn.full_batch.objective import Evaluation, Objective
from pgmengine.learn.full_batch.optimizer_contract import Ascended, FullBatch
from pgmengine.learn.starting.random_starts import begun
from pgmengine.model.containers import as_floats
from pgmengine.model.structure import Structure
from pgmengine.model.terms.input_rows import input_rows

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

# A fall of the objective beyond this share of its size is more than rounding.
MAX_FALL_SHARE = 1e-9
# Rows that a pseudocount of 1 adds to those of a real child in each state of its parent. They
# deviate from the mean of the state by the standard deviation of the data, so that a state with one
# value for itself keeps a tenth of it.
ADDED_ROWS = 0.01


@dataclass(frozen=True)
class EM(FullBatch):
    """Counts where data are complete, and expectation maximisation elsewhere.

    Use it to learn the conditionals of Bayesian networks, mixtures and hidden Markov models, also
    with missing values and latent variables. Conditionals are tables, and rows of arrows from a
    variable to Normal and Gaussian children. An update of the fit is one iteration on all rows;
    complete data need a single one. `fit` takes it by default where every parameter is such a
    conditional.

    Parameters
    ----------
    pseudocount : a number that is added to the count of each entry, or parameter -> array in the
        shape of the parameter (absent parameters have 0). 1 is the prior of Laplace. With 0 a row
        of a conditional without data keeps its present probabilities, and the fit says so.
        Entries that are 0 in the model are impossible and stay 0; a pseudocount above 0 in an array
        makes them possible again. For Normal children, 1 adds a hundredth of a row that deviates
        from the mean of a state as the data do from theirs, so that no standard deviation falls to
        0; an array has one number for each state then, the shape of the parameter without its last
        axis. 0 is maximum likelihood.
    tolerance : learning ends when the objective, the log-likelihood plus the logarithm of the
        prior, rises by at most so many nats a row in an update. `Fit.history["objective"]` has its
        values. With latent variables the objective can rise slowly for long, and then fast: a
        tolerance of 1e-4 ends many fits on such a plateau.
    starts : number of starts, of which the best after some updates goes on: the given parameters,
        and random changes of the conditionals of latent variables. By default 1, or 12 random ones
        if latent variables or their states are exchangeable, because EM could never tell them
        apart; only these change. A fit with few updates has fewer starts, as theirs count.

    Notes
    -----
    Weights of rows count as they are: a row of weight 2 counts as two rows. With `given` units,
    their parents must be given, too. Expected counts are exact where a junction tree fits, else
    estimates by the method of the data phase (`positive=` of fit), which `Fit.notes` says.

    Raises
    ------
    PgmError for settings out of their range; when learning starts, for a parameter that counts and
    sums do not determine, such as arrows of several parents to one real child, and for pseudocounts
    of unknown parameters, of other shapes, or below 0.

    References
    ----------
    Dempster, Laird and Rubin (1977), Maximum likelihood from incomplete data via the EM algorithm.
    Lauritzen (1995), The EM algorithm for graphical association models with missing data.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> b = pgm.GraphBuilder()
    >>> rain = b.variable("rain", states=("no", "yes"))
    >>> wet = b.variable("wet", states=("no", "yes"))
    >>> b.conditional("rain", (), [0.5, 0.5])
    >>> b.conditional("wet", ("rain",), [[0.5, 0.5], [0.5, 0.5]])
    >>> data = {"rain": ["no", "no", "yes", None], "wet": ["no", "yes", "yes", "yes"]}
    >>> f = pgm.fit(b.build(), data, optimizer=pgm.EM(pseudocount=0.5), progress=False)
    >>> round(pgm.infer(f.model).marginal("rain")["yes"], 2)
    0.4
    """

    counts_entries = True
    pseudocount: float | Mapping[str, ArrayLike] = 1.0
    tolerance: float = 1e-6
    starts: int | None = None

    def __post_init__(self) -> None:
        check_number(self, "tolerance")
        if self.starts is not None:
            whole("EM: starts", self.starts)
        if isinstance(self.pseudocount, Mapping):
            for name, added in self.pseudocount.items():
                check_counts(as_floats(added, f"EM: pseudocount {name!r}"), name)
        else:
            amount("EM: pseudocount", self.pseudocount)

    def start(self, params: Params) -> Snapshot:
        """Return no moments; PgmError for pseudocounts that do not fit the parameters."""
        for name, added in self._tables.items():
            if name not in params:
                raise PgmError(
                    f"EM: pseudocount of {name!r}, which is no parameter{nearest(name, params)}"
                )
            shape = np.shape(params[name])
            # Rows of inputs have one number each; `ascend` knows which parameters these are.
            if added.shape not in (shape, shape[:-1]):
                raise PgmError(
                    f"EM: pseudocount {name!r} has shape {added.shape}, expected "
                    f"{np.shape(params[name])}"
                )
        return {}

    def ascend(self, objective: Objective, model: Model, moments: Snapshot, t: int) -> Ascended:
        """Return the model after iteration t."""
        if t == 0:
            check_conditionals(objective.target, objective.given)
            self._check_shapes(objective)
            if input_rows(model.structure).units and not objective.exact:
                raise PgmError(
                    "EM: arrows to real children need exact expectations given the data, which "
                    f"{type(objective.method).__name__} only estimates; take another optimizer"
                )
        if objective.counted_once:
            model = self._maximised(objective, model)
            if input_rows(model.structure).units:
                # Deviations from the first means may have lost digits.
                model = self._maximised(objective, model)
            after = self._value(objective, model)
            self._tell(objective, model, after)
            return Ascended(model, after, "the data are complete, so that counting is enough")
        if t:
            return self._updated(objective, model, t, 0)
        found = begun(
            objective,
            model,
            objective.exchangeable(
                model, {k: x for k, x in self._tables.items() if k in model.structure.table_groups}
            ),
            self.starts,
            dict,
            lambda one, _: self._maximised(objective, one),
            lambda one: self._value(objective, one),
            self.tolerance,
        )
        return self._updated(objective, found.model, found.updates, found.updates)

    def _updated(self, objective: Objective, model: Model, t: int, made: int) -> Ascended:
        """Return the model after update t, of which some have been made by starts."""
        before = self._value(objective, model)
        model = self._maximised(objective, model)
        if not objective.exact:
            return Ascended(model, None, updates=made + 1)
        after = self._value(objective, model)
        assert before is not None and after is not None
        if after < before - MAX_FALL_SHARE * max(abs(before), 1.0):
            raise InternalError(
                f"update {t + 1}: the objective of EM fell from {before!r} to {after!r} nats a row"
            )
        self._tell(objective, model, after)
        close = after - before <= self.tolerance
        why = f"the objective rose by at most {self.tolerance:g} nats a row" if close else ""
        return Ascended(model, after, why, made + 1)

    @cached_property
    def _tables(self) -> dict[str, Array]:
        """The pseudocounts that are arrays, by parameter."""
        given = self.pseudocount
        if not isinstance(given, Mapping):
            return {}
        return {name: as_floats(x, f"EM: pseudocount {name!r}") for name, x in given.items()}

    def _check_shapes(self, objective: Objective) -> None:
        """Raise PgmError for pseudocounts in another shape than tables or rows of inputs have."""
        params, rows = objective.target.model.params, input_rows(objective.target.structure).units
        for name, added in self._tables.items():
            shape = np.shape(params[name])
            if added.shape != (expected := shape[:-1] if name in rows else shape):
                raise PgmError(
                    f"EM: pseudocount {name!r} has shape {added.shape}, expected {expected}"
                )

    def _added(self, key: str, logs: Array) -> Array:
        """Return the pseudocounts of a parameter; impossible entries get none from a number."""
        if isinstance(self.pseudocount, Mapping):
            return self._tables.get(key, np.zeros(logs.shape))
        return np.where(np.isneginf(logs), 0.0, self.pseudocount)

    def _total(self, key: str, counts: Mapping[str, Any], logs: Array) -> Array:
        """Return the counts of the entries of a parameter with its pseudocounts."""
        return np.asarray(np.maximum(counts[key], 0.0) + self._added(key, logs))

    def entry_counts(self, objective: Objective, model: Model) -> dict[str, Array]:
        """Return the counts, with pseudocounts, of the entries of tables, by parameter."""
        counts, tables = objective.counts(model).slopes, model.structure.table_groups
        return {key: self._total(key, counts, model.params[key]) for key in tables}

    def _prior(self, objective: Objective, key: str) -> tuple[Array, Array]:
        """Return weight and variance of the values that are added to those of rows of inputs."""
        shape = np.shape(objective.target.model.params[key])[:-1]
        if isinstance(self.pseudocount, Mapping):
            added = self._tables.get(key, np.zeros(shape))
        else:
            added = np.full(shape, float(self.pseudocount))
        # Places with a row for each state share their data.
        own = objective.moments[key]
        return ADDED_ROWS * added, np.expand_dims(own.variance, np.ndim(own.weight))

    def _value(self, objective: Objective, model: Model) -> float | None:
        """Return the log-likelihood plus the log prior, in nats a row; None if it is not known."""
        own: float | None = objective.recalled(
            model, id(self), lambda one: self._valued(objective, one)
        )
        return own

    def _valued(self, objective: Objective, model: Model) -> float | None:
        """Compute the value of a model."""
        found: Evaluation = objective.counts(model)
        if found.value is None:
            return None
        prior, s = 0.0, model.structure
        for t in model.structure.table_groups.values():
            logs = model.params[t.key]
            added = self._added(t.key, logs)
            # Entries that stay have no prior.
            some = (added > 0) & ~objective.fixed.get(t.key, np.False_)
            prior += float(added[some] @ logs[some])
        for key, unit in input_rows(s).units.items():
            own = unit.log_prior(np.asarray(model.params[key]), self._prior(objective, key))
            prior += float(np.sum(own))
        return found.value + prior / objective.total

    def _tell(self, objective: Objective, model: Model, value: float | None) -> None:
        """Note how much of the objective is the log-likelihood, if there is a prior."""
        likelihood = objective.counts(model).value
        if likelihood is not None and value != likelihood:
            objective.notes["prior"] = (
                f"the objective is the log-likelihood of the rows, {likelihood:.6g} nats a row, "
                "plus the logarithm of the prior (pseudocount=)"
            )

    def _maximised(self, objective: Objective, model: Model) -> Model:
        """Return the model after the M step."""
        counts, params = objective.counts(model).slopes, dict(model.params)
        kept: dict[str, int] = {}
        for key, unit in input_rows(model.structure).units.items():
            zeta, prior = np.asarray(model.params[key]), self._prior(objective, key)
            stays = np.broadcast_to(objective.fixed.get(key, np.False_), zeta.shape)
            params[key] = unit.refitted(zeta, counts[key], prior, stays)
            bare = ~stays.all(axis=-1) & (counts[key][..., 0] + prior[0] <= 0)
            if empty := int(np.count_nonzero(bare)):
                kept[key] = empty
        for t in model.structure.table_groups.values():
            logs = model.params[t.key]
            fixed = objective.fixed.get(t.key)
            total = self._total(t.key, counts, logs)
            params[t.key] = with_kept(logs, total, fixed)
            free = total if fixed is None else np.where(fixed, 1.0, total)
            # A row with one possible state learns nothing from any data.
            learns = np.isfinite(logs).sum(axis=-1) > 1
            if empty := int(np.count_nonzero(learns & ~free.any(axis=-1))):
                kept[t.key] = empty
        _tell_of_kept(objective, kept)
        return Model(model.structure, params)


def _tell_of_kept(objective: Objective, kept: Mapping[str, int]) -> None:
    """Note how many rows of each parameter have no data, and stay as they are."""
    if not kept:
        objective.notes.pop("rows without data", None)
        return
    names = listed([repr(key) for key in kept])
    objective.notes["rows without data"] = (
        f"{sum(kept.values())} rows of {names} have no data and no pseudocounts, and stay as they "
        "are"
    )


def check_counts(added: Array, name: str) -> None:
    """Raise PgmError unless pseudocounts are finite numbers from 0 up."""
    bad = ~(np.isfinite(added) & (added >= 0))
    if bad.any():
        at = np.argwhere(bad)[0].tolist()
        raise PgmError(
            f"EM: pseudocount {name!r}: entry {at} is {added[tuple(at)]}, expected a finite number "
            "of at least 0"
        )


def counting_suffices(target: Target, given: Mapping[str, Array]) -> bool:
    """Return whether EM can learn all parameters."""
    try:
        check_conditionals(target, given)
    except PgmError:
        return False
    return bool(target.structure.tables or input_rows(target.structure).units)


def check_conditionals(target: Target, given: Mapping[str, Array]) -> None:
    """Raise PgmError unless counting maximises the likelihood of all units that are not given."""
    if why := not_counted(target, given):
        raise PgmError(
            f"EM: {why}; EM counts the entries of conditionals: take optimizer=pgm.LBFGS(), or "
            "leave optimizer= out"
        )
    s = target.structure
    for name in s.layers:
        known = np.asarray(given.get(name, np.False_))
        hidden = np.asarray(known & distinct(target.free[name]).any(axis=0))
        if hidden.any():
            what = s.names.described(name, hidden)
            raise PgmError(f"EM: {what} is given, but some rows do not observe it")


def not_counted(target: Target, given: Mapping[str, Array]) -> str:
    """Return why counting would not maximise the likelihood; "" if it does."""
    s = target.structure
    for t in s.tables:
        if not t.conditional:
            return f"{t.key!r} is not the table of a conditional"
    rows = input_rows(s)
    for term in s.shared:
        if term.directed and term.key not in rows.units:
            return f"{term.key!r} are arrows whose best weights are no sums over the data"
        if not (term.directed or term.is_bias):
            return f"{term.key!r} is a coupling"
    for c in s.weighted:
        return f"{c.key!r} is a coupling"
    for name in s.layers:
        known = np.asarray(given.get(name, np.False_))
        summed = rows.layers[name].first >= 0 if name in rows.layers else np.False_
        bare = np.asarray((s.child_tables[name] < 0) & ~summed & ~known)
        if bare.any():
            return f"{s.names.described(name, bare)} has no conditional"
    return _parents_not_given(s, given)


def _parents_not_given(s: Structure, given: Mapping[str, Array]) -> str:
    """Return which given unit has a parent that is not, whose conditional would not count."""
    none = {name: np.zeros(layer.size, dtype=bool) for name, layer in s.layers.items()}
    index, known = s.table_index, np.concatenate([*(none | dict(given)).values()])
    pairs = [np.stack([index.child[index.table], index.unit])]
    for name, own in input_rows(s).layers.items():
        pairs.append(np.stack([np.arange(s.units)[s.slices[name]], own.parent]))
    below, above = np.concatenate(pairs, axis=1)
    free = (above >= 0) & known[below] & ~known[above]
    if not free.any():
        return ""
    first = int(np.flatnonzero(free)[0])
    child, parent = (repr(s.names.of(s.names.at(int(units[first])))) for units in (below, above))
    return (
        f"{child} is given, and its parent {parent} is not, so that counting does not maximise the "
        "conditional likelihood (give the parent, too)"
    )

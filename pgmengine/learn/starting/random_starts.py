"""Random starts of learning, of which the best one after some updates goes on.

Random starts are needed where learning could never tell states or units apart (exchangeable.py):
they differ from the given start in the numbers that it would keep alike, and in nothing else. They
also help where the likelihood has several maxima: a number of starts that the user has given
changes all that latent units have to learn. Again and again, the better half of the starts goes on
for twice as many updates, or until it has converged. Their updates are updates of the fit: there
are fewer starts where the fit has few updates, and Ctrl-C ends it with the best model so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from pgmengine.base.equal_rows import distinct
from pgmengine.base.errors import listed
from pgmengine.base.types import Array, Params, Snapshot, Weight
from pgmengine.declare.model import Model
from pgmengine.evidence.target import Target
from pgmengine.learn.full_batch.counting import Moments
from pgmengine.learn.full_batch.fixed_rows import with_kept
from pgmengine.learn.full_batch.objective import Objective
from pgmengine.learn.starting.symmetry import Symmetry, latent_units
from pgmengine.model.structure import first_of
from pgmengine.model.tables import normalised
from pgmengine.model.terms.input_rows import rows_of_inputs
from pgmengine.model.weights import is_sparse, like, numbers
from pgmengine.units import Unit

# The first words of the note of a fit that has tried several starts.
BEST_OF = "began at the best of"

# Random starts where the one that was given cannot be left, and the updates after which the better
# half of any starts goes on, for twice as many. Of 96 fits of hidden Markov models of three to six
# states by EM, 7 miss the best fit, 1 with fifty starts, and 16 with a single one (em_starts.py).
RANDOM_STARTS, UPDATES_OF_A_START = 12, 5
# The largest share of the updates of a fit that its starts take.
MOST_UPDATES_SHARE = 0.5
# Standard deviation of the random changes of the logarithms of entries of tables.
CHANGE_OF_LOGS = 1.0

# Makes an update of a model; the moments of the optimizer change in place.
Update = Callable[[Model, Snapshot], Model]


@dataclass(frozen=True, eq=False)
class Begun:
    """The model at which learning begins, the moments of the optimizer there, and the updates made.

    `updates` counts those of all starts.
    """

    model: Model
    moments: Snapshot
    updates: int = 0


def begun(
    objective: Objective,
    model: Model,
    symmetry: Symmetry,
    starts: int | None,
    moments: Callable[[], Snapshot],
    update: Update,
    value: Callable[[Model], float | None],
    tolerance: float = -math.inf,
) -> Begun:
    """Return where learning begins: at the model itself, or at the best of several starts.

    A note says so.

    Parameters
    ----------
    objective : the rows.
    model : the given start.
    symmetry : the numbers that learning could never tell apart.
    starts : the number of starts; by default 1, or RANDOM_STARTS if there are such numbers.
    moments : makes the moments before the first update.
    update : makes an update.
    value : returns the objective at a model.
    tolerance : a start has converged when the objective rises by at most so much in an update.
    """
    masks, stuck = symmetry.masks, bool(symmetry.masks)
    wanted = starts or (RANDOM_STARTS if stuck else 1)
    # Starts are compared by their objective.
    wanted = wanted if objective.exact else 1
    count = _affordable(wanted, objective.allowance.updates)
    if count == 1 and not stuck:
        return Begun(model, moments())
    if not stuck:
        masks = masks_of_latents(objective, model)
    first = [] if stuck else [model]
    begins = first + [
        changed(model, objective.target, objective.moments, masks, objective.fixed, objective.rng)
        for _ in range(count - len(first))
    ]
    interrupted = objective.allowance.interrupted
    each = [(one, moments()) for one in begins]
    best, updates, made = _best(each, update, value, interrupted, tolerance)
    objective.notes["starts"] = _note(count, wanted, updates, symmetry)
    return Begun(*best, made)


def _affordable(wanted: int, left: int) -> int:
    """Return how many of the wanted starts can be made by a share of the updates that are left."""
    while wanted > 1 and _updates_of(wanted) > MOST_UPDATES_SHARE * left:
        wanted -= 1
    return wanted


def _updates_of(starts: int) -> int:
    """Return the number of updates that some starts make until one of them is left."""
    updates, made = UPDATES_OF_A_START, 0
    while starts > 1:
        made += starts * updates
        starts, updates = starts // 2, 2 * updates
    return made


def _note(count: int, wanted: int, updates: int, symmetry: Symmetry) -> str:
    """Return a sentence about the starts that were made."""
    kind = "random starts" if symmetry.masks else "starts"
    made = f", after {updates} updates of it" if updates else ""
    fewer = f" ({wanted} would take too many of the updates)" if count < wanted else ""
    return f"{BEST_OF} {count} {kind}{fewer}{made}{why_changed(symmetry)}"


def why_changed(symmetry: Symmetry) -> str:
    """Return why the given start is changed, in words; empty if nothing is exchangeable."""
    units, states = listed(symmetry.units, " and "), listed(symmetry.states)
    if not symmetry.masks:
        return ""
    if not units:
        return f", because states of {states} are exchangeable"
    also = f", and so are states of {states}" if states else ""
    return f", because {units} are exchangeable{also}"


def _best(
    starts: list[tuple[Model, Snapshot]],
    update: Update,
    value: Callable[[Model], float | None],
    interrupted: Callable[[], bool],
    tolerance: float = -math.inf,
) -> tuple[tuple[Model, Snapshot], int, int]:
    """Return the best start after some updates, the number of its updates, and that of all."""
    updates, made, whole, settled = UPDATES_OF_A_START, 0, 0, set[int]()
    while len(starts) > 1:
        values = np.full(len(starts), np.nan)
        for i, (model, moments) in enumerate(starts):
            for _ in range(updates if id(moments) not in settled else 0):
                if interrupted():
                    # Those that have made their updates of this round come first; without any, the
                    # starts are in the order of the last round.
                    best = int(np.argsort(-values, kind="stable")[0])
                    return starts[best], made, whole
                before = value(model) if tolerance >= 0 else None
                model, whole = update(model, moments), whole + 1
                # The value is computed from the expectations that the next update needs.
                after = value(model) if tolerance >= 0 else None
                if before is not None and after is not None and after - before <= tolerance:
                    settled.add(id(moments))
                    break
            starts[i] = model, moments
            values[i] = value(model)
        kept = np.argsort(-values, kind="stable")[: len(starts) // 2]
        made += updates
        starts, updates = [starts[i] for i in kept], 2 * updates
    return starts[0], made, whole


def changed(
    model: Model,
    target: Target,
    moments: Mapping[str, Moments],
    masks: Mapping[str, Array],
    fixed: Mapping[str, Array],
    rng: np.random.Generator,
) -> Model:
    """Return the model with random changes of some numbers of its parameters.

    Fixed entries, entries of tables that are 0, and rows of conditionals without such numbers stay
    as they are. `masks` says which numbers change, by parameter; biases stay. `moments` are those
    of the data of real children.
    """
    s, out = model.structure, dict(model.params)
    for key, mask in masks.items():
        kept = fixed.get(key)
        if key in s.table_groups:
            out[key] = _changed_table(model, key, mask, kept, rng)
        elif key in s.weight_names:
            mask = mask if kept is None else mask & ~kept
            noise = _change_of_weight(model, target, moments, key, rng)
            more = like(noise, np.where(mask.ravel(), numbers(noise), 0.0))
            for c in s.weighted:
                more = c.projected(out[key], more) if f"{c.key}.weight" == key else more
            out[key] = like(out[key], numbers(out[key]) + numbers(more))
    return Model(s, out)


def _sizes_of_rows(unit: Unit, own: Moments, between: tuple[int, ...]) -> Array:
    """Return the changes of inputs with these data, (leading axes, *between, width)."""
    wide = np.sqrt(own.variance).reshape(own.weight.size, -1)
    sizes = [unit.input_sizes(np.resize(each, unit.width)) for each in wide]
    return np.reshape(sizes, (*own.weight.shape, *between, unit.width))


def _changed_table(
    model: Model, key: str, mask: Array, kept: Array | None, rng: np.random.Generator
) -> Array:
    """Return the logarithms of a table, some of them changed at random."""
    t, logs = model.structure.table_groups[key], np.asarray(model.params[key])
    moved = logs + np.where(mask, CHANGE_OF_LOGS * rng.standard_normal(logs.shape), 0.0)
    if not t.conditional:
        return moved if kept is None else np.where(kept, logs, moved)
    found = with_kept(logs, np.exp(normalised(t, moved)), kept)
    return np.where(mask.any(axis=-1, keepdims=True), found, logs)


def _change_of_weight(
    model: Model, target: Target, moments: Mapping[str, Moments], key: str, rng: np.random.Generator
) -> Weight:
    """Return random changes of the weights between latent units and others.

    Their size is such that the mean of a unit at the other end moves by about the standard
    deviation of its data.
    """
    s = model.structure
    unit = rows_of_inputs(s).get(key)
    if unit is not None and key in moments:
        # Rows of one place, or of several that share them, have data of their own.
        noise = rng.standard_normal(np.shape(model.params[key]))
        return noise * _sizes_of_rows(unit, moments[key], (1,))
    one, two = s.parameters[key].layers
    at_second = bool(np.asarray(distinct(target.free[one]).all(axis=0)).any())
    value, size = model.params[key], _size(target, two if at_second else one)
    noise = rng.standard_normal(numbers(value).shape)
    # The components of a unit of several follow each other in the columns.
    by_unit = noise.reshape(-1, len(size)) if at_second else noise[:, None]
    return like(value, (by_unit * (size if at_second else size.mean())).ravel())


def masks_of_latents(objective: Objective, model: Model) -> Params:
    """Return masks of all entries of tables and weights of latent units and of their children."""
    target, s = objective.target, model.structure
    latent, index = latent_units(target), s.table_index
    out, first = dict[str, Array](), 0
    for t in s.tables:
        axes = index.unit[index.start[first] : index.start[first + len(t.index)]]
        first += len(t.index)
        if latent[axes].any():
            out[t.key] = np.ones(np.shape(model.params[t.key]), dtype=bool)
    some = {name: latent[own] for name, own in s.slices.items()}
    for c in s.weighted:
        one, two = some[c.a], some[c.b] & (not c.directed)
        rows, columns = s.layers[c.a].components(one), s.layers[c.b].components(two)
        weight = model.params[f"{c.key}.weight"]
        if is_sparse(weight):
            at = weight.tocoo()
            out[f"{c.key}.weight"] = rows[at.row] | columns[at.col]
        else:
            out[f"{c.key}.weight"] = rows[:, None] | columns
    for key, term in first_of(s.shared).items():
        if not term.is_bias:
            ends = some[term.layers[0]], some[term.layers[1]] & (not term.directed)
            whole = any(units.any() for units in ends)
            out[key] = np.full(np.shape(model.params[key]), whole)
    return {key: mask for key, mask in out.items() if mask.any()}


def _size(target: Target, name: str) -> Array:
    """Return the changes of the inputs (components of a unit,) for a random start of a layer.

    They are those of `Unit.input_sizes`; for inputs that have no distribution the change moves
    their product by about 1.
    """
    layer, values = target.structure.layers[name], target.evidence.values[name]
    free = np.broadcast_to(layer.components(target.free[name]), values.shape)
    parts = [
        values[:, i :: layer.unit.width][~free[:, i :: layer.unit.width]]
        for i in range(layer.unit.width)
    ]
    spread = np.array([np.std(part) if len(part) else 0.0 for part in parts])
    if layer.unit.observed_only:
        return 1.0 / np.where(spread > 0, spread, 1.0)
    return layer.unit.input_sizes(spread)

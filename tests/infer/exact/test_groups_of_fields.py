"""Tables that are functions of a field, which groups of units compute, against plain sums."""

import functools
import math
from itertools import product

import numpy as np
import pytest
from tiny import as_evidence, draw_row, tiny_model

import pgmengine as pgm
from pgmengine.infer.exact.junction_tree import marginalised
from pgmengine.infer.exact.junction_tree.conditioned_model import Form, condition
from pgmengine.infer.exact.junction_tree.marginalised import ChildTerm, InfiniteTerm

CLOSE = {"rtol": 1e-11, "atol": 1e-11}
SEEDS, ROWS = range(8), 3
PARENTS = {
    "a": (pgm.Binary(), 3),
    "b": (pgm.Categorical(3), 3),
    "s": (pgm.Spin(), 2),
    "m": (pgm.MultiValued(3), 2),
}
CHILDREN = {
    "c": (pgm.Categorical(4), 3),
    "d": (pgm.Binary(), 3),
    "g": (pgm.Gaussian(0.7), 4),
    "i": (pgm.MultiValued(math.inf), 3),
    "n": (pgm.NoisyOr(), 3),
}
COUPLED = {"u": (pgm.Gaussian(0.8), 3), "w": (pgm.MultiValued(math.inf), 2)}
# Names in an order that puts layers of different kinds beside each other in the scopes.
ARROWS = [(p, c) for c in "cdgi" for p in "mbsa"] + [("b", "n"), ("a", "n"), ("d", "g")]
PAIRS = [("a", "b"), ("s", "s"), *((p, u) for u in "uw" for p in "bas")]
every_seed = pytest.mark.parametrize("seed", SEEDS)
every_beta = pytest.mark.parametrize("beta", [1.0, 0.6])


@pytest.fixture(params=[2**18, 16], ids=["together", "in parts"], autouse=True)
def at_once(request, monkeypatch):
    """Groups whose units are all computed together, or a few at a time."""
    monkeypatch.setattr(marginalised, "MAX_AT_ONCE", request.param)


@functools.lru_cache(maxsize=4)
def question(seed):
    """A model, and rows of evidence that observe the same units, which differ within layers."""
    rng = np.random.default_rng(seed)
    m = tiny_model(
        f"groups {seed}",
        PARENTS | CHILDREN | COUPLED,
        [pair for pair in PAIRS if rng.random() < 0.7],
        [arrow for arrow in ARROWS if rng.random() < 0.7 or arrow[1] in "in"],
        sparse=bool(seed % 2),
        keep=0.6,
    )
    seen = as_evidence(m, [draw_row(m, rng, 1.0) for _ in range(ROWS)])
    for x in m.layers:
        share = 1.0 if x.name in "g" and seed % 3 else 0.5
        seen[x.name][:, rng.random(x.size) > share] = np.nan
    return m.build(), seen


def target_of(seed, beta):
    model, seen = question(seed)
    # Free leaves sum to one only at beta = 1.
    leaves = ("g", "i") if beta < 1 else ()
    seen = {name: np.where(np.isnan(x) & (name in leaves), 0.1, x) for name, x in seen.items()}
    return model.given(seen, beta=beta)


def joint_states(target, scope):
    """Complete flat values (rows, width) of all layers at each joint state of some free units."""
    s, free = target.structure, target.pattern.free
    places = [(x, u) for x in s.layers.values() for u in range(x.size) if free_unit(x, free, u)]
    some = [places[number] for number in scope]
    for values in product(*(layer.unit.support for layer, _ in some)):
        x = {name: np.array(value) for name, value in target.evidence.values.items()}
        for (layer, unit), value in zip(some, values, strict=True):
            x[layer.name][:, layer.columns(np.array([unit]))] = value
        yield x


def free_unit(layer, free, unit):
    return layer.unit.support is not None and free[layer.name][0, unit]


def dense(weight):
    return np.asarray(weight.todense() if hasattr(weight, "todense") else weight)


def zeta(target, x, name, columns):
    """The bias of a child, plus the values of its parents times their weights."""
    model = target.model
    arrows = [c for c in target.structure.couplings if c.directed and c.b == name]
    own = np.tile(model.bias(name), (target.rows, 1))
    return sum((x[c.a] @ dense(model.weight(c)) for c in arrows), own)[:, columns]


def eta(target, x, name, columns):
    """The bias of a unit, plus the values of its neighbours times their weights, times beta."""
    model, found = target.model, np.tile(target.model.bias(name), (target.rows, 1))
    for c in target.structure.couplings:
        if not c.directed and name in (c.a, c.b):
            weight = dense(model.weight(c))
            found = found + (x[c.b] @ weight.T if c.a == name else x[c.a] @ weight)
    return target.beta[0] * found[:, columns]


def shaped(layer, values):
    return values if layer.unit.width > 1 else values[..., 0]


def child_entry(target, layer, unit, x):
    """beta [log p(x | zeta) - log h(x)] of a child, (rows,); at beta = 1 reals have no log h."""
    columns = layer.columns(np.array([unit]))
    value = shaped(layer, x[layer.name][:, columns])
    field = shaped(layer, zeta(target, x, layer.name, columns))
    logs = layer.unit.log_conditional(value, field)
    whole = layer.unit.support is None and target.beta[0] == 1
    return target.beta[0] * (logs if whole else logs - layer.unit.log_h(value))


def summed_entry(target, layer, unit, x, leaf):
    """The log of the sum over a unit with infinitely many values; its difference if quadratic."""
    if leaf:
        return np.zeros(target.rows)
    columns = layer.columns(np.array([unit]))
    logs = layer.unit.log_normalizer(eta(target, x, layer.name, columns)[:, 0])
    if layer.unit.curvature is None:
        return logs
    alone = eta(target, target.evidence.values, layer.name, columns)[:, 0]
    return logs - layer.unit.log_normalizer(alone)


def largest_entry(target, layer, unit, x, leaf):
    """The largest log weight of such a unit."""
    if layer.unit.curvature is not None:
        return summed_entry(target, layer, unit, x, leaf)
    columns = layer.columns(np.array([unit]))
    field = (zeta if leaf else eta)(target, x, layer.name, columns)[:, 0]
    top = layer.unit.max_log_weight(field)
    return top - layer.unit.log_normalizer(field) if leaf else top


def terms_of(target, kind):
    return condition(target.take(np.zeros(1, dtype=int)), Form()).places(kind)


def check_entries(target, term, units, found, entry):
    """Compare all entries of a term, unit by unit in the order of its scopes."""
    layer, place = target.structure.layers[term.name], 0
    assert len(units) == len(term.scopes)
    found = np.broadcast_to(found, (len(found), target.rows))
    for i, unit in enumerate(units):
        scope = term.scopes.scope[term.scopes.start[i] : term.scopes.start[i + 1]]
        for x in joint_states(target, scope):
            np.testing.assert_allclose(found[place], entry(target, layer, unit, x), **CLOSE)
            place += 1
    assert place == len(found)


@every_seed
@every_beta
def test_entries_of_children(seed, beta):
    target = target_of(seed, beta)
    terms = terms_of(target, ChildTerm)
    assert terms
    for term, _ in terms:
        layer = target.structure.layers[term.name]
        given = np.ones(layer.size, dtype=bool)
        if layer.unit.support is None:
            given = ~target.free[term.name][0]
        check_entries(target, term, np.flatnonzero(given), term.values(target), child_entry)


@every_seed
@every_beta
def test_entries_of_units_with_infinitely_many_values(seed, beta):
    target = target_of(seed, beta)
    for term, _ in terms_of(target, InfiniteTerm):
        units = np.flatnonzero(target.free[term.name][0])
        for found, entry in (
            (term.values(target), summed_entry),
            (term.largest(target), largest_entry),
        ):
            check_entries(target, term, units, found, functools.partial(entry, leaf=term.leaf))


def test_the_models_reach_groups_of_many_kinds():
    """Several groups in a term, several units in a group, free and observed units of a layer."""
    terms = [
        t for seed in SEEDS for t, _ in terms_of(target_of(seed, 1.0), (ChildTerm, InfiniteTerm))
    ]
    assert {t.name for t in terms} >= {*CHILDREN, *COUPLED}
    assert any(t.leaf for t in terms if isinstance(t, InfiniteTerm))
    assert max(len(t.groups) for t in terms) > 2
    assert max(len(g.units) for t in terms for g in t.groups) > 2
    assert max(len({n.layer for n in g.near}) for t in terms for g in t.groups) > 2
    assert any(len({g.states > 0 for g in t.groups}) == 2 for t in terms)
    # Units of the first group come after units of another one.
    assert any(np.any(np.diff(np.concatenate([g.first for g in t.groups])) < 0) for t in terms)


@every_seed
@every_beta
def test_expectations_are_those_of_enumeration(seed, beta):
    target, want = target_of(seed, beta), ("log_z", "marginals", "pairs", "gradient")
    found = pgm.Elimination().run(target, want)
    plain = pgm.Enumeration().run(target, want)
    np.testing.assert_allclose(found.log_z, plain.log_z, **CLOSE)
    for kind in ("mean", "pairs", "gradient"):
        numbers, others = getattr(found, kind), getattr(plain, kind)
        assert numbers.keys() == others.keys()
        for name, value in numbers.items():
            np.testing.assert_allclose(dense(value), dense(others[name]), err_msg=name, **CLOSE)


def test_a_unit_with_very_many_joint_states_of_neighbours_is_refused(*, parents=1100):
    """The number of states exceeds the largest float."""
    b = pgm.GraphBuilder()
    b.layer("a", pgm.Binary(), parents)
    b.layer("c", pgm.Binary(), 1)
    b.cause("a", "c", weight=np.ones((parents, 1)))
    with pytest.raises(pgm.PgmError, match=f"unit 0 of layer 'c' has {parents} free neighbours"):
        pgm.infer(b.build(), {"c": [1]}, method=pgm.Elimination())

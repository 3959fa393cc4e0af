"""Learning refuses where the methods of its two phases would: a gradient without a bound or a chain
is no gradient.
"""

import math

import numpy as np
import pytest
from registry import FEW_CHAINS

import pgmengine as pgm
from pgmengine.engine.chains import make_chains, start

SAMPLED = [FEW_CHAINS[name] for name in FEW_CHAINS if name != "exact"]
ENDLESS = pytest.mark.parametrize("unit", [pgm.MultiValued(math.inf), pgm.Gaussian()], ids=repr)
ROWS = np.clip(np.random.default_rng(0).normal(size=(8, 2)), -1, 1)


def model_of(layers, couples=(), causes=()):
    b = pgm.GraphBuilder()
    for name, unit, size in layers:
        b.layer(name, unit, size)
    for pair in couples:
        b.couple(*pair)
    for pair in causes:
        b.cause(*pair)
    return b.build(rng=0)


def test_no_bound_no_gradient():
    model = model_of(
        [("h", pgm.Binary(), 3), ("v", pgm.MultiValued(math.inf), 2)], causes=[("h", "v")]
    )
    with pytest.raises(
        pgm.PgmError, match="MeanField refused: there is no such bound for layer 'v'"
    ):
        pgm.fit(model, {"v": ROWS}, positive=pgm.MeanField(), updates=2, progress=False)
    pgm.fit(model, {"v": ROWS}, positive=pgm.Exact(), updates=2, progress=False)
    pgm.fit(model, {"v": ROWS}, updates=2, progress=False)


@ENDLESS
def test_tables_need_finitely_many_values(unit):
    model = model_of(
        [("g", unit, 1), ("a", pgm.Binary(), 2), ("v", pgm.Binary(), 2)],
        causes=[("g", "v"), ("a", "v")],
    )
    with pytest.raises(
        pgm.PgmError, match="MeanField refused: layer 'g' is free and has infinitely many values"
    ):
        pgm.fit(model, {"v": ROWS > 0}, positive=pgm.MeanField(), updates=2, progress=False)


@ENDLESS
@pytest.mark.parametrize("negative", SAMPLED, ids=lambda n: type(n).__name__)
def test_model_phases_need_conditionals_that_can_be_drawn(unit, negative):
    layers = [("a", unit, 1), ("b", pgm.Binary(), 2), ("c", pgm.Binary(), 2)]
    model = model_of(layers, couples=[("a", "b"), ("b", "c")], causes=[("a", "c")])
    data = {"a": ROWS[:, :1], "b": ROWS > 0, "c": ROWS < 0}
    with pytest.raises(pgm.PgmError, match="layer 'a' has .* free and have directed children"):
        pgm.fit(model, data, negative=negative, updates=2, progress=False)
    given = pgm.fit(model, data, given=("a",), negative=pgm.CD(), updates=2, progress=False)
    assert given.state["update"] == 2


@ENDLESS
def test_a_parent_of_what_nothing_is_known_about_moves_all_the_same(unit):
    layers = [("a", unit, 1), ("b", pgm.Binary(), 2), ("c", pgm.Binary(), 2)]
    model = model_of(layers, couples=[("a", "b")], causes=[("a", "c")])
    data = {"a": ROWS[:, :1], "b": ROWS > 0, "c": ROWS < 0}
    assert (
        pgm.fit(model, data, negative=pgm.PCD(chains=5), updates=2, progress=False).state["update"]
        == 2
    )


def test_chains_are_not_made_where_they_cannot_be_swept():
    model = model_of([("a", pgm.Gaussian(), 1), ("c", pgm.Binary(), 2)], causes=[("a", "c")])
    target, rng = model.given({"c": [0, 1]}), np.random.default_rng(0)
    with pytest.raises(pgm.PgmError, match="layer 'a' has Gaussian"):
        make_chains(target, pgm.Gibbs(), start(target, rng), rng)

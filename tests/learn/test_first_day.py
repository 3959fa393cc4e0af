"""What a first day with learning turned up: each was silently wrong, or ended in an error of
another library.
"""

import logging
from functools import partial

import numpy as np
import pytest

import pgmengine as pgm

X = pgm.datasets.bars_and_stripes().x_train


def test_classes_know_the_columns_of_frames_by_name():
    pd = pytest.importorskip("pandas")
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Binary(), 3, labels=["a", "b", "c"])
    b.layer("h", pgm.Binary(), 2)
    b.couple("v", "h")
    rows = np.random.default_rng(0).integers(0, 2, (80, 3))
    frame, y = pd.DataFrame(rows, columns=["a", "b", "c"], index=range(500, 580)), rows[:, 0]
    learn = partial(pgm.fit, updates=100, optimizer=pgm.Adam(0.05), progress=False)
    model = pgm.GenerativeClassifier(b.build(rng=0), learn).fit(frame, y)
    assert model.score(frame, y) == model.score(frame[["c", "b", "a"]], y) > 0.9
    np.testing.assert_array_equal(model.log_prob(frame), model.log_prob(frame[["b", "c", "a"]]))
    np.testing.assert_array_equal(model.log_prob(frame), model.log_prob(rows))


@pytest.mark.parametrize("kind", [pgm.CAST, pgm.TransSAP, pgm.AdaptiveSAP])
def test_a_ladder_in_numbers_is_that_of_these_settings(kind):
    first = pgm.fit(
        pgm.rbm(16, 3, rng=0), {"v": X}, negative=kind(betas=[0.5, 0.7, 1.0]), updates=2
    )
    for betas, expected in (([0.9, 0.95, 1.0], [0.9, 0.95, 1.0]), (pgm.Linear(3), [0.5, 0.7, 1.0])):
        more = pgm.fit(
            first.model, {"v": X}, negative=kind(betas=betas), updates=4, state=first.state
        )
        np.testing.assert_array_equal(more.state["negative//betas"], expected)
    with pytest.raises(pgm.PgmError, match="of another fit"):
        pgm.fit(
            first.model, {"v": X}, negative=kind(betas=[0.5, 1.0]), updates=4, state=first.state
        )


def test_a_state_without_its_model_is_noticed(caplog):
    model = pgm.rbm(16, 3, rng=0)
    first = pgm.fit(model, {"v": X}, updates=5)
    with caplog.at_level(logging.WARNING, logger="pgmengine"):
        pgm.fit(first.model, {"v": X}, updates=6, state=first.state)
        assert not caplog.records
        pgm.fit(model, {"v": X}, updates=6, state=first.state)
    assert "ended with other parameters" in caplog.text


def test_nothing_to_learn_is_refused():
    drbm, x = pgm.drbm(3, 2, 2, rng=0), np.zeros((4, 3))
    for model, data, given, why in (
        (pgm.rbm(16, 3, rng=0), {"v": X}, ("v",), "all layers with data are given"),
        (drbm, {"x": x}, ("x",), "all layers with data are given"),
        (drbm, {"x": x, "y": np.full((4, 1), np.nan)}, ("x",), "all layers with data are given"),
        (pgm.rbm(16, 3, rng=0), {"v": np.full((4, 16), np.nan)}, (), "no value is known"),
    ):
        with pytest.raises(pgm.PgmError, match=f"nothing to learn: {why}"):
            pgm.fit(model, data, given=given, updates=1)


class Own:
    """An optimizer of a user's own, which returns what it is told to."""

    def __init__(self, change):
        self.change = change

    def start(self, params):
        return {}

    def step(self, structure, params, gradient, state, t):
        return self.change(dict(params))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda p: {k: v * np.nan for k, v in p.items()}, "update 1: step of Own: .*nan"),
        (
            lambda p: {"v.bias": p["v.bias"]},
            r"update 1: step of Own returned \['v.bias'\], expected",
        ),
        (lambda p: p | {"h.bias": np.zeros(7)}, "update 1: step of Own: .*7"),
        (lambda p: None, "update 1: step of Own returned NoneType, expected"),
    ],
)
def test_what_an_optimizer_of_ones_own_returns_is_checked(change, match):
    with pytest.raises(pgm.PgmError, match=match):
        pgm.fit(pgm.rbm(16, 3, rng=0), {"v": X}, optimizer=Own(change), updates=1)
    same = pgm.fit(pgm.rbm(16, 3, rng=0), {"v": X}, optimizer=Own(lambda p: p), updates=1)
    np.testing.assert_array_equal(
        same.model.params["v-h.weight"], pgm.rbm(16, 3, rng=0).params["v-h.weight"]
    )


def test_a_reason_to_stop_is_text_and_a_negative_phase_says_its_precision():
    class Stop:
        def __call__(self, model, update):
            return {"count": update}

        def stops(self, history):
            return history["count"][-1] == (3, 3.0)

    found = pgm.fit(pgm.rbm(16, 3, rng=0), {"v": X}, callbacks=[Stop()], updates=9)
    assert found.state["update"] == 3
    assert found.stopped == "Stop ended it"

    class Phase:
        def start(self, given, rng):
            raise AssertionError

    with pytest.raises(pgm.PgmError, match="Phase must say in `precision`"):
        pgm.fit(pgm.rbm(16, 3, rng=0), {"v": X}, negative=Phase(), updates=1)


def test_small_errors_are_named():
    with pytest.raises(pgm.PgmError, match="fit itself and a callback say 'weight_norm'"):
        pgm.fit(
            pgm.rbm(16, 3, rng=0),
            {"v": X},
            callbacks=[lambda model, update: {"weight_norm": 7.0}],
            updates=1,
        )
    with pytest.raises(pgm.PgmError, match="data: layer 'v', row 1, index 0: 2.0 is not a value"):
        pgm.base_rate_start(pgm.rbm(2, 2, rng=0), {"v": [[0, 1], [2, 1]]})


def test_one_unit_may_have_its_rows_in_a_vector():
    model = pgm.rbm(1, 2, rng=0)
    one, two = (
        pgm.base_rate_start(model, {"v": np.reshape([0, 1, 1], shape)}) for shape in ((3,), (3, 1))
    )
    assert one.params["v.bias"] == two.params["v.bias"] > 0


def test_features_have_a_width():
    pytest.importorskip("sklearn")
    from pgmengine.sklearn import RBMTransformer

    model = RBMTransformer(2, n_iter=1, random_state=0).fit(X)
    with pytest.raises(pgm.PgmError, match="3 columns, expected the 2 of transform"):
        model.inverse_transform(np.zeros((4, 3)))

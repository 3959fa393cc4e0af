"""Base rates and chains of a training: kept with the model, checked, and read only."""

import pickle

import numpy as np
import pytest
from loops import one_test_over

import pgmengine as pgm
from pgmengine.model.training import Training

RATES = {"v": np.array([[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]])}
CHAINS = {"v": np.tile([1.0, 0.0, 0.0], (4, 2)), "h": np.ones((4, 2))}


def trained():
    return pgm.rbm(2, 2, visible=pgm.Categorical(3), rng=0).with_training(Training(RATES, CHAINS))


def check_training(training):
    for kind, expected in (("base_rates", RATES), ("chains", CHAINS)):
        found = getattr(training, kind)
        assert set(found) == set(expected)
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value)
            assert not found[name].flags.writeable


def test_a_training_stays_with_new_parameters_in_files_and_in_other_processes(tmp_path):
    model = trained()
    check_training(model.training)
    check_training(model.with_params({"h.bias": np.ones(2)}).training)
    check_training(pickle.loads(pickle.dumps(model)).training)
    pgm.save(model, tmp_path / "m")
    back = pgm.load(tmp_path / "m")
    check_training(back.training)
    for name, value in model.params.items():
        np.testing.assert_array_equal(back.params[name], value)
    assert repr(model) == repr(pgm.rbm(2, 2, visible=pgm.Categorical(3), rng=0))
    assert model.with_training(None).training is None
    # An empty one is one, too.
    pgm.save(model.with_training(Training()), tmp_path / "m")
    assert pgm.load(tmp_path / "m").training.base_rates == {}
    pgm.save(model.with_training(None), tmp_path / "m")
    assert pgm.load(tmp_path / "m").training is None


def test_a_training_stays_with_a_model_with_tables(tmp_path):
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Binary(), 3)
    b.table([("v", 0), ("v", 1)], [[1.0, 2.0], [3.0, 4.0]])
    model = b.build().with_training(Training({"v": [0.1, 0.2, 0.3]}))
    pgm.save(model, tmp_path / "m")
    back = pgm.load(tmp_path / "m")
    np.testing.assert_array_equal(back.training.base_rates["v"], [0.1, 0.2, 0.3])
    state = {"v": [[1.0, 0.0, 1.0]]}
    np.testing.assert_array_equal(back.log_density(state), model.log_density(state))


def test_the_arrays_given_are_copied():
    rates = np.array([0.5])
    training = Training({"v": rates})
    rates[0] = 0.9
    assert training.base_rates["v"][0] == 0.5


@one_test_over(
    "training, message",
    [
        (Training({"x": [0.1]}), "'x'"),
        (Training({"v": [0.1, 0.2]}), r"base rates of layer 'v' have shape \(2,\)"),
        (Training({"h": [0.1, np.nan]}), "base rates of layer 'h' must be finite"),
        (Training(chains={"h": np.ones(2)}), r"chains of layer 'h' have shape \(2,\)"),
        (Training(chains={"h": np.ones((3, 4))}), r"chains of layer 'h' have shape \(3, 4\)"),
        (Training(chains={"h": np.ones((3, 2)), "v": np.ones((2, 6))}), "differ in their number"),
    ],
)
def test_a_training_that_does_not_fit_is_refused(training, message, tmp_path):
    with pytest.raises(pgm.PgmError, match=message):
        trained().with_training(training)

"""Continuing from checkpoints and snapshots: with the same bits, after a kill, and never from those
of another fit."""

import functools
import logging
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import scipy.sparse as sp
from kernels_of_users import OwnGibbs
from loops import one_test_over

import pgmengine as pgm
from pgmengine.learn.saving import checkpoint


@pytest.mark.parametrize(
    "negative",
    [
        pgm.TransSAP(pgm.Adaptive(5), chains=10),
        pgm.AdaptiveSAP(pgm.Adaptive(5), every=2, steps=5, chains=10),
        pgm.CAST(betas=pgm.Adaptive(5), chains=10, swap_every=2),
    ],
    ids=repr,
)
def test_a_ladder_that_was_adapted_to_where_learning_began_goes_on(negative, tmp_path):
    """A new one, of the model that learning goes on from, would be another."""
    x = pgm.datasets.bars_and_stripes(3).x_train
    settings = {"negative": negative, "optimizer": pgm.SGD(0.5), "progress": False}
    whole = pgm.fit(pgm.rbm(9, 4, rng=0), {"v": x}, updates=40, **settings)
    half = pgm.fit(
        pgm.rbm(9, 4, rng=0), {"v": x}, updates=30, checkpoint=tmp_path / "c", **settings
    )
    for part in (
        pgm.fit(half.model, {"v": x}, updates=40, state=half.state, **settings),
        pgm.fit(pgm.rbm(9, 4, rng=0), {"v": x}, updates=40, checkpoint=tmp_path / "c", **settings),
    ):
        np.testing.assert_array_equal(
            part.model.params["v-h.weight"], whole.model.params["v-h.weight"]
        )


SCRIPT = """
import sys, pgmengine as pgm, pgmengine.learn.fit
pgmengine.learn.fit.SECONDS_BETWEEN_CHECKPOINTS = 0.01
x = pgm.datasets.bars_and_stripes().x_train
f = pgm.fit(pgm.rbm(16, 6, rng=0), {"v": x}, negative=pgm.CAST(chains=20), optimizer=pgm.Adam(0.01),
            updates=int(sys.argv[2]), rng=1, progress=False, checkpoint=sys.argv[1])
pgm.save(f.model, sys.argv[1] + ".model")
"""


def test_a_killed_process_leaves_the_last_good_checkpoint(tmp_path):
    path, updates = tmp_path / "c", 400
    for _ in range(3):
        child = subprocess.Popen([sys.executable, "-c", SCRIPT, str(path), "1000000"])
        begin = time.monotonic()
        while not path.exists() and time.monotonic() - begin < 60:
            time.sleep(0.01)
        time.sleep(0.15)
        child.send_signal(signal.SIGKILL)
        child.wait()
        from pgmengine.learn.saving.checkpoint import read

        arrays, _ = read(path, {})
        reached = int(arrays["update"])
        if reached > updates - 50:
            break
    total = reached + 25
    subprocess.run([sys.executable, "-c", SCRIPT, str(path), str(total)], check=True)
    subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path / "whole"), str(total)], check=True)
    one, two = (pgm.load(tmp_path / f"{name}.model") for name in ("c", "whole"))
    for key, value in one.params.items():
        np.testing.assert_array_equal(two.params[key], value)
    assert {p.name for p in tmp_path.iterdir() if ".part" not in p.name} == {
        "c",
        "whole",
        "c.model",
        "whole.model",
    }


@one_test_over("rows", [7, 32, 50])
def test_a_state_goes_on_with_other_data(rows):
    """Data with fewer rows, as many rows, and more. The current pass ends with those of its rows
    that still exist.
    """
    first, other = pgm.datasets.bars_and_stripes().x_train, np.ones((rows, 16))
    half = pgm.fit(pgm.rbm(16, 4, rng=0), {"v": first}, batch_size=5, updates=3, progress=False)
    left = half.state["order"]
    assert len(left) == 17 and left.max() >= 7
    f = pgm.fit(half.model, {"v": other}, batch_size=5, updates=4, state=half.state, progress=False)
    assert f.state["update"] == 4
    np.testing.assert_array_equal(f.state["order"], left[left < rows][5:])
    last = pgm.fit(f.model, {"v": other}, batch_size=5, updates=40, state=f.state, progress=False)
    assert last.state["update"] == 40 and set(last.state["order"]) <= set(range(rows))


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    x, path = pgm.datasets.bars_and_stripes().x_train, tmp_path / "c"
    pgm.fit(pgm.rbm(16, 4, rng=0), {"v": x}, updates=3, checkpoint=path)
    for changed, match in (
        ({"model": pgm.rbm(16, 5, rng=0)}, "model"),
        ({"model": pgm.rbm(16, 4, rng=1)}, "parameters"),
        ({"data": x[:-1]}, "data"),
        ({"optimizer": pgm.Adam(0.1)}, "optimizer"),
        ({"negative": pgm.CD()}, "negative"),
        ({"rng": 5}, "rng"),
    ):
        arguments = {"model": pgm.rbm(16, 4, rng=0), "data": x, **changed}
        with pytest.raises(pgm.PgmError, match=f"another fit.*{match}"):
            pgm.fit(
                arguments.pop("model"),
                {"v": arguments.pop("data")},
                updates=3,
                checkpoint=path,
                **arguments,
            )
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(pgm.PgmError, match="not a readable checkpoint"):
        pgm.fit(pgm.rbm(16, 4, rng=0), {"v": x}, updates=3, checkpoint=path)
    pgm.save(pgm.rbm(16, 4, rng=0), path)
    with pytest.raises(pgm.PgmError, match="not a checkpoint"):
        pgm.fit(pgm.rbm(16, 4, rng=0), {"v": x}, updates=3, checkpoint=path)


def test_a_fit_that_was_stopped_stays_stopped(tmp_path):
    x = pgm.datasets.bars_and_stripes(3).x_train
    stop = pgm.EarlyStopping(pgm.ExactLogLikelihood({"v": x}, every=1), patience=3, least=10.0)
    one, two = (
        pgm.fit(
            pgm.rbm(9, 4, rng=0), {"v": x}, updates=100, callbacks=[stop], checkpoint=tmp_path / "c"
        )
        for _ in "ab"
    )
    assert one.state["update"] == two.state["update"] == 3
    assert one.stopped == two.stopped
    with pytest.raises(pgm.PgmError, match="name="):
        pgm.fit(
            pgm.rbm(9, 4, rng=0),
            {"v": x},
            updates=3,
            callbacks=[pgm.EarlyStopping(pgm.WeightNorms())],
        )
    watched = pgm.EarlyStopping(
        pgm.WeightNorms(every=1), name="norm v.bias", patience=2, least=100.0
    )
    assert pgm.fit(pgm.rbm(9, 4, rng=0), {"v": x}, updates=9, callbacks=[watched]).stopped


def test_odd_settings(tmp_path):
    x, model = pgm.datasets.bars_and_stripes(3).x_train, pgm.rbm(9, 4, rng=0)
    rate = functools.partial(lambda a, t: a, 0.1)
    for _ in range(2):
        pgm.fit(model, {"v": x}, optimizer=pgm.SGD(rate), updates=2, checkpoint=tmp_path / "c")
    kernel = pgm.GrowingBlend(2, 4)
    for negative in (
        pgm.TransSAP(pgm.Adaptive(5), kernel=kernel, chains=5),
        pgm.AdaptiveSAP(kernel=kernel, chains=5),
    ):
        assert pgm.fit(model, {"v": x}, negative=negative, updates=4).state["update"] == 4
    state = pgm.fit(model, {"v": x}, optimizer=pgm.Adam(), updates=1).state
    for other in ({"optimizer": pgm.AdaMax()}, {"negative": pgm.CD()}):
        with pytest.raises(pgm.PgmError, match="the state is of a fit with"):
            pgm.fit(model, {"v": x}, updates=2, state=state, **other)
    plain = pgm.fit(
        model, {"v": x}, optimizer=pgm.SGD(0.1), updates=1
    ).state  # the same name, but keeps less
    with pytest.raises(pgm.PgmError, match="only one of them has 'optimizer/m/h.bias'"):
        pgm.fit(model, {"v": x}, optimizer=pgm.SGD(0.1, momentum=0.9), updates=2, state=plain)
    with pytest.raises(pgm.PgmError, match="no folder"):
        pgm.fit(model, {"v": x}, updates=1, checkpoint=tmp_path / "none" / "c")
    with pytest.raises(pgm.PgmError, match="no checkpoint"):
        pgm.pretrain(pgm.dbm([9, 4, 3], rng=0), {"v": x}, checkpoint=tmp_path / "c")
    pgm.pretrain(
        pgm.dbm([9, 4, 3], rng=0), {"v": x}, updates=3, sample_weight=np.arange(1.0, 1 + len(x))
    )


def test_a_kernel_schedule_across_engines_resumes_to_the_same_bits(tmp_path):
    schedule = lambda t: OwnGibbs() if 3 <= t < 6 else pgm.Gibbs()  # noqa: E731
    x, model = pgm.datasets.bars_and_stripes(3).x_train, pgm.rbm(9, 4, rng=0)
    # The rate of the default optimizer falls over the number of updates that is asked for.
    settings = {"negative": pgm.PCD(chains=20, kernel=schedule), "optimizer": pgm.Adam(), "rng": 1}
    whole = pgm.fit(model, {"v": x}, updates=10, **settings)
    for updates in (4, 7, 10):
        part = pgm.fit(model, {"v": x}, updates=updates, checkpoint=tmp_path / "c", **settings)
    np.testing.assert_array_equal(part.model.params["v-h.weight"], whole.model.params["v-h.weight"])


def test_a_checkpoint_of_another_sparsity_pattern_is_refused(tmp_path):
    def model(columns):
        b = pgm.GraphBuilder()
        b.layer("v", pgm.Binary(), 4)
        b.layer("h", pgm.Binary(), 4)
        b.couple(
            "v", "h", weight=sp.csr_array((np.full(4, 0.5), (np.arange(4), columns)), shape=(4, 4))
        )
        return b.build(rng=0)

    x = np.random.default_rng(0).integers(0, 2, (20, 4)).astype(float)
    pgm.fit(model([0, 1, 2, 3]), {"v": x}, updates=2, checkpoint=tmp_path / "c")
    with pytest.raises(pgm.PgmError, match="another fit.*parameters"):
        pgm.fit(model([1, 0, 3, 2]), {"v": x}, updates=2, checkpoint=tmp_path / "c")


def test_what_has_made_more_updates_than_are_asked_for_is_refused(tmp_path):
    model, data, path = (
        pgm.rbm(16, 4, rng=0),
        {"v": pgm.datasets.bars_and_stripes().x_train},
        tmp_path / "c",
    )
    f = pgm.fit(model, data, updates=5, checkpoint=path)
    assert pgm.fit(model, data, updates=5, checkpoint=path).state["update"] == 5
    with pytest.raises(pgm.PgmError, match="c has made 5 updates, and 4 are asked for"):
        pgm.fit(model, data, updates=4, checkpoint=path)
    for settings in ({"updates": 5}, {"epochs": 5}):
        with pytest.raises(pgm.PgmError, match="the state has made 5 updates, and 5 are asked for"):
            pgm.fit(f.model, data, state=f.state, **settings)


def test_the_generator_that_is_given_is_not_set_back_to_a_state():
    """The generator may be in use elsewhere, where its numbers would repeat."""
    model, data = pgm.rbm(16, 4, rng=0), {"v": pgm.datasets.bars_and_stripes().x_train}
    half, rng = pgm.fit(model, data, updates=3), np.random.default_rng(99)
    one, two = (
        pgm.fit(half.model, data, updates=9, state=half.state, rng=given) for given in (rng, 0)
    )
    assert rng.bit_generator.state["state"]["inc"] != one.state["rng"]["state"]["inc"]
    np.testing.assert_array_equal(one.model.params["v-h.weight"], two.model.params["v-h.weight"])


def test_legacy_random_numbers_resume(tmp_path):
    model, data = pgm.rbm(16, 4, rng=0), {"v": pgm.datasets.bars_and_stripes().x_train}
    # The rate of the default optimizer falls over the number of updates that is asked for.
    settings = {"optimizer": pgm.Adam(), "negative": pgm.PCD()}
    for updates in (2, 4):
        f = pgm.fit(
            model,
            data,
            updates=updates,
            checkpoint=tmp_path / "c",
            rng=np.random.RandomState(1),
            **settings,
        )
    whole = pgm.fit(model, data, updates=4, rng=np.random.RandomState(1), **settings)
    np.testing.assert_array_equal(f.model.params["v-h.weight"], whole.model.params["v-h.weight"])
    settings |= {"updates": 4, "checkpoint": tmp_path / "c"}
    with pytest.raises(pgm.PgmError, match="differs in rng"):
        pgm.fit(model, data, rng=np.random.RandomState(2), **settings)


def test_a_state_without_its_model_is_noticed(caplog):
    x = pgm.datasets.bars_and_stripes().x_train
    model = pgm.rbm(16, 3, rng=0)
    first = pgm.fit(model, {"v": x}, updates=5)
    with caplog.at_level(logging.WARNING, logger="pgmengine"):
        pgm.fit(first.model, {"v": x}, updates=6, state=first.state)
        assert not caplog.records
        pgm.fit(model, {"v": x}, updates=6, state=first.state)
    assert "ended with other parameters" in caplog.text


def test_checkpoints_outlive_the_modules_of_settings(tmp_path, monkeypatch):
    """An older version wrote the module of each setting, and modules move."""
    data, file = {"v": np.eye(4)}, tmp_path / "c.safetensors"
    settings = {"optimizer": pgm.Adam(0.1), "negative": pgm.PCD(chains=3), "rng": 0}
    name = checkpoint._name

    def with_module(value):
        return name(value).replace("pgmengine.", "pgmengine.learn.an_old_module.")

    with monkeypatch.context() as older:
        older.setattr(checkpoint, "_name", with_module)
        pgm.fit(pgm.rbm(4, 2, rng=0), data, epochs=2, checkpoint=file, **settings)
    assert b"an_old_module.Adam" in file.read_bytes()
    more = pgm.fit(pgm.rbm(4, 2, rng=0), data, epochs=4, checkpoint=file, **settings)
    assert more.state["update"] == 4
    with pytest.raises(pgm.PgmError, match="optimizer"):
        pgm.fit(
            pgm.rbm(4, 2, rng=0),
            data,
            epochs=5,
            checkpoint=file,
            **settings | {"optimizer": pgm.SGD(0.1)},
        )

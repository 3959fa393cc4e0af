"""Plots show the numbers that they are given, on the axes that they are given."""

import numpy as np
import pytest
from extras import extra
from loops import one_test_over

import pgmengine as pgm

extra("matplotlib")
plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def shown(ax):
    return ax.images[0].get_array().filled(np.nan)


def test_images_lie_where_their_rows_are():
    rows = np.arange(3 * 6).reshape(3, 6) / 18
    found = shown(pgm.plots.images(rows, (2, 3), columns=2))
    assert found.shape == (8, 10)
    np.testing.assert_array_equal(found[1:3, 6:9], rows[1].reshape(2, 3))
    np.testing.assert_array_equal(found[5:7, 1:4], rows[2].reshape(2, 3))
    assert (found[0] > rows.max()).all() and (
        found[4:, 5:] > rows.max()
    ).all()  # frames: above the scale
    holes = shown(pgm.plots.images(np.where(np.arange(6) < 2, np.nan, rows), (2, 3)))
    assert np.isnan(holes).sum() == 6
    with pytest.raises(pgm.PgmError, match="rows have 6 pixels, images of shape \\(2, 2\\) have 4"):
        pgm.plots.images(rows, (2, 2))


def test_receptive_fields_of_couplings_and_arrows():
    rbm, net = pgm.rbm(6, 2, rng=0), pgm.sbn([6, 2], rng=0)
    found = shown(pgm.plots.receptive_fields(rbm, "v-h", (2, 3)))
    np.testing.assert_array_equal(found[1:3, 1:4], rbm.params["v-h.weight"][:, 0].reshape(2, 3))
    found = shown(pgm.plots.receptive_fields(net, "h1->v", (2, 3)))
    np.testing.assert_array_equal(found[1:3, 6:9], net.params["h1->v.weight"][1].reshape(2, 3))
    with pytest.raises(pgm.PgmError, match="'v-x' is unknown; the couplings are v-h"):
        pgm.plots.receptive_fields(rbm, "v-x", (2, 3))


def test_samples_and_completions():
    model = pgm.rbm(4, 2, rng=0)
    r = pgm.infer(model, want=("samples",), method=pgm.MCMC(chains=3, draws=40, warmup=5), rng=0)
    found = shown(pgm.plots.samples(r, "v", (2, 2), times=5))
    assert found.shape == (3 * 4, 5 * 4)
    np.testing.assert_array_equal(found[5:7, 1:3], r.samples["v"][40, 0].reshape(2, 2))
    done = pgm.infer(model, {"v": [[1, np.nan, 0, 1], [0, 1, np.nan, np.nan]]})
    found = shown(pgm.plots.completions(done, "v", (2, 2)))
    assert np.isnan(found[1, 2]) and found[5, 2] == done.mean["v"][0, 1]


class Corners(pgm.Unit):
    """Values with two components that are not one-hot."""

    width = 2
    support = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0]])


@one_test_over("unit", [pgm.Categorical(3), Corners(), pgm.Categorical(2)], ids=str)
def test_units_with_several_components_are_drawn_by_their_states(unit):
    """One pixel and one colour for a state, never the components as stripes."""
    b = pgm.GraphBuilder()
    b.layer("c", unit, 4)
    b.layer("h", pgm.Binary(), 2)
    b.couple("c", "h")
    model, count = b.build(rng=0), len(unit.support)
    r = pgm.infer(model, want=("samples",), method=pgm.MCMC(chains=3, draws=40, warmup=5), rng=0)
    ax = pgm.plots.samples(r, "c", (2, 2), times=5)
    states = unit.state_of(r.samples["c"][:, 0])
    found = shown(ax)
    assert found.shape == (3 * 4, 5 * 4)
    np.testing.assert_array_equal(found[1:3, 1:3], states[0].reshape(2, 2))
    np.testing.assert_array_equal(found[5:7, 1:3], states[40].reshape(2, 2))
    picture = ax.images[0]
    colors = {tuple(picture.cmap(picture.norm(state))) for state in range(count)}
    assert len(colors) == count and tuple(picture.cmap(picture.norm(found[0, 0]))) not in colors
    rows = np.array([[0, np.nan, 1, np.nan], [np.nan, 1, 0, count - 1]])
    done = pgm.infer(
        model,
        {
            "c": np.where(
                np.isnan(rows)[..., None], np.nan, unit.support[np.nan_to_num(rows).astype(int)]
            )
        },
    )
    found = shown(pgm.plots.completions(done, "c", (2, 2)))
    np.testing.assert_array_equal(found[1:3, 1:3], rows[0].reshape(2, 2))
    best = np.where(np.isnan(rows), done.prob["c"].argmax(axis=-1), rows)
    np.testing.assert_array_equal(found[5:7, 5:7], best[1].reshape(2, 2))


def test_samples_of_variables_are_drawn_by_their_names():
    b = pgm.GraphBuilder()
    for name, states in {"a": ("x", "y", "z"), "b": ("x", "y", "z"), "own": 4}.items():
        b.variable(name, states=states)
    b.layer("h", pgm.Binary(), 1)
    b.couple("own", "h")
    b.table(("a", "b"), np.ones((3, 3)))
    r = pgm.infer(b.build(rng=0), want=("samples",), rng=0)
    extra("pandas")
    for name, states in {"a": ["x", "y", "z"], "own": [0, 1, 2, 3]}.items():
        found = shown(pgm.plots.samples(r, name, (1, 1), times=4, chains=1))
        number = states.index(r.samples_frame()[name].iloc[0])
        assert found[1, 1] == number
    alone = pgm.MCMC(draws=20).run(b.build(rng=0).given(), ("samples",), rng=0)
    with pytest.raises(pgm.PgmError, match="ask by pgm.infer"):
        pgm.plots.samples(alone, "own", (1, 1))


def test_histories_have_error_bands():
    x = pgm.datasets.bars_and_stripes().x_train
    fits = [
        pgm.fit(
            pgm.rbm(16, 3, rng=i),
            {"v": x},
            updates=30,
            callbacks=[pgm.WeightNorms(every=10)],
            rng=i,
            progress=False,
        )
        for i in range(3)
    ]
    ax = pgm.plots.history(fits, "norm v-h.weight")
    expected = np.mean([f.history["norm v-h.weight"]["value"] for f in fits], axis=0)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), expected)
    assert len(ax.collections) == 1
    same = plt.subplots()[1]
    assert pgm.plots.history(fits[0], "norm v-h.weight", ax=same) is same


def test_levels_autocorrelation_and_gap():
    r = pgm.infer(pgm.rbm(4, 2, rng=0), method=pgm.SimulatedTempering(draws=50, warmup=50), rng=0)
    beta = pgm.plots.levels(r).lines[0].get_ydata()
    np.testing.assert_array_equal(beta, r.stats["betas"][r.stats["levels"][:, 0, 0]])
    assert (
        pgm.plots.autocorrelation(
            pgm.infer(pgm.rbm(4, 2, rng=0), method=pgm.MCMC(draws=200), rng=0)
        )
        .lines[0]
        .get_ydata()[0]
        == 1
    )
    heights = [
        p.get_height() for p in pgm.plots.bound_gap([-4.4, -4.2, -4.04], [-4.0] * 3, bins=3).patches
    ]
    assert sum(heights) == 3
    with pytest.raises(pgm.PgmError, match="SimulatedTempering"):
        pgm.plots.levels(pgm.infer(pgm.rbm(3, 2, rng=0)))


def test_what_was_not_monitored_is_named():
    with pytest.raises(pgm.PgmError, match="'kl' was not monitored; there is norm"):
        pgm.plots.history({"norm": {"update": [0], "value": [1.0]}}, "kl")
    with pytest.raises(pgm.PgmError, match="'kl' was not monitored; give callbacks= to fit"):
        pgm.plots.history({}, "kl")


def test_what_there_is_nothing_to_show_of():
    with pytest.raises(pgm.PgmError, match="no rows"):
        pgm.plots.images(np.zeros((0, 16)), (4, 4))
    with pytest.raises(pgm.PgmError, match="Exact has no chains"):
        pgm.plots.autocorrelation(pgm.infer(pgm.rbm(3, 2, rng=0)))


def test_arguments_in_a_wrong_place_are_named():
    model, ax = pgm.rbm(4, 2, rng=0), plt.subplots()[1]
    r = pgm.infer(model, want=("marginals", "samples"), rng=0)
    assert pgm.plots.graph(model, r, ax) is ax
    with pytest.raises(pgm.PgmError, match="result must be a Result of pgm.infer, not Axes"):
        pgm.plots.graph(model, ax)
    for wrong in (
        lambda: pgm.plots.graph(model, r, 0),
        lambda: pgm.plots.images(np.eye(4), (2, 2), 2, r),
        lambda: pgm.plots.receptive_fields(model, "v-h", (2, 2), 2, r),
        lambda: pgm.plots.completions(r, "v", (2, 2), r),
        lambda: pgm.plots.samples(r, "v", (2, 2), 1, 1, r),
        lambda: pgm.plots.bound_gap([-4.1], [-4.0], 40),
        lambda: pgm.plots.autocorrelation(np.arange(9.0), 3, "label"),
    ):
        with pytest.raises(pgm.PgmError, match="ax must be Axes of matplotlib, not"):
            wrong()


@pytest.mark.parametrize("rows", [24, 30])
def test_completions_of_many_rows_are_cut_and_say_so(rows):
    x = np.where(np.arange(4) < 2, 1.0, np.nan) * np.ones((rows, 1))
    r = pgm.infer(pgm.rbm(4, 2, rng=0), {"v": x})
    ax = pgm.plots.completions(r, "v", (2, 2))
    assert ax.get_title(loc="left") == (f"the first 24 of {rows} rows" if rows > 24 else "")
    # A column of an image and its margin for each row.
    assert ax.images[0].get_array().shape[1] == pytest.approx(24 * (2 + 2), abs=4)

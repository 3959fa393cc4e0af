"""Plots show the numbers that they are given, on the axes that they are given."""

import numpy as np
import pytest
from extras import extra

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


@pytest.mark.parametrize("unit", [pgm.Categorical(3), Corners(), pgm.Categorical(2)], ids=str)
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


def test_graph_names_every_layer_and_draws_every_coupling():
    model = pgm.dbn([12, 8, 4], rng=0)
    texts = [t.get_text() for t in pgm.plots.graph(model).texts]
    assert all(any(t.startswith(f"{name}: ") for t in texts) for name in model.structure.layers)
    assert sum(t == "" for t in texts) == len(model.structure.couplings)
    lateral = pgm.plots.graph(pgm.boltzmann_machine(4, rng=0)).texts
    assert [t.get_text() for t in lateral] == ["x: 4 Spin (coupled inside)"]


def test_graph_draws_parents_above_children_in_whatever_order_they_are_declared():
    b = pgm.GraphBuilder()
    for name in ("top", "v", "middle", "low"):
        b.layer(name, pgm.Binary(), 2)
    for parent, child in (("top", "middle"), ("middle", "low"), ("low", "v"), ("top", "v")):
        b.cause(parent, child)

    def heights(model):
        texts = pgm.plots.graph(model).texts
        return {t.get_text().split(":")[0]: t.get_position()[1] for t in texts}

    height = heights(b.build())
    assert height["top"] > height["middle"] > height["low"] > height["v"]
    for model in (pgm.sbn([4, 3, 2], rng=0), pgm.dbn([4, 3, 2], rng=0)):
        height = heights(model)
        assert all(height[c.a] > height[c.b] for c in model.structure.arrows)


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


def test_graph_draws_every_variable_with_its_marginal():
    b = pgm.GraphBuilder()
    for name in ("rain", "wind", "wet"):
        b.variable(name, states=("no", "yes"))
    b.conditional("rain", (), [0.25, 0.75])
    b.conditional("wet", ("rain", "wind"), [[[0.5, 0.5]] * 2] * 2)
    b.table(("wind",), [1.0, 3.0])
    model = b.build()
    ax = pgm.plots.graph(model, pgm.infer(model, {"wet": "yes"}))
    place = {t.get_text(): t.get_position() for t in ax.texts if t.get_text()}
    assert set(place) == {"rain", "wind", "wet"} and place["rain"][1] > place["wet"][1]
    boxes = [p for p in ax.patches if p.get_zorder() == 3]
    shares = [p.get_width() for p in ax.patches if p.get_zorder() == 4]
    assert len(boxes) == 3 and sum(p.get_linewidth() > 2 for p in boxes) == 1
    truth = np.repeat([p.get_width() for p in boxes], 2) * [0.25, 0.75, 0.25, 0.75, 0.0, 1.0]
    np.testing.assert_allclose(shares, truth, atol=1e-12)
    assert {t.get_text() for t in pgm.plots.graph(model).texts} >= {"rain", "wind", "wet"}


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


def test_variables_are_drawn_beside_units_of_layers():
    b = pgm.GraphBuilder()
    b.variable("a")
    b.layer("h", pgm.Binary(), 2)
    b.layer("g", pgm.Gaussian(1.0), 1)
    b.table(("a", ("h", 1)), [[1, 2], [3, 4.0]])
    b.couple("h", "g", weight=[[0.0], [0.0]])
    model = b.build()
    result = pgm.infer(model, {"a": [0, 1]})
    for row, share in enumerate((1 / 3, 3 / 7)):
        ax = pgm.plots.graph(model, result=result, row=row)
        assert {"a", "h[0]", "h[1]", "g"} <= {t.get_text().replace("g[0]", "g") for t in ax.texts}
        x = {t.get_text(): t.get_position()[0] for t in ax.texts}["h[1]"]
        box = next(p for p in ax.patches if abs(p.get_x() + p.get_width() / 2 - x) < 1e-9)
        first = next(p for p in ax.patches if p.get_x() == box.get_x() and p is not box)
        assert first.get_width() / box.get_width() == pytest.approx(share)


def test_undirected_edges_may_close_a_cycle_with_arrows():
    b = pgm.GraphBuilder()
    for name in "vxh":
        b.variable(name)
    b.couple("v", "x", weight=[[1.0]])
    b.couple("x", "h", weight=[[1.0]])
    b.cause("h", "v", weight=[[1.0]])
    y = {t.get_text(): t.get_position()[1] for t in pgm.plots.graph(b.build()).texts}
    assert y["h"] > y["v"]


@pytest.mark.parametrize("row", [2, -1, 5, 0.5])
def test_rows_that_a_result_does_not_have(row):
    b = pgm.GraphBuilder()
    b.variable("a")
    result = pgm.infer(b.build(), {"a": [0, 1]})
    with pytest.raises(pgm.PgmError, match=f"row {row} is no row of the result, expected 0..1"):
        pgm.plots.graph(b.build(), result=result, row=row)


def test_results_that_do_not_belong_to_the_graph():
    b, other = pgm.GraphBuilder(), pgm.GraphBuilder()
    b.variable("a")
    other.variable("b")
    result = pgm.infer(other.build())
    with pytest.raises(pgm.PgmError, match="belongs to another model, with b; expected one with a"):
        pgm.plots.graph(b.build(), result=result)
    with pytest.raises(pgm.PgmError, match="prob was not computed"):
        pgm.plots.graph(b.build(), result=pgm.infer(b.build(), want=("log_z",)))


def test_boxes_of_variables_do_not_overlap():
    b = pgm.GraphBuilder()
    rng = np.random.default_rng(0)
    for i in range(60):
        b.variable(f"variable {i}")
    for i in range(60):
        for j in rng.integers(0, 60, 2):
            if i != j:
                b.table((f"variable {i}", f"variable {j}"), [[1.0, 2.0], [2.0, 1.0]])
    boxes = [p.get_bbox().shrunk(0.999, 0.999) for p in pgm.plots.graph(b.build()).patches]
    boxes = [box for box in boxes if box.width > 0.5]
    assert len(boxes) == 60
    assert not any(one.overlaps(two) for i, one in enumerate(boxes) for two in boxes[:i])

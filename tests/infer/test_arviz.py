"""Results for ArviZ and pandas: the numbers of the result under the names of the graph."""

import networkx as nx
import numpy as np
import pytest
from extras import extra
from loops import one_test_over

import pgmengine as pgm

extra("arviz_base")


@pytest.fixture(scope="module")
def result():
    model = pgm.rbm(4, 3, hidden=pgm.Categorical(3), rng=0)
    evidence = {"v": [[1, 0, np.nan, 1], [np.nan, 0, 1, np.nan]]}
    method = pgm.MCMC(chains=3, warmup=50, draws=200)
    return pgm.infer(model, evidence, want=("samples", "marginals"), method=method, rng=0)


def test_draws_keep_their_chain_and_row(result):
    tree = result.to_arviz()
    posterior = tree["posterior"]
    assert posterior["v"].dims == ("chain", "draw", "row", "v_unit")
    assert posterior["h"].dims == ("chain", "draw", "row", "h_unit", "h_state") and posterior[
        "h"
    ].shape == (3, 200, 2, 3, 3)
    np.testing.assert_array_equal(posterior["v"].values[1, :, 1], result.samples["v"][200:400, 1])
    np.testing.assert_allclose(
        posterior["h"].mean(("chain", "draw")).values, result.mean["h"], atol=1e-12
    )
    assert np.isnan(tree["observed_data"]["v"].values).sum() == 3
    assert tree.attrs["kind"] == "estimate"


def test_the_energy_belongs_to_the_draws(result):
    tree, model = result.to_arviz(), result.target.model
    energy = tree["sample_stats"]["energy"]
    assert energy.dims == ("chain", "draw", "row")
    v, h = (tree["posterior"][name].values[2, 17] for name in ("v", "h"))
    np.testing.assert_allclose(
        energy.values[2, 17], -model.log_density({"v": v, "h": h}), rtol=1e-5, atol=1e-5
    )


def test_arviz_computes_what_we_compute(result):
    from arviz_stats.base import array_stats

    values = result.to_arviz()["posterior"]["v"].values[..., 0, 2]
    assert array_stats.rhat(values, chain_axis=0, draw_axis=1) == pytest.approx(
        result.stats["rhat"]["v"][0, 2], abs=0.02
    )


def test_labels_of_variables_are_coordinates():
    graph = nx.Graph()
    graph.add_edge("rain", "wet", weight=1.0)
    model = pgm.GraphBuilder.from_networkx(graph, unit=pgm.Binary()).build()
    r = pgm.infer(model, want=("samples", "marginals"), rng=0)
    labels = [
        str(x)
        for v in r.to_arviz()["posterior"].coords.values()
        if v.dtype.kind in "OUT"
        for x in v.values
    ]
    assert sorted(labels) == ["rain", "wet"]
    assert sorted(unit for _, unit in r.to_frame().columns) == ["rain", "wet"]


def test_frames_have_means_and_evidence(result):
    frame = result.to_frame()
    assert frame.shape == (2, 4 + 9) and frame.columns.names == ["layer", "unit"]
    np.testing.assert_allclose(frame["v"].to_numpy(), result.mean["v"])
    np.testing.assert_allclose(frame["h", "1[2]"].to_numpy(), result.mean["h"][:, 1, 2])
    one = pgm.infer(pgm.rbm(3, 2, rng=0), {"v": [1, 0, 1]}).to_frame()
    assert one.shape == (1, 5)


def test_what_is_missing_is_named():
    model = pgm.rbm(3, 2, rng=0)
    with pytest.raises(pgm.NotAsked, match="want="):
        pgm.infer(model).to_arviz()
    with pytest.raises(pgm.PgmError, match="of a method's own run"):
        pgm.Exact().run(model.given(), ("samples",)).to_arviz()


def test_tempered_chains_say_where_they_were():
    model = pgm.rbm(4, 2, rng=0)
    method = pgm.SimulatedTempering(betas=pgm.Linear(4), chains=3, warmup=50, draws=100)
    r = pgm.infer(model, want=("samples",), method=method, rng=0)
    tree = r.to_arviz()
    assert tree["tempering"]["level"].dims == ("chain", "sweep", "row") and tree["tempering"][
        "level"
    ].shape == (3, 150, 1)
    np.testing.assert_array_equal(
        tree["tempering"]["level"].values[2, :, 0], r.stats["levels"][:, 0, 2]
    )
    assert tree["tempering"]["adaptive"].values.sum() == 50
    assert (tree["sample_stats"]["level"] == 3).all() and not tree["sample_stats"]["adaptive"].any()
    r = pgm.infer(
        model, want=("samples",), method=pgm.ParallelTempering(rungs=3, draws=400, warmup=50), rng=0
    )
    swapped = r.to_arviz()["sample_stats"]["swap_accepted"]
    assert swapped.dims == ("chain", "draw", "row") and set(np.unique(swapped)) <= {
        0.0,
        1.0,
    }  # one pair at a time
    expected = 1 - r.stats["swap_rejection"].mean()
    assert abs(float(swapped.mean()) - expected) < 5 * np.sqrt(
        expected * (1 - expected) / swapped.size
    )


@one_test_over(
    "method",
    [
        pgm.Exact(draws=50),
        pgm.ParallelTempering(draws=100, warmup=50),
        # Fmt: skip
        pgm.SimulatedTempering(draws=300),
        pgm.Forward(60),
    ],
    ids=repr,
)
def test_every_sampler_gives_a_tree(method):
    model = pgm.sbn([4, 2], rng=0) if isinstance(method, pgm.Forward) else pgm.rbm(4, 2, rng=0)
    r = pgm.infer(model, want=("samples",), method=method, rng=0)
    assert r.to_arviz()["posterior"]["v"].size == r.samples["v"].size


@one_test_over("name", ["chain", "draw", "row", "h_unit", "a/b"])
def test_layers_that_arviz_would_lose_are_refused(name):
    b = pgm.GraphBuilder()
    b.layer(name, pgm.Binary(), 2)
    b.layer("h", pgm.Binary(), 2)
    b.couple(name, "h")
    with pytest.raises(pgm.PgmError, match=f"layer '{name}' cannot be a variable of ArviZ"):
        pgm.infer(b.build(rng=0), want="samples", rng=0).to_arviz()


def test_variables_are_entries_by_their_names():
    b = pgm.GraphBuilder()
    b.variable("smoke", states=("yes", "no"))
    b.variable("color", states=("red", "green", "blue"))
    b.variable("lung", states=("yes", "no"))
    b.conditional("smoke", (), [0.5, 0.5])
    b.conditional("lung", ("smoke",), [[0.1, 0.9], [0.01, 0.99]])
    b.conditional("color", ("lung",), [[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]])
    evidence = {"smoke": ["yes", None], "lung": [None, "no"]}
    method = pgm.MCMC(chains=3, warmup=5, draws=40)
    r = pgm.infer(b.build(), evidence, want=("samples",), method=method, rng=0)
    tree = r.to_arviz()
    posterior = tree["posterior"]
    assert set(posterior.data_vars) == {"smoke", "color", "lung"}
    assert posterior["lung"].dims == ("chain", "draw", "row")
    assert posterior["color"].dims == ("chain", "draw", "row", "color_state")
    assert list(posterior["color_state"].values) == ["red", "green", "blue"]
    layer, unit = b.build().structure.names.unique["lung"]
    drawn = r.samples[layer][40:80, :, unit]
    np.testing.assert_array_equal(posterior["lung"].values[1], drawn)
    observed = tree["observed_data"]
    assert set(observed.data_vars) == {"smoke", "lung"}
    np.testing.assert_array_equal(observed["smoke"].values, [0.0, np.nan])
    np.testing.assert_array_equal(observed["lung"].values, [np.nan, 1.0])

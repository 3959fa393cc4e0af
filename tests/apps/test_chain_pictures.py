"""Pictures of chains: sequences, traces and ladders show the numbers of the result, in words."""

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


def legend(ax):
    return [t.get_text() for t in ax.get_legend().get_texts()]


def chain(steps, states=("calm", "storm")):
    b = pgm.GraphBuilder()
    count = len(states)
    z = b.variable("z", states=states, shape=steps)
    x = b.variable("x", states=("low", "high"), shape=steps)
    b.conditional(z[0], (), np.full(count, 1 / count))
    b.conditional(z[1:], (z[:-1],), 0.8 * np.eye(count) + 0.2 / count)
    b.conditional(
        x, (z,), np.stack((np.linspace(0.9, 0.2, count), np.linspace(0.1, 0.8, count)), 1)
    )
    return b.build()


def test_sequences_have_a_line_for_each_state_and_the_evidence_below():
    r = pgm.infer(chain(12), {"x": ["low"] * 4 + [None] * 2 + ["high"] * 6})
    ax = pgm.plots.sequence(r, "z", observed="x")
    assert legend(ax) == ["calm", "storm"] and ax.get_ylabel() == "probability"
    for line, state in zip(ax.lines, ("calm", "storm"), strict=True):
        np.testing.assert_allclose(line.get_ydata(), r.marginal("z")[state])
    # Colours, dashes and markers all tell the lines apart.
    for look in ("color", "linestyle", "marker"):
        assert len({plt.getp(line, look) for line in ax.lines}) == 2
    assert not ax.collections
    below = ax.child_axes[0]
    assert len(below.patches) == 10 and legend(below) == ["low", "high", "not observed"]
    assert below.get_xlabel() == "place in the sequence"
    colors = [p.get_facecolor() for p in below.patches]
    assert len(set(colors[:4])) == len(set(colors[4:])) == 1 and colors[0] != colors[-1]


def test_sequences_of_estimates_have_bands():
    r = pgm.infer(chain(8), method=pgm.MCMC(draws=400), rng=0)
    ax = pgm.plots.sequence(r, "z")
    assert (
        len(ax.collections) == 2 and "2 standard errors" in ax.get_legend().get_title().get_text()
    )
    low, high = (f(ax.collections[0].get_paths()[0].vertices[:, 1]) for f in (np.min, np.max))
    prob, error = r.marginal("z")["calm"], np.ravel(r.stats["mcse"]["z"])
    assert low == pytest.approx((prob - 2 * error).clip(0).min())
    assert high == pytest.approx((prob + 2 * error).clip(0, 1).max())


def test_sequences_of_many_states_are_images():
    states = tuple(f"state {i}" for i in range(9))
    r = pgm.infer(chain(15, states), {"x": ["low"] * 15})
    ax = pgm.plots.sequence(r, "z")
    expected = [r.marginal("z")[state] for state in states]
    np.testing.assert_allclose(ax.images[0].get_array(), expected)
    assert [t.get_text() for t in ax.get_yticklabels()] == list(states)


def test_sequences_that_cannot_be_drawn():
    r = pgm.infer(chain(5), {"x": [["low"] * 5] * 2})
    with pytest.raises(pgm.PgmError, match="row 2 is no row of the result, expected 0..1"):
        pgm.plots.sequence(r, "z", row=2)
    with pytest.raises(pgm.PgmError, match="array 'y' is unknown"):
        pgm.plots.sequence(r, "y")
    b = pgm.GraphBuilder()
    s, _ = b.variable("s", shape=(3, 4)), b.variable("t", shape=7)
    b.table((s[1:], s[:-1]), np.ones((2, 2)))
    b.layer("g", pgm.Gaussian(1.0), 3)
    r = pgm.infer(b.build())
    with pytest.raises(pgm.PgmError, match=r"'s' has the shape \(3, 4\), expected one axis"):
        pgm.plots.sequence(r, "s")
    with pytest.raises(pgm.PgmError, match="'g' has no finite number of states"):
        pgm.plots.sequence(r, "g")
    with pytest.raises(pgm.PgmError, match="'t' has 7 places, expected 5"):
        pgm.plots.sequence(pgm.infer(two_lengths()), "u", observed="t")


def two_lengths():
    b = pgm.GraphBuilder()
    b.variable("u", shape=5)
    b.variable("t", shape=7)
    return b.build()


MCMC = pgm.MCMC(chains=3, draws=60, warmup=20)


def test_traces_show_energies_and_their_quality():
    r = pgm.infer(
        pgm.rbm(6, 3, rng=0), {"v": [[np.nan] * 6, [1] + [np.nan] * 5]}, method=MCMC, rng=0
    )
    for row in range(2):
        ax = pgm.plots.trace(r, row=row)
        for line, energy in zip(ax.lines, r.stats["energy"][:, :, row], strict=True):
            np.testing.assert_array_equal(line.get_ydata(), energy)
        assert f"R-hat {r.stats['energy_rhat'][row]:.3f}" in ax.get_title(loc="left")
        assert "180 draws are worth" in ax.get_title(loc="left")
    assert legend(ax) == ["chain 1", "chain 2", "chain 3", "mean, 2 standard errors"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("draw of the chain", "energy, nats")
    with pytest.raises(pgm.PgmError, match="Exact has no chains"):
        pgm.plots.trace(pgm.infer(pgm.rbm(3, 2, rng=0)))
    many = pgm.infer(pgm.rbm(6, 3, rng=0), method=pgm.MCMC(chains=12, draws=60), rng=0)
    ax = pgm.plots.trace(many)
    assert len(ax.lines) == 12 and len(legend(ax)) == 8
    assert ax.get_legend().get_title().get_text() == "5 more chains"


def test_traces_of_units_are_colours_of_states_or_lines():
    r = pgm.infer(chain(5), want=("samples",), method=MCMC, rng=0)
    ax = pgm.plots.trace(r, "z[2]")
    np.testing.assert_array_equal(ax.images[0].get_array(), r.samples["z"][:, 0, 2].reshape(3, 60))
    assert legend(ax) == ["calm", "storm"] and ax.get_ylabel() == "state of z[2]"
    assert [t.get_text() for t in ax.get_yticklabels()] == ["chain 1", "chain 2", "chain 3"]
    assert f"R-hat {np.ravel(r.stats['rhat']['z'])[2]:.3f}" in ax.get_title(loc="left")
    b = pgm.GraphBuilder()
    b.layer("g", pgm.Gaussian(1.0), 2)
    b.layer("c", pgm.Categorical(3), 2)
    b.layer("h", pgm.Binary(), 2)
    b.couple("g", "h", weight=[[1.0, 0.0], [0.0, 1.0]])
    b.couple("c", "h")
    r = pgm.infer(b.build(rng=0), want=("samples",), method=MCMC, rng=0)
    ax = pgm.plots.trace(r, ("g", 1))
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), r.samples["g"][60:120, 0, 1])
    ax = pgm.plots.trace(r, "c[0]")
    expected = r.samples["c"][:, 0, 0].argmax(axis=-1).reshape(3, 60)
    np.testing.assert_array_equal(ax.images[0].get_array(), expected)
    with pytest.raises(pgm.PgmError, match="'q' is no variable"):
        pgm.plots.trace(r, "q")


def test_convergence_of_ladders():
    model = pgm.rbm(6, 3, rng=0)
    r = pgm.infer(model, method=pgm.ParallelTempering(rungs=5, draws=400), rng=0)
    ax = pgm.plots.convergence(r)
    heights = [p.get_height() for p in ax.patches]
    np.testing.assert_allclose(heights, 1 - r.stats["swap_rejection"])
    title = ax.get_title(loc="left")
    assert f"{r.stats['round_trips'][0]:.0f} round trips" in title and "enough (20 needed)" in title
    r = pgm.infer(model, want=("log_z",), method=pgm.ParallelTempering(rungs=5, draws=40), rng=0)
    assert "(100 needed)" in pgm.plots.convergence(r).get_title(loc="left")
    r = pgm.infer(model, method=pgm.SimulatedTempering(draws=10, warmup=50), rng=0)
    ax = pgm.plots.convergence(r)
    np.testing.assert_allclose([p.get_height() for p in ax.patches], r.stats["occupancy"][0])
    assert "too few (20 needed)" in ax.get_title(loc="left") and legend(ax) == ["even share"]
    assert ax.lines[0].get_ydata()[0] == pytest.approx(1 / 12)


def test_convergence_of_single_chains_shows_every_unit_and_the_limits():
    model = pgm.rbm(6, 3, rng=0)
    r = pgm.infer(model, method=pgm.MCMC(draws=300, rhat_limit=1.02), rng=0)
    ax = pgm.plots.convergence(r)
    assert legend(ax) == ["v", "h", "energy", "limits: R-hat 1.02, 400 draws"]
    for name, points in zip(("v", "h"), ax.collections, strict=False):
        found = points.get_offsets()
        np.testing.assert_allclose(found[:, 0], np.ravel(r.stats["ess"][name]))
        np.testing.assert_allclose(found[:, 1], np.ravel(r.stats["rhat"][name]))
    # Chains that are stuck apart have an infinite R-hat, which is drawn at the edge.
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Spin(), 2)
    b.couple("x", "x", weight=[[0.0, 30.0], [30.0, 0.0]])
    r = pgm.infer(b.build(), method=pgm.MCMC(draws=200), rng=1)
    assert np.isinf(r.stats["rhat"]["x"]).any()
    ax = pgm.plots.convergence(r)
    assert "x, R-hat above 3" in legend(ax) and "did not mix" in ax.get_title(loc="left")
    with pytest.raises(pgm.PgmError, match="Exact has no chains"):
        pgm.plots.convergence(pgm.infer(model))


def test_axes_are_named_in_words_with_units():
    x = pgm.datasets.bars_and_stripes().x_train
    watch = pgm.ExactLogLikelihood({"v": x}, every=5)
    fits = [
        pgm.fit(pgm.rbm(16, 3, rng=i), {"v": x}, updates=10, callbacks=[watch], progress=False)
        for i in range(2)
    ]
    ax = pgm.plots.history(fits, "log_likelihood")
    assert ax.get_ylabel() == "log-likelihood, nats a row" and ax.get_xlabel() == "updates"
    assert legend(ax) == ["mean of 2 fits, 2 standard errors"]
    pgm.plots.history(fits[0], "log_likelihood", ax=ax, label="another")
    assert legend(ax)[1] == "another" and ax.lines[0].get_color() != ax.lines[1].get_color()
    chains = pgm.infer(pgm.rbm(6, 3, rng=0), method=pgm.MCMC(draws=200), rng=0)
    ax = pgm.plots.autocorrelation(chains)
    assert legend(ax) == ["mean of 4 chains, 2 standard errors"] and len(ax.collections) == 1
    tempered = pgm.infer(pgm.rbm(4, 2, rng=0), method=pgm.SimulatedTempering(draws=50), rng=0)
    assert pgm.plots.levels(tempered).get_ylabel() == "inverse temperature"
    ax = pgm.plots.bound_gap([-4.4, -4.2, -4.04], [-4.0] * 3)
    assert legend(ax)[0].startswith("mean 5.33") and "%" in ax.get_xlabel()


def test_completions_have_a_line_of_certainty():
    model = pgm.rbm(6, 3, rng=0)
    r = pgm.infer(model, {"v": [[1, 0, 1, np.nan, np.nan, np.nan]] * 2})
    ax = pgm.plots.completions(r, "v", (2, 3))
    assert [t.get_text() for t in ax.get_yticklabels()] == ["observed", "completed", "certainty"]
    shown = ax.images[1].get_array()
    prob = np.reshape(r.prob["v"], (2, 6, 2)).max(axis=-1)
    np.testing.assert_allclose(shown[1:3, 1:4], prob[0].reshape(2, 3))
    labels = [child.get_ylabel() for child in ax.child_axes]
    assert labels == ["probability of 1", "certainty"]
    b = pgm.GraphBuilder()
    b.layer("g", pgm.Gaussian(1.0), 4)
    r = pgm.infer(b.build(), {"g": [1.0, np.nan, 2.0, np.nan]})
    ax = pgm.plots.completions(r, "g", (2, 2))
    assert len(ax.images) == 1 and ax.child_axes[0].get_ylabel() == "posterior mean"

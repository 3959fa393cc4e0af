"""Exact inference against brute force, for all tiny models and patterns of evidence."""

import numpy as np
import pytest
from brute import Brute
from enumerators import compiled_enumeration_only, numpy_enumeration_only
from loops import one_test_over
from scipy.stats import chi2
from tiny import INFINITE, MODELS, as_evidence, draw_row, patterns, without_fixed_biases

import pgmengine as pgm
from pgmengine.infer.exact.enumeration import compiled_enumerator, cover_states

BETAS = (1.0, 0.37)
EXACT = {"rtol": 1e-9, "atol": 1e-9}
table = one_test_over("tiny_model", MODELS)


@pytest.fixture(params=["chosen", "gray", pytest.param("plain", marks=pytest.mark.long)])
def enumerator(request, monkeypatch):
    """Each test with the enumerator that is chosen, compiled where that is safe, and in numpy."""
    if request.param == "gray":
        monkeypatch.setattr(cover_states, "STATES_PER_PIECE", 16)
        monkeypatch.setattr(compiled_enumerator, "STATES_PER_TASK", 32)
        compiled_enumeration_only(monkeypatch)
    if request.param == "plain":
        numpy_enumeration_only(monkeypatch)


@table
@pytest.mark.few(2)
@pytest.mark.parametrize("beta", BETAS)
def test_log_z_marginals_and_pairs(tiny_model, beta, enumerator):
    model, rows = tiny_model.build(), patterns(tiny_model)
    want = ("log_z", "marginals", "pairs") if tiny_model not in INFINITE else ("log_z", "marginals")
    result = pgm.Exact().run(model.given(as_evidence(tiny_model, rows), beta=beta), want)
    only_log_z = pgm.Exact().run(model.given(as_evidence(tiny_model, rows), beta=beta), ("log_z",))
    for i, row in enumerate(rows):
        truth = Brute(tiny_model, row, beta=beta)
        np.testing.assert_allclose(result.log_z[i], truth.log_z, **EXACT)
        np.testing.assert_allclose(only_log_z.log_z[i], truth.log_z, **EXACT)
        for x in tiny_model.layers:
            np.testing.assert_allclose(
                np.ravel(result.mean[x.name][i]), truth.mean(x.name), **EXACT
            )
            if x.unit.support is not None:
                np.testing.assert_allclose(result.prob[x.name][i], truth.prob(x.name), **EXACT)
        if "pairs" in want:
            for c in model.structure.couplings:
                weight = model.weight(c)
                stored = (
                    weight.toarray() != 0
                    if tiny_model.sparse
                    else np.ones(weight.shape, dtype=bool)
                )
                if c.a == c.b:
                    stored = (
                        (weight != 0) | (weight != 0).T
                        if c.directed
                        else stored & ~np.eye(len(stored), dtype=bool)
                    )
                np.testing.assert_allclose(
                    result.pairs[c.key][i][stored], truth.pairs(c.a, c.b)[stored], **EXACT
                )
                assert np.isnan(result.pairs[c.key][i][~stored]).all()


@table
def test_reference_of_the_tempering_path(tiny_model, enumerator):
    model, rows = tiny_model.build(), patterns(tiny_model)
    first = tiny_model.layers[0]
    field = np.linspace(-0.5, 0.8, model.structure.layers[first.name].width)
    if model.structure.layers[first.name].unit.width > 1:
        first, field = (
            tiny_model.layers[-1],
            np.linspace(-0.5, 0.8, model.structure.layers[tiny_model.layers[-1].name].width),
        )
        if model.structure.layers[first.name].unit.width > 1:
            return
    target = model.given(as_evidence(tiny_model, rows)).at(0.37, {first.name: field})
    result = pgm.Exact().run(target, ("log_z",))
    truth = [Brute(tiny_model, row, beta=0.37, reference={first.name: field}).log_z for row in rows]
    np.testing.assert_allclose(result.log_z, truth, **EXACT)


@table
def test_log_prob_is_normalised(tiny_model):
    model, rows = tiny_model.build(), patterns(tiny_model)
    result = pgm.infer(model, as_evidence(tiny_model, rows), want=("log_prob",), method=pgm.Exact())
    nothing = Brute(tiny_model).log_z
    truth = [Brute(tiny_model, row).log_z - nothing for row in rows]
    np.testing.assert_allclose(result.log_prob, truth, **EXACT)
    if model.structure.normalized:
        np.testing.assert_allclose(pgm.infer(model, want=("log_z",)).log_z, 0.0, atol=1e-12)


@table
def test_mode(tiny_model, enumerator):
    model, rows = tiny_model.build(), patterns(tiny_model)
    result = pgm.Exact().run(model.given(as_evidence(tiny_model, rows)), ("mode",))
    flat = {n: model.structure.layers[n].flat(v) for n, v in result.mode.items()}
    best = model.given(as_evidence(tiny_model, rows)).log_density(flat)
    if all(x.unit.support is not None for x in model.structure.layers.values()):
        np.testing.assert_allclose(
            best, [Brute(tiny_model, row).mode()[1] for row in rows], **EXACT
        )
    else:
        rng = np.random.default_rng(0)
        target = model.given(as_evidence(tiny_model, rows))
        for _ in range(200):
            x = {
                n: model.structure.layers[n].flat(
                    model.structure.layers[n].unit.sample(
                        model.structure.layers[n].shaped(np.zeros_like(v)), rng
                    )
                )
                for n, v in flat.items()
            }
            assert np.all(target.log_density(target.clamp(x)) <= best + 1e-9)


@table
def test_gradient_is_the_derivative_of_log_z(tiny_model, enumerator):
    if tiny_model.name == "rbm large weights":
        # A central difference is 0 where all probabilities are 0 or 1.
        return
    model, rows = tiny_model.build(), patterns(tiny_model)
    evidence = as_evidence(tiny_model, rows)
    gradient = pgm.Exact().run(model.given(evidence), ("gradient",)).gradient
    rng = np.random.default_rng(0)
    for name, value in model.params.items():
        dense = value.toarray() if hasattr(value, "toarray") else value
        slope = gradient[name].toarray() if hasattr(gradient[name], "toarray") else gradient[name]
        step = rng.normal(size=dense.shape) * (dense != 0 if hasattr(value, "toarray") else 1.0)
        step = without_fixed_biases(model, name, step)
        parts = name.removesuffix(".weight").replace("->", "-").split("-")
        if len(set(parts)) == 1 and name.endswith(".weight"):
            step = np.triu(step, 1) if "->" in name else step + step.T
            k = model.structure.layers[parts[0]].unit.width
            unit = np.arange(len(step)) // k
            step = np.where(unit[:, None] == unit, 0.0, step)
            step = step * (dense != 0) if "->" in name else step
        eps = 1e-5
        if (
            any(x.unit.nonnegative for x in tiny_model.layers)
            and (dense - eps * abs(step) < 0).any()
        ):
            # Parameters at the edge of their range have no difference on both sides.
            step = step * (dense > 1e-3)
        wrap = type(value) if hasattr(value, "toarray") else np.array
        ends = [model.with_params({name: wrap(dense + sign * eps * step)}) for sign in (1, -1)]
        high, low = (pgm.Exact().run(m.given(evidence), ("log_z",)).log_z.sum() for m in ends)
        own = (slope * step).sum() / (
            2 if len(set(parts)) == 1 and "-" in name and "->" not in name else 1
        )
        np.testing.assert_allclose(own, (high - low) / (2 * eps), rtol=1e-5, atol=1e-5)


def test_samples_follow_the_posterior():
    tiny_model = next(m for m in MODELS if m.name == "dbm mixed")
    model, draws = tiny_model.build(), 40_000
    rows = patterns(tiny_model)[:2]
    result = pgm.Exact(draws=draws).run(
        model.given(as_evidence(tiny_model, rows)), ("samples",), rng=1
    )
    for i, row in enumerate(rows):
        truth = Brute(tiny_model, row)
        a, b = (result.samples[n][:, i].reshape(draws, -1) for n in ("v", "h1"))
        error = np.sqrt(np.maximum(truth.pairs("v", "h1") * 0 + 1, 0.01) / draws)
        assert np.all(np.abs(a.T @ b / draws - truth.pairs("v", "h1")) < 5 * error)


def draw_soft(tiny_model, rng):
    """Soft evidence on the layers that can take it: as the package wants it, and as log weights of
    the states.
    """
    given, listed = {}, {}
    for x in tiny_model.layers:
        k = x.unit.width
        if k > 1:
            given[x.name] = rng.normal(size=(x.size, k))
            listed[x.name] = given[x.name].tolist()
        elif x.unit.support is not None and len(x.unit.support) == 2:
            given[x.name] = rng.normal(size=x.size)
            listed[x.name] = [[0.0, a] for a in given[x.name]]
    return given, listed


@table
@pytest.mark.few(2)
@pytest.mark.parametrize("beta", BETAS)
def test_soft_evidence(tiny_model, beta, enumerator):
    model, rows = tiny_model.build(), patterns(tiny_model)[:4]
    given, listed = draw_soft(tiny_model, np.random.default_rng(3))
    result = pgm.Exact().run(
        model.given(as_evidence(tiny_model, rows), soft=given, beta=beta), ("log_z", "marginals")
    )
    for i, row in enumerate(rows):
        truth = Brute(tiny_model, row, soft=listed, beta=beta)
        np.testing.assert_allclose(result.log_z[i], truth.log_z, **EXACT)
        for x in tiny_model.layers:
            np.testing.assert_allclose(
                np.ravel(result.mean[x.name][i]), truth.mean(x.name), **EXACT
            )


@table
@pytest.mark.few(2)
@pytest.mark.parametrize("beta", BETAS)
def test_do(tiny_model, beta, enumerator):
    """Each layer that can be set, set in part, with evidence on the other layers."""
    model, rng = tiny_model.build(), np.random.default_rng(4)
    for name in model.structure.directed_layers:
        if name in model.structure.undirected_layers:
            continue
        set_to, rows = (
            draw_row(tiny_model, rng, 0.6),
            [draw_row(tiny_model, rng, 0.4) for _ in range(3)],
        )
        for row in rows:
            row[name] = [None] * len(row[name])
        done = {name: as_evidence(tiny_model, [set_to])[name][0]}
        target = model.given(as_evidence(tiny_model, rows), do=done, beta=beta)
        result = pgm.Exact().run(target, ("log_z", "marginals"))
        for i, row in enumerate(rows):
            truth = Brute(tiny_model, row, do={name: set_to[name]}, beta=beta)
            np.testing.assert_allclose(result.log_z[i], truth.log_z, **EXACT)
            for x in tiny_model.layers:
                np.testing.assert_allclose(
                    np.ravel(result.mean[x.name][i]), truth.mean(x.name), **EXACT
                )


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_hints_of_some_rows_only(order):
    """The first row's hints do not decide what is left out for the others."""
    tiny_model = next(m for m in MODELS if m.name == "sbn deep")
    model = tiny_model.build()
    for name, layer in model.structure.layers.items():
        hints = np.zeros((2, layer.size))
        hints[1] = np.linspace(-1, 2, layer.size)
        found = pgm.infer(model, want=("log_z",), soft={name: hints[order]}).log_z
        for row, i in enumerate(order):
            truth = Brute(tiny_model, {}, soft={name: [[0.0, a] for a in hints[i]]})
            np.testing.assert_allclose(found[row], truth.log_z, **EXACT)


def test_soft_evidence_and_do():
    tiny_model = next(m for m in MODELS if m.name == "sbn categorical")
    model = tiny_model.build()
    soft = {"v": np.array([[0.3, -1.0, 0.2], [0.0, 0.5, 2.0]]), "h2": np.array([1.5, -0.7])}
    listed = {"v": soft["v"].tolist(), "h2": [[0.0, a] for a in soft["h2"]]}
    result = pgm.infer(model, {"h1": [2]}, want=("marginals", "log_prob"), soft=soft)
    truth = Brute(tiny_model, {"h1": [2]}, soft=listed)
    np.testing.assert_allclose(result.log_z[0], truth.log_z, **EXACT)
    np.testing.assert_allclose(result.mean["h2"], truth.mean("h2"), **EXACT)
    done = pgm.infer(model, {"v": [0, np.nan]}, want=("marginals", "log_z"), do={"h1": [1]})
    truth = Brute(tiny_model, {"v": [0, None]}, do={"h1": [1]})
    np.testing.assert_allclose(done.log_z[0], truth.log_z, **EXACT)
    np.testing.assert_allclose(done.mean["h2"], truth.mean("h2"), **EXACT)
    np.testing.assert_allclose(done.mean["v"].ravel(), truth.mean("v"), **EXACT)


def test_log_prob_of_a_partial_row_is_the_sum_over_completions():
    model = pgm.rbm(6, 3, rng=3)
    row = np.array([1, 0, np.nan, 1, np.nan, 0])
    full = np.tile(row, (4, 1))
    full[:, [2, 4]] = [[0, 0], [0, 1], [1, 0], [1, 1]]
    whole = pgm.infer(model, {"v": full}, want=("log_prob",)).log_prob
    part = pgm.infer(model, {"v": row}, want=("log_prob",)).log_prob
    np.testing.assert_allclose(part[0], np.logaddexp.reduce(whole), rtol=1e-12)


def test_refusal_names_the_number():
    plan = pgm.Exact().plan(pgm.rbm(50, 40, rng=0).given(), ("log_z",))
    assert "2^40 states, the limit is 2^25" in plan.refusal
    with pytest.raises(pgm.PgmError, match="no method can answer"):
        pgm.infer(pgm.rbm(50, 40, rng=0), want=(pgm.Joint(("v", 0), ("h", 0)),))


def test_impossible_noisy_or_evidence_has_probability_zero():
    b = pgm.GraphBuilder()
    b.layer("cause", pgm.Binary(), 8)
    b.layer("finding", pgm.NoisyOr(), 2)
    b.cause("cause", "finding", weight=np.ones((8, 1)) * [1.0, 0.0])
    model = b.build()
    assert (
        pgm.infer(
            model, {"finding": [np.nan, 1.0]}, want=("log_prob",), method=pgm.Exact()
        ).log_prob[0]
        == -np.inf
    )
    seen = {"cause": np.array([0.0] + [np.nan] * 7), "finding": np.array([1.0, 0.0])}
    truth = np.log((1 - 0.5**7 * (1 + np.exp(-1)) ** 7) / 2)
    np.testing.assert_allclose(
        pgm.infer(model, seen, want=("log_prob",)).log_prob, truth, rtol=1e-12
    )


def test_pairs_of_a_unit_of_infinitely_many_values():
    """In [-1, 1], and coupled with its own layer, which is itself alone: E[x h] = sum_h p(h) h
    L(z), z = b + W h.
    """
    rng = np.random.default_rng(0)
    w, c = rng.normal(0, 2, (1, 3)), rng.normal(size=3)
    graph = pgm.GraphBuilder()
    graph.layer("x", pgm.MultiValued(np.inf), 1, bias=np.array([0.4]))
    graph.layer("h", pgm.Binary(), 3, bias=c)
    graph.couple("x", "x", weight=np.zeros((1, 1)))
    graph.couple("x", "h", weight=w)
    h = np.array(np.meshgrid(*[[0, 1]] * 3)).reshape(3, -1).T
    z = 0.4 + h @ w[0]
    weight = np.exp(h @ c) * 2 * np.sinh(z) / z
    expected = (weight / weight.sum() * (1 / np.tanh(z) - 1 / z)) @ h
    found = pgm.infer(graph.build(), {}, want=("pairs",), method=pgm.Exact()).pairs
    np.testing.assert_allclose(found["x-h"][0], expected, **EXACT)
    assert np.isnan(found["x-x"]).all()


@pytest.mark.parametrize(
    ("hidden", "rows", "draws"), [(14, 2, 20_000), (5, 400, 100), (0, 400, 100)]
)
def test_draws_are_independent_and_have_the_posteriors_moments(hidden, rows, draws, sure=7.0):
    """Samples for covers of several pieces, for many rows at once, and for an empty cover; early
    draws have the same distribution as late draws.

    Means of all draws, and of halves: a sum of n draws of variance s is off by more than
    7 sqrt(n s) + 20 with a probability below 5e-11 (Bernstein), for each of 20,000 at most. Spread:
    squares of z over batches of 50 draws or more, and rows, are a chi-square for each unit. One of
    these 46 at most is beyond 0.9 or 1.1 times its 1e-9 quantiles (binomials are not normal) with
    probability 1e-7; those of draws that are copies, or spread evenly, are.
    """
    model = pgm.rbm(18, max(hidden, 1), rng=0)
    model = model.with_params({k: 2 * v for k, v in model.params.items()})
    v = np.where(
        np.random.default_rng(1).random((rows, 18)) < (0.9 if hidden == 14 else 0.5), np.nan, 1.0
    )
    if not hidden:
        v = np.ones((rows, 18))
    target = model.given({"v": v})
    found = pgm.Exact(draws=draws).run(target, ("samples", "marginals"), rng=0)
    for name in ("v", "h"):
        x, mean = found.samples[name], found.mean[name]
        spread = mean * (1 - mean)
        far = sure * np.sqrt(draws * spread) + 20
        assert np.all(np.abs(x.sum(axis=0) - draws * mean) <= far)
        assert np.all(np.abs(x[: draws // 2].sum(axis=0) - x[draws // 2 :].sum(axis=0)) <= far)
        batches = min(100, draws // 50)
        size = draws // batches
        each = x.reshape(batches, size, *mean.shape).sum(axis=1) - size * mean
        varied = size * spread
        z2 = np.where(varied > 5, each**2 / np.maximum(varied, 5), 0.0).sum(axis=(0, 1))
        count = batches * (varied > 5).sum(axis=0)
        some = count > 0
        assert np.all(z2[some] > 0.9 * chi2.isf(1 - 1e-9, count[some]))
        assert np.all(z2[some] < 1.1 * chi2.isf(1e-9, count[some]))


def test_states_of_no_probability_are_never_drawn():
    from pgmengine.infer.exact.enumeration.cover_states import _drawn

    log_weights = np.log(
        np.array([[0, 0, 1, 0, 3, 0, 0.0]] * 1000, dtype=float) + 1e-300
    ) * np.array([1.0])
    log_weights[log_weights < -600] = -np.inf

    class Ends:
        def random(self, count):
            return np.where(np.arange(count) % 2, 1 - 2.0**-53, 0.0)

    found = _drawn(log_weights, np.full(1000, 2), Ends()).reshape(1000, 2)
    assert set(found[:, 0]) == {2}
    assert set(found[:, 1]) == {4}
    shares = (
        np.bincount(_drawn(log_weights, np.full(1000, 40), np.random.default_rng(0)), minlength=7)
        / 40_000
    )
    np.testing.assert_allclose(shares, [0, 0, 0.25, 0, 0.75, 0, 0], atol=0.012)

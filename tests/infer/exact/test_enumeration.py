"""The compiled enumeration against the one in numpy, where products overflow, and on threads."""

import numpy as np
import pytest
from enumerators import compiled_enumeration_only, counted_enumerations, numpy_enumeration_only

import pgmengine as pgm
from pgmengine.infer.exact.enumeration import compiled_enumerator, cover_states, enumerator
from pgmengine.infer.exact.enumeration.cover import choose_cover
from pgmengine.infer.exact.enumeration.log_linear import log_linear_form
from pgmengine.infer.exact.enumeration.pattern_form import pattern_form_of

EXACT = {"rtol": 1e-9, "atol": 1e-9}


def test_compiled_walk_equals_numpy_walk_on_a_larger_model(monkeypatch):
    model = pgm.rbm(30, 13, hidden=pgm.Spin(), rng=0)
    model = model.with_params({"v-h.weight": np.random.default_rng(0).normal(0, 2, (30, 13))})
    want = ("log_z", "marginals", "pairs")
    compiled = pgm.infer(model, want=want)
    numpy_enumeration_only(monkeypatch)
    plain = pgm.infer(model, want=want)
    np.testing.assert_allclose(compiled.log_z, plain.log_z, rtol=1e-12)
    np.testing.assert_allclose(compiled.pairs["v-h"], plain.pairs["v-h"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("size", [0.1, 2.0, 20.0, 60.0])
@pytest.mark.parametrize("hidden", [pgm.Binary(), pgm.Spin(), pgm.Categorical(3)], ids=repr)
def test_eight_states_at_a_time_equal_the_numpy_walk(hidden, size, monkeypatch):
    """Means and log Z, with lateral couplings inside the cover and out, and exponents up to the
    limit of the walk.
    """
    rng, b = np.random.default_rng(1), pgm.GraphBuilder()
    size = size if hidden == pgm.Binary() else size / 2
    lateral = np.triu(rng.normal(size=(7, 7)), 1)
    b.layer("a", pgm.Binary(), 7, bias=rng.normal(size=7))
    b.layer("h", hidden, 13, bias=rng.normal(size=(13, 3) if hidden == pgm.Categorical(3) else 13))
    b.layer("c", pgm.Spin(), 5)
    b.couple("a", "a", weight=lateral + lateral.T)
    b.couple("a", "h", weight=size * rng.uniform(-1, 1, (7, 13 * hidden.width)))
    b.couple("h", "c", weight=size / 5 * rng.uniform(-1, 1, (13 * hidden.width, 5)))
    model, want = b.build(rng=0), ("log_z", "marginals")
    by_program = pgm.infer(model, want=want)
    compiled_enumeration_only(monkeypatch)
    calls = counted_enumerations(monkeypatch)
    compiled = pgm.infer(model, want=want)
    assert calls
    numpy_enumeration_only(monkeypatch)
    plain = pgm.infer(b.build(rng=0).with_params(model.params), want=want)
    np.testing.assert_allclose(compiled.log_z, plain.log_z, rtol=1e-13)
    for name in ("a", "h", "c"):
        np.testing.assert_allclose(compiled.mean[name], plain.mean[name], rtol=1e-9, atol=1e-13)
        np.testing.assert_allclose(by_program.mean[name], plain.mean[name], rtol=1e-9, atol=1e-13)


def test_sums_whose_products_overflow(monkeypatch):
    """Four sums of e^300 each: their product is no number, so each is divided by itself."""
    model = pgm.rbm(12, 6, rng=0).with_params(
        {"v.bias": np.where(np.arange(12) % 3, 300.0, -300.0)}
    )
    compiled_enumeration_only(monkeypatch)
    compiled = pgm.infer(model, want=("log_z", "marginals"))
    numpy_enumeration_only(monkeypatch)
    plain = pgm.infer(model.with_params({}), want=("log_z", "marginals"))
    np.testing.assert_allclose(compiled.log_z, plain.log_z, rtol=1e-13)
    for name in ("v", "h"):
        np.testing.assert_allclose(compiled.mean[name], plain.mean[name], rtol=1e-9)


def test_the_number_of_threads_changes_no_bit(monkeypatch):
    model = pgm.rbm(40, 17, rng=0)
    results = []
    for count in ("1", "2"):
        monkeypatch.setenv("PGMENGINE_THREADS", count)
        results.append(pgm.infer(model, want=("log_z", "marginals")))
    assert results[0].log_z == results[1].log_z
    assert np.array_equal(results[0].mean["v"], results[1].mean["v"])


def test_patterns_on_threads_give_the_same_bits(monkeypatch):
    """Rows that are each a pattern, answered by one thread and by several."""
    rng = np.random.default_rng(0)
    model = pgm.rbm(20, 30, hidden=pgm.Spin(), rng=0)
    v = (rng.random((40, 20)) < 0.5).astype(float)
    np.put_along_axis(v, np.argsort(rng.random(v.shape), axis=1)[:, :7], np.nan, axis=1)
    v[:3] = np.nan
    want, found = ("log_z", "log_prob", "marginals", "pairs", "mode"), []
    for count in ("1", "2", "3"):
        monkeypatch.setenv("PGMENGINE_THREADS", count)
        found.append(pgm.infer(model, {"v": v}, want=want, method=pgm.Exact()))
    for other in found[1:]:
        assert np.array_equal(other.log_z, found[0].log_z) and np.array_equal(
            other.log_prob, found[0].log_prob
        )
        assert np.array_equal(other.pairs["v-h"], found[0].pairs["v-h"])
        for name in ("v", "h"):
            assert np.array_equal(other.mean[name], found[0].mean[name])
            assert np.array_equal(other.mode[name], found[0].mode[name])
    for i in (0, 5, 39):
        alone = pgm.infer(model, {"v": v[i : i + 1]}, want=want, method=pgm.Exact())
        np.testing.assert_allclose(alone.log_z, found[0].log_z[i : i + 1], rtol=1e-13)
        np.testing.assert_allclose(alone.mean["h"][0], found[0].mean["h"][i], rtol=1e-10)


def test_an_impossible_row_is_named_among_patterns_on_threads(monkeypatch):
    monkeypatch.setenv("PGMENGINE_THREADS", "2")
    b = pgm.GraphBuilder()
    b.layer("h", pgm.Binary(), 3)
    # Without a leak, a unit that is on while no cause is on has probability zero.
    b.layer("v", pgm.NoisyOr(), 4)
    b.cause("h", "v", weight=np.ones((3, 4)))
    h = np.array([[0, np.nan, 1], [1, 1, np.nan], [0, 0, 0], [np.nan, 0, 1]])
    with pytest.raises(pgm.PgmError, match="evidence row 2 has probability zero"):
        pgm.infer(b.build(), {"h": h, "v": [[1, 1, 0, 0]] * 4}, method=pgm.Exact())


@pytest.mark.parametrize("leak", [0.0, 0.2])
def test_noisy_or_is_compiled(leak, monkeypatch):
    """A net of finding under causes (no leak: some states are impossible), compiled against
    numpy.
    """
    rng = np.random.default_rng(5)
    b = pgm.GraphBuilder()
    b.layer("cause", pgm.Binary(), 12, bias=np.full(12, -1.5))
    b.layer("middle", pgm.NoisyOr(), 3, bias=np.full(3, leak))
    b.layer("finding", pgm.NoisyOr(), 9, bias=np.full(9, leak))
    b.cause("cause", "middle", weight=rng.uniform(0.1, 2, (12, 3)) * (rng.random((12, 3)) < 0.5))
    b.cause("middle", "finding", weight=rng.uniform(0.1, 2, (3, 9)) * (rng.random((3, 9)) < 0.7))
    b.cause("cause", "finding", weight=rng.uniform(0.1, 2, (12, 9)) * (rng.random((12, 9)) < 0.3))
    model = b.build()
    rows = np.full((4, 9), np.nan)
    rows[0, :4], rows[1, :4], rows[2, :4] = [1, 0, 1, 1], [0, 0, 0, 1], [1, 1, 1, 1]
    soft = {"finding": np.tile(np.linspace(-2, 2, 9), (4, 1)) * np.isnan(rows)}
    want = ("log_z", "marginals", "pairs", "gradient", "mode")
    target = model.given({"finding": rows}, soft=soft)
    one = target.take(np.arange(1))
    p = log_linear_form(one, pattern_form_of(one, choose_cover(one, prune=True, structural=False)))
    assert isinstance(enumerator.make_enumerator(p), enumerator.CompiledEnumerator)
    compiled = pgm.Enumeration().run(target, want)
    numpy_enumeration_only(monkeypatch)
    plain = pgm.Enumeration().run(target, want)
    np.testing.assert_allclose(compiled.log_z, plain.log_z, **EXACT)
    for name in model.structure.layers:
        np.testing.assert_allclose(compiled.mean[name], plain.mean[name], **EXACT)
        np.testing.assert_array_equal(compiled.mode[name], plain.mode[name])
    for key, value in plain.gradient.items():
        np.testing.assert_allclose(compiled.gradient[key], value, **EXACT)
    for key, value in plain.pairs.items():
        np.testing.assert_allclose(compiled.pairs[key], value, **EXACT)


@pytest.mark.parametrize("rows", [1, 3, 11])
@pytest.mark.parametrize("together", [16, 32, 2**20])
def test_tasks_of_states_and_of_rows_add_up(rows, together, monkeypatch):
    """Rows of 2^8 states: many tasks for each row, some, and all rows in one task.

    Weights of 4 give the tasks of a row very different sums, whose scales are brought together.
    """
    rng = np.random.default_rng(rows)
    model = pgm.rbm(10, 8, hidden=pgm.Spin(), rng=0)
    model = model.with_params({"v-h.weight": rng.normal(0, 4, (10, 8))})
    evidence = {"v": np.where(np.arange(10) < 2, 1.0 * (rng.random((rows, 10)) < 0.5), np.nan)}
    want = ("log_z", "marginals", "pairs", "mode")
    numpy_enumeration_only(monkeypatch)
    plain = pgm.Enumeration().run(model.given(evidence), want)
    monkeypatch.undo()
    compiled_enumeration_only(monkeypatch)
    monkeypatch.setattr(cover_states, "STATES_PER_PIECE", 16)
    monkeypatch.setattr(compiled_enumerator, "STATES_PER_TASK", together)
    calls = counted_enumerations(monkeypatch)
    found = pgm.Enumeration().run(model.with_params({}).given(evidence), want)
    assert calls
    np.testing.assert_allclose(found.log_z, plain.log_z, rtol=1e-12)
    np.testing.assert_allclose(found.pairs["v-h"], plain.pairs["v-h"], rtol=1e-9, atol=1e-12)
    for name in ("v", "h"):
        np.testing.assert_allclose(found.mean[name], plain.mean[name], rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(found.mode[name], plain.mode[name])

"""Answers have every row of the question once, whatever method, part or worker has made them."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
from limits import small_parts
from loops import one_test_over

import pgmengine as pgm
from pgmengine.infer.question import splitting

WANTS = ("marginals", "pairs", "samples", "mode", "log_z", "log_prob", "bound")


@dataclass(frozen=True)
class Careless(pgm.Method):
    """Exact answers, or a bound, of one row too few or too many."""

    more: int
    gives = frozenset(WANTS)

    def scheme(self, target, want):
        return pgm.Scheme("careless", work=1.0, seconds=1e-6)

    def answer(self, question, rng, state=None, executor=None):
        rows = question.target.rows
        target = question.target.take(np.arange(max(rows + self.more, 1)) % rows)
        method = pgm.MeanField() if "bound" in question.want else pgm.Exact(draws=5)
        found = method.run(target, question.want, rng=rng)
        return question.result(found.answers)


@one_test_over("want", WANTS)
@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("parts", [1, 2])
def test_answers_with_other_rows_are_refused(want, more, parts, monkeypatch):
    model, evidence = pgm.rbm(4, 2, rng=0), {"v": np.eye(4)}
    monkeypatch.setattr(splitting, "part_count", lambda *_: parts)
    if more:
        with pytest.raises(pgm.PgmError, match="has not answered each row once"):
            pgm.infer(model, evidence, (want,), Careless(more), rng=0)
    else:
        pgm.infer(model, evidence, (want,), Careless(more), rng=0)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("method", [pgm.Exact(draws=4), pgm.Forward(), pgm.AIS(betas=100)])
def test_rows_of_mixed_patterns_in_parts(method, workers, monkeypatch):
    """Any number of parts gives each row its own answer, on workers or without."""
    small_parts(monkeypatch)
    model, rng = pgm.sbn([4, 3], rng=0), np.random.default_rng(0)
    v = np.where(rng.random((17, 4)) < 0.4, np.nan, rng.integers(0, 2, (17, 4)))
    exact = [pgm.infer(model, {"v": row[None]}, ("log_z",)).log_z[0] for row in v]
    with ThreadPoolExecutor(2) as pool:
        executor = pool if workers else None
        r = pgm.infer(model, {"v": v}, ("log_z",), method, rng=0, executor=executor)
    if r.kind == "exact":
        np.testing.assert_allclose(r.log_z, exact, rtol=1e-12)
    else:
        # The rows differ by nats. None of 17 is off by seven standard errors and a tenth.
        assert (np.abs(r.log_z - exact) < 7 * r.log_z_error + 0.1).all()


SEEN = list(itertools.product([0.0, 1.0], repeat=3))
OBSERVED = {
    "couplings": (pgm.rbm(2, 1, rng=0), lambda x: {"v": x[:, :2], "h": x[:, 2:]}),
    "arrows": (pgm.sbn([2, 1], rng=0), lambda x: {"v": x[:, :2], "h1": x[:, 2:]}),
}


@pytest.mark.parametrize("kind", OBSERVED)
@pytest.mark.parametrize("rows", [1, 2, 8])
@pytest.mark.parametrize("method", [pgm.Forward(), pgm.AIS(), pgm.MeanField()], ids=repr)
def test_rows_in_which_everything_is_observed(kind, rows, method):
    model, given = OBSERVED[kind]
    evidence = given(np.array(SEEN[-rows:]))
    soft = {next(iter(evidence)): np.full((rows, 2), 0.3)}
    exact = pgm.infer(model, evidence, ("log_z",), pgm.Exact(), soft=soft).log_z
    r = pgm.infer(model, evidence, ("log_z",), method, soft=soft, rng=0)
    np.testing.assert_allclose(r.log_z, exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("want", [*itertools.permutations(("log_prob", "log_z", "marginals"))])
@pytest.mark.parametrize("first", [pgm.MeanField(), pgm.AIS()], ids=repr)
def test_log_z_and_log_prob_of_parts_are_of_one_method(want, first):
    """Without evidence log Z is the same for all rows: log_z - log_prob has no spread."""
    model, rng = pgm.rbm(6, 5, rng=0), np.random.default_rng(0)
    model = model.with_params({"v-h.weight": 2 * rng.normal(size=(6, 5))})
    v = np.where(rng.random((3, 6)) < 0.5, np.nan, rng.integers(0, 2, (3, 6)))
    auto = pgm.Auto(candidates=(first, pgm.AIS(), pgm.MCMC(rhat_limit=np.inf), pgm.MeanField()))
    r = pgm.infer(model, {"v": v}, want, auto, rng=1)
    exact = pgm.infer(model, {"v": v}, ("log_prob",), pgm.Exact()).log_prob
    assert np.ptp(r.log_z - r.log_prob) < 1e-9 and (r.log_z_error > 0).all()
    error = np.hypot(r.log_z_error, r.stats["log_prob_error"])
    assert (np.abs(r.log_prob - exact) < 7 * error + 0.02).all()


def test_an_estimated_log_prob_shows_its_error():
    rows = (np.random.default_rng(0).random((2, 40)) < 0.5).astype(float)
    model = pgm.rbm(40, 35, rng=0)
    r = pgm.infer(model, {"v": rows}, want=("log_prob",), rng=0)
    assert r.kind == "estimate" and (r.log_z_error == 0).all()
    np.testing.assert_array_equal(r.log_prob_error, r.stats["log_prob_error"])
    assert (r.log_prob_error > 0).all()
    text = str(r)
    assert "log_z of the evidence (exact): " in text
    assert text.count(f" ± {r.log_prob_error[0]:.2g}") == 2
    exact = pgm.infer(pgm.rbm(40, 5, rng=0), {"v": rows}, want=("log_prob",))
    assert (exact.log_prob_error == 0).all() and "±" not in str(exact)


def test_log_z_is_not_printed_beside_an_equal_log_prob():
    net = pgm.sbn([4, 2], rng=0)
    r = pgm.infer(net, {"v": [0, 1, 1, 0]}, want=("log_prob",))
    assert "log_prob: " in str(r) and "log_z" not in str(r)
    assert r.log_z == r.log_prob


def test_the_status_of_draws_does_not_hide_an_exact_log_z():
    """Chains of this lattice stay in one phase; log Z is a determinant."""
    b = pgm.GraphBuilder()
    s = b.layer("s", pgm.Spin(), (26, 26))
    b.couple(s[1:], s[:-1], 1.0, name="down")
    b.couple(s[:, 1:], s[:, :-1], 1.0, name="along")
    auto = pgm.Auto(candidates=(pgm.Exact(), pgm.MCMC(draws=50)))
    r = pgm.infer(b.build(), want=("log_z", "samples"), method=auto, rng=0)
    assert not r.status.good and r.kind == "estimate"
    assert "the status does not concern log_z: the answer is exact" in r.warnings
    assert "log_z (exact): " in str(r)


def test_a_ladder_is_not_told_to_use_a_ladder():
    status = pgm.Status.NOT_MIXED
    for method, told in ((pgm.MCMC(), True), (pgm.ParallelTempering(), False)):
        plan = pgm.Plan(type(method).__name__)
        text = str(pgm.Result({}, "estimate", method, plan, status))
        assert ("use a tempering method" in text) is told and "draw longer" in text


def test_lower_bounds_are_shown_as_such():
    r = pgm.infer(pgm.rbm(4, 3, rng=0), want=("log_z",), method=pgm.MeanField())
    assert r.kind == "lower bound" and "log_z (at least): " in repr(r)
    net = pgm.infer(pgm.sbn([4, 3], rng=0), {"v": [1, 0, 1, 1]}, ("log_prob",), pgm.MeanField())
    assert net.kind == "lower bound" and "log_prob (at least): " in repr(net)
    assert "at least" not in repr(pgm.infer(pgm.rbm(4, 3, rng=0), want=("log_z",)))

"""Estimates against facts that are known for sure: exact sums, and probabilities of at most one."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

import pgmengine as pgm
from pgmengine.infer.diagnostics import sure_facts

NAN = np.nan


def trained(visible=12, hidden=6, seed=0):
    rng = np.random.default_rng(seed)
    model = pgm.rbm(visible, hidden)
    return model.with_params(
        {name: rng.normal(size=np.shape(v)) for name, v in model.params.items()}
    )


@dataclass(frozen=True)
class Off(pgm.Method):
    """A method whose answers are the exact ones, moved by a number, with small errors."""

    by: float = 0.0
    gives = frozenset({"marginals", "log_z", "log_prob"})

    def scheme(self, target, want):
        """Accept everything."""
        return pgm.Scheme("exact answers, moved", work=1.0)

    def answer(self, question, rng, state=None, executor=None):
        """Move the answers; rows of evidence keep their own."""
        r = pgm.Exact().run(question.target, question.want)
        out, stats = dict(r.answers), {}
        if "mean" in out:
            out["mean"] = {n: v + self.by for n, v in out["mean"].items()}
            # Statistics have an axis of rows in any case.
            rows = question.target.rows
            stats["mcse"] = {
                n: np.full((rows, np.size(v) // rows), 1e-3) for n, v in out["mean"].items()
            }
        if "log_z" in out:
            out["log_z"] = out["log_z"] + self.by
            out["log_z_interval"] = out["log_z"][:, None] + [-1e-2, 1e-2]
        if "log_prob" in out:
            out["log_prob"] = out["log_prob"] + self.by
            stats["log_prob_error"] = np.full(len(out["log_prob"]), 1e-3)
        return question.result(out, stats)


EVIDENCE = {"v": [[1] * 6 + [NAN] * 6, [NAN] * 12, [0, 1] * 6]}


@pytest.mark.parametrize("want", ["marginals", "log_z", "log_prob"])
@pytest.mark.parametrize("evidence", [None, EVIDENCE], ids=["no rows", "rows"])
def test_answers_that_an_exact_sum_contradicts_are_not_good(want, evidence):
    model = trained()
    right = pgm.infer(model, evidence, want=(want,), method=Off())
    assert right.status is pgm.Status.OK and not right.warnings
    for by in (-0.1, 0.1):
        wrong = pgm.infer(model, evidence, want=(want,), method=Off(by))
        assert wrong.status is pgm.Status.CONTRADICTED
        assert "exact sum" in wrong.warnings[0] or "more than 1" in wrong.warnings[0]
    asked = pgm.prepare(model, want=(want,), method=Off(0.1))
    assert asked().status is pgm.Status.CONTRADICTED


def test_junction_trees_check_chains_too(size=200):
    chain = pgm.GraphBuilder()
    chain.layer("x", pgm.Spin(), size)
    chain.tables(("x", "x"), [[i, i + 1] for i in range(size - 1)], [[2.0, 1.0], [1.0, 2.0]])
    model = chain.build()
    assert pgm.infer(model, method=Off()).status is pgm.Status.OK
    assert pgm.infer(model, method=Off(0.1)).status is pgm.Status.CONTRADICTED


def test_sums_that_take_long_are_left_out():
    """A cover of 30 units: the answer of a sampler stands as it is."""
    model = pgm.rbm(40, 30, rng=0)
    r = pgm.infer(model, want=("log_z",), method=pgm.AIS(chains=20, betas=50), rng=0)
    assert r.status is not pgm.Status.CONTRADICTED


def large(seed=0):
    """An RBM whose cover of 24 units no sum checks, with sparse pixels."""
    return pgm.rbm(40, 24, rng=seed).with_params({"v.bias": np.full(40, -3.0)})


@dataclass(frozen=True)
class Rows(pgm.Method):
    """A method that returns fixed log probabilities."""

    log_p: tuple[float, ...]
    error: float = 0.0
    gives = frozenset({"log_prob"})

    def scheme(self, target, want):
        """Accept everything."""
        return pgm.Scheme("fixed numbers", work=1.0)

    def answer(self, question, rng, state=None, executor=None):
        """Return the numbers."""
        log_p = np.array(self.log_p)
        stats = {"log_prob_error": np.full(len(log_p), self.error)}
        return question.result({"log_z": log_p, "log_prob": log_p}, stats)


def status(log_p, rows, error=0.0, model=None, **given):
    """The status of fixed log probabilities of rows."""
    model = large() if model is None else model
    method = Rows(tuple(log_p), error)
    return pgm.infer(model, {"v": rows}, want=("log_prob",), method=method, **given).status


def test_probabilities_of_different_rows_sum_to_at_most_one():
    eye = np.eye(40)[:3]
    half, third = np.log(0.5), np.log(0.3)
    assert status([0.1], eye[:1]) is pgm.Status.CONTRADICTED
    assert status([0.1], eye[:1], error=0.05) is pgm.Status.OK
    assert status([half] * 3, eye) is pgm.Status.CONTRADICTED
    assert status([third] * 3, eye) is pgm.Status.OK
    # The same row three times is one event.
    assert status([half] * 3, eye[[0, 0, 0]]) is pgm.Status.OK
    # Rows of different patterns do not exclude each other.
    mixed = eye.copy()
    mixed[1, 5:], mixed[2, 7:] = NAN, NAN
    assert status([half] * 3, mixed) is pgm.Status.OK
    # Among rows of one pattern they do, whatever the others are.
    assert status([half] * 4, np.vstack([mixed[1:], eye[:2]])) is pgm.Status.OK
    rows = np.vstack([mixed[1:2], mixed[1:2], eye])
    rows[1, 0] = 1
    assert status([third, third, half, half, half], rows) is pgm.Status.CONTRADICTED


def test_densities_and_rows_with_hints_may_be_above_one():
    gaussian = pgm.rbm(40, 24, visible=pgm.Gaussian(), rng=0)
    assert status([5.0], np.zeros((1, 40)), model=gaussian) is pgm.Status.OK
    hint = {"h": np.full(24, 1.0)}
    assert status([5.0], np.zeros((1, 40)), soft=hint) is pgm.Status.OK
    assert status([5.0], np.zeros((1, 40))) is pgm.Status.CONTRADICTED


def test_ordinary_samplers_are_not_contradicted(models=20):
    """Of 60 answers of samplers with a right answer none has the status CONTRADICTED.

    A mean is contradicted beyond six standard errors, an interval of log Z beyond three of them.
    """
    for seed in range(models):
        rng = np.random.default_rng(seed)
        model = trained(8, 6, seed)
        model = replace_scale(model, 0.3)
        for method, want in (
            (pgm.MCMC(draws=500), ("marginals",)),
            (pgm.ParallelTempering(draws=500), ("marginals",)),
            (pgm.AIS(chains=50, betas=100), ("log_z",)),
        ):
            r = pgm.infer(model, want=want, method=method, rng=int(rng.integers(2**31)))
            if r.status is pgm.Status.CONTRADICTED:
                assert "log Z" in r.warnings[0] and want == ("log_z",), (seed, r.warnings)


def replace_scale(model, scale):
    return model.with_params({name: scale * v for name, v in model.params.items()})


def test_some_of_many_rows_are_checked(monkeypatch, rows=60):
    """Where the sum over all rows would take too long, rows at even spacing are checked."""
    monkeypatch.setattr(sure_facts, "MAX_CHECK_UPDATES", 1.0)
    monkeypatch.setattr(sure_facts, "MAX_CHECK_BYTES", 1.0)
    model, x = trained(), np.full((rows, 12), NAN)
    x[:, :3] = np.random.default_rng(0).integers(0, 2, (rows, 3))
    for want in ("marginals", "log_z", "log_prob"):
        target = model.given({"v": x})
        plan = pgm.Exact().plan(target, (want,))
        tenth = replace(plan, work=plan.work / 10, bytes=plan.bytes / 10)
        some, question = sure_facts._quick_sum(target, (want,), tenth)
        assert 2 <= len(some) <= rows / 5 and question.target.rows == len(some)
        assert some[0] == 0 and some[-1] == rows - 1
        assert sure_facts._quick_sum(target, (want,), replace(plan, work=1.0, bytes=1.0)) is None

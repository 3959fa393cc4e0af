"""A precision that is asked for: rounds until the error is small, and a word where it is not."""

import numpy as np
import pytest

import pgmengine as pgm
from pgmengine.infer.question.precision import largest_error

FEW = pgm.MCMC(warmup=100, draws=50)


@pytest.mark.parametrize("seed", range(20))
def test_means_are_as_precise_as_asked(seed):
    model = pgm.rbm(12, 8, rng=seed)
    exact = pgm.infer(model, method=pgm.Exact())
    loose = pgm.infer(model, method=FEW, rng=seed)
    r = pgm.infer(model, method=FEW, rng=seed, tolerance=0.01)
    assert largest_error(loose) > 0.01 >= largest_error(r) and r.status.good
    # The largest of twenty gaps of independent normal numbers exceeds 5 errors once in 10^5 cases.
    assert max(np.abs(r.mean[n] - exact.mean[n]).max() for n in "vh") < 5 * 0.01


def test_log_z_is_as_precise_as_asked():
    model = pgm.rbm(30, 28, rng=0)
    key = next(k for k, w in model.params.items() if np.ndim(w) == 2)
    model = model.with_params({key: 30 * model.params[key]})
    few = pgm.AIS(chains=20, betas=20)
    r = pgm.infer(model, want=("log_z",), method=few, rng=0, tolerance=0.02, seconds=60)
    assert r.log_z_error[0] <= 0.02 and r.method.chains > 20


def test_an_error_that_stays_larger_is_said():
    model = pgm.rbm(12, 8, rng=0)
    r = pgm.infer(model, method=FEW, rng=0, tolerance=1e-9, seconds=0.5)
    assert "1e-09 was asked for" in r.warnings[0] and "does not end in" in r.warnings[0]
    bound = pgm.infer(model, want=("log_z",), method=pgm.MeanField(), tolerance=0.1)
    assert "error is unknown" in bound.warnings[0]


def test_exact_answers_have_no_rounds():
    r = pgm.infer(pgm.rbm(4, 3, rng=0), tolerance=1e-300)
    assert r.kind == "exact" and not r.warnings


@pytest.mark.parametrize("wrong", [0, -1, np.nan, "a"])
def test_wrong_tolerances_are_refused(wrong):
    with pytest.raises(pgm.PgmError, match="tolerance"):
        pgm.infer(pgm.rbm(4, 3, rng=0), tolerance=wrong)


def test_a_round_that_is_stopped_leaves_the_last_answer(monkeypatch):
    model, answer, rounds = pgm.rbm(12, 8, rng=0), pgm.MCMC.answer, []

    def stopped(self, *args):
        rounds.append(self.draws)
        if len(rounds) > 2:
            raise KeyboardInterrupt
        return answer(self, *args)

    monkeypatch.setattr(pgm.MCMC, "answer", stopped)
    r = pgm.infer(model, method=FEW, rng=0, tolerance=1e-9)
    assert rounds == [50, 100, 200] and r.method.draws == 100 and "it was stopped" in r.warnings[0]


def test_an_approximation_is_not_repeated_for_an_error_that_it_does_not_have():
    model = pgm.boltzmann_machine(30, rng=0)
    r = pgm.infer(model, method=pgm.BeliefPropagation(), tolerance=0.01, seconds=5)
    assert r.method == pgm.BeliefPropagation() and "an approximation has no error" in r.warnings[0]

"""Rows whose chains have mixed keep their answers; the other rows are asked again.

The model has two modes that chains do not leave: an RBM of strong weights whose visible units are
all 0 or all 1. A row that observes some of them has one mode left, and its chains mix.
"""

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest
from loops import one_test_over

import pgmengine as pgm
from pgmengine.infer.question.joining import rows_of, unmixed_rows
from pgmengine.infer.question.splitting import stacked

CHAINS = pgm.MCMC(warmup=200, draws=1500)
AUTO = pgm.Auto(candidates=(CHAINS, pgm.Exact(draws=5000)), confirm_seconds=0.0)
NAN = np.nan
# Rows that observe units have mixed; rows without evidence have not.
SEEN = [
    [1, 1, 1, NAN, NAN, NAN],
    [NAN] * 6,
    [0, NAN, 0, NAN, 0, NAN],
    [NAN] * 6,
    [1, NAN, NAN, 1, NAN, 1],
]
OPEN = np.array([1, 3])


def two_modes():
    """Return an RBM of six visible units that are equal with high probability."""
    weight = np.full((6, 4), 2.5)
    bias = {"v.bias": -weight.sum(axis=1) / 2, "h.bias": -weight.sum(axis=0) / 2}
    return pgm.rbm(6, 4, rng=0).with_params({"v-h.weight": weight} | bias)


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [1, 3, 0, 2, 4], [4, 2, 3, 0, 1]])
@pytest.mark.parametrize("want", [("marginals",), ("pairs", "marginals"), ("samples", "marginals")])
def test_only_rows_that_have_not_mixed_are_asked_again(order, want):
    model, v = two_modes(), np.array(SEEN)[order]
    chains = pgm.infer(model, {"v": v}, want, CHAINS, rng=0)
    exact = pgm.infer(model, {"v": v}, want, pgm.Exact(draws=6000), rng=0)
    r = pgm.infer(model, {"v": v}, want, AUTO, rng=0)
    assert chains.status is pgm.Status.NOT_MIXED and r.status is pgm.Status.OK and not r.warnings
    assert [type(m) for m in r.method.methods] == [pgm.MCMC, pgm.Exact]
    assert "3 rows by MCMC" in r.plan.why and "2 rows by Exact" in r.plan.why
    again = np.isin(order, OPEN)
    for found, one, two in ((r.mean, chains.mean, exact.mean), (r.prob, chains.prob, exact.prob)):
        for name, value in found.items():
            np.testing.assert_array_equal(value[~again], one[name][~again])
            np.testing.assert_allclose(value[again], two[name][again], rtol=1e-12)
    if "pairs" in want:
        pairs = r.pairs["v-h"]
        np.testing.assert_array_equal(pairs[~again], chains.pairs["v-h"][~again])
        np.testing.assert_allclose(pairs[again], exact.pairs["v-h"][again], rtol=1e-12)
    if "samples" in want:
        # The standard error of 5000 independent draws is 0.007.
        assert np.isfinite(r.samples["v"]).all()
        np.testing.assert_allclose(r.samples["v"].mean(axis=0)[again], 0.5, atol=0.05)


def test_a_row_has_the_same_verdict_alone():
    model, v = two_modes(), np.array(SEEN)
    r = pgm.infer(model, {"v": v}, method=CHAINS, rng=0)
    np.testing.assert_array_equal(unmixed_rows(r, model.structure, 5), np.isin(np.arange(5), OPEN))
    for row in range(5):
        alone = rows_of(r, np.array([row]))
        assert alone.mean["v"].shape == (1, 6) and alone.stats["energy"].shape == (4, 1500, 1)
        assert bool(CHAINS.unmixed(alone.stats, model.structure)) == (row in OPEN)


@one_test_over("rows", list(itertools.permutations(range(3))))
def test_rows_of_a_result_are_in_order(rows):
    v = np.array(SEEN)[[0, 2, 4]]
    r = pgm.infer(two_modes(), {"v": v}, ("samples", "marginals"), CHAINS, rng=0)
    other = rows_of(r, np.array(rows))
    for i, row in enumerate(rows):
        np.testing.assert_array_equal(other.samples["h"][:, i], r.samples["h"][:, row])
        np.testing.assert_array_equal(other.mean["v"][i], r.mean["v"][row])
        np.testing.assert_array_equal(other.stats["ess"]["v"][i], r.stats["ess"]["v"][row])
        np.testing.assert_array_equal(other.stats["energy"][..., i], r.stats["energy"][..., row])


def test_gradients_are_sums_over_rows_and_asked_as_a_whole():
    model, v = two_modes(), np.array(SEEN)
    r = pgm.infer(model, {"v": v}, ("gradient",), AUTO, rng=0)
    exact = pgm.infer(model, {"v": v}, ("gradient",), pgm.Exact())
    assert isinstance(r.method, pgm.Exact)
    for name, value in exact.gradient.items():
        np.testing.assert_allclose(r.gradient[name], value, rtol=1e-12)


@dataclass(frozen=True)
class Slow(pgm.Method):
    """An estimate that would take longer than a second estimate may."""

    gives = frozenset({"marginals"})

    def scheme(self, target, want):
        return pgm.Scheme("a long run", work=1.0, seconds=7.0 * target.rows)

    def answer(self, question, rng, state=None, executor=None):
        return question.result({"mean": pgm.Exact().run(question.target).answers["mean"]})


def test_a_second_estimate_has_a_time_limit_that_the_warning_tells():
    model, v = two_modes(), np.array(SEEN)
    auto = pgm.Auto(candidates=(CHAINS, Slow()), confirm_seconds=0.0)
    r = pgm.infer(model, {"v": v}, method=auto, rng=0)
    # Two rows would take 14 s, and the limit is 10 s.
    assert r.status is pgm.Status.NOT_MIXED and r.method == CHAINS
    assert r.warnings[0] == "2 rows of chains that have not mixed, such as row 1"
    assert "Slow may give a better answer in about 14 s: ask with seconds=15" in r.warnings[-1]
    longer = pgm.infer(model, {"v": v}, method=auto, rng=0, seconds=15)
    assert longer.status is pgm.Status.OK and longer.method.methods == (CHAINS, Slow())
    np.testing.assert_allclose(longer.mean["v"][OPEN], 0.5, atol=1e-9)
    # One row takes 7 s.
    one = pgm.infer(model, {"v": v[[0, 1]]}, method=auto, rng=0)
    assert one.status is pgm.Status.OK


def test_warnings_name_the_rows_of_the_question():
    """Ladders of two rungs do not travel, in rows 1 and 3 of the question."""
    hard = two_modes()
    hard = hard.with_params({name: 6 * value for name, value in hard.params.items()})
    ladder = pgm.ParallelTempering(rungs=2, draws=200, warmup=20, rhat_limit=2.0)
    auto = pgm.Auto(candidates=(CHAINS, ladder), confirm_seconds=0.0)
    r = pgm.infer(hard, {"v": np.array(SEEN)}, method=auto, rng=0)
    assert r.status is pgm.Status.FEW_TRIPS
    assert any("row 1 " in line or "row 3 " in line for line in r.warnings)
    assert not any(f"row {row} " in line for row in (0, 2, 4) for line in r.warnings)


def test_the_same_method_may_follow_itself():
    """Its second answers count, and its name is told once."""
    longer = pgm.MCMC(warmup=200, draws=1500, rhat_limit=50.0)
    auto = pgm.Auto(candidates=(CHAINS, CHAINS, longer), confirm_seconds=0.0)
    v = np.array(SEEN)
    one = pgm.infer(two_modes(), {"v": v}, method=CHAINS, rng=0)
    r = pgm.infer(two_modes(), {"v": v}, method=auto, rng=0)
    assert r.plan.method == "MCMC" and r.method.methods[0] == CHAINS
    again = np.isin(np.arange(5), OPEN)
    np.testing.assert_array_equal(r.mean["v"][~again], one.mean["v"][~again])
    assert (r.mean["v"][again] != one.mean["v"][again]).any()


def test_rows_that_no_method_answers_well_keep_the_status():
    second = pgm.MCMC(warmup=300, draws=1500)
    auto = pgm.Auto(candidates=(CHAINS, second), confirm_seconds=0.0)
    r = pgm.infer(two_modes(), {"v": np.array(SEEN)}, method=auto, rng=0)
    assert r.method.methods == (CHAINS, second)
    assert r.status is pgm.Status.NOT_MIXED and any("R-hat" in line for line in r.warnings)


def test_the_same_chains_again_are_another_answer():
    model, v, again = two_modes(), np.array(SEEN), np.isin(np.arange(5), OPEN)
    one = pgm.infer(model, {"v": v}, method=CHAINS, rng=0)
    auto = pgm.Auto(candidates=(CHAINS, CHAINS), confirm_seconds=0.0)
    r = pgm.infer(model, {"v": v}, method=auto, rng=0)
    np.testing.assert_array_equal(r.mean["v"][~again], one.mean["v"][~again])
    assert (r.mean["h"][again] != one.mean["h"][again]).any()


def test_a_warning_that_no_row_explains_is_about_all_rows():
    model = two_modes()
    r = pgm.infer(model, {"v": np.array(SEEN)}, method=CHAINS, rng=0)
    warned = replace(r, warnings=(*r.warnings, "a ladder of temperatures disagrees"))
    assert unmixed_rows(warned, model.structure, 5).all()


def test_parts_of_rows_keep_the_numbers_of_the_question():
    target = two_modes().given({"v": np.array(SEEN)})
    assert target.row_numbers.tolist() == [0, 1, 2, 3, 4]
    part = target.take(np.array([4, 1, 3]))
    assert part.take(np.array([2, 0])).row_numbers.tolist() == [3, 4]


def test_longer_chains_are_thinned_evenly():
    model, v = pgm.rbm(6, 4, rng=0), np.array(SEEN)[[0, 2]]
    short, long = (
        pgm.infer(model, {"v": v}, ("samples",), pgm.MCMC(draws=draws), rng=0)
        for draws in (100, 1000)
    )
    both = stacked([short, long])
    chains = long.samples["h"].reshape(4, 1000, 2, 4)
    kept = both.samples["h"].reshape(4, 100, 4, 4)[:, :, 2:]
    np.testing.assert_array_equal(kept[:, [0, 99]], chains[:, [0, 999]])
    np.testing.assert_array_equal(both.stats["energy"][:, -1, 2:], long.stats["energy"][:, -1])

"""The compiled sweeps: the same states as the plain engine on the same uniforms, whatever the batch
and the threads.
"""

import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.special
import twin
from kernels_of_users import Lazy
from loops import one_test_over
from scipy.stats import binom, chi2
from tiny import FINITE, INFINITE, mixed_target
from twin import key_of

import pgmengine as pgm
from pgmengine import _kernels
from pgmengine.engine import layerwise, reference
from pgmengine.engine.chains import refusal, start
from pgmengine.engine.layerwise import CompiledChains
from pgmengine.engine.single_site.sweeps import TabledChains

table = one_test_over("tiny_model", FINITE + INFINITE)


# ---- the generator ----


def test_known_answers_of_threefry():
    """Threefry4x32 of 20 rounds, from the test vectors of Salmon et al.; the sweeps use 12
    rounds.
    """
    cases = (
        ("00000000" * 4, "00000000" * 4, "9c6ca96a e17eae66 fc10ecd4 5256a7d8"),
        ("ffffffff" * 4, "ffffffff" * 4, "2a881696 57012287 f6c7446e a16a6732"),
        (
            "243f6a8885a308d313198a2e03707344",
            "a4093822299f31d0082efa98ec4e6c89",
            "59cd1dbb b8879579 86b5d00c ac8b6d84",
        ),
    )
    for counter, key, answer in cases:
        c, k, a = (
            np.frombuffer(bytes.fromhex(v), ">u4").astype(np.uint32) for v in (counter, key, answer)
        )
        assert twin.threefry(c[None], k, rounds=20)[0].tolist() == a.tolist()


def test_compiled_uniforms_are_those_of_the_twin():
    key = key_of(0)
    for sweep, chain, layer in ((0, 0, 0), (7, 3, 1), (2**32 - 1, 2**31, 65537)):
        found = _kernels.uniforms(key, sweep, chain, layer, 0, 40)
        np.testing.assert_allclose(found, twin.uniforms(key, sweep, chain, layer, 2560), rtol=1e-6)
        second = _kernels.uniforms(key, sweep, chain, layer, 0x8000000, 40)
        np.testing.assert_allclose(
            second, twin.uniforms(key, sweep, chain, layer, 2560, second=True), rtol=1e-6
        )
        assert not np.allclose(found, second)
    assert 0 < found.min() and found.max() <= 1


def streams(count=512):
    key = key_of(1)
    return np.stack(
        [
            _kernels.uniforms(key, s, c, layer, 0, 32)
            for s in range(8)
            for c in range(count // 16)
            for layer in range(2)
        ]
    )


def test_uniforms_are_uniform_and_uncorrelated():
    """Two chi-squares, seven correlations along streams, and those of all pairs of streams.

    False alarms: 1e-7 for each end of a chi-square (of pairs that do not overlap); 7 x 2e-9 beyond
    6 standard errors; 131,000 x 3e-13 beyond 7.3. The mean over pairs of streams is that of 2,048
    numbers (chi-square of 1, less 1) / 511: 1e-8 beyond 6.5.
    """
    u = streams()
    counts = np.bincount((u.ravel() * 256).astype(int).clip(0, 255), minlength=256)
    expected = u.size / 256
    assert 1e-7 < chi2.sf(((counts - expected) ** 2 / expected).sum(), 255) < 1 - 1e-7
    bins = (u * 16).astype(int).clip(0, 15)
    pairs = np.bincount((bins[:, ::2] * 16 + bins[:, 1::2]).ravel(), minlength=256)
    assert 1e-7 < chi2.sf(((pairs - pairs.sum() / 256) ** 2 / (pairs.sum() / 256)).sum(), 255)
    centred = (u - 0.5) * np.sqrt(12)
    for lag in (1, 2, 15, 16, 17, 63, 64):
        assert abs((centred[:, :-lag] * centred[:, lag:]).mean()) < 6 / np.sqrt(
            centred[:, lag:].size
        )
    # Correlations of neighbouring sweeps, chains and layers.
    across = centred @ centred.T / centred.shape[1]
    off = across[~np.eye(len(across), dtype=bool)]
    assert np.abs(off).max() < 7.3 / np.sqrt(centred.shape[1]) and abs(off.mean()) < 6.5 / np.sqrt(
        off.size * 2048 / 2
    )


# ---- the same as the plain engine ----


def test_noisy_or_inputs_do_not_drift(atol=0.06):
    """Causes of weight 1e3 switch on and off. The rounding errors that they leave add up beside a
    leak of 1e-3.
    """
    b, many = pgm.GraphBuilder(), 30
    b.layer("v", pgm.NoisyOr(), 1)
    b.layer("h", pgm.Binary(), many + 1, bias=[-60.0] * many + [1200.0])
    b.cause(
        "h", "v", weight=np.r_[np.random.default_rng(0).uniform(500, 2000, many), 1e-3][:, None]
    )
    target = b.build().given({"v": [1]}).take(np.zeros(40, dtype=int)).at(0.05)
    chains = CompiledChains(
        target, pgm.Gibbs(), start(target, np.random.default_rng(0)), np.random.default_rng(0)
    )
    off = 0
    for _ in range(400):
        found = chains.trace(1)[0]
        truth = target.log_density(chains.values())
        alone = chains.values()["h"][:, :many].sum(axis=1) == 0
        off += alone.sum()
        np.testing.assert_allclose(found[alone], truth[alone], atol=atol)
    assert off > 3


def test_the_last_cause_of_an_observed_effect_stays_on():
    """Rounding errors of inputs, which weights of 1e3 leave when they go, are no causes."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        b = pgm.GraphBuilder()
        b.layer("v", pgm.NoisyOr(), 1)
        b.layer("h", pgm.Binary(), 6)
        b.cause("h", "v", weight=10 ** rng.uniform(-7, 3.3, (6, 1)))
        target = b.build().given({"v": [1]}).take(np.zeros(200, dtype=int))
        chains = CompiledChains(target, pgm.Gibbs(), start(target, rng), rng)
        for _ in range(300):
            chains.sweep(1)
            assert chains.values()["h"].any(axis=1).all()


def test_wide_layers_cross_every_tile_and_block():
    """Sizes around the widths of vectors, blocks and panels.

    A uniform within single precision of its threshold comes about once in a million draws. A case
    has up to 70,000, so more than four of 70 chains part once in 7e7 cases (Poisson), and what is
    wrong at an edge parts nearly all.
    """
    for v, h in ((15, 16), (17, 63), (64, 65), (129, 200), (300, 10)):
        rng = np.random.default_rng(v)
        infinite = pgm.Gaussian(0.1), pgm.MultiValued(np.inf)
        for hidden in (pgm.Binary(), pgm.Categorical(3), pgm.MultiValued(3), *infinite):
            model = pgm.rbm(v, h, hidden=hidden, rng=1)
            target = model.given({"v": np.where(rng.random((70, v)) < 0.2, 1.0, np.nan)})
            x = start(target, rng)
            ours = CompiledChains(target, pgm.Blend(0.4), x, np.random.default_rng(2))
            theirs = reference.PlainChains(
                target, pgm.Blend(0.4), x, twin.Replay(target, key_of(2), set())
            )
            ours.sweep(3)
            theirs.sweep(3)
            x, y = ours.values(), theirs.values()
            # Other values than states are those of single precision.
            same = [np.isclose(x[name], y[name], rtol=1e-4, atol=2e-5) for name in x]
            assert (~np.concatenate(same, axis=1)).any(axis=1).sum() <= 4


@table
def test_a_row_alone_gives_the_bits_it_gives_in_a_batch(tiny_model):
    target = mixed_target(tiny_model)
    if refusal(target):
        return
    x = start(target, np.random.default_rng(0))
    together = CompiledChains(target, pgm.Blend(0.5), x, np.random.default_rng(4))
    together.sweep(7)
    for i in (0, 5, 23):
        alone = CompiledChains(
            target.take(np.array([i])),
            pgm.Blend(0.5),
            {n: v[[i]] for n, v in x.items()},
            np.random.default_rng(4),
            streams=np.array([i]),
        )
        alone.sweep(7)
        for name, value in alone.values().items():
            assert np.array_equal(value[0], together.values()[name][i])
        np.testing.assert_allclose(alone.log_density()[0], together.log_density()[i], rtol=1e-12)


def test_trace_is_the_log_density_after_each_sweep():
    target = (
        pgm.rbm(9, 4, hidden=pgm.Categorical(3), rng=0).given().take(np.zeros(5, dtype=int)).at(0.7)
    )
    x = start(target, np.random.default_rng(0))
    for engine in (CompiledChains, reference.PlainChains):
        one, two = (engine(target, pgm.Gibbs(), x, np.random.default_rng(1)) for _ in range(2))
        found = one.trace(6)
        for t in range(6):
            two.sweep(1)
            np.testing.assert_allclose(
                found[t], target.log_density(two.values()), rtol=1e-5, atol=1e-5
            )


@pytest.mark.parametrize("swept", [0, 3])
def test_kept_chains_come_back_with_their_inputs(swept):
    """The log density is right before the first sweep, too, when no inputs are computed yet."""
    model = pgm.rbm(30, 20, rng=1)
    target = model.given().take(np.zeros(6, dtype=int))
    rng = np.random.default_rng(0)
    chains = CompiledChains(target, pgm.Gibbs(), start(target, rng), rng)
    chains.sweep(swept)
    kept, before = chains.keep(), chains.values()
    chains.sweep(5)
    back = np.array([True, False, True, True, False, True])
    chains.restore(kept, back)
    x, w = chains.values(), model.params["v-h.weight"]
    assert np.array_equal(x["v"][back], before["v"][back]) and not np.array_equal(
        x["v"][~back], before["v"][~back]
    )
    np.testing.assert_allclose(chains.inputs["h"][0][:, :20], x["v"] @ w, rtol=0, atol=1e-4)
    np.testing.assert_allclose(chains.inputs["v"][0][:, :30], x["h"] @ w.T, rtol=0, atol=1e-4)
    np.testing.assert_allclose(chains.log_density(), target.log_density(x), atol=1e-4)


def test_blocks_of_observed_units_are_skipped(monkeypatch, rows=5):
    """Chains that leave out whole blocks of observed units are the ones that keep everything.

    A deep model and one of three states, rows with gaps of their own, sweeps before and after
    annealing. The states are the same, and log densities the ones of the target.
    """

    def run(target, whole):
        rng = np.random.default_rng(3)
        monkeypatch.setattr(layerwise, "FREE_BLOCK", 2**20 if whole else 64)
        chains = CompiledChains(target, pgm.Gibbs(), start(target, rng), rng)
        traces, found = [], []
        for _ in range(2):
            traces.append(chains.trace(2))
            chains.sweep(2)
            found.append(chains.values())
            np.testing.assert_allclose(
                chains.log_density(), target.at(chains.beta).log_density(found[-1]), rtol=1e-5
            )
            weights = chains.anneal(np.linspace(0.7, 1.0, 4))
        return chains, traces, found, weights

    b = pgm.GraphBuilder()
    b.layer("v", pgm.Categorical(3), 70)
    b.layer("h", pgm.Binary(), 300)
    b.couple("v", "h", weight=np.random.default_rng(0).normal(0, 0.2, (210, 300)))
    deep, skipped = pgm.dbm([330, 90, 200], rng=0), 0
    rng = np.random.default_rng(1)
    for model, name in ((deep, "v"), (b.build(), "h")):
        size = model.structure.layers[name].size
        given = (rng.random((rows, size)) < 0.4).astype(float)
        given[:, 140:260] = np.where(rng.random((rows, 120)) < 0.8, np.nan, given[:, 140:260])
        target = model.given({name: given}).at(0.7)
        parts = run(target, False)
        columns = parts[0]._columns(name, parts[0].arrays[name].shape[1])
        # The last block of the second model ends with its padded units.
        skipped += columns in [(128, 304, 2), (128, 320, 2)]
        whole = run(target, True)
        for one, other in zip(parts[2], whole[2]):
            for layer in one:
                np.testing.assert_array_equal(one[layer], other[layer])
        np.testing.assert_allclose(parts[1], whole[1], rtol=1e-5)
        np.testing.assert_allclose(parts[3], whole[3], rtol=1e-3, atol=1e-2)
    assert skipped == 2


def test_threads_and_pieces_do_not_change_a_bit(monkeypatch):
    model = pgm.dbm([200, 90, 70], rng=0)
    target = model.given().take(np.zeros(150, dtype=int))
    x = start(target, np.random.default_rng(0))
    found = []
    monkeypatch.setattr(layerwise, "MIN_UPDATES_A_THREAD", 0)
    for count, pieces in (("1", (20,)), ("2", (20,)), ("3", (1, 2, 17))):
        monkeypatch.setenv("PGMENGINE_THREADS", count)
        chains = CompiledChains(target, pgm.Gibbs(), x, np.random.default_rng(1))
        for some in pieces:
            chains.sweep(some)
        found.append(chains)
    for other in found[1:]:
        assert all(np.array_equal(found[0].values()[n], v) for n, v in other.values().items())
        assert np.array_equal(found[0].changed, other.changed) and found[0].changed.all()


@pytest.mark.parametrize("refresh", [layerwise.SWEEPS_A_REFRESH, 10**9])
def test_inputs_do_not_drift(refresh, monkeypatch):
    """10,000 sweeps, with and without the periodic recomputation of inputs."""
    monkeypatch.setattr(layerwise, "SWEEPS_A_REFRESH", refresh)
    rng = np.random.default_rng(0)
    model = pgm.rbm(100, 60).with_params({"v-h.weight": rng.normal(size=(100, 60))})
    target = model.given().take(np.zeros(4, dtype=int))
    chains = CompiledChains(target, pgm.FlipState(), start(target, rng), rng)
    chains.sweep(10_000)
    x = chains.values()
    w = model.params["v-h.weight"]
    np.testing.assert_allclose(chains.inputs["h"][0][:, :60], x["v"] @ w, rtol=0, atol=1e-3)
    assert np.abs(chains.inputs["v"][0][:, :100] - x["h"] @ w.T).max() < 1e-3


def test_the_way_weights_are_added_depends_on_all_chains_and_does_not_show():
    """Chains of which half the units flip, beside frozen ones, and alone: panels whole, and in
    parts.
    """
    rng = np.random.default_rng(0)
    biases = {"v.bias": np.full(300, -8.0), "h.bias": np.full(200, -8.0)}
    model = pgm.rbm(300, 200).with_params(
        {"v-h.weight": 0.1 * rng.normal(size=(300, 200)), **biases}
    )
    target = model.given().take(np.zeros(64, dtype=int)).at(np.where(np.arange(64) < 6, 0.02, 1.0))
    x = start(target, rng)
    together = CompiledChains(target, pgm.Gibbs(), x, np.random.default_rng(1))
    flips = []
    for _ in range(5):
        before = together.changed.sum()
        together.sweep(1)
        flips.append((together.changed.sum() - before) / (64 * 500))
    for i in range(6):
        alone = CompiledChains(
            target.take(np.array([i])),
            pgm.Gibbs(),
            {n: v[i : i + 1] for n, v in x.items()},
            np.random.default_rng(1),
            np.array([i]),
        )
        alone.sweep(5)
        assert alone.changed.sum() / (5 * 500) > 2 / 8 and flips[-1] < 1 / 16
        for name in ("v", "h"):
            assert np.array_equal(alone.arrays[name][0], together.arrays[name][i])
            assert np.array_equal(alone.inputs[name][0][0], together.inputs[name][0][i])


def test_sparse_and_dense_weights_give_the_same_chains():
    rng = np.random.default_rng(0)
    w = rng.normal(size=(40, 30)) * (rng.random((40, 30)) < 0.2)
    found = []
    for weight in (w, sp.csr_array(w)):
        b = pgm.GraphBuilder()
        b.layer("h", pgm.Binary(), 40)
        b.layer("v", pgm.Categorical(3), 10)
        b.cause("h", "v", weight=weight)
        target = b.build().given({"v": np.where(rng.random((30, 10)) < 2, 1.0, np.nan)})
        chains = CompiledChains(
            target, pgm.Gibbs(), start(target, np.random.default_rng(1)), np.random.default_rng(2)
        )
        chains.sweep(5)
        found.append(chains.values())
    # 6,000 draws: more than two of 30 chains part by ties once in 3e7 tests
    assert (found[0]["h"] != found[1]["h"]).any(axis=1).sum() <= 2


def test_units_and_kernels_of_users_take_the_plain_engine():
    target = pgm.rbm(3, 2, rng=0).given()
    assert layerwise.knows(target, pgm.Gibbs()) and not layerwise.knows(target, Lazy())
    model = pgm.rbm(3, 2, rng=0)
    chains = pgm.infer(model, method=pgm.MCMC(kernel=Lazy(), chains=8, draws=3000), rng=0)
    exact = pgm.infer(model, method=pgm.Exact())
    # Of five means; 1e-6 for errors that are estimated from 8 series with a deviation of 7 %.
    for layer in exact.mean:
        assert np.all(
            np.abs(chains.mean[layer] - exact.mean[layer]) < 7 * chains.stats["mcse"][layer]
        )


def evidence_of(**layers):
    return {name: np.array(v, dtype=float) for name, v in layers.items()}


def small_child():
    b = pgm.GraphBuilder()
    b.layer("p", pgm.Binary(), 1)
    b.layer("q", pgm.Binary(), 1)
    b.layer("c", pgm.Binary(), 1)
    b.cause("p", "c", weight=[[3.0]])
    b.cause("q", "c", weight=[[-6.0]])
    return b.build(), evidence_of(q=[1], c=[1])


def lateral_child():
    b = pgm.GraphBuilder()
    b.layer("p", pgm.Binary(), 1)
    b.layer("c", pgm.Binary(), 2)
    b.cause("p", "c", weight=[[0.0, 3.0]])
    b.cause("c", "c", weight=[[0.0, -6.0], [0.0, 0.0]])
    return b.build(), evidence_of(c=[1, 1])


def many_states():
    b = pgm.GraphBuilder()
    b.layer("y", pgm.Categorical(300), 1)
    b.layer("p", pgm.Binary(), 1)
    weight = np.zeros((300, 1))
    weight[299], weight[43] = 3.0, -3.0
    b.couple("y", "p", weight=weight)
    return b.build(), evidence_of(y=[299])


def tiny_leak():
    b = pgm.GraphBuilder()
    b.layer("p", pgm.Binary(), 1, bias=[-14.0])
    b.layer("c", pgm.NoisyOr(), 1, bias=[5e-7])
    b.cause("p", "c", weight=[[1.0]])
    return b.build(), evidence_of(c=[1])


class CLogLog(pgm.Binary):
    """A user's unit with a link of its own: p(0 | z) = exp(-e^z)."""

    canonical = False

    def link(self, zeta):
        rate = np.exp(zeta)
        return rate + np.log(-np.expm1(-rate))

    def log_partition(self, zeta):
        return np.exp(zeta)

    def log_conditional(self, x, zeta):
        return np.where(np.asarray(x) == 1, np.log(-np.expm1(-np.exp(zeta))), -np.exp(zeta))


def own_link():
    b = pgm.GraphBuilder()
    b.layer("p", pgm.Binary(), 1)
    b.layer("c", CLogLog(), 1)
    b.cause("p", "c", weight=[[1.5]])
    return b.build(), evidence_of(c=[1])


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(
    "unit", [pgm.Binary(), pgm.Categorical(3), pgm.MultiValued(np.inf)], ids=repr
)
def test_units_in_sequence_cross_blocks_of_uniforms(unit, backward, units=70):
    """In both directions; of 4,200 draws more than two part once in 1e7 tests."""
    b, size = pgm.GraphBuilder(), units * unit.width
    weight = np.random.default_rng(1).normal(size=(size, size)) / 10
    weight *= np.kron(np.triu(np.ones((units, units)), 1), np.ones((unit.width, unit.width)))
    b.layer("x", unit, units)
    b.couple("x", "x", weight=weight + weight.T)
    target = b.build().given().take(np.zeros(20, dtype=int))
    x = start(target, np.random.default_rng(0))
    ours = CompiledChains(target, pgm.Blend(0.4), x, np.random.default_rng(2))
    replay = twin.Replay(target, key_of(2), ours.by_unit, backward=backward)
    theirs = reference.PlainChains(target, pgm.Blend(0.4), x, replay)
    ours.sweep(3, backward)
    theirs.sweep(3, backward)
    assert ours.by_unit == {"x"}
    same = np.isclose(ours.values()["x"], theirs.values()["x"], rtol=1e-4, atol=2e-5)
    assert (~same).any(axis=1).sum() <= 2


def test_impossible_children_at_beta_0_and_on_the_way_to_possible_ones():
    """An effect is on without a cause at beta = 0; from there a cause of three values appears."""
    b = pgm.GraphBuilder()
    b.layer("p", pgm.Categorical(3), 1)
    b.layer("c", pgm.NoisyOr(), 1)
    b.cause("p", "c", weight=[[0.0], [1.0], [2.0]])
    target = b.build().given({"c": [1.0]}).take(np.zeros(4000, dtype=int))
    for state in range(3):
        x = {"p": np.tile(np.eye(3)[state], (4000, 1)), "c": np.ones((4000, 1))}
        free, bound = (
            CompiledChains(target.at(beta), pgm.Gibbs(), x, np.random.default_rng(state))
            for beta in (0.0, 1.0)
        )
        free.sweep(1)
        bound.sweep(1)
        counts = free.values()["p"].sum(axis=0)
        # 3e-7 beyond this chi-square of 2; nine tests.
        assert ((counts - 4000 / 3) ** 2 / (4000 / 3)).sum() < chi2.isf(3e-7, 2)
        assert bound.values()["p"][:, 0].sum() == 0


CHILDREN = (pgm.Binary(), pgm.Categorical(3), pgm.MultiValued(3), pgm.MultiValued(np.inf))


@one_test_over("unit", CHILDREN, ids=repr)
def test_parents_weigh_the_normalisers_of_children_from_tiny_to_large_inputs(unit):
    """The log-odds of a parent are log p(x | zeta + w) - log p(x | zeta), here by sums in doubles.

    Soft evidence takes them back, so that each of 4,000 parents is on with probability 1/2.
    """
    grid = np.linspace(-1.0, 1.0, 200_001) if unit.support is None else unit.support

    def log_p(zeta):
        if unit.width > 1:
            return zeta[0] - scipy.special.logsumexp(zeta)
        top = np.abs(zeta[0]) * np.abs(grid).max()
        terms = np.exp(zeta[0] * grid - top)
        total = terms.sum() if unit.support is not None else np.trapezoid(terms, grid)
        return grid[0] * zeta[0] - top - np.log(total)

    for bias, weight in ((0.0, 0.5), (5e-5, 0.3), (0.05, 4.0), (0.5, 30.0), (0.0, 900.0)):
        own = np.arange(1.0, unit.width + 1) if unit.width > 1 else np.ones(1)
        gain = log_p((bias + weight) * own) - log_p(bias * own)
        b = pgm.GraphBuilder()
        b.layer("p", pgm.Binary(), 1)
        b.layer("c", unit, 1, bias=bias * own if unit.width == 1 else [bias * own])
        b.cause("p", "c", weight=[weight * own])
        first = np.eye(3)[:1] if unit.width > 1 else [[grid[0]]]
        seen = first[0][None] if unit.width > 1 else first[0]
        target = b.build().given({"c": seen}, soft={"p": [-gain]})
        target = target.take(np.zeros(4000, dtype=int))
        for state in (0.0, 1.0):
            x = {"p": np.full((4000, 1), state), "c": np.repeat(np.asarray(first), 4000, axis=0)}
            chains = CompiledChains(target, pgm.Gibbs(), x, np.random.default_rng(int(state)))
            assert chains.by_unit == {"p"}
            chains.sweep(1)
            count = chains.values()["p"].sum()
            assert 2 * binom.cdf(min(count, 4000 - count), 4000, 0.5) > 1e-8


def test_parents_weigh_observed_effects_of_tiny_leaks():
    """As above, where 1 - e^-z has no digits left in double precision."""
    for leak in (1e-30, 1e-20, 1e-10, 1e-3, 1.0):
        gain = np.log(-np.expm1(-leak - 1.0)) - np.log(-np.expm1(-leak))
        b = pgm.GraphBuilder()
        b.layer("p", pgm.Binary(), 1)
        b.layer("c", pgm.NoisyOr(), 1, bias=[leak])
        b.cause("p", "c", weight=[[1.0]])
        target = b.build().given({"c": [1.0]}, soft={"p": [-gain]})
        target = target.take(np.zeros(4000, dtype=int))
        x = {"p": np.ones((4000, 1)), "c": np.ones((4000, 1))}
        chains = CompiledChains(target, pgm.Gibbs(), x, np.random.default_rng(0))
        chains.sweep(1)
        count = chains.values()["p"].sum()
        assert 2 * binom.cdf(min(count, 4000 - count), 4000, 0.5) > 2e-7


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_draws_of_values_in_an_interval_from_tiny_to_large_parameters(sign):
    """The inverse of the distribution function of e^(eta x) on [-1, 1], in double precision.

    Unit 5 has a uniform of 9e-9 in this stream of this generator, which --shift leaves: in single
    precision 1 - u is 1, and at large parameters the value -1.
    """
    eta, stream = sign * np.append(np.geomspace(1e-6, 80.0, 60), [1.0, 9.0, 20.0, 50.0]), 283065
    key = np.random.Generator(np.random.PCG64(0)).integers(0, 2**32, size=4, dtype=np.uint32)
    u = twin.uniforms(key, 0, stream, 0, 64)
    assert u[5] < 1e-8
    for shift in range(0, 64, 4):
        own = np.roll(eta, shift)
        b = pgm.GraphBuilder()
        b.layer("x", pgm.MultiValued(np.inf), 64, bias=own)
        target = b.build().given()
        chains = CompiledChains(
            target,
            pgm.Gibbs(),
            {"x": np.zeros((1, 64))},
            np.random.Generator(np.random.PCG64(0)),
            streams=np.array([stream]),
        )
        chains.sweep(1)
        # Draws of negative parameters are mirrored, except for the smallest.
        mirror = np.where(np.abs(own) < 1e-4, 1.0, sign)
        size, found = mirror * own, mirror * chains.values()["x"][0]
        share = 1.0 + (1.0 - u) * np.expm1(-2.0 * size)
        truth = 1.0 + np.log(share) / size
        # The uniform has a rounding error of up to 6e-8.
        error = 1e-6 + 1e-7 * -np.expm1(-2.0 * size) / (size * share)
        assert (np.abs(found) <= 1.0).all()
        assert (np.abs(found - truth) <= error)[u > 1e-8].all()


@one_test_over(
    "case", [small_child, lateral_child, many_states, tiny_leak, own_link], ids=lambda c: c.__name__
)
def test_posteriors_of_one_unit(case):
    """Inputs from observed parents, states beyond a byte, leaks near 0, links the engine does not
    know.
    """
    model, evidence = case()
    target = model.given(evidence)
    x = {"p": np.array([[0.0], [1.0]])}
    both = target.take(np.zeros(2, dtype=int))
    log_p = both.log_density({n: x.get(n, both.evidence.values[n]) for n in model.structure.layers})
    truth = 1 / (1 + np.exp(log_p[0] - log_p[1]))
    result = pgm.infer(model, evidence, method=pgm.MCMC(chains=50, draws=2000), rng=0)
    assert abs(result.mean["p"][0] - truth) < 5 * np.sqrt(truth * (1 - truth) / 1e5)


def noisy_or_child(z, **given):
    """A unit that is off with probability e^-z, below a parent that is off; 40,000 rows."""
    b = pgm.GraphBuilder()
    b.layer("p", pgm.Binary(), 1)
    b.layer("c", pgm.NoisyOr(), 1, bias=[z])
    b.cause("p", "c", weight=[[1.0]])
    return b.build().given({"p": [0.0]}, **given).take(np.zeros(40_000, dtype=int))


TINY_TO_LARGE = [*np.geomspace(1.2e-38, 1e4, 60), *np.linspace(0.02, 5.0, 60)]
TINY_TO_LARGE += [86.0, 87.0, 88.0, 89.0, 103.0, 104.0, 1e30]


def test_log_probabilities_of_noisy_or_units_from_tiny_to_large_inputs():
    """log(1 - e^-z) of single units in single precision, with no digits lost at any z."""
    for z in TINY_TO_LARGE:
        target = noisy_or_child(z).take(np.array([0]))
        on = {"p": np.zeros((1, 1)), "c": np.ones((1, 1))}
        found = TabledChains(target, pgm.Gibbs(), on, np.random.default_rng(0)).log_density()[0]
        # The parent is off with probability 1/2.
        truth = np.log(-np.expm1(-z)) - np.log(2.0)
        np.testing.assert_allclose(found, truth, rtol=1e-7, atol=3e-7, err_msg=str(z))


@one_test_over("unit", [pgm.Binary(), pgm.Spin(), pgm.Categorical(3)], ids=repr)
def test_log_probabilities_of_children_have_the_digits_of_single_precision(unit):
    for z in np.linspace(-8.0, 8.0, 97):
        b = pgm.GraphBuilder()
        b.layer("p", pgm.Binary(), 1)
        bias = [z] if unit.width == 1 else [[0.0, z, 0.3]]
        b.layer("c", unit, 1, bias=bias)
        b.cause("p", "c", weight=np.ones((1, unit.width)))
        logits = z * unit.support if unit.width == 1 else np.array(bias[0])
        for state, value in enumerate(unit.support):
            target = b.build().given({"p": [[0.0]], "c": [[value if unit.width == 1 else state]]})
            x = {"p": np.zeros((1, 1)), "c": np.reshape(value, (1, -1)).astype(float)}
            chains = TabledChains(target, pgm.Gibbs(), x, np.random.default_rng(0))
            truth = logits[state] - scipy.special.logsumexp(logits) - np.log(2.0)
            # The normaliser is rounded like the largest input.
            error = 4e-7 + 1.2e-7 * (abs(z) + abs(truth))
            assert abs(chains.log_density()[0] - truth) <= error


def on_after_a_sweep(engine, target):
    """The number of the 40,000 units that are on."""
    off = {"p": np.zeros((40_000, 1)), "c": np.zeros((40_000, 1))}
    chains = engine(target, pgm.Gibbs(), off, np.random.default_rng(0))
    chains.sweep(1)
    return chains.values()["c"].sum()


@pytest.mark.parametrize("engine", [CompiledChains, TabledChains])
def test_draws_of_noisy_or_units_from_tiny_to_large_inputs(engine, false_alarm=1e-6):
    """Soft evidence takes the odds e^z - 1 back, so that each count is binomial with p = 1/2."""
    inputs = [1e-37, 1e-30, 1e-20, 1e-10, 1e-7, 1e-6, 1e-4, 0.01, 0.5, 1.0, 5.0, 17.0, 80.0, 89.0]
    odds = [z + np.log(-np.expm1(-z)) for z in inputs]
    even = [noisy_or_child(z, soft={"c": [-own]}) for z, own in zip(inputs, odds)]
    # At beta = 0 nothing is impossible.
    even.append(noisy_or_child(0.0).at(0.0))
    for target in even:
        count = on_after_a_sweep(engine, target)
        assert 2 * binom.cdf(min(count, 40_000 - count), 40_000, 0.5) > false_alarm / len(even)
    assert on_after_a_sweep(engine, noisy_or_child(0.0, soft={"c": [80.0]})) == 0


def test_log_density_of_a_chain_that_starts_at_an_impossible_state():
    b = pgm.GraphBuilder()
    b.layer("p", pgm.Binary(), 1)
    b.layer("c", pgm.NoisyOr(), 1)
    b.cause("p", "c", weight=[[1.0]])
    target = b.build().given({"c": [1]})
    chains = CompiledChains(
        target, pgm.Gibbs(), {"p": np.zeros((1, 1)), "c": np.ones((1, 1))}, np.random.default_rng(0)
    )
    assert chains.log_density()[0] == -np.inf
    chains.sweep(1)
    np.testing.assert_allclose(chains.log_density(), target.log_density(chains.values()), rtol=1e-6)
    found = chains.trace(2)[1]
    np.testing.assert_allclose(found, target.log_density(chains.values()), rtol=1e-6)


def test_the_blas_of_the_compiled_loops_is_limited():
    """In a fresh process, where nothing has loaded scipy's BLAS before: its threads would spin
    while ours work.
    """
    code = """
import threadpoolctl
import pgmengine as pgm

def seen(model, update):
    info = threadpoolctl.threadpool_info()
    pools.extend(p["num_threads"] for p in info if p["user_api"] == "blas")

pools, data = [], (__import__("numpy").random.default_rng(0).random((200, 300)) < 0.5) * 1.0
pgm.fit(pgm.rbm(300, 200, rng=0), {"v": data}, updates=3, callbacks=[seen], progress=False)
assert pools and set(pools) == {1}, pools
"""
    environment = os.environ | {"PGMENGINE_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)

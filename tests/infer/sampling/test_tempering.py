"""Tempering against the oracle: invariance with levels, weights, transitions, broken rules that are
caught.
"""

import numpy as np
import pytest
from brute import Brute
from invariance import ALARM, CAUGHT, exact_start, p_value, tail
from registry import FEW_DRAWS, KERNELS, SAMPLERS
from test_annealing import covers, random_rbm
from tiny import FINITE, INFINITE, as_evidence, draw_row

import pgmengine as pgm
from pgmengine.engine import layerwise
from pgmengine.engine.chains import make_chains
from pgmengine.infer.sampling.ladders import wandering as levels_module
from pgmengine.infer.sampling.ladders.coupled_ladders import CoupledTempering
from pgmengine.infer.sampling.ladders.replicas import Ladders
from pgmengine.infer.sampling.ladders.wandering import Levels, OneOverT
from pgmengine.infer.sampling.methods.parallel_tempering import rounds
from pgmengine.infer.sampling.methods.tempered_transitions import excursion
from pgmengine.model.training import Training

QUICK = ("dbm mixed", "noisy-or")
few = pytest.mark.parametrize(
    "tiny_model",
    [
        m if m.name in QUICK else pytest.param(m, marks=pytest.mark.long)
        for m in FINITE
        if m.name != "rbm large weights"
    ],
    ids=repr,
)
BETAS = np.array([0.0, 0.3, 0.7, 1.0])


# ---- parallel tempering ----


def test_rounds_double():
    assert sum(rounds(500)) == 500 and rounds(0) == [] and rounds(500)[-1] == 250


@pytest.mark.long
def test_pt_log_z_and_even_rejections():
    inside, errors = [], []
    for seed in range(20):
        model = random_rbm(seed)
        r = pgm.infer(
            model, want=("log_z",), method=pgm.ParallelTempering(warmup=1000, draws=8000), rng=seed
        )
        exact = pgm.infer(model, want=("log_z",)).log_z
        inside.append(covers(r, exact)[0])
        errors.append(abs(r.log_z - exact)[0])
        assert np.ptp(r.stats["swap_rejection"]) < 0.1 and r.stats["round_trips"][0] > 100
    assert sum(inside) >= 19 and max(errors) < 0.05


@few
def test_joint_distribution_of_the_ladder_is_invariant(tiny_model):
    """States at all rungs start exactly from their distributions; after swaps and sweeps each rung
    still has its own.
    """
    rng, count = np.random.default_rng(4), 4000
    row = draw_row(tiny_model, np.random.default_rng(11), 0.2)
    target = tiny_model.build().given(as_evidence(tiny_model, [row]))
    ladders = Ladders(target, BETAS, count, pgm.FlipState(), rng)
    truths = [Brute(tiny_model, row, beta=beta) for beta in BETAS]
    parts = [exact_start(truth, count, rng) for truth in truths]
    x = {
        n: np.stack([part[n] for part in parts], axis=1).reshape(count * len(BETAS), -1)
        for n in parts[0]
    }
    many = target.take(np.zeros(count * len(BETAS), dtype=int)).at(np.tile(BETAS, count))
    ladders.chains = layerwise.CompiledChains(many, pgm.FlipState(), x, rng)
    for _ in range(3):
        ladders.step()
    for k, truth in enumerate(truths):
        found = p_value(truth, ladders.chains.values(ladders.at[0, :, k]))
        assert found > ALARM / len(BETAS)


# ---- simulated tempering ----


def level_start(tiny_model, row, count, rng, log_g):
    """Exact draws of (state, level) with p proportional to Z_l / g_l times p_l(x)."""
    truths = [Brute(tiny_model, row, beta=beta) for beta in BETAS]
    weight = np.array([truth.log_z for truth in truths]) - log_g
    p = np.exp(weight - np.logaddexp.reduce(weight))
    level = rng.choice(len(BETAS), size=count, p=p)
    states = [exact_start(truth, count, rng) for truth in truths]
    x = {n: np.stack([s[n] for s in states])[level, np.arange(count)] for n in states[0]}
    return truths, p, level, x


def joint_p_values(tiny_model, rng, count=20_000):
    row = draw_row(tiny_model, np.random.default_rng(11), 0.2)
    log_g = np.array([0.0, 0.4, -0.3, 0.5]) + Brute(tiny_model, row, beta=0.5).log_z * BETAS
    truths, p, level, x = level_start(tiny_model, row, count, rng, log_g)
    target = tiny_model.build().given(as_evidence(tiny_model, [row]))
    chains = Levels(target, BETAS, count, pgm.Gibbs(), OneOverT(), rng)
    chains.rung, chains.weights.log_g = level[None], log_g[None]
    many = target.take(np.zeros(count, dtype=int)).at(BETAS[level])
    chains.chains = layerwise.CompiledChains(many, pgm.Gibbs(), x, rng)
    for _ in range(3):
        chains.step(adapt=False)
    counts = np.bincount(chains.rung[0], minlength=4)
    out = [tail(counts, p * count)]
    values = chains.chains.values()
    for k, truth in enumerate(truths):
        if counts[k] > 200:
            out.append(p_value(truth, {n: v[chains.rung[0] == k] for n, v in values.items()}))
    # Up to five comparisons: of the levels, and of the states at each.
    return out


@few
def test_state_and_level_are_jointly_invariant(tiny_model):
    assert min(joint_p_values(tiny_model, np.random.default_rng(2))) > ALARM / 5


def test_a_forgotten_proposal_ratio_at_the_ends_is_caught(monkeypatch):
    tiny_model = next(m for m in FINITE if m.name == "rbm")
    assert min(joint_p_values(tiny_model, np.random.default_rng(2))) > ALARM / 5
    monkeypatch.setattr(levels_module, "log_q", lambda level, top: np.zeros(level.shape))
    assert min(joint_p_values(tiny_model, np.random.default_rng(2))) < CAUGHT


@pytest.mark.few(1)
@pytest.mark.parametrize("gamma", [pgm.FlatHistogram(), pgm.OneOverT()])
def test_weights_converge_to_differences_of_log_z(gamma):
    """Over 16 runs of 8 models the errors of weights have a deviation of 0.021.

    In their own standard errors, log Z and means have deviations of 1.1 and 0.96. So the limits are
    6 deviations and more, of two, ten and 24 numbers: false alarms are below 1e-7.
    """
    model = random_rbm(2, 8, 6, 1.0)
    method = pgm.SimulatedTempering(betas=pgm.Linear(6), warmup=20_000, draws=20_000, gamma=gamma)
    r = pgm.infer(
        model,
        {"v": [[np.nan] * 8, [1] * 4 + [np.nan] * 4]},
        want=("log_z", "marginals"),
        method=method,
        rng=0,
    )
    target = model.given({"v": [[np.nan] * 8, [1] * 4 + [np.nan] * 4]})
    truth = np.stack(
        [pgm.Exact().run(target.at(b), ("log_z",)).log_z for b in np.linspace(0, 1, 6)], axis=1
    )
    found = r.stats["log_g"] + np.log(r.stats["occupancy"])
    np.testing.assert_allclose(found - found[:, :1], truth - truth[:, :1], rtol=0, atol=0.15)
    assert np.all(np.abs(r.log_z - truth[:, -1]) < 7 * r.log_z_error)
    exact = pgm.Exact().run(target, ("marginals",))
    for name in r.mean:
        off = np.abs(r.mean[name] - exact.mean[name])
        assert np.all(off <= 6.5 * r.stats["mcse"][name] + 1e-9)
    assert r.stats["adaptive"].sum() == 20_000 and r.stats["levels"].shape == (40_000, 2, 8)
    np.testing.assert_allclose(r.stats["occupancy"].sum(axis=1), 1.0)


# ---- tempered transitions, Wang-Landau, coupled chains ----


@few
def test_tempered_transitions_leave_p_invariant(tiny_model):
    rng, count = np.random.default_rng(4), 20_000
    row = draw_row(tiny_model, np.random.default_rng(11), 0.2)
    truth = Brute(tiny_model, row)
    target = (
        tiny_model.build().given(as_evidence(tiny_model, [row])).take(np.zeros(count, dtype=int))
    )
    for kernel in KERNELS:
        chains = make_chains(target, kernel, exact_start(truth, count, rng), rng)
        taken = excursion(chains, np.array([0.2, 0.6, 1.0]), rng)
        assert taken.any() and p_value(truth, chains.values()) > ALARM / 2


def test_a_transition_that_is_always_taken_is_caught():
    tiny_model = next(m for m in FINITE if m.name == "ising")
    rng, count = np.random.default_rng(4), 20_000
    truth = Brute(tiny_model, draw_row(tiny_model, rng, 0.0))
    target = tiny_model.build().given().take(np.zeros(count, dtype=int))
    chains = make_chains(target, pgm.Gibbs(), exact_start(truth, count, rng), rng)
    chains.anneal(np.array([1.0, 0.6, 0.2, 0.2, 0.6]), joint=True)
    assert p_value(truth, chains.values()) < CAUGHT


@pytest.mark.parametrize(
    "name",
    [
        "rbm continuous",
        *(
            pytest.param(n, marks=pytest.mark.long)
            for n in ("rbm", "sbn", "ising", "mixed", "dbm mixed")
        ),
    ],
)
def test_wang_landau_answers_agree_with_exact(name):
    tiny_model = next(m for m in FINITE + INFINITE if m.name == name)
    model, first = tiny_model.build(), tiny_model.layers[0]
    edges = np.linspace(-3, 3, 5)

    def partition(x):
        return np.digitize(x[first.name].reshape(len(x[first.name]), -1).sum(axis=1), edges)

    row = as_evidence(tiny_model, [draw_row(tiny_model, np.random.default_rng(1), 0.2)])
    r = pgm.infer(model, row, method=pgm.WangLandau(partition, bins=6, draws=6000), rng=0)
    exact = pgm.infer(model, row, method=pgm.Exact())
    for layer in r.mean:
        np.testing.assert_allclose(r.mean[layer], exact.mean[layer], rtol=0, atol=0.05)
    met = r.stats["occupancy"][0] > 0
    assert r.stats["occupancy"][0][met].min() > 0.3 / met.sum()
    with pytest.raises(pgm.PgmError, match="bin number 0..5"):
        pgm.infer(model, row, method=pgm.WangLandau(lambda x: np.full(8, 6), bins=6), rng=0)


@pytest.mark.parametrize("gamma", [OneOverT(), pgm.CAST().gamma], ids=repr)
def test_slow_chains_of_the_coupled_sampler_stay_at_p_and_change_places(gamma):
    tiny_model = next(m for m in FINITE if m.name == "rbm")
    truth, rng, pairs = Brute(tiny_model), np.random.default_rng(0), 4000
    target = tiny_model.build().given().take(np.zeros(pairs, dtype=int))
    coupled = CoupledTempering(target, np.linspace(0.3, 1, 5), pgm.Gibbs(), gamma, 10, rng)
    for _ in range(100):
        coupled.step()
    assert (
        coupled.travels.entry().swapped > 0.15 * pairs * 9
        and p_value(truth, coupled.states()) > ALARM
    )
    coupled.chains.adopt(target.model, pgm.Gibbs(), rng)
    coupled.step()
    assert set(coupled.slow) | set(coupled.fast) == set(range(2 * pairs))


def test_a_chain_with_its_own_weights_moves_as_one_that_is_alone():
    """The weights of each chain count its own visits; one chain has the same bits either way."""
    model, gamma = pgm.rbm(6, 3, rng=0), OneOverT(floor=0.1)

    def coupled(pairs, own):
        target = model.given().take(np.zeros(pairs, dtype=int))
        betas, rng = np.linspace(0.3, 1, 5), np.random.default_rng(0)
        return CoupledTempering(target, betas, pgm.Gibbs(), gamma, 2, rng, own)

    one, alone = coupled(1, own=False), coupled(1, own=True)
    for _ in range(50):
        one.step()
        alone.step()
        np.testing.assert_array_equal(alone.weights.log_g, one.weights.log_g)
        np.testing.assert_array_equal(alone.states()["v"], one.states()["v"])

    many, grown, rate = coupled(4, own=True), np.zeros((4, 5)), gamma.initial
    assert many.rung.shape == (4, 1) and many.weights.log_g.shape == (4, 5)
    for t in range(1, 51):
        many.step()
        grown[np.arange(4), many.rung[:, 0]] += rate
        rate = gamma.rate(rate, t, 5, None)[0]
    np.testing.assert_allclose(many.weights.log_g, grown - grown[:, :1], rtol=1e-9, atol=1e-9)
    again = coupled(4, own=True)
    again.load({k: np.array(v) for k, v in many.state().items()})
    np.testing.assert_array_equal(again.weights.log_g, many.weights.log_g)
    np.testing.assert_array_equal(again.rung, many.rung)


@pytest.mark.long
def test_a_bimodal_model_is_crossed_by_tempering_only(sure=0.25):
    """Two spins that prefer to be equal, weight 5: plain Gibbs stays where it starts.

    Over 20 seeds the means have deviations of 0.004, 0.031 and 0.003, so the limit is 8 deviations.
    A run that stays in one mode is off by 0.8.
    """
    model = pgm.boltzmann_machine(2).with_params(
        {"x-x.weight": np.array([[0, 5.0], [5.0, 0]]), "x.bias": [0.1, 0.1]}
    )
    exact = pgm.infer(model).mean["x"][0]
    for method in (
        pgm.ParallelTempering(draws=20_000),
        pgm.SimulatedTempering(draws=40_000, warmup=10_000),
        pgm.WangLandau(
            lambda x: (x["x"].sum(axis=1) / 2 + 1).astype(int), 3, warmup=5_000, draws=20_000
        ),
    ):
        found = pgm.infer(model, method=method, rng=1)
        assert abs(found.mean["x"][0] - exact) < sure
    # Spins with weight 5 turn over in one of 6 runs of 2,000 sweeps, with weight 12 in one of 1e7.
    model = model.with_params({"x-x.weight": 12.0 * (1 - np.eye(2))})
    stuck = pgm.infer(model, method=pgm.MCMC(chains=1, warmup=0, draws=2000), rng=0)
    assert abs(stuck.mean["x"][0]) > 0.9


def test_auto_falls_through_to_tempering_and_to_ais():
    model = pgm.boltzmann_machine(40, unit=pgm.Spin()).with_params(
        {"x-x.weight": (np.ones((40, 40)) - np.eye(40)) * 0.08, "x.bias": np.full(40, 0.02)}
    )
    chooser = pgm.Auto(
        candidates=(
            pgm.Exact(max_bits=10),
            pgm.MCMC(warmup=50, draws=200),
            pgm.AIS(),
            pgm.ParallelTempering(),
        )
    )
    r = pgm.infer(model, method=chooser, rng=0)
    assert isinstance(r.method, pgm.ParallelTempering) and "did not mix" in str(r.refused[1])
    model = random_rbm(0, 40, 30, 0.3)
    r = pgm.infer(model, want=("log_z",), rng=0)
    assert isinstance(r.method, pgm.AIS) and r.kind == "estimate" and "2^30" in str(r.refused[0])
    with pytest.raises(pgm.PgmError, match="unit updates, the limit is"):
        pgm.infer(model, want=("log_z",), method=pgm.Auto(max_work=1e4))


def test_ladders_are_read_in_any_order_and_refused_with_a_reason():
    model = random_rbm(0, 5, 3, 1.0)
    a, b, c = (
        pgm.infer(model, method=pgm.TemperedTransitions(betas=betas, draws=20), rng=0).mean["v"]
        for betas in ([0.0, 0.5, 1.0], [1.0, 0.5, 0.0], 3)
    )
    assert np.array_equal(a, b) and np.array_equal(a, c)
    for bad in ([0.5], [0.0, 0.5], [-0.1, 1.0], [np.nan, 1.0], ["x"], []):
        with pytest.raises(pgm.PgmError, match="betas"):
            pgm.infer(model, method=pgm.SimulatedTempering(betas=bad), rng=0)


@pytest.mark.parametrize("layers", [None, ("v",), ("v", "h")], ids=repr)
@pytest.mark.long
def test_wang_landau_weights_the_layers_that_a_partition_reads(layers):
    model = pgm.rbm(4, 2, rng=0).with_params({"v.bias": [0.3, 0.7, 0.6, 1.9]})
    method = pgm.WangLandau(
        lambda x: x["v"].sum(axis=1).astype(int), bins=5, draws=4000, layers=layers
    )
    r = pgm.infer(model, method=method, rng=0)
    np.testing.assert_allclose(r.mean["v"], pgm.infer(model).mean["v"], rtol=0, atol=0.05)


def test_wang_landau_refuses_layers_that_a_partition_cannot_read():
    def of(name, *layers):
        return pgm.WangLandau(
            lambda x: (x[name][:, 0] > 0).astype(int), 2, warmup=2, draws=2, layers=layers or None
        )

    model = pgm.rbm(4, 2, visible=pgm.Gaussian(), rng=0)
    with pytest.raises(pgm.PgmError, match="state of a partition has no 'v', it has h"):
        pgm.infer(model, method=of("v"))
    with pytest.raises(pgm.PgmError, match="state of a partition has no 'v', it has h"):
        pgm.infer(model, {"v": [0.1] * 4}, method=of("v", "h"))
    with pytest.raises(pgm.PgmError, match="reads layer 'v' of .* layers of finite units only"):
        pgm.infer(model, method=of("v", "v"))
    with pytest.raises(pgm.PgmError, match="layers: layer 'x' is unknown"):
        pgm.infer(model, method=of("v", "x"))
    with pytest.raises(pgm.PgmError, match="layers must be a sequence of layers"):
        pgm.WangLandau(len, 2, layers="v")
    seen = pgm.infer(model, {"v": [0.1] * 4}, method=of("v", "v"))
    assert seen.mean["h"].shape == (2,)


@pytest.mark.parametrize("name", SAMPLERS)
def test_energies_are_those_of_the_draws(name, rtol=1e-5):
    model = pgm.dbm([4, 3, 2], rng=0)
    r = pgm.infer(
        model,
        {"v": [[np.nan] * 4, [1, 0, 1, np.nan]]},
        want=("samples",),
        method=FEW_DRAWS[name],
        rng=0,
    )
    chains, draws, rows = r.stats["energy"].shape
    x = {name: value.reshape(chains * draws * rows, -1) for name, value in r.samples.items()}
    np.testing.assert_allclose(
        r.stats["energy"].reshape(-1), -model.log_density(x), rtol=rtol, atol=rtol
    )


@pytest.mark.parametrize("seed", range(3))
def test_ladders_of_a_trained_model_start_at_its_base_rates(seed):
    """Answers are as right with any rates, and good rates save tours."""
    model = pgm.rbm(6, 4, rng=seed)
    rng = np.random.default_rng(seed)
    model = model.with_params({n: 2 * rng.normal(size=p.shape) for n, p in model.params.items()})
    exact = pgm.infer(model, want=("log_z", "marginals"), method=pgm.Exact())
    good = dict(exact.mean)
    tours = []
    for rates in (good, {name: 1 - rate for name, rate in good.items()}):
        trained = model.with_training(Training(rates))
        r = pgm.ParallelTempering(rungs=6).run(trained.given(), ("log_z", "marginals"), rng=seed)
        assert abs(r.log_z[0] - exact.log_z[0]) < 6 * r.log_z_error[0]
        for name, mean in r.mean.items():
            assert (np.abs(mean - exact.mean[name]) < 6 * r.stats["mcse"][name] + 1e-9).all()
        tours.append(r.stats["tours"][0])
    assert tours[0] > 1.2 * tours[1]

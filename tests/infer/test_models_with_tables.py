"""Every method on models with tables, against enumeration, and the results in every form."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from brute import Brute
from limits import small_parts
from registry import METHODS, SAMPLERS, every, first_of_v
from tiny import TABLED, as_evidence, draw_row, without_fixed_biases

import pgmengine as pgm

NAMES = ("network zeros", "tables and couplings", "conditionals and couplings")
SOME = [next(m for m in TABLED if m.name == name) for name in NAMES]
some = pytest.mark.parametrize("m", SOME, ids=repr)
CHAINS = [
    pgm.MCMC(chains=20, warmup=30, draws=200),
    pgm.ParallelTempering(rungs=4, chains=4, warmup=30, draws=300),
    pgm.SimulatedTempering(betas=pgm.Linear(4), chains=32, warmup=60, draws=300),
    pgm.TemperedTransitions(betas=pgm.Linear(4), chains=20, warmup=5, draws=40),
    pgm.WangLandau(first_of_v, 2, chains=32, warmup=200, draws=300),
]
# Clusters do not move where entries of tables are 0; they have a test of their own.
every([METHODS[name] for name in SAMPLERS], [*CHAINS, pgm.SwendsenWang()])


def question(m, share=0.3):
    """Two rows of evidence with a positive probability."""
    rng = np.random.default_rng(5)
    rows = [draw_row(m, rng, share) for _ in range(2)]
    return as_evidence(m, rows), [Brute(m, row) for row in rows]


@some
@pytest.mark.parametrize("method", CHAINS, ids=lambda m: type(m).__name__)
def test_samplers_agree_with_enumeration(m, method, errors=7.0, least=0.02):
    """Means within standard errors, of which short runs know little: at least `least`."""
    evidence, truth = question(m)
    r = pgm.infer(m.build(), evidence, method=method, rng=0)
    for x in m.layers:
        for i, one in enumerate(truth):
            mcse = np.ravel(r.stats["mcse"][x.name][i])
            far = np.abs(np.ravel(r.mean[x.name][i]) - one.mean(x.name))
            assert np.all(far <= errors * np.maximum(mcse, least))


@some
def test_annealing_gives_log_z(m, errors=7.0):
    evidence, truth = question(m)
    method = pgm.AIS(chains=300, betas=60)
    r = pgm.infer(m.build(), evidence, want=("log_z",), method=method, rng=0)
    exact = np.array([one.log_z for one in truth])
    assert np.all(np.abs(r.log_z - exact) <= errors * np.maximum(r.log_z_error, 0.01))


@some
@pytest.mark.parametrize("method", [pgm.MCMC(chains=2, warmup=5, draws=20), pgm.MeanField()],
                         ids=lambda m: type(m).__name__)  # fmt: skip
def test_parts_of_a_question_give_the_answer_of_the_whole(m, method, monkeypatch):
    small_parts(monkeypatch)
    evidence, _ = question(m)
    alone = pgm.infer(m.build(), evidence, method=method, rng=0)
    with ThreadPoolExecutor(2) as pool:
        shared = pgm.infer(m.build(), evidence, method=method, rng=0, executor=pool)
    for name, value in alone.mean.items():
        np.testing.assert_array_equal(value, shared.mean[name])


@some
@pytest.mark.parametrize("positive", [pgm.MeanField(), pgm.Exact()], ids=repr)
def test_a_data_phase_is_the_gradient_of_the_same_method(m, positive, rate=1e-3, rtol=1e-6):
    """One step of plain ascent: data phase less the exact model phase, mean over the rows."""
    model, rng = m.build(), np.random.default_rng(1)
    data = as_evidence(m, [draw_row(m, rng, 0.6) for _ in range(6)])
    settings = {"optimizer": pgm.SGD(rate), "updates": 1, "progress": False, "rng": 0}
    f = pgm.fit(
        model, data, negative=pgm.ExactGradient(), positive=positive, batch_size=6, **settings
    )
    up = pgm.infer(model, data, want="gradient", method=positive).gradient
    down = pgm.infer(model, want="gradient", method=pgm.Exact()).gradient
    for name, value in model.params.items():
        step = without_fixed_biases(model, name, up[name] / 6 - down[name])
        moved = value + rate * step
        if "|" in name:
            with np.errstate(divide="ignore"):
                moved = moved - np.log(np.exp(moved).sum(axis=-1, keepdims=True))
        np.testing.assert_allclose(f.model.params[name], moved, rtol=rtol, atol=1e-9)


@some
def test_do_cuts_conditionals_and_leaves_couplings(m, errors=7.0, rtol=1e-9):
    """Of a unit with a conditional in a layer with couplings do() takes the conditional away."""
    children = [scope[-1] for scope, _, conditional in m.tables if conditional]
    if not children:
        with pytest.raises(pgm.PgmError, match="do: layer 'v' is not directed"):
            pgm.infer(m.build(), do={"v": [1, np.nan, np.nan]})
        return
    name, i = children[-1]
    do = {x.name: [None] * x.size for x in m.layers}
    do[name][i] = next(x for x in m.layers if x.name == name).unit.support[-1]
    given = {name: as_evidence(m, [do])[name][0]}
    truth = Brute(m, {}, do=do)
    want = ("log_z", "marginals", "gradient")
    r = pgm.infer(m.build(), do=given, want=want, method=pgm.Exact())
    np.testing.assert_allclose(r.log_z[0], truth.log_z, rtol=rtol, atol=1e-12)
    sampled = pgm.infer(m.build(), do=given, method=CHAINS[0], rng=0)
    for x in m.layers:
        np.testing.assert_allclose(r.prob[x.name], truth.prob(x.name), rtol=rtol, atol=1e-12)
        mcse = np.ravel(sampled.stats["mcse"][x.name])
        far = np.abs(np.ravel(sampled.mean[x.name]) - truth.mean(x.name))
        assert np.all(far <= errors * np.maximum(mcse, 0.02))
    cut = next(t for t in m.build().structure.tables if t.key.startswith(f"{name}[{i}]|"))
    np.testing.assert_array_equal(r.gradient[cut.key], 0.0)

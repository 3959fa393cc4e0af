"""Leaks of 0 and near 0: slopes from the right by sums over states, chains and annealing."""

from itertools import product

import numpy as np
import pytest

import pgmengine as pgm
from pgmengine.engine.chains import make_chains, start

NAN = np.nan
LAYERS = ("h", "v", "y")


def causes_and_findings(seed, deep):
    """Causes, findings with leaks of 0 and more, and findings of these."""
    rng = np.random.default_rng(seed)
    b = pgm.GraphBuilder()
    b.layer("h", pgm.Binary(), 2, bias=rng.normal(size=2))
    for name, parent, size in (("v", "h", 3), ("y", "v", 2))[: 2 if deep else 1]:
        n, leak = {"h": 2, "v": 3}[parent], rng.exponential(0.3, size)
        b.layer(name, pgm.NoisyOr(), size, bias=np.where(rng.random(size) < 0.7, 0.0, leak))
        weight = rng.exponential(1.0, (n, size))
        b.cause(parent, name, weight=np.where(rng.random((n, size)) < 0.7, weight, 0.0))
    return b.build()


def log_z(params, row):
    """The sum over all states, one by one."""
    total = -np.inf
    names = [name for name in LAYERS if name in row]
    for state in product((0.0, 1.0), repeat=sum(len(row[n]) for n in names)):
        ends = np.cumsum([len(row[n]) for n in names])[:-1]
        x = dict(zip(names, np.split(np.array(state), ends)))
        if any((~np.isnan(row[n]) & (row[n] != x[n])).any() for n in names):
            continue
        log_p = x["h"] @ params["h.bias"] - np.logaddexp(0, params["h.bias"]).sum()
        for a, c in zip(names, names[1:]):
            z = params[f"{c}.bias"] + x[a] @ params[f"{a}->{c}.weight"]
            with np.errstate(divide="ignore"):
                log_p += np.where(x[c] == 1, np.log(-np.expm1(-z)), -z).sum()
        total = np.logaddexp(total, log_p)
    return total


def slope(params, name, index, row, step):
    """The difference quotient from the right, extrapolated from two steps."""

    def quotient(by):
        value = params[name].copy()
        value[index] += by
        return (log_z({**params, name: value}, row) - log_z(params, row)) / by

    return 2 * quotient(step / 2) - quotient(step)


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_exact_gradients_at_a_leak_of_0_are_slopes_from_the_right(
    seed, deep, step=1e-5, rtol=2e-4, atol=2e-5
):
    model, rng = causes_and_findings(seed, deep), np.random.default_rng(100 + seed)
    params = dict(model.params)
    sizes = {n: layer.size for n, layer in model.structure.layers.items()}
    row = {n: rng.choice([0.0, 1.0, NAN], size) for n, size in sizes.items()}
    row["h"][:] = NAN
    if deep:
        row["v"][:] = NAN
    if not np.isfinite(log_z(params, row)):
        row[LAYERS[len(row) - 1]][:] = 0.0
    found = pgm.infer(model, row, want=("gradient", "log_z", "marginals"), method=pgm.Exact())
    plain = pgm.infer(model, row, want=("log_z", "marginals"), method=pgm.Exact())
    np.testing.assert_allclose(found.log_z, log_z(params, row), rtol=1e-12, atol=1e-12)
    assert all(np.array_equal(plain.mean[n], x) for n, x in found.mean.items())
    for name, value in params.items():
        if name == "h.bias":
            continue
        for index in np.ndindex(value.shape):
            truth = slope(params, name, index, row, step)
            own = found.gradient[name][index]
            np.testing.assert_allclose(own, truth, rtol=rtol, atol=atol, err_msg=f"{name}{index}")


def test_an_impossible_row_has_no_gradient():
    b = pgm.GraphBuilder()
    b.layer("h", pgm.Binary(), 1)
    b.layer("v", pgm.NoisyOr(), 1)
    b.cause("h", "v", weight=[[1.0]])
    rows = {"h": [[1], [0]], "v": [[1], [1]]}
    with pytest.raises(pgm.PgmError, match="evidence row 1 has probability zero"):
        pgm.infer(b.build(), rows, want=("gradient",), method=pgm.Exact())


def test_rows_keep_their_weights_at_a_leak_of_0(rtol=1e-9):
    model = causes_and_findings(0, deep=False).with_params({"v.bias": np.zeros(3)})
    rows = np.array([[1.0, 0.0, NAN], [0.0, 1.0, 0.0], [NAN, NAN, 0.0]])
    free, params = np.full(2, NAN), dict(model.params)
    rows = rows[[bool(np.isfinite(log_z(params, {"h": free, "v": row}))) for row in rows]]
    weights = np.arange(1.0, 1 + len(rows))
    whole = pgm.Exact().gradient(model.given({"v": rows}), weights)
    ask = {"want": ("gradient",), "method": pgm.Exact()}
    each = [pgm.infer(model, {"v": row}, **ask).gradient for row in rows]
    for name, value in whole.items():
        total = sum(w * g[name] for w, g in zip(weights, each))
        np.testing.assert_allclose(value, total, rtol=rtol, atol=1e-9)


# ---- small weights beside small leaks ----


@pytest.mark.parametrize("weight", [3e-6, 1e-4, 50.0])
@pytest.mark.parametrize("leak", [1e-6, 1e-5])
def test_weights_of_the_size_of_leaks_count_in_chains(weight, leak, rtol=1e-4):
    """Log densities after sweeps are those of the states, beside causes of weight 1e3, too."""
    b = pgm.GraphBuilder()
    b.layer("h", pgm.Binary(), 4, bias=[0.0, 0.0, 0.0, -1.0])
    b.layer("v", pgm.NoisyOr(), 2, bias=[leak, leak])
    b.cause("h", "v", weight=[[weight, 0.0], [0.0, weight], [weight / 2, weight], [1000.0, 700.0]])
    target = b.build().given({"v": [1, 1]}).take(np.zeros(200, dtype=int)).at(0.05)
    rng = np.random.default_rng(0)
    chains = make_chains(target, pgm.Gibbs(), start(target, rng), rng)
    for _ in range(20):
        found = chains.trace(1)[0]
        np.testing.assert_allclose(found, target.log_density(chains.values()), rtol=rtol, atol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.long) for s in (1, 2, 3))])
def test_annealing_beside_small_leaks_is_unbiased_and_its_interval_is_not_inverted(seed, sure=5.5):
    """Judge the log of a mean of 4,000 weights in standard errors; false alarms are below 1e-6."""
    rng = np.random.default_rng(seed)
    b = pgm.GraphBuilder()
    b.layer("h", pgm.Binary(), 3, bias=[-1.0, 0.0, 0.5])
    b.layer("v", pgm.NoisyOr(), 2, bias=np.full(2, 10.0 ** -(4 + seed)))
    b.cause("h", "v", weight=rng.uniform(0.5, 2.0, (3, 2)) * 10.0 ** rng.integers(-6, -4, (3, 2)))
    model, row = b.build(), {"v": [1, 0]}
    r = pgm.infer(model, row, want=("log_z",), method=pgm.AIS(betas=1000, chains=4000), rng=seed)
    truth = pgm.infer(model, row, want=("log_z",), method=pgm.Exact()).log_z
    assert r.log_z_interval[0, 0] < r.log_z_interval[0, 1]
    assert abs(r.log_z - truth)[0] < sure * r.log_z_error[0] + 1e-4

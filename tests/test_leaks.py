"""Slopes at a leak of exactly 0 are those from the right, by enumeration without any noisy-or code."""

from itertools import product

import numpy as np
import pytest

import pgmengine as pgm

NAN = np.nan
LAYERS = ("h", "v", "y")


def network(seed, deep):
    """Causes, findings with leaks of 0 and more, and findings of these."""
    rng = np.random.default_rng(seed)
    b = pgm.GraphBuilder()
    b.layer("h", pgm.Binary(), 2, bias=rng.normal(size=2))
    for name, parent, size in (("v", "h", 3), ("y", "v", 2))[: 2 if deep else 1]:
        b.layer(name, pgm.NoisyOr(), size, bias=np.where(rng.random(size) < 0.7, 0.0, rng.exponential(0.3, size)))
        n = {"h": 2, "v": 3}[parent]
        b.cause(parent, name, weight=rng.exponential(1.0, (n, size)) * (rng.random((n, size)) < 0.7))
    return b.build()


def log_z(params, row):
    """The sum over all states, one by one."""
    total = -np.inf
    names = [name for name in LAYERS if name in row]
    for state in product((0.0, 1.0), repeat=sum(len(row[n]) for n in names)):
        x = dict(zip(names, np.split(np.array(state), np.cumsum([len(row[n]) for n in names])[:-1])))
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
def test_exact_gradients_at_a_leak_of_0_are_slopes_from_the_right(seed, deep, step=1e-5, rtol=2e-4, atol=2e-5):
    model, rng = network(seed, deep), np.random.default_rng(100 + seed)
    params = dict(model.params)
    row = {n: rng.choice([0.0, 1.0, NAN], layer.size) for n, layer in model.structure.layers.items()}
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
            np.testing.assert_allclose(found.gradient[name][index], truth, rtol=rtol, atol=atol, err_msg=f"{name}{index}")


def test_an_impossible_row_has_no_gradient():
    b = pgm.GraphBuilder()
    b.layer("h", pgm.Binary(), 1)
    b.layer("v", pgm.NoisyOr(), 1)
    b.cause("h", "v", weight=[[1.0]])
    with pytest.raises(pgm.PgmError, match="evidence row 1 has probability zero"):
        pgm.infer(b.build(), {"h": [[1], [0]], "v": [[1], [1]]}, want=("gradient",), method=pgm.Exact())


def test_rows_keep_their_weights_at_a_leak_of_0(rtol=1e-9):
    model = network(0, deep=False).with_params({"v.bias": np.zeros(3)})
    rows = np.array([[1.0, 0.0, NAN], [0.0, 1.0, 0.0], [NAN, NAN, 0.0]])
    rows = rows[[np.isfinite(log_z(dict(model.params), {"h": np.full(2, NAN), "v": row})) for row in rows]]
    weights = np.arange(1.0, 1 + len(rows))
    whole = pgm.Exact().gradient(model.given({"v": rows}), weights)
    each = [pgm.infer(model, {"v": row}, want=("gradient",), method=pgm.Exact()).gradient for row in rows]
    for name, value in whole.items():
        np.testing.assert_allclose(value, sum(w * g[name] for w, g in zip(weights, each)), rtol=rtol, atol=1e-9)

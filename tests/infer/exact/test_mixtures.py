"""Mixtures of few products against enumeration, and the learning that uses them."""

import numpy as np
import pytest

import pgmengine as pgm
from pgmengine.infer.exact.enumeration.product_mixture import (
    MAX_MIXTURE_BITS,
    gives,
    mixture_of,
    shared_mixture,
)
from pgmengine.learn.negative.exact_gradient import _MixturePhase
from pgmengine.learn.phases.statistics import Statistics

UNITS = (
    pgm.Binary(),
    pgm.Spin(),
    pgm.Categorical(3),
    pgm.MultiValued(2),
    pgm.MultiValued(np.inf),
    pgm.Gaussian(0.7),
)


def loud(model, seed):
    """Return the model with parameters of size 1."""
    rng = np.random.default_rng(seed)
    return model.with_params({k: rng.normal(size=v.shape) for k, v in model.params.items()})


def partial():
    """Return a machine in which two of five visible units are free."""
    v = np.array([[1, 0, 1, np.nan, np.nan], [0, 0, 1, np.nan, np.nan], [1, 1, 1, np.nan, np.nan]])
    return loud(pgm.rbm(5, 4, rng=0), 0), {"v": v}


def deep():
    """Return a machine whose cover is a whole hidden layer, with a layer on either side."""
    rng = np.random.default_rng(1)
    return loud(pgm.dbm([5, 3, 4], rng=0), 1), {"v": rng.integers(0, 2, (6, 5)) * 1.0}


def labelled(hidden):
    """Return a discriminative machine and its inputs."""
    rng = np.random.default_rng(2)
    return loud(pgm.drbm(4, 5, 3, hidden=hidden, rng=0), 2), {"x": rng.normal(size=(6, 4))}


CASES = [partial, deep, *(pytest.param(lambda u=u: labelled(u), id=repr(u)) for u in UNITS)]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("precision", "atol"), [(np.float64, 1e-11), (np.float32, 3e-5)])
def test_gradients_are_those_of_enumeration(case, precision, atol):
    model, data = case()
    target = model.given(data)
    weights = np.random.default_rng(3).uniform(0.1, 2.0, target.rows)
    found, mixture = Statistics(precision), mixture_of(target, precision)
    assert mixture is not None
    mixture.expect(target, weights, found)
    expected = pgm.Exact().gradient(target, weights)
    for name, value in found.total(model).items():
        np.testing.assert_allclose(value, expected[name], atol=atol, rtol=atol, err_msg=name)


def test_what_is_no_mixture_of_few_products_is_enumerated():
    rng = np.random.default_rng(0)
    x = {"x": rng.normal(size=(3, 4))}
    rest = pgm.drbm(4, 3, 2, rng=0).given(x)
    assert mixture_of(rest, np.float32) is not None
    several = {"v": [[1, np.nan, 0], [np.nan, 1, 0]]}
    many = 2 ** int(MAX_MIXTURE_BITS) + 1
    for target in (
        pgm.drbm(4, 3, many, rng=0).given(x),
        pgm.rbm(3, 2, rng=0).given(several),
        pgm.sbn([3, 2], rng=0).given({"v": [[1, 0, 1]]}),
        pgm.boltzmann_machine(3, rng=0).given({"x": [[1, np.nan, np.nan]]}),
    ):
        assert mixture_of(target, np.float32) is None


@pytest.mark.parametrize("hidden", UNITS, ids=repr)
def test_steps_in_single_precision_are_those_of_enumeration(hidden, monkeypatch):
    """Whole updates, with what both phases share computed once."""
    model, data = labelled(hidden)
    data = data | {"y": np.array([[0], [1], [2], [1], [0], [2]])}
    settings = {"given": ("x",), "optimizer": pgm.SGD(0.05), "batch_size": 4, "updates": 6}
    settings |= {"progress": False, "rng": 0}
    used = []
    original = _MixturePhase.statistics
    monkeypatch.setattr(_MixturePhase, "statistics", lambda *a: used.append(1) or original(*a))
    single = pgm.fit(model, data, negative=pgm.ExactGradient(single=True), **settings).model
    assert len(used) == 6
    double = pgm.fit(model, data, negative=pgm.ExactGradient(single=False), **settings).model
    monkeypatch.setattr("pgmengine.learn.negative.exact_gradient.mixture_of", lambda *a: None)
    enumerated = pgm.fit(model, data, negative=pgm.ExactGradient(), **settings).model
    assert len(used) == 12
    for name, value in enumerated.params.items():
        np.testing.assert_allclose(double.params[name], value, atol=1e-11, err_msg=name)
        np.testing.assert_allclose(single.params[name], value, atol=2e-5, err_msg=name)


def holes(x, share=0.4):
    """Return values with missing cells, the first two rows with all and with none."""
    out = np.where(np.random.default_rng(7).random(x.shape) < share, np.nan, x)
    out[0], out[1] = np.nan, x[1]
    return out


def with_holes(unit, hidden):
    """Return a machine of these units, and rows of many patterns."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(9, 3)) if unit.support is None else rng.integers(0, 2, (9, 3)) * 1.0
    x = 2 * x - 1 if isinstance(unit, pgm.Spin) else x
    return loud(pgm.rbm(3, 3, visible=unit, hidden=hidden, rng=0), 4), {"v": holes(x)}


def lateral():
    """Return a machine of spins that are coupled with each other, some of them missing."""
    x = np.random.default_rng(5).choice([-1.0, 1.0], (9, 5))
    weight = np.random.default_rng(5).normal(size=(5, 5))
    params = {"x-x.weight": np.triu(weight, 1) + np.triu(weight, 1).T, "x.bias": weight[0]}
    return pgm.boltzmann_machine(5, rng=0).with_params(params), {"x": holes(x)}


def deeper():
    """Return a deep machine in which visible units and units of the middle are observed."""
    rng = np.random.default_rng(6)
    return loud(pgm.dbm([4, 3, 3], rng=0), 6), {
        "v": holes(rng.integers(0, 2, (9, 4)) * 1.0),
        "h1": holes(rng.integers(0, 2, (9, 3)) * 1.0, 0.8),
    }


HIDDEN = (pgm.Binary(), pgm.Spin(), pgm.Categorical(3), pgm.MultiValued(2))
SHARED = [deeper] + [
    pytest.param(lambda u=u, h=h: with_holes(u, h), id=f"{u!r} {h!r}")
    for u in (pgm.Binary(), pgm.Spin(), pgm.Categorical(3), pgm.Gaussian(0.7))
    for h in HIDDEN
]


@pytest.mark.parametrize("case", SHARED)
def test_one_mixture_for_many_patterns_gives_the_gradient_of_enumeration(case, monkeypatch):
    model, data = case()
    target = model.given(data)
    weights = np.random.default_rng(3).uniform(0.1, 2.0, target.rows)
    expected = pgm.Enumeration().gradient(target, weights)
    found = Statistics(np.float64)
    assert shared_mixture(target, np.float64) is not None
    # The data phase takes it, without planning an enumeration of each pattern.
    monkeypatch.setattr(pgm.Enumeration, "scheme", None)
    pgm.Exact(10).expect(target, weights, found, np.random.default_rng(0))
    total = found.total(model)
    assert total.keys() == expected.keys() and found.mass == pytest.approx(weights.sum())
    for name, value in total.items():
        np.testing.assert_allclose(value, expected[name], atol=1e-11, rtol=1e-11, err_msg=name)


@pytest.mark.parametrize("case", SHARED)
def test_one_mixture_for_many_patterns_answers_as_each_pattern_alone(case):
    """Marginals, log Z, log p and the gradient; rows in parts, and in another order."""
    model, data = case()
    rows = len(next(iter(data.values())))
    want = ("log_z", "log_prob", "marginals", "gradient")
    if not gives(model.given(data), {"marginals"}):
        want = ("log_z", "log_prob", "gradient")
    method = pgm.Enumeration()
    alone = [
        pgm.infer(model, {n: x[[i]] for n, x in data.items()}, want, method) for i in range(rows)
    ]
    for some in (np.arange(rows), np.arange(rows)[::-1], np.arange(4)):
        evidence = {n: x[some] for n, x in data.items()}
        target = model.given(evidence)
        plan = method.planned(target, ("log_z", "gradient")).plan
        assert all(group.mixture for part in plan.basis.values() for group in part)
        r = pgm.infer(model, evidence, want, method)
        exact = {"rtol": 1e-11, "atol": 1e-12}
        np.testing.assert_allclose(r.log_z, [alone[i].log_z[0] for i in some], **exact)
        np.testing.assert_allclose(r.log_prob, [alone[i].log_prob[0] for i in some], **exact)
        for name, total in r.gradient.items():
            right = sum(alone[i].gradient[name] for i in some)
            np.testing.assert_allclose(total, right, rtol=1e-10, atol=1e-10)
        for quantity in ("mean", "prob") if "marginals" in want else ():
            for name, value in r.answers[quantity].items():
                right = np.concatenate([alone[i].answers[quantity][name] for i in some])
                np.testing.assert_allclose(value, right, **exact)


def test_what_shares_no_mixture_is_enumerated_pattern_by_pattern():
    model, data = with_holes(pgm.Binary(), pgm.Spin())
    target = model.given(data)
    for other in (
        target.take(np.array([0])),
        target.take(np.array([1, 1])),
        target.at(0.5),
        model.given(data, soft={"v": np.ones(3)}),
        lateral()[0].given(lateral()[1]),
        # Its cover has 2^20 states.
        pgm.rbm(20, 20, rng=0).given({"v": holes(np.ones((9, 20)))}),
    ):
        assert shared_mixture(other, np.float64) is None
    # A limit of fewer bits holds for the shared cover, too.
    assert shared_mixture(target, np.float64).cover.bits == 3
    few, rng = pgm.Exact(max_bits=2, max_states=4), np.random.default_rng(0)
    with pytest.raises(pgm.PgmError, match="the limit is 2\\^2"):
        few.expect(target, np.ones(9), Statistics(np.float64), rng)

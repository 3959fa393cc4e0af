"""Noisy-or networks with few positive findings, against Quickscore and against whole tables.

Quickscore (Heckerman 1989) expands prod over positive findings of (1 - e^-z) into a sum over their
subsets S with the sign (-1)^|S|; each term is a product over diseases. Its terms cancel, so that it
is calculated with 60 decimal digits here.
"""

from decimal import Decimal, localcontext

import numpy as np
import pytest
import scipy.sparse as sp
from limits import small_tables
from loops import one_test_over

import pgmengine as pgm
from pgmengine.infer.exact.junction_tree.causal_independence import passage
from pgmengine.infer.exact.junction_tree.marginalised import Field, Neighbour

EXACT = {"rtol": 1e-10, "atol": 1e-12}
NAN = np.nan


class Network:
    """Diseases with priors, and noisy-or findings with leaks and few causes each."""

    def __init__(self, seed, diseases, findings, fewest, most):
        rng = np.random.default_rng(seed)
        self.prior = rng.uniform(0.005, 0.1, diseases)
        self.leak = rng.uniform(0.001, 0.05, findings)
        self.weight = np.zeros((diseases, findings))
        for j in range(findings):
            some = rng.choice(diseases, rng.integers(fewest, most + 1), replace=False)
            self.weight[some, j] = rng.uniform(0.05, 2.0, len(some))
        self.seen = np.zeros(findings)
        self.order = rng.permutation(findings)

    def model(self, leak=None, sparse=True):
        b = pgm.GraphBuilder()
        b.layer("d", pgm.Binary(), len(self.prior), bias=np.log(self.prior / (1 - self.prior)))
        b.layer("f", pgm.NoisyOr(), len(self.leak), bias=self.leak if leak is None else leak)
        b.cause("d", "f", weight=sp.csr_array(self.weight) if sparse else self.weight)
        return b.build()

    def evidence(self, positive, unknown=0):
        seen = self.seen.copy()
        seen[self.order[:positive]] = 1.0
        seen[self.order[positive : positive + unknown]] = NAN
        return seen


def quickscore(network, seen, asked=()):
    """Z, the posterior of each disease, and p(finding = 1) of the findings asked for."""
    one = Decimal(1)

    def off(z):
        return np.array([(-Decimal(float(x))).exp() for x in np.ravel(z)], dtype=object)

    positive, negative = np.flatnonzero(seen == 1), np.flatnonzero(seen == 0)

    def products(factors):
        """The product over each subset S of the positive findings of its factors."""
        found = np.array([one], dtype=object)
        for factor in factors:
            found = np.concatenate([found, found * factor])
        return found

    def subsets(more=()):
        """Shares of each subset: of no disease, of each disease alone, and of the leaks."""
        always = np.concatenate([negative, more]).astype(int)
        on = off(network.weight[:, always].sum(axis=1))
        for i, prior in enumerate(network.prior):
            p = Decimal(float(prior))
            here = on[i] * products(off(network.weight[i, positive]))
            yield i, one - p, p * here

    def total(more=()):
        always = np.concatenate([negative, more]).astype(int)
        leaks = off([network.leak[always].sum()])[0]
        terms = leaks * products([-x for x in off(network.leak[positive])])
        for _, absent, present in subsets(more):
            terms = terms * (absent + present)
        return terms

    with localcontext() as context:
        context.prec = 60
        terms = total()
        z = terms.sum()
        posterior = [(terms * here / (absent + here)).sum() / z for _, absent, here in subsets()]
        on = [one - total([j]).sum() / z for j in asked]
        return float(z.ln()), np.array(posterior, dtype=float), np.array(on, dtype=float)


def test_full_size_against_quickscore():
    network = Network(1, diseases=200, findings=400, fewest=3, most=20)
    seen = network.evidence(positive=12, unknown=30)
    asked = np.flatnonzero(np.isnan(seen))
    log_z, posterior, on = quickscore(network, seen, asked[:2])
    r = pgm.infer(network.model(), {"f": seen}, want=("log_z", "log_prob", "marginals"))
    assert r.kind == "exact"
    np.testing.assert_allclose(r.log_z, log_z, **EXACT)
    np.testing.assert_allclose(r.log_prob, log_z, **EXACT)
    np.testing.assert_allclose(r.mean["d"], posterior, **EXACT)
    np.testing.assert_allclose(r.mean["f"][asked[:2]], on, **EXACT)


@one_test_over("seed", range(20))
@pytest.mark.parametrize("sparse", (False, True))
def test_many_networks_against_quickscore(seed, sparse):
    network = Network([2, seed], diseases=25, findings=30, fewest=2, most=12)
    seen = network.evidence(positive=seed % 7, unknown=6)
    asked = np.flatnonzero(np.isnan(seen))
    log_z, posterior, on = quickscore(network, seen, asked)
    r = pgm.infer(
        network.model(sparse=sparse), {"f": seen}, ("log_z", "marginals"), pgm.Elimination()
    )
    np.testing.assert_allclose(r.log_z, log_z, **EXACT)
    np.testing.assert_allclose(r.mean["d"], posterior, **EXACT)
    np.testing.assert_allclose(r.mean["f"][asked], on, **EXACT)


def test_plans_say_what_becomes_of_the_findings():
    network = Network(1, diseases=200, findings=400, fewest=8, most=20)
    model = network.model()
    text = str(pgm.explain(model, {"f": network.evidence(12)}, want=("marginals",)))
    chosen = next(line for line in text.splitlines() if "Exact" in line)
    assert "388 at 0 absorbed, 12 at 1 as chains" in text
    assert "refused" not in chosen
    plan = pgm.Elimination().plan(model.given({"f": network.evidence(150)}), ("marginals",))
    assert "250 at 0 absorbed, 150 at 1 as chains" in plan.refusal
    assert "table entries" in plan.refusal


def test_rows_have_findings_of_their_own():
    network = Network(3, diseases=60, findings=80, fewest=5, most=20)
    model = network.model()
    seen = np.stack([network.evidence(k) for k in (2, 5, 2)])
    seen[2] = np.roll(seen[2], 7)
    want = ("log_z", "marginals", "gradient")
    r = pgm.infer(model, {"f": seen}, want, pgm.Elimination())
    alone = [pgm.infer(model, {"f": row}, want, pgm.Elimination()) for row in seen]
    np.testing.assert_allclose(r.log_z, [one.log_z[0] for one in alone], **EXACT)
    np.testing.assert_allclose(r.mean["d"], [one.mean["d"] for one in alone], **EXACT)
    for name, value in r.gradient.items():
        total = sum(one.gradient[name] for one in alone)
        gap = value - total
        assert abs(gap).max() < 1e-8, name


def test_the_mode_is_refused_where_tables_are_too_large():
    network = Network(1, diseases=200, findings=400, fewest=30, most=40)
    model = network.model()
    plan = pgm.Elimination().plan(model.given({"f": network.evidence(3)}), ("mode",))
    assert "the mode needs the whole table of unit" in plan.refusal
    assert "free neighbours" in plan.refusal
    # Tables over all parents are in the memory of the plan: as parts, and in the tree.
    few = Network(1, diseases=18, findings=6, fewest=18, most=18)
    plan = pgm.Elimination().plan(few.model().given({"f": np.ones(6)}), ("mode",))
    assert plan.accepted and plan.bytes >= 2 * 6 * 2**18 * 8
    # Findings that are 0 have a maximum without tables: no disease.
    r = pgm.infer(model, {"f": network.evidence(0)}, ("mode",), pgm.Elimination())
    assert not r.mode["d"].any()


def test_the_mode_of_many_absent_findings():
    network = Network(5, diseases=14, findings=40, fewest=5, most=9)
    network.prior[:] = np.linspace(0.2, 0.99, 14)
    model, seen = network.model(), network.evidence(2)
    r = pgm.infer(model, {"f": seen}, ("mode",), pgm.Elimination())
    states = (np.arange(2**14)[:, None] >> np.arange(14) & 1).astype(float)
    z = network.leak + states @ network.weight
    log_p = np.where(seen == 1, np.log(-np.expm1(-z)), -z).sum(axis=1)
    log_p += np.where(states == 1, np.log(network.prior), np.log1p(-network.prior)).sum(axis=1)
    np.testing.assert_array_equal(r.mode["d"], states[log_p.argmax()])


@pytest.mark.parametrize("seed", range(8))
def test_slopes_at_leaks_and_weights_of_0(seed, monkeypatch, tolerance=1e-6):
    """Chains give the slopes of whole tables, which test_noisy_or_leaks.py compares."""
    network = Network([6, seed], diseases=6, findings=5, fewest=2, most=5)
    leak = np.where(np.arange(5) < 3, 0.0, network.leak)
    model, seen = network.model(leak, sparse=False), network.evidence(3, unknown=1)
    seen = np.where(network.weight.any(axis=0), seen, 0.0)
    want = ("log_z", "gradient")
    whole = pgm.infer(model, {"f": seen}, want, pgm.Elimination())
    small_tables(monkeypatch)
    # Another model, without what is remembered of the first.
    found = pgm.infer(network.model(leak, sparse=False), {"f": seen}, want, pgm.Elimination())
    np.testing.assert_allclose(found.log_z, whole.log_z, **EXACT)
    for name, value in whole.gradient.items():
        np.testing.assert_allclose(
            found.gradient[name], value, rtol=tolerance, atol=tolerance, err_msg=name
        )


def test_parents_are_passed_in_an_order_of_few_open_chains():
    def chain(unit, *parents):
        return Field("f", unit, tuple(Neighbour("d", p, p, 2) for p in parents))

    # Two chains without common parents are passed one after the other.
    place = passage([chain(0, 0, 2, 4), chain(1, 1, 3, 5)], 6)
    first, second = sorted([place[[0, 2, 4]].tolist(), place[[1, 3, 5]].tolist()], key=min)
    assert max(first) < min(second)


def test_findings_beside_observed_causes_alone(monkeypatch):
    """No unit is free but the findings: p(f = 1) = 1 - exp(-z), one more finding is 1."""
    small_tables(monkeypatch)
    b = pgm.GraphBuilder()
    b.layer("d", pgm.Binary(), 2)
    b.layer("f", pgm.NoisyOr(), 3, bias=[0.1, 0.2, 0.3])
    weight = np.array([[0.5, 1.0, 0.7], [0.4, 0.3, 0.0]])
    b.cause("d", "f", weight=weight)
    x = np.array([1.0, 1.0])
    evidence = {"d": x, "f": [1.0, np.nan, np.nan]}
    r = pgm.infer(b.build(), evidence, want=("marginals", "log_z"), method=pgm.Elimination())
    z = x @ weight + [0.1, 0.2, 0.3]
    np.testing.assert_allclose(r.mean["f"][1:], -np.expm1(-z[1:]), rtol=1e-12)

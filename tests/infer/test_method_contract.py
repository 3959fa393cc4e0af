"""The contract of every inference method, by infer and explain alone.

A method plans without running, answers what it planned, holds what was wanted and nothing else,
repeats its bits from one seed, and agrees with enumeration in every row of evidence.
"""

import numpy as np
import pytest
from brute import Brute
from loops import one_test_over
from registry import FEW_DRAWS, METHODS
from smoke import in_lane
from tiny import MODELS, as_evidence, patterns

import pgmengine as pgm
from pgmengine.infer.results.result import GUARANTEES, WANTS

ANSWERS = {
    "marginals": {"mean", "prob"},
    "log_z": {"log_z", "log_z_error", "log_z_interval"},
    "log_prob": {"log_prob", "log_z", "log_z_error", "log_z_interval"},
    "samples": {"samples"},
    "mode": {"mode"},
    "pairs": {"pairs"},
    "gradient": {"gradient"},
    "bound": {"bound"},
}
ALL = set().union(*ANSWERS.values())
# Answers of these kinds have no error. Those of messages are compared with plain ones elsewhere.
WITHOUT_ERROR = ("lower bound", "approximation")
# Two of them have tables, one of which has zeros.
NAMES = ("rbm", "dbm mixed", "sbn deep", "mixed", "network zeros", "conditionals and couplings")
TINY = [m for m in MODELS if m.name in NAMES]
methods = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
# Forward answers about directed models alone.
tiny = pytest.mark.parametrize("tiny_model", in_lane(TINY, "rbm", "sbn deep"), ids=repr)


def question(tiny_model):
    """A model, rows of evidence without, with some and with more observed units, as arrays."""
    rows = [row for row in patterns(tiny_model) if Brute(tiny_model, row).log_z > -np.inf][:3]
    return tiny_model.build(), rows, as_evidence(tiny_model, rows)


def answered(model, evidence, want, method, **settings):
    """The result, or None where the plan is a refusal. The result agrees with the plan."""
    if pgm.explain(model, evidence, (want,), method).chosen is None:
        with pytest.raises(pgm.PgmError, match="refused|no method can answer"):
            pgm.infer(model, evidence, (want,), method, rng=0)
        return None
    return pgm.infer(model, evidence, (want,), method, **{"rng": 0} | settings)


@pytest.mark.smoke
@methods
@one_test_over("want", WANTS)
@pytest.mark.parametrize(
    "model", [pgm.rbm(3, 2, rng=0), pgm.sbn([3, 2], rng=0)], ids=["rbm", "sbn"]
)
def test_a_result_holds_what_was_wanted(method, want, model):
    r = answered(model, {"v": [1, np.nan, 0]}, want, method)
    if r is None:
        return
    assert {name for name in ALL if hasattr(r, name)} == ANSWERS[want]
    assert r.kind in GUARANTEES and r.status in pgm.Status
    for name in ALL - ANSWERS[want]:
        with pytest.raises(pgm.NotAsked):
            getattr(r, name)


@methods
@tiny
def test_the_plan_of_a_question_is_that_of_its_result(method, tiny_model):
    model, _, evidence = question(tiny_model)
    for want in ("marginals", "log_z"):
        one, two = (pgm.explain(model, evidence, (want,), method) for _ in range(2))
        assert str(one) == str(two) and one.plans == two.plans
        if one.chosen is not None:
            assert one.chosen.seconds > 0 and one.chosen.work > 0
            r = pgm.infer(model, evidence, (want,), method, rng=0)
            assert r.plan == one.chosen and r.kind == one.chosen.guarantee


@pytest.mark.smoke
@methods
def test_one_seed_gives_the_same_bits(method):
    model, evidence = pgm.sbn([3, 2], rng=0), {"v": [[1, np.nan, 0], [np.nan, 1, np.nan]]}
    for want in ("samples", "marginals", "log_z"):
        found = [answered(model, evidence, want, method, rng=seed) for seed in (3, 3, 4)]
        if found[0] is None:
            continue
        one, two, other = ({n: getattr(r, n) for n in ANSWERS[want]} for r in found)
        for name in ANSWERS[want]:
            np.testing.assert_equal(one[name], two[name])
        random = found[0].kind == "estimate" or want == "samples"
        differ = any(
            not np.array_equal(one[n]["h1"], other[n]["h1"])
            for n in ("mean", "samples")
            if n in one
        ) or ("log_z" in one and one["log_z"][0] != other["log_z"][0])
        assert bool(differ) is random


@methods
@tiny
def test_means_agree_with_enumeration_in_every_row(method, tiny_model, sure=6.5):
    """Within standard errors, for a normal error a false alarm of 1e-10 in each of 400 numbers."""
    model, rows, evidence = question(tiny_model)
    r = answered(model, evidence, "marginals", method)
    if r is None or r.kind in WITHOUT_ERROR:
        return
    for i, row in enumerate(rows):
        truth = Brute(tiny_model, row)
        for layer in tiny_model.layers:
            error = r.stats["mcse"][layer.name][i] if r.kind == "estimate" else np.zeros(1)
            off = np.abs(np.ravel(r.mean[layer.name][i]) - truth.mean(layer.name))
            assert np.all(off <= sure * np.ravel(error) + 1e-9)
            np.testing.assert_allclose(r.prob[layer.name][i].sum(axis=-1), 1.0, rtol=1e-6)


@methods
@tiny
def test_log_z_agrees_with_enumeration_in_every_row(method, tiny_model, sure=6.5):
    """Within standard errors; a bound is not above, single precision aside."""
    model, rows, evidence = question(tiny_model)
    r = answered(model, evidence, "log_z", method)
    if r is None:
        return
    truth = np.array([Brute(tiny_model, row).log_z for row in rows])
    low, high = r.log_z_interval.T
    assert (low <= r.log_z + 1e-12).all() and (r.log_z <= high + 1e-12).all()
    if r.kind == "lower bound":
        assert np.all(r.log_z <= truth + 1e-9)
    elif r.kind == "approximation":
        assert np.isnan(r.log_z_error).all() and np.isinf(r.log_z_interval).all()
    else:
        assert np.all(np.abs(r.log_z - truth) <= sure * r.log_z_error + 1e-4)


@pytest.mark.smoke
@methods
def test_an_answer_has_rows_where_the_evidence_has(method):
    model, v = pgm.sbn([3, 2], rng=0), [1.0, np.nan, 0.0]
    if answered(model, {"v": v}, "marginals", method) is None:
        return
    for evidence, rows in ((v, ()), ([v], (1,)), ([v, v], (2,))):
        r = pgm.infer(model, {"v": evidence}, method=method, rng=0)
        assert r.mean["h1"].shape == (*rows, 2) and r.mean["v"].shape == (*rows, 3)
        np.testing.assert_allclose(r.mean["v"][..., [0, 2]], np.full((*rows, 2), [1.0, 0.0]))


GIVEN = {
    "soft": {"soft": {"v": [1.5, -2.0, 0.5]}},
    "do": {"do": {"v": [1.0, np.nan, np.nan]}},
    "both beside evidence": {
        "evidence": {"v": [np.nan, 0.0, np.nan]},
        "soft": {"v": [0.0, 0.0, 2.0]},
        "do": {"v": [1.0, np.nan, np.nan]},
    },
}


# Interventions are on directed units.
GIVEN_TO = [
    pytest.param(model, given, id=f"{kind} {name}")
    for kind, model in (("rbm", pgm.rbm(3, 2, rng=0)), ("sbn", pgm.sbn([3, 2], rng=0)))
    for name, given in GIVEN.items()
    if kind == "sbn" or "do" not in given
]


@methods
@pytest.mark.parametrize(("model", "given"), GIVEN_TO)
def test_soft_evidence_and_interventions_count(method, model, given, sure=6.5):
    """Within standard errors of the exact answer, which is compared with enumeration elsewhere."""
    weights = {k: 3 * v for k, v in model.params.items() if k.endswith("weight")}
    model, settings = model.with_params(weights), {"evidence": None, **given}
    for want in ("marginals", "log_z"):
        asked = {"want": (want,), **settings}
        if pgm.explain(model, method=method, **asked).chosen is None:
            continue
        r, truth = (pgm.infer(model, method=m, rng=0, **asked) for m in (method, pgm.Exact()))
        if r.kind == "approximation":
            continue
        if r.kind == "lower bound":
            assert want == "marginals" or r.log_z <= truth.log_z + 1e-9
        elif want == "log_z":
            assert abs(r.log_z - truth.log_z) <= sure * r.log_z_error + 1e-4
        else:
            for name, mean in truth.mean.items():
                error = r.stats["mcse"][name] if r.kind == "estimate" else 0.0
                assert np.all(np.abs(r.mean[name] - mean) <= sure * error + 1e-9)


@methods
def test_a_target_at_another_temperature_is_answered_there_or_refused(method, sure=6.5):
    """Two kinds: pairs of spins, and conditionals, whose log Z without evidence is then not 0."""
    rng = np.random.default_rng(0)
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Spin(), 4, bias=np.full(4, 0.5))
    b.layer("h", pgm.Spin(), 3)
    b.couple("v", "h", weight=np.abs(rng.normal(0, 0.8, (4, 3))))
    chain = pgm.GraphBuilder()
    x = chain.variable("v", states=2, shape=5)
    chain.conditional(x[0], (), [0.1, 0.9])
    chain.conditional(x[1:], (x[:-1],), [[0.9, 0.1], [0.3, 0.7]])
    rows = {"v": [1, -1, np.nan, np.nan]}, {"v": [np.nan] * 4 + [0.0]}
    for model, given in zip((b.build(), chain.build()), rows, strict=True):
        target = model.given(given, beta=0.4)
        for want in ("log_prob", "log_z", "marginals"):
            question = method.prepare(target, (want,))
            if question.plan.refusal:
                continue
            r, truth = question.run(rng=0), pgm.Exact().prepare(target, (want,)).run()
            if r.kind == "approximation":
                continue
            if want == "marginals":
                for name, mean in truth.mean.items() if r.kind != "lower bound" else ():
                    error = r.stats["mcse"][name] if r.kind == "estimate" else 0.0
                    assert np.all(np.abs(r.mean[name] - mean) <= sure * error + 1e-9)
                continue
            name = f"{want}_error"
            error = r.answers.get(name, r.stats.get(name, 0.0)) if r.kind == "estimate" else 0.0
            off = getattr(r, want) - getattr(truth, want)
            assert np.all(off <= sure * error + 1e-6)
            assert r.kind == "lower bound" or np.all(off >= -sure * error - 1e-6)


ESTIMATE_LOG_PROB = {
    name: m for name, m in METHODS.items() if "log_prob" in m.gives and m.guarantee != "exact"
}


@pytest.mark.parametrize("method", ESTIMATE_LOG_PROB.values(), ids=ESTIMATE_LOG_PROB)
@tiny
def test_estimates_of_log_prob_have_their_error(method, tiny_model, sure=6.5):
    """Of rows with nothing, some and all units observed, with an axis of rows and without, and
    beside other quantities.
    """
    model, rows, evidence = question(tiny_model)
    one = {name: x[0] for name, x in as_evidence(tiny_model, rows[1:2]).items()}
    full = as_evidence(tiny_model, rows[-1:])
    for given, want in ((evidence, ("log_prob",)), (one, WANTS), (full, ("log_z", "log_prob"))):
        want = tuple(w for w in want if w in method.gives)
        if pgm.explain(model, given, want, method).chosen is None:
            continue
        r = pgm.infer(model, given, want, method, rng=0)
        if r.kind == "approximation":
            assert np.isnan(r.log_prob_error).all()
            continue
        if r.kind != "estimate":
            np.testing.assert_array_equal(r.log_prob_error, np.zeros(r.log_prob.shape))
            continue
        error, truth = r.stats["log_prob_error"], pgm.infer(model, given, "log_prob", pgm.Exact())
        assert np.shape(error) == r.log_prob.shape and np.all(error >= 0)
        off = np.abs(r.log_prob - truth.log_prob)
        assert not r.status.good or np.all(off <= sure * error + 1e-4)


@pytest.mark.parametrize("method", [FEW_DRAWS[name] for name in ESTIMATE_LOG_PROB])
def test_the_error_of_log_prob_stays_where_questions_are_divided(method):
    """By evidence patterns, with large log weights, and with an axis of rows and without."""
    large = pgm.sbn([3, 2], rng=0).with_params({"v.bias": [40.0, -40, 3]})
    rows = np.array([[1, 0, np.nan]] * 3 + [[np.nan] * 3] * 3)
    for model in (pgm.rbm(3, 2, rng=0), pgm.sbn([3, 2], rng=0), large):
        for given in ({"v": rows}, {"v": rows[0]}):
            if pgm.explain(model, given, ("log_prob",), method).chosen is None:
                continue
            r = pgm.infer(model, given, ("log_prob",), method, rng=0)
            assert r.kind != "estimate" or r.stats["log_prob_error"].shape == r.log_prob.shape
            assert r.kind == "approximation" or np.isfinite(r.log_prob_error).all()


def test_an_estimate_without_an_error_says_so():
    class Without(pgm.Method):
        """Log p of an estimate, with no error in its statistics."""

        gives, guarantee = frozenset({"log_prob"}), "estimate"

        def scheme(self, target, want):
            return pgm.Scheme("a guess", 1.0, 1.0, 1e-3)

        def answer(self, question, rng, state, executor):
            none = np.zeros(question.target.rows)
            return question.result({"log_prob": none, "log_z": none})

    r = pgm.infer(pgm.rbm(3, 2, rng=0), {"v": [1, 0, 1]}, "log_prob", Without())
    assert "log_prob has no standard error: Without gives none in its stats" in r.warnings
    assert np.isnan(r.log_prob_error).all()

"""Asking: evidence of every shape, refusals that name the place, Auto and explain, results."""

import io
import math
import pickle
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp
from extras import extra
from hypothesis import given, settings
from hypothesis import strategies as st
from loops import one_test_over
from tiny import FINITE

import pgmengine as pgm

nan = math.nan
RBM = pgm.rbm(4, 2, rng=0)
DRBM = pgm.drbm(3, 4, 3, rng=0)
SBN = pgm.sbn([3, 2], rng=0)


@one_test_over(
    ("model", "evidence", "match"),
    [
        (RBM, {"v": [0, 1, 2, nan]}, "layer 'v', row 0, index 2: 2.0 is not a value of Binary"),
        (RBM, {"v": [0, 1, 5, 16]}, r"expected one of 0, 1; .* thresholds .* Gaussian\(\) units$"),
        (RBM, {"v": [[0, 1, 1, nan], [0, 0.5, 1, 1]]}, "row 1, index 1"),
        (RBM, {"v": [0, 1]}, r"\(2,\), expected \(4,\)"),
        (RBM, {"v": np.zeros((2, 3, 4))}, "shape"),
        (RBM, {"q": [0]}, "'q' is unknown"),
        (RBM, {"v": ["a"] * 4}, "layer 'v', index 0: 'a' is no state, expected a number"),
        (RBM, {"v": np.array(["1", 0, b"x"], object)}, r"layer 'v' has shape \(3,\)"),
        (RBM, {"v": [[0] * 4] * 2, "h": [[0] * 2] * 3}, "number of rows"),
        (RBM, [1, 2], "must map"),
        (RBM, {"v": None}, "shape"),
        (RBM, {"v": np.zeros((0, 4))}, "no rows"),
        (RBM, {"v": [math.inf, 0, 0, 0]}, "index 0"),
        (DRBM, {"y": [1]}, "layer 'x', row 0, index 0 is not observed; Input.. units have to be"),
        (DRBM, {"x": [1, nan, 0]}, "row 0, index 1"),
        (DRBM, {"x": [0, 0, 0], "y": [3]}, "not a label"),
        (DRBM, {"x": [0, 0, 0], "y": [[0.5, 0.5, 0]]}, "one-hot"),
        (DRBM, {"x": [0, 0, 0], "y": [[1, nan, 0]]}, "one-hot"),
    ],
)
def test_evidence_is_refused_with_its_place(model, evidence, match):
    with pytest.raises(pgm.PgmError, match=match):
        pgm.infer(model, evidence)


@one_test_over(
    ("model", "keywords", "match"),
    [
        (RBM, {"do": {"v": [1, nan, nan, nan]}}, "'v' is not directed"),
        (SBN, {"do": {"v": [7, nan, nan]}}, "row 0, index 0"),
        (SBN, {"do": {"v": [1, 0, 0]}, "evidence": {"v": [1, nan, nan]}}, "both observed and set"),
        (RBM, {"soft": {"v": [1, 2]}}, "shape"),
        (RBM, {"soft": {"v": [1, 2, nan, 0]}}, "index 2"),
        (pgm.rbm(2, 2, hidden=pgm.MultiValued(3)), {"soft": {"h": [1, 2]}}, "each state"),
        (RBM, {"want": ("marginal",)}, "unknown"),
        (RBM, {"want": ()}, "empty"),
        (RBM, {"evidence": {"v": [[0] * 4] * 2}, "soft": {"h": [[0] * 2] * 3}}, "rows"),
    ],
)
def test_other_arguments_are_refused(model, keywords, match):
    with pytest.raises(pgm.PgmError, match=match):
        pgm.infer(model, **keywords)


def test_labels_one_hot_and_missing_labels_agree():
    x = np.zeros((3, 3))
    by_label = pgm.infer(DRBM, {"x": x, "y": [[0], [2], [nan]]})
    hot = np.full((3, 1, 3), nan)
    hot[0, 0], hot[1, 0] = [1, 0, 0], [0, 0, 1]
    by_row = pgm.infer(DRBM, {"x": x, "y": hot})
    column = pgm.infer(DRBM, {"x": x, "y": np.array([0, 2, nan])})
    for other in (by_row, column):
        assert np.array_equal(by_label.mean["h"], other.mean["h"]) and np.array_equal(
            by_label.prob["y"], other.prob["y"]
        )
    assert by_label.mean["y"].shape == (3, 1, 3) and by_label.prob["y"].shape == (3, 1, 3)


def test_shapes_with_and_without_a_rows_axis():
    r = pgm.infer(
        RBM,
        {"v": [1, 0, nan, 1]},
        want=("marginals", "log_z", "log_prob", "mode", "samples", "pairs"),
    )
    assert (r.mean["h"].shape, r.prob["v"].shape, r.mode["v"].shape, r.pairs["v-h"].shape) == (
        (2,),
        (4, 2),
        (4,),
        (4, 2),
    )
    assert (r.log_z.shape, r.log_prob.shape, r.log_z_interval.shape) == ((1,), (1,), (1, 2))
    assert r.samples["v"].shape == (1000, 1, 4) and r.log_z_error[0] == 0.0
    assert r.mean["v"][0] == 1 and set(np.unique(r.samples["v"][:, 0, 2])) == {0.0, 1.0}
    r = pgm.infer(RBM, {"v": [[1, 0, nan, 1]], "h": [nan, 1]})
    assert r.mean["h"].shape == (1, 2) and r.mean["h"][0, 1] == 1


def test_an_answer_that_was_not_asked_for():
    r = pgm.infer(RBM, want=("log_z",))
    with pytest.raises(pgm.NotAsked, match="want="):
        _ = r.mean
    assert not hasattr(r, "samples") and "log_z" in repr(r)


def test_impossible_evidence_is_named():
    b = pgm.GraphBuilder()
    b.layer("h", pgm.Binary(), 1)
    b.layer("v", pgm.NoisyOr(), 1)
    b.cause("h", "v", weight=[[0.0]])
    with pytest.raises(pgm.PgmError, match="row 1 has probability zero"):
        pgm.infer(b.build(), {"v": [[0], [1]]})


def test_explain_names_the_choice_and_the_refusal():
    text = pgm.explain(pgm.dbm([784, 500, 1000], rng=0), {"v": np.zeros(784)})
    assert "refused, cheapest enumeration needs 2^500 states" in text and "-> MCMC" in text
    assert "2^10 states of 10 units of 'v'" in pgm.explain(
        pgm.rbm(64, 200, rng=0), {"v": [nan] * 10 + [0] * 54}
    )
    joint = pgm.Joint(("v", 0), ("h", 0))
    assert "answer: none" in pgm.explain(pgm.rbm(60, 60, rng=0), want=(joint,))
    assert "refused" in pgm.explain(RBM, method=pgm.Auto(max_work=1))
    large = pgm.GraphBuilder.from_networkx(
        __import__("networkx").grid_2d_graph(60, 60, periodic=True), unit=pgm.Spin()
    ).build()
    assert "-> SwendsenWang" in pgm.explain(large)


def test_auto_falls_through_and_records_why():
    stuck = pgm.boltzmann_machine(12, weight=np.full((12, 12), 3.0) - 3 * np.eye(12))
    lazy = pgm.MCMC(chains=6, warmup=5, draws=200)
    r = pgm.infer(stuck, method=pgm.Auto(candidates=(lazy, pgm.Exact())), rng=0)
    assert r.kind == "exact" and "did not mix" in r.refused[0].refusal
    r = pgm.infer(
        pgm.rbm(50, 40, rng=0), method=pgm.Auto(candidates=(pgm.Exact(), pgm.MCMC(draws=50))), rng=0
    )
    assert r.method == pgm.MCMC(draws=50) and "2^40" in r.refused[0].refusal


def test_cheapest_cover_depends_on_the_evidence():
    deep = pgm.dbm([20, 6, 20], rng=0).given()
    assert "2^6 states of 6 units of 'h1'" in str(pgm.Exact().plan(deep, ("log_z",)))
    seen = pgm.dbm([20, 30, 3], rng=0).given({"v": np.zeros(20)})
    assert "2^3 states of 3 units of 'h2'" in str(pgm.Exact().plan(seen, ("log_z",)))
    assert "independent" in str(
        pgm.Exact().plan(pgm.sbn([90, 80, 70], rng=0).given(), ("log_prob",))
    )


def test_classes_in_place_of_instances_and_broken_kernels_are_named():
    x = {"v": np.zeros((3, 4))}
    with pytest.raises(pgm.PgmError, match=r"method must be an instance such as Exact\(\.\.\.\)"):
        pgm.infer(RBM, method=pgm.Exact)
    with pytest.raises(pgm.PgmError, match="negative must be an instance such as CD"):
        pgm.fit(RBM, x, negative=pgm.CD)
    for kernel in (pgm.Blend, 3):
        with pytest.raises(pgm.PgmError, match="kernel must be"):
            pgm.infer(RBM, method=pgm.MCMC(kernel=kernel))

    class Half:
        def transition(self, prob, current):
            return prob / 2

    matrix, chains = pgm.diagnostics.transition_matrix, pgm.MCMC(kernel=Half())
    for use in (lambda: pgm.infer(RBM, method=chains), lambda: matrix(RBM.given(), Half())):
        with pytest.raises(pgm.PgmError, match=r"must give probabilities .* sums from 0.5 to 0.5"):
            use()


def test_answers_name_what_they_have():
    r = pgm.infer(
        pgm.rbm(3, 2, hidden=pgm.MultiValued(math.inf), rng=0), want=("marginals", "pairs")
    )
    with pytest.raises(
        pgm.PgmError, match="prob has no 'h', it has v; only layers of finitely many states"
    ):
        r.prob["h"]
    with pytest.raises(KeyError, match="mean has no 'x', it has v, h"):
        r.mean["x"]
    assert pickle.loads(pickle.dumps(r)).mean.keys() == {"v", "h"}

    @dataclass(frozen=True)
    class Silent:
        def plan(self, target, want):
            return pgm.Plan("Silent", "estimate")

        def run(self, target, want, rng=None, state=None):
            return pgm.Result({"log_z": np.zeros(1)}, "estimate", self, self.plan(target, want))

    with pytest.raises(pgm.PgmError, match="was asked for marginals, but its answers are log_z"):
        pgm.infer(RBM, method=Silent())


def test_explanations_are_text_and_tables():
    from rich.console import Console

    found = pgm.explain(pgm.rbm(40, 40, rng=0))
    console = Console(width=110, record=True, file=io.StringIO())
    console.print(found)
    table = console.export_text()
    assert isinstance(found, str) and "-> MCMC: estimate" in found
    for word in ("MCMC", "refused", "2^40", "updates", "MeanField"):
        assert word in table and word in found._repr_html_().replace("MeanField", "MeanField")
    # The refusal that two settings of Forward share is shown once.
    assert found._repr_html_().count("<tr>") == 1 + len(set(found.plans)) == len(found.plans)
    again = pickle.loads(pickle.dumps(found))
    assert again == found and again.plans == found.plans and again.chosen is again.plans[3]


def test_progress_is_quiet_when_not_a_terminal(capsys):
    pgm.infer(RBM, method=pgm.MCMC(draws=50), progress=True)
    assert capsys.readouterr() == ("", "")


def test_huge_weights_give_the_right_answer():
    model = RBM.with_params({"v-h.weight": np.full((4, 2), 1e3), "v.bias": np.full(4, -1e3)})
    r = pgm.infer(model, want=("log_z", "marginals"))
    np.testing.assert_allclose(r.log_z[0], 4000.0, rtol=1e-12)
    np.testing.assert_allclose(r.mean["v"], 1.0, rtol=1e-12)


def test_a_new_unit_type_is_one_class(tmp_path):
    @dataclass(frozen=True)
    class Thirds(pgm.Unit):
        @property
        def support(self):
            return np.array([0.0, 1.0, 3.0])

    model = pgm.rbm(4, 3, hidden=Thirds(), rng=0)
    exact = pgm.infer(model, {"h": [nan, 3, 0]}, want=("marginals", "log_prob"))
    chains = pgm.infer(model, {"h": [nan, 3, 0]}, method=pgm.MCMC(draws=4000), rng=0)
    assert np.all(
        np.abs(exact.mean["v"] - chains.mean["v"]) <= 5 * chains.stats["mcse"]["v"][0] + 1e-9
    )
    pgm.save(model, tmp_path / "m.safetensors")
    assert repr(pgm.load(tmp_path / "m.safetensors")) == repr(model)


def test_a_new_kernel_and_a_new_method_are_one_class_each():
    @dataclass(frozen=True)
    class Lazy:
        """Gibbs, but half of the time a unit stays as it is."""

        def transition(self, prob, current):
            return 0.5 * prob + 0.5 * np.eye(prob.shape[-1])[current]

    exact = pgm.infer(RBM, {"v": [1, nan, nan, 0]})
    lazy = pgm.infer(RBM, {"v": [1, nan, nan, 0]}, method=pgm.MCMC(Lazy(), draws=4000), rng=0)
    assert np.all(np.abs(exact.mean["h"] - lazy.mean["h"]) <= 5 * lazy.stats["mcse"]["h"][0] + 1e-9)

    @dataclass(frozen=True)
    class Guess:
        def plan(self, target, want):
            return (
                pgm.Plan("Guess", "estimate", "a guess")
                if "log_z" in want
                else pgm.Plan("Guess", refusal="no idea")
            )

        def run(self, target, want, rng=None, state=None):
            return pgm.Result(
                {"log_z": np.zeros(target.rows)}, "estimate", self, self.plan(target, want)
            )

    chooser = pgm.Auto(candidates=(Guess(), pgm.Exact()))
    assert pgm.infer(RBM, want=("log_z",), method=chooser).method == Guess()
    r = pgm.infer(RBM, want=("mode",), method=chooser)
    assert r.kind == "exact" and r.refused[0].refusal == "no idea"


def test_memory_is_estimated_before_it_is_taken():
    plan = pgm.Exact(draws=10**9).plan(pgm.rbm(1000, 20, rng=0).given(), ("samples",))
    assert "GiB" in plan.refusal and plan.bytes > 1e12
    plan = pgm.MCMC(draws=10**8).plan(pgm.rbm(1000, 20, rng=0).given(), ("samples",))
    assert "GiB" in plan.refusal


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_evidence_is_answered_or_refused(data):
    """Random graphs of the table, random evidence with garbage in it: a PgmError or probabilities
    that sum to one.
    """
    tiny_model = data.draw(st.sampled_from(FINITE))
    model = tiny_model.build()
    evidence = {}
    for x in tiny_model.layers:
        if data.draw(st.booleans()):
            value = st.sampled_from([nan, 0.0, 1.0, -1.0, 0.5, 2.0, 1e9, -math.inf])
            evidence[x.name] = data.draw(st.lists(value, min_size=x.size, max_size=x.size))
    try:
        r = pgm.infer(model, evidence, want=("marginals", "log_prob"))
    except pgm.PgmError as error:
        assert any(name in str(error) for name in (*evidence, "probability zero"))
        return
    assert r.log_prob[0] < 1e-9 or not all(x.unit.support is not None for x in tiny_model.layers)
    for prob in r.prob.values():
        np.testing.assert_allclose(prob.sum(axis=-1), 1.0, rtol=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 5), st.floats(0, 1))
def test_random_graphs_agree_between_walks_and_chain_rule(seed, layers, density):
    """p(a, b) = p(a) p(b | a) on random mixed graphs, through different covers."""
    rng = np.random.default_rng(seed)
    units = (pgm.Binary(), pgm.Spin(), pgm.MultiValued(2), pgm.Categorical(3))
    b, names = pgm.GraphBuilder(), [f"l{i}" for i in range(layers)]
    for name in names:
        b.layer(name, units[rng.integers(4)], int(rng.integers(1, 3)))
    for i, one in enumerate(names):
        for two in names[i + 1 :]:
            if rng.random() < density:
                (b.couple if rng.random() < 0.5 else b.cause)(one, two)
    model = b.build(rng=seed)
    draw = pgm.Exact(draws=1).run(model.given(), ("samples",), rng=seed).samples
    state = {n: v[0, 0] for n, v in draw.items()}
    whole = pgm.infer(model, state, want=("log_prob",)).log_prob[0]
    first = {names[0]: state[names[0]]}
    rest = (
        pgm.infer(model, state, want=("log_z",)).log_z[0]
        - pgm.infer(model, first, want=("log_z",)).log_z[0]
    )
    part = pgm.infer(model, first, want=("log_prob",)).log_prob[0]
    np.testing.assert_allclose(whole, part + rest, rtol=1e-9, atol=1e-9)


def test_masked_values_are_not_observed():
    masked = np.ma.array([[1.0, 0.0, 1.0]], mask=[[1, 0, 0]])
    model = pgm.rbm(3, 2, rng=0)
    assert np.array_equal(
        pgm.infer(model, {"v": masked}).mean["h"],
        pgm.infer(model, {"v": [[np.nan, 0, 1]]}).mean["h"],
    )


def test_sparse_evidence_is_evidence():
    x = np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    model = pgm.rbm(3, 2, rng=0)
    assert np.array_equal(
        pgm.infer(model, {"v": sp.csr_array(x)}).mean["h"], pgm.infer(model, {"v": x}).mean["h"]
    )


@one_test_over(
    "ask, words",
    [
        (
            lambda m: pgm.infer(m.given({"v": np.ones((2, 4))})),
            "pass its attribute .model, which is one",
        ),
        (lambda m: pgm.explain("model"), "model must be a Model or a Fit, not str"),
        (
            lambda m: pgm.infer(m, method="mcmc"),
            "method must be an inference method such as pgm.Exact(), not 'mcmc'",
        ),
        (
            lambda m: pgm.infer(m, method=pgm.Gibbs()),
            "method must be an inference method such as pgm.Exact(), not Gibbs()",
        ),
        (lambda m: pgm.infer(m, want=5), "want must be a name or several, not 5"),
        (lambda m: pgm.Exact(draws=0), "Exact: draws must be an integer of at least 1, not 0"),
    ],
)
def test_questions_that_are_none(ask, words):
    with pytest.raises(pgm.PgmError) as error:
        ask(pgm.rbm(4, 2, rng=0))
    assert words in str(error.value)


@one_test_over("method", [None, pgm.MeanField(), pgm.MCMC(draws=20), pgm.Forward(20)], ids=repr)
def test_answers_are_the_callers_to_change(method):
    model, v = pgm.sbn([4, 3], rng=0), np.array([[1.0, 0, 1, nan]])
    r = pgm.infer(model, {"v": v}, method=method, rng=0)
    for answer in (r.mean, r.prob):
        for value in answer.values():
            value[:] = 7
    assert np.array_equal(v, [[1, 0, 1, nan]], equal_nan=True)
    assert np.array_equal(r.target.evidence.values["v"], [[1, 0, 1, 0]])


def test_numbers_in_single_precision_are_the_values_that_they_were():
    model = pgm.rbm(2, 2, visible=pgm.MultiValued(10), rng=0)
    double, single = (
        pgm.infer(model, {"v": np.array([0.2, -0.4], dtype=d)}) for d in (np.float64, np.float32)
    )
    assert np.array_equal(double.mean["h"], single.mean["h"]) and np.array_equal(
        single.mean["v"], [0.2, -0.4]
    )
    for near in (0.2 + 1e-6, np.float16(0.2)):
        with pytest.raises(pgm.PgmError, match="is not a value of"):
            pgm.infer(model, {"v": [near, -0.4]})


def test_an_array_that_may_be_labels_or_states_is_refused():
    b = pgm.GraphBuilder()
    b.layer("c", pgm.Categorical(3), 3, bias=np.arange(9.0).reshape(3, 3) / 5)
    b.layer("h", pgm.Binary(), 2)
    b.couple("c", "h")
    model, hot = b.build(rng=0), np.eye(3)[[2, 1, 0]]
    missing = np.where([[False], [True], [False]], nan, hot)
    for unclear in (hot, missing):
        with pytest.raises(pgm.PgmError, match=r"may also be labels of 3 rows.*\(rows, 3, 3\)"):
            pgm.infer(model, {"c": unclear})
    by_state = pgm.infer(model, {"c": hot[None]}).mean["h"]
    assert np.array_equal(by_state, pgm.infer(model, {"c": [[2, 1, 0]]}).mean["h"])
    assert pgm.infer(model, {"c": [[0, 1, 2], [0, 0, 1], [2, 2, 2]]}).mean["h"].shape == (3, 2)


class Pairs(pgm.Unit):
    """Two components that are not one-hot: both may be 1."""

    width = 2
    support = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])


class Points(pgm.Unit):
    """Two points of the plane, 0 not among them."""

    width = 2
    support = np.array([[1.0, 2.0], [3.0, 1.0]])


def by_hand(model, unit, seen):
    """Means of h and probabilities of the states of c, enumerated: c = seen where that is a state,
    else free.
    """
    from itertools import product

    p = model.params
    total, mean_h, prob = 0.0, 0.0, np.zeros((2, len(unit.support)))
    choices = [range(len(unit.support)) if g is None else [g] for g in seen]
    for states, h in product(product(*choices), product((0, 1), repeat=2)):
        x = unit.support[list(states)].ravel()
        weight = np.exp(x @ p["c.bias"].ravel() + h @ p["h.bias"] + x @ p["c-h.weight"] @ h)
        total, mean_h = total + weight, mean_h + weight * np.array(h)
        for i, k in enumerate(states):
            prob[i, k] += weight
    return mean_h / total, prob / total


@pytest.mark.parametrize("unit", [Pairs(), Points()], ids=lambda u: type(u).__name__)
@pytest.mark.parametrize(
    ("method", "seen"),
    [
        (pgm.Exact(), (None, None)),
        (pgm.Exact(), (1, None)),
        (pgm.Exact(), (0, 1)),
        (pgm.MCMC(draws=4000), (1, None)),
        pytest.param(pgm.MCMC(draws=4000), (None, None), marks=pytest.mark.long),
        pytest.param(pgm.MCMC(draws=4000), (0, 1), marks=pytest.mark.long),
    ],
    ids=lambda value: str(value) if isinstance(value, tuple) else type(value).__name__,
)
def test_units_of_several_components_need_not_be_one_hot(unit, seen, method, errors=5.0):
    b = pgm.GraphBuilder()
    b.layer("c", unit, 2, bias=[[0.5, -0.3], [1.0, 0.2]])
    b.layer("h", pgm.Binary(), 2, bias=[0.1, -0.4])
    b.couple("c", "h")
    model = b.build(rng=0)
    x = np.array([[[nan, nan] if g is None else unit.support[g] for g in seen]])
    labels = np.array([[nan if g is None else g for g in seen]])
    truth = by_hand(model, unit, seen)
    for evidence in (x, np.concatenate((labels, labels, labels))):
        r = pgm.infer(model, {"c": evidence}, method=method, rng=0)
        spread = 1e-9 if r.kind == "exact" else errors * 0.5 / np.sqrt(2000)
        np.testing.assert_allclose(r.mean["h"][0], truth[0], atol=spread)
        np.testing.assert_allclose(r.prob["c"][0], truth[1], atol=spread)
        np.testing.assert_allclose(r.mean["c"][0], truth[1] @ unit.support, atol=4 * spread)
    if None not in seen:
        bound = pgm.infer(model, {"c": x}, method=pgm.MeanField())  # exact here
        np.testing.assert_allclose(bound.mean["h"][0], truth[0], atol=1e-9)
    with pytest.raises(pgm.PgmError, match="one of the rows of its support"):
        pgm.infer(model, {"c": [[[0.5, nan], [1, 1]]]})
    with pytest.raises(pgm.PgmError, match="is not a label"):
        pgm.infer(model, {"c": [[len(unit.support), nan]]})


@dataclass(frozen=True)
class Values(pgm.Unit):
    """Any values with any base measure."""

    values: tuple = (0.0, 1.0)
    logs: tuple | None = None

    @property
    def width(self):
        return int(np.ndim(self.values[0]) and len(self.values[0])) or 1

    @property
    def support(self):
        return np.array(self.values)

    @property
    def log_base(self):
        return np.zeros(len(self.values)) if self.logs is None else np.array(self.logs)


HOT = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


@one_test_over(
    ("unit", "data", "mean"),
    [
        (Values((0.0, 1.0), (0.0, 2.0)), [[1], [1], [1], [0]], [0.75]),
        (Values((-1.0, 3.0), (0.5, -1.0)), [[3], [-1], [-1], [-1]], [0.0]),
        (Values((0.0, 1.0, 3.0), (0.0, 1.0, -1.0)), [[3], [1], [0], [0]], [1.0]),
        (Values(HOT, (0.0, 2.0, -1.0)), [[0], [1], [1], [2]], [[0.25, 0.5, 0.25]]),
    ],
)
def test_base_rates_know_the_base_measure(unit, data, mean, atol=1e-6):
    model = pgm.rbm(1, 1, visible=unit, rng=0)
    eta = np.asarray(pgm.base_rates(model, {"v": data}, shrink=1e-9)["v"])
    np.testing.assert_allclose(unit.mean(eta if unit.width == 1 else eta[None]), mean, atol=atol)


def test_units_of_one_value_and_units_whose_values_do_not_ascend():
    one = pgm.rbm(2, 2, visible=Values((2.0,)), rng=0)
    exact, chains = (
        pgm.infer(one, method=m, rng=0).mean for m in (pgm.Exact(), pgm.MCMC(draws=2000))
    )
    assert np.array_equal(exact["v"], [2, 2]) and np.array_equal(chains["v"], [2, 2])
    np.testing.assert_allclose(chains["h"], exact["h"], atol=5 * 0.5 / np.sqrt(4000))
    for values in ((3.0, 0.0, 1.0), (1.0, 1.0)):
        with pytest.raises(pgm.PgmError, match="must be ascending"):
            pgm.rbm(2, 2, visible=Values(values))


def test_units_with_tuples_come_back_from_a_file(tmp_path):
    model = pgm.rbm(2, 2, visible=Values((0.0, 1.0, 3.0), (0.0, 1.0, -1.0)), rng=0)
    pgm.save(model, tmp_path / "m.safetensors")
    back = pgm.load(tmp_path / "m.safetensors")
    assert back.structure.layers["v"].unit == model.structure.layers["v"].unit
    assert np.array_equal(
        *(pgm.infer(m, method=pgm.MCMC(draws=5), rng=0).mean["v"] for m in (model, back))
    )


def test_variance_of_several_components(rtol=1e-12):
    unit, eta = (
        Values(((1.0, 2.0), (3.0, 1.0), (0.0, 0.0)), (0.3, -0.4, 0.1)),
        np.array([[0.3, -0.2], [1.0, 0.5]]),
    )
    p = np.exp(eta @ unit.support.T + unit.log_base)
    p /= p.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(
        unit.variance(eta), p @ unit.support**2 - (p @ unit.support) ** 2, rtol=rtol
    )


def test_values_of_several_components_forgive_single_precision():
    unit = Values(((0.1, 0.2), (0.3, 1.0), (-0.7, 0.1)), (0.1, -0.3, 0.5))
    model = pgm.rbm(2, 2, visible=unit, rng=0)
    rows = unit.support[[[0, 1], [2, 0]]]
    single = pgm.infer(model, {"v": rows.astype(np.float32)}).mean["h"]
    assert np.array_equal(single, pgm.infer(model, {"v": rows}).mean["h"])
    with pytest.raises(pgm.PgmError, match="row 1, index 0.*is not a value"):
        pgm.infer(model, {"v": rows + 1e-6 * (np.arange(8).reshape(2, 2, 2) == 5)})


def test_frames_have_a_column_for_each_component():
    extra("pandas")
    b = pgm.GraphBuilder()
    b.layer("c", Pairs(), 2)
    b.layer("h", pgm.Binary(), 2)
    b.couple("c", "h")
    assert pgm.infer(b.build(rng=0)).to_frame().shape[1] == 6


@one_test_over(
    ("evidence", "named"),
    (
        ({"tub": "yes", "either": "no"}, ": a table is 0 at tub=yes, either=no"),
        ({"tub": ["no", "no"], "either": ["no", "no"], "lung": ["no", "yes"]}, "lung=yes, tub=no"),
        # No single table excludes these; the chain of tables does.
        ({"first": "on", "last": "on"}, "so it has no posterior$"),
    ),
)
def test_impossible_evidence_names_observations_that_exclude_each_other(evidence, named):
    if "first" in evidence:
        b = pgm.GraphBuilder()
        first, middle, last = (b.variable(n, states=("off", "on")) for n in ("first", "m", "last"))
        b.conditional(first, (), [0.5, 0.5])
        b.conditional(middle, (first,), [[0.5, 0.5], [1.0, 0.0]])
        b.conditional(last, (middle,), [[1.0, 0.0], [0.5, 0.5]])
        net = b.build()
    else:
        net = pgm.read(pgm.datasets.asia())
    with pytest.raises(pgm.PgmError, match=f"has probability zero.*{named}"):
        pgm.infer(net, evidence)

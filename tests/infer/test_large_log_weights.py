"""Log weights of any size: answers are right, or withheld by a status that names row and terms.

The oracle (exact_sums.py) adds up energies as fractions, without rounding.
"""

import numpy as np
import pytest
from chains_of_units import of_tables
from exact_sums import ExactSums
from loops import one_test_over
from registry import EXACT, METHODS, SAMPLERS, every

import pgmengine as pgm
from pgmengine.infer.diagnostics.rounding import MAX_TERMS_IN_DOUBLE, ease, fits
from pgmengine.infer.exact.enumeration import compiled_enumerator

RBM = pgm.rbm(3, 2, rng=0)
NAN = np.nan
EXACTLY = [pgm.Enumeration(), pgm.Elimination(), pgm.Exact(), pgm.Auto()]
NOTHING = {"v": [[NAN] * 3]}


def ones(x):
    return x["v"].sum(axis=1).astype(int)


CHAINS = [
    pgm.MCMC(chains=40, draws=200),
    pgm.SwendsenWang(chains=40, draws=200, frustrated=True),
    pgm.ParallelTempering(rungs=4, chains=20, warmup=50, draws=200),
    pgm.SimulatedTempering(betas=pgm.Linear(3), chains=40, warmup=200, draws=400),
    pgm.TemperedTransitions(chains=40, warmup=50, draws=100),
    pgm.WangLandau(ones, 4, chains=40, warmup=100, draws=150),
]
every([METHODS[name] for name in SAMPLERS], CHAINS)
# The determinant does not answer about these models; it has a test of its own.
every([METHODS[name] for name in EXACT], [*EXACTLY, pgm.Planar()])


def clashing(size):
    """An RBM whose couplings of the given size cancel in some states."""
    weight = np.array([[size, 0.3], [-size, size], [0.5, -size]])
    return RBM.with_params({"v-h.weight": weight, "v.bias": [-size, size, 0.2]})


# ---- fields that decide a unit ----


@pytest.mark.parametrize("method", EXACTLY, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_larger_and_larger_hint_is_an_observation_in_the_limit(method, sign):
    seen = pgm.infer(RBM, {"v": [sign > 0, NAN, NAN]}, want=("marginals", "log_z", "mode"))
    for size in (1e4, 1e9, 1e12, 1e15, 1e16, 1e18, 1e30):
        r = pgm.infer(
            RBM, soft={"v": [sign * size, 0, 0]}, want=("marginals", "log_z", "mode"), method=method
        )
        assert r.status is pgm.Status.OK
        for name in ("v", "h"):
            np.testing.assert_allclose(r.mean[name], seen.mean[name], atol=1e-13)
            np.testing.assert_array_equal(r.mode[name], seen.mode[name])
        gain = size if sign > 0 else 0.0
        np.testing.assert_allclose(r.log_z, seen.log_z + gain, rtol=1e-14)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_determinant_takes_a_large_hint_as_an_observation(sign):
    chain = pgm.boltzmann_machine(4, weight=np.eye(4, k=1) + np.eye(4, k=-1))
    want = ("marginals", "log_z")
    seen = pgm.infer(chain, {"x": [NAN, sign, NAN, NAN]}, want=want, method=pgm.Elimination())
    for size in (1e4, 1e9, 1e12, 1e16, 1e30):
        soft = {"x": [0, sign * size, 0, 0]}
        r = pgm.infer(chain, soft=soft, want=want, method=pgm.Planar())
        np.testing.assert_allclose(r.mean["x"], seen.mean["x"], atol=1e-13)
        # The weights (0, -size) of a spin are the field -size / 2 and a constant that cancels it.
        lost = sign < 0 and size > MAX_TERMS_IN_DOUBLE
        assert r.status is (pgm.Status.ROUNDED if lost else pgm.Status.OK)
        log_z = NAN if lost else seen.log_z + max(sign, 0) * size
        np.testing.assert_allclose(r.log_z, log_z, rtol=1e-14, atol=2.0**-52 * size)
    clashing = chain.with_params({"x-x.weight": 1e17 * chain.params["x-x.weight"]})
    with pytest.raises(pgm.PgmError, match=r"row 0: the terms of the weight of 'x-x'"):
        pgm.infer(clashing, want=("marginals",), method=pgm.Planar())


@pytest.mark.parametrize("method", CHAINS, ids=lambda m: type(m).__name__)
def test_samplers_take_a_large_hint_as_an_observation(method):
    expected = pgm.infer(RBM, {"v": [[1, NAN, 0], [NAN] * 3]})
    r = pgm.infer(RBM, soft={"v": [[1e16, 0, -1e20], [0, 0, 0]]}, method=method, rng=0)
    for name in ("v", "h"):
        np.testing.assert_allclose(r.mean[name], expected.mean[name], atol=0.06)
    assert r.mean["v"][0, 0] == 1 and r.mean["v"][0, 2] == 0


def test_log_z_of_samplers_and_bounds_under_a_large_hint():
    truth = pgm.infer(RBM, {"v": [0, NAN, NAN]}, want=("log_z",)).log_z
    for method in (pgm.AIS(betas=pgm.Linear(300)), pgm.ParallelTempering(draws=2000)):
        r = pgm.infer(RBM, soft={"v": [-1e16, 0, 0]}, want=("log_z",), method=method, rng=0)
        assert abs(r.log_z - truth) < 0.2
    bound = pgm.infer(RBM, soft={"v": [-1e16, 0, 0]}, want=("bound",), method=pgm.MeanField()).bound
    assert truth - 0.5 < bound <= truth


def test_large_biases_of_every_finite_unit_decide_it():
    for unit, value in ((pgm.Spin(), 1), (pgm.MultiValued(2), 1), (pgm.Binary(), 1)):
        m = pgm.rbm(3, 2, visible=unit, rng=1)
        low = float(unit.support[0])
        m = m.with_params({"v.bias": [1e17, -1e18, 0.3]})
        r = pgm.infer(m, want=("marginals", "log_z"))
        truth = ExactSums(m)
        assert r.mean["v"][:2].tolist() == [value, low]
        np.testing.assert_allclose(r.prob["v"], truth.prob["v"], atol=1e-13)
        np.testing.assert_allclose(r.log_z, float(truth.log_z), rtol=1e-14)


def test_categorical_units_keep_the_states_that_a_hint_does_not_exclude():
    m = pgm.rbm(2, 2, visible=pgm.Categorical(3), rng=1).with_params(
        {"v.bias": [[0.4, 0.1, -0.2], [1e15, -1e15, 1e15]]}
    )
    soft = np.array([[1e15, 1e15, -1e15], [0.25, 0.0, 0.0]])
    r = pgm.infer(m, soft={"v": soft}, want=("marginals", "log_z"))
    truth = ExactSums(m, soft={"v": soft.ravel()})
    np.testing.assert_allclose(r.prob["v"], truth.prob["v"], atol=1e-13)
    assert 0.1 < r.prob["v"][0, 0] < 0.9 and r.status is pgm.Status.OK


# ---- answers without digits ----


@pytest.mark.parametrize("method", [*EXACTLY, *CHAINS], ids=lambda m: type(m).__name__)
def test_a_question_without_digits_is_refused_and_names_the_terms(method):
    with pytest.raises(pgm.PgmError, match=r"row 0: the terms of the weight of 'v-h' .* 4e\+17"):
        pgm.infer(clashing(1e17), method=method, rng=0)


def test_pair_terms_beyond_single_precision_are_no_matter_of_exact_answers():
    m = clashing(3e6)
    with pytest.raises(pgm.PgmError, match="the weight of 'v-h'"):
        pgm.infer(m, method=CHAINS[0], rng=0)
    np.testing.assert_allclose(pgm.infer(m).prob["v"], ExactSums(m).prob["v"], atol=1e-8)


@one_test_over("method", EXACTLY, ids=lambda m: type(m).__name__)
def test_rows_without_digits_are_named_and_do_not_spoil_others(method):
    m = clashing(1e16)
    evidence = {"v": [[NAN] * 3, [0, 0, 1], [NAN] * 3, [0, 1, 0]]}
    want = ("marginals", "samples", "mode", "log_z", "pairs")
    r = pgm.infer(m, evidence, want, method=method, rng=0)
    assert r.status is pgm.Status.ROUNDED and not r.status.good
    assert [w.split(":")[0] for w in r.warnings] == ["evidence row 0", "evidence row 2"]
    alone = pgm.infer(m, {"v": [[0, 0, 1], [0, 1, 0]]}, want, method=method)
    assert alone.status is pgm.Status.OK
    for answer in ("mean", "prob", "mode", "pairs"):
        for name, value in getattr(r, answer).items():
            assert np.isnan(value[[0, 2]]).all()
            np.testing.assert_allclose(value[[1, 3]], getattr(alone, answer)[name], atol=1e-9)
    assert np.isnan(r.samples["h"][:, [0, 2]]).all() and np.isfinite(r.samples["h"][:, 1]).all()
    # log Z itself keeps its digits.
    np.testing.assert_allclose(r.log_z[0], float(ExactSums(m).log_z), rtol=1e-14)


def test_a_log_z_that_is_a_small_difference_of_large_terms_is_withheld():
    s = 2.0**70
    m = RBM.with_params({"v-h.weight": np.full((3, 2), -s), "v.bias": [0.1, 0.2, 0.3]})
    r = pgm.infer(m, {"v": [[1, NAN, NAN], [0, 0, 0]]}, want=("log_z",))
    assert np.isnan(r.log_z[0]) and r.log_z_interval[0].tolist() == [-np.inf, np.inf]
    np.testing.assert_allclose(r.log_z[1], 2 * np.log(2), rtol=1e-14)
    assert r.status is pgm.Status.ROUNDED and "row 0" in r.warnings[0]


@one_test_over("method", EXACTLY, ids=lambda m: type(m).__name__)
def test_log_prob_is_withheld_where_two_large_numbers_cancel(method):
    # The row is the most probable state, so that both terms are 1e16 to all their digits.
    m = RBM.with_params({"v-h.weight": [[1e16, 0.1], [0.2, 0.3], [0.1, 0.5]]})
    r = pgm.infer(m, {"v": [[1, 0, 1], [0, 1, 0]]}, ("log_prob", "log_z"), method=method)
    assert np.isnan(r.log_prob[0]) and r.status is pgm.Status.ROUNDED
    np.testing.assert_allclose(r.log_prob[1], -1e16, rtol=1e-9)


def test_log_prob_is_right_under_large_biases_without_cancellation():
    m = RBM.with_params({"v.bias": [1e15, 0.3, -0.2]})
    truth = ExactSums(m).log_z
    rows = [[0, 1, 0], [0, 0, 1]]
    r = pgm.infer(m, {"v": rows}, ("log_prob",))
    for row, found in zip(rows, r.log_prob):
        np.testing.assert_allclose(found, float(ExactSums(m, {"v": row}).log_z - truth), rtol=1e-12)


def test_gradients_without_digits_are_refused():
    target = clashing(1e16).given()
    for method in (pgm.Enumeration(), pgm.Elimination(), pgm.Exact()):
        with pytest.raises(pgm.PgmError, match="the weight of 'v-h'"):
            method.gradient(target, np.ones(1))


def test_gradients_under_a_deciding_field_are_those_of_an_observation():
    m = RBM.with_params({"v.bias": [1e17, 0.2, 0.1]})
    seen = m.given({"v": [1, NAN, NAN]})
    for method in (pgm.Enumeration(), pgm.Elimination()):
        found, expected = (method.gradient(t, np.ones(1)) for t in (m.given(), seen))
        for name in found:
            np.testing.assert_allclose(found[name], expected[name], atol=1e-12)


# ---- sums that are divided by their own total ----


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("want", [("marginals",), ("marginals", "pairs")])
def test_a_walk_divides_by_its_own_total_whatever_its_digits(compiled, want, monkeypatch):
    monkeypatch.setattr(compiled_enumerator, "MAX_SAFE_TERMS", np.inf if compiled else 0.0)
    # The bias of the observed unit is in the log weight of every state.
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Binary(), 8)
    b.couple("x", "x", np.ones((8, 8)) - np.eye(8))
    m = b.build().with_params({"x.bias": [1e18] + 7 * [-0.5]})
    evidence = {"x": [[1] + 7 * [NAN]]}
    question = pgm.Enumeration().prepare(m.given(evidence), want)
    # The method itself, without the check of digits.
    found = question.method.answer(question, None, None, None).mean["x"]
    np.testing.assert_allclose(found[0], ExactSums(m, {"x": evidence["x"][0]}).prob["x"][:, 1])


@pytest.mark.parametrize("want", [("marginals",), ("marginals", "pairs")])
def test_states_that_rounding_ties_share_their_probability(want):
    for target in (RBM.given(soft={"v": [1e18, 0, 0]}), clashing(1e18).given()):
        question = pgm.Enumeration().prepare(target, want)
        r = question.method.answer(question, None, None, None)
        # Means of units with the values 0 and 1; state probabilities are also cut off at 1.
        for name, mean in r.mean.items():
            assert (mean >= 0).all() and (mean <= 1).all()
            np.testing.assert_allclose(r.prob[name][..., 1], mean, rtol=1e-14)
            np.testing.assert_allclose(r.prob[name].sum(axis=-1), 1.0, rtol=1e-14)


def test_the_compiled_walk_leaves_fields_that_would_drift_to_the_numpy_walk():
    m = pgm.rbm(40, 6, rng=0).with_params({"h.bias": np.full(6, 1e6)})
    calls = []
    made = compiled_enumerator.CompiledEnumerator.sums
    compiled_enumerator.CompiledEnumerator.sums = lambda self, n: (
        calls.append(self) or made(self, n)
    )
    try:
        pgm.infer(m, {"v": [[1] * 20 + [NAN] * 20]}, method=pgm.Enumeration())
    finally:
        compiled_enumerator.CompiledEnumerator.sums = made
    assert not calls


# ---- kinds of terms ----


@pytest.mark.parametrize("size", [1e2, 1e4, 1e6, 1e8])
@pytest.mark.parametrize("method", EXACTLY[:2], ids=lambda m: type(m).__name__)
def test_gaussian_units_with_large_means_keep_their_digits(method, size):
    rng = np.random.default_rng(3)
    m = pgm.rbm(3, 2, visible=pgm.Gaussian(), rng=1).with_params(
        {
            "v.bias": [size, -0.7 * size, 1.0],
            "v-h.weight": rng.standard_normal((3, 2)) / size,
            "h.bias": rng.standard_normal(2),
        }
    )
    for row in ([NAN] * 3, [size, NAN, 3.0]):
        r = pgm.infer(m, {"v": [row]}, want=("marginals", "log_z"), method=method)
        truth = ExactSums(m, {"v": row})
        np.testing.assert_allclose(r.prob["h"][0], truth.prob["h"], atol=1e-9)
        np.testing.assert_allclose(r.log_z, float(truth.log_z), rtol=1e-14)


def test_observed_terms_of_any_size_do_not_reach_the_posterior():
    m = pgm.rbm(2, 3, visible=pgm.Gaussian(), rng=1)
    m = m.with_params({"v.bias": [1e9, 2.0], "v-h.weight": np.full((2, 3), 1e-9)})
    row = [3e8, -2e8]
    for method in EXACTLY[:2]:
        r = pgm.infer(m, {"v": row}, method=method)
        np.testing.assert_allclose(r.prob["h"], ExactSums(m, {"v": row}).prob["h"], atol=1e-12)
        assert r.status is pgm.Status.OK


def test_rows_of_several_patterns_do_not_share_a_tree_that_costs_digits():
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Spin(), 5)
    weight = np.triu(np.random.default_rng(0).standard_normal((5, 5)), 1)
    b.couple("x", "x", weight + weight.T)
    m = b.build().with_params({"x.bias": [-1.3e15, 1e15, -0.7, -1.4, 0.6]})
    rows = np.array([[NAN, NAN, NAN, 1, NAN], [1, NAN, NAN, NAN, NAN], [NAN, -1, NAN, NAN, NAN]])
    r = pgm.infer(m, {"x": rows}, method=pgm.Elimination())
    for row, found in zip(rows, r.prob["x"]):
        np.testing.assert_allclose(found, ExactSums(m, {"x": row}).prob["x"], atol=1e-12)


def test_a_decided_unit_in_a_table_with_zeros_may_be_impossible():
    # The hint favours a state that the other hint excludes: neither may be taken for certain.
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Binary(), 3)
    b.tables(("x", "x"), [[0, 1], [1, 2]], [[[1.0, 1.0], [1.0, 0.0]], [[1.0, 2.0], [2.0, 1.0]]])
    m = b.build()
    with pytest.raises(pgm.PgmError, match="soft evidence of layer 'x'"):
        pgm.infer(m, soft={"x": [1e17, 1e17, 0.0]})
    # Away from the zeros it is.
    r = pgm.infer(m, soft={"x": [0.0, 0.0, 1e17]})
    np.testing.assert_allclose(r.prob["x"], ExactSums(m, {"x": [NAN, NAN, 1]}).prob["x"])


def test_ordinary_large_weights_fit():
    rng = np.random.default_rng(0)
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Spin(), 400)
    pairs = [(i, i + 1) for i in range(399) if i % 20 < 19] + [(i, i + 20) for i in range(380)]
    logs = 500 * rng.choice([-1, 1], len(pairs))[:, None, None] * np.array([[1, -1], [-1, 1]])
    b.tables(("x", "x"), pairs, np.ones((2, 2)))
    m = b.build()
    key = next(k for k in m.params if k.endswith(".table"))
    m = (
        m.with_params({key: np.broadcast_to(logs, m.params[key].shape)})
        if (m.params[key].ndim == 3)
        else m
    )
    for single in (False, True):
        assert fits(m.given(), single)
        assert fits(pgm.rbm(784, 500, rng=0).given(), single)
        # Zeros are no large numbers.
        zero = pgm.GraphBuilder()
        zero.layer("x", pgm.Binary(), 2)
        zero.tables(("x", "x"), [[0, 1]], [[1.0, 0.0], [0.5, 1e-300]])
        assert fits(zero.build().given(), single)


def test_a_target_that_fits_is_answered_as_it_is():
    target = RBM.given(soft={"v": [100.0, 0, 0]})
    assert fits(target, False) and ease(target, False).target is target


# ---- random models against fractions ----


def enlarged(rng, shape):
    """Numbers of which a third is large, of one size, and some tie."""
    size = 10.0 ** rng.choice([3, 6, 8, 9, 10, 12, 15, 16, 17, 20, 29])
    each = 1.0 if rng.random() < 0.3 else rng.random(shape) + 0.5
    large = rng.choice([-1, 1], shape) * size * each
    return np.where(rng.random(shape) < 0.35, large, 2 * rng.standard_normal(shape))


def spins(rng):
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Spin(), 4)
    weight = np.triu(rng.standard_normal((4, 4)), 1)
    b.couple("x", "x", weight + weight.T)
    return b.build()


def of_random_tables(rng, unit, zeros):
    k, size = len(unit.support), 4 if unit.width == 1 else 3
    logs = rng.standard_normal((size - 1, k, k))
    logs[rng.random(logs.shape) < 0.25 * zeros] = -np.inf
    logs[:, 0, 0] = 0.0
    return of_tables(unit, size, np.exp(logs))


def noisy(rng):
    b = pgm.GraphBuilder()
    b.layer("c", pgm.Binary(), 2)
    b.layer("e", pgm.NoisyOr(), 2)
    b.cause("c", "e", 3 * rng.random((2, 2)))
    return b.build().with_params({"e.bias": 0.1 * rng.random(2)})


FAMILIES = {
    "rbm": lambda rng: pgm.rbm(3, 2, rng=rng),
    "categories": lambda rng: pgm.rbm(2, 2, visible=pgm.Categorical(3), rng=rng),
    "values": lambda rng: pgm.rbm(2, 2, visible=pgm.MultiValued(2), hidden=pgm.Spin(), rng=rng),
    "net": lambda rng: pgm.sbn([3, 2], rng=rng),
    "gaussian": lambda rng: pgm.rbm(
        2, 2, visible=pgm.Gaussian(float(10.0 ** rng.choice([-2, 0, 2]))), rng=rng
    ),
    "spins": spins,
    "tables": lambda rng: of_random_tables(rng, pgm.Binary(), False),
    "zeros": lambda rng: of_random_tables(rng, pgm.Categorical(3), True),
    "noisy": noisy,
}


def random_question(family, rng):
    """A model with some large parameters or hints, evidence and hints of three rows."""
    m = FAMILIES[family](rng)
    kinds = ["soft", "bias", "weight", "table", "both"]
    where = "soft" if family == "noisy" else rng.choice(kinds)
    params = {}
    for key, value in m.params.items():
        if (
            key.endswith(".bias")
            and where in ("bias", "both")
            and family not in ("tables", "zeros")
        ):
            params[key] = enlarged(rng, value.shape)
        if key.endswith(".weight") and where in ("weight", "both"):
            params[key] = enlarged(rng, value.shape)
            if key == "x-x.weight":
                params[key] = np.triu(params[key], 1) + np.triu(params[key], 1).T
        if key.endswith(".table") and where == "table":
            params[key] = np.where(np.isneginf(value), value, enlarged(rng, value.shape))
    evidence, soft = {}, None
    for name, layer in m.structure.layers.items():
        shape, support = (3, layer.size), layer.unit.support
        if layer.unit.width > 1:
            continue
        values = (
            rng.standard_normal(shape) * 10.0 ** rng.choice([0, 2, 5, 8])
            if support is None
            else rng.choice(support, shape)
        )
        evidence[name] = np.where(rng.random(shape) < 0.25, values, NAN)
    hinted = [
        n
        for n, x in m.structure.layers.items()
        if x.unit.width > 1 or (x.unit.support is not None and len(x.unit.support) == 2)
    ]
    if where in ("soft", "both") or not evidence:
        name = hinted[rng.integers(len(hinted))]
        shape = m.structure.layers[name].bias_shape
        soft = {name: np.stack([enlarged(rng, shape), np.zeros(shape), enlarged(rng, shape)])}
        evidence.pop(name, None)
    return m.with_params(params), evidence, soft


def compared(m, evidence, soft, method, tolerance):
    """Compare all rows with fractions; return how many posteriors were answered and withheld."""
    try:
        r = pgm.infer(m, evidence, ("marginals", "log_z", "log_prob"), method=method, soft=soft)
    except pgm.PgmError as error:
        assert "rounding of log weights" in str(error) or "probability zero" in str(error)
        return 0, 0
    whole, answered = ExactSums(m), 0
    for row in range(3):
        given = ({n: v[row].ravel() for n, v in (x or {}).items()} for x in (evidence, soft))
        truth = ExactSums(m, *given)
        if any(np.isnan(r.mean[n][row]).any() for n in r.mean):
            assert r.status is pgm.Status.ROUNDED
            assert any(f"row {row}:" in line for line in r.warnings)
        else:
            answered += 1
            for name, prob in truth.prob.items():
                np.testing.assert_allclose(r.prob[name][row], prob, atol=tolerance)
        exact = {"log_z": truth.log_z, "log_prob": truth.log_z - whole.log_z}
        for name, value in exact.items():
            if np.isnan(found := getattr(r, name)[row]):
                assert r.status is pgm.Status.ROUNDED
            else:
                assert abs(found - float(value)) <= tolerance * max(1.0, abs(float(value)))
    return answered, 3 - answered


@pytest.mark.parametrize("family", FAMILIES)
def test_random_models_are_answered_right_or_not_at_all(family, models=8, tolerance=1e-6):
    # A relative rounding of DOUBLE * 2^-52 is promised, and doubled by the total.
    assert tolerance > 2 * MAX_TERMS_IN_DOUBLE * 2.0**-52
    counts = np.zeros(2, dtype=int)
    for seed in range(models):
        question = random_question(family, np.random.default_rng(seed))
        for method in (pgm.Enumeration(), pgm.Elimination()):
            if isinstance(method, pgm.Enumeration) and question[0].structure.tables:
                continue
            counts += compared(*question, method, tolerance)
    # Other tests say what has to be answered; here something is.
    assert counts[0] > 0


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES)
def test_many_random_models_are_answered_right_or_not_at_all(family):
    for seed in range(100, 300):
        question = random_question(family, np.random.default_rng(seed))
        for method in (pgm.Exact(), pgm.Elimination()):
            compared(*question, method, 1e-6)

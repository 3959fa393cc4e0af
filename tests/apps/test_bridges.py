"""What torch and JAX share: log densities in arrays of any library, and the slopes of log Z.

Both are tested with numpy as the library, so that no optional package is needed: densities against
`model.log_density`, and slopes against differences of log Z.
"""

import numpy as np
import pytest
from loops import one_test_over
from mixed_questions import question
from numpy_library import NUMPY
from tiny import MODELS

import pgmengine as pgm
from pgmengine.apps.bridges.array_density import array_log_density
from pgmengine.apps.bridges.bridged_question import bridged_question
from pgmengine.model.weights import is_sparse, numbers

STEP = 1e-5


def density(model, states, params=None):
    # Libraries have no warnings about log 0, and compute both branches of `where`.
    with np.errstate(all="ignore"):
        return array_log_density(model, states, params or {}, NUMPY)


def drawn(model, rng, rows=5):
    """Values of all units, layer by layer, as users give them."""
    out = {}
    for name, layer in model.structure.layers.items():
        unit, size = layer.unit, (rows, layer.size)
        if unit.support is not None:
            out[name] = unit.support[rng.integers(len(unit.support), size=size)]
        elif unit.cells:
            out[name] = rng.normal(size=(*size, unit.cells))
        else:
            out[name] = rng.uniform(-1, 1, size)
    return out


def in_full(model):
    """Parameters as arrays, the numbers of sparse ones."""
    return {k: numbers(v) if is_sparse(v) else np.array(v) for k, v in model.params.items()}


# ---- densities ----


@pytest.mark.parametrize("tiny", MODELS, ids=repr)
def test_log_density_is_the_one_of_the_model(tiny):
    model = tiny.build()
    x = drawn(model, np.random.default_rng(0))
    given = density(model, x, in_full(model))
    expected = model.log_density(x)
    np.testing.assert_allclose(density(model, x), expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(given, expected, rtol=1e-10, atol=1e-10)


def shared():
    """Couplings, biases and arrows of places, with rows by state and a table of many places."""
    b = pgm.GraphBuilder()
    s, t = b.layer("s", pgm.Spin(), 5), b.layer("t", pgm.Categorical(3), 4)
    b.couple(s[1:], s[:-1], 0.5)
    b.couple(s[:4], t, np.random.default_rng(1).normal(size=(4, 1, 3)))
    b.table((t[1:], t[:-1]), np.random.default_rng(2).gamma(1.0, size=(3, 3)))
    return b.build(rng=0)


def leaves():
    def grade(a, c):
        return [0.2, 0.3, 0.5] if a and c else [0.6, 0.4, 0.0]

    b = pgm.GraphBuilder()
    a, c, g = b.variable("a"), b.variable("c"), b.variable("g", 3)
    b.conditional(a, (), [0.3, 0.7])
    b.conditional(c, (a,), [[0.5, 0.5], [0.1, 0.9]])
    b.conditional(g, (a, c), grade)
    return b.build()


def gates(parents=3, of=pgm.noisy_or):
    b = pgm.GraphBuilder()
    x = [b.variable(f"x{i}") for i in range(parents)]
    for one in x:
        b.conditional(one, (), [0.9, 0.1])
    y = b.variable("y")
    b.conditional(y, x, of(np.linspace(0.2, 0.8, parents), leak=0.1))
    return b.build()


def columns(full):
    b = pgm.GraphBuilder()
    z, x = b.variable("z", 3), b.layer("x", pgm.Normal(full=full), 2)
    b.conditional(z, (), [0.2, 0.3, 0.5])
    b.cause(z, x, np.arange(6.0).reshape(3, 2) if full else np.eye(3, 2), name="rows")
    return b.build()


def chain():
    def steps(n):
        b = pgm.GraphBuilder()
        z, x = b.variable("z", 3, shape=n), b.variable("x", 2, shape=n)
        b.conditional(z[0], (), [0.2, 0.3, 0.5])
        b.conditional(z[1:], (z[:-1],), np.full((3, 3), 1 / 3))
        b.conditional(x, (z,), [[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]])
        return b

    return pgm.Template(steps)(6)


BUILT = {
    "shared": shared,
    "leaves": leaves,
    "gate": gates,
    "compact gate": lambda: gates(24),
    "normal": lambda: columns(False),
    "full normal": lambda: columns(True),
    "chain": chain,
}


@one_test_over("name", BUILT)
def test_terms_of_every_kind_are_in_the_log_density(name):
    model = BUILT[name]()
    x = drawn(model, np.random.default_rng(0), rows=20)
    # A group of columns is given as its columns.
    seen = {n: v[:, 0] if model.structure.layers[n].unit.cells else v for n, v in x.items()}
    expected = model.log_density(seen)
    np.testing.assert_allclose(density(model, x), expected, rtol=1e-10)
    np.testing.assert_allclose(density(model, x, in_full(model)), expected, rtol=1e-10)


def test_the_models_have_the_kinds_of_terms():
    structures = {name: make().structure for name, make in BUILT.items()}
    assert structures["compact gate"].compact and structures["gate"].gates
    assert [t.form.kind for t in structures["leaves"].tables if t.form] == ["leaves"]
    assert len(structures["shared"].shared) == 2 and structures["chain"].layers["z"].is_array


def test_states_are_values_or_labels_by_layer_or_by_variable():
    model, rng = leaves(), np.random.default_rng(0)
    labels = {name: rng.integers(k, size=9) for name, k in {"a": 2, "c": 2, "g": 3}.items()}
    expected = model.log_density(labels)
    given = {name: x.astype(float) for name, x in labels.items()}
    assert np.isneginf(expected).any()
    np.testing.assert_allclose(density(model, given), expected)
    np.testing.assert_allclose(density(model, given | {"g": np.eye(3)[labels["g"]]}), expected)
    potts, z = shared(), rng.integers(3, size=(9, 4)).astype(float)
    spins = rng.choice([-1.0, 1.0], size=(9, 5))
    by_label = density(potts, {"s": spins, "t": z})
    np.testing.assert_allclose(
        by_label, density(potts, {"s": spins, "t": np.eye(3)[z.astype(int)]})
    )
    np.testing.assert_allclose(by_label, potts.log_density({"s": spins, "t": z}))


def test_a_value_that_a_unit_does_not_have_gives_nan():
    model = pgm.rbm(2, 2, visible=pgm.Categorical(3), hidden=pgm.MultiValued(2), rng=0)
    good = {"v": np.eye(3)[[[0, 1], [2, 2], [1, 0]]], "h": np.array([[0, 1.0], [-1, 1], [0, 0]])}
    assert np.isfinite(density(model, good)).all()
    half = good | {"h": np.array([[0.5, 1], [-1, 1], [0, 0]])}
    soft = good | {"v": np.where(np.arange(3)[:, None, None] == 1, 1 / 3, good["v"])}
    label = good | {"v": np.array([[0.0, 1], [2, 2], [1, 3]])}
    for row, wrong in enumerate((half, soft, label)):
        assert np.isnan(density(model, wrong)).tolist() == [i == row for i in range(3)]


STATES = {"v": np.zeros((2, 3)), "h": np.ones((2, 2))}
WRONG_STATES = [
    ({"v": np.zeros((2, 3))}, "states need a value for every unit; layer 'h', index 0 has none"),
    ({"v": np.zeros((2, 4)), "h": np.ones((2, 2))}, "'v' has shape (2, 4), expected (rows, 3)"),
    ({"v": np.zeros(3), "h": np.ones((2, 2))}, "'v' has shape (3,), expected (rows, 3)"),
    ({"v": np.zeros((3, 3)), "h": np.ones((2, 2))}, "has 3 rows, and states: layer 'h' has 2"),
    ({"x": np.zeros((2, 3)), "h": np.ones((2, 2))}, "layer 'x' is unknown"),
]


@one_test_over("states, message", WRONG_STATES)
def test_wrong_states_are_named(states, message):
    with pytest.raises(pgm.PgmError) as said:
        density(pgm.rbm(3, 2, rng=0), states)
    assert message in str(said.value)


def test_wrong_parameters_are_named():
    model = pgm.rbm(3, 2, rng=0)
    with pytest.raises(pgm.PgmError, match="parameter 'w' is unknown; the parameters are v.bias"):
        density(model, STATES, {"w": np.zeros(3)})
    with pytest.raises(pgm.PgmError, match=r"'v.bias' has shape \(2,\), expected \(3,\)"):
        density(model, STATES, {"v.bias": np.zeros(2)})


class Odd(pgm.Unit):
    """A unit type of a user with infinitely many values, which says nothing about libraries."""

    bounded = False

    def log_normalizer(self, eta):
        return np.square(eta)

    def log_h(self, x):
        return -np.square(x)


def test_a_unit_type_without_formulas_for_libraries_is_named():
    model = pgm.rbm(3, 2, visible=Odd(), rng=0)
    with pytest.raises(pgm.PgmError, match="layer 'v' has Odd.* units, which torch and JAX do not"):
        density(model, STATES)


# ---- slopes ----


def direction(model, key, rng):
    """A change of the numbers of a parameter that keeps what it has to be."""
    s, t, value = model.structure, model.structure.parameters[key], model.params[key]
    own = numbers(value) if is_sparse(value) else value
    d = rng.normal(size=own.shape) * np.isfinite(own)
    if t.whole and t.is_bias:
        layer = s.layers[t.layers[0]]
        d = (d.reshape(layer.size, -1) * s.has_bias[layer.name][:, None]).reshape(own.shape)
    elif t.whole and t.layers[0] == t.layers[1]:
        # A sparse weight would be made symmetric entry by entry.
        d = np.zeros_like(d) if is_sparse(value) else (d if t.directed else d + d.T) * (own != 0)
    if not t.is_table and s.layers[t.layers[-1]].unit.nonnegative:
        d *= own > 1e-3
    return d


def check_slopes(model, rng, evidence, soft, do=None, most=1e-6):
    """Slopes of a weighted sum of log Z against differences in a random direction."""
    q, arrays = bridged_question(model, evidence, soft, in_full(model), do, None, exact=True)
    weights = rng.normal(size=len(q.log_z(arrays)))
    slopes = q.slopes(arrays, weights, [True] * len(arrays))
    ways = [np.where(np.isfinite(a), rng.normal(size=a.shape), 0) for a in soft.values()]
    ways += [direction(model, key, rng) for key in model.params]
    for i, (name, way) in enumerate(zip([*soft, *model.params], ways)):
        up, down = (
            q.log_z([a + e * way if i == j else a for j, a in enumerate(arrays)])
            for e in (STEP, -STEP)
        )
        numeric = weights @ (up - down) / (2 * STEP)
        found = slopes[i][way != 0] @ way[way != 0]
        assert abs(numeric - found) <= most * (1 + abs(numeric)), f"{name}: {found}, not {numeric}"


@pytest.mark.parametrize("tiny", [m for m in MODELS if "large" not in m.name], ids=repr)
def test_slopes_are_derivatives(tiny):
    model, rng = tiny.build(), np.random.default_rng(1)
    evidence, soft = drawn(model, rng, rows=3), {}
    for name, layer in model.structure.layers.items():
        support, size = layer.unit.support, (3, layer.size)
        if support is not None:
            each = () if layer.unit.width == 1 and len(support) == 2 else (len(support),)
            soft[name] = rng.normal(size=(*size, *each))
        if not layer.unit.observed_only:
            gaps = (rng.random(size) < 0.6).reshape(*size, *[1] * (evidence[name].ndim - 2))
            evidence[name] = np.where(gaps, np.nan, evidence[name])
    log_z = pgm.infer(model, evidence, want=("log_z",), method=pgm.Exact()).log_z
    if np.isneginf(log_z).any():
        # Values that zeros of tables exclude.
        evidence = None
    check_slopes(model, rng, evidence, soft)


def test_evidence_that_is_impossible_has_no_slopes():
    model = leaves()
    q, arrays = bridged_question(model, {"g": [0, 2]}, {"c": np.zeros(2)}, None, None, None, True)
    assert np.isfinite(q.log_z(arrays)).all()
    evidence = {"a": [0, 0], "g": [0, 2]}
    q, arrays = bridged_question(model, evidence, {"c": np.zeros(2)}, None, None, None, True)
    assert np.isneginf(q.log_z(arrays)).tolist() == [False, True]
    with pytest.raises(pgm.PgmError, match="evidence row 1 has probability zero"):
        q.slopes(arrays, np.ones(2), [True])


def test_biases_that_are_no_parameters_have_no_slope():
    """So that steps along the gradient leave them at 0."""
    model = chain()
    q, arrays = bridged_question(model, None, None, in_full(model), None, None, True)
    slopes = dict(zip(model.params, q.slopes(arrays, np.ones(1), [True] * len(arrays))))
    assert not slopes["z.bias"].any()


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(60))
def test_slopes_of_random_questions(seed):
    """Networks with zeros, gates, arrows and couplings, with interventions and excluded states."""
    q = question(seed, most_states=2**10, most_rows=6)
    if not q.possible:
        return
    given = q.arguments(q.possible)
    soft, do = given.get("soft", {}), given.get("do")
    check_slopes(q.graph.build(), np.random.default_rng(seed), given.get("evidence"), soft, do)


@one_test_over("name", BUILT)
def test_slopes_of_terms_of_every_kind(name):
    model, rng = BUILT[name](), np.random.default_rng(0)
    x = drawn(model, rng, rows=2)
    finite = {n: v for n, v in x.items() if model.structure.layers[n].unit.support is not None}
    evidence = {
        n: v[:, 0] if n == "x" and v.ndim == 3 else v for n, v in x.items() if n not in finite
    }
    names = [n for n in finite if n in model.structure.names.declared()]
    soft = {
        n: rng.normal(size=(1, *v.shape[1:]))
        for n, v in finite.items()
        if n in names and v.ndim == 3
    }
    check_slopes(model, rng, evidence, soft)


def test_soft_evidence_without_rows_gains_the_slopes_of_all_rows():
    model, rng = pgm.rbm(3, 2, rng=0), np.random.default_rng(0)
    rows = {"v": [[1, np.nan, 0], [np.nan, 0, np.nan]]}
    check_slopes(model, rng, rows, {"h": rng.normal(size=2)})


@pytest.mark.parametrize("visible", [pgm.Binary(), pgm.Categorical(3)], ids=repr)
def test_weights_of_rows_may_have_either_sign(visible):
    """Derivatives of a loss in log Z are weights of rows, and may add to 0 or less."""
    model, gap = pgm.rbm(5, 2, visible=visible, rng=0), np.nan
    rows = [[gap] * 5, [gap, gap, gap, 0, 0], [gap, gap, 1, 1, 1], [0, 1, 0, gap, gap], [gap] * 5]
    single = []
    for row in rows:
        q, arrays = bridged_question(model, {"v": [row]}, None, in_full(model), None, None, True)
        single.append(q.slopes(arrays, np.ones(1), [True] * 3))
    q, arrays = bridged_question(model, {"v": rows}, None, in_full(model), None, None, True)
    for weights in (-np.ones(5), np.array([1.0, -2, 3, -4, 2]), np.array([1, -1, 1, -1, -1e-9])):
        found = q.slopes(arrays, weights, [True] * 3)
        for i, slope in enumerate(found):
            expected = sum(w * one[i] for w, one in zip(weights, single))
            np.testing.assert_allclose(slope, expected, atol=1e-12)


WRONG = [
    (dict(soft={"v": {0: 1.0}}), "soft: 'v' is a dict, expected an array of numbers"),
    (dict(soft=np.zeros(3)), "soft must map layer names to arrays"),
    (dict(params=np.zeros(3)), "params must map names to arrays, not ndarray"),
    (dict(method=pgm.MCMC()), "log_z needs an exact method, as pgm.Exact(), for"),
    (dict(method="exact"), "method must be an inference method"),
]


@one_test_over("given, message", WRONG)
def test_wrong_questions_are_named(given, message):
    every = dict(soft=None, params=None, do=None, method=None) | given
    with pytest.raises(pgm.PgmError) as said:
        bridged_question(pgm.rbm(3, 2, rng=0), None, exact=True, **every)
    assert message in str(said.value)


def test_numbers_of_sparse_weights_have_their_shape():
    import scipy.sparse as sp

    b = pgm.GraphBuilder()
    b.layer("v", pgm.Binary(), 3)
    b.layer("h", pgm.Binary(), 2)
    b.couple("v", "h", weight=sp.csr_array(np.eye(3, 2)))
    q, arrays = bridged_question(
        b.build(), None, None, {"v-h.weight": np.eye(3, 2)}, None, None, True
    )
    with pytest.raises(pgm.PgmError, match=r"expected the \(2,\) numbers that the sparse weight"):
        q.log_z(arrays)

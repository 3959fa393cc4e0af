"""The determinant of a planar graph, against sums over all states and against elimination."""

import itertools

import numpy as np
import pytest
from lattices import coupled, edges, weights_of
from loops import in_blocks, one_test_over
from scipy.spatial import Delaunay

import pgmengine as pgm
from pgmengine.infer.exact import planar

# Sums of at most 2^11 states, and determinants of at most 100 rows.
SUMS = {"rtol": 1e-10, "atol": 1e-10}
# The rounding error that every method may have, where couplings are strong.
PROMISED = 2.0**-22
# Central differences with this step have errors of about step^2 times the third derivative.
DIFFERENCE = {"rtol": 1e-6, "step": 1e-4}


def triangles(rng, units):
    """Pairs of a random planar graph: a triangulation of points, without some of its edges."""
    found = Delaunay(rng.normal(size=(units, 2))).simplices
    pairs = {(min(a, b), max(a, b)) for three in found for a, b in itertools.combinations(three, 2)}
    pairs = np.array(sorted(pairs))
    return pairs[rng.random(len(pairs)) < rng.choice([0.5, 0.8, 1.0])]


def outer_face(rng, units):
    """Pairs and fields: a circle of units with a field at each, and a tree inside."""
    circle = np.arange(units // 2)
    pairs = np.stack([circle, np.roll(circle, 1)], axis=1)
    inside = np.arange(units // 2, units)
    tree = np.stack([inside, [rng.integers(0, i) for i in inside]], axis=1)
    fields = np.zeros(units)
    fields[circle] = rng.normal(size=len(circle))
    return np.concatenate([pairs, tree]), fields


def all_states(units):
    return np.array(list(itertools.product([-1.0, 1.0], repeat=units)))


def summed(pairs, couplings, fields):
    """log Z, means and correlations of the pairs, by a sum over all states of spins."""
    x = all_states(len(fields))
    log_weight = (x[:, pairs[:, 0]] * x[:, pairs[:, 1]]) @ couplings + x @ fields
    log_z = np.logaddexp.reduce(log_weight)
    p = np.exp(log_weight - log_z)
    return log_z, p @ x, p @ (x[:, pairs[:, 0]] * x[:, pairs[:, 1]])


def spins(pairs, couplings, fields):
    """A model of one layer of spins."""
    model = coupled(weights_of(pairs, couplings, len(fields)))
    return model.with_params({"s.bias": fields})


def accepted(model, evidence=None, want=("log_z",), **asked):
    return pgm.Planar().plan(model.given(evidence, **asked), want).accepted


@one_test_over("seed", range(60))
def test_random_planar_graphs_agree_with_a_sum_over_all_states(seed):
    rng = np.random.default_rng(seed)
    units = int(rng.integers(4, 11))
    pairs, fields = triangles(rng, units), np.zeros(units)
    if seed % 2:
        pairs, fields = outer_face(rng, units)
    couplings = rng.normal(scale=rng.choice([0.3, 1.0, 2.0]), size=len(pairs))
    log_z, means, both = summed(pairs, couplings, fields)
    model = spins(pairs, couplings, fields)

    r = pgm.infer(model, want=("log_z",), method=pgm.Planar())
    np.testing.assert_allclose(r.log_z, [log_z], **SUMS)
    assert r.kind == "exact"
    want = ("marginals", "gradient")
    # Means need an edge from each unit of a component with a field to the ghost.
    if not accepted(model, want=want):
        assert seed % 2
        return
    r = pgm.infer(model, want=want, method=pgm.Planar())
    np.testing.assert_allclose(r.mean["s"], means, **SUMS)
    found = r.gradient["s-s.weight"].toarray()[pairs[:, 0], pairs[:, 1]]
    np.testing.assert_allclose(found, both, **SUMS)


def random_model(rng):
    """A planar model of two layers, of spins and binary units, with couplings and tables."""
    units = int(rng.integers(5, 11))
    pairs = triangles(rng, units)
    b = pgm.GraphBuilder()
    first = units // 2
    b.layer("a", pgm.Spin(), first)
    b.layer("b", pgm.Binary(), units - first)
    for one, two in pairs:
        at = [("a", i) if i < first else ("b", i - first) for i in (int(one), int(two))]
        scope = [name for name, _ in at], [[i for _, i in at]]
        if rng.random() < 0.5:
            b.tables(*scope, rng.gamma(1.0, size=(2, 2)) + 0.01)
        else:
            # A symmetric table is a coupling without fields.
            same, other = rng.gamma(1.0, size=2) + 0.01
            b.tables(*scope, [[same, other], [other, same]])
    return b.build(), first, units - first


def mixed_patterns(rng):
    """A random model, and rows of evidence of which each has its own pattern."""
    model, *sizes = random_model(rng)
    rows = int(rng.integers(1, 6))
    evidence = {}
    for name, size, low in (("a", sizes[0], -1), ("b", sizes[1], 0)):
        values = rng.choice([low, 1], size=(rows, size)).astype(float)
        evidence[name] = np.where(rng.random((rows, size)) < 0.6, np.nan, values)
    return model, evidence


JOINT = pgm.Joint(("a", 0), ("b", 0))
WANTED = ("log_z",), ("marginals",), ("marginals", "gradient"), ("pairs",), (JOINT,)


@in_blocks("seed", 120, 8)
def test_rows_of_mixed_patterns_agree_with_elimination(seed):
    model, evidence = mixed_patterns(np.random.default_rng(seed))
    for want in (*WANTED, ("log_z", "log_prob")):
        if not accepted(model, evidence, want):
            continue
        found, expected = (
            pgm.infer(model, evidence, want, method=m) for m in (pgm.Planar(), pgm.Elimination())
        )
        compare(found.answers, expected.answers)


def test_many_of_these_questions_are_answered():
    """Fields in the middle of a triangulation make some of these graphs non-planar."""
    questions = [mixed_patterns(np.random.default_rng(seed)) for seed in range(60)]
    for want in WANTED:
        assert np.mean([accepted(*question, want) for question in questions]) > 0.3


def compare(found, expected):
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        if isinstance(value, dict):
            compare(found[key], value)
            continue
        one, two = (x.toarray() if hasattr(x, "toarray") else x for x in (found[key], value))
        np.testing.assert_allclose(one, two, **SUMS, err_msg=str(key))


def border(side, rng):
    """Fields at the border of a square lattice."""
    inner = np.zeros((side, side), dtype=bool)
    inner[1:-1, 1:-1] = True
    return np.where(inner, 0.0, rng.normal(size=(side, side))).ravel()


@pytest.mark.parametrize("fields", [False, True])
def test_lattices_agree_with_elimination(fields):
    rng, side = np.random.default_rng(5), 11
    pairs = edges(side)
    model = spins(
        pairs, rng.normal(size=len(pairs)), border(side, rng) if fields else np.zeros(side**2)
    )
    found, expected = (
        pgm.infer(model, want=("log_z",), method=m).log_z for m in (pgm.Planar(), pgm.Elimination())
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def ising(side, k):
    b = pgm.GraphBuilder()
    s = b.layer("s", pgm.Spin(), (side, side))
    b.couple(s[1:], s[:-1], k, name="vertical")
    b.couple(s[:, 1:], s[:, :-1], k, name="horizontal")
    return b.build()


def test_wide_lattices_are_exact_by_default():
    """A lattice that is too wide for a junction tree; its gradient is that of its log Z."""
    side, k, step = 36, 0.45, DIFFERENCE["step"]
    r = pgm.infer(ising(side, k), want=("log_z", "marginals", "gradient"))
    assert r.kind == "exact"
    assert "planar" in r.plan.why
    np.testing.assert_allclose(r.mean["s"], 0.0, atol=1e-12)
    up, down = (
        float(pgm.infer(ising(side, k + d), want=("log_z",)).log_z[0]) for d in (step, -step)
    )
    bonds = float(r.gradient["vertical"]) + float(r.gradient["horizontal"])
    np.testing.assert_allclose(bonds, (up - down) / (2 * step), rtol=DIFFERENCE["rtol"])


def test_a_strip_takes_a_junction_tree():
    r = pgm.infer(ising(8, 0.4), want=("log_z",))
    assert "planar" not in r.plan.why


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (pgm.boltzmann_machine(5, rng=0), "not planar"),
        (pgm.rbm(3, 3, rng=0), "not planar"),
        (pgm.rbm(40, 30, rng=0), "not planar"),
    ],
)
def test_other_graphs_are_refused(model, words):
    with pytest.raises(pgm.PgmError, match=words):
        pgm.infer(model, want=("log_z",), method=pgm.Planar())


def test_a_lattice_with_fields_everywhere_is_refused():
    model = ising(6, 0.4)
    model = model.with_params({"s.bias": np.full(36, 0.1)})
    with pytest.raises(pgm.PgmError, match="counting 36 fields"):
        pgm.infer(model, want=("log_z",), method=pgm.Planar())


def test_zeros_and_more_states_are_refused():
    b = pgm.GraphBuilder()
    b.variable("x", states=2)
    b.variable("y", states=2)
    b.table(("x", "y"), [[1.0, 0.0], [2.0, 3.0]])
    with pytest.raises(pgm.PgmError, match="entries of tables are 0"):
        pgm.infer(b.build(), want=("log_z",), method=pgm.Planar())
    b = pgm.GraphBuilder()
    b.layer("s", pgm.Categorical(3), 4)
    b.couple("s", "s", weight=np.zeros((12, 12)))
    with pytest.raises(pgm.PgmError, match="two-state units"):
        pgm.infer(b.build(), want=("log_z",), method=pgm.Planar())


@one_test_over("k", [0.5, 2.0, 3.0, 5.0, 9.0, 40.0])
@one_test_over("seed", range(3))
def test_strong_couplings_keep_the_promised_digits_or_are_refused(k, seed):
    """Spin glasses: rounding grows with the couplings, and is seen."""
    rng, side = np.random.default_rng(seed), 10
    pairs = edges(side)
    model = spins(pairs, k * rng.choice([-1.0, 1.0], len(pairs)), np.zeros(side**2))
    methods = pgm.Planar(), pgm.Elimination()
    if accepted(model):
        assert k < 9.0
        found, expected = (pgm.infer(model, want=("log_z",), method=m).log_z for m in methods)
        np.testing.assert_allclose(found, expected, rtol=0, atol=PROMISED)
    else:
        assert k > 2.0
    # Correlations lose their digits before log Z.
    want = ("gradient",)
    if accepted(model, want=want):
        assert k < 3.0
        found, expected = (
            pgm.infer(model, want=want, method=m).gradient["s-s.weight"].toarray() for m in methods
        )
        np.testing.assert_allclose(found, expected, rtol=0, atol=PROMISED)
    else:
        assert k > 0.5


def test_strong_couplings_without_frustration_are_exact():
    pairs = edges(10)
    model = spins(pairs, np.full(len(pairs), 1000.0), np.zeros(100))
    r = pgm.infer(model, want=("log_z",), method=pgm.Planar())
    np.testing.assert_allclose(r.log_z, [1000.0 * len(pairs) + np.log(2.0)], rtol=1e-13)


def test_a_prepared_question_plans_again_where_values_need_another_graph():
    """Observed neighbours are fields, and some values cancel each other."""
    pairs = edges(3)
    model = spins(pairs, np.full(len(pairs), 0.7), np.zeros(9))
    evidence = np.full((2, 9), np.nan)
    # The corner has two observed neighbours: equal ones are a field, opposite ones are none.
    evidence[:, [1, 3]] = [[1.0, -1.0], [1.0, 1.0]]
    question = pgm.Planar().prepare(model.given({"s": evidence[0]}), ("log_z", "marginals"))
    for row in (evidence[0], evidence[1], -evidence[1]):
        target = model.given({"s": row})
        found = question.on(target).run()
        expected = pgm.Elimination().run(target, ("log_z", "marginals"))
        compare(found.answers, expected.answers)


def test_evidence_values_do_not_change_the_graph():
    """A spin whose observed neighbours cancel has an edge to the ghost all the same."""
    model = ising(12, 0.4)
    found = []
    for sign in (1.0, -1.0):
        row = np.full((12, 12), np.nan)
        row[0, 1], row[1, 0] = 1.0, sign
        found.append(pgm.Planar().plan(model.given({"s": row}), ("log_z",)).why)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("along", "down"),
    [
        (
            [[5, -5, 0], [5, -5, 0], [0, -5, -5], [5, 5, 5]],
            [[-5, 5, 0, 5], [0, 0, -5, -5], [-5, 5, 0, -5]],
        )
    ],
)
def test_a_small_glass_that_leaves_no_digits_to_correlations(along, down):
    """Its log Z has all digits, and a correlation that is 0 came out as 0.05."""
    b = pgm.GraphBuilder()
    s = b.layer("s", pgm.Spin(), (4, 4))
    b.couple(s[1:], s[:-1], np.array(down, dtype=float), name="down")
    b.couple(s[:, 1:], s[:, :-1], np.array(along, dtype=float), name="along")
    model = b.build()
    expected = pgm.infer(model, want=("log_z",), method=pgm.Elimination()).log_z
    r = pgm.infer(model, want=("log_z",), method=pgm.Planar())
    np.testing.assert_allclose(r.log_z, expected, rtol=1e-12)
    with pytest.raises(pgm.PgmError, match="reach correlations"):
        pgm.infer(model, want=("gradient",), method=pgm.Planar())


def test_fields_that_are_small_beside_couplings_count():
    side, strong, field = 12, 1e6, 2.8e-8
    model = spins(edges(side), np.full(len(edges(side)), strong), np.full(side**2, field))
    want = ("log_z",)
    assert not accepted(model, want=want)


def observed_beside(zero):
    """A lattice of 20x20 whose first row has observed neighbours; state 1 acts strongly."""
    side, b = 20, pgm.GraphBuilder()
    s = b.variable("s", states=2, shape=(side, side))
    o = b.variable("o", states=2, shape=side)
    equal = np.exp(0.4 * np.array([[1, -1], [-1, 1]]))
    b.table((s[1:], s[:-1]), equal)
    b.table((s[:, 1:], s[:, :-1]), equal)
    b.table((s[0], o), [[1.0, 2.0], [1.0, zero]])
    return b.build(), side


def test_a_prepared_question_answers_whatever_values_come():
    """A table that is 0 at some values of the observed units alone."""
    model, side = observed_beside(0.0)
    ask = pgm.prepare(model, observed=("o",), want=("log_z",))
    for state in (0, 1):
        evidence = {"o": [state] * side}
        expected = pgm.infer(model, evidence, ("log_z",)).log_z
        np.testing.assert_allclose(ask(evidence).log_z, expected, rtol=1e-12)


def test_exact_plans_again_where_the_determinant_does_not_hold(monkeypatch):
    from pgmengine.infer.exact import planar

    model, side = observed_beside(0.5)
    ask = pgm.prepare(model, observed=("o",), want=("log_z",))
    assert "planar" in ask.plan.why
    evidence = {"o": [1] * side}
    expected = ask(evidence).log_z
    monkeypatch.setattr(planar, "MAX_ROUNDING", 0.0)
    np.testing.assert_allclose(ask(evidence).log_z, expected, rtol=1e-12)


def test_trees_and_chains_are_not_searched_for_a_wide_graph(monkeypatch):
    from pgmengine.infer.exact import exact

    monkeypatch.setattr(exact, "has_narrow_tree", lambda *_: pytest.fail("a search was made"))
    chain = coupled(weights_of(np.stack([np.arange(499), np.arange(1, 500)], axis=1), 0.3, 500))
    assert pgm.infer(chain, want=("log_z",)).kind == "exact"


def test_the_widest_row_decides_whether_a_graph_is_drawn():
    side, k = 30, 0.3
    model = ising(side, k)
    rows = np.full((3, side, side), np.nan)
    rows[0] = 1.0
    rows[2, :, side // 2] = 1.0
    r = pgm.infer(model, {"s": rows[:2]}, want=("log_z",))
    assert r.kind == "exact"
    np.testing.assert_allclose(r.log_z[0], k * 2 * side * (side - 1), rtol=1e-13)
    np.testing.assert_allclose(r.log_z[1], pgm.infer(model, want=("log_z",)).log_z[0], rtol=1e-13)


def test_tempered_targets_agree_with_elimination():
    answered = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        model, *_ = random_model(rng)
        target = model.given().at(float(rng.uniform(0.1, 0.9)))
        for want in (("log_z",), ("marginals",)):
            if pgm.Planar().plan(target, want).accepted:
                found, expected = (m.run(target, want) for m in (pgm.Planar(), pgm.Elimination()))
                compare(found.answers, expected.answers)
                answered += 1
    assert answered >= 4


def test_pairs_of_a_layer_of_more_than_46340_units_keep_their_numbers(units=47_000, k=0.7):
    """Numbers of pairs exceed 32 bits, in which sparse weights have their places."""
    b = pgm.GraphBuilder()
    s = b.layer("s", pgm.Spin(), units)
    b.couple(s[1:], s[:-1], k)
    found = pgm.infer(b.build(), want=("log_z",)).log_z
    expected = units * np.log(2.0) + (units - 1) * np.log(np.cosh(k))
    np.testing.assert_allclose(found, [expected], rtol=1e-10)


def lattice_with_diagonals(rng, shape, both):
    """An array of spins with random couplings, some diagonals, and in one cell perhaps both."""
    b = pgm.GraphBuilder()
    s = b.variable("s", states=2, shape=shape)
    ways = [(s[1:], s[:-1]), (s[:, 1:], s[:, :-1]), (s[1:2, 1:], s[:1, :-1])]
    for one, two in ways + [(s[1:2, :1], s[:1, 1:2])] * both:
        weak = rng.normal(0.0, 0.5)
        b.table((one, two), np.exp([[weak, -weak], [-weak, weak]]))
    return b.build()


@one_test_over("seed", range(6))
def test_a_lattice_needs_no_drawing(monkeypatch, seed):
    """The places of an array, against elimination."""
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(2, 6)), int(rng.integers(2, 6)))
    model, want = lattice_with_diagonals(rng, shape, both=False), ("log_z", "marginals", "gradient")
    exact = pgm.infer(model, want=want, method=pgm.Elimination())
    monkeypatch.setattr(planar, "drawing", None)
    on_grid = pgm.infer(model, want=want, method=pgm.Planar())
    np.testing.assert_allclose(on_grid.log_z, exact.log_z, **SUMS)
    for name, value in exact.gradient.items():
        np.testing.assert_allclose(on_grid.gradient[name], value, **SUMS)


def test_diagonals_that_cross_are_drawn():
    """A cell with all edges is a planar graph, but not at the places of an array."""
    rng = np.random.default_rng(0)
    model = lattice_with_diagonals(rng, (2, 3), both=True)
    want = ("log_z", "gradient")
    drawn, exact = (pgm.infer(model, want=want, method=m()) for m in (pgm.Planar, pgm.Elimination))
    np.testing.assert_allclose(drawn.log_z, exact.log_z, **SUMS)
    # Two layers have no places of one array, and neither has a unit with a field.
    pairs = np.array([[0, 1], [1, 2]])
    assert accepted(spins(pairs, np.ones(2), np.ones(3)))

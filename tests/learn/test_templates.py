"""Templates: rows of any length, answered and learned as by plain recursions for Markov chains."""

import itertools
from functools import partial

import numpy as np
import pytest
from chains_together import fits
from extras import extra
from loops import one_test_over

import pgmengine as pgm

START = np.array([0.5, 0.3, 0.2])
TRANSITION = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]])
EMISSION = np.array([[0.6, 0.3, 0.1, 0.0], [0.1, 0.1, 0.4, 0.4], [0.25, 0.25, 0.25, 0.25]])
SYMBOLS = ("a", "b", "c", "d")


def hmm(steps):
    b = pgm.GraphBuilder()
    z = b.variable("z", states=3, shape=steps)
    x = b.variable("x", states=SYMBOLS, shape=steps)
    b.conditional(z[0], (), START, name="start")
    b.conditional(z[1:], (z[:-1],), TRANSITION, name="transition")
    b.conditional(x, (z,), EMISSION, name="emission")
    return b


def drawn(rng, steps, missing=0.0):
    """A sequence of symbols, None where missing."""
    state, out = rng.choice(3, p=START), []
    for _ in range(steps):
        symbol = rng.choice(4, p=EMISSION[state])
        out.append(None if rng.random() < missing else SYMBOLS[symbol])
        state = rng.choice(3, p=TRANSITION[state])
    return out


def likelihoods(row):
    """p(x_t | z_t) of each step, (steps, states); 1 where nothing is observed."""
    return np.array([np.ones(3) if x is None else EMISSION[:, SYMBOLS.index(x)] for x in row])


def forward_backward(row, start=START, transition=TRANSITION, emission=EMISSION):
    """Log-likelihood, posteriors (steps, states), and summed pair posteriors, by Rabiner (1989)."""
    p = np.array([np.ones(3) if x is None else emission[:, SYMBOLS.index(x)] for x in row])
    alpha, beta, scale = np.zeros(p.shape), np.ones(p.shape), np.zeros(len(p))
    for t in range(len(p)):
        alpha[t] = p[t] * (start if t == 0 else alpha[t - 1] @ transition)
        scale[t] = alpha[t].sum()
        alpha[t] /= scale[t]
    for t in range(len(p) - 2, -1, -1):
        beta[t] = transition @ (p[t + 1] * beta[t + 1]) / scale[t + 1]
    pairs = np.zeros((3, 3))
    for t in range(len(p) - 1):
        pairs += alpha[t][:, None] * transition * (p[t + 1] * beta[t + 1])[None] / scale[t + 1]
    return np.log(scale).sum(), alpha * beta, pairs


def baum_welch(rows, updates):
    """Parameters after some iterations of EM without pseudocounts, and the log-likelihoods.

    Missing symbols and steps after the last symbol have no counts, because expected ones would be
    their present probabilities. Rows without any symbol are left out.
    """
    last = [max([t for t, x in enumerate(row) if x is not None], default=-1) for row in rows]
    rows = [row[: end + 1] for row, end in zip(rows, last, strict=True) if end >= 0]
    theta, history = (START, TRANSITION, EMISSION), []
    for _ in range(updates):
        first, moves, seen, total = np.zeros(3), np.zeros((3, 3)), np.zeros((3, 4)), 0.0
        for row in rows:
            log_p, post, pairs = forward_backward(row, *theta)
            total += log_p
            first += post[0]
            moves += pairs
            for x, q in zip(row, post, strict=True):
                if x is not None:
                    seen[:, SYMBOLS.index(x)] += q
        theta = tuple(n / n.sum(axis=-1, keepdims=True) for n in (first, moves, seen))
        history.append(total)
    return theta, history


def rows_of(seed, count=12, most=7, missing=0.3):
    rng = np.random.default_rng(seed)
    return [drawn(rng, int(rng.integers(1, most)), missing) for _ in range(count)]


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_any_length_are_answered(seed):
    rows = rows_of(seed)
    template = pgm.Template(hmm)
    want = ("marginals", "log_prob", "mode")
    found = pgm.infer(template, [{"x": row} for row in rows], want)
    by_name = pgm.infer(template, {"x": rows}, want)
    for r, s, row in zip(found, by_name, rows, strict=True):
        log_p, post, _ = forward_backward(row)
        assert r.log_prob == pytest.approx([log_p], abs=1e-12) and s.log_prob == r.log_prob
        each = np.stack([r.marginal("z")[k] for k in range(3)], axis=-1)
        np.testing.assert_allclose(each, post, atol=1e-12)
        path = r.assignment()["z"]
        alone = pgm.infer(template(len(row)), {"x": row}, want)
        assert path.shape == (len(row),) and (path == alone.assignment()["z"]).all()
        assert r.mean["x"].shape == alone.mean["x"].shape and repr(r) == repr(alone)


def test_soft_evidence_interventions_gradients_and_lengths_without_evidence():
    template = pgm.Template(hmm)
    rows = [{"x": ["a", None]}, 3, {"x": ["b", "c"]}]
    soft = [{"z[1]": [0.0, 1.0, 2.0]}, None, None]
    do = [None, {"z[0]": 2}, None]
    found = pgm.infer(template, rows, ("marginals", "log_z"), soft=soft, do=do)
    for i, (row, steps) in enumerate(zip(rows, (2, 3, 2), strict=True)):
        one = pgm.infer(template(steps), row if i != 1 else {}, ("log_z",), soft=soft[i], do=do[i])
        assert found[i].log_z == pytest.approx(one.log_z)
    np.testing.assert_allclose(found[1].marginal("z")[0][1], TRANSITION[2, 0])
    steep = pgm.infer(template, rows, ("gradient",))
    np.testing.assert_allclose(
        steep[2].gradient["transition"],
        pgm.infer(template(2), rows[2], ("gradient",)).gradient["transition"],
    )


@pytest.mark.parametrize("seed", range(3))
def test_em_is_baum_welch(seed):
    rows, updates = rows_of(seed, count=15), 4
    # Zeros of the emissions would stay; the plain recursion has them as well.
    em = pgm.EM(pseudocount=0.0, tolerance=0.0)
    found = pgm.fit(
        pgm.Template(hmm),
        [{"x": row} for row in rows],
        optimizer=em,
        updates=updates,
        progress=False,
    )
    theta, history = baum_welch(rows, updates + 1)
    theta, _ = baum_welch(rows, updates)
    for name, value in zip(("start", "transition", "emission"), theta, strict=True):
        np.testing.assert_allclose(np.exp(found.model.learned[name]), value, atol=1e-10)
    # Rows that observe nothing add nothing to the sum, and count in the mean, as in a model.
    values = np.asarray(found.history["objective"]["value"]) * len(rows)
    np.testing.assert_allclose(values, history[1:], rtol=1e-12)
    assert (np.diff(values) >= -1e-9).all()
    assert found.model(300).params["transition"].shape == (3, 3)
    assert not np.allclose(
        found.model(1).params["emission"], pgm.Template(hmm)(1).params["emission"]
    )


def test_the_default_is_em_and_weights_count():
    rows = rows_of(0)
    twice = pgm.fit(pgm.Template(hmm), [{"x": row} for row in (*rows, *rows)], progress=False)
    heavy = pgm.fit(
        pgm.Template(hmm),
        [{"x": r} for r in rows],
        sample_weight=np.full(len(rows), 2.0),
        progress=False,
    )
    assert isinstance(twice.optimizer, pgm.EM) and any("EM" in note for note in twice.notes)
    assert "model: Template of hmm" in repr(twice)
    for name, value in twice.model.learned.items():
        np.testing.assert_allclose(heavy.model.learned[name], value, atol=1e-9)


def test_lengths_whose_rows_all_have_weight_0_do_not_count():
    rows = [{"x": list("abc")}, {"x": list("cab")}, {"x": list("bb")}, {"x": list("dadd")}]
    some = pgm.fit(pgm.Template(hmm), rows, sample_weight=[1, 2, 0, 0], progress=False)
    alone = pgm.fit(pgm.Template(hmm), rows[:2], sample_weight=[1, 2], progress=False)
    for name, value in alone.model.learned.items():
        np.testing.assert_allclose(some.model.learned[name], value, atol=1e-12)


@pytest.mark.parametrize("steps", (pgm.EM(pseudocount=0.0), pgm.LBFGS()), ids=("EM", "LBFGS"))
def test_fixed_parameters_stay_also_where_short_models_lack_them(steps):
    rows = [{"x": list(row)} for row in ("a", "abc", "ccab", "ba")]
    fixed = pgm.Fixed(steps, ["transition", "emission"])
    found = pgm.fit(pgm.Template(hmm), rows, optimizer=fixed, progress=False, updates=1)
    for name, value in (("transition", TRANSITION), ("emission", EMISSION)):
        np.testing.assert_allclose(np.exp(found.model.learned[name]), value, atol=1e-12)
    if isinstance(steps, pgm.EM):
        first = sum(forward_backward(row["x"])[1][0] for row in rows)
        np.testing.assert_allclose(np.exp(found.model.learned["start"]), first / 4, atol=1e-12)


def test_pseudocounts_of_parameters_that_short_models_lack():
    counts = {"start": np.full(3, 0.5), "transition": np.full((3, 3), 2.0)}
    rows = ["a", "abc"]
    found = pgm.fit(
        pgm.Template(hmm),
        [{"x": list(row)} for row in rows],
        optimizer=pgm.EM(counts),
        progress=False,
        updates=1,
    )
    own = [forward_backward(list(row)) for row in rows]
    for name, expected in (
        ("start", 0.5 + sum(post[0] for _, post, _ in own)),
        ("transition", 2.0 + sum(pairs for _, _, pairs in own)),
    ):
        share = expected / expected.sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(np.exp(found.model.learned[name]), share, atol=1e-12)


def test_a_fit_of_a_template_is_shown():
    found = pgm.fit(pgm.Template(hmm), [{"x": list("ab")}], progress=False)
    assert "model: Template of hmm; learned:" in repr(found)
    assert "Template of hmm" in found._repr_html_()


def field(steps):
    """A chain of labels with features: p(y | x), undirected."""
    b = pgm.GraphBuilder()
    x = b.variable("x", states=3, shape=steps)
    y = b.variable("y", states=2, shape=steps)
    b.table((y[1:], y[:-1]), [[1.0, 1.0], [1.0, 1.0]], name="pairs")
    b.table((x, y), np.ones((3, 2)), name="features")
    return b


def conditional_log_likelihood(theta, rows):
    pairs, features = theta
    total = 0.0
    for x, y in rows:
        scores = {}
        for path in np.ndindex(*(2,) * len(x)):
            scores[path] = sum(features[a, b] for a, b in zip(x, path, strict=True)) + sum(
                pairs[path[t + 1], path[t]] for t in range(len(x) - 1)
            )
        top = max(scores.values())
        total += scores[tuple(y)] - top - np.log(sum(np.exp(s - top) for s in scores.values()))
    return total


def test_a_conditional_random_field_of_rows_of_any_length_reaches_its_optimum():
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(25):
        n = int(rng.integers(1, 6))
        y = (np.cumsum(rng.random(n) < 0.3) + rng.integers(2)) % 2
        rows.append(((y + (rng.random(n) < 0.3)).astype(int), y))
    data = [{"x": x, "y": y} for x, y in rows]
    found = pgm.fit(
        pgm.Template(field),
        data,
        given=("x",),
        optimizer=pgm.LBFGS(l2=0.5),
        updates=200,
        progress=False,
    )
    theta = found.model.learned["pairs"], found.model.learned["features"]

    def objective(t):
        penalty = 0.25 * sum((part**2).sum() for part in t)
        return conditional_log_likelihood(t, rows) / len(rows) - penalty

    best = objective(theta)
    rng = np.random.default_rng(1)
    for _ in range(30):
        moved = [part + 0.01 * rng.standard_normal(part.shape) for part in theta]
        assert objective(moved) < best
    # The optimum is flat: finite differences of the plain objective.
    for k, part in enumerate(theta):
        for at in np.ndindex(part.shape):
            step = np.zeros(part.shape)
            step[at] = 1e-4
            up, down = (
                objective([p + (s * step if i == k else 0.0) for i, p in enumerate(theta)])
                for s in (1, -1)
            )
            assert abs(up - down) / 2e-4 < 2e-5


@one_test_over("steps", (2, 3, 4))
def test_rows_of_as_many_steps_as_states_are_no_one_hot_rows(steps):
    row = [1, *([0] * (steps - 1))]
    found = pgm.infer(pgm.Template(hmm), [{"z": row}])[0]
    emitted = np.stack([found.marginal("x")[s] for s in SYMBOLS], axis=-1)
    np.testing.assert_allclose(emitted, EMISSION[row])


def test_frames_are_rows_with_a_line_for_each_step():
    pd = extra("pandas")
    frames = [pd.DataFrame({"x": ["a", "b"]}), pd.DataFrame({"x": ["c", "d", None]})]
    found = pgm.infer(pgm.Template(hmm), frames, ("log_prob",))
    for r, row in zip(found, (["a", "b"], ["c", "d", None]), strict=True):
        assert r.log_prob == pytest.approx([forward_backward(row)[0]])


def test_learned_templates_are_saved_without_their_function(tmp_path):
    found = pgm.fit(
        pgm.Template(hmm), [{"x": row} for row in rows_of(1)], updates=2, progress=False
    )
    pgm.save(found, tmp_path / "t.safetensors")
    back = pgm.load(tmp_path / "t.safetensors", declare=hmm)
    for name, value in found.model.learned.items():
        np.testing.assert_array_equal(back.learned[name], value)
    with pytest.raises(pgm.PgmError, match="template 'hmm': give declare="):
        pgm.load(tmp_path / "t.safetensors")
    pgm.save(found.model(3), tmp_path / "m.safetensors")
    with pytest.raises(pgm.PgmError, match="holds no template"):
        pgm.load(tmp_path / "m.safetensors", declare=hmm)
    with pytest.raises(pgm.PgmError, match="no learned parameters"):
        pgm.save(pgm.Template(hmm), tmp_path / "n.safetensors")


def shifted(steps):
    """Arrays whose lengths are not the number of steps."""
    b = pgm.GraphBuilder()
    e = b.variable("e", shape=2 * steps + 1)
    b.conditional(e, (), [0.5, 0.5], name="coin")
    return b


def test_the_number_of_steps_follows_from_shapes():
    template = pgm.Template(shifted)
    assert template.steps_of({"e": [0, 1, 1, 0, 1, 0, 1]}) == 3
    with pytest.raises(pgm.PgmError, match="no number of steps"):
        template.steps_of({"e": [0, 1, 1, 0]})


def by_length(steps):
    b = pgm.GraphBuilder()
    e = b.variable("e", shape=steps)
    b.conditional(e, (), np.full((steps, 2), 0.5), name="own")
    return b


BAD = {
    "no function": (lambda: pgm.Template(3), "needs a function"),
    "no builder": (lambda: pgm.Template(lambda n: n)(2), "must return a GraphBuilder"),
    "no steps": (lambda: pgm.Template(hmm)(0), "integer of at least 1"),
    "no rows": (lambda: pgm.infer(pgm.Template(hmm), []), "list of rows"),
    "no evidence": (lambda: pgm.infer(pgm.Template(hmm), None), "list of rows"),
    "no length": (
        lambda: pgm.infer(pgm.Template(hmm), [{"x": ["a"]}, {"z[0]": 1}]),
        "evidence: row 1 gives hmm no number of steps",
    ),
    "unknown": (
        lambda: pgm.infer(pgm.Template(hmm), [{"y": ["a", "b"]}]),
        r"evidence: row 0: 'y' is no variable of hmm, which has",
    ),
    "one row": (
        lambda: pgm.infer(pgm.Template(hmm), {"x": ["a", "b"]}),
        "'x' has the values of one row; give",
    ),
    "parameter": (
        lambda: pgm.Template(hmm).with_params({"emision": EMISSION}),
        "parameter 'emision' is unknown in hmm.2.; did you mean emission",
    ),
    "outside": (
        lambda: pgm.infer(pgm.Template(hmm)(2), {"x[7]": "a"}),
        r"'x\[7\]' is unknown: 'x' has the shape \(2,\)",
    ),
    "row": (lambda: pgm.infer(pgm.Template(hmm), [[1, 2]]), "row 0 must map names to values"),
    "soft": (lambda: pgm.infer(pgm.Template(hmm), [3], soft={"z": 1}), "soft of a template"),
    "symbol": (lambda: pgm.infer(pgm.Template(hmm), [{"x": ["a", "e"]}]), "'e'"),
    "unequal": (lambda: pgm.infer(pgm.Template(hmm), {"x": [["a"]], "z": []}), "as many rows"),
    "mini-batches": (
        lambda: pgm.fit(pgm.Template(hmm), [{"x": ["a"]}], optimizer=pgm.Adam(0.1)),
        "learns from all rows at once",
    ),
    "shapes": (
        lambda: pgm.fit(pgm.Template(by_length), [{"e": [0]}, {"e": [0, 1]}], progress=False),
        r"parameter 'own' of shape \(2, 2\) has shape \(3, 2\)",
    ),
    "soft of more steps": (
        lambda: pgm.infer(pgm.Template(hmm), [{"x": ["a"]}], soft=[{"z": np.zeros((2, 3))}]),
        "row 0: the values, soft evidence or interventions have 2 rows",
    ),
    "row of a group": (
        lambda: pgm.infer(pgm.Template(hmm), [3, {"x": list("ab")}, {"x": list("ae")}]),
        "row 2: evidence: variable 'x'.* 'e' is no state",
    ),
    "array": (lambda: pgm.infer(pgm.Template(hmm), np.zeros((2, 3))), "list of rows.* not ndarray"),
    "wrapped": (
        lambda: pgm.fit(pgm.Template(hmm), [{"x": ["a"]}], optimizer=pgm.Fixed(pgm.SGD(0.1), [])),
        "learns from all rows at once",
    ),
    "weight": (
        lambda: pgm.fit(
            pgm.Template(hmm), [{"x": ["a"]}, {"x": list("aa")}], sample_weight=[1, -1]
        ),
        "sample_weight: row 1 is -1.0",
    ),
    "weights": (
        lambda: pgm.fit(pgm.Template(hmm), [{"x": ["a"]}], sample_weight=[1, 2]),
        r"sample_weight has shape \(2,\), expected \(1,\)",
    ),
}


@one_test_over("name", BAD)
def test_bad_rows_are_refused_and_named(name):
    act, match = BAD[name]
    with pytest.raises(pgm.PgmError, match=match):
        act()


def chain_template(seed, kind):
    """Chains without zeros: with one or two emissions, backward arrows, or observed inputs."""
    rng = np.random.default_rng(seed)
    k = int(rng.integers(2, 5))
    start, moves = rng.dirichlet(np.ones(k)), rng.dirichlet(np.ones(k), k)
    seen, other = rng.dirichlet(np.ones(4), k), rng.dirichlet(np.ones(3), (k, 4))

    def declare(steps):
        b = pgm.GraphBuilder()
        z = b.variable("z", states=k, shape=steps)
        x = b.variable("x", states=4, shape=steps)
        first, rest, before = (z[0], z[1:], z[:-1])
        if kind == "backward":
            first, rest, before = (z[-1], z[:-1], z[1:])
        b.conditional(first, (), start, name="start")
        b.conditional(rest, (before,), moves, name="moves")
        b.conditional(x, (z,), seen, name="seen")
        if kind == "two emissions":
            y = b.variable("y", states=3, shape=steps)
            b.conditional(y, (z, x), other, name="other")
        return b

    return pgm.Template(declare)


@pytest.mark.parametrize("kind", ("plain", "two emissions", "backward"))
@pytest.mark.parametrize("seed", range(3))
def test_chains_of_all_lengths_are_summed_as_one_length_at_a_time(seed, kind, monkeypatch):
    template, rng = chain_template(seed, kind), np.random.default_rng(seed)
    names = {"x": 4, "y": 3} if kind == "two emissions" else {"x": 4}
    # Lengths are drawn so that most steps are reached by several chains.
    data = []
    for _ in range(60):
        steps = int(rng.integers(8, 14))
        data.append({name: rng.integers(0, n, steps) for name, n in names.items()})

    def learned():
        em = pgm.EM(pseudocount=0.5, tolerance=0.0)
        return pgm.fit(template, data, optimizer=em, updates=3, progress=False)

    together, used, one_by_one = fits(learned, monkeypatch)
    assert used
    for name, value in one_by_one.model.learned.items():
        np.testing.assert_allclose(together.model.learned[name], value, atol=1e-10)
    np.testing.assert_allclose(
        together.history["objective"]["value"], one_by_one.history["objective"]["value"], rtol=1e-12
    )


@one_test_over("change", ("missing", "zero", "weights", "few"))
def test_rows_that_are_no_chains_are_summed_one_length_at_a_time(change):
    template, rng = chain_template(0, "plain"), np.random.default_rng(1)
    data = [{"x": rng.integers(0, 4, int(rng.integers(3, 6))) * 1.0} for _ in range(40)]
    weights = None
    if change == "missing":
        data[3]["x"][1] = np.nan
    if change == "few":
        data = data[:3]
    if change == "weights":
        weights = np.linspace(0.5, 1.5, len(data))
    if change == "zero":
        seen = np.array(template(3).params["seen"])
        seen[0] = np.log([0.5, 0.5, 1e-300, 1e-300])
        template = template.with_params({"seen": np.where(seen < -600, -np.inf, seen)})
    em = pgm.EM(pseudocount=0.0, tolerance=0.0)
    found = pgm.fit(template, data, optimizer=em, updates=3, sample_weight=weights, progress=False)
    assert (np.diff(found.history["objective"]["value"]) >= -1e-12).all()


def tagging(steps):
    """Labels with numbers as features: a shared coupling of an Input layer and the labels."""
    b = pgm.GraphBuilder()
    x = b.layer("x", pgm.Input(), (steps, 2))
    y = b.variable("y", states=3, shape=steps)
    b.couple(x, y[:, None], np.zeros((2, 1, 3)), name="features")
    b.table((y[:-1], y[1:]), np.ones((3, 3)), name="pairs")
    return b


def test_features_of_an_input_layer_share_their_weights():
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(20):
        x = rng.normal(size=(int(rng.integers(1, 5)), 2))
        rows.append({"x": x, "y": (x[:, 0] > 0).astype(int) + (x[:, 1] > 0.5)})
    found = pgm.fit(
        pgm.Template(tagging), rows, given=("x",), optimizer=pgm.LBFGS(l2=0.2), progress=False
    )
    learned = {k: np.asarray(v, dtype=float) for k, v in found.model.learned.items()}
    assert set(learned) == {"features", "pairs"} and learned["features"].shape == (2, 1, 3)

    def objective(features, pairs):
        total = 0.0
        for row in rows:
            scores = row["x"] @ features[:, 0]
            paths = list(itertools.product(range(3), repeat=len(scores)))
            each = np.array(
                [
                    sum(scores[t, k] for t, k in enumerate(path))
                    + sum(pairs[a, b] for a, b in itertools.pairwise(path))
                    for path in paths
                ]
            )
            top = each.max()
            total += each[paths.index(tuple(row["y"].tolist()))]
            total -= top + np.log(np.exp(each - top).sum())
        return total / len(rows) - 0.1 * ((features**2).sum() + (pairs**2).sum())

    assert found.history["objective"]["value"][-1] == pytest.approx(objective(**learned))
    for key, value in learned.items():
        for at in np.ndindex(value.shape):
            step = np.zeros(value.shape)
            step[at] = 1e-5
            up, down = (objective(**{**learned, key: value + s * step}) for s in (1, -1))
            assert abs(up - down) / 2e-5 < 1e-4


SIGMA = 0.5


def observed_means(steps, bias=None, tied=False):
    """States with a mean of a Gaussian observation each."""
    b = pgm.GraphBuilder()
    z = b.variable("z", states=3, shape=steps)
    x = b.layer("x", pgm.Gaussian(sigma=SIGMA), steps, bias if bias is None else [bias] * steps)
    b.conditional(z[0], (), START, name="start")
    b.conditional(z[1:], (z[:-1],), TRANSITION, name="transition")
    b.cause(z, x, np.array([[-1.0], [0.0], [1.0]]), name="means")
    if tied:
        b.bias(x, 0.0, name="middle")
    return b


def rows_with_states(rng, lengths):
    rows = []
    for steps in lengths:
        z = rng.integers(0, 3, steps)
        rows.append({"z": z, "x": np.array([-2.0, 0.5, 3.0])[z] + SIGMA * rng.normal(size=steps)})
    return rows


@pytest.mark.parametrize("lengths", ([9, 9, 9], [7, 12, 9, 7]))
def test_biases_of_each_step_stay_as_declared_while_means_learn(lengths):
    rows, bias = rows_with_states(np.random.default_rng(0), lengths), 0.75
    template = pgm.Template(lambda steps: observed_means(steps, bias))
    optimizer = pgm.LBFGS(tolerance=1e-9)
    f = pgm.fit(template, rows, optimizer=optimizer, progress=False)
    assert set(f.model.learned) == {"start", "transition", "means"}
    # The rows of all states contain such a bias, so that nothing is left unlearned.
    assert not any("stay as they are declared" in note for note in f.notes)
    z, x = (np.concatenate([row[name] for row in rows]) for name in ("z", "x"))
    expected = [x[z == k].mean() for k in range(3)]
    # The mean of a Gaussian unit is sigma^2 times its input.
    means = SIGMA**2 * (f.model.learned["means"].ravel() + bias)
    np.testing.assert_allclose(means, expected, atol=1e-6)
    for steps in (1, lengths[0], 20):
        np.testing.assert_array_equal(f.model(steps).params["x.bias"], [bias] * steps)
    # It is asked at the length that it learned, and at others.
    again = pgm.infer(f.model, [rows[0], {"x": rows[0]["x"][:4]}], want=("log_prob",))
    assert all(np.isfinite(r.log_prob).all() for r in again)


def test_parameters_are_those_that_all_lengths_share():
    """Biases of a layer whose size is the number of steps are not among them."""

    def declare(steps):
        b = pgm.GraphBuilder()
        s = b.layer("s", pgm.Spin(), steps)
        b.bias(s, 0.2, name="field")
        b.couple(s[1:], s[:-1], 0.3, name="bond")
        return b

    template = pgm.Template(declare)
    assert set(template.params) == {"field", "bond"}
    fitted = pgm.fit(template.with_params({"bond": 0.5}), [{"s": [1.0, 1.0, -1.0]}], progress=False)
    for name, value in fitted.model(5).params.items():
        if name in fitted.params:
            np.testing.assert_array_equal(fitted.params[name], value)
    assert fitted.params.keys() == template.params.keys()


def test_a_bias_that_all_steps_share_learns_without_a_note():
    rows = rows_with_states(np.random.default_rng(1), [6, 6, 8])
    template = pgm.Template(lambda steps: observed_means(steps, tied=True))
    f = pgm.fit(template, rows, optimizer=pgm.LBFGS(), updates=5, progress=False)
    assert f.model.learned["middle"] != 0 and "x.bias" not in f.model.learned
    assert not any("biases" in note for note in f.notes)


def test_fresh_biases_of_each_step_do_not_begin_at_base_rates():
    def pairs(steps):
        b = pgm.GraphBuilder()
        v = b.layer("v", pgm.Binary(), steps)
        h = b.layer("h", pgm.Binary(), steps)
        b.couple(v, h, name="weight")
        return b

    assert pgm.Template(pairs)(3).fresh
    rows = [{"v": [1, 1, 1, 0]}, {"v": [1, 1, 0]}]
    f = pgm.fit(pgm.Template(pairs), rows, optimizer=pgm.LBFGS(), updates=2, progress=False)
    assert f.started == () and set(f.model.learned) == {"weight"}
    # The objective of the fit is that of the learned template.
    found = pgm.infer(f.model, rows, want=("log_prob",))
    value = np.mean([float(r.log_prob[0]) for r in found])
    assert f.history["objective"]["value"][-1] == pytest.approx(value, rel=1e-9)


def test_a_parameter_of_each_step_is_refused_before_learning():
    def own(steps):
        b = pgm.GraphBuilder()
        z = b.variable("z", states=2, shape=steps)
        b.conditional(z, (), np.full((steps, 2), 0.5), name="own")
        return b

    with pytest.raises(pgm.PgmError, match=r"'own' of shape \(4, 2\) has shape \(5, 2\)"):
        pgm.fit(pgm.Template(own), [{"z": [0, 1, 1, 0]}], progress=False)
    with pytest.raises(pgm.PgmError, match=r"'own' has shape \(2, 2\) in own\(2\) and \(3, 2\)"):
        pgm.Template(own).with_params({"own": np.zeros((4, 2))})


def test_a_template_that_em_cannot_learn_takes_lbfgs():
    rows = rows_with_states(np.random.default_rng(2), [4, 4])
    template = pgm.Template(partial(observed_means, tied=True))
    found, named = (
        pgm.fit(template, rows, optimizer=by, rng=0, progress=False) for by in (None, pgm.LBFGS())
    )
    assert found.optimizer == pgm.LBFGS()
    assert any("EM cannot learn this model: 'means' are arrows" in n for n in found.notes)
    for name, value in named.model.learned.items():
        np.testing.assert_array_equal(found.model.learned[name], value)


def test_the_refusal_of_mini_batches_names_the_optimizer_that_can_learn():
    rows = rows_with_states(np.random.default_rng(2), [4, 4])
    template = pgm.Template(partial(observed_means, tied=True))
    with pytest.raises(pgm.PgmError, match=r"take optimizer=pgm.LBFGS\(\).*'means' are arrows"):
        pgm.fit(template, rows, optimizer=pgm.SGD(0.1), progress=False)
    with pytest.raises(pgm.PgmError, match=r"'means' are arrows.*take optimizer=pgm.LBFGS"):
        pgm.fit(template, rows, optimizer=pgm.EM(), progress=False)
    with pytest.raises(pgm.PgmError, match=r"not by SGD.*take optimizer=pgm.EM\(\)$"):
        data = [{"x": ["a", "b"]}]
        pgm.fit(pgm.Template(hmm), data, optimizer=pgm.SGD(0.1), progress=False)

    def leaks(steps):
        b = pgm.GraphBuilder()
        z = b.layer("z", pgm.Binary(), steps)
        x = b.layer("x", pgm.NoisyOr(), steps)
        b.cause(z, x, 1.0, name="w")
        return b

    with pytest.raises(pgm.PgmError, match="neither learns noisy-or units"):
        pgm.fit(pgm.Template(leaks), [{"x": [0, 1]}], progress=False)


def test_a_memory_of_two_steps_learns():
    def second(steps):
        b = pgm.GraphBuilder()
        z = b.variable("z", states=2, shape=steps)
        b.conditional(z[:1], (), [0.5, 0.5], name="start")
        b.conditional(z[1:2], (z[:-1][:1],), np.full((2, 2), 0.5), name="first")
        b.conditional(z[2:], (z[:-2], z[1:-1]), np.full((2, 2, 2), 0.5), name="second")
        return b

    f = pgm.fit(
        pgm.Template(second),
        [{"z": [0, 1, 1, 0, 1, 1]}, {"z": [1, 1]}],
        optimizer=pgm.EM(pseudocount=0),
        progress=False,
    )
    # 0 1 -> 1 twice, 1 1 -> 0 once, 1 0 -> 1 once.
    learned = np.exp(f.model.learned["second"])
    np.testing.assert_allclose(learned[[0, 1, 1], [1, 1, 0]], [[0, 1], [1, 0], [0, 1]], atol=1e-12)


def test_rows_in_different_forms_are_read():
    """States and one-hot rows may stand beside each other, because each row is read by itself."""
    rows = [{"z": [0, 1], "x": list("ab")}, {"z": [2, 1], "x": list("ca")}]
    other = [rows[0], {"z": np.eye(3)[[2, 1]], "x": list("ca")}]
    em = pgm.EM(pseudocount=0.5)
    one, two = (
        pgm.fit(pgm.Template(hmm), data, optimizer=em, progress=False) for data in (rows, other)
    )
    for name, value in one.model.learned.items():
        np.testing.assert_array_equal(two.model.learned[name], value)


@pytest.mark.parametrize("act", (pgm.infer, pgm.fit))
def test_messages_count_the_rows_of_all_lengths(act):
    rows = [{"z": [1, 1], "x": list("ab")}, {"x": list("abc")}, {"z": [0, 0], "x": list("da")}]
    with pytest.raises(pgm.PgmError, match="row 2 has probability zero"):
        act(pgm.Template(hmm), rows, progress=False)


def test_rows_with_soft_evidence_are_asked_together():
    """Rows of one length are rows of one question, whatever is given about them."""
    rng = np.random.default_rng(0)
    rows = [{"x": row} for row in rows_of(1, count=9, most=4)]
    steps = [len(row["x"]) for row in rows]
    soft = [{"z": rng.normal(size=(n, 3))} if i % 2 else None for i, n in enumerate(steps)]
    do = [{"z[0]": 1} if i % 3 == 0 else None for i in range(len(rows))]
    template, want = pgm.Template(hmm), ("marginals", "log_prob", "mode")
    explained = pgm.explain(template, rows, want, soft=soft, do=do)
    assert len(explained.parts) == len(set(steps))
    found = pgm.infer(template, rows, want, soft=soft, do=do)
    for i, (r, row) in enumerate(zip(found, rows, strict=True)):
        alone = pgm.infer(template(steps[i]), row, want, soft=soft[i], do=do[i])
        np.testing.assert_allclose(r.prob["z"], alone.prob["z"], atol=1e-14)
        assert r.log_prob == pytest.approx(alone.log_prob, abs=1e-13)
        assert (r.assignment()["z"] == alone.assignment()["z"]).all()
        assert r.target.evidence.has_rows == alone.target.evidence.has_rows


def test_a_given_array_may_be_missing_in_rows_of_one_length():
    data = [{"x": [0, 1, 2], "y": [0, 1, 1]}, {"x": [np.nan, np.nan], "y": [0, 1]}]
    settings = {"given": ("x",), "updates": 3, "progress": False}
    found = pgm.fit(pgm.Template(field), data, **settings)
    assert found.history["objective"]["value"][-1] < 0
    for given, name in (("x", "variable 'x'"), ("x[0]", r"'x\[0\]'")):
        with pytest.raises(pgm.PgmError, match=f"given: {name} is not in the data, which has 'y'"):
            pgm.fit(pgm.Template(field), [{"y": [0, 1]}, {"y": [1]}], given=(given,))

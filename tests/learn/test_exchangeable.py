"""States that learning cannot tell apart, random starts away from them, and states without data."""

import numpy as np
import pytest
from scipy import sparse

import pgmengine as pgm
from pgmengine.evidence.given import make_target
from pgmengine.learn.starting.exchangeable import exchangeable
from pgmengine.learn.starting.random_starts import changed

SIGMA, STATES = 0.8, 3


def chain(means, offset=0.0):
    """A hidden Markov model with Gaussian observations."""

    def steps(count):
        b = pgm.GraphBuilder()
        z = b.variable("z", states=STATES, shape=count)
        x = b.layer("x", pgm.Gaussian(sigma=SIGMA), count)
        b.conditional(z[0], (), np.full(STATES, 1 / STATES), name="start")
        b.conditional(z[1:], (z[:-1],), np.full((STATES, STATES), 1 / STATES), name="transition")
        b.cause(z, x, (np.array(means) + offset)[:, None] / SIGMA**2, name="means")
        return b

    return pgm.Template(steps)


def sequences(offset=0.0, seed=0):
    rng, rows = np.random.default_rng(seed), []
    for n in [20] * 20 + [30] * 20:
        z = rng.integers(STATES, size=n)
        for t in range(1, n):
            z[t] = z[t - 1] if rng.random() < 0.8 else z[t]
        rows.append({"x": offset + np.array([-2, 0, 2.5])[z] + rng.normal(0, SIGMA, n)})
    return rows


def fitted(template, rows, **settings):
    return pgm.fit(template, rows, optimizer=pgm.LBFGS(**settings), progress=False, rng=0)


@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_equal_means_are_left_by_random_starts(offset, atol=0.3):
    rows = sequences(offset)
    f = fitted(chain([0, 0, 0]), rows)
    found = np.sort(SIGMA**2 * np.ravel(f.model.learned["means"])) - offset
    np.testing.assert_allclose(found, [-2, 0, 2.5], atol=atol)
    assert not f.findings and any("best of 12 random starts" in note for note in f.notes)
    told = fitted(chain([-1, 0, 1], offset), rows)
    best = [one.history["objective"]["value"][-1] for one in (f, told)]
    assert best[0] == pytest.approx(best[1], abs=1e-4)
    assert not any("starts" in note for note in told.notes)


def test_some_equal_means_are_left_too(atol=0.3):
    f = fitted(chain([0, 0, 1]), sequences())
    found = np.sort(SIGMA**2 * np.ravel(f.model.learned["means"]))
    np.testing.assert_allclose(found, [-2, 0, 2.5], atol=atol)


def test_a_bad_start_is_reported(caplog):
    rows = sequences()
    f = fitted(chain([-5, -4, 10]), rows)
    (finding,) = f.findings
    assert finding.kind is pgm.FindingKind.UNUSED_STATES and finding.states == "state 2 of 'z'"
    assert "the data do not use state 2 of 'z': take fewer states" in caplog.text
    assert "the data do not use state 2" in repr(f)


def test_lbfgs_leaves_equal_tables_as_em_does():
    rng = np.random.default_rng(0)
    shows = np.array([[0.8, 0.1, 0.05, 0.05], [0.1, 0.1, 0.1, 0.7]])
    rows = []
    for _ in range(80):
        z = rng.integers(2)
        row = []
        for _ in range(12):
            z = z if rng.random() < 0.8 else 1 - z
            row.append(rng.choice(4, p=shows[z]))
        rows.append({"x": np.array(row)})

    def hmm(count):
        b = pgm.GraphBuilder()
        z, x = b.variable("z", states=2, shape=count), b.variable("x", states=4, shape=count)
        b.conditional(z[0], (), [0.5, 0.5], name="start")
        b.conditional(z[1:], (z[:-1],), [[0.5, 0.5], [0.5, 0.5]], name="transition")
        b.conditional(x, (z,), np.full((2, 4), 0.25), name="shows")
        return b

    steps = (pgm.LBFGS(), pgm.EM(pseudocount=0.0))
    best = [
        pgm.fit(pgm.Template(hmm), rows, optimizer=one, progress=False).history["objective"]
        for one in steps
    ]
    assert best[0]["value"][-1] == pytest.approx(best[1]["value"][-1], abs=1e-3)


def test_an_rbm_without_weights_learns():
    model = pgm.rbm(4, 2, rng=0)
    empty = model.with_params({n: np.zeros(v.shape) for n, v in model.params.items()})
    x = np.repeat([[1.0, 1, 0, 0], [0, 0, 1, 1]], 20, axis=0)
    f = pgm.fit(empty, {"v": x}, optimizer=pgm.LBFGS(), updates=100, progress=False)
    # Independent pixels have -4 log 2; the two rows have -log 2.
    assert f.history["objective"]["value"][-1] > -0.8
    assert any("'h[0]'" in note or "h" in note for note in f.notes if "exchangeable" in note)


def alike(model, data):
    """Return the names of units whose states are exchangeable."""
    return list(exchangeable(model, [(make_target(model, data), {})], {}, {}).states)


def test_which_states_look_alike():
    """Equal effects on children and neighbours of any kind; observed units do not count."""
    b = pgm.GraphBuilder()
    b.layer("z", pgm.Categorical(3), 3)
    b.layer("y", pgm.Binary(), 2)
    b.variable("x", states=2)
    b.couple("z", "y")
    model = b.build()
    weight = np.arange(18.0).reshape(9, 2)
    # The states 0 and 2 of unit 1 have equal weights.
    weight[5] = weight[3]
    model = model.with_params({"z-y.weight": weight})
    assert alike(model, {"y": [[0, 1]]}) == ["'z[1]'"]
    assert alike(model, {"z": [[0, 1, 2]], "y": [[0, 1]]}) == []
    # A table of unit 1 tells its states apart.
    b.table((("z", 1), "x"), [[1, 2], [1, 3], [1, 2.5]])
    told = b.build().with_params({"z-y.weight": weight})
    assert alike(told, {"y": [[0, 1]]}) == []


@pytest.mark.parametrize("as_sparse", [False, True])
def test_random_changes_stay_within_what_may_change(as_sparse):
    b = pgm.GraphBuilder()
    b.layer("h", pgm.Binary(), 3)
    b.layer("v", pgm.Binary(), 4)
    weight = np.ones((3, 4)) * 0.5
    b.couple("h", "v", sparse.csr_array(weight) if as_sparse else weight)
    b.couple("h", "h")
    model = b.build(rng=0)
    target = make_target(model, {"v": [[0, 1, 1, 0], [1, 1, 0, 0]]})
    mask, fixed = np.ones((3, 4), dtype=bool), np.zeros((3, 4), dtype=bool)
    # Unit 0 of h does not change, and one weight is fixed.
    mask[0], fixed[1, 2] = False, True
    key, shape = "h-v.weight", (12,) if as_sparse else (3, 4)
    masks = {key: mask.reshape(shape), "h-h.weight": np.ones((3, 3), dtype=bool)}
    rng = np.random.default_rng(0)
    moved = changed(model, target, {}, masks, {key: fixed.reshape(shape)}, rng)
    new = moved.params[key].toarray() if as_sparse else moved.params[key]
    expected = np.ones((3, 4), dtype=bool)
    expected[0], expected[1, 2] = False, False
    assert ((new != 0.5) == expected).all()
    inside = np.asarray(moved.params["h-h.weight"])
    np.testing.assert_array_equal(inside, inside.T)
    assert not np.diag(inside).any() and (inside != model.params["h-h.weight"]).sum() == 6
    np.testing.assert_array_equal(moved.params["v.bias"], model.params["v.bias"])


def test_the_number_of_starts_may_be_given():
    f = fitted(chain([-1, 0, 1]), sequences(), starts=3)
    assert any("best of 3 starts" in note for note in f.notes)
    with pytest.raises(pgm.PgmError, match="LBFGS: starts"):
        pgm.LBFGS(starts=0)

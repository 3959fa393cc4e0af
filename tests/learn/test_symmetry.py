"""Latent units, layers and chains that a start treats alike, and starts that only seem to."""

import signal

import numpy as np
import pytest

import pgmengine as pgm
from pgmengine.evidence.given import make_target
from pgmengine.learn.starting.exchangeable import exchangeable


def found(model, data, fixed=None):
    return exchangeable(model, [(make_target(model, data), {})], fixed or {}, {})


def two_causes(difference=0.0, children=4):
    """Two hidden causes, declared alike, of some children."""
    b = pgm.GraphBuilder()
    for name, p in (("u", 0.6), ("w", 0.6 + difference)):
        b.variable(name, states=2)
        b.conditional(name, (), [p, 1 - p])
    for k in range(children):
        b.variable(f"x{k}", states=2)
        b.conditional(f"x{k}", ("u", "w"), [[[0.8, 0.2], [0.5, 0.5]], [[0.5, 0.5], [0.2, 0.8]]])
    return b.build()


def seen(rows=300, seed=1):
    rng = np.random.default_rng(seed)
    u, w = rng.random(rows) < 0.5, rng.random(rows) < 0.3
    each = [np.where(u if k < 2 else w, 0.9, 0.1) for k in range(4)]
    return {f"x{k}": (rng.random(rows) < p).astype(int) for k, p in enumerate(each)}


OPTIMIZERS = [None, pgm.EM(pseudocount=0.0), pgm.EM(starts=3), pgm.LBFGS()]


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=repr)
def test_equal_units_are_left_by_random_starts(optimizer, least=0.02):
    data = seen()
    settings = {"optimizer": optimizer, "progress": False, "rng": 0}
    fits = [pgm.fit(two_causes(d), data, **settings) for d in (0.0, 1e-3)]
    score = [np.mean(pgm.infer(f, data, want=("log_prob",)).log_prob) for f in fits]
    assert score[0] > score[1] - 0.003
    stuck = pgm.fit(two_causes(), data, optimizer=pgm.EM(0.0), updates=1, progress=False)
    before = np.mean(pgm.infer(two_causes(), data, want=("log_prob",)).log_prob)
    assert score[0] > before + least and "'u' and 'w' are exchangeable" in " ".join(stuck.notes)
    assert any("'u' and 'w' are exchangeable" in note for note in fits[0].notes)
    assert not any("exchangeable" in note for note in fits[1].notes)


@pytest.mark.parametrize("around", [lambda steps: steps, pgm.Averaged])
def test_equal_units_are_left_by_mini_batches(around, least=1e-2):
    settings = {"updates": 5, "batch_size": 100, "progress": False}
    fit = pgm.fit(two_causes(), seen(), optimizer=around(pgm.Adam(0.05)), **settings)
    one, two = (np.exp(fit.model.params[f"{name}|.table"]) for name in "uw")
    assert np.abs(one - two).max() > least
    assert any("'u' and 'w' are exchangeable" in note for note in fit.notes)
    told = pgm.fit(two_causes(0.1), seen(), optimizer=around(pgm.Adam(0.05)), **settings)
    assert not any("exchangeable" in note for note in told.notes)


def layers(same=True):
    """Two hidden layers of a belief net, or of an undirected model, over one layer of data."""
    b = pgm.GraphBuilder()
    for name, size in (("v", 4), ("g", 2), ("h", 2)):
        b.layer(name, pgm.Binary(), size)
    weight = np.arange(8.0).reshape(2, 4) / 9
    b.couple("g", "v", weight)
    b.couple("h", "v", weight if same else weight + 0.1)
    return b.build()


def factorial(same=True):
    """Two hidden chains with tables of their own, whose states show one value together."""

    def steps(count):
        b = pgm.GraphBuilder()
        arrays = {name: b.variable(name, states=2, shape=count) for name in ("a", "c", "x")}
        for name, p in (("a", 0.7), ("c", 0.7 if same else 0.6)):
            z = arrays[name]
            b.conditional(z[0], (), [0.4, 0.6], name=f"start of {name}")
            b.conditional(z[1:], (z[:-1],), [[p, 1 - p], [0.2, 0.8]], name=f"moves of {name}")
        shows = [[[0.9, 0.1], [0.5, 0.5]], [[0.5, 0.5], [0.1, 0.9]]]
        b.conditional(arrays["x"], (arrays["a"], arrays["c"]), shows, name="shows")
        return b

    return pgm.Template(steps)


def exclusive_or(values=(0.8, 0.3)):
    """The states of two causes are exchangeable together only, not one by one."""
    one, two = ([p, 1 - p] for p in values)
    b = pgm.GraphBuilder()
    for name in "uwx":
        b.variable(name, states=2)
    b.conditional("u", (), [0.5, 0.5])
    b.conditional("w", (), [0.5, 0.5])
    b.conditional("x", ("u", "w"), [[one, two], [two, one]])
    return b.build()


def test_layers_and_chains_and_states_that_are_exchangeable_together():
    x = {"v": np.eye(4)}
    same = found(layers(), x)
    assert set(same.units) == {"'g[0]'", "'g[1]'", "'h[0]'", "'h[1]'"} and same.masks
    assert not found(layers(same=False), x).masks
    chain = factorial()(3)
    both = found(chain, {"x": [[0, 1, 1]]})
    assert "'a[0]'" in both.units and both.masks["moves of a"].all() and not both.states
    # Where both chains are in one state, they show the same whatever they are called.
    assert both.masks["shows"].tolist() == [[[False] * 2, [True] * 2], [[True] * 2, [False] * 2]]
    assert not found(factorial(same=False)(3), {"x": [[0, 1, 1]]}).masks
    together = found(exclusive_or(), {"x": [0, 1]})
    assert set(together.states) == {"'u'", "'w'"} and together.masks["x|u,w.table"].all()


@pytest.mark.parametrize("optimizer", [pgm.EM(pseudocount=0.0), pgm.LBFGS()])
def test_equal_chains_of_a_template_are_left(optimizer):
    rng = np.random.default_rng(0)
    rows = []
    for steps in [6] * 20 + [8] * 20:
        z = rng.random((2, steps)) < 0.5
        z[:, 1::2] = z[:, ::2]
        rows.append({"x": (rng.random(steps) < np.where(z[0] & z[1], 0.9, 0.1)).astype(int)})
    fit = pgm.fit(factorial(), rows, optimizer=optimizer, updates=60, progress=False)
    one, two = (fit.model.learned[f"moves of {name}"] for name in "ac")
    assert np.abs(np.exp(one) - np.exp(two)).max() > 1e-3
    assert any("are exchangeable" in note for note in fit.notes)


def test_what_the_data_tell_apart_is_no_symmetry():
    model = two_causes()
    every = {"u": [0, 1], "w": [1, 1], **{f"x{k}": [0, 1] for k in range(4)}}
    assert not found(model, every).masks
    assert not found(model, {**every, "w": [None, None]}).masks
    # A table that cannot learn tells nothing apart, and one that is no longer equal does.
    fixed = {key: np.ones(np.shape(v), dtype=bool) for key, v in model.params.items()}
    x = {f"x{k}": [0, 1] for k in range(4)}
    assert found(model, x).masks and not found(model, x, fixed).masks
    one = {"u|.table": np.ones(2, dtype=bool)}
    assert not found(model, x, one).masks


def test_barren_units_are_not_changed_and_informative_starts_stay():
    b = pgm.GraphBuilder()
    for name, k in (("a", 2), ("z", 3), ("x", 3), ("u", 2), ("w", 2), ("y", 2), ("m", 2), ("n", 2)):
        b.variable(name, states=k)
    # z has its own states, u and w are alike but barren with y, and m has equal states.
    b.conditional("a", (), [0.4, 0.6])
    b.conditional("z", ("a",), [[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]])
    b.conditional("x", ("z",), [[0.8, 0.1, 0.1], [0.2, 0.5, 0.3], [0.1, 0.1, 0.8]])
    for name in "uw":
        b.conditional(name, (), [0.5, 0.5])
    b.conditional("y", ("u", "w"), [[[0.9, 0.1], [0.5, 0.5]], [[0.5, 0.5], [0.1, 0.9]]])
    b.conditional("m", (), [0.5, 0.5])
    b.conditional("n", ("m",), [[0.3, 0.7], [0.3, 0.7]])
    model, data = b.build(), {"a": [0, 1, 1], "x": [0, 2, 2], "n": [0, 1, 1]}
    same = found(model, data)
    assert list(same.states) == ["'m'"] and not same.units
    assert set(same.masks) == {"m|.table", "n|m.table"}
    fit = pgm.fit(model, data, optimizer=pgm.EM(pseudocount=0.0), updates=30, progress=False)
    assert any("states of 'm' are exchangeable" in note for note in fit.notes)
    # The others are where a fit without m ends, which begins at the given start.
    rest = pgm.fit(
        model, {**data, "m": [0, 1, 0]}, optimizer=pgm.EM(0.0), updates=30, progress=False
    )
    for key in ("z|a.table", "x|z.table"):
        np.testing.assert_allclose(
            np.exp(fit.model.params[key]), np.exp(rest.model.params[key]), atol=0.1
        )
    for key in ("u|.table", "w|.table", "y|u,w.table"):
        np.testing.assert_array_equal(fit.model.params[key], model.params[key])


def test_a_parent_that_is_observed_tells_equal_rows_apart():
    """z follows a, so that learning by itself gives the states of z rows of their own."""
    b = pgm.GraphBuilder()
    for name in "azx":
        b.variable(name, states=2)
    b.conditional("a", (), [0.5, 0.5])
    b.conditional("z", ("a",), [[0.9, 0.1], [0.2, 0.8]])
    b.conditional("x", ("z",), [[0.5, 0.5], [0.5, 0.5]])
    model, data = b.build(), {"a": [0, 0, 1, 1, 1], "x": [0, 0, 1, 1, 0]}
    assert not found(model, data).masks
    fit = pgm.fit(model, data, optimizer=pgm.EM(0.0), progress=False)
    assert np.exp(fit.model.params["x|z.table"])[0, 0] > 0.9
    # Hidden a tells nothing apart.
    assert set(found(model, {"x": data["x"]}).states) == {"'a'", "'z'"}


@pytest.mark.parametrize("updates", [1, 3, 40])
@pytest.mark.parametrize("optimizer", [pgm.EM(), pgm.LBFGS()])
def test_updates_limit_those_of_random_starts(updates, optimizer, monkeypatch):
    made = []
    for kind, name in ((pgm.EM, "_maximised"), (pgm.LBFGS, "_updated")):
        of = getattr(kind, name)

        def counted(self, *arguments, of=of):
            made.append(1)
            return of(self, *arguments)

        monkeypatch.setattr(kind, name, counted)
    fit = pgm.fit(two_causes(), seen(), optimizer=optimizer, updates=updates, progress=False)
    assert len(made) == fit.state["update"] <= updates
    assert any("exchangeable" in note for note in fit.notes)
    if updates < 40:
        assert any("would take too many" in note for note in fit.notes)


def test_updates_of_starts_count():
    fit = pgm.fit(
        two_causes(), seen(), optimizer=pgm.EM(tolerance=0.0), updates=200, progress=False
    )
    assert fit.state["update"] == 200
    # Six starts take at most half of 200 updates.
    assert fit.history["objective"]["update"][0] - 1 <= 100


@pytest.mark.parametrize("optimizer", [pgm.EM(), pgm.LBFGS()])
def test_ctrl_c_ends_random_starts_with_the_best_model(optimizer, monkeypatch, after=9):
    made = []
    for kind, name in ((pgm.EM, "_maximised"), (pgm.LBFGS, "_updated")):
        of = getattr(kind, name)

        def counted(self, *arguments, of=of):
            made.append(1)
            if len(made) == after:
                signal.raise_signal(signal.SIGINT)
            return of(self, *arguments)

        monkeypatch.setattr(kind, name, counted)
    # A background job starts with Ctrl-C ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        fit = pgm.fit(two_causes(), seen(), optimizer=optimizer, progress=False)
    finally:
        signal.signal(signal.SIGINT, before)
    assert fit.interrupted and len(made) <= after + 2 and fit.state["update"] == len(made)
    assert np.isfinite(fit.history["objective"]["value"]).all()


def test_starts_that_are_told_apart_have_no_symmetry(monkeypatch, cases=40):
    """The short way says no only where the refinement finds nothing, with equal numbers or not."""
    from pgmengine.learn.starting import symmetry

    short, said = symmetry.told_apart, []
    for seed in range(cases):
        rng = np.random.default_rng(seed)
        b = pgm.GraphBuilder()
        z, x = b.variable("z", states=3, shape=4), b.layer("x", pgm.Normal(), 4)
        moves = rng.integers(1, 3, (3, 3)) + 0.0
        b.conditional(z[0], (), [0.25, 0.25, 0.5] if seed % 2 else np.ones(3) / 3, name="start")
        b.conditional(z[1:], (z[:-1],), moves / moves.sum(axis=1, keepdims=True), name="moves")
        b.cause(z, x, rng.integers(0, 2 + seed % 4, (3, 2)) + 0.0, name="rows")
        model, data = b.build(), {"x": rng.normal(size=(5, 4))}
        monkeypatch.setattr(symmetry, "told_apart", lambda *a: said.append(short(*a)) or False)
        plain = found(model, data)
        assert not (said and said[-1] and plain.masks)
    assert any(said) and not all(said)

"""Questions about models with noisy gates, against enumeration by the formulas of the gates.

A gate is answered in three forms: as a table, as a table that elimination takes apart, and as a
compact gate, which has no table. Small models reach all three by the thresholds of `forms`.
"""

import pickle
from itertools import product

import numpy as np
import pytest
from extras import extra
from loops import one_test_over

import pgmengine as pgm
from pgmengine import PgmError
from pgmengine.infer.exact.junction_tree import elimination
from pgmengine.model.forms import gate

FORMS = ("table", "apart", "compact")
SIZES = {"a": 2, "b": 3, "c": 2, "d": 2, "e": 3, "f": 2, "g": 3, "h": 2}


@pytest.fixture(params=FORMS)
def form(request, monkeypatch):
    """The form of all gates."""
    if request.param == "table":
        monkeypatch.setattr(elimination, "MAX_WHOLE_GATE_ENTRIES", np.inf)
    elif request.param == "apart":
        monkeypatch.setattr(elimination, "MAX_WHOLE_GATE_ENTRIES", 0)
        monkeypatch.setattr(elimination, "MAX_ENTRIES_PLANNED_TWICE", 0)
    else:
        monkeypatch.setattr(gate, "MAX_WHOLE_ENTRIES", 0)
    return request.param


def rows(rng, count, size):
    """Random rows of probabilities, some of them with a zero."""
    out = rng.dirichlet(np.ones(size), count)
    out[rng.random(count) < 0.2, rng.integers(size)] = 0.0
    return out / out.sum(axis=1, keepdims=True)


class Network:
    """A random network of eight variables with three gates, and its joint distribution."""

    def __init__(self, seed, arrays=False):
        rng = np.random.default_rng(seed)
        self.names = list(SIZES)
        b = pgm.GraphBuilder()
        for name, size in SIZES.items():
            b.variable(name, states=size)
        factors = [((name,), rows(rng, 1, SIZES[name])[0]) for name in "abcd"]
        maximum = [rows(rng, SIZES[x], 3) for x in "abc"], rows(rng, 1, 3)[0]
        either = [float(rng.random()), rng.random(3), float(rng.random())], 0.1 * rng.random()
        minimum = [rows(rng, SIZES[x], 3) for x in "ef"], rows(rng, 1, 3)[0]
        gates = [
            ("abc", "e", pgm.noisy_max(*maximum), self.cumulated(*maximum)),
            ("dec", "f", pgm.noisy_or(*either), self.either(*either)),
            ("ef", "g", pgm.noisy_min(*minimum), self.cumulated(*minimum, flip=True)),
        ]
        for scope, table in factors:
            b.conditional(scope[0], (), table)
        for parents, child, values, table in gates:
            b.conditional(child, tuple(parents), table if arrays else values)
            factors.append(((*parents, child), table))
        last, extra = rows(rng, 6, 2).reshape(3, 2, 2), rng.random((2, 2)) + 0.1
        b.conditional("h", ("g", "a"), last)
        b.table(("d", "h"), extra)
        self.factors = [*factors, (("g", "a", "h"), last), (("d", "h"), extra)]
        self.model = b.build()

    @staticmethod
    def cumulated(tables, leak, flip=False):
        """The conditional of a noisy-max, by products of cumulated rows; noisy-min if flipped."""
        turn = slice(None, None, -1) if flip else slice(None)
        out = np.cumsum(leak[turn])
        for table in tables:
            above = np.cumsum(table[:, turn], axis=1)
            out = out[..., None, :] * above
        return np.diff(out, axis=-1, prepend=0.0)[..., turn]

    @staticmethod
    def either(probabilities, leak):
        """The conditional of a noisy-or."""
        off = np.array(1 - leak)
        for p in probabilities:
            p = np.array([0, p]) if np.ndim(p) == 0 else p
            off = np.multiply.outer(off, 1 - p)
        return np.stack([off, 1 - off], axis=-1)

    def joint(self, do=None, without=None):
        """The weights of all joint states, without the conditionals of variables that do() sets."""
        out = np.ones(tuple(SIZES.values()))
        for scope, table in self.factors:
            if scope[-1] in (do or {}) and scope != ("d", "h"):
                continue
            axes = [self.names.index(x) for x in scope]
            order = np.argsort(axes)
            shape = [SIZES[x] if x in scope else 1 for x in self.names]
            out = out * np.transpose(table, order).reshape(shape)
        return out

    def conditioned(self, seen, soft=None, do=None):
        """The weights of the joint states that agree with the evidence, with soft evidence."""
        out = self.joint(do)
        for name, state in {**seen, **(do or {})}.items():
            keep = np.zeros(SIZES[name])
            keep[state] = 1.0
            out = out * keep.reshape([-1 if x == name else 1 for x in self.names])
        for name, logs in (soft or {}).items():
            out = out * np.exp(logs).reshape([-1 if x == name else 1 for x in self.names])
        return out

    def marginal(self, weights, *names):
        """The distribution of some variables."""
        axes = tuple(i for i, x in enumerate(self.names) if x not in names)
        out = weights.sum(axis=axes)
        return out / out.sum()


def evidence_of(rng, names, rows_):
    """Random evidence with NaN where a row leaves a variable free."""
    some = rng.choice(names, rng.integers(1, 5), replace=False)
    values = {x: rng.integers(SIZES[x], size=rows_).astype(float) for x in some}
    for given in values.values():
        given[rng.random(rows_) < 0.4] = np.nan
    return values


def row_of(given, i):
    """The evidence of one row."""
    return {x: int(v[i]) for x, v in given.items() if not np.isnan(v[i])}


@one_test_over("seed", range(12))
def test_marginals_and_log_prob(seed, form):
    rng = np.random.default_rng([seed, 1])
    n = Network(seed)
    assert bool(n.model.structure.compact_gates) == (form == "compact")
    do = {"e": int(rng.integers(3))} if seed % 3 == 1 else None
    free = [x for x in n.names if x not in (do or {})]
    given = evidence_of(rng, free, 6)
    soft = {"g": rng.normal(size=3)} if seed % 2 else None
    want = ("marginals", "log_z", "log_prob", pgm.Joint("a", "f"))
    for i in range(6):
        # A zero of a random table makes some evidence impossible, which is left out.
        if n.conditioned(row_of(given, i), soft, do).sum() == 0:
            for values in given.values():
                values[i] = np.nan
    r = pgm.infer(n.model, given, want, soft=soft, do=do)
    assert r.kind == "exact"
    for i in range(6):
        weights = n.conditioned(row_of(given, i), soft, do)
        assert np.allclose(r.log_z[i], np.log(weights.sum()), atol=1e-10)
        whole = n.joint(do) if do is None else n.conditioned({}, None, do)
        assert np.allclose(r.log_prob[i], np.log(weights.sum() / whole.sum()), atol=1e-10)
        for name in n.names:
            found = np.array([p[i] for p in r.marginal(name).values()])
            assert np.allclose(found, n.marginal(weights, name), atol=1e-10), name
        assert np.allclose(r.joint["a", "f"][i], n.marginal(weights, "a", "f"), atol=1e-10)


def test_the_form_is_the_one_that_is_meant(form):
    """Each form of the other tests takes its own way."""
    r = pgm.infer(Network(0).model, {"h": 1})
    assert ("auxiliary variables of 3 gates" in r.plan.why) == (form == "apart")


def test_impossible_states_of_soft_evidence(form):
    """Soft evidence of -inf adds findings after the auxiliary variables."""
    n = Network(3)
    logs = np.array([0.0, -np.inf, 0.5])
    r = pgm.infer(n.model, {"h": 1}, soft={"e": logs})
    weights = n.conditioned({"h": 1}, {"e": logs})
    for name in n.names:
        assert np.allclose([*r.marginal(name).values()], n.marginal(weights, name), atol=1e-10)
    assert set(r.prob) <= set(n.model.structure.layers)


def test_auxiliary_variables_are_in_no_answer(form):
    extra("pandas"), extra("arviz_base")
    n = Network(1)
    layers, names = set(n.model.structure.layers), set(n.names)
    want = ("marginals", "samples", "pairs", "log_z")
    for ask in (pgm.infer, lambda m, e, w, **k: pgm.prepare(m, tuple(e), w)(e, **k)):
        r = ask(n.model, {"h": 1}, want, rng=0)
        for answer in (r.mean, r.prob, r.samples):
            assert set(answer) == layers
        assert {c[0] if isinstance(c, tuple) else c for c in r.samples_frame().columns} == names
        shown = {str(c).split("[")[0] for c in r.to_frame().columns if str(c) != "log_z"}
        assert shown == names
        assert set(r.to_arviz().posterior.data_vars) <= names
        assert r.target.model is n.model
    assert n.model.variables == n.names
    assert "auxiliary" not in repr(n.model) and "auxiliary" not in n.model._repr_html_()


@one_test_over("seed", range(4))
def test_the_log_density(seed, form):
    n = Network(seed)
    with np.errstate(divide="ignore"):
        expected = np.log(n.joint())
    states = np.array(list(product(*map(range, SIZES.values()))))
    found = n.model.log_density(dict(zip(n.names, states.T, strict=True)))
    assert np.allclose(found, expected.ravel(), atol=1e-10)


def test_samples(form, errors=6.0, draws=20000):
    """Exact draws, with evidence and without, have the frequencies of the joint distribution."""
    extra("pandas")
    n = Network(2)
    for evidence, method in (({"h": 1}, pgm.Exact(draws=draws)), ({}, pgm.Exact(draws=draws))):
        r = pgm.infer(n.model, evidence, ("samples",), method=method, rng=4)
        frame = r.samples_frame()
        weights = n.marginal(n.conditioned(evidence), "e", "f", "g")
        counts = np.zeros((3, 2, 3))
        np.add.at(counts, tuple(frame[x].astype(int) for x in "efg"), 1)
        error = np.sqrt(weights * (1 - weights) / draws) + 1e-9
        assert (np.abs(counts / draws - weights) <= errors * error).all()


def test_chains_and_forward_draws(form, errors=6.0):
    n = Network(6)
    for method, evidence in ((pgm.MCMC(), {"e": 1}), (pgm.Forward(), {"h": 1})):
        r = pgm.infer(n.model, evidence, method=method, rng=2)
        weights = n.conditioned(evidence)
        for name in n.names:
            layer, unit = n.model.structure.names.place(name)
            error = r.stats["mcse"][layer][0, unit] if r.status.good else 1.0
            found = [*r.marginal(name).values()]
            assert np.allclose(found, n.marginal(weights, name), atol=errors * np.max(error) + 1e-9)
        assert set(r.stats["mcse"]) <= set(n.model.structure.layers)


def test_mean_field_gives_a_bound(form):
    n = Network(7)
    r = pgm.infer(n.model, {"h": 1}, ("bound",), method=pgm.MeanField())
    assert r.bound[0] <= np.log(n.conditioned({"h": 1}).sum()) + 1e-10


def test_the_mode(form):
    """The maximum over auxiliary variables is another one, so that it needs whole tables."""
    n = Network(8)
    if form == "compact":
        for ask in (pgm.infer, pgm.explain):
            with pytest.raises(PgmError, match="the mode needs the whole table .* of 'e' has too"):
                ask(n.model, {"h": 1}, ("mode",))
        with pytest.raises(PgmError, match="the mode needs the whole table"):
            pgm.prepare(n.model, ("h",), ("mode",))
        with pytest.raises(PgmError, match="the mode needs the whole table"):
            pgm.Elimination().prepare(n.model.given({"h": 1}), ("mode",))
        return
    weights = n.conditioned({"h": 1})
    best = np.unravel_index(weights.argmax(), weights.shape)
    found = pgm.infer(n.model, {"h": 1}, ("mode",)).assignment()
    assert [found[x] for x in n.names] == list(best)


def moved(n, seed):
    """The model with other numbers in all gates; zeros stay."""
    rng = np.random.default_rng(seed)
    keys = [one.key for one in n.model.structure.gates]
    return n.model.with_params(
        {key: n.model.params[key] + rng.normal(size=n.model.params[key].shape) for key in keys}
    )


def test_the_gradient_is_in_the_numbers_of_the_gates(form, step=1e-5):
    """Finite differences of log p; a change of a number is a change of its normalised row."""
    model = moved(Network(9), 1)
    evidence = {"h": [1, 0], "f": [1, np.nan]}
    r = pgm.infer(model, evidence, ("log_z", "gradient"))
    assert r.kind == "exact"
    log_z = lambda m: pgm.infer(m, evidence, ("log_z",)).log_z.sum()  # noqa: E731
    for one in model.structure.gates:
        numbers = model.params[one.key]
        assert r.gradient[one.key].shape == numbers.shape
        for at in zip(*np.nonzero(np.isfinite(numbers)), strict=True):
            change = np.zeros(numbers.shape)
            change[at] = step
            up, down = (log_z(model.with_params({one.key: numbers + s * change})) for s in (1, -1))
            assert np.isclose(r.gradient[one.key][at], (up - down) / (2 * step), atol=1e-6)


def test_other_numbers_give_the_answers_of_their_table(form):
    n = Network(10)
    model = moved(n, 2)
    tables = {one.first_child[0] + str(one.first_child[1]): one for one in model.structure.gates}
    assert len(tables) == 3
    for one in model.structure.gates:
        scope = tuple(
            model.structure.names.of((name, int(unit)))
            for name, unit in zip(one.layers, one.index[0], strict=True)
        )
        n.factors = [(s, np.exp(model.entries_of(one)) if s == scope else t) for s, t in n.factors]
    r = pgm.infer(model, {"h": 1})
    weights = n.conditioned({"h": 1})
    for name in n.names:
        assert np.allclose([*r.marginal(name).values()], n.marginal(weights, name), atol=1e-10)


@pytest.mark.parametrize("optimizer", [None, pgm.LBFGS(), pgm.Adam(0.05)])
def test_every_form_learns_the_same_numbers(form, optimizer, monkeypatch):
    extra("pandas")
    n = Network(11)
    data = pgm.infer(n.model, {}, ("samples",), method=pgm.Exact(draws=50), rng=0).samples_frame()
    data = data.drop(columns=["a", "e"]).astype(float)
    data.loc[::3, "g"] = np.nan
    settings = {"optimizer": optimizer, "updates": 4, "progress": False, "rng": 0}
    found = pgm.fit(n.model, data, **settings).model
    assert found.structure is n.model.structure
    monkeypatch.undo()
    plain = pgm.fit(Network(11).model, data, **settings).model
    assert list(found.params) == list(plain.params)
    for key in found.params:
        assert np.allclose(np.exp(found.params[key]), np.exp(plain.params[key]), atol=1e-7), key
    assert not np.allclose(found.params["e|a,b,c.gate"], n.model.params["e|a,b,c.gate"])


def test_other_temperatures(form):
    """At beta < 1 only the whole table has the power of the conditional."""
    n = Network(12)
    if form == "compact":
        with pytest.raises(PgmError, match="beta must be 1 in a model with a large noisy gate"):
            n.model.given({"h": 1}, beta=0.5)
        return
    r = pgm.Exact().run(n.model.given({"h": 1}, beta=0.5), ("log_z",))
    assert np.allclose(r.log_z, np.log(np.sqrt(n.joint())[..., 1].sum()), atol=1e-10)


def test_models_with_gates_go_to_other_processes(form):
    n = Network(13)
    copy = pickle.loads(pickle.dumps(n.model))
    want = ("marginals", "log_prob")
    first, second = (pgm.infer(m, {"h": 1}, want) for m in (n.model, copy))
    assert np.array_equal(first.log_prob, second.log_prob)


def alarm(parents, make):
    """A child with many parents with two states, all of them with the prior 0.3."""
    b = pgm.GraphBuilder()
    names = [f"x{i}" for i in range(parents)]
    for name in names:
        b.variable(name)
        b.conditional(name, (), [0.7, 0.3])
    b.variable("y", states=make[1])
    b.conditional("y", names, make[0])
    return b.build()


def test_the_cost_grows_linearly_with_the_parents():
    """The tree of a noisy-or of n parents has tables of 8 entries, one for each further parent."""
    for n in (10, 20, 40, 60, 200):
        p = np.linspace(0.1, 0.9, n)
        model = alarm(n, (pgm.noisy_or(p, 0.02), 2))
        r = pgm.infer(model, {"y": 1}, ("marginals", "log_prob"))
        off = 0.98 * np.prod(0.7 + 0.3 * (1 - p))
        assert np.allclose(r.log_prob, np.log1p(-off), rtol=1e-9)
        without = off / (0.7 + 0.3 * (1 - p[3])) * 0.3 * (1 - p[3])
        assert np.isclose(r.marginal("x3")[1], (0.3 - without) / (1 - off), rtol=1e-9)
        assert r.stats["entries"] == 8 * (n - 1) and r.stats["width"] == 3
        r = pgm.infer(model, {f"x{i}": i % 2 for i in range(n)})
        assert np.isclose(r.marginal("y")[0], 0.98 * np.prod(1 - p[1::2]), rtol=1e-9)


def test_a_noisy_max_of_sixty_parents():
    causes = {1: [0.5, 0.3, 0.15, 0.05]}
    for n in (20, 60):
        model = alarm(n, (pgm.noisy_max([causes] * n), 4))
        assert len(model.structure.compact_gates) == (n == 60)
        r = pgm.infer(model, want=("marginals",))
        below = (0.7 + 0.3 * np.cumsum(causes[1])) ** n
        assert np.allclose([*r.marginal("y").values()], np.diff(below, prepend=0), rtol=1e-9)
        # Tables of 4 * 2 * 4 entries, but for the first parent.
        assert r.stats["entries"] <= 32 * n and r.stats["width"] == 5


def test_twenty_parents_are_sampled_as_a_table(errors=6.0):
    model = alarm(20, (pgm.noisy_or([0.3] * 20, 0.02), 2))
    assert not model.structure.compact_gates
    r = pgm.infer(model, {"y": 1}, method=pgm.MCMC(draws=500, warmup=100), rng=0)
    exact = pgm.infer(model, {"y": 1}).marginal("x0")[1]
    found = [r.marginal(f"x{i}")[1] for i in range(20)]
    assert abs(np.mean(found) - exact) < errors * np.max(r.stats["mcse"]["variables2"])

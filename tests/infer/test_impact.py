"""The impact of observations, against sums over all joint states that do not use the package."""

import itertools
import math

import numpy as np
import pytest
from loops import one_test_over

import pgmengine as pgm

STATES = {"a": 2, "b": 3, "c": 3, "d": 2, "e": 2}
PARENTS = {"a": (), "b": (), "c": ("a", "b"), "d": ("c",), "e": ("c", "a")}


def tables(seed, zeros):
    """A table p(child | parents) for each variable, with some entries of 0."""
    rng, out = np.random.default_rng(seed), {}
    for name, parents in PARENTS.items():
        shape = [STATES[p] for p in (*parents, name)]
        values = rng.random(shape) + 0.05
        if zeros:
            values[..., 0] *= rng.random(shape[:-1]) < 0.7
        out[name] = values / values.sum(axis=-1, keepdims=True)
    return out


def network(cpts):
    b = pgm.GraphBuilder()
    for name, count in STATES.items():
        b.variable(name, states=tuple(f"{name}{k}" for k in range(count)))
    for name, parents in PARENTS.items():
        b.conditional(name, parents, cpts[name])
    return b.build()


def weights(cpts, seen, soft, do):
    """Complete state -> its weight under evidence, soft evidence and interventions."""
    for states in itertools.product(*(range(k) for k in STATES.values())):
        x = dict(zip(STATES, states))
        if any(x[n] != k for n, k in {**seen, **do}.items()):
            continue
        weight = 1.0
        for name, parents in PARENTS.items():
            if name not in do:
                weight *= cpts[name][(*(x[p] for p in parents), x[name])]
        yield x, weight * math.prod(likelihood[x[n]] for n, likelihood in soft.items())


def log_odds(cpts, name, seen, soft=(), do=()):
    """The log-odds of each state of a variable, by the definition."""
    mass = np.zeros(STATES[name])
    for x, weight in weights(cpts, seen, dict(soft), dict(do)):
        mass[x[name]] += weight
    with np.errstate(divide="ignore"):
        return np.array([np.log(m) - np.log(np.delete(mass, k).sum()) for k, m in enumerate(mass)])


def difference(after, before):
    """after - before, and 0 for two infinite numbers that are equal."""
    return np.array([0.0 if x == y else x - y for x, y in zip(after, before)])


def possible(cpts, seen, soft, do):
    return sum(weight for _, weight in weights(cpts, seen, soft, do)) > 0


@pytest.mark.parametrize("zeros", [False, True])
@one_test_over("seed", range(6))
def test_contributions_are_changes_of_log_odds(seed, zeros):
    cpts, rng = tables(seed, zeros), np.random.default_rng(100 + seed)
    model, asked = network(cpts), 0
    while asked < 5:
        name, *others = rng.permutation(list(STATES)).tolist()
        seen = {n: int(rng.integers(STATES[n])) for n in others[:2]}
        soft = {others[2]: rng.random(STATES[others[2]]) + 0.1} if rng.random() < 0.5 else {}
        do = {others[3]: int(rng.integers(STATES[others[3]]))} if rng.random() < 0.5 else {}
        if not possible(cpts, seen, soft, do):
            continue
        asked += 1
        named = [{n: f"{n}{k}" for n, k in part.items()} for part in (seen, do)]
        found = pgm.impact(model, named[0], name, soft=pgm.likelihood(soft), do=named[1])
        full = log_odds(cpts, name, seen, soft, do)
        none = log_odds(cpts, name, {}, {}, do)
        assert found.kind == "exact" and found.name == name
        np.testing.assert_allclose([*found.after.values()], full, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose([*found.before.values()], none, rtol=1e-9, atol=1e-9)
        assert {one.name for one in found.contributions} == {*seen, *soft}
        for one in found.contributions:
            fewer = [{n: v for n, v in part.items() if n != one.name} for part in (seen, soft)]
            alone = [{n: v for n, v in part.items() if n == one.name} for part in (seen, soft)]
            without = log_odds(cpts, name, *fewer, do)
            single = log_odds(cpts, name, *alone, do)
            expected = difference(full, without), difference(single, none)
            for numbers, want in zip((one.removed, one.alone), expected):
                assert list(numbers) == [f"{name}{k}" for k in range(STATES[name])]
                np.testing.assert_allclose([*numbers.values()], want, rtol=1e-8, atol=1e-8)
            assert one.value == named[0].get(one.name)
        largest = [max(map(abs, one.removed.values())) for one in found.contributions]
        assert largest == sorted(largest, reverse=True)


def test_a_certain_state_has_infinite_log_odds_and_what_says_it_again_adds_nothing():
    b = pgm.GraphBuilder()
    for name in ("x", "one", "two"):
        b.variable(name, states=("no", "yes"))
    b.conditional("x", (), [0.7, 0.3])
    for sensor in ("one", "two"):
        b.conditional(sensor, ("x",), [[1.0, 0.0], [0.0, 1.0]])
    found = pgm.impact(b.build(), {"one": "yes", "two": "yes"}, "x")
    assert found.after == {"no": -math.inf, "yes": math.inf}
    for one in found.contributions:
        assert one.removed == {"no": 0.0, "yes": 0.0}
        assert one.alone == {"no": -math.inf, "yes": math.inf}
    assert "alone no -inf, yes +inf" in repr(found)


def test_independent_observations_add_up():
    """In naive Bayes, the contributions are the same beside others and alone."""
    rng = np.random.default_rng(3)
    b = pgm.GraphBuilder()
    b.variable("x", states=2)
    b.conditional("x", (), [0.4, 0.6])
    for i in range(4):
        b.variable(f"y{i}", states=3)
        b.conditional(f"y{i}", ("x",), rng.dirichlet(np.ones(3), size=2))
    found = pgm.impact(b.build(), {f"y{i}": i % 3 for i in range(4)}, "x")
    total = sum(one.removed[1] for one in found.contributions)
    assert total == pytest.approx(found.after[1] - found.before[1], abs=1e-9)
    for one in found.contributions:
        assert one.removed[1] == pytest.approx(one.alone[1], abs=1e-9)


def test_units_of_layers_are_observations():
    """Every pixel of a restricted Boltzmann machine, by enumeration of all states."""
    model = pgm.rbm(4, 3, rng=1)
    w, a, c = (np.asarray(model.params[n]) for n in ("v-h.weight", "v.bias", "h.bias"))
    states = np.array(list(itertools.product((0, 1), repeat=7)), dtype=float)
    v, h = states[:, :4], states[:, 4:]
    p = np.exp(v @ a + h @ c + np.einsum("ni,ij,nj->n", v, w, h))

    def odds(seen):
        fits = np.all([v[:, i] == k for i, k in seen.items()], axis=0) | (not seen)
        on = (p * fits)[h[:, 1] == 1].sum()
        return math.log(on / ((p * fits).sum() - on))

    seen = {0: 1, 2: 0, 3: 1}
    found = pgm.impact(model, {"v": [1, math.nan, 0, 1]}, ("h", 1))
    assert len(found.contributions) == 3
    for one in found.contributions:
        unit = int(one.name[2])
        fewer = {i: k for i, k in seen.items() if i != unit}
        assert one.value == seen[unit]
        assert one.removed[1] == pytest.approx(odds(seen) - odds(fewer), abs=1e-9)
        assert one.alone[1] == pytest.approx(odds({unit: seen[unit]}) - odds({}), abs=1e-9)


def test_nothing_observed_has_no_contributions():
    found = pgm.impact(network(tables(0, False)), None, "a")
    assert found.contributions == () and found.before == found.after


def test_the_displays_name_observations_and_escape_them():
    b = pgm.GraphBuilder()
    b.variable("<b>x", states=("no", "yes"))
    b.variable("y", states=("<i>", "&"))
    b.conditional("<b>x", (), [0.7, 0.3])
    b.conditional("y", ("<b>x",), [[0.9, 0.1], [0.2, 0.8]])
    found = pgm.impact(b.build(), {"y": "&"}, "<b>x", soft={"<b>x": [0.0, 1.0]})
    assert "y=&: no -2.08, yes +2.08" in repr(found)
    assert "soft evidence on <b>x: no -1, yes +1" in repr(found)
    page = found._repr_html_()
    assert "&lt;b&gt;x" in page and "<b>x" not in page and "y=&amp;" in page


@one_test_over(
    ("evidence", "name", "said"),
    [
        ({"a": ["a0", "a1"]}, "c", "one row of evidence without an axis of rows"),
        ({"c": "c0"}, "c", "'c' is given, so that no observation changes"),
        ({"a": "a0"}, "f", "'f' is no variable"),
    ],
)
def test_unusable_questions_are_refused(evidence, name, said):
    with pytest.raises(pgm.PgmError, match=said):
        pgm.impact(network(tables(0, False)), evidence, name)


def test_impossible_evidence_is_refused():
    b = pgm.GraphBuilder()
    b.variable("x", states=2)
    b.variable("y", states=2)
    b.variable("z", states=2)
    b.conditional("x", (), [0.5, 0.5])
    b.conditional("y", ("x",), [[1.0, 0.0], [0.0, 1.0]])
    b.conditional("z", ("x",), [[1.0, 0.0], [0.0, 1.0]])
    with pytest.raises(pgm.PgmError, match="probability zero"):
        pgm.impact(b.build(), {"y": 0, "z": 1}, "x")

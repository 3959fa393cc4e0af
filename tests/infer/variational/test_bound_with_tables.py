"""The mean-field bound of models with tables, against its formulas and enumeration."""

import dataclasses

import numpy as np
import pytest
from bound_oracle import bound, bounds, q_of
from brute import Brute, grid, log_sum
from loops import one_test_over
from test_directed_bound import CONVERGED, ask, move, soft_of
from tiny import TABLED, as_evidence, draw_row, patterns, without_fixed_biases

import pgmengine as pgm

NAN = np.nan
FINITE = [m for m in TABLED if all(x.unit.support is not None for x in m.layers)]
each = one_test_over("m", FINITE)


@each
def test_log_z_is_the_bound_at_its_own_q_and_below_enumeration(m, rtol=1e-8, slack=1e-9):
    rows = patterns(m)
    found = ask(m, rows)
    assert found.status.good and found.kind == "lower bound"
    np.testing.assert_allclose(found.log_z, bounds(m, rows, found), rtol=rtol, atol=rtol)
    exact = np.array([Brute(m, row).log_z for row in rows])
    assert np.all(found.log_z <= exact + slack * (1 + np.abs(exact)))
    complete = 4
    np.testing.assert_allclose(found.log_z[complete], exact[complete], rtol=rtol, atol=rtol)
    for p in found.prob.values():
        np.testing.assert_allclose(p.sum(axis=-1), 1.0, rtol=1e-12)


def cut_of(m, rows, rng):
    """do() on every second unit with a conditional, and the rows without evidence there."""
    full = draw_row(m, rng, 1.0)
    children = [scope[-1] for scope, _, conditional in m.tables if conditional][::2]
    do = {x.name: [v if (x.name, i) in children else None for i, v in enumerate(full[x.name])]
          for x in m.layers}  # fmt: skip
    rest = [
        {n: [None if (n, i) in children else v for i, v in enumerate(row[n])] for n in row}
        for row in rows
    ]
    return do, rest


@each
@pytest.mark.parametrize("with_do", [False, True], ids=["soft", "soft and do"])
def test_soft_evidence_and_do(m, with_do, rtol=1e-8, slack=1e-9):
    rng, rows, do = np.random.default_rng(1), patterns(m), {}
    given, listed = soft_of(m, rng)
    if with_do:
        do, rows = cut_of(m, rows, rng)
    blank = [{x.name: do.get(x.name, [None] * x.size) for x in m.layers}]
    cut = {n: v[0] for n, v in as_evidence(m, blank).items() if not np.isnan(v).all()}
    found = ask(m, rows, soft=given, do=cut)
    exact = np.array([Brute(m, row, soft=listed, do=do).log_z for row in rows])
    # do() may have made the evidence impossible.
    possible = np.isfinite(exact)
    assert possible.sum() > len(rows) // 2
    expected = bounds(m, rows, found, soft=listed, do=do)
    np.testing.assert_allclose(found.log_z[possible], expected[possible], rtol=rtol, atol=rtol)
    below = found.log_z[possible] <= (exact + slack * (1 + np.abs(exact)))[possible]
    assert below.all() and np.all(np.isneginf(found.log_z[~possible]))


@each
def test_the_bound_never_decreases(m, slack=1e-10):
    rows, before = patterns(m), -np.inf
    for n in range(1, 7):
        now = ask(m, rows, pgm.MeanField(updates=n, tolerance=0)).log_z
        assert np.all(np.isfinite(now)) and np.all(before <= now + slack * (1 + np.abs(now)))
        before = now


@each
def test_no_small_move_of_q_raises_the_bound(m, slack=1e-9, step=1e-3):
    rng, rows = np.random.default_rng(0), patterns(m)
    found = ask(m, rows, CONVERGED)
    for i, row in enumerate(rows):
        q = q_of(found, i)
        best = bound(m, row, q)
        for kind in range(6):
            moved = {name: move(p, rng, step, kind) for name, p in q.items()}
            assert bound(m, row, moved) <= best + slack * (1 + abs(best)), (i, kind)


@each
def test_gradient_is_that_of_the_bound_at_q(m, step=1e-5, rtol=1e-5, atol=2e-5):
    """Central differences of the formulas at the same Q, in a random direction of each parameter.

    xi of children of arrows is at its minimum there.
    """
    rng, rows = np.random.default_rng(3), patterns(m)
    found = ask(m, rows, CONVERGED)
    model = m.build()
    for name in model.params:
        direction = rng.normal(size=model.params[name].shape)
        ends = [
            sum(bound(moved(m, name, sign * step * direction), row, q_of(found, i))
                for i, row in enumerate(rows))
            for sign in (1, -1)
        ]  # fmt: skip
        mine = (
            np.asarray(found.gradient[name]) * without_fixed_biases(model, name, direction)
        ).sum()
        np.testing.assert_allclose(mine, (ends[0] - ends[1]) / (2 * step), rtol=rtol, atol=atol)


def moved(m, name, change):
    """The tiny model with a parameter moved; rows of conditionals are normalised again."""
    if name.endswith(".bias"):
        change = without_fixed_biases(m.build(), name, change)
        layers = [
            dataclasses.replace(x, bias=x.bias + change) if x.name == name[:-5] else x
            for x in m.layers
        ]
        return dataclasses.replace(m, layers=tuple(layers))
    if name.endswith(".weight"):
        links = {}
        for kind, mark in (("undirected", "-"), ("directed", "->")):
            links[kind] = tuple(
                (a, b, w + change if f"{a}{mark}{b}.weight" == name else w)
                for a, b, w in getattr(m, kind)
            )
        return dataclasses.replace(m, **links)
    keys = [t.key for t in m.build().structure.tables]
    out = []
    for key, (scope, values, conditional) in zip(keys, m.tables, strict=True):
        if key == name:
            values = values * np.exp(change.reshape(values.shape))
            if conditional:
                values = values / values.sum(axis=-1, keepdims=True)
        out.append((scope, values, conditional))
    return dataclasses.replace(m, tables=tuple(out))


@pytest.mark.parametrize("name", ["network", "network zeros"])
def test_nothing_observed_is_exact_in_log_z_and_passes_probabilities_on(name, atol=1e-12):
    """Every unit is barren: log Z is 0, and q(child) the expectation under its parents' q."""
    m = next(m for m in TABLED if m.name == name)
    found = ask(m, [{x.name: [None] * x.size for x in m.layers}])
    np.testing.assert_allclose(found.log_z, 0.0, atol=atol)
    for value in found.gradient.values():
        np.testing.assert_allclose(value, 0.0, atol=atol)
    q = {(n, i): p[0, i] for n, p in found.prob.items() for i in range(p.shape[1])}
    for scope, values, _ in m.tables:
        expected = values
        for parent in scope[:-1]:
            expected = np.tensordot(q[parent], expected, axes=1)
        np.testing.assert_allclose(q[scope[-1]], expected, atol=atol)


def test_rows_of_several_patterns_and_do_at_once(rtol=1e-8):
    m = next(m for m in TABLED if m.name == "network")
    rng = np.random.default_rng(4)
    rows = [draw_row(m, rng, share) for share in rng.choice([0.0, 0.3, 0.7], size=20)]
    together = ask(m, rows, CONVERGED)
    alone = np.array([ask(m, [row], CONVERGED).log_z[0] for row in rows])
    np.testing.assert_allclose(together.log_z, bounds(m, rows, together), rtol=rtol, atol=rtol)
    exact = np.array([Brute(m, row).log_z for row in rows])
    assert np.all(alone <= exact + 1e-9) and np.all(together.log_z <= exact + 1e-9)


@each
def test_along_the_tempering_path(m, slack=1e-9):
    row = draw_row(m, np.random.default_rng(2), 0.4)
    betas = np.array([0.0, 0.37, 1.0])
    target = m.build().given(as_evidence(m, [row] * 3)).at(betas)
    found = CONVERGED.run(target, ("log_z",)).log_z
    for beta, one in zip(betas, found):
        exact = Brute(m, row, beta=beta).log_z
        assert one <= exact + slack * (1 + abs(exact))
    np.testing.assert_allclose(found[0], Brute(m, row, beta=0.0).log_z, rtol=1e-9, atol=1e-9)


def parity(units, total):
    """A chain of exclusive ors: s_i = s_(i-1) xor x_i, with s_last observed to be `total`."""
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Binary(), units)
    b.layer("s", pgm.Binary(), units)
    flip = np.zeros((2, 2, 2))
    for i, j in np.ndindex(2, 2):
        flip[i, j, i ^ j] = 1.0
    b.conditional(("s", 0), (("x", 0),), np.eye(2))
    for i in range(1, units):
        b.conditional(("s", i), (("s", i - 1), ("x", i)), flip)
    seen = np.full(units, np.nan)
    seen[-1] = total
    return b.build(), {"s": seen}


@pytest.mark.parametrize("total", [0, 1])
def test_a_possible_state_is_found_behind_parities(total, units=12):
    model, evidence = parity(units, total)
    found = pgm.infer(model, evidence, want=("log_z", "marginals"), method=pgm.MeanField(), rng=0)
    exact = pgm.infer(model, evidence, want=("log_z",)).log_z
    assert found.status.good and np.isfinite(found.log_z[0])
    assert found.log_z[0] <= exact[0] + 1e-9
    # Q lies on one state of each parity: all x but one may vary at the price of the others.
    assert found.log_z[0] >= -units * np.log(2) * 2


def test_evidence_that_cannot_be_has_the_trivial_bound_and_names_the_table():
    b = pgm.GraphBuilder()
    b.variable("a")
    b.variable("b")
    b.variable("c")
    b.table(("a", "b"), [[1.0, 0.0], [0.0, 1.0]])
    b.table(("b", "c"), [[1.0, 0.0], [0.0, 1.0]])
    r = pgm.infer(b.build(), {"a": [0, 0], "c": [0, 1]}, want=("log_z",), method=pgm.MeanField())
    np.testing.assert_allclose(r.log_z, [0.0, -np.inf])
    assert r.status is pgm.Status.IMPOSSIBLE and not r.status.good
    assert "row 1" in r.warnings[0] and ".table" in r.warnings[0]
    target = b.build().given({"a": [0], "c": [1]})
    with pytest.raises(pgm.PgmError, match="row 0: no possible state"):
        pgm.MeanField().expect(target, np.ones(1), None)


def beside(m, row, prob):
    """The bound at tables prob (3, 2) of the units h, with the best factor of the Gaussian v.

    It is E[log T] + H + b E[h] + log of the integral of h(v) exp(v (b_v + J E[h])).
    """
    h, v = m.layers[1], m.layers[0]
    prob = np.array([p if x is None else np.eye(2)[int(x)]
                     for p, x in zip(prob, row["h"], strict=True)])  # fmt: skip
    mean = prob[:, 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.nansum(prob * np.log(prob))
    total = entropy + mean @ np.ravel(h.bias)
    for (a, b), values, _ in m.tables:
        total += prob[a[1]] @ np.log(values) @ prob[b[1]]
    ((_, _, weight),) = m.undirected
    eta = np.ravel(v.bias)[0] + weight[0] @ mean
    values, base = grid(v.unit)
    if row["v"][0] is not None:
        at = row["v"][0]
        return total + at * eta - at**2 / (2 * 0.7**2) - np.log(0.7 * np.sqrt(2 * np.pi))
    return total + log_sum(base + values.ravel() * eta)


def test_free_gaussian_units_beside_tables(rtol=1e-8, slack=1e-9):
    """The bound is its formula, below the exact value, and no change of the tables improves it."""
    m = next(m for m in TABLED if m.name == "tables beside gaussian")
    rows = patterns(m)
    found = ask(m, rows)
    assert found.status.good
    expected = [beside(m, row, found.prob["h"][i]) for i, row in enumerate(rows)]
    np.testing.assert_allclose(found.log_z, expected, rtol=rtol)
    exact = np.array([Brute(m, row).log_z for row in rows])
    assert np.all(found.log_z <= exact + slack * (1 + np.abs(exact)))
    rng = np.random.default_rng(0)
    for i, row in enumerate(rows):
        for _ in range(20):
            logs = np.log(np.clip(found.prob["h"][i], 1e-12, 1)) + rng.normal(0, 0.02, (3, 2))
            near = np.exp(logs) / np.exp(logs).sum(axis=1, keepdims=True)
            assert beside(m, row, near) <= found.log_z[i] + slack
    again = CONVERGED.run(m.build().given(as_evidence(m, rows)), ("log_z",), state=found.state)
    np.testing.assert_allclose(again.log_z, found.log_z, rtol=rtol)


def infinite_units():
    """Tables of h, Gaussian units g, and units x on an interval that are coupled with all."""
    b = pgm.GraphBuilder()
    b.layer("h", pgm.Spin(), 3, bias=np.array([0.3, -0.5, 0.1]))
    b.layer("g", pgm.Gaussian(0.6), 2, bias=np.array([0.4, -0.2]))
    b.layer("x", pgm.MultiValued(np.inf), 2)
    b.tables(("h", "h"), [[0, 1], [1, 2]], np.tile([[3.0, 1.0], [1.0, 2.0]], (2, 1, 1)))
    b.couple("x", "x", weight=np.array([[0.0, 0.8], [0.8, 0.0]]))
    b.couple("h", "g", weight=np.array([[0.5, -0.7], [0.2, 0.3], [-0.4, 0.9]]))
    b.couple("x", "g", weight=np.array([[0.6, 0.0], [-0.3, 0.4]]))
    return b.build()


INFINITE = {"g": [[NAN, NAN], [0.5, NAN]], "h": [[NAN, NAN, NAN], [NAN, 1, NAN]]}


def test_coupled_infinite_units_beside_tables(slack=1e-9, digits=1e-6):
    """The bound rises with every round, and at beta = 0 it is log Z of independent units."""
    target = infinite_units().given(INFINITE)
    bounds, state, once = [], None, dataclasses.replace(CONVERGED, updates=1)
    for _ in range(12):
        found = once.run(target, ("log_z",), state=state)
        bounds.append(found.log_z)
        state = found.state
    assert np.all(np.diff(bounds, axis=0) >= -slack) and np.ptp(bounds, axis=0).min() > 0.001
    # From other starts the rounds may end at other fixed points.
    best = dataclasses.replace(CONVERGED, restarts=5).run(target, ("log_z",), rng=0).log_z
    assert np.all(best >= bounds[-1] - 1e-6)
    cold = target.at(0.0, {"g": [0.3, 0.1], "h": [0.1, 0.2, 0.3], "x": [0.5, -2.0]})
    np.testing.assert_allclose(
        CONVERGED.run(cold, ("log_z",)).log_z, cold.log_z_at_0(), rtol=digits
    )


@one_test_over(
    "key, places", [("g.bias", [(0,)]), ("h-g.weight", [(0, 1)]), ("x-x.weight", [(0, 1), (1, 0)])]
)
def test_slopes_beside_infinite_units(key, places, step=1e-4, rtol=1e-5):
    model = infinite_units()
    ends = []
    for sign in (-1, 1):
        changed = np.array(model.params[key])
        for at in places:
            changed[at] += sign * step
        other = model.with_params(dict(model.params) | {key: changed})
        ends.append(CONVERGED.run(other.given(INFINITE), ("log_z",)).log_z.sum())
    # Two entries across the diagonal are one parameter.
    slope = CONVERGED.run(model.given(INFINITE), ("gradient",)).gradient[key]
    expected = np.asarray(slope)[places[0]]
    np.testing.assert_allclose((ends[1] - ends[0]) / (2 * step), expected, rtol=rtol)


def test_a_snapshot_goes_on(atol=1e-9):
    m = next(m for m in TABLED if m.name == "network zeros")
    target = m.build().given(as_evidence(m, patterns(m)))
    first = CONVERGED.run(target, ("log_z",))
    again = CONVERGED.run(target, ("log_z",), state=first.state)
    np.testing.assert_allclose(first.log_z, again.log_z, atol=atol)
    assert again.stats["rounds"] <= 2


def test_many_tables_are_arrays(count=20_000):
    """A chain of 20,000 tables, half of its units observed: given these the others are
    independent.
    """
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Binary(), count + 1)
    index = np.arange(count)[:, None] + [0, 1]
    values = np.random.default_rng(0).random((count, 2, 2)) + 0.1
    b.tables(("x", "x"), index, values)
    model, seen = b.build(), np.full(count + 1, np.nan)
    seen[::2] = np.random.default_rng(1).integers(0, 2, len(seen[::2]))
    found = pgm.infer(model, {"x": seen}, want=("log_z",), method=pgm.MeanField())
    exact = pgm.infer(model, {"x": seen}, want=("log_z",), method=pgm.Elimination())
    np.testing.assert_allclose(found.log_z, exact.log_z, rtol=1e-9)
    free = pgm.infer(model, want=("log_z",), method=pgm.MeanField())
    assert free.log_z[0] < pgm.infer(model, want=("log_z",), method=pgm.Elimination()).log_z[0]


def test_free_gaussian_units_beside_parents_of_arrows(slack=1e-9):
    """It is a bound, and near the exact value where couplings are weak."""
    for weight in ([[0.0], [0.0]], [[0.7], [-0.4]]):
        b = pgm.GraphBuilder()
        b.layer("h", pgm.Binary(), 2, bias=np.array([0.2, -0.3]))
        b.layer("g", pgm.Gaussian(0.8), 1, bias=np.array([0.5]))
        b.layer("v", pgm.Binary(), 2)
        b.couple("h", "g", weight=np.array(weight))
        b.cause("h", "v", weight=np.array([[1.0, -0.5], [0.3, 0.8]]))
        model, evidence = b.build(), {"v": [[1, 0], [1, 1]]}
        found = pgm.infer(model, evidence, ("log_z", "marginals"), method=CONVERGED)
        exact = pgm.infer(model, evidence, ("log_z", "marginals"), method=pgm.Exact())
        assert np.all(found.log_z <= exact.log_z + slack)
        np.testing.assert_allclose(found.log_z, exact.log_z, atol=0.1)
        np.testing.assert_allclose(found.mean["g"], exact.mean["g"], atol=0.05)

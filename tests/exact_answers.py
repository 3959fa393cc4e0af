"""Answers to a question of mixed_questions.py by enumeration, and comparisons with them.

Gradients are expectations of scores, written from the formulas of the design: x - E[x | z] of a
child with the input z, x of other units, and indicators of table entries, less the total of their
row times the probability in a conditional. Of a noisy-or unit with the input z, d p(1 | z) / dz is
e^-z also at z = 0, where the state is impossible:

    d log Z / dz = (sum over states with x = 1 of all other factors times e^-z) / Z - p(x = 0)
"""

from __future__ import annotations

import numpy as np
from brute import grid
from mixed_questions import states_of
from random_graphs import Oracle
from scipy.special import softmax
from scipy.stats import chi2

import pgmengine as pgm

EXACT = {"rtol": 1e-9, "atol": 1e-9}
# A gradient at a leak of 0 is a forward difference with a step of 1e-9 in walks over states.
LIFTED = {"rtol": 1e-5, "atol": 1e-5}
# The probability that a right sampler fails the test of one row.
FALSE_ALARM = 1e-9


def gradient(question, index, weights=None):
    """Parameter -> its part of the gradient, summed over some rows times their weights.

    Parameters of variables and of many tables in one declaration are left out.
    """
    total, known = {}, {}
    for i, weight in zip(index, np.ones(len(index)) if weights is None else weights):
        row = question.rows[i]
        if id(row) not in known:
            known[id(row)] = _of_row(question.graph, row, question.oracles[i])
        for name, value in known[id(row)].items():
            total[name] = total.get(name, 0.0) + weight * value
    return total


def _of_row(graph, row, oracle):
    out, directed = {}, oracle._directed()
    moments = {name: oracle.flat(name) * oracle.p[:, None] for name in graph.layers}
    children = [n for n, x in graph.layers.items() if not isinstance(x.unit, pgm.Input)]
    scores = {n: _scores(graph, row, oracle, n) for n in children if n in directed}
    own = {t.scope[-1] for t in graph.tables if t.conditional}
    for name, x in graph.layers.items():
        if x.named or isinstance(x.unit, pgm.Input):
            continue
        found = scores[name][0] if name in directed else moments[name].sum(axis=0)
        has_table = np.repeat([(name, i) in own for i in range(x.size)], x.width)
        shape = (x.size, x.width) if x.width > 1 else (x.size,)
        out[f"{name}.bias"] = np.where(has_table, 0.0, found).reshape(shape)
    for a, b, weight in graph.couples:
        found = moments[a].T @ oracle.flat(b)
        if a == b:
            unit = np.arange(len(weight)) // graph.layers[a].width
            found = np.where(unit[:, None] == unit, 0.0, found)
        out[f"{a}-{b}.weight"] = found * (weight != 0) if graph.sparse else found
    for a, b, weight in graph.causes:
        found = scores[b][1][a]
        out[f"{a}->{b}.weight"] = found * (weight != 0) if graph.sparse or a == b else found
    for t in graph.tables:
        if t.many is None:
            counts = oracle.joint(*t.scope)
            if t.conditional:
                counts = counts - counts.sum(axis=-1, keepdims=True) * t.values
                counts = counts * (t.scope[-1] not in row.do)
            out[f"{_table_name(graph, t)}.table"] = counts
    return out


def _table_name(graph, table):
    *others, last = (u[0] if graph.layers[u[0]].named else f"{u[0]}[{u[1]}]" for u in table.scope)
    return f"{last}|{','.join(others)}" if table.conditional else ",".join([*others, last])


def _scores(graph, row, oracle, name):
    """E[score] (width,) of a layer, and of each parent layer E[x_parent score'] (width, width)."""
    x = graph.layers[name]
    parents = [a for a, b, _ in graph.causes if b == name]
    total = np.zeros(x.size * x.width)
    joint = {a: np.zeros((oracle.flat(a).shape[1], len(total))) for a in parents}
    for i in range(x.size):
        place = (name, i)
        if place in row.do:
            continue
        columns = slice(i * x.width, (i + 1) * x.width)
        for states, weighted in _weighted_scores(graph, row, oracle, place):
            total[columns] += weighted.sum(axis=0)
            for a in parents:
                joint[a][:, columns] += states.flat(a).T @ weighted
    return total, joint


def _input(graph, oracle, place):
    """The input (states, width) of a unit in all states."""
    x = graph.layers[place[0]]
    z = np.zeros((oracle.index.shape[1], x.size * x.width)) + np.ravel(x.bias)
    for a, b, weight in graph.causes:
        if b == x.name:
            z = z + oracle.flat(a) @ weight
    return z[:, place[1] * x.width : (place[1] + 1) * x.width]


def _weighted_scores(graph, row, oracle, place):
    """Pairs of an oracle and p(state) times the score (states, width) of a unit."""
    unit = graph.layers[place[0]].unit
    z, x, p = _input(graph, oracle, place), oracle.x[place], oracle.p[:, None]
    if isinstance(unit, pgm.Gaussian):
        yield oracle, p * (x - unit.sigma**2 * z)
        return
    if not isinstance(unit, pgm.NoisyOr):
        values, log_h = grid(unit)
        yield oracle, p * (x - softmax(z @ values.T + log_h, axis=1) @ values)
        return
    yield oracle, -p * (x == 0)
    if row.evidence.get(place) == 0:
        return
    evidence = {u: s for u, s in row.evidence.items() if u != place}
    # do() takes the conditional of the unit away.
    others = Oracle(graph, evidence, row.soft, {**row.do, place: 1})
    steep = np.exp(others.log_weight - oracle.log_z)[:, None]
    yield others, steep * np.exp(-_input(graph, others, place))


def close(found, right, what, bound=EXACT):
    """Fail with the name of a quantity where it is wrong, or is not there."""
    found = found.toarray() if hasattr(found, "toarray") else np.asarray(found)
    right = right.toarray() if hasattr(right, "toarray") else np.asarray(right)
    np.testing.assert_allclose(found, right, err_msg=what, **bound)


def check_rows(question, index, r, what):
    """Compare all quantities that a result has for some rows with the enumeration of each."""
    graph, oracles = question.graph, [question.oracles[i] for i in index]
    found = r.answers
    if "log_z" in found:
        close(r.log_z, [o.log_z for o in oracles], f"log_z {what}")
    if "log_prob" in found:
        right = [o.log_z for o in oracles] - question.priors[list(index)]
        close(r.log_prob, right, f"log_prob {what}")
    if "mean" in found:
        _check_marginals(graph, oracles, r, what)
    for a, b, _ in graph.couples if "pairs" in found else ():
        pairs = r.pairs[f"{a}-{b}"]
        for row, oracle in enumerate(oracles):
            # Entries without a parameter are NaN.
            stored = _stored(graph, a, b)
            right = np.where(stored, oracle.pairs(a, b), np.nan)
            close(pairs[row], right, f"pairs {a}-{b} of row {row} {what}")
    for units in found.get("joint", ()):
        places = [u if isinstance(u, tuple) else (u, 0) for u in units]
        for row, oracle in enumerate(oracles):
            close(r.joint[units][row], oracle.joint(*places), f"joint {units} of row {row} {what}")
    if "mode" in found and graph.finite:
        for row, oracle in enumerate(oracles):
            best = {n: r.mode[n][row] for n in graph.layers}
            most = oracle.log_weight.max()
            close(oracle.log_weight_of(best), most, f"mode of row {row} {what}")
    if "samples" in found and graph.finite:
        for row, oracle in enumerate(oracles):
            _check_samples(graph, oracle, {n: r.samples[n][:, row] for n in graph.layers}, what)


def _stored(graph, a, b):
    weight = next(w for one, two, w in graph.couples if (one, two) == (a, b))
    if graph.sparse:
        return (weight != 0) | (weight.T != 0) if a == b else weight != 0
    return ~np.eye(len(weight), dtype=bool) if a == b else np.ones(weight.shape, dtype=bool)


def shown_mean(graph, oracle, name):
    """`Result.mean` under a name: means of a layer, probabilities of the states of a variable."""
    return oracle.prob((name, 0)) if graph.layers[name].named else oracle.mean(name)


def _check_marginals(graph, oracles, r, what):
    for name, x in graph.layers.items():
        for row, oracle in enumerate(oracles):
            where = f"of {name}, row {row}, {what}"
            close(np.ravel(r.mean[name][row]), shown_mean(graph, oracle, name), f"mean {where}")
            if x.unit.support is not None:
                right = [oracle.prob((name, i)) for i in range(x.size)]
                close(r.prob[name][row], right, f"prob {where}")


def check_gradient(question, index, r, what, bound=EXACT):
    """Compare a gradient, summed over some rows, with the scores."""
    for name, right in gradient(question, index).items():
        close(r.gradient[name], right, f"gradient of {name} {what}", bound)


def _check_samples(graph, oracle, samples, what):
    """Pearson's statistic of the joint states of a row, with states below 5 draws together."""
    number, drawn, known = 1, 0, 0
    for k, (name, i) in enumerate(graph.units):
        x = graph.layers[name]
        values, _ = grid(x.unit)
        mine = samples[name].reshape(len(samples[name]), x.size, x.width)[:, i]
        gap = np.abs(mine[:, None] - values[None]).max(axis=2)
        assert (gap.min(axis=1) < 1e-12).all(), f"samples {what}: no value of {name}"
        drawn, known = drawn + number * gap.argmin(axis=1), known + number * oracle.index[k]
        number *= states_of(graph, (name, i))
    p = np.zeros(number)
    p[known] = oracle.p
    counts = np.bincount(drawn, minlength=number)
    assert not counts[p == 0].any(), f"samples {what}: an impossible state"
    few = p * counts.sum() < 5
    expected = np.append(p[~few], p[few].sum()) * counts.sum()
    seen = np.append(counts[~few], counts[few].sum())
    if few.any() and expected[-1] < 5:
        # Too rare together for the statistic: they join the state that comes next.
        place = int(expected[:-1].argmin())
        expected[place], seen[place] = expected[place] + expected[-1], seen[place] + seen[-1]
        expected, seen = expected[:-1], seen[:-1]
    keep = expected > 0
    value = ((seen[keep] - expected[keep]) ** 2 / expected[keep]).sum()
    limit = chi2.isf(FALSE_ALARM, max(int(keep.sum()) - 1, 1))
    assert value < limit, f"samples {what}: chi-square {value:.4g}, the limit is {limit:.4g}"

"""Hidden classes: mixtures of real columns, mixed columns, annotators, and a test of skills.

The peers in numpy are EM as one writes it for one model: no names, no checks, no priors, and a
fixed number of iterations. They leave missing cells out of the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np

import pgmengine as pgm
from calls import OURS, Answer, Array, Call, Given, log_p, spent, with_holes

STARTS, ITERATIONS = 12, 100
# Nats by which a fit may end below a peer: one local maximum is not better than another one.
MARGIN = 1.0
LOG_2_PI = np.log(2 * np.pi)


def calls(given: Given) -> Iterator[Call]:
    """Yield the calls."""
    yield mixture("mixture of 3 normal classes, 178x6", given.size(178, 40), 6, 0.2)
    yield mixture("mixture of 3 normal classes, 1,500x4", given.size(1500, 60), 4, 0.0)
    yield mixture("mixture of 3 normal classes, 1,500x4", given.size(1500, 60), 4, 0.2)
    yield mixed_columns(given)
    yield annotators(given)
    yield from skills(given)


def drawn_mixture(rows: int, columns: int, classes: int = 3) -> Array:
    """Return standardised rows of a mixture."""
    rng = np.random.default_rng(0)
    centre = rng.normal(0, 1.5, (classes, columns))
    x = rng.normal(centre[rng.integers(classes, size=rows)], 0.6)
    return (x - x.mean(0)) / x.std(0)


def mixture(name: str, rows: int, columns: int, share: float, classes: int = 3) -> Call:
    """Return the call of a mixture of independent normal columns, with a share of empty cells."""
    complete = drawn_mixture(rows, columns)
    x = with_holes(complete, share, seed=1)

    def ours() -> Answer:
        b = pgm.GraphBuilder()
        b.variable("class", states=classes)
        layer = b.layer("x", pgm.Normal(), columns)
        b.conditional("class", (), np.full(classes, 1 / classes))
        b.cause("class", layer, np.zeros((columns, classes, 2)), name="emission")
        model = b.build()
        seconds, fit = spent(lambda: pgm.fit(model, {"x": x}, rng=0, progress=False))
        return Answer(seconds, log_p(fit, {"x": x}), note=updates(fit))

    cases = {OURS: ours, "numpy": lambda: best_of_starts(lambda rng: normal_em(x, classes, rng))}
    over = {"numpy": 1 / 3}
    if share == 0.0:
        cases["scikit-learn"] = lambda: gaussian_mixture(x, classes)
        over = {"scikit-learn": 1.0}
    elif rows > 1000:
        # Complete rows are another problem, so that only the time is compared.
        whole = "scikit-learn, complete rows"
        cases[whole] = lambda: Answer(gaussian_mixture(complete, classes).seconds)
        over = {whole: 0.5}
    kind = "complete" if share == 0.0 else f"{share:.0%} of the cells empty"
    return Call(f"{name}, {kind}", cases, "log p", 1, MARGIN, over)


def updates(fit: pgm.Fit) -> str:
    """Return the number of updates in words."""
    return f"{int(fit.state['update'])} updates"


def gaussian_mixture(x: Array, classes: int) -> Answer:
    """Return the answer of scikit-learn from as many starts."""
    from sklearn.mixture import GaussianMixture

    model = GaussianMixture(classes, covariance_type="diag", n_init=STARTS, random_state=0)
    seconds, _ = spent(lambda: model.fit(x))
    return Answer(seconds, float(model.score(x) * len(x)), note=f"{STARTS} starts")


def best_of_starts(em: Callable[[np.random.Generator], float]) -> Answer:
    """Return the best log-likelihood of STARTS runs."""
    seconds, best = spent(lambda: max(em(np.random.default_rng(s)) for s in range(STARTS)))
    return Answer(seconds, float(best), note=f"{STARTS} starts of {ITERATIONS} iterations")


def normal_em(
    x: Array, classes: int, rng: np.random.Generator, labels: tuple[Array, ...] = ()
) -> float:
    """Return log p after EM of a mixture of normal columns, and of columns of states if any.

    labels: for each such column, one-hot rows, with zeros where the cell is empty.
    """
    seen, x = ~np.isnan(x), np.nan_to_num(x)
    mean, sd = rng.normal(size=(classes, x.shape[1])), np.ones((classes, x.shape[1]))
    tables = [rng.dirichlet(np.ones(one.shape[1]), classes) for one in labels]
    share, log_sum = np.full(classes, 1 / classes), np.zeros(1)
    for _ in range(ITERATIONS):
        each = -0.5 * (((x[:, None] - mean) / sd) ** 2 + LOG_2_PI) - np.log(sd)
        log_p = np.log(share) + (seen[:, None] * each).sum(axis=2)
        for one, table in zip(labels, tables, strict=True):
            log_p += one @ np.log(table).T
        log_sum = np.logaddexp.reduce(log_p, axis=1, keepdims=True)
        weight = np.exp(log_p - log_sum)
        count = weight.T @ seen + 1e-12
        mean = weight.T @ x / count
        sd = np.sqrt(np.maximum(weight.T @ x**2 / count - mean**2, 1e-6))
        tables = [weight.T @ one + 1e-3 for one in labels]
        tables = [table / table.sum(axis=1, keepdims=True) for table in tables]
        share = weight.mean(axis=0)
    return float(log_sum.sum())


def mixed_columns(given: Given, classes: int = 6, kinds: int = 3) -> Call:
    """Return the call of a hidden class of six columns of numbers and two of states."""
    rng, rows = np.random.default_rng(2), given.size(178, 30)
    group = rng.integers(classes, size=rows)
    x = rng.normal(rng.normal(0, 1.5, (classes, 6))[group], 0.6)
    x = with_holes((x - x.mean(0)) / x.std(0), 0.2, seed=3)
    likely = rng.dirichlet(np.full(kinds, 0.5), (2, classes))
    states = np.stack([[rng.choice(kinds, p=p) for p in one[group]] for one in likely], axis=1)
    states = with_holes(states.astype(float), 0.2, seed=4)
    one_hot = tuple((states[:, i, None] == np.arange(kinds)).astype(float) for i in (0, 1))

    def ours() -> Answer:
        b = pgm.GraphBuilder()
        b.variable("class", states=classes)
        b.conditional("class", (), np.full(classes, 1 / classes))
        layer = b.layer("x", pgm.Normal(), 6)
        b.cause("class", layer, np.zeros((6, classes, 2)), name="emission")
        for i in (0, 1):
            b.variable(f"s{i}", states=kinds)
            b.conditional(f"s{i}", ("class",), np.full((classes, kinds), 1 / kinds))
        data = {"x": x, "s0": states[:, 0], "s1": states[:, 1]}
        model = b.build()
        seconds, fit = spent(lambda: pgm.fit(model, data, rng=0, progress=False))
        return Answer(seconds, log_p(fit, data), note=updates(fit))

    name = "6 normal columns and 2 of states, 178 rows, hidden class of 6, 20% of the cells empty"
    numpy = lambda: best_of_starts(lambda rng: normal_em(x, classes, rng, one_hot))  # noqa: E731
    return Call(name, {OURS: ours, "numpy": numpy}, "log p", 1, MARGIN, limit=1.0)


def annotators(given: Given) -> Call:
    """Return the call of Dawid and Skene (1979): the labels of people who err in their own ways."""
    items, people, kinds = given.size(1000, 60), 12, 5
    rng = np.random.default_rng(0)
    truth, skill = rng.integers(kinds, size=items), rng.uniform(0.3, 0.9, people)
    flat = [rng.dirichlet(np.ones(kinds), kinds) for _ in range(people)]
    errs = [q * np.eye(kinds) + (1 - q) * p for q, p in zip(skill, flat, strict=True)]
    label = [[rng.choice(kinds, p=one[t]) for one in errs] for t in truth]
    label = with_holes(np.array(label, dtype=float), 0.65, seed=1)
    guess = np.full((people, kinds, kinds), 0.3 / (kinds - 1))
    guess[:, range(kinds), range(kinds)] = 0.7

    def ours() -> Answer:
        b = pgm.GraphBuilder()
        t, said = b.variable("truth", states=kinds), b.variable("label", states=kinds, shape=people)
        b.conditional(t, (), np.full(kinds, 1 / kinds), name="prior")
        b.conditional(said, (t,), guess, name="confusion")
        model, em, data = b.build(), pgm.EM(pseudocount=0), {"label": label}
        seconds, fit = spent(lambda: pgm.fit(model, data, optimizer=em, rng=0, progress=False))
        each = f"{updates(fit)}, {1e3 * seconds / int(fit.state['update']):.1f} ms each"
        return Answer(seconds, log_p(fit, data), note=each)

    def numpy() -> Answer:
        seconds, value = spent(lambda: dawid_skene(label, kinds))
        each = 1e3 * seconds / ITERATIONS
        return Answer(seconds, value, note=f"{ITERATIONS} updates, {each:.1f} ms each")

    name = "labels of 1,000 items by 12 annotators, 5 kinds, 65% missing"
    return Call(name, {OURS: ours, "numpy": numpy}, "log p", 1, MARGIN, limit=1.0)


def dawid_skene(label: Array, kinds: int) -> float:
    """Return log p after EM from the votes."""
    said = (label[:, :, None] == np.arange(kinds)).astype(float)
    weight, log_sum = said.sum(axis=1) + 1e-9, np.zeros(1)
    weight /= weight.sum(axis=1, keepdims=True)
    for _ in range(ITERATIONS):
        share = weight.mean(axis=0)
        table = np.einsum("ik,iml->mkl", weight, said) + 1e-12
        table /= table.sum(axis=2, keepdims=True)
        log_p = np.log(share) + np.einsum("iml,mkl->ik", said, np.log(table))
        log_sum = np.logaddexp.reduce(log_p, axis=1, keepdims=True)
        weight = np.exp(log_p - log_sum)
    return float(log_sum.sum())


# A test of skills.

GUESS, SLIP = 0.2, 0.1
# The smallest probability of a guess or a slip in numpy, so that no logarithm is infinite.
LEAST = 1e-6


def skills(given: Given, count: int = 4, items: int = 20) -> Iterator[Call]:
    """Yield the calls of DINA (Junker and Sijtsma 2001): an item needs all of its skills."""
    rng, rows = np.random.default_rng(5), given.size(500, 40)
    needs = np.array([*np.eye(count, dtype=bool), *(rng.random((items - count, count)) < 0.45)])
    needs[~needs.any(axis=1), 0] = True
    has = rng.random((rows, count)) < 0.5
    able = (has[:, None] | ~needs).all(axis=2)
    x = (rng.random(able.shape) < np.where(able, 1 - SLIP, GUESS)).astype(float)
    data = {f"item{j}": x[:, j] for j in range(items)}

    def ours(gates: bool) -> Answer:
        b = pgm.GraphBuilder()
        for k in range(count):
            b.variable(f"skill{k}", states=2)
            b.conditional(f"skill{k}", (), [0.5, 0.5])
        for j, row in enumerate(needs):
            b.variable(f"item{j}", states=2)
            parents = [f"skill{k}" for k in np.flatnonzero(row)]
            # The number of the first skill is the one that slips; the others are certain.
            gate = pgm.noisy_and([0.75, *[1.0] * (len(parents) - 1)], leak=GUESS)
            b.conditional(f"item{j}", parents, gate if gates else by_skills)
        model = b.build()
        em = pgm.EM(pseudocount=0)
        seconds, fit = spent(lambda: pgm.fit(model, data, optimizer=em, rng=0, progress=False))
        return Answer(seconds, log_p(fit, data), note=updates(fit))

    def numpy() -> Answer:
        seconds, value = spent(lambda: dina_em(x, needs))
        return Answer(seconds, value, note=f"{ITERATIONS} updates")

    for gates, how in ((True, "by noisy_and"), (False, "by functions of the states")):
        cases = {OURS: lambda gates=gates: ours(gates), "numpy": numpy}
        name = f"test of 20 items and 4 skills (DINA), 500 people, {how}"
        yield Call(name, cases, "log p", 1, MARGIN, limit=0.25)


def by_skills(*skills: int) -> list[float]:
    """Return the probabilities of a wrong and of a right answer."""
    return [SLIP, 1 - SLIP] if all(skills) else [1 - GUESS, GUESS]


def dina_em(x: Array, needs: Array) -> float:
    """Return log p after EM over all patterns of independent skills."""
    patterns = np.array(list(product((0, 1), repeat=needs.shape[1])), dtype=bool)
    able = (patterns[:, None] | ~needs).all(axis=2)
    guess, slip = np.full(len(needs), GUESS), np.full(len(needs), SLIP)
    skill, log_sum = np.full(needs.shape[1], 0.5), np.zeros(1)
    for _ in range(ITERATIONS):
        right = np.where(able, 1 - slip, guess)
        prior = np.log(np.where(patterns, skill, 1 - skill)).sum(axis=1)
        log_p = prior + x @ np.log(right).T + (1 - x) @ np.log1p(-right).T
        log_sum = np.logaddexp.reduce(log_p, axis=1, keepdims=True)
        weight = np.exp(log_p - log_sum)
        skill, count, hits = (weight @ patterns).mean(axis=0), weight.sum(axis=0), weight.T @ x
        slip = (1 - (hits * able).sum(axis=0) / (count @ able)).clip(LEAST, 1 - LEAST)
        guess = ((hits * ~able).sum(axis=0) / (count @ ~able)).clip(LEAST, 1 - LEAST)
    return float(log_sum.sum())

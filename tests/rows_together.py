"""Rows that are asked together, by every shortcut, against each row alone and against enumeration.

`compare(seed)` draws a question of mixed_questions.py and asks it

    plain      each row alone, of a fresh model, with all shortcuts switched off
    together   all rows, of one model that remembers, with thresholds at which shortcuts are taken
    again      other rows of the question in another order, row by row, prepared, in parts, of
               models that share what the structure remembers, and as a batch of learning

and compares every wanted quantity with the enumeration of the states (exact_answers.py).

    python tests/rows_together.py SEED [SEED ...]

asks single questions again, such as one that a test has named.
"""

from __future__ import annotations

import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import shortcuts
from comparisons import dense, same_answers
from exact_answers import EXACT, LIFTED, check_gradient, check_rows, close, gradient
from mixed_questions import Question, Row, question
from random_graphs import shifted
from scipy.special import logsumexp

import pgmengine as pgm

DRAWS = 400
# Rows of a question that are asked in the plain way; enumeration checks all of them.
PLAIN = 2
# The step of learning.
RATE = 1e-2
EVERY = ("log_z", "log_prob", "marginals", "pairs", "mode", "samples", "gradient")
# Limits of table entries: none, and limits that few rows or none keep without variables outside.
MAX_STATES = (2.0**30, 2.0**30, 200.0, 60.0, 24.0)


def compare(seed, reached=None):
    """Ask one question in every way; AssertionError, with the seed, where an answer is wrong."""
    reached = Counter() if reached is None else reached
    q = question(seed)
    try:
        _Ask(q, reached).all_ways()
    except Exception as error:
        # Unexpected errors are wrong answers, too.
        again = f"python tests/rows_together.py {seed}"
        raise AssertionError(f"{type(error).__name__}: {error}\n\nto ask again: {again}") from error
    return reached


class _Ask:
    """The ways of asking one question."""

    def __init__(self, q: Question, reached: Counter):
        self.q, self.reached, self.rng = q, reached, np.random.default_rng([43, q.seed])
        rng, units = self.rng, q.graph.units
        finite = [u for u in units if q.graph.layers[u[0]].unit.support is not None]
        some = [finite[i] for i in rng.permutation(len(finite))[: rng.integers(1, 4)]]
        self.joint = pgm.Joint(*(q.graph.member(u) for u in some))
        self.tabled = bool(q.graph.tables)

    def all_ways(self):
        q, rng = self.q, self.rng
        with shortcuts.raised():
            for i in rng.permutation(len(q.rows))[:PLAIN].tolist():
                self._plain(i)
        self.method = self._drawn_method()
        shortcuts.forget()
        with shortcuts.lowered(rng) as values, shortcuts.counted(self.reached):
            self.where = f"by {self.method!r} with {values}"
            self._on(q.graph.build(), list(range(len(q.rows))))

    def _drawn_method(self):
        most = float(self.rng.choice(MAX_STATES))
        # The first two cannot answer every part of a question.
        candidates = (
            pgm.Enumeration(max_bits=float(self.rng.choice([1, 25])), draws=DRAWS),
            pgm.Elimination(max_states=most, max_work=0, draws=DRAWS),
            pgm.Elimination(draws=DRAWS),
        )
        methods = (
            pgm.Elimination(max_states=most, draws=DRAWS),
            pgm.Exact(draws=DRAWS),
            pgm.Auto(candidates=candidates, confirm_seconds=0.0),
            pgm.Enumeration(draws=DRAWS),
        )
        # Soft evidence that excludes states has tables, which enumeration refuses.
        every = self.q.arguments(list(range(len(self.q.rows))))
        tabled = self.q.graph.build().given(**every).structure.tables
        share = [0.5, 0.2, 0.3, 0.0] if tabled else [0.4, 0.1, 0.15, 0.35]
        return methods[self.rng.choice(len(methods), p=share)]

    def _drawn_want(self):
        """The quantities that are asked for together: all of them, or some alone."""
        joint = () if isinstance(self.method, (pgm.Enumeration, pgm.Auto)) else (self.joint,)
        wants = (
            (*EVERY, *joint),
            ("log_z", "log_prob"),
            ("marginals",),
            (str(self.rng.choice(["gradient", "mode", "samples", "pairs"])), *joint),
        )
        return wants[self.rng.choice(4, p=[0.4, 0.2, 0.2, 0.2])]

    def _plain(self, i):
        """One row alone, without shortcuts."""
        self.method, self.where = pgm.Elimination(max_work=0, draws=DRAWS), "without shortcuts"
        want = (*EVERY, self.joint) if i in self.q.possible else ("log_z", "log_prob")
        self._check(self._infer(self.q.graph.build(), [i], want), [i], "plain")

    def _on(self, model, every):
        """All rows together, then other questions to the same model, which remembers."""
        rng = self.rng
        part = sorted(rng.permutation(every)[: rng.integers(1, len(every) + 1)].tolist())
        if rng.random() < 0.4:
            # Plans for some rows must not serve others.
            self._some(model, part, "asked first")
        self._some(model, every, "together")
        ways = (
            lambda: self._some(model, [*part[::-1], *every[::-1][:5]], "in another order"),
            lambda: self._some(model, part[:1], "alone of a model that remembers"),
            lambda: self._of_a_sibling(model, every),
            lambda: self._parts(model),
            lambda: self._fresh(model),
            lambda: self._prepared(model),
            lambda: self._batch(model),
        )
        for way in rng.permutation(len(ways))[:2]:
            ways[way]()

    def _some(self, model, index, how):
        """Ask for drawn quantities of some rows, of possible ones only for a posterior."""
        want, possible = self._drawn_want(), [i for i in index if i in self.q.possible]
        if not set(want) <= {"log_z", "log_prob"}:
            if len(possible) < len(index):
                self._refused(model, index, want)
            index = possible
        if index:
            self._check(self._infer(model, index, want), index, f"{how}, want={want}")

    def _infer(self, model, index, want, **more):
        """The answer of the method; variables outside where a limit of entries is too low."""
        arguments = self.q.arguments(index)
        method = self.method
        try:
            return pgm.infer(model, want=want, method=method, rng=self.q.seed, **arguments, **more)
        except pgm.PgmError as error:
            if "the limit is" not in str(error):
                raise
        self.reached["too large a tree"] += 1
        method = pgm.Elimination(draws=DRAWS)
        return pgm.infer(model, want=want, method=method, rng=self.q.seed, **arguments, **more)

    def _check(self, r, index, how):
        what = f"{how}, rows {index}, {getattr(self, 'where', '')}"
        assert r.kind == "exact" and r.status is pgm.Status.OK, what
        check_rows(self.q, index, r, what)
        if "gradient" in r.answers:
            walked = not self.tabled
            check_gradient(self.q, index, r, what, LIFTED if walked else EXACT)

    def _refused(self, model, index, want):
        """A posterior is refused where a row is impossible, and the message names such a row."""
        wrong = [place for place, i in enumerate(index) if i not in self.q.possible]
        try:
            self._infer(model, index, want)
        except pgm.PgmError as error:
            assert any(f"row {place} has probability zero" in str(error) for place in wrong), error
            return
        raise AssertionError(f"rows {wrong} of {index} are impossible, and {want} was answered")

    def _of_a_sibling(self, model, every):
        """Of a model with other parameters, which shares what the structure remembers."""
        other = self._moved()
        mine = _Ask(other, self.reached)
        mine.method, mine.where, mine.joint = self.method, self.where, self.joint
        sibling = model.with_params(other.graph.build().params)
        mine._some(sibling, every, "of a model with other parameters")

    def _moved(self):
        """The question with other parameters: all zeros stay, or some weights become 0."""
        graph, rng = shifted_copy(self.q.graph), self.rng
        for x in graph.layers.values():
            x.bias = x.bias * rng.uniform(0.3, 1.2)
        for links in (graph.couples, graph.causes):
            links[:] = [(a, b, w * rng.uniform(0.3, 1.2)) for a, b, w in links]
        for t in graph.tables:
            t.values = t.values ** rng.uniform(0.5, 1.5)
            if t.conditional:
                t.values = t.values / t.values.sum(axis=-1, keepdims=True)
        return Question(self.q.seed, graph, self.q.rows)

    def _parts(self, model):
        """On an executor: the same bits as without one."""
        possible, want = self.q.possible, ("marginals", "log_prob", "samples", "gradient")
        if not possible:
            return
        here = self._infer(model, possible, want)
        with ThreadPoolExecutor(2) as pool:
            shared = self._infer(model, possible, want, executor=pool)
        self._check(shared, possible, "on an executor")
        same_answers(here.answers, shared.answers, f"on an executor, rows {possible}, {self.where}")

    def _fresh(self, model):
        """Of a model that remembers nothing."""
        index, want = self.q.possible, self._drawn_want()
        if index:
            known, found = (self._infer(m, index, want) for m in (model, self.q.graph.build()))
            what = f"of a fresh model, want={want}, rows {index}, {self.where}"
            self._same_where_planned_alike(known, found, what)

    def _same_where_planned_alike(self, one, two, what):
        """The same bits; values that exclude states are planned for in the order of questions."""
        if one.plan.why == two.plan.why:
            same_answers(one.answers, two.answers, what)

    def _prepared(self, model):
        """A prepared question, for the rows of each pattern without soft evidence and do()."""
        groups: dict[tuple, list[int]] = {}
        for i in self.q.possible:
            row = self.q.rows[i]
            if not row.soft and not row.do:
                groups.setdefault(tuple(sorted(row.evidence)), []).append(i)
        want, method = ("log_z", "marginals"), self._roomy()
        for units, index in list(groups.items())[:2]:
            ask = pgm.prepare(model, [self.q.graph.member(u) for u in units], want, method)
            for some in (index, index[:1], index[::-1]):
                evidence = self.q.arguments(some)["evidence"]
                r = ask(evidence)
                self._check(r, some, "prepared")
                known = pgm.infer(model, evidence, want, method)
                self._same_where_planned_alike(known, r, f"prepared, rows {some}, {self.where}")

    def _roomy(self):
        """The method, or one without a limit of entries that it may not keep."""
        small = isinstance(self.method, pgm.Elimination) and self.method.max_states < 2**30
        return pgm.Elimination(draws=DRAWS) if small else self.method

    def _batch(self, model):
        """The gradient of weighed rows without soft evidence and do(), and one step of learning."""
        q = self.q
        index = [i for i in q.possible if not q.rows[i].soft and not q.rows[i].do]
        if not index or isinstance(self.method, pgm.Auto):
            return
        weights, evidence = self.rng.uniform(0.5, 2.0, len(index)), q.arguments(index)["evidence"]
        found = self._roomy().gradient(model.given(evidence), weights)
        what = f"in a batch of rows {index}, {self.where}"
        bound = EXACT if self.tabled else LIFTED
        for name, right in gradient(q, index, weights).items():
            close(found[name], right, f"gradient of {name} {what}", bound)
        kinds = {type(x.unit) for x in q.graph.layers.values()}
        if kinds & {pgm.NoisyOr, pgm.Input}:
            # Steps of noisy-or weights are projected; given inputs, each row has its own log Z.
            return
        if not any(q.rows[i].evidence for i in index):
            # There is nothing to learn from.
            return
        fitted = pgm.fit(
            model,
            evidence,
            positive=self._roomy(),
            negative=pgm.ExactGradient(),
            optimizer=pgm.SGD(RATE),
            updates=1,
            batch_size=len(index),
            progress=False,
            rng=0,
        )
        if any("exchangeable" in note for note in fitted.notes):
            # Such a start is left at random before the step.
            return
        down = gradient(Question(0, q.graph, (Row({}, {}, {}),)), [0])
        for name, up in gradient(q, index).items():
            moved = dense(model.params[name]) + RATE * (up / len(index) - down[name])
            if "|" in name:
                moved = moved - logsumexp(moved, axis=-1, keepdims=True)
            close(
                np.exp(dense(fitted.model.params[name])),
                np.exp(moved),
                f"{name} after a step {what}",
            )


def shifted_copy(graph):
    """A copy of a graph whose parameters may be changed."""
    return shifted(graph, lambda g: None)


if __name__ == "__main__":
    for text in sys.argv[1:]:
        counts = compare(int(text))
        print(f"seed {text}: right; {dict(counts)}")

"""The data phase: E[d log_density | row], exact where the posterior factorises.

Otherwise it is enumerated if that is cheap, bounded by mean field, or sampled. The choice depends
on the graph and on the evidence patterns. It does not depend on the number of rows or on free
memory, because updates take a few rows at a time.
"""

from __future__ import annotations

import math
from concurrent.futures import Executor
from dataclasses import dataclass, fields, is_dataclass, replace

import numpy as np

from pgmengine.base.types import Array, States
from pgmengine.engine.packed import random_keys
from pgmengine.engine.unit_draws import drawn_units
from pgmengine.engine.visits import drawable
from pgmengine.evidence.evidence import Evidence
from pgmengine.evidence.target import Target, evidence_patterns
from pgmengine.infer.accumulator import Accumulator
from pgmengine.infer.diagnostics.rounding import check_digits
from pgmengine.infer.exact.exact import Exact
from pgmengine.infer.question.prepared import AnyMethod, as_method
from pgmengine.infer.question.splitting import answer
from pgmengine.infer.sampling.methods.mcmc import MCMC
from pgmengine.infer.variational.conditions import obstacle
from pgmengine.infer.variational.mean_field import MeanField
from pgmengine.infer.variational.saddles import STEP_OF_START
from pgmengine.infer.variational.unit_families import Factors, coupled, layer_order
from pgmengine.learn.contracts import Positive
from pgmengine.learn.phases.batch import only
from pgmengine.learn.recorded.recorder import DATA, NotCompiled, Recorder

# The largest log2 of the number of states of a posterior that is enumerated by default.
MAX_POSTERIOR_BITS = 10
# The largest number of table entries with which elimination is cheap enough for every update.
MAX_POSTERIOR_ENTRIES = 2**11
# The largest time of an exact data phase by default, as a multiple of the time of mean field. Exact
# answers treat each evidence pattern separately, and mean field does not.
MAX_SLOWDOWN = 3.0
# Seconds for all patterns together within which exact answers are taken, even if mean field is much
# faster.
ALWAYS_EXACT_SECONDS = 0.02


@dataclass(frozen=True)
class Answered:
    """The data phase by the answers of any inference method, on an executor if there is one."""

    method: AnyMethod
    executor: Executor | None = None

    def expect(
        self, target: Target, weights: Array, total: Accumulator, rng: np.random.Generator
    ) -> None:
        """Add the gradient that the method answers for rows with these weights.

        Raises PgmError if terms are so large that no digits would be left.
        """
        weighed = replace(check_digits(target), weights=target.weighed(weights))
        question = self.method.prepare(weighed, ("gradient",))
        result = answer(self.executor, question, rng)
        total.arrays(result.gradient, 1.0, float(weights.sum()))


@dataclass(frozen=True)
class Product:
    """The exact data phase where the posterior of each row is a product of its units."""

    precision: type

    def expect(
        self, target: Target, weights: Array, total: Accumulator, rng: np.random.Generator
    ) -> Factors:
        """Add the gradient at the means; return the posterior."""
        posterior = product(target, self.precision)
        total.points(posterior.mean, weights)
        return posterior

    def record(self, recorder: Recorder) -> None:
        """Append the means of the free layers given the mini-batch."""
        if self.precision is not np.float32:
            raise NotCompiled("the data phase is in double precision")
        if recorder.partly:
            raise NotCompiled("some units of a layer are observed, and the posterior is a product")
        recorder.fields = {}
        for name in layer_order(recorder.target.pattern):
            eta = recorder.fields[name] = recorder.room(name)
            constant_field(recorder, name, eta)
            recorder.mean(name, DATA, eta)


def constant_field(recorder: Recorder, name: str, field: Array) -> None:
    """Append the field of a free layer from its bias and from the mini-batch."""
    recorder.start_field(name, DATA, field)
    for c, other in recorder.structure.meetings[name]:
        if not recorder.target.pattern.some_free[other]:
            recorder.add_product(c, name, DATA, recorder.values[other], field)


@dataclass(frozen=True)
class Bounded:
    """The data phase by the best bound of a few rounds of mean field."""

    method: MeanField

    def expect(
        self, target: Target, weights: Array, total: Accumulator, rng: np.random.Generator
    ) -> object:
        """Add the gradient of the bound; return its distribution."""
        return self.method.expect(target, weights, total, rng)

    def record(self, recorder: Recorder) -> None:
        """Append the rounds; the algorithm is that of `Factors`."""
        if self.method.precision is not np.float32:
            raise NotCompiled("the data phase is in double precision")
        pattern, tolerance = recorder.target.pattern, self.method.tolerance
        moving, joined = layer_order(pattern), coupled(pattern)
        field = {name: recorder.room(name) for name in moving}
        sent, before, change = ({n: recorder.room(n) for n in joined} for _ in range(3))
        # The start of the means is the same in all rows, where they are not observed.
        whole = {n: np.ones(x.size, dtype=bool) for n, x in recorder.structure.layers.items()}
        seen = {name: whole[name] for name in recorder.observed()}
        one = only(recorder.target, seen).take(np.zeros(1, dtype=int))
        begin = Factors(one, np.float32, step=STEP_OF_START).mean
        for name in moving:
            constant_field(recorder, name, field[name])

        def send(name: str, kind: str, x: Array) -> None:
            for c, other in recorder.structure.meetings[name]:
                if other in field:
                    recorder.add_product(c, other, DATA, x, field[other], kind=kind)

        for name in joined:
            width = begin[name].size
            for start in (sent[name], before[name]):
                recorder.add("start_field", span=DATA, m=width, a=begin[name], out=start)
                recorder.keep(name, start)
            if name in recorder.partly:
                send(name, "add_product", sent[name])
            else:
                send(name, "add_each", begin[name])
        ends = []
        for round_ in range(self.method.updates):
            last = round_ + 1 == self.method.updates
            for name in moving:
                recorder.mean(name, DATA, field[name])
                # Nothing reads a field after the last mean.
                if name in change and not (last and name == moving[-1]):
                    recorder.add(
                        "change",
                        span=DATA,
                        m=begin[name].size,
                        a=recorder.values[name],
                        c_=sent[name],
                        more=before[name],
                        out=change[name],
                        number=tolerance,
                    )
                    send(name, "add_product", change[name])
            if not last:
                ends.append(recorder.add("settled", number=tolerance))
        recorder.jump(ends)


def product(target: Target, precision: type) -> Factors:
    """Return the posterior of each row, which is a product of its units."""
    posterior = Factors(target, precision)
    posterior.round()
    return posterior


def data_phase(
    method: Positive | AnyMethod, executor: Executor | None = None, factorised: bool = False
) -> Positive:
    """Return the data phase by a method; its chains are not judged, as an update ignores R-hat.

    Mean field needs one round, without a bound, where all posteriors are products of units.
    """
    if type(method) is MeanField:
        return Product(method.precision) if factorised else Bounded(method)
    if isinstance(method, Positive):
        return method
    if is_dataclass(method) and "rhat_limit" in {f.name for f in fields(method)}:
        method = replace(method, rhat_limit=math.inf)
    return Answered(as_method(method), executor)


def default_positive(target: Target, precision: type) -> Positive | AnyMethod:
    """Return the default method of the data phase.

    It is mean field, which is exact, if all free units are independent; Exact if that is cheap;
    else five updates of mean field. If mean field refuses, it is a short MCMC run for each row.
    MCMC is also taken above noisy-or children, whose score has a pole at 0: the gradient of the
    bound comes near it if a leak is small. Exact is cheap for few states, and for so few evidence
    patterns that it takes no more than ALWAYS_EXACT_SECONDS, or MAX_SLOWDOWN times as long as mean
    field.
    """
    each = one_of_each_pattern(target)
    tolerance = 1e-4 if precision is np.float32 else 0.0
    bound = MeanField(updates=5, tolerance=tolerance, precision=precision)
    if each.pattern.independent:
        return bound
    exact = Exact(MAX_POSTERIOR_BITS, max_states=MAX_POSTERIOR_ENTRIES, max_work=0)
    plan = exact.plan(_all_on(each), ("gradient",))
    s = target.structure
    steep = any(s.layers[c.b].unit.nonnegative and target.free[c.a].any() for c in s.arrows)
    by_tables = each.pattern.free_parents or each.pattern.in_tables
    if steep or (by_tables and obstacle(target)):
        return exact if plan.accepted else _short_runs(5)
    price = bound.plan(each, ("gradient",))
    fast = not price.accepted or plan.seconds <= max(
        ALWAYS_EXACT_SECONDS, MAX_SLOWDOWN * price.seconds
    )
    return exact if plan.accepted and fast else bound


def _all_on(target: Target) -> Target:
    """Return the target in which all observed units with independent causes have the value 1.

    The cost of exact answers grows with the number of such units at 1, and the choice of the method
    must hold for all rows.
    """
    s, e = target.structure, target.evidence
    values = {
        name: np.where(target.free[name], 0.0, 1.0)
        if layer.unit.independent_causes
        else e.values[name]
        for name, layer in s.layers.items()
    }
    return replace(target, evidence=Evidence(e.has_rows, values, e.pattern))


def one_of_each_pattern(target: Target) -> Target:
    """Return the target with one row of each evidence pattern."""
    return target.take(np.array([rows[0] for rows in evidence_patterns(target)]))


def factorises(target: Target) -> bool:
    """Return whether the posterior of each row is a product of its units: mean field is exact."""
    return one_of_each_pattern(target).pattern.independent


def _short_runs(draws: int) -> MCMC:
    return MCMC(chains=1, warmup=10, draws=draws, rhat_limit=math.inf)


def posterior_draw(
    target: Target, rng: np.random.Generator, posterior: object | None = None
) -> States:
    """Return one draw of the free units given each row, (rows, width); exact where cheap.

    `posterior` is the result of the data phase for these rows, which saves work if the posterior is
    a product of units.
    """
    if target.pattern.independent:
        known = posterior if isinstance(posterior, Factors) else product(target, np.float32)
        if not drawable(target.pattern):
            return known.draw(rng)
        drawn = drawn_units(target.structure, known.eta, random_keys(rng))
        return target.clamp(known.mean | drawn)
    exact = Exact(MAX_POSTERIOR_BITS, draws=1, max_work=0)
    method = exact if exact.plan(target, ("samples",)).accepted else _short_runs(1)
    samples = method.run(target, ("samples",), rng=rng).samples
    return {n: target.structure.layers[n].flat(v[0]) for n, v in samples.items()}

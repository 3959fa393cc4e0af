"""Rows asked together have the answers of rows asked alone, and cost no more than these."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from limits import planning_takes, rows_are_restricted, tables_are_searched
from networks import with_zeros
from random_graphs import Oracle, as_arguments, as_hints, draw_question, random_causes
from small_networks import states_drawn

import pgmengine as pgm
from pgmengine.base.errors import InternalError
from pgmengine.infer.exact import planning
from pgmengine.infer.exact.enumeration import enumeration
from pgmengine.infer.exact.junction_tree.marginalised import ChildTerm
from pgmengine.infer.exact.shared_rows import KindOfRows
from pgmengine.infer.sampling.methods import forward

EXACT = {"rtol": 1e-9, "atol": 1e-9}


def rows_of_few_patterns(model, rows, patterns, seed):
    """Draws of the model as rows of evidence, of which only so many patterns are observed."""
    rng = np.random.default_rng(seed)
    r = pgm.infer(model, want=("samples",), method=pgm.Exact(draws=rows), rng=seed)
    names = list(model.variables)
    hidden = (rng.random((patterns, len(names))) < 0.7)[np.arange(rows) % patterns]
    return {n: np.where(hidden[:, i], np.nan, states_drawn(r, n)) for i, n in enumerate(names)}


def row(arguments, i):
    """One row of arrays by name."""
    return {name: values[i : i + 1] for name, values in arguments.items()}


@pytest.mark.parametrize("seed", range(4))
def test_rows_of_one_pattern_on_both_sides_of_the_limit_of_a_shared_tree(seed, monkeypatch):
    """Some of them are answered by the shared tree, and each of the others by a tree of its own."""
    model, want = (
        with_zeros(seed, variables=10, states=5, zeros=0.4),
        ("log_z", "marginals", "gradient"),
    )
    evidence = rows_of_few_patterns(model, 30, 6, seed)
    alone = [pgm.infer(model, row(evidence, i), want, pgm.Elimination()) for i in range(30)]
    limits = planning.Limits(2.0**27, 0)
    monkeypatch.setattr(planning, "MAX_LANE_ENTRIES", 0)
    sizes = planning._trees(model.given(evidence), want, limits)[0].restricted[:, 0]
    parted = 0
    for size in np.unique(sizes)[:-1]:
        limit = 3 * planning.PASSED_ENTRY_SECONDS * size * (1 + 1e-9)
        planning_takes(monkeypatch, limit)
        shared = planning._trees(model.given(evidence), want, limits)[0]
        inside = np.isin(np.arange(30), shared.rows)
        parted += sum(0 < inside[k::6].sum() < 5 for k in range(6))
        r = pgm.infer(model.with_params({}), evidence, want, pgm.Elimination())
        np.testing.assert_allclose(r.log_z, [one.log_z[0] for one in alone], **EXACT)
        for name in model.structure.layers:
            expected = np.concatenate([one.prob[name] for one in alone])
            np.testing.assert_allclose(r.prob[name], expected, **EXACT)
        for name, total in r.gradient.items():
            expected = sum(one.gradient[name] for one in alone)
            np.testing.assert_allclose(total, expected, rtol=1e-9, atol=1e-7)
    assert parted


def altered(parts, fault):
    """A division of rows with a fault: one row is lost, or is in two parts."""

    def some(part, rows):
        return replace(part, rows=part.rows[rows]) if isinstance(part, KindOfRows) else part[rows]

    last = parts[-1]
    if fault == "lost":
        return [*parts[:-1], some(last, slice(1, None))]
    return [*parts, some(last, slice(1))]


@pytest.mark.parametrize("fault", ["lost", "twice"])
@pytest.mark.parametrize("method", [pgm.Elimination(), pgm.Enumeration(), pgm.Forward()], ids=repr)
@pytest.mark.parametrize("want", ["log_z", "marginals", "gradient"])
def test_no_answer_leaves_without_every_row_once(method, fault, want, monkeypatch):
    model, evidence = pgm.sbn([4, 3], rng=0), {"v": np.eye(4)}
    # Plans check their trees, and answers the rows that they have; here the second check alone.
    monkeypatch.setattr(planning, "check_divided", lambda *_: None)
    for module, name in (
        (planning, "kinds_of_rows"),
        (enumeration, "evidence_patterns"),
        (forward, "blocks"),
    ):
        divide = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *args, divide=divide: altered(divide(*args), fault)
        )
    times = {"lost": 0, "twice": 2}[fault]
    with pytest.raises(InternalError, match=f"not row 0 by {times}"):
        pgm.infer(model, evidence, (want,), method, rng=0)


def some_hints(asked, graph, rng):
    """Rows of a question with soft evidence on findings, in some rows and units of each only."""
    out = []
    for evidence, soft, do in asked:
        free = [u for u in graph.units if u[0] in ("f", "m") and u not in evidence and u not in do]
        own = {u: np.array([0.0, rng.normal(0, 2)]) for u in free if rng.random() < 0.4}
        kept = {u: w for u, w in soft.items() if rng.random() < 0.5}
        out.append((evidence, kept | (own if rng.random() < 0.5 else {}), do))
    return out


@pytest.mark.parametrize("seed", range(24))
def test_soft_evidence_in_some_rows_only(seed, monkeypatch):
    """Each row has the answer of the oracle: asked with others, and again by a remembered plan."""
    if seed % 3:
        tables_are_searched(monkeypatch)
    rng = np.random.default_rng(seed)
    graph = random_causes(40_000 + seed, 2**9)
    asked = some_hints(draw_question(graph, seed, rows=3) * 3, graph, rng)
    oracles = [Oracle(graph, *question) for question in asked]
    model = graph.build()
    for chosen in (range(9), range(9)[::-1], *([i] for i in range(9))):
        # The second time, a model with the same structure is asked.
        model = model.with_params({}) if len(chosen) == 9 else model
        some = [asked[i] for i in chosen]
        arguments = {
            "evidence": as_arguments(graph, some, 0),
            "soft": as_hints(graph, some),
            "do": as_arguments(graph, some, 2),
        }
        if not any(arguments.values()):
            continue
        r = pgm.infer(model, want=("log_z", "marginals"), method=pgm.Elimination(), **arguments)
        np.testing.assert_allclose(r.log_z, [oracles[i].log_z for i in chosen], **EXACT)
        for name, i in graph.units:
            expected = [oracles[k].prob((name, i)) for k in chosen]
            np.testing.assert_allclose(r.prob[name][:, i], expected, **EXACT)


def test_plans_are_remembered_with_the_units_that_have_hints(monkeypatch):
    """Without them in the key, a plan would serve rows with other hints, and answer wrongly."""
    given = planning.has_soft
    monkeypatch.setattr(planning, "has_soft", lambda *args: np.zeros_like(given(*args)))
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        test_soft_evidence_in_some_rows_only(11, monkeypatch)


@pytest.mark.parametrize("rows", [1, 7, 8, 20])
@pytest.mark.parametrize("want", ["log_z", "marginals", "mode", "samples", "gradient"])
def test_equal_rows_of_findings(rows, want, monkeypatch):
    """Small tables have auxiliary variables, of which no row observes any."""
    tables_are_searched(monkeypatch)
    rows_are_restricted(monkeypatch)
    rng, b = np.random.default_rng(1), pgm.GraphBuilder()
    b.layer("d", pgm.Binary(), 8, bias=np.full(8, -2.0))
    b.layer("f", pgm.NoisyOr(), 9, bias=np.where(np.arange(9) % 2, 0.0, 0.1))
    b.cause("d", "f", weight=rng.exponential(1.0, (8, 9)) * (rng.random((8, 9)) < 0.7))
    model, method = b.build(), pgm.Elimination(draws=3)
    finding = np.where(np.arange(9) < 5, 1.0, np.where(np.arange(9) < 7, 0.0, np.nan))
    alone = pgm.infer(model, {"f": finding}, (want, "log_z"), method, rng=0)
    r = pgm.infer(model, {"f": np.tile(finding, (rows, 1))}, (want, "log_z"), method, rng=0)
    np.testing.assert_allclose(r.log_z, np.full(rows, alone.log_z[0]), **EXACT)
    if want == "marginals":
        np.testing.assert_allclose(r.prob["d"], np.tile(alone.prob["d"], (rows, 1, 1)), **EXACT)
        np.testing.assert_allclose(r.prob["f"], np.tile(alone.prob["f"], (rows, 1, 1)), **EXACT)
    if want == "gradient":
        for name, total in r.gradient.items():
            np.testing.assert_allclose(total, rows * alone.gradient[name], **EXACT)
    if want == "samples":
        assert np.array_equal(r.samples["f"][:, :, :7], np.tile(finding[:7], (3, rows, 1)))
    if want == "mode":
        assert np.array_equal(r.mode["d"], np.tile(alone.mode["d"], (rows, 1)))


def below(unit, causes, findings=12):
    """Children of one kind below many causes, and rows of different patterns of findings."""
    rng, b = np.random.default_rng(0), pgm.GraphBuilder()
    b.layer("c", pgm.Binary(), causes, bias=np.full(causes, -2.0))
    b.layer("f", unit, findings, bias=np.full(findings, 0.05))
    b.cause("c", "f", weight=np.abs(rng.normal(size=(causes, findings))))
    rows = np.full((8, findings), np.nan)
    for i in range(len(rows)):
        rows[i, rng.permutation(findings)[: 5 + i % 4]] = 0
        rows[i, rng.permutation(findings)[:5]] = 1
    return b.build(), rows


class Cost:
    """The entries of children's tables that were filled, and the peak of memory, in a block."""

    def __init__(self, monkeypatch):
        self.filled, values = 0, ChildTerm.values

        def counted(term, target):
            found = values(term, target)
            self.filled += found.size
            return found

        monkeypatch.setattr(ChildTerm, "values", counted)

    def of(self, function):
        """Return entries and bytes that a call takes."""
        self.filled = 0
        tracemalloc.start()
        function()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return self.filled, peak


@pytest.mark.parametrize("unit", [pgm.NoisyOr(), pgm.Binary()], ids=repr)
@pytest.mark.parametrize("want", ["log_z", "marginals", "gradient", "mode"])
@pytest.mark.parametrize("method", [pgm.Elimination(max_work=0), pgm.Exact()], ids=repr)
def test_rows_planned_together_cost_no_more_than_alone(
    unit, want, method, monkeypatch, *, allowed=2.0**20
):
    """Plans of children below 17 causes fill no tables of 2^17 entries."""
    model, rows = below(unit, causes=17)
    cost = Cost(monkeypatch)

    def plan(some):
        # A structure of its own remembers no plan.
        fresh = below(unit, causes=17)[0]
        return cost.of(lambda: method.prepare(fresh.given({"f": some}), (want,)))

    # Imports of a first plan are no part of it.
    plan(rows[:1])
    alone = [plan(rows[i : i + 1]) for i in range(len(rows))]
    filled, peak = plan(rows)
    assert filled <= sum(entries for entries, _ in alone)
    assert peak <= max(size for _, size in alone) + len(rows) * allowed / 8

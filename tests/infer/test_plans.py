"""Plans: what they promise for sparse weights and each engine, and that nothing costs a layer's
size for each unit.
"""

import io
import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from chains_of_units import of_layers
from kernels_of_users import OwnGibbs
from lattices import lattice
from loops import one_test_over
from registry import ESTIMATES, METHODS, every
from rich.console import Console
from tiny import MODELS, mixed_target

import pgmengine as pgm
from pgmengine.declare.model import Model
from pgmengine.evidence.relevance import barren
from pgmengine.infer.exact.enumeration.enumeration import Enumeration
from pgmengine.infer.exact.exact import quick
from pgmengine.infer.exact.junction_tree.elimination import Elimination
from pgmengine.infer.results.result import duration
from pgmengine.model.graph.unit_graph import ancestors
from pgmengine.model.weights import add_rows

DEFAULTS = (
    pgm.Exact(),
    pgm.Forward(),
    pgm.MCMC(),
    pgm.SwendsenWang(),
    pgm.ClusterLadder(),
    pgm.AIS(),
    pgm.ParallelTempering(),
    pgm.SimulatedTempering(),
    pgm.TemperedTransitions(),
    pgm.MeanField(),
    pgm.WangLandau(lambda x: x["s"][:, 0].astype(int), 2),
)
every([METHODS[name] for name in ESTIMATES], DEFAULTS)


def arrows_inside(size, weight=1.0, sparse=True):
    b = pgm.GraphBuilder()
    b.layer("s", pgm.Binary(), size)
    inside = sp.diags_array(np.full(size - 1, weight), offsets=1, shape=(size, size)).tocsr()
    b.cause("s", "s", weight=inside if sparse else inside.toarray())
    return b.build()


@one_test_over(
    "method",
    # A ladder of clusters reads the couplings that are not 0, wherever they are stored.
    [m for m in DEFAULTS if not isinstance(m, (pgm.Exact, pgm.Forward, pgm.ClusterLadder))],
    ids=lambda m: type(m).__name__,
)
def test_sparse_weights_are_priced_by_their_entries(method):
    """Only stored entries count, and cost the same in sparse and in dense weights."""
    want = ("log_z",) if isinstance(method, pgm.AIS) else ("marginals",)
    target = lattice(40).given()
    dense = target.model.with_params({"s-s.weight": target.model.params["s-s.weight"].toarray()})
    few, all_places = method.plan(target, want), method.plan(dense.given(), want)
    assert few.accepted and all_places.work > 40 * few.work and few.seconds > 0


@pytest.mark.long
def test_every_candidate_for_a_large_lattice_is_priced_and_nothing_is_made_of_all_pairs():
    """4.0e4 spins have 1.6e9 pairs: a byte each would be six times the limit."""
    # A lattice on a torus is not planar, so that log Z is no determinant.
    model = lattice(200, periodic=True)
    tracemalloc.start()
    told = (
        pgm.explain(model),
        pgm.explain(model, want=("log_z",)),
        pgm.explain(model, want=("bound",)),
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**28
    # Annealing would take 14 minutes, and a ladder of clusters takes two.
    chosen = [e.chosen and e.chosen.method for e in told]
    assert chosen == ["SwendsenWang", "ClusterLadder", "MeanField"]
    assert all(p.work < 1e11 and p.seconds <= 600 for e in told for p in e.plans if p.accepted)


def test_a_large_lattice_is_swept_without_all_pairs():
    """Short chains of the default method: means of spins without fields, 4 chains apart, lie within
    their range.
    """
    tracemalloc.start()
    r = pgm.infer(lattice(316), method=pgm.MCMC(warmup=2, draws=3, rhat_limit=math.inf), rng=0)
    assert tracemalloc.get_traced_memory()[1] < 2**30
    tracemalloc.stop()
    assert abs(r.mean["s"].mean()) < 0.1  # 1.0e5 spins: twenty standard errors


def made_inputs(monkeypatch):
    """Counts how often inputs of whole layers are made."""
    made, inputs = [], Model.inputs
    monkeypatch.setattr(
        Model, "inputs", lambda self, x, name: made.append(name) or inputs(self, x, name)
    )
    return made


@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
def test_forward_follows_a_chain_inside_a_layer_without_making_whole_layers_anew(
    monkeypatch, sparse, errors=6.0
):
    """Means against the recursion of a chain; a false alarm has probability 2e-9 a unit by the
    normal tail.
    """
    size, draws = 300, 4000
    made, model = made_inputs(monkeypatch), arrows_inside(size, 1.5, sparse)
    # Without the exact check of infer, which makes inputs of its own.
    r = pgm.Forward(draws).run(model.given(), rng=0)
    assert len(made) < 5
    exact = np.empty(size)
    for i in range(size):
        exact[i] = 0.5 if i == 0 else 0.5 + exact[i - 1] * (1 / (1 + math.exp(-1.5)) - 0.5)
    assert np.abs(r.mean["s"] - exact).max() < errors * 0.5 / math.sqrt(draws)


def test_forward_weighs_what_is_observed_along_a_chain(errors=6.0):
    """log Z and means given the third of four units, against enumeration."""
    model, evidence = arrows_inside(4, 2.0), {"s": [np.nan, np.nan, 1, np.nan]}
    r = pgm.infer(model, evidence, want=("log_z", "marginals"), method=pgm.Forward(20_000), rng=0)
    exact = pgm.infer(model, evidence, want=("log_z", "marginals"), method=pgm.Exact())
    assert abs(r.log_z[0] - exact.log_z[0]) < errors * r.log_z_error[0]
    assert np.all(np.abs(r.mean["s"] - exact.mean["s"]) <= errors * r.stats["mcse"]["s"] + 1e-12)


def random_layer(seed, size=30, k=1):
    rng = np.random.default_rng(seed)
    order = rng.permutation(size)
    linked = np.triu(rng.random((size, size)) < 0.08, 1)
    weight = np.zeros((size, size))
    weight[np.ix_(order, order)] = linked * rng.normal(size=(size, size))
    b = pgm.GraphBuilder()
    b.layer("s", pgm.Binary() if k == 1 else pgm.Categorical(k), size)
    b.cause("s", "s", weight=sp.csr_array(np.kron(weight, np.eye(k))))
    return b.build(), weight != 0


@pytest.mark.parametrize("k", [1, 3])
@one_test_over("seed", range(4))
def test_generations_and_ancestors_follow_arrows(seed, k):
    """Against the definitions, by repeated products with the matrix of arrows."""
    model, linked = random_layer(seed, k=k)
    turn = np.empty(len(linked), dtype=int)
    for t, units in enumerate(model.generations["s"]):
        turn[units] = t
    parents, children = np.nonzero(linked)
    assert np.all(turn[parents] < turn[children])
    assert all(
        turn[c] == 1 + max((turn[p] for p in np.flatnonzero(linked[:, c])), default=-1)
        for c in range(len(linked))
    )
    rng = np.random.default_rng(seed)
    active = rng.random((5, len(linked))) < 0.1
    passable = (rng.random(active.shape) < 0.8) & ~active
    found, front = np.zeros_like(active), active
    while (new := (front.astype(int) @ linked.T > 0) & passable & ~found).any():
        found, front = found | new, new
    np.testing.assert_array_equal(ancestors(model, "s", active, passable), found)


def test_units_above_what_is_seen_in_a_chain_are_not_barren():
    seen = np.full((2, 2000), np.nan)
    seen[0, 1000], seen[1, -1] = 1, 0
    hidden = barren(arrows_inside(2000).given({"s": seen}))["s"]
    np.testing.assert_array_equal(hidden, [np.arange(2000) > 1000, np.zeros(2000, dtype=bool)])


def test_rows_of_a_sparse_parameter_are_added_where_it_has_entries():
    rng = np.random.default_rng(0)
    weight = sp.csr_array(rng.normal(size=(12, 9)) * (rng.random((12, 9)) < 0.3))
    x, rows = rng.normal(size=(4, 3)), np.array([7, 2, 11])
    sparse, dense = np.ones((4, 9)), np.ones((4, 9))
    add_rows(sparse, x, weight, rows)
    add_rows(dense, x, weight.toarray(), rows)
    np.testing.assert_allclose(sparse, dense, atol=1e-14)
    np.testing.assert_allclose(dense - 1, x @ weight.toarray()[rows], atol=1e-14)


@pytest.mark.parametrize("method", DEFAULTS[:-1], ids=lambda m: type(m).__name__)
@one_test_over("m", MODELS)
def test_every_accepted_plan_says_seconds(m, method):
    for want in (("marginals",), ("log_z",), ("marginals", "pairs", "gradient")):
        for target in (m.build().given(), mixed_target(m, rows=3)):
            plan = method.plan(target, want)
            if plan.accepted:
                assert (
                    0 < plan.seconds < 1e4
                    and " unit updates, " in str(plan)
                    and " s, " in str(plan)
                )


def seconds(method, model, evidence=None, want=("marginals",)):
    return method.plan(model.given(evidence), want).seconds


def test_seconds_tell_engines_apart():
    """For equal unit updates, runs of the engines differ by orders of magnitude in time, and so do
    their plans.
    """
    small = pgm.MCMC(rhat_limit=math.inf)
    assert seconds(pgm.MCMC(kernel=OwnGibbs()), arrows_inside(50)) > 50 * seconds(
        pgm.MCMC(), arrows_inside(50)
    )
    model, evidence = of_layers(201), {"x200": [1]}
    wide = pgm.rbm(100, 100, rng=0)
    a_unit = [
        seconds(small, m, e) / small.plan(m.given(e), ("marginals",)).work
        for m, e in ((model, evidence), (wide, None))
    ]
    assert 1e-7 < a_unit[0] < 3e-6 and 1e-10 < a_unit[1] < 2e-8
    steps = [seconds(pgm.Exact(), pgm.rbm(64, n, rng=0), want=("log_z",)) for n in (21, 22)]
    assert 1.8 < steps[1] / steps[0] < 2.2
    assert seconds(pgm.Exact(), pgm.rbm(64, 22, rng=0), want=("gradient",)) > 3 * steps[1]


def test_times_are_written_as_people_say_them():
    plan = pgm.Plan("M", "exact", "why", 3.1e8, 14 * 2**20, seconds=0.5)
    assert str(plan) == "M: exact; why; about 3.1e+08 unit updates, 0.5 s, 14 MiB"
    assert (
        str(pgm.Plan("M", "exact", "why", 10, 2**20))
        == "M: exact; why; about 10 unit updates, 1 MiB"
    )


def test_the_table_of_explain_shows_times():
    told = pgm.explain(pgm.rbm(4, 2, rng=0))
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(told)
    shown = console.export_text()
    assert "time" in shown and told.chosen.sizes[1] in shown
    assert (
        "<th>time</th>" in told._repr_html_()
        and f"<td>{told.chosen.sizes[1]}</td>" in told._repr_html_()
    )


def test_auto_leaves_out_what_takes_too_long():
    model = lattice(30, periodic=True)
    told = pgm.explain(model, method=pgm.Auto(max_seconds=0.1))
    assert (
        "MCMC: refused, about" in told
        and "on one core, the limit is 0.1 s (Auto's max_seconds)" in told
    )
    assert pgm.explain(model).chosen.method == "SwendsenWang"
    with pytest.raises(pgm.PgmError, match="max_seconds"):
        pgm.Auto(max_seconds=-1)


def test_a_plan_says_how_long_its_planning_took_where_it_took_long():
    plan = pgm.Exact().plan(lattice(8).given(), ("log_z",))
    assert 0.0 < plan.preparation and plan.bare.preparation == plan.preparation
    assert plan == replace(plan, preparation=9.94) and "planning" not in str(plan)
    assert str(replace(plan, preparation=9.94)).endswith(", after 9.9 s of planning")


def test_explain_says_how_long_the_methods_take_that_follow_chains():
    """The second chains and the ladder of a question whose chains may not mix."""
    model = lattice(8, periodic=True)
    # Ladders above the limit of what follows do not count.
    chains, ladder = pgm.MCMC(), pgm.ParallelTempering()
    auto = pgm.Auto(candidates=(chains, ladder), retry_seconds=math.inf)
    both = sum(m.plan(model.given(), ("marginals",)).seconds for m in (chains, ladder))
    assert auto.plan(model.given(), ("marginals",)).most_seconds == pytest.approx(both)
    told = pgm.explain(model, method=auto)
    assert f"at most about {duration(both)} with the methods that follow" in told
    alone = pgm.explain(model, method=replace(auto, retry_seconds=0.0))
    assert alone.endswith("answer: MCMC, estimate")


def test_a_quick_check_takes_the_cheaper_of_enumeration_and_tree():
    """A chain of 40 units: 2^20 states of a cover to visit, or a tree of 39 cliques."""
    long, short = (quick(of_layers(n).given(), ("marginals",), 22.0, 2.0**20, 1) for n in (40, 6))
    assert isinstance(long.method, Elimination) and long.plan.accepted
    assert isinstance(short.method, Enumeration) and short.plan.accepted


def test_children_of_many_parents_are_not_checked_by_a_tree():
    target = pgm.sbn([30, 40], rng=0).given()
    assert quick(target, ("marginals",), 22.0, 2.0**20, 1).plan.refusal

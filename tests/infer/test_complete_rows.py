"""Rows with every unit observed have a known log Z and known means, by every method.

Nothing is left to draw or to bound. Two of the rows are equal, and they differ from the third.
"""

import numpy as np
import pytest
import scipy.sparse as sp
from exact_answers import close, shown_mean
from loops import one_test_over
from mixed_questions import Question, Row, inputs_of, question
from random_graphs import Oracle
from registry import FEW_DRAWS, GIVE_LOG_Z
from tiny import MODELS, NORMAL, as_evidence, draw_row

import pgmengine as pgm

EXACT = 1e-9
# A partition of the states looks at layers by name, which random graphs do not share.
METHODS = {name: m for name, m in FEW_DRAWS.items() if name != "WangLandau"}


def complete(seed):
    """A random graph with three complete rows; None where it has units without states to draw."""
    graph, rng = question(seed).graph, np.random.default_rng([59, seed])
    if not graph.finite or inputs_of(graph):
        return None
    oracle = Oracle(graph)
    states = oracle.index[:, rng.choice(len(oracle.p), 2, p=oracle.p)].T
    one, other = (Row(dict(zip(graph.units, s.tolist(), strict=True)), {}, {}) for s in states)
    return Question(seed, graph, (one, other, one))


@pytest.mark.parametrize("name", METHODS)
def test_log_z_and_means_of_complete_rows(name, *, graphs=12):
    method, first = METHODS[name], int(np.random.default_rng(7).integers(2**31))
    asked = [q for seed in range(first, first + 2 * graphs) if (q := complete(seed))]
    for q in asked[:graphs]:
        model, right = q.graph.build(), np.array([o.log_z for o in q.oracles])
        for want in ("log_z", "marginals"):
            if not method.prepare(model.given(**q.arguments()), want).plan.accepted:
                continue
            r = pgm.infer(model, want=want, method=method, rng=0, **q.arguments())
            if want == "log_z":
                low, high = np.transpose(r.log_z_interval)
                where = f"log Z {r.log_z}, question {q.seed}"
                assert (low - EXACT <= right).all() and (right <= high + EXACT).all(), where
                continue
            for layer in q.graph.layers:
                for row, oracle in enumerate(q.oracles):
                    found = np.ravel(r.mean[layer][row])
                    mean = shown_mean(q.graph, oracle, layer)
                    close(found, mean, f"mean of {layer}, question {q.seed}")


@one_test_over("tiny_model", (*MODELS, NORMAL), ids=lambda m: m.name)
def test_intervals_of_complete_rows_hold_the_sum_in_another_order(tiny_model):
    """An interval that has no error of sampling still has the rounding of its sums."""
    model, rng = tiny_model.build(), np.random.default_rng(0)
    full = [draw_row(tiny_model, rng, 1.0) for _ in range(3)]
    evidence = as_evidence(tiny_model, full)
    right = pgm.infer(model, evidence, want=("log_z",), method=pgm.Exact()).log_z
    for name in GIVE_LOG_Z:
        method = FEW_DRAWS[name]
        if not method.prepare(model.given(evidence), ("log_z",)).plan.accepted:
            continue
        r = pgm.infer(model, evidence, want=("log_z",), method=method, rng=0)
        low, high = np.transpose(r.log_z_interval)
        assert ((low <= right) & (right <= high)).all(), name
        assert ((low <= r.log_z) & (r.log_z <= high)).all(), name
        finite = np.isfinite(right)
        assert (high - low < EXACT)[finite].all(), name
        # No draws have to travel where nothing is drawn.
        assert r.status is not pgm.Status.FEW_TRIPS, name


def test_sweeps_of_children_without_a_stored_weight():
    """An arrow that stores no entry beside a table leaves all units to be swept."""
    b = pgm.GraphBuilder()
    b.variable("a", states=2)
    b.layer("x", pgm.Binary(), 1)
    b.layer("y", pgm.Binary(), 1)
    b.cause("x", "y", weight=sp.csr_array((1, 1)))
    b.table((("x", 0), "a"), [[1.0, 2.0], [3.0, 1.0]])
    r = pgm.infer(b.build(), {"x": [1]}, method=pgm.MCMC(chains=2, warmup=2, draws=8), rng=0)
    assert r.mean["x"] == 1.0 and 0.0 <= r.mean["y"] <= 1.0

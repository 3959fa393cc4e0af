"""Barren units: by arrows and by tables, row by row."""

import numpy as np
import pytest
from loops import one_test_over
from random_graphs import as_arguments, as_hints, draw_question, random_causes, random_graph

import pgmengine as pgm
from pgmengine.evidence.relevance import barren


def chain_of_conditionals():
    b = pgm.GraphBuilder()
    for name in "abc":
        b.variable(name)
    b.conditional("a", (), [0.3, 0.7])
    b.conditional("b", ("a",), [[0.2, 0.8], [0.6, 0.4]])
    b.conditional("c", ("b",), [[0.1, 0.9], [0.5, 0.5]])
    return b.build()


def random_target(seed, make):
    """Rows of evidence and interventions; soft evidence and beta = 1 in some of the rows."""
    graph, rng = make(seed, 2**10), np.random.default_rng(seed)
    asked = draw_question(graph, seed, rows=7)
    soft = {
        name: field * (rng.random(len(field)) < 0.5).reshape(-1, *[1] * (field.ndim - 1))
        for name, field in as_hints(graph, asked).items()
    }
    do = as_arguments(graph, asked, 2)
    target = graph.build().given(as_arguments(graph, asked, 0), soft=soft or None, do=do or None)
    return target.at(np.where(rng.random(7) < 0.8, 1.0, 0.5)) if seed % 2 else target


@pytest.mark.parametrize("make", (random_graph, random_causes))
@one_test_over("seed", range(12))
def test_barren_units_of_a_row_do_not_depend_on_other_rows(seed, make):
    target = random_target(seed, make)
    together = barren(target)
    for row in range(target.rows):
        for name, mask in barren(target.take(np.array([row]))).items():
            np.testing.assert_array_equal(together[name][row], mask[0])


@one_test_over(
    ("given", "expected"),
    [
        ({}, "abc"),
        ({"evidence": {"c": 1}}, ""),
        ({"evidence": {"b": 1}}, "c"),
        ({"soft": {"b": [0.0, 1.0]}}, "c"),
        ({"do": {"b": 1}}, "ac"),
        ({"do": {"c": 1}}, "ab"),
    ],
)
def test_conditionals_without_evidence_below_them_are_barren(given, expected):
    target = chain_of_conditionals().given(**given)
    mask = np.concatenate([*barren(target).values()], axis=1)[0]
    labels = [label for layer in target.structure.layers.values() for label in layer.labels]
    assert "".join(np.array(labels)[mask]) == expected
    assert not any(found.any() for found in barren(target, tables=False).values())


def test_bounds_of_rows_with_and_without_soft_evidence_are_those_of_each_row_alone():
    model = pgm.GraphBuilder()
    for name in "abc":
        model.variable(name)
    model.conditional("a", (), [0.3, 0.7])
    model.conditional("b", ("a",), [[0.2, 0.8], [0.6, 0.4]])
    model.conditional("c", ("a", "b"), [[[0.1, 0.9], [0.5, 0.5]], [[0.9, 0.1], [0.3, 0.7]]])
    asked = {"want": ("bound",), "method": pgm.MeanField()}
    soft = np.array([[0.0, 0.0], [0.0, 2.0]])
    together = pgm.infer(model.build(), soft={"c": soft}, **asked)
    alone = [pgm.infer(model.build(), soft={"c": row}, **asked).bound for row in soft]
    np.testing.assert_allclose(together.bound, np.ravel(alone), atol=1e-9)
    # Without soft evidence, all units are barren, so that the bound is exact.
    np.testing.assert_allclose(together.bound[0], 0.0, atol=1e-12)

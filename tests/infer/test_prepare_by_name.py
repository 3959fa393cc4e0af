"""Prepared questions whose observed units are named variables."""

import numpy as np
import pytest
from loops import one_test_over

import pgmengine as pgm


def three_variables():
    b = pgm.GraphBuilder()
    for name in "abc":
        b.variable(name, states=("no", "yes"))
    b.conditional("a", (), [0.7, 0.3])
    b.conditional("b", ("a",), [[0.9, 0.1], [0.2, 0.8]])
    b.conditional("c", ("b",), [[0.6, 0.4], [0.1, 0.9]])
    return b.build()


def test_a_prepared_question_about_variables_answers_as_infer_does():
    ask = pgm.prepare(three_variables(), observed=("a", "c"))
    for evidence in ({"a": "yes", "c": "no"}, {"a": ["no", "yes"], "c": ["yes", "yes"]}):
        one, two = ask(evidence), pgm.infer(three_variables(), evidence)
        np.testing.assert_array_equal(
            list(one.marginal("b").values()), list(two.marginal("b").values())
        )


@one_test_over("evidence", [{"a": "yes"}, {"a": "yes", "b": "no"}, {}])
def test_other_units_observed_are_refused(evidence):
    ask = pgm.prepare(three_variables(), observed=("a", "c"))
    with pytest.raises(
        pgm.PgmError, match=r"variable '[abc]', row 0 is .*observed, and the question was prepared"
    ):
        ask(evidence)


def test_unknown_names_are_refused():
    with pytest.raises(pgm.PgmError, match="observed: variable 'd' is unknown"):
        pgm.prepare(three_variables(), observed=("d",))

"""Rows that are divided: each of them is in exactly one part, or the fault is named."""

import numpy as np
import pytest
from loops import one_test_over

from pgmengine.base.errors import InternalError, PgmError
from pgmengine.base.work.division import blocks, check_divided


@one_test_over("count", range(8))
@one_test_over("size", [0.3, 1, 2, 3.9, 7, np.inf])
def test_blocks_are_a_division_in_order(count, size):
    rows = 3 * np.arange(count)
    parts = blocks(rows, size)
    assert np.array_equal(np.concatenate([rows[:0], *parts]), rows)
    assert all(1 <= len(part) <= max(size, 1) for part in parts)
    check_divided([part // 3 for part in parts], count, "blocks")


def test_divisions_in_any_order_of_their_parts():
    check_divided([np.array([1, 4]), np.array([0]), np.array([2, 3])], 5, "parts")
    check_divided([], 0, "no parts")


@one_test_over(
    "parts, what",
    [
        ([[0, 1], [3]], "row 2 by 0"),
        ([[0, 1], [1, 2, 3]], "row 1 by 2"),
        ([[0, 0, 1, 2, 3]], "row 0 by 2"),
        ([], "row 0 by 0, row 1 by 0, row 2 by 0 ... and 1 more"),
        ([[0, 1], [2, 3, 4]], ""),
        ([[0, 1, 2], [1, 3], [0]], "row 0 by 2, row 1 by 2"),
        ([[0, 2, 1, 3]], "not in order"),
        ([[1, 0], [2, 3]], "not in order"),
    ],
)
def test_faults_are_named(parts, what):
    with pytest.raises(InternalError, match=f"work: .*{what}.*please report it") as error:
        check_divided([np.array(part, dtype=int) for part in parts], 4, "work")
    # A plan must not take it for a refusal.
    assert not isinstance(error.value, PgmError)

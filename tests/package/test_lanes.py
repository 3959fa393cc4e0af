"""The quick and the long lane together have every item once, and a loop tells every failure."""

import itertools
import subprocess
import sys
from pathlib import Path

import lanes
import pytest
from loops import one_test_over

ROOT = Path(__file__).parents[2]
SHAPES = [(7,), (5, 5), (3, 2), (2, 2, 2), (13, 3, 2), (3, 2, 2, 6), (40, 4), (6, 15, 4)]


def axes(shape, most=1000):
    """The columns of the product of parameters with these numbers of values."""
    rows = list(itertools.product(*map(range, shape)))
    return {column: most for column in zip(*rows, strict=True)}


@one_test_over("shape", SHAPES)
def test_each_value_of_each_parameter_is_taken(shape):
    taken = lanes.few("a test", axes(shape))
    for column in axes(shape):
        assert {column[i] for i in taken} == set(column)
    assert len(taken) == max(shape)


def test_two_small_parameters_meet_in_every_pair():
    _, two, three = axes((9, 2, 3))
    taken = lanes.few("a test", axes((9, 2, 3)))
    assert len({(two[i], three[i]) for i in taken}) == 6


def test_tests_take_other_seeds_of_a_range():
    taken = [lanes.few(f"test {i}", axes((200,), most=4)) for i in range(20)]
    assert {len(some) for some in taken} == {4} and len(set().union(*taken)) > 40


def test_items_that_are_always_taken_count():
    (column, _), always = axes((5, 3)), [0, 1, 2, 3]
    taken = lanes.few("a test", axes((5, 3)), always)
    assert taken > set(always) and {column[i] for i in taken} == set(range(5))
    assert len(taken) == 4 + 3


def collected(*arguments):
    command = [sys.executable, "-m", "pytest", "-n", "0", "--collect-only", *arguments]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {line for line in found.splitlines() if "::" in line}


@pytest.mark.long
def test_both_lanes_together_have_every_item_once():
    files = ("tests/engine/test_kernel_contract.py", "tests/infer/exact/test_elimination.py")
    quick, long, both = (
        collected("-m", lane, *files) for lane in ("not long", "long", "long or not long")
    )
    assert quick | long == both and not quick & long and len(quick) < len(long)
    # An item that is named is there in any lane.
    one = next(item for item in sorted(long) if "test_pairs_and_joints[" in item)
    assert collected(one) == {one}


def test_a_loop_runs_all_cases_and_tells_each_failure():
    met = []

    @one_test_over("a, b", [(1, 1), (2, 3), (4, 4), (5, 6)])
    def test(a, b, fixture):
        met.append((a, fixture))
        assert a == b

    with pytest.raises(BaseExceptionGroup, match="2 of 4 cases failed") as told:
        test(fixture="one")
    assert met == [(1, "one"), (2, "one"), (4, "one"), (5, "one")]
    assert [e.__notes__[-1] for e in told.value.exceptions] == [
        "in the case 2 (number 2)",
        "in the case 5 (number 4)",
    ]


def test_a_loop_tells_what_did_not_raise():
    @one_test_over("value", lambda: ["1", "x"])
    def test(value):
        with pytest.raises(ValueError, match="invalid"):
            int(value)

    with pytest.raises(BaseExceptionGroup, match="1 of 2 cases failed"):
        test()

"""Rows asked together have the answers of each row alone, whatever shortcuts are taken.

Random questions of mixed_questions.py are asked in the ways of rows_together.py, and all answers
are compared with the enumeration of the states. The tests also fail where a shortcut is reached too
seldom, and where a fault that is put in is not found. A failure names the command that asks its
question again.
"""

from collections import Counter

import numpy as np
import pytest
import shortcuts
from put_back import FAULTS, found_by
from rows_together import compare

# Questions of the quick lane and of each long test, which asks more while a shortcut was taken by
# fewer than LEAST answers: the rarest one is taken by about one question in twenty.
QUESTIONS, LONG, MOST = 40, 150, 8
LEAST = 3


def ask(count, start, least=LEAST):
    """Compare the answers to some questions; their seeds differ between starts and shifts."""
    reached, first = Counter(), int(np.random.default_rng(start).integers(2**31))
    for number in range(MOST * count):
        seldom = {name: reached[name] for name in shortcuts.NAMES if reached[name] < least}
        if number >= count and not seldom:
            return
        compare(first + number, reached)
    raise AssertionError(f"{MOST * count} questions reach shortcuts too seldom: {seldom}")


def test_rows_together_and_alone():
    ask(QUESTIONS, 0, least=0)


@pytest.mark.long
@pytest.mark.parametrize("start", range(1, 7))
def test_many_more_rows_together_and_alone(start):
    ask(LONG, start)


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_is_put_in_is_found(name):
    assert found_by(name) is not None, f"{name}: {FAULTS[name].__doc__}"

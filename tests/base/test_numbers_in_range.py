"""Limits of numbers: which are in range, and that checking them takes no copy of large arrays."""

import tracemalloc

import numpy as np

from pgmengine.base.checks import LARGEST, in_range


def test_finite_numbers_up_to_the_largest_size_are_in_range():
    good = [0.0, -1.5, LARGEST, -LARGEST]
    beyond = np.nextafter(LARGEST, np.inf)
    bad = [np.nan, np.inf, -np.inf, beyond, -beyond]
    assert in_range(good).all() and not in_range(bad).any()
    assert in_range(np.array([3, -3])).all() and in_range(2.0)


def test_checking_takes_no_copy_of_large_arrays(count=1_000_000):
    values = np.ones(count)
    tracemalloc.start()
    try:
        assert in_range(values).all()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Three arrays of one byte a number; a copy of the numbers has eight.
    assert peak < 4 * count

"""Equal rows and pairs, as numpy finds them, without types of many fields."""

import re
from pathlib import Path

import numpy as np
from loops import one_test_over

import pgmengine
from pgmengine.base.equal_rows import distinct_pairs, equal_rows, rows_by_kind

RNG = np.random.default_rng(3)


@one_test_over(
    "array",
    [
        RNG.integers(0, 2, (40, 3)),
        RNG.integers(0, 2, (40, 3)) > 0,
        RNG.integers(-1, 2, (60, 2)) * 0.5,
        np.array([[0.0, -0.0], [-0.0, 0.0], [1.0, 0.0]]),
        RNG.integers(0, 2, (30, 2, 2)).astype(np.uint8),
        RNG.integers(0, 3, (30, 4))[:, ::2],
        np.broadcast_to(RNG.integers(0, 3, (1, 4)), (5, 4)),
        RNG.integers(0, 3, (300, 7)).astype(np.uint8),
        RNG.integers(0, 2, (260, 1)) * 0.5,
        np.zeros((4, 0)),
        np.zeros((0, 3)),
    ],
)
def test_equal_rows(array):
    first, kind = equal_rows(array)
    flat = array.reshape(len(array), int(np.prod(array.shape[1:])))
    assert len(kind) == len(array)
    equal = (flat[:, None] == flat[None]).all(axis=2)
    np.testing.assert_array_equal(kind[:, None] == kind[None], equal)
    # Kinds are numbered as they appear, and `first` has their first rows.
    np.testing.assert_array_equal(first, [equal[i].argmax() for i in first])
    np.testing.assert_array_equal(kind[first], np.arange(len(first)))
    assert (np.diff(first) > 0).all() and len(first) == len({tuple(row) for row in flat.tolist()})
    groups = rows_by_kind(array)
    assert sum(map(len, groups)) == len(array)
    for number, group in enumerate(groups if len(array) else ()):
        np.testing.assert_array_equal(group, np.flatnonzero(kind == number))


def test_equal_rows_of_several_arrays():
    a, b = RNG.integers(0, 2, (50, 2)), RNG.integers(0, 3, (50, 1)) / 2
    np.testing.assert_array_equal(
        equal_rows(a, b)[1], equal_rows(np.concatenate([a, 2 * b], axis=1))[1]
    )


def test_distinct_pairs():
    a, b = RNG.integers(0, 5, 60), RNG.integers(0, 7, 60)
    pairs, which = distinct_pairs(a, b)
    assert [*map(tuple, pairs.tolist())] == sorted({*zip(a.tolist(), b.tolist())})
    np.testing.assert_array_equal(pairs[which], np.stack([a, b], axis=1))
    large = np.array([2**31 - 1, 0], dtype=np.int32)
    assert distinct_pairs(large, large)[0].tolist() == [[0, 0], [2**31 - 1, 2**31 - 1]]
    assert distinct_pairs(a[:0], b[:0])[0].shape == (0, 2)


def test_no_module_lets_numpy_make_a_type_of_each_column():
    for path in Path(pgmengine.__file__).parent.rglob("*.py"):
        found = re.search(r"np\.unique\([^)]*axis=", path.read_text().replace("\n", " "))
        mine = path.name == "equal_rows.py"
        assert mine or not found, f"{path}: take equal_rows or distinct_pairs"

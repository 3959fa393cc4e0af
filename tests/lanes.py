"""The items of a parametrised test that the quick lane takes; the long lane takes the others.

A test of p parameters with n values each has n^p items. The quick lane takes each value of each
parameter, and pairs values that have not met as far as the largest parameter leaves room for them.
A parameter that draws from a population (a range, mostly of seeds, or models whose class says
`one_of_many`) gives a few of its values, other ones to each test. Where a test has the mark
`few(n)`, each parameter gives at most n. Items with the mark `smoke` are always taken. All others
get the mark `long`, so that `pytest` and `pytest -m long` together run every item once. Where the
mark expression asks for none of them, they are not even made.
"""

from collections import Counter
from zlib import crc32

import pytest

# Expressions of `-m` that leave out every item with the mark `long`.
WITHOUT_LONG = ("not long", "smoke")
# A test of at most so many items, without the mark, is taken whole.
SMALL = 4
# How many seeds, and how many models, of a population are taken.
SEEDS, MODELS = 2, 4


def choose(metafunc):
    """Mark the items that the quick lane leaves out, or unmake them where they are not asked for.

    `metafunc` has been parametrised. pytest has no public place for its items before they are
    made; `_calls` has had this name since its version 3.
    """
    calls = metafunc._calls
    short = [c for c in calls if not has(c, "long")]
    always = [i for i, c in enumerate(short) if has(c, "smoke")]
    taken = range(len(short))
    if len(short) > SMALL or metafunc.definition.get_closest_marker("few"):
        taken = few(metafunc.definition.nodeid, axes_of(metafunc, short), always)
    for i, call in enumerate(short):
        if i not in taken:
            call.marks.append(pytest.mark.long.mark)
    # A test without items would be made without its parameters.
    if short and metafunc.config.option.markexpr in WITHOUT_LONG:
        calls[:] = [c for c in short if not has(c, "long")]


def has(call, name):
    return any(mark.name == name for mark in call.marks)


def axes_of(metafunc, calls):
    """For each parameter the index of its value in each item, and how many values are taken.

    Names that one `parametrize` gives together are one parameter.
    """
    ranges = {
        mark.args[0]
        for mark in metafunc.definition.iter_markers("parametrize")
        if isinstance(mark.args[1], range)
    }
    mark = metafunc.definition.get_closest_marker("few")
    axes = {}
    for name in calls[0].indices:
        column = tuple(c.indices[name] for c in calls)
        if mark:
            most = mark.args[0]
        elif name in ranges or name == "seed":
            most = SEEDS
        elif all(getattr(c.params.get(name), "one_of_many", False) for c in calls):
            most = MODELS
        else:
            most = len(calls)
        axes[column] = min(most, axes.get(column, most))
    return axes


def few(name, axes, always=()):
    """The numbers of the items that are taken, for axes as `axes_of` returns them.

    There are as many as the largest axis has values. For each of them, the value of an axis is one
    that was taken least often, and of those one that met the values of the other axes least often.
    An item is left out where items that are always taken have all of its values.
    """
    levels = {column: spread(name, column, most) for column, most in axes.items()}
    order = sorted(levels, key=lambda column: -len(levels[column]))
    numbers = {key: i for i, key in enumerate(zip(*order, strict=True))}
    seen = {(column, column[i]) for column in order for i in always}
    taken, uses = set(always), Counter()
    for _ in levels[order[0]]:
        key = []
        for axis, column in enumerate(order):
            used = {
                v: (uses[axis, v], sum(uses[pair] for pair in pairs(key, axis, v)))
                for v in levels[column]
            }
            value = min(used, key=used.get)
            uses.update([(axis, value), *pairs(key, axis, value)])
            key.append(value)
        if not seen.issuperset(zip(order, key, strict=True)):
            taken.add(numbers[tuple(key)])
    return taken


def pairs(key, axis, value):
    """The value of an axis with each of the values before it."""
    return [(other, before, axis, value) for other, before in enumerate(key)]


def spread(name, column, most):
    """At most so many of the values of a column, in equal steps from a place that names choose."""
    values = sorted(set(column))
    count, start = min(most, len(values)), 0
    if count < len(values):
        start = crc32(name.encode()) % len(values)
    return [values[(start + i * len(values) // count) % len(values)] for i in range(count)]

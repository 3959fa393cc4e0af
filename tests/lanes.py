"""The items of a parametrised test that the quick lane takes; the long lane takes the others.

A test of p parameters with n values each has n^p items. The quick lane takes each value of each
parameter, and pairs the values of small parameters in every way that the largest leaves room for.
A parameter that draws from a population, a range (of seeds, mostly) or models whose class says
`one_of_many`, gives a few of its values, other ones to each test. Items with the mark `smoke` are
always taken. All others get the mark `long`, so that `pytest` and `pytest -m long` together run
every item once. Where the mark expression asks for none of them, they are not even made.
"""

from zlib import crc32

import pytest

# Expressions of `-m` that leave out every item with the mark `long`.
WITHOUT_LONG = ("not long", "smoke")
# A test of at most so many items is taken whole.
SMALL = 4
# How many seeds, and how many models, of a population are taken.
SEEDS, MODELS = 3, 6


def choose(metafunc):
    """Mark the items that the quick lane leaves out, or unmake them where they are not asked for.

    `metafunc` has been parametrised. pytest has no public place for its items before they are
    made; `_calls` has had this name since its version 3.
    """
    calls = metafunc._calls
    short = [c for c in calls if not has(c, "long")]
    taken = range(len(short))
    if len(short) > SMALL and not metafunc.definition.get_closest_marker("whole"):
        taken = few(metafunc.definition.nodeid, axes_of(metafunc, short))
    for i, call in enumerate(short):
        if i not in taken and not has(call, "smoke"):
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
    ranges = set()
    for mark in metafunc.definition.iter_markers("parametrize"):
        if isinstance(mark.args[1], range):
            ranges.add(mark.args[0])
    axes = {}
    for name in calls[0].indices:
        column = tuple(c.indices[name] for c in calls)
        values = [c.params.get(name) for c in calls]
        if name in ranges or name == "seed":
            most = SEEDS
        elif all(getattr(value, "one_of_many", False) for value in values):
            most = MODELS
        else:
            most = len(calls)
        axes[column] = min(most, axes.get(column, most))
    return axes


def few(name, axes):
    """The numbers of the items that are taken, for axes as `axes_of` returns them.

    Axis j, the largest first, has in step i of the loop below the value i + j (i // n) modulo n,
    with n its number of values: every n steps have each value, and every n^2 steps each pair with
    another axis of a prime n.
    """
    levels = {column: spread(name, column, most) for column, most in axes.items()}
    order = sorted(levels, key=lambda column: -len(levels[column]))
    rows = {key: i for i, key in enumerate(zip(*order, strict=True))}
    steps = len(levels[order[0]])
    wanted = [
        tuple(
            levels[column][(i + j * (i // len(levels[column]))) % len(levels[column])]
            for j, column in enumerate(order)
        )
        for i in range(steps)
    ]
    return {rows[key] for key in wanted}


def spread(name, column, most):
    """At most so many of the values of a column, in equal steps from a place that names choose."""
    values = sorted(set(column))
    count, start = min(most, len(values)), 0
    if count < len(values):
        start = crc32(name.encode()) % len(values)
    return [values[(start + i * len(values) // count) % len(values)] for i in range(count)]

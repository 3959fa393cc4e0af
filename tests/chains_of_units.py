"""Models whose graph is a chain: of units with tables, of layers with arrows, of variables."""

import numpy as np

import pgmengine as pgm


def of_tables(unit, size, values):
    """Units of a layer x with a table for each pair of neighbours, (size - 1, K, K) or (K, K)."""
    b = pgm.GraphBuilder()
    b.layer("x", unit, size)
    pairs = np.stack([np.arange(size - 1), np.arange(1, size)], axis=1)
    b.tables(("x", "x"), pairs, values)
    return b.build()


def of_layers(count):
    """Layers x0, x1 ... of one binary unit each, every one the parent of the next."""
    b = pgm.GraphBuilder()
    for i in range(count):
        b.layer(f"x{i}", pgm.Binary(), 1)
        if i:
            b.cause(f"x{i - 1}", f"x{i}", weight=np.ones((1, 1)))
    return b.build()


def of_variables(count, states, name="x{}", length=None):
    """Variables with random conditionals, each the parent of the next, in chains of some length.

    Their states, numbers or names, take turns.
    """
    b, rng = pgm.GraphBuilder(), np.random.default_rng(0)
    sizes = [s if isinstance(s, int) else len(s) for s in states]
    for i in range(count):
        parents = [i - 1] if i % (length or count) else []
        shape = tuple(sizes[p % len(states)] for p in parents)
        b.variable(name.format(i), states[i % len(states)])
        rows = rng.dirichlet(np.ones(sizes[i % len(states)]), shape)
        b.conditional(name.format(i), [name.format(p) for p in parents], rows)
    return b.build()

"""Small models with exact objectives, and random data of them, for tests of full batches."""

import numpy as np

import pgmengine as pgm


def ising(n=4, seed=0, unit=None):
    b = pgm.GraphBuilder()
    b.layer("v", unit or pgm.Spin(), n)
    b.couple("v", "v")
    return b.build(rng=seed)


def potts(seed=0):
    rng = np.random.default_rng(seed)
    b = pgm.GraphBuilder()
    for name in "abc":
        b.variable(name, states=3)
    b.table(("a", "b"), rng.random((3, 3)) + 0.2)
    b.table(("b", "c"), np.where(np.eye(3) > 0, 0.0, rng.random((3, 3)) + 0.2))
    return b.build()


def network(seed=0):
    rng = np.random.default_rng(seed)
    b = pgm.GraphBuilder()
    for name in "abc":
        b.variable(name, states=3)
    b.conditional("a", (), rng.dirichlet(np.ones(3)))
    b.conditional("b", ("a",), rng.dirichlet(np.ones(3), 3))
    b.conditional("c", ("a", "b"), rng.dirichlet(np.ones(3), (3, 3)))
    return b.build()


def crf(seed=0):
    rng = np.random.default_rng(seed)
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Input(), 3)
    b.layer("y", pgm.Categorical(3), 3)
    b.couple("x", "y", 0.3 * rng.standard_normal((3, 9)))
    b.tables(("y", "y"), [[0, 1], [1, 2]], rng.random((3, 3)) + 0.5)
    return b.build()


def observed(model, rows, seed, holes=0.0):
    """Random data of all finite layers, in the order of their variables or as arrays."""
    rng = np.random.default_rng(seed)
    out = {}
    for name, layer in model.structure.layers.items():
        if layer.unit.support is None:
            out[name] = rng.standard_normal((rows, layer.size))
            continue
        states = rng.integers(0, len(layer.unit.support), (rows, layer.size))
        wide = layer.unit.width > 1
        x = states.astype(float) if wide else layer.unit.support[states].astype(float)
        x[rng.random(x.shape) < holes] = np.nan
        out[name] = x
    return out

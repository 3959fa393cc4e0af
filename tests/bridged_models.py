"""Models, evidence with gaps, soft evidence and parameters for the gradients of torch and JAX."""

import numpy as np

import pgmengine as pgm

GAP = np.nan


def boltzmann():
    return pgm.rbm(4, 3, rng=0), {"v": [[1, GAP, 0, 1], [GAP] * 4]}, {"h": (2, 3)}, ["v-h.weight"]


def spins():
    model = pgm.boltzmann_machine(4, unit=pgm.Spin(), rng=0)
    (name,) = model.structure.layers
    return model, None, {name: (4,)}, [f"{name}.bias", f"{name}-{name}.weight"]


def potts():
    model = pgm.rbm(3, 2, visible=pgm.Categorical(3), rng=0)
    return model, {"v": [[0, GAP, 2], [GAP, 1, GAP]]}, {"v": (2, 3, 3)}, ["v-h.weight"]


def chain():
    """A hidden Markov model whose emissions are soft evidence."""
    b = pgm.GraphBuilder()
    z = b.variable("z", 3, shape=5)
    b.conditional(z[0], (), [0.2, 0.3, 0.5], name="first")
    b.conditional(z[1:], (z[:-1],), [[0.8, 0.2, 0], [0.1, 0.8, 0.1], [0, 0.3, 0.7]], name="next")
    return b.build(), None, {"z": (2, 5, 3)}, ["first", "next"]


def network():
    model = pgm.read(pgm.datasets.asia())
    given = {"xray": ["yes", None, "no"], "smoke": [None, "yes", None]}
    return model, given, {"lung": (2,), "bronc": (3, 2)}, [k for k in model.params if ".table" in k]


CASES = {f.__name__: f for f in (boltzmann, spins, potts, chain, network)}


def case(name):
    """A model, evidence, soft evidence (name -> array), and parameters that may change."""
    model, evidence, shapes, keys = CASES[name]()
    rng = np.random.default_rng(0)
    soft = {key: rng.normal(size=shape) for key, shape in shapes.items()}
    return model, evidence, soft, {key: np.array(model.params[key]) for key in keys}


def free(model, key, x, array):
    """A parameter from free numbers: symmetric inside a layer, and with the zeros of tables.

    `array` makes an array of the library from one of numpy.
    """
    own = np.array(model.params[key])
    if key in {f"{c.key}.weight" for c in model.structure.undirected if c.lateral}:
        return (x + x.T) * array(own != 0)
    return x if np.isfinite(own).all() else x + array(np.where(np.isfinite(own), 0.0, own))


def random_states(model, rows=5):
    """Values of all units of a model whose layers have no cells."""
    out, rng = {}, np.random.default_rng(0)
    for name, layer in model.structure.layers.items():
        support, size = layer.unit.support, (rows, layer.size)
        finite = support is not None
        out[name] = (
            support[rng.integers(len(support), size=size)] if finite else rng.uniform(-1, 1, size)
        )
    return out

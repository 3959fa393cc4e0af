"""Random models with a symmetry, in which all updates from the reference stay at a saddle."""

import math
from dataclasses import dataclass

import numpy as np
from lattices import edges, weights_of

import pgmengine as pgm


@dataclass(frozen=True)
class Case:
    """A maker of random models, with evidence or None for each."""

    name: str
    make: object

    def __repr__(self):
        return self.name


def inside(unit, n, weight):
    """One layer coupled with itself, without biases."""
    b = pgm.GraphBuilder()
    b.layer("x", unit, n)
    b.couple("x", "x", weight=weight)
    return b.build(), None


def symmetric(rng, n, scale):
    w = np.triu(rng.normal(size=(n, n)) * scale, 1)
    return w + w.T


def states_alike(rng, n, k, scale):
    """Couplings of Potts units: a number where two units have the same state."""
    return np.kron(symmetric(rng, n, scale), np.eye(k))


def ring(rng, n, sign):
    """A ring of units in random order, coupled strongly."""
    order, w = rng.permutation(n), np.zeros((n, n))
    w[order, np.roll(order, 1)] = sign * rng.uniform(1, 8)
    return w + w.T


def frustrated(rng, side):
    """The weights of a lattice with couplings of random sign."""
    # Along the columns first.
    pairs = np.roll(edges(side), len(edges(side)) // 2, axis=0)
    return weights_of(pairs, 1.5 * rng.choice([-1, 1], len(pairs)), side * side).toarray()


def layers(units, scale, rng, biases=False):
    """Layers in a row; biases of binary units that make 0 and 1 exchangeable."""
    b, size = pgm.GraphBuilder(), 4
    weights = [
        rng.normal(size=(size * one.width, size * two.width)) * scale
        for one, two in zip(units, units[1:], strict=False)
    ]
    for i, unit in enumerate(units):
        bias = np.zeros(size * unit.width)
        if biases:
            bias -= weights[i - 1].sum(axis=0) / 2 if i else 0
            bias -= weights[i].sum(axis=1) / 2 if i < len(weights) else 0
        b.layer(f"l{i}", unit, size, bias=bias.reshape(size, -1) if unit.width > 1 else bias)
    for i, weight in enumerate(weights):
        b.couple(f"l{i}", f"l{i + 1}", weight=weight)
    return b.build(), None


def potts_layers(rng, k):
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Categorical(k), 4)
    b.layer("h", pgm.Categorical(k), 3)
    b.couple("v", "h", weight=np.kron(rng.normal(size=(4, 3)) * 2, np.eye(k)))
    return b.build(), None


def tables(rng, k, n=6):
    """Tables that do not change when all units exchange the same two states."""
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Categorical(k) if k > 2 else pgm.Binary(), n)
    for i in range(1, n):
        for j in range(i):
            if rng.random() < 0.6:
                entry = np.exp(2 * rng.normal())
                b.table((("x", i), ("x", j)), np.where(np.eye(k) > 0, entry, 1 / entry))
    return b.build(), None


def causes(rng, child, scale):
    """Causes that are alike, of effects that one of them explains."""
    b = pgm.GraphBuilder()
    b.layer("h", pgm.Binary(), 3, bias=np.full(3, -1.0))
    low = np.full(2, 0.05) if isinstance(child, pgm.NoisyOr) else np.full(2, -scale / 2)
    b.layer("v", child, 2, bias=low)
    b.cause("h", "v", weight=np.full((3, 2), scale * rng.uniform(0.8, 1.2)))
    return b.build(), {"v": [1, 1]}


def mixture(rng):
    """Components that may be exchanged: two choices of a component, coupled by a table."""
    b = pgm.GraphBuilder()
    b.layer("z", pgm.Categorical(3), 2)
    b.layer("v", pgm.Binary(), 3)
    means = rng.uniform(1.5, 3.0)
    b.cause("z", "v", weight=np.tile(means * np.eye(3), (2, 1)))
    b.table((("z", 0), ("z", 1)), np.where(np.eye(3) > 0, 5.0, 0.2))
    return b.build(), None


S, B, C = pgm.Spin(), pgm.Binary(), pgm.Categorical(3)
CASES = (
    Case("spins", lambda rng: inside(S, 7, symmetric(rng, 7, 1.5))),
    Case("weak spins", lambda rng: inside(S, 8, symmetric(rng, 8, 0.45))),
    Case("strong spins", lambda rng: inside(S, 6, symmetric(rng, 6, 8.0))),
    Case("ferromagnet", lambda rng: inside(S, 8, ring(rng, 8, 1.0))),
    Case("antiferromagnet", lambda rng: inside(S, 7, ring(rng, 7, -1.0))),
    Case("lattice", lambda rng: inside(S, 16, frustrated(rng, 4))),
    Case("values", lambda rng: inside(pgm.MultiValued(3), 6, symmetric(rng, 6, 3.0))),
    Case("interval", lambda rng: inside(pgm.MultiValued(math.inf), 6, symmetric(rng, 6, 6.0))),
    Case("Potts", lambda rng: inside(C, 6, states_alike(rng, 6, 3, 2.0))),
    Case("RBM of spins", lambda rng: layers((S, S), 1.5, rng)),
    Case("DBM of spins", lambda rng: layers((S, S, S), 1.5, rng)),
    Case("DBM of binary units", lambda rng: layers((B, B, B), 4.0, rng, biases=True)),
    Case("RBM of Gaussian and spins", lambda rng: layers((pgm.Gaussian(1.0), S), 0.8, rng)),
    Case("RBM of Potts units", lambda rng: potts_layers(rng, 3)),
    Case("tables", lambda rng: tables(rng, 2)),
    Case("tables of three states", lambda rng: tables(rng, 3)),
    Case("causes", lambda rng: causes(rng, B, 6.0)),
    Case("noisy-or", lambda rng: causes(rng, pgm.NoisyOr(), 3.0)),
    Case("mixture", mixture),
)

"""Lattices: the pairs of neighbours in a rectangle of units, and models that couple them."""

import numpy as np
import scipy.sparse as sp

import pgmengine as pgm


def edges(rows, columns=None, periodic=False):
    """The pairs of neighbours (edges, 2): along the rows first, then along the columns."""
    place = np.arange(rows * (columns or rows)).reshape(rows, -1)
    if periodic:
        ends = [(place, np.roll(place, -1, axis=1)), (place, np.roll(place, -1, axis=0))]
    else:
        ends = [(place[:, :-1], place[:, 1:]), (place[:-1], place[1:])]
    return np.concatenate([np.stack([a.ravel(), b.ravel()], axis=1) for a, b in ends])


def weights_of(pairs, values, size):
    """A sparse symmetric weight (size, size) with a value for each pair."""
    values = np.broadcast_to(values, len(pairs))
    one = sp.coo_array((values, (pairs[:, 0], pairs[:, 1])), shape=(size, size))
    return (one + one.T).tocsr()


def coupled(weight, unit=None, name="s"):
    """A layer of spins, or of other units, with a weight inside it."""
    b = pgm.GraphBuilder()
    b.layer(name, unit or pgm.Spin(), weight.shape[0])
    b.couple(name, name, weight=weight)
    return b.build()


def lattice(side, weight=0.2, unit=None, periodic=False):
    """A square lattice with one coupling everywhere, as a sparse weight."""
    return coupled(weights_of(edges(side, periodic=periodic), weight, side * side), unit)

r"""The determinant of Kac and Ward: sums over the states of spins on a planar graph.

Spins s_i = -1, 1 on the vertices of a graph have the log weight sum_e J_e s_a s_b, where the edge e
joins a and b. With t_e = tanh J_e,

    Z = 2^vertices prod_e cosh J_e * S,    S = sum over even subgraphs of prod_e t_e

and, for a drawing in the plane with straight edges that do not cross,

    S^2 = det M,    M = I - T A

T and A are matrices over directed edges, two for each edge. T is diagonal, with t_e. A has the
entry e^(i angle / 2) from each directed edge to each one that begins where it ends, other than its
reverse, where `angle` is the turn between the two, in (-pi, pi). The derivative of log Z in J_e is
the correlation of the ends of the edge,

    E[s_a s_b] = t_e - (1 - t_e^2) Re [A M^-1]_ee

The determinant of a lattice of n spins takes about n^1.5 operations, by a sparse LU factorisation
(SuperLU, in scipy), where elimination takes 2^sqrt(n).

Rounding changes M by about 2^-52 of its entries. log det M then changes by 2^-52 |M^-1|, with the
largest sum of a column as the norm, and the entries of M^-1 by 2^-52 |M^-1|^2. The norm of a
lattice of 128x128 with equal couplings is at most 600. In a spin glass it grows exponentially with
the couplings, to 3e3 for +-1 and 3e8 for +-3, so that correlations lose their digits before log Z.

References: Kac and Ward (1952); Dolbilin et al. (1999) prove the formula for all planar graphs; Lis
(2016). The reference implementation of the tests is elimination, and Kaufman's formula.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pgmengine.base.types import Array, Weight
from pgmengine.base.work.division import blocks
from pgmengine.base.work.progress import track
from pgmengine.base.work.threads import one_blas_thread

# Columns of the inverse that are computed together.
COLUMNS_AT_ONCE = 128


@dataclass(frozen=True, eq=False)
class KacWard:
    """A drawn planar graph, for sums over the states of the spins on its vertices.

    Attributes
    ----------
    edges : (edges, 2) the ends of each edge.
    places : (vertices, 2) the places of the vertices in the plane.
    """

    edges: Array
    places: Array

    @cached_property
    def turns(self) -> Weight:
        """The matrix A (2 edges, 2 edges); edges in reverse follow after all others."""
        import scipy.sparse as sp

        count = len(self.edges)
        tail, head = np.concatenate([self.edges, self.edges[:, ::-1]]).T
        step = self.places[head] - self.places[tail]
        direction = np.arctan2(step[:, 1], step[:, 0])
        every, shape = np.arange(2 * count), (2 * count, len(self.places))
        ends = sp.csr_array((np.ones(2 * count), (every, head)), shape=shape)
        begins = sp.csr_array((np.ones(2 * count), (every, tail)), shape=shape)
        first, second = (ends @ begins.T).nonzero()
        other = first % count != second % count
        first, second = first[other], second[other]
        turn = (direction[second] - direction[first] + np.pi) % (2.0 * np.pi) - np.pi
        return sp.csr_array((np.exp(0.5j * turn), (first, second)), shape=(2 * count, 2 * count))

    @one_blas_thread()
    def log_even(self, couplings: Array) -> tuple[float, float]:
        """Return log S, and about the norm of M^-1, infinite where M is singular.

        Parameters
        ----------
        couplings : (edges,) J of each edge.
        """
        from scipy.sparse.linalg import LinearOperator, onenormest

        if not len(self.edges):
            return 0.0, 0.0
        t = np.tanh(couplings)
        try:
            lu = self._factorised(t)
        except RuntimeError:
            # The matrix is singular in double precision.
            return np.nan, np.inf
        inverse = LinearOperator(
            lu.shape, matvec=lu.solve, rmatvec=lambda x: lu.solve(x, "H"), dtype=complex
        )
        # With more than one column, the estimate of the norm depends on random numbers.
        norm = float(onenormest(inverse, t=1))
        return 0.5 * float(np.log(np.abs(lu.U.diagonal())).sum()), norm

    # The columns are too few for the threads of BLAS, which wait for each other on a busy computer.
    @one_blas_thread()
    def correlations(self, couplings: Array, asked: Array) -> Array:
        """Return E[s_a s_b] (edges,) of the ends of some edges; others are NaN.

        Parameters
        ----------
        couplings : (edges,) J of each edge.
        asked : numbers of the edges.
        """
        count, t = len(self.edges), np.tanh(couplings)
        diagonal = np.full(count, np.nan)
        if not len(asked):
            return diagonal
        lu = self._factorised(t)
        for some in track(list(blocks(asked, COLUMNS_AT_ONCE)), "correlations"):
            unit = np.zeros((2 * count, len(some)), dtype=complex)
            unit[some, np.arange(len(some))] = 1.0
            # The two directions of an edge have conjugate entries.
            columns = self.turns[some].multiply(lu.solve(unit).T)
            diagonal[some] = np.asarray(columns.sum(axis=1)).ravel().real
        return np.asarray(t - (1.0 - t**2) * diagonal)

    def _factorised(self, t: Array) -> Weight:
        """Return the LU factorisation of M."""
        import scipy.sparse as sp
        from scipy.sparse.linalg import splu

        both = sp.diags_array(np.concatenate([t, t]))
        return splu((sp.eye_array(2 * len(t)) - both @ self.turns).tocsc())

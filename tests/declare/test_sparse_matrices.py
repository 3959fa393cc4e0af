"""Sparse matrices that are broken: refused before compiled code follows their indices."""

import numpy as np
import pytest
import scipy.sparse as sp
from damaged import model, parts_of, without_sum
from loops import one_test_over

import pgmengine as pgm
from pgmengine.base.sparse import csr_of


def put(place, value):
    def changed(array):
        array = array.copy()
        array[place] = value
        return array

    return changed


# Faults that scipy's own check misses: it ends where the last entry of indptr is not positive.
WILD = np.array([0, 10**9, 3, 4, -1], dtype=np.int32)
BREAKS = {
    "indptr": [
        lambda _: WILD,
        put(-1, -5),
        put(-1, 10**9),
        put(0, 3),
        put(2, 10**6),
        put(1, -1),
        lambda a: a[:-1],
        lambda a: a.astype(float),
        lambda a: a.reshape(1, -1),
        list,
    ],
    "indices": [put(0, -1), put(0, 10**9), put(-1, 4), lambda a: a[:2], lambda a: a.astype(float)],
    "data": [lambda a: a[:1], lambda a: a * 1j, lambda a: a.astype(object), list],
}
CASES = [(name, change) for name, changes in BREAKS.items() for change in changes]


@pytest.mark.parametrize("kind", ["csr", "csc", "bsr"])
@one_test_over(("name", "change"), CASES)
def test_broken_sparse_weights_and_evidence_are_refused_before_scipy_follows_them(
    kind, name, change
):
    matrix = sp.csr_array(np.arange(16.0).reshape(4, 4) % 3).asformat(kind)
    matrix.__dict__[name] = change(getattr(matrix, name))
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Gaussian(), 4)
    b.layer("h", pgm.Binary(), 4)
    b.couple("v", "h", weight=matrix)
    with pytest.raises(pgm.PgmError, match="'v-h'.*not a whole sparse matrix: "):
        b.build()
    with pytest.raises(pgm.PgmError, match="layer 'v' is not a whole sparse matrix: "):
        pgm.infer(pgm.rbm(4, 2, visible=pgm.Gaussian(), rng=0), {"v": matrix})
    with pytest.raises(pgm.PgmError, match="layer 'v' is not a whole sparse matrix: "):
        pgm.fit(pgm.rbm(4, 2, visible=pgm.Gaussian(), rng=0), {"v": matrix}, updates=1)


@one_test_over(
    ("name", "values"),
    [
        ("indptr", [0, 10**9, -1]),
        ("indptr", [0, 1, -5]),
        ("indptr", [0, 1, 10**9]),
        ("indptr", [3, 1, 2]),
        ("indptr", [0, -1, 2]),
        ("indptr", [0, 2]),
        ("indptr", [0.0, 1.0, 2.0]),
        ("indptr", [[0, 1, 2]]),
        ("indices", [-1, 0]),
        ("indices", [0, 10**9]),
        ("indices", [0, 2]),
        ("indices", [0]),
        ("indices", [0.0, 1.0]),
        ("data", [0.5]),
        ("data", [[0.5, 0.5]]),
    ],
)
def test_broken_sparse_parameters_of_files_are_refused(name, values, tmp_path):
    pgm.save(model(), tmp_path / "m")
    tensors, metadata = parts_of(tmp_path / "m")
    without_sum(tmp_path / "m", {**tensors, f"h-g.weight/{name}": np.array(values)}, metadata)
    with pytest.raises(pgm.PgmError, match="parameter 'h-g.weight', which is damaged"):
        pgm.load(tmp_path / "m")


@one_test_over("shape", [[2], [2, 2, 2], [-2, 2], [2.0, 2.0], [3, 2], [2, 1]])
def test_shapes_of_sparse_parameters_that_do_not_fit_are_refused(shape, tmp_path):
    pgm.save(model(), tmp_path / "m")
    tensors, metadata = parts_of(tmp_path / "m")
    without_sum(tmp_path / "m", {**tensors, "h-g.weight/shape": np.array(shape)}, metadata)
    with pytest.raises(pgm.PgmError, match="parameter 'h-g.weight', which is damaged"):
        pgm.load(tmp_path / "m")


@one_test_over("kind", ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"])
def test_whole_sparse_matrices_of_every_format_are_taken(kind):
    rng = np.random.default_rng(0)
    for _ in range(20):
        dense = rng.normal(size=(6, 8)) * (rng.random((6, 8)) < 0.4)
        np.testing.assert_array_equal(
            csr_of(sp.csr_array(dense).asformat(kind), "x").toarray(), dense
        )
    pair = pgm.rbm(6, 8, rng=0).with_params({"v-h.weight": sp.csr_array(dense).asformat(kind)})
    np.testing.assert_array_equal(pair.params["v-h.weight"].toarray(), dense)


def test_other_formats_that_are_broken_are_refused():
    dense = np.eye(4)
    coo, dia, lil, dok = (
        sp.csr_array(dense).asformat(kind) for kind in ("coo", "dia", "lil", "dok")
    )
    coo.coords[0][1] = 99
    dia.data = dia.data[:0]
    lil.rows[2] = [7]
    dok._dict[9, 9] = 1.0
    for matrix in (coo, dia, lil, dok, sp.coo_array(np.ones(4))):
        with pytest.raises(pgm.PgmError, match="x is not a whole sparse matrix: "):
            csr_of(matrix, "x")
    with pytest.raises(pgm.PgmError, match=r"has shape \(1000000000000, 4\), expected \(4, 4\)"):
        tall = sp.coo_array(([1.0], ([0], [0])), shape=(10**12, 4))
        pgm.rbm(4, 4, rng=0).with_params({"v-h.weight": tall})

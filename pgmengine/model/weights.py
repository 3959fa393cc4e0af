"""Parameters as dense or sparse arrays; the stored entries of a sparse array are its parameters.

Sums and products of scipy's sparse arrays drop entries that become 0. Such entries are still
parameters, and the functions of this module keep them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import numpy as np

from pgmengine.base.types import Array, Weight


def is_sparse(value: object) -> bool:
    """Whether a value is a sparse array of scipy; none exist unless scipy.sparse is imported."""
    if isinstance(value, np.ndarray):
        return False
    # The function is also missing while another thread is importing the module.
    issparse = getattr(sys.modules.get("scipy.sparse"), "issparse", None)
    return issparse is not None and bool(issparse(value))


def numbers(value: Weight) -> Array:
    """Return all numbers of a parameter, (n,); a copy only if they are not contiguous."""
    return np.ascontiguousarray(value.data if is_sparse(value) else value).reshape(-1)


def acting(value: Weight) -> tuple[Array, Array, Array]:
    """Return the rows and columns of the numbers other than 0, and these numbers."""
    if is_sparse(value):
        entries = value.tocoo()
        some = entries.data != 0
        return entries.row[some], entries.col[some], entries.data[some]
    some = value != 0
    rows, columns = some.nonzero()
    return rows, columns, value[some]


def count(value: Weight) -> int:
    """Return how many numbers a parameter has, or a sparse parameter stores."""
    return int(value.nnz if is_sparse(value) else value.size)


def like(value: Weight, flat: Array) -> Weight:
    """Return a parameter with the same shape and stored places and with other numbers (n,)."""
    if not is_sparse(value):
        return flat.reshape(value.shape)
    return type(value)((flat, value.indices, value.indptr), shape=value.shape)


def pattern(value: Weight) -> bytes:
    """Return the positions of the stored entries of a sparse parameter; b"" for a dense one."""
    return value.indices.tobytes() + value.indptr.tobytes() if is_sparse(value) else b""


def digest(value: Weight, zeros: bool) -> bytes:
    """Return a digest of the positions of numbers in a parameter, with or without stored zeros."""
    found = blake2b(pattern(value), digest_size=16)
    if not zeros:
        found.update(np.packbits((value.data if is_sparse(value) else value) != 0).data)
    return found.digest()


def add_rows(out: Array, x: Array, value: Weight, rows: Array) -> None:
    """Add x (n, len(rows)) @ value[rows] to out (n, columns); a sparse value adds its entries."""
    if not is_sparse(value):
        out += x @ value[rows]
        return
    for i, row in enumerate(rows.tolist()):
        entries = slice(value.indptr[row], value.indptr[row + 1])
        out[:, value.indices[entries]] += x[:, i, None] * value.data[entries]


def elementwise(f: Callable[..., Any], *values: Weight) -> Weight:
    """Apply f to dense arrays, or to the stored entries of sparse ones with the same pattern."""
    if not is_sparse(values[0]):
        # Functions of numpy return numbers, and not arrays, for arrays without axes.
        return np.asarray(f(*values))
    return like(values[0], f(*(v.data for v in values)))


def plus(a: Weight, b: Weight, factor: float = 1.0) -> Weight:
    """Return a + factor * b."""
    return elementwise(lambda x, y: x + factor * y, a, b)

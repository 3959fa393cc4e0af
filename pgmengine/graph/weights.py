"""Parameters as arrays of numbers: dense ones, and sparse ones whose stored entries are the
parameters.

Sums and products of scipy's sparse arrays drop entries that become 0, which are parameters all the
same; these do not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from pgmengine.base.types import Array


def is_sparse(value: Any) -> bool:
    """Whether it is one of scipy's sparse arrays; if nobody has imported those, it is not."""
    if isinstance(value, np.ndarray):
        return False
    issparse = getattr(
        sys.modules.get("scipy.sparse"), "issparse", None
    )  # None, too, while another thread imports it
    return issparse is not None and bool(issparse(value))


def numbers(value: Any) -> Array:
    """All numbers of a parameter, (n,); a copy only if they do not lie in order."""
    return np.ascontiguousarray(value.data if is_sparse(value) else value).reshape(-1)


def count(value: Any) -> int:
    """How many numbers a parameter has; those that a sparse one stores."""
    return int(value.nnz if is_sparse(value) else value.size)


def like(value: Any, flat: Array) -> Any:
    """A parameter of the same shape, and pattern, with other numbers."""
    if not is_sparse(value):
        return flat.reshape(value.shape)
    return type(value)((flat, value.indices, value.indptr), shape=value.shape)


def pattern(value: Any) -> bytes:
    """Where the stored entries of a sparse parameter lie; nothing for a dense one."""
    return value.indices.tobytes() + value.indptr.tobytes() if is_sparse(value) else b""


def add_rows(out: Array, x: Array, value: Any, rows: Array) -> None:
    """Add x (n, len(rows)) @ value[rows] to out (n, columns), where a sparse value has entries."""
    if not is_sparse(value):
        out += x @ value[rows]
        return
    for i, row in enumerate(rows.tolist()):
        entries = slice(value.indptr[row], value.indptr[row + 1])
        out[:, value.indices[entries]] += x[:, i, None] * value.data[entries]


def elementwise(f: Callable[..., Any], *values: Any) -> Any:
    """F on dense arrays, or on the stored entries of sparse ones with the same pattern."""
    if not is_sparse(values[0]):
        return f(*values)
    return like(values[0], f(*(v.data for v in values)))


def plus(a: Any, b: Any, factor: float = 1.0) -> Any:
    """A + factor * b."""
    return elementwise(lambda x, y: x + factor * y, a, b)

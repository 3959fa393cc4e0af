"""numpy as a library of arrays, in the place of torch and JAX."""

import numpy as np

from pgmengine.base.array_library import ArrayLibrary


def constant(array, like):
    return np.asarray(array, dtype=like.dtype if array.dtype.kind == "f" else None)


def added(total, columns, more):
    shape = np.broadcast_shapes(total.shape[:-1], more.shape[:-1])
    out = np.array(np.broadcast_to(total, (*shape, total.shape[-1])))
    np.add.at(out, (..., columns), more)
    return out


NUMPY = ArrayLibrary(np, constant, added)

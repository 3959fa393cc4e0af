"""Comparisons of models and of answers, each of which fails with the name of the part that differs.

Networks of `declare/networks/tabular.py` are compared in `small_networks.py`.
"""

import numpy as np


def dense(value):
    """An array, also of a sparse one."""
    return value.toarray() if hasattr(value, "toarray") else np.asarray(value)


def flat(arrays):
    """The entries of some arrays, one array after the other."""
    return np.concatenate([np.zeros(0), *(np.ravel(x) for x in arrays)])


def same_models(one, other):
    """Fail unless two models have the same variables, layers and tables, and the same bits."""
    assert repr(one) == repr(other) and one.variables == other.variables
    a, b = one.structure, other.structure
    assert a.variables == b.variables and list(a.layers) == list(b.layers)
    for x, y in zip(a.tables, b.tables, strict=True):
        assert (x.key, x.layers, x.conditional, x.lead) == (y.key, y.layers, y.conditional, y.lead)
        np.testing.assert_array_equal(x.index, y.index)
    assert list(one.params) == list(other.params)
    for name, value in one.params.items():
        first, second = dense(value), dense(other.params[name])
        assert first.dtype == second.dtype, name
        np.testing.assert_array_equal(first, second, err_msg=name)


def same_answers(one, two, where=""):
    """Fail unless two answers, by name, have the same bits."""
    for name, found, right in _pairs(one, two, where):
        np.testing.assert_array_equal(found, right, err_msg=name)


def close_answers(one, two, where="", rtol=1e-12, atol=1e-12):
    """Fail unless two answers, by name, are close in all of their arrays."""
    for name, found, right in _pairs(one, two, where):
        np.testing.assert_allclose(found, right, rtol, atol, err_msg=name)


def _pairs(one, two, where):
    """The arrays of two answers with the names that lead to them."""
    assert set(one) == set(two), where
    for name, value in one.items():
        if isinstance(value, dict):
            yield from _pairs(value, two[name], f"{name} {where}")
        else:
            yield f"{name} {where}", dense(value), dense(two[name])

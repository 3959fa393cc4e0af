"""The number of dimensions in which the distribution of a small model can move, by its Jacobian.

The derivatives of log p(state) in all stored numbers, for all joint states, have this rank.
"""

import itertools

import numpy as np
from scipy.special import logsumexp

from pgmengine.learn.phases.batch import idle_entries
from pgmengine.model.weights import like, numbers


def dimensions(model, seed=0, step=1e-5, share=1e-6):
    """The rank of the Jacobian at random tables that keep their zeros."""
    s, rng = model.structure, np.random.default_rng(seed)
    x, idle = grid(s), idle_entries(model.given(), {})
    tables = {key: t.conditional for key, t in s.table_groups.items()}
    base = dict(model.params)
    for key in tables:
        drawn = rng.normal(size=base[key].shape)
        base[key] = normal(np.where(np.isneginf(base[key]), -np.inf, drawn), tables[key])
    columns = []
    for key, value in base.items():
        flat, stays = numbers(value).ravel(), np.ravel(idle.get(key, np.zeros(numbers(value).size)))
        for i in np.flatnonzero(~stays.astype(bool) & np.isfinite(flat)):
            change = np.zeros(flat.size)
            change[i] = step
            ends = [
                log_prob(model, base | {key: moved(s, key, value, by, tables)}, x)
                for by in (change, -change)
            ]
            columns.append((ends[0] - ends[1]) / (2 * step))
    found = np.linalg.svd(np.array(columns), compute_uv=False)
    return int((found > share * found[0]).sum())


def grid(s):
    """All joint states, layer -> (states, width)."""
    supports = {n: [layer.unit.support] * layer.size for n, layer in s.layers.items()}
    each = itertools.product(*(itertools.product(*own) for own in supports.values()))
    columns = zip(*each, strict=True)
    found = zip(supports, columns, strict=True)
    return {n: np.array(x, dtype=float).reshape(len(x), -1) for n, x in found}


def normal(logs, conditional):
    return logs - logsumexp(logs, axis=-1, keepdims=True) if conditional else logs


def moved(s, key, value, change, tables):
    """A parameter after a change of its stored numbers, in its range."""
    if key in tables:
        return normal(value + change.reshape(value.shape), tables[key])
    one = next((c for c in s.weighted if f"{c.key}.weight" == key), None)
    step = like(value, change)
    step = step if one is None else one.projected(value, step)
    return like(value, numbers(value).ravel() + numbers(step).ravel())


def log_prob(model, params, x):
    """log p of the states; 0 where it is impossible."""
    logs = type(model)(model.structure, params).flat_log_density(x)
    found = logs - logsumexp(logs)
    return np.where(np.isfinite(found), found, 0.0)

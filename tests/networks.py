"""Random Bayesian networks of variables."""

import numpy as np

import pgmengine as pgm


def with_zeros(seed, variables, states, zeros):
    """Variables of 2 to `states` states with two parents each; a share of the entries is 0."""
    rng, b = np.random.default_rng(seed), pgm.GraphBuilder()
    sizes = rng.integers(2, states + 1, variables).tolist()
    for i in range(variables):
        b.variable(f"x{i}", states=sizes[i])
    for i in range(variables):
        parents = sorted(rng.permutation(i)[:2].tolist())
        p = rng.random((*(sizes[k] for k in parents), sizes[i])) + 0.05
        p[rng.random(p.shape) < zeros] = 0.0
        p[..., 0] += 0.1
        b.conditional(f"x{i}", [f"x{k}" for k in parents], p / p.sum(axis=-1, keepdims=True))
    return b.build()

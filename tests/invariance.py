"""Exact starts and the chi-square of joint states, for tests that a kernel leaves p invariant."""

import numpy as np
import pytest
from scipy.stats import chi2
from tiny import FINITE

table = pytest.mark.parametrize(
    "tiny_model", [m for m in FINITE if m.name != "rbm large weights"], ids=repr
)


def exact_start(truth, chains, rng):
    """States drawn by the oracle, as flat values."""
    index = rng.choice(len(truth.p), size=chains, p=truth.p)
    return {n: v[index] for n, v in truth.values.items()}


def counts_of(truth, x):
    """Count each joint state among the rows of x."""
    states, names = codes(truth.values, truth.values), list(truth.values)
    order = np.argsort(states)
    found = codes(x, names)
    place = np.searchsorted(states[order], found).clip(0, len(states) - 1)
    if (states[order][place] != found).any():
        raise KeyError("a state that the evidence forbids")
    return np.bincount(order[place], minlength=len(truth.p))


def codes(values, names):
    """One integer a joint state."""
    joint = np.round(np.concatenate([values[n] for n in names], axis=1) * 1000).astype(np.int64)
    weights = np.random.default_rng(0).integers(0, 2**52, size=joint.shape[1])
    return joint @ weights


def p_value(truth, x):
    """Chi-square over all joint states, those with few expected counts pooled."""
    counts, expected = counts_of(truth, x), truth.p * len(next(iter(x.values())))
    small = expected < 10
    pooled = (
        np.append(counts[~small], counts[small].sum()),
        np.append(expected[~small], expected[small].sum()),
    )
    keep = pooled[1] > 0
    if not keep[-1] and pooled[0][-1]:
        return 0.0
    statistic = ((pooled[0] - pooled[1])[keep] ** 2 / pooled[1][keep]).sum()
    return float(chi2.sf(statistic, max(int(keep.sum()) - 1, 1)))

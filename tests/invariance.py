"""Exact starts and a chi-square test of joint states, for tests that a kernel leaves p invariant.

The statistic is the likelihood ratio G = 2 sum o log(o / e) with Williams' correction, over cells
of at least 10 expected counts. Its null distribution is chi-square: summed exactly for 2 to 1,000
cells, false alarms at 1e-6 to 1e-8 are 0.2 to 1.6 times what the p-value says. (Those of Pearson's
statistic are up to 18 times that, and without limit where what is pooled expects less than one.)
"""

import numpy as np
from loops import one_test_over
from scipy.special import xlogy
from scipy.stats import chi2
from tiny import FINITE

# The limit of the p-value of one comparison: false alarms are below 1e-6 with the factor above. A
# test of several comparisons divides it by their number.
ALARM = 5e-7
# What is broken is caught by far, whatever the seed.
CAUGHT = 1e-12
# Expected counts of a cell.
LEAST = 10.0

SMALL = [m for m in FINITE if m.name != "rbm large weights"]
table = one_test_over("tiny_model", SMALL)


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
    """The probability of joint states that are as far from p as the rows of x, or farther."""
    return tail(counts_of(truth, x), truth.p * len(next(iter(x.values()))))


def tail(counts, expected):
    """The p-value of counts of all cells, the rarest of which are taken as one."""
    if counts[expected == 0].any():
        return 0.0
    order = np.argsort(expected)
    # all below LEAST, and one more where they do not reach it together
    rare = np.searchsorted(expected[order], LEAST)
    rare = max(rare, np.searchsorted(np.cumsum(expected[order]), LEAST) + 1)
    cells, e = (np.append(v[order][rare:], v[order][:rare].sum()) for v in (counts, expected))
    if len(e) == 1:
        return 1.0
    freedom, total = len(e) - 1, e.sum()
    correction = 1 + ((total / e).sum() - 1) / (6 * total * freedom)
    return float(chi2.sf(2 * xlogy(cells, cells / e).sum() / correction, freedom))

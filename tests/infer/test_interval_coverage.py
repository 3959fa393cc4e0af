"""A good status means that intervals hold: random models from weak to strong coupling (long)."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from trust import coverage  # noqa: E402


@pytest.mark.long
@pytest.mark.parametrize("name", ["MCMC", "ParallelTempering", "Auto"])
def test_a_good_status_means_that_intervals_hold(name, scales=(0.5, 2.0, 6.0), models=20):
    """95 % of the intervals of means hold, and of the intervals of log Z all but seven.

    Units of one model are off together. The statistic of the means is therefore a sum over models
    of d = held - 0.95 units, divided by the root of the sum of d^2. A sum of independent symmetric
    numbers that is divided so is below -5.3 with a probability of at most exp(-5.3^2 / 2) < 1e-6.
    Here the numbers are skewed to the left, and one far to the left enlarges the divisor as well,
    so that the left tail is lighter. Were only three in four intervals to hold, the sum of 60
    models would be about 8 of its standard errors below 0.

    An interval of log Z is missed with a probability below 0.01, and eight of 60 with one below
    1e-6. Were one in four missed, there would be 15.
    """
    found = [coverage(name, scale, models) for scale in scales]
    units, held = np.array([pair for count in found for pair in count.by_model]).T
    assert len(units) >= models
    off = held - 0.95 * units
    assert off.sum() > -5.3 * np.sqrt((off**2).sum()), [str(count) for count in found]
    assert sum(c.log_z - c.log_z_held for c in found) <= 7, [str(count) for count in found]

"""A good status means that intervals hold: random models from weak to strong coupling (long)."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from trust import coverage  # noqa: E402


@pytest.mark.long
@pytest.mark.parametrize("scale", [0.5, 2.0, 6.0])
@pytest.mark.parametrize("name", ["MCMC", "ParallelTempering", "Auto"])
def test_a_good_status_means_that_intervals_hold(name, scale, models=20):
    """At least 90 % of 95 % intervals of means hold, and of the intervals of log Z all but three.

    Units of one model are off together, so the test counts models by their worth: were 95 % to
    hold, fewer than 88 % of 200 effective units in 20 models would be more than four standard
    errors away. An interval of log Z is missed with a probability below 0.01: four of 20, below
    1e-6 for each of the missed ones together.
    """
    found = coverage(name, scale, models)
    assert found.means > 0 and found.means_held >= 0.88 * found.means, str(found)
    assert found.log_z - found.log_z_held <= 3, str(found)

"""The smoke lane: `pytest -m smoke` takes half a minute and needs the extra `test` alone.

It has the rooms and registries of the package, the contract of every unit, kernel, method and model
phase on one model, and files. A test file is in the lane by the mark on a test, or on some of its
parameters by `in_lane`. `conftest.py` imports no other files where the lane alone is asked for.
"""

import pytest


def in_lane(values, *names):
    """The values of a parametrisation, of which the ones with these names are in the lane."""
    assert {repr(v) for v in values} >= set(names), "there is no such parameter"
    return [
        pytest.param(v, marks=pytest.mark.smoke) if repr(v) in names else pytest.param(v)
        for v in values
    ]

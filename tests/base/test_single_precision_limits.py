"""Numbers that single precision cannot count with are refused, never drawn from."""

import warnings

import numpy as np
import pytest
from loops import one_test_over

import pgmengine as pgm

SIZES = pytest.mark.parametrize("size", [1.1e30, -1e39, 1e300])


def cancelling(scale=1.0):
    """h[0] and h[1] see w x0 - w x1 and its opposite, h[2] sees 0."""
    weight = scale * np.array([[1.0, -1.0, 1.0], [-1.0, 1.0, -1.0]])
    return pgm.rbm(2, 3, visible=pgm.Gaussian()).with_params({"v-h.weight": weight})


@SIZES
@pytest.mark.parametrize("method", [None, pgm.MCMC(), pgm.MeanField()], ids=repr)
def test_values_are_refused_by_layer_row_and_index(size, method):
    rows = np.array([[0.0, 1.0], [2.0, size]])
    with pytest.raises(
        pgm.PgmError, match=r"'v', row 1, index 1: .* a finite number of size up to 1e\+30"
    ):
        pgm.infer(cancelling(), {"v": rows}, method=method)
    with pytest.raises(
        pgm.PgmError, match=r"'v', row 1, index 1: .* a finite number of size up to 1e\+30"
    ):
        pgm.fit(cancelling(), {"v": rows}, updates=1)
    with pytest.raises(pgm.PgmError, match=r"'x', row 1, index 1: .* up to 1e\+30"):
        pgm.drbm(2, 1, 2).given({"x": rows})


@SIZES
def test_hints_are_refused_by_layer_row_and_index(size):
    with pytest.raises(
        pgm.PgmError, match=r"soft: layer 'h', index 2 .* up to 1e\+30; 0 means no soft evidence"
    ):
        cancelling().given(soft={"h": np.array([0.0, 1.0, size])})


@one_test_over("sigma", [0, -1, 1e16, 1e-16, np.inf, np.nan, "1"])
def test_widths_whose_squares_are_out_of_range_are_refused(sigma):
    with pytest.raises(pgm.PgmError, match=r"sigma must be a number from 1e-15 to 1e\+15"):
        pgm.Gaussian(sigma)


@pytest.mark.parametrize("sigma", [1e-15, 1e15])
def test_the_widest_and_the_narrowest(sigma, errors=5):
    model = pgm.rbm(2, 3, visible=pgm.Gaussian(sigma)).with_params(
        {"v-h.weight": np.full((2, 3), 0.5 / sigma)}
    )
    exact, drawn = (pgm.infer(model, method=method, rng=0) for method in (pgm.Exact(), pgm.MCMC()))
    for layer, unit in (("v", sigma), ("h", 1.0)):
        apart = np.abs(exact.mean[layer] - drawn.mean[layer]) / unit
        assert apart.max() < errors * 2 / np.sqrt(
            1000
        )  # 4 chains of 1000 draws, four of which are worth one at least


@one_test_over(
    ("method", "want"),
    [
        (pgm.MCMC(), "marginals"),
        (pgm.ParallelTempering(), "marginals"),
        (pgm.SimulatedTempering(), "marginals"),
        (pgm.AIS(), "log_z"),
    ],
    ids=repr,
)
def test_inputs_out_of_range_are_seen(method, want):
    # AIS sums hidden units in closed form, in double precision, whose digits do not suffice either.
    said = "rounding of log weights" if want == "log_z" else "inputs .* beyond single precision"
    with warnings.catch_warnings(), pytest.raises(pgm.PgmError, match=said):
        warnings.simplefilter("ignore", RuntimeWarning)
        pgm.infer(cancelling(1e10), {"v": [1e29, 1e29]}, want=[want], method=method, rng=0)


@one_test_over("negative", [pgm.CD(), pgm.PCD(chains=5), pgm.CAST(chains=5)], ids=repr)
def test_learning_from_inputs_out_of_range_is_seen(negative):
    with (
        warnings.catch_warnings(),
        pytest.raises(pgm.PgmError, match=r"beyond single precision|beyond 1e\+30"),
    ):
        warnings.simplefilter("ignore", RuntimeWarning)
        pgm.fit(
            cancelling(),
            {"v": np.full((10, 2), 1e25)},
            negative=negative,
            optimizer=pgm.SGD(1e-3),
            updates=9,
            rng=0,
        )

"""Averages of the parameters: their definition and their gain; learning does not change."""

import numpy as np
import pytest
import scipy.sparse as sp
from likelihoods import mean_log_prob

import pgmengine as pgm
from pgmengine.model.weights import numbers

X = pgm.datasets.bars_and_stripes().x_train


@pytest.mark.parametrize(
    ("optimizer", "follow"),
    [
        (pgm.Averaged(pgm.Adam(0.02), follow=0.004), 0.004),
        (pgm.Centered(pgm.Averaged(pgm.SGD(0.1, momentum=0.5), follow=0.004)), 0.004),
        (pgm.Averaged(pgm.Centered(pgm.SGD(0.1)), follow=0.5), 0.5),
    ],
    ids=repr,
)
def test_an_average_is_that_of_every_tenth_model(optimizer, follow):
    seen = []
    f = pgm.fit(
        pgm.rbm(16, 4, rng=0),
        {"v": X},
        optimizer=optimizer,
        batch_size=10,
        updates=401,
        callbacks=[lambda model, t: seen.append(model)],
    )
    for key, value in f.averaged.params.items():
        mean = np.zeros(value.shape)
        for count, model in enumerate(seen[10::10]):
            share = min(1.0, max(10 * follow, 1 / (count + 1)))
            mean = (1 - share) * mean + share * model.params[key]
        np.testing.assert_allclose(value, mean, atol=1e-12)
        assert not value.flags.writeable


def test_a_short_fit_has_an_average():
    """Not that with the model from which it started."""
    seen = []
    f = pgm.fit(
        pgm.rbm(16, 4, rng=0),
        {"v": X},
        optimizer=pgm.Averaged(),
        updates=5,
        callbacks=[lambda model, t: seen.append(model)],
    )
    np.testing.assert_array_equal(f.averaged.params["h.bias"], seen[5].params["h.bias"])


def test_learning_is_as_without():
    one, two = (pgm.fit(pgm.rbm(16, 4, rng=0), {"v": X}, optimizer=optimizer, updates=60)
                for optimizer in (pgm.Adam(0.02), pgm.Averaged(pgm.Adam(0.02))))  # fmt: skip
    for key, value in one.model.params.items():
        np.testing.assert_array_equal(two.model.params[key], value)


def test_an_average_goes_on_where_it_was(tmp_path):
    settings = {"optimizer": pgm.Averaged(pgm.SGD(0.05), follow=0.01), "batch_size": 10}
    whole = pgm.fit(pgm.rbm(16, 4, rng=0), {"v": X}, updates=75, **settings).averaged
    for updates in (33, 75):
        part = pgm.fit(
            pgm.rbm(16, 4, rng=0), {"v": X}, updates=updates, checkpoint=tmp_path / "c", **settings
        )
    half = pgm.fit(pgm.rbm(16, 4, rng=0), {"v": X}, updates=33, **settings)
    warm = pgm.fit(half.model, {"v": X}, updates=75, state=half.state, **settings)
    for key, value in whole.params.items():
        np.testing.assert_array_equal(part.averaged.params[key], value)
        np.testing.assert_array_equal(warm.averaged.params[key], value)


def test_averages_of_sparse_and_of_bounded_parameters():
    rng, graph = np.random.default_rng(0), pgm.GraphBuilder()
    graph.layer("h", pgm.Binary(), 4)
    graph.layer("v", pgm.NoisyOr(), 6, bias=np.full(6, 0.05))
    graph.cause("h", "v", weight=sp.csr_array(rng.random((4, 6)) * (rng.random((4, 6)) < 0.5)))
    x = (rng.random((20, 6)) < 0.05) * 1.0
    f = pgm.fit(graph.build(), {"v": x}, updates=60, optimizer=pgm.Averaged(pgm.Adam(0.1)))
    weight = f.averaged.params["h->v.weight"]
    assert (
        sp.issparse(weight)
        and weight.nnz == f.model.params["h->v.weight"].nnz
        and weight.data.min() >= 0
    )
    assert f.averaged.params["v.bias"].min() > 0
    assert np.isfinite(mean_log_prob(f.averaged, {"v": x}))
    assert not np.array_equal(numbers(weight), numbers(f.model.params["h->v.weight"]))


def test_an_average_is_better_than_the_last_of_noisy_steps(repeats=8):
    """PCD with ten chains and a large rate: the average is ahead of the models that it is made of.

    Statistic: the average's log-likelihood less the mean of that of 20 models of the second half of
    a run, over repeats 6.1 +- 0.7 nats (sixteen runs), so the mean of eight is 12 standard errors
    above 3; an average that were one of these models would be at 0, with a standard error of 0.8.
    """
    gains = []
    for repeat in range(repeats):
        late = {}

        def seen(model, t, late=late):
            if t > 1000 and t % 50 == 0:
                late[t] = mean_log_prob(model, {"v": X})

        f = pgm.fit(pgm.rbm(16, 8, rng=repeat), {"v": X}, negative=pgm.PCD(chains=10),
                    optimizer=pgm.Averaged(pgm.SGD(0.3), follow=1e-3), updates=2000, rng=repeat,
                    callbacks=[seen])  # fmt: skip
        gains.append(mean_log_prob(f.averaged, {"v": X}) - np.mean(list(late.values())))
    assert len(late) == 20 and np.mean(gains) > 3.0


def test_what_is_refused():
    f = pgm.fit(pgm.rbm(16, 4, rng=0), {"v": X}, updates=2)
    with pytest.raises(pgm.PgmError, match="no average .* pgm.Averaged"):
        print(f.averaged)
    for follow in (0.0, -1.0, 1.5, np.nan):
        with pytest.raises(pgm.PgmError, match="follow"):
            pgm.Averaged(follow=follow)


def test_an_average_of_what_a_step_took_out_of_range_is_in_range():
    """Biases of NoisyOr units are brought back after each step, and so are they in the average."""
    model = pgm.GraphBuilder()
    model.layer("h", pgm.Binary(), 1)
    model.layer("v", pgm.NoisyOr(), 2, bias=[0.01, 0.01])
    model.cause("h", "v", weight=[[0.01, 0.01]])
    f = pgm.fit(
        model.build(), {"v": np.zeros((9, 2))}, optimizer=pgm.Averaged(pgm.SGD(0.3)), updates=40
    )
    for name in ("v.bias", "h->v.weight"):
        assert f.averaged.params[name].min() >= 0
    assert np.isfinite(pgm.infer(f.averaged, {"v": [[0, 0]]}, want=("log_prob",)).log_prob).all()


def test_the_average_is_of_parameters_in_their_range():
    seen, b = [], pgm.GraphBuilder()
    b.layer("h", pgm.Binary(), 3)
    b.layer("v", pgm.NoisyOr(), 4, bias=np.full(4, 0.1))
    b.cause("h", "v", weight=np.abs(np.random.default_rng(0).normal(size=(3, 4))))
    x = (np.random.default_rng(1).random((40, 4)) < 0.4) * 1.0
    f = pgm.fit(
        b.build(),
        {"v": x},
        positive=pgm.Exact(),
        optimizer=pgm.Averaged(pgm.SGD(1.0), follow=1e-6),
        updates=200,
        callbacks=[lambda model, t: seen.append(model.params["h->v.weight"])],
    )
    assert np.min(seen) == 0.0  # weights visit the edge
    np.testing.assert_allclose(
        f.averaged.params["h->v.weight"], np.mean(seen[10::10], axis=0), atol=1e-9
    )

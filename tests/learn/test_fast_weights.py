"""FastPCD's fast weights against their recursion, and the chains against theta + theta_fast."""

import numpy as np
import pytest
import scipy.sparse as sp
from loops import one_test_over

import pgmengine as pgm

X = np.array([[0, 0, 1], [1, 0, 1], [0, 0, 1], [1, 1, 1.0]])
SPARSE = sp.csr_array(np.array([[0.3, 0.0], [0.0, -0.2], [0.1, 0.4]]))


class Watched:
    """Keeps the gradients it is given, and leaves the parameters where they are."""

    def __init__(self):
        self.seen = []

    start = staticmethod(pgm.SGD(0.0).start)

    def step(self, structure, params, gradient, state, t):
        self.seen.append(
            {
                k: np.array(g.toarray() if sp.issparse(g) else g, dtype=float)
                for k, g in gradient.items()
            }
        )
        return pgm.SGD(0.0).step(structure, params, gradient, state, t)


@pytest.mark.parametrize("weight", [None, SPARSE], ids=["dense", "sparse"])
@pytest.mark.parametrize("rate", [0.1, pgm.harmonic(1, 10)], ids=["constant", "schedule"])
def test_fast_weights_decay_and_follow_the_gradient(weight, rate, rtol=1e-5):
    builder = pgm.GraphBuilder()
    builder.layer("v", pgm.Binary(), 3)
    builder.layer("h", pgm.Binary(), 2)
    builder.couple("v", "h", weight=weight)
    model = builder.build(rng=0)
    optimizer = Watched()
    f = pgm.fit(
        model,
        {"v": X},
        negative=pgm.FastPCD(chains=6, rate=rate, decay=0.8),
        optimizer=optimizer,
        updates=5,
        progress=False,
    )
    for k, stored in {
        "v.bias": ...,
        "h.bias": ...,
        "v-h.weight": ... if weight is None else SPARSE.nonzero(),
    }.items():
        expected = 0.0
        for t, gradient in enumerate(optimizer.seen):
            expected = 0.8 * expected + (0.1 if rate == 0.1 else 1 / (10 + t)) * gradient[k][stored]
        np.testing.assert_allclose(
            f.state[f"negative/fast/{k}"].ravel(), np.ravel(expected), rtol=rtol, atol=1e-7
        )


@one_test_over(
    ("name", "value", "v", "h"),
    [
        ("v.bias", 0.0, 0, 1),
        ("v.bias", 40.0, 1, 1),
        ("h.bias", -60.0, 0, 0),
        ("v-h.weight", 40.0, 1, 1),
    ],
)
def test_chains_move_at_the_slow_weights_plus_the_fast_ones(name, value, v, h):
    model = pgm.rbm(3, 2, rng=0).with_params(
        {"v.bias": np.full(3, -20.0), "h.bias": np.full(2, 20.0)}
    )
    settings = {
        "negative": pgm.FastPCD(chains=50, rate=0.0, decay=1.0),
        "optimizer": pgm.SGD(0.0),
        "progress": False,
    }
    f = pgm.fit(model, {"v": X}, updates=1, **settings)
    assert not f.state["negative/v"].any()
    assert f.state["negative/h"].all()
    f.state[f"negative/fast/{name}"][:] = value
    after = pgm.fit(model, {"v": X}, updates=2, state=f.state, **settings)
    assert (after.state["negative/v"] == v).all()
    assert (after.state["negative/h"] == h).all()

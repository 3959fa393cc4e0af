"""scikit-learn: BernoulliRBM, its Gibbs step in float32, and its training step, which takes float64
alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.neural_network import BernoulliRBM

Array = np.ndarray


def fitted_rbm(
    weight: Array, b: Array, c: Array, precision: type, rate: float = 0.1, batch: int = 10
) -> BernoulliRBM:
    """A fitted RBM with these parameters."""
    rbm = BernoulliRBM(n_components=len(c), learning_rate=rate, batch_size=batch, random_state=0)
    rbm.partial_fit(np.zeros((batch, len(b))))
    rbm.components_ = np.asarray(weight, dtype=precision).T.copy(order="F")
    rbm.intercept_visible_ = np.array(b, dtype=precision)
    rbm.intercept_hidden_ = np.array(c, dtype=precision)
    return rbm


def sweeps(weight: Array, b: Array, c: Array, v: Array) -> Callable[[int], Array]:
    """Block Gibbs sweeps of an RBM; run(count) returns the visible states."""
    rbm, kept = fitted_rbm(weight, b, c, np.float32), {"v": np.asarray(v, dtype=np.float32)}

    def run(count: int) -> Array:
        for _ in range(count):
            # Booleans would make its products slow.
            kept["v"] = rbm.gibbs(kept["v"]).astype(np.float32)
        return kept["v"]

    return run


def pcd(
    weight: Array, b: Array, c: Array, x: Array, chain: Array, rate: float, batch: int = 100
) -> Callable[[int], list]:
    """Updates of PCD-1 by partial_fit; chain: hidden states, as many as the batch has rows. run
    returns [w, b, c].
    """
    rbm, rows, place = (
        fitted_rbm(weight, b, c, np.float64, rate, batch),
        np.asarray(x, dtype=np.float64),
        {"next": 0},
    )
    rbm.h_samples_ = np.array(chain, dtype=np.float64)

    def run(count: int) -> list[Array]:
        for _ in range(count):
            rbm.partial_fit(rows[place["next"] : place["next"] + batch])
            place["next"] = (place["next"] + batch) % len(rows)
        return [rbm.components_.T, rbm.intercept_visible_, rbm.intercept_hidden_]

    return run

"""Costs before any work is done: the import, and a question to a model of three units."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
from harness import OURS, Case, Row, Settings, rate
from peers import JAX, NUMPY, RBMS, SKLEARN, THRML, TORCH, Peer

import pgmengine as pgm


def rows(settings: Settings) -> Iterator[Row]:
    """See the table."""
    cases = {
        OURS: _importing("import pgmengine"),
        TORCH.name: _peer(TORCH, "import torch"),
        JAX.name: _peer(JAX, "import jax, jax.numpy"),
        THRML.name: _peer(THRML, "import thrml"),
        RBMS.name: _peer(RBMS, "from rbms.bernoulli_bernoulli.classes import BBRBM"),
        SKLEARN.name: _peer(SKLEARN, "from sklearn.neural_network import BernoulliRBM"),
        NUMPY.name: _peer(NUMPY, "import numpy"),
        "python alone": _importing("pass"),
    }
    yield Row("cold import, a fresh process each time", "s", cases, limit=0.4)
    yield _question()


def _importing(code: str) -> Case:
    environment = {
        k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"
    }  # as users have it

    def case() -> float:
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, env=environment)
        return time.perf_counter() - begin

    return case


def _peer(peer: Peer, code: str) -> Case | None:
    return _importing(code) if peer.present else None


def _question() -> Row:
    model, row = pgm.rbm(2, 1, rng=0), np.array([1.0, np.nan])
    weight, b, c = model.params["v-h.weight"], model.params["v.bias"], model.params["h.bias"]

    def infer(count: int) -> None:
        for _ in range(count):
            pgm.infer(model, {"v": row})

    def by_hand(ask: Callable[[np.ndarray], np.ndarray]) -> Callable[[int], None]:
        def run(count: int) -> None:
            for _ in range(count):
                ask(row)

        return run

    cases = {
        OURS: rate(lambda: infer, 1e6),
        NUMPY.name: NUMPY.rate(lambda peer: by_hand(peer.tiny_rbm(weight, b, c)), 1e6),
    }
    return Row(
        "infer on an RBM of 3 units, one row",
        "us a call",
        cases,
        limit=150.0,
        note="numpy: a bare function for this one question, nothing checked or planned",
    )

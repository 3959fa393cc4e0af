"""Updates of learning: PCD-1 of an RBM, CAST over PCD, stochastic approximation of a DBM."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import material
import numpy as np
from harness import OURS, Case, Row, Settings
from peers import JAX, RBMS, SKLEARN, TORCH

import pgmengine as pgm

Array = np.ndarray
# Updates before the first timed one, after which sparsity is as in training.
WARM = 300
RATE = 0.02


def rows(settings: Settings) -> Iterator[Row]:
    """See the table."""
    yield _pcd(settings)
    yield _small()
    yield _small_cd()
    yield _several()
    yield Row(
        "CAST update over PCD update, 784x500 RBM, 100 chains (and 100 fast ones)",
        "times",
        {OURS: _over(settings, _rbm, pgm.CAST(100), 50)},
        limit=2.2,
    )
    yield _sap(settings)


class Clock:
    """A monitor that keeps the time of every `updates_apart`-th update."""

    def __init__(self, updates: int) -> None:
        self.updates_apart, self.times = updates, dict[int, float]()

    def __call__(self, model: pgm.Model, update: int) -> None:
        self.times[update] = time.perf_counter()


class Updates:
    """Updates of one fit that goes on, as a user makes them: nobody looks in between."""

    def __init__(self, x: Array, start: Callable[[Array], pgm.Model], negative: Any) -> None:
        self.x, self.negative, self.state, self.done = x, negative, None, 0
        self.model = start(x)
        self(WARM)

    def __call__(self, updates: int) -> float:
        """Seconds an update, the mean over `updates` of them."""
        # The first updates of a call find out how many fit into a call of the compiled loop.
        begin = self.done // updates * updates + 2 * updates
        clock, self.done = Clock(updates), begin + updates
        fitted = pgm.fit(
            self.model,
            {"v": self.x},
            negative=self.negative,
            optimizer=pgm.SGD(RATE),
            updates=self.done,
            callbacks=[clock],
            state=self.state,
            progress=False,
        )
        self.model, self.state = fitted.model, fitted.state
        return (clock.times[self.done] - clock.times[begin]) / updates


def _rbm(x: Array) -> pgm.Model:
    return _started(pgm.rbm(784, 500, rng=0), x)


def _dbm(x: Array) -> pgm.Model:
    return _started(pgm.dbm([784, 500, 1000], rng=0), x)


def _started(model: pgm.Model, x: Array) -> pgm.Model:
    small = {name: 0.1 * value for name, value in model.params.items() if name.endswith(".weight")}
    return pgm.base_rate_start(model.with_params(small), {"v": x})


def _ours(settings: Settings, start: Callable[[Array], pgm.Model], updates: int) -> Case:
    made = cache(lambda: Updates(material.images(settings, 5000), start, pgm.PCD()))
    return lambda: 1e3 * made()(updates)


def _over(
    settings: Settings, start: Callable[[Array], pgm.Model], negative: Any, updates: int
) -> Case:
    pcd, other = (
        cache(lambda phase=phase: Updates(material.images(settings, 5000), start, phase))
        for phase in (pgm.PCD(), negative)
    )

    def ratio() -> float:
        pcd(), other()
        below = pcd()(updates)
        return other()(updates) / below

    return ratio


def _warmed(run: Callable[[int], Any]) -> Callable[[int], Any]:
    run(WARM)
    return run


def _pcd(settings: Settings) -> Row:
    @cache
    def given() -> tuple[Any, ...]:
        x = material.images(settings, 5000)
        model = _rbm(x)
        chain = (np.random.default_rng(0).random((100, 500)) < 0.3).astype(float)
        return (
            model.params["v-h.weight"],
            model.params["v.bias"],
            model.params["h.bias"],
            x,
            chain,
            RATE,
        )

    def visible() -> tuple[Any, ...]:
        return *given()[:4], given()[3][:100], RATE

    cases = {
        OURS: _ours(settings, _rbm, 100),
        TORCH.name: TORCH.rate(lambda peer: _warmed(peer.pcd(*given())), 1e3),
        JAX.name: JAX.rate(lambda peer: _warmed(peer.pcd(*given())), 1e3),
        RBMS.name: RBMS.rate(lambda peer: _warmed(peer.pcd(*visible())), 1e3),
        SKLEARN.name: SKLEARN.rate(lambda peer: _warmed(peer.pcd(*given())), 1e3),
    }
    return Row(
        "PCD-1 update, 784x500 RBM, batch 100, 100 chains",
        "ms an update",
        cases,
        goal=2.0,
        note="rbms: fit_batch_pcd and SGD, which normalises the gradient and draws the hidden "
        "layer twice; scikit-learn: partial_fit, in float64; pgmengine: parameters and step in "
        "float64",
    )


def _small() -> Row:
    @cache
    def given() -> tuple[Any, ...]:
        model, chain = (
            pgm.rbm(16, 16, rng=0),
            (np.random.default_rng(0).random((32, 16)) < 0.5).astype(float),
        )
        return (
            model.params["v-h.weight"],
            model.params["v.bias"],
            model.params["h.bias"],
            rows,
            chain,
            RATE,
        )

    rows = pgm.datasets.bars_and_stripes().x_train  # 32 of them
    made = cache(lambda: Updates(rows, lambda _: pgm.rbm(16, 16, rng=0), pgm.PCD(chains=32)))
    cases = {
        OURS: lambda: 1e6 * made()(1000),
        TORCH.name: TORCH.rate(lambda peer: _warmed(peer.pcd(*given(), batch=32)), 1e6),
        JAX.name: JAX.rate(lambda peer: _warmed(peer.pcd(*given(), batch=32)), 1e6),
        SKLEARN.name: SKLEARN.rate(lambda peer: _warmed(peer.pcd(*given(), batch=32)), 1e6),
    }
    return Row(
        "PCD-1 update, 16x16 RBM, batch 32, 32 chains: overhead of an update",
        "us an update",
        cases,
        limit=15,
        goal=1.0,
    )


def _small_cd() -> Row:
    rows = pgm.datasets.bars_and_stripes().x_train
    made = cache(lambda: Updates(rows, lambda _: pgm.rbm(16, 16, rng=0), pgm.CD()))
    cases = {OURS: lambda: 1e6 * made()(1000)}
    return Row("CD-1 update, 16x16 RBM, batch 32", "us an update", cases, limit=15)


def _several() -> Row:
    """Fits of one structure at once, beside the same fits one after the other."""
    rows, count, updates = pgm.datasets.bars_and_stripes().x_train, 25, 2000
    models = [pgm.rbm(16, 16, rng=i) for i in range(count)]
    settings: dict[str, Any] = {
        "negative": pgm.PCD(chains=32),
        "optimizer": pgm.SGD(RATE),
        "updates": updates,
        "progress": False,
    }

    def ratio() -> float:
        begin = time.perf_counter()
        for i, model in enumerate(models):
            pgm.fit(model, {"v": rows}, rng=i, **settings)
        between = time.perf_counter()
        pgm.fit(models, {"v": rows}, repeats=count, **settings)
        return (time.perf_counter() - between) / (between - begin)

    return Row(
        f"{count} fits at once (repeats=) over {count} fits one after the other, 16x16 RBM, "
        f"{updates} updates each",
        "times",
        {OURS: ratio},
        limit=1 / 3,
    )


def _sap(settings: Settings) -> Row:
    @cache
    def given() -> tuple[Any, ...]:
        x = material.images(settings, 5000)
        p = _dbm(x).params
        chain = (np.random.default_rng(0).random((100, 500)) < 0.3).astype(float)
        return (
            p["v-h1.weight"],
            p["h1-h2.weight"],
            p["v.bias"],
            p["h1.bias"],
            p["h2.bias"],
            x,
            chain,
            RATE,
        )

    cases = {
        OURS: _ours(settings, _dbm, 20),
        TORCH.name: TORCH.rate(lambda peer: _warmed(peer.sap(*given())), 1e3),
        JAX.name: JAX.rate(lambda peer: _warmed(peer.sap(*given())), 1e3),
    }
    return Row(
        "SAP update, 784-500-1000 deep model, 5 rounds of mean field, batch 100, 100 chains",
        "ms an update",
        cases,
        goal=1.0,
    )

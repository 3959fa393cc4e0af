"""The arithmetic of several fits at once (`repeats=`), RBM 16x16, PCD-1 with 32 chains.

    python benchmarks/fits_at_once.py

Fits at once share data, plan and scores, but each has sweeps of its own. The sweeps are vectors
already, of the 16 units of a layer. The script prints the time of a fit, of its preparation, of an
update and of the sweep in an update, and from these the least share of the time of separate fits
that fits at once could take, if everything but the sweeps cost nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import pgmengine as pgm
from pgmengine.engine.chains import make_chains, start

UPDATES, CHAINS, FITS, RATE = 2000, 32, 25, 0.05


def main() -> None:
    """Print the lines."""
    # The fits are too short to learn much, and would say so.
    logging.getLogger("pgmengine").setLevel(logging.ERROR)
    rows = pgm.datasets.bars_and_stripes().x_train
    settings: dict[str, Any] = {
        "negative": pgm.PCD(chains=CHAINS),
        "optimizer": pgm.SGD(RATE),
        "progress": False,
        "rng": 0,
    }
    models = [pgm.rbm(16, 16, rng=i) for i in range(FITS)]

    def fits(updates: int) -> Callable[[], object]:
        return lambda: pgm.fit(models[0], {"v": rows}, updates=updates, **settings)

    one, two = (_least(fits(n * UPDATES), 20) for n in (1, 2))
    update = (two - one) / UPDATES
    learned = pgm.fit(models[0], {"v": rows}, updates=UPDATES, **settings).model
    target, rng = learned.given().take(np.zeros(CHAINS, dtype=int)), np.random.default_rng(0)
    chains = make_chains(target, pgm.Gibbs(), start(target, rng), rng)
    sweep = _least(lambda: chains.sweep(UPDATES), 20) / UPDATES
    together = {"updates": UPDATES, "repeats": FITS, **settings}
    at_once = _least(lambda: pgm.fit(models, {"v": rows}, **together), 5) / FITS
    print(f"a fit of {UPDATES} updates: {1e3 * one:.1f} ms, {1e3 * (2 * one - two):.1f} before")
    print(f"an update: {1e6 * update:.2f} us, of which the sweep takes {1e6 * sweep:.2f}")
    print(f"one of {FITS} fits at once: {1e3 * at_once:.1f} ms, {at_once / one:.2f} of a fit")
    print(f"the sweeps alone, on one thread: {sweep * UPDATES / one:.2f} of a fit")


def _least(job: Callable[[], object], times: int) -> float:
    """Return the least seconds of a job."""
    best = np.inf
    for _ in range(times):
        begin = time.perf_counter()
        job()
        best = min(best, time.perf_counter() - begin)
    return best


if __name__ == "__main__":
    main()

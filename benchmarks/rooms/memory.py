"""Peak memory of 100 chains of a 784x500 RBM, 100 sweeps, each case in a process of its own."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from harness import OURS, Case, Row, Settings
from peers import JAX, NUMPY, RBMS, SKLEARN, THRML, TORCH, Peer

import pgmengine as pgm
from pgmengine.engine.chains import make_chains

Array = np.ndarray
VISIBLE, HIDDEN, CHAINS, SWEEPS = 784, 500, 100, 100


def rows(settings: Settings) -> Iterator[Row]:
    """One row."""
    if not Path("/proc/self/clear_refs").exists():
        # suite.py reports a room without rows.
        return
    cases = {OURS: _peak(_ours)}
    for peer in (TORCH, JAX, THRML, RBMS, SKLEARN, NUMPY):
        cases[peer.name] = _peak(partial(_theirs, peer)) if peer.present else None
    yield Row(
        "peak memory of 100 chains of a 784x500 RBM, 100 sweeps, model included",
        "times its float64 weights",
        cases,
        limit=3.0,
        note="measured once, beyond imports and a run of 3x2 units; peers hold float32 weights, "
        "pgmengine float64 ones in the model and float32 ones in the chains; THRML 2 sweeps",
    )


def _ours(visible: int, hidden: int) -> None:
    model = pgm.rbm(visible, hidden, rng=0)
    target = model.given().take(np.zeros(CHAINS, dtype=int))
    x = {name: np.zeros((CHAINS, layer.width)) for name, layer in model.structure.layers.items()}
    make_chains(target, pgm.Gibbs(), x, np.random.default_rng(0)).sweep(SWEEPS)


def _theirs(peer: Peer, visible: int, hidden: int) -> None:
    weight = 0.1 * np.random.default_rng(0).standard_normal((visible, hidden), dtype=np.float32)
    functions = importlib.import_module(f"peers.{peer.file}")
    v = np.zeros((CHAINS, visible), dtype=np.float32)
    run = functions.sweeps(
        weight, np.zeros(visible, dtype=np.float32), np.zeros(hidden, dtype=np.float32), v
    )
    run(2 if peer is THRML else SWEEPS)


def _peak(work: Callable[[int, int], None]) -> Case:
    # Memory does not vary between runs, so it is measured once.
    @cache
    def case() -> float:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            return pool.submit(_beyond, work).result() / (VISIBLE * HIDDEN * 8)

    return case


def _beyond(work: Callable[[int, int], None]) -> float:
    """Peak memory of the work less the memory before it, in bytes. A tiny run first loads
    everything that is loaded on first use.
    """
    work(3, 2)
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    before = _kib("VmRSS")
    work(VISIBLE, HIDDEN)
    return 1024.0 * (_kib("VmHWM") - before)


def _kib(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))

"""The arithmetic of one row of a belief-net bound, 8x24x64, and the time that it takes at least.

    python benchmarks/one_row.py

A pass visits every pair of a parent and a child once: each round updates the tables in one pass,
and looks for the best xi in one pass for each evaluation of F. The script prints rounds, the time
of a round near the fixed point (two passes), and the time of a pass if nothing but the tilted
tables of both states of a child were computed (pgm_tilt_both in cython_ext/c/net.h: one
exponential, one division, and 14 sums, products and selections of vectors). It compiles this loop
with gcc as setup.py compiles the routines that run here.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import pgmengine as pgm
from pgmengine._kernels import LANES, PROCESSOR
from pgmengine.infer.variational.unit_tables import Belief

SIZES = (64, 24, 8)
ROWS, REPEATS = 12, 200

LOOP = r"""
#include <stdio.h>
#include <time.h>
#include "net.h"
#define COUNT 256
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec; }
int main(void) {
    static pgm_vd d[COUNT] __attribute__((aligned(64)));
    pgm_vd sum = pgm_splat_d(0.0), p[4], odds[2], up = pgm_splat_d(1.3), down = 1.0 / up;
    double best = 1e9;
    for (int i = 0; i < COUNT; i++) d[i] = pgm_splat_d(0.01 * i - 1.0);
    for (int r = 0; r < 20000; r++) {
        const double begin = now();
        for (int i = 0; i < COUNT; i++) {
            pgm_tilt_both(d[i], up, down, p, odds);
            sum += p[0] * odds[0] + p[2] * odds[1] + p[1] + p[3];
        }
        const double took = now() - begin;
        best = took < best ? took : best;
    }
    printf("%g %d\n", best / COUNT, PGM_LANES * (sum[0] > 0.0));
    return 0;
}
"""
FLAGS = "-O3 -fno-math-errno -fno-trapping-math -ffp-contract=off -Wno-psabi -fwrapv"
AVX2 = "-mavx2 -mfma -mbmi -mbmi2"
# Kind of processor -> the flags with which setup.py compiles the routines for it.
KINDS = {
    "base": "",
    "avx2": AVX2,
    "avx512": f"{AVX2} -mavx512f -mavx512bw -mavx512cd -mavx512dq -mavx512vl",
}


def main() -> None:
    """Print the lines."""
    rng, empty = np.random.default_rng(0), pgm.sbn(list(SIZES), rng=0)
    model = empty.with_params({n: rng.uniform(-1, 1, v.shape) for n, v in empty.params.items()})
    rows = rng.integers(0, 2, (ROWS, SIZES[0])).astype(float)
    edges = SIZES[0] * SIZES[1] + SIZES[1] * SIZES[2]
    vectors = edges // LANES
    print(f"{edges} pairs, {vectors} vectors of {LANES} lanes in a pass")
    q = Belief(model.given({"v": rows[0]}))
    q.settle(200, 1e-7)
    one, many = (_least(lambda n=n: q.routine.settle(n, -1.0, 2, -np.inf, 1)) for n in (1, 11))
    print(f"a round near the fixed point, two passes: {(many - one) / 10:.1f} us")
    least = tilts() * vectors / 1e3
    print(f"a pass of tilted tables alone: {least:.1f} us")
    for tolerance in (1e-3, 1e-5, 1e-7):
        method = pgm.MeanField(tolerance=tolerance)
        ask = pgm.prepare(model, ("v",), ("bound",), method=method)
        rounds = [int(ask({"v": row}).stats["rounds"]) for row in rows]
        took = _least(lambda ask=ask: ask({"v": rows[0]}))
        low, high = min(rounds), max(rounds)
        print(
            f"tolerance {tolerance:.0e}: {low} to {high} rounds, mean {np.mean(rounds):.0f}; two "
            f"passes a round take at least {2 * least * low:.0f} to {2 * least * high:.0f} us; the "
            f"first row, {rounds[0]} rounds: {took:.0f} us with its test of a saddle"
        )


def tilts() -> float:
    """Return the nanoseconds of pgm_tilt_both for a vector."""
    headers = Path(__file__).parent.parent / "cython_ext" / "c"
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "loop.c"), Path(folder, "loop")
        source.write_text(LOOP)
        command = [
            "gcc",
            *(FLAGS + " " + KINDS[PROCESSOR]).split(),
            f"-I{headers}",
            str(source),
            "-o",
            str(program),
            "-lm",
        ]
        subprocess.run(command, check=True)
        took, lanes = subprocess.run([program], check=True, capture_output=True).stdout.split()
    if int(lanes) != LANES:
        sys.exit(f"the loop has {int(lanes)} lanes, pgmengine {LANES}")
    return float(took)


def _least(job) -> float:
    """Return the least microseconds of a job."""
    best = np.inf
    for _ in range(REPEATS):
        begin = time.perf_counter()
        job()
        best = min(best, time.perf_counter() - begin)
    return best * 1e6


if __name__ == "__main__":
    main()

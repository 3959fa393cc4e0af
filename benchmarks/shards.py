"""A fit of a file that is read in parts: its time and the peak memory, each case in a new process.

    python benchmarks/shards.py alarm.bif.gz [--rows 10000 1000000] [--kinds csv parquet]

Draws rows from a network, writes them into a file of a temporary folder, and learns the tables from
`pgm.Shards([file], rows=10_000)`. Prints for each number of rows and kind of file the seconds of
`fit`, the peak of the resident memory of the process, and the divergence of the learned network
from the true one. It needs the extras arviz and parquet, and Linux or macOS.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pgmengine as pgm

# Rows that are drawn at a time.
AT_ONCE = 50_000


def write(net: pgm.Model, rows: int, path: Path) -> None:
    """Write rows that are drawn from a network."""
    import pandas as pd

    counts = [min(AT_ONCE, rows - first) for first in range(0, rows, AT_ONCE)]
    parts = [
        pgm.infer(net, want=("samples",), method=pgm.Forward(draws=n), rng=i).samples_frame()
        for i, n in enumerate(counts)
    ]
    frame = pd.concat(parts)
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path, index=False)


def learn(net: pgm.Model, path: Path) -> None:
    """Learn from a file, and print the time, the peak memory and the divergence."""
    begin = time.perf_counter()
    found = pgm.fit(net, pgm.Shards([path], rows=10_000), progress=False)
    seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{path.name}: {seconds:.1f} s, {peak:.0f} MiB, {pgm.divergence(net, found)}", flush=True)


def main() -> None:
    """Write and learn each case in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network", type=Path)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--kinds", nargs="+", default=["csv", "parquet"])
    parser.add_argument("--do", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    net = pgm.read(given.network)
    if given.do:
        step, path = given.do[0], Path(given.do[1])
        learn(net, path) if step == "learn" else write(net, int(path.stem), path)
        return
    with tempfile.TemporaryDirectory() as folder:
        for rows in given.rows:
            for kind in given.kinds:
                path = f"{folder}/{rows}.{kind}"
                for step in ("write", "learn"):
                    own = [sys.executable, __file__, str(given.network), "--do", step, path]
                    subprocess.run(own, check=True)


if __name__ == "__main__":
    main()

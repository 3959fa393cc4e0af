"""Learning of noisy gates: the maximum, beside one by enumeration and L-BFGS of scipy.

    python benchmarks/gates.py --out benchmarks/results/learning.md

For each kind of gate it draws networks of random causes, of which one is hidden and a fifth of the
cells are missing, and DINA tests with hidden skills. EM without a prior begins at the numbers that
made the data, and L-BFGS ends it. The maximisation of tests/gate_oracle.py does without the
package.
"""

from __future__ import annotations

import copy
import sys
import time
from pathlib import Path

import numpy as np
import typer
from apart import put_block, table

import pgmengine as pgm

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import gate_oracle as oracle  # noqa: E402

KINDS = ("or", "max", "dina")
MAKERS = {"or": pgm.noisy_or, "and": pgm.noisy_and, "max": pgm.noisy_max, "min": pgm.noisy_min}


def declared(network: dict) -> pgm.Model:
    """Return the model of a network of the oracle."""
    b = pgm.GraphBuilder()
    for name, count in network["states"].items():
        b.variable(name, states=count)
    for name, (parents, values) in network["tables"].items():
        b.conditional(name, parents, values)
    for name, gate in network["gates"].items():
        b.conditional(name, gate["parents"], MAKERS[gate["kind"]](*oracle.declared(gate)))
    return b.build()


def learned(network: dict, rows: np.ndarray) -> pgm.Fit:
    """Return the fit that begins at the network."""
    data = {
        name: np.where(rows[:, i] < 0, np.nan, rows[:, i])
        for i, name in enumerate(network["states"])
        if (rows[:, i] >= 0).any()
    }
    steps = pgm.EM(pseudocount=0, tolerance=1e-5, starts=1)
    began = pgm.fit(declared(network), data, optimizer=steps, updates=500, progress=False)
    # The last steps of EM are slow where much is hidden.
    ends = pgm.LBFGS(tolerance=1e-7)
    return pgm.fit(began.model, data, optimizer=ends, updates=500, progress=False)


def drawn(kind: str, seed: int) -> tuple[dict, np.ndarray]:
    """Return a network and 500 rows of it."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    if kind == "dina":
        return oracle.random_dina_network(rng, rows=500, missing=0.2)
    return oracle.random_gate_network(rng, kind, causes=4, hidden=1, missing=0.2, rows=500)


def network_of(model: pgm.Model, network: dict) -> dict:
    """Return the network of the oracle with the numbers of a model."""
    found = copy.deepcopy(network)
    for t in model.structure.tables:
        name = t.name.split("|")[0]
        if t.form is None:
            found["tables"][name] = (found["tables"][name][0], np.exp(model.params[t.key]))
            continue
        rows, gate = np.exp(model.params[t.key]), found["gates"][name]
        # A noisy-and has its leak last, and a first row that begins its chain.
        gate["leak"] = rows[-1] if gate["kind"] == "and" else rows[0]
        ends = np.cumsum([1, *(len(one) for one in gate["contributions"])])
        gate["contributions"] = np.split(rows, ends)[1:-1]
    return found


def compared(kind: str, seed: int) -> list[float]:
    """Return the differences of log-likelihoods, the distance of entries, widths, and seconds."""
    network, rows = drawn(kind, seed)
    begin = time.perf_counter()
    fit = learned(network, rows)
    seconds = time.perf_counter() - begin
    best = oracle.maximum(network, rows, starts=3)
    own = fit.history["objective"]["value"][-1]
    more = oracle.maximum(network_of(fit.model, network), rows, starts=1)["log_likelihood"]
    truth, gates = declared(network), fit.model.structure.gates
    away = [np.exp(fit.model.entries_of(t)) - np.exp(truth.entries_of(t)) for t in gates]
    error = np.sqrt(np.mean([np.square(part).mean() for part in away]))
    evidence = {name: 1 for name in network["gates"]}
    widths = [pgm.infer(m, evidence).stats.get("width", 0) for m in (truth, fit.model)]
    gained = more - own
    return [own - best["log_likelihood"], gained, error, *map(float, map(np.max, widths)), seconds]


def main(out: Path | None = None, models: int = 10, small: bool = False) -> None:
    """Measure, and print the table."""
    lines = []
    for kind in KINDS[:1] if small else KINDS:
        found = np.array([compared(kind, seed) for seed in range(2 if small else models)])
        lines.append(
            [
                kind,
                f"{len(found)}",
                f"{found[:, 0].min():.1e} to {found[:, 0].max():.1e}",
                f"{found[:, 1].min():.1e} to {found[:, 1].max():.1e}",
                f"{found[:, 2].mean():.3f}",
                f"{found[:, 3].max():.0f}, {found[:, 4].max():.0f}",
                f"{found[:, 5].mean():.1f} s",
            ]
        )
        print(lines[-1], flush=True)
    heads = ["gates", "models", "log p less that of the maximisation, nats a row"]
    heads += ["gained by it from there", "distance from the true entries"]
    heads += ["width before, after", "time of a fit"]
    text = "\n\n".join(
        [
            "Networks of noisy gates with a hidden cause, and DINA tests with hidden skills, with "
            "a fifth of the cells missing in 500 rows. EM without a prior, then L-BFGS, beside a "
            "maximisation by enumeration and L-BFGS of scipy, the best of the same start and two "
            "random ones:",
            table(heads, lines),
        ]
    )
    print(text)
    if out is not None:
        put_block(out, "gates.py", text)


if __name__ == "__main__":
    typer.run(main)

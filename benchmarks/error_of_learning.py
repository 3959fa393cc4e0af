"""Coverage of the intervals that include the error of learning: random networks, known truth.

    python benchmarks/error_of_learning.py [--networks 200] [--out benchmarks/results/learning.md]

A network has five variables of two or three states, each with up to two parents, and rows of tables
from a Dirichlet distribution. A fit of some of its draws, with the defaults of pgmengine, answers
ten questions P(x | e), each about one state of a variable given two others at a state that the
truth draws. The share of true answers inside the intervals of 95 % has two errors: the one of
`first` is binomial, over the first question of each network, whose answers are independent; the one
of `all` is over networks, because questions about one network go together. Each group is a block of
Markdown, and `--out` replaces the block of the same name in a file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from apart import put_block, table

import pgmengine as pgm

VARIABLES, QUESTIONS, ROWS, DRAWS = 5, 10, 200, 200
# What is measured: the concentration of the true tables, the share of empty cells, and the models.
CASES = {
    "posterior, complete rows, tables from Dirichlet(1)": (1.0, 0.0, "posterior"),
    "posterior, complete rows, tables from Dirichlet(0.5)": (0.5, 0.0, "posterior"),
    "bootstrap, complete rows, tables from Dirichlet(1)": (1.0, 0.0, "bootstrap"),
    "bootstrap, 30 % empty, tables from Dirichlet(1)": (1.0, 0.3, "bootstrap"),
    "bootstrap, 30 % empty, tables from Dirichlet(0.5)": (0.5, 0.3, "bootstrap"),
}
COLUMNS = ("models", "networks", "first", "all", "mean width")


def truth(rng: np.random.Generator, concentration: float) -> pgm.Model:
    """Return a random network."""
    b = pgm.GraphBuilder()
    states = rng.integers(2, 4, VARIABLES)
    for i, k in enumerate(states.tolist()):
        b.variable(f"x{i}", states=k)
    for i in range(VARIABLES):
        parents = sorted(rng.permutation(i)[: rng.integers(0, 3)].tolist())
        shape = [int(states[j]) for j in parents]
        rows = rng.dirichlet(np.full(states[i], concentration), shape or None)
        b.conditional(f"x{i}", tuple(f"x{j}" for j in parents), rows)
    return b.build()


def uniform(model: pgm.Model) -> pgm.Model:
    """Return the network with uniform conditionals."""
    keys = list(model.structure.table_groups)
    return model.with_params({key: np.zeros(model.params[key].shape) for key in keys})


def draws(model: pgm.Model, rows: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return rows of states."""
    r = pgm.infer(model, want=("samples",), method=pgm.Forward(draws=rows), rng=rng)
    frame = r.samples_frame()
    return {name: frame[name].to_numpy().astype(float) for name in model.variables}


def covered(case: tuple[float, float, str], seed: int) -> tuple[list[bool], list[float]]:
    """Return whether the interval of each question has the truth, and its width."""
    concentration, empty, by = case
    rng = np.random.default_rng([seed, int(10 * concentration), int(10 * empty)])
    model = truth(rng, concentration)
    data = draws(model, ROWS, rng)
    for x in data.values():
        x[rng.random(ROWS) < empty] = np.nan
    f = pgm.fit(uniform(model), data, rng=0, progress=False)
    make: Callable[..., Any] = pgm.Fit.posterior if by == "posterior" else pgm.bootstrap
    models = make(f, DRAWS, rng=rng)
    asked, targets = draws(model, QUESTIONS, rng), list[str]()
    evidence = {name: np.full(QUESTIONS, np.nan) for name in model.variables}
    for q in range(QUESTIONS):
        target, *seen = rng.permutation(model.variables)[:3].tolist()
        targets.append(target)
        for name in seen:
            evidence[name][q] = asked[name][q]
    exact, found = pgm.infer(model, evidence), pgm.infer(models, evidence, progress=False)
    inside, wide = list[bool](), list[float]()
    for q, target in enumerate(targets):
        true, ends = exact.marginal(target), found.marginal_interval(target)
        state = int(rng.integers(len(true)))
        low, high = (end[q] for end in ends[state])
        inside.append(bool(low <= true[state][q] <= high))
        wide.append(float(high - low))
    return inside, wide


def measured(name: str, networks: int) -> list[str]:
    """Return the line of a case."""
    found = [covered(CASES[name], seed) for seed in range(networks)]
    each = np.array([inside for inside, _ in found], dtype=float)
    first, shares = each[:, 0].mean(), each.mean(axis=1)
    errors = np.sqrt(first * (1 - first) / networks), shares.std(ddof=1) / np.sqrt(networks)
    return [
        name,
        str(networks),
        f"{first:.3f} ± {errors[0]:.3f}",
        f"{shares.mean():.4f} ± {errors[1]:.4f}",
        f"{np.mean([wide for _, wide in found]):.3f}",
    ]


def lines(networks: int, only: str) -> Iterator[list[str]]:
    """Yield the lines of the table."""
    for name in CASES:
        if only in name:
            yield measured(name, networks)


def main(
    networks: Annotated[int, typer.Option(help="random networks of each case")] = 200,
    only: Annotated[str, typer.Option(help="cases whose name contains this")] = "",
    out: Annotated[Path | None, typer.Option(help="a file whose block is replaced")] = None,
) -> None:
    """Measure, print every line when it is done, and write a block of Markdown."""
    load, found = os.getloadavg()[0], list[list[str]]()
    for line in lines(networks, only):
        print("; ".join(line), flush=True)
        found.append(line)
    if out is not None:
        note = (
            f"The share of true P(x | e) inside the intervals of 95 % of {DRAWS} models, learned "
            f"from {ROWS} rows: of the first question about each network, with the binomial error, "
            f"and of all {QUESTIONS}, with the error over networks. Load at the start: {load:.1f}."
        )
        text = f"## Intervals that include the error of learning\n\n{note}\n\n"
        put_block(out, "error_of_learning.py coverage", text + table(COLUMNS, found) + "\n")


if __name__ == "__main__":
    typer.run(main)

"""Two phases of unequal weight: does a good status prefer the runs that missed the minority?

    python benchmarks/two_phases.py [--models 500] [--seeds 20] [--checkpoint FILE]
        [--out benchmarks/results/two_phases.md]

Each model has two phases, and the minority holds .5 to 20 % of the probability. Its units are
exchangeable, but for one bond that is reversed, so that cluster moves refuse the model. The exact
means follow from sums over the numbers of units in each state, while `Exact` refuses nearly all of
the models, because they are too wide; the others are left out. The kinds are spins of which all
pairs are coupled, the same with tables, RBMs, and Potts models of three states.

The default answer of `infer` is asked for with each seed. z is the mean over the equal units less
the exact mean, in standard errors, and is positive in the direction of the majority. The verdict:
the mean of z over all good answers lies within .3 of 0, no good answer is five errors off, and 80 %
of the answers are good. Answers are appended to the checkpoint, and are not asked for again.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import typer
from apart import put_block, table
from scipy.special import gammaln, logsumexp

import pgmengine as pgm

# Weight of the reversed bond, as a share of the others.
REVERSED = -0.5

# Seeds of a model that are asked together.
SEEDS_A_ROUND = 2

# The least depth of the valley between two phases, in nats below the peak of the minority.
LEAST_DEPTH = 1.0


@dataclass(frozen=True)
class Kind:
    """A kind of models.

    Attributes
    ----------
    name : in tables.
    groups : (low, high), the range of the number of units of each group of exchangeable units. One
        group couples all its pairs; two groups couple each unit of one with each of the other.
    agree : (states, states), the log weight of a bond of strength 1.
    state : the state whose share of units tells the phases apart.
    couplings : (low, high), the range of the strength of all bonds of a unit together.
    """

    name: str
    groups: tuple[tuple[int, int], ...]
    agree: Any
    state: int
    couplings: tuple[float, float]


SPINS = np.array([[1.0, -1.0], [-1.0, 1.0]])
KINDS = (
    Kind("pairs", ((33, 46),), SPINS, 1, (1.2, 1.6)),
    Kind("tables", ((33, 38),), SPINS, 1, (1.2, 1.6)),
    Kind("RBM", ((33, 40), (32, 38)), SPINS, 1, (1.2, 1.6)),
    Kind("Potts", ((20, 25),), np.eye(3), 0, (2.75, 3.3)),
)


@dataclass(frozen=True)
class Case:
    """A model with two phases: its kind, sizes, strength of a bond, field, and exact numbers.

    Attributes
    ----------
    field : log weight of `kind.state` of each unit of the first group.
    mean : exact share of that state among the equal units of the first group.
    minority : probability of the minority.
    sign : 1 if the majority has the larger share, else -1.
    """

    kind: Kind
    sizes: tuple[int, ...]
    bond: float
    field: float
    mean: float
    minority: float
    sign: int


@cache
def counts(units: int, states: int) -> np.ndarray:
    """Return all numbers of units in each state, (rows, states)."""
    each = itertools.product(range(units + 1), repeat=states - 1)
    rows = np.array([one for one in each if sum(one) <= units]).reshape(-1, states - 1)
    return np.column_stack((rows, units - rows.sum(axis=1)))


def ways(rows: np.ndarray) -> np.ndarray:
    """Return the log number of ways to put units into states."""
    return gammaln(rows.sum(axis=1) + 1) - gammaln(rows + 1).sum(axis=1)


def summed(kind: Kind, sizes: tuple[int, ...], bond: float) -> tuple[np.ndarray, ...]:
    """Return log weight without field, share of the state, and its count, of all numbers.

    The two units of the reversed bond are summed one by one, all others by their numbers.
    """
    states, found = len(kind.agree), []
    first, second = np.eye(states)[:, None], np.eye(states)[:, None]
    two = len(sizes) == 2
    rest = counts(sizes[0] - (1 if two else 2), states)
    for s, t in itertools.product(range(states), repeat=2):
        change = (REVERSED - 1.0) * bond * kind.agree[s, t]
        if two:
            other = counts(sizes[1] - 1, states)
            a, b = rest + first[s], other + second[t]
            log_w = ways(rest)[:, None] + ways(other) + bond * (a @ kind.agree @ b.T) + change
            log_w = logsumexp(log_w, axis=1)
        else:
            a = rest + first[s] + second[t]
            pairs = np.einsum("is,st,it->i", a, kind.agree, a) - a @ np.diag(kind.agree)
            log_w = ways(rest) + bond * pairs / 2 + change
        found.append((log_w, rest[:, kind.state] / rest[0].sum(), a[:, kind.state]))
    return tuple(np.concatenate(part) for part in zip(*found, strict=True))


def valley(p: np.ndarray, share: np.ndarray) -> tuple[float, float]:
    """Return the share of the valley between the two highest peaks, and its depth in nats."""
    at, place = np.unique(share, return_inverse=True)
    log_p = np.log(np.bincount(place, p) + 1e-300)
    higher = np.concatenate(([True], log_p[1:] > log_p[:-1]))
    peaks = np.flatnonzero(higher & np.concatenate((log_p[:-1] > log_p[1:], [True])))
    if len(peaks) < 2:
        return math.nan, 0.0
    low, high = sorted(peaks[np.argsort(log_p[peaks])[-2:]])
    between = low + int(np.argmin(log_p[low : high + 1]))
    return float(at[between]), float(min(log_p[low], log_p[high]) - log_p[between])


def case(number: int) -> Case:
    """Return model `number`: the same one each time."""
    rng = np.random.default_rng(number)
    kind = KINDS[number % len(KINDS)]
    while True:
        sizes = tuple(int(rng.integers(low, high + 1)) for low, high in kind.groups)
        bond = rng.uniform(*kind.couplings) / math.sqrt(math.prod(sizes) ** (2 / len(sizes)))
        minority = math.exp(rng.uniform(math.log(0.005), math.log(0.2)))
        below = minority if rng.random() < 0.5 else 1 - minority
        log_w, share, count = summed(kind, sizes, bond)
        # The share of the lower phase falls with the field.
        low, high = -3.0, 3.0
        for _ in range(60):
            field = (low + high) / 2
            p = np.exp(log_w + field * count - logsumexp(log_w + field * count))
            border, depth = valley(p, share)
            if math.isnan(border):
                # One phase alone is left: the field that gives both is nearer to balance.
                lower = float(p @ share) < 0.5 if len(kind.agree) == 2 else float(p @ share) < 0.6
                under = float(lower)
            else:
                under = float(p @ (share < border))
            low, high = (field, high) if under > below else (low, field)
        if depth > LEAST_DEPTH and abs(under - below) < 1e-3 * minority:
            sign = 1 if under < 0.5 else -1
            return Case(kind, sizes, bond, field, float(p @ share), min(under, 1 - under), sign)


def built(found: Case) -> pgm.Model:
    """Return the model of a case."""
    kind, sizes, b = found.kind, found.sizes, pgm.GraphBuilder()
    agree = found.bond * kind.agree
    bias = np.zeros(len(kind.agree))
    bias[kind.state] = found.field
    i, j = np.triu_indices(sizes[0], 1)
    strength = np.ones(i.size)
    strength[0] = REVERSED
    if kind.name == "pairs":
        x = b.layer("x", pgm.Spin(), sizes[0], bias=np.full(sizes[0], found.field / 2))
        b.couple(x[i], x[j], found.bond * strength)
    elif kind.name == "RBM":
        b.layer("x", pgm.Spin(), sizes[0], bias=np.full(sizes[0], found.field / 2))
        b.layer("h", pgm.Spin(), sizes[1])
        weight = np.full(sizes, found.bond)
        weight[0, 0] *= REVERSED
        b.couple("x", "h", weight=weight)
    elif kind.name == "tables":
        b.layer("x", pgm.Binary(), sizes[0], bias=np.full(sizes[0], found.field))
        entries = np.exp(strength[:, None, None] * agree)
        b.tables(("x", "x"), np.column_stack((i, j)), entries)
    else:
        x = b.layer("x", pgm.Categorical(3), sizes[0], bias=np.tile(bias, (sizes[0], 1)))
        b.couple(x[i], x[j], strength[:, None, None] * agree)
    return b.build()


def share_of(found: Case, value: Any) -> float:
    """Return the mean share of the state among the equal units, of means or of their errors."""
    each = np.asarray(value, dtype=float)
    each = each[..., found.kind.state] if found.kind.name == "Potts" else each.ravel()
    # Units 0 and 1 have the reversed bond; in an RBM, unit 0 of either layer has it.
    return float(np.mean(each.ravel()[1 if found.kind.name == "RBM" else 2 :]))


def asked(number: int, seeds: list[int]) -> list[dict[str, Any]]:
    """Return the answers about one model."""
    found, out = case(number), []
    model = built(found)
    # A few of the smallest Potts models have exact answers, which have no error to be judged by.
    if pgm.explain(model).chosen.guarantee == "exact":
        return []
    spins = found.kind.name in ("pairs", "RBM")
    for seed in seeds:
        begin = time.perf_counter()
        # Models of one kind would have related errors with the same random numbers.
        r = pgm.infer(model, rng=np.random.default_rng([number, seed]), progress=False)
        mean, error = share_of(found, r.mean["x"]), share_of(found, r.stats["mcse"]["x"])
        mean, error = ((mean + 1) / 2, error / 2) if spins else (mean, error)
        out.append(
            {
                "model": number,
                "seed": seed,
                "kind": found.kind.name,
                "minority": found.minority,
                "z": found.sign * (mean - found.mean) / error,
                "off": found.sign * (mean - found.mean),
                "status": r.status.name,
                "good": bool(r.status.good),
                "method": type(r.method).__name__,
                "seconds": time.perf_counter() - begin,
            }
        )
    return out


def verdict(answers: list[dict[str, Any]]) -> str:
    """Return the tables of all answers."""
    heads = ["models", "answers", "good", "mean z", "sd of z", "largest abs(z)", "beyond 5"]
    heads += ["abs(z) <= 1.96", "median seconds"]
    groups = defaultdict(list)
    for one in answers:
        groups[one["kind"]].append(one)
    rows = [_row(name, some) for name, some in [*sorted(groups.items()), ("all", answers)]]
    by = Counter((one["method"], one["status"]) for one in answers)
    rest = [[method, status, str(count)] for (method, status), count in by.most_common()]
    return "\n\n".join(
        [
            "Default answers about models with two phases (`pgm.infer(model)`); z is positive in "
            "the direction of the majority, and is that of good answers:",
            table(heads, rows),
            "The methods that answered:",
            table(["method", "status", "answers"], rest),
        ]
    )


def _row(name: str, answers: list[dict[str, Any]]) -> list[str]:
    good = [one for one in answers if one["good"]]
    z = np.array([one["z"] for one in good] or [math.nan])
    models = len({one["model"] for one in answers})
    seconds = float(np.median([one["seconds"] for one in answers]))
    return [
        f"{name} ({models})",
        str(len(answers)),
        f"{len(good) / len(answers):.0%}",
        f"{z.mean():+.2f}",
        f"{z.std():.2f}",
        f"{np.abs(z).max():.1f}",
        str(int((np.abs(z) > 5).sum())),
        f"{np.mean(np.abs(z) <= 1.96):.0%}",
        f"{seconds:.2f}",
    ]


def main(
    models: int = 500,
    seeds: int = 20,
    first: int = 0,
    checkpoint: Path | None = None,
    out: Path | None = None,
) -> None:
    """Ask about the models, and print the tables; models begin with number `first`."""
    answers = []
    if checkpoint is not None and checkpoint.exists():
        answers = [json.loads(line) for line in checkpoint.read_text().splitlines()]
    done = {(one["model"], one["seed"]) for one in answers}
    # All models get some seeds before any gets all, so that an early end leaves no model out.
    parts = [range(k, min(k + SEEDS_A_ROUND, seeds)) for k in range(0, seeds, SEEDS_A_ROUND)]
    for part, number in itertools.product(parts, range(first, first + models)):
        left = [seed for seed in part if (number, seed) not in done]
        some = asked(number, left) if left else []
        answers += some
        if checkpoint is not None:
            with checkpoint.open("a") as file:
                file.writelines(json.dumps(one) + "\n" for one in some)
    text = verdict(answers)
    print(text)
    if out is not None:
        put_block(out, "two_phases.py", text)


if __name__ == "__main__":
    typer.run(main)

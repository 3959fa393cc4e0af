"""Exact answers by elimination: published instances, other libraries, and how times scale.

    python benchmarks/exact.py --data DIRECTORY --out benchmarks/results/exact.md

DIRECTORY has the folders uai2014 (instances with published answers) and bnlearn (networks as
.bif.gz). Groups that need a folder or a library that is absent are left out. Each group is a block
of Markdown, and `--out` replaces the block of the same name in a file. Everything runs on one
core. Limits, and the times of instances, are seconds of the processor, which other work on the
machine disturbs little; the other times are by the clock, so read their minima where the machine is
shared.

The peers are pyAgrum (LazyPropagation, one thread) and toulbar2 (by pytoulbar2). Loading a file is
in no time. A time "set-up included" contains planning and compiling of the junction tree on both
sides, a time "again" does not.
"""

from __future__ import annotations

import gzip
import math
import os
import re
import statistics
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

import networkx as nx
import numpy as np
import typer
from apart import apart, interleaved, put_block, spent, table

import pgmengine as pgm
from pgmengine.io.formats import READERS
from pgmengine.io.uai import write_uai

# Table entries up to which an instance is tried: 4 GiB in double precision.
MOST = 2.0**30
# Seconds that a library may take for one answer, and above which it is measured once.
PATIENCE = 100.0
ONCE = 5.0
# Seconds of a thousand rows, and of others that are no instance.
LONG = 600.0

OURS, AGRUM, TOULBAR = "pgmengine", "pyAgrum", "toulbar2"
MODULES = {AGRUM: "pyagrum", TOULBAR: "pytoulbar2"}
ROWS = ("alarm", "insurance", "hailfinder", "win95pts", "hepar2", "andes", "pigs", "munin")

# Evidence of prepared questions about a network.
PREPARED: dict[str, tuple[dict[str, str], ...]] = {
    "asia": ({}, {"smoke": "yes", "xray": "no"}),
    "alarm": ({},),
}

# Seconds of Fast-BNI (Jiang et al., PPoPP 2023) for 2,000 queries with 20 % random evidence.
FAST_BNI = {"pigs": 3729.0, "munin2": 2643.0, "munin4": 34198.0}

Line = list[str]


@dataclass(frozen=True)
class Settings:
    """The options of the command."""

    data: Path | None = None
    repeats: int = 7
    seconds: float = 20.0
    gib: float = 8.0
    rows: int = 1000
    queries: int = 100


@dataclass(frozen=True)
class Group:
    """A table of the results: rows by name, each a function that returns the cells of its line."""

    title: str
    columns: tuple[str, ...]
    rows: Callable[[Settings], Iterator[tuple[str, Callable[[], Line]]]]
    note: str = ""


def there(library: str) -> bool:
    """Return whether a peer is installed."""
    return find_spec(MODULES[library]) is not None


def shown(seconds: float) -> str:
    """Return a time with its unit."""
    for unit, size in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * size >= 1 or unit == "us":
            return f"{seconds * size:.3g} {unit}"
    raise AssertionError


def both(times: list[float]) -> str:
    """Return the minimum and the median."""
    return f"{shown(min(times))} / {shown(statistics.median(times))}"


def files(settings: Settings, folder: str, suffix: str) -> list[Path]:
    """Return the files of a folder of the data, none where it is absent."""
    if settings.data is None:
        return []
    return sorted((settings.data / folder).glob(f"*{suffix}"))


def stem(path: Path) -> str:
    """Return the name of a file without its suffixes .bif.gz or .uai.gz."""
    return re.sub(r"\.(bif|uai)\.gz$", "", path.name)


# Published instances.


def instances(settings: Settings) -> Iterator[tuple[str, Callable[[], Line]]]:
    """Yield the UAI instances."""
    for path in files(settings, "uai2014", ".uai.gz"):
        yield stem(path), partial(instance_line, path, settings)


def instance_line(path: Path, settings: Settings) -> Line:
    """Answer one instance in a process of its own, reading its files included."""
    done = apart(lambda: instance(path), settings.seconds, settings.gib)
    published = words(path, "PR")[-1]
    end = [f"{done.seconds:.2f}", f"{done.gib:.2f}"]
    if done.value is None:
        return [published, reason(done.failed), "", *end, ""]
    log10, distance, plan = done.value
    right = "right" if agrees(log10, published) else "DIFFERS"
    far = "" if distance is None else f"{distance:.1g}"
    return [published, f"{log10:.10g}, {right}", far, *end, plan]


def instance(path: Path) -> tuple[float, float | None, str]:
    """Return log10 Z, the mean Hellinger distance of the marginals, and the junction tree."""
    model = pgm.read(path)
    evidence = pgm.read_evidence(sibling(path, "evid"))
    published = marginals_of(path)
    want = ("log_z",) if published is None else ("log_z", "marginals")
    r = pgm.infer(model, evidence, want, method=pgm.Exact(max_states=MOST))
    far = None if published is None else hellinger(r, published)
    return float(r.log_z[0]) / math.log(10), far, tree_of(r.plan)


def sibling(path: Path, suffix: str) -> Path:
    """Return the file of an instance with another suffix."""
    return path.with_name(f"{path.name.removesuffix('.gz')}.{suffix}.gz")


def words(path: Path, suffix: str) -> list[str]:
    """Return the words of a file of published answers."""
    return gzip.decompress(sibling(path, suffix).read_bytes()).decode().split()


def marginals_of(path: Path) -> list[np.ndarray] | None:
    """Return the published marginals of every variable, if there are any."""
    if not sibling(path, "MAR").exists():
        return None
    numbers = [float(word) for word in words(path, "MAR")[1:]]
    found, at = [], 1
    for _ in range(int(numbers[0])):
        count = int(numbers[at])
        found.append(np.array(numbers[at + 1 : at + 1 + count]))
        at += 1 + count
    return found


def hellinger(r: pgm.Result, published: list[np.ndarray]) -> float:
    """Return the mean over variables of the Hellinger distance to the published marginals."""
    far = []
    for i, p in enumerate(published):
        # A variable with one state is a constant.
        q = np.array(list(r.marginal(str(i)).values())).ravel() if len(p) > 1 else np.ones(1)
        far.append(math.sqrt(np.square(np.sqrt(p) - np.sqrt(q)).sum() / 2))
    return float(np.mean(far))


def agrees(log10: float, published: str) -> bool:
    """Return whether a value rounds to the published one, within a tenth of its last digit.

    Some files have more than six significant digits; then all of them count.
    """
    number = float(published)
    digits = len(published.lstrip("-0.").replace(".", ""))
    last = 10.0 ** (math.floor(math.log10(abs(number) or 1.0)) + 1 - max(digits, 6))
    return abs(log10 - number) <= 0.6 * last + 1e-12 * abs(number)


def tree_of(plan: pgm.Plan) -> str:
    """Return the size of the junction tree or of the cover in a plan."""
    found = re.search(r"largest (2\^\S+) states, (2\^\S+) in all", plan.why)
    return f"{found[1]}, {found[2]}" if found else plan.why.split(" (")[0]


def reason(failed: str) -> str:
    """Return a failure in few words, with the width where elimination was refused."""
    width = re.search(r"needs (2\^\S+) table entries.*?width is (\S+),.*?less than (\S+)$", failed)
    if width:
        return f"refused: {width[1]} entries, width {width[2]}, lower bound {width[3]}"
    return re.sub(r"\|", "/", failed)[:120]


# Networks beside pyAgrum.


def networks(settings: Settings) -> Iterator[tuple[str, Callable[[], Line]]]:
    """Yield the networks, without and with evidence."""
    if not there(AGRUM):
        return
    for path in files(settings, "bnlearn", ".bif.gz"):
        for share, text in ((0.0, "no evidence"), (0.2, "20 % observed")):
            yield f"{stem(path)}, {text}", partial(network_line, path, share, settings)


def network_line(path: Path, share: float, settings: Settings) -> Line:
    """Measure all marginals of one network on both sides, set-up included."""
    alone = apart(lambda: peer_once(path, share), PATIENCE, settings.gib)
    side = alone.value is not None and alone.value < ONCE
    job = partial(compared, path, share, settings.repeats, side)
    done = apart(job, LONG, 2 * settings.gib)
    if done.value is None:
        return [reason(done.failed), "", "", "", "", f"{done.gib:.2f}"]
    times, again, far, tree = done.value
    peer = times.get(AGRUM, [] if alone.value is None else [alone.value])
    ratio = f"{min(peer) / min(times[OURS]):.2f}" if peer else ""
    if alone.failed.startswith("over"):
        ratio = f"> {PATIENCE / min(times[OURS]):.3g}"
    theirs = both(peer) if peer else alone.failed
    apart_by = "" if far is None else f"{far:.0e}"
    return [both(times[OURS]), shown(again), theirs, ratio, apart_by, f"{done.gib:.2f}", tree]


def compared(
    path: Path, share: float, repeats: int, side: bool
) -> tuple[dict[str, list[float]], float, float | None, str]:
    """Return times of both libraries, ours again, the largest difference, and the tree."""
    evidence = evidence_of(path, share)
    model = pgm.read(path)
    # Imports and first calls are warmed up on another model.
    pgm.infer(tiny())
    cases = {OURS: lambda: ours(pgm.read(path), evidence)}
    if side:
        net = in_pyagrum(path)
        cases[AGRUM] = lambda: theirs(net, model, evidence)
    times = interleaved(cases, repeats)
    found = ours(model, evidence)()
    again = min(spent(ours(model, evidence))[0] for _ in range(3))
    far = difference(found, theirs(net, model, evidence)()) if side else None
    return times, again, far, tree_of(found.plan)


def tiny() -> pgm.Model:
    """Return a network of two variables."""
    b = pgm.GraphBuilder()
    b.variable("a")
    b.variable("b", states=3)
    b.conditional("a", (), [0.5, 0.5])
    b.conditional("b", ("a",), [[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]])
    return b.build()


def ours(model: pgm.Model, evidence: dict[str, int]) -> Callable[[], pgm.Result]:
    """Return a call for all marginals."""
    asked = named(model, evidence)
    return lambda: pgm.infer(model, asked, method=pgm.Exact(max_states=MOST))


def theirs(
    net: Any, model: pgm.Model, evidence: dict[str, int]
) -> Callable[[], dict[str, np.ndarray]]:
    """Return a call of pyAgrum for all marginals."""

    def call() -> dict[str, np.ndarray]:
        engine = propagation(net)
        engine.setEvidence(evidence)
        engine.makeInference()
        return {name: engine.posterior(name).toarray() for name in net.names()}

    return call


def propagation(net: Any) -> Any:
    """Return an inference engine of pyAgrum with one thread."""
    import pyagrum

    engine = pyagrum.LazyPropagation(net)
    engine.setNumberOfThreads(1)
    return engine


def peer_once(path: Path, share: float) -> float:
    """Return the time of pyAgrum for all marginals."""
    evidence, net, model = evidence_of(path, share), in_pyagrum(path), pgm.read(path)
    theirs(in_pyagrum_tiny(), tiny(), {})()
    return spent(theirs(net, model, evidence))[0]


def in_pyagrum_tiny() -> Any:
    """Return a network of pyAgrum, to warm it up."""
    import pyagrum

    return pyagrum.fastBN("a->b[3]")


def in_pyagrum(path: Path) -> Any:
    """Return a network as pyAgrum reads it; states get names that it can read if need be."""
    import pyagrum

    text = gzip.decompress(path.read_bytes()).decode("latin-1")
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        file = Path(folder) / "network.bif"
        if re.search(r"\] *\{[^{};]*[<+/][^{};]*\}", text):
            text = re.sub(r"(?<=\] )\{[^{};]*\}|\([^();]*\)", plain_names, text)
        file.write_text(text, encoding="latin-1")
        return pyagrum.loadBN(str(file))


def plain_names(found: re.Match[str]) -> str:
    """Return the names of a list without signs that pyAgrum cannot read."""
    return re.sub(r"[^\w\s,|{}()]", "_", found[0])


def evidence_of(path: Path, share: float, seed: int = 0) -> dict[str, int]:
    """Return the states of a random share of the variables, from a draw of the network."""
    if share == 0:
        return {}
    model = pgm.read(path)
    states = drawn(model, 1, seed)
    names = list(states)
    chosen = np.random.default_rng(seed).permutation(len(names))[: round(share * len(names))]
    return {names[i]: int(states[names[i]][0]) for i in sorted(chosen)}


def drawn(model: pgm.Model, count: int, seed: int) -> dict[str, np.ndarray]:
    """Return exact draws as states of every variable, (count,) each; constants are left out."""
    method = pgm.Exact(draws=count, max_states=MOST)
    r = pgm.infer(model, want=("marginals", "samples"), method=method, rng=seed)
    frame = r.samples_frame()
    found = {}
    for name in model.variables:
        number = {state: i for i, state in enumerate(r.marginal(name))}
        if len(number) > 1:
            found[name] = frame[name].map(number).to_numpy(dtype=int)
    return found


def named(model: pgm.Model, states: Mapping[str, Any]) -> dict[str, Any]:
    """Return numbers of states as evidence: by their names where they have some."""
    s, found = model.structure, {}
    for name, numbers in states.items():
        names = s.layers[s.names.place(name)[0]].state_names
        found[name] = np.array(names, dtype=object)[numbers] if names else numbers
    return found


def difference(r: pgm.Result, found: dict[str, np.ndarray]) -> float:
    """Return the largest difference of a probability."""
    return max(
        float(np.abs(np.array(list(r.marginal(name).values())).ravel() - p).max())
        for name, p in found.items()
    )


# The same question again, and many rows.


def prepared(settings: Settings) -> Iterator[tuple[str, Callable[[], Line]]]:
    """Yield prepared questions for all marginals, without and with evidence by name."""
    for path in files(settings, "bnlearn", ".bif.gz"):
        for evidence in PREPARED.get(stem(path), ()):
            given = f" given {', '.join(evidence)}" if evidence else ""
            yield f"{stem(path)}{given}", partial(prepared_line, path, evidence, settings)


def prepared_line(path: Path, evidence: dict[str, str], settings: Settings) -> Line:
    """Measure a prepared question."""

    def job() -> list[float]:
        ask = pgm.prepare(pgm.read(path), observed=evidence)
        ask(evidence)
        return [
            spent(lambda: [ask(evidence) for _ in range(100)])[0] / 100
            for _ in range(settings.repeats)
        ]

    done = apart(job, LONG, settings.gib)
    return [done.failed if done.value is None else both(done.value)]


def many_rows(settings: Settings) -> Iterator[tuple[str, Callable[[], Line]]]:
    """Yield networks with rows of evidence on the same variables."""
    if there(AGRUM):
        for path in files(settings, "bnlearn", ".bif.gz"):
            if stem(path) in ROWS:
                yield stem(path), partial(rows_line, path, settings)


def rows_line(path: Path, settings: Settings) -> Line:
    """Measure all marginals of many rows, beside a loop over pyAgrum on some of them."""
    done = apart(lambda: rows_compared(path, settings.rows), LONG, 2 * settings.gib)
    if done.value is None:
        return [str(settings.rows), reason(done.failed), "", "", "", ""]
    mine, peer, looped, far = done.value
    return [
        str(settings.rows),
        shown(mine / settings.rows),
        shown(peer / looped),
        f"{peer / looped / (mine / settings.rows):.1f}",
        f"{far:.0e}",
        str(looped),
    ]


def rows_compared(path: Path, count: int) -> tuple[float, float, int, float]:
    """Return our time for all rows, pyAgrum's for some, their number, and the difference."""
    model, net = pgm.read(path), in_pyagrum(path)
    states = drawn(model, count, 1)
    seen = np.random.default_rng(1).permutation(list(states))[: round(0.2 * len(states))]
    rows = {name: states[name] for name in map(str, seen)}
    fresh = pgm.read(path)
    asked = named(fresh, rows)
    mine, r = spent(lambda: pgm.infer(fresh, asked, method=pgm.Exact(max_states=MOST)))
    peer, looped, last = looped_peer(net, rows)
    here = {n: np.array(list(r.marginal(n).values()))[:, looped - 1] for n in last}
    return mine, peer, looped, max(float(np.abs(here[n] - last[n]).max()) for n in last)


def looped_peer(net: Any, rows: dict[str, np.ndarray]) -> tuple[float, int, dict[str, np.ndarray]]:
    """Loop over rows for at most a few seconds: the time, the rows, and the last marginals.

    The engine is kept, so that pyAgrum plans its junction tree once.
    """
    engine, total, done = propagation(net), 0.0, 0
    for i in range(len(next(iter(rows.values())))):
        evidence = {name: int(states[i]) for name, states in rows.items()}

        def one(evidence: dict[str, int] = evidence) -> dict[str, np.ndarray]:
            engine.setEvidence(evidence)
            engine.makeInference()
            return {name: engine.posterior(name).toarray() for name in net.names()}

        seconds, last = spent(one)
        total, done = total + seconds, done + 1
        if total > ONCE:
            break
    return total, done, last


def patterns(settings: Settings) -> Iterator[tuple[str, Callable[[], Line]]]:
    """Yield networks with rows that have other variables observed in each."""
    for path in files(settings, "bnlearn", ".bif.gz"):
        if stem(path) in FAST_BNI:
            yield stem(path), partial(patterns_line, path, settings)


def patterns_line(path: Path, settings: Settings) -> Line:
    """Measure rows of random evidence, all marginals, and state the time of 2,000."""
    import pandas as pd

    def job() -> float:
        model = pgm.read(path)
        states = pd.DataFrame(named(model, drawn(model, settings.queries, 2)))
        hidden = np.random.default_rng(2).random(states.shape) >= 0.2
        method = pgm.Exact(max_states=MOST)
        return spent(lambda: pgm.infer(model, states.mask(hidden), method=method))[0]

    done = apart(job, LONG, 2 * settings.gib)
    published = FAST_BNI[stem(path)]
    if done.value is None:
        return [str(settings.queries), reason(done.failed), "", f"{published:,.0f} s", ""]
    whole = done.value * 2000 / settings.queries
    ratio = f"{published / whole:.1f}"
    return [str(settings.queries), shown(done.value), shown(whole), f"{published:,.0f} s", ratio]


# Large graphs of small width, draws and scaling.


def chain(units: int, states: int = 3) -> pgm.Model:
    """Return a chain of categorical units with random equal tables."""
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Categorical(states), units)
    index = np.stack([np.arange(units - 1), np.arange(1, units)], axis=1)
    b.tables(("x", "x"), index, np.random.default_rng(0).random((states, states)) + 0.1)
    return b.build()


def tree(units: int, states: int = 3) -> pgm.Model:
    """Return a random tree of categorical units, each edge with a table of its own."""
    rng = np.random.default_rng(0)
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Categorical(states), units)
    parent = (rng.random(units - 1) * np.arange(1, units)).astype(int)
    index = np.stack([parent, np.arange(1, units)], axis=1)
    b.tables(("x", "x"), index, rng.random((units - 1, states, states)) + 0.1)
    return b.build()


def lattice(side: int, coupling: float) -> pgm.Model:
    """Return a square lattice of spins with free ends."""
    graph = nx.grid_2d_graph(side, side)
    nx.set_edge_attributes(graph, coupling, "weight")
    return pgm.GraphBuilder.from_networkx(graph, unit=pgm.Spin()).build()


SMALL_WIDTH: dict[str, tuple[Callable[[], pgm.Model], tuple[str, ...]]] = {
    "chain of 10,000 units of 3 states": (lambda: chain(10_000), ("log_z", "marginals")),
    "tree of 10,000 units of 3 states": (lambda: tree(10_000), ("log_z", "marginals")),
    "20x20 lattice, coupling 0.44": (lambda: lattice(20, 0.44), ("log_z",)),
    "20x20 lattice, coupling 5": (lambda: lattice(20, 5.0), ("log_z",)),
    "20x20 lattice, coupling 0.44, marginals too": (
        lambda: lattice(20, 0.44),
        ("log_z", "marginals"),
    ),
}


def small_width(settings: Settings) -> Iterator[tuple[str, Callable[[], Line]]]:
    """Yield large graphs of small width."""
    for name, (make, want) in SMALL_WIDTH.items():
        yield name, partial(width_line, make, want, settings)


def width_line(make: Callable[[], pgm.Model], want: tuple[str, ...], settings: Settings) -> Line:
    """Measure the first answer of a new model, and the next."""

    def job() -> tuple[list[float], list[float], str]:
        pgm.infer(tiny())
        first, again = [], []
        for _ in range(settings.repeats):
            model = make()
            ask = partial(pgm.infer, model, want=want)
            first.append(spent(ask)[0])
            seconds, r = spent(ask)
            again.append(seconds)
        assert r.kind == "exact"
        return first, again, tree_of(r.plan)

    done = apart(job, LONG, settings.gib)
    if done.value is None:
        return [done.failed, "", "", ""]
    first, again, size = done.value
    return [both(first), both(again), f"{done.gib:.2f}", size]


def draws(settings: Settings) -> Iterator[tuple[str, Callable[[], Line]]]:
    """Yield 10,000 exact draws of alarm."""
    for path in files(settings, "bnlearn", "alarm.bif.gz"):
        yield "alarm, 10,000 draws", partial(draws_line, path, settings)


def draws_line(path: Path, settings: Settings) -> Line:
    """Measure draws of a prepared question, their table, and their error in standard errors."""

    def job() -> tuple[list[float], float, float, int]:
        model, method = pgm.read(path), pgm.Exact(draws=10_000)
        ask = pgm.prepare(model, want=("samples",), method=method)
        ask({}, rng=0)
        times = [spent(lambda: ask({}, rng=1))[0] for _ in range(settings.repeats)]
        r = ask({}, rng=1)
        frame = min(spent(r.samples_frame)[0] for _ in range(settings.repeats))
        return times, frame, *largest_z(model, r)

    done = apart(job, LONG, settings.gib)
    if done.value is None:
        return [done.failed, "", ""]
    times, frame, worst, count = done.value
    return [both(times), shown(frame), f"{worst:.1f} of {count}"]


def largest_z(model: pgm.Model, r: pgm.Result) -> tuple[float, int]:
    """Return the largest error of a state's share in standard errors, and the number of states."""
    frame, exact, worst, count = r.samples_frame(), pgm.infer(model), 0.0, 0
    for name in model.variables:
        for state, p in exact.marginal(name).items():
            if 0 < p < 1:
                error = math.sqrt(p * (1 - p) / len(frame))
                worst, count = max(worst, abs((frame[name] == state).mean() - p) / error), count + 1
    return worst, count


def scaling(settings: Settings) -> Iterator[tuple[str, Callable[[], Line]]]:
    """Yield series of models: entries, rows and variables."""
    for side in (8, 10, 12, 14, 16, 18):
        job = partial(scaling_line, partial(lattice, side, 0.44), 1, settings)
        yield f"entries: {side}x{side} lattice", job
    for rows in (1, 10, 100, 1000, 10_000):
        job = partial(scaling_line, partial(chain, 100), rows, settings)
        yield f"rows: chain of 100, {rows} rows", job
    for units in (1000, 10_000, 100_000, 1_000_000):
        job = partial(scaling_line, partial(chain, units), 1, settings)
        yield f"variables: chain of {units}", job


def scaling_line(make: Callable[[], pgm.Model], rows: int, settings: Settings) -> Line:
    """Measure log Z and marginals, planning apart, for entries times rows."""

    def job() -> tuple[float, float, float]:
        pgm.infer(tiny())
        model = make()
        evidence = {} if rows == 1 else {"x": observed_end(rows)}
        ask = partial(pgm.infer, model, evidence, method=pgm.Elimination())
        first = spent(ask)[0]
        again, r = min((spent(ask) for _ in range(settings.repeats)), key=itemgetter(0))
        return first, again, r.stats["entries"] * rows

    done = apart(job, LONG, settings.gib)
    if done.value is None:
        return [done.failed, "", "", "", ""]
    first, again, entries = done.value
    each = 1e9 * again / entries / 3
    return [
        f"2^{math.log2(entries):.1f}",
        shown(first),
        shown(again),
        f"{each:.2f}",
        f"{done.gib:.2f}",
    ]


def observed_end(rows: int) -> np.ndarray:
    """Return evidence of the last unit of a chain of 100 units of 3 states."""
    evidence = np.full((rows, 100), np.nan)
    evidence[:, -1] = np.arange(rows) % 3
    return evidence


# The mode beside toulbar2.


def modes(settings: Settings) -> Iterator[tuple[str, Callable[[], Line]]]:
    """Yield networks and instances whose mode toulbar2 finds, too."""
    if not there(TOULBAR):
        return
    for path in files(settings, "bnlearn", ".bif.gz"):
        yield stem(path), partial(mode_line, path, settings)
    for path in files(settings, "uai2014", ".uai.gz"):
        yield stem(path), partial(mode_line, path, settings)


def mode_line(path: Path, settings: Settings) -> Line:
    """Compare two modes by their log density, each found in a process of its own."""
    mine = apart(lambda: own_mode(path), settings.seconds, settings.gib)
    peer = apart(lambda: toulbar_mode(path), settings.seconds, settings.gib)
    cells = [
        reason(mine.failed) if mine.value is None else shown(mine.value[0]),
        peer.failed[:60] if peer.value is None else shown(peer.value[0]),
    ]
    if mine.value is None or peer.value is None:
        return [*cells, ""]
    both_states = mine.value[1], peer.value[1]
    scored = apart(lambda: [log_density(path, x) for x in both_states], LONG, settings.gib)
    if scored.value is None:
        return [*cells, reason(scored.failed)]
    scores = scored.value
    if abs(scores[0] - scores[1]) < 1e-6 * (1 + abs(scores[0])):
        return [*cells, "equal"]
    return [*cells, f"ours {scores[0]:.8g}, toulbar2 {scores[1]:.8g}"]


def own_mode(path: Path) -> tuple[float, list[int]]:
    """Return the time of the mode, and the state of every variable."""
    model, evidence = pgm.read(path), mode_evidence(path)
    method = pgm.Exact(max_states=MOST)
    seconds, r = spent(lambda: pgm.infer(model, evidence, want=("mode",), method=method))
    found = r.assignment()
    return seconds, [state_number(r, name, found[name]) for name in model.variables]


def state_number(r: pgm.Result, name: str, state: Any) -> int:
    """Return the number of a state of a variable."""
    layer, _ = r.target.structure.names.place(name)
    names = r.target.structure.layers[layer].state_names
    return names.index(state) if names else int(state)


def mode_evidence(path: Path) -> Any:
    """Return the evidence of an instance; networks have none."""
    if path.name.endswith(".bif.gz"):
        return {}
    return pgm.read_evidence(sibling(path, "evid"))


def toulbar_mode(path: Path) -> tuple[float, list[int]]:
    """Return the time of a proven optimum by toulbar2, reading included, and its states."""
    import pytoulbar2

    text = gzip.decompress(path.read_bytes()).decode("latin-1")
    if path.name.endswith(".bif.gz"):
        text = write_uai(READERS[".bif"](text))
    evidence = mode_evidence(path)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.uai"
        file.write_text(text)

        def solve() -> Any:
            problem = pytoulbar2.CFN(resolution=7)
            problem.Read(str(file))
            for name, state in evidence.items():
                problem.Assign(int(name), int(state))
            return problem.Solve()

        seconds, solution = spent(solve)
    if solution is None:
        raise RuntimeError("no solution")
    return seconds, [int(state) for state in solution[0]]


def log_density(path: Path, states: list[int]) -> float:
    """Return the log density of a complete state."""
    model = pgm.read(path)
    complete = dict(zip(model.variables, states, strict=True))
    return float(pgm.infer(model, complete, want=("log_z",)).log_z[0])


GROUPS = {
    "instances": Group(
        "Published instances (UAI 2014)",
        ("instance", "published log10 Z", "log10 Z", "Hellinger", "s", "GiB", "largest, all"),
        instances,
        "Every instance in a process of its own, with the limits of the options. The column s has "
        "seconds of the processor, with the reading of the files. The column Hellinger has the "
        "mean over variables of the distance to the published marginals, which have six digits. "
        "The last column has the states of the largest clique, and the table entries of all "
        "cliques.",
    ),
    "networks": Group(
        "Networks of bnlearn beside pyAgrum",
        ("network", "pgmengine", "again", AGRUM, "ratio", "difference", "GiB", "largest, all"),
        networks,
        "All marginals, set-up included on both sides, minimum / median of interleaved repeats. "
        "The ratio is of the minima: above 1, pgmengine is faster. pyAgrum reads probabilities in "
        "single precision.",
    ),
    "prepared": Group("Prepared questions", ("network", "all marginals"), prepared),
    "rows": Group(
        "Rows of evidence on the same variables",
        ("network", "rows", "pgmengine, a row", "pyAgrum, a row", "ratio", "difference", "looped"),
        many_rows,
        "20 % of the variables are observed. pyAgrum keeps its engine, and loops over the number "
        "of rows in the last column. Our time includes the set-up.",
    ),
    "patterns": Group(
        "Rows with 20 % random evidence each",
        ("network", "rows", "time", "2,000 rows", "Fast-BNI, published", "ratio"),
        patterns,
        "Every row has other variables observed. The time of 2,000 rows is extrapolated from the "
        "measured rows. Fast-BNI: 2,000 queries, one thread, on another machine, so that the "
        "ratio compares the machines, too.",
    ),
    "width": Group(
        "Large graphs of small width",
        ("graph", "first answer", "next answer", "GiB", "largest, all"),
        small_width,
        "The first answer of a new model includes the search for an order.",
    ),
    "draws": Group(
        "Exact samples", ("question", "time", "samples_frame", "largest error in s.e."), draws
    ),
    "modes": Group(
        "The mode beside toulbar2",
        ("model", "pgmengine", TOULBAR, "log densities"),
        modes,
        "toulbar2 reads the problem in its time.",
    ),
    "scaling": Group(
        "Scaling",
        ("series", "entries", "first answer", "next answer", "ns an entry and pass", "GiB"),
        scaling,
        "All marginals, which take about three passes. The entries of all cliques are multiplied "
        "by the number of rows. Large cliques take less than 3 ns an entry and pass. Cliques of 9 "
        "entries do not: with 10,000 rows of the chain, a profile showed 36 % of the time in the "
        "passes, 28 % in writing the factors of each row, and the rest in numpy (evidence, sums). "
        "Few rows have a fixed cost of about half a millisecond.",
    ),
}


def measured(name: str, settings: Settings, only: str) -> Iterator[Line]:
    """Yield the lines of a group that are chosen, printed when they are done."""
    for row, job in GROUPS[name].rows(settings):
        if only in f"{name}: {row}":
            line = [row, *job()]
            line += [""] * (len(GROUPS[name].columns) - len(line))
            print(f"{name}: " + "; ".join(cell for cell in line if cell), flush=True)
            yield line


def summary(name: str, lines: list[Line]) -> str:
    """Return a sentence about all lines of a group."""
    if name == "instances":
        right = sum("right" in line[2] for line in lines)
        return f"{right} of {len(lines)} have all published digits."
    if name not in ("networks", "rows"):
        return ""
    ratios = [float(x) for line in lines if (x := line[4]) and not x.startswith(">")]
    if not ratios:
        return ""
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    faster = sum(x > 1 for x in ratios)
    return f"Geometric mean of the ratios: {mean:.2f}; faster in {faster} of {len(ratios)}."


def document(name: str, lines: list[Line], load: float) -> str:
    """Return the block of a group."""
    group = GROUPS[name]
    shared = f"Load of the machine at the start: {load:.1f}"
    shared += "; other work shared it." if load > 1.5 else "."
    notes = " ".join(x for x in (group.note, summary(name, lines), shared) if x)
    return f"## {group.title}\n\n{wrapped(notes)}\n\n{table(group.columns, lines)}\n"


def wrapped(text: str, width: int = 100) -> str:
    """Return text in lines of at most `width` columns."""
    return textwrap.fill(text, width)


def one_core() -> None:
    """Keep this process and its forks on one core; libraries read the numbers of threads early."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    wanted = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    if any(os.environ.get(name) != "1" for name in wanted):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **wanted})


def main(
    data: Annotated[Path | None, typer.Option(help="the folder of uai2014 and bnlearn")] = None,
    only: Annotated[str, typer.Option(help="rows whose 'group: name' contains this")] = "",
    repeats: Annotated[int, typer.Option(help="repeats of a time")] = 7,
    rows: Annotated[int, typer.Option(help="rows of evidence on the same variables")] = 1000,
    queries: Annotated[int, typer.Option(help="rows with evidence of their own")] = 100,
    seconds: Annotated[float, typer.Option(help="limit of an instance and a mode")] = 20.0,
    gib: Annotated[float, typer.Option(help="limit of its memory")] = 8.0,
    out: Annotated[Path | None, typer.Option(help="a file whose blocks are replaced")] = None,
) -> None:
    """Measure, print every row when it is done, and write a block of Markdown for each group."""
    settings = Settings(data, repeats, seconds, gib, rows, queries)
    one_core()
    found = False
    for name in GROUPS:
        load = os.getloadavg()[0]
        lines = list(measured(name, settings, only))
        if lines and out is not None:
            put_block(out, f"exact.py {name}", document(name, lines, load))
        found |= bool(lines)
    if not found:
        raise typer.BadParameter(f"no row contains {only!r}, or its data or library is absent")


if __name__ == "__main__":
    typer.run(main)

"""Proven bounds of published instances: do they hold, and how wide are they beside pyGMs?

    python benchmarks/bounds.py --data DIRECTORY --journal FILE --out benchmarks/results/bounds.md

DIRECTORY has the folder uai2014. Each line of the journal is one measured instance (JSON), so that
a run that was ended goes on where it was; `--only` chooses instances by their names, with commas.
`--out` writes the page from all lines of the journal. The peer is weighted mini-buckets in pyGMs
(package pygms), with tables of the same size, in the same time and in `--more` times as much; half
of its time is for each bound. One core. Gaps are in nats; "exact" is a sum without splitting.
"""

from __future__ import annotations

import gzip
import json
import math
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from apart import put_block, table

import pgmengine as pgm

# Published answers have six significant digits.
DIGITS = 6
# The steps of pyGMs: those of its examples.
STEP_COST, STEP_WEIGHTS = 0.5, 0.1


def published(path: Path) -> tuple[float, float]:
    """Return the published log Z, and half of its last digit."""
    text = gzip.decompress(sibling(path, "PR").read_bytes()).decode().split()[-1]
    value = float(text)
    digit = 10.0 ** (math.floor(math.log10(abs(value) or 1.0)) + 1 - DIGITS)
    return value * math.log(10), 0.6 * digit * math.log(10)


def sibling(path: Path, suffix: str) -> Path:
    """Return the file of an instance with another suffix."""
    return path.with_name(f"{path.name.removesuffix('.gz')}.{suffix}.gz")


def ours(path: Path, states: float, seconds: float) -> dict[str, Any]:
    """Return the bounds of pgmengine."""
    model, evidence = pgm.read(path), pgm.read_evidence(sibling(path, "evid"))
    begin = time.perf_counter()
    try:
        method = pgm.MiniBucket(states, seconds)
        r = pgm.infer(model, evidence, ("log_z",), method)
    except pgm.PgmError as error:
        return {"failed": str(error)[:200]}
    took = time.perf_counter() - begin
    low, high = map(float, r.log_z_interval[0])
    return {"low": low, "high": high, "kind": r.kind, "seconds": took, **r.stats}


def theirs(path: Path, states: float, seconds: float, more: float) -> dict[str, Any]:
    """Return the bounds of pyGMs after `seconds`, and after `more` times as many."""
    import pygms
    from pygms.wmb import WMB

    folder = path.parent
    uai, evidence = folder / path.name, sibling(path, "evid")
    factors = pygms.readUai(str(unpacked(uai)))
    words = [int(w) for w in gzip.decompress(evidence.read_bytes()).decode().split()]
    if len(words) % 2 == 0 and words:
        words = words[1:]
    given = dict(zip(words[1::2], words[2::2], strict=True))
    found: dict[str, Any] = {}
    for sign, name in ((1.0, "high"), (-1.0, "low")):
        graph = pygms.GraphModel([f.condition(given) for f in factors])
        begin, best = time.perf_counter(), sign * math.inf
        bound = WMB(graph, sBound=states, weights="sum+" if sign > 0 else "sum-")
        for end, key in ((seconds / 2, name), (more * seconds / 2, f"{name} later")):
            while time.perf_counter() - begin < end:
                with np.errstate(all="ignore"):
                    value = float(bound.msgForward(STEP_COST, STEP_WEIGHTS))
                    bound.msgBackward()
                if value == value:
                    best = min(best, value) if sign > 0 else max(best, value)
            found[key] = best
    return found


def unpacked(path: Path) -> Path:
    """Return an unpacked copy of a file, for a reader of plain text."""
    import tempfile

    out = Path(tempfile.mkdtemp()) / path.name.removesuffix(".gz")
    out.write_bytes(gzip.decompress(path.read_bytes()))
    return out


def gap(found: dict[str, Any], low: str = "low", high: str = "high") -> str:
    """Return the distance of two bounds as text."""
    if low not in found or high not in found:
        return ""
    wide = found[high] - found[low]
    return f"{wide:.3g}" if math.isfinite(wide) else "infinite"


def line(name: str, entry: dict[str, Any]) -> list[str]:
    """Return the cells of an instance."""
    mine, peer = entry["ours"], entry.get("pygms", {})
    if "failed" in mine:
        return [name, mine["failed"].replace("|", "/"), *[""] * 6]
    z, digit = entry["published"], entry["digit"]
    holds = mine["low"] <= z + digit and z - digit <= mine["high"]
    ends = [f"{mine['high'] - z:.3g}", f"{z - mine['low']:.3g}"]
    kind = "exact" if mine["kind"] == "exact" else gap(mine)
    told = peer.get("failed", gap(peer))
    later = gap(peer, "low later", "high later") if entry.get("more", 1.0) > 1.0 else ""
    return [name, "yes" if holds else "NO", *ends, kind, f"{mine['seconds']:.1f}", told, later]


def page(entries: dict[str, dict[str, Any]], states: float, seconds: float) -> str:
    """Return the table of all instances."""
    columns = ("instance", "holds", "upper less log Z", "log Z less lower", "gap", "seconds")
    columns += ("gap of pyGMs", "gap of pyGMs, longer")
    rows = [line(name, entry) for name, entry in sorted(entries.items())]
    bits = math.log2(states)
    text = f"Tables of at most 2^{bits:g} entries, {seconds:g} s, gaps in nats.\n\n"
    return text + table(columns, rows)


def main(
    data: Annotated[Path, typer.Option(help="the folder that has uai2014")],
    journal: Annotated[Path, typer.Option(help="the file of measured instances")],
    out: Annotated[Path | None, typer.Option(help="the page to write")] = None,
    only: Annotated[str, typer.Option(help="instances, with commas")] = "",
    bits: Annotated[float, typer.Option(help="log2 of the entries of a table")] = 10.0,
    seconds: Annotated[float, typer.Option(help="seconds for both bounds")] = 20.0,
    more: Annotated[float, typer.Option(help="times as long for the peer")] = 1.0,
    peer: Annotated[bool, typer.Option(help="whether to run pyGMs")] = True,
) -> None:
    """Measure the instances that the journal lacks, and write the page."""
    name = f"bounds.py: {seconds:g} s, 2^{bits:g}"
    done: dict[str, dict[str, Any]] = {}
    for text in journal.read_text().splitlines() if journal.exists() else []:
        entry = json.loads(text)
        entry["run"] = "bounds.py: " + entry["run"].removeprefix("bounds.py: ")
        if entry["run"] == name:
            done[entry["name"]] = entry
    chosen = set(only.split(",")) - {""}
    for path in sorted((data / "uai2014").glob("*.uai.gz")):
        stem = path.name.removesuffix(".uai.gz")
        if stem in done or (chosen and stem not in chosen):
            continue
        z, digit = published(path)
        entry = {"run": name, "name": stem, "published": z, "digit": digit, "more": more}
        entry["ours"] = ours(path, 2.0**bits, seconds)
        if peer and find_spec("pygms"):
            try:
                entry["pygms"] = theirs(path, 2.0**bits, seconds, more)
            except Exception as error:
                entry["pygms"] = {"failed": f"{type(error).__name__}: {error}"[:80]}
        done[stem] = entry
        with journal.open("a") as file:
            file.write(json.dumps(entry) + "\n")
        print(*line(stem, entry), sep=" | ", flush=True)
    if out is not None:
        put_block(out, name, page(done, 2.0**bits, seconds))


if __name__ == "__main__":
    typer.run(main)

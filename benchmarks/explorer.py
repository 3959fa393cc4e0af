"""Milliseconds of a reply of the explorer to a click, with the answer and its JSON.

DIRECTORY has alarm.bif.gz and munin1.bif.gz of the bnlearn repository:

    python benchmarks/explorer.py --data DIRECTORY

Each click observes, sets or releases a random unit, as the tests do; every evidence pattern is new,
so that most replies plan a question, too.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

import pgmengine as pgm
from pgmengine.apps.explorer.session import Session


def milliseconds(session, clicks, rng):
    """The milliseconds of replies to random clicks that leave evidence possible."""
    out, layers = [], list(session.structure.layers.values())
    while len(out) < clicks:
        number = int(rng.integers(len(layers)))
        unit = int(rng.integers(layers[number].size))
        state = int(rng.integers(len(layers[number].unit.support)))
        action = {"kind": "set", "at": [f"{number},{unit}"], "state": state, "toggle": True}
        begin = time.perf_counter()
        reply = session.reply({"seq": 0, "actions": [action]})
        json.dumps(reply)
        took = 1e3 * (time.perf_counter() - begin)
        if reply["error"]:
            session.reply({"seq": 0, "actions": [{"kind": "undo"}]})
        else:
            out.append(took)
    return np.array(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, metavar="DIRECTORY")
    data = parser.parse_args().data
    models = {
        "alarm": (pgm.read(data / "alarm.bif.gz"), 200),
        "RBM 64x16": (pgm.rbm(64, 16, rng=0), 200),
        "munin1": (pgm.read(data / "munin1.bif.gz"), 15),
    }
    for name, (model, clicks) in models.items():
        begin = time.perf_counter()
        session = Session(model)
        session.reply({"seq": 0, "hello": True, "actions": []})
        start = 1e3 * (time.perf_counter() - begin)
        took = milliseconds(session, clicks, np.random.default_rng(0))
        half, most = np.quantile(took, (0.5, 0.95))
        print(f"{name}: first page {start:.0f} ms, click {half:.1f} ms, 95 % {most:.1f} ms")


if __name__ == "__main__":
    main()

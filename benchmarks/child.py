"""One room on one number of threads, in the process that suite.py starts for it: a line of JSON for
each row.

    python benchmarks/child.py ROOM SETTINGS

Libraries size their pools of threads when they are imported: by the environment, which suite.py has
set, and by the cores that the process may run on, which are limited here first of all, alike for
every case.
"""

import json
import logging
import os
import sys


def main() -> None:
    """Measure the room's rows."""
    room, given = sys.argv[1], json.loads(sys.argv[2])
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given["threads"]])
    # Fits of a few hundred updates would say that they learned little.
    logging.getLogger("pgmengine").setLevel(logging.ERROR)
    import importlib
    from dataclasses import asdict

    from harness import Settings, measure

    settings = Settings(**given)
    for row in importlib.import_module(f"rooms.{room}").rows(settings):
        if settings.only in f"{room}: {row.name}":
            print(json.dumps(asdict(measure(row, settings))), flush=True)


if __name__ == "__main__":
    main()

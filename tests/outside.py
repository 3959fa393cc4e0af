"""Data of others that the repository may not hold: the folder beside the checkout, or a skip."""

import os
from pathlib import Path

import pytest


def folder(name):
    """The folder of this name in PGMENGINE_DATA, or in shared/data beside the checkout."""
    above = Path(__file__).resolve().parents
    places = [Path(p) for p in [os.environ.get("PGMENGINE_DATA")] if p]
    places += [p / "shared" / "data" for p in above[2:4]]
    for place in places:
        if (place / name).is_dir():
            return place / name
    pytest.skip(f"the data of {name} are not here: set PGMENGINE_DATA to their folder")

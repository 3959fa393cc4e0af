"""Rows of a result, and what was kept of their Markov chains."""

from __future__ import annotations

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.infer.results.by_name import asked
from pgmengine.infer.results.result import Result


def checked_row(result: Result, row: int) -> int:
    """Return the number of a row of the evidence of a result; raise PgmError for others."""
    rows = asked(result.target).rows
    if isinstance(row, bool) or not isinstance(row, (int, np.integer)) or not 0 <= row < rows:
        raise PgmError(f"row {row!r} is no row of the result, expected 0..{rows - 1}")
    return int(row)


def energies(result: Result, row: int) -> Array:
    """Return the energies of the chains of a row, (chains, draws)."""
    if "energy" not in result.stats:
        raise PgmError(f"a Result of {type(result.method).__name__} has no chains with energies")
    energy = np.asarray(result.stats["energy"])
    return energy[:, :, row if result.target is None else checked_row(result, row)]

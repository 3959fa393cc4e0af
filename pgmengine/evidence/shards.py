"""Data in parts that are loaded one after the other, because together they exceed the memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgmengine.base.checks import whole
from pgmengine.base.errors import PgmError, listed
from pgmengine.base.extras import needed_by
from pgmengine.model.containers import is_frame

# Rows of a file that are in memory at a time.
DEFAULT_ROWS = 100_000


@dataclass(frozen=True)
class Shard:
    """One part of the data: a path, a table, or a function that returns a table.

    Attributes
    ----------
    number : its place among all parts, from 0.
    source : the path, table or function.
    rows : rows of a file that are loaded at a time.
    """

    number: int
    source: Any
    rows: int

    @property
    def title(self) -> str:
        """The part in messages."""
        path = f" ({self.source})" if isinstance(self.source, (str, Path)) else ""
        return f"shard {self.number}{path}"

    @contextmanager
    def named(self) -> Iterator[None]:
        """Name the part in errors about it."""
        try:
            yield
        except PgmError as error:
            raise PgmError(f"{self.title}: {error}") from error

    def tables(self) -> Iterator[Any]:
        """Yield the tables of the part; PgmError names it where it cannot be loaded."""
        tables = self._read()
        while True:
            try:
                with self.named():
                    table = next(tables)
            except StopIteration:
                return
            except PgmError:
                raise
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
                raise PgmError(f"{self.title} cannot be loaded: {why}") from error
            if not (is_frame(table) and len(table) == 0):
                yield table

    def _read(self) -> Iterator[Any]:
        if isinstance(self.source, (str, Path)):
            yield from _of_file(Path(self.source), self.rows)
        else:
            yield self.source() if callable(self.source) else self.source


class Shards:
    """Data of a fit in parts: files, tables, or functions that load them.

    Use it for data that do not fit into memory, or that lie in several files: `fit` loads a part at
    a time, and adds its counts, expected counts or gradients to those of the others, so that an
    update is the one for all rows together. Starts and the default optimizer look at the first
    table. Each update of EM and LBFGS passes over all parts, but
    complete rows of tables are counted once. With `executor=` in `fit` the parts are loaded and
    summed by workers; the bits do not depend on their number.

    Parameters
    ----------
    parts : a sequence of paths (.csv, .tsv or .parquet, with a column for each variable), of data
        as `fit` takes them, or of functions without arguments that return such data. Executors need
        functions that can be pickled.
    rows : rows of a file that are in memory at a time.

    Raises
    ------
    PgmError for no parts, and for files of another kind.

    Examples
    --------
    >>> import numpy as np
    >>> import pgmengine as pgm
    >>> net = pgm.network("rain -> wet", states={"rain": 2, "wet": 2})
    >>> def part(seed):
    ...     rain = np.random.default_rng(seed).integers(0, 2, 500)
    ...     return {"rain": rain, "wet": rain}
    >>> data = pgm.Shards([part(seed) for seed in range(3)])
    >>> found = pgm.fit(net, data, progress=False)
    >>> round(pgm.infer(found, {"rain": 1}).marginal("wet")[1], 2)
    1.0
    """

    def __init__(self, parts: Sequence[Any], rows: int = DEFAULT_ROWS) -> None:
        if isinstance(parts, (str, Path)) or not isinstance(parts, Sequence):
            raise PgmError(
                f"Shards: parts must be a list of parts, not {type(parts).__name__}: for one part "
                "give a list with it"
            )
        if not parts:
            raise PgmError("Shards: there are no parts, expected at least one")
        size = whole("rows", rows)
        self.parts = tuple(Shard(i, part, size) for i, part in enumerate(parts))
        for part in self.parts:
            if isinstance(part.source, (str, Path)):
                _reader(Path(part.source), part.title)

    def __repr__(self) -> str:
        return f"Shards({len(self.parts)} parts: {listed([part.title for part in self.parts])})"


def _reader(path: Path, title: str) -> Callable[[Path, int], Iterator[Any]]:
    """Return the function that reads files of this kind."""
    kinds = {".csv": _of_csv, ".tsv": _of_csv, ".parquet": _of_parquet}
    kinds |= {".csv.gz": _of_csv, ".tsv.gz": _of_csv}
    for ending, reader in kinds.items():
        if path.name.lower().endswith(ending):
            return reader
    raise PgmError(f"{title}: files end with {listed(list(kinds))}, not as {path.name!r}")


def _of_file(path: Path, rows: int) -> Iterator[Any]:
    """Yield the rows of a file, so many at a time."""
    yield from _reader(path, str(path))(path, rows)


def _of_csv(path: Path, rows: int) -> Iterator[Any]:
    with needed_by("Shards of .csv files"):
        import pandas as pd

    separator = "\t" if ".tsv" in path.name.lower() else ","
    # Without this, the first cell of lines that are longer than the header would be an index.
    settings: dict[str, Any] = {"sep": separator, "chunksize": rows, "index_col": False}
    with pd.read_csv(path, **settings) as chunks:
        while True:
            # Lines with more cells than the header would otherwise lose them.
            with warnings.catch_warnings():
                warnings.simplefilter("error", pd.errors.ParserWarning)
                table = next(chunks, None)
            if table is None:
                return
            yield table


def _of_parquet(path: Path, rows: int) -> Iterator[Any]:
    with needed_by("Shards of .parquet files"):
        from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=rows):
            yield batch.to_pandas()

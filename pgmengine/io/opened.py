"""Opening and writing text files of networks, compressed or not.

A file whose name ends with .gz is compressed by gzip. The size of its text is limited while it is
unpacked, because a small file can unpack to any size. A file is written as a whole or not at all.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pgmengine.base.checks import MAX_AXES
from pgmengine.base.errors import PgmError
from pgmengine.base.files import as_path, readable, shown, write_whole
from pgmengine.base.work.memory import too_large

# Bytes of memory for each byte of text while a file is read, for lists of words and their numbers.
MEMORY_PER_TEXT_BYTE = 24.0

# Bytes of text for each byte of a compressed file, for tables with many zeros.
TEXT_PER_COMPRESSED_BYTE = 100.0

# The largest number of bytes of memory that data may take for each byte of text, in addition to
# words and numbers.
DATA_MEMORY_PER_TEXT_BYTE = 64.0

# Bytes that are unpacked at once.
BYTES_UNPACKED_AT_ONCE = 2**20


def suffix_of(path: object) -> str:
    """Return the suffix of a path in lower case, without that of compression.

    >>> suffix_of("ALARM.BIF.gz")
    '.bif'
    """
    name = as_path(path).name.lower().removesuffix(".gz")
    return Path(name).suffix if Path(name).suffix else ""


@contextmanager
def named(path: object) -> Iterator[None]:
    """Let every PgmError begin with the file; a lack of memory or of stack becomes a PgmError."""
    try:
        yield
    except PgmError as error:
        begins = str(error).startswith(shown(path))
        raise PgmError(str(error) if begins else f"{shown(path)}: {error}") from None
    except RecursionError:
        raise PgmError(
            f"{shown(path)}: cannot be read: lists within lists, more than {MAX_AXES} levels"
        ) from None
    except MemoryError:
        raise PgmError(f"{shown(path)}: needs more memory than is free") from None


def text_of(path: object) -> str:
    """Return the text of a UTF-8 file, which may be compressed; raise PgmError for other files."""
    place = readable(path, MEMORY_PER_TEXT_BYTE)
    try:
        content = _unpacked(place) if place.name.lower().endswith(".gz") else place.read_bytes()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise PgmError(f"cannot be unpacked as a .gz file: {error}; take another copy") from None
    except OSError as error:
        raise PgmError(f"cannot be read: {error.strerror or error}") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise PgmError(
            f"line {line}: byte {error.start} is not text in UTF-8; convert the file to UTF-8"
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise PgmError(f"line {line}: has a zero byte in it, expected text")
    if not text.strip():
        raise PgmError("is empty, expected a model or evidence")
    return text


def _unpacked(place: Path) -> bytes:
    """Return the content of a .gz file, as long as there is memory for reading it."""
    parts: list[bytes] = []
    size, packed = 0, place.stat().st_size
    with gzip.open(place) as file:
        while part := file.read(BYTES_UNPACKED_AT_ONCE):
            parts.append(part)
            size += len(part)
            if why := too_large(
                MEMORY_PER_TEXT_BYTE * size,
                TEXT_PER_COMPRESSED_BYTE * MEMORY_PER_TEXT_BYTE * packed,
                "unpack the file",
            ):
                raise PgmError(f"cannot be unpacked: {why}")
    return b"".join(parts)


def write_text(path: object, text: str) -> None:
    """Write a file as a whole, compressed if its name ends with .gz."""
    content = text.encode()
    if as_path(path).name.lower().endswith(".gz"):
        # The time is left out, so that equal models give equal files.
        content = gzip.compress(content, mtime=0)
    write_whole(path, content)

"""Files read and written as a whole: paths, checksums, and models and checkpoints as .safetensors.

A file holds tensors by name and metadata, text by name. The metadata entry "sha256" is the checksum
of everything else in the file that matters: each tensor's name, dtype, shape and bytes, and the
other metadata. A file is written beside its place and then moved there, so that the place holds a
whole file at every moment; the folder is synchronised after the move, without which a crash of the
operating system could take it back.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from threading import get_ident
from typing import Any

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.memory import no_room
from pgmengine.base.types import Array

SUM = "sha256"  # the metadata entry of the checksum
KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
# Answers of folders of file systems that have no need of being synchronised, or no way to.
NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM)


def as_path(path: Any, what: str = "path") -> Path:
    """A path that a file can have, else PgmError."""
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        raise PgmError(f"{what} must be a path, text or pathlib.Path, not {path!r}")
    if "\0" in os.fspath(path):
        raise PgmError(f"{shown(path)}: has a zero byte in it, which no file's name may have")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise PgmError(f"{shown(path)}: is no text that a file's name may be") from None
    return Path(path)


def shown(path: Any) -> str:
    """A path as messages name it, with what does not print as Python writes it."""
    text = str(path)
    return text if text.isprintable() else repr(text)


def readable(path: Any, copies: float = 2.0) -> Path:
    """The path of a regular file, `copies` of which fit into memory; else PgmError."""
    place = as_path(path)
    try:
        status = place.stat()
    except OSError as error:
        raise PgmError(f"{shown(place)}: cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(status.st_mode):
        raise PgmError(
            f"{shown(place)}: cannot be read: it is {_kind(status.st_mode)}, "
            "expected a regular file"
        )
    if why := no_room(copies * status.st_size, "free some, or use another machine"):
        raise PgmError(f"{shown(place)}: cannot be read: {why}")
    return place


def writable(path: Any) -> Path:
    """The end of a path's symbolic links; PgmError if what is there is no regular file."""
    named = as_path(path)
    place = Path(os.path.realpath(named))
    try:
        mode = place.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return place
    if stat.S_ISLNK(mode):
        raise PgmError(f"{shown(named)}: is a symbolic link that leads back to itself")
    if not stat.S_ISREG(mode):
        raise PgmError(
            f"{shown(named)}: is {_kind(mode)}, and only a regular file is replaced; "
            "give another path"
        )
    return place


def _kind(mode: int) -> str:
    return KINDS.get(stat.S_IFMT(mode), "no regular file")


def write_whole(path: Any, content: bytes) -> None:
    """Write beside the file, then replace it: whatever happens, a whole one is there.

    A symbolic link stays one, and what it leads to is replaced. The file has the rights that new
    files have.
    """
    place = writable(path)
    beside = place.with_name(f"{place.name}.{os.getpid()}.{get_ident()}.part")
    try:
        with open(beside, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, place)
    finally:
        beside.unlink(missing_ok=True)
    _sync_folder(place.parent)


def _sync_folder(folder: Path) -> None:
    try:
        number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        if error.errno in NO_SYNC:  # a folder to write in that may not be read
            return
        raise
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno not in NO_SYNC:
            raise
    finally:
        os.close(number)


def checksum(tensors: Mapping[str, Array], metadata: Mapping[str, str]) -> str:
    """Of names, dtypes, shapes, bytes, and all metadata but the checksum itself."""
    names = sorted(tensors)
    about = [[name, tensors[name].dtype.str, tensors[name].shape] for name in names]
    texts = sorted((key, text) for key, text in metadata.items() if key != SUM)
    total = hashlib.sha256(json.dumps([texts, about]).encode())
    for name in names:
        total.update(np.ascontiguousarray(tensors[name]).reshape(-1).view(np.uint8).data)
    return total.hexdigest()


def write_tensors(path: Any, tensors: Mapping[str, Array], metadata: Mapping[str, str]) -> None:
    """Replace a .safetensors file as a whole, with a checksum.

    safetensors' own save_file makes a file that nobody else may read.
    """
    from safetensors.numpy import save

    ordered = {
        name: np.ascontiguousarray(value) for name, value in tensors.items()
    }  # others would be scrambled
    shaped = {name: value.reshape(np.shape(tensors[name])) for name, value in ordered.items()}
    write_whole(path, save(shaped, metadata={**metadata, SUM: checksum(shaped, metadata)}))


def read_tensors(path: Any) -> tuple[dict[str, Array], dict[str, str]]:
    """Tensors and metadata of a .safetensors file; PgmError if its checksum, if any, is wrong."""
    from safetensors import SafetensorError, safe_open

    place = readable(path)
    try:
        with safe_open(str(place), framework="numpy") as file:
            metadata = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, ValueError, TypeError, AttributeError, MemoryError) as error:
        raise PgmError(f"{shown(place)}: not a readable .safetensors file: {error}") from None
    if SUM in metadata and metadata[SUM] != checksum(tensors, metadata):
        raise PgmError(
            f"{shown(place)}: is damaged: its content is not that of its checksum; "
            "take another copy"
        )
    return tensors, metadata


def plain_text(path: Any) -> str:
    """The text of a file in UTF-8, else PgmError."""
    place = readable(path)
    try:
        return place.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, MemoryError) as error:
        raise PgmError(f"{shown(place)}: cannot be read as text: {error}") from None

"""Files that are read and written as a whole: paths, checksums and .safetensors files.

A .safetensors file holds tensors by name, and metadata, text by name. Its metadata entry "sha256"
is the checksum of everything else that matters: each tensor's name, dtype, shape and bytes, and the
other metadata. The format has no checksum of its own.

A file is written under a temporary name in the same folder and then renamed, so that its own name
always belongs to a complete file. The folder is synchronised after renaming; otherwise a crash of
the operating system could undo it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from threading import get_ident
from typing import BinaryIO

import numpy as np

from pgmengine.base.errors import PgmError, told
from pgmengine.base.types import Array
from pgmengine.base.work.memory import no_room

# The metadata entry of the checksum.
CHECKSUM_ENTRY = "sha256"

FILE_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

# Age in seconds from which an unfinished file is taken for abandoned.
ABANDONED_AFTER_SECONDS = 60.0

# Errors of systems on which folders need not, or cannot, be synchronised.
ERRORS_WITHOUT_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM)


def cache_folder() -> Path:
    """Return the folder of the package in the cache of the user, which need not exist."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pgmengine"


def as_path(path: object, what: str = "path") -> Path:
    """Return the argument as a path; raise PgmError if it cannot be the path of a file."""
    if not isinstance(path, (str, os.PathLike)) or not isinstance(text := os.fspath(path), str):
        raise PgmError(f"{what} must be a path, text or pathlib.Path, not {told(path)}")
    if "\0" in text:
        raise PgmError(f"{shown(path)}: has a zero byte in it, which no file name may contain")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise PgmError(f"{shown(path)}: cannot be encoded as a file name") from None
    return Path(text)


def shown(path: object) -> str:
    """Return a path as messages show it: unprintable characters are escaped."""
    text = str(path) if isinstance(path, (str, os.PathLike)) else told(path)
    return text if text.isprintable() else repr(text)


def readable(path: object, copies: float = 2.0) -> Path:
    """Return the path of a regular file; PgmError unless `copies` of its size fit into memory."""
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
    if why := no_room(copies * status.st_size, "free some memory, or use another computer"):
        raise PgmError(f"{shown(place)}: cannot be read: {why}")
    return place


def writable(path: object) -> Path:
    """Return the path behind symbolic links; PgmError if a file there is not a regular one."""
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
    """Return words for the kind of a file that is not a regular one."""
    return FILE_KINDS.get(stat.S_IFMT(mode), "not a regular file")


def write_whole(path: object, content: bytes) -> None:
    """Write a file as a whole: after a failure at any moment, the old or the new file is there.

    A symbolic link stays in place, and the file that it leads to is replaced. The file gets the
    access rights of a new file. On Linux the content has no name until it is complete, so that a
    process that is killed while it writes leaves no other file. If it is killed in the moment
    between naming the complete file and renaming it, or on other systems at any moment, a file
    with the ending .part stays, and the next write removes it.
    """
    place = writable(path)
    beside = place.with_name(f"{place.name}.{os.getpid()}.{get_ident()}.part")
    try:
        clear_parts(place)
        try:
            if not _write_unnamed(beside, content):
                with open(beside, "wb") as file:
                    _write_through(file, content)
            os.replace(beside, place)
        finally:
            beside.unlink(missing_ok=True)
        _sync_folder(place.parent)
    except OSError as error:
        if error.errno is None:
            raise
        # Name the file that the caller asked for: nobody knows the temporary one, and Python names
        # no file if the disk is full.
        raise OSError(error.errno, error.strerror, str(place)) from None


def _write_through(file: BinaryIO, content: bytes) -> None:
    """Write to an open file, and wait until the content is on the disk."""
    file.write(content)
    file.flush()
    os.fsync(file.fileno())


def _write_unnamed(beside: Path, content: bytes) -> bool:
    """Write a file that gets its name when it is complete; return False if this is impossible."""
    unnamed = getattr(os, "O_TMPFILE", 0)
    try:
        number = os.open(beside.parent, unnamed | os.O_WRONLY, 0o666) if unnamed else -1
    except OSError:
        # The file system has no unnamed files, or the folder does not exist. The caller finds out.
        return False
    if number < 0:
        return False
    with open(number, "wb") as file:
        _write_through(file, content)
        try:
            # The name of an open file is a symbolic link. Python follows the link only if a folder
            # is given.
            os.link(f"/proc/self/fd/{number}", beside, src_dir_fd=number, follow_symlinks=True)
        except OSError:
            return False
    return True


def clear_parts(place: Path) -> None:
    """Remove unfinished files that killed processes have left beside a file.

    A young one stays, because a running process may be writing it.
    """
    name = re.compile(rf"{re.escape(place.name)}\.\d+\.\d+\.part")
    try:
        found = [left for left in place.parent.iterdir() if name.fullmatch(left.name)]
        for left in found:
            if time.time() - left.stat().st_mtime > ABANDONED_AFTER_SECONDS:
                left.unlink(missing_ok=True)
    except OSError:
        # The folder may not be readable, or another process may remove the same file.
        return


def _sync_folder(folder: Path) -> None:
    """Write the entries of a folder to the disk, on systems where a folder can be opened."""
    try:
        number = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except OSError as error:
        # The folder may not be readable, and Windows does not open folders.
        if error.errno in ERRORS_WITHOUT_SYNC:
            return
        raise
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno not in ERRORS_WITHOUT_SYNC:
            raise
    finally:
        os.close(number)


def checksum(tensors: Mapping[str, Array], metadata: Mapping[str, str]) -> str:
    """Return the checksum of the tensors and of all metadata except the checksum itself."""
    names = sorted(tensors)
    about = [[name, tensors[name].dtype.str, tensors[name].shape] for name in names]
    texts = sorted((key, text) for key, text in metadata.items() if key != CHECKSUM_ENTRY)
    total = hashlib.sha256(json.dumps([texts, about]).encode())
    for name in names:
        total.update(np.ascontiguousarray(tensors[name]).reshape(-1).view(np.uint8).data)
    return total.hexdigest()


def write_tensors(path: object, tensors: Mapping[str, Array], metadata: Mapping[str, str]) -> None:
    """Write a .safetensors file as a whole, with a checksum."""
    # save_file of safetensors overwrites the old file, and only the owner may read the new one.
    from safetensors.numpy import save

    # safetensors copies the bytes in the order of memory, which must be row by row.
    ordered = {name: np.asarray(value, order="C") for name, value in tensors.items()}
    write_whole(
        path, save(ordered, metadata={**metadata, CHECKSUM_ENTRY: checksum(ordered, metadata)})
    )


def read_tensors(path: object) -> tuple[dict[str, Array], dict[str, str]]:
    """Return the tensors and the metadata of a .safetensors file, after checking its checksum."""
    from safetensors import SafetensorError, safe_open

    place = readable(path)
    try:
        with safe_open(str(place), framework="numpy") as file:
            metadata = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, ValueError, TypeError, AttributeError, MemoryError) as error:
        other = "" if place.suffix == ".safetensors" else "; pgm.read reads files of other programs"
        raise PgmError(
            f"{shown(place)}: not a readable .safetensors file: {error}{other}"
        ) from None
    if CHECKSUM_ENTRY in metadata and metadata[CHECKSUM_ENTRY] != checksum(tensors, metadata):
        raise PgmError(
            f"{shown(place)}: is damaged: its content does not match its checksum; "
            "take another copy"
        )
    return tensors, metadata


def plain_text(path: object) -> str:
    """Return the text of a file in UTF-8, without a byte order mark.

    PgmError if the file cannot be read, or is not UTF-8.
    """
    place = readable(path)
    try:
        return place.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError, MemoryError) as error:
        raise PgmError(f"{shown(place)}: cannot be read as text: {error}") from None

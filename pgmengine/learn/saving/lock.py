"""A lock on a checkpoint, an flock on a file beside it, so that one fit at a time writes it.

The system releases the lock when the process ends, however it ends, so that the file of a killed
process blocks nobody. A process that releases the lock removes the file first, while it holds the
lock. A process that acquires the lock therefore checks whether the path leads to the same file, and
begins again if not.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path
from weakref import WeakSet

from pgmengine.base.errors import PgmError

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger(__name__)

# No symbolic link is followed, nothing is waited for, and no child process inherits the file.
SAFE_OPEN_FLAGS = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"))


class Lock:
    """A context in which no other fit, of any process on this machine, has the checkpoint.

    Parameters
    ----------
    path : the checkpoint, symbolic links followed.

    Raises
    ------
    PgmError when entered, if another fit has the lock, or no file can be made beside the
    checkpoint.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.side, self.number = path, path.with_name(f"{path.name}.lock"), -1

    def __enter__(self) -> Lock:
        while self.number < 0:
            self._take()
        _held.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self.side.unlink()
        self.close()

    def close(self) -> None:
        """Close the lock file without removing it: a forked process may still hold the lock."""
        _held.discard(self)
        if self.number >= 0:
            os.close(self.number)
        self.number = -1

    def _take(self) -> None:
        """Acquire the lock, unless the file has been removed meanwhile."""
        try:
            number = os.open(self.side, os.O_RDWR | os.O_CREAT | SAFE_OPEN_FLAGS, 0o666)
        except OSError as error:
            raise PgmError(
                f"checkpoint: {self.side} cannot be made beside {self.path}: {error.strerror}"
            ) from None
        kept = False
        try:
            _flock(number)
            kept = _same(number, self.side)
        except BlockingIOError:
            raise PgmError(
                f"checkpoint: another fit is writing {self.path}; give this one a path of its "
                "own, or wait until the other one has ended"
            ) from None
        except OSError as error:
            log.warning(
                "no lock on the checkpoint %s, so take care that no other fit has it: %s",
                self.path,
                error,
            )
            kept = True
        finally:
            if not kept:
                os.close(number)
        self.number = number if kept else -1


def _flock(number: int) -> None:
    """Lock an open file; BlockingIOError if it is locked, OSError where there are no locks."""
    if fcntl is None:
        raise OSError("this system has no flock")
    fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _same(number: int, path: Path) -> bool:
    """Return whether a path still leads to an open file."""
    try:
        return os.path.samestat(os.fstat(number), os.stat(path))
    except FileNotFoundError:
        return False


def _release() -> None:
    """Release all locks in a forked child, which would otherwise keep those of a killed parent."""
    for lock in list(_held):
        lock.close()


_held: WeakSet[Lock] = WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release)

"""A lock on a checkpoint, an flock on a file beside it: two fits do not replace each other's.

The system lets go of the lock when the process ends, however it ends, so a file that a killed
process has left blocks nobody. Whoever lets go removes the file first, while the lock still holds;
so whoever gets a lock looks whether the file is still the one that has the name, and else begins
again.
"""

from __future__ import annotations

import fcntl
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

from pgmengine.base.errors import PgmError

log = logging.getLogger(__name__)


class Lock:
    """Within it, no other fit, of this process or another on this machine, has the checkpoint.

    Parameters
    ----------
    path : the checkpoint, symbolic links followed.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.side, self.number = path, path.with_name(f"{path.name}.lock"), -1

    def __enter__(self) -> Lock:
        while self.number < 0:
            self._take()
        _held.add(self)
        return self

    def __exit__(self, *_: Any) -> None:
        with suppress(OSError):
            self.side.unlink()
        self.close()

    def close(self) -> None:
        """Let go, unless another process has the lock by a fork; the file stays."""
        _held.discard(self)
        if self.number >= 0:
            os.close(self.number)
        self.number = -1

    def _take(self) -> None:
        """Get the lock; if the file has been removed meanwhile, nothing."""
        try:
            number = os.open(
                self.side,
                os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK,
                0o666,
            )
        except OSError as error:
            raise PgmError(
                f"checkpoint: {self.side} cannot be made beside {self.path}: {error.strerror}"
            ) from None
        kept = False
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            kept = _same(number, self.side)
        except BlockingIOError:
            raise PgmError(
                f"checkpoint: another fit is writing {self.path}; give this one a path of its "
                "own, or wait "
                "until the other one has ended"
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


def _same(number: int, path: Path) -> bool:
    """Whether an open file is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(number), os.stat(path))
    except FileNotFoundError:
        return False


def _let_go() -> None:
    """In a forked child, which would otherwise keep the locks of a parent that has been killed."""
    for lock in list(_held):
        lock.close()


_held: WeakSet[Lock] = WeakSet()
os.register_at_fork(after_in_child=_let_go)

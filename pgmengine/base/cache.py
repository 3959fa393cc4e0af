"""Caches that stay bounded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from threading import Lock
from typing import Any, Generic, TypeVar

T = TypeVar("T")
KEPT = 5000


class Cache(Generic[T]):
    """Key -> value, at most `most` of them: the least recently used one is forgotten.

    Threads may share it. Two that ask for the same new key at once both make its value, and the
    later one is kept.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._values: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = Lock()

    def recall(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value of a key, made when it is not there; TypeError for one without a hash."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = make()
        with self._lock:
            self._values[key] = value
            while len(self._values) > self.most:
                self._values.popitem(last=False)
        return value

    def __len__(self) -> int:
        return len(self._values)


class Memo(dict[Any, Any]):
    """Key -> what was made for it; forgets the oldest when there is too much."""

    def __reduce__(self) -> Any:
        return (
            Memo,
            (),
        )  # what is sent to another process is the thing, not what was found out about it

    def recall(self, key: Any, make: Callable[[], T]) -> T:
        """What `make` made when this key was first asked for."""
        found: T | None = self.get(key)
        if found is None:
            if len(self) >= KEPT:
                with suppress(RuntimeError):  # another thread adds to it: it may forget
                    self.pop(next(iter(self), None), None)
            found = self[key] = make()
        return found

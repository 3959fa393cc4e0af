"""The cache that every room uses: bounded, shared by threads, empty in another process.

Two threads that ask for the same new key at the same time may both compute its value; either value
is correct.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Cache(Generic[T]):
    """Key -> value, at most `most` of them: the least recently used one is forgotten.

    Threads may share it. Two that ask for the same new key at once both make its value, and the
    later one is kept.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._values: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process gets the owner of a cache without its values, which it can make again.
        return type(self), (self.most,)

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

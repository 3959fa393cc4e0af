"""The cache that every room uses: bounded, shared by threads, and empty in a new process.

Two threads that ask for the same new key at the same time may both compute its value; either value
is correct.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import wraps
from threading import Lock
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

K = TypeVar("K")
T = TypeVar("T")


class Cache(Generic[T]):
    """A mapping with at most `most` entries; a new one replaces the least recently used one.

    >>> cache = Cache(most=1)
    >>> cache.recall("one", lambda: 1), cache.recall("two", lambda: 2), len(cache)
    (1, 2, 1)
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._values: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = Lock()

    def __reduce__(self) -> tuple[type[Cache[T]], tuple[int]]:
        """Pickle an empty cache, because another process can compute the values again."""
        return type(self), (self.most,)

    def recall(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value of a hashable key; call `make` if the cache does not have it."""
        with self._lock:
            # Hashing a key takes most of the time, and `in` would hash it once more.
            try:
                self._values.move_to_end(key)
                return self._values[key]
            except KeyError:
                pass
        value = make()
        with self._lock:
            self._values[key] = value
            while len(self._values) > self.most:
                self._values.popitem(last=False)
        return value

    def __len__(self) -> int:
        return len(self._values)


def remembered(make: Callable[[K], T]) -> Callable[[K], T]:
    """Decorate a function of one object, which computes each value once.

    The value is deleted together with the object.
    """
    memory: WeakKeyDictionary[K, T] = WeakKeyDictionary()

    @wraps(make)
    def recall(key: K) -> T:
        found = memory.get(key)
        if found is None:
            found = memory[key] = make(key)
        return found

    return recall

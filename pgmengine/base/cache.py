"""What has been worked out once and may be asked for again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")
KEPT = 5000


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

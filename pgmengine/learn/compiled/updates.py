"""Updates of a fit by the compiled loop, many of them in one call.

`CompiledUpdates.make` computes the rates, kernels and keys of some updates, calls the loop once,
and returns the parameters. The loop and `Run.update` draw the same random numbers.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pgmengine.base.types import Array, Params, Weight
from pgmengine.learn.compiled.recorder import Recorder, shares
from pgmengine.learn.steps.schedules import rate_at
from pgmengine.model.weights import like, numbers

# The longest time of a call, in seconds: Ctrl-C, progress and checkpoints wait for its end.
MAX_CALL_SECONDS = 0.1
# The most updates of a call, and the updates of the first one, whose time is not known.
MAX_CALL_UPDATES, FIRST_CALL_UPDATES = 10_000, 8


@dataclass
class RowOrder:
    """The order of the rows of data in the passes of a fit.

    Attributes
    ----------
    key : (4,) the key from which the order of each pass follows.
    rows : (rows of data,) the last `left` entries are the rows of the pass under way.
    left : number of rows that are left in this pass.
    passes : number of passes that have begun.
    """

    key: Array
    rows: Array
    left: int = 0
    passes: int = 0


class CompiledUpdates:
    """The recorded update of a fit, and the loop over it."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder, self.loop, self.rates = recorder, recorder.updates(), recorder.rates
        self.at_once = FIRST_CALL_UPDATES

    def make(
        self, params: Params, first: int, most: int, rng: np.random.Generator, order: RowOrder
    ) -> tuple[Mapping[str, Weight], int]:
        """Make from 1 to `most` updates; return the parameters, and the number of updates made.

        `first` updates have been made before. `order` changes in place.
        """
        count = max(1, min(most, self.at_once))
        keys = rng.integers(0, 2**32, size=(count, self.recorder.keys, 4), dtype=np.uint32)
        begins = tuple([numbers(value) for value in params.values()])
        ends = tuple([np.empty(len(p)) for p in begins])
        began = time.perf_counter()
        made, failed, order.left, order.passes = self.loop.run(
            count,
            first=first,
            rate=self._rates(first, count),
            alpha=shares(self.recorder.kernel, range(first, first + count)),
            key=keys,
            order=order.rows,
            left=order.left,
            number=order.passes,
            begins=begins,
            ends=ends,
        )
        if failed >= 0:
            raise self.recorder.failure(failed, first + made + 1)
        each = max((time.perf_counter() - began) / count, 1e-9)
        self.at_once = int(min(max(MAX_CALL_SECONDS / each, 1), MAX_CALL_UPDATES))
        stepped = zip(params.items(), ends, strict=True)
        return {name: like(value, new) for (name, value), new in stepped}, count

    def _rates(self, first: int, count: int) -> Array:
        """Return the rates of some updates, (updates, rates)."""
        if not any(callable(rate) for rate in self.rates):
            return np.array([[rate_at(rate, 0) for rate in self.rates]] * count)
        return np.array(
            [[rate_at(rate, t) for rate in self.rates] for t in range(first, first + count)]
        )

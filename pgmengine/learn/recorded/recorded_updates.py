"""Updates of a fit by the compiled loop, many of them in one call.

`CompiledUpdates.call` computes the rates, kernels and keys of some updates, and `make` calls the
loop once, for one fit or for several fits of one structure, which share the threads. The loop and
`Run.update` draw the same random numbers.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pgmengine import _kernels
from pgmengine.base.types import Array, Params, Weight
from pgmengine.base.work.threads import threads
from pgmengine.engine.packed import random_keys
from pgmengine.learn.recorded.recorder import Recorder, shares
from pgmengine.learn.steps.schedules import rate_at
from pgmengine.model.weights import like, numbers

# The longest time of a call, in seconds: Ctrl-C, progress and checkpoints wait for its end.
MAX_CALL_SECONDS = 0.1
# The most updates of a call. The first call makes one, because its time is not known.
MAX_CALL_UPDATES = 10_000


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


@dataclass
class Call:
    """Some updates of a fit that are ready to be made.

    Attributes
    ----------
    params : the parameters before; `ends` receives the numbers of those after.
    first, count : the number of updates before, and of updates to make.
    kept : arrays that the loop reads.
    """

    updates: CompiledUpdates
    params: Params
    first: int
    count: int
    order: RowOrder
    ends: tuple[Array, ...]
    kept: tuple[Array, ...]

    def result(self) -> dict[str, Weight]:
        """Return the parameters after the updates; raise the error of an update that has failed."""
        made, failed, self.order.left, self.order.passes = self.updates.loop.outcome()
        recorder = self.updates.recorder
        if failed >= 0:
            if made + 1 == self.count:
                # The last update steps to other arrays than the ones before, which errors describe.
                for work, end in zip(recorder.work.values(), self.ends, strict=True):
                    work[:] = end
            raise recorder.failure(failed, self.first + made + 1)
        for look in recorder.afterwards:
            look()
        stepped = zip(self.params.items(), self.ends, strict=True)
        return {name: like(value, new) for (name, value), new in stepped}


class CompiledUpdates:
    """The recorded update of a fit, and the loop over it."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder, self.loop, self.rates = recorder, recorder.updates(), recorder.rates
        self.at_once = 1
        # Whether all updates have the same rates and kernel, and these for the last number of them.
        settings = [*self.rates, recorder.kernel]
        self.constant = not any(callable(setting) for setting in settings)
        self.settings: tuple[Array, Array] | None = None
        # The parameters after the last call, and their numbers.
        self.last: tuple[Params, tuple[Array, ...]] = ({}, ())

    def call(
        self, params: Params, first: int, most: int, rng: np.random.Generator, order: RowOrder
    ) -> Call:
        """Return a call of at most `most` updates after the `first` ones.

        `order` changes in place when the updates are made.
        """
        count = max(1, min(most, self.at_once))
        key, uniform = self._numbers(count, rng)
        rate, alpha = self._settings(first, count)
        known, begins = self.last
        if known is not params:
            begins = tuple([numbers(value) for value in params.values()])
        ends = tuple([np.empty(len(p)) for p in begins])
        self.loop.ready(
            count,
            first=first,
            rate=rate,
            alpha=alpha,
            key=key,
            uniform=uniform,
            order=order.rows,
            left=order.left,
            number=order.passes,
            begins=begins,
            ends=ends,
        )
        return Call(self, params, first, count, order, ends, (rate, alpha, key, uniform, *begins))

    def _numbers(self, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return the keys (updates, keys, 4) and uniforms (updates, uniforms) of some updates."""
        keys, uniforms = self.recorder.keys, self.recorder.uniforms
        if not uniforms:
            # These are the numbers of one draw after the other.
            return random_keys(rng, count, keys), np.empty((count, 0))
        key, uniform = np.empty((count, keys, 4), dtype=np.uint32), np.empty((count, uniforms))
        for i in range(count):
            key[i], uniform[i] = random_keys(rng, keys), rng.random(uniforms)
        return key, uniform

    def _settings(self, first: int, count: int) -> tuple[Array, Array]:
        """Return the rates (updates, rates) and the shares of flip-the-state of some updates."""
        if self.constant and self.settings is not None and len(self.settings[0]) == count:
            return self.settings
        updates = range(first, first + count)
        rates = np.empty((count, len(self.rates)))
        for i, rate in enumerate(self.rates):
            rates[:, i] = [rate_at(rate, t) for t in updates] if callable(rate) else rate
        self.settings = rates, shares(self.recorder.kernel, updates)
        return self.settings


def make(calls: Sequence[Call]) -> None:
    """Make the updates of one fit, or of several fits, which share the threads."""
    if not calls:
        return
    began = time.perf_counter()
    _kernels.make_updates([call.updates.loop for call in calls], threads() if calls[1:] else 1)
    each = max((time.perf_counter() - began) / max(call.count for call in calls), 1e-9)
    for call in calls:
        call.updates.at_once = int(min(max(MAX_CALL_SECONDS / each, 1), MAX_CALL_UPDATES))

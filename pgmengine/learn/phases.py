"""Negative phases: where the second expectation of the likelihood gradient comes from.

grad = E[d log_density | data] - E[d log_density | given]. Each phase is a frozen dataclass with
start(setting, rng) -> state and gradient(setting, model, batch, state, rng) -> (mean gradient, state).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.evidence import Evidence
from pgmengine.kernels import Gibbs
from pgmengine.kernels.chains import make_chains, start
from pgmengine.methods.exact import Exact
from pgmengine.model import Flat, Model
from pgmengine.target import Target

Gradient = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Batch:
    """One mini-batch: the data's target, the target of the model phase, and completed data to start chains from."""

    data: Target
    given: Target  # the same rows with only the `given` layers observed; one row when there are none
    complete: Any  # () -> Flat, posterior draws of the unobserved units of the batch's rows


def only(target: Target, names: Sequence[str]) -> Target:
    """The target with evidence on the named layers only; a single row when that leaves all rows alike."""
    from dataclasses import replace

    s, e = target.structure, target.evidence
    keep = set(names)
    values = {n: e.values[n] if n in keep else np.zeros_like(e.values[n]) for n in s.layers}
    seen = {n: e.observed[n] if n in keep else np.zeros_like(e.observed[n]) for n in s.layers}
    out = replace(target, evidence=Evidence(e.rows, e.has_rows, values, seen))
    return out if keep else out.take(np.zeros(1, dtype=int))


def scaled(gradient: Gradient, factor: float) -> Gradient:
    """The gradient times a number."""
    return {k: v * factor for k, v in gradient.items()}


def run_chains(target: Target, kernel: Any, x: Flat, sweeps: int, rng: np.random.Generator) -> Flat:
    """`sweeps` sweeps from x."""
    chains = make_chains(target, kernel, x, rng)
    chains.sweep(sweeps)
    return chains.values()


@dataclass(frozen=True)
class ExactGradient:
    """The model expectation by enumeration.

    >>> import pgmengine as pgm
    >>> pgm.ExactGradient()
    ExactGradient(max_bits=25)
    """

    max_bits: float = 25

    def start(self, model: Model, given: Target, rng: np.random.Generator) -> Any:
        """No state."""
        return None

    def gradient(self, batch: Batch, state: Any, rng: np.random.Generator) -> tuple[Gradient, Any]:
        """E[d log_density | given], the mean over rows."""
        result = Exact(self.max_bits).run(batch.given, ("gradient",))
        return scaled(result.gradient, 1 / batch.given.rows), state


@dataclass(frozen=True)
class CD:
    """Contrastive divergence (Hinton 2002): k sweeps from the data.

    >>> import pgmengine as pgm
    >>> pgm.CD(k=1).k
    1
    """

    k: int = 1
    kernel: Any = Gibbs()

    def start(self, model: Model, given: Target, rng: np.random.Generator) -> Any:
        """No state."""
        return None

    def gradient(self, batch: Batch, state: Any, rng: np.random.Generator) -> tuple[Gradient, Any]:
        """The mean gradient at the states k sweeps after the completed data."""
        rows = batch.data.rows
        target = batch.given if batch.given.rows == rows else batch.given.take(np.zeros(rows, dtype=int))
        x = run_chains(target, self.kernel, batch.complete(), self.k, rng)
        return scaled(target.model.gradient(x), 1 / rows), state


@dataclass(frozen=True)
class PCD:
    """Persistent contrastive divergence (Tieleman 2008; SAP): chains that go on, k sweeps an update.

    With `given` layers the chains restart for each batch, for their conditions change.

    >>> import pgmengine as pgm
    >>> pgm.PCD(k=1, chains=100).chains
    100
    """

    k: int = 1
    chains: int = 100
    kernel: Any = Gibbs()

    def start(self, model: Model, given: Target, rng: np.random.Generator) -> Any:
        """The chains, at random states; None when they depend on each row's evidence."""
        free = all(mask.all() for mask in given.free.values())
        return start(given.take(np.zeros(self.chains, dtype=int)), rng) if free else None

    def gradient(self, batch: Batch, state: Any, rng: np.random.Generator) -> tuple[Gradient, Any]:
        """The mean gradient at the chains' states."""
        if state is None:
            return CD(self.k, self.kernel).gradient(batch, state, rng)
        target = batch.given.take(np.zeros(self.chains, dtype=int))
        x = run_chains(target, self.kernel, state, self.k, rng)
        return scaled(target.model.gradient(x), 1 / self.chains), x

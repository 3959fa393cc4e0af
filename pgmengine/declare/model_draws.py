"""Models that stand for what data leave open about one model: draws of its parameters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pgmengine.base.display import as_html, as_text, counted
from pgmengine.declare.model import Model, StandsForModel


@dataclass(frozen=True, eq=False, repr=False)
class Models(StandsForModel):
    """A learned model, and models that spread about it as far as its data leave open.

    `Fit.posterior` and `pgm.bootstrap` make it. `pgm.infer(models, ...)` answers by the learned
    model, and gives each answer an interval of 95 % over all of them. Other functions that take a
    model use the learned one.

    Attributes
    ----------
    model : the learned model, or template.
    draws : the other models, which have its structure.
    source : how they were made, in words.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> rows = {"rain": ["no"] * 6 + ["yes"] * 2, "wet": ["no"] * 5 + ["yes"] * 3}
    >>> f = pgm.fit(pgm.network(rows, "rain -> wet"), rows, progress=False)
    >>> models = f.posterior(100, rng=0)
    >>> models
    Models: 100 draws from the Dirichlet posterior of the tables
    >>> len(models), models[0].variables
    (100, ['rain', 'wet'])
    """

    model: Model
    draws: tuple[Model, ...]
    source: str

    def __len__(self) -> int:
        """Return the number of draws."""
        return len(self.draws)

    def __iter__(self) -> Iterator[Model]:
        """Iterate over the draws."""
        return iter(self.draws)

    def __getitem__(self, number: Any) -> Any:
        """Return a draw, or several by a slice."""
        return self.draws[number]

    def __repr__(self) -> str:
        return as_text(self._head, (), 0)

    def _repr_html_(self) -> str:
        """Return the headline for notebooks."""
        return as_html(self._head, (), (), 0)

    @property
    def _head(self) -> str:
        return f"Models: {counted(len(self), 'draw')} {self.source}"

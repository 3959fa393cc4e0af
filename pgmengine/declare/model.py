"""Model: the public class with a structure, its parameters, and functions of both."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import isfunction
from os import PathLike
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.base.errors import PgmError
from pgmengine.base.names import is_several
from pgmengine.base.types import Array, LayerValues
from pgmengine.declare.networks.to_networkx import variable_graph
from pgmengine.declare.summary import model_html, model_text
from pgmengine.evidence.evidence import parse_evidence
from pgmengine.evidence.given import make_target
from pgmengine.evidence.separation import separated_units
from pgmengine.evidence.soft import Soft
from pgmengine.evidence.target import Target
from pgmengine.model.names.unit_names import Member, as_members
from pgmengine.model.parameters import Parameters
from pgmengine.model.structure import layer_graph

if TYPE_CHECKING:
    import networkx as nx


class StandsForModel:
    """Base of objects that are taken wherever a model is, such as the result of `fit`.

    An object with an attribute `model` is not accepted without this base: the evidence of a target,
    for example, would be ignored without a message.
    """

    model: Model


# One name of a unit or a layer, or several.
Members: TypeAlias = "Member | Iterable[Member]"

ModelLike: TypeAlias = "Model | StandsForModel"


def as_model(given: object) -> Model:
    """Return a model, or the model of an object that stands for one, as every public function.

    Raises
    ------
    PgmError for anything else.
    """
    if isinstance(given, StandsForModel):
        given = given.model
    if isinstance(given, Model):
        return given
    owner = isinstance(getattr(given, "model", None), Model)
    hint = "; pass its attribute .model, which is one" if owner else ""
    hint = "; call its method build(), which returns one" if hasattr(given, "build") else hint
    template = hasattr(given, "steps_of")
    hint = "; call it with a number of steps, which returns one" if template else hint
    if isinstance(given, (str, PathLike)):
        hint = "; pgm.read(...) and pgm.load(...) give the model of a file"
    elif isfunction(given):
        hint = "; pgm.Template(...) of a function of the number of steps is one"
    raise PgmError(f"model must be a Model or a Fit, not {type(given).__name__}{hint}")


class Model(Parameters):
    """A graph of layers with parameters, made by GraphBuilder.build, a family, or load; immutable.

    Attributes
    ----------
    structure : layers and couplings.
    params : parameter name -> numbers, read only: "v.bias", "v-h.weight", "h->v.weight", and
        "a,b.table" and "b|a.table" with the logarithms of tables, "b|a.gate" and "b|a.leaves" with
        those of the numbers of a gate, and of rows that joint states share.
    training : base rates of the data and last chains of the training, or None.
    fresh : whether all parameters are as the constructor chose them: biases of 0 and drawn weights.
        `fit` starts such a model at the base rates of the data.

    >>> import pgmengine as pgm
    >>> model = pgm.rbm(3, 2, rng=0)
    >>> list(model.params)
    ['v.bias', 'h.bias', 'v-h.weight']
    >>> model.log_density({"v": [[0, 0, 0]], "h": [[0, 0]]})
    array([0.])
    """

    def __repr__(self) -> str:
        return model_text(self.structure, self.params)

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        return model_html(self.structure, self.params)

    @property
    def variables(self) -> list[str]:
        """Names of all named variables, in the order of their declaration."""
        s = self.structure
        if s.variables:
            return [s.names.of(place) for place in s.variables]
        return [n for x in s.layers.values() for n in x.labels or () if isinstance(n, str)]

    def given(
        self,
        evidence: LayerValues | None = None,
        soft: Soft | None = None,
        do: LayerValues | None = None,
        beta: ArrayLike = 1.0,
    ) -> Target:
        """Return the target of this model under evidence, at inverse temperature beta.

        Parameters
        ----------
        evidence, soft, do : as in infer.
        beta : a number, or one for each row.
        """
        return make_target(self, evidence, soft=soft, do=do, beta=beta)

    def log_density(self, values: LayerValues) -> Array:
        """Return the log of the unnormalised joint density of complete states, (rows,)."""
        evidence = parse_evidence(self.structure, values)
        for name, seen in evidence.pattern.observed.items():
            if not seen.all():
                row, index = np.argwhere(~seen)[0]
                raise PgmError(
                    "log_density needs a value for every unit; "
                    f"{self.structure.layers[name].place(index, row)} has none"
                )
        return self.flat_log_density(evidence.values)

    def separated(self, a: Members, b: Members, given: Members = ()) -> bool:
        """Whether the graph alone makes units independent given others, at all values of its terms.

        Use it to see which variables can tell nothing about another one, before any question is
        asked. It is d-separation in a directed graph, and separation by paths in an undirected one.
        Couplings of whole layers join the units between which their weight is not 0.

        Parameters
        ----------
        a, b : the name of a variable or of a layer, (layer, number of a unit), or a list of them.
        given : names of the units whose values are observed, or one name. Input units always are.

        Returns
        -------
        True if all of a and all of b are independent given `given`. False says that they depend on
        each other for almost all values of the parameters.

        Raises
        ------
        PgmError for unknown names, and for a unit that is named twice.

        Examples
        --------
        >>> import pgmengine as pgm
        >>> net = pgm.read(pgm.datasets.asia())
        >>> net.separated("smoke", "asia"), net.separated("smoke", "asia", given="dysp")
        (True, False)
        >>> net.separated("xray", ["smoke", "asia"], given=("either",))
        True

        References
        ----------
        Pearl (1988), Probabilistic reasoning in intelligent systems, chapter 3; Lauritzen, Dawid,
        Larsen and Leimer (1990), Independence properties of directed Markov fields.
        """
        one, two, known = (
            self._units_named(names, what) for names, what in ((a, "a"), (b, "b"), (given, "given"))
        )
        twice = (one & two) | (one & known) | (two & known)
        if twice.any():
            unit = self.structure.names.of(self.structure.names.at(int(twice.argmax())))
            raise PgmError(f"separated: {unit!r} is named twice among a, b and given")
        return separated_units(self, one, two, known)

    def _units_named(self, names: Members, what: str) -> Array:
        """Return which units (units,) of all layers are named, by one name or by several."""
        several = as_members(names if is_several(names) else (names,), what)
        found = self.structure.names.units(several, what)
        every = self.structure.layers.items()
        return np.concatenate([found.get(n, np.zeros(x.size, dtype=bool)) for n, x in every])

    def to_networkx(self, level: str = "layers") -> nx.Graph:
        """Return the graph of layers (level="layers") or of single units (level="variables")."""
        views = {
            "layers": lambda: layer_graph(self.structure.layers.values(), self.structure.couplings),
            "variables": lambda: variable_graph(self),
        }
        if level not in views:
            raise PgmError(f"level must be 'layers' or 'variables', not {level!r}")
        return views[level]()

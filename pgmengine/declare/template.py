"""Template: one declaration of models of any number of steps, with parameters that all share.

A function of the number of steps declares a graph. Parameters of equal names are the same in models
of any length. The number of steps of a row of evidence follows from the shapes of its values: the
shapes of all arrays of a model are compared with them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np

from pgmengine.base.errors import PgmError, listed
from pgmengine.base.names import nearest
from pgmengine.base.types import Weight
from pgmengine.base.work.cache import Cache
from pgmengine.declare.builder import GraphBuilder
from pgmengine.declare.model import Model, StandsForModel
from pgmengine.evidence.columns import entries_of
from pgmengine.model.containers import array_of, is_container, is_frame
from pgmengine.model.layer import Layer

# The number of models that a template keeps, one for each number of steps.
MAX_KEPT_MODELS = 256

# The number of steps of a model that has all parameters, also those of a longer memory.
MANY_STEPS = 16

# One row of evidence of a template: name -> values, or a number of steps without evidence.
Row: TypeAlias = "Mapping[Any, Any] | int"


class Template:
    """Models of any number of steps, which one function declares.

    Use it for sequences of different lengths: hidden Markov models, dynamic Bayesian networks,
    chains and grids of any size. `pgm.fit`, `pgm.infer` and `pgm.save` take a template where they
    take a model, with a list of rows as data or evidence.

    Parameters
    ----------
    declare : a function of the number of steps, an integer of at least 1, that returns a
        GraphBuilder. Parameters of equal names are shared by models of all lengths, and must have
        the same shape in all of them. Only the biases of a layer whose size depends on the steps
        have other shapes: they stay as they are declared, and `GraphBuilder.bias` declares one that
        all steps share and learn.

    Raises
    ------
    PgmError
        If `declare` is no function, or, when a model is made, if it returns no GraphBuilder.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> def weather(steps):
    ...     b = pgm.GraphBuilder()
    ...     z = b.variable("z", states=("dry", "wet"), shape=steps)
    ...     x = b.variable("x", states=("walk", "umbrella"), shape=steps)
    ...     b.conditional(z[0], (), [0.6, 0.4], name="start")
    ...     b.conditional(z[1:], (z[:-1],), [[0.8, 0.2], [0.3, 0.7]], name="transition")
    ...     b.conditional(x, (z,), [[0.9, 0.1], [0.2, 0.8]], name="emission")
    ...     return b
    >>> template = pgm.Template(weather)
    >>> template(300)
    Bayesian network: 600 variables, 2 arrays, 599 arrows, 5 parameters
      z: 300 variables: dry, wet
      x: 300 variables: walk, umbrella
    >>> rows = [{"x": ["walk", "umbrella"]}, {"x": ["walk", None, "umbrella"]}]
    >>> [r.marginal("z")["wet"].round(2) for r in pgm.infer(template, rows)]
    [array([0.27, 0.74]), array([0.19, 0.47, 0.8 ])]
    """

    def __init__(self, declare: Callable[[int], GraphBuilder]) -> None:
        if not callable(declare):
            raise PgmError(
                "a template needs a function of the number of steps that returns a GraphBuilder, "
                f"not {type(declare).__name__}"
            )
        self.declare = declare
        # Parameters that replace those of the declaration.
        self.learned: dict[str, Weight] = {}
        self._models: Cache[Model] = Cache(most=MAX_KEPT_MODELS)

    def __call__(self, steps: int) -> Model:
        """Return the model of a number of steps.

        Raises
        ------
        PgmError
            For a number below 1, if the declaration returns no GraphBuilder, and if a learned
            parameter has another shape at this number of steps.
        """
        if isinstance(steps, bool) or not isinstance(steps, (int, np.integer)) or steps < 1:
            raise PgmError(
                f"the number of steps must be an integer of at least 1, not {steps!r:.60}"
            )
        return self._models.recall(int(steps), lambda: self._made(int(steps)))

    def _made(self, steps: int) -> Model:
        """Return the model of a number of steps with the learned parameters."""
        model = self._declared(steps).build(rng=0)
        for key, value in self.learned.items():
            if key in model.params and np.shape(model.params[key]) != np.shape(value):
                raise PgmError(
                    f"{self.name}({steps}): parameter {key!r} has shape "
                    f"{np.shape(model.params[key])}, and {np.shape(value)} in the models that it "
                    "was learned from: the shape of a shared parameter must not depend on the "
                    "number of steps"
                )
        return model.with_params({k: v for k, v in self.learned.items() if k in model.params})

    def _declared(self, steps: int) -> GraphBuilder:
        """Return the declaration of a number of steps."""
        built = self.declare(steps)
        if not isinstance(built, GraphBuilder):
            raise PgmError(
                f"{self.name}({steps}) must return a GraphBuilder, not {type(built).__name__}"
            )
        return built

    @property
    def params(self) -> dict[str, Weight]:
        """The parameters that models of all lengths share, by name."""
        two, three = self(2).params, self(3).params
        shared = [k for k in two if k in three and np.shape(two[k]) == np.shape(three[k])]
        return {**{k: two[k] for k in shared}, **self.learned}

    @property
    def telling_steps(self) -> tuple[int, ...]:
        """Numbers of steps whose models, taken together, have all shared parameters."""
        few, known = (2, 3), {*self(2).params, *self(3).params}
        return few if known.issuperset(self.learned) else (*few, MANY_STEPS)

    @property
    def name(self) -> str:
        """The name of the declaration, for messages."""
        return str(getattr(self.declare, "__name__", "the declaration"))

    def with_params(self, params: Mapping[str, Weight]) -> Template:
        """Return the template with other values of the named parameters.

        Arrays are taken by the position of their entries: they know no names of states, which a
        file of `pgm.save` has. Parameters that a model of some length lacks do not count there.
        Each model checks the values when it is made.

        Raises
        ------
        PgmError for a name that is no parameter of the models of two and of many steps, and for a
        parameter whose shape depends on the number of steps.
        """
        known, longer = self(2).params, self(3).params
        for name in params:
            # Parameters of a longer memory have no place in short models.
            if name not in known and name not in self(MANY_STEPS).params:
                raise PgmError(
                    f"parameter {name!r} is unknown in {self.name}(2){nearest(name, known)}"
                )
            if name in known and name in longer:
                shapes = np.shape(known[name]), np.shape(longer[name])
                if shapes[0] != shapes[1]:
                    raise PgmError(
                        f"parameter {name!r} has shape {shapes[0]} in {self.name}(2) and "
                        f"{shapes[1]} in {self.name}(3): models of other lengths cannot share it; "
                        "declare a value that all places share, by handles and name="
                    )
        out = Template(self.declare)
        out.learned = {**self.learned, **params}
        return out

    def values(self, key: Any, given: Any, what: str) -> Any:
        """Return what a row has under a name as an array; single values stay as they are."""
        if not is_container(type(given)):
            return given
        layer = self(2).structure.names.layer_of(key)
        return array_of(given, what) if layer is None else entries_of(layer, given, what)

    def steps_of(self, row: Row, what: str = "row") -> int:
        """Return the number of steps of a row: a number itself, or what the shapes of values say.

        Raises
        ------
        PgmError
            If no array in the row depends on the number of steps, or if no number of steps gives
            the shapes of the row.
        """
        if not isinstance(row, Mapping):
            if isinstance(row, (int, np.integer)) and not isinstance(row, bool):
                return int(row)
            raise PgmError(
                f"{what} must map names to values, such as {{'x': values}}, or be a number of "
                f"steps without evidence, not {type(row).__name__}"
            )
        return self._steps_of_shapes({key: shape_of(v) for key, v in row.items()}, what)

    def _steps_of_shapes(self, shapes: Mapping[Any, tuple[int, ...]], what: str) -> int:
        """Return the number of steps of a row of evidence by the shapes of its values."""
        lengths = [shape[0] for shape in shapes.values() if shape]
        for steps in dict.fromkeys(n for n in lengths if n >= 1):
            if self._fits(steps, shapes):
                return steps
        for steps in dict.fromkeys(self._by_two_models(shapes, lengths)):
            if steps >= 1 and self._fits(steps, shapes):
                return steps
        names = self(2).structure.names
        unknown = [key for key in shapes if names.layer_of(key) is None]
        if unknown and len(unknown) == len(shapes):
            known = [*names.declared()]
            raise PgmError(
                f"{what}: {unknown[0]!r} is no variable of {self.name}, which has "
                f"{listed([*map(repr, known)])}{nearest(unknown[0], known)}"
            )
        given = ", ".join(f"{key!r} of shape {shape}" for key, shape in shapes.items())
        raise PgmError(
            f"{what} gives {self.name} no number of steps: it has {given or 'no values'}; give an "
            "array of variables whole, with NaN or None where it is not observed, or a number of "
            "steps in place of a row without evidence"
        )

    def _by_two_models(
        self, shapes: Mapping[Any, tuple[int, ...]], lengths: list[int]
    ) -> list[int]:
        """Return numbers of steps that follow from how the first axes grow from one step to two."""
        one, two = (self(steps).structure.layers for steps in (1, 2))
        found = []
        for key, shape in shapes.items():
            if key in one and key in two and shape:
                before, after = one[key].grid[0], two[key].grid[0]
                if after > before and (shape[0] - before) % (after - before) == 0:
                    found.append((shape[0] - before) // (after - before) + 1)
        return found

    def _fits(self, steps: int, shapes: Mapping[Any, tuple[int, ...]]) -> bool:
        """Whether arrays of these shapes are values of the model, and one depends on the steps."""
        try:
            layers = self(steps).structure.layers
        except PgmError:
            return False
        named = {key: shape for key, shape in shapes.items() if key in layers and shape}
        if not named or not all(has_shape(layers[key], shape) for key, shape in named.items()):
            return False

        def grows(others: Mapping[str, Layer]) -> bool:
            return any(key not in others or others[key].grid != layers[key].grid for key in named)

        # Another length that is remembered says it for all; else the layers alone of the next one,
        # as a model takes five times as long.
        with suppress(PgmError):
            if grows(self(1 if steps > 1 else 2).structure.layers):
                return True
        return grows(self._declared(steps + 1).bare()[0].layers)

    def groups(self, rows: Iterable[Row], what: str) -> dict[int, list[int]]:
        """Return number of steps -> numbers of the rows of this length; PgmError if it is unknown.

        Examples
        --------
        >>> import pgmengine as pgm
        >>> def coins(steps):
        ...     b = pgm.GraphBuilder()
        ...     b.conditional(b.variable("coin", shape=steps), (), [0.5, 0.5], name="coin")
        ...     return b
        >>> pgm.Template(coins).groups([{"coin": [0, 1]}, 3, {"coin": [1, 1]}], "evidence")
        {2: [0, 2], 3: [1]}
        """
        found: dict[int, list[int]] = {}
        known: dict[tuple[Any, ...], int] = {}
        for i, row in enumerate(rows):
            if not isinstance(row, Mapping):
                steps = self.steps_of(row, f"{what}: row {i}")
            else:
                shapes = {key: shape_of(value) for key, value in row.items()}
                if (same := tuple(shapes.items())) not in known:
                    known[same] = self._steps_of_shapes(shapes, f"{what}: row {i}")
                steps = known[same]
            found.setdefault(steps, []).append(i)
        return found

    def __repr__(self) -> str:
        learned = (
            f"; learned: {listed([repr(key) for key in self.learned])}" if self.learned else ""
        )
        return f"Template of {self.name}{learned}"


def as_template(given: object) -> Template | None:
    """Return a template, or the template of the result of `fit`; None for anything else."""
    model = given.model if isinstance(given, StandsForModel) else given
    return model if isinstance(model, Template) else None


def shape_of(values: Any) -> tuple[int, ...]:
    """Return the shape of values, () where lists of unequal lengths or mappings have none."""
    try:
        return array_of(values, "values").shape
    except PgmError:
        return ()


def has_shape(layer: Layer, shape: tuple[int, ...]) -> bool:
    """Whether values of a layer have its shape, with or without an axis of components."""
    if cells := layer.unit.cells:
        return shape in ((*layer.grid, cells), (layer.size, cells), (cells,) * (layer.size == 1))
    return shape in (layer.grid, (*layer.grid, layer.unit.width), (layer.size,))


def rows_of_data(template: Template, given: object, what: str) -> list[Row]:
    """Return the rows of a template: a list of rows, or name -> list of the values of each row.

    The values of each row are arrays, whatever container they come in.

    Raises
    ------
    PgmError
        For anything else, and for lists of unequal lengths.
    """
    if isinstance(given, Mapping):
        given = _row_by_row(given, what)
    if not isinstance(given, (list, tuple)) or not given:
        raise PgmError(
            f"{what} of a template must be a list of rows, such as [{{'x': values}}, ...], not "
            f"{'an empty list' if isinstance(given, list) else type(given).__name__}"
        )
    return [_read(template, row, f"{what}: row {i}") for i, row in enumerate(given)]


def _row_by_row(given: Mapping[Any, Any], what: str) -> list[Row]:
    """Return the rows of a mapping name -> list of the values of each row."""
    single = [key for key, values in given.items() if not _is_list_of_rows(values)]
    if single:
        raise PgmError(
            f"{what} of a template must be a list of rows: {single[0]!r} has the values of one "
            "row; give [{...}] for a single row, or a list with the values of each row"
        )
    lists = {key: list(values) for key, values in given.items()}
    counts = {len(values) for values in lists.values()}
    if len(counts) != 1:
        sizes = ", ".join(f"{key!r} has {len(values)}" for key, values in lists.items())
        raise PgmError(f"{what}: each name needs as many rows: {sizes or 'there are none'}")
    return [{key: values[i] for key, values in lists.items()} for i in range(counts.pop())]


def _read(template: Template, row: Any, what: str) -> Row:
    """Return a row with arrays as values; a DataFrame has a column for each array of variables."""
    if is_frame(row):
        columns = list(row.columns)
        if len(set(columns)) < len(columns):
            twice = next(name for name in columns if columns.count(name) > 1)
            raise PgmError(f"{what} has two columns {twice!r}")
        row = {name: row[name] for name in columns}
    if not isinstance(row, Mapping):
        number: Row = row
        return number
    return {key: template.values(key, value, f"{what}: {key!r}") for key, value in row.items()}


def _is_list_of_rows(values: Any) -> bool:
    """Whether values are those of several rows, each with an axis of steps, or none at all."""
    if not isinstance(values, Collection) or is_frame(values) or getattr(values, "ndim", 1) == 0:
        return False
    return is_container(type(values)) and all(len(shape_of(value)) > 0 for value in values)

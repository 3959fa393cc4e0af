"""A Fit is taken wherever a model is, and arrays that lack the name of a layer are refused with it.

`DOORS` is a table of all public functions and objects that take a model. A test finds them by the
annotations and names of their parameters, and fails for one that the table lacks.
"""

import inspect
import re
import types

import numpy as np
import pytest
from extras import extra
from loops import one_test_over
from registry import METHODS, MONITORS, MONITORS_OF_DATA

import pgmengine as pgm
from pgmengine import plots
from pgmengine.declare.model import Model, StandsForModel, as_model

ROWS = np.array([[0.0, 1, 1], [1, 0, 1], [0, 0, 1], [1, 1, 0]])
DATA = {"v": ROWS}


def answers(r):
    return {name: {k: np.asarray(v) for k, v in x.items()} for name, x in r.answers.items()}


def learned(f):
    return {name: np.asarray(value) for name, value in f.params.items()}


def saved(m, path):
    pgm.save(m, path)
    return learned(pgm.load(path))


def written(m, path):
    pgm.write(m, path)
    return path.read_text()


def monitor(make):
    return lambda m, path: make()(m, 0)


def refused_by_occupancy(m, path):
    with pytest.raises(pgm.PgmError, match="give it to fit itself"):
        pgm.Occupancy()(m, 0)
    return {}


# Public name -> a call with a model, or with the Fit that holds it, and a path of a file.
DOORS = {
    "infer": lambda m, path: answers(pgm.infer(m, {"v": ROWS[0]})),
    "explain": lambda m, path: str(pgm.explain(m, DATA)),
    "impact": lambda m, path: repr(pgm.impact(m, {"v": ROWS[0]}, ("h", 0))),
    "best_observation": lambda m, path: repr(pgm.best_observation(m, ("h", 0), {"v": ROWS[0]})),
    "divergence": lambda m, path: repr(pgm.divergence(m, m)),
    "compare": lambda m, path: pgm.compare([m], DATA).fits[0].log_prob,
    "explore": lambda m, path: pgm.explore(m, {"v": ROWS[0]}).session.reply({"seq": 0}),
    "prepare": lambda m, path: answers(pgm.prepare(m, ("v",))(DATA)),
    "fit": lambda m, path: learned(pgm.fit(m, DATA, updates=3, progress=False).model),
    "base_rate_start": lambda m, path: learned(pgm.base_rate_start(m, DATA)),
    "pretrain": lambda m, path: learned(pgm.pretrain(m, DATA, updates=3, progress=False)),
    "base_rates": lambda m, path: pgm.base_rates(m, DATA),
    "save": lambda m, path: saved(m, path / "m.safetensors"),
    "write": lambda m, path: written(m, path / "m.uai"),
    "read_evidence": lambda m, path: pgm.read_evidence(evidence_file(path), m),
    "plots.receptive_fields": lambda m, path: len(
        plots.receptive_fields(m, "v-h", (1, 3)).get_images()
    ),
    "plots.graph": lambda m, path: len(plots.graph(m).texts),
    "GenerativeClassifier": lambda m, path: (
        pgm.GenerativeClassifier(m).fit(ROWS, [0, 1, 0, 1]).log_prob(ROWS)
    ),
    **{name: monitor(lambda make=make: make(DATA)) for name, make in MONITORS_OF_DATA.items()},
    **{name: monitor(lambda one=one: one) for name, one in MONITORS.items()},
    "Occupancy": refused_by_occupancy,
}

# Public objects that hold a model, or are one, and are not made from one by users.
NOT_DOORS = {"Fit", "Model", "Models", "Target", "StandsForModel"}


def evidence_file(path):
    file = path / "m.uai.evid"
    file.write_text("2\n0 1 2 0\n")
    return file


def public():
    """Name -> function or class, of the package and of the modules that users import."""
    extra("sklearn")
    found = {name: getattr(pgm, name) for name in pgm.__all__}
    for module in (pgm.diagnostics, pgm.datasets, plots, pgm.sklearn):
        short = module.__name__.rpartition(".")[2]
        found |= {
            f"{short}.{name}": value
            for name, value in vars(module).items()
            if not name.startswith("_")
            and (getattr(value, "__module__", "") == module.__name__ or name in plots.__all__)
        }
    return {n: x for n, x in found.items() if not isinstance(x, types.ModuleType)}


def takes_a_model(thing):
    """Whether a parameter of a function, of a constructor, or of a call of an object is a model."""
    calls = [thing]
    if inspect.isclass(thing):
        calls += [f for c in thing.__mro__ if inspect.isfunction(f := vars(c).get("__call__"))]
    for one in calls:
        try:
            parameters = inspect.signature(one).parameters.values()
        except (TypeError, ValueError):
            continue
        if any(
            p.name == "model" or re.search(r"\bModel(Like)?\b", str(p.annotation))
            for p in parameters
        ):
            return True
    return False


def test_every_public_function_that_takes_a_model_is_in_the_table():
    found = {name for name, thing in public().items() if callable(thing) and takes_a_model(thing)}
    assert found - NOT_DOORS == set(DOORS), "give DOORS a call of each"


@pytest.fixture
def installed(name):
    if name.startswith("plots."):
        extra("matplotlib")
    if name == "explore":
        extra("anywidget")


@pytest.fixture(scope="module")
def fitted():
    return pgm.fit(pgm.rbm(3, 2, rng=0), DATA, updates=5, progress=False)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", DOORS)
def test_a_fit_is_taken_wherever_a_model_is(name, fitted, tmp_path):
    """The answer for the Fit is the one for its model, to the bit."""
    np.testing.assert_equal(DOORS[name](fitted, tmp_path), DOORS[name](fitted.model, tmp_path))


@one_test_over("name", sorted(set(DOORS) - {"Occupancy"}))
def test_anything_else_is_refused_by_name(name, fitted, tmp_path):
    """A target has an attribute `model`, but its evidence would be lost."""
    with pytest.raises(pgm.PgmError, match=r"model must be a Model or a Fit, not Target; pass its"):
        DOORS[name](fitted.model.given(DATA), tmp_path)


def test_a_fit_stands_for_its_model_and_nothing_with_a_model_does_by_chance(fitted):
    assert as_model(fitted) is fitted.model and isinstance(fitted, StandsForModel)
    for thing in (pgm.prepare(fitted), pgm.GenerativeClassifier(fitted.model)):
        with pytest.raises(pgm.PgmError, match="pass its attribute .model, which is one"):
            as_model(thing)
    assert isinstance(as_model(fitted), Model)


@one_test_over("name", sorted(METHODS))
def test_every_method_answers_about_a_fit(name, fitted):
    """Forward refuses undirected layers, of a model and of a Fit alike."""
    method = METHODS[name]
    want = next(w for w in ("marginals", "log_z", "mode") if w in method.gives)
    if name == "Forward":
        assert "refused" in pgm.explain(fitted, method=method)
    else:
        assert pgm.infer(fitted, {"v": ROWS[0]}, (want,), method, rng=0).answers


ARRAYS = {
    "infer": lambda m, x: pgm.infer(m, x),
    "do": lambda m, x: pgm.infer(m, do=x),
    "soft": lambda m, x: pgm.infer(m, soft=x),
    "explain": lambda m, x: pgm.explain(m, x),
    "prepare": lambda m, x: pgm.prepare(m, ("v",))(x),
    "given": lambda m, x: m.given(x),
    "log_density": lambda m, x: m.log_density(x),
    "reference": lambda m, x: pgm.infer(m, want="log_z", method=pgm.AIS(reference=x)),
    "fit": lambda m, x: pgm.fit(m, x, progress=False),
    "base_rate_start": lambda m, x: pgm.base_rate_start(m, x),
    "base_rates": lambda m, x: pgm.base_rates(m, x),
    "pretrain": lambda m, x: pgm.pretrain(m, x),
    **{n: lambda m, x, make=make: make(x)(m, 0) for n, make in MONITORS_OF_DATA.items()},
}


@one_test_over("name", ARRAYS)
def test_an_array_without_the_name_of_a_layer_is_told_the_layer_that_fits(name):
    for x in (ROWS, ROWS[0], ROWS.tolist()):
        with pytest.raises(pgm.PgmError, match=r'give \{"v": X\}, since layer \'v\' has 3 units'):
            ARRAYS[name](pgm.rbm(3, 2, rng=0), x)


def mixed():
    b = pgm.GraphBuilder()
    b.layer("c", pgm.Categorical(4), 2)
    b.layer("s", pgm.Spin(), 5)
    b.layer("t", pgm.Spin(), 5)
    b.layer("g", pgm.Gaussian(), 1)
    b.couple("c", "s")
    b.couple("s", "t")
    b.couple("t", "g")
    return b.build()


@one_test_over(
    ("shape", "advice"),
    [
        ((7, 5), "give {\"s\": X} or {\"t\": X}, since layer 's' has 5 units, layer 't' has 5"),
        ((5,), 'give {"s": X} or {"t": X}, since'),
        ((7, 2), "give {\"c\": X}, since layer 'c' has 2 units of 4 components"),
        ((7, 2, 4), 'give {"c": X}, since'),
        ((7,), "give {\"g\": X}, since layer 'g' has 1 unit"),
        ((7, 3), "no layer is so wide, layer 'c' has 2 units of 4 components, layer 's' has 5"),
        ((7, 3, 4), "no layer is so wide, layer 'c' has 2 units"),
    ],
)
def test_the_layers_whose_width_fits_are_named(shape, advice):
    with pytest.raises(pgm.PgmError, match=re.escape(f"not an array {shape}: {advice}")):
        pgm.fit(mixed(), np.zeros(shape))


def test_columns_of_variables_are_named_by_a_frame():
    b = pgm.GraphBuilder()
    for name in "abc":
        b.variable(name, states=2)
    b.table(("a", "b", "c"), np.ones((2, 2, 2)))
    with pytest.raises(pgm.PgmError, match=re.escape("pandas.DataFrame(X, columns=model.variable")):
        pgm.fit(b.build(), ROWS)


@one_test_over("given", [3, "v", [[0, 1], [1]], object()])
def test_what_is_no_array_is_named_by_its_type(given):
    with pytest.raises(pgm.PgmError, match=f"layer names to arrays, not {type(given).__name__}$"):
        pgm.infer(pgm.rbm(3, 2), given)

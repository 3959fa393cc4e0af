"""Every door that takes values reads every container alike, or refuses it with a PgmError.

`DOORS` has the public functions that take values, `CONTAINERS` the ways to hold them. Each pair
gives the answer of the plain list with None, except the pairs in `REFUSED`. A new door or container
joins by an entry. `python -m pytest tests/evidence/test_containers.py -rP` prints the size.
"""

from collections import deque

import numpy as np
import pytest
from extras import extra
from loops import one_test_over
from registry import MONITORS_OF_DATA

import pgmengine as pgm
from pgmengine import diagnostics
from pgmengine.apps.explorer.exploration import given_of

pd = extra("pandas")
extra("sklearn")
extra("matplotlib")
import pgmengine.sklearn as estimators  # noqa: E402
from pgmengine import plots  # noqa: E402

NAMES = list("abcd")
STATES = ("no", "yes", "maybe")


class Jax:
    """Stands in for arrays of JAX: numpy reads them by their method `__array__`."""

    def __init__(self, values):
        self.values = np.asarray(values)
        self.shape, self.ndim, self.dtype = self.values.shape, self.values.ndim, self.values.dtype

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return type(self)(self.values[index])

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype=dtype)


class Tensor(Jax):
    """Stands in for tensors of torch that require gradients, which numpy cannot read."""

    def detach(self):
        return Jax.__new__(Detached).hold(self.values)

    def cpu(self):
        return self

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad")


class Detached(Jax):
    """A tensor without gradients."""

    def hold(self, values):
        Jax.__init__(self, values)
        return self

    def detach(self):
        return self

    def cpu(self):
        return self


def floats(values):
    return np.array(values, dtype=object).astype(float)


def masked(values, dtype, filled):
    """A masked array whose hidden entries have other values than the ones that are seen."""
    objects = np.array(values, dtype=object)
    hidden = np.equal(objects, None)
    return np.ma.array(np.where(hidden, filled, objects).astype(dtype), mask=hidden)


def framed(values, dtype=None):
    return pd.DataFrame(np.array(values, dtype=object), columns=NAMES).astype(dtype or object)


def categories(values):
    """Categories in another order than their first occurrence, so that codes are no values."""
    seen = sorted({x for x in values if x is not None}, reverse=True)
    return pd.Categorical(values, categories=seen)


def category_frame(values):
    columns = zip(*values, strict=True)
    return pd.DataFrame({n: categories(list(x)) for n, x in zip(NAMES, columns, strict=True)})


def texts(values):
    """None becomes a masked entry."""
    return masked(values, "U9", "yes")


# Containers of rows of numbers, (rows, 4).
ROWS = {
    "tuples": lambda x: tuple(map(tuple, x)),
    "lists with NaN": lambda x: floats(x).tolist(),
    "lists with masked": lambda x: [[np.ma.masked if v is None else v for v in r] for r in x],
    "deque": deque,
    "float array": floats,
    "float32 array": lambda x: floats(x).astype(np.float32),
    "objects": lambda x: np.array(x, dtype=object),
    "list of arrays": lambda x: list(floats(x)),
    "list of series": lambda x: [pd.Series(row) for row in floats(x)],
    "masked floats": lambda x: masked(x, float, 1),
    "masked integers": lambda x: masked(x, int, 1),
    "masked booleans": lambda x: masked(x, bool, 1),
    "masked objects": lambda x: masked(x, object, 1),
    "list of masked": lambda x: list(masked(x, int, 1)),
    "frame": framed,
    "frame of floats": lambda x: framed(x, float),
    "frame in another order": lambda x: framed(x, float)[["c", "a", "d", "b"]],
    "nullable integers": lambda x: framed(x, "Int64"),
    "nullable booleans": lambda x: framed(x, "boolean"),
    "categories": category_frame,
    "tensor": lambda x: Detached.__new__(Detached).hold(floats(x)),
    "tensor with gradients": lambda x: Tensor(floats(x)),
    "list of tensors": lambda x: [Tensor(row) for row in floats(x)],
    "jax": lambda x: Jax(floats(x)),
    "iterator": iter,
    "generator": lambda x: (row for row in x),
    "map": lambda x: map(list, x),
    "view": lambda x: dict(enumerate(x)).values(),
}
COMPLETE_ROWS = {
    "integers": lambda x: np.array(x, dtype=np.int8),
    "booleans": lambda x: np.array(x, dtype=bool),
}

# Containers of numbers, (rows,).
NUMBERS = {
    "tuple": tuple,
    "list with NaN": lambda x: floats(x).tolist(),
    "float array": floats,
    "objects": lambda x: np.array(x, dtype=object),
    "masked floats": lambda x: masked(x, float, 2),
    "masked integers": lambda x: masked(x, int, 2),
    "masked objects": lambda x: masked(x, object, 2),
    "list of masked": lambda x: list(masked(x, int, 2)),
    "series": lambda x: pd.Series(x, dtype=object),
    "series of floats": lambda x: pd.Series(floats(x)),
    "nullable": lambda x: pd.Series(x, dtype="Int64"),
    "categorical": categories,
    "series of categories": lambda x: pd.Series(categories(x)),
    "tensor with gradients": lambda x: Tensor(floats(x)),
    "list of tensors": lambda x: [Tensor(v) for v in floats(x)],
    "jax": lambda x: Jax(floats(x)),
    "iterator": iter,
    "generator": lambda x: (v for v in x),
    "view": lambda x: dict(enumerate(x)).values(),
}

# Containers of names of states, (rows,).
TEXTS = {
    "tuple": tuple,
    "objects": lambda x: np.array(x, dtype=object),
    "masked texts": texts,
    "masked objects": lambda x: masked(x, object, "yes"),
    "list of masked": lambda x: [np.ma.masked if v is None else v for v in x],
    "series": lambda x: pd.Series(x, dtype=object),
    "series of texts": lambda x: pd.Series(x, dtype="string"),
    "index": lambda x: pd.Index(x, dtype=object),
    "categorical": categories,
    "series of categories": lambda x: pd.Series(categories(x)),
    "iterator": iter,
    "generator": lambda x: (v for v in x),
    "set": lambda x: set(x),
}

GAPS = [[1, None, 1, 0], [0, 1, None, None], [None, 0, 0, 1], [1, 1, 1, 0], [0, 0, 1, 1]]
FULL = [[int(bool(v)) for v in row] for row in GAPS]
HIDDEN = [1, None, 0, 2, None]
SHOWN = [v or 0 for v in HIDDEN]
WORDS = ["yes", None, "no", "maybe", None]


def machine():
    """An RBM whose visible units have names."""
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Binary(), 4, labels=NAMES)
    b.layer("h", pgm.Binary(), 2)
    b.couple("v", "h", weight=np.linspace(-1, 1, 8).reshape(4, 2))
    return b.build()


def stack():
    return pgm.sbn([4, 2], rng=0)


def named(states):
    def chain(steps):
        b = pgm.GraphBuilder()
        z, x = b.variable("z", states=2, shape=steps), b.variable("x", states=states, shape=steps)
        b.conditional(z[0], (), [0.6, 0.4], name="start")
        b.conditional(z[1:], (z[:-1],), [[0.8, 0.2], [0.3, 0.7]], name="move")
        b.conditional(x, (z,), [[0.6, 0.3, 0.1], [0.1, 0.3, 0.6]], name="show")
        return b

    return chain


def pair(states):
    b = pgm.GraphBuilder()
    b.variable("x", states=states)
    b.variable("z", states=2)
    b.conditional("x", (), [0.2, 0.3, 0.5])
    b.conditional("z", ("x",), [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])
    return b.build()


def params(model):
    return [np.asarray(value) for value in model.params.values()]


def learned(model, data, **settings):
    return params(pgm.fit(model, data, updates=3, progress=False, **settings).model)


def of_template(model, rows, **more):
    return [r.log_prob for r in pgm.infer(model, rows, want=("log_prob",), **more)]


def crf(X, y):
    return estimators.ChainCRF(l2=0.1).fit(X, y)


LABELS = [0, 1, 0, 1, 1]
SEQUENCES = [np.array(FULL, float), np.array(FULL[::-1], float)]


def fitted(estimator):
    """An estimator that has learned from a frame."""
    return estimator.fit(framed(FULL, float), LABELS)


def features():
    return estimators.RBMTransformer(2, n_iter=1, random_state=0)


def rows_of_layers():
    """Doors of rows that may have gaps."""
    ask, v = machine(), "v"
    doors = {
        "infer": lambda x: pgm.infer(ask, {v: x}, want=("log_prob",)).log_prob,
        "frame": lambda x: pgm.infer(ask, x if hasattr(x, "iloc") else {v: x}).mean["h"],
        "given": lambda x: ask.given({v: x}).evidence.values[v],
        "explain": lambda x: len(str(pgm.explain(ask, {v: x}))),
        "do": lambda x: pgm.infer(stack(), do={"v": x}).mean["h1"],
        "fit": lambda x: learned(ask, {v: x}),
        "fit of all rows": lambda x: learned(ask, {v: x}, optimizer=pgm.LBFGS()),
        "base_rates": lambda x: pgm.base_rates(ask, {v: x})[v],
        "base_rate_start": lambda x: params(pgm.base_rate_start(ask, {v: x})),
        "pretrain": lambda x: params(pgm.pretrain(ask, {v: x}, updates=2, progress=False)),
        "classifier": lambda x: (
            pgm.GenerativeClassifier(ask, learn=partial_fit).fit(x, LABELS).log_prob(GAPS)
        ),
        "classifier's predict": lambda x: (
            pgm.GenerativeClassifier(ask, learn=partial_fit)
            .fit(framed(GAPS), LABELS)
            .predict_proba(x)
        ),
        "imputer": lambda x: fitted(filler()).transform(x),
        "imputer's fit": lambda x: filler().fit(x).transform(np.array(FULL, float) * np.nan),
        "images": lambda x: np.ma.filled(plots.images(x, (2, 2)).images[0].get_array(), np.nan),
    }
    return doors | {f"{n} of gaps": monitor(n) for n in OF_GAPS}


# Monitors that take rows with missing values.
OF_GAPS = ("ExactLogLikelihood", "ReconstructionError", "FreeEnergyGap")


def monitor(name):
    """A door to a monitor of data."""
    return lambda x: [*MONITORS_OF_DATA[name]({"v": x})(machine(), 0).values()]


def partial_fit(model, data, rng):
    return pgm.fit(model, data, updates=3, rng=rng, progress=False)


def filler():
    return estimators.GraphicalImputer(2, n_iter=1, random_state=0)


def complete_rows():
    """Doors of rows without gaps."""
    ask = machine()
    plain = pgm.rbm(2, 4, rng=0)
    return {
        "prepare": lambda x: pgm.prepare(ask, ("v",))({"v": x}).mean["h"],
        **{name: monitor(name) for name in MONITORS_OF_DATA},
        "log_density": lambda x: plain.log_density({"v": np.zeros((5, 2)), "h": x}),
        "soft": lambda x: pgm.infer(ask, soft={"v": x}).mean["h"],
        "transformer": lambda x: features().fit(x).transform(np.array(FULL, float)),
        "transformer's transform": lambda x: fitted(features()).transform(x),
        "discriminative": lambda x: fitted(
            estimators.DRBMClassifier(2, n_iter=1, random_state=0)
        ).predict_proba(x),
        "generative": lambda x: fitted(
            estimators.GenerativeClassifier(2, n_iter=1, random_state=0)
        ).predict_proba(x),
        "ChainCRF": lambda x: crf([x, SEQUENCES[1]], [LABELS, LABELS]).coef_,
        "ChainCRF's predict": lambda x: crf(
            [framed(FULL, float), framed(FULL[::-1], float)], [LABELS, LABELS]
        ).predict_marginals([x])[0],
        "tables": lambda x: params(of_table(x)),
        "nearest_modes": lambda x: diagnostics.nearest_modes(x, np.eye(4)),
    }


def of_table(values):
    b = pgm.GraphBuilder()
    b.variable("a", states=5)
    b.variable("b", states=4)
    b.table(("a", "b"), values)
    return b.build()


def columns(states):
    """Doors of the values of one variable, or of the steps of one row, that may have gaps."""
    ask, template = pair(states), pgm.Template(named(states))
    other = ["no", "yes", None] if isinstance(states, tuple) else [0, 1, None]
    return {
        "infer by name": lambda x: pgm.infer(ask, {"x": x}, want=("log_prob",)).log_prob,
        "do by name": lambda x: pgm.infer(ask, do={"x": x}).mean["z"],
        "fit by name": lambda x: learned(ask, {"x": x}),
        "column": lambda x: pgm.infer(ask, column(x)).mean["z"],
        "explore": lambda x: observed(template(5), {"x": x}),
        "steps": lambda x: of_template(template, [{"x": x}, {"x": other}]),
        "lists of steps": lambda x: of_template(template, {"x": [x, other]}),
        "frame of steps": lambda x: of_template(template, [column(x)]),
        "template's do": lambda x: of_template(template, [5], do=[{"x": x}]),
        "template's fit": lambda x: learned(template, [{"x": x}, {"x": other}]),
    }


def column(x):
    """A frame of one column, from what pandas holds."""
    return pd.DataFrame({"x": x}) if hasattr(x, "dtype") and hasattr(x, "isna") else {"x": x}


def observed(model, evidence):
    """The units that the explorer shows as observed, with their states."""
    found = given_of(model, evidence).observed
    return [found.get(("x", unit), -1) for unit in range(5)]


def complete_columns():
    """Doors of a number for each row."""
    v, ask = {"v": np.array(FULL, float)}, machine()
    template = pgm.Template(named(3))
    steps = [{"x": [0, 1, 2]}, {"x": [1, 1]}, {"x": [2, 2, 0]}, {"x": [0]}, {"x": [1, 2]}]
    return {
        "prepare by name": lambda x: pgm.prepare(pair(3), ("x",))({"x": x}).mean["z"],
        "sample_weight": lambda x: learned(ask, v, sample_weight=x),
        "template's sample_weight": lambda x: learned(template, steps, sample_weight=x),
        "pretrain's sample_weight": lambda x: params(
            pgm.pretrain(ask, v, sample_weight=x, updates=2, progress=False)
        ),
        "labels": lambda x: (
            pgm.GenerativeClassifier(ask, learn=partial_fit).fit(v["v"], x).log_prob(FULL)
        ),
        "labels of an estimator": lambda x: (
            estimators.GenerativeClassifier(2, n_iter=1, random_state=0)
            .fit(v["v"], x)
            .predict_proba(v["v"])
        ),
        "labels of sequences": lambda x: crf(SEQUENCES, [x, LABELS]).coef_,
        "soft by name": lambda x: pgm.infer(of_table(np.ones((5, 4))), soft={"a": x}).mean["a"],
        "reference": lambda x: (
            pgm.infer(
                pgm.rbm(5, 2, rng=0), want="log_z", method=pgm.AIS(5, 5, reference={"v": x}), rng=0
            ).log_z
        ),
        "autocorrelation": lambda x: diagnostics.autocorrelation_function(x),
        "bias": lambda x: params(with_bias(x)),
    }


def with_bias(values):
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Binary(), 5, bias=values)
    return b.build()


DOORS = {
    **{n: (door, GAPS, ROWS) for n, door in rows_of_layers().items()},
    **{n: (door, FULL, ROWS | COMPLETE_ROWS) for n, door in complete_rows().items()},
    **{n: (door, HIDDEN, NUMBERS) for n, door in columns(3).items()},
    **{f"{n}, names": (door, WORDS, TEXTS) for n, door in columns(STATES).items()},
    **{n: (door, SHOWN, NUMBERS) for n, door in complete_columns().items()},
}

# Containers that can be read once only, or have no order, are refused everywhere.
ONCE = {"iterator", "generator", "map", "view", "set"}

# Doors that know no names of columns, so that a frame is read in its own order.
NAMELESS = {
    "imputer's fit", "images", "transformer", "ChainCRF", "tables", "nearest_modes",
}  # fmt: skip

# scikit-learn refuses columns in another order than in fit, and demands this of all estimators.
ORDERED = {"imputer", "transformer's transform", "discriminative", "generative"}


def holds(name, container):
    """Whether a container means the same at this door as a list."""
    return not (container == "frame in another order" and name in NAMELESS)


def refused(name, container):
    return container in ONCE or (container == "frame in another order" and name in ORDERED)


def numbers(found):
    parts = found if isinstance(found, list) else [found]
    return np.hstack([np.ravel(np.asarray(part, dtype=float)) for part in parts])


def test_the_table_is_large():
    pairs = [(n, c) for n, (_, _, some) in DOORS.items() for c in some if holds(n, c)]
    print(f"{len(DOORS)} doors, {len({c for _, c in pairs})} containers, {len(pairs)} pairs")
    assert len(pairs) > 1000


@pytest.mark.filterwarnings("ignore")
@one_test_over("name", DOORS)
def test_every_container_is_read_like_a_list(name):
    door, values, containers = DOORS[name]
    expected = numbers(door(values))
    for container, make in containers.items():
        if refused(name, container):
            with pytest.raises(pgm.PgmError):
                door(make(values))
                pytest.fail(f"{container} was read")
        elif holds(name, container):
            found = numbers(door(make(values)))
            np.testing.assert_allclose(found, expected, 1e-9, 1e-12, err_msg=container)


# Things that learn from a frame: an answer about another frame.
LEARNERS = {
    "fit": lambda x: of_fit(pgm.fit(pgm.rbm(4, 2, rng=0), {"v": x}, updates=3, progress=False)),
    "classifier": lambda x: (
        pgm.GenerativeClassifier(pgm.rbm(4, 2, rng=0), learn=partial_fit)
        .fit(x, LABELS)
        .predict_proba
    ),
    "ChainCRF": lambda x: of_crf(crf([x, x], [LABELS, LABELS])),
}


def of_fit(fit):
    return lambda x: pgm.infer(fit, {"v": x}).mean["h"]


def of_crf(fitted):
    return lambda x: fitted.predict_marginals([x])[0]


@one_test_over("name", LEARNERS)
def test_names_of_columns_are_remembered(name):
    frame = framed(FULL, float)
    ask = LEARNERS[name](frame)
    np.testing.assert_array_equal(ask(frame[["d", "a", "c", "b"]]), ask(frame))
    np.testing.assert_array_equal(ask(frame.to_numpy()), ask(frame))
    with pytest.raises(pgm.PgmError, match="'e'"):
        ask(frame.set_axis(["a", "b", "c", "e"], axis=1))


def test_a_learned_model_keeps_the_names_of_columns(tmp_path):
    fit = pgm.fit(pgm.rbm(4, 2, rng=0), {"v": framed(FULL)}, updates=3, progress=False)
    pgm.save(fit, tmp_path / "m.safetensors")
    again = pgm.load(tmp_path / "m.safetensors")
    assert again.structure.layers["v"].labels == tuple(NAMES)
    frame = framed(FULL, float)[["c", "a", "d", "b"]]
    expected = pgm.infer(fit, {"v": FULL}).mean["h"]
    np.testing.assert_array_equal(pgm.infer(again, frame).mean["h"], expected)


class OtherFrame:
    """Stands in for frames of polars and tables of arrow, whose columns have names."""

    columns = column_names = NAMES

    def __array__(self, dtype=None, copy=None):
        return np.array(FULL, dtype=float)

    def to_pandas(self):
        return framed(FULL)


@pytest.mark.filterwarnings("ignore")
def test_frames_of_other_packages_are_refused():
    for ask in (
        lambda x: pgm.infer(machine(), {"v": x}),
        lambda x: fitted(features()).transform(x),
    ):
        with pytest.raises(pgm.PgmError, match=r"give its to_pandas\(\)"):
            ask(OtherFrame())


def test_large_integers_and_booleans_keep_their_meaning():
    """numpy would round integers beside fractions, and make numbers of booleans."""
    b = pgm.GraphBuilder()
    b.layer("s", pgm.Categorical(4), 1, states=(2**60, 2**60 + 1, 0.5, True))
    b.layer("h", pgm.Binary(), 1)
    b.couple("s", "h")
    ask, given = b.build(rng=0), [2**60 + 1, 0.5, True, None]
    columns = given, np.array(given, object), np.ma.array([2**60 + 1, 7], mask=[0, 1])
    for x, states in zip(columns, ([1, 2, 3], [1, 2, 3], [1]), strict=True):
        found = ask.given({"s": x}).evidence.values["s"]
        np.testing.assert_array_equal(found[: len(states)].argmax(axis=1), states)
        assert not found[len(states) :].any()

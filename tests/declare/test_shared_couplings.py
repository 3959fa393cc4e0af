"""Couplings, arrows and biases that places share: the same answers as explicit weights.

The plain way gives the model a weight for each pair of layers, summed here place by place. A shared
parameter has the sum of the gradients of its places.
"""

import pickle
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp
from loops import one_test_over
from test_shared_tables import METHODS, broadcast_places, close

import pgmengine as pgm
from pgmengine.learn.phases.statistics import Gradient
from pgmengine.learn.steps.optimizers import MIN_LEAK


class Pair:
    """A random model with shared terms, and the same model with explicit weights and biases."""

    def __init__(self, seed, directed):
        self.rng = np.random.default_rng(seed)
        self.directed = directed
        self.shared = pgm.GraphBuilder()
        self.handles, self.units, self.own = {}, {}, {}
        # The terms: parameter, handles, units of each place, and number of each place's weight.
        self.terms, self.values = [], {}
        # The smallest values of parameters of noisy-or units.
        self.least = {"n.bias": MIN_LEAK}
        (self.add_directed if directed else self.add_undirected)()

    def layer(self, name, unit, shape):
        width = unit.width
        bias = self.rng.normal(size=(int(np.prod(shape)), width) if width > 1 else np.prod(shape))
        self.handles[name] = self.shared.layer(name, unit, shape, bias=bias)
        self.units[name], self.own[f"{name}.bias"] = unit, bias
        return self.handles[name]

    def array(self, name, shape):
        self.handles[name] = self.shared.variable(name, 2, shape)
        self.units[name] = pgm.Binary()
        self.own[f"{name}.bias"] = np.zeros(int(np.prod(shape)))
        return self.handles[name]

    def add(self, kind, *scope, name=None, lead=False, positive=False):
        """Declare a term with random values; `lead` gives each place its own."""
        widths = [self.units[h.name].width for h in scope]
        block = tuple(widths) if max(widths) > 1 else ()
        places = broadcast_places([(h.name, h.index) for h in scope])
        axes = np.broadcast_shapes(*(h.shape for h in scope)) if lead else ()
        if name in self.values:
            value = self.values[name]
        else:
            value = self.rng.normal(size=(*axes, *block)) * 0.7
            value = np.abs(value) if positive else value
        getattr(self.shared, kind)(*scope, value, name=name)
        key = name or self.default(kind, scope)
        self.values[key] = value
        if positive:
            self.least[key] = 0.0
        numbers = range(len(places)) if lead else [0] * len(places)
        self.terms.append((key, kind, places, list(numbers), block))

    @staticmethod
    def default(kind, scope):
        texts = [h.text if "[" in h.text else f"{h.text}[...]" for h in scope]
        join = "->" if kind == "cause" else "-"
        return f"{join.join(texts)}.{'bias' if kind == 'bias' else 'weight'}"

    def add_undirected(self):
        s = self.layer("s", pgm.Spin(), (2, 3))
        c = self.layer("c", pgm.Categorical(3), 3)
        h = self.layer("h", pgm.Binary(), 2)
        # Arrays of variables come after the layers.
        x = self.array("x", (2,))
        self.add("couple", s[1:], s[:-1], name="vertical")
        self.add("couple", s[:, 1:], s[:, :-1], lead=self.rng.random() < 0.5)
        # The same pairs again, in the other order: they add up.
        self.add("couple", s[:-1], s[1:], name="vertical")
        self.add("couple", c[1:], c[:-1], name="states")
        self.add("couple", c[0], x[:, None], name="mixed")
        # The other order of the two layers is the same coupling.
        self.add("couple", x[1], c[1:])
        rows = np.array([[0, 1], [1, 0]])
        self.add("couple", s[rows, rows + 1], h[:, None], name="windows", lead=True)
        weight = self.rng.normal(size=(6, 2))
        self.shared.couple("s", "h", weight)
        self.own["s-h.weight"] = weight
        self.add("bias", s[0], name="field")
        self.add("bias", x)
        self.add("bias", c, name="states of c", lead=self.rng.random() < 0.5)

    def add_directed(self):
        z = self.layer("z", pgm.Binary(), 3)
        x = self.layer("x", pgm.Categorical(3), (3, 2))
        n = self.layer("n", pgm.NoisyOr(), 2)
        self.own["n.bias"][...] = np.abs(self.own["n.bias"])
        self.shared.given[-1] = self.own["n.bias"]
        self.add("cause", z[:-1], z[1:], name="step")
        self.add("cause", z[:, None], x, name="emission", lead=self.rng.random() < 0.5)
        self.add("cause", z[0], n, name="leaky", positive=True)
        self.add("cause", z[1:], n, name="own", positive=True, lead=True)
        self.add("bias", z[1:], name="field")
        self.add("bias", x)
        self.add("bias", n, name="leak", positive=True)

    def entries(self, term, gradient=None):
        """(layers, row and column or column alone, index in the parameter) of each component."""
        key, kind, places, numbers, block = term
        for place, number in zip(places, numbers, strict=True):
            widths = [self.units[name].width for name, _ in place]
            for part in np.ndindex(*widths):
                at = (number, *(part if block else ()))
                columns = [i * w + p for (_, i), w, p in zip(place, widths, part, strict=True)]
                yield tuple(name for name, _ in place), columns, at

    def flat(self, key, block):
        """The values of a parameter with a single leading axis."""
        return np.reshape(self.values[key], (-1, *block))

    def plain(self):
        """The model with explicit weights."""
        biases = {k: v.copy().reshape(-1) for k, v in self.own.items() if k.endswith(".bias")}
        entries, order = {}, [*self.handles]
        weights = [k for k in self.own if k.endswith(".weight")]
        for term in self.terms:
            values = self.flat(term[0], term[4])
            for layers, columns, at in self.entries(term):
                if len(layers) == 1:
                    biases[f"{layers[0]}.bias"][columns[0]] += values[at]
                    continue
                ends, at_ends = list(layers), list(columns)
                mirrored = False
                if term[1] == "couple":
                    known = self.orientation(layers)
                    if known != layers:
                        ends, at_ends = ends[::-1], at_ends[::-1]
                    mirrored = layers[0] == layers[1]
                key = ("->" if term[1] == "cause" else "-").join(ends)
                entries.setdefault((key, *ends), []).append((*at_ends, values[at]))
                if mirrored:
                    entries[key, *ends].append((*at_ends[::-1], values[at]))
        b = pgm.GraphBuilder()
        for name in order:
            h, unit = self.handles[name], self.units[name]
            bias = biases[f"{name}.bias"]
            bias = bias.reshape(-1, unit.width) if unit.width > 1 else bias
            b.layer(name, unit, h.shape, bias=bias)
        keys = sorted(entries, key=lambda k: f"{k[0]}.weight" not in weights)
        for key, one, two in keys:
            rows, columns, data = zip(*entries[key, one, two], strict=True)
            size = [self.handles[n].index.size * self.units[n].width for n in (one, two)]
            weight = sp.csr_array((data, (rows, columns)), shape=size)
            own = self.own.get(f"{key}.weight")
            weight = weight if own is None else own + weight.toarray()
            (b.cause if "->" in key else b.couple)(one, two, weight)
        return b.build()

    def orientation(self, layers):
        """The order in which the coupling of two layers has them: that of its first use."""
        if layers[0] == layers[1] or f"{layers[0]}-{layers[1]}.weight" in self.own:
            return layers
        used = [t[2][0] for t in self.terms if t[1] == "couple"]
        return next(tuple(n for n, _ in u) for u in used if {n for n, _ in u} == {*layers})

    def models(self):
        return self.shared.build(), self.plain()

    def summed(self, gradient):
        """The gradient of the shared model, as sums over places of the plain model."""
        own = {k: np.asarray(v) for k, v in gradient.items() if k in self.own}
        out = {k: np.zeros(np.shape(v)) for k, v in self.values.items()}
        dense = {k: v.toarray() if sp.issparse(v) else np.asarray(v) for k, v in gradient.items()}
        for term in self.terms:
            total = out[term[0]].reshape(-1, *term[4])
            for layers, columns, at in self.entries(term):
                if len(layers) == 1:
                    total[at] += dense[f"{layers[0]}.bias"].reshape(-1)[columns[0]]
                    continue
                ends = layers if term[1] == "cause" else self.orientation(layers)
                i, j = columns if tuple(ends) == layers else columns[::-1]
                total[at] += dense[f"{('->' if term[1] == 'cause' else '-').join(ends)}.weight"][
                    i, j
                ]
        return own | out

    def evidence(self, rows=4):
        out = {}
        for name, handle in self.handles.items():
            unit = self.units[name]
            count = len(unit.support)
            values = self.rng.integers(0, count, (rows, *handle.shape)) * 1.0
            values = values if unit.width > 1 else unit.support[values.astype(int)] * 1.0
            values[self.rng.random(values.shape) < 0.6] = np.nan
            out[name] = values
        return out

    def data(self, rows=12):
        """Complete rows of all layers but the last ones."""
        hidden = () if self.directed else ("h",)
        out = {}
        for name, handle in self.handles.items():
            if name not in hidden:
                unit = self.units[name]
                values = self.rng.integers(0, len(unit.support), (rows, handle.index.size))
                out[name] = values if unit.width > 1 else unit.support[values]
        return out


def same(one, two, error=1e-9):
    assert set(one) == set(two)
    for key, value in one.items():
        np.testing.assert_allclose(
            value, np.reshape(two[key], np.shape(value)), rtol=error, atol=error, err_msg=key
        )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("directed", (True, False), ids=("directed", "undirected"))
@one_test_over("seed", range(4))
def test_shared_terms_answer_as_explicit_weights(seed, directed, method):
    pair = Pair(seed, directed)
    shared, plain = pair.models()
    chosen, want = METHODS[method]
    evidence = pair.evidence()
    for row in (evidence, {}):
        try:
            two = pgm.infer(plain, row, want, method=chosen, rng=seed, progress=False)
        except pgm.PgmError:
            with pytest.raises(pgm.PgmError):
                pgm.infer(shared, row, want, method=chosen, rng=seed, progress=False)
            continue
        one = pgm.infer(shared, row, want, method=chosen, rng=seed, progress=False)
        assert one.status == two.status and one.kind == two.kind
        for name, value in two.answers.items():
            if name == "gradient":
                same(pair.summed(value), one.raw("gradient"))
            else:
                close(one.raw(name), value, name)


@pytest.mark.parametrize("directed", (True, False), ids=("directed", "undirected"))
def test_the_density_is_the_same(directed):
    pair = Pair(7, directed)
    shared, plain = pair.models()
    x = {k: v for k, v in pair.data().items()}
    x |= {} if directed else {"h": pair.rng.integers(0, 2, (12, 2))}
    np.testing.assert_allclose(shared.log_density(x), plain.log_density(x), rtol=1e-12)


@pytest.mark.parametrize("directed", (True, False), ids=("directed", "undirected"))
def test_gradients_are_finite_differences(directed, step=1e-5):
    pair = Pair(11, directed)
    model, _ = pair.models()
    seen = {"n": [1, 0]} if directed else {}
    gradient = pgm.infer(model, seen, ("gradient",)).raw("gradient")
    assert list(gradient) == list(model.params)
    for key, value in model.params.items():
        if key in pair.values:
            for at in np.ndindex(np.shape(value)):
                ends = []
                for sign in (1, -1):
                    moved = np.array(value)
                    moved[at] += sign * step
                    other = model.with_params({key: moved})
                    ends.append(pgm.infer(other, seen, ("log_z",)).log_z[0])
                slope = (ends[0] - ends[1]) / (2 * step)
                np.testing.assert_allclose(np.asarray(gradient[key])[at], slope, atol=1e-7)


@dataclass(frozen=True)
class SumsOverPlaces:
    """Gradient ascent of a plain model, whose places move together."""

    pair: Pair
    rate: float

    def start(self, params):
        return {}

    def step(self, structure, params, gradient, moments, t):
        pair = self.pair
        steps = pair.summed(dict(gradient))
        pair.own = {k: self.moved(k, v, steps) for k, v in pair.own.items()}
        pair.values = {k: self.moved(k, v, steps) for k, v in pair.values.items()}
        return dict(pair.plain().params)

    def moved(self, key, value, steps):
        if key == "x.bias" and not self.pair.directed:
            # Arrays of variables have no biases of their own.
            return value
        new = value + self.rate * np.reshape(steps[key], np.shape(value))
        return np.maximum(new, self.pair.least.get(key, -np.inf))


@pytest.mark.parametrize(
    "negative",
    (pgm.ExactGradient(), pgm.PCD(k=1, chains=20), pgm.CD(k=1)),
    ids=("exact", "pcd", "cd"),
)
@pytest.mark.parametrize("batch_size", (12, 5))
def test_fits_move_all_places_together(negative, batch_size):
    pair = Pair(3, False)
    shared, plain = pair.models()
    data = pair.data()
    settings = {
        "negative": negative,
        "updates": 4,
        "batch_size": batch_size,
        "rng": 0,
        "progress": False,
    }
    one = pgm.fit(shared, data, optimizer=pgm.SGD(0.05), **settings).model
    pgm.fit(plain, data, optimizer=SumsOverPlaces(pair, 0.05), **settings)
    moved = {k: v for k, v in one.params.items() if k in pair.values}
    assert all((np.asarray(v) != shared.params[k]).any() for k, v in moved.items())
    same(one.params, pair.own | pair.values, error=1e-5)


def test_belief_nets_learn_all_places_together():
    pair = Pair(5, True)
    shared, plain = pair.models()
    data = pair.data()
    settings = {"updates": 3, "batch_size": 12, "rng": 0, "progress": False}
    one = pgm.fit(shared, data, optimizer=pgm.SGD(0.01), **settings).model
    pgm.fit(plain, data, optimizer=SumsOverPlaces(pair, 0.01), **settings)
    same(one.params, pair.own | pair.values, error=1e-6)


def lattice(shape=(3, 3), unit=None):
    b = pgm.GraphBuilder()
    s = b.layer("s", unit or pgm.Spin(), shape)
    b.couple(s[1:], s[:-1], 0.3, name="vertical")
    b.couple(s[:, 1:], s[:, :-1], -0.2, name="horizontal")
    b.bias(s, 0.1, name="field")
    return b, s


def spins(rows=10, size=9):
    return np.random.default_rng(0).choice([-1.0, 1.0], (rows, size))


def test_decay_acts_on_shared_weights_once():
    model = lattice()[0].build()
    data = {"s": spins()}
    settings = {"updates": 1, "negative": pgm.ExactGradient(), "progress": False}
    plain = pgm.fit(model, data, optimizer=pgm.SGD(0.1), **settings).model.params
    decayed = pgm.fit(model, data, optimizer=pgm.SGD(0.1, weight_decay=0.5), **settings)
    for key, before in model.params.items():
        expected = plain[key] - (0.1 * 0.5 * before if key in ("vertical", "horizontal") else 0.0)
        np.testing.assert_allclose(decayed.model.params[key], expected, atol=1e-7)


def test_scaled_steps_are_the_mean_of_the_steps_of_places():
    model = lattice()[0].build()
    b = pgm.GraphBuilder()
    b.layer("s", pgm.Spin(), 9, bias=np.full(9, 0.1))
    whole = next(c for c in model.structure.couplings)
    b.couple("s", "s", model.weight(whole))
    data, settings = {"s": spins()}, {"updates": 1, "progress": False}
    settings |= {"optimizer": pgm.Scaled(pgm.SGD(0.1)), "negative": pgm.ExactGradient()}
    one = pgm.fit(model, data, **settings).model.params
    before = b.build()
    two = pgm.fit(before, data, **settings).model.params
    moved = (two["s-s.weight"] - before.params["s-s.weight"]).toarray()
    grid = np.arange(9).reshape(3, 3)
    for name, (i, j), start in (
        ("vertical", (grid[1:], grid[:-1]), 0.3),
        ("horizontal", (grid[:, 1:], grid[:, :-1]), -0.2),
    ):
        np.testing.assert_allclose(one[name] - start, moved[i, j].mean(), atol=1e-7)
    np.testing.assert_allclose(one["field"] - 0.1, (two["s.bias"] - 0.1).mean(), atol=1e-7)


@pytest.mark.parametrize("scaled", (False, True))
def test_centred_gradients_of_shared_weights(scaled):
    b, s = lattice()
    h = b.layer("h", pgm.Binary(), 9)
    b.couple(s.reshape(9), h, 0.4, name="up")
    # The same parameter joins other pairs, too.
    b.couple(s.reshape(9)[1:], h[:-1], 0.4, name="up")
    model = b.build()
    data = {"s": spins(), "h": np.random.default_rng(1).integers(0, 2, (10, 9))}
    settings = {"updates": 1, "negative": pgm.ExactGradient(max_bits=20), "progress": False}
    inner = pgm.Scaled(pgm.SGD(1.0)) if scaled else pgm.SGD(1.0)
    centred = pgm.fit(model, data, optimizer=pgm.Centered(inner, follow=1.0), **settings)
    steps = pgm.fit(model, data, optimizer=inner, **settings).model.params
    # The plain gradient is that of a step of length 1.
    plain = pgm.fit(model, data, optimizer=pgm.SGD(1.0), **settings).model.params
    slope = {k: plain[k] - v for k, v in model.params.items()}
    # The factors of the inner optimizer.
    rate = {k: np.mean((steps[k] - v) / slope[k]) for k, v in model.params.items()}
    o, db = {n: x.mean(axis=0) for n, x in data.items()}, {n: slope[f"{n}.bias"] for n in data}
    grid = np.arange(9).reshape(3, 3)
    line = np.arange(9)
    pairs = {
        "vertical": ("s", "s", grid[1:].ravel(), grid[:-1].ravel()),
        "horizontal": ("s", "s", grid[:, 1:].ravel(), grid[:, :-1].ravel()),
        "up": ("s", "h", np.append(line, line[1:]), np.append(line, line[:-1])),
    }
    expected = {"field": slope["field"], "s.bias": db["s"].copy(), "h.bias": db["h"].copy()}
    for key, (one, two, i, j) in pairs.items():
        terms = o[one][i] * db[two][j] + db[one][i] * o[two][j]
        expected[key] = slope[key] - terms.sum()
        # Scaled moves the weight by the mean over places, and the biases follow it.
        moved = expected[key] / (len(i) if scaled else 1)
        np.subtract.at(expected[f"{one}.bias"], i, moved * o[two][j])
        np.subtract.at(expected[f"{two}.bias"], j, moved * o[one][i])
    for key, value in model.params.items():
        np.testing.assert_allclose(
            centred.model.params[key] - value, rate[key] * expected[key], atol=2e-6, err_msg=key
        )


def test_fast_weights_of_shared_parameters_are_shared():
    pair = Pair(3, False)
    shared, _ = pair.models()
    settings = {"updates": 5, "optimizer": pgm.SGD(0.05), "rng": 0, "progress": False}
    fast, slow = (
        pgm.fit(shared, pair.data(), negative=n, **settings).model
        for n in (pgm.FastPCD(k=1, chains=20, rate=0.0), pgm.PCD(k=1, chains=20))
    )
    pair.rng = np.random.default_rng(3)
    assert list(fast.params) == list(slow.params)
    found = pgm.fit(
        shared, pair.data(), negative=pgm.FastPCD(k=1, chains=20, rate=0.1), **settings
    ).model
    assert np.isfinite(found.params["vertical"]) and found.params["vertical"].shape == ()


def test_given_units_leave_their_shared_parameters():
    """A parameter that acts on given units only stays as it is; one that meets others moves."""
    b = pgm.GraphBuilder()
    x = b.layer("x", pgm.Binary(), 4)
    y = b.layer("y", pgm.Binary(), 4)
    b.couple(x[1:], x[:-1], 0.5, name="inside")
    b.couple(x, y, 0.2, name="between")
    b.bias(x, 0.3, name="field")
    b.bias(y, 0.3, name="output")
    model = b.build()
    rng = np.random.default_rng(0)
    data = {n: rng.integers(0, 2, (20, 4)) for n in ("x", "y")}
    found = pgm.fit(model, data, given=("x",), updates=3, progress=False).model.params
    for key in ("inside", "field"):
        assert found[key] == model.params[key]
    for key in ("between", "output"):
        assert found[key] != model.params[key]


def test_a_convolutional_rbm_is_one_call():
    b = pgm.GraphBuilder()
    v = b.layer("v", pgm.Binary(), (4, 5))
    h = b.layer("h", pgm.Binary(), (3, 3))
    w = np.random.default_rng(0).normal(size=(2, 3))
    i, j, k, m = np.ogrid[:3, :3, :2, :3]
    b.couple(v[i + k, j + m], h[:, :, None, None], w, name="filter")
    model = b.build()
    image = np.random.default_rng(1).integers(0, 2, (4, 5))
    field = np.array(
        [[(image[a : a + 2, c : c + 3] * w).sum() for c in range(3)] for a in range(3)]
    )
    found = pgm.infer(model, {"v": image}).mean["h"]
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-field)), rtol=1e-12)
    assert repr(model).startswith("Restricted Boltzmann machine: 2 layers, 1 coupling, 35 param")


@pytest.mark.long
def test_fit_with_defaults_finds_what_a_convolutional_rbm_shares():
    """Rows of pixels are equal, so that weights of one row of the filter have the same sign."""
    rng = np.random.default_rng(0)
    data = {"v": np.repeat(rng.random((500, 12, 1)) < 0.3, 12, axis=2) * 1.0}
    b = pgm.GraphBuilder()
    v = b.layer("v", pgm.Binary(), (12, 12))
    h = b.layer("h", pgm.Binary(), (10, 10))
    i, j, k, m = np.ogrid[:10, :10, :3, :3]
    b.couple(v[i + k, j + m], h[:, :, None, None], rng.normal(size=(3, 3)) * 0.05, name="filter")
    b.bias(h, name="on")
    model = b.build()
    fitted = pgm.fit(model, data, epochs=20, rng=0, progress=False)
    assert fitted.model.params["filter"].shape == (3, 3)
    largest = max(np.abs(p).max() for p in fitted.model.params.values())
    assert largest < 20
    lines = fitted.model.params["filter"]
    assert np.abs(lines.mean(axis=1)).max() > 5 * lines.std(axis=1).max()


def test_a_new_lattice_starts_at_the_base_rates():
    b = pgm.GraphBuilder()
    s = b.layer("s", pgm.Binary(), 3)
    b.couple(s[1:], s[:-1], 0.0)
    b.bias(s, 0.7, name="field")
    data = {"s": np.array([[1, 0, 0], [1, 1, 0], [1, 0, 0], [0, 1, 0]])}
    model = pgm.base_rate_start(b.build(), data)
    rates = (data["s"].sum(axis=0) + 0.05 * 4 / 2) / (4 * 1.05)
    np.testing.assert_allclose(pgm.infer(model).mean["s"], rates, rtol=1e-9)


def test_large_shared_biases_are_exact():
    """Terms that exact answers move into the evidence, because they are large."""
    found = {}
    for shared in (True, False):
        b = pgm.GraphBuilder()
        s = b.layer("s", pgm.Binary(), 4, bias=np.array([1.0, 2.0, 3.0, 4.0]) + 3e9 * (not shared))
        if shared:
            b.bias(s, 3e9)
            b.couple(s[1:], s[:-1], 0.5)
        else:
            b.couple("s", "s", sp.csr_array(np.diag([0.5] * 3, 1) + np.diag([0.5] * 3, -1)))
        found[shared] = pgm.infer(b.build(), {"s": [np.nan, 1, 0, np.nan]}, ("log_z", "marginals"))
    close(found[True].raw("log_z"), found[False].raw("log_z"), "log_z", 1e-12)
    close(found[True].raw("mean"), found[False].raw("mean"), "mean", 1e-12)


def test_weights_of_zero_into_noisy_or_units_have_a_slope(step=1e-6):
    """A leak and a weight of 0 make a state impossible that is a part of their slopes."""
    b = pgm.GraphBuilder()
    z = b.layer("z", pgm.Binary(), 2)
    n = b.layer("n", pgm.NoisyOr(), 3)
    b.cause(z[:, None], n, [[0.0], [0.7]], name="up")
    b.bias(n, 0.0, name="leak")
    model = b.build()
    seen = {"n": [1, 0, 1]}
    for method in (pgm.Elimination(), pgm.Enumeration()):
        gradient = pgm.infer(model, seen, ("gradient",), method=method).raw("gradient")
        base = pgm.infer(model, seen, ("log_z",)).log_z[0]
        for key, at in (("up", (0, 0)), ("up", (1, 0)), ("leak", ())):
            moved = np.array(model.params[key])
            moved[at] += step
            other = pgm.infer(model.with_params({key: moved}), seen, ("log_z",)).log_z[0]
            np.testing.assert_allclose(
                np.asarray(gradient[key])[at], (other - base) / step, rtol=1e-4, err_msg=key
            )


def test_parameters_count_once_and_are_shown():
    model = lattice((20, 20))[0].build()
    assert model.parameter_count == 403
    assert repr(model) == (
        "Boltzmann machine: 1 layer, 2 couplings, 403 parameters\n"
        "  s: 20 x 20 Spin\n"
        "  couplings: vertical, horizontal\n"
        "  shared biases: field"
    )
    assert not model.fresh and pgm.GraphBuilder.__name__ in repr(lattice()[0])


def test_drawn_weights():
    b = pgm.GraphBuilder()
    s = b.layer("s", pgm.Binary(), 3)
    b.couple(s[1:], s[:-1], name="pair")
    b.couple(s[2:], s[:-2], name="pair")
    b.bias(s)
    one, two = b.build(rng=0), b.build(rng=0)
    assert one.fresh and one.params["pair"] == two.params["pair"] != 0
    assert abs(one.params["pair"]) <= np.sqrt(6 / 6) and one.params["s[...].bias"] == 0


def test_empty_slices_act_nowhere():
    b = pgm.GraphBuilder()
    z = b.layer("z", pgm.Binary(), 1)
    b.couple(z[1:], z[:-1], 2.0, name="step")
    assert "step" not in b.build().params


def test_several_layers_share_a_parameter():
    b = pgm.GraphBuilder()
    a, c, d = (b.layer(name, pgm.Spin(), 2) for name in "acd")
    b.couple(a, c, 0.5, name="j")
    b.couple(d, c, 0.5, name="j")
    model = b.build()
    r = pgm.infer(model, want=("log_z", "gradient"))
    np.testing.assert_allclose(r.log_z, 6 * np.log(2) + 4 * np.log(np.cosh(0.5)))
    np.testing.assert_allclose(r.gradient["j"], 4 * np.tanh(0.5))


def test_variables_and_units_of_layers_are_handles():
    b = pgm.GraphBuilder()
    rain, wet = b.variable("rain", ("no", "yes")), b.variable("wet", ("no", "yes"))
    s = b.layer("s", pgm.Spin(), (2, 2))
    b.cause(rain, wet, 1.5)
    b.bias("wet", -0.5)
    b.couple(("s", (0, 0)), "s[1]", 0.7)
    model = b.build()
    found = pgm.infer(model, {"rain": "yes"}).marginal("wet")["yes"]
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-1.0)))
    assert pgm.infer(model, want=("pairs",)).raw("pairs")["s-s"][0, 2] == pytest.approx(
        np.tanh(0.7)
    )
    assert model.params["s[0,0]-s[1].weight"] == 0.7 and s.shape == (2, 2)


def test_files_keep_shared_terms(tmp_path):
    for directed in (True, False):
        pair = Pair(2, directed)
        model, _ = pair.models()
        pgm.save(model, tmp_path / "m.safetensors")
        found = pgm.load(tmp_path / "m.safetensors")
        assert list(found.params) == list(model.params) and repr(found) == repr(model)
        want = ("log_z", "marginals", "gradient")
        for one, two in ((found, model), (pickle.loads(pickle.dumps(model)), model)):
            close(*(dict(pgm.infer(m, want=want).raw("gradient")) for m in (one, two)), "gradient")
            close(*(pgm.infer(m, want=want).log_z for m in (one, two)), "log_z")
    fitted = pgm.fit(model, pair.data(), updates=2, progress=False, rng=0)
    pgm.save(fitted, tmp_path / "fitted.safetensors")
    again = pgm.load(tmp_path / "fitted.safetensors")
    assert again.training is not None
    assert all((again.params[k] == v).all() for k, v in fitted.model.params.items())


def test_other_formats_write_every_place(tmp_path):
    pair = Pair(2, False)
    model, _ = pair.models()
    pgm.write(model, tmp_path / "m.uai")
    want = pgm.infer(model, want=("log_z",)).log_z
    assert pgm.infer(pgm.read(tmp_path / "m.uai"), want=("log_z",)).log_z == pytest.approx(want)
    back = pgm.GraphBuilder.from_networkx(model.to_networkx("variables")).build()
    assert pgm.infer(back, want=("log_z",)).log_z == pytest.approx(want)
    assert set(lattice()[0].build().to_networkx().edges) == {("s", "s", "s-s")}


TOML = """
[[layers]]
name = "s"
unit = "Spin"
size = [3, 3]

[[couplings]]
couple = ["s[1:]", "s[:-1]"]
weight = 0.3
name = "vertical"

[[couplings]]
couple = ["s[:, 1:]", "s[:, :-1]"]
weight = -0.2
name = "horizontal"

[[biases]]
units = "s"
value = 0.1
name = "field"

[[variables]]
name = "z"
shape = [3]

[[couplings]]
cause = ["z[:-1]", "z[1:]"]
weight = 1.0
"""


def test_declarations_in_toml_share(tmp_path):
    (tmp_path / "m.toml").write_text(TOML)
    model = pgm.load_declaration(tmp_path / "m.toml")
    plain = lattice()[0].build()
    assert model.params["z[:-1]->z[1:].weight"] == 1.0
    one, two = (pgm.infer(m, want=("log_z",)).log_z for m in (model, plain))
    np.testing.assert_allclose(one, two)


@dataclass(frozen=True)
class Recorded:
    """An optimizer that keeps the gradient and stays where it is."""

    kept: list

    def start(self, params):
        return {}

    def step(self, structure, params, gradient, moments, t):
        assert isinstance(gradient, Gradient)
        self.kept.append(dict(gradient))
        return params


def test_optimizers_see_the_parameters_only():
    model, recorded = lattice()[0].build(), Recorded([])
    pgm.fit(model, {"s": spins()}, optimizer=recorded, updates=1, progress=False)
    assert list(recorded.kept[0]) == list(model.params)


def test_a_template_shares_couplings_by_name():
    def chain(steps):
        b = pgm.GraphBuilder()
        z = b.layer("z", pgm.Spin(), steps)
        b.couple(z[1:], z[:-1], 0.5, name="step")
        return b

    template = pgm.Template(chain).with_params({"step": np.array(0.9)})
    for steps in (1, 4):
        log_z = pgm.infer(template(steps), want=("log_z",)).log_z
        expected = steps * np.log(2) + (steps - 1) * np.log(np.cosh(0.9))
        np.testing.assert_allclose(log_z, expected)


BAD = {
    "shapes": (lambda b, s: b.couple(s, s[:, :2]), r"coupling of \(s, s\[:, :2\]\).*broadcast"),
    "lead": (lambda b, s: b.couple(s[1:], s[:-1], np.ones(2)), r"leading axes \(2,\) do not"),
    "itself": (lambda b, s: b.couple(s, s, 0.3), r"unit 's\[0,0\]' is coupled with itself"),
    "whole": (lambda b, s: b.couple(s[0], "s", 0.3), r"unit 's\[0,0\]' is coupled with itself"),
    "outside": (lambda b, s: b.couple("s[5]", "s[0]"), r"s\[5\]: index 5 is out of bounds"),
    "two values": (
        lambda b, s: b.couple(s[2], s[0], 0.4, name="vertical"),
        "coupling 'vertical' of .* the name is also of coupling 'vertical' of .* other values",
    ),
    "two shapes": (
        lambda b, s: b.couple(s[2], s[0], np.ones(3), name="vertical"),
        r"whose shape is \(\), not \(3,\)",
    ),
    "two kinds": (lambda b, s: b.bias(s, 0.3, name="vertical"), "one is a bias, and the other"),
    "table": (
        lambda b, s: b.table((s[0],), [1, 2], name="field"),
        "'field' is also of bias 'field' of s: one is a table, and the other a bias",
    ),
    "taken": (lambda b, s: b.bias(s, 0.3, name="s.bias"), "'s.bias' is taken by a parameter"),
    "taken by a weight": (
        lambda b, s: b.couple(s[0], s[1], name="s-s.weight"),
        "'s-s.weight' is taken by a parameter",
    ),
    "number": (lambda b, s: b.bias(s, np.nan), r"bias of s: is nan"),
    "text": (lambda b, s: b.couple(s[0], s[1], "strong"), r"coupling of \(s\[0\], s\[1\]\) is not"),
    "name": (lambda b, s: b.bias(s, 0.1, name=3), "name of a parameter must be"),
    "named whole": (lambda b, s: b.couple("s", "s", name="w"), "only weights that places share"),
    "scalar": (
        lambda b, s: b.couple(b.layer("c", pgm.Categorical(3), 2), s[0, :2], 0.5),
        r"has shape \(\), expected \(3, 1\): one number for each state of ",
    ),
    "wrong k": (
        lambda b, s: b.bias(b.layer("c", pgm.Categorical(3), 2), np.ones(4)),
        r"bias of c has shape \(4,\), expected \(3,\): one number for each state of c",
    ),
    "unbounded": (
        lambda b, s: b.couple(*(b.layer(n, pgm.Gaussian(), 2) for n in "gf"), 0.1),
        "'g-f' joins two unbounded layers",
    ),
    "cycle": (
        lambda b, s: [
            z := b.layer("z", pgm.Binary(), 3),
            b.cause(z[:-1], z[1:]),
            b.cause(z[2], z[0], 1.0),
        ],
        r"arrows of \(z\[2\], z\[0\]\): the arrows form a cycle: ",
    ),
    "two ways": (
        lambda b, s: [
            z := b.layer("z", pgm.Binary(), 3),
            b.cause("z", "z", np.diag([1.0, 1.0], 1)),
            b.cause(z[0], z[2], 1.0),
        ],
        "layer 'z' has arrows with a weight of their own",
    ),
    "noisy": (
        lambda b, s: b.cause(b.layer("z", pgm.Binary(), 2), b.layer("n", pgm.NoisyOr(), 2), -1.0),
        "-1.0, expected >= 0 for noisy-or units",
    ),
    "conditional": (
        lambda b, s: [
            z := b.variable("z", 2, 3),
            b.conditional(z, (), [0.5, 0.5]),
            b.bias(z[1], 0.2),
        ],
        r"unit 'z\[1\]' has a conditional, and the shared bias",
    ),
    "other builder": (
        lambda b, s: b.bias(pgm.GraphBuilder().layer("q", pgm.Spin(), 3)),
        "belongs to another builder",
    ),
    "later value": (
        lambda b, s: [b.bias(s[0], name="new"), b.bias(s[1], 0.2, name="new")],
        "give them where the name comes first",
    ),
    "sparse matrix": (
        lambda b, s: b.couple(s, s, sp.eye_array(9, format="csr")),
        "give their names in place of handles",
    ),
}


@one_test_over("name", BAD)
def test_bad_places_are_refused_and_named(name):
    act, match = BAD[name]
    b, s = lattice()
    with pytest.raises(pgm.PgmError, match=match):
        act(b, s)
        b.build()


def test_bad_values_of_a_model_are_refused():
    model = lattice()[0].build()
    for value, match in (
        (np.ones(2), r"'vertical' has shape \(2,\), expected \(\)"),
        (np.inf, "inf"),
    ):
        with pytest.raises(pgm.PgmError, match=match):
            model.with_params({"vertical": value})
    with pytest.raises(pgm.PgmError, match="'s-s.weight' is unknown"):
        model.with_params({"s-s.weight": np.zeros((9, 9))})


def test_damaged_places_in_files_are_refused(tmp_path):
    from pgmengine.base.files import read_tensors, write_tensors

    path = tmp_path / "m.safetensors"
    pgm.save(lattice()[0].build(), path)
    tensors, metadata = read_tensors(path)
    damage = {
        "units": ("shared/units", lambda a: a + 100, "expected a unit of layer 's'"),
        "numbers": ("shared/numbers", lambda a: a + 1, "other weights than those"),
        "short": ("shared/units", lambda a: a[:-3], "where 6 units are left"),
        "missing": ("vertical", None, "parameter 'vertical' is missing"),
    }
    for name, change, match in damage.values():
        wrong = {k: (change(v) if k == name and change else v) for k, v in tensors.items()}
        if change is None:
            del wrong[name]
        kept = {k: v for k, v in metadata.items() if k != "checksum"}
        write_tensors(path, wrong, kept)
        with pytest.raises(pgm.PgmError, match=match):
            pgm.load(path)

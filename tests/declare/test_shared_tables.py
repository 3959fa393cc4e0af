"""Arrays of variables and shared tables: the same answers as tables that are declared one by one.

The plain way declares a table for each place, by names of single units. A shared parameter has the
sum of the gradients of its places.
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from extras import extra
from loops import one_test_over

import pgmengine as pgm

METHODS = {
    "exact": (None, ("marginals", "log_z", "log_prob", "mode", "samples", "gradient")),
    "elimination": (pgm.Elimination(), ("marginals", "log_z", "mode", "gradient")),
    "enumeration": (pgm.Enumeration(), ("marginals", "log_z", "gradient")),
    "mean field": (pgm.MeanField(), ("bound", "marginals", "gradient")),
    "chains": (pgm.MCMC(draws=40, chains=2, warmup=5), ("marginals", "samples", "gradient")),
    "annealing": (pgm.AIS(betas=20, chains=8), ("log_z",)),
    "ladder": (pgm.ParallelTempering(rungs=3, draws=20, warmup=4), ("marginals", "log_z")),
}


def broadcast_places(handles):
    """The scope of each place: a tuple of (name, number) for each, by numpy alone."""
    arrays = np.broadcast_arrays(*(units for _, units in handles))
    flat = [array.ravel().tolist() for array in arrays]
    return [
        tuple((name, i) for (name, _), i in zip(handles, place, strict=True))
        for place in zip(*flat, strict=True)
    ]


class Pair:
    """A random model with shared tables, and the same model with a table for each place."""

    def __init__(self, seed, directed):
        self.rng = np.random.default_rng(seed)
        self.shared, self.plain = pgm.GraphBuilder(), pgm.GraphBuilder()
        # For each parameter of the shared model, the tables of its places in the plain one.
        self.places = {}
        n, k = (int(x) for x in self.rng.integers(2, 4, size=2))
        rows, columns = (int(x) for x in self.rng.integers(1, 3, size=2))
        for b in (self.shared, self.plain):
            self.z = b.variable("z", states=k, shape=n)
            self.x = b.variable("x", states=("low", "high"), shape=n)
            self.s = b.variable("s", states=2, shape=(rows, columns))
        self.states = {"z": k, "x": 2, "s": 2}
        z, x, s = self.z, self.x, self.s
        add = self.conditional if directed else self.table
        add(z[0], name="start")
        add(z[:-1], z[1:], name="transition")
        add(z, x, name="emission", own=self.rng.random() < 0.5)
        add(x[-1], s, own=self.rng.random() < 0.5)
        if not directed:
            self.table(s[1:], s[:-1], name="down")
            # Another use of the same parameter.
            self.table(s[:, 1:], s[:, :-1], name="down", values=self.last)
            self.table(z[:, None], x[None, :1], name="far")
            self.table(s, name="field")

    def conditional(self, *scope, name=None, own=False):
        self.add(scope, name, own, True)

    def table(self, *scope, name=None, own=False, values=None):
        self.add(scope, name, own, False, values)

    def add(self, scope, name, own, conditional, values=None):
        # The handles are those of the plain builder.
        scope = tuple(replace(h, owner=None) for h in scope)
        shape = tuple(self.states[h.name] for h in scope)
        places = broadcast_places([(h.name, h.index) for h in scope])
        lead = np.broadcast_shapes(*(h.shape for h in scope)) if own else ()
        if values is None:
            values = self.rng.dirichlet(np.ones(shape[-1]), lead + shape[:-1])
            values *= 1.0 if conditional else 3.0
            if shape[-1] > 1 and len(shape) > 1:
                # A zero, and a row that stays normalised.
                values[..., 0, :] = np.eye(shape[-1])[0] if self.rng.random() < 0.3 else 1 / 2
                values /= values.sum(axis=-1, keepdims=True) if conditional else 1.0
        self.last = values
        if conditional:
            self.shared.conditional(scope[-1], scope[:-1], values, name=name)
        else:
            self.shared.table(scope, values, name=name)
        for i, place in enumerate(places):
            table = values.reshape(-1, *shape)[i] if own else values
            key = f"p{len(self.places)}"
            if conditional:
                self.plain.conditional(place[-1], place[:-1], table, name=key)
            else:
                self.plain.table(place, table, name=key)
            self.places[key] = (name or "", scope, i if own else None)

    def models(self):
        return self.shared.build(), self.plain.build()

    def summed(self, shared, gradient):
        """The gradient of the shared parameters as sums over the places of the plain model."""
        out = {key: np.zeros(np.shape(value)) for key, value in shared.params.items()}
        unnamed = [k for k in out if k.endswith(".table")]
        for key, (name, scope, number) in self.places.items():
            to = name or next(
                k
                for k in unnamed
                if k.startswith(scope[-1].text + "|")
                or k == ",".join(h.text for h in scope) + ".table"
            )
            part = out[to] if number is None else out[to].reshape(-1, *gradient[key].shape)[number]
            part += gradient[key]
        return {k: v for k, v in out.items() if not k.endswith(".bias")}

    def evidence(self, rows=4):
        out = {}
        for name, handle in (("z", self.z), ("x", self.x), ("s", self.s)):
            values = self.rng.integers(0, self.states[name], (rows, *handle.shape)) * 1.0
            values[self.rng.random(values.shape) < 0.6] = np.nan
            if name == "x":
                named = np.where(values == 1, "high", "low").astype(object)
                values = np.where(np.isnan(values), None, named)
            out[name] = values
        return out


def close(one, two, what, error=1e-9):
    if isinstance(one, dict):
        assert set(one) == set(two), what
        for key in one:
            close(one[key], two[key], f"{what} {key}", error)
        return
    np.testing.assert_allclose(one, two, rtol=error, atol=error, err_msg=what)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("directed", (True, False), ids=("directed", "undirected"))
@one_test_over("seed", range(6))
def test_shared_tables_answer_as_tables_one_by_one(seed, directed, method):
    pair = Pair(seed, directed)
    shared, plain = pair.models()
    chosen, want = METHODS[method]
    evidence = pair.evidence()
    for row in (evidence, {}):
        try:
            two = pgm.infer(plain, row, want, method=chosen, rng=seed, progress=False)
        except pgm.PgmError:
            # Evidence that a zero makes impossible is refused in both ways.
            with pytest.raises(pgm.PgmError):
                pgm.infer(shared, row, want, method=chosen, rng=seed, progress=False)
            continue
        one = pgm.infer(shared, row, want, method=chosen, rng=seed, progress=False)
        assert one.status == two.status and one.kind == two.kind
        for name, value in two.answers.items():
            if name == "gradient":
                gradient = {k: v for k, v in one.raw("gradient").items() if ".bias" not in k}
                close(gradient, pair.summed(shared, value), name)
            else:
                close(one.raw(name), value, name)


def test_a_shared_parameter_is_one_parameter():
    shared, _ = Pair(1, False).models()
    assert shared.params["transition"].shape == shared.params["transition"].shape[:2]
    assert "down" in shared.params and sum(t.key == "down" for t in shared.structure.tables) <= 2


def test_many_places_take_the_memory_of_one_table(places=100_000):
    b = pgm.GraphBuilder()
    z = b.variable("z", states=3, shape=places)
    b.conditional(z[0], (), [0.2, 0.3, 0.5])
    b.conditional(z[1:], (z[:-1],), np.eye(3) * 0.7 + 0.1, name="transition")
    model = b.build()
    assert model.table_entries.size == 12 and len(model.structure.table_index.first) == places
    r = pgm.infer(model, {"z[0]": 0})
    # The chain forgets its start: the eigenvalue is 0.7.
    np.testing.assert_allclose(r.marginal("z")[0][:4], 1 / 3 + 2 / 3 * 0.7 ** np.arange(4))
    np.testing.assert_allclose(r.marginal("z")[2][-1], 1 / 3)


def spins(shape=(2, 3)):
    b = pgm.GraphBuilder()
    s = b.variable("s", states=("dn", "up"), shape=shape)
    b.table((s,), [1.0, 2.0], name="field")
    b.table((s[1:], s[:-1]), [[2.0, 1.0], [1.0, 2.0]])
    return b, s


def test_evidence_and_answers_have_the_shape():
    b, _ = spins()
    model = b.build()
    row = [["up", None, "dn"], [None, "up", None]]
    by_name = {"s[0,0]": "up", "s[0, 2]": "dn", ("s", (1, 1)): "up"}
    want = ("marginals", "mode", "log_z", "samples")
    one, two = (pgm.infer(model, given, want, rng=0) for given in (row and {"s": row}, by_name))
    assert one.log_z == two.log_z and one.mean["s"].shape == (2, 3)
    assert one.prob["s"].shape == (2, 3, 2) and one.samples["s"].shape == (1000, 1, 2, 3)
    assert one.marginal("s")["up"].shape == (2, 3) and one.marginal("s")["up"][0, 2] == 0
    assert one.assignment()["s"].tolist()[0] == ["up", "up", "dn"]
    assert one.marginal("s[0,1]")["up"] == one.marginal("s")["up"][0, 1]
    assert one.mean["s[0,1]"].tolist() == [one.prob["s"][0, 1].tolist()]
    rows = pgm.infer(model, {"s": [row, row, [[None] * 3] * 2]}, want, rng=0)
    assert rows.mean["s"].shape == (3, 2, 3) and rows.marginal("s")["up"].shape == (3, 2, 3)
    soft = pgm.infer(model, soft={"s": np.zeros((2, 3, 2))}, want=("log_z",))
    assert soft.log_z == pytest.approx(rows.log_z[2:])
    hinted = pgm.infer(model, soft={"s[1,2]": {"up": 1.0, "dn": 0.0}})
    assert hinted.marginal("s[1,2]")["up"] > rows.marginal("s[1,2]")["up"][2]


def test_layers_of_several_axes_learn_and_answer_in_their_shape():
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Binary(), (2, 3))
    b.layer("h", pgm.Binary(), 2)
    b.couple("v", "h")
    model = b.build(rng=0)
    x = np.random.default_rng(0).integers(0, 2, (20, 2, 3))
    fits = [
        pgm.fit(model, {"v": values}, negative=pgm.ExactGradient(), updates=3, progress=False)
        for values in (x, x.reshape(20, 6))
    ]
    np.testing.assert_array_equal(*(f.model.params["v-h.weight"] for f in fits))
    assert pgm.infer(model, {"h": [1, 0]}).mean["v"].shape == (2, 3)


def test_do_and_frames_and_networkx_know_arrays():
    b = pgm.GraphBuilder()
    z = b.variable("z", states=("a", "b"), shape=3)
    b.conditional(z[0], (), [0.3, 0.7])
    b.conditional(z[1:], (z[:-1],), [[0.9, 0.1], [0.4, 0.6]])
    model = b.build()
    r = pgm.infer(model, do={"z[1]": "b"})
    np.testing.assert_allclose(r.marginal("z")["a"][[0, 2]], [0.3, 0.4])
    pd = extra("pandas")
    frame = pd.DataFrame({"z[0]": ["a", "b"], "z[2]": ["b", "a"]})
    two = pgm.infer(model, frame)
    for row in range(2):
        own = pgm.infer(model, {"z": [frame["z[0]"][row], None, frame["z[2]"][row]]})
        np.testing.assert_allclose(two.marginal("z")["a"][row], own.marginal("z")["a"])
    back = pgm.GraphBuilder.from_networkx(model.to_networkx("variables")).build()
    assert pgm.infer(back, want=("log_z",)).log_z == pytest.approx([0.0], abs=1e-12)


def test_files_keep_shared_tables(tmp_path):
    pair = Pair(3, False)
    shared, _ = pair.models()
    pgm.save(shared, tmp_path / "m.safetensors")
    found = pgm.load(tmp_path / "m.safetensors")
    assert list(found.params) == list(shared.params) and repr(found) == repr(shared)
    want = ("log_z", "marginals", "gradient")
    one, two = (dict(pgm.infer(model, want=want).answers) for model in (found, shared))
    close(one, two, "answers")
    # Formats of other programs have no shared tables: every place is written.
    pgm.write(shared, tmp_path / "m.uai")
    expanded = pgm.read(tmp_path / "m.uai")
    assert pgm.infer(expanded, want=("log_z",)).log_z == pytest.approx(
        pgm.infer(shared, want=("log_z",)).log_z
    )


TOML = """
[[variables]]
name = "z"
states = ["a", "b"]
shape = [4]

[[conditionals]]
child = "z[0]"
values = [0.3, 0.7]

[[conditionals]]
child = "z[1:]"
parents = ["z[:-1]"]
values = [[0.9, 0.1], [0.4, 0.6]]
name = "transition"
"""


def test_declarations_in_toml_have_arrays(tmp_path):
    (tmp_path / "m.toml").write_text(TOML)
    model = pgm.load_declaration(tmp_path / "m.toml")
    assert model.params["transition"].shape == (2, 2)
    p = np.array([0.3, 0.7])
    for step in range(4):
        np.testing.assert_allclose(pgm.infer(model).marginal("z")["a"][step], p[0])
        p = p @ [[0.9, 0.1], [0.4, 0.6]]


def test_biases_of_arrays_do_not_learn():
    b, s = spins()
    model = b.build()
    x = np.random.default_rng(0).choice(["up", "dn"], (30, 2, 3))
    found = pgm.fit(model, {"s": x}, negative=pgm.ExactGradient(), updates=5, progress=False)
    assert not found.model.params["s.bias"].any()
    assert (found.model.params["field"] != model.params["field"]).any()


BAD = {
    "shapes": (lambda b, s: b.table((s, s[:, :2]), np.ones((2, 2))), r"broadcast.*s has \(2, 3\)"),
    "lead": (lambda b, s: b.table((s,), np.ones((2, 2))), r"leading axes \(2,\) do not broadcast"),
    "twice": (lambda b, s: b.table((s[0], s[0]), np.ones((2, 2))), r"unit 's\[0,0\]' occurs twice"),
    "outside": (lambda b, s: b.table((s[2],), [1, 1]), r"s\[2\]: index 2 is out of bounds"),
    "text outside": (lambda b, s: b.table(("s[5,0]",), [1, 1]), r"s\[5, 0\]: index 5"),
    "two shapes": (
        lambda b, s: b.table((s[0], s[1]), np.ones((2, 2)), name="field"),
        r"'field' is also of .*whose shape is \(2,\), not \(2, 2\)",
    ),
    "two values": (lambda b, s: b.table((s,), [3, 1], name="field"), "has other values"),
    "two kinds": (lambda b, s: b.conditional(s, (), [0.5, 0.5], name="field"), "is a conditional"),
    "taken": (lambda b, s: b.table((s,), [1, 1], name="s.bias"), "taken by a parameter"),
    "name": (lambda b, s: b.table((s,), [1, 1], name=3), "name of a parameter must be"),
    "shape": (lambda b, s: b.variable("t", shape=(2, 0)), r"shape must be .* not \(2, 0\)"),
    "fraction": (lambda b, s: b.variable("t", shape=2.5), "shape must be an integer"),
    "no sequence": (lambda b, s: b.conditional(s, "s", [1, 1]), "must be a sequence"),
    "a handle as scope": (lambda b, s: b.table(s, [1, 1]), r"such as \(s,\), not s"),
    "a handle as parents": (lambda b, s: b.conditional(s[0], s[1], [1, 1]), r"such as \(s\[1\],\)"),
    "another builder": (lambda b, s: b.table((spins()[1],), [1, 1]), "belongs to another builder"),
    "name of a place": (
        lambda b, s: b.variable("s[1,0]"),
        "has the name of a variable of the array 's'",
    ),
    "ragged index": (lambda b, s: s[[[0], [0, 1]]], r"s\[...\]: "),
    "states": (lambda b, s: b.table((s,), [1, 1, 1]), r"shape \(3,\), expected \(2,\)"),
}


@one_test_over("name", BAD)
def test_bad_shapes_are_refused_and_named(name):
    act, match = BAD[name]
    b, s = spins()
    with pytest.raises(pgm.PgmError, match=match):
        act(b, s)
        b.build()


def test_a_variable_of_an_array_without_a_conditional_is_named():
    b = pgm.GraphBuilder()
    z = b.variable("z", shape=3)
    b.conditional(z[:2], (), [0.5, 0.5])
    with pytest.raises(pgm.PgmError, match=r"variable 'z\[2\]' has no conditional"):
        b.build()


def test_handles_index_as_numpy_does():
    b = pgm.GraphBuilder()
    s = b.variable("s", shape=(3, 4))
    array = np.arange(12).reshape(3, 4)
    keys = (1, slice(1, None), (slice(None), -1), (..., None), np.array([2, 0]), array > 5)
    for key in keys:
        np.testing.assert_array_equal(s[key].index, array[key])
    assert len(s) == 3 and [one.text for one in s] == ["s[0]", "s[1]", "s[2]"]
    assert s[1:, ::2].text == "s[1:, ::2]" and s.shape == (3, 4) and s[0, 0].ndim == 0
    assert repr(s[1]) == "s[1] of shape (4,)" and repr(s[0, 0]) == "s[0, 0]"
    for i, j in itertools.product(range(3), range(4)):
        assert s.reshape(12)[4 * i + j].index == s[i, j].index

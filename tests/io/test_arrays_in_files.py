"""Arrays of variables in the files of other programs, which know single variables by name."""

import numpy as np
from loops import one_test_over

import pgmengine as pgm
from pgmengine.declare.networks.arrays_by_name import shapes_of
from pgmengine.declare.networks.tabular import Network
from pgmengine.io.network import build

FORMATS = ("bif", "net", "xmlbif", "bif.gz")


def chain(seed=0):
    """An array of one axis, one of two, one of a single variable, and a variable beside them."""
    rng, b = np.random.default_rng(seed), pgm.GraphBuilder()
    season = b.variable("season", states=("dry", "wet"))
    z = b.variable("z", states=("low", "mid", "high"), shape=3)
    s = b.variable("s", states=("no", "yes"), shape=(3, 2))
    one = b.variable("one", states=("a", "b"), shape=1)
    b.conditional(season, (), rng.dirichlet(np.ones(2)))
    b.conditional(z[0], (season,), rng.dirichlet(np.ones(3), 2))
    b.conditional(z[1:], (z[:-1],), rng.dirichlet(np.ones(3), 3), name="move")
    b.conditional(s, (z[:, None],), rng.dirichlet(np.ones(2), (2, 3)))
    b.conditional(one, (s[2, 1],), rng.dirichlet(np.ones(2), 2))
    return b.build()


EVIDENCE = {"s": [["yes", None], [None, "no"], ["yes", "yes"]], "season": "wet", "z[1]": "mid"}


@one_test_over("suffix", FORMATS)
def test_arrays_come_back_as_arrays(suffix, tmp_path):
    model, path = chain(), tmp_path / f"m.{suffix}"
    pgm.write(model, path)
    found = pgm.read(path)
    layers = found.structure.layers
    assert {n: x.grid for n, x in layers.items() if x.is_array} == {
        "z": (3,),
        "s": (3, 2),
        "one": (1,),
    }
    assert found.variables == ["season"]
    want = ("marginals", "log_prob", "mode")
    one, two = (pgm.infer(m, EVIDENCE, want) for m in (model, found))
    np.testing.assert_allclose(one.log_prob, two.log_prob, rtol=1e-12)
    for name in ("z", "s", "one", "season"):
        np.testing.assert_array_equal(one.assignment()[name], two.assignment()[name])
        for state, p in one.marginal(name).items():
            np.testing.assert_allclose(p, two.marginal(name)[state], rtol=1e-12)
    for key, value in found.params.items():
        if key in model.params and value.shape == model.params[key].shape:
            np.testing.assert_array_equal(value, model.params[key])
    again = tmp_path / f"again.{suffix}"
    pgm.write(found, again)
    assert again.read_bytes() == path.read_bytes() or suffix.endswith("gz")


YES = ("no", "yes")
# Names of variables with their states -> the arrays among them.
NAMES = {
    "complete": ({"a[0]": YES, "a[1]": YES}, {"a": (2,)}),
    "in any order": ({"a[1]": YES, "b": YES, "a[0]": YES}, {"a": (2,)}),
    "two axes": ({f"a[{i},{j}]": YES for i in range(2) for j in range(3)}, {"a": (2, 3)}),
    "one": ({"a[0]": YES}, {"a": (1,)}),
    "two arrays": ({"a[0]": YES, "b[0]": ("x",), "b[1]": ("x",)}, {"a": (1,), "b": (2,)}),
    "a gap": ({"a[0]": YES, "a[2]": YES}, {}),
    "from one": ({"a[1]": YES, "a[2]": YES}, {}),
    "a hole in a grid": ({"a[0,0]": YES, "a[0,1]": YES, "a[1,0]": YES}, {}),
    "other states": ({"a[0]": YES, "a[1]": ("yes", "no")}, {}),
    "other axes": ({"a[0]": YES, "a[0,0]": YES}, {}),
    "a name beside": ({"a": YES, "a[0]": YES, "a[1]": YES}, {}),
    "text beside": ({"a[0]": YES, "a[1]": YES, "a[b]": YES}, {}),
    "a zero in front": ({"a[0]": YES, "a[01]": YES}, {}),
    "spaces": ({"a[0, 0]": YES, "a[0, 1]": YES}, {}),
    "a slice": ({"a[0:1]": YES}, {}),
    "brackets in the name": ({"a[0][0]": YES, "a[0][1]": YES}, {}),
    "no name": ({"[0]": YES, "[1]": YES}, {}),
    "behind": ({"a[0]x": YES, "a[1]x": YES}, {}),
    "not closed": ({"a[0": YES}, {}),
    "endless": ({"a[" + "9" * 5000 + "]": YES}, {}),
    "many axes": ({"a[" + ",".join("0" * 17) + "]": YES}, {}),
    "other digits": ({"a[\u0660]": YES}, {}),
}


@one_test_over("case", NAMES)
def test_only_whole_grids_of_equal_variables_are_arrays(case):
    variables, expected = NAMES[case]
    names, states = tuple(variables), tuple(variables.values())
    assert shapes_of(names, states) == expected
    rng = np.random.default_rng(0)
    tables = [rng.dirichlet(np.ones(len(own))) for own in states]
    model = build(Network(names, states, tuple((i, (), t) for i, t in enumerate(tables))))
    arrays = {n: x.grid for n, x in model.structure.layers.items() if x.is_array}
    assert arrays == expected
    r = pgm.infer(model)
    for name, own, table in zip(names, states, tables, strict=True):
        np.testing.assert_allclose([r.marginal(name)[state] for state in own], table)


def test_tables_of_arrays_in_networks():
    """A potential over variables of an array, as converters of other libraries give it."""
    names, table = ("a[0]", "a[1]", "b"), np.arange(1.0, 9.0).reshape(2, 2, 2)
    model = build(Network(names, (YES,) * 3, (), (((1, 2, 0), table), ((0,), [1.0, 3.0]))))
    p = table.transpose(2, 0, 1) * np.array([1.0, 3.0])[:, None, None]
    r = pgm.infer(model, want=(pgm.Joint("a", "b"),))
    np.testing.assert_allclose(r.joint["a", "b"], p / p.sum())

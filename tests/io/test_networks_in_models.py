"""Networks of tables as models: files and other libraries through the builder's declarations.

The answers are sums over all joint states, which are few.
"""

import numpy as np
import pytest
from loops import one_test_over
from small_networks import NAMES, RAIN, TEXTS, WET, WIND, drawn, network, same
from tiny import MODELS

import pgmengine as pgm
from pgmengine.declare.networks.tabular import Network
from pgmengine.io.formats import read, read_evidence, write_network
from pgmengine.io.network import build, network_of

JOINT = RAIN[:, None, None] * WIND[None, :, None] * WET


@pytest.mark.parametrize("suffix", TEXTS)
def test_a_model_is_read_from_every_format(suffix, tmp_path):
    path = tmp_path / f"m{suffix}"
    path.write_text(TEXTS[suffix])
    model = read(path)
    names = ("0", "1", "2") if suffix == ".uai" else NAMES
    yes = "0" if suffix == ".uai" else "yes"
    assert tuple(model.variables) == names
    posterior = JOINT[:, :, 0].sum(1) / JOINT[:, :, 0].sum()
    answer = pgm.infer(model, {names[2]: yes}).marginal(names[0])
    assert np.allclose(list(answer.values()), posterior)


def test_conditionals_have_z_of_1_and_tables_the_sum_of_their_product(tmp_path, seed=0):
    rng = np.random.default_rng(seed)
    assert np.allclose(pgm.infer(build(network()), want=("log_z",)).log_z, 0.0)
    for _ in range(5):
        n = drawn(rng, directed=False)
        total = np.einsum(*(x for t in n.tables for x in (t.values, list(t.scope))), [])
        assert np.allclose(pgm.infer(build(n), want=("log_z",)).log_z, np.log(total))


def test_evidence_of_a_file_is_taken_as_it_is(tmp_path):
    write_network(network(), tmp_path / "m.uai")
    (tmp_path / "m.uai.evid").write_text("2\n1 2 0\n2 2 1 0 0\n")
    evidence = read_evidence(tmp_path / "m.uai.evid")
    log_z = pgm.infer(read(tmp_path / "m.uai"), evidence, want=("log_prob",)).log_prob
    assert np.allclose(log_z, np.log([JOINT[:, :, 0].sum(), JOINT[0, :, 1].sum()]))


def test_evidence_of_a_file_for_models_with_arrows_and_layers(tmp_path):
    """Variables come first, then units of layers, whose states become values."""
    b = pgm.GraphBuilder()
    b.layer("g", pgm.Gaussian(1.0), 1)
    b.layer("h", pgm.Spin(), 2)
    b.layer("s", pgm.MultiValued(3), 2, labels=["p", "q"])
    b.variable("rain")
    b.variable("wet", states=3)
    b.cause("rain", "wet", weight=[[2.0, 0.0, -1.0]])
    b.couple("h", "s", weight=np.ones((2, 2)))
    model, path = b.build(), tmp_path / "m.uai.evid"
    path.write_text("2 0 1 1 2\n")
    assert read_evidence(path, model) == {"rain": 1, "wet": 2}
    assert pgm.infer(model, read_evidence(path, model), want=("log_prob",)).log_prob < 0
    path.write_text("2\n2 1 2 3 0\n2 4 1 5 2\n")
    found = read_evidence(path, model)
    assert set(found) == {"wet", "h", "p", "q"}
    assert np.array_equal(found["h"], [[np.nan, -1.0], [np.nan, np.nan]], equal_nan=True)
    p, q = model.structure.layers["s"].unit.support[[1, 2]]
    assert np.array_equal(found["p"], [np.nan, p], equal_nan=True)
    assert np.array_equal(found["q"], [np.nan, q], equal_nan=True)
    given = pgm.infer(model, found).mean
    assert given["h"][0, 1] == -1.0 and given["p"][1, 0] == p
    path.write_text("1 6 0\n")
    with pytest.raises(pgm.PgmError, match="expected a variable, an integer from 0 to 5"):
        read_evidence(path, model)


def test_rows_that_do_not_sum_to_1_are_refused_by_file(tmp_path):
    path = tmp_path / "m.bif"
    path.write_text(TEXTS[".bif"].replace("0.15, 0.85", "0.15, 0.75"))
    with pytest.raises(pgm.PgmError, match=f"^{path}: .*wet"):
        read(path)


def test_rows_of_files_may_be_rounded_to_six_digits(tmp_path):
    # Two states may be away from 1 by 1e-6 + 2 * 0.5e-6.
    for suffix, old, new in (
        (".bif", "0.15, 0.85", "0.15, 0.850002"),
        (".bif", "0.15, 0.85", "0.15, 0.849998"),
        (".uai", "0.15 0.85", "0.15 0.850002"),
    ):
        path = tmp_path / f"m{suffix}"
        assert old in TEXTS[suffix]
        path.write_text(TEXTS[suffix].replace(old, new))
        model = read(path)
        assert all(t.conditional for t in model.structure.tables)
        assert np.allclose(pgm.infer(model, want=("log_z",)).log_z, 0.0, atol=1e-14)
        yes = next(iter(pgm.infer(model).marginal(model.variables[2]).values()))
        assert abs(yes - JOINT[:, :, 0].sum()) < 2e-6
    path = tmp_path / "m.bif"
    path.write_text(TEXTS[".bif"].replace("0.15, 0.85", "0.15, 0.850003"))
    with pytest.raises(pgm.PgmError, match=f"^{path}: .*rain = no, wind = some sum to 1.000003"):
        read(path)


def test_random_networks_that_are_rounded_to_six_digits(seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(20):
        values = np.round(rng.dirichlet(np.ones(40), 3), 6)
        one = (0, (), np.round(rng.dirichlet(np.ones(3)), 6))
        states = tuple(tuple(f"s{k}" for k in range(n)) for n in (3, 40))
        model = build(Network(("a", "b"), states, (one, (1, (0,), values))))
        found = np.exp(model.params["b|a.table"])
        np.testing.assert_allclose(found, values / values.sum(1, keepdims=True), rtol=1e-12)


def drawn_model(rng, directed):
    return build(drawn(rng, directed=directed))


@pytest.mark.parametrize("suffix", [".bif", ".uai", ".uai.gz"])
@pytest.mark.parametrize("directed", [True, False])
def test_a_model_that_is_written_and_read_is_the_same(suffix, directed, tmp_path, seed=0):
    rng, path = np.random.default_rng(seed), tmp_path / f"m{suffix}"
    for _ in range(5):
        m = drawn_model(rng, directed)
        if suffix == ".bif" and not directed:
            with pytest.raises(pgm.PgmError, match=f"^{path}: the table of .* is a potential"):
                pgm.write(m, path)
            continue
        pgm.write(m, path)
        back = pgm.read(path)
        assert len(m.structure.tables) == len(back.structure.tables)
        for one, two in zip(m.structure.tables, back.structure.tables, strict=True):
            np.testing.assert_array_equal(m.params[one.key], back.params[two.key])
        assert same(network_of(m), network_of(back), names=suffix == ".bif")


def test_entries_of_a_network_come_back_with_the_digits_that_they_had():
    assert same(network(), network_of(build(network())))


def test_many_tables_and_variables_of_several_layers_keep_their_order():
    b = pgm.GraphBuilder()
    b.variable("a", states=3)
    b.layer("x", pgm.Spin(), 3)
    b.variable("b")
    b.tables(("x", "x"), [[0, 1], [2, 1]], [[1.0, 2.0], [3.0, 0.0]])
    b.conditional("b", ("a",), [[0.5, 0.5], [0.25, 0.75], [1.0, 0.0]])
    n = network_of(b.build())
    assert n.names == ("a", "b", "x[0]", "x[1]", "x[2]")
    assert [t.scope for t in n.tables] == [(2, 3), (4, 3)]
    assert n.conditionals[0].child == 1 and n.conditionals[0].parents == (0,)
    np.testing.assert_array_equal(n.tables[1].values, [[1.0, 2.0], [3.0, 0.0]])


FINITE = [
    m
    for m in MODELS
    if not m.directed and all(layer.unit.support is not None for layer in m.layers)
]


@one_test_over("tiny", FINITE)
def test_couplings_are_written_as_tables_with_the_same_sum(tiny, tmp_path):
    # Exponentials of larger weights are no numbers in double precision.
    m = tiny.build()
    if tiny.name == "rbm large weights":
        m = m.with_params({k: np.clip(v, -700, 700) for k, v in m.params.items()})
    pgm.write(m, tmp_path / "m.uai")
    one, two = (pgm.infer(x, want=("log_z",)).log_z for x in (m, pgm.read(tmp_path / "m.uai")))
    np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-12)


def large(weight):
    return pgm.rbm(2, 2, rng=0).with_params({"v-h.weight": np.full((2, 2), weight)})


@one_test_over(
    ("made", "name", "match"),
    [
        (lambda: pgm.sbn([2, 3], rng=0), "m.uai", "arrows '.*' cannot be written"),
        (lambda: pgm.rbm(2, 2, visible=pgm.Gaussian(), rng=0), "m.uai", "'v' has Gaussian"),
        (lambda: pgm.rbm(2, 2, rng=0), "m.bif", "is a potential, and .bif files"),
        (lambda: pgm.rbm(2, 2, rng=0), "m.net", "is a potential, and .net files"),
        (lambda: pgm.rbm(2, 2, rng=0), "m.xmlbif", "is a potential, and .xmlbif files"),
        (lambda: pgm.rbm(2, 2, rng=0), "m.dsl", "'.dsl' cannot be written"),
        (lambda: large(750.0), "m.uai", "'v-h': the exponential of 750 is no number"),
        (lambda: large(-750.0), "m.uai", "'v-h': the exponential of -750 is no number"),
    ],
)
def test_models_that_a_file_cannot_hold_are_refused(made, name, match, tmp_path):
    with pytest.raises(pgm.PgmError, match=f"^{tmp_path / name}: .*{match}"):
        pgm.write(made(), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_entries_beyond_double_precision_are_refused(tmp_path):
    m = pgm.rbm(1, 1, rng=0).with_params({"v-h.weight": [[800.0]]})
    with pytest.raises(pgm.PgmError, match="weight of 'v-h': the exponential of 800"):
        pgm.write(m, tmp_path / "m.uai")

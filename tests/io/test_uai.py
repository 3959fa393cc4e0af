"""Files of the UAI competitions: models and evidence, as they are read and written."""

import itertools
import math

import numpy as np
import pytest
from loops import one_test_over
from outside import folder
from small_networks import UAI, drawn, network, same

import pgmengine as pgm
from pgmengine.base.errors import PgmError
from pgmengine.declare.networks.tabular import Network
from pgmengine.io.formats import read_evidence, read_network, write_network
from pgmengine.io.uai import read_uai, read_uai_evidence, write_uai

MARKOV = "MARKOV\n3\n2 2 3\n2\n2 0 1\n2 1 2\n\n4\n 1 2\n 3 4\n\n6\n 1 0 2\n 5 1e-3 .5\n"


def test_the_last_variable_of_a_scope_is_fastest():
    n = read_uai(MARKOV)
    assert n.names == ("0", "1", "2") and n.states[2] == ("0", "1", "2")
    assert [t.scope for t in n.tables] == [(0, 1), (1, 2)] and not n.conditionals
    assert np.array_equal(n.tables[0].values, [[1, 2], [3, 4]])
    assert np.array_equal(n.tables[1].values, [[1, 0, 2], [5, 1e-3, 0.5]])


def test_the_last_variable_of_a_scope_of_a_bayes_file_is_the_child():
    assert same(read_uai(UAI), network(), names=False)


def test_scopes_in_any_order_comments_and_a_mark_of_byte_order(tmp_path):
    text = "markov # of Markov\n2 2 3\n1\n2 1 0\n6\n1 2 3 4 5 6 # the end"
    (tmp_path / "m.uai").write_bytes(b"\xef\xbb\xbf" + text.encode())
    table = read_network(tmp_path / "m.uai").tables[0]
    assert table.scope == (1, 0) and np.array_equal(table.values, [[1, 2], [3, 4], [5, 6]])


def test_constant_factors_and_variables_with_one_state():
    n = read_uai("MARKOV 2 1 2 2  0  2 0 1  1 0.25  2 3 4")
    assert n.tables[0].scope == () and n.tables[0].values == 0.25
    assert n.tables[1].values.shape == (1, 2)
    assert same(read_uai(write_uai(n)), n)


def test_variables_in_no_factor_have_no_more_states_than_the_file_has_numbers():
    """Each one alone, and all of them together, which a small file could have in millions."""
    with pytest.raises(PgmError, match="variable 0 has 99 states and is in no factor, expected at"):
        read_uai("MARKOV 1 99 0")
    assert read_uai("MARKOV 3 4 4 4 0").names == ("0", "1", "2")
    with pytest.raises(PgmError, match="in all such variables"):
        read_uai(f"MARKOV 300 {'300 ' * 300} 0")


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("suffix", [".uai", ".uai.gz"])
def test_a_written_network_is_read_as_the_same(directed, suffix, tmp_path, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(20):
        n = drawn(rng, directed=directed)
        write_network(n, tmp_path / f"m{suffix}")
        assert same(read_network(tmp_path / f"m{suffix}"), n, names=False)


def test_conditionals_beside_tables_are_written_as_factors():
    n = Network(("a", "b"), (("x", "y"),) * 2, ((0, (), [0.5, 0.5]),), (((1, 0), np.eye(2)),))
    again = read_uai(write_uai(n))
    assert [t.scope for t in again.tables] == [(0,), (1, 0)] and not again.conditionals


@one_test_over(
    ("text", "expected"),
    [
        ("0", {}),
        ("0\n", {}),
        ("1\n0", {}),
        ("1 0 1", {"0": 1}),
        ("2 0 1 3 0", {"0": 1, "3": 0}),
        ("1\n2 0 1 3 0", {"0": 1, "3": 0}),
        ("1 1 3 0", {"3": 0}),
        ("2\n1 3 0\n1 3 1", {"3": [0, 1]}),
        ("2\n1 0 1\n2 0 0 3 1", {"0": [1, 0], "3": [math.nan, 1]}),
        ("3\n0\n0\n1 7 2", {"7": [math.nan, math.nan, 2]}),
    ],
)
def test_evidence_in_both_conventions(text, expected, tmp_path):
    path = tmp_path / "m.uai.evid"
    path.write_text(text)
    found = read_evidence(path)
    assert found.keys() == expected.keys()
    for name, states in found.items():
        assert np.array_equal(states, expected[name], equal_nan=True)
        assert isinstance(states, int) or states.shape == (int(text.split()[0]),)


def test_evidence_is_checked_against_a_model_and_has_its_names(tmp_path):
    path = tmp_path / "m.uai.evid"
    b = pgm.GraphBuilder()
    for name, states in [("p", "ab"), ("q", "ab"), ("r", "abc")]:
        b.variable(name, states=list(states))
    model = b.build()
    path.write_text("1\n1\n2 2\n")
    assert read_evidence(path, model) == {"r": "c"}
    path.write_text("1\n1\n2 3\n")
    with pytest.raises(PgmError, match=rf"^{path}: line 3, word 4 \('3'\).*state of variable 2"):
        read_evidence(path, model)
    path.write_text("1 3 0")
    with pytest.raises(PgmError, match="a variable, an integer from 0 to 2"):
        read_evidence(path, model)


@one_test_over("unit", [pgm.Spin(), pgm.MultiValued(3), pgm.MultiValued(2)], ids=repr)
def test_evidence_of_layers_has_the_values_of_their_units(unit, tmp_path):
    """Also where these are fractions."""
    path = tmp_path / "m.uai.evid"
    path.write_text("1 0 1")
    b = pgm.GraphBuilder()
    b.layer("L", unit, 2)
    model = b.build()
    assert pgm.infer(model, read_evidence(path, model)).mean["L"][0] == unit.support[1]


@one_test_over(
    ("text", "match"),
    [
        ("", "is empty"),
        ("1 5", "10 variables and states are declared, but only 0"),
        ("2 0 1", "2 variables and states are declared"),
        ("2 0 1 0 1", r"line 1, word 4 \('0'\): variable 0 is observed twice"),
        ("-1", r"word 1 \('-1'\): expected the number"),
        ("x", r"word 1 \('x'\): expected the number"),
        ("1 -1 0", r"word 2 \('-1'\): expected a variable, an integer of at least 0"),
        ("1 0 0.5", r"word 3 \('0.5'\): expected a state of variable 0"),
        ("1 0 nan", r"word 3 \('nan'\)"),
        ("1000000000000", "1000000000000 samples"),
        ("2 0 0", "none of 2 samples observes a variable"),
        ("3\n0\n0\n0\n", r"line 4, word 4 \('0'\): none of 3 samples observes a variable"),
        ("1 1 0 1 7", r"word 5 \('7'\): expected the end of the file"),
    ],
)
def test_malformed_evidence(text, match):
    with pytest.raises(PgmError, match=match):
        read_uai_evidence(text)


def changed(old, new):
    assert old in MARKOV
    return MARKOV.replace(old, new, 1)


BAYES = "BAYES 2 2 2 2  {}  {}  2 0.5 0.5  4 0.5 0.5 0.5 0.5"
MALFORMED = [
    ("POTTS 1 2 0", r"word 1 \('POTTS'\): expected MARKOV or BAYES"),
    ("\x89PNG", r"expected MARKOV or BAYES"),
    ("MARKOV", "the file ends, expected the number of variables"),
    ("MARKOV 0 0", r"word 2 \('0'\): expected the number of variables, an integer of at least 1"),
    ("MARKOV 1000000000000 2", "1000000000000 numbers of states are declared, but only 1"),
    ("MARKOV 1e300 2", r"word 2 \('1e300'\): expected the number of variables"),
    ("MARKOV 1 99999999 0", r"word 3 \('99999999'\): variable 0 has 99999999 states"),
    ("MARKOV 1_0 2", r"word 2 \('1_0'\)"),
    (changed("2 2 3", "2 -2 3"), r"line 3, word 4 \('-2'\): expected numbers of states"),
    (changed("2 2 3", "2 0 3"), r"line 3, word 4 \('0'\): expected numbers of states"),
    (changed("\n2\n", "\n2000000000000\n"), "2000000000000 factors are declared, but only"),
    (changed("2 1 2", "3000 1 2"), r"line 6, word 10 \('3000'\): .*variables of factor 1"),
    (changed("2 1 2", "2 1 3"), r"line 6, word 12 \('3'\): expected variables of factor 1, an "),
    (changed("2 1 2", "2 1 1"), r"line 6.*twice in the scope of factor 1"),
    (changed("\n4\n", "\n5\n"), r"line 8, word 13 \('5'\): factor 0 has 5 entries, expected 4"),
    (changed("3 4", "3 -4"), r"line 10, word 17 \('-4'\): entry 3 of factor 0, expected a finite"),
    (changed("3 4", "3 nan"), r"line 10, word 17 \('nan'\): entry 3"),
    (changed("3 4", "inf 4"), r"line 10, word 16 \('inf'\): entry 2"),
    (changed("3 4", "3 1e999"), r"\('1e999'\): entry 3"),
    (changed("3 4", "3 four"), r"line 10, word 17 \('four'\): entry 3"),
    (changed(" .5", ""), "6 entries of factor 1 are declared, but only 5 numbers follow"),
    (MARKOV + " 7", r"line 15, word 25 \('7'\): expected the end of the file"),
    (BAYES.format("1 0", "2 1 0"), r"word 8 .*variable 0 is the child .* of factors 0 and 1"),
    ("BAYES 2 2 2 1  1 0  2 0.5 0.5", "variable 1 is the child .* of no factor; write MARKOV"),
    ("BAYES 2 2 2 2  0  1 0  1 1  2 0.5 0.5", r"factor 0 of a BAYES file has no child"),
    (
        "BAYES 2 2 2 2  2 0 1  2 1 0  4 .5 .5 .5 .5  4 .5 .5 .5 .5",
        "directed cycle: (0 -> 1 -> 0|1 -> 0 -> 1); remove an arc",
    ),
]  # fmt: skip


@one_test_over(("text", "match"), MALFORMED, ids=lambda x: x[:30].replace("\n", " "))
def test_malformed_models_are_refused_by_file_and_place(text, match, tmp_path):
    path = tmp_path / "m.uai"
    path.write_text(text)
    with pytest.raises(PgmError, match=f"^{path}: .*{match}"):
        read_network(path)


def test_a_file_that_is_cut_short_anywhere_is_refused():
    words = MARKOV.split()
    for k in range(len(words)):
        with pytest.raises(PgmError):
            read_uai(" ".join(words[:k]))


def log_z(n, evidence=()):
    """The sum over all states of the product of all tables."""
    total, clamped = 0.0, dict(evidence)
    factors = [((*c.parents, c.child), c.values) for c in n.conditionals] + list(n.tables)
    ranges = [
        [clamped[name]] if name in clamped else range(len(own))
        for name, own in zip(n.names, n.states)
    ]
    for x in itertools.product(*ranges):
        total += math.prod(float(values[tuple(x[i] for i in s)]) for s, values in factors)
    return math.log(total)


def test_the_product_of_the_factors_by_hand():
    # sum over b of (column sums of the first table) (row sums of the second one)
    assert math.isclose(log_z(read_uai(MARKOV)), math.log(4 * 3 + 6 * 5.501))
    assert math.isclose(log_z(read_uai(UAI)), 0.0, abs_tol=1e-12)


def test_the_competition_of_2014():
    """Every instance is read, with as many numbers as it has, and written as the same."""
    files = sorted(folder("uai2014").glob("*.uai.gz"))
    assert files
    for path in [p for p in files if p.stat().st_size < 3_000]:
        n = read_network(path)
        assert same(read_uai(write_uai(n)), n)
        read_evidence(path.with_name(path.name.replace(".uai.gz", ".uai.evid.gz")), pgm.read(path))


def test_an_instance_of_the_competition_number_by_number():
    """An independent reading of one instance, number by number."""
    import gzip

    path = folder("uai2014") / "Grids_12.uai.gz"
    words = iter(gzip.decompress(path.read_bytes()).decode().split())
    n = read_network(path)
    assert next(words) == "MARKOV"
    sizes = [int(next(words)) for _ in range(int(next(words)))]
    scopes = [
        tuple(int(next(words)) for _ in range(int(next(words)))) for _ in range(int(next(words)))
    ]
    assert [len(own) for own in n.states] == sizes and [t.scope for t in n.tables] == scopes
    for table in n.tables:
        assert int(next(words)) == table.values.size
        for x in itertools.product(*(range(sizes[i]) for i in table.scope)):
            assert table.values[x] == float(next(words))
    assert next(words, None) is None

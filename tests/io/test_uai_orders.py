"""Files of .uai in the orders that aGrUM and pgmpy write, and rows that do not sum to 1."""

import itertools

import numpy as np
import pytest
from loops import one_test_over
from small_networks import NAMES, STATES, UAI, drawn, network, same

import pgmengine as pgm
from pgmengine.base.errors import PgmError
from pgmengine.declare.networks.tabular import Network
from pgmengine.io.formats import read_network
from pgmengine.io.uai import read_uai, write_uai


def agrum(n):
    """The text of a network as aGrUM writes it: the child fastest, then the first parent."""
    sizes = [len(own) for own in n.states]
    scopes = [" ".join(map(str, [len(c.parents) + 1, *c.parents, c.child])) for c in n.conditionals]
    text = f"BAYES\n{len(sizes)}\n{''.join(f'{k} ' for k in sizes)}\n{len(sizes)}\n"
    text += "".join(f"{s}   # {n.names[c.child]}\n" for s, c in zip(scopes, n.conditionals)) + "\n"
    for c in n.conditionals:
        text += f"\n{c.values.size}\n"
        ranges = [range(sizes[i]) for i in c.parents[::-1]]
        for states in itertools.product(*ranges):
            text += f"  {' '.join(map(repr, c.values[states[::-1]].tolist()))} \n"
    return text + "\n"


def pgmpy(n):
    """The text of a network as pgmpy writes it: the first variable of a scope is fastest."""
    sizes = [len(own) for own in n.states]
    text = f"BAYES\n{len(sizes)}\n{' '.join(map(str, sizes))}\n{len(sizes)}\n"
    for c in n.conditionals:
        text += " ".join(map(str, [len(c.parents) + 1, *c.parents, c.child])) + "\n"
    text += "\n"
    for c in n.conditionals:
        entries = []
        for states in itertools.product(*map(range, c.values.shape[::-1])):
            entries.append(repr(float(c.values[states[::-1]])))
        text += f"{c.values.size}\n{' '.join(entries)}\n"
    return text[:-1]


@pytest.mark.parametrize("write", [agrum, pgmpy])
def test_orders_of_other_programs(write, tmp_path, seed=0):
    rng = np.random.default_rng(seed)
    for n in [network(), *(smooth(drawn(rng), rng) for _ in range(30))]:
        text = write(n)
        for changed in (text, text.replace("\n", "\r\n"), text + "\n"):
            (tmp_path / "m.uai").write_bytes(changed.encode())
            assert same(read_network(tmp_path / "m.uai"), n, names=False)


def smooth(n, rng):
    """The network with other entries, so that rows in a wrong order do not sum to 1 by chance."""
    for c in n.conditionals:
        drawn_rows = rng.dirichlet(np.ones(c.values.shape[-1]), c.values.shape[:-1])
        c.values[...] = drawn_rows if c.values.shape[-1] > 1 else 1.0
    return n


def commented(text):
    """A text with the numbers of a scope's variables behind each scope, but in another layout."""
    lines = text.splitlines()
    n = int(lines[1])
    for k in range(4, 4 + n):
        lines[k] += f" # x{k}"
    return "\n".join(lines)


def test_scopes_with_remarks_are_refused_where_orders_differ():
    """Only the letter of the layout tells aGrUM; a file that resembles it could be either."""
    text = agrum(network())
    for changed in (
        text.replace("   #", " #"),
        text.replace("2 3 2 \n", "2 3 2\n"),
        text.lower(),
        commented(UAI),
    ):
        with pytest.raises(
            PgmError, match=r"line 7, word \d+ .*as in files of aGrUM.*remove the r"
        ):
            read_uai(changed)
    # One parent at most, or equal readings: the orders are the same.
    one = "BAYES 2 2 3 2\n1 0 # a\n2 0 1 # b\n 2 .5 .5  6 1 0 0 .2 .3 .5"
    assert read_uai(one).conditionals[1].values.tolist() == [[1, 0, 0], [0.2, 0.3, 0.5]]
    # A remark behind some of the scopes, or elsewhere, tells nothing.
    assert same(read_uai(UAI.replace("3 0 1 2", "3 0 1 2 # wet")), network(), names=False)
    assert same(read_uai(UAI.replace("12\n", "12 # wet\n")), network(), names=False)


def test_markov_files_of_agrum_are_refused():
    text = "MARKOV\n3 # nbr Nodes\n2 3 2 \n{} # nbr Factors \n{}\n\n{}"
    pair = text.format(1, "2 1 0 ", "6 # {0, 1}\n  1 2 \n  3 4 \n  5 6 \n")
    with pytest.raises(PgmError, match=r"line 5, word 7 .*a MARKOV file of aGrUM.*from_pyagrum"):
        read_uai(pair)
    single = text.format(1, "1 1 ", "3 # {1}\n  1 2 3 \n")
    assert read_uai(single).tables[0].values.tolist() == [1, 2, 3]
    assert read_uai(pair.replace("# nbr Nodes", "# nodes")).tables[0].scope == (1, 0)


def test_rows_in_the_order_of_pgmpy_and_another_layout_are_refused():
    text = pgmpy(network())
    for changed in (" ".join(text.split()), text.replace("\n12\n", "\n\n12\n"), text + " # end"):
        with pytest.raises(PgmError, match=r"word \d+ .*with the child, .* slowest"):
            read_uai(changed)


def test_a_layout_of_pgmpy_with_rows_in_both_orders_is_refused_where_they_differ():
    swap = "BAYES\n2\n3 3\n2\n1 0\n2 0 1\n\n3\n.2 .3 .5\n9\n"
    with pytest.raises(PgmError, match="layout of pgmpy.* which differ"):
        read_uai(swap + "0 1 0 0 0 1 1 0 0")
    alike = read_uai(swap + "0 1 0 1 0 0 0 0 1")
    assert alike.conditionals[1].values.tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1]]
    other = read_uai((swap + "0 1 0 0 0 1 1 0 0").replace("9\n", "9 "))
    assert other.conditionals[1].values.tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]


@one_test_over("row", ["0.25 0.65", "0.25 0.7499", "0 0", "1 1", "0.25 0.76"])
@pytest.mark.parametrize("write", [write_uai, agrum, pgmpy])
def test_rows_of_bayes_files_never_become_potentials(row, write, tmp_path):
    wet = network().conditionals[2].values.copy()
    wet[1, 2] = list(map(float, row.split()))
    n = Network(NAMES, STATES, (*network().conditionals[:2], (2, (0, 1), wet)))
    (tmp_path / "m.uai").write_text(write(n))
    total = f"{sum(map(float, row.split())):.9g}"
    with pytest.raises(
        PgmError,
        match=r"m.uai: line \d+, word \d+ .*sums to "
        + ("" if write is pgmpy else total + ", expected 1.*MARKOV in place of BAYES"),
    ):
        pgm.read(tmp_path / "m.uai")
    text = write_uai(n).replace("BAYES", "MARKOV")
    assert same_tables(read_uai(text), n)


def same_tables(n, of):
    """Whether a network of tables has the entries of these conditionals."""
    return all(np.array_equal(t.values, c.values) for t, c in zip(n.tables, of.conditionals))


def test_the_line_of_a_row_that_does_not_sum_to_1():
    text = UAI.replace("0.15 0.85", "0.15 0.8")
    with pytest.raises(
        PgmError, match=r"line 20, word 31 \('0.15'\): factor 2, variable 2: row 4, w"
    ):
        read_uai(text)


# Parts of pyAgrum that are loaded late crash where their own warnings are errors.
@pytest.mark.filterwarnings("ignore")
def test_files_that_pyagrum_writes(tmp_path):
    gum = pytest.importorskip("pyagrum", reason="pyagrum is not installed: pip install pyagrum")
    path = str(tmp_path / "m.uai")
    for seed in range(5):
        gum.initRandom(seed + 1)
        net = gum.randomBN(n=7, ratio_arc=1.6, domain_size=3)
        gum.saveBN(net, path)
        for c in read_network(path).conditionals:
            cpt = gum.Tensor(net.cpt(c.child))
            for entry in gum_entries(gum, cpt):
                at = tuple(entry[net.variable(i).name()] for i in (*c.parents, c.child))
                assert abs(c.values[at] - cpt[entry]) < 1e-5
    mrf = gum.fastMRF("a{u|v}--b{x|y|z}--c; c--d")
    mrf.generateFactors()
    gum.saveMRF(mrf, path)
    with pytest.raises(PgmError, match="a MARKOV file of aGrUM"):
        read_network(path)


def gum_entries(gum, tensor):
    """The states of every entry of a tensor, by the names of its variables."""
    i = gum.Instantiation(tensor)
    i.setFirst()
    while not i.end():
        yield i.todict()
        i.inc()


# Importing pgmpy takes seconds.
@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_files_that_pgmpy_writes(tmp_path):
    pytest.importorskip("pgmpy", reason="pgmpy is not installed: pip install pgmpy")
    models = pytest.importorskip("pgmpy.models", reason="pgmpy lacks some of its dependencies")
    from pgmpy.factors.discrete import TabularCPD

    model = models.DiscreteBayesianNetwork([("a", "b"), ("c", "b")])
    model.add_cpds(TabularCPD("a", 2, [[0.2], [0.8]]), TabularCPD("c", 3, [[0.5], [0.3], [0.2]]))
    wet = network().conditionals[2].values
    model.add_cpds(TabularCPD("b", 2, wet.reshape(6, 2).T, ["a", "c"], [2, 3]))
    model.save(str(tmp_path / "m.uai"), filetype="uai")
    n = read_network(tmp_path / "m.uai")
    # pgmpy numbers variables by their numbers of states, then by their names: a, b, c.
    found = {c.child: (c.parents, c.values) for c in n.conditionals}
    assert found[1][0] == (2, 0) and np.array_equal(found[1][1], wet.transpose(1, 0, 2))

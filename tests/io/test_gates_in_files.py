"""Noisy gates in files: GeNIe's kinds of nodes, against formulas, and models with gates."""

import json
import math
from itertools import product

import numpy as np
import pytest
from loops import one_test_over

import pgmengine as pgm
from pgmengine import PgmError
from pgmengine.base.files import read_tensors, write_tensors
from pgmengine.declare.stored_forms import same_form
from pgmengine.io.formats import read_network
from pgmengine.io.xml.xdsl import read_xdsl
from pgmengine.model.forms.table_forms import Formed

ROOTS = """<smile version="1.0"><nodes>
<cpt id="p"><state id="hi"/><state id="mid"/><state id="lo"/>
  <probabilities>0.2 0.3 0.5</probabilities></cpt>
<cpt id="q"><state id="no"/><state id="yes"/><probabilities>0.6 0.4</probabilities></cpt>
"""
STATES = '<state id="strong"/><state id="weak"/><state id="none"/>'
END = "</nodes></smile>"


def node(kind, inside, parents="p q", states=STATES):
    """A file with two roots, and one more node, which begins at line 5."""
    given = f"<parents>{parents}</parents>" if parents else ""
    return f'{ROOTS}<{kind} id="y">{states}{given}{inside}</{kind}>\n{END}'


def conditional(text):
    """The conditional of y as an array, and the network."""
    network = read_xdsl(text)
    (found,) = (c for c in network.conditionals if network.names[c.child] == "y")
    assert [network.names[i] for i in found.parents] == ["p", "q"]
    return network.table_of(found), network, found


def test_deterministic_nodes():
    results = "strong weak none none weak weak"
    found, network, one = conditional(
        node("deterministic", f"<resultingstates>{results}</resultingstates>")
    )
    order = ["strong", "weak", "none"]
    expected = np.eye(3)[[order.index(x) for x in results.split()]].reshape(3, 2, 3)
    assert np.array_equal(found, expected) and not isinstance(one.values, Formed)


def test_a_deterministic_node_without_parents():
    text = node("deterministic", "<resultingstates>weak</resultingstates>", parents="")
    network = read_xdsl(text)
    assert network.conditionals[-1].values.tolist() == [0, 1, 0]


# Columns of p from its strongest state to the one without effect, then of q, then of the leak.
COLUMNS = np.array(
    [
        [0.7, 0.2, 0.1],
        [0.1, 0.3, 0.6],
        [0.0, 0.0, 1.0],
        [0.4, 0.4, 0.2],
        [0.0, 0.0, 1.0],
        [0.05, 0.05, 0.9],
    ]
)
PARAMETERS = " ".join(map(str, COLUMNS.ravel()))


def strongest(p, q):
    """The distribution of the strongest effect, the first one, by all effects one by one."""
    out = np.zeros(3)
    for effects in product(range(3), repeat=3):
        weight = math.prod(row[k] for row, k in zip((p, q, COLUMNS[-1]), effects, strict=True))
        out[min(effects)] += weight
    return out


@one_test_over(
    ("strengths", "p_order", "q_order"),
    [
        ("", (0, 1, 2), (0, 1)),
        ("<strengths>0 1 2 1 0</strengths>", (0, 1, 2), (1, 0)),
        # Not its own inverse: the strongest state of p is its last one, then its first one.
        ("<strengths>2 0 1 1 0</strengths>", (2, 0, 1), (1, 0)),
    ],
)
def test_noisymax_nodes(strengths, p_order, q_order):
    found, _, one = conditional(
        node("noisymax", f"{strengths}<parameters>{PARAMETERS}</parameters>")
    )
    assert isinstance(one.values, Formed)
    for i, p in enumerate(p_order):
        for j, q in enumerate(q_order):
            assert np.allclose(found[p, q], strongest(COLUMNS[i], COLUMNS[3 + j]), atol=1e-15)


def test_noisyadder_nodes():
    weights = "<dstates>2 1 2</dstates><weights>1 2 0.5</weights>"
    for function in ("", "<function>average</function>"):
        inside = f"{weights}{function}<parameters>{PARAMETERS}</parameters>"
        found, _, one = conditional(node("noisyadder", inside))
        assert isinstance(one.values, Formed)
        for p, q in product(range(3), range(2)):
            mixed = (COLUMNS[p] + 2 * COLUMNS[3 + q] + 0.5 * COLUMNS[5]) / 3.5
            assert np.allclose(found[p, q], mixed, atol=1e-15)


def test_a_noisymax_with_many_parents_is_not_expanded(tmp_path):
    """A file of a few kilobytes with 2^80 joint states, and a child with causes of its own."""
    n, text = 80, "<smile><nodes>"
    names = [f"x{i}" for i in range(n)]
    for name in names:
        text += f'<cpt id="{name}"><state id="on"/><state id="off"/>'
        text += "<probabilities>0.1 0.9</probabilities></cpt>\n"
    text += '<noisymax id="y"><state id="on"/><state id="off"/>'
    text += f"<parents>{' '.join(names)}</parents><parameters>{'0.3 0.7 0 1 ' * n}0.01 0.99"
    text += "</parameters></noisymax></nodes></smile>"
    path = tmp_path / "m.xdsl"
    path.write_text(text)
    model = pgm.read(path)
    r = pgm.infer(model, want=("marginals",))
    assert np.isclose(r.marginal("y")["off"], 0.99 * 0.97**n, rtol=1e-9)
    assert r.stats["entries"] <= 8 * n
    with pytest.raises(PgmError, match=r"2.42e.24 joint states, all of which a file would list"):
        pgm.write(model, tmp_path / "m.bif")


WRONG = (
    ("deterministic", "<resultingstates>weak</resultingstates>", r"line 5: .*1 states, expected 6"),
    (
        "deterministic",
        "<resultingstates>weak weak weak weak weak wek</resultingstates>",
        r"line 5: 'wek' is no state of 'y'; did you mean weak",
    ),
    ("deterministic", "", r"line 5: <deterministic> has 0 elements <resultingstates>, expected 1"),
    ("noisymax", "<parameters>0.5 0.5</parameters>", r"2 numbers, expected 18, a column for each"),
    (
        "noisymax",
        f"<parameters>{PARAMETERS.replace('0.7', '0.6', 1)}</parameters>",
        r"line 5: column 1 of <parameters> sums to 0.9, expected 1",
    ),
    (
        "noisymax",
        f"<strengths>0 1 1 0 1</strengths><parameters>{PARAMETERS}</parameters>",
        r"line 5: the strengths of 'p' are \[0, 1, 1\], expected each of 0 to 2 once",
    ),
    (
        "noisymax",
        f"<strengths>0 1</strengths><parameters>{PARAMETERS}</parameters>",
        r"line 5: <strengths> is '0 1', expected 5 whole numbers",
    ),
    (
        "noisyadder",
        f"<weights>1 1 1</weights><function>single_fault</function>"
        f"<parameters>{PARAMETERS}</parameters>",
        r"line 5: a noisyadder with the function 'single_fault', expected average",
    ),
    (
        "noisyadder",
        f"<weights>1 1</weights><parameters>{PARAMETERS}</parameters>",
        r"line 5: <weights> has 2 numbers, expected 3, for each parent, and for the leak",
    ),
    (
        "noisyadder",
        f"<weights>0 0 0</weights><parameters>{PARAMETERS}</parameters>",
        r"line 5: the noisyadder of 'y': all weights are 0",
    ),
    (
        "noisyadder",
        f"<mode>1</mode><weights>1 1 1</weights><parameters>{PARAMETERS}</parameters>",
        r"line 5: a node <mode>, expected",
    ),
)


@one_test_over(("kind", "inside", "message"), WRONG)
def test_wrong_nodes_are_named(kind, inside, message):
    with pytest.raises(PgmError, match=message):
        read_xdsl(node(kind, inside))


def test_rounded_columns_need_a_tolerance(tmp_path):
    path = tmp_path / "m.xdsl"
    path.write_text(
        node("noisymax", f"<parameters>{PARAMETERS.replace('0.7', '0.699')}</parameters>")
    )
    with pytest.raises(PgmError, match="give read a tolerance"):
        pgm.read(path)
    network = read_network(path, 0.01)
    values = network.table_of(network.conditionals[-1])
    assert np.allclose(values.sum(axis=-1), 1)


def alarm(parents):
    """A noisy-or of some parents."""
    b = pgm.GraphBuilder()
    names = [f"x{i}" for i in range(parents)]
    for name in names:
        b.variable(name, states=("no", "yes"))
        b.conditional(name, (), [0.7, 0.3])
    b.variable("y", states=("no", "yes"))
    b.conditional("y", names, pgm.noisy_or(np.linspace(0.1, 0.9, parents), 0.02))
    return b.build()


@pytest.mark.parametrize("parents", [3, 30])
def test_saved_models_keep_their_gates(parents, tmp_path):
    path, model = tmp_path / "m.safetensors", alarm(parents)
    pgm.save(model, path)
    loaded = pgm.load(path)
    assert read_tensors(path)[1]["format"] == "pgmengine-7"
    (one,), (two,) = model.structure.gates, loaded.structure.gates
    assert one.store == two.store and one.layers == two.layers
    assert np.array_equal(one.index, two.index) and same_form(one.form, two.form)
    assert np.array_equal(model.params[one.key], loaded.params[two.key])
    assert len(loaded.structure.compact_gates) == (parents == 30)
    asked = [pgm.infer(m, {"y": "yes"}, ("log_prob",)).log_prob[0] for m in (model, loaded)]
    assert asked[0] == asked[1]
    trained = pgm.fit(model, {"y": ["yes", "no"]}, updates=1, progress=False).model
    pgm.save(trained, path)
    again = pgm.load(path)
    assert again.training is not None and list(again.params) == list(trained.params)
    assert all(np.array_equal(again.params[key], trained.params[key]) for key in trained.params)


@one_test_over(
    ("at", "number", "message"),
    [
        (0, 9, "its form does not fit its numbers"),
        (0, 0, "its form has the sizes"),
        (1, 1, "its form does not fit its numbers"),
        (3, 2, "the steps of its gate do not fit each other"),
        (5, 3, "the steps of its gate do not fit each other"),
        (6, 2, "its form does not fit its numbers"),
        (9, -1, "the forms of the tables|its form does not fit"),
        (-1, 2, "its form does not fit its numbers"),
        (None, None, "its form does not fit its numbers"),
    ],
)
def test_damaged_gates_are_refused(at, number, message, tmp_path):
    path = tmp_path / "m.safetensors"
    pgm.save(alarm(3), path)
    tensors, metadata = read_tensors(path)
    forms = tensors["tables/forms"].copy()
    if at is None:
        forms = forms[:-1]
    else:
        forms[at] = number
    write_tensors(path, tensors | {"tables/forms": forms}, metadata)
    with pytest.raises(PgmError, match=message):
        pgm.load(path)


def earlier_links(kind):
    """The links of a gate with two parents, as files of earlier versions have them."""
    rng = np.random.default_rng(4)
    tables = rng.dirichlet(np.ones(3), (2, 2))
    start, states = rng.dirichlet(np.ones(3)), np.arange(3)
    links = []
    for table in tables:
        link = np.zeros((3, 2, 3))
        for before, parent, d in product(range(3), range(2), range(3)):
            after = max(before, d) if kind == "max" else min(before, d)
            link[before, parent, after] += table[parent, d]
        links.append(link if kind != "any" else rng.dirichlet(np.ones(3), (3, 2)))
    whole = np.einsum("a,axb,byc->xyc", start, *links)
    return start, links, whole, states


@pytest.mark.parametrize("kind", ["max", "min", "any"])
@pytest.mark.parametrize("learned", [False, True])
def test_gates_of_earlier_files(kind, learned, tmp_path):
    """A file of format 6 has the links of a gate, and a table, which learning had changed."""
    start, links, whole, _ = earlier_links(kind)
    b = pgm.GraphBuilder()
    for name, count in (("p", 2), ("q", 2), ("y", 3)):
        b.variable(name, states=count)
    for name in "pq":
        b.conditional(name, (), [0.3, 0.7])
    values = np.full(whole.shape, 1 / 3) if learned else whole
    b.conditional("y", ("p", "q"), values)
    path = tmp_path / "m.safetensors"
    pgm.save(b.build(), path)
    tensors, metadata = read_tensors(path)
    declaration = json.loads(metadata["declaration"])
    record = {"name": "y|p,q", "units": [0, 1, 2]}
    record |= {"start": start.tolist(), "links": [link.tolist() for link in links]}
    declaration["gates"] = [record]
    metadata |= {"declaration": json.dumps(declaration), "format": "pgmengine-6"}
    write_tensors(path, tensors, metadata)
    model = pgm.load(path)
    assert len(model.structure.gates) == (not learned)
    for p, q in product(range(2), range(2)):
        found = [*pgm.infer(model, {"p": p, "q": q}).marginal("y").values()]
        assert np.allclose(found, values[p, q], rtol=0, atol=1e-12)
    if not learned:
        # The rows of a noisy-max are those of its parents' states; other links have rows of theirs.
        assert model.structure.gates[0].form.size[0] == (13 if kind == "any" else 5)


@one_test_over("suffix", [".bif", ".xmlbif", ".net", ".uai"])
def test_written_files_have_the_whole_table(suffix, tmp_path):
    model, path = alarm(4), tmp_path / f"m{suffix}"
    pgm.write(model, path)
    read = pgm.read(path)
    key = next(key for key in read.params if key.count(",") == 3)
    assert np.array_equal(read.params[key], model.entries_of(model.structure.gates[0]))


@pytest.mark.parametrize("parents", [4, 30])
def test_graphs_of_networkx_keep_gates(parents):
    model = alarm(parents)
    again = pgm.GraphBuilder.from_networkx(model.to_networkx("variables")).build()
    assert len(again.structure.compact_gates) == (parents == 30)
    asked = [pgm.infer(m, {"y": "yes"}, ("log_prob",)).log_prob[0] for m in (model, again)]
    assert abs(asked[0] - asked[1]) < 1e-12
    assert again.variables == model.variables

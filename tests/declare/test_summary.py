"""Models, results and fits introduce themselves by what a user declared, cut to a screen."""

import html
import math
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from chains_of_units import of_variables
from loops import one_test_over
from registry import METHODS
from scipy.sparse import csr_array

import pgmengine as pgm
from pgmengine.base.display import MOST_LINES, MOST_ROWS
from pgmengine.model.headline import parameters

# Names that the package gives to layers that hold variables.
STORAGE = re.compile(r"variables\d")


def variables(count=6, name="x{}"):
    """A chain of variables of two and of three states by turns."""
    return of_variables(count, (("no", "yes"), ("low", "mid", "high")), name)


def factors():
    """Variables that potentials join."""
    b = pgm.GraphBuilder()
    for name in "abc":
        b.variable(name, states=("no", "yes"))
    b.variable("d", states=4)
    b.table(("a", "b"), [[1, 2], [3, 4]])
    b.table(("b", "c", "d"), np.ones((2, 2, 4)))
    return b.build()


def mixed():
    """Variables and a layer, with tables, arrows and a coupling."""
    b = pgm.GraphBuilder()
    for name in ("rain", "wet", "cold"):
        b.variable(name, states=("no", "yes"))
    b.layer("h", pgm.Binary(), 5)
    b.couple("rain", "h")
    b.cause("rain", "wet", weight=[[0.5]])
    b.conditional("cold", ("rain",), [[0.5, 0.5], [0.1, 0.9]])
    return b.build(rng=0)


def steps():
    """A hidden Markov model that is built by hand from units of layers."""
    b = pgm.GraphBuilder()
    b.layer("z", pgm.Categorical(3), 4)
    b.layer("x", pgm.Binary(), 4, labels="abcd", states=("off", "on"))
    b.conditional(("z", 0), (), [0.2, 0.3, 0.5])
    for i in range(4):
        if i:
            b.conditional(("z", i), (("z", i - 1),), np.full((3, 3), 1 / 3))
        b.conditional(("x", i), (("z", i),), [[0.1, 0.9], [0.5, 0.5], [0.9, 0.1]])
    return b.build()


def lonely():
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Spin(), 7)
    return b.build()


HEADS = {
    "network": (variables, "Bayesian network: 6 variables, 5 arrows, 19 parameters"),
    "steps": (steps, "Bayesian network: 2 layers, 7 arrows, 32 parameters"),
    "factors": (factors, "Factor graph: 4 variables, 2 tables, 20 parameters"),
    "mixed": (mixed, "Graphical model: 3 variables, 1 layer, 2 arrows, 1 coupling, 15 parameters"),
    "rbm": (
        lambda: pgm.rbm(784, 500, rng=0),
        "Restricted Boltzmann machine: 2 layers, 1 coupling, 393,284 parameters",
    ),
    "dbm": (
        lambda: pgm.dbm([6, 4, 2], rng=0),
        "Boltzmann machine: 3 layers, 2 couplings, 44 parameters",
    ),
    "lateral": (
        lambda: pgm.boltzmann_machine(5, rng=0),
        "Boltzmann machine: 1 layer, 1 coupling, 15 parameters",
    ),
    "sbn": (
        lambda: pgm.sbn([6, 4, 2], rng=0),
        "Bayesian network: 3 layers, 2 directed couplings, 44 parameters",
    ),
    "dbn": (
        lambda: pgm.dbn([6, 4, 2], rng=0),
        "Graphical model: 3 layers, 1 directed coupling, 1 coupling, 44 parameters",
    ),
    # Biases of Input units have no effect.
    "drbm": (
        lambda: pgm.drbm(9, 4, 3, rng=0),
        "Boltzmann machine: 3 layers, 2 couplings, 55 parameters",
    ),
    "lonely": (lonely, "Independent units: 1 layer, 7 parameters"),
}


@one_test_over("name", HEADS)
def test_a_model_shows_what_was_declared(name):
    make, head = HEADS[name]
    model = make()
    first, *lines = repr(model).split("\n")
    assert first == head and not STORAGE.search(repr(model))
    assert all(line.startswith("  ") for line in lines)
    text = "\n".join(lines)
    for variable in model.variables if model.structure.variables else ():
        assert f"  {variable}: " in text
    for layer in model.structure.layers.values():
        if not layer.holds_variables and layer.labels != (layer.name,):
            unit = repr(layer.unit).removesuffix("()")
            assert f"  {layer.name}: {layer.size} {unit}" in text
    for coupling in model.structure.couplings:
        assert coupling.key in text
    table = model._repr_html_()
    assert head in table and not STORAGE.search(table)


def test_states_labels_and_parents_are_shown():
    assert "  x1: low, mid, high (given x0)\n" in repr(variables())
    assert "  d: 4 states" in repr(factors())
    assert "  x: 4 Binary; states off, on; units a, b, c, d" in repr(steps())
    assert "<td>x1</td><td>low, mid, high</td><td>x0</td>" in variables()._repr_html_()
    # A layer has the parents of all its units.
    assert "<td>z</td><td>4 Categorical(k=3)</td><td>z</td>" in steps()._repr_html_()
    assert "<td>h1</td><td>4 Binary</td><td>h2</td>" in pgm.sbn([6, 4, 2], rng=0)._repr_html_()
    assert "<td>wet</td><td>no, yes</td><td></td><td>rain</td>" in mixed()._repr_html_()
    assert "<td>h</td><td></td><td>5 Binary</td><td></td><td>rain</td>" in mixed()._repr_html_()


@one_test_over("count", [MOST_LINES, MOST_ROWS, MOST_ROWS + 1, 300])
def test_long_models_are_cut_and_the_rest_is_counted(count):
    model = variables(count)
    lines, more = repr(model).split("\n"), count - MOST_LINES
    assert len(lines) == 1 + MOST_LINES + (more > 0)
    last = f"  x{count - 1}: low, mid, high (given x{count - 2})"
    assert lines[-1] == (f"  ... and {more} more" if more else last)
    table, left = model._repr_html_(), count - MOST_ROWS
    assert table.count("<tr>") == 1 + min(count, MOST_ROWS)
    assert (f"<p>... and {left} more</p>" in table) == (left > 0) == ("more" in table)


def test_names_cannot_break_a_line_or_a_page():
    """Names come from files: markup, control characters, and names of any length."""
    name = "<b>{}&\n\x1b[2J" + "y" * 200
    model = variables(4, name)
    assert len(repr(model).split("\n")) == 5 and "\x1b" not in repr(model)
    assert max(map(len, repr(model).split("\n"))) < 200
    r = pgm.infer(model, {model.variables[0]: "yes"}, want=("marginals", "mode", "samples"), rng=0)
    for thing in (model, r):
        assert "\x1b" not in thing._repr_html_() and "<b>0" not in thing._repr_html_()
        ET.fromstring(f"<div>{thing._repr_html_()}</div>")


def counted(model):
    return parameters(model.structure, model.params)


def test_a_row_of_probabilities_has_one_parameter_less_and_a_potential_has_all():
    b, rng = pgm.GraphBuilder(), np.random.default_rng(0)
    b.variable("a", states=2)
    b.variable("b", states=3)
    b.table(("a", "b"), rng.random((2, 3)))
    assert counted(b.build()) == 2 * 3
    b.conditional("b", ("a",), rng.dirichlet(np.ones(3), 2))
    assert counted(b.build()) == 2 * 3 + 2 * 2
    # All chains of one table have entries of their own.
    b.layer("z", pgm.Categorical(4), 5)
    b.tables(("z", "z"), [[0, 1], [1, 2]], np.ones((4, 4)))
    assert counted(b.build()) == 2 * 3 + 2 * 2 + 2 * 16 + 5 * 4


@pytest.mark.parametrize("dense", [True, False])
def test_weights_inside_a_layer_count_once(dense):
    ring = np.roll(np.eye(4), 1, axis=0) + np.roll(np.eye(4), -1, axis=0)
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Spin(), 4)
    b.couple("x", "x", ring if dense else csr_array(ring))
    # Dense weights of 0 can be learned, entries that a sparse one does not store cannot.
    assert counted(b.build()) == 4 + (6 if dense else 4)
    arrows = np.array([[0, 1.0, 0], [0, 0, 2.0], [0, 0, 0]])
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Binary(), 3)
    b.cause("x", "x", arrows if dense else csr_array(arrows))
    assert counted(b.build()) == 3 + 2


def test_a_file_keeps_what_was_declared(tmp_path):
    for make, _ in HEADS.values():
        pgm.save(make(), tmp_path / "m")
        assert repr(pgm.load(tmp_path / "m")) == repr(make())
        assert pgm.load(tmp_path / "m").structure.names.storage == make().structure.names.storage


def test_a_result_shows_guarantee_and_status_first_then_the_answers_by_name():
    model = variables()
    r = pgm.infer(model, {"x5": "mid"}, want=("marginals", "log_z", "log_prob", "mode"))
    head, *lines = repr(r).split("\n")
    assert head == "Result: exact by Exact; no diagnostic found a fault"
    # log Z is the same number, and is not shown again.
    assert lines[0] == f"  log_prob: {r.log_prob[0]:.6g}"
    assert f"  log_prob: {r.log_prob[0]:.6g}" in lines
    share = ", ".join(f"{state}={p:.4g}" for state, p in r.marginal("x3").items())
    assert f"  x3: {share}" in lines
    # The probabilities of an observed variable are known.
    assert not any(line.startswith("  x5") for line in lines)
    assert (
        f"  mode: {', '.join(f'{n}={s}' for n, s in r.assignment().items() if n != 'x5')}" in lines
    )
    table = html.unescape(r._repr_html_())
    assert f"<p><b>{head}</b></p>" in table and f"<td>x3</td><td>{share}</td>" in table


def test_a_result_of_rows_shows_the_numbers_of_the_rows():
    r = pgm.infer(variables(3), {"x2": ["no", "yes", None]}, want=("marginals", "log_prob"))
    numbers = ", ".join(f"{p:.4g}" for p in r.marginal("x0")["yes"])
    assert f"yes={numbers}" in repr(r)
    # A variable that is observed in some rows only is shown.
    assert "\n  x2: " in repr(r)
    many = pgm.infer(variables(3), {"x2": ["no"] * 50}, want=("log_prob",))
    assert repr(many).endswith(" ... and 44 more")


def test_arrays_with_named_states_show_the_probability_of_each_state():
    b = pgm.GraphBuilder()
    z = b.variable("z", states=("calm", "busy"), shape=3)
    b.conditional(z[0], (), [0.75, 0.25])
    b.conditional(z[1:], (z[:-1],), [[1.0, 0.0], [0.5, 0.5]])
    r = pgm.infer(b.build(), {"z[2]": "calm"})
    busy = r.marginal("z")["busy"]
    shown = ", ".join(f"{p:.6g}" for p in busy)
    assert f"\n  z: p(calm) {1 - busy[0]:.6g}, " in repr(r) and f"; p(busy) {shown}" in repr(r)
    assert "mean" not in repr(r)
    rows = pgm.infer(b.build(), {"z": [["calm", None, None], [None, None, "busy"]]})
    assert "z: p(calm) 2x3 numbers, 1, 1, " in repr(rows)


def test_a_result_that_is_not_to_be_trusted_says_so_at_once():
    method = pgm.MCMC(chains=2, draws=20)
    r = pgm.infer(pgm.rbm(6, 6, rng=0), want=("marginals", "samples"), method=method, rng=0)
    head, second = repr(r).split("\n")[:2]
    assert head == f"Result: estimate by MCMC; {r.status.name}, {r.status.value}"
    assert second.startswith(f"  warning: {r.warnings[0]}")
    assert r.status.value in html.unescape(r._repr_html_())
    error = pgm.infer(pgm.rbm(40, 40, rng=0), want=("log_z",), method=pgm.AIS(20, 20), rng=0)
    low, high = error.log_z_interval[0]
    assert f"  log_z: {error.log_z[0]:.6g} ({low:.6g} to {high:.6g})" in repr(error)


@one_test_over("name", sorted(METHODS))
def test_no_display_shows_settings_or_storage(name):
    """Of every method, with every quantity that it can answer, on variables and on layers."""
    questions = ((variables(3), {"x2": "yes"}), (pgm.rbm(4, 3, rng=0), {"v": [1, 0, math.nan, 1]}))
    for model, evidence in questions:
        wants = ("marginals", "log_z", "log_prob", "mode", "samples", "gradient", "pairs", "bound")
        for want in wants:
            try:
                r = pgm.infer(model, evidence, want=(want,), method=METHODS[name], rng=0)
            except pgm.PgmError:
                continue
            for text in (repr(r), r._repr_html_()):
                assert text.count(r.kind) and not STORAGE.search(text)
                assert repr(METHODS[name]) not in text and "draws=" not in text
            assert len(repr(r).split("\n")) <= MOST_LINES + 3
    alone = METHODS[name].plan(model.given(evidence), ("marginals",))
    assert "variables" not in alone.why


def test_means_of_a_lower_bound_are_not_taken_for_judged():
    for want in (("marginals",), ("marginals", "bound"), ("bound",)):
        r = pgm.infer(pgm.sbn([4, 2], rng=0), {"v": [1, 0, 1, 1]}, want, method=pgm.MeanField())
        assert r.status.good and ("their error is unknown" in repr(r)) == ("marginals" in want)


def test_a_result_without_a_target_is_shown_as_well():
    model = variables(3)
    r = pgm.Exact().run(model.given({"x2": "no"}), ("marginals", "log_z"))
    assert repr(r).startswith("Result: exact by Exact") and "mean of" in repr(r)


def test_a_fit_shows_how_it_ended_and_what_it_learned():
    x = pgm.datasets.bars_and_stripes(3).x_train
    watched = pgm.ExactLogLikelihood({"v": x}, every=5)
    f = pgm.fit(pgm.rbm(9, 4, rng=0), {"v": x}, updates=5, progress=False, callbacks=[watched])
    head, *lines = repr(f).split("\n")
    assert head == "Fit: 5 updates"
    assert lines[0] == f"  model: {repr(f.model).split(chr(10))[0]}"
    value = f.history["log_likelihood"]["value"][-1]
    assert f"  log_likelihood: {value:.6g} at update 5" in lines
    # Names of methods, without their settings.
    assert "SGD(" not in repr(f) and "steps: by Centered" in repr(f)
    assert head in f._repr_html_() and "log_likelihood" in f._repr_html_()


def test_a_target_and_a_builder_are_a_line():
    given = variables().given({"x5": ["mid", None]}, do={"x0": "yes"})
    head = repr(variables()).split("\n")[0]
    assert repr(given) == f"Target: 2 rows, 3 values given; {head}"
    b = pgm.GraphBuilder()
    assert repr(b) == "GraphBuilder: nothing is declared"
    b.variable("a", states=3)
    b.conditional("a", (), [0.2, 0.3, 0.5])
    b.table(("a",), [1, 2, 3])
    b.layer("v", pgm.Binary(), 2000)
    b.couple("v", "v", np.zeros((2000, 2000)))
    assert repr(b) == "GraphBuilder: 1 variable, 1 layer, 1 coupling, 1 conditional, 1 table"


@one_test_over(
    "states", [(True, False), (7654321, 1), ((1, 2), (3, 4)), (b"a", b"b"), (0.25, 0.5)], ids=repr
)
def test_the_mode_is_shown_by_names_of_any_kind(states):
    b = pgm.GraphBuilder()
    b.layer("L", pgm.Binary(), 1, bias=[-2.0], states=states)
    r = pgm.infer(b.build(), want=("mode",))
    assert f"L[0]={states[0]}" in repr(r) and str(states[0]) in html.unescape(r._repr_html_())

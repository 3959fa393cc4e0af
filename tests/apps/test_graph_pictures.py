"""Pictures of graphs: every box, bar and edge is where it says, and nothing hides anything."""

import networkx as nx
import numpy as np
import pytest
from extras import extra
from loops import one_test_over

import pgmengine as pgm

extra("matplotlib")
plt = pytest.importorskip("matplotlib.pyplot")
from matplotlib.patches import FancyArrowPatch, Rectangle
from matplotlib.transforms import Bbox


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def texts(ax):
    return [t.get_text() for t in ax.texts]


def legend(ax):
    return [] if ax.get_legend() is None else [t.get_text() for t in ax.get_legend().get_texts()]


def boxes(ax):
    """The frames of boxes in pixels."""
    frames = [p for p in ax.patches if isinstance(p, Rectangle) and p.get_zorder() == 3]
    return [p.get_window_extent() for p in frames]


def edges(ax):
    """Points along every edge in pixels."""
    out = []
    for patch in ax.patches:
        if isinstance(patch, FancyArrowPatch):
            out.append(sampled(ax.transData.transform_path(patch.get_path())))
    return out


def sampled(path):
    """Points along a path of lines and curves, less than a pixel apart."""
    out = []
    for curve, _ in path.iter_bezier():
        t = np.linspace(0, 1, 2 + int(np.abs(np.diff(curve.control_points, axis=0)).sum()))
        out.append(curve(t))
    return np.concatenate(out)


def arrows(ax):
    """The number of edges with a head."""
    kinds = [
        type(p.get_arrowstyle()).__name__ for p in ax.patches if isinstance(p, FancyArrowPatch)
    ]
    assert set(kinds) <= {"CurveFilledB", "Curve"}
    return kinds.count("CurveFilledB")


def network(graph, name=str):
    """A Bayesian network with these arrows, or a factor graph with these lines."""
    b = pgm.GraphBuilder()
    for node in graph:
        b.variable(name(node), states=("low", "high"))
    rng = np.random.default_rng(0)
    if graph.is_directed():
        for node in nx.topological_sort(graph):
            above = [name(parent) for parent in graph.predecessors(node)]
            b.conditional(name(node), above, rng.dirichlet((1, 1), size=(2,) * len(above)))
    else:
        for one, two in graph.edges:
            b.table((name(one), name(two)), 0.5 + rng.random((2, 2)))
    return b.build()


def random_network(nodes, parents, seed):
    rng, graph = np.random.default_rng(seed), nx.DiGraph()
    graph.add_nodes_from(range(nodes))
    for child in range(1, nodes):
        count = min(child, rng.integers(0, parents + 1))
        graph.add_edges_from((int(p), child) for p in rng.choice(child, count, replace=False))
    return graph


GRAPHS = {
    "chain": nx.path_graph(9, create_using=nx.DiGraph),
    "two roots": random_network(8, 2, 0),
    "sparse": random_network(40, 2, 1),
    "dense": random_network(25, 5, 2),
    "undirected": nx.gnm_random_graph(30, 45, seed=3),
    "complete": nx.complete_graph(7),
    "star": nx.star_graph(30),
    "lattice": nx.convert_node_labels_to_integers(nx.grid_2d_graph(6, 6)),
    "two parts": nx.disjoint_union(nx.path_graph(4), nx.cycle_graph(5)),
}


def crossed(ax):
    """Pairs of an edge and a box that it runs through; an edge may touch boxes at its ends."""
    ax.figure.canvas.draw()
    frames = [Bbox.from_extents(*np.add(b.extents, (1.5, 1.5, -1.5, -1.5))) for b in boxes(ax)]
    return [
        (i, j)
        for i, points in enumerate(edges(ax))
        for j, frame in enumerate(frames)
        if frame.count_contains(points)
    ]


@pytest.mark.parametrize("answered", [False, True], ids=["bare", "answered"])
@pytest.mark.parametrize("name", GRAPHS)
def test_no_edge_runs_through_a_box(name, answered):
    graph = GRAPHS[name]
    model = network(graph)
    ax = pgm.plots.graph(model, pgm.infer(model) if answered else None)
    assert len(boxes(ax)) == len(graph) and len(edges(ax)) == graph.number_of_edges()
    assert arrows(ax) == (graph.number_of_edges() if graph.is_directed() else 0)
    assert crossed(ax) == []
    found = [box.shrunk(0.99, 0.99) for box in boxes(ax)]
    assert not any(one.overlaps(two) for i, one in enumerate(found) for two in found[:i])


@pytest.mark.parametrize("name", ["two roots", "undirected", "star"])
def test_every_edge_joins_its_two_boxes(name):
    graph = GRAPHS[name]
    ax = pgm.plots.graph(network(graph))
    ax.figure.canvas.draw()
    at = {t.get_text(): i for i, t in enumerate(ax.texts)}
    frames = boxes(ax)
    wanted = {frozenset(map(str, edge)) for edge in graph.edges}
    found = set()
    for points in edges(ax):
        ends = [points[0], points[-1]]
        # An end is within a few pixels of the frame of its box, and nearer to it than to others.
        gaps = [
            np.hypot(*np.maximum(0, np.maximum(frames[i].min - p, p - frames[i].max)))
            for p in ends
            for i in at.values()
        ]
        nearest = np.reshape(gaps, (2, -1))
        assert (nearest.min(axis=1) < 12).all()
        names = list(at)
        found.add(frozenset(names[i] for i in nearest.argmin(axis=1)))
    assert found == wanted


def test_names_and_states_stay_within_their_boxes():
    long = "The patient has travelled to a country with a high rate of tuberculosis"
    names = [
        long,
        "shortness_of_breath_when_climbing_stairs_measured_at_the_second_visit",
        "$x$",
        "i",
    ]
    names += ["ANANASWITHOUTANYSPACEINANAMETHATDOESNOTEND" * 3]
    b = pgm.GraphBuilder()
    for name in names:
        b.variable(name, states=("_hidden", "W" * 40, "no"))
    model = b.build()
    ax = pgm.plots.graph(model, pgm.infer(model, {"i": "no"}))
    renderer = ax.figure.canvas.get_renderer()
    frames = boxes(ax)
    inside = [t for t in ax.texts if "probabilities" not in t.get_text()]
    assert len(inside) == len(names) * 7
    for text in inside:
        low, high = text.get_window_extent(renderer).get_points()
        assert any(f.contains(*(low + 1)) and f.contains(*(high - 1)) for f in frames), text
    # Names that are cut keep both ends.
    assert any(t.startswith("WW") and "\u2026" in t for t in texts(ax))


def test_every_state_has_its_name_its_bar_and_its_probability():
    b = pgm.GraphBuilder()
    for name in ("rain", "wind", "wet"):
        b.variable(name, states=("no", "yes"))
    b.conditional("rain", (), [0.25, 0.75])
    b.conditional("wet", ("rain", "wind"), [[[0.5, 0.5]] * 2] * 2)
    b.table(("wind",), [1.0, 3.0])
    model = b.build()
    ax = pgm.plots.graph(model, pgm.infer(model, {"wet": "yes"}))
    place = {t.get_text(): t.get_position() for t in ax.texts}
    assert place["rain"][1] > place["wet"][1]
    assert texts(ax).count("no") == texts(ax).count("yes") == 3
    assert sorted(t for t in texts(ax) if "%" in t) == [
        "0 %",
        "100 %",
        *["25 %"] * 2,
        *["75 %"] * 2,
    ]
    tracks, bars = ([p for p in ax.patches if p.get_zorder() == z] for z in (4, 5))
    shares = [bar.get_width() / track.get_width() for track, bar in zip(tracks, bars, strict=True)]
    np.testing.assert_allclose(shares, [0.25, 0.75, 0.25, 0.75, 0.0, 1.0], atol=1e-12)
    # A name of a state stands on the line of its bar.
    lines = [bar.get_y() + bar.get_height() / 2 for bar in bars]
    heights = [t.get_position()[1] for t in ax.texts if t.get_text() in ("no", "yes")]
    np.testing.assert_allclose(sorted(heights), sorted(lines))
    assert legend(ax) == ["observed", "probability"] and "exact probabilities" in texts(ax)
    assert "%" not in "".join(texts(pgm.plots.graph(model))) and not legend(pgm.plots.graph(model))


def test_soft_evidence_has_a_frame_and_an_entry_of_the_legend():
    """Also where a likelihood of 0 makes it a virtual finding, and in strips of arrays."""
    net = pgm.read(pgm.datasets.asia())
    for zero in (0.2, 0.0):
        r = pgm.infer(net, {"xray": "yes"}, soft=pgm.likelihood({"dysp": [0.9, zero]}))
        ax = pgm.plots.graph(net, r)
        dotted = [p for p in ax.patches if isinstance(p, Rectangle) and p.get_linestyle() == ":"]
        assert len(dotted) == 1 and set(legend(ax)) == {"observed", "soft evidence", "probability"}
    model = chain(50)
    r = pgm.infer(model, {"x": ["low"] * 5 + [None] * 45}, soft={"z[40]": [0.5, 0.0]})
    assert "unit with soft evidence" in legend(pgm.plots.graph(model, r))
    assert "unit with soft evidence" not in legend(pgm.plots.graph(model, pgm.infer(model)))


def test_estimates_have_whiskers_and_say_so():
    net = pgm.read(pgm.datasets.asia())
    r = pgm.infer(net, {"xray": "yes"}, do={"smoke": "no"}, method=pgm.MCMC(draws=500), rng=0)
    ax = pgm.plots.graph(net, r)
    assert {"observed", "set by do()", "probability", "2 standard errors"} == set(legend(ax))
    assert texts(ax)[-1].startswith("estimated probabilities")
    error = r.stats["mcse"]["variables2"].ravel()
    free = [i for i, v in enumerate(net.structure.variables) if error[i] > 0]
    assert len(ax.lines) == 2 * len(free) > 0
    track = next(p for p in ax.patches if p.get_zorder() == 4)
    prob = r.marginal("asia")["yes"]
    ends = (ax.lines[0].get_xdata() - track.get_x()) / track.get_width()
    np.testing.assert_allclose(ends, np.clip([prob - 2 * error[0], prob + 2 * error[0]], 0, 1))


def test_many_states_and_many_variables_are_summed_up():
    b = pgm.GraphBuilder()
    b.variable("a", states=20)
    b.table(("a",), np.arange(1.0, 21))
    ax = pgm.plots.graph(b.build(), pgm.infer(b.build()))
    assert "15 others" in texts(ax) and {"15", "19"} <= set(texts(ax))
    shares = [float(t.split()[0]) for t in texts(ax) if "%" in t]
    assert sum(shares) == pytest.approx(100, abs=1)
    graph = nx.path_graph(61, create_using=nx.DiGraph)
    model = network(graph)
    ax = pgm.plots.graph(model, pgm.infer(model))
    assert sum(t in ("low", "high") for t in texts(ax)) == 61
    assert legend(ax) == ["probability of the most probable state"]


def test_layers_are_boxes_with_lines_and_arrows():
    model = pgm.dbn([12, 8, 4], rng=0)
    ax = pgm.plots.graph(model)
    assert all(any(t.startswith(f"{n}: ") for t in texts(ax)) for n in model.structure.layers)
    assert len(edges(ax)) == len(model.structure.couplings) and arrows(ax) == 1
    lateral = pgm.plots.graph(pgm.boltzmann_machine(4, rng=0))
    assert texts(lateral) == ["x: 4 Spin (coupled inside)"]
    assert len(edges(lateral)) == 1 and arrows(lateral) == 0


def test_couplings_that_skip_layers_pass_beside_them():
    b = pgm.GraphBuilder()
    for name in ("top", "middle", "low", "v"):
        b.layer(name, pgm.Binary(), 2)
    for parent, child in (("top", "middle"), ("middle", "low"), ("low", "v"), ("top", "v")):
        b.cause(parent, child)
    b.couple("top", "low")
    ax = pgm.plots.graph(b.build())
    assert len(edges(ax)) == 5 and arrows(ax) == 4 and crossed(ax) == []


def chain(steps):
    b = pgm.GraphBuilder()
    z = b.variable("z", states=("calm", "storm"), shape=steps)
    x = b.variable("x", states=("low", "high"), shape=steps)
    b.conditional(z[0], (), [0.5, 0.5])
    b.conditional(z[1:], (z[:-1],), [[0.9, 0.1], [0.2, 0.8]])
    b.conditional(x, (z,), [[0.8, 0.2], [0.3, 0.7]])
    return b.build()


def test_short_arrays_are_drawn_apart_and_long_ones_as_strips():
    short = pgm.plots.graph(chain(4))
    assert {"z[0]", "x[3]"} <= set(texts(short)) and arrows(short) == 7 and crossed(short) == []
    model = chain(50)
    r = pgm.infer(model, {"x": ["low"] * 25 + [None] * 25})
    ax = pgm.plots.graph(model, r)
    assert {"z", "x", "P(storm)", "P(high)"} <= set(texts(ax)) and len(boxes(ax)) == 2
    # One arrow between the arrays, and one at the side of z.
    assert arrows(ax) == len(edges(ax)) == 2 and "observed unit" in legend(ax)
    strip = next(i for i in ax.images if np.allclose(i.get_array()[0], r.marginal("z")["storm"]))
    assert strip.get_array().shape == (1, 50)
    marks = [p for p in ax.patches if isinstance(p, Rectangle) and p.get_height() < 0.05]
    assert len(marks) == 25


def test_two_arrays_that_depend_on_each_other_have_an_arrow_each_way():
    b = pgm.GraphBuilder()
    x, y = (b.variable(name, states=2, shape=20) for name in "xy")
    for one, other in ((x, y), (y, x)):
        b.conditional(one[0], (), [0.5, 0.5])
        b.conditional(one[1:], (other[:-1],), [[0.8, 0.2], [0.2, 0.8]])
    ax = pgm.plots.graph(b.build())
    assert arrows(ax) == len(edges(ax)) == 2 and crossed(ax) == []


def test_lattices_are_images():
    b = pgm.GraphBuilder()
    s = b.variable("s", states=("down", "up"), shape=(6, 8))
    b.table((s[1:], s[:-1]), [[2.0, 1.0], [1.0, 2.0]])
    model = b.build()
    r = pgm.infer(model, {"s[0,0]": "up"})
    ax = pgm.plots.graph(model, r)
    np.testing.assert_allclose(ax.images[0].get_array(), r.marginal("s")["up"])
    assert "P(up)" in texts(ax) and arrows(ax) == 0


def test_layers_have_strips_and_the_row_is_named():
    model = pgm.rbm(20, 3, rng=0)
    rows = np.full((2, 20), np.nan)
    rows[1, :5] = 1
    r = pgm.infer(model, {"v": rows})
    ax = pgm.plots.graph(model, r, row=1)
    assert any("row 1 of 0..1" in t for t in texts(ax))
    assert any(np.allclose(i.get_array()[0], r.mean["v"][1]) for i in ax.images)
    b = pgm.GraphBuilder()
    b.layer("g", pgm.Gaussian(1.0), 30)
    ax = pgm.plots.graph(b.build(), pgm.infer(b.build()))
    assert any(t.startswith("mean, ") for t in texts(ax)) and "lowest mean" in legend(ax)


def test_layers_of_a_square_number_of_units_are_squares_but_arrays_are_strips():
    model = pgm.rbm(64, 9, rng=0)
    r = pgm.infer(model)
    shown = {i.get_array().shape: i.get_array() for i in pgm.plots.graph(model, r).images}
    np.testing.assert_allclose(shown[8, 8].ravel(), r.mean["v"])
    np.testing.assert_allclose(shown[3, 3].ravel(), r.mean["h"])
    line = chain(49)
    shown = {i.get_array().shape for i in pgm.plots.graph(line, pgm.infer(line)).images}
    assert shown == {(1, 49)}


def test_variables_are_drawn_beside_units_of_layers():
    b = pgm.GraphBuilder()
    b.variable("a")
    b.layer("h", pgm.Binary(), 2)
    b.layer("g", pgm.Gaussian(1.0), 1)
    b.table(("a", ("h", 1)), [[1, 2], [3, 4.0]])
    b.couple("h", "g", weight=[[0.0], [0.0]])
    model = b.build()
    result = pgm.infer(model, {"a": [0, 1]})
    for row, share in enumerate((1 / 3, 3 / 7)):
        ax = pgm.plots.graph(model, result=result, row=row)
        assert {"a", "h[0]", "h[1]"} <= set(texts(ax)) and "mean 0" in texts(ax)
        assert f"{100 * share:.0f} %" in texts(ax)


def test_tables_of_several_variables_are_squares_in_the_legend():
    b = pgm.GraphBuilder()
    for name in "abcd":
        b.variable(name)
    b.table(("a", "b", "c"), np.ones((2, 2, 2)))
    b.table(("c", "d"), np.eye(2) + 0.1)
    ax = pgm.plots.graph(b.build())
    assert legend(ax) == ["table of several variables"]
    assert len(edges(ax)) == 4 and crossed(ax) == [] and len(ax.lines) == 1


def test_text_is_scaled_with_the_boxes_on_given_axes():
    net = pgm.read(pgm.datasets.asia())
    sizes = []
    for inches in (3, 6):
        ax = plt.figure(figsize=(inches, inches)).add_axes((0, 0, 1, 1))
        pgm.plots.graph(net, pgm.infer(net), ax)
        sizes.append(ax.texts[0].get_fontsize())
    assert sizes[1] == pytest.approx(2 * sizes[0])


def test_graph_draws_parents_above_children_in_whatever_order_they_are_declared():
    b = pgm.GraphBuilder()
    for name in ("top", "v", "middle", "low"):
        b.layer(name, pgm.Binary(), 2)
    for parent, child in (("top", "middle"), ("middle", "low"), ("low", "v"), ("top", "v")):
        b.cause(parent, child)

    def heights(model):
        texts = pgm.plots.graph(model).texts
        return {t.get_text().split(":")[0]: t.get_position()[1] for t in texts}

    height = heights(b.build())
    assert height["top"] > height["middle"] > height["low"] > height["v"]
    for model in (pgm.sbn([4, 3, 2], rng=0), pgm.dbn([4, 3, 2], rng=0)):
        height = heights(model)
        assert all(height[c.a] > height[c.b] for c in model.structure.arrows)


def test_undirected_edges_may_close_a_cycle_with_arrows():
    b = pgm.GraphBuilder()
    for name in "vxh":
        b.variable(name)
    b.couple("v", "x", weight=[[1.0]])
    b.couple("x", "h", weight=[[1.0]])
    b.cause("h", "v", weight=[[1.0]])
    y = {t.get_text(): t.get_position()[1] for t in pgm.plots.graph(b.build()).texts}
    assert y["h"] > y["v"]


@one_test_over("row", [2, -1, 5, 0.5])
def test_rows_that_a_result_does_not_have(row):
    b = pgm.GraphBuilder()
    b.variable("a")
    result = pgm.infer(b.build(), {"a": [0, 1]})
    with pytest.raises(pgm.PgmError, match=f"row {row} is no row of the result, expected 0..1"):
        pgm.plots.graph(b.build(), result=result, row=row)


def test_results_that_do_not_belong_to_the_graph():
    b, other = pgm.GraphBuilder(), pgm.GraphBuilder()
    b.variable("a")
    other.variable("b")
    result = pgm.infer(other.build())
    with pytest.raises(pgm.PgmError, match="belongs to another model, with b; expected one with a"):
        pgm.plots.graph(b.build(), result=result)
    with pytest.raises(pgm.PgmError, match="prob was not computed"):
        pgm.plots.graph(b.build(), result=pgm.infer(b.build(), want=("log_z",)))

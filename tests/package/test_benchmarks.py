"""The benchmark suite: every peer does the same job as pgmengine; the command runs with whichever
of them are there.
"""

import json
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from extras import extra

import pgmengine as pgm

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from harness import Row, Settings, measure
from peers import JAX, NUMPY, PEERS, RBMS, SKLEARN, THRML, TORCH

RNG = np.random.default_rng(5)
WEIGHT, B, C = RNG.normal(size=(5, 3)), RNG.normal(size=5), RNG.normal(size=3)
STATES = ((np.arange(32)[:, None] >> np.arange(5)) & 1).astype(float)
CHAINS = 20_000


def functions(peer):
    if not peer.present:
        pytest.skip(f"{peer.name} is not installed")
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        # Other libraries may warn when they are imported.
        warnings.simplefilter("ignore")
        patch.setenv("OMP_NUM_THREADS", "1")
        return peer._functions()


def model():
    return pgm.rbm(5, 3).with_params({"v-h.weight": WEIGHT, "v.bias": B, "h.bias": C})


def visible_moments():
    """Exact E[v v'] of the RBM."""
    p = np.exp(pgm.infer(model(), {"v": STATES}, want=("log_prob",), method=pgm.Exact()).log_prob)
    return (STATES * p[:, None]).T @ STATES


def agrees(found, expected, count, spread=0.5):
    """Means of `count` independent numbers, within 5 standard errors."""
    assert np.abs(np.asarray(found, dtype=float) - expected).max() < 5 * spread / np.sqrt(count)


@pytest.mark.parametrize("peer", [TORCH, JAX, THRML, RBMS, SKLEARN, NUMPY], ids=lambda p: p.name)
def test_sweeps(peer):
    v = np.asarray(functions(peer).sweeps(WEIGHT, B, C, np.ones((CHAINS, 5)))(60), dtype=float)
    agrees(v.T @ v / CHAINS, visible_moments(), CHAINS)


@pytest.mark.parametrize("peer", [TORCH, JAX, NUMPY], ids=lambda p: p.name)
def test_flip_sweeps(peer):
    v = np.asarray(functions(peer).flip_sweeps(WEIGHT, B, C, np.ones((CHAINS, 5)))(60), dtype=float)
    agrees(v.T @ v / CHAINS, visible_moments(), CHAINS)


@pytest.mark.parametrize("peer", [TORCH, JAX, NUMPY], ids=lambda p: p.name)
def test_clamped_sweeps(peer):
    nan = np.nan
    rows = np.array([[1, nan, 0, nan, nan], [nan, 0, nan, 1, nan], [nan, nan, 1, 1, 0.0]])
    expected = pgm.infer(model(), {"v": rows}, method=pgm.Exact()).mean["v"]
    v = np.asarray(
        functions(peer).clamped_sweeps(WEIGHT, B, C, np.repeat(rows, CHAINS, axis=0))(60),
        dtype=float,
    )
    agrees(v.reshape(3, CHAINS, 5).mean(axis=1), expected, CHAINS)


@pytest.mark.parametrize("peer", [TORCH, JAX, THRML, NUMPY], ids=lambda p: p.name)
def test_deep_sweeps(peer):
    rng = np.random.default_rng(6)
    shapes = {
        "v-h1.weight": (3, 2),
        "h1-h2.weight": (2, 2),
        "v.bias": 3,
        "h1.bias": 2,
        "h2.bias": 2,
    }
    params = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    deep = pgm.dbm([3, 2, 2]).with_params(params)
    every = states_of(3)
    prob = np.exp(pgm.infer(deep, {"v": every}, want=("log_prob",), method=pgm.Exact()).log_prob)
    v = np.asarray(
        functions(peer).dbm_sweeps(*params.values(), np.ones((CHAINS, 3)))(60), dtype=float
    )
    agrees(v.T @ v / CHAINS, (every * prob[:, None]).T @ every, CHAINS)


def lattice_log_z(beta):
    graph = nx.grid_2d_graph(4, 4, periodic=True)
    nx.set_edge_attributes(graph, beta, "weight")
    return pgm.infer(
        pgm.GraphBuilder.from_networkx(graph, unit=pgm.Spin()).build(), want=("log_z",)
    ).log_z[0]


@pytest.mark.parametrize("peer", [TORCH, JAX, THRML, NUMPY], ids=lambda p: p.name)
def test_ising(peer):
    expected = (lattice_log_z(0.301) - lattice_log_z(0.299)) / 0.002 / 32  # E[s s'] of its 32 edges
    run, found = functions(peer).ising(4, 0.3), []
    for _ in range(4000):
        even, odd = (np.asarray(x).astype(float) for x in run(3))
        board = np.zeros((4, 4))
        index = np.add.outer(np.arange(4), np.arange(4)) % 2
        board[index == 0], board[index == 1] = even.ravel(), odd.ravel()
        found.append((board * (np.roll(board, 1, 0) + np.roll(board, 1, 1))).mean() / 2)
    batches = np.reshape(found, (40, 100)).mean(axis=1)
    agrees(batches.mean(), expected, 40, batches.std(ddof=1))


def states_of(bits):
    return ((np.arange(2**bits)[:, None] >> np.arange(bits)) & 1).astype(float)


def probabilities(field):
    """Probabilities of all states of independent units with these log-odds, (..., 2^units)."""
    return np.exp(
        field @ states_of(field.shape[-1]).T - np.logaddexp(0, field).sum(axis=-1, keepdims=True)
    )


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def expected_gradient(x, after):
    """Gradients of weight, b and c: means over the data less means over visible states with
    probabilities `after`.
    """
    up, all_up = sigmoid(x @ WEIGHT + C), sigmoid(STATES @ WEIGHT + C)
    return (
        x.T @ up / len(x) - (STATES * after[:, None]).T @ all_up,
        x.mean(0) - after @ STATES,
        up.mean(0) - after @ all_up,
    )


@pytest.mark.parametrize("peer", [TORCH, JAX, SKLEARN], ids=lambda p: p.name)
def test_pcd(peer):
    x, h = (RNG.random((CHAINS, 5)) < 0.4).astype(float), np.array([1.0, 0.0, 1.0])
    run = functions(peer).pcd(WEIGHT, B, C, x, np.tile(h, (CHAINS, 1)), 1.0, batch=CHAINS)
    for found, old, change in zip(
        run(1), (WEIGHT, B, C), expected_gradient(x, probabilities(h @ WEIGHT.T + B))
    ):
        agrees(np.asarray(found) - old, change, CHAINS)


def test_pcd_of_rbms_has_the_direction_of_the_gradient():
    x, v = (RNG.random((CHAINS, 5)) < 0.4).astype(float), np.array([1.0, 0.0, 1.0, 1.0, 0.0])
    found = functions(RBMS).pcd(WEIGHT, B, C, x, np.tile(v, (CHAINS, 1)), 1.0, batch=CHAINS)(1)
    after = probabilities(v @ WEIGHT + C) @ probabilities(states_of(3) @ WEIGHT.T + B)
    expected = np.concatenate([np.ravel(g) for g in expected_gradient(x, after)])
    step = np.concatenate([np.ravel(np.asarray(p) - old) for p, old in zip(found, (WEIGHT, B, C))])
    assert np.isclose(np.linalg.norm(step), 1, rtol=1e-4)
    agrees(step * np.linalg.norm(expected), expected, CHAINS)


@pytest.mark.parametrize("peer", [TORCH, JAX], ids=lambda p: p.name)
def test_deep_updates(peer):
    rng = np.random.default_rng(7)
    w1, w2, a, b, c = (rng.normal(size=shape) for shape in ((4, 3), (3, 2), 4, 3, 2))
    x, h = (rng.random((CHAINS, 4)) < 0.4).astype(float), np.array([1.0, 0.0, 1.0])
    found = functions(peer).sap(w1, w2, a, b, c, x, np.tile(h, (CHAINS, 1)), 1.0, batch=CHAINS)(1)
    q2 = np.full((CHAINS, 2), 0.5)
    for _ in range(5):
        q1 = sigmoid(x @ w1 + q2 @ w2.T + b)
        q2 = sigmoid(q1 @ w2 + c)
    v, t = (
        s.reshape(16, 4, -1)
        for s in (np.repeat(states_of(4), 4, axis=0), np.tile(states_of(2), (16, 1)))
    )
    p = np.multiply.outer(probabilities(w1 @ h + a), probabilities(h @ w2 + c))[:, :, None]
    after = sigmoid(v @ w1 + t @ w2.T + b)
    expected = (
        x.T @ q1 / CHAINS - np.einsum("vti,vtj->ij", p * v, after),
        q1.T @ q2 / CHAINS - np.einsum("vti,vtj->ij", p * after, t),
        *(q.mean(0) - (p * s).sum((0, 1)) for q, s in ((x, v), (q1, after), (q2, t))),
    )
    for new, old, change in zip(found, (w1, w2, a, b, c), expected):
        agrees(np.asarray(new) - old, change, CHAINS)


def exact_log_z():
    return pgm.infer(model(), want=("log_z",), method=pgm.Exact()).log_z[0]


@pytest.mark.parametrize("peer", [TORCH, JAX], ids=lambda p: p.name)
def test_annealing(peer):
    job = functions(peer).ais(WEIGHT, B, C, 0.3 * B, np.linspace(0, 1, 101), 500)
    found = [job() for _ in range(10)]
    agrees(np.mean(found), exact_log_z(), 10, max(np.std(found, ddof=1), 0.002))


def test_annealing_of_rbms():
    job = functions(RBMS).ais(WEIGHT, B, C, 101, 500)
    found = [job() for _ in range(10)]
    agrees(np.mean(found), exact_log_z(), 10, max(np.std(found, ddof=1), 0.002))


@pytest.mark.parametrize(
    ("peer", "more"),
    [(TORCH, ()), (JAX, ()), (RBMS, ()), (NUMPY, (np.float32,)), (NUMPY, (np.float64,))],
    ids=lambda p: getattr(p, "name", None),
)
@pytest.mark.parametrize("chunk", [None, 4])
def test_log_z(peer, more, chunk):
    rng = np.random.default_rng(8)
    w, b, c = rng.normal(size=(30, 9)), rng.normal(size=30), rng.normal(size=9)
    expected = pgm.infer(
        pgm.rbm(30, 9).with_params({"v-h.weight": w, "v.bias": b, "h.bias": c}),
        want=("log_z",),
        method=pgm.Exact(),
    ).log_z[0]
    in_chunks = {} if chunk is None or peer is RBMS else {"chunk": chunk}
    found = functions(peer).log_z(w, b, c, 9, *more, **in_chunks)()
    np.testing.assert_allclose(found, expected, rtol=1e-12 if more == (np.float64,) else 1e-5)


@pytest.mark.parametrize("peer", [TORCH, JAX, NUMPY], ids=lambda p: p.name)
def test_posterior(peer):
    nan = np.nan
    rows = np.array([[1, nan, 0, nan, 1], [nan, 0, 0, 1, nan], [0, nan, nan, 1, 0]])
    expected = pgm.infer(model(), {"v": rows}, method=pgm.Exact()).mean
    run = functions(peer).posterior(WEIGHT, B, C, rows)
    parts = [run(2), run(1)]
    pixels, hidden = (np.concatenate([np.asarray(part[i]) for part in parts]) for i in (0, 1))
    np.testing.assert_allclose(pixels, expected["v"][np.isnan(rows)].reshape(3, 2), atol=1e-5)
    np.testing.assert_allclose(hidden, expected["h"], atol=1e-5)


@pytest.mark.parametrize(
    ("peer", "digits"), [(NUMPY, 1e-9), (JAX, 1e-5)], ids=lambda p: getattr(p, "name", None)
)
def test_belief_bound(peer, digits):
    net = pgm.sbn([6, 4, 2], rng=0)
    p, x = net.params, RNG.integers(0, 2, (8, 6)).astype(float)
    expected = pgm.MeanField(tolerance=1e-9).run(net.given({"v": x}), ("bound",)).bound
    job = functions(peer).belief_bound(
        [p["h2.bias"], p["h1.bias"], p["v.bias"]], [p["h2->h1.weight"], p["h1->v.weight"]], x, 1e-7
    )
    np.testing.assert_allclose(job(), expected, rtol=digits)


def test_tiny_rbm():
    row = np.array([1, np.nan, 0, np.nan, 1])
    found = functions(NUMPY).tiny_rbm(WEIGHT, B, C)(row)
    np.testing.assert_allclose(found, pgm.infer(model(), {"v": row}).mean["h"], rtol=1e-10)


def test_measure_reports_what_is_absent_and_what_fails():
    def broken():
        raise RuntimeError("no")

    numbers = iter([9.0, 1.0, 3.0, 2.0])  # the first warms up
    cases = {
        "pgmengine": lambda: next(numbers),
        "gone": None,
        "broken": broken,
        "slow": lambda: 8.0,
    }
    row = measure(Row("r", "s", cases), Settings(repeats=3))
    assert row.medians == {"pgmengine": 2.0, "gone": None, "broken": None, "slow": 8.0}
    assert (
        row.ratios == {"slow": 4.0}
        and row.best == "slow"
        and row.failed == {"broken": "RuntimeError: no"}
    )


@pytest.mark.long
def test_the_command_runs_with_whatever_is_installed(tmp_path):
    out = tmp_path / "table.md"
    name = "suite.py overhead, 1 thread"
    out.write_text(f"# Page\n\n<!-- {name} -->\nold\n<!-- end of {name} -->\n\nRemarks.\n")
    options = ["--only", "infer on", "--repeats", "1", "--threads", "1", "--out", out]
    command = [sys.executable, "benchmarks/suite.py", *options]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    page = out.read_text()
    assert "smoke run" in done.stdout and "infer on an RBM of 3 units" in page
    assert page.startswith("# Page\n") and "\nRemarks.\n" in page and "\nold\n" not in page
    for peer in PEERS:
        assert peer.present or f"{peer.name} absent" in done.stdout


def test_passes_hide_the_same_cells_for_every_way_to_fill_them():
    extra("sklearn")
    import passes

    x, seen = np.arange(200.0).reshape(40, 5), []

    def zeros(holes):
        seen.append(np.isnan(holes))
        return np.nan_to_num(holes)

    errors = [passes.error_of(zeros, x, seed) for seed in (0, 0, 1)]
    assert errors[0] == errors[1] != errors[2] and (seen[0] == seen[1]).all()
    assert errors[0] == pytest.approx(np.sqrt(np.mean(x[seen[0]] ** 2)))
    assert passes.text_of([1.0, 3.0]) == "2.000 +- 1.000"


def test_starts_of_em_are_compared_with_the_best_fit(tmp_path):
    import em_starts

    found = {}
    best = {"good": [0.0, 0.0], "bad": [-2.0, -1.0]}
    em_starts.measured({n: v.__getitem__ for n, v in best.items()}, -0.5, 2, found)
    assert [[short for short, _ in runs] for runs in found.values()] == [[0, 0], [2, 1]]
    moves, shows = em_starts.truth(3, 0.9, 0.8)
    assert moves.shape == (3, 3) and shows.shape == (3, 4)
    for rows in (moves, shows):
        assert (np.abs(rows.sum(axis=1) - 1) < 1e-12).all()


def test_absent_peers_are_named_in_their_rows(monkeypatch):
    from rooms import annealing, sweeps

    monkeypatch.setattr("peers.find_spec", lambda module: None)
    rows = {row.name: row for room in (sweeps, annealing) for row in room.rows(Settings())}
    for name, row in rows.items():
        assert list(row.cases)[0] == "pgmengine" and row.cases["pgmengine"] is not None
        assert TORCH.name in row.cases and all(
            row.cases[who] is None for who in row.cases if who != "pgmengine"
        ), name


# JAX warns of each fork, if a test of the peers imported it before; `apart` forks on purpose.
@pytest.mark.filterwarnings(r"ignore:os\.fork\(\) was called:RuntimeWarning")
def test_jobs_end_at_their_limits():
    from apart import apart

    def endless():
        while True:
            pass

    def wrong():
        raise ValueError("no")

    assert apart(lambda: 3, 5, 64).value == 3
    assert apart(wrong, 5, 64).failed == "ValueError: no"
    assert apart(endless, 0.2, 64).failed == "over 0.2 s"
    assert "MemoryError" in apart(lambda: np.ones(2**34), 5, 64).failed


def test_blocks_replace_their_predecessors(tmp_path):
    from apart import put_block

    file = tmp_path / "results.md"
    file.write_text("# Results\n")
    for name, text in (("a", "one"), ("b", "two"), ("a", "three")):
        put_block(file, name, text)
    found = file.read_text()
    assert found.startswith("# Results") and "one" not in found
    assert found.index("three") < found.index("two") and found.count("<!--") == 4


def test_published_values_agree_to_their_last_digit():
    from exact import agrees

    assert agrees(303.0859566, "303.086") and not agrees(303.0871, "303.086")
    assert agrees(97.44127767991, "97.4412776799") and not agrees(97.441278, "97.4412776799")
    # A trailing zero is not printed.
    assert agrees(-69.70004, "-69.7") and not agrees(-69.7003, "-69.7")


def test_exact_answers_are_measured_without_data(tmp_path):
    out = tmp_path / "exact.md"
    options = ["--only", "scaling: rows: chain of 100, 10 rows", "--repeats", "1", "--out", out]
    command = [sys.executable, "benchmarks/exact.py", *options]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = out.read_text().splitlines()
    assert "## Scaling" in lines and any(x.startswith("| rows: chain of 100") for x in lines)


def test_an_answer_is_as_good_within_its_margin():
    extra("sklearn")
    from calls import Answer, Call

    up, down, same = (Call("c", {}, "q", sense, 1.0) for sense in (1, -1, 0))
    pairs = ((5.0, 3.0), (3.0, 5.0), (4.0, 4.9))
    for call, expected in ((up, (1, 0, 1)), (down, (0, 1, 1)), (same, (0, 0, 1))):
        found = [call.as_good(Answer(1.0, a), Answer(1.0, b)) for a, b in pairs]
        assert found == list(map(bool, expected))
    assert same.as_good(Answer(1.0, 3.0, 0.5), Answer(1.0, 5.0))
    assert not up.as_good(Answer(1.0, np.nan), Answer(1.0, 3.0))
    assert up.as_good(Answer(1.0), Answer(1.0, 3.0)) is None


@pytest.mark.parametrize(
    "only", ["1,500x4, complete", pytest.param("", marks=pytest.mark.long)], ids=["one row", "all"]
)
def test_calls_of_users_are_measured_and_measured_once(tmp_path, only):
    extra("sklearn")
    out, journal = tmp_path / "everyday.md", tmp_path / "journal.jsonl"
    options = ["--scale", "small", "--only", only, "--journal", journal, "--out", out]
    command = [sys.executable, "benchmarks/everyday.py", *options]
    runs = []
    for _ in range(2):
        done = subprocess.run(
            command, cwd=Path(__file__).parents[2], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        runs.append(journal.read_text())
    measured = [json.loads(line) for line in runs[0].splitlines()]
    assert runs[0] == runs[1] and len(measured) >= 2
    assert [line["failed"] for line in measured if line["failed"]] == []
    names = {line["call"] for line in measured}
    assert all(f"| {name} | " in out.read_text() for name in names)


def test_differences_of_answers_are_found():
    import same_answers

    key = ("model", "title", "Exact", "('log_z',)")
    plain = {"answers/log_z": np.array([1.0, -np.inf]), "status": "OK", "plan": "p"}

    def worst(**changed):
        other = {name.replace("_of_", "/"): value for name, value in changed.items()}
        return same_answers.differences({key: plain}, {key: plain | other}).worst()

    assert worst() == 0.0
    assert 0 < worst(answers_of_log_z=np.array([1.0 + 1e-13, -np.inf])) < 1e-12
    # A plan in other words is no other answer, but for what means something else.
    assert worst(plan="q") == 0.0
    for value in ([1.0, np.inf], [1.0, np.nan], [1.0, 0.0], [1.0], "text"):
        value = value if isinstance(value, str) else np.array(value)
        assert worst(answers_of_log_z=value) == np.inf, value
    assert worst(status="NOT_MIXED") == worst(more=np.zeros(1)) == np.inf


@pytest.mark.long
def test_the_same_package_gives_the_same_answers(tmp_path):
    file, other = tmp_path / "before", tmp_path / "after"

    def run(*words):
        command = [sys.executable, "benchmarks/same_answers.py", *map(str, words)]
        return subprocess.run(
            command, cwd=Path(__file__).parents[2], capture_output=True, text=True
        )

    assert run("write", file, "--scale", "small").returncode == 0
    done = run("compare", file, "--scale", "small")
    assert done.returncode == 0, done.stdout + done.stderr
    before = pickle.loads(file.read_bytes())
    assert f"{len(before)} equal to the bit" in done.stdout and len(before) > 500
    key = next(key for key, one in before.items() if "answers/log_z" in one)
    before[key]["answers/log_z"] = before[key]["answers/log_z"] + 1e-6
    other.write_bytes(pickle.dumps(before))
    done = run("compare", file, other)
    assert done.returncode == 1 and " | ".join(key) in done.stdout

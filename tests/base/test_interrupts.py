"""Ctrl-C: it arrives from wherever it is lost, and a long update that it stops is taken back."""

import _thread
import signal
import sys
import threading
import time

import numpy as np
import pytest

import pgmengine as pgm
from pgmengine import _kernels
from pgmengine.base.work.interrupts import CtrlC, whole_import
from pgmengine.engine import layerwise
from pgmengine.engine.chains import make_chains
from pgmengine.learn import loop
from pgmengine.learn.run import Run

X = pgm.datasets.bars_and_stripes(3).x_train


@pytest.fixture
def ctrl_c():
    """Ctrl-C with Python's own handler, which a background job does not have."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


class Dying:
    """An object whose end Ctrl-C interrupts, so that Python prints the exception and goes on."""

    def __del__(self):
        signal.raise_signal(signal.SIGINT)


def lost_at(call, number):
    """Make a call, at whose Python call of this number a Ctrl-C is lost; return its result."""
    left = [number]

    def look(frame, event, arg):
        left[0] -= event == "call"
        if left[0] == 0:
            sys.setprofile(None)
            Dying()

    sys.setprofile(look)
    try:
        return call()
    finally:
        sys.setprofile(None)
        assert left[0] <= 0, f"the call makes fewer than {number} calls"


def network():
    b = pgm.GraphBuilder()
    b.variable("a", states=2)
    b.variable("b", states=2)
    b.conditional("a", (), [0.3, 0.7])
    b.conditional("b", ("a",), [[0.2, 0.8], [0.6, 0.4]])
    return b


def doors(folder):
    """Calls of every function in which Ctrl-C raises KeyboardInterrupt, and of `fit`."""
    model, rbm = network().build(), pgm.rbm(9, 3, rng=0)
    text, tensors, other = (str(folder / name) for name in ("a.bif", "a.safetensors", "b.bif"))
    pgm.write(model, text)
    pgm.save(model, tensors)
    ask, by = pgm.prepare(model, ("a",)), pgm.LBFGS()
    return {
        "infer": lambda: pgm.infer(rbm, want=("log_z",)),
        "explain": lambda: pgm.explain(rbm),
        "prepare": lambda: pgm.prepare(rbm),
        "ask": lambda: ask({"a": 1}),
        "build": network().build,
        "read": lambda: pgm.read(text),
        "write": lambda: pgm.write(model, other),
        "load": lambda: pgm.load(tensors),
        "save": lambda: pgm.save(model, tensors),
        "fit": lambda: pgm.fit(rbm, {"v": X}, updates=3, progress=False),
        "fit, all rows": lambda: pgm.fit(rbm, {"v": X}, updates=2, optimizer=by, progress=False),
    }


NAMES = (
    "infer", "explain", "prepare", "ask", "build", "read", "write", "load", "save", "fit",
    "fit, all rows",
)  # fmt: skip


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", NAMES)
def test_an_interrupt_that_python_loses_arrives(name, ctrl_c, tmp_path):
    call = doors(tmp_path)[name]
    expected = call()
    # The first calls are of the decorator.
    for number in (20, 40, 80, 800, 1200) if name.startswith("fit") else (20, 40):
        try:
            found = lost_at(call, number)
        except KeyboardInterrupt:
            continue
        assert getattr(found, "interrupted", False), f"{name}: lost at call {number}"
    assert type(call()) is type(expected)


@pytest.mark.parametrize("optimizer", [pgm.Adam(0.01), pgm.LBFGS()], ids=["batches", "all rows"])
def test_an_update_that_was_stopped_half_way_is_taken_back(optimizer, ctrl_c, monkeypatch):
    monkeypatch.setattr(loop, "LONG_UPDATE_SECONDS", -1.0)
    monkeypatch.setattr(Run, "call", lambda self, most: None)
    usual = loop.UnderWay.finish
    stop_at = []

    def finish(self, call):
        usual(self, call)
        if self.run.count in stop_at:
            signal.raise_signal(signal.SIGINT)
            # The second one does not wait for the end of the update.
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(loop.UnderWay, "finish", finish)

    def learned(updates, state=None, model=None):
        return pgm.fit(
            model or pgm.rbm(9, 3, rng=1), {"v": X}, updates=updates, optimizer=optimizer,
            batch_size=3, rng=2, progress=False, state=state, callbacks=[pgm.WeightNorms(every=1)],
        )  # fmt: skip

    whole, three = learned(6), learned(3)
    stop_at.append(4)
    found = learned(6)
    stop_at.clear()
    assert found.interrupted and found.state["update"] == 3
    np.testing.assert_equal(dict(found.model.params), dict(three.model.params))
    np.testing.assert_equal(found.history, three.history)
    on = learned(6, found.state, found.model)
    np.testing.assert_equal(dict(on.model.params), dict(whole.model.params))


def pressed_during(call):
    """Make a call that takes seconds, and press Ctrl-C during it."""
    begun = threading.Event()

    def press():
        begun.wait()
        time.sleep(0.1)
        _thread.interrupt_main()

    thread = threading.Thread(target=press)
    thread.start()
    try:
        begun.set()
        call()
    finally:
        thread.join()


def test_a_long_search_for_an_order_stops(ctrl_c):
    """A search of ten seconds has found no order when it has been stopped."""
    rng, count = np.random.default_rng(0), 12_000
    near = np.arange(count)[:, None] - rng.integers(1, 300, (count, 3))
    scopes = [sorted({i, *(j for j in row if j >= 0)}) for i, row in enumerate(near.tolist())]
    start = np.concatenate([[0], np.cumsum([len(scope) for scope in scopes])])
    scope = np.concatenate([np.array(scope) for scope in scopes]).astype(np.int32)
    orders = _kernels.Orders(np.full(count, 2), start, scope)
    with pytest.raises(KeyboardInterrupt):
        pressed_during(lambda: orders.greedy(_kernels.WEIGHT, 0, 0.0, np.inf))
    assert orders.best() is None
    # A later search is not stopped.
    orders.greedy(_kernels.WEIGHT, 0, 0.0, 1e3)


def test_long_sweeps_are_divided(monkeypatch):
    """Calls of compiled sweeps are short, and their results do not depend on it."""
    model, rows = pgm.rbm(9, 3, rng=1), 30
    target = model.given({"v": np.full((rows, 9), np.nan)})
    rng = np.random.default_rng(0)
    x = {name: (rng.random((rows, n)) < 0.5).astype(float) for name, n in (("v", 9), ("h", 3))}
    found, made = [], []
    run = layerwise.CompiledChains._run
    monkeypatch.setattr(
        layerwise.CompiledChains,
        "_run",
        lambda self, sweeps, *more, **named: (
            made.append(sweeps * self.target.rows * self.units) or run(self, sweeps, *more, **named)
        ),
    )
    for most in (10**9, 1000):
        monkeypatch.setattr(layerwise, "UPDATES_A_POLL", most)
        made.clear()
        chains = make_chains(target, pgm.Gibbs(), x, np.random.default_rng(1))
        assert isinstance(chains, layerwise.CompiledChains)
        weight = chains.anneal(np.linspace(0, 1, 40))
        trace = chains.trace(700)
        found.append((weight, trace, chains.values()))
        assert max(made) <= most
    np.testing.assert_equal(*found)


def test_an_import_is_whole(ctrl_c):
    ended = []
    with pytest.raises(KeyboardInterrupt), whole_import():
        signal.raise_signal(signal.SIGINT)
        ended.append(True)
    assert ended


def test_a_second_interrupt_stops_at_once(ctrl_c):
    handler = CtrlC(patience=None)
    try:
        handler.begin()
        signal.raise_signal(signal.SIGINT)
        assert handler.pressed
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    finally:
        handler.over = True
        handler.end()


def test_handlers_of_users_stay():
    seen = []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append(1))
    try:
        handler = CtrlC()
        handler.begin()
        signal.raise_signal(signal.SIGINT)
        handler.end()
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [1] and not handler.pressed

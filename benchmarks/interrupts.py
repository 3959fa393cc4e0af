"""Ctrl-C at random moments: whether it arrives, after how long, and whether the process goes on.

    python benchmarks/interrupts.py [--count 1000] [--only NAME] [--out FILE]

A case is a call of a second or more. A child process makes it again and again, and this process
sends SIGINT at a random moment of each call. The signal has arrived if the call raises
KeyboardInterrupt, or if a fit returns with `interrupted`; it is lost if the call ends as if
nothing had happened. Afterwards the child makes the call to its end, now and then, and compares
its answer with the first one, bit by bit.

The time until a call has ended is given in seconds of the clock and in seconds of computation by
the child, which count no time that other processes had the cores. The latter are of all threads.
"""

import argparse
import hashlib
import json
import logging
import select
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

import pgmengine as pgm

# How often the whole answer is computed again after an interrupt.
CALLS_A_CHECK = 6
# The earliest and the latest moment of a signal, as shares of the time of an undisturbed call.
FIRST, LAST = 0.01, 0.9
TESTS = Path(__file__).parents[1] / "tests"


def digest(found):
    """A digest of everything that an answer says."""
    out = hashlib.sha256()

    def take(value):
        if isinstance(value, dict):
            for name in sorted(value, key=str):
                out.update(str(name).encode())
                take(value[name])
        elif isinstance(value, (list, tuple)):
            for one in value:
                take(one)
        elif isinstance(value, np.ndarray) and value.dtype != object:
            out.update(np.ascontiguousarray(value).tobytes())
        elif hasattr(value, "tocsr"):
            take(value.tocsr().data)
        elif hasattr(value, "params"):
            take(dict(value.params))
        elif hasattr(value, "answers"):
            take({k: v for k, v in value.answers.items()})
        else:
            out.update(repr(value).encode())

    take(found)
    return out.hexdigest()[:16]


# Random rows that the calls of learning share.
_rng = np.random.default_rng(2)
X784 = (_rng.random((3000, 784)) < _rng.random(784)).astype(float)
X16 = pgm.datasets.bars_and_stripes().x_train
SEQUENCES = [{"x": _rng.integers(0, 8, n)} for n in _rng.integers(20, 60, 300)]
HOLES = np.where(_rng.random((400, 20)) < 0.2, np.nan, _rng.integers(0, 3, (400, 20)))


def rbm(v, h, scale=0.05, seed=0):
    rng = np.random.default_rng(seed)
    return pgm.rbm(v, h).with_params(
        {
            "v-h.weight": rng.normal(0, scale, (v, h)),
            "v.bias": rng.normal(0, 0.3, v),
            "h.bias": rng.normal(0, 0.3, h),
        }
    )


def lattice(side, weight=0.4, field=0.0, glass=False):
    b = pgm.GraphBuilder()
    s = b.layer("s", pgm.Spin(), (side, side))
    rng = np.random.default_rng(1)
    for one, two in ((s[1:], s[:-1]), (s[:, 1:], s[:, :-1])):
        b.couple(one, two, rng.normal(0, 1, one.shape) if glass else np.full(one.shape, weight))
    if field:
        b.bias(s, field)
    return b.build()


def grid_network(rows, columns, states=2, seed=0):
    rng = np.random.default_rng(seed)
    b = pgm.GraphBuilder()
    x = b.variable("x", states=states, shape=(rows, columns))
    for one, two in ((x[1:], x[:-1]), (x[:, 1:], x[:, :-1])):
        b.table((one, two), np.exp(rng.normal(0, 1, (*one.shape, states, states))))
    return b


def random_network(n, parents, states=3, near=12, seed=0):
    rng = np.random.default_rng(seed)
    b = pgm.GraphBuilder()
    for i in range(n):
        b.variable(f"x{i}", states=states)
        above = sorted(set(rng.integers(max(0, i - near), i, parents).tolist())) if i else []
        table = rng.dirichlet(np.ones(states), size=(states,) * len(above))
        b.conditional(f"x{i}", tuple(f"x{j}" for j in above), table)
    return b


def wide(n=150, seed=3):
    rng = np.random.default_rng(seed)
    b = pgm.GraphBuilder()
    x = b.variable("x", states=2, shape=n)
    pairs = {tuple(sorted(p)) for p in rng.integers(0, n, (int(2.2 * n), 2)).tolist()}
    for i, j in sorted(pairs):
        if i != j:
            b.table((x[i], x[j]), np.exp(rng.normal(0, 1, (2, 2))))
    return b


def infer(model, want, method, **more):
    return lambda: pgm.infer(model(), want=want, method=method, rng=0, progress=False, **more)


def fit(model, data, updates, **more):
    def call():
        found = pgm.fit(model(), data, updates=updates, rng=0, progress=False, **more)
        if found.interrupted:
            raise KeyboardInterrupt
        return found.model

    return call


def small_ladder(method):
    return infer(lambda: rbm(300, 100), ("marginals", "log_z"), method)


def hmm(steps):
    b = pgm.GraphBuilder()
    z = b.variable("z", states=6, shape=steps)
    x = b.variable("x", states=8, shape=steps)
    own = np.random.default_rng(0)
    b.conditional(z[0], (), own.dirichlet(np.ones(6)), name="start")
    b.conditional(z[1:], (z[:-1],), own.dirichlet(np.ones(6), 6), name="transition")
    b.conditional(x, (z,), own.dirichlet(np.ones(8), 6), name="emission")
    return b


def visible(n):
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Binary(), n)
    b.couple("v", "v")
    return b.build(rng=0)


def mixture(columns, states=3, hidden=7):
    own = np.random.default_rng(0)
    b = pgm.GraphBuilder()
    z = b.variable("z", states=hidden)
    x = b.variable("x", states=states, shape=columns)
    b.conditional(z, (), own.dirichlet(np.ones(hidden)))
    for i in range(columns):
        b.conditional(x[i], (z,), own.dirichlet(np.ones(states), hidden))
    return b.build()


def reading(path, build, write):
    write(build(), path)
    return lambda: (pgm.load if path.suffix == ".safetensors" else pgm.read)(path)


def first_bin(x):
    return (x["v"][:, 0] > 0.5).astype(int)


def calls_of_methods():
    """Return the calls of inference methods: name -> a function that returns the call."""
    return {
        "Enumeration": lambda: infer(lambda: rbm(40, 22), ("log_z", "gradient"), pgm.Enumeration()),
        "Enumeration, samples": lambda: infer(
            lambda: rbm(40, 21), ("samples", "mode"), pgm.Enumeration(draws=20000)
        ),
        "Elimination": lambda: infer(
            lambda: grid_network(18, 18).build(), ("marginals", "gradient"), pgm.Elimination()
        ),
        "Elimination, mode and samples": lambda: infer(
            lambda: grid_network(17, 17).build(), ("mode", "samples"), pgm.Elimination(draws=20000)
        ),
        "Elimination, many rows": lambda: infer(
            lambda: random_network(40, 2, near=9).build(),
            ("marginals",),
            pgm.Elimination(),
            evidence={
                f"x{i}": np.random.default_rng(i).choice([0, 1, 2, np.nan], 3000)
                for i in range(0, 40, 3)
            },
        ),
        "Exact": lambda: infer(
            lambda: random_network(200, 3, near=14).build(), ("marginals", "log_z"), pgm.Exact()
        ),
        "Planar": lambda: infer(lambda: lattice(28, field=0.0), ("log_z", "pairs"), pgm.Planar()),
        "Planar, large": lambda: infer(lambda: lattice(45), ("log_z",), pgm.Planar()),
        "MeanField": lambda: infer(
            lambda: rbm(784, 500, 0.1), ("marginals", "bound"), pgm.MeanField(restarts=60)
        ),
        "MeanField, lattice": lambda: infer(
            lambda: lattice(180, glass=True), ("marginals",), pgm.MeanField(restarts=4)
        ),
        "MeanField, belief net": lambda: infer(
            lambda: pgm.sbn([200, 200, 100], rng=0),
            ("marginals", "bound"),
            pgm.MeanField(),
            evidence={"v": (np.random.default_rng(0).random((30, 200)) < 0.5).astype(float)},
        ),
        "MCMC": lambda: infer(lambda: rbm(784, 200), ("marginals",), pgm.MCMC()),
        "MCMC, tables": lambda: infer(
            lambda: grid_network(40, 40, 3).build(), ("marginals", "pairs"), pgm.MCMC()
        ),
        "MCMC, gradient": lambda: infer(
            lambda: rbm(784, 100), ("gradient", "samples"), pgm.MCMC(draws=500)
        ),
        "MCMC, reference engine": lambda: infer(
            lambda: rbm(60, 20), ("marginals",), pgm.MCMC(kernel=Own(), draws=800)
        ),
        "SwendsenWang": lambda: infer(
            lambda: lattice(40, 0.44), ("marginals", "samples"), pgm.SwendsenWang(draws=200)
        ),
        "SwendsenWang, plan": lambda: (
            lambda: pgm.explain(lattice(200, 0.44), method=pgm.SwendsenWang())
        ),
        "ClusterLadder": lambda: infer(
            lambda: lattice(14, 0.44), ("log_z",), pgm.ClusterLadder(draws=200)
        ),
        "AIS": lambda: infer(lambda: rbm(300, 100), ("log_z",), pgm.AIS(chains=100, betas=200)),
        "AIS, tables": lambda: infer(
            lambda: grid_network(30, 30).build(), ("log_z",), pgm.AIS(chains=100, betas=300)
        ),
        "AIS, reverse": lambda: infer(
            lambda: rbm(100, 20), ("log_z",), pgm.AIS(chains=500, betas=300, reverse=True)
        ),
        "ParallelTempering": lambda: small_ladder(pgm.ParallelTempering(rungs=8, draws=400)),
        "SimulatedTempering": lambda: small_ladder(
            pgm.SimulatedTempering(betas=pgm.Linear(8), chains=10, draws=1000)
        ),
        "TemperedTransitions": lambda: infer(
            lambda: rbm(300, 100),
            ("marginals",),
            pgm.TemperedTransitions(betas=np.linspace(0.6, 1, 9).tolist(), draws=300),
        ),
        "WangLandau": lambda: infer(
            lambda: rbm(60, 20),
            ("marginals",),
            pgm.WangLandau(first_bin, bins=2, warmup=50, draws=50),
        ),
        "Forward": lambda: infer(
            lambda: random_network(300, 3).build(),
            ("log_z", "marginals"),
            pgm.Forward(draws=40_000),
            evidence={"x299": [0.0]},
        ),
        "Auto": lambda: infer(lambda: rbm(150, 30), ("marginals", "log_z"), pgm.Auto()),
        "Auto, glass": lambda: infer(lambda: lattice(40, glass=True), ("marginals",), pgm.Auto()),
    }


def calls_of_plans_and_files(folder):
    """Return the calls that plan, build, read and write; files are written to `folder`."""
    return {
        "explain, wide": lambda: lambda: str(pgm.explain(wide().build(), want=("log_z",))),
        "explain, network": lambda: (
            lambda: str(pgm.explain(random_network(2000, 3, near=40).build(), want=("log_z",)))
        ),
        "prepare": lambda: (
            lambda: repr(
                pgm.prepare(
                    random_network(700, 3, near=20).build(), ("x0",), want=("marginals",)
                ).plan
            )
        ),
        "build, lattice": lambda: lambda: lattice(1500, 0.4),
        "build, network": lambda: lambda: random_network(3000, 3).build(),
        "read, bif": lambda: reading(folder / "a.bif", random_network(800, 3).build, pgm.write),
        "read, uai": lambda: reading(folder / "a.uai", random_network(700, 4).build, pgm.write),
        "read, net": lambda: reading(folder / "a.net", random_network(1200, 3).build, pgm.write),
        "read, xmlbif": lambda: reading(
            folder / "a.xmlbif", random_network(1500, 3).build, pgm.write
        ),
        "load": lambda: reading(folder / "a.safetensors", random_network(4000, 4).build, pgm.save),
        "write": lambda: partial(pgm.write, random_network(500, 4).build(), folder / "b.bif"),
    }


def calls_of_learning():
    """Return the calls of learning."""
    return {
        "fit, template": lambda: fit(lambda: pgm.Template(hmm), SEQUENCES, 15, optimizer=pgm.EM()),
        "fit, template, LBFGS": lambda: fit(
            lambda: pgm.Template(hmm), SEQUENCES[:100], 6, optimizer=pgm.LBFGS()
        ),
        "infer, template": lambda: partial(pgm.infer, pgm.Template(hmm), SEQUENCES * 4, rng=0),
        "fit, EM": lambda: fit(lambda: mixture(20), {"x": HOLES}, 10, optimizer=pgm.EM()),
        "fit, LBFGS": lambda: fit(
            lambda: visible(18), {"v": X784[:, :18]}, 8, optimizer=pgm.LBFGS()
        ),
        "fit, LBFGS, hidden": lambda: fit(
            lambda: rbm(784, 12), {"v": X784[:1000]}, 1, optimizer=pgm.LBFGS()
        ),
        "fit, pseudo-likelihood": lambda: fit(
            lambda: visible(300),
            {"v": X784[:1000, :300]},
            1,
            optimizer=pgm.LBFGS(l2=0.01),
            negative=pgm.PseudoGradient(),
        ),
        "fit, default": lambda: fit(lambda: pgm.rbm(784, 100, rng=0), {"v": X784}, 100),
        "fit, belief net": lambda: fit(lambda: pgm.sbn([784, 60], rng=0), {"v": X784}, 10),
        "fit, DBM": lambda: fit(lambda: pgm.dbm([784, 100, 50], rng=0), {"v": X784}, 30),
        "fit, repeats": lambda: (
            lambda: [
                f.model if not f.interrupted else interrupted()
                for f in pgm.fit(
                    [pgm.rbm(784, 30, rng=i) for i in range(3)],
                    {"v": X784},
                    updates=200,
                    repeats=3,
                    rng=0,
                    progress=False,
                )
            ]
        ),
        "fit, monitors": lambda: fit(
            lambda: pgm.rbm(784, 50, rng=0),
            {"v": X784},
            20,
            callbacks=[
                pgm.PseudoLikelihood({"v": X784[:200]}, every=10),
                pgm.AISLogLikelihood({"v": X784[:100]}, log_z=pgm.AIS(20, 30), every=20),
            ],
        ),
        "pretrain": lambda: (
            lambda: pgm.pretrain(
                pgm.dbm([784, 100, 50], rng=0), {"v": X784}, updates=25, rng=0, progress=False
            )
        ),
        "GenerativeClassifier": lambda: (
            lambda: [
                dict(m.params)
                for m in pgm.GenerativeClassifier(
                    pgm.rbm(784, 30, rng=0),
                    lambda m, d, **k: pgm.fit(m, d, updates=60, progress=False, **k),
                )
                .fit(X784, X784[:, 0])
                .models_
            ]
        ),
    }


def calls_of_registries():
    """Return fits by each model phase and each optimizer of the registries of the tests."""
    sys.path.insert(0, str(TESTS))
    from registry import NEGATIVES, OPTIMIZERS

    out = {}
    for name, phase in NEGATIVES.items():
        small = name == "exact"
        out[f"fit, phase {name}"] = lambda phase=phase, small=small: fit(
            lambda: pgm.rbm(16 if small else 784, 18 if small else 50, rng=0),
            {"v": X16 if small else X784},
            12 if small else 20,
            negative=phase,
        )
    for name, optimizer in OPTIMIZERS.items():
        out[f"fit, {name}"] = lambda optimizer=optimizer: fit(
            lambda: pgm.rbm(784, 100, rng=0), {"v": X784}, 60, optimizer=optimizer
        )
    return out


def cases():
    """Return the cases: name -> a function that returns the call. Each method has one."""
    out = calls_of_methods() | calls_of_learning() | calls_of_registries()
    out |= calls_of_plans_and_files(Path(tempfile.mkdtemp()))
    from registry import METHOD_SETTINGS

    lacks = [name for name in METHOD_SETTINGS if name not in out]
    assert not lacks, f"no case of {lacks}"
    return out


def interrupted():
    raise KeyboardInterrupt


class Own:
    """A kernel of a user's own, which the reference engine runs as it is written."""

    def transition(self, prob, current):
        return prob


def child(name):
    """Make the calls of one case, as the parent asks for them."""
    logging.getLogger("pgmengine").setLevel(logging.CRITICAL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    vanished = []
    sys.unraisablehook = lambda u: vanished.append(f"{u.exc_type.__name__} in {u.object!r}")
    call = cases()[name]()
    began = time.monotonic()
    call()
    began = time.monotonic()
    expected = digest(call())
    say(seconds=time.monotonic() - began)
    while (asked := listen()) != "end":
        began = time.monotonic()
        say(began=began)
        outcome, where = "lost", ""
        try:
            found = call()
            end, spent = time.monotonic(), time.process_time()
        except KeyboardInterrupt:
            end, spent = time.monotonic(), time.process_time()
            outcome = "arrived"
        except BaseException as error:
            end, spent = time.monotonic(), time.process_time()
            outcome, where = "error", repr(error)[:300]
        right = None
        try:
            if outcome == "lost":
                right = digest(found) == expected
            elif asked == "check":
                right = digest(call()) == expected
        except KeyboardInterrupt:
            # The signal came after the end of the call.
            outcome = "late"
        say(end=end, spent=spent, outcome=outcome, where=where, right=right, vanished=vanished[:3])
        vanished.clear()


def say(**what):
    while True:
        try:
            print(json.dumps(what), flush=True)
            return
        except KeyboardInterrupt:
            pass


def listen():
    while True:
        try:
            return sys.stdin.readline().strip() or "end"
        except KeyboardInterrupt:
            pass


def interrupt(name, count, rng):
    """The outcomes of some interrupts of one case, as dictionaries."""
    errors = tempfile.TemporaryFile()
    process = subprocess.Popen(
        [sys.executable, __file__, "--child", name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        stderr=errors,
    )
    clock = (~process.pid << 3) | 2
    first = json.loads(process.stdout.readline() or "{}")
    if not first:
        return [{"case": name, "outcome": "error", "where": "the case does not run"}]
    seconds, found = first["seconds"], []
    while len(found) < count:
        process.stdin.write("check\n" if len(found) % CALLS_A_CHECK == 0 else "go\n")
        process.stdin.flush()
        process.stdout.readline()
        delay = rng.uniform(FIRST, LAST) * seconds
        if select.select([process.stdout], [], [], delay)[0]:
            # The call has ended before its moment.
            json.loads(process.stdout.readline())
            seconds *= 0.9
            continue
        sent, spent = time.monotonic(), time.clock_gettime(clock)
        process.send_signal(signal.SIGINT)
        line = process.stdout.readline()
        if not line:
            found.append({"case": name, "outcome": "died", "where": process.wait()})
            return found
        one = json.loads(line)
        late = one["outcome"] == "late" or (one["outcome"] == "lost" and one["end"] < sent + 1e-3)
        if late:
            continue
        one |= {
            "case": name,
            "delay": delay,
            "whole": seconds,
            "seconds": one["end"] - sent,
            "computed": one["spent"] - spent,
        }
        found.append(one)
    process.stdin.write("end\n")
    process.stdin.flush()
    process.wait()
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out")
    parser.add_argument("--child")
    given = parser.parse_args()
    if given.child:
        child(given.child)
        return
    names = [name for name in cases() if given.only in name]
    rng, every = np.random.default_rng(given.seed), []
    for number, name in enumerate(names):
        count = given.count // len(names) + (number < given.count % len(names))
        found = interrupt(name, count, rng) if count else []
        every += found
        if found:
            print(line_of(name, found), flush=True)
        if given.out:
            with open(given.out, "a") as file:
                file.writelines(json.dumps(one) + "\n" for one in found)
    print(line_of("all", every))


def line_of(name, found):
    """A line about some interrupts."""
    kinds = [one["outcome"] for one in found]
    clock = np.array([one["seconds"] for one in found if "seconds" in one] or [np.nan])
    own = np.array([one["computed"] for one in found if "seconds" in one] or [np.nan])
    counts = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    rights = [one["right"] for one in found if one.get("right") is not None]
    whole = np.median([one.get("whole", np.nan) for one in found])
    text = (
        f"{name:32} {whole:6.2f} s  {counts}  right {sum(rights)} of {len(rights)}  "
        f"ended after: median {np.median(clock):.3f}, 90 % {np.quantile(clock, 0.9):.3f}, "
        f"largest {clock.max():.3f} s; computed {np.quantile(own, 0.9):.3f}, {own.max():.3f} s"
    )
    notes = {str(n) for one in found for n in [one.get("where"), *one.get("vanished", [])] if n}
    return text + "".join(f"\n    {note}" for note in sorted(notes))


if __name__ == "__main__":
    main()

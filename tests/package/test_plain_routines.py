"""The package without its compiled module: the same exact answers, and refusals that say why.

A process of its own hides the compiled module. What it answers is compared with this process.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pgmengine as pgm

ROOT = Path(pgm.__file__).parents[1]

# The compiled module cannot be found, as if it had never been built.
HIDDEN = """
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: (
    None if name == "pgmengine._kernels" else real(name, *more))
"""


def without_routines(code, hidden=True, **environment):
    """Run lines in a process without the compiled module, or, not `hidden`, with it."""
    paths = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    variables = {k: v for k, v in os.environ.items() if k != "PGMENGINE_KERNELS"}
    return subprocess.run(
        [sys.executable, "-c", HIDDEN * hidden + code],
        env={**variables, "PYTHONPATH": paths, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )


def machine(hours):
    b = pgm.GraphBuilder()
    state = b.variable("state", states=("good", "worn"), shape=hours)
    sound = b.variable("sound", states=("quiet", "loud"), shape=hours)
    b.conditional(state[0], (), [0.9, 0.1], name="start")
    b.conditional(state[1:], (state[:-1],), [[0.9, 0.1], [0.1, 0.9]], name="transition")
    b.conditional(sound, (state,), [[0.8, 0.2], [0.3, 0.7]], name="emission")
    return b


def lattice():
    b = pgm.GraphBuilder()
    s = b.variable("s", states=3, shape=(4, 4))
    rng = np.random.default_rng(0)
    b.table((s[1:], s[:-1]), np.exp(rng.normal(size=(3, 3))), name="vertical")
    b.table((s[:, 1:], s[:, :-1]), np.exp(rng.normal(size=(3, 3))), name="horizontal")
    return b.build()


def exact_answers():
    """Numbers that do not depend on chance."""
    net = pgm.read(pgm.datasets.asia())
    some = pgm.infer(net, {"xray": "yes", "dysp": "yes"})
    rows = pgm.infer(net, {"xray": ["yes", None, "no"], "smoke": [None, "no", "yes"]})
    hidden = pgm.infer(pgm.Template(machine), [{"sound": ["quiet", None, "loud", "loud", None]}])[0]
    boltzmann = pgm.infer(pgm.rbm(20, 8, rng=0), want=("log_z", "marginals"))
    spins = pgm.infer(lattice(), {"s[0,0]": 1}, want=("log_z", "marginals", "mode"))
    return {
        "asia": [some.marginal(name)["yes"] for name in ("tub", "lung", "bronc", "either")],
        "rows": np.ravel(rows.marginal("lung")["yes"]).tolist(),
        "hidden": np.ravel(hidden.marginal("state")["worn"]).tolist(),
        "log_z": np.ravel([boltzmann.log_z, spins.log_z]).tolist(),
        "means": [*np.ravel(boltzmann.mean["v"]), *np.ravel(spins.marginal("s")[2])],
    }


def learned():
    """Parameters after a few updates, and after expectation maximisation."""
    x = pgm.datasets.bars_and_stripes().x_train
    fitted = pgm.fit(
        pgm.rbm(16, 8, rng=0),
        {"v": x},
        negative=pgm.ExactGradient(),
        optimizer=pgm.Adam(0.05),
        updates=20,
        rng=0,
    )
    shifts = [{"sound": ["quiet"] * 9 + ["loud"] * 5}, {"sound": ["quiet"] * 4 + ["loud"]}]
    counted = pgm.fit(pgm.Template(machine), shifts, optimizer=pgm.EM())
    return {
        "weights": np.concatenate([np.ravel(p) for p in fitted.model.params.values()]).tolist(),
        "tables": np.concatenate([np.ravel(p) for p in counted.model(3).params.values()]).tolist(),
    }


def sampled():
    """Means by chains of the reference engine, and weighted draws."""
    chains = pgm.infer(pgm.rbm(6, 4, rng=0), method=pgm.MCMC(draws=500), rng=1)
    net = pgm.read(pgm.datasets.asia())
    draws = pgm.infer(net, {"xray": "yes"}, method=pgm.Forward(), rng=1)
    return {
        "chains": np.ravel(chains.mean["v"]).tolist(),
        "errors": np.ravel(chains.stats["mcse"]["v"]).tolist(),
        "draws": [draws.marginal("lung")["yes"]],
    }


def plain(name):
    """The result of a function of this file without compiled routines."""
    done = without_routines(
        f"import json, warnings, test_plain_routines as t; warnings.simplefilter('ignore');"
        f"print(json.dumps(t.{name}(), default=float))"
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("of, close", [(exact_answers, 1e-9), (learned, 1e-5)])
@pytest.mark.filterwarnings("ignore:learning was still rising")
def test_answers_without_chance_are_those_of_the_compiled_routines(of, close):
    for key, value in of().items():
        assert plain(of.__name__)[key] == pytest.approx(value, rel=close, abs=close), key


def test_samples_without_compiled_routines_have_the_right_means(errors=5.0):
    exact = np.ravel(pgm.infer(pgm.rbm(6, 4, rng=0)).mean["v"])
    found = plain("sampled")
    assert (abs(np.array(found["chains"]) - exact) < errors * np.array(found["errors"])).all()
    net = pgm.read(pgm.datasets.asia())
    right = pgm.infer(net, {"xray": "yes"}).marginal("lung")["yes"]
    assert found["draws"][0] == pytest.approx(right, abs=0.03)


def test_an_import_says_once_that_there_are_no_routines():
    done = without_routines("import pgmengine as pgm, pgmengine.io; print(pgm.build_config())")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("without its compiled routines") == 1
    assert "compiled=False" in done.stdout


def test_the_plain_routines_can_be_asked_for_and_say_nothing():
    done = without_routines(
        "import pgmengine as pgm; print(pgm.build_config().used)", PGMENGINE_KERNELS="plain"
    )
    assert (done.stdout.strip(), done.stderr) == ("plain", "")


def test_what_has_no_plain_form_is_refused_with_the_way_out():
    done = without_routines(
        "import pgmengine as pgm\n"
        "try: pgm.infer(pgm.sbn((5, 4), rng=0), {'v': [[1] * 5]}, method=pgm.MeanField())\n"
        # The calls that answer instead stand on further lines.
        "except pgm.PgmError as error: print(str(error).splitlines()[0])\n"
        "from pgmengine import _kernels\n"
        "for name in ('Chains', 'Graph', 'TabledSweeps', 'Updates', 'GrayWalk'):\n"
        "    try: getattr(_kernels, name)()\n"
        "    except pgm.PgmError as error: print(error)\n"
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 6 and all("install" in line and "compiler" in line for line in lines), done


@pytest.mark.parametrize("hidden", [True, False], ids=["not installed", "installed"])
def test_the_reason_is_the_true_one_where_plain_routines_are_asked_for(hidden):
    """The variable where the compiled module is there, and the compiler where it is not."""
    code = (
        "from pgmengine import _kernels\n"
        "from pgmengine.apps.doctor.report import _text_of_routines\n"
        "from pgmengine.base.routines import build_config\n"
        "print(_text_of_routines(build_config()))\n"
        "try: _kernels.Chains()\n"
        "except ValueError as error: print(error)\n"
    )
    done = without_routines(code, hidden=hidden, PGMENGINE_KERNELS="plain")
    lines = done.stdout.splitlines()
    assert len(lines) == 2, done
    for line in lines:
        assert ("without its compiled routines" in line) is hidden
        assert ("PGMENGINE_KERNELS=plain has turned them off" in line) is not hidden


def test_every_routine_has_a_plain_form_or_a_refusal():
    """The stand-in has all names of the compiled module's stub."""
    import ast

    stub = ast.parse((ROOT / "pgmengine" / "_kernels.pyi").read_text(encoding="utf-8"))
    names = {n.name for n in stub.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    names |= {n.target.id for n in stub.body if isinstance(n, ast.AnnAssign)}
    only_in_tests = {"elimination_order", "width_bound"}
    from pgmengine.base import numpy_routines as routines

    assert {name for name in names if not hasattr(routines, name)} <= only_in_tests

"""Every public constructor and function, with a wrong value for each of its parameters in turn.

A wrong value is refused by a PgmError that names the parameter, or it is used: what accepts it then
answers, learns or measures. Nothing raises another exception, and no number may be NaN. A public
name joins the table by being public; arguments that must be given are in `GIVEN`.
"""

import importlib.util
import inspect
import math

import numpy as np
import pytest
import registry
from loops import one_test_over

import pgmengine as pgm

WRONG = {
    "nan": math.nan,
    "inf": math.inf,
    "-1": -1,
    "text": "x",
    "[]": [],
    "None": None,
    "True": True,
    # More digits than Python writes.
    "huge": 10**5000,
}
ROWS = {"v": np.array([[0.0, 1, 1], [1, 0, 1], [0, 0, 1], [1, 1, 0]])}
RBM, SBN = pgm.rbm(3, 2, rng=0), pgm.sbn([3, 2], rng=0)
QUICK = {"updates": 2, "progress": False}
FIT = pgm.fit(RBM, ROWS, **QUICK)
CHAINS = {"chains": 2, "warmup": 2, "draws": 10}

# Made by the package, base classes, and functions that open a window.
NOT_IN_THE_TABLE = {
    *("Axis", "BestObservation", "Compared", "Comparison", "Contribution", "CoupledTempering"),
    *("Divergence", "Expectation", "Finding", "FindingKind", "Fit", "Gain", "Models"),
    *("Impact", "Method", "Model", "NotAsked", "PgmError", "Plan", "Prepared", "Result", "Scheme"),
    *("Status", "Target", "Unit", "GraphBuilder", "Joint", "Mode", "explore", "build_config"),
    *("datasets", "diagnostics"),
}
GIVEN = {
    "AIS": {"chains": 10, "betas": 5},
    "Adaptive": {"count": 10},
    "Blend": {"alpha": 0.3},
    "Categorical": {"k": 3},
    "ClusterLadder": CHAINS | {"frustrated": True},
    "EarlyStopping": {"monitor": pgm.PseudoLikelihood(ROWS)},
    "Fixed": {"optimizer": pgm.SGD(), "entries": ("v.bias",)},
    "Forward": {"draws": 10},
    "FreeEnergyGap": {"train": ROWS, "validation": ROWS, "every": 1},
    "FullNormal": {"columns": 2},
    "GenerativeClassifier": {"model": RBM, "learn": lambda m, d, rng: pgm.fit(m, d, **QUICK)},
    "GrowingBlend": {"begin": 1, "end": 3},
    "Linear": {"count": 4},
    "MCMC": CHAINS,
    "MultiValued": {"s": 2},
    "ParallelTempering": CHAINS | {"rungs": 3},
    "SimulatedTempering": CHAINS | {"betas": pgm.Linear(3)},
    "SwendsenWang": CHAINS | {"frustrated": True},
    "Template": {"declare": lambda steps: pgm.GraphBuilder()},
    "TemperedTransitions": CHAINS | {"betas": [0.4, 1.0]},
    "ThreePiece": {"count": 10},
    "WangLandau": CHAINS | {"partition": registry.first_of_v, "bins": 2},
    "base_rate_start": {"model": RBM, "data": ROWS},
    "base_rates": {"model": RBM, "data": ROWS},
    "best_observation": {"model": RBM, "target": ("h", 0), "evidence": {"v": ROWS["v"][0]}},
    "boltzmann_machine": {"size": 3},
    "bootstrap": {"fit": FIT, "n": 1},
    "compare": {"fits": [RBM], "rows": ROWS},
    "dbm": {"sizes": [3, 2, 2]},
    "dbn": {"sizes": [3, 2, 2]},
    "divergence": {"p": RBM, "q": RBM},
    "drbm": {"inputs": 3, "hidden_size": 2, "classes": 2},
    "explain": {"model": RBM},
    "fit": {"model": RBM, "data": ROWS, "progress": False},
    "harmonic": {"a": 1, "b": 1},
    "impact": {"model": RBM, "evidence": {"v": ROWS["v"][0]}, "name": ("h", 0)},
    "infer": {"model": RBM},
    "Shards": {"parts": [ROWS]},
    "likelihood": {"values": {"v": [1, 2]}},
    "linear_decay": {"rate": 0.1, "updates": 10},
    "load": {"path": "absent"},
    "load_declaration": {"path": "absent"},
    "network": {"data": {"a": 2}, "edges": "a"},
    "noisy_and": {"probabilities": [0.5, 0.6]},
    "noisy_max": {"tables": [[[1, 0], [0.2, 0.8]]] * 2},
    "noisy_min": {"tables": [[[1, 0], [0.2, 0.8]]] * 2},
    "noisy_or": {"probabilities": [0.5, 0.6]},
    "prepare": {"model": RBM},
    "pretrain": {"model": pgm.dbn([3, 2, 2], rng=0), "data": ROWS, **QUICK},
    "rbm": {"visible_size": 3, "hidden_size": 2},
    "read": {"path": pgm.datasets.asia()},
    "read_evidence": {"path": "absent.evid"},
    "save": {"model": RBM, "path": "m.safetensors"},
    "sbn": {"sizes": [3, 2]},
    "write": {"model": RBM, "path": "m.uai"},
}
GIVEN |= {n: {"data": ROWS, "every": 1} for n in registry.MONITORS_OF_DATA if n not in GIVEN}
for short in ("AISLogLikelihood", "VariationalBound"):
    GIVEN[short]["log_z"] = pgm.AIS(5, 5)

# What messages call a parameter in other words.
IN_OTHER_WORDS = {
    "data": ("evidence must map", "needs rows whose"),
    "train": "evidence must map",
    "validation": "evidence must map",
    "betas": "Linear: count",
    "callbacks": "a callback",
    "candidates": "method must be",
    "classes": "Categorical: k",
    "declare": "a template needs a function",
    "hidden": "layer 'h': the unit",
    "hidden_size": "layer 'h': the s",
    "inputs": "layer 'x': the s",
    "layers": "the state of a partition",
    "path": "x: ",
    "probabilities": "a list with an item for each parent",
    "rungs": "one temperature",
    "size": "layer 'x': the s",
    "tables": "a list with an item for each parent",
    "values": "takes a mapping",
    "visible": "layer 'v': the unit",
    "visible_size": "layer 'v': the s",
}
# Settings that may be NaN: truth values by Python's rule, and what other settings leave unused.
NOT_A_NUMBER = {("fit", "progress"), ("infer", "progress"), ("infer", "state")}


def network_with(gate):
    b = pgm.GraphBuilder()
    for name in "abz":
        b.variable(name, states=("no", "yes"))
    for name in "ab":
        b.conditional(name, (), [0.5, 0.5])
    b.conditional("z", ("a", "b"), gate)
    return b.build()


def learned(**settings):
    return pgm.fit(RBM, ROWS, **QUICK | settings)


def use(name, x):
    """Answer, learn or measure with what was made."""
    if name.startswith("noisy"):
        network_with(x)
    elif isinstance(x, pgm.Method):
        model = SBN if name == "Forward" else RBM
        want = next(w for w in ("log_z", "marginals", "mode") if w in x.gives)
        needs = {"ModelCounting": "pyganak", "Toulbar2": "pytoulbar2"}.get(name, "numpy")
        if importlib.util.find_spec(needs):
            pgm.infer(model, want=want, method=x, rng=0)
    elif type(x) in map(type, registry.NEGATIVES.values()) or name == "PseudoGradient":
        learned(negative=x)
    elif name == "LBFGS":
        learned(optimizer=x, negative=pgm.ExactGradient())
    elif name == "EM":
        pgm.fit(pgm.read(pgm.datasets.asia()), {"smoke": ["yes", "no"]}, optimizer=x, **QUICK)
    elif name in registry.OPTIMIZERS:
        learned(optimizer=x)
    elif name in {*registry.MONITORS_OF_DATA, *registry.MONITORS}:
        learned(callbacks=[x], negative=pgm.PT(3, chains=5) if name == "Occupancy" else None)
    elif name in ("Blend", "FlipState", "Gibbs"):
        pgm.infer(RBM, method=pgm.MCMC(kernel=x, **CHAINS), rng=0)
    elif name == "GrowingBlend":
        learned(negative=pgm.PCD(kernel=x, chains=5))
    elif isinstance(x, pgm.Unit):
        pgm.GraphBuilder().layer("a", x, 2)
    elif name in ("Adaptive", "Linear", "ThreePiece"):
        pgm.infer(RBM, want="log_z", method=pgm.AIS(chains=5, betas=x), rng=0)
    elif name in ("FlatHistogram", "OneOverT"):
        tempering = pgm.SimulatedTempering(**GIVEN["SimulatedTempering"], gamma=x)
        pgm.infer(RBM, method=tempering, rng=0)
    elif name in ("harmonic", "linear_decay"):
        learned(optimizer=pgm.SGD(x))
    elif name == "GenerativeClassifier":
        x.fit(ROWS["v"], [0, 1, 0, 1]).predict(ROWS["v"])


def told_wrong(name, parameter, wrong):
    """Return what is wrong with the answer to a wrong value, or an empty string."""
    given = GIVEN.get(name, {})
    if name == "fit" and parameter not in ("updates", "epochs"):
        given = given | QUICK
    try:
        use(name, getattr(pgm, name)(**given | {parameter: WRONG[wrong]}))
    except pgm.PgmError as error:
        text = str(error)
        words = IN_OTHER_WORDS.get(parameter, ())
        words = (parameter, *((words,) if isinstance(words, str) else words))
        named = any(word in text for word in words)
        return "" if named or "absent" in text else f"does not name it: {text}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    nan = wrong == "nan" and (name, parameter) not in NOT_A_NUMBER
    return "accepts NaN" if nan else ""


@pytest.mark.filterwarnings("ignore")
@one_test_over("name", [n for n in pgm.__all__ if n not in NOT_IN_THE_TABLE])
def test_wrong_values_are_refused_by_name_or_used(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parameters = inspect.signature(getattr(pgm, name)).parameters.values()
    named = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
    found = {(p, wrong): told_wrong(name, p, wrong) for p in named for wrong in WRONG}
    assert {at: why for at, why in found.items() if why} == {}

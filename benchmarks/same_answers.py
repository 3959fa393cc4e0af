"""The same answers before and after a change: random models of every kind, by every method.

    PYTHONPATH=BEFORE python benchmarks/same_answers.py write FILE [--part 1/4] [--scale small]
    python benchmarks/same_answers.py compare FILE [AFTER]

`write` asks some 27,000 questions of the package in the folder BEFORE, and keeps all answers, all
statistics, plans, messages and errors. `compare` asks the same questions of this package, or reads
AFTER, another file, and tells every difference: numbers by their largest relative difference, texts
by an example. It ends with status 1 if a number, a kind, a status or an error differs by more than
`--tolerance`, and with 0 if only texts do. Sampling has fixed seeds, so that its answers are equal,
too, unless the change draws in another order.

`--part 1/4` takes every fourth model from the first, and `--scale small` the first model of each
kind. Models and questions come from tests/ of this folder, and use public names alone: a file is
compared with one of the same script. Load no file from elsewhere: it is a pickle.
"""

from __future__ import annotations

import pickle
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import pgmengine as pgm

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import lattices  # noqa: E402
import mixed_questions  # noqa: E402
import tiny  # noqa: E402

SCALES = ("full", "small")
# Relative difference up to which numbers are the same: sums in another order.
TOLERANCE = 1e-12
# Differences that are listed, and characters of a text that are shown.
LISTED, SHOWN = 40, 300
# Methods that are asked every question; the others leave out a third of them.
FAST = ("Exact", "Enumeration", "Elimination", "MeanField")
MARGINALS = ("marginals", "log_z", "log_prob", "pairs", "gradient", "bound")

# (model, title of the question, method, wanted) -> name of an entry -> a number or a text.
Key = tuple[str, str, str, str]
Record = dict[str, Any]


def first_is_up(x: dict[str, np.ndarray]) -> np.ndarray:
    """Return the bins of Wang-Landau: whether the first unit is above 0."""
    first = next(iter(x.values()))
    return (first.reshape(len(first), -1)[:, 0] > 0).astype(int)


METHODS = {
    "Auto": pgm.Auto(),
    "Exact": pgm.Exact(draws=20),
    "Enumeration": pgm.Enumeration(draws=20),
    "Elimination": pgm.Elimination(draws=20),
    "Planar": pgm.Planar(),
    "MeanField": pgm.MeanField(),
    "MCMC": pgm.MCMC(chains=3, warmup=5, draws=20),
    "SwendsenWang": pgm.SwendsenWang(chains=3, warmup=5, draws=20, frustrated=True),
    "ClusterLadder": pgm.ClusterLadder(chains=3, warmup=5, draws=20, frustrated=True),
    "AIS": pgm.AIS(chains=20, betas=20),
    "ParallelTempering": pgm.ParallelTempering(rungs=3, chains=2, warmup=10, draws=20),
    "SimulatedTempering": pgm.SimulatedTempering(
        betas=pgm.Linear(3), chains=2, warmup=20, draws=40
    ),
    "TemperedTransitions": pgm.TemperedTransitions(betas=[0.4, 1.0], chains=2, warmup=5, draws=10),
    "WangLandau": pgm.WangLandau(first_is_up, bins=2, chains=2, warmup=4, draws=8),
    "Forward": pgm.Forward(draws=50),
}


@dataclass(frozen=True)
class Asked:
    """A model or a template, its questions by title, and a target at other temperatures."""

    model: Any
    questions: dict[str, dict[str, Any]]
    target: Any = None


# Models of each kind, by seed.


def of_tiny(m: tiny.TinyModel) -> Asked:
    """Return a tiny model without evidence, with parts of a row, a row, and many rows."""
    rows = tiny.patterns(m)
    questions = {
        "none": {},
        "partial": {"evidence": _one_row(tiny.as_evidence(m, rows[1:2]))},
        "full": {"evidence": _one_row(tiny.as_evidence(m, rows[4:5]))},
        "rows": {"evidence": tiny.as_evidence(m, rows)},
    }
    try:
        target = tiny.mixed_target(m, 6)
    except Exception:
        # Not every model has one.
        target = None
    return Asked(m.build(), questions, target)


def _one_row(evidence: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {k: v[0] for k, v in evidence.items() if not np.isnan(v).all()}


def of_mixed(seed: int) -> Asked:
    """Return rows of many patterns about a random graph, with soft evidence and interventions."""
    q = mixed_questions.question(seed, most_states=2**7, most_rows=8)
    return Asked(q.graph.build(), {"mixed": q.arguments()})


def of_lattice(seed: int) -> Asked:
    """Return a lattice of units of some type, with equal couplings or random ones."""
    rng = np.random.default_rng(seed)
    unit = (pgm.Spin(), pgm.Binary(), pgm.Categorical(3), pgm.MultiValued(2))[seed % 4]
    pairs = lattices.edges(3, 4)
    weights = rng.normal(0, 1, len(pairs)) if seed % 3 else np.full(len(pairs), 0.4)
    if unit.width == 1:
        model = lattices.coupled(lattices.weights_of(pairs, weights, 12), unit)
    else:
        b = pgm.GraphBuilder()
        b.layer("s", unit, 12)
        b.tables(("s", "s"), pairs, 1.0 + 2.0 * abs(weights[0]) * np.eye(3))
        model = b.build()
    half = np.full(12, np.nan)
    half[rng.permutation(12)[:3]] = 1 if unit.width == 1 else 2
    return Asked(model, {"none": {}, "partial": {"evidence": {"s": half}}})


def of_gates(seed: int) -> Asked:
    """Return a noisy-or of few or many causes, a noisy-max, and a child."""
    rng, n = np.random.default_rng(seed), 4 if seed % 2 else 12
    b = pgm.GraphBuilder()
    causes = [f"c{i}" for i in range(n)]
    for cause in causes:
        b.variable(cause, states=("no", "yes"))
        p = rng.uniform(0.1, 0.9)
        b.conditional(cause, (), [1 - p, p])
    b.variable("e", states=("no", "yes"))
    b.variable("m", states=3)
    b.variable("f", states=("no", "yes"))
    b.conditional("e", causes, pgm.noisy_or(rng.random(n), 0.05))
    rows = [rng.dirichlet(np.ones(3), 2) for _ in causes[:3]]
    b.conditional("m", causes[:3], pgm.noisy_max(rows, rng.dirichlet(np.ones(3))))
    b.conditional("f", ("e",), rng.dirichlet(np.ones(2), 2))
    questions: dict[str, dict[str, Any]] = {
        "none": {},
        "f": {"evidence": {"f": "yes"}},
        "e": {"evidence": {"e": "yes", "m": 2}},
        "soft": {"evidence": {"e": "yes"}, "soft": {"m": [0.0, 0.5, -1.0]}},
        "do": {"evidence": {"f": "no"}, "do": {"e": "yes"}},
    }
    return Asked(b.build(), questions)


def of_network(seed: int) -> Asked:
    """Return a Bayesian network of six variables with random arrows."""
    rng, names = np.random.default_rng(seed), "abcdef"
    b, sizes = pgm.GraphBuilder(), rng.integers(2, 4, 6)
    for name, k in zip(names, sizes, strict=True):
        b.variable(name, states=[f"s{i}" for i in range(k)])
    for i, name in enumerate(names):
        parents = [names[j] for j in rng.permutation(i)[: rng.integers(0, 3)]]
        shape = [sizes[names.index(p)] for p in parents]
        b.conditional(name, parents, rng.dirichlet(np.ones(sizes[i]), size=shape or None))
    questions: dict[str, dict[str, Any]] = {
        "none": {},
        "partial": {"evidence": {"f": "s0", "c": "s1"}},
        "full": {"evidence": {n: "s0" for n in names}},
        "rows": {"evidence": {"f": ["s0", "s1", "s0"], "a": ["s1", "s0", "s0"]}},
        "soft": {"evidence": {"f": "s1"}, "soft": {"b": rng.normal(size=sizes[1])}},
        "do": {"evidence": {"f": "s1"}, "do": {"c": "s0"}},
    }
    return Asked(b.build(), questions)


def of_columns(seed: int) -> Asked:
    """Return a hidden class of real columns and columns of states, and rows with gaps."""
    rng, classes = np.random.default_rng(seed), 2 + seed % 3
    b = pgm.GraphBuilder()
    b.variable("class", states=classes)
    b.conditional("class", (), rng.dirichlet(np.ones(classes)))
    unit = pgm.Gaussian(0.7) if seed % 4 == 3 else pgm.Normal()
    shape = (3, classes, 1) if seed % 4 == 3 else (3, classes, 2)
    b.cause("class", b.layer("x", unit, 3), rng.normal(0, 0.7, shape), name="columns")
    for name in ("p", "q"):
        b.variable(name, states=3)
        b.conditional(name, ("class",), rng.dirichlet(np.ones(3), classes))
    x, states = rng.normal(size=(7, 3)), rng.integers(3, size=(2, 7)).astype(float)
    x[rng.random(x.shape) < 0.3] = states[rng.random(states.shape) < 0.3] = np.nan
    rows = {"x": x, "p": states[0], "q": states[1]}
    return Asked(b.build(), {"none": {}, "rows": {"evidence": rows}})


def of_deep(seed: int) -> Asked:
    """Return an RBM, a deep Boltzmann machine or a belief net."""
    rng = np.random.default_rng(seed)
    made = (partial(pgm.rbm, 6, 3), partial(pgm.dbm, [4, 3, 2]), partial(pgm.sbn, [3, 3, 2]))
    model = made[seed % 3](rng=seed)
    x = rng.integers(0, 2, model.structure.layers["v"].size).astype(float)
    part = x.copy()
    part[0] = np.nan
    many = {"v": np.stack([x, part, 1 - x])}
    rows: dict[str, dict[str, Any]] = {"none": {}, "partial": {"evidence": {"v": part}}}
    rows |= {"full": {"evidence": {"v": x}}, "rows": {"evidence": many}}
    return Asked(model, rows, model.given(many).at(0.5))


def of_template(seed: int) -> Asked:
    """Return a chain of any length, directed or not, and rows of several lengths."""
    rng = np.random.default_rng(seed)
    k = int(rng.integers(2, 4))
    start, move = rng.dirichlet(np.ones(k)), rng.dirichlet(np.ones(k), k)
    emit = rng.dirichlet(np.ones(3), k)

    def declare(steps: int) -> pgm.GraphBuilder:
        b = pgm.GraphBuilder()
        z = b.variable("z", states=k, shape=steps)
        x = b.variable("x", states=3, shape=steps)
        if seed % 3:
            b.conditional(z[0], (), start, name="start")
            b.conditional(z[1:], (z[:-1],), move, name="move")
            b.conditional(x, (z,), emit, name="emit")
        else:
            b.table((z[:-1], z[1:]), move + 0.1, name="move")
            b.table((z, x), emit + 0.1, name="emit")
        return b

    rows: list[dict[str, Any]] = [{"x": rng.integers(0, 3, n).tolist()} for n in (2, 4, 3, 4)]
    rows.append({"x": [1, None, None, 0]})
    return Asked(pgm.Template(declare), {"rows": {"evidence": rows}, "steps": {"evidence": [3]}})


# Kind -> its models by seed, and how many.
SEEDED: dict[str, tuple[Callable[[int], Asked], int]] = {
    "mixed": (of_mixed, 130),
    "lattice": (of_lattice, 16),
    "gates": (of_gates, 10),
    "network": (of_network, 24),
    "columns": (of_columns, 24),
    "deep": (of_deep, 18),
    "template": (of_template, 12),
}


def models(scale: str) -> dict[str, Callable[[], Asked]]:
    """Return name -> a function that makes the model and its questions."""
    tinies = [*tiny.MODELS, tiny.NORMAL, *(tiny.random_model(seed) for seed in range(30))]
    found = {m.name: partial(of_tiny, m) for m in tinies[: None if scale == "full" else 1]}
    for kind, (make, count) in SEEDED.items():
        for seed in range(count if scale == "full" else 1):
            found[f"{kind} {seed}"] = partial(make, seed)
    return found


# Questions and records.


def wanted(name: str, method: Any, model: Any) -> list[tuple[Any, ...]]:
    """Return the wanted quantities of each question to a method."""
    if name == "Auto":
        return [("marginals", "log_prob"), ("log_z",), ("mode",)]
    out: list[tuple[Any, ...]] = [tuple(w for w in MARGINALS if w in method.gives)]
    if method.guarantee == "exact" and name != "Planar":
        layers = model.structure.layers.items()
        units = [(n, i) for n, x in layers if x.unit.support is not None for i in range(x.size)]
        out += [("log_prob",), ("mode", "samples"), ("marginals",)]
        if len(units) > 1:
            out.append((pgm.Joint(*units[:2]), pgm.Mode(*units[:2])))
    elif "samples" in method.gives:
        out.append(("samples",))
    return out


def flat(value: Any, at: str) -> Iterator[tuple[str, Any]]:
    """Yield the arrays and texts in nested answers, each with its place."""
    if hasattr(value, "items"):
        for k, v in value.items():
            yield from flat(v, f"{at}/{k}")
    elif isinstance(value, list | tuple) and any(isinstance(v, dict | np.ndarray) for v in value):
        for k, v in enumerate(value):
            yield from flat(v, f"{at}/{k}")
    elif hasattr(value, "toarray"):
        yield at, value.toarray()
    elif value is None or isinstance(value, str) or callable(value):
        yield at, str(value).split(" at 0x")[0]
    else:
        x = np.asarray(value)
        yield at, x if x.dtype.kind in "biuf" else str(value)


def record(r: pgm.Result) -> Record:
    """Return all that an answer holds."""
    texts = {"kind": r.kind, "status": r.status.name, "warnings": "\n".join(r.warnings)}
    texts |= {"plan": str(r.plan), "refused": "\n".join(map(str, r.refused))}
    texts["method"] = repr(r.method).split(" at 0x")[0]
    return dict(flat(r.answers, "answers")) | dict(flat(r.stats, "stats")) | texts


def recorded(ask: Callable[[], Any]) -> Record:
    """Return the record of an answer or of many, or of the error."""
    try:
        found = ask()
    except pgm.PgmError as error:
        return {"error": f"PgmError: {error}".split(" at 0x")[0]}
    except Exception as error:
        return {"error": type(error).__name__}
    if isinstance(found, str):
        return {"text": found}
    if not isinstance(found, list):
        return record(found)
    return {f"{i}:{k}": v for i, one in enumerate(found) for k, v in record(one).items()}


def answers(scale: str, part: str) -> dict[Key, Record]:
    """Return the records of all questions to all models."""
    warnings.simplefilter("ignore")
    out: dict[Key, Record] = {}
    made, (first, every) = models(scale), map(int, part.split("/"))
    for number, (name, make) in enumerate(made.items()):
        # The number of a model is the same in each part: it chooses questions.
        if number % every != first - 1:
            continue
        if sys.stderr.isatty():
            print(f"\r{number + 1} of {len(made)} models ", end="", file=sys.stderr, flush=True)
        for (title, method, want), record_ in of_model(make(), number):
            out[name, title, method, want] = record_
    answered = sum("error" not in one for one in out.values())
    print(f"{len(out):,} questions, {answered:,} answered", flush=True)
    return out


def of_model(asked: Asked, number: int) -> Iterator[tuple[tuple[str, str, str], Record]]:
    """Yield (title, method, wanted) and the record of each question to a model."""
    template = isinstance(asked.model, pgm.Template)
    plain = asked.model(3) if template else asked.model
    for name, method in METHODS.items():
        wants = wanted(name, method, plain)
        for i, (title, given) in enumerate(asked.questions.items()):
            if name not in FAST and len(asked.questions) > 3 and i % 3 == number % 3:
                continue
            for want in wants:
                given_all = {"want": want, "method": method, "rng": 3, "progress": False} | given
                ask = partial(pgm.infer, asked.model, **given_all)
                yield (title, name, str(want)), recorded(ask)
        if asked.target is not None and name != "Auto":
            prepared = partial(_prepared, method, asked.target, wants[0])
            yield ("beta", name, str(wants[0])), recorded(prepared)
    if not template:
        title, given = list(asked.questions.items())[-1]
        yield (title, "explain", ""), recorded(lambda: str(pgm.explain(asked.model, **given)))
        yield ("prepared", "prepare", ""), recorded(partial(_asked_twice, asked.model))


def _prepared(method: Any, target: Any, want: tuple[Any, ...]) -> pgm.Result:
    return method.prepare(target, want).run(3)


def _asked_twice(model: pgm.Model) -> pgm.Result:
    question = pgm.prepare(model, want=("marginals", "log_prob"))
    question(rng=1)
    return question(rng=1, progress=False)


# Differences.


@dataclass
class Differences:
    """What differs: (method, largest difference, question) and texts by method and field."""

    equal: int = 0
    numbers: list[tuple[str, float, Key, str]] = field(default_factory=list)
    texts: dict[tuple[str, str], list[tuple[Key, str, str]]] = field(default_factory=dict)

    def worst(self) -> float:
        """Return the largest difference."""
        return max((far for _, far, _, _ in self.numbers), default=0.0)


def apart_by(a: Any, b: Any) -> float:
    """Return the largest relative difference of two arrays; inf where they differ in kind."""
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape:
        return np.inf
    if a.dtype.kind in "bui" and b.dtype.kind in "bui":
        return 0.0 if (a == b).all() else np.inf
    a, b = a.astype(float), b.astype(float)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if (np.isfinite(a) != np.isfinite(b)).any():
        return np.inf
    with np.errstate(all="ignore"):
        far = np.abs(a - b) / np.maximum(1.0, np.maximum(np.abs(a), np.abs(b)))
    # Infinities of opposite sign differ by NaN.
    return float(np.nan_to_num(np.where(same, 0.0, far), nan=np.inf).max(initial=0.0))


def differences(before: dict[Key, Record], after: dict[Key, Record]) -> Differences:
    """Return what differs in the questions that both files have."""
    found = Differences()
    for key in sorted(set(before) & set(after)):
        a, b = before[key], after[key]
        worst, where = 0.0, ""
        for name in sorted(set(a) | set(b)):
            far = _field_apart(a.get(name), b.get(name), key, name, found)
            worst, where = max((worst, where), (far, name))
        if worst:
            found.numbers.append((key[2], worst, key, where))
        found.equal += not worst
    return found


def _field_apart(x: Any, y: Any, key: Key, name: str, found: Differences) -> float:
    """Return how far an entry of two records is apart; texts are noted."""
    if x is None or y is None:
        return np.inf
    if not isinstance(x, str) and not isinstance(y, str):
        return apart_by(x, y)
    if isinstance(x, str) and isinstance(y, str) and x == y:
        return 0.0
    last = name.split(":")[-1]
    found.texts.setdefault((key[2], last), []).append((key, str(x), str(y)))
    means_more = last in ("error", "status", "kind") or type(x) is not type(y)
    return np.inf if means_more else 0.0


def report(before: dict[Key, Record], after: dict[Key, Record], tolerance: float) -> bool:
    """Print what differs, and return whether the answers are the same."""
    found, alone = differences(before, after), sorted(set(before) ^ set(after))
    both = len(set(before) & set(after))
    print(
        f"{both:,} questions in both, {len(alone)} in one alone; {found.equal:,} equal to the bit"
    )
    for key in alone[:LISTED]:
        print("  in one alone:", *key)
    for method in dict.fromkeys(one[0] for one in found.numbers):
        each = sorted((one for one in found.numbers if one[0] == method), key=lambda x: -x[1])
        far = sum(one[1] > tolerance for one in each)
        print(f"{method}: {len(each)} differ, {far} by more than {tolerance:g}, at most:")
        for _, distance, key, name in each[: LISTED // 8]:
            print(f"  {distance:.3g} in {name} of {' | '.join(key)}")
    for (method, name), texts in found.texts.items():
        key, x, y = texts[0]
        print(f"text of {name}, {method}: {len(texts)} differ, such as {' | '.join(key)}")
        print(f"  before: {x[:SHOWN]}\n  after:  {y[:SHOWN]}")
    return not alone and found.worst() <= tolerance


app = typer.Typer(add_completion=False)
Part = Annotated[str, typer.Option(help="1/4: every fourth model from the first")]
Scale = Annotated[str, typer.Option(help="full or small")]


def checked(scale: str) -> str:
    """Return a scale that there is."""
    if scale not in SCALES:
        raise typer.BadParameter(f"--scale must be one of {SCALES}, not {scale!r}")
    return scale


@app.command()
def write(file: Path, part: Part = "1/1", scale: Scale = "full") -> None:
    """Ask all questions, and keep the answers in a file."""
    file.write_bytes(pickle.dumps(answers(checked(scale), part)))


@app.command()
def compare(
    file: Path,
    after: Annotated[Path | None, typer.Argument(help="another file; None: ask now")] = None,
    part: Part = "1/1",
    scale: Scale = "full",
    tolerance: float = TOLERANCE,
) -> None:
    """Compare the answers of a file with those of another one, or of this package."""
    before = pickle.loads(file.read_bytes())
    if after is not None:
        now = pickle.loads(after.read_bytes())
    else:
        now = answers(checked(scale), part)
        asked = {key[0] for key in now}
        before = {key: one for key, one in before.items() if key[0] in asked}
    if not report(before, now, tolerance):
        raise typer.Exit(1)


if __name__ == "__main__":
    app()

"""Messages name only what exists: calls, attributes, arguments and options, read from the source.

A message is every text of the package with a space in it that is not a docstring: errors, warnings,
notes, findings, statuses, and help of the command line. `RAISED` has messages whose names f-strings
fill in, made on purpose. Docstrings and pages are read for names after `pgm.`; their examples run.
"""

import ast
import builtins
import importlib
import inspect
import re
from pathlib import Path

import numpy as np
import pytest
import typer
from extras import extra
from loops import one_test_over

import pgmengine as pgm
from pgmengine import plots
from pgmengine.apps.cli.commands import app
from pgmengine.infer.results.result import WANTS

SOURCES = Path(pgm.__file__).parent
# In the place of what an f-string fills in.
FILLED = "\N{WHITE SQUARE}"

# A call by its name, with its arguments where they hold no further call.
CALL = re.compile(r"(?<![\w.'\"/])([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\(([^()]*)")
DOTTED = re.compile(r"(?<![\w./'\"])((?:pgm|b|builder|r|result|model|fit)\.[A-Za-z_][\w.]*\w)")
KEYWORD = re.compile(r"(?<![\w.\-$])([A-Za-z_]\w*)=(?!=)")
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
WANTED = re.compile(r"want=[(\[]?['\"](\w+)['\"]")

# Names that stand for an object of a class.
OBJECTS = {
    "b": pgm.GraphBuilder,
    "builder": pgm.GraphBuilder,
    "r": pgm.Result,
    "result": pgm.Result,
    "model": pgm.Model,
    "fit": pgm.Fit,
    "rng": np.random.Generator,
}
# Attributes that objects get when they are made.
ATTRIBUTES = {pgm.Model: vars(pgm.rbm(2, 1, rng=0))}
# Functions of mathematics, of scikit-learn and of users, and their data.
OTHERS = {"to_pandas", "p", "log", "f", "do", "callback", "make_pipeline"}
FRAMES = {"data": "pandas.DataFrame", "frame": "pandas.DataFrame", "X": "scipy.sparse.csr_matrix"}
# Names that stand before "=" in evidence of the command line.
EVIDENCE = {"NAME", "rain", "smoke", "xray", "v"}
ENVIRONMENT = {"PGMENGINE_KERNELS", "PGMENGINE_DATA"}


def text_of(node):
    """The text of an expression of strings, or None."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(text_of(part) or FILLED for part in parts)
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            both = text_of(left), text_of(right)
            return None if both == (None, None) else "".join(x or FILLED for x in both)
    return None


def texts(tree, within=False):
    """The largest expressions of strings below a node without docstrings, with their lines."""
    for node in ast.iter_child_nodes(tree):
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if docstring or getattr(node, "name", "") == "__repr__":
            continue
        text = text_of(node)
        if text is not None and not within:
            yield text, node.lineno
        yield from texts(node, text is not None)


def messages():
    """Place in the source -> text."""
    return {
        f"{path.relative_to(SOURCES)}:{line}: {text[:40]}": text
        for path in sorted(SOURCES.rglob("*.py"))
        for text, line in texts(ast.parse(path.read_text(encoding="utf-8")))
        if " " in text and not re.match(r'<|.*(="|charset=|\\d)', text)
    }


def public():
    """Name -> function or class that users call: of the package, its modules, and its objects."""
    extra("sklearn")
    found = {name: getattr(pgm, name) for name in pgm.__all__}
    for module in (pgm.datasets, pgm.diagnostics, plots, pgm.sklearn):
        found |= {n: x for n, x in vars(module).items() if not n.startswith("_") and callable(x)}
    for thing in [x for x in found.values() if inspect.isclass(x)]:
        members = inspect.getmembers(thing, callable)
        found |= {n: x for n, x in members if not n.startswith("_") and n not in found}
    return found


PUBLIC = public()


def parameters(thing):
    try:
        return set(inspect.signature(thing).parameters)
    except (TypeError, ValueError):
        return set()


PARAMETERS = set().union(*map(parameters, PUBLIC.values()))
OPTIONS = {
    option
    for command in [typer.main.get_command(app), *typer.main.get_command(app).commands.values()]
    for parameter in command.params
    for option in [*parameter.opts, *parameter.secondary_opts]
} | {"--help"}


def has(thing, name):
    """Whether a module, or an object of a class, has an attribute."""
    fields = {*getattr(thing, "__dataclass_fields__", ()), *ATTRIBUTES.get(thing, ())}
    return name in fields or hasattr(thing, name)


def found(path):
    """The object of a dotted name, True for one that is a field; None if there is no such thing."""
    head, *rest = FRAMES.get(path.split(".")[0], path.split(".")[0]).split(".")
    rest += path.split(".")[1:]
    thing = (OBJECTS.get(head) if rest else None) or (pgm if head == "pgm" else None)
    if thing is None and not rest:
        return PUBLIC.get(head, True if head in OTHERS or has(builtins, head) else None)
    if thing is None:
        thing = importlib.import_module(head) if head in ("pandas", "sklearn", "scipy") else None
        if rest[0] in ("preprocessing", "sparse"):
            importlib.import_module(f"{head}.{rest[0]}")
    for name in rest:
        if thing is True or isinstance(thing, property):
            return True
        if thing is None or not has(thing, name):
            return None
        thing = getattr(thing, name, True)
    return thing


def unknown(text):
    """The names in a message that nothing has."""
    wrong = []
    for path, inside in CALL.findall(text):
        thing = found(path)
        wrong += [f"{path}(...)"] if thing is None else []
        known = parameters(thing) if thing not in (None, True) else set()
        if known and "kwargs" not in known:
            wrong += [f"{path}({k}=)" for k in KEYWORD.findall(inside) if k not in known]
    wrong += [path for path in DOTTED.findall(text) if found(path) is None]
    known = PARAMETERS | EVIDENCE | ENVIRONMENT | {"columns", "keep_default_na"}
    wrong += [f"{k}=" for k in KEYWORD.findall(text) if k not in known]
    wrong += [option for option in OPTION.findall(text) if option not in OPTIONS]
    return wrong + [f"want={w!r}" for w in WANTED.findall(text) if w not in WANTS]


def test_messages_name_only_what_exists():
    read = messages()
    assert {p: wrong for p, text in read.items() if (wrong := unknown(text))} == {}
    # The search is not empty: texts of the package, and those that name something.
    named = [t for t in read.values() if CALL.search(t) or KEYWORD.search(t) or OPTION.search(t)]
    assert len(read) > 1500 and len(named) > 80


ROOT = SOURCES.parent
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]


def test_docstrings_and_pages_name_only_what_exists():
    read = {str(p): p.read_text(encoding="utf-8") for p in PAGES}
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                read[f"{path}: {getattr(node, 'name', '')}"] = ast.get_docstring(node) or ""
    wrong = {
        place: names
        for place, text in read.items()
        if (names := [x for x in DOTTED.findall(text) if x[:4] == "pgm." and found(x) is None])
    }
    assert wrong == {}


@one_test_over(
    ("text", "wrong"),
    [
        ("ask pgm.entropies(model)", ["pgm.entropies(...)", "pgm.entropies"]),
        ("r.perplexity(name) gives it for a result r", ["r.perplexity(...)", "r.perplexity"]),
        ("leave out optimiser=", ["optimiser="]),
        ("take pgm.EM(pseudocounts=1)", ["pgm.EM(pseudocounts=)", "pseudocounts="]),
        ("take EM(draws=1)", ["EM(draws=)"]),
        ("give more by --epoch", ["--epoch"]),
        ("ask for want=('entropy',)", ["want='entropy'"]),
        ("give pandas.read_cvs(path)", ["pandas.read_cvs(...)"]),
        ("declare it by b.biases(units) or add()", ["b.biases(...)", "add(...)", "b.biases"]),
        ("see model.weights, model.params and fit.history", ["model.weights"]),
    ],
)
def test_a_wrong_name_is_found(text, wrong):
    assert unknown(text) == wrong


def asia(**declared):
    return pgm.read(pgm.datasets.asia())


def gate(on):
    b = pgm.GraphBuilder()
    for name in ("a", "z"):
        b.variable(name, states=("low", "high"))
    b.conditional("z", ("a",), pgm.noisy_or([0.5], on=on))
    return b.build()


def two_variables(declare):
    b = pgm.GraphBuilder()
    b.variable("a", states=("no", "yes"))
    b.variable("z", states=("no", "yes"))
    declare(b)
    return b.build()


RBM = pgm.rbm(4, 2, rng=0)
ROWS = {"v": np.zeros((3, 4))}
# Calls whose messages are put together from parts: what is wrong, and what to do.
RAISED = {
    "want": lambda: pgm.infer(RBM, want=("entropy",)),
    "not asked": lambda: pgm.infer(RBM).log_prob,
    "mode not asked": lambda: pgm.infer(RBM).assignment("v"),
    "joint not asked": lambda: pgm.infer(RBM).joint,
    "refused": lambda: pgm.infer(pgm.rbm(60, 60, rng=0), method=pgm.Exact()),
    "seconds": lambda: pgm.infer(pgm.rbm(90, 90, rng=0), want="log_z", seconds=1e-9),
    "no prior": lambda: two_variables(lambda b: b.conditional("z", ("a",), [[0.5, 0.5]] * 2)),
    "cause": lambda: two_variables(lambda b: b.cause("a", "z")),
    "rows": lambda: two_variables(lambda b: b.conditional("z", ("a",), otherwise="no")),
    "on": lambda: gate("up"),
    "on not given": lambda: gate(None),
    "builder": lambda: pgm.infer(pgm.GraphBuilder()),
    "path": lambda: pgm.infer("asia.bif"),
    "array": lambda: pgm.infer(RBM, np.zeros(4)),
    "frame": lambda: pgm.infer(asia(), "rain.csv"),
    "class": lambda: pgm.infer(RBM, method=pgm.Exact),
    "method": lambda: pgm.infer(RBM, method=3),
    "trainer": lambda: pgm.fit(RBM, ROWS, negative=3),
    "optimizer": lambda: pgm.fit(RBM, ROWS, optimizer=3),
    "EM": lambda: pgm.fit(RBM, ROWS, optimizer=pgm.EM()),
    "LBFGS": lambda: pgm.fit(RBM, ROWS, optimizer=pgm.LBFGS(), negative=pgm.PCD()),
    "occupancy": lambda: pgm.fit(RBM, ROWS, callbacks=(pgm.Occupancy(),)),
    "average": lambda: pgm.fit(RBM, ROWS, updates=1, progress=False).averaged,
    "do": lambda: pgm.infer(RBM, do={"v": np.zeros(4)}),
    "gray": lambda: pgm.infer(RBM, {"v": [0.5, 0, 0, 0]}),
    "schedule": lambda: pgm.SimulatedTempering(gamma=3),
    "template": lambda: pgm.infer(pgm.Template(lambda steps: pgm.GraphBuilder())),
    "written": lambda: pgm.write(RBM, "m.xyz"),
}


@one_test_over("name", RAISED)
def test_messages_made_on_purpose_name_only_what_exists(name):
    with pytest.raises(pgm.PgmError) as found:
        RAISED[name]()
    assert unknown(str(found.value)) == [], str(found.value)

"""Optional packages: declared by an extra, named where they are missing, and never needed unsaid.

The imports of the package and of the tests are read from their syntax trees, so that a package that
happens to be installed does not hide that nothing declares it.
"""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest
from extras import EXTRAS
from loops import one_test_over

import pgmengine as pgm
from pgmengine.base import extras

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OPTIONAL = PROJECT["optional-dependencies"]

# Modules whose distribution has another name.
DISTRIBUTIONS = {"sklearn": "scikit-learn", "xdist": "pytest-xdist"}

# Packages of other projects that single tests read models of; no extra installs them.
OTHERS = {"pgmpy", "pyagrum", "pycrfsuite"}

# Attribute -> the optional module that its use needs.
USES = {
    "to_frame": "pandas",
    "samples_frame": "pandas",
    "to_arviz": "arviz_base",
    "explore": "anywidget",
    "receptive_fields": "matplotlib",
    "completions": "matplotlib",
    "images": "matplotlib",
    "levels": "matplotlib",
}


def distributions(requirements):
    """The names of the distributions that requirements install."""
    return {re.match(r"[\w.-]+", one)[0].lower() for one in requirements}


CORE = distributions(PROJECT["dependencies"])


def distribution(module):
    return DISTRIBUTIONS.get(module, module.replace("_", "-"))


def third_party(tree, own):
    """Pairs (node, top module) of the imports that are neither Python's nor of this project."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module]
        for name in names:
            top = name.partition(".")[0]
            if top not in own and top not in sys.stdlib_module_names:
                yield node, top


def parts(tree, chosen):
    """All nodes inside the nodes that are chosen."""
    roots = [node for node in ast.walk(tree) if chosen(node)]
    return {child for root in roots for child in ast.walk(root)}


def calls(node, name):
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") == name


def is_guarded(node):
    """Whether a statement says what to do where its imports fail, or is for type checkers only."""
    if isinstance(node, ast.With):
        return any(calls(item.context_expr, "needed_by") for item in node.items)
    if isinstance(node, ast.Try):
        return any("ImportError" in ast.dump(h.type) for h in node.handlers if h.type)
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


PACKAGE = sorted((ROOT / "pgmengine").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
OWN = {
    "pgmengine",
    *(p.stem for p in TESTS),
    *(p.stem for p in (ROOT / "benchmarks").rglob("*")),
    *(p.stem for p in (ROOT / "docs").glob("*.py")),
}

# Their tables name functions that are called where the packages are there.
TABLES = {"tests/package/test_doors.py", "tests/package/test_extras.py"}


def name_of(path):
    return str(path.relative_to(ROOT))


@one_test_over("path", PACKAGE, ids=name_of)
def test_the_package_imports_what_it_declares_and_names_the_extra_of_the_rest(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    guarded = parts(tree, is_guarded)
    for node, module in third_party(tree, {"pgmengine"}):
        if distribution(module) not in CORE:
            assert module in extras.EXTRAS, f"{module}: base/extras.py does not list it"
            assert node in guarded, f"line {node.lineno}: import {module} within needed_by"


def asked(nodes):
    """The distributions that calls of extra() among nodes make sure of, with those beside them."""
    found = set()
    for node in nodes:
        if calls(node, "extra") and isinstance(node.args[0], ast.Constant):
            module = node.args[0].value
            found |= {distribution(module), *beside(module)}
    return found


def beside(module):
    """What the package of a module itself needs."""
    return {"arviz_base": {"pandas", "xarray"}}.get(module, ())


@one_test_over("path", TESTS, ids=name_of)
def test_tests_that_need_an_extra_are_skipped_without_it(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    allowed = CORE | distributions(OPTIONAL["test"]) | OTHERS
    functions = [
        n for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef))
    ]
    of_module = asked(parts(tree, lambda n: n in tree.body and n not in functions))
    needs = [(node, distribution(module)) for node, module in third_party(tree, OWN)]
    needs += [
        (node, distribution(USES[node.attr]))
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in USES and name_of(path) not in TABLES
    ]
    for node, needed in needs:
        if needed in allowed | of_module:
            continue
        inside = [f for f in functions if node in set(ast.walk(f))]
        own = asked(child for f in inside for child in ast.walk(f))
        assert needed in own, (
            f"line {node.lineno} needs {needed}: call extra() of tests/extras.py before"
        )


@one_test_over("module", EXTRAS)
def test_each_optional_module_is_declared_by_its_extra(module):
    assert distribution(module) in distributions(OPTIONAL[EXTRAS[module]])


def test_every_requirement_has_one_floor():
    """So that .ci/run can install the oldest versions that are allowed."""
    floors = {}
    for one in [*PROJECT["dependencies"], *(r for group in OPTIONAL.values() for r in group)]:
        name, floor = re.fullmatch(r"([\w.-]+)>=([\d.]+)", one).groups()
        assert floors.setdefault(name, floor) == floor, one


CALLS = {
    "to_frame()": ("pandas", "arviz", lambda r: r.to_frame()),
    "samples_frame()": ("pandas", "arviz", lambda r: r.samples_frame()),
    "to_arviz()": ("arviz_base", "arviz", lambda r: r.to_arviz()),
    "pgmengine.sklearn": ("sklearn", "sklearn", lambda r: pgm.sklearn),
    "pgmengine.torch": ("torch", "torch", lambda r: pgm.torch),
    "pgmengine.jax": ("jax", "jax", lambda r: pgm.jax),
    "explore()": ("anywidget", "explore", lambda r: pgm.explore(r.target.model)),
    "pgmengine.plots": ("matplotlib", "plots", lambda r: pgm.plots.graph(r.target.model)),
}


@pytest.mark.parametrize("what", CALLS)
def test_a_missing_package_is_named_with_its_extra(what, monkeypatch):
    module, name, call = CALLS[what]
    r = pgm.infer(pgm.rbm(3, 2, rng=0), want=("marginals", "samples"), rng=0)
    for loaded in [one for one in sys.modules if one.partition(".")[0] == module]:
        monkeypatch.setitem(sys.modules, loaded, None)
    monkeypatch.setitem(sys.modules, module, None)
    for door in ("sklearn", "torch", "jax"):
        monkeypatch.delitem(sys.modules, f"pgmengine.{door}", raising=False)
        monkeypatch.delitem(vars(pgm), door, raising=False)
    with pytest.raises(pgm.PgmError) as said:
        call(r)
    install = f"pip install 'pgmengine[{name}]'"
    message, _, instead = str(said.value).partition(f"{install}")
    assert message == f"{what} needs {module}, which is not installed: "
    assert instead in ("", "; the command pgmengine explore FILE shows it without the extra")
    assert isinstance(said.value, ImportError) and said.value.name == module


def test_faults_inside_an_optional_package_are_not_hidden():
    with pytest.raises(ModuleNotFoundError, match="^no$") as said, extras.needed_by("x"):
        raise ModuleNotFoundError("no", name="numpy.nothing")
    assert not isinstance(said.value, pgm.PgmError)

"""The rooms of the package and the direction of imports between them.

A module imports from its own room and from rooms before it in ROOMS, never from a later one.
Imports inside functions are for optional and heavy packages only, which DEFERRED lists.
"""

import ast
import functools
from collections import Counter
from pathlib import Path

import networkx as nx
import pytest
from loops import one_test_over

import pgmengine

pytestmark = pytest.mark.smoke
PACKAGE = Path(pgmengine.__file__).parent
ROOMS = ("base", "units", "model", "evidence", "declare", "engine", "infer", "learn", "io", "apps")

# Modules that users import by their path stand beside the rooms; they belong to the last one.
DOORS = {"__init__", "datasets", "diagnostics", "jax", "plots", "sklearn", "torch"}

# The compiled routines stand beside the base, whose errors they raise.
PLACES = dict.fromkeys(DOORS, "apps") | {"_kernels": "base"}

# Optional extras, and packages that take longer to import than small questions take to answer.
DEFERRED = {
    "anywidget", "arviz_base", "arviz_stats", "goatd", "matplotlib", "networkx", "pandas",
    "pyarrow", "pyganak", "pytoulbar2", "rich",
    "safetensors", "scipy", "sklearn", "threadpoolctl", "xarray", "importlib", "html", "difflib",
}  # fmt: skip


@functools.cache
def modules():
    """Pairs (parts of the path, syntax tree) of all modules, read once."""
    paths = sorted(PACKAGE.rglob("*.py"))
    places = [path.relative_to(PACKAGE).with_suffix("").parts for path in paths]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in paths]
    return list(zip(places, trees, strict=True))


def room_of(parts):
    return PLACES.get(parts[0], parts[0])


def imports(tree):
    """Pairs (node, dotted name) of every import in a syntax tree."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "relative imports hide the room"
            if node.module != "pgmengine":
                yield node, node.module
            # A name that is imported from a folder may be a module.
            yield from ((node, f"{node.module}.{alias.name}") for alias in node.names)


def inside(tree, kinds):
    """The import nodes within nodes of these kinds."""
    within = (
        child for node in ast.walk(tree) if isinstance(node, kinds) for child in ast.walk(node)
    )
    return {node for node in within if isinstance(node, (ast.Import, ast.ImportFrom))}


def for_types(tree):
    """The imports under TYPE_CHECKING."""
    tests = [
        n for n in ast.walk(tree) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.dump(n.test)
    ]
    return {child for node in tests for child in ast.walk(node)}


@one_test_over("parts, tree", modules, ids=".".join)
def test_imports_go_one_way(parts, tree):
    here = ROOMS.index(room_of(parts))
    for _, name in imports(tree):
        top, *rest = name.split(".")
        if top == "pgmengine" and rest and room_of(rest) in ROOMS:
            assert ROOMS.index(room_of(rest)) <= here, f"{'.'.join(parts)} imports {name}"


@one_test_over("parts, tree", modules, ids=".".join)
def test_imports_inside_functions_are_of_heavy_packages(parts, tree):
    hidden = inside(tree, (ast.FunctionDef, ast.AsyncFunctionDef))
    for node, name in imports(tree):
        assert node not in hidden or name.split(".")[0] in DEFERRED, f"{'.'.join(parts)}: {name}"


def test_every_module_is_in_a_room():
    assert {room_of(parts) for parts, _ in modules()} <= {*ROOMS}


def imported(typed):
    """The graph of imports between modules; `typed`: with the ones for annotations."""
    graph = nx.DiGraph()
    names = {".".join(("pgmengine", *parts)).removesuffix(".__init__") for parts, _ in modules()}
    for parts, tree in modules():
        here, skip = ".".join(("pgmengine", *parts)).removesuffix(".__init__"), for_types(tree)
        for node, name in imports(tree):
            if name in names - {"pgmengine", here} and (typed or node not in skip):
                graph.add_edge(here, name)
    return graph


def test_no_import_cycles():
    graph = imported(typed=False)
    assert not list(nx.simple_cycles(graph, 4)) and nx.is_directed_acyclic_graph(graph)


def test_circles_of_annotations_are_small(most=3):
    """Modules that need each other, counting annotations, can be read together."""
    circles = nx.strongly_connected_components(imported(typed=True))
    assert not [sorted(circle) for circle in circles if len(circle) > most]


def test_folders_are_small(most=12):
    """A folder that holds more modules hides what they are about."""
    folders = Counter(parts[:-1] for parts, _ in modules() if parts[-1] != "__init__")
    assert not {"/".join(folder): n for folder, n in folders.items() if n > most}


def test_folders_say_what_they_hold():
    for parts, tree in modules():
        if parts[-1] == "__init__":
            assert ast.get_docstring(tree), "/".join(parts)

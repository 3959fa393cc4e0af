"""Methods, optimizers and trainers as they are written in Python: MCMC, EM(pseudocount=0.5).

A text is a name of a class of pgmengine, with or without arguments. Arguments are numbers, texts,
True, False, None, tuples and lists of these, and further classes: Centered(SGD(0.1)). The text is
read as a syntax tree and never evaluated, so that it can do nothing else.
"""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Collection
from dataclasses import is_dataclass
from typing import Any

import pgmengine as pgm
from pgmengine.base.names import nearest
from pgmengine.infer.question.prepared import Method
from pgmengine.learn import negative

# Names of the classes that --negative and --optimizer take.
NEGATIVES = tuple(negative.__all__)
OPTIMIZERS = ("AdaMax", "Adam", "Averaged", "Centered", "EM", "Fixed", "LBFGS", "SGD", "Scaled")

# Names of numbers that Python has no literal for.
NUMBERS = {"inf": math.inf}


def methods() -> list[str]:
    """Return the names of the inference methods."""
    return [name for name, x in known_classes().items() if issubclass(x, Method)]


def known_classes() -> dict[str, Any]:
    """Return name -> class of everything with settings: methods, kernels, optimizers, schedules."""
    found = {name: getattr(pgm, name) for name in vars(pgm)["__all__"]}
    return {name: x for name, x in found.items() if isinstance(x, type) and is_dataclass(x)}


def read_call(text: str, what: str, names: Collection[str]) -> Any:
    """Return the object that a text describes.

    Parameters
    ----------
    text : the name of a class, with or without arguments in parentheses.
    what : the option, for messages.
    names : the names of the classes that the option takes.

    Raises
    ------
    PgmError for unknown names, for a text that is not a call, and for wrong settings.

    >>> read_call("MCMC(chains=4, draws=100)", "method", ["MCMC"]).draws
    100
    """
    known = known_classes()
    wanted = sorted(known.keys() & {*names})
    title = f"{what} {text!r}"
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise pgm.PgmError(f"{title}: expected a name, with settings as {_example(what)}") from None
    name = tree.func if isinstance(tree, ast.Call) else tree
    if not isinstance(name, ast.Name) or name.id not in wanted:
        near = nearest(name.id if isinstance(name, ast.Name) else text, wanted)
        raise pgm.PgmError(
            f"{title}: expected one of {', '.join(wanted)}{near}, with settings as {_example(what)}"
        )
    return _value(tree, known, title)


def _example(what: str) -> str:
    """Return an example of a text."""
    examples = {"method": "MCMC(draws=2000)", "negative": "PCD(k=5)"}
    return examples.get(what, "EM(pseudocount=0.5)")


def _value(tree: ast.expr, known: dict[str, Any], title: str) -> Any:
    """Return the value of a part of the syntax tree."""
    if isinstance(tree, ast.Name) and tree.id in known:
        return _made(known[tree.id], [], {}, title)
    if isinstance(tree, ast.Name) and tree.id in NUMBERS:
        return NUMBERS[tree.id]
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id in known:
        named = {k.arg: _value(k.value, known, title) for k in tree.keywords if k.arg is not None}
        if len(named) == len(tree.keywords):
            given = [_value(x, known, title) for x in tree.args]
            return _made(known[tree.func.id], given, named, title)
    if isinstance(tree, ast.Tuple):
        return tuple(_value(x, known, title) for x in tree.elts)
    if isinstance(tree, ast.List):
        return [_value(x, known, title) for x in tree.elts]
    try:
        return ast.literal_eval(tree)
    except (ValueError, TypeError, MemoryError, RecursionError):
        raise pgm.PgmError(
            f"{title}: {ast.unparse(tree)!r} is no setting, expected numbers, texts, True, False, "
            "None, tuples of these, and names of classes with their settings"
        ) from None


def _made(kind: Any, given: list[Any], named: dict[str, Any], title: str) -> Any:
    """Return an instance of a class; PgmError for wrong settings."""
    try:
        return kind(*given, **named)
    except TypeError as error:
        # Python names the method that makes an instance, which says nothing to users.
        why = str(error).replace(f"{kind.__name__}.__init__()", kind.__name__)
        settings = ", ".join(inspect.signature(kind).parameters)
        known = f"; its settings are {settings}" if settings else ""
        raise pgm.PgmError(f"{title}: {why.replace('__init__()', kind.__name__)}{known}") from None
    except pgm.PgmError as error:
        raise pgm.PgmError(f"{title}: {error}") from None
    except Exception as error:
        # Settings of a kind that a class does not expect raise errors of many kinds.
        raise pgm.PgmError(f"{title}: {type(error).__name__}: {error}") from None

"""pgmengine: declare, learn and ask graphical models of energy-based and belief-network layers.

A public name is imported when it is first used, so that a program waits for the parts that it needs
alone. The stub `__init__.pyi` is the one list of these names and of the modules they come from:
type checkers read it, and so does this file.
"""

import ast
import importlib

# The first import: everything else needs routines, compiled or plain.
import pgmengine.base.routines

# A room has the name of the function `infer`. Once it is imported, imports of its modules no longer
# put it in the place of the function.
import pgmengine.infer

del pgmengine.infer, pgmengine

# Public name -> the module that has it.
_HOMES = {
    line.names[0].name: line.module
    for line in ast.parse(__spec__.loader.get_data(f"{__file__.removesuffix('c')}i")).body
    if isinstance(line, ast.ImportFrom)
}

# The modules that need an optional package are no part of `from pgmengine import *`.
__all__ = sorted({*_HOMES} - {"jax", "plots", "sklearn", "torch"})


def __getattr__(name: str) -> object:
    """Import a public name, or ask for the version, at its first use."""
    if name == "__version__":
        # pyproject.toml has the version, and an installation records it.
        from importlib.metadata import version

        return version("pgmengine")
    if name not in _HOMES:
        hint = ": couplings, biases and tables of one name= share a parameter" * (name == "Tied")
        raise AttributeError(f"module 'pgmengine' has no attribute {name!r}{hint}")
    whole = _HOMES[name] == __name__
    try:
        module = importlib.import_module(f"{__name__}.{name}" if whole else _HOMES[name])
        globals()[name] = found = module if whole else getattr(module, name)
    except AttributeError as error:
        # Python takes an AttributeError here for a name that does not exist.
        raise ImportError(f"pgmengine.{name} cannot be imported: {error}") from error
    return found


def __dir__() -> list[str]:
    """Return the public names, also of the modules that need an optional package."""
    return sorted({*_HOMES, "__doc__", "__file__", "__version__"})

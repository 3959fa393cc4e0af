"""Optional packages by the extra that installs them; tests that need one are skipped without it."""

import pytest

EXTRAS = {
    "arviz_base": "arviz",
    "dimod": "dimod",
    "distributed": "distributed",
    "goatd": "treewidth",
    "jupytext": "tutorials",
    "matplotlib": "plots",
    "pandas": "arviz",
    "sklearn": "sklearn",
}


def extra(module):
    """The module, or a skip that says how to install it."""
    reason = f"{module} is not installed: pip install 'pgmengine[{EXTRAS[module]}]'"
    return pytest.importorskip(module, reason=reason)

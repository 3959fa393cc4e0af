"""Optional packages by the extra that installs them; tests that need one are skipped without it."""

import pytest

from pgmengine.base.extras import EXTRAS as OF_THE_PACKAGE

# Those of the package, and further ones that only tests import.
EXTRAS = OF_THE_PACKAGE | {"dimod": "dimod", "distributed": "distributed", "jupytext": "tutorials"}
EXTRAS |= {"selenium": "dev", "polars": "dev"}


def extra(module):
    """The module, or a skip that says how to install it."""
    reason = f"{module} is not installed: pip install 'pgmengine[{EXTRAS[module]}]'"
    return pytest.importorskip(module, reason=reason)

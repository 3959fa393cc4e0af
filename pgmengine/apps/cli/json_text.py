"""JSON for programs: every text is valid JSON, also where numbers are not finite.

JSON has no NaN and no infinities. A number that is not known is null, and an infinite one is the
text "Infinity" or "-Infinity", which Python's float() and JavaScript's Number() read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def as_json(value: Any) -> Any:
    """Return arrays, numbers, lists and mappings as values of JSON.

    >>> import numpy as np
    >>> as_json({"a": np.array([0.5, np.nan, -np.inf]), "b": np.int64(3)})
    {'a': [0.5, None, '-Infinity'], 'b': 3}
    """
    if isinstance(value, Mapping):
        return {str(key): as_json(x) for key, x in value.items()}
    if isinstance(value, np.ndarray):
        finite = value.dtype.kind in "biuU" or (
            value.dtype.kind == "f" and bool(np.isfinite(value).all())
        )
        return value.tolist() if finite else as_json(value.tolist())
    if isinstance(value, (list, tuple)):
        return [as_json(x) for x in value]
    if isinstance(value, np.generic):
        return as_json(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    return value


def json_text(values: Mapping[str, Any]) -> str:
    """Return a JSON object of values of JSON, with a line for each entry."""
    lines = (f"{json.dumps(key)}: {json.dumps(x, allow_nan=False)}" for key, x in values.items())
    return "{\n" + ",\n".join(f"  {line}" for line in lines) + "\n}"


def print_json(values: Mapping[str, Any]) -> None:
    """Print a mapping as a JSON object."""
    print(json_text({key: as_json(x) for key, x in values.items()}))

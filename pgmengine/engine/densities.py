"""Terms of the log density that compiled chains do not compute: of evidence, and constants."""

from __future__ import annotations

import numpy as np

from pgmengine.base.equal_rows import distinct
from pgmengine.base.types import Array, States
from pgmengine.base.work.division import blocks
from pgmengine.evidence.target import Target
from pgmengine.model.layer import Layer

# Numbers (units times states) whose log densities are computed together.
NUMBERS_AT_ONCE = 2**20


def densities_alone(target: Target, x: States) -> Array:
    """Return the log densities of states (rows, width) at beta = 0 and 1, (2, rows).

    Chains of one row of evidence may be divided among workers, and the rounding of a product
    depends on its number of rows, so that each state is computed alone. Chains of small models are
    often in equal states, which are computed once.
    """
    known = (*target.evidence.values.values(), *target.soft.values())
    if not all((some == some[:1]).all() for some in map(distinct, known)):
        width = sum(value.shape[1] for value in x.values())
        # A density takes several arrays of the size of the states, so that rows come in blocks.
        found = [
            [
                target.take(some).at(beta).log_density({n: v[some] for n, v in x.items()})
                for beta in (0.0, 1.0)
            ]
            for some in blocks(np.arange(target.rows), NUMBERS_AT_ONCE / width)
        ]
        return np.concatenate(found, axis=1)
    masks = [*target.free.values(), *target.intervened.values()]
    keys = np.concatenate([*x.values(), *masks], axis=1)
    places: dict[bytes, int] = {}
    group = np.array([places.setdefault(key.tobytes(), len(places)) for key in keys])
    _, firsts = np.unique(group, return_index=True)
    densities = np.full((2, len(firsts)), np.nan)
    for i, first in enumerate(firsts):
        alone = target.take(np.array([first]))
        state = {name: v[first : first + 1] for name, v in x.items()}
        densities[:, i] = [alone.at(beta).log_density(state)[0] for beta in (0.0, 1.0)]
    return densities[:, group]


def base_constant(layer: Layer) -> float:
    """Return the constant part of log h, summed over the units of a layer."""
    table = layer.unit.log_base
    if table is None:
        return layer.size * float(layer.unit.log_h(np.zeros(1))[0])
    return 0.0 if np.any(table != table[0]) else layer.size * float(table[0])

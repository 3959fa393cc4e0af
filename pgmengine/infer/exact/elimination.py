"""Elimination: exact answers on graphs of small width, by message passing on a junction tree.

Each evidence pattern has its conditioned model (factors over the free units), an elimination order,
and a junction tree; rows of one pattern are lanes of one pass. log Z needs the collect pass only,
marginals and expectations the distribute pass as well. The mode is the same schedule with the
maximum in place of the sum, and draws go backward through the tree.

References: Lauritzen and Spiegelhalter (1988), Shafer and Shenoy (1990), Koller and Friedman
(2009), chapter 10.
"""

from __future__ import annotations

# Seconds for a table entry and a pass.
ENTRY = 3e-9

# Quantities that need the distribute pass, and those that need factors of all parameters.
PASSES = {"marginals", "pairs", "gradient"}
PAIRS = {"pairs", "gradient"}

# Bytes of the tables of the rows that share a pass.
ROWS_BYTES = 256 * 2**20

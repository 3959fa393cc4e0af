"""The process of a model counter: it reads a formula and writes its count.

Run by `python -m`, it reads a line of JSON with the number of Boolean variables, the clauses, and
pairs of literals and weights. The counter cannot be interrupted, so
that a process of its own is what a time limit ends (model_counting.py).
"""

import json
import sys

from pgmengine.base.extras import needed_by


def main() -> None:
    """Write the word count and the weighted count of the formula that comes in."""
    with needed_by("ModelCounting"):
        from pyganak import WeightedCounter

    formula = json.load(sys.stdin)
    counter = WeightedCounter()
    counter.new_vars(formula["variables"])
    counter.add_clauses(formula["clauses"])
    for literal, weight in formula["weights"]:
        counter.set_lit_weight(literal, weight)
    print("count", repr(counter.count()))


if __name__ == "__main__":
    main()

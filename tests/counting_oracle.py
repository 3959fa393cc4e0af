"""Random networks with missing cells, and EM by enumeration in plain numpy.

A network is a list of parents and a list of tables p(child | parents), child last. A row is a list
of states, -1 where nothing is observed.
"""

from collections import Counter
from itertools import product

import numpy as np

import pgmengine as pgm
from pgmengine.infer.exact.long_chains.chain_counts import chains_of
from pgmengine.infer.exact.shared_rows import MIN_PATTERNS_TO_SHARE, MIN_ROWS_OF_OWN_TREE


def random_network(rng, units=4, most_parents=2):
    """Return numbers of states, parents and tables of a random network, parents first."""
    cards = rng.integers(2, 4, units)
    parents, tables = [], []
    for unit in range(units):
        count = int(rng.integers(0, min(unit, most_parents) + 1))
        mine = sorted(rng.choice(unit, count, replace=False).tolist()) if count else []
        shape = [*cards[mine], cards[unit]]
        parents.append(mine)
        tables.append(rng.dirichlet(np.ones(shape[-1]), shape[:-1]))
    return cards, parents, tables


def model_of(cards, parents, tables):
    """Return the network as a model, with variables x0, x1, ..."""
    b = pgm.GraphBuilder()
    for unit, k in enumerate(cards):
        b.variable(f"x{unit}", states=[f"s{i}" for i in range(k)])
    for unit, (mine, table) in enumerate(zip(parents, tables, strict=True)):
        b.conditional(f"x{unit}", tuple(f"x{p}" for p in mine), table)
    return b.build()


def key_of(unit, mine):
    """Return the name of the parameter of a conditional."""
    return f"x{unit}|{','.join(f'x{p}' for p in mine)}.table"


def data_of(rows):
    """Return rows of states as data by the names of variables and states."""
    return {
        f"x{unit}": [None if state < 0 else f"s{state}" for state in column]
        for unit, column in enumerate(np.transpose(rows))
    }


def drawn(rng, cards, parents, tables, count):
    """Return complete rows (count, units), drawn parents first."""
    rows = np.zeros((count, len(cards)), dtype=int)
    for row in rows:
        for unit, mine in enumerate(parents):
            row[unit] = rng.choice(cards[unit], p=tables[unit][tuple(row[mine])])
    return rows


def barren(parents, row):
    """Return whether each unit is unobserved with unobserved descendants only."""
    out = [False] * len(row)
    for unit in reversed(range(len(row))):
        children = [c for c, mine in enumerate(parents) if unit in mine]
        out[unit] = row[unit] < 0 and all(out[c] for c in children)
    return out


def informed(parents, rows):
    """Return whether some row informs each unit, so that it is not barren there."""
    return ~np.all([barren(parents, row) for row in rows], axis=0)


def share_a_tree(rows):
    """Return whether each row has a rare pattern, so that it shares a tree with other rows."""
    patterns = [tuple(row < 0) for row in rows]
    different = Counter(tuple(row < 0) for row in np.unique(rows, axis=0))
    rare = {p for p, count in different.items() if count < MIN_ROWS_OF_OWN_TREE}
    return [len(rare) >= MIN_PATTERNS_TO_SHARE and pattern in rare for pattern in patterns]


def left_out(model, rows, weights):
    """Return `whole` of `expected` for rows of a model: chains leave all barren families out."""
    target = model.given(data_of(rows))
    chains = chains_of([target], [weights]) is not None
    return [False] * len(rows) if chains else share_a_tree(rows)


def expected(cards, parents, tables, rows, weights, whole=None):
    """Return the log-likelihood, and the expected counts of each table.

    `whole` says for each row whether families of barren units count; None = in no row. They may be
    left out, because their counts are those of their parents times the present probabilities. The
    package leaves them out where a tree belongs to one evidence pattern, and of chains.
    """
    counts, total = [np.zeros_like(t) for t in tables], 0.0
    for row, weight, all_families in zip(rows, weights, whole or [False] * len(rows), strict=True):
        idle = [False] * len(row) if all_families else barren(parents, row)
        free = [range(k) if state < 0 else [state] for k, state in zip(cards, row, strict=True)]
        found = {}
        for x in product(*free):
            places = [(*(x[p] for p in mine), x[unit]) for unit, mine in enumerate(parents)]
            prob = np.prod([table[place] for table, place in zip(tables, places, strict=True)])
            found[tuple(places)] = prob
        likelihood = sum(found.values())
        total += weight * np.log(likelihood)
        for places, prob in found.items():
            for unit, place in enumerate(places):
                if not idle[unit]:
                    counts[unit][place] += weight * prob / likelihood
    return total, counts


def maximised(tables, counts, added, learn=None):
    """Return the tables after the M step; rows without counts stay, and tables not in `learn`."""
    out = []
    for unit, (table, count) in enumerate(zip(tables, counts, strict=True)):
        if learn is not None and not learn[unit]:
            out.append(table)
            continue
        heavy = count + added * (table > 0)
        sums = heavy.sum(axis=-1, keepdims=True)
        out.append(np.where(sums > 0, heavy / np.where(sums > 0, sums, 1.0), table))
    return out

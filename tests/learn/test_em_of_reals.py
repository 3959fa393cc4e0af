"""EM of real and categorical children together, against an EM by enumeration in plain numpy."""

from itertools import product

import numpy as np
from counting_oracle import barren, key_of, random_network
from loops import in_blocks

import pgmengine as pgm
from pgmengine.infer.exact.long_chains.chain_counts import chains_of

NAN = np.nan
# The rows that a pseudocount of 1 adds, as the documentation says.
ADDED, SIGMA, LEAST = 0.01, 0.8, 1e-3
KINDS = ("network", "mixture", "chain", "classes seen")


class Network:
    """Tables of variables, and real columns with a parent each; columns may share their rows."""

    def __init__(self, rng, kind):
        if kind == "network":
            self.cards, self.parents, tables = random_network(rng, units=3)
        elif kind == "chain":
            k = int(rng.integers(2, 4))
            self.cards, self.parents = [k, k, k], [[], [0], [1]]
            tables = [rng.dirichlet(np.ones(k), (k,) * len(p)) for p in self.parents]
        else:
            self.cards, self.parents = [3, 2, 4], [[], [0], [0]]
            tables = [
                rng.dirichlet(np.ones(k), (3,) * len(p)) for k, p in zip(self.cards, [[], [0], [0]])
            ]
        # Both steps of a chain share a table.
        names = [key_of(u, mine) for u, mine in enumerate(self.parents)]
        self.keys = ["start", "moves", "moves"] if kind == "chain" else names
        self.tables = dict(zip(self.keys, tables, strict=True))
        latent = (0,) if kind in ("mixture", "classes seen") else (0, 1, 2)
        # Column -> parent, and the name of its rows; the last one is a Gaussian.
        self.above = [int(rng.choice(latent)) for _ in range(4)]
        self.names = ["r0", "r1", "r2", "g"]
        if rng.random() < 0.5:
            self.above[1], self.names[1] = self.above[0], "r0"
        self.rows = {}
        for name, up in zip(self.names, self.above, strict=True):
            k = self.cards[up]
            rows = np.stack([rng.normal(size=k), rng.normal(size=k) * 0.3], axis=-1)
            self.rows[name] = rows[:, :1] if name == "g" else rows

    def model(self):
        b = pgm.GraphBuilder()
        if "moves" in self.tables:
            z = b.variable("z", states=int(self.cards[0]), shape=3)
            b.conditional(z[0], (), self.tables["start"], name="start")
            b.conditional(z[1:], (z[:-1],), self.tables["moves"], name="moves")
        else:
            z = [b.variable(f"x{unit}", states=int(k)) for unit, k in enumerate(self.cards)]
            for unit, (mine, key) in enumerate(zip(self.parents, self.keys, strict=True)):
                b.conditional(z[unit], tuple(z[p] for p in mine), self.tables[key])
        x, g = b.layer("real", pgm.Normal(), 3), b.layer("gauss", pgm.Gaussian(SIGMA), 1)
        for column, name in enumerate(self.names):
            child = g[0] if name == "g" else x[column]
            b.cause(z[self.above[column]], child, self.rows[name], name=name)
        return b.build()

    def log_density(self, column, value, state):
        rows = self.rows[self.names[column]][state]
        m, s = (SIGMA**2 * rows[0], SIGMA) if len(rows) == 1 else (rows[0], np.exp(rows[1]))
        return -0.5 * ((value - m) / s) ** 2 - np.log(s) - 0.5 * np.log(2 * np.pi)

    def posterior(self, states, reals):
        """Joint states of all variables -> probability given a row, and the log-likelihood."""
        free = [range(k) if s < 0 else [s] for k, s in zip(self.cards, states, strict=True)]
        found = {}
        for x in product(*free):
            each = [
                self.tables[key][(*(x[p] for p in mine), x[u])]
                for u, (mine, key) in enumerate(zip(self.parents, self.keys, strict=True))
            ]
            if not min(each):
                continue
            logs = np.log(each).sum()
            for column, value in enumerate(reals):
                if not np.isnan(value):
                    logs += self.log_density(column, value, x[self.above[column]])
            found[x] = logs
        top = max(found.values())
        log_z = top + np.log(sum(np.exp(v - top) for v in found.values()))
        return {x: np.exp(v - log_z) for x, v in found.items()}, log_z

    def idle(self, states, reals):
        """The variables that are barren in a row: a real child informs its parent."""
        parents = [*self.parents, *([up] for up in self.above)]
        row = [*states, *(-1 if np.isnan(v) else 0 for v in reals)]
        return barren(parents, row)

    def expected(self, rows, weights):
        """The log-likelihood, counts of tables, and N, sum x and sum x^2 of rows of reals."""
        total, counts = 0.0, {key: np.zeros_like(t) for key, t in self.tables.items()}
        sums = {name: np.zeros((len(r), 3)) for name, r in self.rows.items()}
        for (states, reals), weight in zip(rows, weights, strict=True):
            prob, log_z = self.posterior(states, reals)
            total, idle = total + weight * log_z, self.idle(states, reals)
            for x, p in prob.items():
                for u, mine in enumerate(self.parents):
                    if not idle[u]:
                        counts[self.keys[u]][(*(x[q] for q in mine), x[u])] += weight * p
                for column, value in enumerate(reals):
                    if not np.isnan(value):
                        row = sums[self.names[column]][x[self.above[column]]]
                        row += weight * p * np.array([1.0, value, value**2])
        return total, counts, sums

    def learned(self, rows):
        """The tables that some row informs."""
        some = ~np.all([self.idle(*row)[:3] for row in rows], axis=0)
        return {key for key, informed in zip(self.keys, some, strict=True) if informed}

    def variances(self, rows, weights):
        """The variance of the data of each parameter of reals."""
        out = {}
        for name in self.rows:
            x, w = np.array(
                [
                    (row[1][c], weight)
                    for row, weight in zip(rows, weights, strict=True)
                    for c in range(4)
                    if self.names[c] == name and not np.isnan(row[1][c])
                ]
            ).T
            out[name] = np.average((x - np.average(x, weights=w)) ** 2, weights=w)
        return out

    def maximise(self, rows, weights, added, fixed):
        _, counts, sums = self.expected(rows, weights)
        learned, v = self.learned(rows), self.variances(rows, weights)
        for key in learned:
            table = self.tables[key]
            mask = fixed.get(key, np.zeros(table.shape, dtype=bool))
            heavy = np.where(mask, 0.0, counts[key] + added * (table > 0))
            whole = heavy.sum(axis=-1, keepdims=True)
            left = 1 - np.where(mask, table, 0.0).sum(axis=-1, keepdims=True)
            new = np.where(mask, table, left * heavy / np.where(whole > 0, whole, 1.0))
            self.tables[key] = np.where(whole > 0, new, table)
        for name, (n, one, two) in ((name, found.T) for name, found in sums.items()):
            rows_of, some, w = self.rows[name], n > 0, ADDED * added
            mask = fixed.get(name, np.zeros(rows_of.shape, dtype=bool))
            mean = np.where(some, one / np.where(some, n, 1.0), 0.0)
            if name == "g":
                self.rows[name] = np.where(mask | ~some[:, None], rows_of, mean[:, None] / SIGMA**2)
                continue
            m = np.where(mask[:, 0] | ~some, rows_of[:, 0], mean)
            whole = n + w
            variance = (two - 2 * m * one + n * m**2 + w * v[name]) / np.where(whole > 0, whole, 1)
            z = np.log(np.maximum(variance, LEAST**2)) / 2
            z = np.where(mask[:, 1] | (whole == 0), rows_of[:, 1], z)
            self.rows[name] = np.stack([m, z], axis=-1)

    def objective(self, rows, weights, added):
        total, _, _ = self.expected(rows, weights)
        for key in self.learned(rows) if added else ():
            total += added * np.log(self.tables[key]).sum()
        for name, v in self.variances(rows, weights).items():
            if name != "g":
                z = self.rows[name][:, 1]
                total -= (ADDED * added * (z + v / (2 * np.exp(2 * z)))).sum()
        return total / weights.sum()


def drawn(rng, net, count, kind, gaps):
    """Rows of states and reals; the first variable is hidden, but for some rows of one kind."""
    rows = []
    for _ in range(count):
        x = []
        for mine, key in zip(net.parents, net.keys, strict=True):
            table = net.tables[key]
            x.append(int(rng.choice(table.shape[-1], p=table[tuple(x[p] for p in mine)])))
        reals = rng.normal([2.0 * x[up] for up in net.above], 0.7)
        states = np.array(x)
        states[rng.random(3) < gaps] = -1
        if kind != "classes seen" or rng.random() < 0.5:
            states[0] = -1
        if kind == "chain":
            states[:] = -1
        reals[rng.random(4) < gaps] = NAN
        reals[0] = 0.3 if np.isnan(reals).all() else reals[0]
        rows.append((states, reals))
    return rows


def data_of(rows, net):
    states = np.array([row[0] for row in rows], dtype=float)
    reals = np.array([row[1] for row in rows])
    data = {f"x{u}": np.where(states[:, u] < 0, NAN, states[:, u]) for u in range(3)}
    data = {} if "moves" in net.tables else data
    return data | {"real": reals[:, :3], "gauss": reals[:, 3:]}


def case(seed):
    rng = np.random.default_rng(seed)
    kind = KINDS[seed % 4]
    net = Network(rng, kind)
    rows = drawn(rng, net, 25, kind, gaps=0.25 if seed % 3 else 0.0)
    equal = kind == "chain" or seed % 5 == 0
    weights = np.ones(25) if equal else rng.integers(1, 4, 25).astype(float)
    masks = {}
    if seed % 2:
        start = net.model().params
        masks = {
            key: rng.random(value.shape) < 0.25
            for key, value in start.items()
            if ".bias" not in key
        }
    return net, rows, weights, [0.0, 1.0, 0.3][seed % 7 % 3], masks


@in_blocks("seed", 200, 10)
def test_each_iteration_is_the_plain_one(seed, updates=4, rtol=1e-9):
    """Gaps, weights, shared rows, fixed numbers, pseudocounts; real and categorical children."""
    net, rows, weights, added, masks = case(seed)
    steps = pgm.EM(pseudocount=added, tolerance=0.0, starts=1)
    chains = chains_of([net.model().given(data_of(rows, net))], [weights])
    assert seed % 4 == 0 or (chains is None) == (seed % 4 == 3)
    f = pgm.fit(
        net.model(),
        data_of(rows, net),
        optimizer=pgm.Fixed(steps, masks),
        updates=updates,
        sample_weight=weights,
        progress=False,
    )
    values = []
    for _ in range(f.state["update"]):
        net.maximise(rows, weights, added, masks)
        values.append(net.objective(rows, weights, added))
    for key, own in net.tables.items():
        np.testing.assert_allclose(np.exp(f.params[key]), own, rtol=rtol, atol=1e-12)
    for name, own in net.rows.items():
        np.testing.assert_allclose(f.params[name], own, rtol=rtol, atol=1e-9)
    found = np.array(f.history["objective"]["value"])
    assert (np.diff(found) >= -1e-9 * np.abs(found[1:])).all()
    if not masks:
        np.testing.assert_allclose(found, values, rtol=1e-9, atol=1e-9)

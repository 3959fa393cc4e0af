"""The mean-field bound of belief networks: the compiled rounds against the same rounds in vectorised numpy, in one run.

    PGMENGINE_THREADS=2 python benchmarks/belief.py [--data DIRECTORY]

Binary images of 8x8 pixels (from DIRECTORY/usps/usps_8x8_binary.npz, or random ones) in an 8x24x64 network learned from
some of them; then how the time grows with rows, edges, and missing pixels. Numpy makes the same updates: unit after
unit for all rows at once, xi by Newton steps; both to the same tolerance.
"""

import time
from pathlib import Path

import numpy as np
import typer
from scipy.special import expit

import pgmengine as pgm


class Rounds:
    """The bound of a binary network v <- h1 <- h2 with all leaves observed, eqs. 20 to 25, vectorised over rows."""

    def __init__(self, model, x):
        p = model.params
        self.bias = [p["h2.bias"], p["h1.bias"], p["v.bias"]]
        self.weight = [p["h2->h1.weight"], p["h1->v.weight"]]
        self.mean = [np.full((len(x), len(b)), 0.5) for b in self.bias[:2]] + [x]
        self.xi = [np.full((len(x), len(b)), 0.5) for b in self.bias[1:]]

    def log_sums(self, child, xi):
        """log E[exp((k - xi) z)] for k = 0, 1, and the tilted means and variances of z, each (2, rows, children)."""
        q, weight, bias = self.mean[child][:, :, None], self.weight[child], self.bias[child + 1]
        out = []
        for k in (0.0, 1.0):
            t = (k - xi)[:, None, :] * weight
            e = np.exp(t)
            sums = 1.0 - q + q * e
            tilted = q * e / sums
            out.append((np.log(sums).sum(axis=1) + (k - xi) * bias, (tilted * weight).sum(axis=1) + bias,
                        (tilted * (1 - tilted) * weight**2).sum(axis=1)))
        return [np.stack(part) for part in zip(*out, strict=True)]

    def tighten(self, child):
        """One Newton step in xi, kept where it does not raise F; F of every child."""
        mean = self.mean[child] @ self.weight[child] + self.bias[child + 1]
        logs, m1, m2 = self.log_sums(child, self.xi[child])
        phi = expit(logs[1] - logs[0])
        f = self.xi[child] * mean + np.logaddexp(*logs)
        g = mean - (1 - phi) * m1[0] - phi * m1[1]
        h = (1 - phi) * m2[0] + phi * m2[1] + phi * (1 - phi) * (m1[1] - m1[0]) ** 2
        new = np.clip(self.xi[child] - g / (h + 1e-12), 0, 1)
        better = new * mean + np.logaddexp(*self.log_sums(child, new)[0]) <= f
        self.xi[child] = np.where(better, new, self.xi[child])

    def update(self, layer):
        """Eq. 25 for every unit of a layer; the largest change of a mean."""
        child, change = layer, 0.0
        below, xi, weight = self.mean[layer + 1], self.xi[child], self.weight[child]
        logs = self.log_sums(child, xi)[0]
        for j in range(weight.shape[0]):
            q, w = self.mean[layer][:, [j]], weight[j]
            e = [np.exp((k - xi) * w) for k in (0.0, 1.0)]
            sums = [1.0 - q + q * x for x in e]
            phi = expit(logs[1] - logs[0])
            u = self.bias[layer][j] + (w * (below - xi)).sum(axis=1)
            u -= ((1 - phi) * (e[0] - 1) / sums[0] + phi * (e[1] - 1) / sums[1]).sum(axis=1)
            if layer:
                u += self.mean[layer - 1] @ self.weight[layer - 1][:, j]
            new = expit(u)
            for k in (0, 1):
                logs[k] += np.log(1.0 - new[:, None] + new[:, None] * e[k]) - np.log(sums[k])
            change = max(change, np.abs(new - q[:, 0]).max())
            self.mean[layer][:, j] = new
        return change

    def settle(self, tolerance, limit=200):
        """Rounds until no mean changes by more."""
        for child in (0, 1):
            for _ in range(4):
                self.tighten(child)
        for made in range(1, limit + 1):
            change = max(self.update(1), self.update(0))
            for child in (0, 1):
                self.tighten(child)
            if change <= tolerance:
                return made
        return limit

    def bound(self):
        """Eq. 20 and the entropy."""
        total = np.zeros(len(self.mean[0]))
        for layer in (0, 1):
            q = np.clip(self.mean[layer], 1e-300, 1 - 1e-16)
            total -= (q * np.log(q) + (1 - q) * np.log1p(-q)).sum(axis=1)
        total += self.mean[0] @ self.bias[0] - np.logaddexp(0, self.bias[0]).sum()
        for child in (0, 1):
            mean = self.mean[child] @ self.weight[child] + self.bias[child + 1]
            f = self.xi[child] * mean + np.logaddexp(*self.log_sums(child, self.xi[child])[0])
            total += (self.mean[child + 1] * mean - f).sum(axis=1)
        return total


def timed(f, repeats=3):
    """(best seconds, value)."""
    best = np.inf
    for _ in range(repeats):
        begin = time.perf_counter()
        value = f()
        best = min(best, time.perf_counter() - begin)
    return best, value


def images(data):
    """(rows, 64) binary."""
    if data is None:
        return np.random.default_rng(0).integers(0, 2, (11_000, 64)).astype(float)
    return np.unpackbits(np.load(data / "usps" / "usps_8x8_binary.npz")["X"], axis=1).astype(float)


def learned(sizes, x):
    """A network that knows something of the images."""
    return pgm.fit(pgm.sbn(sizes, rng=0), {"v": x}, positive=pgm.MeanField(updates=10, tolerance=1e-3),
                   optimizer=pgm.Adam(0.01), batch_size=50, epochs=5, progress=False).model


def main(data: Path | None = None):
    everything = images(data)
    x, model = everything[::11][:1000], learned([64, 24, 8], everything[:1400:2])
    target = model.given({"v": x})
    sure = pgm.MeanField(updates=5000, tolerance=1e-11).run(target, ("bound",)).bound
    print("tolerance   seconds for 1,000 rows   largest relative error of the bound   numpy, seconds   ratio")
    for tolerance in (1e-3, 1e-5, 1e-7):
        method = pgm.MeanField(tolerance=tolerance)
        took, r = timed(lambda method=method: method.run(target, ("bound",)))
        rounds = Rounds(model, x[:200].copy())
        slow, _ = timed(lambda rounds=rounds, tolerance=tolerance: rounds.settle(tolerance), 1)
        apart = np.abs(rounds.bound() / sure[:200] - 1).max()
        print(f"{tolerance:8.0e} {took:15.3f} ({r.stats['rounds']} rounds) {np.abs(r.bound / sure - 1).max():20.1e}"
              f" {5 * slow:30.2f} (error {apart:.0e}) {5 * slow / took:8.1f}")
    method = pgm.MeanField(tolerance=1e-3)
    base = timed(lambda: method.run(target, ("bound",)))[0]
    for rows in (1, 8, 100, 1000, 8000):
        took, _ = timed(lambda rows=rows: method.run(model.given({"v": everything[:rows]}), ("bound",)))
        print(f"rows {rows:6d}: {1e6 * took / rows:9.1f} us a row, {took / base:7.3f} of 1,000 rows")
    for sizes in ([64, 24, 8], [64, 48, 16], [64, 96, 32], [64, 192, 64]):
        wide = learned(sizes, everything[:200])
        took, r = timed(lambda wide=wide: method.run(wide.given({"v": x}), ("bound",)), 1)
        edges, rounds = sizes[0] * sizes[1] + sizes[1] * sizes[2], r.stats["rounds"]
        print(f"{'x'.join(map(str, sizes[::-1])):10s} {edges:6d} edges: {took:7.3f} s, {rounds} rounds at most, "
              f"{1e9 * took / len(x) / rounds / edges:6.2f} ns a row, edge and round")
    rng = np.random.default_rng(0)
    for share in (0.0, 0.3, 0.6, 0.9):
        holes = np.where(rng.random(x.shape) < share, np.nan, x)
        took, _ = timed(lambda holes=holes: method.run(model.given({"v": holes}), ("bound",)))
        print(f"{100 * share:3.0f} % of the pixels missing: {took / base:6.2f} of the time with none")


if __name__ == "__main__":
    typer.run(main)

"""Coverage of intervals under a good status: random models against exact answers.

python benchmarks/trust.py [--models 25] [--scales 0.5,2,6] [--methods
MCMC,ParallelTempering,SimulatedTempering]

The models are small, so that the exact answer is known, and stand in for large ones. Checks that
are exact on small models alone are therefore switched off: methods run by themselves, without the
exact sums of `infer`, and draws are compared with exact conditionals of small blocks only.
"""

import argparse
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

import pgmengine as pgm
from pgmengine.infer.sampling.draws import blocks, rao_blackwell

# States of all cliques of a block together.
SMALL_BLOCK = 2.0**8


def small_blocks(target, states, rng):
    """Blocks that do not hold all units of a model."""
    return blocks.blocks(target, min(states, SMALL_BLOCK), rng)


rao_blackwell.blocks = small_blocks

METHODS = {
    type(m).__name__: m
    for m in (
        pgm.MCMC(),
        pgm.ParallelTempering(),
        pgm.SimulatedTempering(),
        pgm.TemperedTransitions(),
        pgm.AIS(),
        pgm.Forward(),
        pgm.Auto(candidates=pgm.Auto().candidates[1:]),
    )
}
GIVE_LOG_Z = ("ParallelTempering", "SimulatedTempering", "AIS", "Forward", "Auto")


@dataclass
class Count:
    """Units and models whose intervals held, and how runs ended."""

    means: int = 0
    means_held: int = 0
    log_z: int = 0
    log_z_held: int = 0
    worst: float = 0.0
    # (units, units held) of each model whose means were compared.
    by_model: list[tuple[int, int]] = field(default_factory=list)
    ended: Counter = field(default_factory=Counter)

    def __str__(self):
        share = f"{self.means_held / self.means:.3f} of {self.means}" if self.means else "none"
        return (
            f"means held {share}, worst error {self.worst:.3f}; log Z held {self.log_z_held} of "
            f"{self.log_z}; "
            + ", ".join(f"{name} {count}" for name, count in sorted(self.ended.items()))
        )


def random_model(rng, scale):
    """A model of 12 to 16 units of one of five kinds, weights of standard deviation `scale`, and
    its evidence.
    """

    def normal(*shape):
        return scale * rng.normal(size=shape)

    kind = rng.integers(5)
    if kind == 0:
        weights = {"v-h.weight": normal(8, 6), "v.bias": normal(8) / 2, "h.bias": normal(6) / 2}
        return pgm.rbm(8, 6).with_params(weights), {}
    if kind == 1:
        w = np.triu(normal(12, 12) / 2, 1)
        return pgm.boltzmann_machine(12, weight=w + w.T).with_params({"x.bias": normal(12) / 4}), {}
    if kind == 2:
        weights = {
            "v-h1.weight": normal(6, 5),
            "h1-h2.weight": normal(5, 4),
            "v.bias": normal(6) / 2,
        }
        return pgm.dbm([6, 5, 4]).with_params(weights), {}
    if kind == 3:
        net = pgm.sbn([6, 5, 3]).with_params(
            {"h1->v.weight": normal(5, 6), "h2->h1.weight": normal(3, 5)}
        )
        return net, {"v": np.where(np.arange(6) < 4, rng.integers(0, 2, 6), np.nan)}
    b = pgm.GraphBuilder()
    b.layer("a", pgm.Categorical(3), 3, bias=normal(3, 3) / 3)
    b.layer("s", pgm.Spin(), 5)
    b.layer("m", pgm.MultiValued(3), 3)
    b.couple("a", "s", weight=normal(9, 5) / 2)
    b.couple("s", "m", weight=normal(5, 3))
    return b.build(), {}


def coverage(name, scale, models, seed=0):
    """Count what held of one method, for random models of one scale."""
    out = Count()
    for i in range(models):
        rng = np.random.default_rng([seed, i, int(100 * scale)])
        model, evidence = random_model(rng, scale)
        exact = pgm.infer(model, evidence, want=("marginals", "log_z"), method=pgm.Exact())
        wants = (
            [("log_z",)]
            if name == "AIS"
            else [("marginals",)] + [("log_z",)] * (name in GIVE_LOG_Z)
        )
        for want in wants:
            try:
                drawn = int(rng.integers(2**31))
                r = METHODS[name].run(model.given(evidence), want, rng=drawn)
            except pgm.PgmError:
                out.ended["refused"] += 1
                continue
            out.ended[r.status.name] += 1
            if r.status.good:
                _compare(out, model.given(evidence), r, exact, want)
    return out


def _compare(out, target, r, exact, want):
    if "log_z" in want:
        low, high = r.log_z_interval[0]
        out.log_z += 1
        out.log_z_held += int(low <= exact.log_z[0] <= high)
        return
    free = target.free
    before = out.means, out.means_held
    for name, mean in exact.mean.items():
        units = np.ravel(target.components(name, free[name]))
        off = np.ravel(np.abs(r.mean[name] - mean))[units]
        out.means += off.size
        out.means_held += int((off <= 1.96 * np.ravel(r.stats["mcse"][name])[units] + 1e-9).sum())
        out.worst = max(out.worst, off.max(initial=0.0))
    out.by_model.append((out.means - before[0], out.means_held - before[1]))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=int, default=25)
    parser.add_argument("--scales", default="0.5,2,6")
    parser.add_argument("--methods", default="MCMC,ParallelTempering,SimulatedTempering")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for scale in map(float, args.scales.split(",")):
        for name in args.methods.split(","):
            print(
                f"scale {scale:g}, {name}: {coverage(name, scale, args.models, args.seed)}",
                flush=True,
            )


if __name__ == "__main__":
    main()

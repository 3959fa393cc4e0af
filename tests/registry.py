"""Every public unit, kernel, method and negative phase, which the contract tests run.

Add an instance of a new class here: `test_registries.py` fails until it is listed, and the contract
test of its kind then runs it through everything that it must do.
"""

import math

import pgmengine as pgm

UNITS = (
    pgm.Binary(),
    pgm.Spin(),
    pgm.MultiValued(1),
    pgm.MultiValued(2),
    pgm.MultiValued(3),
    pgm.MultiValued(7),
    pgm.MultiValued(math.inf),
    pgm.Gaussian(0.7),
    pgm.Categorical(3),
    pgm.Categorical(4),
    pgm.NoisyOr(),
    pgm.Input(),
)
KERNELS = (pgm.Gibbs(), pgm.FlipState(), pgm.Blend(0.3))
# The kernels that compiled sweeps know; the reference engine runs the others.
COMPILED = tuple(k for k in KERNELS if "flip_share" in vars(type(k)))


def first_of_v(x):
    """A partition of the states into two bins, by the first column of layer v."""
    return (x["v"].reshape(len(x["v"]), -1)[:, 0] > 0).astype(int)


METHODS = {
    "Exact": pgm.Exact(draws=4000),
    "Enumeration": pgm.Enumeration(draws=4000),
    "Elimination": pgm.Elimination(draws=4000),
    "MeanField": pgm.MeanField(),
    "MCMC": pgm.MCMC(warmup=50, draws=1000),
    "AIS": pgm.AIS(chains=400, betas=60),
    "ParallelTempering": pgm.ParallelTempering(rungs=4, warmup=100, draws=1000),
    "SimulatedTempering": pgm.SimulatedTempering(betas=pgm.Linear(4), warmup=500, draws=2000),
    "TemperedTransitions": pgm.TemperedTransitions(betas=[0.4, 1.0], warmup=50, draws=1000),
    "WangLandau": pgm.WangLandau(first_of_v, bins=2, warmup=200, draws=400),
    "Forward": pgm.Forward(draws=4000),
    "Auto": pgm.Auto(),
}
NEGATIVES = {
    "exact": pgm.ExactGradient(),
    "cd": pgm.CD(k=20),
    "pcd": pgm.PCD(k=2, chains=500),
    "fast": pgm.FastPCD(k=2, chains=500, rate=0.01),
    "pt": pgm.PT(temperatures=3, k=2, chains=200),
    "trans": pgm.TransSAP(betas=[0.5, 0.8, 1.0], k=1, chains=300),
    "adaptive": pgm.AdaptiveSAP(betas=[0.5, 0.8, 1.0], every=5, steps=5, k=2, chains=500),
    "cast": pgm.CAST(betas=[0.5, 0.8, 1.0], k=2, chains=300, swap_every=10),
}

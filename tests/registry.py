"""Everything that contract tests are parametrised by: one table for each kind of public class.

A new class gets one entry in the table of its kind, with all settings that tests of its kind need.
`package/test_registries.py` fails until it is there, and says which table lacks it. The contract
test of the kind then runs the class through everything that it must do.

Tests choose from these tables (`{n: m for n, m in METHODS.items() if ...}`), so that a new class
reaches them, too. A list of its own that a test needs for its settings is checked by `every`.
"""

import math
from dataclasses import dataclass
from typing import Any

import pgmengine as pgm
from pgmengine.engine.kernels import draws_forests
from pgmengine.infer.sampling.draws.sampler import Sampler

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
    pgm.Normal(),
    pgm.Input(),
)
KERNELS = (pgm.Gibbs(), pgm.FlipState(), pgm.Blend(0.3), pgm.TreeGibbs())
# The kernels that compiled sweeps know; the reference engine runs the others.
KNOWN = tuple(k for k in KERNELS if "flip_share" in vars(type(k)))
# Those whose states the reference engine has as well: it draws no forests (test_forests.py).
COMPILED = tuple(k for k in KNOWN if not draws_forests(k))


@dataclass(frozen=True)
class Answering:
    """The settings of a method in tests.

    With `contract` it is compared with enumeration. With `few` it makes a few draws, for tests of
    properties that hold for any number of draws.
    """

    contract: Any
    few: Any


def first_of_v(x):
    """A partition of the states into two bins, by the first column of layer v."""
    return (x["v"].reshape(len(x["v"]), -1)[:, 0] > 0).astype(int)


def _wang_landau(**settings):
    return pgm.WangLandau(first_of_v, bins=2, **settings)


METHOD_SETTINGS = {
    "Exact": Answering(pgm.Exact(draws=4000), pgm.Exact(draws=50)),
    "Enumeration": Answering(pgm.Enumeration(draws=4000), pgm.Enumeration(draws=50)),
    "Elimination": Answering(pgm.Elimination(draws=4000), pgm.Elimination(draws=50)),
    "Planar": Answering(pgm.Planar(), pgm.Planar()),
    "BeliefPropagation": Answering(pgm.BeliefPropagation(), pgm.BeliefPropagation()),
    "MeanField": Answering(pgm.MeanField(), pgm.MeanField()),
    "ModeSearch": Answering(pgm.ModeSearch(), pgm.ModeSearch(sweeps=20)),
    "MiniBucket": Answering(pgm.MiniBucket(), pgm.MiniBucket(seconds=5.0)),
    "MCMC": Answering(pgm.MCMC(warmup=50, draws=1000), pgm.MCMC(chains=3, warmup=5, draws=50)),
    "SwendsenWang": Answering(
        pgm.SwendsenWang(draws=1000, frustrated=True),
        pgm.SwendsenWang(chains=3, warmup=5, draws=50, frustrated=True),
    ),
    "ClusterLadder": Answering(
        pgm.ClusterLadder(frustrated=True),
        pgm.ClusterLadder(chains=3, warmup=5, draws=50, frustrated=True),
    ),
    "AIS": Answering(pgm.AIS(chains=400, betas=60), pgm.AIS(chains=20, betas=20)),
    "ParallelTempering": Answering(
        pgm.ParallelTempering(rungs=4, warmup=100, draws=1000),
        pgm.ParallelTempering(rungs=3, chains=2, warmup=20, draws=50),
    ),
    "SimulatedTempering": Answering(
        pgm.SimulatedTempering(betas=pgm.Linear(4), warmup=500, draws=2000),
        pgm.SimulatedTempering(betas=pgm.Linear(3), chains=2, warmup=50, draws=80),
    ),
    "TemperedTransitions": Answering(
        pgm.TemperedTransitions(betas=[0.4, 1.0], warmup=50, draws=1000),
        pgm.TemperedTransitions(betas=[0.4, 1.0], chains=2, warmup=5, draws=20),
    ),
    "WangLandau": Answering(
        _wang_landau(warmup=200, draws=400), _wang_landau(chains=2, warmup=20, draws=50)
    ),
    "Forward": Answering(pgm.Forward(draws=4000), pgm.Forward(draws=50)),
    "Auto": Answering(pgm.Auto(), pgm.Auto()),
}
METHODS = {name: m.contract for name, m in METHOD_SETTINGS.items()}
FEW_DRAWS = {name: m.few for name, m in METHOD_SETTINGS.items()}
# Names of the methods that are exact, that draw by chains, and whose log Z or means are estimates.
EXACT = [name for name, m in METHODS.items() if m.guarantee == "exact"]
SAMPLERS = [name for name, m in METHODS.items() if isinstance(m, Sampler)]
ESTIMATES = [
    name for name, m in METHODS.items() if m.guarantee == "estimate" and not isinstance(m, pgm.Auto)
]
GIVE_LOG_Z = [name for name in ESTIMATES if "log_z" in METHODS[name].gives]
GIVE_MARGINALS = [name for name in ESTIMATES if "marginals" in METHODS[name].gives]


@dataclass(frozen=True)
class Learning:
    """The settings of a model phase in tests.

    With `contract` it reaches the optimum of the exact gradient. With `converged` its chains are
    independent and forget their start, so that its gradient is unbiased. With `few` it has ten
    chains, for tests of properties that hold for any number.
    """

    contract: Any
    converged: Any
    few: Any


LADDER = [0.5, 0.8, 1.0]
PHASE_SETTINGS = {
    "exact": Learning(pgm.ExactGradient(), pgm.ExactGradient(), pgm.ExactGradient()),
    "cd": Learning(pgm.CD(k=20), pgm.CD(k=30), pgm.CD()),
    "pcd": Learning(
        pgm.PCD(k=2, chains=500), pgm.PCD(k=30, chains=20_000), pgm.PCD(k=2, chains=10)
    ),
    "fast": Learning(
        pgm.FastPCD(k=2, chains=500, rate=0.01),
        pgm.FastPCD(k=30, chains=20_000, rate=0.0),
        pgm.FastPCD(k=2, chains=10),
    ),
    "pt": Learning(
        pgm.PT(temperatures=3, k=2, chains=200),
        pgm.PT(temperatures=3, k=20, chains=5_000),
        pgm.PT(temperatures=3, k=2, chains=10),
    ),
    "trans": Learning(
        pgm.TransSAP(betas=LADDER, k=1, chains=300),
        pgm.TransSAP(betas=LADDER, k=10, chains=20_000),
        pgm.TransSAP(betas=LADDER, every=2, chains=10),
    ),
    "adaptive": Learning(
        pgm.AdaptiveSAP(betas=LADDER, every=5, steps=5, k=2, chains=500),
        pgm.AdaptiveSAP(betas=LADDER, every=1, steps=20, k=5, chains=20_000),
        pgm.AdaptiveSAP(betas=LADDER, every=3, steps=6, chains=10),
    ),
    "cast": Learning(
        pgm.CAST(betas=LADDER, k=2, chains=300, swap_every=10),
        pgm.CAST(betas=LADDER, k=30, chains=10_000, swap_every=1),
        pgm.CAST(betas=LADDER, swap_every=2, k=2, chains=10),
    ),
    "cast_own_weights": Learning(
        pgm.CAST(betas=LADDER, k=2, chains=300, swap_every=10, weights_per_chain=True),
        pgm.CAST(betas=LADDER, k=30, chains=10_000, swap_every=1, weights_per_chain=True),
        pgm.CAST(betas=LADDER, swap_every=2, k=2, chains=10, weights_per_chain=True),
    ),
}
NEGATIVES = {name: n.contract for name, n in PHASE_SETTINGS.items()}
CONVERGED = {name: n.converged for name, n in PHASE_SETTINGS.items()}
FEW_CHAINS = {name: n.few for name, n in PHASE_SETTINGS.items()}
WITH_LADDER = [n for n, t in NEGATIVES.items() if hasattr(t, "betas") or hasattr(t, "temperatures")]

# Optimizers and wrappers around them, for models that have a layer v.
OPTIMIZERS = {
    "SGD": pgm.SGD(0.1, momentum=0.5),
    "Adam": pgm.Adam(0.01),
    "AdaMax": pgm.AdaMax(),
    "Centered": pgm.Centered(pgm.Adam(0.01)),
    "Averaged": pgm.Averaged(pgm.Adam(0.01)),
    "Scaled": pgm.Scaled(pgm.SGD(0.1)),
    "Fixed": pgm.Fixed(pgm.SGD(0.1, momentum=0.5), ("v.bias",)),
}

# A function that makes the monitor from data.
MONITORS_OF_DATA = {
    "ExactLogLikelihood": pgm.ExactLogLikelihood,
    "VariationalBound": pgm.VariationalBound,
    "AISLogLikelihood": lambda data: pgm.AISLogLikelihood(data, log_z=pgm.AIS(5, 5)),
    "PseudoLikelihood": pgm.PseudoLikelihood,
    "ReconstructionError": pgm.ReconstructionError,
    "FreeEnergyGap": lambda data: pgm.FreeEnergyGap(data, data),
}
# Monitors that look at the model alone, or at the model phase.
MONITORS = {
    "FlipRates": pgm.FlipRates(sweeps=2),
    "WeightNorms": pgm.WeightNorms(),
    "EarlyStopping": pgm.EarlyStopping(pgm.WeightNorms(), name="norm v.bias"),
    "Occupancy": pgm.Occupancy(),
}


def every(kind, listed):
    """The values listed, after a check that they are of all classes of some registered values."""
    lacks = {type(x).__name__ for x in kind} - {type(x).__name__ for x in listed}
    assert not lacks, f"the list of this test lacks {', '.join(sorted(lacks))}: add settings of it"
    return listed

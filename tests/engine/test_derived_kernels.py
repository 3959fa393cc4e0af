"""Kernels that a user derives from those of the library run as they are written, whoever sweeps."""

from dataclasses import replace

import numpy as np
import pytest
from loops import one_test_over
from registry import FEW_DRAWS, NEGATIVES

import pgmengine as pgm
from pgmengine.engine import layerwise
from pgmengine.engine.chains import make_chains, start

DERIVED = {"Gibbs": (pgm.Gibbs,), "FlipState": (pgm.FlipState,), "Blend": (pgm.Blend, 0.5)}
SAMPLERS = {name: m for name, m in FEW_DRAWS.items() if hasattr(m, "kernel")}


class Still:
    """A kernel without a base class that never moves."""

    def transition(self, prob, current):
        return np.eye(prob.shape[-1])[current]


def still_of(base, *settings):
    """A kernel that never moves, derived from a kernel that the compiled sweeps know."""
    return type("StillAnd" + base.__name__, (base,), {"transition": Still.transition})(*settings)


KERNELS = [still_of(*how) for how in DERIVED.values()]
derived = pytest.mark.parametrize("kernel", KERNELS, ids=DERIVED)
trained = [name for name, trainer in NEGATIVES.items() if hasattr(trainer, "kernel")]


@derived
def test_a_derived_kernel_that_never_moves_visits_one_state(kernel):
    model = pgm.rbm(6, 4, visible=pgm.MultiValued(2), rng=0)
    for evidence in (None, {"h": [1, 0, 1, 1]}):
        method = replace(SAMPLERS["MCMC"], kernel=kernel, chains=1)
        drawn = pgm.infer(model, evidence, ("samples",), method, rng=0).samples["v"]
        assert len(np.unique(drawn.reshape(-1, 6), axis=0)) == 1
    target = model.given().take(np.zeros(20, dtype=int)).at(0.5)
    rng = np.random.default_rng(0)
    chains = make_chains(target, kernel, start(target, rng), rng)
    before = chains.values()
    chains.sweep(3)
    chains.sweep_once()
    chains.trace(2)
    chains.anneal(np.array([0.5, 0.7, 1.0]), joint=True)
    assert all(np.array_equal(before[name], value) for name, value in chains.values().items())


@derived
@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers_run_a_derived_kernel_as_it_is_written(kernel, name):
    """Draw the bits of a kernel with the same transition that derives from nothing."""
    wanted = ("log_z",) if name == "AIS" else ("marginals", "samples")
    methods = (replace(SAMPLERS[name], kernel=k) for k in (kernel, Still()))
    ours, theirs = (pgm.infer(pgm.rbm(6, 4, rng=0), want=wanted, method=m, rng=0) for m in methods)
    if name == "AIS":
        assert np.array_equal(ours.log_z, theirs.log_z)
    else:
        assert all(np.array_equal(theirs.samples[layer], x) for layer, x in ours.samples.items())


def learned(x, trainer):
    """The parameters after four updates."""
    model = pgm.rbm(6, 4, rng=0)
    f = pgm.fit(model, {"v": x}, negative=trainer, updates=4, progress=False, rng=0)
    return f.model.params


@derived
@pytest.mark.parametrize("name", trained)
def test_trainers_run_a_derived_kernel_as_it_is_written(kernel, name):
    """Learn the parameters that Still gives, also from a schedule that begins with Gibbs."""
    trainer = replace(NEGATIVES[name], **{"k" if name == "cd" else "chains": 10})
    x = (np.random.default_rng(0).random((20, 6)) < 0.3).astype(float)
    for given in (lambda own: own, lambda own: lambda t: own if t else pgm.Gibbs()):
        trainers = (replace(trainer, kernel=given(k)) for k in (kernel, Still()))
        ours, theirs = (learned(x, one) for one in trainers)
        assert all(np.array_equal(value, theirs[n]) for n, value in ours.items())


@one_test_over("share", [0.4, 1.5, "much", None, True])
def test_compiled_sweeps_take_the_kernels_that_say_their_share_themselves(share):
    target = pgm.rbm(6, 4, rng=0).given().take(np.zeros(5, dtype=int))
    own = type("Own", (pgm.Blend,), {"flip_share": share})(0.4)
    x = start(target, np.random.default_rng(0))
    if share != 0.4:
        with pytest.raises(pgm.PgmError, match="flip_share must be a number from 0 to 1"):
            make_chains(target, own, x, np.random.default_rng(0))
        return
    chains = make_chains(target, own, x, np.random.default_rng(0))
    known = make_chains(target, pgm.Blend(0.4), x, np.random.default_rng(0))
    chains.sweep(3)
    known.sweep(3)
    assert isinstance(chains, layerwise.CompiledChains)
    found = known.values()
    assert all(np.array_equal(found[name], value) for name, value in chains.values().items())

"""The routines for other kinds of processors give the answers of the kind that is taken here."""

import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import shifted
import tiny

import pgmengine as pgm
from pgmengine import _kernels

HERE = Path(__file__)
OTHERS = [name for name in _kernels.PROCESSORS if name != _kernels.PROCESSOR]


def chains(model, target):
    """States and log densities of a few sweeps, whatever the layers: inputs and draws are the same
    bits for any width.
    """
    for kernel in (pgm.Gibbs(), pgm.Blend(0.5)):
        r = pgm.MCMC(kernel=kernel, chains=3, warmup=2, draws=4).run(target, ("samples",), rng=1)
        yield from (np.asarray(r.samples[n]) for n in model.structure.layers)


def rounded(model, target):
    """Results that sum over lanes: enumeration, annealing, and the bound, whose rounds end by
    blocks of rows.
    """
    r = pgm.Exact().run(target, ("log_z", "gradient"))
    yield from (
        r.log_z,
        *(value.toarray() if hasattr(value, "toarray") else value for value in r.gradient.values()),
    )
    if all(layer.unit.support is not None for layer in model.structure.layers.values()):
        yield pgm.AIS(chains=20, betas=30).run(target.at(1.0), ("log_z",), rng=2).log_z
        yield pgm.MeanField(updates=500, tolerance=1e-12).run(target, ("log_z",)).log_z


def wide(rng):
    """Layers and panels of more than one vector, learning, and enumeration by bunches, in four
    parameters of a model.
    """
    model = pgm.rbm(100, 18, rng=3)
    x = (rng.random((30, 100)) < 0.3).astype(float)
    f = pgm.fit(
        model, {"v": x}, updates=5, batch_size=20, negative=pgm.CAST(chains=10), progress=False
    )
    yield from f.model.params.values()
    yield pgm.infer(f.model, {"v": x}, ("log_prob",)).log_prob


@lru_cache(maxsize=1)
def found():
    """Name -> (arrays of the same bits, arrays that may differ by rounding)."""
    out = {}
    for tiny_model in tiny.MODELS:
        model = tiny_model.build()
        target = tiny.mixed_target(tiny_model, rows=5)
        out[tiny_model.name] = (
            list(chains(model, target)),
            list(rounded(model, target)) if tiny_model in tiny.FINITE else [],
        )
    return out | {"wide": ([], list(wide(np.random.default_rng(0))))}


def run(name, *command):
    """A Python process whose processor is said to be another one."""
    env = os.environ | {
        "PGMENGINE_KERNELS": name,
        "PYTHONPATH": str(Path(pgm.__file__).parent.parent),
    }
    return subprocess.run(
        [sys.executable, *command], env=env, cwd=HERE.parent, capture_output=True, text=True
    )


def flat(results):
    return {
        f"{name}/{part}/{i}": np.asarray(value)
        for name, parts in results.items()
        for part, values in zip(("same", "near"), parts)
        for i, value in enumerate(values)
    }


# Every other kind is also run by .ci/run, with all tests of the compiled routines.
@pytest.mark.long
@pytest.mark.parametrize("name", OTHERS or ["base"])
def test_every_processor_answers_alike(tmp_path, name, rtol=1e-9, atol=1e-9):
    path = tmp_path / "found.npz"
    ended = run(name, shifted.__file__, str(HERE), str(path))
    assert not ended.returncode, ended.stderr
    mine, other = flat(found()), np.load(path)
    assert set(mine) == set(other.files) and len(mine) > 100
    for key, value in mine.items():
        if "/same/" in key:
            np.testing.assert_array_equal(other[key], value, err_msg=f"{name}: {key}")
        else:
            np.testing.assert_allclose(
                other[key], value, rtol=rtol, atol=atol, err_msg=f"{name}: {key}"
            )


def test_the_last_kind_that_runs_here_is_taken_and_others_by_name():
    assert _kernels.PROCESSORS[0] == "base"
    if not os.environ.get("PGMENGINE_KERNELS"):
        assert _kernels.PROCESSOR == _kernels.PROCESSORS[-1]
    said = run("abacus", "-c", "import pgmengine")
    assert (
        said.returncode
        and "PGMENGINE_KERNELS is 'abacus'; the routines that run on this processor are base"
        in said.stderr
    )


@pytest.mark.skipif(len(_kernels.PROCESSORS) < 3, reason="no wider kind runs here")
def test_a_kind_with_wider_vectors_than_the_arrays_is_refused():
    said = run("base", "-c", "from pgmengine import _kernels; _kernels.use('avx2')")
    assert said.returncode and "set PGMENGINE_KERNELS=avx2 before" in said.stderr


if __name__ == "__main__":
    np.savez(sys.argv[1], **flat(found()))

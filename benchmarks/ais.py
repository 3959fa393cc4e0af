"""Annealed importance sampling of an MNIST RBM against the same algorithm in PyTorch and JAX: ratios of one run.

    python benchmarks/ais.py mnistvh_CD25.mat DIRECTORY [--threads 2] [--full]

The file holds Salakhutdinov's CD25(500) RBM, whose published estimate is ln Z = 451.28; the directory the MNIST files.
--full adds the run of 500 chains through 20,000 temperatures, and the test log-likelihood. All start from base rates.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

import typer

REPEATS = 5
CHAINS, TEMPERATURES = 500, 500


def main(weights: Path, data: Path, threads: int = 2, full: bool = False) -> None:
    """Print the table."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "PGMENGINE_THREADS"):
        os.environ[name] = str(threads)
    os.environ["PGMENGINE_DATA"] = str(data)
    os.environ["XLA_FLAGS"] = f"--xla_cpu_multi_thread_eigen=true intra_op_parallelism_threads={threads}"
    import numpy as np
    from scipy.io import loadmat
    from scipy.special import logsumexp

    import pgmengine as pgm

    raw = loadmat(weights)
    model = pgm.rbm(784, 500).with_params({"v.bias": raw["visbiases"][0], "h.bias": raw["hidbiases"][0],
                                           "v-h.weight": raw["vishid"]})
    mnist = pgm.datasets.mnist(rng=0)
    reference = pgm.base_rates(model, {"v": mnist.x_train})
    betas = pgm.ThreePiece(TEMPERATURES).betas()
    log_z_0 = float(np.logaddexp(0, reference["v"]).sum() + 500 * np.log(2))

    def ours(seed):
        method = pgm.AIS(chains=CHAINS, betas=betas, reverse=False, reference=reference)
        return pgm.infer(model, want=("log_z",), method=method, rng=seed).log_z[0]

    cases = {"pgmengine": ours}
    arrays = [np.asarray(model.params[k], dtype=np.float32) for k in ("v-h.weight", "v.bias", "h.bias")]
    for name, make in (("PyTorch", in_torch), ("JAX", in_jax)):
        try:
            run = make(*arrays, reference["v"].astype(np.float32), betas, threads)
        except ImportError:
            print(f"{name}: absent")
            continue
        cases[name] = lambda seed, run=run: log_z_0 + logsumexp(run(seed)) - np.log(CHAINS)
    times, found = {name: [] for name in cases}, {name: [] for name in cases}
    for case in cases.values():
        case(99)
    for seed in range(REPEATS):
        for name, case in cases.items():
            time.sleep(0.1)
            start = time.perf_counter()
            found[name].append(case(seed))
            times[name].append(time.perf_counter() - start)
    first = statistics.median(times["pgmengine"])
    print(f"{CHAINS} chains, {TEMPERATURES} temperatures, {threads} threads; medians of {REPEATS}, interleaved")
    for name in cases:
        middle = statistics.median(times[name])
        print(f"  {name:12s} {middle:7.3f} s   {middle / first:5.2f}x   ln Z {np.mean(found[name]):8.2f} "
              f"+- {np.std(found[name]):.2f}")
    if full:
        long_run(model, reference, mnist)


def long_run(model, reference, mnist):
    """500 chains, 20,000 temperatures, up and down; mean log-likelihood of the test images, binarised at random."""
    import numpy as np

    import pgmengine as pgm

    start = time.perf_counter()
    method = pgm.AIS(chains=500, betas=pgm.ThreePiece(20_000), reference=reference)
    r = pgm.infer(model, want=("log_z",), method=method, rng=0)
    low, high = r.log_z_interval[0]
    print(f"20,000 temperatures: ln Z {r.log_z[0]:.3f} +- {r.log_z_error[0]:.3f}, reverse "
          f"{r.stats['reverse_log_z'][0]:.3f}, interval {low:.2f} .. {high:.2f}, effective {r.stats['ess'][0]:.0f} of "
          f"500, {time.perf_counter() - start:.0f} s")
    parts = [pgm.infer(model, {"v": x}, want=("log_z",)).log_z for x in np.array_split(mnist.x_test, 20)]
    clamped = np.concatenate(parts)
    print(f"mean log-likelihood of {len(clamped)} test images: {clamped.mean() - r.log_z[0]:.2f}")


def in_torch(w, b, c, base, betas, threads):
    """Hidden units summed out of the weights, as in Salakhutdinov and Murray (2008)."""
    import torch

    torch.set_num_threads(threads)
    w, b, c, base = (torch.from_numpy(x) for x in (w, b, c, base))
    back = w.t().contiguous()
    softplus = torch.nn.functional.softplus

    @torch.no_grad()
    def run(seed):
        torch.manual_seed(seed)
        v = torch.bernoulli(torch.sigmoid(base).expand(CHAINS, -1))
        weight = torch.zeros(CHAINS, dtype=torch.float64)
        for old, new in zip(betas[:-1].tolist(), betas[1:].tolist(), strict=True):
            inputs = torch.addmm(c, v, w)
            weight += (new - old) * (v @ (b - base)) + (softplus(new * inputs) - softplus(old * inputs)).sum(1)
            h = torch.bernoulli(torch.sigmoid_(new * inputs))
            field = (1 - new) * base + new * torch.addmm(b, h, back)
            v = torch.bernoulli(torch.sigmoid_(field))
        return weight.numpy()

    return run


def in_jax(w, b, c, base, betas, threads):
    """The same as one compiled scan."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    pairs = (jnp.asarray(betas[:-1], dtype=jnp.float32), jnp.asarray(betas[1:], dtype=jnp.float32))

    @jax.jit
    def run(key):
        first, rest = jax.random.split(key)
        v = jax.random.bernoulli(first, jax.nn.sigmoid(base), (CHAINS, len(b))).astype(jnp.float32)

        def step(state, pair):
            v, weight, key = state
            old, new = pair
            key, one, two = jax.random.split(key, 3)
            inputs = v @ w + c
            gain = jax.nn.softplus(new * inputs) - jax.nn.softplus(old * inputs)
            weight += (new - old) * (v @ (b - base)) + gain.sum(1)
            h = jax.random.bernoulli(one, jax.nn.sigmoid(new * inputs)).astype(jnp.float32)
            field = (1 - new) * base + new * (h @ w.T + b)
            return (jax.random.bernoulli(two, jax.nn.sigmoid(field)).astype(jnp.float32), weight, key), None

        return jax.lax.scan(step, (v, jnp.zeros(CHAINS), rest), pairs)[0][1]

    return lambda seed: np.asarray(run(jax.random.key(seed)), dtype=np.float64)


if __name__ == "__main__":
    typer.run(main)

"""rbms (PyPI): its RBM, Gibbs steps, training step, annealing and enumeration, called
as its scripts do.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import torch
from rbms.bernoulli_bernoulli.classes import BBRBM
from rbms.partition_function.ais import compute_partition_function_ais
from rbms.partition_function.exact import compute_partition_function_rbm
from rbms.training.pcd import fit_batch_pcd

Array = np.ndarray

if threads := os.environ.get("OMP_NUM_THREADS"):
    torch.set_num_threads(int(threads))


def _tensor(x: Array) -> torch.Tensor:
    return torch.tensor(np.asarray(x), dtype=torch.float32)


def bernoulli_rbm(weight: Array, b: Array, c: Array) -> BBRBM:
    """The RBM of the library with these parameters."""
    return BBRBM(weight_matrix=_tensor(weight), vbias=_tensor(b), hbias=_tensor(c))


def sweeps(weight: Array, b: Array, c: Array, v: Array) -> Callable[[int], torch.Tensor]:
    """Block Gibbs sweeps of an RBM (one hidden half sweep more in each call); run(count) returns
    the visible states.
    """
    torch.manual_seed(0)
    model = bernoulli_rbm(weight, b, c)
    chains = model.init_chains(len(v), start_v=_tensor(v))

    @torch.no_grad()
    def run(count: int) -> torch.Tensor:
        chains.update(model.sample_state(chains=chains, n_steps=count))
        return chains["visible"]

    return run


def pcd(
    weight: Array, b: Array, c: Array, x: Array, chain: Array, rate: float, batch: int = 100
) -> Callable[[int], list]:
    """Updates of PCD-1 by its fit_batch_pcd and SGD, as in its train(); chain: *visible* states.
    run returns [w, b, c].

    Its steps have the length `rate`, whatever the gradient's; its chains draw the hidden layer
    twice a step.
    """
    torch.manual_seed(0)
    model, rows, one = bernoulli_rbm(weight, b, c), _tensor(x), torch.ones(batch)
    model.init_grad()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, maximize=True)
    kept = {"chains": model.init_chains(len(chain), start_v=_tensor(chain)), "next": 0}

    @torch.no_grad()
    def run(count: int) -> list[torch.Tensor]:
        for _ in range(count):
            data = rows[kept["next"] : kept["next"] + batch]
            kept["next"] = (kept["next"] + batch) % len(rows)
            optimizer.zero_grad(set_to_none=False)
            kept["chains"], _ = fit_batch_pcd(
                (data, one), kept["chains"], model, gibbs_steps=1, beta=1.0, centered=False
            )
            optimizer.step()
        return model.parameters()

    return run


def ais(weight: Array, b: Array, c: Array, temperatures: int, chains: int) -> Callable[[], float]:
    """Log Z by its annealing, whose steps are even and whose start is the model without weights and
    hidden biases.
    """
    torch.manual_seed(0)
    model = bernoulli_rbm(weight, b, c)
    return torch.no_grad()(lambda: compute_partition_function_ais(chains, temperatures, model))


def log_z(weight: Array, b: Array, c: Array, bits: int) -> Callable[[], float]:
    """Log Z by 2^bits states of the hidden units, all of which it takes at once."""
    model = bernoulli_rbm(weight, b, c)
    states = torch.zeros(2**bits, len(c))
    states[:, :bits] = ((torch.arange(2**bits)[:, None] >> torch.arange(bits)) & 1).float()
    return torch.no_grad()(lambda: compute_partition_function_rbm(model, states))

"""Checks of samplers.py on learned models: log Z from other references, and how chains mix.

The reverse run of annealing starts where the forward run has ended, so that both may miss the same
modes. Here annealing is repeated from other references, and down from the states of other chains,
as `AIS(confirm=4)` does. Another function anneals from base rates with LONGER times as many
temperatures.

The correlation after n sweeps is the covariance of a pixel's mean given the hidden units, now and n
sweeps later, over chains, in total over pixels, divided by the total variance. It is 1 for chains
that stay, and 0 for chains that have forgotten where they were.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
from deep_boltzmann import both_directions
from sampler_runs import Work, estimator

import pgmengine as pgm
from pgmengine.engine.chains import make_chains

CHAINS = 100
# Sweeps before the first state, and to the others.
SETTLING, LAGS = 1_000, (10, 100, 1_000)
BETAS = (1.0, 0.9)
LONGER = 4


def checked(work: Work, title: str) -> dict[str, Any]:
    """The checks of a run, from their file if it is there."""
    path = work.out / f"checks-{title}.json"
    if path.exists():
        return json.loads(path.read_text())
    result = confirmed(work, pgm.load(work.out / f"{title}.safetensors"))
    path.write_text(json.dumps(result))
    return result


def annealed_longer(work: Work, title: str) -> None:
    """Add "longer" to the file of a finished run: its measurement with LONGER times as many
    temperatures.
    """
    path = work.out / f"{title}.json"
    result = json.loads(path.read_text()) if path.exists() else {"longer": {}}
    if "longer" in result:
        return
    count = LONGER * work.size.temperatures
    model = pgm.load(work.out / f"{title}.safetensors")
    log_z = estimator(model, work.images.validation, work.size.chains, count)
    ends = both_directions(log_z, model)
    # The mean-field bound of log p + log Z is the same.
    more = result["final"]["log_z"] - ends["log_z"]
    bounds = {k: result["final"][k] + more for k in ("validation", "test")}
    result["longer"] = ends | bounds | {"temperatures": count}
    part = path.with_suffix(".part")
    part.write_text(json.dumps(result))
    part.replace(path)


def confirmed(work: Work, model: pgm.Model) -> dict[str, Any]:
    """Log Z from several references, and the correlations of chains."""
    log_z = estimator(model, work.images.validation, work.size.chains, work.size.temperatures)
    found = replace(log_z, confirm=4).run(model.given(), ("log_z",), rng=1)
    return {
        "log_z": float(found.log_z[0]),
        "error": float(found.log_z_error[0]),
        "reverse": float(found.stats["reverse_log_z"][0]),
        "references": int(found.stats["references"][0]),
        "exact": bool(found.stats["reverse_exact"][0]),
        "agreed": bool(found.stats["agreed"][0]),
        "correlation": {f"{beta:g}": correlations(model, beta) for beta in BETAS},
    }


def correlations(model: pgm.Model, beta: float) -> list[float]:
    """The correlation of chains at an inverse temperature, after each of LAGS."""
    rng, target = np.random.default_rng(0), model.given().take(np.zeros(CHAINS, dtype=int))
    rows = target.at(np.full(CHAINS, beta))
    chains = make_chains(rows, pgm.Gibbs(), target.at(0.0).draw_at_0(rng), rng)
    chains.sweep(SETTLING)
    seen, done = [pixels(model, chains.values())], 0
    for lag in LAGS:
        chains.sweep(lag - done)
        seen.append(pixels(model, chains.values()))
        done = lag
    apart = [x - x.mean(axis=0) for x in seen]
    total = float((apart[0] ** 2).sum())
    return [float((apart[0] * later).sum()) / total for later in apart[1:]]


def pixels(model: pgm.Model, states: dict[str, np.ndarray]) -> np.ndarray:
    """The means of the pixels given the hidden units, (chains, pixels)."""
    hidden = {k: v for k, v in states.items() if k != "v"}
    return pgm.MeanField().run(model.given(hidden), ("marginals",)).mean["v"]

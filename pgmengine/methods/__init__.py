"""Inference methods: frozen dataclasses with plan(target, want) -> Plan and run(target, want, rng) -> Result."""

from pgmengine.methods.exact import Exact
from pgmengine.methods.mcmc import MCMC

__all__ = ["MCMC", "Exact"]

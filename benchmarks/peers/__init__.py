"""Libraries that a user would choose instead of pgmengine, one file each. This file lists them, and
what each of them cannot do.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from harness import Case, once, rate


@dataclass(frozen=True)
class Peer:
    """A library: its name in the tables, on the index, as a module, its file here, and what it has
    no means for.
    """

    name: str
    package: str
    module: str
    file: str
    cannot: str

    @property
    def present(self) -> bool:
        """Whether it is installed."""
        return find_spec(self.module) is not None

    @property
    def version(self) -> str:
        """Its version, or that it is absent."""
        try:
            return version(self.package)
        except PackageNotFoundError:
            return "absent"

    def rate(
        self, make: Callable[[ModuleType], Callable[[int], Any]], scale: float = 1.0
    ) -> Case | None:
        """harness.rate of what `make` takes from this peer's file; None if it is absent."""
        return rate(lambda: make(self._functions()), scale) if self.present else None

    def once(
        self, make: Callable[[ModuleType], Callable[[], Any]], scale: float = 1.0
    ) -> Case | None:
        """harness.once of what `make` takes from this peer's file; None if it is absent."""
        return once(lambda: make(self._functions()), scale) if self.present else None

    def _functions(self) -> ModuleType:
        return importlib.import_module(f"peers.{self.file}")


TORCH = Peer(
    "PyTorch",
    "torch",
    "torch",
    "torch_",
    "no belief-net bound was written: it would be numpy's operations one by one",
)
JAX = Peer("JAX", "jax", "jax", "jax_", "beside infer there is a bare numpy function alone")
THRML = Peer(
    "THRML",
    "thrml",
    "thrml",
    "thrml_",
    "Gibbs sampling of undirected graphs, with one set of observed nodes for all rows; no "
    "partition functions, enumeration, directed models or flip-the-state; its estimate_kl_grad "
    "gives moments, not chains: no PCD",
)
RBMS = Peer(
    "rbms",
    "rbms",
    "rbms",
    "rbms_",
    "two-layer models; no evidence, flip-the-state or posterior of missing units, no other graphs",
)
SKLEARN = Peer(
    "scikit-learn",
    "scikit-learn",
    "sklearn",
    "sklearn_",
    "of these models BernoulliRBM: gibbs() and partial_fit(); no evidence, no partition functions",
)
NUMPY = Peer(
    "numpy",
    "numpy",
    "numpy",
    "numpy_",
    "no learning and no annealing were written: one would take PyTorch",
)
PEERS = (TORCH, JAX, THRML, RBMS, SKLEARN, NUMPY)

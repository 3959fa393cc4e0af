"""Types of the compiled module; see cython_ext/."""

import numpy as np

class GrayWalk:
    """One enumeration problem for many rows."""

    def __init__(self, states: np.ndarray, pair: np.ndarray, value: np.ndarray, up: np.ndarray, down: np.ndarray,
                 blocks: list[tuple[int, int, int, float, int, bool]]) -> None: ...
    def walk(self, constant: float, theta: np.ndarray, offset: np.ndarray, start: int, count: int, step: int,
             log_sums: np.ndarray, log_weights: np.ndarray | None = None,
             moments: np.ndarray | None = None, best: bool = False) -> float: ...

MOST_STATES: int

def uniforms(key: np.ndarray, sweep: int, chain: int, layer: int, first: int, blocks: int) -> np.ndarray: ...

class Machine:
    def __init__(self, layers: int, links: int, visit: np.ndarray, beta: np.ndarray, key: np.ndarray, stream: np.ndarray,
                 alpha: float) -> None: ...
    def layer(self, index: int, kind: int, states: int, width: int, size: int, moves: bool, by_unit: bool,
              summed: int, directed: bool, complement: bool, uneven: bool, variance: float, support: np.ndarray | None,
              log_base: np.ndarray | None, bias: np.ndarray, reference: np.ndarray | None, soft: np.ndarray | None,
              base: np.ndarray | None, field: np.ndarray | None, zeta: np.ndarray | None, state: np.ndarray | None,
              value: np.ndarray | None, free_units: np.ndarray,
              alive: np.ndarray | None) -> None: ...
    def link(self, index: int, source: int, to: int, arrow: bool, at_once: bool, dense: np.ndarray | None,
             entries: np.ndarray | None, start: np.ndarray | None, column: np.ndarray | None) -> None: ...
    def sweep(self, first: int, last: int, sweep: int, count: int, refresh: bool, changed: np.ndarray,
              trace: np.ndarray | None = None, backward: bool = False, betas: np.ndarray | None = None,
              log_weight: np.ndarray | None = None, joint: bool = False) -> None: ...
    def log_density(self, first: int, last: int, out: np.ndarray) -> None: ...

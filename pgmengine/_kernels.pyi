"""Types of the compiled module; see cython_ext/."""

import numpy as np

class GrayWalk:
    """One enumeration problem for many rows."""

    def __init__(self, states: np.ndarray, pair: np.ndarray, value: np.ndarray, up: np.ndarray, down: np.ndarray,
                 blocks: list[tuple[int, int, int, float, int, bool]]) -> None: ...
    def walk(self, constant: float, theta: np.ndarray, offset: np.ndarray, start: int, count: int, step: int,
             log_sums: np.ndarray, log_weights: np.ndarray | None = None,
             moments: np.ndarray | None = None, best: bool = False) -> float: ...

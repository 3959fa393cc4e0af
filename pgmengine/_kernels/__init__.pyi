"""Types of the compiled module; see cython_ext/."""

import numpy as np

class GrayWalk:
    """One enumeration problem for many rows."""

    def __init__(
        self,
        states: np.ndarray,
        pair: np.ndarray,
        value: np.ndarray,
        up: np.ndarray,
        down: np.ndarray,
        blocks: list[tuple[int, int, int, float, bool]],
    ) -> None: ...
    def walk(
        self,
        constant: float,
        theta: np.ndarray,
        offset: np.ndarray,
        start: int,
        count: int,
        step: int,
        every: int,
        log_sums: np.ndarray,
        log_weights: np.ndarray | None = None,
        moments: np.ndarray | None = None,
        best: bool = False,
    ) -> float: ...

PROCESSORS: tuple[str, ...]
PROCESSOR: str

MOST_STATES: int

def uniforms(
    key: np.ndarray, sweep: int, chain: int, layer: int, first: int, blocks: int
) -> np.ndarray: ...

SGD: int
ADAM: int
ADAMAX: int
LARGEST: float

def add_product(x: np.ndarray, weight: np.ndarray, out: np.ndarray, parts: int) -> None: ...
def outer(a: np.ndarray, b: np.ndarray, out: np.ndarray, parts: int) -> None: ...
def add_times(
    x: np.ndarray, weight: np.ndarray, turned: bool, out: np.ndarray, parts: int
) -> None: ...
def across(a: np.ndarray, b: np.ndarray, out: np.ndarray, parts: int) -> None: ...
def pack(weight: np.ndarray, out: np.ndarray, panels: int, parts: int) -> None: ...
def ascend(
    kind: int,
    rate: float,
    keep: tuple[float, float],
    unbias: tuple[float, float],
    epsilon: float,
    decay: tuple[float, float],
    p: np.ndarray,
    g: np.ndarray,
    p2: np.ndarray,
    copy: np.ndarray,
    m: np.ndarray | None,
    v: np.ndarray | None,
    parts: int,
) -> bool: ...

class Machine:
    def __init__(
        self,
        layers: int,
        links: int,
        visit: np.ndarray,
        beta: np.ndarray,
        key: np.ndarray,
        stream: np.ndarray,
        alpha: float,
    ) -> None: ...
    def layer(
        self,
        index: int,
        kind: int,
        states: int,
        width: int,
        size: int,
        moves: bool,
        by_unit: bool,
        summed: int,
        directed: bool,
        complement: bool,
        uneven: bool,
        variance: float,
        support: np.ndarray | None,
        log_base: np.ndarray | None,
        bias: np.ndarray,
        reference: np.ndarray | None,
        soft: np.ndarray | None,
        base: np.ndarray | None,
        field: np.ndarray | None,
        zeta: np.ndarray | None,
        rest: np.ndarray | None,
        state: np.ndarray | None,
        value: np.ndarray | None,
        free_units: np.ndarray,
        alive: np.ndarray | None,
    ) -> None: ...
    def bias(self, index: int, bias: np.ndarray) -> None: ...
    def rekey(self, key: np.ndarray, alpha: float) -> None: ...
    def link(
        self,
        index: int,
        source: int,
        to: int,
        arrow: bool,
        at_once: bool,
        dense: np.ndarray | None,
        entries: np.ndarray | None,
        start: np.ndarray | None,
        column: np.ndarray | None,
    ) -> None: ...
    def sweep(
        self,
        sweep: int,
        count: int,
        refresh: bool,
        changed: np.ndarray,
        parts: int,
        trace: np.ndarray | None = None,
        backward: bool = False,
        betas: np.ndarray | None = None,
        log_weight: np.ndarray | None = None,
        joint: bool = False,
        only: int = -1,
    ) -> None: ...
    def log_density(self, out: np.ndarray, last: bool) -> None: ...

LANES: int

class Belief:
    """Mean field with tables of probabilities, for many rows."""

    def __init__(
        self,
        kinds: list[tuple[int, int, float, np.ndarray, np.ndarray]],
        net: dict[str, object],
        link_weight: np.ndarray,
        weight: np.ndarray,
        arrays: dict[str, np.ndarray],
    ) -> None: ...
    def settle(
        self,
        rounds: int,
        tolerance: float,
        steps: int,
        made: np.ndarray,
        change: np.ndarray,
        parts: int,
    ) -> None: ...
    def forward(self, order: np.ndarray, steps: int, parts: int) -> None: ...
    def learn(self, row_weight: np.ndarray, weight: np.ndarray, parts: int) -> None: ...

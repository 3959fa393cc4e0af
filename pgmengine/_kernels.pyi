"""Types of the compiled module, cython_ext/kernels.pyx."""

from collections.abc import Callable
from typing import Any

from pgmengine.base.types import Array

PROCESSORS: tuple[str, ...]
PROCESSOR: str
LANES: int
MOST_STATES: int
MOST_STATES_OF_A_STEP: int
SGD: int
ADAM: int
ADAMAX: int
LARGEST: float

def use(name: str) -> int: ...
def build_record() -> dict[str, Any]: ...
def uniforms(key: Array, sweep: int, chain: int, layer: int, first: int, blocks: int) -> Array: ...

class Chains:
    def __init__(
        self,
        *,
        layers: int,
        links: int,
        visit: Array,
        beta: Array,
        key: Array,
        stream: Array,
        alpha: float,
    ) -> None: ...
    def layer(
        self,
        index: int,
        *,
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
        support: Array | None,
        log_base: Array | None,
        bias: Array,
        reference: Array | None,
        soft: Array | None,
        base: Array | None,
        field: Array | None,
        zeta: Array | None,
        rest: Array | None,
        state: Array | None,
        value: Array | None,
        free_units: Array,
        alive: Array | None,
        begin: int = 0,
        end: int = -1,
        reads: int = 0,
    ) -> None: ...
    def keep_whole(self) -> None: ...
    def rekey(self, key: Array, alpha: float) -> None: ...
    def link(
        self,
        index: int,
        source: int,
        to: int,
        arrow: bool,
        at_once: bool,
        dense: Array | None,
        entries: Array | None,
        start: Array | None,
        column: Array | None,
    ) -> None: ...
    def sweep(
        self,
        sweep: int,
        count: int,
        refresh: bool,
        changed: Array,
        parts: int,
        *,
        trace: Array | None = None,
        backward: bool = False,
        betas: Array | None = None,
        log_weight: Array | None = None,
        joint: bool = False,
        only: int = -1,
    ) -> None: ...
    def log_density(self, out: Array, last: bool) -> None: ...

def move_clusters(
    a: Array,
    b: Array,
    chance: Array,
    positive: Array,
    field: Array,
    uniform: Array,
    up: Array,
    parts: int,
) -> None: ...
def update_inside(
    value: Array | None,
    log_base: Array | None,
    weight: Array,
    start: Array | None,
    column: Array | None,
    field: Array,
    beta: Array,
    reference: Array,
    free_units: Array,
    stale: Array,
    mean: Array,
    eta: Array,
    quiet: float,
    parts: int,
) -> None: ...

CONSTANT: int
STUCK: int
MOVES: int
SLOW: int

def judge(
    x: Array,
    at: Array,
    ranked: int,
    score: Array | None,
    by_means: bool,
    by_lags: bool,
    kinds: bool,
    parts: int,
) -> tuple[Array, Array, Array, Array]: ...
def draw_step(
    unit: Array,
    states: Array,
    first: Array,
    start: Array,
    parent: Array,
    stride: Array,
    role: Array,
    place: Array,
    uniform: Array,
    prob: Array,
    log: Array,
    state: Array,
    log_weight: Array,
    parts: int,
) -> None: ...
def tally(state: Array, weight: Array, out: Array, parts: int) -> None: ...
def sum_paths(
    first: Array,
    field: Array,
    move: Array,
    weight: Array,
    log_z: Array,
    marginals: Array,
    pairs: Array,
) -> None: ...
def best_paths(first: Array, field: Array, move: Array, log_z: Array, path: Array) -> None: ...
def waves(visit: Array, start: Array, scope: Array, scopes: int) -> tuple[Array, int]: ...

class TabledSweeps:
    def __init__(
        self,
        *,
        chains: int,
        alone: bool,
        sites: Array,
        visit: Array,
        support: Array,
        log_base: Array,
        beta: Array,
        stream: Array,
        state: Array,
        value: Array,
        soft: Array,
        free_units: Array | None,
        cut: Array | None,
        reference: Array | None,
    ) -> None: ...
    def parameters(
        self,
        slots: Array,
        members: Array,
        term: Array,
        bias: Array,
        link_start: Array,
        link_from: Array,
        link_weight: Array,
        arrow_start: Array,
        arrow_from: Array,
        arrow_weight: Array,
        child_start: Array,
        child: Array,
    ) -> None: ...
    def by_forests(self, start: Array, near: Array, value_unit: Array) -> None: ...
    def by_waves(self, unit: Array, start: Array, period: int, uniforms: Array) -> None: ...
    def rekey(self, key: Array, alpha: float) -> None: ...
    def sweep(
        self,
        first: int,
        count: int,
        parts: int,
        *,
        trace: Array | None = None,
        backward: bool = False,
        betas: Array | None = None,
        log_weight: Array | None = None,
        joint: bool = False,
        anew: Array | None = None,
    ) -> None: ...
    def log_density(self, out: Array, parts: int) -> None: ...

def add_product(x: Array, weight: Array, out: Array, parts: int) -> None: ...
def outer(a: Array, b: Array, out: Array, parts: int) -> None: ...
def pack(weight: Array, out: Array, panels: int, parts: int) -> None: ...
def add_times(x: Array, weight: Array, turned: bool, out: Array, parts: int) -> None: ...
def across(a: Array, b: Array, out: Array, parts: int) -> None: ...
def ascend(
    kind: int,
    *,
    rate: float,
    keep: tuple[float, float],
    unbias: tuple[float, float],
    epsilon: float,
    decay: tuple[float, float],
    p: Array,
    g: Array,
    p2: Array,
    copy: Array,
    m: Array | None,
    v: Array | None,
    parts: int,
) -> bool: ...

class GrayWalk:
    def __init__(
        self,
        states: Array,
        pair: Array,
        value: Array,
        up: Array,
        down: Array,
        blocks: list[tuple[int, int, int, float, bool]],
    ) -> None: ...
    def walk(
        self,
        *,
        theta: Array,
        offset: Array,
        start: int,
        count: int,
        step: int,
        every: int,
        log_sums: Array,
        log_weights: Array | None = None,
        moments: Array | None = None,
        best: bool = False,
    ) -> tuple[Array, Array]: ...

class Graph:
    def __init__(
        self, kinds: list[tuple[int, int, float, Array, Array]], net: dict[str, Any]
    ) -> None: ...

class Weights:
    def __init__(
        self,
        graph: Graph,
        by_term: Graph | None,
        link_weight: Array,
        edges: tuple[Array, Array, Array],
        grouped: tuple[Array, Array, Array] | None,
        entry: Array,
        hard: Array,
        cut: float,
    ) -> None: ...

class Belief:
    numbers: Array
    def __init__(self, weights: Weights, rows: int) -> None: ...
    def beside(self, factor: Array, floor: float, parts: int) -> Belief: ...
    def start(
        self, common: Array, rows: dict[int, Array], factor: Array | None, floor: float, parts: int
    ) -> None: ...
    def settle(
        self, rounds: int, tolerance: float, steps: int, least: float, parts: int
    ) -> tuple[int, float]: ...
    def forward(self, order: Array, steps: int, parts: int) -> None: ...
    def forward_tables(self, order: Array, parts: int) -> None: ...
    def value(self, only_tables: bool, parts: int) -> Array: ...
    def count_tables(self, row_weight: Array, counts: Array, parts: int) -> None: ...
    def learn(self, row_weight: Array, weight: Array, parts: int) -> None: ...

FILL: int
FILL_LOG: int
FILL_STATES: int
WEIGHT: int
SIZE: int
WEIGHT_FILL: int

class Orders:
    variables: int
    parts: int
    def __init__(self, cards: Array, start: Array, scope: Array) -> None: ...
    def greedy(self, rule: int, seed: int, noise: float, best: float) -> None: ...
    def improve(self, seed: int, rounds: int, window: int) -> None: ...
    def offer(self, order: Array) -> None: ...
    def work(self) -> int: ...
    def best(self) -> Array | None: ...
    def cost(self, order: Array) -> tuple[float, float]: ...
    def bound(self) -> float: ...

def checked_factors(cards: Array, start: Array, scope: Array) -> int: ...
def elimination_order(
    cards: Array, start: Array, scope: Array, rule: int, seed: int, best: float
) -> tuple[Array | None, float, float]: ...
def width_bound(cards: Array, start: Array, scope: Array) -> float: ...

class JunctionTree:
    cliques: int
    largest: float
    entries: float
    separators: float
    def __init__(self, cards: Array, start: Array, scope: Array, order: Array) -> None: ...
    def clique_scopes(self) -> list[Array]: ...
    def parents(self) -> Array: ...
    def bytes(
        self, lanes: int = 1, more: bool = False, draws: int = 0, narrow: float = 0.0
    ) -> float: ...
    def run(
        self,
        values: Array | list[Array],
        *,
        lanes: int = 1,
        wide: Array | None = None,
        where: Array | None = None,
        log_z: bool = True,
        marginals: bool = False,
        expected: Array | None = None,
        mode: bool = False,
        draws: int = 0,
        uniforms: Array | None = None,
        key: Array | None = None,
        stream: Array | None = None,
        log_space: bool = False,
        progress: Callable[[float], None] | None = None,
    ) -> dict[str, Any]: ...

def possible_states(
    cards: Array, start: Array, scope: Array, zeros: Array
) -> tuple[Array, Array]: ...

class Messages:
    entries: int
    def __init__(
        self, cards: Array, start: Array, scope: Array, order: Array, maximum: bool
    ) -> None: ...
    def begin(self, log: Array) -> bool: ...
    def run(self, changes: Array, tolerance: float, damping: float) -> int: ...
    def log_weights(self, weights: Array) -> bool: ...
    def log_z(self, weights: Array) -> float: ...
    def sent(self, factor: int) -> tuple[Array, int]: ...
    def of_factors(self, which: Array, weights: Array) -> None: ...
    def decided(self, order: Array) -> Array: ...

def run_restricted(
    tree: JunctionTree,
    values: Array,
    seen: Array,
    *,
    wide: Array | None = None,
    marginals: bool = False,
    expected: Array | None = None,
    mode: bool = False,
    draws: int = 0,
    key: Array | None = None,
    progress: Callable[[float], None] | None = None,
) -> dict[str, Any]: ...
def restricted_entries(
    tree: JunctionTree, values: Array, seen: Array, *, wide: Array | None = None
) -> Array: ...

OPERATIONS: dict[str, int]

def shuffled(key: Array, number: int, rows: int) -> Array: ...
def means(
    kind: int,
    states: int,
    width: int,
    variance: float,
    support: Array | None,
    log_base: Array | None,
    eta: Array,
    out: Array,
    parts: int,
) -> None: ...

class Ladder:
    def __init__(
        self,
        *,
        betas: Array,
        rung: Array,
        slow: Array,
        fast: Array,
        log_g: Array,
        visits: Array,
        seen: Array,
        visited: Array,
        counts: Array,
        from_below: Array,
    ) -> None: ...

class Updates:
    def __init__(
        self,
        *,
        rows: int,
        size: int,
        chains: int,
        keys: int,
        rates: int,
        uniforms: int,
        order_key: Array,
        weight: Array,
        weights: Array,
        moved: Array,
        scratch: Array,
        sparse_share: float,
        listing: float,
    ) -> None: ...
    def add(self, kind: str, **fields: Any) -> int: ...
    def ready(
        self,
        updates: int,
        *,
        first: int,
        rate: Array,
        alpha: Array,
        key: Array,
        uniform: Array,
        order: Array,
        left: int,
        number: int,
        begins: tuple[Array, ...],
        ends: tuple[Array, ...],
    ) -> None: ...
    def outcome(self) -> tuple[int, int, int, int]: ...

def make_updates(fits: list[Updates], parts: int) -> None: ...

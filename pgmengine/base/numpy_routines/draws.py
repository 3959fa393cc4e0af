"""Random numbers and draws from conditional tables: c/random.h and c/ancestral.h in numpy."""

from __future__ import annotations

import numpy as np

from pgmengine.base.types import Array

# Bits by which the words of Threefry4x32 are turned (Salmon, Moraes, Dror and Shaw 2011).
TURNS = ((10, 26), (11, 21), (13, 27), (23, 5), (6, 20), (17, 11), (25, 10), (18, 20))
ROUNDS = 12


def _threefry(counter: Array, key: Array) -> Array:
    """Return the words (n, 4) uint32 of counters (n, 4)."""
    k = [np.uint32(v) for v in key]
    k.append(np.uint32(0x1BD11BDA) ^ k[0] ^ k[1] ^ k[2] ^ k[3])
    with np.errstate(over="ignore"):
        x = [counter[:, i].astype(np.uint32) + k[i] for i in range(4)]
        for turn in range(ROUNDS):
            first, second = (1, 3) if turn % 2 == 0 else (3, 1)
            for a, b, bits in zip((0, 2), (first, second), TURNS[turn % 8], strict=True):
                x[a] = x[a] + x[b]
                x[b] = (x[b] << np.uint32(bits) | x[b] >> np.uint32(32 - bits)) ^ x[a]
            if turn % 4 == 3:
                s = turn // 4 + 1
                x = [x[i] + k[(s + i) % 5] for i in range(4)]
                x[3] = x[3] + np.uint32(s)
    return np.stack(x, axis=1)


def uniforms(key: Array, sweep: int, chain: int, layer: int, first: int, blocks: int) -> Array:
    """Return the uniforms of blocks at one position of the generator, (64 blocks,) float32."""
    lane = np.arange(16 * first, 16 * (first + blocks), dtype=np.uint64)
    counter = np.zeros((len(lane), 4), dtype=np.uint64)
    counter[:, 0], counter[:, 1:] = lane, (sweep, chain, layer)
    words = _threefry(counter & 0xFFFFFFFF, key).reshape(blocks, 16, 4).transpose(0, 2, 1)
    small = (words.reshape(-1) >> np.uint32(1)).astype(np.float32)
    return np.asarray(small * np.float32(2.0**-31) + np.float32(2.3283064e-10))


def shuffled(key: Array, number: int, rows: int) -> Array:
    """Return rows 0 .. rows - 1 in the random order of a pass with this number, (rows,)."""
    counter = np.zeros((rows, 4), dtype=np.uint64)
    counter[:, 0] = np.arange(rows)
    counter[:, 2:] = number & 0xFFFFFFFF, number >> 32
    words = _threefry(counter, key).astype(np.uint64)
    bits = (words[:, 0] << np.uint64(32) | words[:, 1]).tolist()
    order = list(range(rows))
    for i in range(rows - 1, 0, -1):
        j = bits[i] * (i + 1) >> 64
        order[i], order[j] = order[j], order[i]
    return np.array(order, dtype=np.int64)


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
) -> None:
    """Draw or weigh the units of a step, whose parents have been drawn; see ancestral.pxi."""
    draws, rows = state.shape[1], role.shape[1]
    row = np.arange(draws) // max(draws // max(rows, 1), 1)
    for i, u in enumerate(unit):
        at = np.full(draws, first[i], dtype=np.int64)
        for a in range(start[i], start[i + 1]):
            at += state[parent[a]].astype(np.int64) * stride[a]
        drawn, weighed = role[i, row] == 1, role[i, row] == 2
        if drawn.any():
            entries = prob[at[drawn][:, None] + np.arange(states[i])]
            limit = uniform[place[i], drawn] * entries.sum(axis=1)
            below = np.cumsum(entries[:, :-1], axis=1)
            state[u, drawn] = (limit[:, None] >= below).sum(axis=1)
        log_weight[weighed] += log[at[weighed] + state[u, weighed]]


def tally(state: Array, weight: Array, out: Array, parts: int) -> None:
    """Write sums of weights, and of their squares, to out (units, rows, states, 2)."""
    for k in range(out.shape[2]):
        here = np.where(state == k, weight, 0.0)
        out[:, :, k, 0], out[:, :, k, 1] = here.sum(axis=-1), (here**2).sum(axis=-1)

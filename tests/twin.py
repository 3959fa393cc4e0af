"""Plain numpy twins: the generator of the compiled sweeps, and a random source that replays it for
the plain engine.
"""

import numpy as np

from pgmengine.engine.visits import colors, visited

ROTATIONS = ((10, 26), (11, 21), (13, 27), (23, 5), (6, 20), (17, 11), (25, 10), (18, 20))


def threefry(counter, key, rounds=12):
    """Threefry4x32 of (n, 4) counters, word by word."""
    with np.errstate(over="ignore"):
        k = [np.uint32(v) for v in key]
        k.append(np.uint32(0x1BD11BDA) ^ k[0] ^ k[1] ^ k[2] ^ k[3])
        x = [counter[:, i].astype(np.uint32) + k[i] for i in range(4)]
        for r in range(rounds):
            partner = (1, 3) if r % 2 == 0 else (3, 1)
            for a, b, turn in (
                (0, partner[0], ROTATIONS[r % 8][0]),
                (2, partner[1], ROTATIONS[r % 8][1]),
            ):
                x[a] = x[a] + x[b]
                x[b] = (x[b] << np.uint32(turn) | x[b] >> np.uint32(32 - turn)) ^ x[a]
            if r % 4 == 3:
                s = r // 4 + 1
                x = [x[i] + k[(s + i) % 5] for i in range(4)]
                x[3] = x[3] + np.uint32(s)
        return np.stack(x, axis=1)


def uniforms(key, sweep, chain, layer, count, second=False):
    """The first `count` uniforms of a place, as the compiled sweeps number them."""
    blocks = -(-count // 64)
    lane = (np.arange(blocks * 16) + (2**31 if second else 0)).astype(np.uint32)
    counter = np.stack(
        [lane, *(np.full(len(lane), v, dtype=np.uint32) for v in (sweep, chain, layer))], axis=1
    )
    words = threefry(counter, key).reshape(blocks, 16, 4).transpose(0, 2, 1).reshape(-1)[:count]
    return ((words >> np.uint32(1)).astype(np.float64) + 0.5) * 2.0**-31


class Replay:
    """A random source for the plain engine that hands out the uniforms of the compiled one, visit
    by visit.
    """

    def __init__(self, target, key, by_unit, streams=None, backward=False):
        self.backward = backward
        self.target, self.key, self.by_unit = target, key, by_unit
        self.streams = np.arange(target.rows) if streams is None else streams
        self.calls = self._calls()

    def _calls(self):
        s = self.target.structure
        place = {name: i for i, name in enumerate(s.layers)}
        sweep = 0
        while True:
            names = [n for color in colors(s) for n in color]
            for name in names[::-1] if self.backward else names:
                layer, free = s.layers[name], self.target.free[name]
                if not free.any():
                    continue
                one, two = (
                    np.stack(
                        [
                            uniforms(self.key, sweep, c, place[name], layer.size, second)
                            for c in self.streams
                        ]
                    )
                    for second in (False, True)
                )
                if name in self.by_unit:
                    order = np.flatnonzero(free.any(axis=0))
                    for j in order[::-1] if self.backward else order:
                        yield one[:, j], two[:, j]
                else:
                    yield one, two
            sweep += 1

    def random(self, shape):
        u, _ = next(self.calls)
        assert u.shape == tuple(shape)
        return u

    def standard_normal(self, shape):
        u, v = next(self.calls)
        assert u.shape == tuple(shape)
        return np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v)


def key_of(seed):
    return np.random.default_rng(seed).integers(0, 2**32, size=4, dtype=np.uint32)


class LanesReplay(Replay):
    """The same for compiled sweeps of single units, which number uniforms by ranks of units."""

    def __init__(self, target, key, streams=None, backward=False):
        super().__init__(target, key, target.pattern.by_unit, streams, backward)

    def _calls(self):
        s = self.target.structure
        names = [n for names in visited(self.target) for n in names]
        ends = np.cumsum([0, *(s.layers[n].size for n in names)])
        first, sweep = dict(zip(names, ends)), 0
        while True:
            u = np.stack([uniforms(self.key, sweep, c, 0, ends[-1]) for c in self.streams])
            for name in names[::-1] if self.backward else names:
                free, own = self.target.free[name], u[:, first[name] :][:, : s.layers[name].size]
                if not free.any():
                    continue
                if name not in self.by_unit:
                    yield own, None
                    continue
                order = np.flatnonzero(free.any(axis=0))
                for j in order[::-1] if self.backward else order:
                    yield own[:, j], None
            sweep += 1

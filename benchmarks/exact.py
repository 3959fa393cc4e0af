"""Exact log Z: the compiled walk against a vectorised numpy enumeration, in one run on one thread.

OMP_NUM_THREADS=1 PGMENGINE_THREADS=1 python benchmarks/exact.py
"""

import time

import numpy as np

import pgmengine as pgm


def numpy_log_z(weight, v_bias, h_bias, chunk=4096):
    """log sum over hidden states of prod over visibles of (1 + e^field)."""
    bits = len(h_bias)
    parts = []
    for start in range(0, 2**bits, chunk):
        h = (np.arange(start, min(start + chunk, 2**bits))[:, None] >> np.arange(bits)) & 1
        parts.append(np.logaddexp.reduce(h @ h_bias + np.logaddexp(0, h @ weight.T + v_bias).sum(axis=1)))
    return np.logaddexp.reduce(parts)


def timed(f):
    begin = time.perf_counter()
    value = f()
    return time.perf_counter() - begin, value


def main():
    rng = np.random.default_rng(0)
    for visible, hidden in ((784, 16), (784, 20), (64, 25)):
        weight = rng.normal(0, 0.3, (visible, hidden))
        model = pgm.rbm(visible, hidden).with_params({"v-h.weight": weight})
        ours = [timed(lambda m=model: pgm.infer(m, want=("log_z",)).log_z[0]) for _ in range(3)]
        seconds, value = min(ours)
        part = max(0, hidden - 16)  # numpy on 2^16 of the states, scaled up, for the larger ones
        slow, check = timed(lambda w=weight, k=hidden - part: numpy_log_z(w[:, :k], np.zeros(len(w)), np.zeros(k)))
        if part == 0:
            np.testing.assert_allclose(value, check, rtol=1e-12)
        print(
            f"{visible}x{hidden}: compiled {seconds:.3f} s, numpy {slow * 2**part:.2f} s"
            f"{' (extrapolated from 2^16 states)' if part else ''}, ratio {slow * 2**part / seconds:.0f}"
        )


if __name__ == "__main__":
    main()

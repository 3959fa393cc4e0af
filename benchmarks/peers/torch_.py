"""Hand-written PyTorch, on the CPU: float32, in place, fused addmm, reused buffers.

u.uniform_() < p into a buffer takes two thirds of the time of torch.bernoulli(p); torch.compile of
a sweep took longer.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import torch

Array = np.ndarray
Run = Callable[[int], torch.Tensor]

if threads := os.environ.get("OMP_NUM_THREADS"):
    torch.set_num_threads(int(threads))


def _tensors(*arrays: Array) -> list[torch.Tensor]:
    return [torch.tensor(np.asarray(a), dtype=torch.float32) for a in arrays]


class Layer:
    """Buffers of a layer of states (rows, size)."""

    def __init__(self, rows: int, bias: torch.Tensor) -> None:
        self.bias = bias
        self.field, self.u, self.x = (torch.zeros(rows, len(bias)) for _ in range(3))

    def field_from(self, x: torch.Tensor, w: torch.Tensor) -> None:
        """field = bias + x @ w."""
        torch.addmm(self.bias, x, w, out=self.field)

    def gibbs(self) -> None:
        """Each unit from its conditional."""
        torch.lt(self.u.uniform_(), self.field.sigmoid_(), out=self.x)

    def flip_state(self) -> None:
        """Each unit flips with probability min(1, e^(field (1 - 2x)))."""
        self.field.addcmul_(self.field, self.x, value=-2).exp_()  # above 1 is as good as 1
        torch.ne(self.x, torch.lt(self.u.uniform_(), self.field), out=self.x)


def sweeps(weight: Array, b: Array, c: Array, v: Array) -> Run:
    """Block Gibbs sweeps of an RBM; run(count) returns the visible states."""
    return _rbm(weight, b, c, v, Layer.gibbs)


def flip_sweeps(weight: Array, b: Array, c: Array, v: Array) -> Run:
    """Flip-the-state sweeps of an RBM; otherwise like `sweeps`."""
    return _rbm(weight, b, c, v, Layer.flip_state)


def clamped_sweeps(weight: Array, b: Array, c: Array, rows: Array) -> Run:
    """Gibbs sweeps with the visible units of each row that are not NaN held fixed."""
    free = torch.tensor(np.isnan(rows))
    (known,) = _tensors(np.nan_to_num(rows))
    return _rbm(
        weight, b, c, np.nan_to_num(rows), Layer.gibbs, lambda v: torch.where(free, v, known, out=v)
    )


def _rbm(
    weight: Array,
    b: Array,
    c: Array,
    v: Array,
    move: Callable[[Layer], None],
    clamp: Callable[[torch.Tensor], object] = lambda v: None,
) -> Run:
    torch.manual_seed(0)
    w, b, c = _tensors(weight, b, c)
    back = w.t().contiguous()
    visible, hidden = Layer(len(v), b), Layer(len(v), c)
    visible.x.copy_(_tensors(v)[0])

    @torch.no_grad()
    def run(count: int) -> torch.Tensor:
        for _ in range(count):
            hidden.field_from(visible.x, w)
            move(hidden)
            visible.field_from(hidden.x, back)
            move(visible)
            clamp(visible.x)
        return visible.x

    return run


def dbm_sweeps(w1: Array, w2: Array, a: Array, b: Array, c: Array, v: Array) -> Run:
    """Block Gibbs sweeps of a DBM of three layers: the middle one, then the other two."""
    torch.manual_seed(0)
    w1, w2, a, b, c = _tensors(w1, w2, a, b, c)
    down, middle, top = (Layer(len(v), bias) for bias in (a, b, c))
    down.x.copy_(_tensors(v)[0])
    back1, back2 = w1.t().contiguous(), w2.t().contiguous()

    @torch.no_grad()
    def run(count: int) -> torch.Tensor:
        for _ in range(count):
            middle.field_from(down.x, w1)
            middle.field.addmm_(top.x, back2)
            middle.gibbs()
            down.field_from(middle.x, back1)
            down.gibbs()
            top.field_from(middle.x, w2)
            top.gibbs()
        return down.x

    return run


def ising(n: int, beta: float) -> Callable[[int], list[torch.Tensor]]:
    """Sweeps of a periodic n x n lattice of spins, even and odd sites in boards (n, n / 2) of their
    own.
    """
    torch.manual_seed(0)
    boards = [torch.randint(0, 2, (n, n // 2)).float().mul_(2).sub_(1) for _ in range(2)]
    odd_rows = (torch.arange(n) % 2 == 1)[:, None]
    u = torch.empty(n, n // 2)

    @torch.no_grad()
    def run(count: int) -> list[torch.Tensor]:
        for _ in range(count):
            for own, other, left in ((0, 1, ~odd_rows), (1, 0, odd_rows)):
                x = boards[other]
                near = torch.where(left, x.roll(1, 1), x.roll(-1, 1))
                near.add_(x).add_(x.roll(1, 0)).add_(x.roll(-1, 0)).mul_(2 * beta).sigmoid_()
                torch.lt(u.uniform_(), near, out=boards[own]).mul_(2).sub_(1)
        return boards

    return run


def pcd(
    weight: Array, b: Array, c: Array, x: Array, chain: Array, rate: float, batch: int = 100
) -> Callable[[int], list]:
    """Updates of PCD-1 of an RBM, weights in place; chain: hidden states (chains, hidden). run
    returns [w, b, c].
    """
    torch.manual_seed(0)
    w, b, c, rows = _tensors(weight, b, c, x)
    visible, hidden = Layer(len(chain), b), Layer(len(chain), c)
    hidden.x.copy_(_tensors(chain)[0])
    place, up = {"next": 0}, torch.empty(batch, len(c))

    @torch.no_grad()
    def run(count: int) -> list[torch.Tensor]:
        for _ in range(count):
            v = rows[place["next"] : place["next"] + batch]
            place["next"] = (place["next"] + batch) % len(rows)
            torch.addmm(c, v, w, out=up).sigmoid_()
            visible.field_from(hidden.x, w.t())
            visible.gibbs()
            hidden.field_from(visible.x, w)
            hidden.gibbs()
            _step(w, v, up, visible.x, hidden.x, rate)
            _step_bias(b, v, visible.x, rate)
            _step_bias(c, up, hidden.x, rate)
        return [w, b, c]

    return run


def _step(
    w: torch.Tensor,
    x: torch.Tensor,
    y: torch.Tensor,
    fx: torch.Tensor,
    fy: torch.Tensor,
    rate: float,
) -> None:
    """w += rate (mean of x y' over the data - mean over the chains), in place."""
    w.addmm_(x.t(), y, alpha=rate / len(x)).addmm_(fx.t(), fy, alpha=-rate / len(fx))


def _step_bias(b: torch.Tensor, x: torch.Tensor, fx: torch.Tensor, rate: float) -> None:
    b.add_(x.mean(0) - fx.mean(0), alpha=rate)


def sap(
    w1: Array,
    w2: Array,
    a: Array,
    b: Array,
    c: Array,
    x: Array,
    chain: Array,
    rate: float,
    rounds: int = 5,
    batch: int = 100,
) -> Callable[[int], list]:
    """Updates of stochastic approximation for a DBM, `rounds` of mean field; chain: states
    of the middle.
    """
    torch.manual_seed(0)
    w1, w2, a, b, c, rows = _tensors(w1, w2, a, b, c, x)
    down, middle, top = (Layer(len(chain), bias) for bias in (a, b, c))
    middle.x.copy_(_tensors(chain)[0])
    place, q1, q2, below = {"next": 0}, *(torch.empty(batch, n) for n in (len(b), len(c), len(b)))

    @torch.no_grad()
    def run(count: int) -> list[torch.Tensor]:
        for _ in range(count):
            v = rows[place["next"] : place["next"] + batch]
            place["next"] = (place["next"] + batch) % len(rows)
            torch.addmm(b, v, w1, out=below)
            q2.fill_(0.5)
            for _ in range(rounds):
                torch.addmm(below, q2, w2.t(), out=q1).sigmoid_()
                torch.addmm(c, q1, w2, out=q2).sigmoid_()
            down.field_from(middle.x, w1.t())
            down.gibbs()
            top.field_from(middle.x, w2)
            top.gibbs()
            middle.field_from(down.x, w1)
            middle.field.addmm_(top.x, w2.t())
            middle.gibbs()
            _step(w1, v, q1, down.x, middle.x, rate)
            _step(w2, q1, q2, middle.x, top.x, rate)
            for bias, data, model in ((a, v, down), (b, q1, middle), (c, q2, top)):
                _step_bias(bias, data, model.x, rate)
        return [w1, w2, a, b, c]

    return run


def ais(
    weight: Array, b: Array, c: Array, base: Array, betas: Array, chains: int
) -> Callable[[], float]:
    """Log Z by annealing from independent units with log-odds `base`, hidden units summed out of
    the weights.
    """
    torch.manual_seed(0)
    w, b, c, base = _tensors(weight, b, c, base)
    back, softplus, steps = (
        w.t().contiguous(),
        torch.nn.functional.softplus,
        np.asarray(betas).tolist(),
    )
    log_z_0 = softplus(base).double().sum().item() + len(c) * np.log(2)

    @torch.no_grad()
    def job() -> float:
        visible, hidden = Layer(chains, b), Layer(chains, c)
        visible.field.copy_(base)
        visible.gibbs()
        total = torch.zeros(chains, dtype=torch.float64)
        for old, new in zip(steps[:-1], steps[1:], strict=True):
            hidden.field_from(visible.x, w)
            total += (new - old) * (visible.x @ (b - base))
            total -= softplus(old * hidden.field).sum(1)
            hidden.field.mul_(new)
            total += softplus(hidden.field).sum(1)
            hidden.gibbs()
            visible.field_from(hidden.x, back)
            visible.field.mul_(new).add_(base, alpha=1 - new)
            visible.gibbs()
        return log_z_0 + torch.logsumexp(total, 0).item() - np.log(chains)

    return job


def _states(bits: int) -> torch.Tensor:
    return ((torch.arange(2**bits)[:, None] >> torch.arange(bits)) & 1).float()


def log_z(weight: Array, b: Array, c: Array, bits: int, chunk: int = 12) -> Callable[[], float]:
    """Log Z by 2^bits states of the hidden units, in chunks whose low bits' fields are computed
    once.
    """
    chunk = min(chunk, bits)
    w, b, c = _tensors(weight, b, c)
    low, high = _states(chunk), _states(bits - chunk)
    fields, weights = torch.addmm(b, low, w[:, :chunk].t()), low @ c[:chunk]
    x = torch.empty_like(fields)

    @torch.no_grad()
    def job() -> float:
        parts = []
        for state in high:
            torch.add(fields, w[:, chunk:bits] @ state, out=x)
            total = torch.nn.functional.softplus(x).sum(1) + weights
            parts.append((total.double() + state @ c[chunk:bits]).logsumexp(0))
        return torch.stack(parts).logsumexp(0).item()

    return job


def posterior(
    weight: Array, b: Array, c: Array, rows: Array
) -> Callable[[int], tuple[torch.Tensor, torch.Tensor]]:
    """Exact posterior means of every row's missing pixels and hidden units; run(count) of the next
    `count` rows.
    """
    w, b, c, known = _tensors(weight, b, c, np.nan_to_num(rows))
    missing = torch.tensor(np.argwhere(np.isnan(rows))[:, 1].reshape(len(rows), -1))
    states = _states(missing.shape[1])
    field = torch.empty(len(states), len(c))
    place = {"next": 0}

    def one(row: int) -> tuple[torch.Tensor, torch.Tensor]:
        torch.addmm(known[row] @ w + c, states, w[missing[row]], out=field)
        p = (torch.nn.functional.softplus(field).sum(1) + states @ b[missing[row]]).softmax(0)
        return p @ states, p @ field.sigmoid_()

    @torch.no_grad()
    def run(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        start = place["next"]
        place["next"] += count
        pairs = [one(row % len(rows)) for row in range(start, start + count)]
        return torch.stack([p for p, _ in pairs]), torch.stack([h for _, h in pairs])

    return run

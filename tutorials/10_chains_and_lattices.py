# %% [markdown]
# # Chains, trees and lattices
#
# The cost of an exact answer by elimination depends on the width of the graph, not on its size.
# Chains and trees have the width of two variables, whatever their length. A lattice is as wide as
# its shorter side. This tutorial asks graphs of 10,000 units exactly, compares lattices with the
# formulas of Onsager and Kaufman, and then goes beyond the width.

# %%
import math

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

import pgmengine as pgm

rng = np.random.default_rng(0)

# %% [markdown]
# ## A hidden Markov model
# A machine is in one of three conditions, and each shift produces one of four signals. `tables`
# declares many tables of one shape at once: `index` has a row of unit numbers for each table. The
# tutorial "A hidden Markov model in ten lines" declares one by arrays of variables, and learns it.

# %%
n = 10_000
move = np.array([[0.98, 0.01, 0.01], [0.02, 0.97, 0.01], [0.03, 0.03, 0.94]])
emit = np.array([[0.7, 0.1, 0.1, 0.1], [0.1, 0.5, 0.3, 0.1], [0.1, 0.1, 0.3, 0.5]])
first = np.array([0.6, 0.3, 0.1])
steps = np.arange(n)
b = pgm.GraphBuilder()
b.layer("z", pgm.Categorical(3), n)
b.layer("x", pgm.Categorical(4), n)
b.table((("z", 0),), first)
b.tables(("z", "z"), np.stack([steps[:-1], steps[1:]], axis=1), move)
b.tables(("z", "x"), np.stack([steps, steps], axis=1), emit)
hmm = b.build()

# %% [markdown]
# We draw a truth, hide the signals of 150 shifts, and ask for the condition of the machine in every
# shift, for the log probability of the signals, and for the most probable path.

# %%
truth = np.empty(n, dtype=int)
truth[0] = rng.choice(3, p=first)
for t in range(1, n):
    truth[t] = rng.choice(3, p=move[truth[t - 1]])
signals = (rng.random(n) > emit.cumsum(axis=1)[truth].T).sum(axis=0).astype(float)
signals[400:550] = np.nan
r = pgm.infer(hmm, {"x": signals}, want=("marginals", "log_prob", "mode"))
path = r.mode["z"].argmax(axis=-1)
print(r.plan)
print(f"log p(signals) = {r.log_prob[0]:.4f}; shifts right: {np.mean(path == truth):.3f} by the path, "
      f"{np.mean(r.prob['z'].argmax(axis=-1) == truth):.3f} by marginals, "
      f"{np.mean(emit[:, signals[:400].astype(int)].argmax(axis=0) == truth[:400]):.3f} by single signals")
assert r.kind == "exact"

# %% [markdown]
# The forward algorithm in a few lines gives the same number:

# %%
alpha, total = first, 0.0
for t in range(n):
    if t:
        alpha = alpha @ move
    if not np.isnan(signals[t]):
        alpha = alpha * emit[:, int(signals[t])]
    total += math.log(alpha.sum())
    alpha = alpha / alpha.sum()
assert abs(total - r.log_prob[0]) < 1e-6

# %%
fig, ax = plt.subplots(figsize=(7, 2.6), layout="tight")
window = slice(250, 700)
ax.stackplot(steps[window], r.prob["z"][window].T, colors=("#dbe6f2", "#7fa3c9", "#24466b"), labels=("good", "worn", "broken"))
ax.plot(steps[window], 1.04 + 0.05 * truth[window], ".", ms=2, color="black")
ax.axvspan(400, 550, ymax=0.02, color="#c0392b")
ax.set(xlabel="shift (red: no signals)", ylabel="probability", xlim=(250, 700), ylim=(0, 1.2), title="conditions, and the truth as dots above")
_ = ax.legend(loc="lower right", fontsize=8)

# %% [markdown]
# ## A tree of 10,000 units
# A letter is passed down a family tree, and each copy is wrong with probability 0.05. We know the
# letters of those without children. Which letter had the first one?

# %%
parent = (rng.random(n - 1) * np.arange(1, n)).astype(int)
copy = np.full((4, 4), 0.05 / 3)
np.fill_diagonal(copy, 0.95)
b = pgm.GraphBuilder()
b.layer("letter", pgm.Categorical(4), n)
b.tables(("letter", "letter"), np.stack([parent, np.arange(1, n)], axis=1), copy)
tree = b.build()
letters = np.zeros(n, dtype=int)
for i in range(1, n):
    letters[i] = rng.choice(4, p=copy[letters[parent[i - 1]]])
leaves = np.setdiff1d(np.arange(n), parent)
known = np.full(n, np.nan)
known[leaves] = letters[leaves]
r = pgm.infer(tree, {"letter": known})
inner = np.setdiff1d(np.arange(n), leaves)
right = r.prob["letter"].argmax(axis=-1)[inner] == letters[inner]
claimed = r.prob["letter"].max(axis=-1)[inner]
print(f"{len(leaves)} leaves; first letter: {r.prob['letter'][0].round(6)}")
print(f"right about {right.mean():.3f} of the inner units, and {claimed.mean():.3f} was claimed")
assert abs(right.mean() - claimed.mean()) < 0.03

# %% [markdown]
# ## Spin lattices, exactly
# Kaufman (1949) found Z of the Ising model on a torus of n x m spins, for any coupling K. The
# junction tree knows nothing of this formula, and gives the same digits.

# %%
def torus(n, coupling):
    """Return an n x n lattice of spins, closed in both directions."""
    graph = nx.grid_2d_graph(n, n, periodic=True)
    nx.set_edge_attributes(graph, coupling, "weight")
    return pgm.GraphBuilder.from_networkx(graph, unit=pgm.Spin()).build()


def kaufman(n, m, k):
    """Return log Z of the torus."""
    angle = np.pi * np.arange(2 * n) / n
    gamma = np.arccosh(np.cosh(2 * k) / np.tanh(2 * k) - np.cos(angle))
    gamma[0] = 2 * k + math.log(math.tanh(k))  # with its sign
    half = m * gamma / 2
    odd, even = half[1::2], half[::2]
    terms = [np.log(2 * np.cosh(odd)).sum(), np.log(np.abs(2 * np.sinh(odd))).sum(),
             np.log(2 * np.cosh(even)).sum(), np.log(np.abs(2 * np.sinh(even))).sum()]
    signs = [1, 1, 1, np.sign(np.sinh(even)).prod()]
    top = max(terms)
    return n * m / 2 * math.log(2 * math.sinh(2 * k)) - math.log(2) + top + math.log(
        sum(s * math.exp(t - top) for s, t in zip(signs, terms)))


for k in (0.2, 0.44, 1.0, 3.0):
    r = pgm.infer(torus(8, k), want=("log_z",))
    print(f"K = {k}: log Z {r.log_z[0]:.10f}, Kaufman {kaufman(8, 8, k):.10f}")
    assert r.kind == "exact" and abs(r.log_z[0] - kaufman(8, 8, k)) < 1e-8
print(r.plan)

# %% [markdown]
# Onsager (1944) found the limit of log Z for each spin of an infinite lattice. A ring of n spins
# that goes on for ever comes close to it. Long ribbons are no more work than short ones of the same
# width, for each spin: two of them tell what one more row adds.

# %%
def ribbon(n, length, coupling):
    """Return log Z of a tube of n x length spins."""
    graph = nx.grid_2d_graph(n, length, periodic=(True, False))
    nx.set_edge_attributes(graph, coupling, "weight")
    tube = pgm.GraphBuilder.from_networkx(graph, unit=pgm.Spin()).build()
    return pgm.infer(tube, want=("log_z",), method=pgm.Elimination()).log_z[0]


def onsager(k):
    """Return log Z for each spin of the infinite lattice."""
    angle = (np.arange(20_000) + 0.5) * np.pi / 20_000
    q = 2 * math.sinh(2 * k) / math.cosh(2 * k) ** 2
    return math.log(2 * math.cosh(2 * k)) + np.mean(np.log((1 + np.sqrt(1 - (q * np.sin(angle)) ** 2)) / 2)) / 2


sides = (4, 6, 8, 10)
fig, ax = plt.subplots(figsize=(5, 3), layout="tight")
for k in (0.3, 0.4407, 0.6):
    gap = [abs((ribbon(n, 120, k) - ribbon(n, 60, k)) / (60 * n) - onsager(k)) for n in sides]
    ax.semilogy(sides, gap, "o-", label=f"K = {k}")
    assert gap[-1] < gap[0] / 5
ax.set(xlabel="spins around the tube", ylabel="distance to Onsager's log Z for each spin", xticks=sides)
_ = ax.legend()

# %% [markdown]
# At the critical coupling K = 0.4407 the distance falls like a power of the width, elsewhere
# exponentially.
#
# ## Beyond the width
# A torus of 40 x 40 spins is too wide. `explain` says by how much, and which methods are left.

# %%
large = torus(40, 0.4)
pgm.explain(large, want=("log_z",))

# %%
r = pgm.infer(large, want=("log_z",), rng=0)
low, high = r.log_z_interval[0]
print(f"{r.kind} by {type(r.method).__name__}, {r.status.name}: {low:.2f} to {high:.2f}; Kaufman {kaufman(40, 40, 0.4):.2f}")
assert low < kaufman(40, 40, 0.4) < high

# %% [markdown]
# Each answer is an estimate now, with an error and a status. Below the critical temperature, the
# lattice has two phases, all up or all down. Plain chains stay in one of them, which the status
# says; a ladder of temperatures visits both.

# %%
fig, axes = plt.subplots(1, 3, figsize=(7, 2.5), layout="tight")
for ax, k in zip(axes, (0.3, 0.4407, 0.6)):
    model = torus(32, k)
    r = pgm.infer(model, want=("samples",), method=pgm.MCMC(draws=500), rng=1)
    frame = r.samples_frame().iloc[-1]
    ax.imshow([[frame[i, j] for j in range(32)] for i in range(32)], cmap="Blues", vmin=-1, vmax=1)
    ax.set(title=f"K = {k}: {r.status.name}", xticks=[], yticks=[])

# %% [markdown]
# ## What to read next
# - Observe one column of a torus. The width falls, because observed units are no longer in the graph.
# - Raise `pgm.Elimination(max_states=2**30)` where the memory allows it.
# - The page "How far to trust an answer" says what each status promises.
# - Tutorial 5 shows ladders of temperatures on rough landscapes.

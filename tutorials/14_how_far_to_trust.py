# %% [markdown]
# # How far can you trust it?
#
# One model is asked the same two questions by every kind of method: what is log Z, and how probable
# is each state? It is small enough for exact answers, so that we can see who is right. Then it grows
# until nobody knows, and what the methods say of themselves is all that there is.

# %%
import matplotlib.pyplot as plt
import numpy as np

import pgmengine as pgm

# %% [markdown]
# ## A spin glass
# Each spin of a lattice has a small field of its own, and couplings of either sign to its
# neighbours. No state satisfies all of them.


# %%
def glass(side, strength=0.7, seed=0):
    """Return a lattice of spins with random couplings and fields."""
    rng = np.random.default_rng(seed)
    b = pgm.GraphBuilder()
    s = b.layer("s", pgm.Spin(), (side, side), bias=rng.normal(0, 0.2, (side, side)))
    b.couple(s[1:], s[:-1], strength * rng.normal(size=(side - 1, side)))
    b.couple(s[:, 1:], s[:, :-1], strength * rng.normal(size=(side, side - 1)))
    return b.build()


small = glass(12)
want = ("marginals", "log_z")
exact = pgm.infer(small, want=want)
print(exact.kind, exact.method, np.round(exact.log_z, 4))

# %% [markdown]
# ## What each method says
# `kind` is the guarantee. **Bounds** are proven: the truth is between them, whatever happens. An
# **estimate** has an error, and a status that says if a diagnostic has found a fault. A **lower
# bound** is proven on one side. An **approximation** promises nothing: belief propagation is exact
# on trees, and this graph has many loops.

# %%
methods = {
    "MiniBucket": pgm.MiniBucket(max_states=2**8, seconds=5),
    "ParallelTempering": pgm.ParallelTempering(),
    "BeliefPropagation": pgm.BeliefPropagation(),
    "MeanField": pgm.MeanField(restarts=4),
}
found = {name: pgm.infer(small, want=want, method=method, rng=0) for name, method in methods.items()}
found["AIS"] = pgm.infer(small, want=("log_z",), method=pgm.AIS(), rng=0)
for name, r in found.items():
    low, high = r.log_z_interval[0] if "log_z_interval" in r.answers else (np.nan, np.nan)
    print(f"{name:18} {r.kind:13} log Z {r.log_z[0]:8.3f} in [{low:8.3f}, {high:8.3f}]  {r.status.name}")
print(f"{'truth':18} {'':13} log Z {exact.log_z[0]:8.3f}")

# %% [markdown]
# The same for the probabilities: the error of each spin's mean, and what was said of it.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
for i, (name, r) in enumerate(found.items()):
    centre = r.log_z[0] - exact.log_z[0]
    low, high = (r.log_z_interval[0] if "log_z_interval" in r.answers else (r.log_z[0],) * 2) - exact.log_z[0]
    left.plot([low, min(high, 16)], [i, i], lw=6, alpha=0.35, color=f"C{i}")
    left.plot(centre, i, "o", color=f"C{i}")
left.axvline(0, color="black", lw=1)
left.set_yticks(range(len(found)), [f"{name}\n{r.kind}" for name, r in found.items()])
left.set(xlabel="log Z less the truth, in nats", xlim=(-16, 16))
for i, (name, r) in enumerate(found.items()):
    if "mean" in r.answers:
        error = np.sort(np.abs(r.mean["s"] - exact.mean["s"]).ravel())[::-1]
        right.semilogy(error + 1e-6, color=f"C{i}", label=name)
right.set(xlabel="spins, by their error", ylabel="error of the mean")
right.legend(frameon=False)
plt.show()

# %% [markdown]
# Bounds are wide and never wrong. Tempering is close, and its error says how close. Mean field and
# belief propagation are quick; how far they are off, only the others can tell.
#
# ## Do the statements hold?
# Count it: in how many cases is the truth inside of what was said?

# %%
r = found["MiniBucket"]
p = exact.prob["s"]
low, high = np.moveaxis(r.prob_interval["s"], -1, 0)
assert (low <= p + 1e-12).all() and (p <= high + 1e-12).all()
r = found["ParallelTempering"]
gap = np.abs(r.mean["s"] - exact.mean["s"]).ravel()
errors = np.reshape(r.stats["mcse"]["s"], gap.shape)
print(f"bounds: {(low <= p).mean():.0%} of the states inside")
print(f"tempering: {(gap < 1.96 * errors).mean():.0%} of the spins within 1.96 standard errors")

# %% [markdown]
# ## Larger than anybody can sum
# At 40x40 no junction tree fits. A refusal ends with the calls that would answer.

# %%
large = glass(40, strength=0.5)
try:
    pgm.infer(large, want=("log_z",), method=pgm.Exact())
except pgm.PgmError as error:
    print(str(error)[:160], "...", *str(error).splitlines()[1:], sep="\n")

# %% [markdown]
# The default method chooses one of them. Proven bounds beside it are a check that needs no trust: an
# estimate outside of them is wrong.

# %%
estimate = pgm.infer(large, want=("log_z",), rng=0)
bounds = pgm.infer(large, want=("log_z",), method=pgm.MiniBucket(seconds=10))
low, high = bounds.log_z_interval[0]
print(estimate)
print(f"proven: {low:.1f} <= log Z <= {high:.1f}")
assert low <= estimate.log_z[0] <= high

# %% [markdown]
# ## Ask for a precision
# `tolerance=` goes on in rounds of twice the draws until the error is small enough, or says that the
# time was over.

# %%
precise = pgm.infer(small, method=pgm.ParallelTempering(), tolerance=0.02, seconds=20, rng=0)
worst = np.abs(precise.mean["s"] - exact.mean["s"]).max()
print(precise.status.name, precise.method, f"largest error {worst:.3f}", *precise.warnings[:1], sep="\n")

# %% [markdown]
# ## What to remember
# - Read `kind` first, then `status`, then the error.
# - A good status means that no diagnostic has found a fault. It is no proof.
# - `MiniBucket` proves; compare estimates with it where something depends on them.
# - An approximation is a place to start from. Belief propagation is exact on trees, and says so.
#
# [How far to trust an answer](../trust.md) lists what each status promises, and how that was measured.

# %% [markdown]
# # Rough landscapes: tempering
#
# A distribution with several narrow peaks is hard to sample: a chain finds one mode and stays
# there. At a higher temperature it can leave. This tutorial shows chains that fail, the diagnostics
# that find the fault, and the remedies. At the end we train a model on such data
# (Salakhutdinov 2010).

# %%
import matplotlib.pyplot as plt
import numpy as np

import pgmengine as pgm

# %% [markdown]
# ## A memory of three letters
# The model has 25 spins, one for each pixel. The coupling projects on three pictures. Each picture
# is therefore a mode, and so is its negative. A small field in favour of M makes the modes unequal.

# %%
font = """
####.  .####  #...#
#...#  #....  ##.##
####.  #..##  #.#.#
#....  #...#  #...#
#....  .####  #...#
"""
lines = [line.split() for line in font.strip().splitlines()]
letters = np.array([[1.0 if pixel == "#" else -1.0 for line in lines for pixel in line[k]] for k in range(3)])
weight = 3 * letters.T @ np.linalg.inv(letters @ letters.T) @ letters
weight = (weight + weight.T) / 2  # symmetric to the last bit
np.fill_diagonal(weight, 0)
memory = pgm.boltzmann_machine(25, weight=weight).with_params({"x.bias": 0.03 * letters[2]})


def overlaps(result):
    """Of the mean picture with P, G and M: 1 would be the letter itself, -1 its negative."""
    return np.round(result.mean["x"] @ letters.T / 25, 2)


exact = pgm.infer(memory, want=("marginals", "log_z"))  # 2^24 states can just be summed: the truth to compare with
print("exact overlaps with P, G, M:", overlaps(exact))

# %% [markdown]
# ## Chains that stay where they are
# Four Gibbs chains start from different states. Each stays in one mode. The modes are about equally
# deep, so the energies agree. Only the units of different chains disagree. R-hat detects this, and
# the result reports it without being asked.

# %%
stuck = pgm.infer(memory, want=("marginals", "samples"), method=pgm.MCMC(), rng=0)
print("mean energy of each chain:", np.round(stuck.stats["energy"][:, :, 0].mean(axis=1), 1))
print("overlaps:", overlaps(stuck), stuck.status.value, *stuck.warnings, sep="\n  ")
assert stuck.status is pgm.Status.NOT_MIXED and stuck.stats["energy_rhat"][0] < 1.05 < stuck.stats["rhat"]["x"].max()

# %% [markdown]
# ## A ladder of temperatures
# At inverse temperature beta, the density is raised to the power beta. At 0 it is flat, and at 1 it
# is the density of the model. `ParallelTempering` runs chains at several values of beta, adapts the
# ladder, and lets neighbouring chains exchange their states.

# %%
tempered = pgm.infer(memory, want=("marginals", "samples", "log_z"), method=pgm.ParallelTempering(), rng=0)
print("overlaps:", overlaps(tempered), tempered.status.value, sep="\n  ")
print("  round trips:", tempered.stats["round_trips"], "swaps rejected:", np.round(tempered.stats["swap_rejection"], 2))
assert tempered.status.good and np.abs(overlaps(tempered) - overlaps(exact)).max() < 0.1
fig, axes = plt.subplots(1, 2, figsize=(11, 2.2), layout="tight")
for ax, result, title in zip(axes, (stuck, tempered), ("Gibbs", "parallel tempering"), strict=True):
    pgm.plots.samples(result, "x", (5, 5), times=12, ax=ax)
    ax.set_title(f"{title}: one line a chain, time to the right")

# %% [markdown]
# ## One chain that wanders
# In `SimulatedTempering`, each chain changes its own temperature. It has to learn a weight for each
# level; otherwise it would stay at one end. While it adapts (shaded), the level that it occupies
# becomes less attractive (Wang and Landau). Only later states at beta = 1 are draws. The plot shows
# a part of the path of one chain.

# %%
wandering = pgm.infer(memory, want=("marginals", "log_z"), method=pgm.SimulatedTempering(draws=60_000), rng=0)
print("overlaps:", overlaps(wandering), wandering.status.value, sep="\n  ")
print("  share of time at each level:", np.round(wandering.stats["occupancy"][0], 2))
assert wandering.status.good and wandering.stats["adaptive"].sum() == 2000
_ = pgm.plots.levels(wandering, ax=plt.subplots(figsize=(9, 2.5), layout="tight")[1]).set_xlim(1500, 3000)

# %% [markdown]
# ## The choice of Auto
# If we forbid long sums, `Auto` samples, detects that the chains did not mix, and continues with
# tempering. The result keeps the refused methods and the reasons.

# %%
r = pgm.infer(memory, method=pgm.Auto(max_work=1e9), rng=0)
print(*r.refused, f"-> {r.plan}", sep="\n")
assert isinstance(r.method, pgm.ParallelTempering)

# %% [markdown]
# ## The normaliser
# Annealing estimates log Z: up from beta = 0 gives a lower end, and down from beta = 1 an upper
# end. The ladders estimate log Z, too.

# %%
annealed = pgm.infer(memory, want=("log_z",), method=pgm.AIS(), rng=0)
for name, r in (("exact", exact), ("annealed", annealed), ("parallel", tempered), ("simulated", wandering)):
    low, high = r.log_z_interval[0]
    print(f"log Z, {name}: {r.log_z[0]:.3f}, between {low:.3f} and {high:.3f}")
    assert low <= exact.log_z[0] <= high

# %% [markdown]
# ## Learning on rough ground
# Learning needs draws from a model that becomes rougher as it learns. The data are four pictures,
# with one pixel in 100 flipped. PCD and CAST train the same deep model from the same start, six
# times each, with the same number of updates and sweeps. CAST has a tempered chain beside each of
# its chains, so PCD gets two sweeps. With 16-8-4 units the likelihood is exact.

# %%
data = {"v": pgm.datasets.artificial_modes(0.01, samples=200).x_train}
start = pgm.base_rate_start(pgm.dbm([16, 8, 4], rng=0), data)
share = np.unique(data["v"], axis=0, return_counts=True)[1] / len(data["v"])
best = share @ np.log(share)  # of a model that says of each picture how often it is in the data
negatives = {"PCD": pgm.PCD(k=2, chains=50), "CAST, beta from 0.9": pgm.CAST(chains=50),
             "CAST, beta from 0.3": pgm.CAST(chains=50, betas=np.linspace(0.3, 1, 8).tolist(), swap_every=2)}
ax, late, last = plt.subplots(figsize=(8, 4), layout="tight")[1], {}, {}
for name, negative in negatives.items():
    fits = pgm.fit(start, data, negative=negative, positive=pgm.MeanField(updates=5), optimizer=pgm.SGD(0.05),
                   updates=3000, callbacks=[pgm.ExactLogLikelihood(data, every=100)], repeats=6, rng=0,
                   progress=False)
    pgm.plots.history(fits, "log_likelihood", ax=ax, label=name)
    values = np.array([fit.history["log_likelihood"]["value"][5:] for fit in fits])
    late[name], last[name] = values.mean(axis=1), fits[-1]
    error = late[name].std(ddof=1) / len(fits) ** 0.5
    print(f"{name}: {late[name].mean():.2f} nats from update 500 on, standard error of the six fits {error:.2f}")
print(f"the best possible: {best:.2f}")
ax.axhline(best, color="gray", ls=":", label="the best possible")
ax.set(ylim=(-18, -1), ylabel="log-likelihood, nats")
ax.legend(loc="lower right", ncols=2)
assert late["CAST, beta from 0.3"].mean() > late["CAST, beta from 0.9"].mean()

# %% [markdown]
# PCD learns, then forgets again and again. To see the reason, compare the shares of the four
# pictures in its chains with the shares in exact draws from the model.

# %%
pictures = np.repeat([[0, 0], [1, 1], [0, 1], [1, 0]], 8, axis=1)
states = {"PCD, its chains": last["PCD"].state["negative/v"]}
for name in ("PCD", "CAST, beta from 0.3"):
    states[f"{name}, the model"] = pgm.infer(last[name].model, want=("samples",), rng=0).samples["v"][:, 0]
for name, x in states.items():
    nearest = pgm.diagnostics.nearest_modes(x, pictures)
    print(f"{name}: {[round(float(np.mean(nearest == k)), 2) for k in range(4)]}")

# %% [markdown]
# The chains of PCD cannot cross from picture to picture. They show four equal modes while the model
# drifts into one of them. CAST with a long ladder crosses, and loses less: over 24 fits of each
# (`repeats=24`), it is ahead of PCD by 0.66 nats, with a standard error of 0.12. Both are far from
# the best at a rate that never falls. The ladder from 0.9, which Salakhutdinov (2010) used for
# MNIST, does harm here: at beta = 0.9 these modes are nearly as deep as at 1, so that its sweeps
# are of no use.
#
# ## What to try next
# - Use letters of your own, or five of them. When does the memory confuse them?
# - Use `pgm.ParallelTempering(rungs=4)` and read the rejections. Then use `kernel=pgm.FlipState()`
#   in any of the methods.
# - Use `negative=pgm.PT(10)` or `pgm.AdaptiveSAP()` for the last model, or a smaller rate.
# - Use `pgm.datasets.digits()` in place of the four pictures. The three trainers then learn alike.

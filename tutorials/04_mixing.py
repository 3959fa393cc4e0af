# %% [markdown]
# # Mixing: Gibbs or flip the state?
#
# A good sampler forgets quickly where it began. This tutorial measures how quickly Gibbs sampling
# forgets, and compares it with another transition. Flip-the-state (Brügge, Fischer and
# Igel 2013) flips a unit whenever the new state is at least as probable.

# %%
import matplotlib.pyplot as plt
import numpy as np

import pgmengine as pgm
from pgmengine import diagnostics

kernels = {"Gibbs": pgm.Gibbs(), "flip-the-state": pgm.FlipState()}

# %% [markdown]
# ## Exact results for small models
# The transition matrix of a sweep over all joint states is computed from the probabilities of the
# kernel, without simulation. The second-largest modulus of its eigenvalues (SLEM) says how quickly
# the slowest pattern is forgotten.

# %%
rng, shares = np.random.default_rng(0), {}
for c in (1, 3, 6):
    faster = 0
    for _ in range(20):
        model = pgm.rbm(2, 2, rng=0).with_params({"v-h.weight": rng.uniform(-c, c, (2, 2))})
        g, t = (diagnostics.slem(diagnostics.transition_matrix(model.given(), k)) for k in kernels.values())
        faster += t < g
    shares[c] = faster / 20
    print(f"weights up to {c}: flip-the-state has the smaller SLEM in {100 * shares[c]:.0f} % of 20 models")
assert shares[1] <= shares[6]  # it pays when weights are large

# %% [markdown]
# ## Long runs for a trained model
# The autocorrelation time of the energy is the number of sweeps after which a draw is as good as a
# new one.

# %%
digits = pgm.datasets.digits()
model = pgm.fit(pgm.base_rate_start(pgm.rbm(64, 30, rng=0), {"v": digits.x_train}), {"v": digits.x_train},
                optimizer=pgm.Adam(0.01), batch_size=50, epochs=60, rng=0, progress=False).model
fig, ax = plt.subplots(figsize=(6, 3.5), layout="tight")
times = {}
for name, kernel in kernels.items():
    r = pgm.infer(model, want=("samples",), method=pgm.MCMC(kernel=kernel, chains=4, warmup=500, draws=5000), rng=0)
    pgm.plots.autocorrelation(r, lags=60, ax=ax, label=name)
    times[name] = np.mean([diagnostics.autocorrelation_time(chain) for chain in r.stats["energy"][:, :, 0]])
    ess = r.stats["energy_ess"][0]
    print(f"{name}: autocorrelation time {times[name]:.1f} sweeps; effective draws {ess:.0f} of 20,000")
_ = ax.legend()

# %% [markdown]
# ## The paths of the chains
# Each line of pictures is one chain, with time to the right. Do the chains change from one digit to
# another?

# %%
fig, axes = plt.subplots(1, 2, figsize=(11, 2.6), layout="tight")
for axis, (name, kernel) in zip(axes, kernels.items(), strict=True):
    r = pgm.infer(model, want=("samples",), method=pgm.MCMC(kernel=kernel, chains=4, warmup=100, draws=600), rng=1)
    pgm.plots.samples(r, "v", (8, 8), times=12, ax=axis)
    axis.set_title(name)

# %% [markdown]
# ## What to try next
# - `pgm.Blend(0.5)` mixes the two kernels. `kernel=pgm.GrowingBlend(begin, end)` is a schedule for
#   learning.
# - Multiply the weights by two. Which kernel suffers more? Then compare
#   `pgm.ParallelTempering(kernel=...)`.
# - `diagnostics.class_changes` counts the changes of the nearest mode.

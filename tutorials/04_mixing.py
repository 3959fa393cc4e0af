# %% [markdown]
# # Mixing: Gibbs or flip the state?
#
# A sampler is only as good as it forgets where it began. How fast does it, and can a different transition do better?
# Flip-the-state (system 2: Bruegge, Fischer and Igel 2013) flips a unit whenever that is not less probable.

# %%
import matplotlib.pyplot as plt
import numpy as np

import pgmengine as pgm
from pgmengine import diagnostics

kernels = {"Gibbs": pgm.Gibbs(), "flip-the-state": pgm.FlipState()}

# %% [markdown]
# ## Exactly, for small machines
# The transition matrix of a sweep over all joint states is built from the kernel's own probabilities, not by simulation.
# The second largest modulus of its eigenvalues (SLEM) says how fast the slowest pattern is forgotten.

# %%
rng, shares = np.random.default_rng(0), {}
for c in (1, 3, 6):
    faster = 0
    for _ in range(20):
        model = pgm.rbm(2, 2, rng=0).with_params({"v-h.weight": rng.uniform(-c, c, (2, 2))})
        g, t = (diagnostics.slem(diagnostics.transition_matrix(model.given(), k)) for k in kernels.values())
        faster += t < g
    shares[c] = faster / 20
    print(f"weights up to {c}: flip-the-state has the smaller SLEM in {100 * shares[c]:.0f} % of 20 machines")
assert shares[1] <= shares[6]  # it pays when weights are large

# %% [markdown]
# ## In long runs, for a machine that learned something
# Autocorrelation of the energy: the time after which draws are as good as new.

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
# ## Where does it go?
# Chains of both samplers, one line each, time to the right: do they change from one digit to another?

# %%
fig, axes = plt.subplots(1, 2, figsize=(11, 2.6), layout="tight")
for axis, (name, kernel) in zip(axes, kernels.items(), strict=True):
    r = pgm.infer(model, want=("samples",), method=pgm.MCMC(kernel=kernel, chains=4, warmup=100, draws=600), rng=1)
    pgm.plots.samples(r, "v", (8, 8), times=12, ax=axis)
    axis.set_title(name)

# %% [markdown]
# ## What to try next
# - `pgm.Blend(0.5)` mixes the two; as `kernel=pgm.GrowingBlend(begin, end)` it is a schedule for learning.
# - Multiply the weights by two: which kernel suffers more? Then compare `pgm.ParallelTempering(kernel=...)`.
# - `diagnostics.class_changes` counts changes of the nearest mode.

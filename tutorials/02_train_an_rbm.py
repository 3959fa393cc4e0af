# %% [markdown]
# # Train a restricted Boltzmann machine
#
# We train a restricted Boltzmann machine on 8x8 images of digits, and measure its likelihood
# exactly. Then we ask it about pixels that it cannot see.

# %%
import matplotlib.pyplot as plt
import numpy as np

import pgmengine as pgm

digits = pgm.datasets.digits()
x, new = digits.x_train, digits.x_test
print(digits)

# %% [markdown]
# ## Declare, then learn
# The model has 64 pixels and 16 hidden units. With 16 hidden units, log Z is a sum over 2^16
# states, and every number below is exact. The biases start at the base rates of the data, so that
# no updates are spent on finding them.

# %%
start = pgm.base_rate_start(pgm.rbm(64, 16, rng=0), {"v": x})
seen = pgm.ExactLogLikelihood({"v": x}, every=100, name="train")
unseen = pgm.ExactLogLikelihood({"v": new}, every=100, name="test")
fitted = pgm.fit(start, {"v": x}, epochs=200, callbacks=[seen, unseen], rng=0, progress=False)
model = fitted.model
for name in ("train", "test"):
    values = fitted.history[name]["value"]
    print(f"{name}: {values[0]:.2f} nats an image at first, {values[-1]:.2f} now")
assert fitted.history["test"]["value"][-1] > fitted.history["test"]["value"][0] + 3

# %%
fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.5), layout="tight")
for name in ("train", "test"):
    pgm.plots.history(fitted, name, ax=left)
left.set(ylabel="log-likelihood, nats")
left.legend()
_ = pgm.plots.receptive_fields(model, "v-h", (8, 8), columns=8, ax=right)

# %% [markdown]
# ## Likelihoods you can trust
# A larger model cannot be enumerated. Annealed importance sampling then estimates log Z from both
# sides: annealing up is low on average, and annealing down from exact draws is high. Here the exact
# value is known, so we can check that the interval contains it.

# %%
exact = pgm.infer(model, want=("log_z",))
annealed = pgm.infer(model, want=("log_z",), method=pgm.AIS(chains=100, betas=1000), rng=0)
low, high = annealed.log_z_interval[0]
print(f"log Z: exact {exact.log_z[0]:.3f}, annealed {annealed.log_z[0]:.3f}, between {low:.3f} and {high:.3f}")
assert low <= exact.log_z[0] <= high

# %% [markdown]
# ## Missing pixels
# NaN marks a pixel that is not observed. The pattern may differ from row to row. The posterior
# means complete the image. `log_prob` is the log probability of the observed pixels, with the
# missing ones summed out.

# %%
rng = np.random.default_rng(0)
holes = np.where(rng.random((10, 64)) < 0.3, np.nan, new[:10])
r = pgm.infer(model, {"v": holes}, want=("marginals", "log_prob"))
print(r.kind, r.plan)
pgm.plots.completions(r, "v", (8, 8))
lower = np.where(np.arange(64) < 32, new, np.nan)
hidden = np.isnan(lower)
half = pgm.infer(model, {"v": lower}).mean["v"]
guess, base = (np.square(mean - new)[hidden].mean() for mean in (half, x.mean(axis=0)))
print(f"mean square error of the lower halves: {guess:.3f}; of the average image: {base:.3f}")
assert guess < base

# %% [markdown]
# ## Learning with missing pixels
# Training data may contain NaN, too. Missing pixels are then summed out, or averaged over. Here `fit`
# says that more updates would still pay.

# %%
some = np.where(rng.random(x.shape) < 0.2, np.nan, x)
again = pgm.fit(start, {"v": some}, epochs=200, rng=0, progress=False)
score = pgm.infer(again.model, {"v": new}, want=("log_prob",)).log_prob.mean()
print(f"learned with a fifth of the pixels missing: {score:.2f} nats an image")
assert score > fitted.history["test"]["value"][0]

# %% [markdown]
# ## What to try next
# - Replace the trainer, which is `pgm.PCD` by default, by `negative=pgm.CD(1)` or
#   `pgm.CAST(chains=50)`, and add `kernel=pgm.FlipState()` to any of them.
# - Use 200 hidden units. What does `pgm.explain(model, want=("log_prob",))` say now?
# - Take `optimizer=pgm.Adam(0.01)`, whose steps stay as large as they are. Where does the test
#   likelihood end, and where was it best? Then add `pgm.EarlyStopping` on it.

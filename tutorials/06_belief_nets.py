# %% [markdown]
# # Belief nets and bounds
#
# Which digit is it when half of the image is covered? A belief net for each digit can answer, if we
# can compute the probability of the visible half. With many hidden units that sum has too many
# terms, but it has a lower bound that can be computed (Saul, Jaakkola and Jordan 1996).

# %%
import time
from functools import partial

import matplotlib.pyplot as plt
import numpy as np

import pgmengine as pgm

# %% [markdown]
# ## How good is the bound?
# Small networks, with two units above four above six, can be enumerated. Their leaves are all 0,
# and their weights are random.

# %%
rng, gaps = np.random.default_rng(0), []
net, leaves = pgm.sbn([6, 4, 2], rng=0), {"v": np.zeros(6)}
for _ in range(100):
    net = net.with_params({name: rng.uniform(-1, 1, value.shape) for name, value in net.params.items()})
    bound = pgm.infer(net, leaves, want=("log_prob",), method=pgm.MeanField()).log_prob[0]
    exact = pgm.infer(net, leaves, want=("log_prob",)).log_prob[0]
    gaps.append(bound / exact - 1)
print(f"the bound is {100 * np.mean(gaps):.2f} % below log p on average, {100 * np.max(gaps):.2f} % at most")
assert min(gaps) > 0 and np.mean(gaps) < 0.03

# %% [markdown]
# ## One network for each digit
# `fit` maximises the bound. A directed model is normalised, so it has no model phase.
# `GenerativeClassifier` learns one model from the images of each class, and compares the
# probabilities that the models give to a new image.

# %%
digits = pgm.datasets.digits()
begin = time.time()
learn = partial(pgm.fit, positive=pgm.MeanField(updates=20, tolerance=1e-3), optimizer=pgm.Adam(0.02), batch_size=20,
                epochs=15, progress=False)
classifier = pgm.GenerativeClassifier(pgm.sbn([64, 16, 6], rng=0), learn, pgm.MeanField(tolerance=1e-5))
classifier.fit(digits.x_train, digits.y_train)
share = classifier.score(digits.x_test, digits.y_test)
print(f"ten networks 6x16x64 learned in {time.time() - begin:.0f} s; right on {100 * share:.1f} % of the test images")
assert share > 0.85

# %% [markdown]
# ## Half a digit
# Missing pixels are NaN, and nothing else changes. Pixels that are not observed are summed out
# exactly before the bound is computed.

# %%
hidden = np.zeros((8, 8), dtype=bool)
hidden[:, 4:] = True
covered = np.where(hidden.ravel(), np.nan, digits.x_test)
half = classifier.score(covered, digits.y_test)
print(f"with the right half covered: {100 * half:.1f} %")

# %% [markdown]
# The network that gives the half the highest probability also completes it, by the means of the
# missing pixels under Q.

# %%
chosen = [int(np.flatnonzero(digits.y_test == c)[0]) for c in range(10)]
labels = classifier.predict(covered[chosen])
fig, axes = plt.subplots(3, 10, figsize=(10, 3.2))
for i, (row, label) in enumerate(zip(chosen, labels, strict=True)):
    mean = pgm.infer(classifier.models_[int(label)], {"v": covered[row]}, method=pgm.MeanField()).mean["v"]
    images = np.where(hidden.ravel(), 0.5, digits.x_test[row]), mean, digits.x_test[row]
    for axis, image, title in zip(axes[:, i], images, (f"as {label}", "", ""), strict=True):
        axis.imshow(image.reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
        axis.set_title(title, fontsize=8)
        axis.set_axis_off()
_ = fig.suptitle("covered, completed, true")

# %% [markdown]
# ## Comparing methods
# The same question can be put to other methods: enumeration while the network is small, and draws
# that are weighted by the evidence. `explain` shows the choice of `Auto` and its reasons. The bound
# has to be requested by name, or by `want=("bound",)`.

# %%
small = pgm.sbn([12, 6, 3], rng=1)
seen = {"v": np.array([1, 0, 1] + [np.nan] * 9)}
for method in (pgm.Exact(), pgm.Forward(20_000), pgm.MeanField()):
    r = pgm.infer(small, seen, want=("log_prob", "marginals"), method=method, rng=0)
    print(f"{type(method).__name__:10s} {r.kind:12s} log p = {r.log_prob[0]:.4f}   E[h1] = {np.round(r.mean['h1'], 3)}")
print(pgm.explain(pgm.sbn([64, 24, 8], rng=0), {"v": digits.x_test[0]}, want=("bound",)))

# %% [markdown]
# ## What to try next
# - Use `pgm.MeanField(restarts=5)`. Does any row have a better fixed point?
# - Use `pgm.MeanField(xi=0)`. How many nats does the cheaper bound lose?
# - Use Spin, MultiValued or Categorical units in place of Binary units, in any layer. Nothing else
#   changes.
# - Use `do={"h1": ...}` to set causes, and see which images the network draws.

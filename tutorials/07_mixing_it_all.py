# %% [markdown]
# # Mixing it all
#
# This tutorial puts many ingredients into one model: four types of units, arrows, couplings between
# layers, and couplings inside a layer. We ask it under every kind of evidence at once, by several
# methods. No line below names the family of the model, because there is none.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import pgmengine as pgm

# %% [markdown]
# ## Declare
# The top of the model is a Boltzmann machine of spins, which are coupled with one another and with
# the label of a digit. From there, arrows lead down to units of three values, and from these to the
# pixels.

# %%
b = pgm.GraphBuilder()
b.layer("pixels", pgm.Binary(), 64)
b.layer("parts", pgm.MultiValued(2), 4)  # -1, 0 or 1
b.layer("top", pgm.Spin(), 4)
b.layer("label", pgm.Categorical(4), 1, labels=["digit"])
b.couple("top", "label")
b.couple("top", "top")
b.cause("top", "parts")
b.cause("parts", "pixels")
model = b.build(rng=0)
_ = pgm.plots.graph(model, ax=plt.subplots(figsize=(5, 3), layout="tight")[1])

# %% [markdown]
# ## Learn
# The model learns from the digits 0 to 3 with their labels. `parts` and `top` are hidden. The
# gradient is the difference of two expectations, and both are small enough to be exact: there are
# 1,296 hidden states.

# %%
digits = pgm.datasets.digits()
x, y = digits.x_train[digits.y_train < 4], digits.y_train[digits.y_train < 4]
new, truth = digits.x_test[digits.y_test < 4], digits.y_test[digits.y_test < 4]
data = {"pixels": x, "label": y}
model = pgm.fit(pgm.base_rate_start(model, data), data, positive=pgm.Exact(), negative=pgm.ExactGradient(),
                optimizer=pgm.Adam(0.05), batch_size=50, epochs=15, rng=0, progress=False).model
r = pgm.infer(model, {"pixels": new})
right = np.mean(r.prob["label"][:, 0].argmax(axis=1) == truth)
print(f"{r.plan}\nthe most probable label is right for {100 * right:.1f} % of {len(new)} new images")
assert right > 0.9

# %% [markdown]
# ## Ask
# The four rows have different patterns of evidence, in three layers:
#
# 0. the upper half of an image;
# 1. every third pixel of another image;
# 2. the label is 2 and one of the hidden `parts` is 1, but no pixel is observed;
# 3. nothing is observed. There are hints: a log weight of 2 for the label 1, and log-odds of 1 for
#    dark pixels in the lowest line.

# %%
pixels, parts, labels = np.full((4, 64), np.nan), np.full((4, 4), np.nan), np.full((4, 1), np.nan)
pixels[0, :32], pixels[1, ::3] = new[0, :32], new[1, ::3]
labels[2], parts[2, 0] = 2, 1
seen = {"pixels": pixels, "parts": parts, "label": labels}
hints = {"label": np.zeros((4, 1, 4)), "pixels": np.zeros((4, 64))}
hints["label"][3, 0, 1], hints["pixels"][3, 56:] = 2, 1
exact = pgm.infer(model, seen, soft=hints, want=("marginals", "log_z"))
print("the images are of", truth[:2], exact.to_frame()[["label", "parts"]].round(2), sep="\n")
ax = pgm.plots.completions(exact, "pixels", (8, 8), ax=plt.subplots(figsize=(5, 2.7), layout="tight")[1])
_ = ax.set_title("evidence (blue: not seen) and what completes it", fontsize=10)

# %% [markdown]
# ## Ask another way
# For a method, all of this is one log density. Any method can therefore be asked, and `explain`
# says which one `Auto` would choose.

# %%
print(pgm.explain(model, seen, soft=hints))
methods = {"Exact": pgm.Exact(), "Gibbs": pgm.MCMC(), "flip the state": pgm.MCMC(kernel=pgm.FlipState()),
           "tempered": pgm.ParallelTempering(kernel=pgm.FlipState()), "mean field": pgm.MeanField()}
table = {}
for name, method in methods.items():
    r = pgm.infer(model, seen, soft=hints, method=method, rng=0)
    off = np.abs(r.prob["label"] - exact.prob["label"]).max(axis=(1, 2))
    table[name] = {"kind": r.kind, "status": r.status.name} | {f"row {i}": round(e, 3) for i, e in enumerate(off)}
    if name == "tempered":
        assert np.all(off <= 5 * r.stats["mcse"]["label"].reshape(4, -1).max(axis=1) + 1e-3)  # five standard errors
table = pd.DataFrame(table).T
print("\nlargest error of a label's probability:", table, sep="\n")
assert table.loc["tempered", "status"] == "OK"
assert table.loc["Gibbs", "status"] == "NOT_MIXED" and table.loc["mean field", "row 3"] > 0.2

# %% [markdown]
# Where the evidence leaves one answer, as in row 2, all methods agree. Row 3 leaves several open.
# Chains of either kernel go too rarely from one answer to another, and their status says so. Tempered
# chains do travel. Mean field chooses one answer, which can be the wrong one: its status judges the
# bound of log Z, which holds, and not its probabilities. The bound lacks the other answers:

# %%
for method in (pgm.Exact(), pgm.AIS(chains=50, betas=200), pgm.MeanField()):
    r = pgm.infer(model, seen, soft=hints, want=("log_z",), method=method, rng=0)
    low, high = r.log_z_interval.T
    print(f"{type(method).__name__:9s} ({r.kind}): log Z of row 0 in {low[0]:.2f} .. {high[0]:.2f}, of row 3 in "
          f"{low[3]:.2f} .. {high[3]:.2f}")
    assert np.all(low <= exact.log_z + 1e-9) and np.all(exact.log_z <= high + 1e-9)

# %% [markdown]
# ## Seeing is not doing
# If we see the value of a part, we learn about its causes, and so about the label. If we set it
# with `do`, we learn nothing about them: the arrows into it are cut, and only the pixels follow.
# Everything here is exact.

# %%
value = np.full((3, 4), np.nan)
value[:, 0] = -1, 0, 1
see, do = pgm.infer(model, {"parts": value}), pgm.infer(model, do={"parts": value})
prior, given = pgm.infer(model).prob["label"], pgm.infer(model, {"label": np.arange(4)}).prob["parts"][:, 0]
for verb, r in (("see", see), ("do", do)):
    print(f"chances of the labels when we {verb} -1, 0, 1 ({r.kind}):", r.prob["label"][:, 0].round(2), sep="\n")
joint = prior[0][:, None] * given
assert np.allclose(see.prob["label"][:, 0], (joint / joint.sum(axis=0)).T)  # what we saw obeys Bayes' rule
assert np.allclose(do.prob["label"][:, 0], prior)  # what we did tells nothing
weight = model.params["top->parts.weight"] * [0, 1, 1, 1]
cut = pgm.infer(model.with_params({"top->parts.weight": weight}), {"parts": value})
assert np.allclose(cut.mean["pixels"], do.mean["pixels"])  # doing is seeing in the model without those arrows
ax = pgm.plots.images(np.concatenate((see.mean["pixels"], do.mean["pixels"])), (8, 8), columns=3,
                      ax=plt.subplots(figsize=(5, 3.2), layout="tight")[1])
_ = ax.set_title("part 0 is -1, 0, 1: seen above, done below", fontsize=10)

# %% [markdown]
# ## All at once
# Half of an image is observed, a part is set, and there is a hint for the label. The draws go to
# ArviZ under the names of the layers.

# %%
question = {"evidence": {"pixels": pixels[:1]}, "do": {"parts": value[:1]}, "soft": {"label": hints["label"][3:]}}
r = pgm.infer(model, **question, want=("samples",), method=pgm.MCMC(kernel=pgm.FlipState()), rng=0)
label = r.to_arviz()["posterior"]["label"]
drawn, summed = label.mean(("chain", "draw")).to_numpy()[0, 0], pgm.infer(model, **question).prob["label"][0, 0]
print(dict(label.sizes), "\nchances of the labels:", drawn.round(3), "by draws,", summed.round(3), "exactly")
assert np.abs(drawn - summed).max() < 0.02

# %% [markdown]
# ## What to try next
# - Use `pgm.MeanField(restarts=20)`. Does it find a better answer for row 3, and can it find all of
#   them?
# - Build another mixture: `pgm.Gaussian()` pixels, a second layer of causes for `parts`, arrows
#   inside a layer.
# - Use 30 parts. What does `explain` say now, and which of the methods agree?
# - Use `b.cause("label", "parts")` in place of `b.couple("top", "label")`. Is seeing a label still
#   different from setting it?

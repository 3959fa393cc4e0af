# %% [markdown]
# # A hidden Markov model in ten lines
#
# A wrist band records how much a sleeper moves. Nobody sees whether the sleeper is awake, in light
# sleep or in deep sleep. This tutorial learns a hidden Markov model from nights of different
# lengths, with gaps, and asks it for the stages of a night, for the most probable course, and for
# what comes next. All answers are exact.

# %%
import pathlib
import tempfile

import matplotlib.pyplot as plt
import numpy as np

import pgmengine as pgm

rng = np.random.default_rng(0)

# %% [markdown]
# ## Declare
# A night has a stage and a movement for each interval of five minutes. `variable(shape=)` declares
# an array of variables, which is indexed like an array of numpy: `stage[1:]` given `stage[:-1]` is
# every stage given the one before it. A name makes a table a parameter that all its places share.
# `Template` stands for nights of any length. With the call of `fit`, which comes below, these are
# the ten lines:

# %%
def night(steps):
    b = pgm.GraphBuilder()
    stage = b.variable("stage", states=("awake", "light", "deep"), shape=steps)
    movement = b.variable("movement", states=("none", "little", "much"), shape=steps)
    b.conditional(stage[0], (), np.full(3, 1 / 3), name="start")
    b.conditional(stage[1:], (stage[:-1],), np.full((3, 3), 1 / 3), name="transition")
    b.conditional(movement, (stage,), np.full((3, 3), 1 / 3), name="emission")
    return b


template = pgm.Template(night)
print(template(96))

# %% [markdown]
# A model of any length has the same three tables, `start`, `transition` and `emission`, with 14
# free numbers in all. They say nothing yet, because they are to be learned.
#
# ## Forty nights
# We make the nights ourselves, so that the truth is known. Each has its own length. A tenth of the
# movements is lost; None is a movement that was not recorded.

# %%
stages, movements = np.array(["awake", "light", "deep"]), np.array(["none", "little", "much"])
start = np.array([0.90, 0.08, 0.02])
transition = np.array([[0.90, 0.09, 0.01], [0.03, 0.90, 0.07], [0.01, 0.07, 0.92]])
emission = np.array([[0.10, 0.30, 0.60], [0.45, 0.45, 0.10], [0.88, 0.10, 0.02]])


def drawn(steps):
    """Return the stages and the movements of a night, as numbers of states."""
    z = [rng.choice(3, p=start)]
    for _ in range(1, steps):
        z.append(rng.choice(3, p=transition[z[-1]]))
    return np.array(z), np.array([rng.choice(3, p=emission[state]) for state in z])


nights = [drawn(int(steps)) for steps in rng.integers(70, 110, 40)]
rows = [{"movement": np.where(rng.random(len(x)) < 0.1, None, movements[x])} for _, x in nights]
lengths = [len(x) for _, x in nights]
print(f"{len(rows)} nights of {min(lengths)} to {max(lengths)} intervals")
print("the first night begins with", rows[0]["movement"][:8].tolist())

# %% [markdown]
# ## Learn
# `fit` takes the list of nights. As every parameter is the table of a conditional, it learns by
# expectation maximisation (EM), which is also called the Baum-Welch algorithm here. Lost movements
# need no special care.

# %%
fitted = pgm.fit(template, rows)
objective = fitted.history["objective"]["value"]
print(f"{len(objective)} iterations: {objective[0]:.2f} to {objective[-1]:.2f} nats a night")
print("stopped:", fitted.stopped)
print(*fitted.notes, sep="\n")
assert (np.diff(objective) >= 0).all()

# %% [markdown]
# With equal tables the three stages look alike, and EM could never tell them apart. Therefore it
# began at the best of twelve random starts, as the notes say. `fitted.model` is a template, and
# `fitted.model.learned` has the learned parameters, which are logarithms of probabilities.
#
# Which learned state is which stage? The data cannot tell, so the states come in any order. We put
# them in the order of the share of much movement, from awake to deep.

# %%
learned = {name: np.exp(value) for name, value in fitted.model.learned.items()}
order = np.argsort(-learned["emission"][:, 2])
learned = {
    "start": learned["start"][order],
    "transition": learned["transition"][order][:, order],
    "emission": learned["emission"][order],
}
known = {"start": start, "transition": transition, "emission": emission}
for name, table in known.items():
    print(name, "- the truth on the left, what was learned on the right")
    for one, two in zip(np.atleast_2d(table), np.atleast_2d(learned[name])):
        print("  ", one.round(2), two.round(2))
assert all(np.abs(learned[name] - known[name]).max() < 0.12 for name in ("transition", "emission"))

# %% [markdown]
# `with_params` makes a template with other parameters: here with the learned ones in our order, and
# one with the truth to compare with.

# %%
def with_tables(tables):
    return template.with_params({name: np.log(table) for name, table in tables.items()})


learned, truth = with_tables(learned), with_tables(known)
fresh = [drawn(90) for _ in range(40)]
unseen = [{"movement": movements[x]} for _, x in fresh]
for what, which in (("equal tables", template), ("learned", learned), ("truth", truth)):
    scores = [r.log_prob[0] for r in pgm.infer(which, unseen, want=("log_prob",))]
    print(f"{what:>12}: {np.mean(scores):.2f} nats for each of 40 new nights")

# %% [markdown]
# On new nights the learned model is as good as the one that made them. The forward algorithm in
# numpy gives the same number for the first of these nights:

# %%
z, x = fresh[0]
alpha, total = start * emission[:, x[0]], 0.0
for symbol in x[1:]:
    total += np.log(alpha.sum())
    alpha = (alpha / alpha.sum()) @ transition * emission[:, symbol]
total += np.log(alpha.sum())
score = pgm.infer(truth, unseen[:1], want=("log_prob",))[0].log_prob[0]
print(f"forward pass {total:.10f}, pgmengine {score:.10f}")
assert abs(total - score) < 1e-9

# %% [markdown]
# ## Smooth, and bridge a gap
# What were the stages of one night, given all its movements? In the night below the band slipped
# off for an hour and a half. The question is the same: what was not observed is None. `infer` takes
# a list of nights, and returns a list of answers. `marginal` has an array for each state, with an
# entry for each interval.

# %%
z, x = fresh[1]
seen = movements[x].astype(object)
seen[40:58] = None
r = pgm.infer(learned, [{"movement": seen}], want=("marginals", pgm.Mode("stage")))[0]
posterior = np.array([r.marginal("stage")[name] for name in stages])
assert r.kind == "exact" and np.allclose(posterior.sum(axis=0), 1)

# %%
colors = ("#e0a458", "#8fb3d9", "#24466b")
fig, ax = plt.subplots(figsize=(7.5, 3.4), layout="tight")
hours = np.arange(90) / 12
ax.stackplot(hours, posterior, colors=colors, labels=stages)
for number, color in enumerate(colors):
    at = hours[z == number]
    ax.scatter(at, np.full(len(at), 1.07), s=12, color=color, marker="s")
ax.axvspan(hours[40], hours[57], color="white", alpha=0.35, ymax=1 / 1.12)
ax.text(hours[40:58].mean(), 0.5, "no movements\nrecorded", ha="center", va="center", fontsize=9)
ax.text(-0.1, 1.07, "truth", ha="right", va="center", fontsize=9)
ax.set(xlabel="hours", ylabel="probability of the stage", xlim=(0, hours[-1]), ylim=(0, 1.12))
ax.set(yticks=np.linspace(0, 1, 5))
_ = ax.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)

# %% [markdown]
# Inside the gap the model falls back to what usually happens, and near its ends to what is seen
# there.
#
# ## The most probable course
# `pgm.Mode("stage")` is the most probable course of all stages together, which the Viterbi algorithm
# finds. Movements that were not recorded are summed out. It is one consistent course of the whole
# night. The marginals answer another question, the best guess for each interval alone, and are right
# slightly more often on average. (`want=("mode",)` would be the most probable course of the stages and
# of the movements in the gap together.)

# %%
path = r.assignment("stage")["stage"]
print("course:", " -> ".join([path[0]] + [b for a, b in zip(path, path[1:]) if a != b]))
answers = pgm.infer(learned, unseen, want=("marginals", "mode"))
by_path, by_marginals, alone = [], [], []
for (z, x), answer in zip(fresh, answers):
    best = np.argmax([answer.marginal("stage")[name] for name in stages], axis=0)
    by_path.append(np.mean(answer.assignment()["stage"] == stages[z]))
    by_marginals.append(np.mean(best == z))
    alone.append(np.mean(emission.argmax(axis=0)[x] == z))
print(f"intervals with the right stage: {np.mean(by_path):.3f} by the course, "
      f"{np.mean(by_marginals):.3f} by marginals, {np.mean(alone):.3f} by each movement alone")
assert np.mean(by_marginals) > np.mean(alone) + 0.05

# %% [markdown]
# ## Forecast
# It is an hour and forty minutes into a night. What comes in the next 20 intervals? A forecast is a
# night that is longer than what was seen: the steps to come are None. A number of steps in place of
# a row is a night of which nothing is seen.

# %%
z, x = fresh[2]
ahead, before = 20, 20
seen = {"movement": [*movements[x[:before]], *[None] * ahead]}
r, blank = pgm.infer(learned, [seen, before + ahead])
stage = np.array([r.marginal("stage")[name] for name in stages])
usual = np.array([blank.marginal("stage")[name] for name in stages])
much = r.marginal("movement")["much"]
print("p(much movement) of the next five intervals:", much[before:before + 5].round(3))
now = stage[:, before - 1]
step = np.exp(learned.learned["transition"])
for k in range(ahead):
    assert np.allclose(now @ np.linalg.matrix_power(step, k + 1), stage[:, before + k])

# %% [markdown]
# The check is the formula for forecasts: the present stage, moved on by powers of the transition
# table.

# %%
fig, ax = plt.subplots(figsize=(7.5, 3), layout="tight")
minutes = 5 * np.arange(before + ahead)
for number, color in enumerate(colors):
    ax.plot(minutes, stage[number], color=color, label=stages[number], lw=2)
    ax.plot(minutes, usual[number], color=color, ls=":", lw=1.2)
ax.axvline(minutes[before] - 2.5, color="0.4", lw=1)
ax.text(minutes[before], 1.01, " forecast", va="bottom", fontsize=9)
ax.plot([], [], color="0.4", ls=":", lw=1.2, label="usual night")
ax.set(xlabel="minutes", ylabel="probability of the stage", xlim=(0, minutes[-1]), ylim=(0, 1))
_ = ax.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)

# %% [markdown]
# ## Keep it
# A file keeps the learned parameters. The declaration is a function of your own, which `load` needs
# again.

# %%
file = pathlib.Path(tempfile.mkdtemp()) / "night.safetensors"
pgm.save(learned, file)
again = pgm.load(file, declare=night)
assert np.array_equal(again.learned["emission"], learned.learned["emission"])

# %% [markdown]
# ## What to read next
# - Give `optimizer=pgm.EM(pseudocount=0.1, starts=20)`: other priors and more starts.
# - Let each stage depend on the two before it:
#   `b.conditional(stage[2:], (stage[:-2], stage[1:-1]), ...)`.
# - The tutorial "A Bayesian network from data" has missing cells and latent variables without time.
# - The sections "Arrays of variables and shared tables" and "Models of any length" of the guide
#   show lattices, plates and all that a template can do.

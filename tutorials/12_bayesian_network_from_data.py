# %% [markdown]
# # A Bayesian network from data
#
# The arrows of a Bayesian network are often known, and its numbers are not. This tutorial learns
# the tables from rows of data: by counting where the rows are complete, by expectation maximisation
# (EM) where cells are missing, and with a variable that no row observes. It puts standard errors
# beside the numbers, and compares the answers with those of pyAgrum.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import pgmengine as pgm

rng = np.random.default_rng(0)

# %% [markdown]
# ## Patients
# The network asia (Lauritzen and Spiegelhalter 1988) comes with the package. We draw 4,000 patients
# from it, so that the truth is known. Each line draws a variable given its parents.

# %%
n = 4000


def drawn(probability):
    """Return one yes or no for each patient, as booleans."""
    return rng.random(n) < probability


asia = drawn(0.01)
tub = drawn(np.where(asia, 0.05, 0.01))
smoke = drawn(0.5)
lung = drawn(np.where(smoke, 0.1, 0.01))
bronc = drawn(np.where(smoke, 0.6, 0.3))
either = lung | tub
xray = drawn(np.where(either, 0.98, 0.05))
dysp = drawn(np.where(either, np.where(bronc, 0.9, 0.7), np.where(bronc, 0.8, 0.1)))
columns = {"asia": asia, "tub": tub, "smoke": smoke, "lung": lung, "bronc": bronc,
           "either": either, "xray": xray, "dysp": dysp}
patients = pd.DataFrame({name: np.where(values, "yes", "no") for name, values in columns.items()})
print(patients.head(3))

# %% [markdown]
# ## Declare
# A mapping from each variable to its parents is all we need. Equal numbers stand in the tables
# until they are learned.

# %%
parents = {"asia": (), "smoke": (), "tub": ("asia",), "lung": ("smoke",), "bronc": ("smoke",),
           "either": ("lung", "tub"), "xray": ("either",), "dysp": ("bronc", "either")}
names = [child for child in parents if child != "either"]


def declared(children):
    """Return a builder of the network, with a table of equal numbers for each of some children."""
    b = pgm.GraphBuilder()
    for name in parents:
        b.variable(name, states=("yes", "no"))
    for child in children:
        b.conditional(child, parents[child], np.full((2,) * (len(parents[child]) + 1), 0.5))
    return b


model = declared(parents).build()

# %% [markdown]
# ## Count
# `fit` takes the DataFrame. Complete rows need one update: the counts of parents and child, plus a
# pseudocount of 1 for each entry, are normalised. The name of a table is `child|parents.table`, and
# its values are logarithms.

# %%
counted = pgm.fit(model, patients)
print(counted)
by_hand = pd.crosstab(patients["smoke"], patients["lung"]).loc[["yes", "no"], ["yes", "no"]] + 1
by_hand = by_hand.div(by_hand.sum(axis=1), axis=0)
assert np.allclose(np.exp(counted.model.params["lung|smoke.table"]), by_hand)

# %% [markdown]
# ## How good are the numbers?
# A row of a table is estimated from the rows of data with its parents' states. With n such rows,
# the standard error of a probability p is about the square root of p (1 - p) / n. `truth` is the
# network of the package.

# %%
truth = pgm.read(pgm.datasets.asia())


def compared(learned, names):
    """Return p(child = yes) for each row of some tables: true, learned and standard error."""
    lines, records = [], patients.to_dict("records")
    for child in names:
        key = f"{child}|{','.join(parents[child])}.table"
        for states in np.ndindex(*(2,) * len(parents[child])):
            given = {p: ("yes", "no")[s] for p, s in zip(parents[child], states)}
            count = sum(all(row[k] == v for k, v in given.items()) for row in records)
            p = np.exp(learned.model.params[key])[(*states, 0)]
            row = ", ".join(f"{k}={v}" for k, v in given.items())
            label = f"{child} | {row}" if row else child
            true = pgm.infer(truth, given).marginal(child)["yes"]
            lines.append((label, count, true, p, np.sqrt(p * (1 - p) / count)))
    columns = ["p(yes)", "rows", "true", "learned", "error"]
    return pd.DataFrame(lines, columns=columns).set_index("p(yes)")


table = compared(counted, names)
table["off by errors"] = (table["learned"] - table["true"]) / table["error"]
print(table.round(3))
assert table["off by errors"].abs().max() < 4

# %% [markdown]
# Rows of tables with few patients have large errors: only 42 patients have been to Asia.
#
# ## Beside pyAgrum
# pyAgrum 3.3.1 learned the same tables from the same patients with `BNLearner`, the smoothing prior
# of weight 1, and `learnParameters`. Asked for p(lung = yes | xray = yes, dysp = yes), it answered
# 0.6354906816150067.

# %%
question = {"xray": "yes", "dysp": "yes"}
answer = pgm.infer(counted, question).marginal("lung")["yes"]
print(f"counted {answer:.16f}, truth {pgm.infer(truth, question).marginal('lung')['yes']:.4f}")
assert abs(answer - 0.6354906816150067) < 1e-12

# %% [markdown]
# ## Say what is certain
# The variable `either` is no estimate: it is "yes" if one of its parents is. A function declares
# it, and its impossible entries stay impossible, whatever the data and the pseudocount.

# %%
b = declared(names)
b.conditional("either", ("lung", "tub"), lambda *causes: "yes" if "yes" in causes else "no")
certain = b.build()
counted = pgm.fit(certain, patients)
print(np.exp(counted.model.params["either|lung,tub.table"]).tolist())
print(f"counted {pgm.infer(counted, question).marginal('lung')['yes']:.4f}")

# %% [markdown]
# ## Missing cells
# Now each cell is lost with probability 0.2. Only 17 % of the patients are still complete. EM fills
# in the others by their expectations given all that is known about the patient. Each update is one
# iteration, and none can lower the objective.

# %%
holes = patients.mask(rng.random(patients.shape) < 0.2, None)
complete = holes.dropna()
print(holes.head(3), f"\n{len(complete)} patients are complete")
learned = pgm.fit(certain, holes, optimizer=pgm.EM(tolerance=1e-8))
rises = np.diff(learned.history["objective"]["value"])
print(f"{len(rises) + 1} iterations; {learned.stopped}")
assert (rises >= 0).all()

# %% [markdown]
# No simple formula gives the errors of these numbers. The bootstrap does: learn again and again from
# patients who are drawn from the data with replacement. A sample weight says how often each patient
# was drawn.

# %%
keys = [f"{child}|{','.join(parents[child])}.table" for child in names]


def chances(fitted):
    """Return p(child = yes) for each row of the tables."""
    return np.concatenate([np.exp(fitted.model.params[key])[..., 0].ravel() for key in keys])


again = [
    chances(pgm.fit(learned, holes, sample_weight=rng.multinomial(n, np.full(n, 1 / n))))
    for _ in range(20)
]
table = compared(counted, names)
table["missing cells"], table["its error"] = chances(learned), np.std(again, axis=0, ddof=1)
table["complete patients"] = chances(pgm.fit(certain, complete))
print(table.round(3).to_string())

# %%
fig, ax = plt.subplots(figsize=(7.5, 4.8), layout="tight")
place, true = np.arange(len(table)), table["true"]
ax.axvline(0, color="0.5", lw=1)
ax.errorbar(table["learned"] - true, place - 0.2, xerr=table["error"], fmt="o", ms=4,
            color="#24466b", label="all cells, counted")
ax.errorbar(table["missing cells"] - true, place, xerr=table["its error"], fmt="s", ms=4,
            color="#c0702b", label="a fifth of the cells missing, EM")
ax.plot(table["complete patients"] - true, place + 0.2, "d", ms=4, color="0.6",
        label="complete patients only, counted")
ax.set(yticks=place, yticklabels=table.index, ylim=(len(table) - 0.5, -0.5),
       xlabel="p(yes) as learned, minus the truth")
_ = ax.legend(loc="lower right", fontsize=8)

# %% [markdown]
# The lines are standard errors. To leave out the patients who are not complete costs most of the
# data. With EM, a fifth of the cells missing costs little.
#
# pyAgrum has EM as well. With all tables learned, `either` among them, `useEM(1e-9)` and the same
# prior, it answered 0.6220628 from these rows. Both programs end a little before the maximum.

# %%
free = pgm.fit(model, holes, optimizer=pgm.EM(tolerance=1e-10))
answer = pgm.infer(free, question).marginal("lung")["yes"]
print(f"EM: {answer:.7f}")
assert abs(answer - 0.6220628) < 1e-5

# %% [markdown]
# ## A variable that nobody observed
# A survey asks 1,500 people six yes/no questions. We suspect that there are groups of people who
# answer alike, but nobody knows who belongs to which. A latent class model says: given the group,
# the answers are independent. The group is a variable that is not in the data. The truth has three
# groups.

# %%
sizes = np.array([0.5, 0.3, 0.2])
says_yes = np.array([[0.9, 0.8, 0.85, 0.2, 0.1, 0.15],
                     [0.8, 0.2, 0.1, 0.9, 0.8, 0.2],
                     [0.1, 0.15, 0.3, 0.2, 0.75, 0.9]])
questions = [f"question {i + 1}" for i in range(6)]


def survey(people):
    """Return the answers of people, and the group of each."""
    group = (rng.random((people, 1)) > sizes.cumsum()).sum(axis=1)
    answers = rng.random((people, 6)) < says_yes[group]
    return pd.DataFrame(np.where(answers, "yes", "no"), columns=questions), group


def classes(count):
    """Return a latent class model with equal tables."""
    b = pgm.GraphBuilder()
    b.variable("group", states=count)
    b.conditional("group", (), np.full(count, 1 / count))
    for name in questions:
        b.variable(name, states=("yes", "no"))
        b.conditional(name, ("group",), np.full((count, 2), 0.5))
    return b.build()


(answers, _), (unseen, group) = survey(1500), survey(1500)
fits, scores = {}, {}
for count in (1, 2, 3, 4, 5):
    fits[count] = pgm.fit(classes(count), answers, optimizer=pgm.EM(tolerance=1e-6))
    scores[count] = pgm.infer(fits[count], unseen, want=("log_prob",)).log_prob.mean()
    print(f"{count} groups: {scores[count]:.4f} nats for each of 1,500 other people")
print(fits[3].notes[0])
assert scores[3] > scores[1] + 0.3 and scores[3] > scores[2] + 0.05

# %% [markdown]
# People who were not in the data decide on the number of groups: more than three do not help. With
# equal tables the groups look alike, and EM could never tell them apart. Therefore it began at the
# best of several random starts. `EM(starts=20)` tries more of them.
#
# The likelihood is a sum over the groups, which numpy confirms in three lines:

# %%
latent = fits[3].model
weight = np.exp(latent.params["group|.table"])
yes = np.stack([np.exp(latent.params[f"{name}|group.table"])[:, 0] for name in questions], axis=1)
x = (unseen == "yes").to_numpy()[:, None]
given_group = np.where(x, yes, 1 - yes).prod(axis=-1)
assert np.isclose(np.log(given_group @ weight).mean(), scores[3])

# %% [markdown]
# The learned groups come in any order. We put them beside the true ones by their answers.

# %%
order = [int(np.abs(yes - row).sum(axis=1).argmin()) for row in says_yes]
assert sorted(order) == [0, 1, 2] and np.abs(yes[order] - says_yes).max() < 0.15
probable = pgm.infer(latent, unseen).marginal("group")
found = np.argmax([probable[k] for k in order], axis=0)
print("sizes:", weight[order].round(3), "in truth", sizes)
print(f"the group of {np.mean(found == group):.3f} of the other people was recognised")

fig, ax = plt.subplots(figsize=(7.5, 3), layout="tight")
for k, color in enumerate(("#24466b", "#c0702b", "#5a9367")):
    ax.plot(range(1, 7), yes[order[k]], "o-", color=color, label=f"group {k + 1}, learned")
    ax.plot(range(1, 7), says_yes[k], ls=":", color=color)
ax.plot([], [], ":", color="0.4", label="truth")
ax.set(xlabel="question", ylabel="p(yes)", ylim=(0, 1), xticks=range(1, 7))
_ = ax.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)

# %% [markdown]
# ## What to read next
# - `pgm.Fixed(pgm.EM(), ["smoke|.table"])` keeps a table as it was declared.
# - `pgm.EM(pseudocount={"tub|asia.table": [[1, 19], [1, 99]]})` is a prior from an expert.
# - The section "Counting and EM" of the guide lists what else EM can do.
# - The tutorial "A hidden Markov model in ten lines" learns from sequences in the same way.

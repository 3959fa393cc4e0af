# %% [markdown]
# # A Bayesian network in five minutes
#
# Somebody is late for work. Was it the weather, a strike, or the alarm clock? This tutorial declares
# a Bayesian network by the names of its variables and states, and asks it by the same names. All
# answers are exact.

# %%
import pathlib
import tempfile

import numpy as np
import pandas as pd

import pgmengine as pgm

# %% [markdown]
# ## Declare
# A variable has a name and states. A conditional is a table p(child | parents): its axes are the
# parents in order, then the child, so each row of numbers sums to 1.

# %%
weather = [0.6, 0.3, 0.1]
strike = [0.95, 0.05]
start = [[0.1, 0.9], [0.2, 0.8], [0.6, 0.4]]  # who sees snow leaves early
train = [
    [[0.9, 0.08, 0.02], [0.0, 0.3, 0.7]],  # dry: no strike, strike
    [[0.8, 0.17, 0.03], [0.0, 0.3, 0.7]],  # rain
    [[0.4, 0.4, 0.2], [0.0, 0.1, 0.9]],  # snow
]
late = np.array([[0.01, 0.2, 0.8], [0.1, 0.7, 0.95]])  # p(late), early or usual start by train
arrival = np.stack([1 - late, late], axis=-1)
platform = [[0.8, 0.2], [0.3, 0.7], [0.1, 0.9]]


def commute():
    """Return a builder with all variables; the arrival gets its conditional later."""
    b = pgm.GraphBuilder()
    b.variable("weather", states=("dry", "rain", "snow"))
    b.variable("strike", states=("no", "yes"))
    b.variable("start", states=("early", "usual"))
    b.variable("train", states=("on time", "delayed", "cancelled"))
    b.variable("arrival", states=("in time", "late"))
    b.variable("platform", states=("empty", "full"))
    b.conditional("weather", (), weather)
    b.conditional("strike", (), strike)
    b.conditional("start", ("weather",), start)
    b.conditional("train", ("weather", "strike"), train)
    b.conditional("platform", ("train",), platform)
    return b


b = commute()
b.conditional("arrival", ("start", "train"), arrival)
model = b.build()
print(model.variables)

# %% [markdown]
# ## Ask by name
# Evidence is a mapping from variables to states, and an answer is a mapping from states to
# probabilities.

# %%
before, r = pgm.infer(model), pgm.infer(model, {"arrival": "late"})
print("before:", before.marginal("strike"))
print("late:  ", r.marginal("strike"))
assert r.kind == "exact" and r.marginal("strike")["yes"] > before.marginal("strike")["yes"]
snow = pgm.infer(model, {"arrival": "late", "weather": "snow"})
assert snow.marginal("strike")["yes"] < r.marginal("strike")["yes"]  # snow explains the delay

# %% [markdown]
# The picture shows the network with its marginals when we know that the arrival was late, which has
# a thick frame.

# %%
_ = pgm.plots.graph(model, result=r)

# %% [markdown]
# ## Seeing is not doing
# An early start is a sign of snow, and snow delays trains. `do` sets the start by hand, which is no
# sign of anything.

# %%
seen = pgm.infer(model, {"start": "early"}).marginal("weather")["snow"]
done = pgm.infer(model, do={"start": "early"})
print(f"snow: {before.marginal('weather')['snow']:.3f}; seen an early start: {seen:.3f}; "
      f"made it early: {done.marginal('weather')['snow']:.3f}")
print("late, if we start early:", round(done.marginal("arrival")["late"], 3))
assert seen > 0.2 and abs(done.marginal("weather")["snow"] - 0.1) < 1e-12

# %% [markdown]
# ## Many rows
# A DataFrame has a row for each question and a column for each observed variable. An empty entry is
# not observed. A marginal then has an entry for each row.

# %%
questions = pd.DataFrame({"arrival": ["late", "late", None, "in time"], "platform": [None, "empty", "full", "full"]})
r = pgm.infer(model, questions, want=("marginals", "log_prob"))
answers = questions.assign(cancelled=r.marginal("train")["cancelled"], p_evidence=np.exp(r.log_prob))
print(answers.round(3))

# %% [markdown]
# ## Joints, the mode, and draws
# Given a late arrival, weather and strike are no longer independent. `Joint` gives their joint
# distribution, `mode` the most probable state of everything, and `samples` independent exact draws.

# %%
joint = pgm.Joint("weather", "strike")
r = pgm.infer(model, {"arrival": "late"}, want=(joint, "mode", "samples"), rng=0)
table = r.joint["weather", "strike"]
print(pd.DataFrame(table, ["dry", "rain", "snow"], ["no strike", "strike"]).round(3))
print("most probable:", r.assignment())
draws = r.samples_frame()
print(draws.head(3))
shares = pd.crosstab(draws["weather"], draws["strike"], normalize="all")
assert np.abs(shares.to_numpy() - table).max() < 0.08  # 1,000 draws

# %% [markdown]
# ## How was it answered?
# `explain` names the method and its cost without running it. An exact answer passes messages on a
# junction tree. Its width, log2 of the states of its largest clique, decides the cost: a network of
# thousands of variables is exact as long as its width is small.

# %%
pgm.explain(model, {"arrival": "late"})

# %% [markdown]
# ## Networks as files
# `pgm.write` makes a .bif file, which other programs read. `pgm.read` takes .bif files and the other
# formats of the field.

# %%
file = pathlib.Path(tempfile.mkdtemp()) / "commute.bif"
pgm.write(model, file)
print(file.read_text()[:330], "...")
again = pgm.infer(pgm.read(file), {"arrival": "late"})
assert abs(again.marginal("strike")["yes"] - table[:, 1].sum()) < 1e-12

# %% [markdown]
# ## What if we had started early?
# We started as usual and were late. Would an early start have helped *on that day*? This is a
# counterfactual question: the weather, the train and our luck stay as they were. A twin network
# answers it. It has the day as it was and the day as it would have been, and both share everything
# that the start does not change.
#
# Luck has to be a variable for this. A late arrival with probability p means: late if a uniform
# number is below p. Only the interval between the values of p matters in which the number falls, so
# luck has finitely many states, and the arrival is a function of start, train and luck.

# %%
ends = np.concatenate([[0], np.unique(late), [1]])
below = (ends[1:] <= late[..., None] + 1e-12).astype(float)  # late, by start, train and luck
b = commute()
b.variable("luck", states=len(ends) - 1)
b.conditional("luck", (), np.diff(ends))
b.conditional("arrival", ("start", "train", "luck"), np.stack([1 - below, below], axis=-1))
b.variable("twin start", states=("early", "usual"))
b.variable("twin arrival", states=("in time", "late"))
b.conditional("twin start", ("weather",), start)
b.conditional("twin arrival", ("twin start", "train", "luck"), np.stack([1 - below, below], axis=-1))
twin = b.build()
same = pgm.infer(twin, {"start": "usual", "train": "delayed"}).marginal("arrival")["late"]
assert abs(same - 0.7) < 1e-12  # the twin network has the conditionals of the first one

day = {"start": "usual", "arrival": "late"}
r = pgm.infer(twin, day, do={"twin start": "early"})
would = r.marginal("twin arrival")["late"]
print(f"late if we start early, on any day: {done.marginal('arrival')['late']:.3f}; on that day: {would:.3f}")

# %% [markdown]
# The day was a bad one, so an early start fails more often than on other days. A check by hand:
# given the train, a share p(late | early, train) / p(late | usual, train) of the late arrivals would
# be late after all.

# %%
trains = np.array(list(pgm.infer(model, day).marginal("train").values()))
assert abs(would - trains @ (late[0] / late[1])) < 1e-12

# %% [markdown]
# ## What to read next
# - Misspell a variable or a state, or let the rows of a conditional sum to 0.9, and read the message.
# - `b.table(scope, values)` declares potentials that need not be normalised, beside conditionals and
#   couplings.
# - The tutorial "A Bayesian network from data" learns the tables from rows of data.
# - The tutorial "Chains, trees and lattices" asks graphs of 10,000 variables.
# - The page "How to choose" says where exact answers end, and what answers beyond.

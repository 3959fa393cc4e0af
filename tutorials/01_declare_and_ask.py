# %% [markdown]
# # Declare and ask
#
# How sure can we be that it rained, when all we see is a wet lawn? A question for a belief net of three variables; the
# same calls then answer for a Boltzmann machine, and for layers of many units. Everything here is exact.

# %%
import math

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pandas as pd

import pgmengine as pgm

# %% [markdown]
# ## Variables, arrows, evidence
# A node of the graph is a variable, an edge an arrow with a weight; `bias` is the log-odds without any parent.

# %%
weather = nx.DiGraph()
weather.add_node("rain", bias=-1.4)
weather.add_node("sprinkler", bias=0.0)
weather.add_node("wet", bias=-4.0, states=("dry", "wet"))
weather.add_edge("rain", "sprinkler", weight=-4.0)  # nobody sprinkles in the rain
weather.add_edge("rain", "wet", weight=6.0)
weather.add_edge("sprinkler", "wet", weight=6.0)
model = pgm.GraphBuilder.from_networkx(weather).build()
print(model)

# %% [markdown]
# Evidence is a table: a column for each variable that we saw something of, a row for each question. What is missing in
# a row is not known there. Values may be the names of states.

# %%
questions = pd.DataFrame({"wet": [None, "wet", "wet", "dry"], "sprinkler": [None, None, 1, None]})
r = pgm.infer(model, questions, want=("marginals", "log_prob"))
rain = r.to_frame().xs("rain", axis="columns", level="unit").to_numpy().ravel()
print(questions.assign(rain=rain.round(3), surprise=-r.log_prob.round(3)))
assert rain[2] < rain[0] < rain[1]  # the sprinkler explains the wet lawn away

# %% [markdown]
# ## Seeing is not doing
# If we water the lawn ourselves, the wet lawn says nothing about rain: `do` cuts the arrows into it.

# %%
done = pgm.infer(model, do=pd.DataFrame({"wet": ["wet"]}))
made_wet = done.to_frame().xs("rain", axis="columns", level="unit").iloc[0, 0]
print(f"rain: {rain[0]:.3f}; seen a wet lawn: {rain[1]:.3f}; made it wet: {made_wet:.3f}")
assert abs(made_wet - rain[0]) < 1e-12

# %% [markdown]
# ## The same calls for any other graph
# A magnet of 36 spins with one corner held up. Which method answers is decided for each question; `explain` says how,
# without running.

# %%
grid = nx.grid_2d_graph(6, 6)
nx.set_edge_attributes(grid, 0.44, "weight")
magnet = pgm.GraphBuilder.from_networkx(grid, unit=pgm.Spin()).build()
held = pd.DataFrame([[1.0]], columns=[(0, 0)])
pgm.explain(magnet, held, want=("marginals", "log_z"))

# %%
r = pgm.infer(magnet, held, want=("marginals", "log_z"))
print(r.kind, r.plan)
mean = r.to_frame().droplevel("layer", axis="columns").iloc[0]
picture = np.array([[mean[f"({i}, {j})"] for j in range(6)] for i in range(6)])
fig, ax = plt.subplots(figsize=(3.6, 3))
fig.colorbar(ax.imshow(picture, cmap="RdBu_r", vmin=-1, vmax=1), label="mean spin")
assert picture[0, 1] > picture[5, 5] > 0  # the corner is felt everywhere, less so far away

# %% [markdown]
# ## Layers
# Larger models are declared by layers of units of one type, with a matrix of weights between two of them. Here 6 binary
# pixels, 3 hidden units with the values -1, -1/2, 0, 1/2, 1, and a label with three states.

# %%
b = pgm.GraphBuilder()
b.layer("pixels", pgm.Binary(), 6)
b.layer("hidden", pgm.MultiValued(4), 3)
b.layer("label", pgm.Categorical(3), 1, states=("cat", "dog", "owl"))
b.couple("pixels", "hidden")
b.couple("hidden", "label")
machine = b.build(rng=0)  # weights that are not given are drawn
_ = pgm.plots.graph(machine)
rows = np.array([[1, 0, 1, math.nan, 0, 0], [math.nan] * 6])  # each row with its own holes
r = pgm.infer(machine, {"pixels": rows}, want=("marginals", "mode"))
print(r.to_frame()[["label", "hidden"]].round(3))
print("most probable completion of row 0:", r.mode["pixels"][0])

# %% [markdown]
# ## What to try next
# - `want=("pairs",)` or `("samples",)`; `soft={"pixels": ...}` for hints in log-odds.
# - A typo in a name, a value that a unit cannot have: what do the errors say?
# - The next tutorial trains a machine on digits.

# %% [markdown]
# # Declare and ask
#
# The lawn is wet. How probable is it that it rained? A belief net of three variables answers this
# question. The same calls then answer questions about a Boltzmann machine, and about layers of many
# units. All answers here are exact.

# %%
import math

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pandas as pd

import pgmengine as pgm

# %% [markdown]
# ## Variables, arrows, evidence
# A node of the graph is a variable, and an edge is an arrow with a weight. `bias` is the log-odds
# of a variable when all its parents are 0.

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
# Evidence is a table with a column for each observed variable and a row for each question. An empty
# entry means that the variable is not observed in that row. Values may be names of states.

# %%
questions = pd.DataFrame({"wet": [None, "wet", "wet", "dry"], "sprinkler": [None, None, 1, None]})
r = pgm.infer(model, questions, want=("marginals", "log_prob"))
rain = r.to_frame().xs("rain", axis="columns", level="unit").to_numpy().ravel()
print(questions.assign(rain=rain.round(3), surprise=-r.log_prob.round(3)))
assert rain[2] < rain[0] < rain[1]  # the sprinkler explains the wet lawn away

# %% [markdown]
# ## Seeing is not doing
# If we water the lawn ourselves, the wet lawn says nothing about rain. `do` therefore cuts the
# arrows into the variable that it sets.

# %%
done = pgm.infer(model, do=pd.DataFrame({"wet": ["wet"]}))
made_wet = done.to_frame().xs("rain", axis="columns", level="unit").iloc[0, 0]
print(f"rain: {rain[0]:.3f}; seen a wet lawn: {rain[1]:.3f}; made it wet: {made_wet:.3f}")
assert abs(made_wet - rain[0]) < 1e-12

# %% [markdown]
# ## The same calls for any other graph
# The next model is a magnet of 36 spins, one corner of which is observed to be +1. pgmengine
# chooses a method for each question. `explain` shows the choice without running the method.

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
# Larger models are declared by layers. A layer has units of one type, and a matrix of weights
# couples two layers. This model has 6 binary pixels, 3 hidden units with the values -1, -1/2, 0,
# 1/2, 1, and a label with three states.

# %%
b = pgm.GraphBuilder()
b.layer("pixels", pgm.Binary(), 6)
b.layer("hidden", pgm.MultiValued(4), 3)
b.layer("label", pgm.Categorical(3), 1, states=("cat", "dog", "owl"))
b.couple("pixels", "hidden")
b.couple("hidden", "label")
model = b.build(rng=0)  # weights that are not given are drawn
_ = pgm.plots.graph(model)
rows = np.array([[1, 0, 1, math.nan, 0, 0], [math.nan] * 6])  # each row with its own holes
r = pgm.infer(model, {"pixels": rows}, want=("marginals", "mode"))
print(r.to_frame()[["label", "hidden"]].round(3))
print("most probable completion of row 0:", r.mode["pixels"][0])

# %% [markdown]
# ## What to try next
# - Ask for `want=("pairs",)` or `("samples",)`, or pass hints in log-odds as `soft={"pixels":
#   ...}`.
# - Misspell a name, or give a value that a unit cannot have, and read the error message.
# - The next tutorial trains a model on digits.

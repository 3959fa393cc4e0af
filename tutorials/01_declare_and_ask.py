# %% [markdown]
# # Declare and ask
#
# How sure can we be that it rained, when all we see is a wet lawn? A question for a belief net of three variables; the
# same calls then answer for a Boltzmann machine. Everything here is exact.

# %%
import math

import networkx as nx
import numpy as np

import pgmengine as pgm

# %% [markdown]
# ## Variables, arrows, evidence
# A node of the graph is a variable, an edge an arrow with a weight; `bias` is the log-odds without any parent.

# %%
weather = nx.DiGraph()
weather.add_node("rain", bias=-1.4)
weather.add_node("sprinkler", bias=0.0)
weather.add_node("wet", bias=-4.0)
weather.add_edge("rain", "sprinkler", weight=-4.0)  # nobody sprinkles in the rain
weather.add_edge("rain", "wet", weight=6.0)
weather.add_edge("sprinkler", "wet", weight=6.0)
model = pgm.GraphBuilder.from_networkx(weather).build()
print(model)
where = {label: (layer.name, i) for layer in model.structure.layers.values() for i, label in enumerate(layer.labels)}


def see(**values):
    """Evidence on variables by their names."""
    evidence = {layer.name: np.full(layer.size, math.nan) for layer in model.structure.layers.values()}
    for name, value in values.items():
        layer, index = where[name]
        evidence[layer][index] = value
    return evidence


def chance(name, result):
    layer, index = where[name]
    return float(result.mean[layer][index])


before = chance("rain", pgm.infer(model))
wet = chance("rain", pgm.infer(model, see(wet=1)))
both = chance("rain", pgm.infer(model, see(wet=1, sprinkler=1)))
print(f"rain: {before:.3f}; the lawn is wet: {wet:.3f}; and the sprinkler was on: {both:.3f}")
assert both < before < wet  # the sprinkler explains the wet lawn away

# %% [markdown]
# ## Seeing is not doing
# If we water the lawn ourselves, the wet lawn says nothing about rain: `do` cuts the arrows into it.

# %%
layer, index = where["wet"]
made_wet = chance("rain", pgm.infer(model, do={layer: see(wet=1)[layer]}))
print(f"rain, after we made the lawn wet: {made_wet:.3f}")
assert abs(made_wet - before) < 1e-12

# %% [markdown]
# ## The same calls for any other graph
# A magnet of 16 spins with one corner held up, and what the plan says of it.

# %%
grid = nx.grid_2d_graph(4, 4)
nx.set_edge_attributes(grid, 0.44, "weight")
magnet = pgm.GraphBuilder.from_networkx(grid, unit=pgm.Spin()).build()
held = {"c0": [1, *[math.nan] * 7]}
print(pgm.explain(magnet, held, want=("marginals", "log_prob")))
r = pgm.infer(magnet, held, want=("marginals", "log_prob"))
print("mean spins:", np.round(r.mean["c0"], 2), "log p(evidence):", np.round(r.log_prob, 3))

# %% [markdown]
# Next: give `GraphBuilder` layers of your own, or train a machine on digits with `pgmengine demo`.

# %% [markdown]
# # Add your own unit type, kernel and method
#
# If the unit type, the sampler or the estimator that you need is missing, you can add it. Each is
# one frozen dataclass. It then works with all other parts, and exact answers tell whether it is
# right.

# %%
import math
from dataclasses import dataclass

import numpy as np

import pgmengine as pgm

# %% [markdown]
# ## A unit type
# A unit type is an exponential family, p(x) ~ h(x) exp(eta x). The new type counts how many of n
# points are dark. Its values are 0 to n, and h(k) is the number of ways to choose k of n points.
# The values and log h are all that a unit type has to define.

# %%
@dataclass(frozen=True)
class Count(pgm.Unit):
    """How many of n are dark: values 0, ..., n with h(k) = n over k."""

    n: int

    @property
    def support(self):
        return np.arange(self.n + 1.0)

    @property
    def log_base(self):
        return np.log([math.comb(self.n, k) for k in range(self.n + 1)])

    def log_h(self, x):
        return self.log_base[np.asarray(x, dtype=int)]


assert np.allclose(Count(4).log_normalizer([-1.0, 2.0]), 4 * np.logaddexp(0, [-1.0, 2.0]))  # n times log(1 + e^eta)

# %% [markdown]
# To check the type, take a model of four counts and two binary units. It has 1,024 states, which
# plain numpy can enumerate.

# %%
rng = np.random.default_rng(0)
weight, bias = rng.normal(size=(4, 2)), rng.normal(size=4)
small = pgm.rbm(4, 2, visible=Count(3)).with_params({"v-h.weight": weight, "v.bias": bias})
v, h = np.indices((4, 4, 4, 4)).reshape(4, -1).T, np.indices((2, 2)).reshape(2, -1).T
log_p = (np.log([1, 3, 3, 1])[v].sum(axis=1) + v @ bias)[:, None] + v @ weight @ h.T
log_z = np.log(np.exp(log_p).sum())
mean = np.exp(log_p - log_z).sum(axis=1) @ v
exact = pgm.infer(small, want=("log_z", "marginals"))
sampled = pgm.infer(small, method=pgm.MCMC(draws=5000), rng=0)
print(f"log Z: by hand {log_z:.6f}, by infer {exact.log_z[0]:.6f}")
print("means: by hand", np.round(mean, 3), "by infer", exact.mean["v"].round(3), "sampled", sampled.mean["v"].round(3))
assert abs(exact.log_z[0] - log_z) < 1e-12 and np.allclose(exact.mean["v"], mean, atol=1e-12)
assert np.all(np.abs(sampled.mean["v"] - mean) < 5 * sampled.stats["mcse"]["v"])

# %% [markdown]
# ## It learns, too
# The grey digits are such counts: a pixel says how many of the 16 points of a block were dark. We
# start with independent counts and follow the exact gradient for 300 updates, which are few, as
# `fit` says. Likelihood, missing pixels and pictures need no new code.

# %%
digits = pgm.datasets.digits(threshold=None)
x, new = np.round(16 * digits.x_train), np.round(16 * digits.x_test)
rate = (x.mean(axis=0) + 0.01) / 16.02
start = pgm.rbm(64, 10, visible=Count(16)).with_params({
    "v.bias": np.log(rate / (1 - rate)), "v-h.weight": rng.normal(0, 0.01, (64, 10))})
fitted = pgm.fit(start, {"v": x}, negative=pgm.ExactGradient(), optimizer=pgm.Adam(0.01), updates=300,
                 callbacks=[pgm.ExactLogLikelihood({"v": new})], rng=0, progress=False)
values = fitted.history["log_likelihood"]["value"]
print("new images, nats each, as it learns:", np.round(values, 1))
assert values[-1] > values[0] + 50
half = np.where(np.arange(64) < 32, new[:12], np.nan)
ax = pgm.plots.completions(pgm.infer(fitted.model, {"v": half}), "v", (8, 8))
ax.set_title("the upper half, completed by the model")
ax.figure.set_size_inches(9, 2.1)

# %% [markdown]
# ## A kernel
# A kernel moves one unit. It takes the conditional probabilities (..., K) and the current state
# (...,), and returns the probabilities of the next state. `Lazy` sometimes stays where it is.
# `Restless` never stays, in the hope of being faster.

# %%
@dataclass(frozen=True)
class Lazy:
    stay: float = 0.2

    def transition(self, prob, current):
        here = np.arange(prob.shape[-1]) == np.asarray(current)[..., None]
        return self.stay * here + (1 - self.stay) * prob


@dataclass(frozen=True)
class Restless:
    def transition(self, prob, current):
        others = np.where(np.arange(prob.shape[-1]) == np.asarray(current)[..., None], 0.0, prob)
        return others / others.sum(axis=-1, keepdims=True)

# %% [markdown]
# A kernel must leave the distribution pi of the model invariant: pi T = pi. For a small model T is
# a matrix, computed from the probabilities of the kernel, so that no long runs are needed. (SLEM
# says how slowly a chain forgets.) `Lazy` is right, if slower. It can be used wherever a kernel
# can: here in tempered ladders, or in `pgm.PCD(kernel=Lazy())`.

# %%
target = pgm.rbm(2, 2, visible=Count(3), rng=1).given()
states = pgm.diagnostics.joint_states(target)
log_pi = target.take(np.zeros(len(states["v"]), dtype=int)).log_density(states)
pi = np.exp(log_pi - np.logaddexp.reduce(log_pi))
off = {}
for kernel in (pgm.Gibbs(), Lazy(), Restless()):
    matrix = pgm.diagnostics.transition_matrix(target, kernel)
    off[kernel] = np.abs(pi @ matrix - pi).max()
    print(f"{kernel}: pi T is off by {off[kernel]:.0e}, SLEM {pgm.diagnostics.slem(matrix):.2f}")
assert off[Lazy()] < 1e-12 and off[Restless()] > 0.01  # Restless is caught
r = pgm.infer(small, want=("log_z",), method=pgm.ParallelTempering(kernel=Lazy()), rng=0)
print(f"log Z with lazy ladders {r.log_z[0]:.3f} +- {r.log_z_error[0]:.3f}, exact {log_z:.3f}")
assert r.log_z_interval[0, 0] < log_z < r.log_z_interval[0, 1]

# %% [markdown]
# ## A method
# A method plans an answer, and runs the plan. The new method draws all units independently, as they
# are at beta = 0, and weighs each draw by its density under the model. It refuses questions that it
# cannot answer, and reports when a few draws have most of the importance weight.

# %%
@dataclass(frozen=True)
class Importance(pgm.Method):
    """log Z = log Z_0 + log mean exp(w), w = log p_1(x) - log p_0(x), x drawn at beta = 0."""

    gives = frozenset({"log_z"})
    source = "weights of independent draws give"
    statistics = {"ess": (pgm.Axis.ROW,)}

    draws: int = 20_000

    def scheme(self, target, want):
        units = sum(layer.size for layer in target.structure.layers.values())
        return pgm.Scheme(f"{self.draws} independent draws", work=target.rows * self.draws * units)

    def answer(self, question, rng, state=None, executor=None):
        target = question.target
        many = target.take(np.repeat(np.arange(target.rows), self.draws))
        x = many.draw_at_0(np.random.default_rng(rng))
        log_w = (many.log_density(x) - many.at(0).log_density(x)).reshape(target.rows, self.draws)
        top = log_w.max(axis=1)
        w = np.exp(log_w - top[:, None])
        answers = {"log_z": target.log_z_at_0() + top + np.log(w.mean(axis=1)),
                   "log_z_error": w.std(axis=1) / w.mean(axis=1) / np.sqrt(self.draws)}
        ess = w.sum(axis=1) ** 2 / (w**2).sum(axis=1)
        status = pgm.Status.OK if ess.min() > self.draws / 20 else pgm.Status.FEW_WEIGHTS
        return question.result(answers, {"ess": ess}, status)

# %% [markdown]
# As the first candidate it is asked first. With large weights its run ends with a bad status.
# `Auto` then continues with the next candidate, and says so.

# %%
mine = pgm.Auto(candidates=(Importance(), *pgm.Auto().candidates))
print(pgm.explain(small, want=("log_z",), method=mine))
mild = small.with_params({"v-h.weight": weight / 4, "v.bias": bias / 4})
for name, model in (("small weights", mild), ("large weights", small)):
    r, truth = (pgm.infer(model, want=("log_z",), method=method, rng=0) for method in (mine, pgm.Exact()))
    print(name, *r.refused, f"-> {r.plan}", sep="\n  ")
    print(f"  log Z = {r.log_z[0]:.3f} +- {r.log_z_error[0]:.3f}, exact {truth.log_z[0]:.3f}")
    assert abs(r.log_z[0] - truth.log_z[0]) <= 5 * r.log_z_error[0] + 1e-12

# %% [markdown]
# ## What to try next
# - Define values -1, 0, 1 with a log h of your own for 0, or use `unit=Count(2)` in `pgm.sbn` and
#   `pgm.dbm`.
# - Give `Lazy` a `flip_share`. For which kernel do the compiled sweeps then take it?
# - Let `Importance` answer "marginals". What does `Auto` plan then?
# - CONTRIBUTING.md says where such a file belongs in the package, and how all tests come to run on
#   it.

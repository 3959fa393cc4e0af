# %% [markdown]
# # Tagging sequences
#
# Is "light" a noun, a verb or an adjective? The words beside it tell. A conditional random field
# labels all steps of a sequence at once: weights of features say which label suits a step, and
# weights of transitions say which labels follow each other. This tutorial makes a small language,
# learns its parts of speech from a few sentences, and looks at labels, their certainty and weights.

# %%
import matplotlib.pyplot as plt
import numpy as np

import pgmengine as pgm
from pgmengine.sklearn import ChainCRF

plt.style.use("tableau-colorblind10")

rng = np.random.default_rng(0)

# %% [markdown]
# ## A small language
# The tags of a sentence form a Markov chain, and each tag has its words. Some words belong to two
# or three tags. Half of the nouns and verbs are made of syllables, so that most of them are rare,
# and their endings are the only clue to a word that was never seen.

# %%
TAGS = ["article", "adjective", "noun", "verb", "adverb"]
START = [0.6, 0.1, 0.2, 0.05, 0.05]
MOVE = np.array(
    [
        [0.00, 0.35, 0.65, 0.00, 0.00],  # after an article
        [0.00, 0.15, 0.85, 0.00, 0.00],  # after an adjective
        [0.05, 0.00, 0.10, 0.75, 0.10],  # after a noun
        [0.50, 0.10, 0.10, 0.00, 0.30],  # after a verb
        [0.30, 0.25, 0.15, 0.20, 0.10],  # after an adverb
    ]
)
WORDS = {
    "article": ["the", "a", "every"],
    "adjective": ["light", "fast", "cold", "open", "small", "kind"],
    "noun": ["light", "cold", "run", "walk", "kind", "boat", "watch", "house"],
    "verb": ["light", "run", "walk", "watch", "open", "sees", "fast", "boat"],
    "adverb": ["fast", "often", "today", "never"],
}
ENDINGS = {"noun": ["er", "ness", "ing"], "verb": ["ates", "ing", "ens"]}


def word(tag):
    """Draw a word of a tag."""
    if tag in ENDINGS and rng.random() < 0.5:
        stem = "".join(rng.choice(list("bdfgklmnprst")) + rng.choice(list("aeiou")) for _ in range(2))
        return stem + rng.choice(ENDINGS[tag])
    return str(rng.choice(WORDS[tag]))


def sentence():
    """Draw a sentence: its words and its tags."""
    tags = [rng.choice(5, p=START)]
    while len(tags) < 4 or rng.random() < 0.8:
        tags.append(rng.choice(5, p=MOVE[tags[-1]]))
    tags = [TAGS[k] for k in tags]
    return [word(tag) for tag in tags], tags


corpus = [sentence() for _ in range(700)]
for words, tags in corpus[:3]:
    print("  ".join(f"{w}/{t}" for w, t in zip(words, tags)))

# %% [markdown]
# ## Features
# Each step has a dict of features. A text such as `{"word": "walk"}` is the feature "word=walk" with
# the value 1; numbers and booleans are values. Features may look at any words of the sentence, also
# at those of neighbours. The ends of a sentence and a bias of each tag are features, too.


# %%
def features(words):
    return [
        {"bias": 1.0, "word": w, "ending": w[-2:], "first": i == 0, "last": i == len(words) - 1}
        for i, w in enumerate(words)
    ]


X = [features(words) for words, _ in corpus]
y = [tags for _, tags in corpus]
train, test = slice(0, 200), slice(200, None)
X[0][1]

# %% [markdown]
# ## Learn and predict
# `fit` minimises the negative log-likelihood plus `l2` times the sum of squared weights, exactly.
# `predict` returns the most probable labels of each whole sentence (the Viterbi path). For
# comparison, a model that sees the same features, but no neighbours, treats every word as a
# sentence of its own.

# %%
crf = ChainCRF(l2=0.1).fit(X[train], y[train])
alone = ChainCRF(l2=0.1).fit(
    [[step] for x in X[train] for step in x], [[tag] for tags in y[train] for tag in tags]
)
score = crf.score(X[test], y[test])
score_alone = alone.score([[s] for x in X[test] for s in x], [[t] for tags in y[test] for t in tags])
print(f"{len(crf.feature_names_)} features, objective {crf.objective_:.1f} after {crf.n_iter_} steps")
print(f"words tagged right: {score:.3f} in sentences, {score_alone:.3f} word by word")
assert score > score_alone + 0.05

# %% [markdown]
# The word "light" has its tag from its place:

# %%
for words in (["the", "light", "boat", "sees", "a", "light"], ["every", "boat", "light", "the", "house"]):
    [found] = crf.predict([features(words)])
    print("  ".join(f"{w}/{t}" for w, t in zip(words, found)))

# %% [markdown]
# ## How certain is a tag?
# `predict_marginals` returns the probability of each tag at each step. Words whose tag is certain
# are nearly always right, and the others are the ones to look at. We group the words of the test
# sentences by the probability of their best tag.

# %%
marginals = np.concatenate(crf.predict_marginals(X[test]))
truth = np.array([t for tags in y[test] for t in tags])
right = crf.classes_[marginals.argmax(axis=1)] == truth
certainty = marginals.max(axis=1)
edges = [0.3, 0.5, 0.7, 0.9, 0.99, 1.0]
for low, high in zip(edges[:-1], edges[1:]):
    some = (certainty > low) & (certainty <= high)
    print(f"certainty {low:.2f} to {high:.2f}: {some.sum():5} words, {right[some].mean():.3f} right, {certainty[some].mean():.3f} expected")

# %%
words = ["the", "kind", "walk", "open", "fast", "cold", "boat"]
[p] = crf.predict_marginals([features(words)])
fig, ax = plt.subplots(figsize=(7, 2.6), layout="tight")
bottom = np.zeros(len(words))
for k, tag in enumerate(crf.classes_):
    ax.bar(range(len(words)), p[:, k], bottom=bottom, label=tag, width=0.7)
    bottom += p[:, k]
ax.set_xticks(range(len(words)), words)
ax.set(ylabel="probability", xlim=(-0.6, 9), title="the tags of one sentence")
_ = ax.legend(loc="right", fontsize=8)

# %% [markdown]
# ## Other questions
# The learned labels are a chain of variables, `crf.template_`, and `soft_evidence` has the weights
# of the words. The engine answers any question about them. An editor who fixes one tag, for
# example, changes the probabilities of the others:

# %%
soft = crf.soft_evidence([features(words)])
rows = [len(words), {"y": [None, None, "verb", None, None, None, None]}]
free, fixed = pgm.infer(crf.template_, rows, soft=[soft[0], soft[0]])
for tag in ("noun", "adjective"):
    print(f'"kind" is a {tag}: {free.marginal("y")[tag][1]:.3f}; if "walk" is a verb: {fixed.marginal("y")[tag][1]:.3f}')
assert free.kind == fixed.kind == "exact"
assert np.allclose(free.marginal("y")["noun"], p[:, list(crf.classes_).index("noun")])

# %% [markdown]
# ## Weights
# A weight is a log factor: how much more probable a feature, or the tag before, makes a tag. These
# are the largest weights of transitions and of features for the verb.

# %%
pairs = [(crf.transitions_[i, j], a, b) for i, a in enumerate(crf.classes_) for j, b in enumerate(crf.classes_)]
for weight, before, after in sorted(pairs, reverse=True)[:4] + sorted(pairs)[:3]:
    print(f"{before} -> {after}: {weight:+.2f}")
verb = list(crf.classes_).index("verb")
order = np.argsort(-crf.coef_[:, verb])
print(", ".join(f"{crf.feature_names_[i]} {crf.coef_[i, verb]:+.2f}" for i in order[:6]))

# %% [markdown]
# ## Few weights or small weights
# With `l2` all weights are small and none is 0. With `l1` most of them are exactly 0: rare words have
# no weight at all, and the rest can be read on one page. Here the short models predict as well as
# the long ones.

# %%
print("  l1    l2   weights  training  test")
for l1, l2 in ((0, 0.01), (0, 0.1), (0, 1), (0, 10), (0.3, 0), (1, 0), (3, 0)):
    one = ChainCRF(l1, l2).fit(X[train], y[train])
    used = np.count_nonzero(one.coef_) + np.count_nonzero(one.transitions_)
    print(f"{l1:4} {l2:5} {used:9} {one.score(X[train], y[train]):9.3f} {one.score(X[test], y[test]):.3f}")

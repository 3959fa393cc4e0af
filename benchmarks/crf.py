import numpy as np


def corpus(sentences=2000, labels=20, features=10_000, active=10, seed=0):
    """Return sentences of a random chain of labels; each step has `active` features, most of which depend on the label."""
    rng = np.random.default_rng(seed)
    move = rng.dirichlet(np.full(labels, 0.3), size=labels)
    # Zipf-like shares
    share = 1 / np.arange(1, features + 1)
    emit = np.array([rng.permutation(share) for _ in range(labels)]) + 3 * share
    emit = (emit / emit.sum(axis=1, keepdims=True)).cumsum(axis=1)
    X, y = [], []
    for steps in 1 + rng.poisson(20, sentences):
        z = np.empty(steps, dtype=int)
        z[0] = rng.integers(labels)
        for t in range(1, steps):
            z[t] = rng.choice(labels, p=move[z[t - 1]])
        x = [
            np.unique(np.searchsorted(emit[k], rng.random(active)).clip(0, features - 1)) for k in z
        ]
        X.append([{f"f{j}": 1.0 for j in row} for row in x])
        y.append([f"L{k:02}" for k in z])
    return X, y

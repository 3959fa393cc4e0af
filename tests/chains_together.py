"""Fits of templates whose rows are summed as chains of all lengths, and one length at a time."""

from pgmengine.infer.exact.long_chains import chain_counts as chains
from pgmengine.learn.full_batch import objective


def fits(learned, monkeypatch):
    """Return learned() with chains, whether they were used, and learned() without them."""
    ways = []

    def watched(*arguments):
        found = chains.chains_of(*arguments)
        ways.append(found is not None)
        return found

    monkeypatch.setattr(objective, "chains_of", watched)
    together = learned()
    (used,) = ways
    monkeypatch.setattr(objective, "chains_of", lambda targets, weights: None)
    return together, used, learned()

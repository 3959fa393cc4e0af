"""The negative log-likelihood of a linear-chain conditional random field, and its gradient.

With features x_t and labels y_t, weights C (features, labels) and transitions T (labels, labels),

    log p(y | x) = sum_t x_t C[:, y_t] + sum_{t > 0} T[y_{t-1}, y_t] - log Z(x)

(Lafferty, McCallum and Pereira 2001). The gradient of the sum over sequences of -log p(y | x) is
expected counts minus observed counts: X' marginals - X' indicators for C, and the same for pairs
of neighbouring labels for T.

Layout: the steps of all sequences are one matrix X, sequence by sequence. Sequences that follow
each other form parts of about PART_NUMBERS numbers, which fit into caches and are shared among
threads. The parts, and therefore all bits of the results, do not depend on the number of threads.
A sequence of which some labels are not known has the sum over these labels as its likelihood:
log Z with the known labels fixed, less log Z. Its observed counts are expected ones of the first
sum, which is not concave in the weights.

The product with X' is taken on the threads by blocks of features. Features of which few are not 0
are kept as a sparse array, also where an array was given, because its products are faster. The
results differ by rounding only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array, issparse

from pgmengine.apps.crf.stacked_sequences import Steps
from pgmengine.base.types import Array, Weight
from pgmengine.base.work.threads import shared_out
from pgmengine.infer.exact.long_chains.chain_sums import chain_sums

# The most numbers (steps times labels) of a part with more than one sequence.
PART_NUMBERS = 200_000
# The entries of X' in a block times labels, and the most blocks. Neither depends on the number of
# threads, because the bits of dense products depend on the shapes of their factors.
BLOCK_NUMBERS, MAX_BLOCKS = 300_000, 64
# The fewest features of a dense block: products of 2 rows take four times as long as those of 16.
BLOCK_FEATURES = 16
# The largest share of numbers other than 0 for which products of a sparse array are faster than
# those of an array: both take as long at .22 to .25, for 32 to 784 features and 5 to 26 labels.
SPARSE_SHARE = 0.2


@dataclass(frozen=True, eq=False)
class Part:
    """Sequences that follow each other, whose messages are passed together.

    Attributes
    ----------
    lengths : (sequences,) the number of steps of each.
    steps : their steps among all steps.
    """

    lengths: Array
    steps: slice


def parts_of(lengths: Array, labels: int) -> list[Part]:
    """Return the parts of sequences of these lengths, (sequences,); together they are all."""
    number = (np.cumsum(lengths) * labels - 1) // PART_NUMBERS
    out, end = [], 0
    for own in np.split(lengths, np.flatnonzero(np.diff(number)) + 1):
        begin, end = end, end + int(own.sum())
        out.append(Part(own, slice(begin, end)))
    return out


class Likelihood:
    """The negative log-likelihood of labelled sequences as a function of the weights.

    Parameters
    ----------
    steps : the features of all steps.
    codes : (steps,) number of the label of each step, -1 where it is not known.
    labels : the number of labels.
    weights : (sequences,) how often each sequence counts; None: once.

    Attributes
    ----------
    labels, features : the numbers of labels and of features.
    sizes : (features,) the largest absolute value of each feature.
    observed, observed_pairs : the gradient of the log weights of the labels of the parts of which
        all are known: sums of features by label, (features, labels), and numbers of pairs of
        successive labels, (labels, labels).
    """

    def __init__(
        self, steps: Steps, codes: Array, labels: int, weights: Array | None = None
    ) -> None:
        self.labels, self.features = labels, steps.values.shape[1]
        self.sizes = _sizes(steps.values)
        values = _with_fast_products(steps.values)
        self._parts = parts_of(steps.lengths, labels)
        self._values = [values[part.steps] for part in self._parts]
        self._blocks = _blocks_of_features(values, labels)
        owner = np.repeat(np.arange(len(steps.lengths)), steps.lengths)
        every = np.ones(len(steps.lengths)) if weights is None else weights
        self._heavy = None if (every == 1).all() else every[owner][:, None]
        ends = np.cumsum([len(part.lengths) for part in self._parts])[:-1]
        self._weights = np.split(every, ends)
        # The states that are excluded in each part with a label that is not known.
        self._excluded: list[Array | None] = []
        whole = np.ones(len(codes), dtype=bool)
        for part in self._parts:
            own = codes[part.steps]
            gaps = bool((own < 0).any())
            whole[part.steps] = not gaps
            others = (own[:, None] >= 0) & (own[:, None] != np.arange(labels))
            self._excluded.append(others if gaps else None)
        indicators = np.zeros((len(codes), labels))
        some = np.flatnonzero(whole)
        indicators[some, codes[some]] = every[owner[some]]
        self.observed = self._by_feature(indicators)
        self.observed_pairs = np.zeros((labels, labels))
        inside = (owner[1:] == owner[:-1]) & whole[1:]
        pairs = codes[:-1][inside], codes[1:][inside]
        np.add.at(self.observed_pairs, pairs, every[owner[1:][inside]])

    def _by_feature(self, values: Array) -> Array:
        """Return X' values, (features, labels)."""
        products = shared_out(lambda block: block @ values, self._blocks)
        return np.concatenate(list(products))

    def __call__(self, coef: Array, transitions: Array) -> tuple[float, Array, Array]:
        """Return the negative log-likelihood in nats, and its gradient.

        Parameters
        ----------
        coef : (features, labels) weights of features.
        transitions : (labels, labels) weights of transitions, from row to column.

        Returns
        -------
        The sum over sequences, and the gradients in the shapes of the parameters.
        """
        value = -float(np.vdot(self.observed, coef) + np.vdot(self.observed_pairs, transitions))
        marginals = np.full((self._parts[-1].steps.stop, self.labels), np.nan)

        def sums(k: int) -> tuple[float, Array]:
            part, weights, excluded = self._parts[k], self._weights[k], self._excluded[k]
            field = self._values[k] @ coef
            found = chain_sums(field, transitions, part.lengths, weights)
            if excluded is None:
                marginals[part.steps] = found.marginals
                return float(weights @ found.log_z), found.pairs
            near = np.where(excluded, -np.inf, field)
            seen = chain_sums(near, transitions, part.lengths, weights)
            marginals[part.steps] = found.marginals - seen.marginals
            return float(weights @ (found.log_z - seen.log_z)), found.pairs - seen.pairs

        found = list(shared_out(sums, range(len(self._parts))))
        log_z, pairs = sum(one for one, _ in found), sum(pairs for _, pairs in found)
        if self._heavy is not None:
            marginals *= self._heavy
        slope = self._by_feature(marginals) - self.observed
        return value + log_z, slope, pairs - self.observed_pairs


def _with_fast_products(values: Weight) -> Weight:
    """Return features as a sparse array if most of them are 0; otherwise as they are."""
    few = not issparse(values) and np.count_nonzero(values) <= SPARSE_SHARE * values.size
    return csr_array(values) if few else values


def _sizes(values: Weight) -> Array:
    """Return the largest absolute value of each column, (columns,)."""
    if not issparse(values):
        found: Array = np.abs(values).max(axis=0, initial=0.0)
        return found
    sizes = np.zeros(values.shape[1])
    np.maximum.at(sizes, values.indices, np.abs(values.data))
    return sizes


def _blocks_of_features(values: Weight, labels: int) -> list[Weight]:
    """Return X' in blocks of rows with equally many entries."""
    entries = values.nnz if issparse(values) else values.size
    most = values.shape[1] if issparse(values) else values.shape[1] // BLOCK_FEATURES
    count = max(1, min(MAX_BLOCKS, most, entries * labels // BLOCK_NUMBERS))
    if not issparse(values):
        turned = np.ascontiguousarray(values.T)
        return list(np.array_split(turned, count))
    turned = csr_array(values.T)
    share = np.arange(1, count) * turned.nnz / count
    cuts = [0, *np.searchsorted(turned.indptr, share).tolist(), turned.shape[0]]
    return [turned[a:b] for a, b in zip(cuts[:-1], cuts[1:], strict=True)]

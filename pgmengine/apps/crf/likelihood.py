"""The negative log-likelihood of a linear-chain conditional random field, and its gradient.

With features x_t and labels y_t, weights C (features, labels) and transitions T (labels, labels),

    log p(y | x) = sum_t x_t C[:, y_t] + sum_{t > 0} T[y_{t-1}, y_t] - log Z(x)

(Lafferty, McCallum and Pereira 2001). The gradient of the sum over sequences of -log p(y | x) is
expected counts minus observed counts: X' marginals - X' indicators for C, and the same for pairs
of neighbouring labels for T.

Layout: the steps of all sequences are one matrix X, in the order in which messages are passed
(`chain_sums`). Sequences of similar length form parts of at most PART_NUMBERS numbers, which fit
into caches and are shared among threads. The parts, and therefore all bits of the results, do not
depend on the number of threads. The product with X' is taken on the threads by blocks of features.
Features of which few are not 0 are kept as a sparse array, also where an array was given, because
its products are faster. The results differ by rounding only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array, issparse

from pgmengine.apps.crf.stacked_sequences import Steps
from pgmengine.base.types import Array, Weight
from pgmengine.base.work.threads import shared_out
from pgmengine.infer.exact.long_chains.chain_sums import Packing, chain_sums

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
    """Sequences of similar length, whose messages are passed together.

    Attributes
    ----------
    sequences : (sequences,) numbers of the sequences.
    packing : the order of their steps.
    steps : (steps,) places of their steps among all steps, in packed order.
    """

    sequences: Array
    packing: Packing
    steps: Array


def parts_of(lengths: Array, labels: int) -> list[Part]:
    """Return the parts of sequences of these lengths, (sequences,); together they are all."""
    order = np.argsort(-lengths, kind="stable")
    begin = np.cumsum(lengths) - lengths
    number = (np.cumsum(lengths[order]) * labels - 1) // PART_NUMBERS
    out = []
    for sequences in np.split(order, np.flatnonzero(np.diff(number)) + 1):
        packing = Packing.of(lengths[sequences])
        inner = np.cumsum(lengths[sequences]) - lengths[sequences]
        shift = (begin[sequences] - inner)[packing.chain]
        out.append(Part(sequences, packing, packing.source + shift))
    return out


class Likelihood:
    """The negative log-likelihood of labelled sequences as a function of the weights.

    Parameters
    ----------
    steps : the features of all steps.
    codes : (steps,) number of the label of each step.
    labels : the number of labels.

    Attributes
    ----------
    labels, features : the numbers of labels and of features.
    sizes : (features,) the largest absolute value of each feature.
    observed, observed_pairs : the gradient of the log weights of the given labels: sums of features
        by label, (features, labels), and numbers of pairs of successive labels, (labels, labels).
    """

    def __init__(self, steps: Steps, codes: Array, labels: int) -> None:
        self.labels, self.features = labels, steps.values.shape[1]
        self.sizes = _sizes(steps.values)
        parts = parts_of(steps.lengths, labels)
        order = np.concatenate([part.steps for part in parts])
        values, codes = _with_fast_products(steps.values)[order], codes[order]
        self._packings = [part.packing for part in parts]
        ends = np.cumsum([len(part.steps) for part in parts])
        self._places = [
            slice(int(e) - len(p.steps), int(e)) for e, p in zip(ends, parts, strict=True)
        ]
        self._values = [values[place] for place in self._places]
        self._blocks = _blocks_of_features(values, labels)
        indicators = np.zeros((len(order), labels))
        indicators[np.arange(len(order)), codes] = 1.0
        self.observed = self._by_feature(indicators)
        self.observed_pairs = np.zeros((labels, labels))
        for place, packing in zip(self._places, self._packings, strict=True):
            for now, before in packing.steps():
                pair = codes[place][before], codes[place][now]
                np.add.at(self.observed_pairs, pair, 1.0)

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
        marginals = np.full((self._places[-1].stop, self.labels), np.nan)

        def sums(k: int) -> tuple[float, Array]:
            found = chain_sums(self._values[k] @ coef, transitions, self._packings[k])
            marginals[self._places[k]] = found.marginals
            return float(found.log_z.sum()), found.pairs

        found = list(shared_out(sums, range(len(self._places))))
        log_z, pairs = sum(one for one, _ in found), sum(pairs for _, pairs in found)
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

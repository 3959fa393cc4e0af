"""Sequences of features and of labels, stacked: the steps of all sequences, one below the other.

A sequence of numbers is an array or a scipy.sparse matrix (steps, features). A sequence of items
has at each step a dict of features, or a list of the names of features whose value is 1. Items are
read as sklearn-crfsuite reads them, except that the name of a feature with a text is "word=walk":

    {"word": "walk"}          "word=walk" is 1        {"length": 4}     "length" is 4
    {"tags": ["a", "b"]}      "tags=a", "tags=b"      {"title": True}   "title" is 1, or 0 for False
    {"last": {"word": "I"}}   "last:word=I" is 1      ["walk", "ing"]   "walk", "ing" are 1
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, TypeAlias

import numpy as np
from scipy.sparse import csr_array, issparse, vstack

from pgmengine.base.checks import is_missing, real
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, Weight
from pgmengine.evidence.frames import in_order, names_of_columns
from pgmengine.model.containers import array_of

# The largest size of a feature: squares of gradients stay finite.
MAX_FEATURE = 1e100

# Features of sequences as users give them, and labels of sequences.
Sequences: TypeAlias = "Sequence[Any]"
Labels: TypeAlias = "Sequence[Any]"


@dataclass(frozen=True, eq=False)
class Steps:
    """The steps of all sequences.

    Attributes
    ----------
    values : (steps, features) array or scipy.sparse CSR array.
    lengths : (sequences,) number of steps of each sequence.
    """

    values: Weight
    lengths: Array


class BySequence(list[Any]):
    """A list with an array for each sequence, which numpy reads as an array of arrays.

    numpy refuses lists of arrays of different lengths, and scikit-learn's `cross_val_predict` joins
    predictions by numpy.
    """

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        out = np.empty(len(self), dtype=object)
        for i, part in enumerate(self):
            out[i] = part
        return out


def divided(values: Array, lengths: Array) -> list[Array]:
    """Return the values of all steps, (steps, ...), as an array for each sequence."""
    return BySequence(np.split(values, np.cumsum(lengths)[:-1]) if len(lengths) else [])


def listed_sequences(given: object, what: str) -> list[Any]:
    """Return sequences as a list; PgmError for anything that does not hold sequences."""
    if isinstance(given, (str, Mapping)) or issparse(given) or not isinstance(given, Iterable):
        raise PgmError(
            f"{what} must be a list of sequences, not {type(given).__name__}; for a single "
            f"sequence give [{what}]"
        )
    return [
        one.tolist()
        if isinstance(one, np.ndarray) and one.dtype == object and one.ndim == 1
        else one
        for one in given
    ]


def holds_items(sequences: Sequence[Any]) -> bool:
    """Return whether sequences have dicts or names at their steps, and not rows of numbers."""
    for sequence in sequences:
        if isinstance(sequence, (list, tuple)):
            for item in sequence:
                if isinstance(item, (Mapping, set, frozenset)):
                    return True
                if isinstance(item, (list, tuple)) and any(isinstance(name, str) for name in item):
                    return True
    return False


# ---- numbers ----


def numbered(features: int) -> list[str]:
    """Return the names of features that have numbers."""
    return [f"x{i}" for i in range(features)]


def by_columns(
    sequences: Sequence[Any], names: Sequence[str] | None
) -> tuple[list[Any], list[str] | None]:
    """Return sequences with the columns of frames in one order, and the names of the columns.

    Parameters
    ----------
    sequences : frames, whose columns may have names, or other sequences of numbers.
    names : the names in their order; None if the first frame decides.

    Raises
    ------
    PgmError
        For a frame with other columns.
    """
    own = (names_of_columns(x, f"X: sequence {i}") for i, x in enumerate(sequences))
    known = next((found for found in own if found is not None), None) if names is None else names
    ordered = [in_order(x, known, f"X: sequence {i}") for i, x in enumerate(sequences)]
    return ordered, None if known is None else list(known)


def stacked_numbers(sequences: Sequence[Any], features: int | None) -> Steps:
    """Return the steps of sequences of numbers.

    Parameters
    ----------
    sequences : arrays, lists or sparse matrices (steps, features); a sequence without a step may
        also be an empty list.
    features : the number of features, None if the sequences decide.

    Raises
    ------
    PgmError
        For sequences of another shape or of different numbers of features, and for entries that
        are no finite numbers.
    """
    expected, given = "as in fit", features
    parts, lengths = [], []
    for i, sequence in enumerate(sequences):
        part = _numbers(sequence, f"X: sequence {i}")
        lengths.append(part.shape[0])
        if part.shape == (0, 0):
            continue
        if given is None:
            given, expected = part.shape[1], f"as in sequence {i}"
        if part.shape[1] != given:
            raise PgmError(
                f"X: sequence {i} has {part.shape[1]} features, expected {given} {expected}"
            )
        parts.append(part)
    sizes = np.array(lengths, dtype=np.int64)
    if any(issparse(part) for part in parts):
        return Steps(csr_array(vstack([csr_array(part) for part in parts], format="csr")), sizes)
    return Steps(np.concatenate(parts) if parts else np.zeros((0, given or 0)), sizes)


def _numbers(sequence: Any, where: str) -> Weight:
    """Return one sequence as an array or a CSR array of finite numbers, (0, 0) if it is empty."""
    if issparse(sequence):
        part = csr_array(sequence)
        if part.dtype.kind not in "biuf":
            raise PgmError(f"{where} is a sparse matrix of {part.dtype}, expected real numbers")
        part = part.astype(np.float64)
        for k in np.flatnonzero(~(np.abs(part.data) <= MAX_FEATURE))[:1]:
            step = int(np.searchsorted(part.indptr, k, side="right")) - 1
            _refuse_number(where, step, int(part.indices[k]), float(part.data[k]))
        return part
    try:
        array = array_of(sequence, where)
    except PgmError as error:
        raise PgmError(f"{error}; expected an array (steps, features)") from None
    if array.size == 0 and array.ndim < 2:
        return np.zeros((0, 0))
    if array.ndim != 2:
        raise PgmError(
            f"{where} has the shape {array.shape}, expected an array (steps, features), or a dict "
            f"or a list of names for each step{_advice(array)}"
        )
    if array.dtype.kind not in "biuf":
        for (step, feature), value in np.ndenumerate(array):
            if not abs(_number(value)) <= MAX_FEATURE:
                _refuse_number(where, step, feature, value)
    array = array.astype(np.float64)
    for step, feature in np.argwhere(~(np.abs(array) <= MAX_FEATURE))[:1]:
        _refuse_number(where, int(step), int(feature), float(array[step, feature]))
    return array


def _advice(array: Array) -> str:
    """Return how to give a sequence that has a symbol at each step, as the end of a message."""
    if array.ndim != 1:
        return ""
    # A number would count as the size of one feature.
    as_name = "x" if array.dtype.kind in "OU" else "str(x)"
    return f'; if each step has a symbol, give [{{"symbol": {as_name}}} for x in sequence]'


def _number(value: object) -> float:
    """Return a number or a boolean as a float, NaN for everything else."""
    return float(value) if isinstance(value, (bool, np.bool_)) else real(value)


def _refuse_number(where: str, step: int, feature: int | str, value: object) -> None:
    raise PgmError(
        f"{where}, step {step}, feature {feature!r}: {value!r:.60}, expected a number of at most "
        f"{MAX_FEATURE:g} in size"
    )


# ---- items ----


def stacked_items(
    sequences: Sequence[Any], column: Mapping[str, int] | None
) -> tuple[Steps, list[str]]:
    """Return the steps of sequences of items, and the names of the features in order.

    Parameters
    ----------
    sequences : lists with a dict of features, or a list of names, for each step.
    column : the columns 0, 1, ... of the features that have a weight, in order; others are ignored.
        None: all that occur, sorted.

    Raises
    ------
    PgmError
        For items and features of other types, and for numbers that are not finite.
    """
    items, lengths = list[Any](), list[int]()
    for i, sequence in enumerate(sequences):
        if not isinstance(sequence, (list, tuple)) and _has_steps(sequence):
            raise PgmError(
                f"X: sequence {i} is of type {type(sequence).__name__}, expected a list with a "
                "dict or a list of names for each step, as in other sequences"
            )
        own = sequence if isinstance(sequence, (list, tuple)) else ()
        lengths.append(len(own))
        items += own
    plain = _plain_features(items)
    if plain is not None:
        matrix, order = _matrix_of(*plain, column)
        # A feature that a step has twice counts once.
        if matrix.has_canonical_format:
            return Steps(matrix, np.array(lengths, dtype=np.int64)), order
    found = _features_of_steps(items, lengths)
    matrix, order = _matrix_of(
        [len(one) for one in found],
        [*chain.from_iterable(found)],
        np.array([*chain.from_iterable(one.values() for one in found)], dtype=np.float64),
        column,
    )
    return Steps(matrix, np.array(lengths, dtype=np.int64)), order


def _plain_features(items: Sequence[Any]) -> tuple[Sequence[int], list[str], Array] | None:
    """Return the features of steps by calls for all of them: numbers, names and values.

    None where an item is neither a dict of numbers and texts nor, with all others, a list of names;
    `features_of` then reads the items one by one, in three times the time.
    """
    kinds = {*map(type, items)}
    keys = [*chain.from_iterable(items)] if kinds == {dict} or kinds == {list} else []
    if {*map(type, keys)} != {str}:
        return None
    counts = [*map(len, items)]
    if kinds == {list}:
        return counts, keys, np.ones(len(keys))
    given = [*chain.from_iterable(map(dict.values, items))]
    types = {*map(type, given)}
    if not types <= {float, int, bool, str}:
        return None
    if str in types:
        pairs = [*zip(keys, given, strict=True)]
        keys = [f"{key}={value}" if type(value) is str else key for key, value in pairs]
        given = [1.0 if type(value) is str else value for value in given]
    try:
        values = np.array(given, dtype=np.float64)
    except OverflowError:
        return None
    return (counts, keys, values) if (np.abs(values) <= MAX_FEATURE).all() else None


def _features_of_steps(items: Sequence[Any], lengths: Sequence[int]) -> list[dict[str, float]]:
    """Return the features of each step; an error names its sequence and its step."""
    places = ((i, step) for i, steps in enumerate(lengths) for step in range(steps))
    return [
        features_of(item, f"X: sequence {i}, step {step}")
        for item, (i, step) in zip(items, places, strict=True)
    ]


def _matrix_of(
    counts: Sequence[int], found: Sequence[str], values: Array, column: Mapping[str, int] | None
) -> tuple[Any, list[str]]:
    """Return a CSR array of steps that have so many of the features each, and the names of columns.

    Parameters
    ----------
    counts : the number of features of each step.
    found, values : the names and the values of the features of all steps, step by step.
    column : as in `stacked_items`.
    """
    if column is None:
        column = {name: i for i, name in enumerate(sorted({*found}))}
    columns = np.fromiter(map(column.get, found, repeat(-1)), np.int64, len(found))
    start = np.append(0, np.cumsum(np.array(counts, dtype=np.int64)))
    known = columns >= 0
    if not known.all():
        start = np.append(0, np.cumsum(known))[start]
        columns, values = columns[known], values[known]
    matrix = csr_array((values, columns, start), shape=(len(counts), len(column)))
    matrix.sort_indices()
    return matrix, [*column]


def _has_steps(sequence: Any) -> bool:
    """Return whether an object that is no list has steps, as far as its shape says."""
    shape = sequence.shape if issparse(sequence) else np.shape(sequence)
    return not shape or shape[0] > 0


def features_of(item: object, where: str = "item") -> dict[str, float]:
    """Return the features of one step, name -> value.

    Raises
    ------
    PgmError
        If the item is no dict and no list of names, or a feature is of another type or not finite.

    Examples
    --------
    >>> features_of({"word": "walk", "title": False, "last": {"length": 2}, "ends": ["k", "lk"]})
    {'word=walk': 1.0, 'title': 0.0, 'last:length': 2.0, 'ends=k': 1.0, 'ends=lk': 1.0}
    """
    found: dict[str, float] = {}
    # The types of nearly all items and values are asked first: the others take ten times as long.
    if type(item) is dict or isinstance(item, Mapping):
        _add(found, item, "", where)
    elif isinstance(item, (list, tuple, set, frozenset)):
        _add_names(found, item, "", where)
    else:
        raise PgmError(
            f"{where}: {item!r:.60} is of type {type(item).__name__}, expected a dict of features "
            "or a list of their names"
        )
    return found


def _add(found: dict[str, float], item: Mapping[Any, Any], prefix: str, where: str) -> None:
    """Add the features of a dict, whose names follow the prefix."""
    for key, value in item.items():
        if not isinstance(key, str):
            raise PgmError(f"{where}: the feature {key!r:.60} has no text as its name")
        if type(value) is float and -MAX_FEATURE <= value <= MAX_FEATURE:
            found[prefix + key] = value
        elif isinstance(value, str):
            found[f"{prefix}{key}={value}"] = 1.0
        elif isinstance(value, Mapping):
            _add(found, value, f"{prefix}{key}:", where)
        elif isinstance(value, (list, tuple, set, frozenset)):
            _add_names(found, value, f"{prefix}{key}=", where)
        elif abs(number := _number(value)) <= MAX_FEATURE:
            found[f"{prefix}{key}"] = number
        else:
            raise PgmError(
                f"{where}, feature {prefix + key!r}: {value!r:.60}, expected a number of at most "
                f"{MAX_FEATURE:g} in size, a boolean, a text, a list of texts, or a dict"
            )


def _add_names(found: dict[str, float], names: Iterable[Any], prefix: str, where: str) -> None:
    """Add features with the value 1, whose names follow the prefix."""
    for name in names:
        if not isinstance(name, str):
            raise PgmError(
                f"{where}: {name!r:.60} in a list of names is of type {type(name).__name__}, "
                "expected a text"
            )
        found[prefix + name] = 1.0


# ---- labels ----


def stacked_labels(y: Labels, lengths: Array, gaps: bool = False) -> list[Any]:
    """Return the labels of all steps, None where a label is not known.

    Parameters
    ----------
    y : a sequence of labels for each sequence.
    lengths : (sequences,) number of steps of each sequence.
    gaps : whether labels may be missing: None, NaN, or the missing value of pandas.

    Raises
    ------
    PgmError
        For other numbers of sequences or steps, and for labels that are no texts or numbers.
    """
    sequences, out = listed_sequences(y, "y"), list[Any]()
    if len(sequences) != len(lengths):
        raise PgmError(
            f"y has {len(sequences)} sequences, expected {len(lengths)}, one for each of X"
        )
    for i, sequence in enumerate(sequences):
        # A tuple in the place of a label is refused as one label, with its step.
        given = list(sequence) if isinstance(sequence, tuple) else sequence
        labels = array_of(given, f"y: sequence {i}", lambda _: True).tolist()
        if not isinstance(labels, list):
            raise PgmError(f"y: sequence {i} is {sequence!r:.60}, expected a list of labels")
        if len(labels) != lengths[i]:
            raise PgmError(
                f"y: sequence {i} has {len(labels)} labels, expected {lengths[i]}, one for each "
                "step of X"
            )
        for step, label in enumerate(labels):
            if gaps and is_missing(label):
                labels[step] = None
            elif is_missing(label) or not (
                isinstance(label, str) or not math.isnan(_number(label))
            ):
                raise PgmError(
                    f"y: sequence {i}, step {step}: {label!r:.60}, expected a text or a number"
                )
        out += labels
    return out


def classes_of(labels: Sequence[Any], lengths: Array) -> tuple[Array, Array]:
    """Return the distinct labels, sorted, (labels,), and the number of each label, (steps,).

    The number of a label that is not known, None, is -1.

    Raises
    ------
    PgmError
        If texts and numbers are mixed, and if no label is known.
    """
    known = [step for step, label in enumerate(labels) if label is not None]
    if not known:
        raise PgmError(f"y: none of {len(labels)} labels is known, expected at least one")
    texts = [label is not None and isinstance(label, str) for label in labels]
    mixed = [step for step in known if texts[step] != texts[known[0]]]
    if mixed:
        other = mixed[0]
        ends = np.cumsum(lengths)
        i = int(np.searchsorted(ends, other, side="right"))
        raise PgmError(
            f"y: sequence {i}, step {other - (ends[i] - lengths[i])}: {labels[other]!r:.60} is "
            f"{'a text' if texts[other] else 'a number'}, and labels before it are "
            f"{'numbers' if texts[other] else 'texts'}; expected one kind of labels"
        )
    classes = sorted({labels[step] for step in known})
    number = {None: -1} | {label: i for i, label in enumerate(classes)}
    return np.array(classes), np.array([number[label] for label in labels], dtype=np.int64)

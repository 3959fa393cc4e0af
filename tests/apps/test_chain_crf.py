"""Conditional random fields of chains: likelihood, gradient, labels and weights by enumeration."""

import itertools
import pickle

import numpy as np
import pytest
from extras import extra
from loops import one_test_over
from scipy import sparse

import pgmengine as pgm
from pgmengine.apps.crf import likelihood as objective
from pgmengine.apps.crf.likelihood import Likelihood
from pgmengine.apps.crf.minimise import minimise
from pgmengine.apps.crf.stacked_sequences import Steps, features_of, stacked_items
from pgmengine.base.errors import PgmError

extra("sklearn")
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score

from pgmengine.sklearn import ChainCRF

LABELS = ("ant", "bee", "cat")


def path_scores(x, coef, transitions):
    """Path -> log weight, for all paths of a sequence of features (steps, features)."""
    steps, labels = len(x), coef.shape[1]
    return {
        path: sum(x[t] @ coef[:, path[t]] for t in range(steps))
        + sum(transitions[path[t - 1], path[t]] for t in range(1, steps))
        for path in itertools.product(range(labels), repeat=steps)
    }


def loss(X, codes, coef, transitions):
    """The negative log-likelihood by enumeration."""
    total = 0.0
    for x, path in zip(X, codes):
        if len(x):
            scores = path_scores(x, coef, transitions)
            total += np.logaddexp.reduce(list(scores.values())) - scores[tuple(path)]
    return total


def sequences(seed, labels=3, features=4, count=8, longest=4, zeros=0.4):
    """Random sequences of numbers with zeros, some without a step, and numbers of their labels."""
    rng = np.random.default_rng(seed)
    lengths = rng.permutation(np.append(rng.integers(0, longest + 1, count), [0, 1, longest]))
    X = [rng.normal(size=(n, features)) * (rng.random((n, features)) > zeros) for n in lengths]
    codes = [rng.integers(0, labels, n) for n in lengths]
    # Every label occurs.
    X.append(rng.normal(size=(labels, features)))
    codes.append(np.arange(labels))
    return X, codes


def named(codes):
    return [[LABELS[k] for k in part] for part in codes]


def likelihood(X, codes, labels, kind=np.asarray):
    """The objective without the terms of the weights."""
    lengths = np.array([len(x) for x in X])
    return Likelihood(Steps(kind(np.concatenate(X)), lengths), np.concatenate(codes), labels)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("labels", [1, 2, 3])
def test_likelihood_and_gradient_are_those_over_all_paths(kind, labels, step=1e-5):
    for seed in range(3):
        X, codes = sequences(seed, labels)
        rng = np.random.default_rng(seed + 100)
        coef, transitions = rng.normal(size=(4, labels)), rng.normal(size=(labels, labels))
        value, slope, pairs = likelihood(X, codes, labels, kind)(coef, transitions)
        assert value == pytest.approx(loss(X, codes, coef, transitions), abs=1e-9)
        for given, found in ((coef, slope), (transitions, pairs)):
            for place in np.ndindex(given.shape):
                ends = []
                for sign in (1, -1):
                    given[place] += sign * step
                    ends.append(loss(X, codes, coef, transitions))
                    given[place] -= sign * step
                assert found[place] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-6)


def test_labels_that_are_not_known_are_summed_over(monkeypatch, step=1e-5):
    """The objective is that over all completions of the labels, times the weight of a sequence."""
    monkeypatch.setattr(objective, "PART_NUMBERS", 8)
    labels = 2
    X, codes = sequences(0, labels)
    rng = np.random.default_rng(7)
    gaps = [
        np.where((rng.random(len(part)) < 0.5) & (i % 4 == 0), -1, part)
        for i, part in enumerate(codes)
    ]
    weights = rng.integers(0, 4, len(X)).astype(float)

    def expected(coef, transitions):
        total = 0.0
        for x, part, weight in zip(X, gaps, weights, strict=True):
            open_ = np.flatnonzero(part < 0)
            every = []
            for states in itertools.product(range(labels), repeat=len(open_)):
                whole = part.copy()
                whole[open_] = states
                every.append(-loss([x], [whole], coef, transitions))
            total -= weight * np.logaddexp.reduce(every)
        return total

    steps = Steps(np.concatenate(X), np.array([len(x) for x in X]))
    found = Likelihood(steps, np.concatenate(gaps), labels, weights)
    assert any(one is None for one in found._excluded) and not all(
        one is None for one in found._excluded
    )
    coef, transitions = rng.normal(size=(4, labels)), rng.normal(size=(labels, labels))
    value, slope, pairs = found(coef, transitions)
    assert value == pytest.approx(expected(coef, transitions), abs=1e-9)
    for given, own in ((coef, slope), (transitions, pairs)):
        for place in np.ndindex(given.shape):
            ends = []
            for sign in (1, -1):
                given[place] += sign * step
                ends.append(expected(coef, transitions))
                given[place] -= sign * step
            assert own[place] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-5)


def test_gaps_and_weights_of_sequences_are_learned_and_predictions_are_joined():
    X, codes = sequences(3, 3, count=12)
    y = [[LABELS[k] for k in part] for part in codes]
    twice = ChainCRF().fit(X + X[:4], y + y[:4])
    weighted = ChainCRF().fit(X, y, sample_weight=[2.0] * 4 + [1.0] * (len(X) - 4))
    np.testing.assert_allclose(weighted.coef_, twice.coef_, atol=1e-3)
    some = [[None if i % 3 == 0 else label for i, label in enumerate(part)] for part in y]
    assert set(ChainCRF().fit(X, some).classes_) <= set(LABELS)
    joined = cross_val_predict(ChainCRF(), X, y, cv=3)
    assert [len(part) for part in joined] == [len(x) for x in X]


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_parts_and_threads_do_not_change_the_likelihood(kind, monkeypatch):
    """Many parts give the likelihood of one part, and threads the same bits."""
    X, codes = sequences(0, count=40)
    rng = np.random.default_rng(1)
    weights = rng.normal(size=(4, 3)), rng.normal(size=(3, 3))
    whole = likelihood(X, codes, 3, kind)(*weights)
    monkeypatch.setattr(objective, "PART_NUMBERS", 20)
    monkeypatch.setattr(objective, "BLOCK_NUMBERS", 60)
    monkeypatch.setattr(objective, "BLOCK_FEATURES", 2)
    monkeypatch.setenv("PGMENGINE_THREADS", "1")
    alone = likelihood(X, codes, 3, kind)(*weights)
    monkeypatch.setenv("PGMENGINE_THREADS", "3")
    together = likelihood(X, codes, 3, kind)
    assert len(together._parts) > 3 and len(together._blocks) > 1
    found = together(*weights)
    for one, two, three in zip(whole, alone, found):
        np.testing.assert_allclose(one, two, atol=1e-10)
        np.testing.assert_array_equal(two, three)


def test_features_of_which_few_are_not_0_are_kept_sparse(monkeypatch):
    X, codes = sequences(0, count=40)
    X = [np.where(np.random.default_rng(i).random(x.shape) < 0.15, x, 0) for i, x in enumerate(X)]
    rng = np.random.default_rng(1)
    weights = rng.normal(size=(4, 3)), rng.normal(size=(3, 3))
    few = likelihood(X, codes, 3)
    monkeypatch.setattr(objective, "SPARSE_SHARE", 0)
    dense = likelihood(X, codes, 3)
    assert sparse.issparse(few._values[0]) and not sparse.issparse(dense._values[0])
    for one, two in zip(few(*weights), dense(*weights)):
        np.testing.assert_allclose(one, two, atol=1e-10)
    np.testing.assert_array_equal(few.sizes, dense.sizes)


@one_test_over("form", ["dense", "sparse", "mixed", "dicts"])
def test_labels_and_marginals_are_those_over_all_paths(form):
    X, codes = sequences(5)
    given = {
        "dense": X,
        "sparse": [sparse.csr_matrix(x) for x in X],
        "mixed": [sparse.coo_array(x) if i % 2 else x.tolist() for i, x in enumerate(X)],
        "dicts": [[{f"f{j}": v for j, v in enumerate(step)} for step in x] for x in X],
    }[form]
    crf = ChainCRF(l2=0.05, tol=1e-9).fit(given, named(codes))
    assert crf.classes_.tolist() == list(LABELS) and crf.coef_.shape == (4, 3)
    paths, marginals = crf.predict(given), crf.predict_marginals(given)
    for x, path, marginal in zip(X, paths, marginals):
        assert marginal.shape == (len(x), 3) and len(path) == len(x)
        if len(x):
            scores = path_scores(x, crf.coef_, crf.transitions_)
            best = max(scores, key=scores.get)
            assert path.tolist() == [LABELS[k] for k in best]
            log_z = np.logaddexp.reduce(list(scores.values()))
            expected = np.zeros((len(x), 3))
            for p, score in scores.items():
                expected[np.arange(len(x)), p] += np.exp(score - log_z)
            np.testing.assert_allclose(marginal, expected, atol=1e-9)
    right = sum(
        LABELS[k] == label for part, path in zip(codes, paths) for k, label in zip(part, path)
    )
    assert crf.score(given, named(codes)) == pytest.approx(right / sum(map(len, codes)))


@one_test_over(("l1", "l2"), [(0.0, 0.3), (0.7, 0.0), (0.4, 0.1)])
def test_the_objective_is_at_its_minimum(l1, l2, rounding=2e-4):
    """The subgradient by finite differences of the enumerated loss is 0 at the weights found."""
    X, codes = sequences(7, count=14)
    crf = ChainCRF(l1, l2, tol=1e-12).fit(X, named(codes))
    w = np.concatenate([crf.coef_.ravel(), crf.transitions_.ravel()])
    smooth = likelihood(X, codes, 3)
    value, *slopes = smooth(crf.coef_, crf.transitions_)
    assert value == pytest.approx(loss(X, codes, crf.coef_, crf.transitions_), abs=1e-9)
    assert crf.objective_ == pytest.approx(value + l1 * np.abs(w).sum() + l2 * w @ w, abs=1e-9)
    slope = np.concatenate([part.ravel() for part in slopes]) + 2 * l2 * w
    at_zero = w == 0
    assert at_zero.any() == (l1 > 0)
    assert np.abs(slope[at_zero]).max(initial=0) <= l1 + rounding
    assert np.abs(slope + l1 * np.sign(w))[~at_zero].max() < rounding


def test_the_minimum_of_a_quadratic_with_l1_is_known():
    """For sum a (w - b)^2 + l1 |w| each coordinate is b, shrunk by l1 / 2 a."""
    rng = np.random.default_rng(2)
    a, b = rng.uniform(0.1, 10, 30), rng.normal(size=30)
    found = minimise(
        lambda w: (float(a @ (w - b) ** 2), 2 * a * (w - b)),
        np.zeros(30),
        np.full(30, 0.8),
        1e-14,
        500,
    )
    expected = np.sign(b) * np.maximum(np.abs(b) - 0.4 / a, 0)
    np.testing.assert_allclose(found.point, expected, atol=1e-5)
    assert found.converged and ((found.point == 0) == (expected == 0)).all()


def crfsuite(X, y, l1, l2, path):
    """The objective and the weights that CRFsuite finds: attribute and label, label pairs."""
    peer = pytest.importorskip(
        "pycrfsuite", reason="pycrfsuite is not installed: pip install python-crfsuite"
    )
    trainer = peer.Trainer(verbose=False)
    for x, labels in zip(X, y):
        if labels:
            trainer.append(peer.ItemSequence(x), labels)
    exact = {"epsilon": 1e-9, "delta": 1e-12, "max_iterations": 5000}
    every = {"feature.possible_states": True, "feature.possible_transitions": True}
    # It drops features whose values have a smaller sum.
    every["feature.minfreq"] = -1e9
    trainer.set_params({"c1": l1, "c2": l2} | exact | every)
    trainer.train(str(path))
    tagger = peer.Tagger()
    tagger.open(str(path))
    info = tagger.info()
    return trainer.logparser.last_iteration["loss"], info.state_features, info.transitions


@one_test_over(("l1", "l2"), [(0.0, 1.0), (0.0, 0.02), (1.0, 0.0), (0.3, 0.1)])
def test_the_optimum_is_that_of_crfsuite(l1, l2, tmp_path, close=1e-4):
    X, codes = sequences(11, features=6, count=60)
    y = named(codes)
    items = [[{f"x{j}": float(v) for j, v in enumerate(step)} for step in x] for x in X]
    value, states, moves = crfsuite(items, y, l1, l2, tmp_path / "peer.crfsuite")
    crf = ChainCRF(l1, l2, tol=1e-12).fit(X, y)
    assert crf.objective_ == pytest.approx(value, rel=close)
    for j, name in enumerate(crf.feature_names_):
        for k, label in enumerate(LABELS):
            assert crf.coef_[j, k] == pytest.approx(states.get((name, label), 0.0), abs=30 * close)
    for (i, before), (j, after) in itertools.product(enumerate(LABELS), repeat=2):
        found = crf.transitions_[i, j]
        assert found == pytest.approx(moves.get((before, after), 0.0), abs=30 * close)


def test_items_are_read_as_crfsuite_reads_them():
    """The values are CRFsuite's; names with a text have "=" here and ":" there."""
    items = [
        {"word": "walk", "n": 2, "yes": True, "no": False, "f": np.float32(0.5)},
        {"tags": ["u", "v", "u"], "inner": {"a": 1.5, "deep": {"k": "t"}}, "s": {"m"}, "e": ""},
        {"i": np.int64(3), "b": np.True_, "none": [], "zero": 0.0},
        ["p", "q", "p"],
        {"r"},
        {},
    ]
    found = [features_of(item) for item in items]
    assert found[0] == {"word=walk": 1, "n": 2, "yes": 1, "no": 0, "f": 0.5}
    assert found[1] == {
        "tags=u": 1, "tags=v": 1, "inner:a": 1.5, "inner:deep:k=t": 1, "s=m": 1, "e=": 1,
    }  # fmt: skip
    assert found[2:] == [{"i": 3, "b": 1, "zero": 0}, {"p": 1, "q": 1}, {"r": 1}, {}]
    peer = pytest.importorskip(
        "pycrfsuite", reason="pycrfsuite is not installed: pip install python-crfsuite"
    )
    for item, ours in zip(items, found):
        plain = {k.replace("=", ":"): v for k, v in ours.items()}
        # Its numbers are Python's.
        given = (
            {k: v.item() if isinstance(v, np.generic) else v for k, v in item.items()}
            if (isinstance(item, dict))
            else item
        )
        assert peer.ItemSequence([given]).items() == [plain]


@one_test_over(
    "items",
    [
        [{"a": 1.5, "b": 2, "t": True, "f": False}, {}, {"w": "x", "a": 0.0}, {"w": ""}],
        [["p", "q", "p"], [], ["r"]],
        [{"a=b": 2.5, "a": "b"}, {"c": 1.0}],
        [{"a": 1.0}, ["b"], {"c": ["d", "e"], "f": np.float64(2)}],
    ],
)
@pytest.mark.parametrize("names", [None, ["w=", "q", "b", "a", "a=b", "c=e"]])
def test_steps_read_together_are_those_read_one_by_one(items, names):
    """Also names of features twice in a step, and steps that are read one by one."""
    X = [items[:2], [], items[2:]]
    column = names and {name: i for i, name in enumerate(names)}
    steps, order = stacked_items(X, column)
    found = [features_of(item) for item in items]
    assert order == (names or sorted({name for one in found for name in one}))
    expected = [[one.get(name, 0.0) for name in order] for one in found]
    np.testing.assert_array_equal(steps.values.toarray(), expected)
    assert steps.lengths.tolist() == [2, 0, len(items) - 2]


def test_unseen_features_are_ignored_and_columns_keep_their_names():
    X = [[{"b": 1.0, "a": 2.0}, {"c": "z"}], [["a"]]]
    steps, names = stacked_items(X, None)
    assert names == ["a", "b", "c=z"]
    np.testing.assert_array_equal(steps.values.toarray(), [[2, 1, 0], [0, 0, 1], [1, 0, 0]])
    crf = ChainCRF().fit(X, [["u", "v"], ["u"]])
    assert crf.feature_names_ == names and crf.n_features_in_ == 3
    more = [[{"b": 1.0, "a": 2.0, "new": 5.0, "c": "w"}, {"c": "z"}], [["a", "other"]]]
    for one, two in zip(crf.predict_marginals(X), crf.predict_marginals(more)):
        np.testing.assert_array_equal(one, two)


def test_the_template_answers_other_questions():
    """A label that is given moves the others as enumeration says."""
    X, codes = sequences(13, longest=4)
    crf = ChainCRF(l2=0.1).fit(X, named(codes))
    x = X[-1]
    [result] = pgm.infer(
        crf.template_,
        [{"y": [None, "cat", None]}],
        soft=crf.soft_evidence([x]),
        want=("marginals", "log_z"),
    )
    scores = path_scores(x, crf.coef_, crf.transitions_)
    kept = {path: score for path, score in scores.items() if path[1] == LABELS.index("cat")}
    log_z = np.logaddexp.reduce(list(kept.values()))
    assert result.kind == "exact" and result.log_z[0] == pytest.approx(log_z, abs=1e-9)
    for k, label in enumerate(LABELS):
        expected = sum(np.exp(s - log_z) for path, s in kept.items() if path[2] == k)
        assert result.marginal("y[2]")[label] == pytest.approx(expected, abs=1e-9)


@one_test_over(
    "labels", [[2, 10, 7], [1.5, 0.5, 3.0], [False, True], ["only"], [np.str_("u"), "v"], ["", "b"]]
)
def test_labels_of_every_kind_come_back(labels):
    """One feature for each label makes the labels certain."""
    X = [np.eye(len(labels))[[0, *range(len(labels))]] for _ in range(3)]
    y = [[labels[0], *labels] for _ in X]
    crf = ChainCRF(l2=0.001).fit(X, y)
    assert crf.classes_.tolist() == sorted(labels)
    assert [path.tolist() for path in crf.predict(X)] == y
    assert [path.tolist() for path in crf.predict([X[0][:1]])] == [[labels[0]]]
    assert crf.score(X, [np.array(part) for part in y]) == 1.0


def test_sequences_without_steps_have_no_labels():
    X, codes = sequences(17)
    crf = ChainCRF().fit(X, named(codes))
    for empty in ([], np.zeros((0, 4)), np.zeros((0, 0)), sparse.csr_array((0, 4))):
        assert [len(part) for part in crf.predict([empty, X[-1]])] == [0, 3]
        assert [part.shape for part in crf.predict_marginals([empty])] == [(0, 3)]
    assert crf.predict([]) == [] and crf.predict_marginals([]) == []
    assert np.isnan(crf.score([[]], [[]]))
    # They do not change the weights.
    kept = [i for i, x in enumerate(X) if len(x)]
    other = ChainCRF().fit([X[i] for i in kept], [named(codes)[i] for i in kept])
    np.testing.assert_allclose(crf.coef_, other.coef_, atol=1e-3)
    items = ChainCRF().fit([[], [["a"]]], [[], ["u"]])
    given = [[], [["a"]], np.zeros((0, 2)), sparse.csr_array((0, 2)), ()]
    assert [len(part) for part in items.predict(given)] == [0, 1, 0, 0, 0]
    with pytest.raises(PgmError, match="sequence 1 is of type csr_array"):
        items.predict([[], sparse.csr_array((2, 2))])


def test_sequences_of_objects_are_lists():
    """numpy makes arrays of objects from lists of dicts, and from ragged lists."""
    X, y = [[{"a": 1.0}, {"b": 2.0}], [{"a": 1.0}]], [["u", "v"], ["u"]]
    crf = ChainCRF().fit(X, y)
    ragged = np.empty(2, dtype=object)
    ragged[:] = [np.array(x) for x in X]
    labels = np.empty(2, dtype=object)
    labels[:] = y
    other = ChainCRF().fit(ragged, labels)
    np.testing.assert_array_equal(crf.coef_, other.coef_)


def test_an_unknown_label_counts_as_wrong():
    X, codes = sequences(19)
    crf = ChainCRF().fit(X, named(codes))
    y = [path.tolist() for path in crf.predict(X)]
    assert crf.score(X, y) == 1.0
    y[-1][0] = "dog"
    assert crf.score(X, y) == pytest.approx(1 - 1 / sum(map(len, y)))


def test_it_is_an_estimator_of_scikit_learn():
    X, codes = sequences(23, count=30)
    y = named(codes)
    crf = ChainCRF(l1=0.5, l2=0.2, max_iter=77)
    assert clone(crf).get_params() == {"l1": 0.5, "l2": 0.2, "max_iter": 77, "tol": 1e-6}
    assert crf.set_params(l1=0).l1 == 0 and repr(ChainCRF(l2=3)) == "ChainCRF(l2=3)"
    with pytest.raises(NotFittedError):
        crf.predict(X)
    copy = pickle.loads(pickle.dumps(crf.fit(X, y)))
    assert [p.tolist() for p in copy.predict(X)] == [p.tolist() for p in crf.predict(X)]
    assert len(cross_val_score(ChainCRF(), X, y, cv=3)) == 3
    search = GridSearchCV(ChainCRF(), {"l2": [0.1, 10.0]}, cv=2).fit(X, y)
    assert search.best_params_["l2"] in (0.1, 10.0)
    before = crf.coef_.copy()
    np.testing.assert_array_equal(crf.fit(X, y).coef_, before)


def test_a_fit_that_has_not_converged_says_so():
    X, codes = sequences(29)
    with pytest.warns(ConvergenceWarning, match="max_iter=2 iterations"):
        assert ChainCRF(max_iter=2, tol=1e-12).fit(X, named(codes)).n_iter_ == 2


@one_test_over("scale", [1e-80, 1e-3, 1e3, 1e80])
def test_features_of_any_scale_are_learned(scale):
    """Features and the root of l2 scaled alike give the same probabilities."""
    X, codes = sequences(31)
    x, y = [x for x in X if len(x) == 1], named(c for c in codes if len(c) == 1)
    plain = ChainCRF(l2=0.1, tol=1e-13).fit(x, y)
    scaled = ChainCRF(l2=0.1 * scale**2, tol=1e-13).fit([scale * part for part in x], y)
    assert scaled.objective_ == pytest.approx(plain.objective_, rel=1e-6)
    np.testing.assert_allclose(scaled.coef_ * scale, plain.coef_, atol=1e-3)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_features_of_different_scales_are_learned_together(kind, l2=0.05, rounding=2e-4):
    """The gradient is 0 in units of each feature, also for one that is 0 everywhere."""
    X, codes = sequences(37, count=14)
    sizes = np.array([1e-60, 0.0, 1e3, 1e60])
    given = [kind(x * sizes) for x in X]
    crf = ChainCRF(l2=l2, tol=1e-13).fit(given, named(codes))
    _, slope, _ = likelihood([x * sizes for x in X], codes, 3)(crf.coef_, crf.transitions_)
    slope += 2 * l2 * crf.coef_
    assert np.abs(slope / np.hypot(sizes, np.sqrt(l2))[:, None]).max() < rounding
    assert np.abs(crf.coef_[3]).max() > 1e-62 and not crf.coef_[1].any()


GOOD = [np.zeros((2, 3)), np.ones((1, 3))]
NAN = np.array([[0.0, 1, 2], [np.nan, 1, 2]])


@one_test_over(
    ("X", "y", "message"),
    [
        (GOOD, [["a", "b"]], "y has 1 sequences, expected 2"),
        (GOOD, [["a"], ["b"]], "y: sequence 0 has 1 labels, expected 2"),
        (GOOD, [[None, None], [np.nan]], "y: none of 3 labels is known, expected at least one"),
        (GOOD, [["a", ("b",)], ["b"]], r"y: sequence 0, step 1: \('b',\)"),
        (GOOD, [["a", "b"], [1]], "y: sequence 1, step 0: 1 is a number, .* before it are texts"),
        (GOOD, ["ab", "b"], "y: sequence 0 is 'ab', expected a list of labels"),
        (GOOD, 5, "y must be a list of sequences, not int"),
        ([np.zeros((2, 3)), np.zeros((1, 2))], [["a", "b"], ["a"]], "sequence 1 has 2 features, "
         "expected 3 as in sequence 0"),
        ([GOOD[1], NAN], [["a"], ["a", "b"]], "X: sequence 1, step 1, feature 0: nan"),
        ([sparse.csr_array(NAN)], [["a", "b"]], "X: sequence 0, step 1, feature 0: nan"),
        ([[[1, "x", 2]]], [["a"]], "X: sequence 0, step 0: 1 in a list of names is of type int"),
        ([np.array([[1, None, 2]], dtype=object)], [["a"]], "sequence 0, step 0, feature 1: None"),
        ([np.array([[1e300]])], [["a"]], r"step 0, feature 0: 1e\+300, expected a number of at"),
        ([np.array([[1j]])], [["a"]], "sequence 0, step 0, feature 0: .*1j"),
        ([sparse.csr_array(np.array([[1j]]))], [["a"]], "sparse matrix of complex128"),
        ([np.zeros(3)], [["a"] * 3], r"X: sequence 0 has the shape \(3,\)"),
        ([[[1.0, 2.0], [1.0]]], [["a", "b"]], "X: sequence 0 .* lists of 1 and 2 values"),
        (sparse.csr_array(np.eye(2)), [["a"]], "X must be a list of sequences, not csr_array"),
        ("word", [["a"]], "X must be a list of sequences, not str"),
        ([[{"a": None}]], [["a"]], "sequence 0, step 0, feature 'a': None"),
        ([[{"a": 1.0}, {"b": np.inf}]], [["a", "b"]], "sequence 0, step 1, feature 'b': inf"),
        ([[{"o": {"a": np.nan}}]], [["a"]], "sequence 0, step 0, feature 'o:a': nan"),
        ([[{"a": ["b", 3]}]], [["a"]], "sequence 0, step 0: 3 in a list of names"),
        ([[{3: 1.0}]], [["a"]], "sequence 0, step 0: the feature 3 has no text as its name"),
        ([[{"a": 1.0}], [7]], [["a"], ["b"]], "sequence 1, step 0: 7 is of type int"),
        ([[{"a": 1.0}], GOOD[0]], [["a"], ["b"] * 2], "sequence 1 is of type ndarray"),
        ([], [], "X has 0 sequences without a step, expected at least one step"),
        ([[], []], [[], []], "X has 2 sequences without a step"),
    ],
)  # fmt: skip
def test_bad_input_is_named(X, y, message):
    with pytest.raises(PgmError, match=message):
        ChainCRF().fit(X, y)


def test_other_features_than_those_of_fit_are_named():
    crf = ChainCRF().fit(GOOD, [["a", "b"], ["a"]])
    with pytest.raises(PgmError, match="X: sequence 1 has 2 features, expected 3 as in fit"):
        crf.predict([GOOD[0], np.zeros((2, 2))])
    with pytest.raises(PgmError, match="y: sequence 0 has 1 labels, expected 2"):
        crf.score(GOOD, [["a"], ["a"]])
    items = ChainCRF().fit([[{"w": "x"}]], [["a"]])
    with pytest.raises(PgmError, match="sequence 0 is of type ndarray, expected a list"):
        items.predict([np.ones((1, 1))])
    with pytest.raises(PgmError, match="sequence 0 has the shape"):
        crf.predict([[{"w": "x"}]])


@one_test_over(
    ("settings", "message"),
    [
        ({"l1": -1}, "ChainCRF: l1 must be a finite number"),
        ({"l2": np.inf}, "ChainCRF: l2 must be a finite number"),
        ({"tol": None}, "ChainCRF: tol must be a finite number"),
        ({"max_iter": 0}, "ChainCRF: max_iter must be an integer of at least 1"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(PgmError, match=message):
        ChainCRF(**settings).fit(GOOD, [["a", "b"], ["a"]])


@pytest.mark.parametrize("kind", [int, str])
def test_a_symbol_at_each_step_is_refused_with_the_way_to_give_it(kind):
    rng = np.random.default_rng(0)
    y = [rng.integers(0, 2, 8) for _ in range(5)]
    symbols = [[kind(2 * label + rng.integers(2)) for label in one] for one in y]
    with pytest.raises(pgm.PgmError, match="if each step has a symbol, give") as refusal:
        ChainCRF().fit(symbols, y)
    advice = str(refusal.value).split("give ")[1]
    given = [eval(advice, {"sequence": sequence, "str": str}) for sequence in symbols]
    assert ChainCRF().fit(given, y).score(given, y) == 1.0

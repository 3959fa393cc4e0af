"""GenerativeClassifier: Bayes' rule over one model for each class."""

from functools import partial

import numpy as np
import pytest
from extras import extra
from loops import one_test_over
from scipy.special import log_softmax

import pgmengine as pgm

X = np.array([[0.0, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 0]] * 6)
Y = np.array(["a", "a", "b", "b"] * 6)


def test_probabilities_follow_bayes_rule(rtol=1e-9):
    learn = partial(pgm.fit, epochs=3, progress=False)
    c = pgm.GenerativeClassifier(pgm.sbn([3, 2], rng=0), learn=learn).fit(X[2:], Y[2:])
    exact = np.stack(
        [pgm.infer(m, {"v": X}, want="log_prob", method=pgm.Exact()).log_prob for m in c.models_],
        axis=1,
    )
    prior = np.log(np.array([10, 12]) / 22)
    np.testing.assert_allclose(
        c.predict_log_proba(X), log_softmax(exact + prior, axis=1), rtol=rtol
    )
    np.testing.assert_allclose(c.predict_proba(X).sum(axis=1), 1.0, rtol=rtol)
    assert list(c.classes_) == ["a", "b"]


def test_it_learns_and_takes_missing_values():
    learn = partial(pgm.fit, epochs=60, optimizer=pgm.Adam(0.05), batch_size=8, progress=False)
    missing = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
    for model in (
        pgm.sbn([3, 2], rng=0),
        pgm.rbm(3, 2, rng=0),
        lambda c: pgm.sbn([3, 2, 2], rng=c),
    ):
        c = pgm.GenerativeClassifier(model, learn=learn).fit(missing, Y)
        assert c.score(X, Y) == 1.0
        assert list(c.predict([[1, np.nan, np.nan], [np.nan, np.nan, 1]])) == ["b", "a"]


def test_by_the_bound_and_the_same_bits_again():
    learn = partial(pgm.fit, positive=pgm.MeanField(), epochs=2, progress=False)
    a, b = (
        pgm.GenerativeClassifier(pgm.sbn([3, 2], rng=0), learn=learn, method=pgm.MeanField()).fit(
            X, Y
        )
        for _ in range(2)
    )
    np.testing.assert_array_equal(a.predict_log_proba(X), b.predict_log_proba(X))
    exact = pgm.infer(a.models_[0], {"v": X}, want="log_prob", method=pgm.Exact()).log_prob
    assert np.all(a.log_prob(X)[:, 0] <= exact + 1e-9)


@one_test_over(
    "x, y, match",
    [
        (X, Y[:3], "expected \\(24,\\)"),
        (X, Y[:, None], "shape"),
        (X[:0], Y[:0], "no rows"),
        (X[:, :2], Y, "layer 'v'"),
        (X, np.where(np.arange(24) == 5, np.nan, np.arange(24) % 2), "y: row 5 is nan"),
        (X, np.where(np.arange(24) == 7, None, Y.astype(object)), "y: row 7 is None"),
        (X, np.array([*"ab", *range(22)], dtype=object), "cannot be sorted"),
    ],
)
def test_bad_data_is_refused(x, y, match):
    with pytest.raises(pgm.PgmError, match=match):
        pgm.GenerativeClassifier(pgm.sbn([3, 2], rng=0)).fit(x, y)


def test_a_missing_class_of_a_series_is_refused():
    classes = [*"abc", None, *"abcdefghij", *"klmnopqrst"]
    series = extra("pandas").Series(classes, dtype="string")
    with pytest.raises(pgm.PgmError, match="y: row 3 is <NA>"):
        pgm.GenerativeClassifier(pgm.sbn([3, 2], rng=0)).fit(X, series)


def test_not_fitted():
    with pytest.raises(pgm.PgmError, match="not fitted"):
        pgm.GenerativeClassifier(pgm.sbn([3, 2], rng=0)).predict(X)


def test_a_row_that_no_class_explains_has_the_prior():
    b = pgm.GraphBuilder()
    b.layer("h", pgm.Binary(), 1)
    b.layer("v", pgm.NoisyOr(), 2)
    b.cause("h", "v", weight=[[0.5, 0.0]])
    keep = type("Kept", (), {"model": b.build()})
    c = pgm.GenerativeClassifier(b.build(), learn=lambda *a, **k: keep).fit(
        [[1, 0]] * 4, [0, 0, 0, 1]
    )
    np.testing.assert_allclose(c.predict_proba([[0, 1], [1, 0]]), [[0.75, 0.25]] * 2)
    with pytest.raises(pgm.PgmError, match="one row for each"):
        c.predict([1, 0])
    with pytest.raises(pgm.PgmError, match="one label for each"):
        c.score([[1, 0]], [0, 1])


def test_classes_know_the_columns_of_frames_by_name():
    pd = extra("pandas")
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Binary(), 3, labels=["a", "b", "c"])
    b.layer("h", pgm.Binary(), 2)
    b.couple("v", "h")
    rows = np.random.default_rng(0).integers(0, 2, (80, 3))
    frame, y = pd.DataFrame(rows, columns=["a", "b", "c"], index=range(500, 580)), rows[:, 0]
    learn = partial(pgm.fit, updates=100, optimizer=pgm.Adam(0.05), progress=False)
    model = pgm.GenerativeClassifier(b.build(rng=0), learn).fit(frame, y)
    assert model.score(frame, y) == model.score(frame[["c", "b", "a"]], y) > 0.9
    np.testing.assert_array_equal(model.log_prob(frame), model.log_prob(frame[["b", "c", "a"]]))
    np.testing.assert_array_equal(model.log_prob(frame), model.log_prob(rows))


def test_findings_of_all_classes_are_said_once(caplog):
    x = pgm.datasets.bars_and_stripes().x_train
    pgm.GenerativeClassifier(pgm.rbm(16, 4, rng=0)).fit(x, np.arange(len(x)) % 3)
    assert [r.getMessage()[:15] for r in caplog.records] == ["in 3 of 3 fits,"]

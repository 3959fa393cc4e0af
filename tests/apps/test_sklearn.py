"""The scikit-learn estimators: scikit-learn's own checks, and what they promise beside them."""

import re
import warnings

import numpy as np
import pytest
from extras import extra
from loops import one_test_over
from scipy import sparse
from scipy.special import logsumexp

import pgmengine as pgm

extra("sklearn")
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.naive_bayes import BernoulliNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from pgmengine.apps.learners.fit_warnings import warn_of

# Most tests make few passes, which is enough for what they test.
pytestmark = pytest.mark.filterwarnings(
    "ignore:(RBM|Graphical|DRBM|Generative).*see findings_:sklearn.exceptions.ConvergenceWarning"
)

ESTIMATORS = [
    pgm.sklearn.RBMTransformer(n_components=4, n_iter=2),
    pgm.sklearn.GraphicalImputer(n_components=4, n_iter=2),
    pgm.sklearn.DRBMClassifier(n_components=4, n_iter=20),
    pgm.sklearn.GenerativeClassifier(n_components=4, n_iter=10),
]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda x: type(x).__name__)
def test_the_checks_of_scikit_learn(estimator):
    check_estimator(estimator, on_skip=None)


@pytest.fixture(scope="module")
def digits():
    x, y = load_digits(return_X_y=True)
    return (x > 7.5).astype(float), y


def test_features_serve_a_classifier_in_a_pipeline_and_a_grid(digits):
    x, y = digits[0][:400], digits[1][:400]
    rbm = pgm.sklearn.RBMTransformer(n_iter=30, random_state=0)
    pipe = make_pipeline(rbm, LogisticRegression(max_iter=1000))
    grid = GridSearchCV(pipe, {"rbmtransformer__n_components": [4, 40]}, cv=2).fit(x, y)
    assert grid.best_params_["rbmtransformer__n_components"] == 40 and grid.best_score_ > 0.7
    assert list(grid.best_estimator_[0].get_feature_names_out()[:2]) == [
        "rbmtransformer0",
        "rbmtransformer1",
    ]


def test_scores_are_exact_log_likelihoods(digits, rtol=1e-9):
    """For Binary and, with the density of the scaling, for Gaussian visible units; sum of all
    images is 1.
    """
    x = digits[0][:100, 20:28]
    t = pgm.sklearn.RBMTransformer(n_components=3, n_iter=5, random_state=0).fit(x)
    every = np.array(np.meshgrid(*[[0.0, 1.0]] * 8)).reshape(8, -1).T
    np.testing.assert_allclose(logsumexp(t.score_samples(every)), 0.0, atol=1e-9)
    v = load_iris().data[:, :1]
    g = pgm.sklearn.RBMTransformer(n_components=3, n_iter=5, random_state=0).fit(v)
    grid = np.linspace(v.mean() - 12, v.mean() + 12, 20_001)
    np.testing.assert_allclose(
        np.trapezoid(np.exp(g.score_samples(grid[:, None])), grid), 1.0, rtol=1e-6
    )


def test_partial_fit_learns_and_samples_look_like_data(digits):
    x = digits[0][:500]
    t = pgm.sklearn.RBMTransformer(n_components=16, random_state=0)
    first = t.partial_fit(x).score(x)
    for _ in range(40):
        t.partial_fit(x)
    assert t.score(x) > first + 3
    drawn = t.sample(200, random_state=0)
    assert drawn.shape == (200, 64) and set(np.unique(drawn)) <= {0.0, 1.0}
    assert (
        np.abs(drawn.mean(axis=0) - x.mean(axis=0)).mean() < np.abs(0.5 - x.mean(axis=0)).mean() / 2
    )
    back = t.inverse_transform(t.transform(x))
    assert np.square(back - x).mean() < np.square(x.mean(axis=0) - x).mean()


def test_missing_pixels_are_filled_better_than_by_means(digits):
    x = digits[0][:600]
    holes = np.where(np.random.default_rng(0).random(x.shape) < 0.3, np.nan, x)
    imputer = pgm.sklearn.GraphicalImputer(n_components=32, n_iter=30, random_state=0).fit(holes)
    filled, missing = imputer.transform(holes), np.isnan(holes)
    assert np.array_equal(filled[~missing], x[~missing])
    errors = [
        np.square(v - x)[missing].mean()
        for v in (filled, np.broadcast_to(np.nanmean(holes, axis=0), x.shape))
    ]
    assert errors[0] < 0.85 * errors[1]
    drawn = pgm.sklearn.GraphicalImputer(
        n_components=8, n_iter=5, sample=True, random_state=0
    ).fit_transform(holes[:50])
    assert set(np.unique(drawn)) <= {0.0, 1.0}


def gaps(columns=30):
    """Return standardised rows of one common cause, with an own pattern of gaps in each."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 1)) + 0.5 * rng.normal(size=(200, columns))
    holes = np.where(rng.random(x.shape) < 0.2, np.nan, x)
    return (holes - np.nanmean(holes, axis=0)) / np.nanstd(holes, axis=0)


@pytest.mark.parametrize("want", ["marginals", "samples"])
def test_gaps_are_filled_by_the_fastest_exact_method_or_by_chains(want):
    """The plan of a question with a pattern for each row, whose junction trees are expensive."""
    method, x = pgm.sklearn.IMPUTATION_METHOD, {"v": gaps()}
    small, large = (pgm.rbm(30, n, visible=pgm.Gaussian(), rng=0).given(x) for n in (16, 25))
    plan = method.plan(small, (want,))
    assert plan.guarantee == "exact"
    assert plan.seconds <= 1.01 * pgm.Enumeration(draws=1).plan(small, (want,)).seconds
    assert plan.seconds < pgm.Elimination(draws=1).plan(small, (want,)).seconds / 5
    assert pgm.Exact().plan(large, (want,)).seconds > 60
    assert method.plan(large, (want,)).method == "MCMC"


def test_filled_values_are_the_means_of_infer():
    x = gaps(8)
    imputer = pgm.sklearn.GraphicalImputer(n_components=8, n_iter=2, random_state=0).fit(x)
    means = pgm.infer(imputer.model_, {"v": imputer.scaling_.values(x)}).mean["v"]
    expected = np.where(np.isnan(x), imputer.scaling_.data(means), x)
    np.testing.assert_allclose(imputer.transform(x), expected, atol=1e-10)


@pytest.mark.parametrize("binary", [False, True])
def test_columns_without_values_are_named(binary):
    x = gaps(4)
    x = np.where(np.isnan(x), np.nan, x > 0) if binary else x
    x[:, [1, 3]] = np.nan
    imputer = pgm.sklearn.GraphicalImputer(n_components=2, n_iter=1, random_state=0)
    with pytest.warns(UserWarning, match="no row has a value in 2 columns, 1, 3: .* drop") as seen:
        filled = imputer.fit_transform(x)
    assert np.isfinite(filled).all()
    frame = extra("pandas").DataFrame(x[:, :3], columns=["a", "b", "c"])
    with pytest.warns(UserWarning, match="no row has a value in 1 column, 'b': ") as seen:
        imputer.fit(frame)
    assert [w.filename for w in seen if w.category is UserWarning] == [__file__]


# The estimators that learn from 200 rows in one pass, and the sign that they find.
SHORT = {
    "RBMTransformer": "hardly better than .* \\(n_iter=4\\).*, or take more .*n_components=",
    "GraphicalImputer": "hardly better than .* \\(n_iter=4\\).*, or take more .*n_components=",
    "GenerativeClassifier": "hardly better than .* \\(n_iter=4\\).*, or take more .*n_components=",
    "DRBMClassifier": "still rising .* \\(n_iter=4\\), or take larger steps .* \\(the likelihood",
}


@pytest.mark.long
def test_the_default_length_of_the_imputer_is_no_reason_to_warn(digits):
    """Its defaults were chosen on hidden cells; the finding is there all the same."""
    x = np.where(np.random.default_rng(0).random((200, 64)) < 0.2, np.nan, digits[0][:200])
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        found = pgm.sklearn.GraphicalImputer(random_state=0).fit(x).findings_
    assert [one.kind.name for one in found] == ["STILL_RISING"]


@pytest.mark.parametrize("name", SHORT)
def test_findings_are_warnings_in_the_names_of_the_estimator(name, digits, caplog):
    """Once for each kind, with the same text in each fit, and not in the log as well."""
    x, y = digits[0][:200], digits[1][:200] % 2
    estimator = getattr(pgm.sklearn, name)(n_iter=1, random_state=0)
    texts = []
    for rows in (slice(0, 150), slice(50, 200)):
        with pytest.warns(ConvergenceWarning, match=f"^{name}: .*{SHORT[name]}") as seen:
            estimator.fit(x[rows], y[rows])
        assert [w.filename for w in seen] == [__file__]
        texts.append(str(seen[0].message))
        assert estimator.findings_ and "epochs=" not in texts[-1]
    assert texts[0] == texts[1] and not caplog.records
    names = set(re.findall(r"(\w+)=", texts[0]))
    assert names <= {*estimator.get_params()}
    # Later fits by other means are in the log again.
    found = pgm.fit(pgm.rbm(64, 4, rng=0), {"v": x}, epochs=1, progress=False)
    assert found.findings and len(caplog.records) == len(found.findings)


def test_advice_names_only_parameters_that_an_estimator_has():
    fell = pgm.Finding(pgm.FindingKind.FELL, -1.0, 0.1)
    for name, known in (("DRBMClassifier", False), ("RBMTransformer", True)):
        with pytest.warns(ConvergenceWarning, match="fell during learning: .*optimizer=") as seen:
            estimator = getattr(pgm.sklearn, name)()
            estimator.n_iter_ = 20
            warn_of(estimator, [fell, fell])
        assert len(seen) == 1 and ("negative=" in str(seen[0].message)) == known


@one_test_over("rows", [7, 45, 2100])
def test_small_data_get_more_passes_by_default(rows, updates=4000, least=20):
    x = (np.arange(rows)[:, None] % [2, 3, 2]).astype(bool).astype(float)
    t = pgm.sklearn.RBMTransformer(n_components=1, batch_size=10, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        t.fit(x)
    batches = -(-rows // 10)
    assert t.n_iter_ == max(least, -(-updates // batches)) and t.n_iter is None
    assert t.state_["update"] == t.n_iter_ * batches >= updates


def test_one_pass_of_partial_fit_does_not_warn(digits, caplog):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        t = pgm.sklearn.RBMTransformer(random_state=0).partial_fit(digits[0][:200])
    assert t.findings_ and not caplog.records


def test_classifiers_classify(digits):
    x, y = load_iris(return_X_y=True)
    assert (
        cross_val_score(
            pgm.sklearn.DRBMClassifier(n_components=8, random_state=0), x, y, cv=3
        ).mean()
        > 0.9
    )
    x, y = digits[0][:600], digits[1][:600]
    assert (
        cross_val_score(
            pgm.sklearn.GenerativeClassifier(n_components=8, n_iter=20, random_state=0), x, y, cv=2
        ).mean()
        > 0.7
    )


def test_the_extra_is_loaded_when_it_is_asked_for():
    import subprocess
    import sys

    code = (
        "import sys, pgmengine; assert 'sklearn' not in sys.modules; "
        "pgmengine.sklearn.RBMTransformer"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        pgm.nothing  # noqa: B018


def test_transformers_before_fit_and_with_categorical_units():
    x = np.random.default_rng(0).integers(0, 2, (30, 4))
    with pytest.raises(NotFittedError):
        pgm.sklearn.RBMTransformer().transform(x)
    r = pgm.sklearn.RBMTransformer(2, hidden=pgm.Categorical(3), n_iter=1, random_state=0).fit(x)
    h = r.transform(x)
    assert h.shape == (30, 6) == (30, len(r.get_feature_names_out()))
    np.testing.assert_allclose(h.reshape(30, 2, 3).sum(axis=2), 1)
    assert r.inverse_transform(h).shape == x.shape


@one_test_over(
    "kind", ["RBMTransformer", "GraphicalImputer", "DRBMClassifier", "GenerativeClassifier"]
)
@pytest.mark.parametrize("name", ["batch_size", "n_iter", "n_components"])
def test_sizes_without_a_meaning(kind, name):
    with pytest.raises(pgm.PgmError, match=f"{kind}: {name} must be"):
        getattr(pgm.sklearn, kind)(**{name: 0}).fit(np.eye(4), [0, 1, 0, 1])


def test_samples_are_as_many_draws_as_are_asked_for():
    """Not those of a thousand, again and again."""
    x = np.random.default_rng(0).normal(size=(60, 3))
    model = pgm.sklearn.RBMTransformer(n_components=2, n_iter=2, random_state=0).fit(x)
    assert len(np.unique(model.sample(5000, random_state=1), axis=0)) == 5000
    np.testing.assert_array_equal(model.sample(7, random_state=1), model.sample(7, random_state=1))
    assert model.sample(1, random_state=0).shape == (1, 3)
    with pytest.raises(pgm.PgmError, match="n_samples must be an integer of at least 1, not -1"):
        model.sample(-1)


def test_data_that_binary_units_cannot_have_are_refused():
    x = np.random.default_rng(0).integers(0, 2, (40, 3)).astype(float)
    model = pgm.sklearn.RBMTransformer(n_components=2, n_iter=2, random_state=0).fit(x)
    for ask in (model.transform, model.score_samples, model.partial_fit):
        # A threshold once gave three different rows the same score.
        for bad in (37, 0.4):
            with pytest.raises(pgm.PgmError, match=f"row 1, column 2: {bad} is not 0 or 1"):
                ask([[0, 1, 1], [0, 1, bad]])


def test_a_single_class_is_certain():
    x = np.random.default_rng(0).normal(size=(30, 3))
    model = pgm.sklearn.DRBMClassifier(n_components=2, n_iter=1, random_state=0).fit(
        x, np.zeros(30)
    )
    np.testing.assert_array_equal(model.predict_proba(x), np.ones((30, 1)))


def test_features_have_a_width():
    x = pgm.datasets.bars_and_stripes().x_train
    model = pgm.sklearn.RBMTransformer(2, n_iter=1, random_state=0).fit(x)
    with pytest.raises(pgm.PgmError, match="3 columns, expected the 2 of transform"):
        model.inverse_transform(np.zeros((4, 3)))


def hard_data(kind):
    """Return rows and labels that are scarce, constant or unbalanced."""
    rng = np.random.default_rng(0)
    rows = {"one row of a class": 40, "one feature": 50}.get(kind, 60)
    y = rng.integers(0, 2, rows)
    if kind == "unbalanced":
        y = (np.arange(rows) < 3).astype(int)
    if kind == "one row of a class":
        y = (np.arange(rows) < 1).astype(int)
    x = rng.normal(size=(rows, 1 if kind == "one feature" else 6))
    x[:, 0] += 4 * y
    if kind == "constant columns":
        x[:, 2:] = [3.0, 0.0, -1e6, 1e-9]
    if kind == "rare values":
        x[:, 1:] = 0.0
        x[:1, 1:] = 1e3
    if kind == "zeros and ones":
        x = (x > 1.5) * 1.0
    return x, y


KINDS = ["unbalanced", "one row of a class", "one feature", "constant columns", "rare values"]


@pytest.mark.parametrize("kind", [*KINDS, "zeros and ones"])
@pytest.mark.parametrize("name", ["DRBMClassifier", "GenerativeClassifier"])
def test_classifiers_are_no_worse_than_the_largest_class(name, kind):
    """With nothing but the defaults, also on new rows far away."""
    x, y = hard_data(kind)
    found = getattr(pgm.sklearn, name)(random_state=0).fit(x, y)
    most = max(np.mean(y), 1 - np.mean(y))
    assert found.score(x, y) >= most
    far = x if kind == "zeros and ones" else 100 * x + 1e3
    for rows in (x, far):
        prob = found.predict_proba(rows)
        assert np.isfinite(prob).all()
        np.testing.assert_allclose(prob.sum(axis=1), 1.0)


def test_rare_ones_do_not_decide_a_discriminative_machine():
    """A column that is 1 in one row of training has no weight of its own on new rows."""
    rng = np.random.default_rng(0)
    x = (rng.random((400, 60)) < 0.004) * 1.0
    y = rng.integers(0, 2, 400)
    x[:, 0] = y
    scaling = pgm.sklearn.Scaling.limited(x)
    assert np.abs(scaling.values(np.ones((1, 60)))).max() <= 4.0
    found = pgm.sklearn.DRBMClassifier(random_state=0).fit(x, y)
    new = (rng.random((200, 60)) < 0.1) * 1.0
    new[:, 0] = y[:200]
    assert found.score(new, y[:200]) > 0.9


def test_defaults_are_as_good_as_other_classifiers():
    """The 8x8 digits, 900 rows, beside logistic regression and a machine for features."""
    x, y = load_digits(return_X_y=True)
    cut = 900
    drbm = pgm.sklearn.DRBMClassifier(random_state=0).fit(x[:cut], y[:cut])
    logistic = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
    logistic.fit(x[:cut], y[:cut])
    assert drbm.score(x[cut:], y[cut:]) > logistic.score(x[cut:], y[cut:])
    v = (x > 7) * 1.0
    classes = pgm.sklearn.GenerativeClassifier(random_state=0).fit(v[:cut], y[:cut])
    assert classes.score(v[cut:], y[cut:]) > BernoulliNB().fit(v[:cut], y[:cut]).score(
        v[cut:], y[cut:]
    )


ESTIMATORS = {
    "RBMTransformer": lambda x: pgm.sklearn.RBMTransformer(n_iter=1).fit(x),
    "GraphicalImputer": lambda x: pgm.sklearn.GraphicalImputer(n_iter=1).fit(x),
    "DRBMClassifier": lambda x: pgm.sklearn.DRBMClassifier(n_iter=1).fit(x, [0, 1, 0]),
    "GenerativeClassifier": lambda x: pgm.sklearn.GenerativeClassifier(n_iter=1).fit(x, [0, 1, 0]),
}
ROWS = np.array([[0.0, 1, 1], [1, 0, 1], [0, 0, 1]])


def with_entry(value, dtype=object):
    x = ROWS.astype(dtype)
    x[1, 2] = value
    return x


@one_test_over("name", ESTIMATORS)
def test_unusable_entries_are_named_with_what_to_do(name):
    """In arrays of any type, and after the first fit as well."""
    fit, fitted = ESTIMATORS[name], ESTIMATORS[name](ROWS)
    ask = getattr(fitted, "transform", None) or fitted.predict
    fills = name == "GraphicalImputer"
    # OneHotEncoder would make an empty cell a name of its own.
    encode = "encode .*OrdinalEncoder, with NaN .*pgm.fit" if fills else "encode .*OneHotEncoder$"
    faults = [
        (sparse.csr_matrix(ROWS), "X is sparse, .* X.toarray"),
        (sparse.coo_array(ROWS), "X is sparse, .* X.toarray"),
        (with_entry("red"), "row 1, column 2: 'red' is not a number; " + encode),
        (with_entry("red", "U3"), "row 1, column 2: .*'red'.* is not a number"),
        (with_entry(np.inf, float), "row 1, column 2: inf is infinite"),
    ]
    if not fills:
        faults += [
            (with_entry(np.nan, kind), r"row 1, column 2: NaN, .*GraphicalImputer\(\)")
            for kind in (float, np.float32, object)
        ]
    for x, match in faults:
        for call in (fit, ask):
            with pytest.raises(pgm.PgmError, match=match):
                call(x)

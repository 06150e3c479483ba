"""HyperCleaner finds wrong labels, says what it needs, and is an estimator like others."""

import io
import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import joblib
import numpy as np
import pytest
from memory_maps import added
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import bilevax as bx
from bilevax.apps import HyperCleaner, NoTrustedRowsWarning, ScaleWarning

N, M = 1000, 100
FAST = dict(rule=bx.Reverse(K=3), T=20, steps=3, learning_rate=1.0)


class Data:
    """Digits, half of whose labels are drawn anew."""

    def __init__(self):
        x, y = load_digits(return_X_y=True)
        rng = np.random.default_rng(0)
        order = rng.permutation(len(x))
        x, y = x[order], y[order]
        given = np.where(rng.random(N) < 0.5, rng.integers(10, size=N), y[:N])
        self.train, self.wrong = (x[:N], given), given != y[:N]
        self.trusted = x[N : N + M], y[N : N + M]
        self.test = x[N + M :], y[N + M :]


@pytest.fixture(scope="module")
def data():
    return Data()


@pytest.fixture(scope="module")
def cleaner(data):
    return HyperCleaner(steps=25).fit(*data.train, *data.trusted)


def two_classes(labels):
    """A quarter of the labels wrong, on a line."""
    x = np.linspace(-1, 1, 40)[:, None] + np.zeros((1, 2))
    truth = np.asarray(labels)[(x[:, 0] > 0).astype(int)]
    y = truth.copy()
    y[::8] = np.where(truth[::8] == labels[0], labels[1], labels[0])
    return x, y, truth


def test_finds_the_wrong_labels(data, cleaner):
    assert f1_score(data.wrong, cleaner.suspect_) > 0.85
    assert cleaner.weights_[data.wrong].mean() < 0.3 < 0.5 < cleaner.weights_[~data.wrong].mean()
    assert ((cleaner.weights_ > 0) & (cleaner.weights_ < 1)).all()


def test_is_better_than_either_part_of_the_data(data, cleaner):
    scaled = lambda rows: (rows[0] / 16, rows[1])
    noisy, trusted = (
        LogisticRegression(C=1.0, tol=0.01, max_iter=200)
        .fit(*scaled(rows))
        .score(*scaled(data.test))
        for rows in (data.train, data.trusted)
    )
    assert cleaner.score(*data.test) > max(noisy, trusted)


def test_the_rule_is_chosen_and_the_diagnosis_kept(cleaner):
    assert cleaner.diagnosis_.T == cleaner.T_ == 100
    assert isinstance(cleaner.rule_, bx.Reverse | bx.Krylov)
    assert 0.5 < cleaner.learning_rate_ < 2  # the data are scaled so that 1 is right


def test_answers_are_consistent(data, cleaner):
    p, scores = cleaner.predict_proba(data.test[0]), cleaner.decision_function(data.test[0])
    assert np.allclose(p.sum(1), 1) and p.shape == scores.shape == (len(data.test[0]), 10)
    assert (cleaner.predict(data.test[0]) == cleaner.classes_[scores.argmax(1)]).all()


def test_a_fitted_cleaner_travels(data, cleaner):
    file = io.BytesIO()
    joblib.dump(cleaner, file)
    file.seek(0)
    for copy in (pickle.loads(pickle.dumps(cleaner)), joblib.load(file)):
        assert (copy.predict_proba(data.test[0]) == cleaner.predict_proba(data.test[0])).all()
        assert (copy.suspect_ == cleaner.suspect_).all()


def test_minibatches_are_as_good(data):
    found = HyperCleaner(steps=25, batch_size=100, T=60).fit(*data.train, *data.trusted)
    assert isinstance(found.rule_, bx.Reverse) and found.rule_.K >= 5
    assert f1_score(data.wrong, found.suspect_) > 0.85


def test_a_model_of_ones_own(data):
    mlp = eqx.nn.MLP(64, 10, 32, 1, key=jax.random.key(0), dtype=jnp.float32)
    w, rest = eqx.partition(mlp, eqx.is_inexact_array)
    apply = lambda w, x: jax.vmap(eqx.combine(w, rest))(x)
    own = HyperCleaner((w, apply), rule=bx.Reverse(K=5), steps=25)
    found = clone(own).fit(*data.train, *data.trusted)
    assert f1_score(data.wrong, found.suspect_) > 0.85
    assert found.score(*data.test) > 0.8


@pytest.mark.parametrize(
    "labels", [("left", "right"), (False, True), (3, 7)], ids=["text", "bools", "numbers"]
)
def test_any_labels(labels):
    x, y, truth = two_classes(labels)
    found = HyperCleaner(**FAST | {"steps": 20}).fit(x, y, x[1::2], truth[1::2])
    assert found.classes_.tolist() == sorted(labels)
    assert (found.predict(x)[[0, -1]] == truth[[0, -1]]).all()
    assert (found.suspect_[[0, 8, 32]] == [True, True, True]).all()
    assert found.decision_function(x).shape == (40,)


X, Y, TRUTH = two_classes(("a", "b"))


def fit_small(**settings):
    """Of one shape, so that all of them share what is compiled."""
    return HyperCleaner(**FAST | settings).fit(X, Y, X[1::2], TRUTH[1::2])


def test_goes_on_where_it_stopped(tmp_path):
    fit_small(steps=4, checkpoint_dir=tmp_path)
    longer = fit_small(steps=8, checkpoint_dir=tmp_path)
    assert (longer.lam_ == fit_small(steps=8).lam_).all() and len(longer.history_["value"]) == 8


OTHERS = {"T": 21, "weight_decay": 0.001001, "learning_rate": 0.999, "hyper_rate": 0.1001}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    fit_small(checkpoint_dir=folder)
    return folder


@pytest.mark.parametrize("name", OTHERS)
def test_another_run_is_not_taken_for_this_one(name, saved):
    with pytest.raises(bx.CheckpointMismatchError):
        fit_small(checkpoint_dir=saved, **{name: OTHERS[name]})


def test_many_fits_share_one_program():
    other = lambda i: {
        "weight_decay": 0.001 * i,
        "hyper_rate": 0.1 + i,
        "learning_rate": 1 / (i + 1),
    }
    assert added(lambda i: fit_small(**other(i))) == 0


def with_nan(x):
    x = x.copy()
    x[3, 1] = np.nan
    return x


WRONG = {
    "no labels": ((X, Y, X), "y_trusted must be given with X_trusted"),
    "twice": ((X, Y, X, Y, Y == Y), "give one of the two"),
    "a short mask": ((X, Y, None, None, [True]), "must be a mask with True or False for each"),
    "all trusted": ((X, Y, None, None, Y == Y), "trusted marks all rows"),
    "nan": ((with_nan(X), Y, X, Y), r"X holds NaN \(row 3, column 1\)"),
    "trusted nan": ((X, Y, with_nan(X), Y), r"X_trusted holds NaN \(row 3, column 1\)"),
    "inf": ((np.where(X > 0.9, np.inf, X), Y, X, Y), "X holds inf"),
    "one class": ((X, ["a"] * 40, X, Y), "y holds 1 class, a; .* two classes"),
    "unknown": ((X, Y, X, ["c"] * 40), "y_trusted holds 'c', which y does not"),
    "none of a class": ((X, Y, X, ["a"] * 40), "y_trusted has no rows of class b"),
    "features": ((X, Y, X[:, :1], Y), "X_trusted has 1 features, X has 2"),
    "rows": ((X, Y, X, Y[:-1]), "X_trusted has 40 rows and y_trusted 39"),
}


@pytest.mark.parametrize("args, text", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said(args, text):
    with pytest.raises(ValueError, match=text) as caught:
        HyperCleaner().fit(*args)
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")


@pytest.mark.parametrize(
    "settings, text",
    [
        ({"steps": 0}, "steps must be at least 1, got 0: give a positive integer"),
        ({"T": 2.5}, "T must be a Python int, got 2.5: give a positive integer"),
        ({"threshold": np.nan}, "threshold must be a number above 0, got nan"),
        ({"weight_decay": -1}, "weight_decay must be a number from 0, got -1"),
        ({"learning_rate": 0}, "learning_rate must be a number above 0, got 0"),
        ({"batch_size": "all"}, "batch_size must be a Python int"),
        ({"model": 3}, r"model must be \(w, apply\)"),
        ({"model": (np.ones(1), lambda w, x: x[:, :1])}, "apply gives logits of shape"),
    ],
)
def test_wrong_settings(settings, text):
    with pytest.raises((TypeError, ValueError), match=text):
        fit_small(**settings)


def test_sparse_is_refused():
    with pytest.raises(TypeError, match=r"X is sparse.*toarray"):
        HyperCleaner().fit(sparse.csr_matrix(X), Y, X, Y)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_agrees():
    check_estimator(HyperCleaner(**FAST), expected_failed_checks={})  # none is expected to fail


def test_without_trusted_rows_it_says_so_and_believes_its_own_classifier(data):
    x, y = data.train
    with pytest.warns(NoTrustedRowsWarning, match="no trusted rows were given"):
        cleaner = HyperCleaner(T=50).fit(x, y)
    assert f1_score(data.wrong, cleaner.suspect_) > 0.8
    assert cleaner.history_ == {} and cleaner.diagnosis_ is None


def mixed(data):
    """Trusted rows among the others, in any order; and which of the labels are wrong."""
    x, y = (np.concatenate(pair) for pair in zip(data.train, data.trusted, strict=True))
    order = np.random.default_rng(1).permutation(len(x))
    wrong = np.concatenate([data.wrong, np.zeros(M, bool)])
    return x[order], y[order], (np.arange(len(x)) >= N)[order], wrong[order]


def test_a_mask_is_as_good_as_further_rows(data, cleaner):
    x, y, mask, wrong = mixed(data)
    other = HyperCleaner(steps=25).fit(x, y, trusted=mask)
    assert other.suspect_.shape == other.weights_.shape == (N + M,)
    assert (other.weights_[mask] > 0.999).all() and not other.suspect_[mask].any()
    assert f1_score(wrong, other.suspect_) > 0.85
    assert abs(other.score(*data.test) - cleaner.score(*data.test)) < 0.02


def test_in_a_pipeline_the_mask_goes_through_the_scaler(data, cleaner):
    x, y, mask, _ = mixed(data)
    plain = dict(steps=25, standardize=False)
    pipe = make_pipeline(StandardScaler(), HyperCleaner(**plain))
    right = pipe.fit(x, y, hypercleaner__trusted=mask).score(*data.test)
    scaled = StandardScaler().fit_transform(data.train[0])
    with pytest.warns(ScaleWarning, match="trusted=mask"):
        HyperCleaner(rule=bx.Reverse(K=3), T=20, steps=1, standardize=False).fit(
            scaled, data.train[1], *data.trusted
        )
    assert right > cleaner.score(*data.test) - 0.03


@pytest.mark.slow
def test_cross_validation_divides_the_mask_and_judges_by_trusted_rows(data):
    x, y, mask, _ = mixed(data)
    pipe = make_pipeline(StandardScaler(), HyperCleaner(rule=bx.Reverse(K=5), T=50, steps=15))
    folds = StratifiedKFold(3).split(x, mask)  # every part has trusted rows
    with config_context(enable_metadata_routing=True):
        by_trusted = cross_val_score(pipe, x, y, cv=list(folds), params={"trusted": mask})
    assert by_trusted.shape == (3,) and by_trusted.mean() > 0.75  # by the noisy ones about 0.5
    grid = {"hypercleaner__weight_decay": [1e-3, 1e-2]}
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(pipe, grid, cv=StratifiedKFold(2)).fit(x, y, trusted=mask)
    assert search.best_score_ > 0.7
    with pytest.raises(ValueError, match="must mark at least one of the 5 rows to judge by"):
        search.best_estimator_[-1].score(x[:5], y[:5], trusted=np.zeros(5, bool))

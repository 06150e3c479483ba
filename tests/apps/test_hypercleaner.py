"""HyperCleaner finds wrong labels, says what it needs, and is an estimator like others."""

import io
import pickle
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import joblib
import numpy as np
import pytest
from memory_maps import added
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.utils.estimator_checks import check_estimator

import bilevax as bx
from bilevax.apps import HyperCleaner

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
    "nothing trusted": ((X, Y), "X_trusted and y_trusted must be given"),
    "no labels": ((X, Y, X), "y_trusted must be given"),
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


class SameData(HyperCleaner):
    """For scikit-learn's checks, whose fit has two arguments: trusts the data it is given.

    The checks are about the interface, in dozens of shapes; the run, which would be compiled
    for each, is left out.
    """

    def fit(self, X, y):
        return super().fit(X, y, X, y)

    def _minimize(self, p):
        return SimpleNamespace(lam=p.lam, history={})


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_agrees():
    check_estimator(SameData(**FAST), expected_failed_checks={})  # none is expected to fail

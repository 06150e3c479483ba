"""TaskInteraction finds the classes that belong together, and is an estimator like others."""

import pickle

import numpy as np
import pytest
from matplotlib.figure import Figure
from memory_maps import added
from scipy import sparse
from sklearn.utils.estimator_checks import check_estimator

import bilevax as bx
from bilevax.apps import TaskInteraction

FAST = dict(rule=bx.Reverse(K=3), T=20, steps=3)
NAMES = np.array(["ape", "bat", "cat", "dog"])


def animals(n, seed):
    """Four classes: apes are like bats, and cats like dogs."""
    means = np.repeat(np.random.default_rng(0).normal(size=(2, 8)), 2, axis=0)
    means = means + 0.15 * np.random.default_rng(1).normal(size=means.shape)
    rng, codes = np.random.default_rng(seed), np.arange(n) % 4
    return means[codes] + rng.normal(size=(n, 8)), NAMES[codes]


X, Y = animals(80, 2)
X_TEST, Y_TEST = animals(2000, 3)


@pytest.fixture(scope="module")
def model():
    return TaskInteraction(steps=40).fit(X, Y)


def test_finds_what_belongs_together(model):
    C = model.interaction_
    assert model.classes_.tolist() == NAMES.tolist()
    assert min(C[0, 1], C[2, 3]) > 2 * C[:2, 2:].max()
    assert (np.diag(C) == 0).all() and (C == C.T).all() and (C >= 0).all()
    values = model.history_["value"]
    assert len(values) == 40 and values[-1] < values[0]


def test_holds_out_half_of_each_class(model):
    assert len(model.held_out_) == 40
    assert np.unique(Y[model.held_out_], return_counts=True)[1].tolist() == [10] * 4


def test_answers_are_consistent(model):
    p, scores = model.predict_proba(X_TEST), model.decision_function(X_TEST)
    assert np.allclose(p.sum(1), 1) and p.shape == scores.shape == (2000, 4)
    assert (model.predict(X_TEST) == NAMES[scores.argmax(1)]).all()
    assert model.score(X_TEST, Y_TEST) > 0.4
    copy = pickle.loads(pickle.dumps(model))
    assert (copy.predict_proba(X_TEST) == p).all()


def fit_small(**settings):
    """Of one shape, so that all of them share what is compiled."""
    return TaskInteraction(**FAST | settings).fit(X[:40], Y[:40], X[40:], Y[40:])


def test_a_validation_set():
    given = fit_small()
    assert given.held_out_ is None and given.score(X_TEST, Y_TEST) > 0.4
    alone = fit_small(refit=False)
    assert (alone.interaction_ == given.interaction_).all() and (alone.w_ != given.w_).any()


OTHERS = {"T": 21, "start": 0.001001, "learning_rate": 0.501, "hyper_rate": 0.1001}


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
    other = lambda i: {"start": 0.001 + i, "hyper_rate": 0.1 + i, "learning_rate": 0.1 / (i + 1)}
    assert added(lambda i: fit_small(**other(i))) == 0


def test_picture(model):
    axis = Figure().add_subplot()
    assert model.plot(axis) is axis
    names = [text.get_text() for text in axis.get_xticklabels()]
    assert {frozenset(names[:2]), frozenset(names[2:])} == {
        frozenset({"ape", "bat"}),
        frozenset({"cat", "dog"}),
    }
    (image,) = axis.get_images()
    assert np.ma.getmaskarray(image.get_array()).diagonal().all()


def with_nan(x):
    x = x.copy()
    x[3, 1] = np.nan
    return x


WRONG = {
    "nan": ((with_nan(X), Y), r"X holds NaN \(row 3, column 1\)"),
    "validation nan": ((X, Y, with_nan(X), Y), r"X_val holds NaN \(row 3, column 1\)"),
    "one class": ((X, ["a"] * 80), "y holds 1 class, a; .* two classes"),
    "no labels": ((X, Y, X), "y_val must be given with X_val"),
    "no rows": ((X, Y, None, Y), "X_val must be given with y_val"),
    "unknown": ((X, Y, X, ["cow"] * 80), "y_val holds 'cow', which y does not"),
    "features": ((X, Y, X[:, :1], Y), "X_val has 1 features, X has 8"),
    "rows": ((X, Y, X, Y[:-1]), "X_val has 80 rows and y_val 79"),
    "one of each": ((X[:4], Y[:4]), "y has no class with two rows"),
}


@pytest.mark.parametrize("args, text", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said(args, text):
    with pytest.raises(ValueError, match=text) as caught:
        TaskInteraction().fit(*args)
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")


@pytest.mark.parametrize(
    "settings, text",
    [
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"T": 2.5}, "T must be a Python int, got 2.5"),
        ({"start": 0}, "start must be a number above 0, got 0"),
        ({"learning_rate": -1}, "learning_rate must be a number above 0, got -1"),
    ],
)
def test_wrong_settings(settings, text):
    with pytest.raises((TypeError, ValueError), match=text):
        fit_small(**settings)


def test_sparse_is_refused():
    with pytest.raises(TypeError, match=r"X is sparse.*toarray"):
        TaskInteraction().fit(sparse.csr_matrix(X), Y)


class Unlearned(TaskInteraction):
    """For scikit-learn's checks of the interface, in dozens of shapes: the run, which would be
    compiled for each, is left out."""

    def _minimize(self, xi, lam, S):
        return bx.Result(lam, {}, {}, None, 0, "steps")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_agrees():
    check_estimator(Unlearned(), expected_failed_checks={})  # none is expected to fail

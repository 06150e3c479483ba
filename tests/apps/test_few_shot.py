"""FewShotLearner learns new characters from one drawing, travels, and says what it needs."""

import json
import os

import jax
import numpy as np
import pytest
from memory_maps import added
from sklearn.base import clone

import bilevax as bx
from bilevax.apps import FewShotLearner, TaskSampler
from bilevax.paper.data import DataError, glyphs

IMAGES = glyphs.load(characters=60, drawings=8)
TASKS = TaskSampler(IMAGES[:50], ways=4, shots=1, queries=2)
NEW = IMAGES[50:]
NAMES = np.array(["aleph", "beth", "gimel", "daleth"])


@pytest.fixture(scope="module")
def learner():
    """Fitted to a sampler of one's own: any function of a key that gives a task."""
    own = lambda key: TASKS(jax.random.fold_in(key, 1))
    return FewShotLearner(filters=4, T=4, steps=80, batch=2, hyper_rate=0.03).fit(own)


def accuracy(learner, characters, drawings=1):
    """Of the drawings that were not learned from."""
    n = len(characters)
    support = NEW[characters, :drawings].reshape(-1, 28, 28)
    new = learner.adapt(support, np.repeat(NAMES[:n], drawings))
    query = NEW[characters, drawings:]
    found = new.predict(query.reshape(-1, 28, 28)).reshape(n, -1)
    return np.mean(found == NAMES[:n, None])


def test_new_characters(learner):
    groups = [[0, 1, 2, 3], [4, 5, 6, 7], [2, 5, 8, 9]]
    assert learner.ways_ == 4
    assert np.mean([accuracy(learner, group) for group in groups]) > 0.25 + 0.3
    assert accuracy(learner, groups[0], drawings=3) > 0.25 + 0.3  # more than one of each
    assert accuracy(learner, [0, 4]) > 0.5 + 0.15  # fewer classes than it was trained on


def test_answers_are_consistent(learner):
    new = learner.adapt(NEW[:4, 0], NAMES)
    p = new.predict_proba(NEW[0])
    assert p.shape == (8, 4) and np.allclose(p.sum(1), 1)
    assert new.classes_.tolist() == sorted(NAMES)
    assert (new.predict(NEW[0]) == new.classes_[p.argmax(1)]).all()
    assert np.allclose(new.predict_proba(NEW[0] / 255), p)  # uint8, or from 0 to 1
    assert new.predict(NEW[0, 1:2]).shape == (1,)  # one alone


def test_a_learner_travels(learner, tmp_path):
    path = learner.save(tmp_path / "learner.npz")
    again = FewShotLearner.load(path)
    answers = [x.adapt(NEW[:4, 0], NAMES).predict_proba(NEW[:4, 1]) for x in (learner, again)]
    assert (answers[0] == answers[1]).all()
    with np.load(path, allow_pickle=False) as arrays:
        assert all(arrays[name].dtype.kind in "fU" for name in arrays)


def test_a_learner_is_saved_whole_or_not_at_all(learner, tmp_path, monkeypatch):
    path = learner.save(tmp_path / "learner.npz")
    before = path.read_bytes()

    def half(file, **arrays):
        file.write(b"PK")
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez", half)
    with pytest.raises(OSError, match="No space left"):
        learner.save(path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["learner.npz"]


def test_a_file_that_claims_a_huge_network_takes_no_memory(learner, tmp_path):
    """Nor is anything else believed."""
    with np.load(learner.save(tmp_path / "l.npz")) as whole:
        arrays = {name: whole[name] for name in whole}
    text = str(arrays["settings"])
    told = [json.dumps(json.loads(text) | {"filters": 10**9}), text.replace('"T": ', '"T": 1e999')]
    changes = [{"settings": np.array(text)} for text in (*told, "[" * 100_000)]
    changes.append({"gamma": arrays["gamma"].astype("U9")})
    for change in changes:
        np.savez(tmp_path / "huge.npz", **arrays | change)
        with pytest.raises(ValueError, match="is not a file that FewShotLearner.save wrote"):
            FewShotLearner.load(tmp_path / "huge.npz")


@pytest.mark.slow
def test_many_fits_share_one_program():
    small = lambda i: FewShotLearner(
        filters=2, T=2, steps=1, batch=1, rho=0.1 + i, hyper_rate=0.1 / (i + 1)
    )
    assert added(lambda i: small(i).fit(TASKS).adapt(ONE, TWO).predict(ONE)) == 0


def test_strange_files(learner, tmp_path):
    np.savez(tmp_path / "other.npz", a=np.ones(3))
    with pytest.raises(ValueError, match="is not a file that FewShotLearner.save wrote"):
        FewShotLearner.load(tmp_path / "other.npz")
    with np.load(learner.save(tmp_path / "l.npz")) as whole:
        np.savez(tmp_path / "less.npz", **{k: whole[k] for k in whole if k != "gamma"})
    with pytest.raises(ValueError, match="is not a file that FewShotLearner.save wrote"):
        FewShotLearner.load(tmp_path / "less.npz")
    np.savez(tmp_path / "objects.npz", a=np.array([{}], object))
    with pytest.raises(DataError, match="pickled objects"):
        FewShotLearner.load(tmp_path / "objects.npz")


def test_is_an_estimator():
    own = FewShotLearner(filters=3, rule=bx.Reverse(K=2))
    assert clone(own).get_params() == own.get_params()


ONE, TWO = NEW[:4, 0], NAMES
WRONG = {
    "shape": (ONE[:, :20], TWO, r"X_support must have shape \(n, 28, 28\), got \(4, 20, 28\)"),
    "range": (ONE.astype(float), TWO, "X_support must be uint8, or numbers from 0 to 1"),
    "nan": (np.full((4, 28, 28), np.nan), TWO, "X_support must be uint8, or numbers from 0 to 1"),
    "labels": (ONE, TWO[:3], "y_support must have a label for each of 4 images"),
    "none": (ONE[:0], TWO[:0], "X_support holds no image"),
    "one class": (ONE, ["a"] * 4, "y_support has 1 classes, .* tasks of 2 to 4"),
    "many": (NEW[:6, 0], list("abcdef"), "y_support has 6 classes, .* fit it on tasks with more"),
}


@pytest.mark.parametrize("x, y, text", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said(learner, x, y, text):
    with pytest.raises(ValueError, match=text) as caught:
        learner.adapt(x, y)
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")


def test_wrong_settings():
    with pytest.raises(TypeError, match="tasks must be a function key -> task"):
        FewShotLearner().fit(IMAGES)
    with pytest.raises(ValueError, match="side of 16 to 31"):
        FewShotLearner().fit(TaskSampler(np.zeros((5, 4, 40, 40), np.uint8), 2, 1, 1))
    for name in ("filters", "T", "steps", "batch"):
        with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
            FewShotLearner(**{"filters": 2, "T": 2, "steps": 1} | {name: 0}).fit(TASKS)
    with pytest.raises(ValueError, match="gamma must be a number above 0"):
        FewShotLearner(gamma=-1.0).fit(TASKS)


def test_not_fitted():
    with pytest.raises(Exception, match="not fitted"):
        FewShotLearner().adapt(ONE, TWO)

"""`FewShotLearner`: new classes of images from one example of each."""

import os
from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.special import softmax
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .._compile import weak_jit
from .._models.convolution import patches
from .._models.episodes import Task
from .._models.one_shot import (
    Hyper,
    classify,
    dynamics,
    f,
    first_lam,
    represent,
    slowing_adam,
)
from .._outer.minimize import minimize
from .._rules.base import AbstractRule
from .._rules.reverse import Reverse
from .._solve import solve
from . import _inputs as inputs
from . import _learner_file as learner_file
from ._optimizer import with_arrays

XI = dynamics()


class FewShotLearner(BaseEstimator):
    """Learn from many small tasks to tell new classes apart by one or a few examples of each.

    The meta-learning of the paper (Sec. 4.3): two convolutions are shared by all tasks. Two more
    and a linear layer are trained on each task. Where they start, what they are pulled to, how
    strongly, and the step size are hyperparameters, too. Hypergradients tune all of these so that
    what is learned from the support images of a task does well on its query images.

    **Arguments:**

    - `filters`: channels of each of the four convolutions.
    - `T`: inner steps, in `fit` and in `adapt`.
    - `rule`: the hypergradient. Default: `Reverse(K=5)`, or all steps if T is less.
    - `steps`: hyper-iterations.
    - `batch`: tasks in a hyper-iteration.
    - `hyper_rate`: first learning rate of Adam, which decays; a tenth of it for the logarithms of
        rho and gamma.
    - `rho`, `gamma`: first strength of the pull, and first inner step size.
    - `random_state`: random seed of the first weights and of the tasks.
    - `progress`: show a progress bar; None shows one on a terminal.
    - `checkpoint_dir`: save the run in this folder, and continue the run that is there.

    After `fit`: `lam_`, `ways_`, `size_` (the side of an image), `history_`.

    !!! example

        >>> from bilevax.apps import FewShotLearner, TaskSampler
        >>> from bilevax.paper.data import glyphs
        >>> drawings = glyphs.load(characters=12, drawings=8)
        >>> tasks = TaskSampler(drawings[:8], ways=2, shots=1, queries=3)
        >>> learner = FewShotLearner(filters=4, T=3, steps=2).fit(tasks)
        >>> new = learner.adapt(drawings[8:10, 0], ["aleph", "beth"])
        >>> new.predict(drawings[8, 1:3]).shape
        (2,)
    """

    def __init__(
        self,
        *,
        filters: int = 32,
        T: int = 20,
        rule: AbstractRule | None = None,
        steps: int = 300,
        batch: int = 4,
        hyper_rate: float = 0.003,
        rho: float = 0.0025,
        gamma: float = 0.4,
        random_state: Any = 0,
        progress: bool | None = False,
        checkpoint_dir: Any = None,
    ):
        self.filters = filters
        self.T = T
        self.rule = rule
        self.steps = steps
        self.batch = batch
        self.hyper_rate = hyper_rate
        self.rho = rho
        self.gamma = gamma
        self.random_state = random_state
        self.progress = progress
        self.checkpoint_dir = checkpoint_dir

    def fit(self, tasks: Any, y: None = None) -> Self:
        """Learn from tasks how to learn from few examples.

        **Arguments:**

        - `tasks`: a function key -> `Task(x, y, x_val, y_val)`, as `TaskSampler(images)` is:
            support images (n, side, side) from 0 to 1 with classes 0, 1, ..., and query images.
        - `y`: nothing; scikit-learn's conventions ask for it.
        """
        keys = jax.random.split(inputs.key(self.random_state))
        self.ways_, self.size_ = inputs.task_shape(tasks, keys[1])
        rho, gamma = inputs.number(self.rho, "rho"), inputs.number(self.gamma, "gamma")
        lam = first_lam(keys[0], self.ways_, inputs.integer(self.filters, "filters"), rho, gamma)
        T, steps = inputs.integer(self.T, "T"), inputs.integer(self.steps, "steps")
        rule = self.rule if self.rule is not None else Reverse(K=5) if T > 5 else Reverse()
        rate = inputs.number(self.hyper_rate, "hyper_rate")
        result = minimize(
            f, XI, rule, lam, T=T, steps=steps, contexts=tasks, key=keys[1],
            optimizer=with_arrays(slowing_adam, steps, jnp.asarray(rate)),
            batch=inputs.integer(self.batch, "batch"), at_once=1, progress=self.progress,
            checkpoint=self.checkpoint_dir,
        )  # fmt: skip
        self.lam_, self.history_ = jax.tree.map(np.asarray, result.lam), result.history
        return self

    def adapt(self, X_support: Any, y_support: Any) -> "AdaptedClassifier":
        """A classifier for the classes of these images.

        **Arguments:**

        - `X_support`: images (n, side, side): uint8, or numbers from 0 to 1.
        - `y_support`: their labels, numbers or strings; at most `ways_` different ones.

        **Returns:**

        An `AdaptedClassifier`, with `predict` and `predict_proba`.
        """
        check_is_fitted(self, "lam_")
        x = inputs.images(X_support, "X_support", self.size_)
        classes, codes = inputs.support_labels(y_support, len(x), self.ways_)
        lam = _first_outputs(jax.tree.map(jnp.asarray, self.lam_), len(classes))
        w = _adapt(lam, jnp.asarray(x), jnp.asarray(codes, jnp.int32), inputs.integer(self.T, "T"))
        return AdaptedClassifier(classes, lam, w, x)

    def save(self, path: str | os.PathLike) -> Path:
        """Write one file, an npz of plain arrays with the settings as JSON; nothing is pickled."""
        check_is_fitted(self, "lam_")
        settings = {"T": self.T, "filters": self.filters, "ways": self.ways_, "size": self.size_}
        return learner_file.write(Path(path).expanduser(), settings, self.lam_)

    @classmethod
    def load(cls, path: str | os.PathLike) -> "FewShotLearner":
        """The learner that `save` wrote; it can adapt, and be fitted again."""
        file = Path(path).expanduser()
        settings, arrays = learner_file.read(file)
        learner = cls(filters=settings["filters"], T=settings["T"])
        learner.ways_, learner.size_ = settings["ways"], settings["size"]
        form = jax.eval_shape(
            lambda key: first_lam(key, learner.ways_, learner.filters, 1.0, 1.0), jax.random.key(0)
        )
        learner.lam_ = learner_file.fill(form, arrays, file)
        return learner


class AdaptedClassifier:
    """What `FewShotLearner.adapt` returns: a classifier of images.

    Batch norm uses the statistics of the batch itself. Your images are therefore normalised
    together with the support images, so that you may give a single one. If you give several at
    once, the probabilities of each change a little, and are better.

    !!! example

        >>> letters = learner.adapt(drawings, ["aleph", "beth"])  # doctest: +SKIP
        >>> letters.predict_proba(others).shape  # learner: see FewShotLearner  # doctest: +SKIP
        (3, 2)
    """

    def __init__(self, classes: np.ndarray, lam: Hyper, w: Any, support: np.ndarray):
        self.classes_, self._lam, self._w, self._support = classes, lam, w, support

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities, `(n, classes)`, in the order of `classes_`."""
        x = inputs.images(X, "X", self._support.shape[1])
        together = jnp.asarray(np.concatenate([self._support, x]))
        logits = np.asarray(_logits(self._w, self._lam, together), float)
        return softmax(logits[len(self._support) :], axis=1)

    def predict(self, X: Any) -> np.ndarray:
        """The most likely label of each image."""
        return self.classes_[self.predict_proba(X).argmax(1)]


def _first_outputs(lam: Hyper, n: int) -> Hyper:
    """A linear layer with n of its outputs; in training classes were numbered at random."""
    linear = jax.tree.map(lambda a: a[..., :n], lam["c"]["linear"])
    return lam | {"c": lam["c"] | {"linear": linear}}


@weak_jit
def _adapt(lam: Hyper, x: Array, y: Array, T: int) -> Any:
    return solve(XI, lam, Task(x, y, x, y), T=T)


@jax.jit
def _logits(w: Any, lam: Hyper, x: Array) -> Array:
    return classify(w, patches(represent(lam, x)))

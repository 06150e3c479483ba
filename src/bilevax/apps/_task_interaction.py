"""`TaskInteraction`: a classifier that learns which classes should learn from each other."""

from typing import Any, Self

import jax.numpy as jnp
import numpy as np
import optax
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .._models.interaction import interaction
from .._outer.checkpoints import Checkpoint
from .._outer.minimize import Result, minimize
from .._rules.base import AbstractRule
from .._rules.reverse import Reverse
from . import _check as check
from . import _settings as settings
from ._classifier import AbstractClassifier
from ._interaction_model import Problem, f, problem
from ._model import Rows, linear


class TaskInteraction(AbstractClassifier):
    """A linear classifier for few examples, and which of its classes belong together.

    The weights of classes i and j are drawn to each other by C_ij |w_i - w_j|^2; the whole
    matrix C is tuned by hypergradients on validation rows (Sec. 4.2.2).

    **Arguments:**

    - `rule`: the hypergradient. Default: full back-propagation; `Reverse(K=5)` is faster.
    - `T`: inner steps.
    - `learning_rate`: of the inner steps; columns are scaled so that 1 is the largest curvature.
    - `steps`: hyper-iterations, steps of Adam on C.
    - `hyper_rate`: of Adam.
    - `start`: every C_ij, and the weight decay rho, at the start.
    - `standardize`: bring columns to mean 0 and deviation 1 (no value beyond 10), then scale.
    - `refit`: train the final classifier on the validation rows too.
    - `random_state`: of the rows that are held out where no validation set is given.
    - `progress`: show a progress bar. Default: not.
    - `checkpoint_dir`: save the run here, and go on from what is there.

    After `fit`: `interaction_`, C in the order of `classes_`, 0 on the diagonal; `rho_`;
    `held_out_`, the rows of X that served for validation, or None where a set was given;
    `history_`, with the validation loss as `value`; `w_`, weights and bias of each class, for
    scaled columns.

    !!! example

        >>> import numpy as np
        >>> from bilevax.apps import TaskInteraction
        >>> rng = np.random.default_rng(0)
        >>> means = np.repeat(rng.normal(size=(2, 8)), 2, axis=0)  # a is like b, and c like d
        >>> y = np.arange(80) % 4
        >>> x = means[y] + rng.normal(size=(80, 8))
        >>> model = TaskInteraction(steps=40).fit(x, np.array(list("abcd"))[y])
        >>> C = model.interaction_
        >>> bool(min(C[0, 1], C[2, 3]) > 2 * C[:2, 2:].max())
        True
    """

    def __init__(
        self,
        rule: AbstractRule | None = None,
        *,
        T: int = 100,
        learning_rate: float = 0.5,
        steps: int = 100,
        hyper_rate: float = 0.1,
        start: float = 1e-3,
        standardize: bool = True,
        refit: bool = True,
        random_state: Any = 0,
        progress: bool | None = False,
        checkpoint_dir: Any = None,
    ):
        self.rule = rule
        self.T = T
        self.learning_rate = learning_rate
        self.steps = steps
        self.hyper_rate = hyper_rate
        self.start = start
        self.standardize = standardize
        self.refit = refit
        self.random_state = random_state
        self.progress = progress
        self.checkpoint_dir = checkpoint_dir

    def fit(self, X: Any, y: Any, X_val: Any = None, y_val: Any = None) -> Self:
        """Learn C, and a classifier with it.

        **Arguments:**

        - `X`, `y`: rows and their labels (numbers, strings or bools).
        - `X_val`, `y_val`: rows to tune C on. Without them half of the rows of each class are
            held out for that (`held_out_`).
        """
        x, codes = self._rows(X, y)
        given = check.both_given(X_val, y_val, "val")
        train, validation = self._given(X_val, y_val, x, codes) if given else self._held(x, codes)
        self._scale = self._scale_of(x)
        train, validation = self._prepared(*train), self._prepared(*validation)
        p = self._problem(train, validation)
        result = self._minimize(p)
        self.history_ = result.history
        C, rho = interaction(result.lam)
        self.interaction_, self.rho_ = np.array(C, float), float(rho)
        np.fill_diagonal(self.interaction_, 0.0)
        both = Rows(*(jnp.concatenate(pair) for pair in zip(train, validation, strict=True)))
        self.w_ = p.train(result.lam, both if self.refit else train)
        return self

    def _given(self, X_val: Any, y_val: Any, x: np.ndarray, codes: np.ndarray) -> tuple:
        val, labels = self._others(X_val, y_val, x, "val")
        self.held_out_ = None
        return (x, codes), (val, check.numbers_of(labels, self.classes_, "y_val"))

    def _held(self, x: np.ndarray, codes: np.ndarray) -> tuple:
        """Half of each class; of an odd number the larger half stays for training."""
        random = check_random_state(self.random_state)
        classes = [random.permutation(np.flatnonzero(codes == c)) for c in np.unique(codes)]
        self.held_out_ = np.sort(np.concatenate([rows[: len(rows) // 2] for rows in classes]))
        check.some_held_out(self.held_out_)
        rest = np.setdiff1d(np.arange(len(codes)), self.held_out_)
        return (x[rest], codes[rest]), (x[self.held_out_], codes[self.held_out_])

    def _scale_of(self, x: np.ndarray) -> settings.Scale:
        if not self.standardize:
            return settings.as_given(x)
        return settings.unit_curvature(settings.standard(x), x, len(self.classes_))

    def _prepared(self, x: np.ndarray, codes: np.ndarray) -> Rows:
        return Rows(jnp.asarray(self._features(x), jnp.float32), jnp.asarray(codes, jnp.int32))

    def _features(self, x: np.ndarray) -> np.ndarray:
        return np.pad(self._scale(x), ((0, 0), (0, 1)), constant_values=1.0)

    def _problem(self, train: Rows, validation: Rows) -> Problem:
        T = check.whole(self.T, "T")
        gamma = check.number(self.learning_rate, "learning_rate")
        start = check.number(self.start, "start")
        return problem(train, validation, len(self.classes_), T=T, gamma=gamma, start=start)

    def _minimize(self, p: Problem) -> Result:
        steps = check.whole(self.steps, "steps")
        return minimize(
            f,
            p.xi,
            Reverse() if self.rule is None else self.rule,
            p.lam,
            T=p.T,
            steps=steps,
            optimizer=optax.adam(check.number(self.hyper_rate, "hyper_rate")),
            S=p.S,
            progress=self.progress,
            checkpoint=self.checkpoint_dir
            and Checkpoint(self.checkpoint_dir, every=max(1, steps // 10)),
        )

    def _scores(self, x: np.ndarray) -> np.ndarray:
        return linear(self.w_.astype(float), self._features(x))

    def plot(self, axis: Any = None) -> Any:
        """Draw C, classes in the order of hierarchical clusters.

        **Arguments:**

        - `axis`: matplotlib's axes to draw on. Default: those of a new figure.

        **Returns:**

        The axes.
        """
        check_is_fitted(self)
        from ._plot import draw

        return draw(self.interaction_, [str(name) for name in self.classes_], axis)

"""`TaskInteraction`: a classifier that learns which classes should learn from each other."""

from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .._dynamics import Descent
from .._models.interaction import f_rows, first_lam, g_rows, interaction
from .._models.rows import Rows, descent, linear
from .._outer.checkpoints import Checkpoint
from .._outer.minimize import Result, minimize
from .._rules.base import AbstractRule
from .._rules.reverse import Reverse
from .._solve import solve
from .._types import Context, Hyper
from . import _inputs as inputs
from ._classifier import AbstractClassifier
from ._optimizer import adam
from ._scale import as_given, unit_curvature, with_ones


class TaskInteraction(AbstractClassifier):
    """A linear classifier for few examples, and which of its classes belong together.

    The weights of classes i and j are drawn to each other by C_ij |w_i - w_j|^2. The whole
    matrix C is tuned by hypergradients on validation rows (Sec. 4.2.2).

    **Arguments:**

    - `rule`: the hypergradient. Default: full back-propagation; `Reverse(K=5)` is faster.
    - `T`: inner steps.
    - `learning_rate`: step size of the inner descent; columns are scaled so that the largest
        curvature is 1.
    - `steps`: hyper-iterations, steps of Adam on C.
    - `hyper_rate`: learning rate of Adam.
    - `start`: first value of every C_ij and of the weight decay rho.
    - `standardize`: bring columns to mean 0 and deviation 1 (no value beyond 10), then scale.
    - `refit`: train the final classifier on the validation rows too.
    - `random_state`: random seed of the rows that are held out if no validation set is given.
    - `progress`: show a progress bar; None shows one on a terminal.
    - `checkpoint_dir`: save the run in this folder, and continue the run that is there.

    After `fit`: `interaction_`, C in the order of `classes_`, 0 on the diagonal; `rho_`, the weight
    decay; `held_out_`, the rows of X that served for validation, or None if you gave a validation
    set; `history_`, with the validation loss as `value`; `w_`, weights and bias of each class, for
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
        given = inputs.both_given(X_val, y_val, "val")
        train, validation = self._given(X_val, y_val, x, codes) if given else self._held(x, codes)
        n = len(self.classes_)
        self._scale = unit_curvature(x, n) if self.standardize else as_given(x)
        train, validation = self._prepared(*train), self._prepared(*validation)
        W = jnp.zeros((n, train.x.shape[1]), jnp.float32)
        xi = descent(g_rows, W, inputs.number(self.learning_rate, "learning_rate"))
        start = inputs.number(self.start, "start")
        S = {"train": train, "validation": validation}
        result = self._minimize(xi, first_lam(n, start, start, jnp.float32), S)
        self.history_ = result.history
        C, rho = interaction(result.lam)
        self.interaction_, self.rho_ = np.array(C, float), float(rho)
        np.fill_diagonal(self.interaction_, 0.0)
        both = Rows(*(jnp.concatenate(pair) for pair in zip(train, validation, strict=True)))
        S["train"] = both if self.refit else train
        self.w_ = np.asarray(solve(xi, result.lam, S, T=self.T))
        return self

    def _given(self, X_val: Any, y_val: Any, x: np.ndarray, codes: np.ndarray) -> tuple:
        val, labels = self._others(X_val, y_val, x, "val")
        self.held_out_ = None
        return (x, codes), (val, inputs.codes_of(labels, self.classes_, "y_val"))

    def _held(self, x: np.ndarray, codes: np.ndarray) -> tuple:
        """Half of each class; of an odd number the larger half stays for training."""
        random = check_random_state(self.random_state)
        classes = [random.permutation(np.flatnonzero(codes == c)) for c in np.unique(codes)]
        self.held_out_ = np.sort(np.concatenate([rows[: len(rows) // 2] for rows in classes]))
        inputs.some_held_out(self.held_out_)
        rest = np.setdiff1d(np.arange(len(codes)), self.held_out_)
        return (x[rest], codes[rest]), (x[self.held_out_], codes[self.held_out_])

    def _prepared(self, x: np.ndarray, codes: np.ndarray) -> Rows:
        z = with_ones(self._scale(x))
        return Rows(jnp.asarray(z, jnp.float32), jnp.asarray(codes, jnp.int32))

    def _minimize(self, xi: Descent, lam: Hyper, S: Context) -> Result:
        steps = inputs.integer(self.steps, "steps")
        return minimize(
            f_rows,
            xi,
            Reverse() if self.rule is None else self.rule,
            lam,
            T=inputs.integer(self.T, "T"),
            steps=steps,
            optimizer=adam(inputs.number(self.hyper_rate, "hyper_rate")),
            S=S,
            progress=self.progress,
            checkpoint=self.checkpoint_dir
            and Checkpoint(self.checkpoint_dir, every=max(1, steps // 10)),
        )

    def _scores(self, x: np.ndarray) -> np.ndarray:
        return linear(self.w_.astype(float), with_ones(self._scale(x)))

    def plot(self, axis: Any = None) -> Any:
        """Draw C, classes in the order of hierarchical clusters.

        **Arguments:**

        - `axis`: matplotlib's axes to draw on. Default: those of a new figure.

        **Returns:**

        The axes.
        """
        check_is_fitted(self)
        from .._pictures.clusters import order
        from .._pictures.heat import heat

        if axis is None:
            import matplotlib.pyplot as plt

            _, axis = plt.subplots(layout="constrained")
        C, diagonal = self.interaction_, np.eye(len(self.classes_), dtype=bool)
        places = order(np.where(diagonal, C.max(), C))
        blank = np.where(diagonal, np.nan, C)[np.ix_(places, places)]
        names = [str(self.classes_[i]) for i in places]
        heat(axis, names, names, blank, "C", log=True)
        return axis

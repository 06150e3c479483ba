"""`HyperCleaner`: a classifier for data whose labels are partly wrong."""

from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.utils import check_random_state

from .._errors import check as base
from .._outer.checkpoints import Checkpoint
from .._outer.minimize import Result, minimize
from .._rules.base import AbstractRule
from . import _check as check
from . import _settings as settings
from ._classifier import AbstractClassifier
from ._model import Draw, Problem, Rows, as_numpy, belief, linear, problem, train

ROUNDS = 2
"""Times that the final classifier is trained again on what it believes."""


class HyperCleaner(AbstractClassifier):
    """Find the wrong labels with the help of a few right ones, and learn from the rest.

    Each training row i has a weight sigmoid(lam_i) in the loss of a classifier; lam is tuned by
    hypergradients so that the classifier does well on trusted rows (Sec. 4.2.1). The final
    classifier learns from the rows with these weights and from the trusted rows, then twice
    again with its own belief in each label for a weight; labels it does not believe are suspect.

    **Arguments:**

    - `model`: `(w, apply)`: initial parameters, a pytree of arrays, and a function that maps
        them and rows x, `(n, features)`, to logits, `(n, classes)`, with classes in sorted
        order. Default: a linear model.
    - `rule`: the hypergradient. Default: chosen by one diagnosis at the start, `diagnosis_`.
    - `T`: inner steps. Default: 100; with minibatches at least twice through the rows.
    - `learning_rate`: of the inner steps. Default: one over the largest curvature, measured.
    - `steps`: hyper-iterations, steps of Adam on lam.
    - `hyper_rate`: of Adam.
    - `weight_decay`: of |w|^2 in the inner loss.
    - `threshold`: a row is suspect if the final classifier gives its label a probability below.
    - `standardize`: bring columns to mean 0 and deviation 1 (no value beyond 10).
    - `use_trusted`: train the final classifier on the trusted rows too.
    - `batch_size`: rows in an inner step and in the outer loss. Default: all of them.
    - `random_state`: of the minibatches.
    - `progress`: show a progress bar. Default: on a terminal.
    - `checkpoint_dir`: save the run here, and go on from what is there.

    After `fit`: `weights_`, sigmoid(lam_i) of each training row; `suspect_`, a mask of them;
    `belief_`, the probability that the final classifier gives to their labels (the paper's own
    criterion is `lam_ < -3`, after a longer run); `classes_`; `lam_`; `history_`; `rule_`,
    `T_`, `learning_rate_`, as used; `diagnosis_`, or None where the rule was given; `w_`, the
    parameters of the final classifier.

    !!! example

        >>> import numpy as np
        >>> from bilevax.apps import HyperCleaner
        >>> x = np.random.default_rng(0).normal(size=(120, 2))
        >>> truth = np.where(x[:, 0] > 0, "right", "left")
        >>> y = truth.copy()
        >>> y[:10] = np.where(truth[:10] == "left", "right", "left")  # ten wrong labels
        >>> cleaner = HyperCleaner(steps=30).fit(x[:80], y[:80], x[80:], y[80:])
        >>> int(cleaner.suspect_[:10].sum()) >= 8
        True
    """

    def __init__(
        self,
        model: tuple | None = None,
        *,
        rule: AbstractRule | None = None,
        T: int | None = None,
        learning_rate: float | None = None,
        steps: int = 50,
        hyper_rate: float = 0.1,
        weight_decay: float = 0.001,
        threshold: float = 0.15,
        standardize: bool = True,
        use_trusted: bool = True,
        batch_size: int | None = None,
        random_state: Any = 0,
        progress: bool | None = False,
        checkpoint_dir: Any = None,
    ):
        self.model = model
        self.rule = rule
        self.T = T
        self.learning_rate = learning_rate
        self.steps = steps
        self.hyper_rate = hyper_rate
        self.weight_decay = weight_decay
        self.threshold = threshold
        self.standardize = standardize
        self.use_trusted = use_trusted
        self.batch_size = batch_size
        self.random_state = random_state
        self.progress = progress
        self.checkpoint_dir = checkpoint_dir

    def fit(self, X: Any, y: Any, X_trusted: Any = None, y_trusted: Any = None) -> Self:
        """Clean.

        **Arguments:**

        - `X`, `y`: rows and their labels (numbers, strings or bools), some of them wrong.
        - `X_trusted`, `y_trusted`: rows whose labels are right; at least one of each class.
        """
        x, codes, trusted, trusted_codes = self._data(X, y, X_trusted, y_trusted)
        self._scale = self._scale_of(x, len(self.classes_))
        rows = Rows(self._prepared(x), jnp.asarray(codes, jnp.int32))
        p = self._problem(rows, Rows(self._prepared(trusted), jnp.asarray(trusted_codes)))
        result = self._minimize(p)
        self.lam_, self.history_ = np.asarray(result.lam), result.history
        self.weights_ = 1 / (1 + np.exp(-self.lam_.astype(float)))
        self.w_, self.belief_ = self._learn(p, rows)
        self.suspect_ = self.belief_ < check.number(self.threshold, "threshold")
        return self

    def _data(self, X: Any, y: Any, X_trusted: Any, y_trusted: Any) -> tuple:
        x, codes = self._rows(X, y)
        check.trusted_given(X_trusted, y_trusted)
        trusted, labels = self._others(X_trusted, y_trusted, x, "trusted")
        return x, codes, trusted, check.coded(labels, self.classes_)

    def _scale_of(self, x: np.ndarray, classes: int) -> settings.Scale:
        scale = settings.standard(x) if self.standardize else settings.as_given(x)
        own = self.model is None and self.standardize
        return settings.unit_curvature(scale, x, classes) if own else scale

    def _prepared(self, x: np.ndarray) -> Any:
        z = self._scale(x)
        if self.model is None:
            z = np.pad(z, ((0, 0), (0, 1)), constant_values=1.0)
        return jnp.asarray(z, jnp.float32)

    def _problem(self, rows: Rows, trusted: Rows) -> Problem:
        n, classes = len(rows.y), len(self.classes_)
        w, apply = self._model(rows.x.shape[1], classes)
        shape = jax.eval_shape(apply, w, rows.x).shape
        check.logits(shape, n, classes)
        size = None if self.batch_size is None else check.whole(self.batch_size, "batch_size")
        size = size if size is not None and size < n else None
        T = settings.horizon_of(n, size) if self.T is None else check.whole(self.T, "T")
        decay = check.number(self.weight_decay, "weight_decay", zero=True)
        seed = settings.seed_of(check_random_state(self.random_state))
        p = problem(apply, w, rows, trusted, T=T, decay=decay, size=size, seed=seed)
        rate = self.learning_rate
        rate = settings.rate_of(p) if rate is None else check.number(rate, "learning_rate")
        self.T_, self.learning_rate_ = T, rate
        return p.at_rate(rate)

    def _model(self, features: int, classes: int) -> tuple:
        if self.model is None:
            return jnp.zeros((classes, features), jnp.float32), linear
        w, apply = check.model(self.model)
        return jax.tree.map(jnp.asarray, base.floating(w, "w")), apply

    def _minimize(self, p: Problem) -> Result:
        self.diagnosis_, rule = None, self.rule
        if rule is None:
            self.diagnosis_ = settings.look(p)
            rule = settings.rule_of(self.diagnosis_, p)
        self.rule_ = rule
        steps = check.whole(self.steps, "steps")
        return minimize(
            p.f,
            p.xi,
            rule,
            p.lam,
            T=p.T,
            steps=steps,
            optimizer=optax.adam(check.number(self.hyper_rate, "hyper_rate")),
            S=p.S if p.size is None else None,
            contexts=None if p.size is None else Draw(p.S, p.size),
            key=None if p.size is None else p.S["key"],
            progress=self.progress,
            checkpoint=self.checkpoint_dir
            and Checkpoint(self.checkpoint_dir, every=max(1, steps // 10)),
        )

    def _learn(self, p: Problem, rows: Rows) -> tuple[Any, np.ndarray]:
        """The final classifier, and how much it believes each label.

        First the rows have the weights that were found; then, `ROUNDS` times, as weight the
        probability that the last classifier gave to their label: what was found on few trusted
        rows is put right by the many others.
        """
        n, also = len(rows.y), p.S["trusted"]
        if self.use_trusted:
            rows = Rows(jnp.concatenate([rows.x, also.x]), jnp.concatenate([rows.y, also.y]))
        weight, w = jnp.ones(len(rows.y), jnp.float32), None
        weight = weight.at[:n].set(jnp.asarray(self.weights_, jnp.float32))
        for _ in range(1 + ROUNDS):
            p = p.on(rows, weight)
            w = train(p, p.lam)
            weight = weight.at[:n].set(belief(p, w)[:n])
        return as_numpy(w), np.asarray(weight[:n], float)

    def _scores(self, x: np.ndarray) -> np.ndarray:
        if self.model is None:  # in float64, so that a row's answer does not hang on its company
            z = np.pad(self._scale(x), ((0, 0), (0, 1)), constant_values=1.0)
            return linear(self.w_.astype(float), z)
        w = jax.tree.map(jnp.asarray, self.w_)
        return np.asarray(self.model[1](w, self._prepared(x)), float)

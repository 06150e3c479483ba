"""`HyperCleaner`: a classifier for data whose labels are partly wrong."""

from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._errors import check
from .._hypergradient import solve
from .._models.cleaning import Cleaning, Contexts, belief, cleaning
from .._models.optimizer import adam
from .._models.rows import Rows, linear
from .._outer.checkpoints import Checkpoint
from .._outer.minimize import Result, minimize
from .._rules.base import AbstractRule
from . import _inputs as inputs
from ._classifier import AbstractClassifier
from ._defaults import diagnosis_of, horizon_of, rate_of, rule_of
from ._scale import Scale, as_given, standard, unit_curvature, with_ones

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
    - `learning_rate`: step size of the inner descent. Default: one over the largest curvature,
        measured.
    - `steps`: hyper-iterations, steps of Adam on lam.
    - `hyper_rate`: learning rate of Adam.
    - `weight_decay`: factor of |w|^2 in the inner loss.
    - `threshold`: a row is suspect if the final classifier gives its label a smaller probability.
    - `standardize`: bring columns to mean 0 and deviation 1 (no value beyond 10).
    - `use_trusted`: train the final classifier on the trusted rows too.
    - `batch_size`: rows in an inner step and in the outer loss. Default: all of them.
    - `random_state`: random seed of the minibatches.
    - `progress`: show a progress bar; None shows one on a terminal.
    - `checkpoint_dir`: save the run in this folder, and continue the run that is there.

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
        """Weigh the rows, and learn from them.

        **Arguments:**

        - `X`, `y`: rows and their labels (numbers, strings or bools), some of them wrong.
        - `X_trusted`, `y_trusted`: rows whose labels are right; at least one of each class.
        """
        threshold = inputs.number(self.threshold, "threshold")
        x, codes = self._rows(X, y)
        inputs.trusted_given(X_trusted, y_trusted)
        x_trusted, labels = self._others(X_trusted, y_trusted, x, "trusted")
        self._scale = self._scale_of(x)
        rows = Rows(self._features(x), jnp.asarray(codes, jnp.int32))
        codes_trusted = inputs.codes_of_each(labels, self.classes_)
        p = self._problem(rows, Rows(self._features(x_trusted), jnp.asarray(codes_trusted)))
        result = self._minimize(p)
        self.lam_, self.history_ = np.asarray(result.lam), result.history
        self.weights_ = 1 / (1 + np.exp(-self.lam_.astype(float)))
        self.w_, self.belief_ = self._learn(p, rows)
        self.suspect_ = self.belief_ < threshold
        return self

    def _scale_of(self, x: np.ndarray) -> Scale:
        if not self.standardize:
            return as_given(x)
        return unit_curvature(x, len(self.classes_)) if self.model is None else standard(x)

    def _features(self, x: np.ndarray) -> Array:
        z = self._scale(x)
        return jnp.asarray(with_ones(z) if self.model is None else z, jnp.float32)

    def _problem(self, rows: Rows, trusted: Rows) -> Cleaning:
        n, classes = len(rows.y), len(self.classes_)
        w, apply = self._model(rows.x.shape[1], classes)
        inputs.logits(jax.eval_shape(apply, w, rows.x).shape, n, classes)
        size = None if self.batch_size is None else inputs.integer(self.batch_size, "batch_size")
        size = size if size is not None and size < n else None
        T = horizon_of(n, size) if self.T is None else inputs.integer(self.T, "T")
        decay = inputs.number(self.weight_decay, "weight_decay", zero=True)
        key = inputs.key(self.random_state)
        p = cleaning(apply, w, rows, trusted, T=T, decay=decay, size=size, key=key)
        rate = self.learning_rate
        rate = rate_of(p) if rate is None else inputs.number(rate, "learning_rate")
        self.T_, self.learning_rate_ = T, rate
        return p.at_rate(rate)

    def _model(self, features: int, classes: int) -> tuple:
        if self.model is None:
            return jnp.zeros((classes, features), jnp.float32), linear
        w, apply = inputs.model(self.model)
        return jax.tree.map(jnp.asarray, check.floating(w, "w")), apply

    def _minimize(self, p: Cleaning) -> Result:
        self.diagnosis_, self.rule_ = None, self.rule
        if self.rule is None:
            self.diagnosis_ = diagnosis_of(p)
            self.rule_ = rule_of(self.diagnosis_, p)
        steps = inputs.integer(self.steps, "steps")
        return minimize(
            p.f,
            p.xi,
            self.rule_,  # pyright: ignore[reportArgumentType]
            p.lam,
            T=p.T,
            steps=steps,
            optimizer=adam(inputs.number(self.hyper_rate, "hyper_rate")),
            S=p.S if p.size is None else None,
            contexts=None if p.size is None else Contexts(p.S, p.size),
            key=None if p.size is None else p.S["key"],
            progress=self.progress,
            checkpoint=self.checkpoint_dir
            and Checkpoint(self.checkpoint_dir, every=max(1, steps // 10)),
        )

    def _learn(self, p: Cleaning, rows: Rows) -> tuple[Any, np.ndarray]:
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
            w = solve(p.xi, p.lam, p.S, T=p.T)
            weight = weight.at[:n].set(belief(p, w)[:n])
        return jax.tree.map(np.asarray, w), np.asarray(weight[:n], float)

    def _scores(self, x: np.ndarray) -> np.ndarray:
        if self.model is None:  # in float64, so that a row's answer does not hang on its company
            return linear(self.w_.astype(float), with_ones(self._scale(x)))
        w = jax.tree.map(jnp.asarray, self.w_)
        return np.asarray(self.model[1](w, self._features(x)), float)

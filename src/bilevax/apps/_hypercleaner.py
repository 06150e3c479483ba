"""`HyperCleaner`: a classifier for data whose labels are partly wrong."""

from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.special import softmax
from sklearn.utils import _safe_indexing

from .._errors import check
from .._models.rows import Rows, linear
from .._outer.checkpoints import Checkpoint
from .._outer.minimize import Result, minimize
from .._rules.base import AbstractRule
from .._solve import solve
from . import _inputs as inputs
from ._classifier import AbstractClassifier
from ._cleaning import ALL, Cleaning, Contexts, belief, cleaning
from ._defaults import diagnosis_of, horizon_of, rate_of, rule_of
from ._optimizer import adam
from ._scale import Scale, as_given, standard, unit_curvature, with_ones
from ._trusted import Sets, judged, mask_of, warn_of_none, warn_of_scales

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
        which is measured.
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

    After `fit`: `weights_`, sigmoid(lam_i) of each training row; `belief_`, the probability that
    the final classifier gives to its label; `suspect_`, a mask of the rows that are suspect;
    `classes_`; `lam_`; `history_`; `rule_`, `T_` and `learning_rate_`, as used; `diagnosis_`, or
    None if you gave the rule; `w_`, the parameters of the final classifier. A row that `trusted`
    marks has the weight one and is never suspect. The paper's own criterion is `lam_ < -3`, after
    a longer run.

    !!! example

        >>> import numpy as np
        >>> from bilevax.apps import HyperCleaner
        >>> x = np.random.default_rng(0).normal(size=(120, 2))
        >>> truth = np.where(x[:, 0] > 0, "right", "left")
        >>> y = truth.copy()
        >>> y[:10] = np.where(truth[:10] == "left", "right", "left")  # ten wrong labels
        >>> cleaner = HyperCleaner(steps=30).fit(x, y, trusted=np.arange(120) >= 80)
        >>> int(cleaner.suspect_[:10].sum()) >= 8
        True
    """

    __metadata_request__fit = {"trusted": True}  # noqa: RUF012
    __metadata_request__score = {"trusted": True}  # noqa: RUF012

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

    def fit(
        self, X: Any, y: Any, X_trusted: Any = None, y_trusted: Any = None, trusted: Any = None
    ) -> Self:
        """Weigh the rows, and learn from them.

        **Arguments:**

        - `X`, `y`: rows and their labels (numbers, strings or bools), some of them wrong.
        - `trusted`: a mask over these rows: True where the label is right. It has a value for each
            row, so that `Pipeline`, `cross_val_score` and `GridSearchCV` pass it on and divide it.
        - `X_trusted`, `y_trusted`: instead of the mask, trusted rows that are not in X, and their
            labels. A `Pipeline` does not transform them.

        There must be a trusted row of each class. Without any, the classifier learns from all
        rows alike, a warning says so, and what it does not believe is suspect.
        """
        threshold = inputs.number(self.threshold, "threshold")
        x, codes = self._rows(X, y)
        sets = self._sets(x, codes, X_trusted, y_trusted, trusted)
        self._scale = self._scale_of(x)
        as_rows = lambda x, y: Rows(self._features(x), jnp.asarray(y, jnp.int32))
        rows = as_rows(x[sets.noisy], codes[sets.noisy])
        p = self._problem(rows, as_rows(sets.x, sets.y) if len(sets.y) else rows)
        lam, self.history_ = p.lam, {}
        if len(sets.y):
            result = self._minimize(p)
            lam, self.history_ = result.lam, result.history
        else:
            self.diagnosis_, self.rule_ = None, self.rule
        weights = 1 / (1 + np.exp(-np.asarray(lam, float)))
        self.w_, belief = self._learn(p, rows, weights, p.S["trusted"] if len(sets.y) else None)
        self._report(sets.noisy, np.asarray(lam), belief, x, codes)
        self.suspect_ = sets.noisy & (self.belief_ < threshold)
        return self

    def score(self, X: Any, y: Any, sample_weight: Any = None, trusted: Any = None) -> float:
        """The accuracy on these rows; with a mask `trusted`, on the rows that it marks.

        Wrong labels would give a wrong accuracy. Where scikit-learn routes metadata,
        `cross_val_score` and `GridSearchCV` pass the mask of `fit` on to `score`, too.
        """
        if trusted is not None:
            keep = np.flatnonzero(judged(trusted, len(y)))
            weight = None if sample_weight is None else np.asarray(sample_weight)[keep]
            X, y, sample_weight = _safe_indexing(X, keep), _safe_indexing(y, keep), weight
        return super().score(X, y, sample_weight)

    def _sets(self, x: np.ndarray, codes: np.ndarray, X_t: Any, y_t: Any, mask: Any) -> Sets:
        every = np.ones(len(x), bool)
        if mask is not None:
            inputs.one_of(X_t, y_t)
            chosen = mask_of(mask, len(x))
            labels = inputs.codes_of_each(self.classes_[codes[chosen]], self.classes_)
            return Sets(~chosen, x[chosen], labels)
        if not inputs.both_given(X_t, y_t, "trusted"):
            warn_of_none()
            return Sets(every, x[:0], codes[:0])
        other, labels = self._others(X_t, y_t, x, "trusted")
        warn_of_scales(x, other)
        return Sets(every, other, inputs.codes_of_each(labels, self.classes_))

    def _report(self, noisy: np.ndarray, lam: np.ndarray, belief: np.ndarray, x, codes) -> None:
        """What is known of each row of X; a trusted one has the weight one."""
        self.lam_ = np.full(len(noisy), ALL, lam.dtype)
        self.lam_[noisy] = lam
        self.weights_ = 1 / (1 + np.exp(-self.lam_.astype(float)))
        self.belief_ = np.ones(len(noisy))
        self.belief_[noisy] = belief
        if not noisy.all():
            sure = softmax(self._scores(x[~noisy]), axis=1)
            self.belief_[~noisy] = sure[np.arange(len(sure)), codes[~noisy]]

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
        once = lambda w, x: apply(w, x)  # JAX remembers each tracing as long as the function lives
        inputs.logits(jax.eval_shape(once, w, rows.x).shape, n, classes)
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

    def _learn(
        self, p: Cleaning, rows: Rows, weights: np.ndarray, also: Rows | None
    ) -> tuple[Any, np.ndarray]:
        """The final classifier, and how much it believes each label.

        First the rows have the weights that were found; then, `ROUNDS` times, as weight the
        probability that the last classifier gave to their label: what was found on few trusted
        rows is put right by the many others.
        """
        n = len(rows.y)
        if self.use_trusted and also is not None:
            rows = Rows(jnp.concatenate([rows.x, also.x]), jnp.concatenate([rows.y, also.y]))
        weight, w = jnp.ones(len(rows.y), jnp.float32), None
        weight = weight.at[:n].set(jnp.asarray(weights, jnp.float32))
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

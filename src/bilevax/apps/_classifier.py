"""What the classifiers of `apps` share: checks of rows and labels, and answers from logits."""

import abc
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data

from . import _inputs as inputs


class AbstractClassifier(ClassifierMixin, BaseEstimator):
    """A scikit-learn classifier with `classes_`, given by its logits."""

    @abc.abstractmethod
    def _scores(self, x: np.ndarray) -> np.ndarray:
        """Logits, `(n, classes)`, of rows that have been checked."""

    def _rows(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        """The rows to fit and the numbers of their classes; sets `classes_`."""
        inputs.dense(X, "X")
        X, y = validate_data(
            self, X, y, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=2
        )
        inputs.finite(X, "X")
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        inputs.classes(self.classes_)
        return X, codes

    def _others(self, X: Any, y: Any, x: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Further rows, X_name, with the columns of x, and their labels."""
        inputs.dense(X, f"X_{name}")
        other = check_array(X, dtype="float64", ensure_all_finite=False, input_name=f"X_{name}")
        inputs.finite(other, f"X_{name}")
        labels = column_or_1d(y)
        inputs.same_features(x, other, name)
        validate_data(self, X, reset=False, skip_check_array=True)  # names of columns
        inputs.as_long(other, labels, name)
        return other, labels

    def _logits(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        inputs.dense(X, "X")
        X = validate_data(self, X, dtype=np.float64, ensure_all_finite=False, reset=False)
        inputs.finite(X, "X")
        return self._scores(X)

    def decision_function(self, X: Any) -> np.ndarray:
        """Logits, `(n, classes)`; for two classes that of the second above the first, `(n,)`."""
        logits = self._logits(X)
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities, `(n, classes)`, in the order of `classes_`."""
        return softmax(self._logits(X), axis=1)

    def predict(self, X: Any) -> np.ndarray:
        """The most likely label of each row."""
        found = self._logits(X).argmax(1)
        return self.classes_[found]

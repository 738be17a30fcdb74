"""The method as an estimator of scikit-learn, on vectors."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from .data.reading import UNKNOWN
from .errors import InputError
from .methods.decision import ProbabilisticDecision
from .stages.adapt import adapt
from .stages.procure import procure


class UsfdaClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Learn vectors with labels, adapt to vectors without: what is none of the classes gets the label for unknown.

    Parameters
    ----------
    unknown_label : object, optional
        What ``predict`` gives for unknown, after ``adapt``; before it every sample gets its best class. By default
        ``"unknown"`` where the classes are names, −1 where they are numbers. A name among numbers, or a number among
        names, stays what it is, in an array of objects.
    strictness : float
        The rejection threshold: a sample with a lower score is unknown; from 0 (no rejections) to 1.
    random_state : int
        The same seed on the same machine gives the same model.

    Attributes
    ----------
    classes_ : array
        The labels that ``fit`` has seen, sorted, of the type that they had; the columns of ``predict_proba``.
    model_ : Model
        The model, which can be saved; its classes are the positions in ``classes_``.

    Examples
    --------
    >>> classifier = UsfdaClassifier().fit(X, ["cat", "dog", …]).adapt(X_target)      # doctest: +SKIP
    >>> classifier.predict(X_target)                     # doctest: +SKIP
    array(['dog', 'unknown', 'cat'], dtype='<U7')
    """

    def __init__(self, *, unknown_label: Any = None, strictness: float = 0.5, random_state: int = 0):
        self.unknown_label, self.strictness, self.random_state = unknown_label, strictness, random_state

    def fit(self, X: Any, y: Any) -> UsfdaClassifier:
        """Learn the classes, as the vendor does."""
        _check_no_places(X)
        X, y = validate_data(self, X, y, dtype=np.float32)
        check_classification_targets(y)
        self.classes_, place = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("Classifier can't train when only one class is present.")
        digits = len(str(len(self.classes_)))  # so that names sort as the positions do
        names = [str(i).zfill(digits) for i in place.tolist()]
        self.model_ = procure(X, names, method="mixture", seed=self.random_state)
        return self

    def adapt(self, X: Any) -> UsfdaClassifier:
        """Adapt to a target, as the client does, from what ``fit`` has learnt."""
        X = self._vectors(X)
        if self._unknown() in self.classes_.tolist():
            raise InputError(f"unknown_label {self._unknown()!r} is one of the classes; give another")
        self.model_ = adapt(self.model_.source_model, X, strictness=self.strictness, seed=self.random_state)
        return self

    def _vectors(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        _check_no_places(X)
        vectors: np.ndarray = validate_data(self, X, dtype=np.float32, reset=False)
        return vectors

    def _unknown(self) -> Any:
        if self.unknown_label is not None:
            return self.unknown_label
        return UNKNOWN if all(isinstance(label, str) for label in self.classes_.tolist()) else -1

    def _decide(self, X: Any) -> ProbabilisticDecision:
        vectors = self._vectors(X)
        return self.model_.decide(vectors, self.strictness)

    def predict(self, X: Any) -> np.ndarray:
        """The class of each sample, or the label for unknown."""
        decided = self._decide(X)
        labels: np.ndarray = self.classes_[decided.best]
        if not self.model_.adapted or decided.known.all():
            return labels
        unknown = self._unknown()
        # NumPy would make a text of a number among names.
        mixed = isinstance(unknown, str) != (labels.dtype.kind == "U")
        kind = np.dtype(object) if mixed else np.result_type(labels, np.asarray(unknown))
        return np.where(decided.known, labels.astype(kind), np.asarray(unknown, kind))

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class, if the sample is of one of them."""
        p = self._decide(X).probability
        known = np.maximum(p[:, :-1].astype(np.float64), 1e-30)
        share: np.ndarray = known / known.sum(1, keepdims=True)
        return share

    def known_score(self, X: Any) -> np.ndarray:
        """From 0 (unknown) to 1 (known)."""
        return self._decide(X).score


def _check_no_places(X: Any) -> None:
    """Raise an error where images are given by their place, as a folder or paths."""
    several = isinstance(X, Iterable) and getattr(X, "ndim", 1) == 1
    if isinstance(next(iter(X), None) if several else X, str | os.PathLike):
        raise InputError(
            "X must be vectors, an array of shape (samples, dimensions); "
            "folders and paths of images are for usfda.procure, usfda.adapt and Model.predict"
        )

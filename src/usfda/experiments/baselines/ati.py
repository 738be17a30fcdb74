"""ATI: assign and transform iteratively."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import block_array, eye_array, kron
from scipy.spatial.distance import cdist
from sklearn.svm import LinearSVC

from .api import Baseline, Decision, Features, Matrix


@dataclass(frozen=True)
class ATISettings:
    """The only thing to set."""

    rounds: int = 6  # of assigning and mapping, at most; the assignment hardly changes after them


def assign(distance: np.ndarray, outlier: float) -> np.ndarray:
    """The cheapest assignment of every target sample (row) to a class (column) or to none (−1).

    None costs ``outlier``, and every class gets at least one sample:

    min Σ_tc x_tc·d_tc + λ·Σ_t o_t  with  Σ_c x_tc + o_t = 1,  Σ_t x_tc ≥ 1,  x, o ≥ 0: its corners are whole numbers.
    """
    n, classes = distance.shape
    nearest = np.where(distance.min(1) <= outlier, distance.argmin(1), -1)
    if set(range(classes)) <= set(nearest.tolist()):
        return nearest
    each = min(1, n // classes)  # fewer samples than classes cannot serve all of them
    rows = block_array([[kron(eye_array(n), np.ones((1, classes))), eye_array(n)]])
    columns = block_array([[-kron(np.ones((1, n)), eye_array(classes)), 0 * eye_array(classes, n)]])
    cost = np.concatenate([distance.ravel(), np.full(n, outlier)])
    solved = linprog(cost, columns.tocsr(), np.full(classes, -each), rows.tocsr(), np.ones(n), (0, None))
    if not solved.success:
        raise RuntimeError(f"the linear program of ATI has no solution: {solved.message}")
    x = solved.x[: n * classes].reshape(n, classes)
    return np.where(x.sum(1) > 0.5, x.argmax(1), -1)


def _outlier(distance: np.ndarray) -> float:
    """λ = (max d + min d) / 2."""
    return float(distance.max() + distance.min()) / 2


def identity_map(S: np.ndarray, T: np.ndarray) -> np.ndarray:
    """W nearest to the identity among those that minimise |S·Wᵀ − T|²."""
    W: np.ndarray = np.eye(S.shape[1]) + np.linalg.lstsq(S, T - S)[0].T
    return W


class ATI(Baseline):
    """Assign target samples to source classes or to none, map the source onto them linearly, repeat; then an SVM.

    d_tc = |W·μ_c − v_t|²,  λ = (max d + min d) / 2;  W = argmin Σ_t |W·μ_c(t) − v_t|²; up to six times

    Panareda Busto and Gall, Open Set Domain Adaptation, ICCV 2017 (there ATI-λ).
    """

    source_free = False
    Settings = ATISettings
    rejects = "farther than λ from the mapped mean of every class"

    def adapt(self, X: Matrix, source: Features | None) -> None:
        assert source is not None
        S, T = np.asarray(source.X[:], dtype=np.float64), np.asarray(X[:], dtype=np.float64)
        means = np.stack([S[source.y == c].mean(0) for c in range(len(source.classes))])
        W, before = np.eye(S.shape[1]), None
        for _ in range(self.settings.rounds):
            distance = cdist(T, means @ W.T, "sqeuclidean")
            chosen = assign(distance, _outlier(distance))
            if before is not None and (chosen == before).all():
                break
            known, before = chosen >= 0, chosen
            if known.any():
                W = identity_map(means[chosen[known]], T[known])
        self.means = means @ W.T
        self.outlier = _outlier(cdist(T, self.means, "sqeuclidean"))
        self.svm = LinearSVC(random_state=self.seed).fit(S @ W.T, source.y)

    def decide(self, X: Matrix) -> Decision:
        T = np.asarray(X[:], dtype=np.float64)
        distance = cdist(T, self.means, "sqeuclidean").min(1)
        return Decision(self.svm.predict(T), distance <= self.outlier, self.outlier / (self.outlier + distance))

    @property
    def parameters(self) -> int:
        return int(self.means.shape[1] ** 2 + self.svm.coef_.size + self.svm.intercept_.size)

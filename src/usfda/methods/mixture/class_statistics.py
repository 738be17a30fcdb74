"""Statistics of the source classes in the space of M, which the vendor ships for method ``mixture``.

x̃ = sign(x)·√|x|                              evens out the few large coordinates of a feature
z = W(x̃ − μ) / |W(x̃ − μ)|                     W whitens the spread within the source classes: WᵀW = Σ⁻¹,
Σ = (1 − a)·Σ_within + a·(tr Σ_within / d)·I   shrunk, a = 0.8; μ is the mean of the sample's own domain
P_c = mean of z over source class c, unit length
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.sparse import csr_array

from ...data.samples import Matrix
from ..vendor import ClassStatistics, normalise, signed_root

SHRINKAGE = 0.8  # a: with fewer samples than dimensions most of the covariance is noise
QUANTILE = 0.05  # share of the source samples that lie below the similarity quantile
MOST = 8192  # samples that the similarity quantile is measured with: enough for a quantile
BATCH = 4096  # rows at a time: memory does not depend on their number

Fit = Callable[[Matrix, np.ndarray, int], ClassStatistics]


def fit_class_statistics(X: Matrix, y: np.ndarray, classes: int, fit: Fit | None = None) -> ClassStatistics:
    """Fit to source vectors X with labels y in 0 … classes−1, one batch at a time.

    ``fit`` finds all but the similarity quantile, by default as the formulas above say.
    """
    fit = fit or fit_without_quantile
    return replace(fit(X, y, classes), similarity_quantile=_similarity_quantile(X, y, fit))


def _similarity_quantile(X: Matrix, y: np.ndarray, fit: Fit) -> np.ndarray:
    """The cosine with the class mean that 95 % of the samples exceed, for samples outside the fit.

    Each half of every class is compared with the class statistics of the other half: W overfits its own few samples,
    and new samples of the same class are farther away.
    """
    order = np.argsort(y, kind="stable")[:: -(-len(y) // MOST)]
    cosines = [np.zeros(0)]
    for fitted, rest in ((order[::2], order[1::2]), (order[1::2], order[::2])):
        names, positions = np.unique(y[fitted], return_inverse=True)
        rest = rest[np.isin(y[rest], names)]  # a class of one sample is in one half alone
        if len(rest):
            class_statistics = fit(X[fitted], positions, len(names))
            z = class_statistics.whiten(X[rest], class_statistics.overall_mean)
            cosines.append((z * class_statistics.means[np.searchsorted(names, y[rest])]).sum(1))
    found = np.concatenate(cosines)
    return np.asarray(np.quantile(found, QUANTILE) if len(found) else 0, np.float32)


def fit_without_quantile(X: Matrix, y: np.ndarray, classes: int) -> ClassStatistics:
    """All but the similarity quantile."""
    d = X.shape[1]
    counts = np.bincount(y, minlength=classes)
    batches = [slice(i, i + BATCH) for i in range(0, len(y), BATCH)]

    def class_sums(rows: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        total = np.zeros((classes, d))
        for batch in batches:
            labels = y[batch]
            members = csr_array((np.ones(len(labels)), (labels, np.arange(len(labels)))), (classes, len(labels)))
            total += members @ rows(X[batch]).astype(np.float64)
        return total

    means = (class_sums(signed_root) / counts[:, None]).astype(np.float32)
    within = np.zeros((d, d))
    for batch in batches:
        away = signed_root(X[batch]) - means[y[batch]]
        within += away.T @ away
    within /= len(y)
    level = max(within.diagonal().mean(), 1e-12)
    root = cholesky((1 - SHRINKAGE) * within + SHRINKAGE * level * np.eye(d), lower=True)
    whitener = solve_triangular(root, np.eye(d), lower=True).astype(np.float32)
    mean, zero = means.mean(0), np.zeros((), np.float32)
    class_statistics = ClassStatistics(whitener, np.zeros((classes, d), np.float32), mean, zero, zero)
    sums = class_sums(lambda v: class_statistics.whiten(v, mean)).astype(np.float32)
    alike = np.concatenate([_with_others(class_statistics.whiten(X[batch], mean), sums[y[batch]]) for batch in batches])
    alike = alike[counts[y] > 1]  # a class with one sample has no others
    within_class_similarity = alike.mean(dtype=np.float64) if len(alike) else 0
    return ClassStatistics(whitener, normalise(sums), mean, np.asarray(within_class_similarity, np.float32), zero)


def _with_others(z: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Cosine of each sample with the sum of the other samples of its class."""
    cosine: np.ndarray = (normalise(sums - z) * z).sum(1)
    return cosine

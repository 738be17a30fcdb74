"""Where the source classes lie in the space of M: statistics that the vendor hands over, for method ``usfda``.

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
from ..vendor import Geometry, normalise, signed_root

SHRINKAGE = 0.8  # a: with fewer samples than dimensions most of the covariance is noise
BELOW_FLOOR = 0.05  # share of the source samples that lie below the floor
MOST = 8192  # samples that the floor is measured with: enough for a quantile
PIECE = 4096  # rows at a time: memory does not depend on their number

Fit = Callable[[Matrix, np.ndarray, int], Geometry]


def fit_geometry(X: Matrix, y: np.ndarray, classes: int, fit: Fit | None = None) -> Geometry:
    """Fit to source vectors X with labels y in 0 … classes−1, a piece at a time.

    ``fit`` finds all but the floor, by default as the formulas above say.
    """
    fit = fit or fit_without_floor
    return replace(fit(X, y, classes), floor=_floor(X, y, fit))


def _floor(X: Matrix, y: np.ndarray, fit: Fit) -> np.ndarray:
    """The cosine with its prototype that most samples reach, of samples that the geometry was not fitted to.

    Each half of every class is held against the geometry of the other half: W is fitted so closely to its own few
    samples that new ones of the same class lie farther away.
    """
    order = np.argsort(y, kind="stable")[:: -(-len(y) // MOST)]
    cosines = [np.zeros(0)]
    for fitted, rest in ((order[::2], order[1::2]), (order[1::2], order[::2])):
        names, positions = np.unique(y[fitted], return_inverse=True)
        rest = rest[np.isin(y[rest], names)]  # a class of one sample is in one half alone
        if len(rest):
            geometry = fit(X[fitted], positions, len(names))
            z = geometry.whiten(X[rest], geometry.mean)
            cosines.append((z * geometry.prototypes[np.searchsorted(names, y[rest])]).sum(1))
    found = np.concatenate(cosines)
    return np.asarray(np.quantile(found, BELOW_FLOOR) if len(found) else 0, np.float32)


def fit_without_floor(X: Matrix, y: np.ndarray, classes: int) -> Geometry:
    """All but the floor."""
    d = X.shape[1]
    counts = np.bincount(y, minlength=classes)
    pieces = [slice(i, i + PIECE) for i in range(0, len(y), PIECE)]

    def class_sums(rows: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        total = np.zeros((classes, d))
        for piece in pieces:
            labels = y[piece]
            members = csr_array((np.ones(len(labels)), (labels, np.arange(len(labels)))), (classes, len(labels)))
            total += members @ rows(X[piece]).astype(np.float64)
        return total

    means = (class_sums(signed_root) / counts[:, None]).astype(np.float32)
    within = np.zeros((d, d))
    for piece in pieces:
        away = signed_root(X[piece]) - means[y[piece]]
        within += away.T @ away
    within /= len(y)
    level = max(within.diagonal().mean(), 1e-12)
    root = cholesky((1 - SHRINKAGE) * within + SHRINKAGE * level * np.eye(d), lower=True)
    whitener = solve_triangular(root, np.eye(d), lower=True).astype(np.float32)
    mean, zero = means.mean(0), np.zeros((), np.float32)
    geometry = Geometry(whitener, np.zeros((classes, d), np.float32), mean, zero, zero)
    sums = class_sums(lambda v: geometry.whiten(v, mean)).astype(np.float32)
    alike = np.concatenate([_with_others(geometry.whiten(X[piece], mean), sums[y[piece]]) for piece in pieces])
    alike = alike[counts[y] > 1]  # a class with one sample has no others
    cohesion = alike.mean(dtype=np.float64) if len(alike) else 0
    return Geometry(whitener, normalise(sums), mean, np.asarray(cohesion, np.float32), zero)


def _with_others(z: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Cosine of each sample with the sum of the other samples of its class."""
    cosine: np.ndarray = (normalise(sums - z) * z).sum(1)
    return cosine

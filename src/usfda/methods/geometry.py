"""Where the source classes lie in the space of M: statistics that the vendor hands over, for method ``usfda``.

x̃ = sign(x)·√|x|                          evens out the few large coordinates of a feature
z = W(x̃ − μ) / |W(x̃ − μ)|                 W evens out the spread within the source classes in the k directions of the
                                          greatest spread: WᵀW ∝ Σ⁻¹, Σ = (1 − a)·S_k + a·(tr S / d)·I, a = 0.8, where
                                          S_k is the covariance within the classes, S, with the mean of its other
                                          eigenvalues in their place; μ is the mean of the sample's own domain
P_c = W(m_c − μ), unit length             m_c the mean of x̃ over source class c

All of S would name every image where there are fewer images than dimensions (docs/privacy.md), and it labels no better.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy.linalg import eigh

from ..data.samples import Matrix
from .sums import WEIGHTS, Sums, sum_up
from .vendor import Geometry, normalise

SHRINKAGE = 0.8  # a: with fewer samples than dimensions most of the covariance is noise
BELOW_FLOOR = 0.05  # share of the source samples that lie below the floor
FLOOR = 0.5  # of the cohesion, about where the floor lies: with noise no sample is looked at to find it
MOST = 8192  # samples that the floor is measured with: enough for a quantile


def fit_geometry(X: Matrix, y: np.ndarray, classes: int, directions: int) -> Geometry:
    """Fit to source vectors X with labels y in 0 … classes−1, a piece at a time; ``directions`` is k."""
    geometry = geometry_of(sum_up(X, y, classes), directions)
    return replace(geometry, floor=_floor(X, y, directions))


def _floor(X: Matrix, y: np.ndarray, directions: int) -> np.ndarray:
    """The cosine with its prototype that most samples reach, of samples that the geometry was not fitted to.

    Each half of every class is held against the geometry of the other half: a mean of few samples leans towards each
    of them, so that new ones of the same class lie farther away.
    """
    order = np.argsort(y, kind="stable")[:: -(-len(y) // MOST)]
    cosines = [np.zeros(0)]
    for fitted, rest in ((order[::2], order[1::2]), (order[1::2], order[::2])):
        names, positions = np.unique(y[fitted], return_inverse=True)
        rest = rest[np.isin(y[rest], names)]  # a class of one sample is in one half alone
        if len(rest):
            geometry = geometry_of(sum_up(X[fitted], positions, len(names)), directions)
            z = geometry.whiten(X[rest], geometry.mean)
            cosines.append((z * geometry.prototypes[np.searchsorted(names, y[rest])]).sum(1))
    found = np.concatenate(cosines)
    return np.asarray(np.quantile(found, BELOW_FLOOR) if len(found) else 0, np.float32)


def geometry_of(sums: Sums, directions: int) -> Geometry:
    """The geometry that the sums tell, from nothing but them.

    The cohesion is that of the class means, |W(m_c − μ)| over the root of the mean of |W(x̃ − μ)|², less what noise
    makes P_c turn away.
    """
    d, sigma = len(sums.second), sums.noise
    counts, n = sums.counts, sums.counts.sum()
    means, second = sums.classes / counts[:, None], sums.second / n
    if sigma:
        second += (1 - np.trace(second)) / d * np.eye(d)  # of vectors of length one
    # With noise, the mean of all images is surer than the mean of the class means.
    mu = sums.classes.sum(0) / n if sigma else means.mean(0)
    squares = np.maximum((sums.classes**2).sum(1) - d * sigma**2, 0)  # |s_c|², less what noise adds
    level = max(np.trace(second) - (squares / counts).sum() / n, 0.05 if sigma else 1e-12) / d
    values, V = eigh(
        second - (sums.classes.T / (counts * n)) @ sums.classes,
        subset_by_index=[max(0, d - directions), d - 1],
    )
    # The greatest value of a symmetric matrix of noise alone is about √(2d)·σ: what does not exceed it is noise.
    apart = values > max(level, 1.1 * math.sqrt(2 * d) * sigma / (WEIGHTS["second"] * n))
    values, V = values[apart], V[:, apart]
    rest = max(level * d - values.sum(), 0) / max(1, d - len(values))
    flat = (1 - SHRINKAGE) * rest + SHRINKAGE * level
    gain = np.sqrt(flat / ((1 - SHRINKAGE) * values + SHRINKAGE * level))
    W = np.eye(d) + (V * (gain - 1)) @ V.T
    away = (means - mu) @ W.T
    size = np.linalg.norm(away, axis=1).clip(min=1e-12)
    signal = np.sqrt(np.maximum(size**2 - sigma**2 * (W**2).sum() / counts**2, (0.1 * size) ** 2))
    around = second - np.outer(mu, mu)
    spread = np.trace(around) + (gain**2 - 1) @ (V * (around @ V)).sum(0)  # tr(W · around · Wᵀ)
    cohesion = np.average(signal**2 / size, weights=counts) / math.sqrt(max(spread, 0.05 if sigma else 1e-12))
    arrays = (W, normalise(away), mu, cohesion, FLOOR * cohesion)
    return Geometry(*(np.asarray(a, np.float32) for a in arrays))

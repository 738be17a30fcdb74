"""Class statistics that leak little about any single image: ``procure --private``.

Everything that is shipped is computed from four sums over the images, of x̂ = x̃ / |x̃|, which has length one:

    s_c = Σ x̂ over class c     n_c = Σ 1 over class c     T = Σ x̂ x̂ᵀ over all     l = Σ log|x̃| / R, in [−1, 1]

An image that is added or removed changes the first by a vector of length 1 in one class, the second by 1 in one class,
T by a matrix of Frobenius norm 1, and l by at most 1. With weights w these are one vector that changes by no more than

    Δ = √(1 + w_n² + w_T² + w_l²)

and the Gaussian mechanism adds N(0, σ²) to each of its coordinates (to T as a symmetric matrix: the entries beside the
diagonal count twice in the norm, so that their noise is σ/√2). It is (ε, δ)-differentially private where

    Φ(Δ/2σ − εσ/Δ) − e^ε·Φ(−Δ/2σ − εσ/Δ) ≤ δ                 (Balle and Wang 2018, theorem 8)

and so is everything computed from the noisy sums, by post-processing: W, P, μ, the within-class similarity, the
similarity quantile and the class sizes. There is one release and nothing to compose. Nobody can distinguish a member
from another image with an AUC above Φ(Δ / √2σ), since Gaussians Δ/σ apart are the hardest case (Dong, Roth and Su
2022).

With or without noise W evens out the spread in a few directions alone: all of them, where there are fewer images than
dimensions, name every image (docs/privacy.md).

Not covered: the names of the classes, that each has ``least_images`` or more, and what floating-point rounding
may leak about the noise.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri

from ..data.samples import Matrix
from ..errors import InputError
from .mixture.class_statistics import BATCH, SHRINKAGE, fit_class_statistics
from .vendor import ClassStatistics, normalise, signed_root

WEIGHTS = {"counts": 0.5, "second": 0.5, "length": 0.25}  # w_n, w_T, w_l
LENGTHS = 4.6  # R: lengths of x̃ from 1/100 to 100 are distinguished
QUANTILE_PART = 0.5  # of the within-class similarity, about where the quantile is: no sample is needed to find it


@dataclass(frozen=True)
class PrivacySettings:
    """What a private file may leak."""

    least_images: int = 10  # of every class
    directions: int = 8  # of the greatest spread within the classes, which W evens out; more leak more about each image
    delta: float = 1e-5  # δ: far less than one in the number of images

    def __post_init__(self) -> None:
        if self.least_images < 2 or self.directions < 1 or not 0 < self.delta < 1:
            raise InputError("least_images starts at 2, directions at 1, delta lies between 0 and 1")


Noise = Callable[[int], np.ndarray]


def secure_normal(count: int) -> np.ndarray:
    """N(0, 1) from the system's source of secrets: noise that a seed repeats could be subtracted."""
    bits = np.frombuffer(secrets.token_bytes(8 * count), np.uint64) >> np.uint64(11)
    drawn: np.ndarray = ndtri((bits + 0.5) / 2**53)
    return drawn


def sensitivity() -> float:
    """Δ, by how much one image changes all sums together."""
    return math.sqrt(1 + sum(w * w for w in WEIGHTS.values()))


def noise_level(epsilon: float, delta: float) -> float:
    """σ of the Gaussian mechanism, by its exact condition, for sums that one image changes by Δ."""
    if not 0.01 <= epsilon <= 1000:
        raise InputError(f"epsilon is a number from 0.01 to 1000, not {epsilon:g}; 1 is strict, 10 is weak")

    def excess(log_sigma: float) -> float:
        sigma = math.exp(log_sigma)  # for Δ = 1
        a, b = 1 / (2 * sigma), epsilon * sigma
        return float(ndtr(a - b) - math.exp(epsilon + log_ndtr(-a - b)) - delta)

    return sensitivity() * math.exp(brentq(excess, math.log(1e-3), math.log(1e6)))


def attack_bound(sigma: float) -> float:
    """The AUC that no attack on the sums with this noise can exceed."""
    return float(ndtr(sensitivity() / (math.sqrt(2) * sigma)))


@dataclass(frozen=True)
class Sums:
    """What the source is summed up to; the field names of the weights are those of the sums."""

    classes: np.ndarray  # s_c (classes, d)
    counts: np.ndarray  # n_c (classes,)
    second: np.ndarray  # T (d, d)
    length: np.ndarray  # l ()

    def weighted(self) -> np.ndarray:
        """As the one vector that noise is added to, in which one image counts Δ at most."""
        upper = np.triu_indices(len(self.second), 1)
        beside = math.sqrt(2) * self.second[upper]
        parts = {"counts": self.counts, "second": np.append(self.second.diagonal(), beside), "length": self.length}
        weighted = [WEIGHTS[name] * np.ravel(part) for name, part in parts.items()]
        return np.concatenate([self.classes.ravel(), *weighted])

    def noisy(self, sigma: float, noise: Noise = secure_normal) -> Sums:
        """With N(0, σ²) on each coordinate of that vector."""
        k, d = self.classes.shape
        drawn = sigma * noise(self.classes.size + k + d * (d + 1) // 2 + 1)
        first, counts, diagonal, beside, length = np.split(drawn, np.cumsum([k * d, k, d, d * (d - 1) // 2]))
        symmetric = np.zeros((d, d))
        symmetric[np.triu_indices(d, 1)] = beside / math.sqrt(2)
        symmetric += symmetric.T + np.diag(diagonal)
        return Sums(
            self.classes + first.reshape(k, d),
            self.counts + counts / WEIGHTS["counts"],
            self.second + symmetric / WEIGHTS["second"],
            self.length + length[0] / WEIGHTS["length"],
        )


def sum_up(X: Matrix, y: np.ndarray, classes: int, unit: bool = True) -> Sums:
    """The sums over source vectors X with labels y in 0 … classes−1, one batch at a time; of x̂, or of x̃."""
    d = X.shape[1]
    total, second, length = np.zeros((classes, d)), np.zeros((d, d)), 0.0
    for i in range(0, len(y), BATCH):
        x = signed_root(X[i : i + BATCH]).astype(np.float64)
        norms = np.linalg.norm(x, axis=1)
        x = normalise(x) if unit else x
        np.add.at(total, y[i : i + BATCH], x)
        second += x.T @ x
        length += float(np.clip(np.log(np.maximum(norms, 1e-12)) / LENGTHS, -1, 1).sum())
    return Sums(total, np.bincount(y, minlength=classes).astype(np.float64), second, np.asarray(length))


def class_statistics_of(sums: Sums, settings: PrivacySettings, sigma: float = 0.0) -> ClassStatistics:
    """The class statistics, computed from the sums alone; σ is the level of their noise.

    Σ is as in ``class_statistics.py``, with the mean of all eigenvalues instead of the smaller ones, and P_c =
    W(m_c − μ) at unit length, m_c the mean of class c. The within-class similarity is that of the class means:
    |W(m_c − μ)| over the root of the mean of |W(x − μ)|², less the part that is due to noise.
    """
    d = len(sums.second)
    counts = sums.counts.clip(min=settings.least_images if sigma else 1)
    n, means = counts.sum(), sums.classes / counts[:, None]
    second = sums.second / n
    if sigma:
        second += (1 - np.trace(second)) / d * np.eye(d)  # of vectors of length one
    # With noise, the mean of all images is surer than the mean of the class means.
    mu = sums.classes.sum(0) / n if sigma else means.mean(0)
    squares = np.maximum((sums.classes**2).sum(1) - d * sigma**2, 0)  # |s_c|², less what noise adds
    level = max(np.trace(second) - (squares / counts).sum() / n, 0.05 if sigma else 1e-12) / d
    values, V = eigh(
        second - (sums.classes.T / (counts * n)) @ sums.classes,
        subset_by_index=[max(0, d - settings.directions), d - 1],
    )
    # The greatest value of a symmetric matrix of noise alone is about √(2d)·σ: what does not exceed it is noise.
    apart = values > max(level, 1.1 * math.sqrt(2 * d) * sigma / (WEIGHTS["second"] * n))
    values, V = values[apart], V[:, apart]
    rest = max(level * d - values.sum(), 0) / max(1, d - len(values))
    flat = (1 - SHRINKAGE) * rest + SHRINKAGE * level
    W = np.eye(d) + (V * (np.sqrt(flat / ((1 - SHRINKAGE) * values + SHRINKAGE * level)) - 1)) @ V.T
    away = (means - mu) @ W.T
    size = np.linalg.norm(away, axis=1).clip(min=1e-12)
    signal = np.sqrt(np.maximum(size**2 - sigma**2 * (W**2).sum() / counts**2, (0.1 * size) ** 2))
    spread = np.trace(W @ (second - np.outer(mu, mu)) @ W.T)
    similarity = np.average(signal**2 / size, weights=counts) / math.sqrt(max(spread, 0.05 if sigma else 1e-12))
    arrays = (W, normalise(away), mu, similarity, QUANTILE_PART * similarity)
    return ClassStatistics(*(np.asarray(a, np.float32) for a in arrays))


def fit_private_class_statistics(X: Matrix, y: np.ndarray, classes: int, settings: PrivacySettings) -> ClassStatistics:
    """Without noise: of x̃ itself, whose length need have no bound."""

    def fit(X: Matrix, y: np.ndarray, classes: int) -> ClassStatistics:
        return class_statistics_of(sum_up(X, y, classes, unit=False), settings)

    return fit_class_statistics(X, y, classes, fit)


def fit_noisy_class_statistics(
    X: Matrix, y: np.ndarray, classes: int, settings: PrivacySettings, epsilon: float, noise: Noise = secure_normal
) -> tuple[ClassStatistics, np.ndarray]:
    """With noise for ε: the class statistics and the class sizes, which are all that is released."""
    sigma = noise_level(epsilon, settings.delta)
    sums = sum_up(X, y, classes).noisy(sigma, noise)
    class_statistics = class_statistics_of(sums, settings, sigma)
    length = math.exp(LENGTHS * float(np.clip(sums.length / max(1, sums.counts.sum()), -1, 1)))
    mean = (length * class_statistics.overall_mean).astype(np.float32)  # of x̃, whose length is another than that of x̂
    return replace(class_statistics, overall_mean=mean), np.maximum(1, np.rint(sums.counts)).astype(np.int64)

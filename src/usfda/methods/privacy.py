"""The geometry of a source that may tell little about any single image: ``procure --private``.

Everything that is shipped is computed from four sums over the images, of x̂ = x̃ / |x̃|, which has length one:

    s_c = Σ x̂ over class c     n_c = Σ 1 over class c     T = Σ x̂ x̂ᵀ over all     l = Σ log|x̃| / R, in [−1, 1]

An image that is added or removed changes the first by a vector of length 1 in one class, the second by 1 in one class,
T by a matrix of Frobenius norm 1, and l by at most 1. With weights w these are one vector that changes by no more than

    Δ = √(1 + w_n² + w_T² + w_l²)

and the Gaussian mechanism adds N(0, σ²) to each of its coordinates (to T as a symmetric matrix: the entries beside the
diagonal count twice in the norm, so that their noise is σ/√2). It is (ε, δ)-differentially private where

    Φ(Δ/2σ − εσ/Δ) − e^ε·Φ(−Δ/2σ − εσ/Δ) ≤ δ                 (Balle and Wang 2018, theorem 8)

and so is all that is computed from what comes out, by post-processing: W, P, μ, the cohesion, the floor and the sizes
of the classes. There is one release and nothing to compose. Whoever looks at the file tells a member from another image
with an AUC of at most Φ(Δ / √2σ), since Gaussians Δ/σ apart are the hardest case (Dong, Roth and Su 2022).

Not covered: the names of the classes, that each has ``least_images`` or more, and what the rounding of floating-point
numbers may tell about the noise.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri

from ..data.samples import Matrix
from ..errors import InputError
from .geometry import geometry_of
from .sums import LENGTHS, WEIGHTS, Noise, sum_up
from .vendor import Geometry


@dataclass(frozen=True)
class PrivacySettings:
    """What a private file may tell."""

    least_images: int = 10  # of every class
    directions: int = 8  # at most, in which W evens out the spread within the classes; more tell more of each image
    delta: float = 1e-5  # δ: far less than one in the number of images

    def __post_init__(self) -> None:
        if self.least_images < 2 or self.directions < 1 or not 0 < self.delta < 1:
            raise InputError("least_images starts at 2, directions at 1, delta lies between 0 and 1")


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


def fit_noisy_geometry(
    X: Matrix, y: np.ndarray, classes: int, settings: PrivacySettings, epsilon: float, noise: Noise = secure_normal
) -> tuple[Geometry, np.ndarray]:
    """With noise for ε: the geometry and the sizes of the classes, which are all that may be told of the samples."""
    sigma = noise_level(epsilon, settings.delta)
    sums = sum_up(X, y, classes, unit=True).noisy(sigma, noise)
    geometry = geometry_of(replace(sums, counts=sums.counts.clip(min=settings.least_images)), settings.directions)
    length = math.exp(LENGTHS * float(np.clip(sums.length / max(1, sums.counts.sum()), -1, 1)))
    mean = (length * geometry.mean).astype(np.float32)  # of x̃, whose length is another than that of x̂
    return replace(geometry, mean=mean), np.maximum(1, np.rint(sums.counts)).astype(np.int64)

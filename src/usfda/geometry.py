"""Where the source classes lie in the space of M: statistics that the vendor hands over, for method ``usfda``.

    x̃ = sign(x)·√|x|                              evens out the few large coordinates of a feature
    z = W(x̃ − μ) / |W(x̃ − μ)|                     W whitens the spread within the source classes: WᵀW = Σ⁻¹,
    Σ = (1 − a)·Σ_within + a·(tr Σ_within / d)·I   shrunk, a = 0.8; μ is the mean of the sample's own domain
    P_c = mean of z over source class c, unit length

``cohesion`` is the mean cosine of a source sample with the other samples' P_c: how alike a class is at home.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

SHRINKAGE = 0.8
PIECE = 4096  # rows at a time: memory does not depend on their number


def rooted(v: Tensor) -> Tensor:
    """x̃."""
    return v.sign() * v.abs().sqrt()


def domain_mean(X: Any) -> Tensor:
    """μ, the mean of x̃ over a domain."""
    total = torch.zeros(X.shape[1], dtype=torch.float64)
    for i in range(0, len(X), PIECE):
        total += rooted(torch.from_numpy(X[i : i + PIECE])).sum(0, dtype=torch.float64)
    return (total / len(X)).float()


class Geometry(nn.Module):
    """W and P of the source, and z of vectors of any domain, given its mean."""

    whitener: Tensor
    prototypes: Tensor
    cohesion: Tensor

    def __init__(self, d: int, classes: int):
        super().__init__()
        self.register_buffer("whitener", torch.zeros(d, d))
        self.register_buffer("prototypes", torch.zeros(classes, d))
        self.register_buffer("cohesion", torch.zeros(()))

    def z(self, v: Tensor, mean: Tensor) -> Tensor:
        return nn.functional.normalize((rooted(v) - mean) @ self.whitener.T, dim=1)


def fit_geometry(X: Any, y: np.ndarray, classes: int) -> Geometry:
    """From source vectors X with labels y in 0…classes−1, a piece at a time."""
    d = X.shape[1]
    counts = torch.from_numpy(np.bincount(y, minlength=classes))
    pieces = [(slice(i, i + PIECE), torch.from_numpy(y[i : i + PIECE])) for i in range(0, len(y), PIECE)]

    def class_sums(rows: Any) -> Tensor:
        total = torch.zeros(classes, d, dtype=torch.float64)
        for piece, labels in pieces:
            total.index_add_(0, labels, rows(torch.from_numpy(X[piece])).double())
        return total

    means = (class_sums(rooted) / counts[:, None]).float()
    within = torch.zeros(d, d, dtype=torch.float64)
    for piece, labels in pieces:
        away = rooted(torch.from_numpy(X[piece])) - means[labels]
        within += (away.T @ away).double()
    within /= len(y)
    level = within.diagonal().mean().clamp(min=1e-12)
    sigma = (1 - SHRINKAGE) * within + SHRINKAGE * level * torch.eye(d, dtype=torch.float64)
    root = torch.linalg.cholesky(sigma)
    geometry = Geometry(d, classes)
    geometry.whitener = torch.linalg.solve_triangular(root, torch.eye(d, dtype=torch.float64), upper=False).float()
    mean = means.mean(0)
    sums = class_sums(lambda v: geometry.z(v, mean)).float()
    geometry.prototypes = nn.functional.normalize(sums, dim=1)
    alike = 0.0
    for piece, labels in pieces:
        z = geometry.z(torch.from_numpy(X[piece]), mean)
        alike += float((nn.functional.normalize(sums[labels] - z, dim=1) * z).sum())
    # A class with one sample has no others; every such sample adds nothing to the sum.
    geometry.cohesion = torch.tensor(alike / max(1, int(counts[counts > 1].sum())))
    return geometry

"""Class priors: a Gaussian N(μ_c, Σ_c) of u for every source class."""

from __future__ import annotations

import math

import torch
from torch import Tensor

RIDGE = 1e-3  # Σ + 1e-3·I, so that a class with few samples has a density too


class ClassPriors:
    """N(μ_c, Σ_c + 1e-3·I) fitted to latent vectors u with labels y in 0…classes−1."""

    def __init__(self, u: Tensor, y: Tensor, classes: int):
        d = u.shape[1]
        self.means = torch.stack([u[y == c].mean(0) for c in range(classes)])
        centred = u - self.means[y]
        eye = torch.eye(d, dtype=u.dtype, device=u.device)
        parts = [centred[y == c] for c in range(classes)]
        covariance = torch.stack([p.T @ p / max(1, len(p) - 1) for p in parts]) + RIDGE * eye
        self._root = torch.linalg.cholesky(covariance)
        # Whitening: with W = L⁻¹ the Mahalanobis distance is |W(u − μ)|.
        self._whiten = torch.linalg.solve_triangular(self._root, eye.expand_as(self._root), upper=False)
        self._log_det = 2 * self._root.diagonal(dim1=1, dim2=2).log().sum(1)

    def log_density(self, u: Tensor) -> Tensor:
        """log N(u | μ_c, Σ_c), (n, classes)."""
        z = torch.einsum("cij,ncj->nci", self._whiten, u[:, None] - self.means[None])
        constant = u.shape[1] * math.log(2 * math.pi)
        density: Tensor = -0.5 * (z.square().sum(2) + self._log_det + constant)
        return density

    def sample(self, y: Tensor, generator: torch.Generator) -> Tensor:
        """u_r ~ N(μ_y, Σ_y), one for each label."""
        z = torch.randn(len(y), self.means.shape[1], generator=generator).to(self.means)
        return self.means[y] + torch.einsum("nij,nj->ni", self._root[y], z)

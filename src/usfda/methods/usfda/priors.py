"""Class priors: a Gaussian N(μ_c, Σ_c) of u for every source class.

A class of n samples has n − 1 directions at most in which it varies: Σ_c = V_cᵀ diag(λ_c) V_c + ρ·I, with the principal
directions V_c (r, d) and variances λ_c (r). With few samples in many classes that is small where a d × d matrix for
each class is not.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

RIDGE = 1e-3  # ρ: Σ + 1e-3·I, so that a class with few samples has a density too


class ClassPriors:
    """N(μ_c, Σ_c + 1e-3·I) fitted to latent vectors u with labels y in 0…classes−1."""

    def __init__(self, u: Tensor, y: Tensor, classes: int):
        parts = [u[y == c] for c in range(classes)]
        self.means = torch.stack([p.mean(0) for p in parts])
        directions, variances = [], []
        for p, mean in zip(parts, self.means, strict=True):
            centred = p - mean
            if len(p) > p.shape[1]:  # R of P = Q·R has the same PᵀP in fewer rows
                centred = torch.linalg.qr(centred, mode="r").R
            _, s, v = torch.linalg.svd(centred, full_matrices=False)
            directions.append(v)
            variances.append(s.square() / max(1, len(p) - 1))
        # A class with fewer directions than another gets some of variance 0.
        self._directions = pad_sequence(directions, batch_first=True)  # (classes, r, d)
        self._variances = pad_sequence(variances, batch_first=True)  # (classes, r)
        self._at_means = torch.einsum("crd,cd->cr", self._directions, self.means)

    def log_density(self, u: Tensor) -> Tensor:
        """log N(u | μ_c, Σ_c), (n, classes).

        With t = V(u − μ): the squared Mahalanobis distance is |u − μ|²/ρ − Σ_j t_j²·λ_j / (ρ·(λ_j + ρ)), and
        log det Σ = d·log ρ + Σ_j log(1 + λ_j/ρ).
        """
        n, d = u.shape
        means, variances = self.means, self._variances
        squared = (u.square().sum(1, keepdim=True) - 2 * u @ means.T + means.square().sum(1)).clamp(min=0)
        t = (u @ self._directions.flatten(0, 1).T).view(n, *variances.shape) - self._at_means
        along = (t.square() * (variances / (variances + RIDGE))).sum(2)
        log_det = d * math.log(RIDGE) + (1 + variances / RIDGE).log().sum(1)
        density: Tensor = -0.5 * ((squared - along) / RIDGE + log_det + d * math.log(2 * math.pi))
        return density

    def sample(self, y: Tensor, generator: torch.Generator) -> Tensor:
        """u_r ~ N(μ_y, Σ_y), one for each label: μ + Σ_j √λ_j·η_j·v_j + √ρ·ε."""

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator).to(self.means)

        along = normal(len(y), self._variances.shape[1]) * self._variances[y].sqrt()
        around = normal(len(y), self.means.shape[1]) * math.sqrt(RIDGE)
        return self.means[y] + torch.einsum("nr,nrd->nd", along, self._directions[y]) + around

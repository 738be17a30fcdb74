"""Negative samples without images: drawn in the latent space, between or around the class priors."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .negatives import negative_classes
from .priors import RIDGE, ClassPriors


def latent_negatives(
    kind: str, priors: ClassPriors, u: Tensor, y: Tensor, n: int, most: int, generator: torch.Generator
) -> Callable[[], tuple[Tensor, Tensor]]:
    """Negatives in the latent space, n per call, from the priors of the source's u and y as they are now.

    ``latent`` (|C_n|* = 0): just beyond the radius that holds 99.7 % of the samples of a class, and beyond that of all
    other classes; one negative class. ``prior`` (USFDA-b): between samples of two class priors, labelled by the pair.
    """
    if kind == "prior":
        pairs = torch.tensor(negative_classes(len(priors.means), 2, most), device=u.device)

        def between() -> tuple[Tensor, Tensor]:
            which = torch.randint(len(pairs), (n,), generator=generator).to(u.device)
            a, b = (priors.sample(pairs[which, i], generator) for i in (0, 1))
            mix = 0.3 + 0.4 * torch.rand(n, 1, generator=generator).to(u)
            return mix * a + (1 - mix) * b, which

        return between

    # Distances in units of each coordinate's own spread: a full covariance, fitted to fewer samples than dimensions,
    # would put every new sample of a class beyond the radius of those that it was fitted to.
    means = priors.means
    parts = [u[y == c] for c in range(len(means))]
    scale = 1 / torch.stack([p.var(0, correction=min(1, len(p) - 1)) + RIDGE for p in parts])

    def distance(z: Tensor) -> Tensor:
        """Squared, to every class: Σ_j (z_j − μ_cj)² / σ²_cj, as matrix products."""
        return z.square() @ scale.T - 2 * z @ (means * scale).T + (means.square() * scale).sum(1)

    radius = torch.stack([torch.quantile(distance(p)[:, c], 0.997) for c, p in enumerate(parts)])

    def outside() -> tuple[Tensor, Tensor]:
        """Samples moved straight away from their class, to between one and two radii."""
        found = u[:0]
        for _ in range(100):
            index = torch.randint(len(u), (n,), generator=generator).to(u.device)
            c = y[index]
            away = u[index] - means[c]
            reach = radius[c] / (away.square() * scale[c]).sum(1).clamp(min=1e-12)
            far = 1 + torch.rand(n, generator=generator).to(u)
            z = means[c] + (far * reach.sqrt())[:, None] * away
            found = torch.cat([found, z[(distance(z) > radius).all(1)]])[:n]
            if len(found) == n:
                return found, y.new_zeros(n)
        raise RuntimeError("the class priors leave no room for latent negatives; use negatives prior")

    return outside

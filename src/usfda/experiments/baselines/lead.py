"""LEAD: learning decomposition."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from sklearn.mixture import GaussianMixture
from torch import Tensor
from torch.nn import functional

from ...methods.vendor import LATENT
from .glc import Consensus, count_classes, prototypes
from .training import soft_cross_entropy


def known_space(weight: Tensor) -> Tensor:
    """An orthonormal basis of the space that the head's rows span, (|C_s|, 256)."""
    basis: Tensor = torch.linalg.svd(weight.T, full_matrices=False).U.T
    return basis


def unknown_part(u: Tensor, basis: Tensor) -> Tensor:
    """Length of what lies outside the known space, for u of unit length."""
    return (1 - (u @ basis.T).square().sum(1)).clamp(min=0).sqrt()


@dataclass(frozen=True)
class Pseudo:
    """Pseudo-labels of all samples."""

    share: Tensor  # one-hot, or uniform for unknown
    unknown: Tensor
    weight: Tensor  # near 0 at the boundary


def pseudo_labels(u: Tensor, p: Tensor, head: Tensor, basis: Tensor, clusters: int) -> Pseudo:
    """The class with the highest common score, or unknown where a sample's unknown part exceeds a bound of its own.

    The bound is r_c + score·max(0, m − r_c), with r_c the mean unknown part of the class's most probable samples and m
    the upper mean of two Gaussians over all.
    """
    apart = unknown_part(u, basis)
    centre, top = prototypes(u, p, max(1, len(u) // clusters))
    near_t, near_s = (u @ centre.T).clamp(min=0), (u @ functional.normalize(head).T).clamp(min=0)
    score, label = ((1 - torch.exp(-near_t)) * torch.exp(near_s - 1)).sqrt().max(1)
    upper = float(GaussianMixture(2, random_state=0).fit(apart[:, None].numpy()).means_.max())
    reach = apart[top].mean(0)[label]
    away = apart - (reach + score * (upper - reach).clamp(min=0))
    unknown = away >= 0
    share = functional.one_hot(label, p.shape[1]).float()
    share[unknown] = 1 / p.shape[1]
    alpha = 1e-4  # degrees of freedom of Student's t
    return Pseudo(share, unknown, 1 - (1 + away.square() / alpha) ** (-(alpha + 1) / 2))


class LEAD(Consensus):
    """The part of u outside the space of the source head identifies the unknown, with a boundary for every sample.

    L = 0.3·mean ω·CE(p, ŷ) + mean ω·CE(softmax(|u_known|, |u_unknown|), known or unknown) + mean CE(p, p̄)

    ŷ, known or unknown, and ω from ``pseudo_labels``; p̄ is the mean of the four nearest.

    Qu et al., LEAD: Learning Decomposition for Source-free Universal Domain Adaptation, CVPR 2024.
    """

    version = 2

    def refresh(self, u: Tensor, p: Tensor, r: int) -> None:
        head = self.net.head.weight.detach().cpu()
        if len(head) >= LATENT:
            raise RuntimeError(f"with {len(head)} classes the head spans all {LATENT} dimensions: nothing is unknown")
        if r % 10 == 0:
            self.clusters = count_classes(u, p.shape[1], (0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3), self.rng)
        self.basis = known_space(head)
        self.pseudo = pseudo_labels(u, p, head, self.basis, self.clusters)
        self.u, self.p = u, p

    def loss(self, index: Tensor, u: Tensor, logits: Tensor) -> Tensor:
        place = u.device
        pseudo = self.pseudo
        share, unknown, weight = (t[index].to(place) for t in (pseudo.share, pseudo.unknown, pseudo.weight))
        unit = functional.normalize(u)
        apart = unknown_part(unit, self.basis.to(place))
        parts = torch.column_stack([(1 - apart.square()).clamp(min=1e-12).sqrt(), apart])
        classes = (weight * soft_cross_entropy(logits, share)).mean()
        side = (weight * functional.cross_entropy(parts, unknown.long(), reduction="none")).mean()
        total: Tensor = 0.3 * classes + side + self.consensus(index, u, logits)
        return total

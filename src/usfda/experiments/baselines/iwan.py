"""IWAN: importance-weighted adversarial nets."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from .api import Features, Matrix
from .source_only import SourceOnly
from .training import discriminator, domain_loss, entropy, reverse, warm_up


def importance(logits: Tensor) -> Tensor:
    """w = (1 − D(u_s)) / mean: large for source samples that look like the target."""
    w = 1 - logits.detach().squeeze(1).sigmoid()
    return w / w.mean().clamp(min=1e-12)


class IWAN(SourceOnly):
    """A first discriminator weights the source samples, a second one aligns the target with the weighted source.

    F_s and C are learnt on the source and kept; F_t starts from F_s:
    L = [−log D(u_s) − log(1 − D(u_t))] + [−mean w·log D_0(u_s) − mean log(1 − D_0(ρu_t))] + 0.1·mean H(C(u_t))

    D sees u_t without a gradient to F_t.

    Zhang et al., Importance Weighted Adversarial Nets for Partial Domain Adaptation, CVPR 2018.
    """

    source_free = False

    def adapt(self, X: Matrix, source: Features | None) -> None:
        assert source is not None
        self.f_s, head = copy.deepcopy(self.net.f), self.net.head.requires_grad_(False)
        self.d, d_0 = self.seeded(lambda: nn.ModuleList([discriminator(), discriminator()]))
        self.trained = [self.net.f, self.d, d_0]
        take = self.pairs(X, source)

        def loss(p: float) -> Tensor:
            v_s, _, v_t = take()
            with torch.no_grad():
                u_s = self.f_s(v_s)
            u_t = self.net.f(v_t)
            d_s = self.d(u_s)
            first = domain_loss(d_s, self.d(u_t.detach()))
            second = domain_loss(d_0(u_s), d_0(reverse(u_t, warm_up(p))), importance(d_s))
            return first + second + 0.1 * entropy(head(u_t).softmax(1)).mean()

        self.optimise(self.trained, loss)

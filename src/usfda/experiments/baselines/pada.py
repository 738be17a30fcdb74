"""PADA: partial adversarial domain adaptation."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from .api import Matrix
from .training import Joint, discriminator, domain_loss, network, reverse, warm_up


def class_weights(p: Tensor) -> Tensor:
    """γ = mean of the target's softmax, over its largest: near 0 for a class that the target lacks."""
    mean = p.mean(0)
    return mean / mean.max()


class PADA(Joint):
    """DANN that forgets source classes to which the target assigns nothing.

    L = mean γ_y·CE(C(u_s), y) + [−mean γ_y·log D(ρu_s) − mean log(1 − D(ρu_t))], γ from ``class_weights``

    γ is one at first and renewed after every twentieth of the steps (published: 500 of 10,000).

    Cao et al., Partial Adversarial Domain Adaptation, ECCV 2018.
    """

    rounds = 20

    def build(self, d: int, classes: int) -> list[nn.Module]:
        self.net, self.d = network(d, classes), discriminator()
        self.gamma = torch.ones(classes)
        return [self.net, self.d]

    def refresh(self, X: Matrix, r: int) -> None:
        if r > 0:
            self.gamma = class_weights(self.probability(X))

    def loss(self, x_s: Tensor, y_s: Tensor, x_t: Tensor, p: float) -> Tensor:
        u_s, logits, u_t, _ = self.both(x_s, x_t)
        c, w = warm_up(p), self.gamma.to(y_s.device)[y_s]
        classes = (w * functional.cross_entropy(logits, y_s, reduction="none")).mean()
        return classes + domain_loss(self.d(reverse(u_s, c)), self.d(reverse(u_t, c)), w)

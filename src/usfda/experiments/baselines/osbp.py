"""OSBP: open-set domain adaptation by backpropagation."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from .api import Decision, Matrix
from .training import Joint, network, reverse, warm_up

T = 0.5  # t, the p(unknown) at which C holds the target, as published


def boundary_loss(logits: Tensor, t: float = T) -> Tensor:
    """−t·log p(unknown) − (1 − t)·log(1 − p(unknown)); unknown is the last class."""
    rest = logits[:, :-1].logsumexp(1)
    return functional.binary_cross_entropy_with_logits(logits[:, -1] - rest, torch.full_like(rest, t))


class OSBP(Joint):
    """C holds the target's p(unknown) at one half, F pushes each sample away from there, to either side.

    L = CE(C(u_s), y) + L_adv(C(ρu_t)),  L_adv = −t·log p_{K+1} − (1 − t)·log(1 − p_{K+1}), t = 0.5

    Saito et al., Open Set Domain Adaptation by Backpropagation, ECCV 2018.
    """

    rejects = "class K+1 is the most probable"

    def build(self, d: int, classes: int) -> list[nn.Module]:
        self.net = network(d, classes + 1)
        return [self.net]

    def loss(self, x_s: Tensor, y_s: Tensor, x_t: Tensor, p: float) -> Tensor:
        _, logits, u_t, _ = self.both(x_s, x_t)
        return functional.cross_entropy(logits, y_s) + boundary_loss(self.net.head(reverse(u_t, warm_up(p))))

    def decide(self, X: Matrix) -> Decision:
        p = self.probability(X)
        most, best = p[:, :-1].max(1)
        return Decision(best.numpy(), (most >= p[:, -1]).numpy(), (1 - p[:, -1]).numpy())

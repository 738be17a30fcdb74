"""UAN: universal adaptation network."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from .api import Decision, Matrix
from .training import Joint, discriminator, domain_loss, network, normalised_entropy, reverse, warm_up

W_0 = -0.5  # transferability below which a sample is unknown, as published


def transferability(d: Tensor, logits: Tensor, temperature: float = 1.0) -> Tensor:
    """w_t = d' − H(softmax(logits / temperature)) / log K, from −1 to 1; w_s is its negative."""
    return d.squeeze(1).sigmoid() - normalised_entropy((logits / temperature).softmax(1))


def batch_weight(w: Tensor) -> Tensor:
    """To [0, 1] over the batch, then to mean 1, without gradient."""
    w = w.detach()
    w = (w - w.min()) / (w.max() - w.min()).clamp(min=1e-12)
    return w / w.mean().clamp(min=1e-12)


class UAN(Joint):
    """Entropy and a second discriminator say how shared a sample is; the adversary aligns the shared ones.

    w_s = H(softmax(C(u_s)/10)) / log K − d'(u_s),  w_t = d'(u_t) − H(softmax(C(u_t))) / log K
    L = CE(C(u_s), y) + [−mean w_s·log D(ρu_s) − mean w_t·log(1 − D(ρu_t))] + [−log D'(u_s) − log(1 − D'(u_t))]

    D' sees u without a gradient to F. The weights of a batch are brought to [0, 1], then to mean 1.

    You et al., Universal Domain Adaptation, CVPR 2019.
    """

    rejects = f"w_t below {W_0}"

    def build(self, d: int, classes: int) -> list[nn.Module]:
        self.net, self.d, self.d_ = network(d, classes), discriminator(), discriminator()
        return [self.net, self.d, self.d_]

    def loss(self, x_s: Tensor, y_s: Tensor, x_t: Tensor, p: float) -> Tensor:
        u_s, logits_s, u_t, logits_t = self.both(x_s, x_t)
        d_s, d_t = self.d_(u_s.detach()), self.d_(u_t.detach())
        w_s, w_t = batch_weight(-transferability(d_s, logits_s, 10)), batch_weight(transferability(d_t, logits_t))
        c = warm_up(p)
        aligned = domain_loss(self.d(reverse(u_s, c)), self.d(reverse(u_t, c)), w_s, w_t)
        return functional.cross_entropy(logits_s, y_s) + aligned + domain_loss(d_s, d_t)

    def decide(self, X: Matrix) -> Decision:
        def both(v: Tensor) -> Tensor:
            u, logits = self.net(v)
            return torch.column_stack([logits, transferability(self.d_(u), logits)])

        found = self.everything(X, both)
        w = found[:, -1]
        return Decision(found[:, :-1].argmax(1).numpy(), (w >= W_0).numpy(), ((w + 1) / 2).numpy())

"""OVANet: one-vs-all network."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...methods.vendor import LATENT
from .api import Decision, Matrix
from .training import Joint, Network


def one_vs_all_loss(o: Tensor, y: Tensor) -> Tensor:
    """−½·log p_y(in) − ½·min_{c≠y} log p_c(out): only the nearest wrong class counts; o is the logit of "in"."""
    right = functional.one_hot(y, o.shape[1]).bool()
    wrong = functional.softplus(o).masked_fill(right, 0).amax(1)
    return (functional.softplus(-o[right]) + wrong).mean() / 2


def open_entropy(o: Tensor) -> Tensor:
    """Mean entropy of all in-or-out decisions."""
    return (functional.softplus(o) - o * o.sigmoid()).mean()  # −p·log p − (1 − p)·log(1 − p), finite for any o


class Open(nn.Module):
    """For each class the logit of "in" against "out": the difference of two rows of unit length."""

    def __init__(self, classes: int):
        super().__init__()
        # Of unit length from the start: the longer a row, the less a step turns it.
        self.weight = nn.Parameter(functional.normalize(torch.randn(2, classes, LATENT), dim=2))

    def forward(self, u: Tensor) -> Tensor:
        unit = functional.normalize(self.weight, dim=2)
        return u @ (unit[1] - unit[0]).T


class OVANet(Joint):
    """One classifier chooses the class, one for each class accepts or rejects it.

    L = CE(C(u_s), y) + one_vs_all_loss(O(u_s), y) + 0.1·open_entropy(O(u_t))

    F is linear alone: the published heads sit on the backbone itself.

    Saito and Saenko, OVANet: One-vs-All Network for Universal Domain Adaptation, ICCV 2021.
    """

    rejects = 'the best class\'s own classifier answers "out"'

    def build(self, d: int, classes: int) -> list[nn.Module]:
        self.net, self.open = Network(d, classes), Open(classes)
        return [self.net, self.open]

    def loss(self, x_s: Tensor, y_s: Tensor, x_t: Tensor, p: float) -> Tensor:
        u_s, logits, u_t, _ = self.both(x_s, x_t)
        closed, one_vs_all = functional.cross_entropy(logits, y_s), one_vs_all_loss(self.open(u_s), y_s)
        return closed + one_vs_all + 0.1 * open_entropy(self.open(u_t))

    def decide(self, X: Matrix) -> Decision:
        def both(v: Tensor) -> Tensor:
            u, logits = self.net(v)
            best = logits.argmax(1, keepdim=True)
            return torch.column_stack([best, self.open(u).sigmoid().gather(1, best)])

        best, score = self.everything(X, both).T
        return Decision(best.long().numpy(), (score >= 0.5).numpy(), score.numpy())

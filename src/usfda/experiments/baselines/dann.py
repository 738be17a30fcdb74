"""DANN: domain-adversarial training."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from .training import Joint, discriminator, domain_loss, network, reverse, warm_up


class DANN(Joint):
    """A discriminator separates source and target, and F learns to prevent that.

    L = CE(C(u_s), y) + [−log D(ρu_s) − log(1 − D(ρu_t))], where ρ reverses the gradient, times warm_up(p).

    Ganin et al., Domain-Adversarial Training of Neural Networks, JMLR 2016.
    """

    def build(self, d: int, classes: int) -> list[nn.Module]:
        self.net, self.d = network(d, classes), discriminator()
        return [self.net, self.d]

    def loss(self, x_s: Tensor, y_s: Tensor, x_t: Tensor, p: float) -> Tensor:
        u_s, logits, u_t, _ = self.both(x_s, x_t)
        c = warm_up(p)
        return functional.cross_entropy(logits, y_s) + domain_loss(self.d(reverse(u_s, c)), self.d(reverse(u_t, c)))

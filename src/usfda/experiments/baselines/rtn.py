"""RTN: residual transfer networks."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from .training import Joint, entropy, network

WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the Gaussian kernels, in mean squared distances


def kernel(x: Tensor) -> Tensor:
    """Σ_w exp(−|x_i − x_j|² / (w·mean)) over all pairs of rows."""
    distance = torch.cdist(x, x).square()
    n = len(x)
    mean = (distance.detach().sum() / (n * n - n)).clamp(min=1e-12)
    return torch.stack([torch.exp(-distance / (w * mean)) for w in WIDTHS]).sum(0)


def mmd(n: int, *parts: Tensor) -> Tensor:
    """Squared MMD between the first n rows and the rest, over the product of the kernels of all parts."""
    k = torch.stack([kernel(part) for part in parts]).prod(0)
    return k[:n, :n].mean() + k[n:, n:].mean() - 2 * k[:n, n:].mean()


class RTN(Joint):
    """The source classifier is the target's plus a small residual; features ⊗ predictions are matched by MMD.

    f_S = f_T + Δ(f_T);  L = CE(f_S(u_s), y) + 0.1·mean H(softmax f_T(u_t)) + 0.3·MMD²(u ⊗ softmax f_T)

    Long et al., Unsupervised Domain Adaptation with Residual Transfer Networks, NeurIPS 2016.
    """

    def build(self, d: int, classes: int) -> list[nn.Module]:
        self.net = network(d, classes)
        self.residual = nn.Sequential(nn.Linear(classes, classes), nn.ReLU(), nn.Linear(classes, classes))
        return [self.net, self.residual]

    def loss(self, x_s: Tensor, y_s: Tensor, x_t: Tensor, p: float) -> Tensor:
        u, f_t = self.net(torch.cat([x_s, x_t]))
        n, probability = len(x_s), f_t.softmax(1)
        f_s = f_t[:n] + self.residual(f_t[:n])
        matched = mmd(n, u, probability)
        return functional.cross_entropy(f_s, y_s) + 0.1 * entropy(probability[n:]).mean() + 0.3 * matched

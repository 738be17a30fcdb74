"""F, G and D of the paper, to the layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .runtime import runtime

LATENT = 256  # dimensions of u = F(v)


def make_f(d: int) -> nn.Sequential:
    """F_s, F_t: v ∈ R^d → u ∈ R^256."""
    return nn.Sequential(
        nn.Linear(d, 1024), nn.ELU(),
        nn.Linear(1024, 1024), nn.BatchNorm1d(1024), nn.ELU(),
        nn.Linear(1024, LATENT), nn.ELU(),
        nn.Linear(LATENT, LATENT), nn.BatchNorm1d(LATENT), nn.ELU(),
    )  # fmt: skip


def make_g(d: int) -> nn.Sequential:
    """G: u → v."""
    return nn.Sequential(
        nn.Linear(LATENT, 1024), nn.ELU(),
        nn.Linear(1024, 1024), nn.BatchNorm1d(1024), nn.ELU(),
        nn.Linear(1024, 2048), nn.ELU(),
        nn.Linear(2048, d),
    )  # fmt: skip


class D(nn.Module):
    """u → K = |C_s| + |C_n| logits: a linear layer for each part, one softmax over both."""

    def __init__(self, source: int, negative: int):
        super().__init__()
        self.source = nn.Linear(LATENT, source)
        self.negative = nn.Linear(LATENT, negative)

    def forward(self, u: Tensor) -> Tensor:
        return torch.cat([self.source(u), self.negative(u)], 1)


def learnable(*modules: nn.Module) -> int:
    """Number of learnable parameters."""
    return sum(p.numel() for module in modules for p in module.parameters())


def device() -> torch.device:
    """Where to compute: the GPU of a GPU build, else the CPU with as many threads as were asked for."""
    torch.set_num_threads(runtime.threads)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def in_pieces(network: Callable[[Tensor], Tensor], vectors: Callable[[Any], Tensor], index: Any) -> Tensor:
    """network(vectors(index)) without gradients, 4,096 rows at a time: memory does not depend on their number."""
    with torch.no_grad():
        return torch.cat([network(vectors(index[i : i + 4096])) for i in range(0, len(index), 4096)])

"""F, G and D of the paper, to the layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...config import Config
from ...errors import InputError
from ..vendor import LATENT, members_of

PIECE = 4096  # rows that a network takes at once outside training


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
        """The logits."""
        return torch.cat([self.source(u), self.negative(u)], 1)


def arrays(module: nn.Module) -> dict[str, np.ndarray]:
    """The weights of a module, as they are saved."""
    return {name: t.detach().cpu().numpy() for name, t in module.state_dict().items()}


def from_arrays(module: nn.Module, weights: Mapping[str, np.ndarray]) -> nn.Module:
    """The module with these weights, in eval mode."""
    module.load_state_dict({name: torch.tensor(t) for name, t in weights.items()})
    return module.eval()


def learnable(*modules: nn.Module) -> int:
    """Number of learnable parameters."""
    return sum(p.numel() for module in modules for p in module.parameters())


@contextmanager
def torch_device(config: Config) -> Iterator[torch.device]:
    """Where torch computes; inside, it uses as many threads as the configuration says, and afterwards as before."""
    if config.device == "cuda" and not torch.cuda.is_available():
        raise InputError("device cuda: this torch has no CUDA device; use --device cpu")
    before = torch.get_num_threads()
    torch.set_num_threads(config.threads)
    try:
        yield torch.device("cuda" if torch.cuda.is_available() and config.device != "cpu" else "cpu")
    finally:
        torch.set_num_threads(before)


def in_pieces(network: Callable[[Tensor], Tensor], vectors: Callable[[Any], Tensor], index: Any) -> Tensor:
    """network(vectors(index)) without gradients, 4,096 rows at a time: memory does not depend on their number."""
    with torch.no_grad():
        return torch.cat([network(vectors(index[i : i + PIECE])) for i in range(0, len(index), PIECE)])


def balanced_batches(index: np.ndarray, y: np.ndarray, size: int, rng: np.random.Generator) -> Callable[[], np.ndarray]:
    """Endless batches of one size: each sample is of any class with the same chance, then any of its class."""
    members = [index[mine] for mine in members_of(y[index])]

    def take() -> np.ndarray:
        chosen = rng.integers(len(members), size=size)
        return np.asarray([members[c][rng.integers(len(members[c]))] for c in chosen])

    return take


def batches(index: np.ndarray, size: int, rng: np.random.Generator) -> Callable[[], np.ndarray]:
    """Endless batches of one size: the indices in a new order each round, the rest of a round dropped."""
    size = min(size, len(index))
    queue = np.empty(0, index.dtype)

    def take() -> np.ndarray:
        nonlocal queue
        if len(queue) < size:
            queue = rng.permutation(index)
        batch, queue = queue[:size], queue[size:]
        return batch

    return take

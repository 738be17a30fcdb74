"""What a source is summed up to: all that its geometry is made of, and that noise is added to (``privacy.py``)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from ..data.samples import Matrix
from .vendor import normalise, signed_root

PIECE = 4096  # rows at a time: memory does not depend on their number
WEIGHTS = {"counts": 0.5, "second": 0.5, "length": 0.25}  # w_n, w_T, w_l: what noise of one size is added to
LENGTHS = 4.6  # R: lengths of x̃ from 1/100 to 100 are told apart

Noise = Callable[[int], np.ndarray]


@dataclass(frozen=True)
class Sums:
    """Sums over the source; the field names of the weights are those of the sums.

    Parameters
    ----------
    classes : array (classes, d)
        s_c = Σ x̃ over class c, or Σ x̃/|x̃|.
    counts : array (classes,)
        n_c, the samples of class c.
    second : array (d, d)
        T = Σ x̃ x̃ᵀ over all, or that of x̃/|x̃|.
    length : array ()
        l = Σ log|x̃| / R, each in [−1, 1].
    noise : float
        σ of what was added to each coordinate of ``weighted``.
    """

    classes: np.ndarray
    counts: np.ndarray
    second: np.ndarray
    length: np.ndarray
    noise: float = 0.0

    def weighted(self) -> np.ndarray:
        """As the one vector that noise is added to, in which one image counts Δ at most."""
        upper = np.triu_indices(len(self.second), 1)
        beside = math.sqrt(2) * self.second[upper]
        parts = {"counts": self.counts, "second": np.append(self.second.diagonal(), beside), "length": self.length}
        weighted = [WEIGHTS[name] * np.ravel(part) for name, part in parts.items()]
        return np.concatenate([self.classes.ravel(), *weighted])

    def noisy(self, sigma: float, noise: Noise) -> Sums:
        """With N(0, σ²) on each coordinate of that vector."""
        k, d = self.classes.shape
        drawn = sigma * noise(self.classes.size + k + d * (d + 1) // 2 + 1)
        first, counts, diagonal, beside, length = np.split(drawn, np.cumsum([k * d, k, d, d * (d - 1) // 2]))
        symmetric = np.zeros((d, d))
        symmetric[np.triu_indices(d, 1)] = beside / math.sqrt(2)
        symmetric += symmetric.T + np.diag(diagonal)
        return Sums(
            self.classes + first.reshape(k, d),
            self.counts + counts / WEIGHTS["counts"],
            self.second + symmetric / WEIGHTS["second"],
            self.length + length[0] / WEIGHTS["length"],
            sigma,
        )


def sum_up(X: Matrix, y: np.ndarray, classes: int, unit: bool = False) -> Sums:
    """The sums over source vectors X with labels y in 0 … classes−1, a piece at a time; with ``unit``, of x̃/|x̃|."""
    d = X.shape[1]
    total, second, length = np.zeros((classes, d)), np.zeros((d, d)), 0.0
    for i in range(0, len(y), PIECE):
        x, labels = signed_root(X[i : i + PIECE]).astype(np.float64), y[i : i + PIECE]
        norms = np.linalg.norm(x, axis=1)
        x = normalise(x) if unit else x
        members = csr_array((np.ones(len(labels)), (labels, np.arange(len(labels)))), (classes, len(labels)))
        total += members @ x
        second += x.T @ x
        length += float(np.clip(np.log(np.maximum(norms, 1e-12)) / LENGTHS, -1, 1).sum())
    return Sums(total, np.bincount(y, minlength=classes).astype(np.float64), second, np.asarray(length))

"""Mutual nearest neighbours among the samples of a target."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix


@dataclass(frozen=True)
class NeighbourGraph:
    """Mutual neighbours: a sparse (n, n) matrix of their cosines, and every sample's mean cosine with its k nearest."""

    weight: csr_matrix
    density: np.ndarray

    def smooth(self, values: np.ndarray, rounds: int = 3) -> np.ndarray:
        """Values of every sample, averaged with those of its neighbours so many times."""
        smoothed, total = values, 1 + np.asarray(self.weight.sum(1)).reshape(-1, *[1] * (values.ndim - 1))
        for _ in range(rounds):
            smoothed = (smoothed + self.weight @ smoothed) / total
        return smoothed


def mutual_neighbours(z: np.ndarray, classes: int, most: int) -> NeighbourGraph:
    """The k = min(most, n / 2·classes) nearest of each sample; an edge where the choice is mutual."""
    n = len(z)
    if n == 1:
        return NeighbourGraph(csr_matrix((1, 1), dtype=np.float32), np.ones(1, np.float32))
    k = int(np.clip(n // (2 * classes), 1, min(most, n - 1)))
    cosine, index = np.empty((n, k), np.float32), np.empty((n, k), np.int64)
    for start in range(0, n, 1024):
        near = z[start : start + 1024] @ z.T
        rows = slice(start, start + len(near))
        near[np.arange(len(near)), np.arange(n)[rows]] = -2
        index[rows] = np.argpartition(-near, k - 1, axis=1)[:, :k]
        cosine[rows] = np.take_along_axis(near, index[rows], 1)
    chosen = csr_matrix((cosine.clip(min=0).ravel(), (np.repeat(np.arange(n), k), index.ravel())), (n, n))
    return NeighbourGraph(chosen.minimum(chosen.T).tocsr(), cosine.mean(1))

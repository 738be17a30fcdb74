"""SHOT: source hypothesis transfer."""

from __future__ import annotations

import numpy as np
import torch
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from torch import Tensor
from torch.nn import functional

from .api import Decision, Features, Matrix
from .training import SourceFree, entropy, normalised_entropy


def entropy_threshold(h: np.ndarray) -> float:
    """Between the two clusters of normalised entropies: the upper one is unknown."""
    return float(KMeans(2, n_init=1, random_state=0).fit(h[:, None]).cluster_centers_.mean())


def pseudo_labels(u: np.ndarray, p: np.ndarray) -> np.ndarray:
    """The nearest centroid by cosine, of the classes that somebody prefers: first with soft, then with hard shares."""
    present = np.unique(p.argmax(1))
    share = p
    for _ in range(2):
        centroids = (share.T @ u / (share.sum(0)[:, None] + 1e-8))[present]
        label = present[cdist(u, centroids + 1e-12, "cosine").argmin(1)]
        share = np.eye(p.shape[1])[label]
    return np.asarray(label)


class SHOT(SourceFree):
    """F moves until the frozen head is sure of every known sample and all classes are in use.

    L = mean_known H(p) − H(mean p) + 0.3·mean_known CE(p, ŷ), with ŷ from ``pseudo_labels`` of the known samples

    Known is the lower of two clusters of the entropies; they and ŷ are renewed 15 times.

    Liang et al., Do We Really Need to Access the Source Data?, ICML 2020 (open-set variant).
    """

    rejects = "in the upper of two clusters of entropies"

    def refresh(self, u: Tensor, p: Tensor, r: int) -> None:
        h = normalised_entropy(p).numpy()
        known = h < entropy_threshold(h)
        self.label = torch.full((len(p),), -1)
        if known.any():
            self.label[known] = torch.from_numpy(pseudo_labels(u.numpy()[known], p.numpy()[known]))

    def loss(self, index: Tensor, u: Tensor, logits: Tensor) -> Tensor:
        label = self.label[index].to(logits.device)
        p, known = logits.softmax(1), label >= 0
        diversity = entropy(p.mean(0, keepdim=True)).squeeze(0)
        if not known.any():
            return 0 * diversity
        return entropy(p[known]).mean() - diversity + 0.3 * functional.cross_entropy(logits[known], label[known])

    def adapt(self, X: Matrix, source: Features | None) -> None:
        super().adapt(X, source)
        self.threshold = entropy_threshold(normalised_entropy(self.probability(X)).numpy())

    def decide(self, X: Matrix) -> Decision:
        p = self.probability(X)
        h = normalised_entropy(p).numpy()
        return Decision(p.argmax(1).numpy(), h < self.threshold, 1 - h)

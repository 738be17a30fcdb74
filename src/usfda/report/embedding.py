"""The map of a target: a place in the plane for every sample, so that neighbours lie near each other."""

from __future__ import annotations

import numpy as np
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from sklearn.neighbors import KNeighborsRegressor
from threadpoolctl import threadpool_limits

from ..config import Config
from ..data.samples import Matrix
from ..methods.vendor import signed_root
from ..model import Model

MOST = 2000  # samples that t-SNE places, in seconds; the others go between their neighbours
DIMENSIONS = 50  # that it sees: more slow it down and are mostly noise
NEIGHBOURS = 5  # that the place of another sample is the weighted mean of
STEPS = 500  # of t-SNE; the picture hardly changes in the second half of the usual thousand
FEWEST = 5  # samples that t-SNE makes sense for; fewer are placed by their principal components
BATCH = 4096  # rows at a time: memory does not depend on their number


def embed(model: Model, X: Matrix, config: Config, most: int = MOST) -> np.ndarray:
    """(n, 2), within 0 … 1: t-SNE of the whitened vectors, or of what the head compares where there is no whitening."""
    some = np.unique(np.linspace(0, len(X) - 1, min(most, len(X))).round().astype(int))
    mean, class_statistics = signed_root(X[some]).mean(0), model.vendor.class_statistics

    def compared(v: np.ndarray) -> np.ndarray:
        return model.head.latent(v) if class_statistics is None else class_statistics.whiten(v, mean)

    with config.progress(len(X), "map", "samples") as advance, threadpool_limits(config.threads):
        first = compared(X[some])
        if len(some) < 2 or not np.ptp(first, axis=0).any():
            return np.full((len(X), 2), 0.5)
        pca = PCA(min(DIMENSIONS, *first.shape), random_state=0).fit(first)
        reduced = _wide(pca.transform(first))
        placed = reduced[:, :2]
        if len(some) >= FEWEST:
            perplexity = min(30, (len(some) - 1) / 3)
            tsne = TSNE(perplexity=perplexity, init="pca", max_iter=STEPS, random_state=0, n_jobs=config.threads)
            placed = tsne.fit_transform(reduced)
        advance(len(some))
        places = np.empty((len(X), 2))
        places[some] = placed
        rest = np.setdiff1d(np.arange(len(X)), some)
        if len(rest):
            between = KNeighborsRegressor(NEIGHBOURS, weights="distance").fit(reduced, placed)
            for start in range(0, len(rest), BATCH):
                rows = rest[start : start + BATCH]
                places[rows] = between.predict(_wide(pca.transform(compared(X[rows]))))
                advance(len(rows))
    filled: np.ndarray = (places - places.min(0)) / np.maximum(np.ptp(places, axis=0), 1e-12)
    return filled


def _wide(reduced: np.ndarray) -> np.ndarray:
    """With two columns at least."""
    return np.pad(reduced, ((0, 0), (0, max(0, 2 - reduced.shape[1]))))

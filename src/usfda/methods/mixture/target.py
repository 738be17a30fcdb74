"""The target as the known/unknown decision sees it, and the score of each class for each sample.

Which class a sample has, if it is known, is decided by two or three sources of evidence that fail in different targets:

    a_ic = S_ic/c + λ·s_ic/c + β·Σ log(ε + p_i·R_c),    λ = 1/(1 + (δ/δ₀)²)

S_ic is the similarity to the class mean with vectors centred on the target's mean, which removes the shift of the
domain, but also what the classes of the target have in common; s_ic is the same centred on the source's mean, and
counts less the larger the shift δ is. The last term, where the backbone has a classifier, is the probability p_i of
each of its outputs for the sample times the mean probability R_c over the class, from the logits and from the logits
less the mean of their domain. All are averaged over a sample's neighbours; c is the within-class similarity of the
source.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from sklearn.cluster import KMeans
from sklearn.random_projection import GaussianRandomProjection

from ..numeric import weighted_quantile
from ..vendor import ClassStatistics, Vendor, normalise, signed_square, softmax
from .neighbours import NeighbourGraph

LEAST_SIMILARITY = 1e-3  # a within-class similarity below it is not divided by
SMALL_SHIFT = 0.5  # δ₀
EVIDENCE = 0.3  # β, weight of the classifier's evidence
LEAST_SHARE = 0.02  # ε, so that the evidence against a class is bounded
CLUSTERS = 60  # at most, of all samples
CLUSTER_SIZE = 10  # samples for each cluster, at least
CLUSTER_DIMENSIONS = 64  # of a random projection in which the clusters are found


@dataclass(frozen=True)
class TargetView:
    """A target as a splitter sees it.

    Parameters
    ----------
    vendor : Vendor
        What the vendor handed over; it has class statistics.
    means : array (K, d)
        The class means: the vendor's, and those of taught classes where they count.
    x : array (n, d)
        x̃ of every sample.
    weight : array (n,)
        How many samples each row stands for.
    mean : array (d,)
        Of x̃ over the target.
    away : array (n, d)
        W(x̃ − μ).
    shrink : array (n,)
        The length of each z: 1 for a sample, less for a mean of several.
    z, v : array (n, d)
        Whitened, and smoothed over neighbours.
    neighbours : NeighbourGraph
        Of the samples.
    seed : int
        Of what is random.
    """

    vendor: Vendor
    means: np.ndarray
    x: np.ndarray
    weight: np.ndarray
    mean: np.ndarray
    away: np.ndarray
    shrink: np.ndarray
    z: np.ndarray
    v: np.ndarray
    neighbours: NeighbourGraph
    seed: int = 0

    @property
    def class_statistics(self) -> ClassStatistics:
        """The vendor's class statistics."""
        assert self.vendor.class_statistics is not None
        return self.vendor.class_statistics

    @cached_property
    def w(self) -> np.ndarray:
        """The weights, which sum to 1."""
        found: np.ndarray = self.weight / self.weight.sum()
        return found

    @cached_property
    def within_class_similarity(self) -> float:
        """c, the within-class similarity of the source."""
        return max(float(self.class_statistics.within_class_similarity), LEAST_SIMILARITY)

    @cached_property
    def similarity(self) -> np.ndarray:
        """S = v·P."""
        found: np.ndarray = self.v @ self.means.T
        return found

    @cached_property
    def lengths(self) -> np.ndarray:
        """|W(x̃ − μ)|, as of single samples."""
        found: np.ndarray = np.linalg.norm(self.away, axis=1) / self.shrink
        return found

    @cached_property
    def offset(self) -> np.ndarray:
        """W(μ − μ_source)."""
        found: np.ndarray = self.class_statistics.away(self.mean[None], self.class_statistics.overall_mean)[0]
        return found

    @cached_property
    def shift(self) -> float:
        """δ, the shift of the domain's mean: |W(μ − μ_source)| over the median length."""
        return float(np.linalg.norm(self.offset) / max(weighted_quantile(self.lengths, self.w, 0.5), 1e-12))

    @cached_property
    def source_similarity(self) -> np.ndarray:
        """The similarity of each sample to the vendor's class means, centred on the source's mean, not smoothed."""
        found: np.ndarray = normalise(self.away + self.offset) @ self.class_statistics.means.T
        return found

    @cached_property
    def answers(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The classifier's logits and probabilities: as they are, and of the logits less their mean over the target."""
        if self.vendor.classifier is None:
            return []
        logits = self.vendor.classifier.logits(signed_square(self.x))
        return [(own, softmax(own)) for own in (logits, logits - self.w @ logits)]

    @cached_property
    def scores(self) -> np.ndarray:
        """a, (n, K)."""
        of_source = self.neighbours.smooth(self.source_similarity) / (1 + (self.shift / SMALL_SHIFT) ** 2)
        found: np.ndarray = (self.similarity + of_source) / self.within_class_similarity
        if (known := self.vendor.classifier) is not None:
            for (_, p), share in zip(self.answers, (known.share, known.share_centred), strict=True):
                found += EVIDENCE * np.log(LEAST_SHARE + self.neighbours.smooth(p @ share.T))
        return found

    @cached_property
    def clusters(self) -> np.ndarray:
        """The cluster of each sample, of clusters of all samples together."""
        n, low = len(self.v), self.v
        count = int(np.clip(n // CLUSTER_SIZE, 2, max(2, min(2 * len(self.means), CLUSTERS))))
        if low.shape[1] > CLUSTER_DIMENSIONS:
            low = GaussianRandomProjection(CLUSTER_DIMENSIONS, random_state=self.seed).fit_transform(low)
        kmeans = KMeans(min(count, n), n_init=1, random_state=self.seed).fit(low, sample_weight=self.weight)
        found: np.ndarray = kmeans.labels_
        return found

    @cached_property
    def best(self) -> np.ndarray:
        """The class of the highest score of each sample."""
        found: np.ndarray = self.scores.argmax(1)
        return found

"""Method ``usfda``: the target as a mixture of source classes and of clusters that are none of them (docs/usfda.md).

1. Every sample moves towards its mutual neighbours, v; S_ic = v_i·P_c / q_i is its similarity to source class c, where
   q_i evens out that an odd sample is less similar to anything.
2. s_i, the best similarity, comes from one of two groups. How similar *unknown* samples are to the best of K classes
   shows in how similar known ones are to their second best, so the groups can be told apart without a label.
3. The known, class by class, and the unknown, cluster by cluster, give centres C_j with masses m_j. The model of a new
   sample, and the only thing that is kept: p(j|z) = softmax_j(τ·z·C_j + log m_j), the head ``usfda``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix
from scipy.special import expit, logit
from sklearn.cluster import KMeans

from ..errors import InputError
from .heads import UsfdaHead
from .vendor import Geometry, normalise

FEWEST = 2  # images behind every mean that is saved, so that no model file holds the vector of a single one


@dataclass(frozen=True)
class UsfdaSettings:
    """Defaults of method ``usfda``, chosen on the development suite (docs/usfda.md)."""

    most: int = 5000  # samples that groups and centres are fitted to, so that time and memory stay linear
    neighbours: int = 10  # of a sample, and at most half of a class's share of the target
    rounds: int = 3  # of moving a sample towards its neighbours
    scale: float = 16.0  # τ: as peaked as the source classes are at home
    clusters: int = 64  # of unknown samples, at most
    prior: float = 10.0  # pseudo-count of the vendor's expectation of the known group, in samples
    kept: float = 0.6  # share of the source's cohesion that a shift is expected to leave
    class_prior: float = 50.0  # pseudo-count of the overall share of known samples in each class's own, in samples
    spread: float = 1.5  # variance of the known group over that of the unknown, at most
    evidence: float = 0.3  # lead of the best class, in units of the cohesion, below which no class is there at all

    def __post_init__(self) -> None:
        if self.most < FEWEST or self.neighbours < 1 or self.clusters < 1 or self.rounds < 0:
            raise InputError("most starts at 2, neighbours and clusters at 1, rounds at 0")
        if not all(0 < value < math.inf for value in (self.scale, self.prior, self.class_prior)):
            raise InputError("scale, prior and class_prior must be positive")
        if not (math.isfinite(self.kept) and math.isfinite(self.evidence) and 1 <= self.spread < math.inf):
            raise InputError("kept and evidence must be finite, spread at least 1")


@dataclass(frozen=True)
class NeighbourGraph:
    """Mutual neighbours: a sparse (n, n) matrix of their cosines, and every sample's mean cosine with its k nearest."""

    weight: csr_matrix
    density: np.ndarray


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


def smooth_over_neighbours(z: np.ndarray, graph: NeighbourGraph, rounds: int) -> np.ndarray:
    """v: every sample moved towards its mutual neighbours, at unit length again."""
    v, total = z, 1 + np.asarray(graph.weight.sum(1))
    for _ in range(rounds):
        v = (v + graph.weight @ v) / total
    return normalise(v)


def class_similarity(v: np.ndarray, graph: NeighbourGraph, prototypes: np.ndarray) -> np.ndarray:
    """S = v·P / q with q = √density over its median: what lies apart from all samples is less similar to any class."""
    q = np.sqrt(graph.density.clip(min=0.02))
    scores: np.ndarray = v @ prototypes.T / (q / np.median(q)).clip(min=0.3)[:, None]
    return scores


@dataclass(frozen=True)
class Groups:
    """The two groups of best similarity; ``known`` is each sample's probability to be of the known one."""

    known: np.ndarray
    evidence: float  # lead of the best class in the upper tenth of the samples, over the source's cohesion


def fit_known_unknown(scores: np.ndarray, cohesion: float, settings: UsfdaSettings) -> Groups:
    """EM over s_i = max_c S_ic: known ~ N(m_1, v_1), unknown ~ N(m_0, v_0).

    A known sample shows what s would be were its class not there: the second best similarity. Prototypes are centred,
    so that one near P_c lies on average −s/(K−1) from the others; that much is added. m_0 and v_0 come from these of
    the known samples and from s itself of the unknown.
    """
    n, classes = scores.shape
    prior = settings.prior
    best = scores.argmax(1)
    ordered = np.sort(scores, axis=1)
    s = ordered[:, -1]
    second = ordered[:, -2] + s / (classes - 1)
    members = np.bincount(best, minlength=classes)
    m_0 = float(second.mean())
    expected = m_0 + settings.kept * (cohesion - m_0)
    known = expit((s - (m_0 + expected) / 2) / max(0.1 * (expected - m_0), 1e-6))
    for _ in range(80):
        total = known.sum()
        m_0 = float((known @ second + (1 - known) @ s) / n)
        v_0 = float((known @ (second - m_0) ** 2 + (1 - known) @ (s - m_0) ** 2) / n) + 1e-6
        expected = m_0 + settings.kept * (cohesion - m_0)
        m_1 = max(float((known @ s + prior * expected) / (total + prior)), m_0)
        v_1 = float((known @ (s - m_1) ** 2 + prior * ((expected - m_0) / 2) ** 2) / (total + prior))
        v_1 = min(max(v_1, v_0), settings.spread * v_0)
        share = (total + prior) / (n + 2 * prior)
        by_class = (np.bincount(best, known, classes) + settings.class_prior * share) / (members + settings.class_prior)
        # Beyond its mean, a group is as likely as at it: a better similarity never makes a sample less known.
        log_1 = -((np.clip(s, m_0, m_1) - m_1) ** 2) / (2 * v_1) - np.log(v_1) / 2
        log_0 = -((np.maximum(s, m_0) - m_0) ** 2) / (2 * v_0) - np.log(v_0) / 2
        before, known = known, expit(logit(by_class[best]) + log_1 - log_0)
        if np.abs(known - before).max() < 1e-4:
            break
    evidence = float(np.quantile(s - second, 0.9) / max(cohesion, 1e-6))
    # Where nothing is shared the scores still split in two; but then no class leads by much anywhere.
    return Groups(known * expit((evidence - settings.evidence) / 0.02), evidence)


def components(
    v: np.ndarray,
    scores: np.ndarray,
    known: np.ndarray,
    prototypes: np.ndarray,
    settings: UsfdaSettings,
    seed: int,
    images: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Centres C and masses m: the source classes, then clusters of the unknown, about as large as a known class.

    A centre has FEWEST images behind it: a class with fewer keeps the vendor's prototype, a smaller cluster of unknown
    samples joins the nearest other one, or is dropped where there is none. ``images`` numbers the image that each
    sample is of, where some are copies of one.
    """
    n, classes = scores.shape
    images = np.arange(n) if images is None else images
    best, unknown = scores.argmax(1), known < 0.5
    share = np.zeros((n, classes))
    share[np.arange(n), best] = known
    different = len(np.unique(images[unknown]))
    if different >= FEWEST:
        present = np.unique(best[~unknown])
        size = (~unknown).sum() / len(present) if (~unknown).sum() >= n / 4 else n / classes
        clusters = int(np.clip(round(unknown.sum() / size), 1, min(settings.clusters, different // FEWEST)))
        centres = normalise(KMeans(clusters, n_init=2, random_state=seed).fit(v[unknown]).cluster_centers_)
        while True:
            nearest = (v @ centres.T).argmax(1)
            behind = np.asarray([len(np.unique(images[unknown & (nearest == j)])) for j in range(len(centres))])
            if behind.min() >= FEWEST:
                break
            centres = centres[behind >= FEWEST]  # some are left: there are half as many centres as images
        share = np.column_stack([share, (1 - known)[:, None] * (nearest[:, None] == np.arange(len(centres)))])
    mass = share.sum(0)
    centres = normalise(share.T @ v)
    # The number of images behind a weighted mean is (Σw)² / Σw²; nobody else shows where the class lies.
    by_image = np.zeros((n, classes))
    np.add.at(by_image, images, share[:, :classes])
    effective = mass[:classes] ** 2 / np.maximum((by_image**2).sum(0), 1e-12)
    unseen = (mass[:classes] < 1) | (effective < FEWEST)
    centres[:classes][unseen] = prototypes[unseen]
    return centres, mass


def fit_mixture(
    geometry: Geometry,
    z: np.ndarray,
    mean: np.ndarray,
    settings: UsfdaSettings,
    seed: int,
    images: np.ndarray | None = None,
) -> tuple[UsfdaHead, Groups, NeighbourGraph]:
    """The head for a target with the given mean, from z of at most ``most`` of its samples."""
    prototypes = geometry.prototypes
    graph = mutual_neighbours(z, len(prototypes), settings.neighbours)
    v = smooth_over_neighbours(z, graph, settings.rounds)
    scores = class_similarity(v, graph, prototypes)
    groups = fit_known_unknown(scores, float(geometry.cohesion), settings)
    centres, mass = components(v, scores, groups.known, prototypes, settings, seed, images)
    bias = np.log((mass + 0.5) / (mass.mean() + 0.5)).astype(np.float32)
    head = UsfdaHead(geometry, mean, centres.astype(np.float32), bias, np.asarray(settings.scale, np.float32))
    return head, groups, graph

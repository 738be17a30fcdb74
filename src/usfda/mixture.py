"""Method ``usfda``: the target as a mixture of source classes and of clusters that are none of them (docs/usfda.md).

1. Every sample moves towards its mutual neighbours, v; S_ic = v_i·P_c / q_i is its likeness to source class c, where
   q_i evens out that an odd sample is less like anything.
2. s_i, the best likeness, comes from one of two groups. How alike *unknown* samples are to the best of K classes shows
   in how alike known ones are to their second best, so the groups can be told apart without a label.
3. The known, class by class, and the unknown, cluster by cluster, give centres C_j with shares m_j. The model of a new
   sample, and the only thing that is kept: p(j|z) = softmax_j(τ·z·C_j + log m_j).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_matrix
from scipy.special import expit, logit
from sklearn.cluster import KMeans
from sklearn.preprocessing import normalize
from torch import Tensor, nn

from .geometry import Geometry

MOST = 5000  # samples that the groups and centres are fitted to, so that time and memory stay linear
NEIGHBOURS = 10  # of a sample, and at most half of what a class has if there are as many as in the source
ROUNDS = 3  # in which a sample moves towards its neighbours
SCALE = 16.0  # τ
CLUSTERS = 64  # at most
PRIOR = 10.0  # samples that what the vendor saw counts for
KEPT = 0.6  # share of the source's cohesion that a shift is expected to leave
CLASS_PRIOR = 50.0  # samples that the share of known ones over all classes counts for in one class
SPREAD = 1.5  # variance of the known group's scores over that of the unknown, at most
EVIDENCE = 0.3  # lead of the best class, in units of the source's cohesion, below which no class is there at all


class Mixture(nn.Module):
    """p(j|z) over |C_s| source classes and the clusters of unknown samples, for vectors of the target's domain."""

    mean: Tensor
    centres: Tensor
    bias: Tensor

    def __init__(self, geometry: Geometry, components: int):
        super().__init__()
        self.geometry = geometry
        d = geometry.whitener.shape[0]
        self.register_buffer("mean", torch.zeros(d))
        self.register_buffer("centres", torch.zeros(components, d))
        self.register_buffer("bias", torch.zeros(components))

    def own(self) -> dict[str, Tensor]:
        """What it adds to the geometry."""
        return {name: t for name, t in self.state_dict().items() if not name.startswith("geometry.")}

    def forward(self, v: Tensor) -> Tensor:
        return (SCALE * self.geometry.z(v, self.mean) @ self.centres.T + self.bias).softmax(1)


@dataclass(frozen=True)
class Graph:
    """Mutual neighbours: a sparse (n, n) matrix of their cosines, and every sample's mean cosine with its k nearest."""

    weight: csr_matrix
    density: np.ndarray


def neighbours(z: np.ndarray, classes: int) -> Graph:
    n = len(z)
    if n == 1:
        return Graph(csr_matrix((1, 1), dtype=np.float32), np.ones(1, np.float32))
    k = int(np.clip(n // (2 * classes), 1, min(NEIGHBOURS, n - 1)))
    tensor = torch.from_numpy(z)
    cosines, index = [], []
    for start in range(0, n, 1024):
        near = tensor[start : start + 1024] @ tensor.T
        near[torch.arange(len(near)), torch.arange(start, start + len(near))] = -2
        top = near.topk(k, dim=1)
        cosines.append(top.values.numpy())
        index.append(top.indices.numpy())
    cosine = np.concatenate(cosines)
    rows = np.repeat(np.arange(n), k)
    chosen = csr_matrix((cosine.clip(min=0).ravel(), (rows, np.concatenate(index).ravel())), (n, n))
    return Graph(chosen.minimum(chosen.T).tocsr(), cosine.mean(1))


def settle(z: np.ndarray, graph: Graph) -> np.ndarray:
    """v: every sample moved towards its mutual neighbours, at unit length again."""
    v, total = z, 1 + np.asarray(graph.weight.sum(1))
    for _ in range(ROUNDS):
        v = (v + graph.weight @ v) / total
    unit: np.ndarray = normalize(v)
    return unit


def likeness(v: np.ndarray, graph: Graph, prototypes: np.ndarray) -> np.ndarray:
    """S = v·P / q with q = √density over its median: what lies apart from all samples is less like any class, too."""
    q = np.sqrt(graph.density.clip(min=0.02))
    scores: np.ndarray = v @ prototypes.T / (q / np.median(q)).clip(min=0.3)[:, None]
    return scores


@dataclass(frozen=True)
class Groups:
    """The two groups of best likeness; ``known`` is each sample's probability to be of the known one."""

    known: np.ndarray
    evidence: float  # lead of the best class in the upper tenth of the samples, over the source's cohesion


def two_groups(scores: np.ndarray, cohesion: float) -> Groups:
    """EM over s_i = max_c S_ic: known ~ N(m_1, v_1), unknown ~ N(m_0, v_0).

    A known sample shows what s would be were its class not there: the second best likeness. Prototypes are centred, so
    that one near P_c lies on average −s/(K−1) from the others; that much is added. m_0 and v_0 come from these of the
    known samples and from s itself of the unknown.
    """
    n, classes = scores.shape
    best = scores.argmax(1)
    ordered = np.sort(scores, axis=1)
    s = ordered[:, -1]
    second = ordered[:, -2] + s / (classes - 1)
    members = np.bincount(best, minlength=classes)
    m_0 = float(second.mean())
    expected = m_0 + KEPT * (cohesion - m_0)
    known = expit((s - (m_0 + expected) / 2) / max(0.1 * (expected - m_0), 1e-6))
    for _ in range(80):
        total = known.sum()
        m_0 = float((known @ second + (1 - known) @ s) / n)
        v_0 = float((known @ (second - m_0) ** 2 + (1 - known) @ (s - m_0) ** 2) / n) + 1e-6
        expected = m_0 + KEPT * (cohesion - m_0)
        m_1 = max(float((known @ s + PRIOR * expected) / (total + PRIOR)), m_0)
        v_1 = float((known @ (s - m_1) ** 2 + PRIOR * ((expected - m_0) / 2) ** 2) / (total + PRIOR))
        v_1 = min(max(v_1, v_0), SPREAD * v_0)
        share = (total + PRIOR) / (n + 2 * PRIOR)
        by_class = (np.bincount(best, known, classes) + CLASS_PRIOR * share) / (members + CLASS_PRIOR)
        # Beyond its mean, a group is as likely as at it: a better likeness never makes a sample less known.
        log_1 = -((np.clip(s, m_0, m_1) - m_1) ** 2) / (2 * v_1) - np.log(v_1) / 2
        log_0 = -((np.maximum(s, m_0) - m_0) ** 2) / (2 * v_0) - np.log(v_0) / 2
        before, known = known, expit(logit(by_class[best]) + log_1 - log_0)
        if np.abs(known - before).max() < 1e-4:
            break
    evidence = float(np.quantile(s - second, 0.9) / max(cohesion, 1e-6))
    # Where nothing is shared the scores still split in two; but then no class leads by much anywhere.
    return Groups(known * expit((evidence - EVIDENCE) / 0.02), evidence)


def components(
    v: np.ndarray, scores: np.ndarray, known: np.ndarray, prototypes: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Centres C and masses m: the source classes, then clusters of the unknown, about as large as a known class."""
    n, classes = scores.shape
    best, unknown = scores.argmax(1), known < 0.5
    share = np.zeros((n, classes))
    share[np.arange(n), best] = known
    if unknown.any():
        present = np.unique(best[~unknown])
        size = (~unknown).sum() / len(present) if (~unknown).sum() >= n / 4 else n / classes
        clusters = int(np.clip(round(unknown.sum() / size), 1, min(CLUSTERS, unknown.sum())))
        fitted = KMeans(clusters, n_init=2, random_state=seed).fit(v[unknown])
        nearest = (v @ normalize(fitted.cluster_centers_).T).argmax(1)
        share = np.column_stack([share, (1 - known)[:, None] * (nearest[:, None] == np.arange(clusters))])
    mass = share.sum(0)
    centres = normalize(share.T @ v)
    centres[:classes][mass[:classes] < 1] = prototypes[mass[:classes] < 1]  # nobody here shows where the class lies
    return centres, mass


def fit_mixture(geometry: Geometry, z: np.ndarray, mean: Tensor, seed: int) -> tuple[Mixture, Groups, Graph]:
    """The mixture of a target with the given mean, from z of at most MOST of its samples."""
    prototypes = geometry.prototypes.numpy()
    graph = neighbours(z, len(prototypes))
    v = settle(z, graph)
    scores = likeness(v, graph, prototypes)
    groups = two_groups(scores, float(geometry.cohesion))
    centres, mass = components(v, scores, groups.known, prototypes, seed)
    mixture = Mixture(geometry, len(centres))
    mixture.mean = mean
    mixture.centres = torch.from_numpy(centres.astype(np.float32))
    mixture.bias = torch.from_numpy(np.log((mass + 0.5) / (mass.mean() + 0.5))).float()
    return mixture, groups, graph

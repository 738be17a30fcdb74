"""Method ``mixture``: the target as a mixture of source classes and of clusters of unknown samples (docs/mixture.md).

1. Every sample moves towards its mutual neighbours, v; S_ic = v_i·P_c is its similarity to source class c.
2. A splitter tells known samples from unknown ones: the learned decision (``learned.py``), or two components alone.
3. The known, class by class, and the unknown, cluster by cluster, give centres C_j with masses m_j. The model of a new
   sample: p(j|z) ∝ m_j·exp(τ·z·C_j), the head ``mixture``, beside a component for outliers: where
   max_j z·C_j is below f, a fraction of the source's within-class similarity, or of the mean of max_j z·C_j over the
   target if that is less.
4. Small groups of neighbouring samples, by their mean and number, stand for the target when more of it arrives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.cluster import KMeans
from sklearn.random_projection import GaussianRandomProjection

from ..heads import MixtureHead
from ..settings import MixtureSettings
from ..vendor import FEWEST, Vendor, normalise
from .neighbours import NeighbourGraph, mutual_neighbours
from .split import Split, two_components
from .target import TargetView

CORESET = 512  # groups of neighbouring samples that stand for the target, at most: 2.6 MB for vectors of 1,280
CORESET_SIZE = 2  # samples for each group that is looked for: the fewer, the less often two classes share one
SUMMARY_DIMENSIONS = 64  # of a random projection that these groups are found in, for speed


@dataclass(frozen=True)
class WeightedSamples:
    """What the mixture is fitted to: different samples, or small groups of them that were summed up before.

    Parameters
    ----------
    x : array (n, d)
        x̃ of each sample, or its mean over each group.
    weight : array (n,)
        How many samples of the target each stands for.
    behind : array (n,)
        How many images each is the mean of: 1 for a sample.
    """

    x: np.ndarray
    weight: np.ndarray
    behind: np.ndarray

    @classmethod
    def of_samples(cls, x: np.ndarray, total: float) -> WeightedSamples:
        """Samples that stand for ``total`` ones. Of copies of an image one is taken: no mean may be all but theirs."""
        first: dict[bytes, int] = {}
        for i, row in enumerate(x):
            first.setdefault(row.tobytes(), i)
        kept = np.asarray(list(first.values()))
        return cls(x[kept], np.full(len(kept), total / len(kept)), np.ones(len(kept)))

    @classmethod
    def of_coreset(cls, head: MixtureHead) -> WeightedSamples:
        """The groups that a head has kept of its target."""
        counts = head.counts.astype(np.float64)
        return cls(head.coreset, counts, np.maximum(counts, FEWEST))

    def with_more(self, more: WeightedSamples) -> WeightedSamples:
        """These and others."""
        x, weight, behind = (
            np.concatenate([getattr(points, name) for points in (self, more)]) for name in ("x", "weight", "behind")
        )
        return WeightedSamples(x, weight, behind)

    def __getitem__(self, chosen: np.ndarray) -> WeightedSamples:
        return WeightedSamples(self.x[chosen], self.weight[chosen], self.behind[chosen])

    @property
    def mean(self) -> np.ndarray:
        """μ of the target. It tells no more than the coreset does: of the same samples, with the same weights."""
        return np.average(self.x, axis=0, weights=self.weight).astype(np.float32)


def smooth_over_neighbours(z: np.ndarray, graph: NeighbourGraph, rounds: int) -> np.ndarray:
    """v: every sample moved towards its mutual neighbours, at unit length again."""
    return normalise(graph.smooth(z, rounds))


def cluster(v: np.ndarray, points: WeightedSamples, count: int, seed: int, starts: int = 2) -> np.ndarray:
    """The cluster of each row, from 0, with FEWEST images or more behind every one.

    A cluster with fewer is given up and its samples join the nearest other one. There must be FEWEST images in all, and
    at most half as many clusters.
    """
    fitted = KMeans(count, n_init=starts, random_state=seed).fit(v, sample_weight=points.weight)
    centres = fitted.cluster_centers_
    while True:
        nearest: np.ndarray = (v @ normalise(centres).T).argmax(1)
        behind = np.bincount(nearest, points.behind, len(centres))
        if behind.min() >= FEWEST:
            return nearest
        # Where no cluster has enough, the fullest one takes all.
        centres = centres[(behind >= FEWEST) | (np.arange(len(centres)) == behind.argmax())]


def make_coreset(
    z: np.ndarray, points: WeightedSamples, component: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """The mean of x̃ over each of a few groups of neighbours, and the number of samples that the group stands for.

    ``component`` is the class or cluster that each is assigned to: neighbours of one component are more often of one
    kind, above all where a piece of a stream has one image of most classes. What is a group already stays one, unless
    there are too many; the only image of its component joins an earlier group of it.
    """
    if z.shape[1] > SUMMARY_DIMENSIONS:
        z = normalise(GaussianRandomProjection(SUMMARY_DIMENSIONS, random_state=seed).fit_transform(z))
    single = points.behind < FEWEST
    members = np.cumsum(~single) - 1
    groups, alone, left = int((~single).sum()), int(single.sum()), []
    for c in np.unique(component[single]).tolist():
        own, earlier = (np.flatnonzero(kind & (component == c)) for kind in (single, ~single))
        if len(own) >= FEWEST:
            count = max(1, min(len(own) // CORESET_SIZE, CORESET * len(own) // alone))
            members[own] = groups + cluster(z[own], points[own], count, seed, starts=1)
            groups = int(members[own].max()) + 1
        elif len(earlier):
            members[own] = members[earlier[(z[own] @ z[earlier].T).argmax(1)]]
        else:
            left += own.tolist()
    if len(left) >= FEWEST:
        members[left] = groups + cluster(z[left], points[np.asarray(left)], len(left) // CORESET_SIZE, seed, starts=1)
    elif left:  # it joins the group that it is nearest to
        others = np.setdiff1d(np.arange(len(z)), left)
        members[left] = members[others[(z[left] @ z[others].T).argmax(1)]]
    if members.max() >= CORESET:
        members = cluster(z, points, CORESET, seed, starts=1)
    counts = np.bincount(members, points.weight)
    share = csr_matrix((points.weight, (members, np.arange(len(members)))))
    return (share @ points.x / counts[:, None]).astype(np.float32), counts.astype(np.float32)


def repeated(x: np.ndarray, coreset: np.ndarray) -> int:
    """How many of the samples x̃ are certainly in a coreset: a group g of two, a and b, has 2g − a = b."""
    unit = normalise(x)
    one = (normalise(coreset) @ unit.T).argmax(1)
    other = 2 * coreset - x[one]
    two = (normalise(other) @ unit.T).argmax(1)
    same = np.linalg.norm(x[two] - other, axis=1) < 1e-3 * np.linalg.norm(other, axis=1)
    return len({*one[same].tolist(), *two[same].tolist()})


def components(
    v: np.ndarray,
    best: np.ndarray,
    known: np.ndarray,
    means: np.ndarray,
    points: WeightedSamples,
    settings: MixtureSettings,
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Centres C and masses m: the classes, then clusters of the unknown, about as large as a known class.

    ``best`` is the best class of each sample, ``known`` whether it is classified as that class. A centre has at least
    FEWEST images behind it: a class with fewer keeps its source mean; fewer unknown images form no cluster.
    """
    classes, weight = len(means), points.weight
    member = np.where(known, best, -1)
    unknown = points[~known]
    if (images := unknown.behind.sum()) >= FEWEST:
        size = weight.sum() / classes
        if weight[known].sum() >= weight.sum() / 4:
            size = weight[known].sum() / len(np.unique(best[known]))
        most = min(settings.clusters, int(images // FEWEST), int((~known).sum()))
        count = int(np.clip(round(unknown.weight.sum() / size), 1, most))
        member[~known] = classes + cluster(v[~known], unknown, count, seed)
    inside = member >= 0
    n = max(classes, int(member.max()) + 1)
    mass = np.bincount(member[inside], weight[inside], n)
    share = csr_matrix((weight[inside], (member[inside], np.flatnonzero(inside))), (n, len(v)))
    centres = normalise(share @ v)
    behind = np.bincount(member[inside], points.behind[inside], n)
    unseen = behind[:classes] < FEWEST
    centres[:classes][unseen] = means[unseen]
    return centres, mass


@dataclass(frozen=True)
class Before:
    """What an update goes on from.

    Parameters
    ----------
    head : MixtureHead
        Of the model as it was.
    taught : sequence of int
        The classes that the client has added, or added to.
    """

    head: MixtureHead
    taught: Sequence[int]

    @property
    def means(self) -> np.ndarray:
        """The vendor's and those of taught classes; where the client added to a class, its centre as it was then."""
        own = np.concatenate([self.head.class_statistics.means, self.head.taught_means])
        joined = [c for c in self.taught if c < len(self.head.class_statistics.means)]
        own[joined] = self.head.centres[joined]
        return own

    def taken(self, x: np.ndarray) -> np.ndarray:
        """The class that the model labelled each x̃ with; −1 where it was unknown."""
        p = self.head.components_of(self.head.class_statistics.project(x, self.head.mean))
        classes = p[:, : self.head.classes]
        found: np.ndarray = np.where(classes.max(1) >= p[:, self.head.classes :].sum(1), classes.argmax(1), -1)
        return found


Kind = TypeVar("Kind", bound=Split, covariant=True)


def shrinkage(length: np.ndarray, single: np.ndarray) -> np.ndarray:
    """The length that each whitened row is given: 1 for a sample, and for a mean of several what theirs would have.

    A mean lies nearer to the target's own mean than its samples do. Divided by the length of a typical sample, its
    similarity to anything is the mean of theirs.
    """
    typical = max(float(np.median(length[single])), 1e-12)
    found: np.ndarray = np.where(single, 1, np.clip(length / typical, 1e-3, 1)).astype(np.float32)
    return found


class Splitter(Protocol[Kind]):
    """Tells known samples from unknown ones."""

    def __call__(self, view: TargetView) -> Kind:
        """The split of a target."""


@dataclass(frozen=True)
class Fitted(Generic[Kind]):
    """What ``fit_mixture`` found: the head, and how the target was split."""

    head: MixtureHead
    split: Kind


def view_of(vendor: Vendor, points: WeightedSamples, classes: int, settings: MixtureSettings, seed: int) -> TargetView:
    """The target as a splitter sees it; the number of classes, taught ones among them, bounds that of neighbours."""
    class_statistics, mean = vendor.class_statistics, points.mean
    assert class_statistics is not None
    away = class_statistics.away(points.x, mean)
    single = points.behind < FEWEST
    shrink = np.ones(len(away), np.float32)
    if single.any() and not single.all():
        shrink = shrinkage(np.linalg.norm(away, axis=1), single)
    z = normalise(away) * shrink[:, None]
    graph = mutual_neighbours(z, classes, settings.neighbours)
    v = smooth_over_neighbours(z, graph, settings.rounds)
    return TargetView(vendor, class_statistics.means, points.x, points.weight, mean, away, shrink, z, v, graph, seed)


def fit_mixture(
    vendor: Vendor,
    points: WeightedSamples,
    settings: MixtureSettings,
    splitter: Splitter[Kind],
    seed: int,
    before: Before | None = None,
) -> Fitted[Kind]:
    """The head for a target; with ``before``, some of the points are groups that stand for earlier ones.

    A taught class is found by its centre, which target samples are more similar to than to any class mean of the
    vendor's. Split together, the vendor's classes would fall to the unknown. So who is of a vendor's class is decided
    as if nothing had been taught. Before that, a sample keeps the class that the earlier model gave it where the
    two-component rule calls it known among all classes.
    """
    class_statistics = vendor.class_statistics
    assert class_statistics is not None
    means = class_statistics.means if before is None else before.means
    view = view_of(vendor, points, len(means), settings, seed)
    split = splitter(view)
    best, known = split.best, split.log_odds >= 0
    if before is not None and len(before.taught):
        taken = before.taken(points.x)
        still = (taken >= 0) & (two_components(replace(view, means=means)).log_odds >= 0)
        best, known = np.where(still, taken, best), known | still
    centres, mass = components(view.v, best, known, means, points, settings, seed)
    bias = np.log((mass + 0.5) / (mass.mean() + 0.5)).astype(np.float32)
    scale = np.asarray(settings.scale, np.float32)
    z, single = normalise(view.away), points.behind < FEWEST
    cosine = z @ centres.T
    # A mean of several samples is more similar to anything.
    likeness = min(
        float(class_statistics.within_class_similarity),
        float(np.average(cosine[single].max(1), weights=points.weight[single])),
    )
    outlier = np.asarray(settings.outlier * max(likeness, 0), np.float32)
    coreset, counts = make_coreset(z, points, (scale * cosine + bias).argmax(1), seed)
    taught = means[len(class_statistics.means) :]
    head = MixtureHead(
        class_statistics, view.mean, centres.astype(np.float32), bias, scale, coreset, counts, taught, outlier
    )
    return Fitted(head, split)

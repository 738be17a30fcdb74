"""A head decides: vectors in, probabilities of the source classes and of *unknown* out.

A model has one head, and nothing asks which. A vendor hands over ``source-network`` or ``class-means``; adaptation
makes ``mixture`` or ``usfda``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ..errors import InputError
from .vendor import ClassStatistics, Shape, SourceNetworks, Tensors, Vendor, f_layout, run_f, size_in, softmax

SCALE = 16.0  # τ of the softmax over class means, as in the mixture
MAX_CLUSTERS = 10_000  # of unknown samples in a model file
TINY = 1e-30  # instead of a probability of 0 as a divisor


class Head(ABC):
    """What every head offers."""

    name: ClassVar[str]  # as in the card
    needs: ClassVar[str]  # the part of the vendor that it is built on, a field of Vendor
    part: ClassVar[str]  # prefix of its own tensors in the model file
    updatable: ClassVar[bool] = False  # whether it keeps a coreset, for updates and teaching

    @abstractmethod
    def probability(self, v: np.ndarray) -> np.ndarray:
        """(n, classes + 1): the source classes, those that it was taught, and, last, unknown; rows sum to 1."""

    @abstractmethod
    def latent(self, v: np.ndarray) -> np.ndarray:
        """The vectors by which samples are compared."""

    @property
    def taught(self) -> int:
        """How many classes it knows beyond those of the source; they follow them."""
        return 0

    def answer(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """The probabilities, and the cluster, from 1, that each sample is of if it is unknown.

        None instead of the clusters where the head finds none; 0 where it could find some and there are none.
        """
        return self.probability(v), None

    def of_cluster(self, v: np.ndarray, cluster: int) -> np.ndarray:
        """The probability of a cluster, by the number that ``answer`` gives."""
        raise NotImplementedError(f"head {self.name} has no clusters")

    def tensors(self) -> dict[str, np.ndarray]:
        """Its own part of the model file."""
        return {}

    @classmethod
    def layout(cls, shapes: Mapping[str, Shape], classes: int, d: int) -> dict[str, Shape]:
        """The shapes of its own tensors in a model file, from the sizes of those that are there."""
        return {}

    @classmethod
    @abstractmethod
    def build(cls, vendor: Vendor, tensors: Tensors) -> Head:
        """The head of a model file, from its own tensors."""


def usfda_probability(networks: SourceNetworks, u: np.ndarray) -> np.ndarray:
    """Of the softmax ẑ over K classes: the source classes and the most probable negative class, brought to sum 1.

    The most probable column is then the paper's own prediction: the argmax over K, where any negative class is unknown.
    """
    k = networks.classes
    both = networks.of_blocks(lambda z: np.column_stack([z[:, :k], z[:, k:].max(1)]), u)
    p: np.ndarray = both / both.sum(1, keepdims=True)
    return p


class SourceNetworkHead(Head):
    """The vendor's networks, as they were procured: ŷ = softmax(D∘F_s(v))."""

    name = part = "source-network"
    needs = "networks"

    def __init__(self, networks: SourceNetworks):
        self.networks = networks

    def probability(self, v: np.ndarray) -> np.ndarray:
        """Of the paper's prediction, ``usfda_probability``."""
        return usfda_probability(self.networks, self.latent(v))

    def latent(self, v: np.ndarray) -> np.ndarray:
        """u = F_s(v)."""
        return run_f(self.networks.F_s, v)

    @classmethod
    def build(cls, vendor: Vendor, tensors: Tensors) -> SourceNetworkHead:
        """Of the vendor's networks."""
        assert vendor.networks is not None
        return cls(vendor.networks)


class ClassMeansHead(Head):
    """The nearest class mean; a sample that is farther from it than 95 % of the source samples is unknown.

    softmax over τ·z·P_c and, for unknown, τ·q with the similarity quantile q, z centred on the source's mean. A model
    that was procured for method ``mixture`` alone starts from it.
    """

    name = part = "class-means"
    needs = "class_statistics"

    def __init__(self, class_statistics: ClassStatistics):
        self.class_statistics = class_statistics

    def probability(self, v: np.ndarray) -> np.ndarray:
        """softmax over τ·z·P_c and τ·q."""
        return self.of_similarity(self.latent(v) @ self.class_statistics.means.T)

    def of_similarity(self, similarity: np.ndarray) -> np.ndarray:
        """The same of z·P."""
        quantile = np.full(len(similarity), self.class_statistics.similarity_quantile, np.float32)
        return softmax(SCALE * np.column_stack([similarity, quantile]))

    def latent(self, v: np.ndarray) -> np.ndarray:
        """z, centred on the source's mean."""
        return self.class_statistics.whiten(v, self.class_statistics.overall_mean)

    @classmethod
    def build(cls, vendor: Vendor, tensors: Tensors) -> ClassMeansHead:
        """Of the vendor's class_statistics."""
        assert vendor.class_statistics is not None
        return cls(vendor.class_statistics)


class UsfdaHead(Head):
    """Method ``usfda``: F_t instead of F_s, ẑ = softmax(D∘F_t(v))."""

    name = "usfda"
    needs = "networks"
    part = "F_t"

    def __init__(self, networks: SourceNetworks, f_t: Tensors):
        self.networks, self.f_t = networks, f_t

    def probability(self, v: np.ndarray) -> np.ndarray:
        """Of the paper's prediction, ``usfda_probability``."""
        return usfda_probability(self.networks, self.latent(v))

    def latent(self, v: np.ndarray) -> np.ndarray:
        """u = F_t(v)."""
        return run_f(self.f_t, v)

    def tensors(self) -> dict[str, np.ndarray]:
        """F_t."""
        return dict(self.f_t)

    @classmethod
    def layout(cls, shapes: Mapping[str, Shape], classes: int, d: int) -> dict[str, Shape]:
        """Those of an F."""
        return f_layout(d)

    @classmethod
    def build(cls, vendor: Vendor, tensors: Tensors) -> UsfdaHead:
        """Of the vendor's networks and F_t."""
        assert vendor.networks is not None
        return cls(vendor.networks, tensors)


@dataclass(frozen=True, eq=False)
class MixtureHead(Head):
    """Method ``mixture``: a mixture of the source classes, of taught classes, and of clusters of unknown samples.

    p(j|z) = (1 − q)·softmax_j(τ·z·C_j + log m_j) with centres C_j and masses m_j, z centred on the target's mean. The
    outlier component, q = σ(τ·(f − max_j z·C_j)), has samples that are similar to none of them. The probability of
    unknown is the sum over the clusters and q; a cluster that a review merged with a class counts as that class. The
    head decides by these alone. The coreset of the target (means of x̃ over small groups of neighbouring samples, and
    the number of samples in each) is kept for updates, which find taught classes by their means, and for teaching.
    """

    name = "mixture"
    needs = "class_statistics"
    part = "mixture"
    updatable = True

    class_statistics: ClassStatistics
    mean: np.ndarray  # of the target
    centres: np.ndarray  # C, of the classes and then of the clusters
    bias: np.ndarray  # log m
    scale: np.ndarray  # τ
    coreset: np.ndarray
    counts: np.ndarray
    taught_means: np.ndarray  # means of the taught classes
    outlier: np.ndarray  # f; 0 in older files, which have no outlier component
    assigned: np.ndarray | None = None  # of each cluster: the class that it is merged with, or −1

    @property
    def taught(self) -> int:
        """How many classes were taught."""
        return len(self.taught_means)

    @property
    def classes(self) -> int:
        """Of the source and taught: so many components come before those of the clusters."""
        return len(self.class_statistics.means) + self.taught

    def reordered(self, order: np.ndarray) -> MixtureHead:
        """The same head with its clusters in another order: ``order`` has their positions, from 0."""
        rows = np.concatenate([np.arange(self.classes), self.classes + order])
        assigned = None if self.assigned is None else self.assigned[order]
        return replace(self, centres=self.centres[rows], bias=self.bias[rows], assigned=assigned)

    @property
    def merged(self) -> dict[int, int]:
        """Clusters, from 1, that are merged with a class, and that class."""
        found = [] if self.assigned is None else self.assigned.astype(int).tolist()
        return {cluster: name for cluster, name in enumerate(found, 1) if name >= 0}

    def components_of(self, z: np.ndarray) -> np.ndarray:
        """p(j|z) over the classes and the clusters and, last, outliers."""
        cosine = z @ self.centres.T
        p = softmax(self.scale * cosine + self.bias)
        if self.outlier == 0:
            return np.column_stack([p, np.zeros_like(p[:, 0])])
        alike = softmax(self.scale * np.column_stack([cosine.max(1), np.full(len(z), self.outlier, np.float32)]))
        return np.column_stack([p * alike[:, :1], alike[:, 1]])

    def components(self, v: np.ndarray) -> np.ndarray:
        """The same of vectors."""
        return self.components_of(self.class_statistics.whiten(v, self.mean))

    def probability(self, v: np.ndarray) -> np.ndarray:
        """The classes, and the sum over all else."""
        return self.answer(v)[0]

    def answer(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """The probabilities and the most probable cluster, 0 for outliers, computed from the components once."""
        p, classes = self.components(v), self.classes
        unknown = np.roll(p[:, classes:], 1, axis=1)  # outliers first, so that they are cluster 0
        for cluster, name in self.merged.items():
            p[:, name] += unknown[:, cluster]
            unknown[:, cluster] = 0
        return np.column_stack([p[:, :classes], unknown.sum(1)]), unknown.argmax(1)

    def of_cluster(self, v: np.ndarray, cluster: int) -> np.ndarray:
        """Of the mixture's components."""
        return self.components(v)[:, self.classes + cluster - 1]

    def latent(self, v: np.ndarray) -> np.ndarray:
        """√p over the components."""
        root: np.ndarray = np.sqrt(self.components(v))
        return root

    def tensors(self) -> dict[str, np.ndarray]:
        """Mean of the target, centres, log masses, τ and f; the coreset of the target."""
        return {
            "mean": self.mean, "centres": self.centres, "bias": self.bias, "scale": self.scale,
            "coreset": self.coreset, "counts": self.counts, "taught_means": self.taught_means,
            "outlier": self.outlier, **({} if self.assigned is None else {"assigned": self.assigned}),
        }  # fmt: skip

    @classmethod
    def layout(cls, shapes: Mapping[str, Shape], classes: int, d: int) -> dict[str, Shape]:
        """One centre for each class and cluster, one mean for each group of the coreset, one for each taught class."""
        k, groups = size_in(shapes, "bias", 0), size_in(shapes, "counts", 0)
        taught = next(iter(shapes.get("taught_means", ())), 0)  # there may be none
        if groups > MAX_CLUSTERS:
            raise InputError(f"its mixture has a coreset of {groups} groups")
        if not classes + taught <= k <= classes + taught + MAX_CLUSTERS:
            raise InputError(f"its mixture has {k} components for {classes} classes and {taught} taught ones")
        fitted: dict[str, Shape] = {"mean": (d,), "centres": (k, d), "bias": (k,), "scale": (), "outlier": ()}
        if "assigned" in shapes:
            fitted["assigned"] = (k - classes - taught,)
        return fitted | {"coreset": (groups, d), "counts": (groups,), "taught_means": (taught, d)}

    @classmethod
    def build(cls, vendor: Vendor, tensors: Tensors) -> MixtureHead:
        """Of the vendor's class statistics and the mixture."""
        assert vendor.class_statistics is not None
        return cls(vendor.class_statistics, **tensors)


@dataclass(frozen=True, eq=False)
class FirstMixtureHead(Head):
    """Method ``mixture`` as release 0.1 decided, for the files that it adapted.

    A sample is unknown where all classes together are less probable than the strictness. The probability of unknown is
    brought to where the score, p_best / (p_best + p_unknown), is that sum. The head has no coreset of its target
    and cannot be updated or taught.
    """

    name = "mixture-0.1"
    needs = "class_statistics"
    part = "mixture"

    class_statistics: ClassStatistics
    mean: np.ndarray
    centres: np.ndarray
    bias: np.ndarray

    def components(self, v: np.ndarray) -> np.ndarray:
        """p(j|z) over the classes and the clusters."""
        return softmax(SCALE * self.class_statistics.whiten(v, self.mean) @ self.centres.T + self.bias)

    def probability(self, v: np.ndarray) -> np.ndarray:
        """The classes, and unknown."""
        return self.answer(v)[0]

    def answer(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """The probabilities and the most probable cluster."""
        p, classes = self.components(v), len(self.class_statistics.means)
        known, clusters = p[:, :classes], p[:, classes:]
        total = known.sum(1).clip(0, 1)
        unknown = known.max(1) * (1 - total) / np.maximum(total, TINY)
        both = np.column_stack([known, np.where(total > 0, unknown, 1)])
        cluster = 1 + clusters.argmax(1) if clusters.shape[1] else np.zeros(len(v), np.int64)
        return both / both.sum(1, keepdims=True), cluster

    def of_cluster(self, v: np.ndarray, cluster: int) -> np.ndarray:
        """Of the mixture's components."""
        return self.components(v)[:, len(self.class_statistics.means) + cluster - 1]

    def latent(self, v: np.ndarray) -> np.ndarray:
        """√p over the components."""
        root: np.ndarray = np.sqrt(self.components(v))
        return root

    def tensors(self) -> dict[str, np.ndarray]:
        """Mean of the target, centres and log masses."""
        return {"mean": self.mean, "centres": self.centres, "bias": self.bias}

    @classmethod
    def layout(cls, shapes: Mapping[str, Shape], classes: int, d: int) -> dict[str, Shape]:
        """One centre for each class and cluster."""
        k = size_in(shapes, "bias", 0)
        if not classes <= k <= classes + MAX_CLUSTERS:
            raise InputError(f"its mixture has {k} components for {classes} classes")
        return {"mean": (d,), "centres": (k, d), "bias": (k,)}

    @classmethod
    def build(cls, vendor: Vendor, tensors: Tensors) -> FirstMixtureHead:
        """Of the vendor's class statistics and the mixture."""
        assert vendor.class_statistics is not None
        return cls(vendor.class_statistics, **tensors)


HEADS: dict[str, type[Head]] = {
    head.name: head for head in (SourceNetworkHead, ClassMeansHead, UsfdaHead, MixtureHead, FirstMixtureHead)
}


def updatable_head(head: Head) -> MixtureHead | None:
    """The head, if it can be updated and taught."""
    return head if isinstance(head, MixtureHead) else None


def starting_head(vendor: Vendor) -> Head:
    """The head that a client starts from: that of the networks, or of the class means where there are none."""
    head = SourceNetworkHead if vendor.networks is not None else ClassMeansHead
    return head.build(vendor, {})

"""The settings of the methods, and what the vendor's networks are trained on: importable without torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from ..data.samples import Matrix
from ..errors import InputError
from .vendor import FEWEST, members_of

Negatives = Literal["composite", "latent", "prior"]
Rescaling = Literal["target", "batch", "rank"]

CLASSES = 250  # up to which the paper's batch and learning rate serve
FEW = 16  # samples; with fewer, method usfda neither rescales w nor fits BatchNorm, and adapt warns


@dataclass(frozen=True)
class MixtureSettings:
    """Defaults of method ``mixture`` (docs/mixture.md)."""

    most: int = 5000  # samples that the decision and the centres are fitted to, so that time and memory stay linear
    neighbours: int = 10  # of a sample, and at most half of a class's share of the target
    rounds: int = 3  # of smoothing a sample over its neighbours
    scale: float = 16.0  # τ: as peaked as the source classes are in the source
    clusters: int = 64  # of unknown samples, at most
    outlier: float = (
        0.4  # of the usual cosine of a sample with its centre: a sample below it for all centres is an outlier
    )
    weights: str = "all"  # of the learned decision: families it was trained on, a file of mixture/weights or a path

    def __post_init__(self) -> None:
        if self.most < FEWEST or self.neighbours < 1 or self.clusters < 1 or self.rounds < 0:
            raise InputError("most starts at 2, neighbours and clusters at 1, rounds at 0")
        if not 0 < self.scale < math.inf:
            raise InputError("scale must be positive")
        if not 0 <= self.outlier <= 1:
            raise InputError("outlier is from 0 to 1")


@dataclass(frozen=True)
class ProcurementSettings:
    """Defaults of the vendor's stage; docs/usfda.md says how they were chosen."""

    iterations: int = 0  # turns of all losses together; 0: rounds until held-out source accuracy rises no more
    update_every: int = 100  # iterations of a round, after which the class priors are updated: F_s separates by then
    max_epochs: int = 200  # passes over the source, of all losses together, after which no further round begins
    batch: int = 64  # positives per step, as in the ports of the authors' code; more beyond 250 classes
    negative_batch: int = 64  # negatives per step, likewise
    lr: float = 1e-4  # of Adam, as in the paper; more beyond 250 classes
    alpha: float = 0.2  # weight of the negatives in L_CE, as in the paper
    composites: int = 4000  # negatives made of source images, in all: twice as many change no more than a seed does
    images_per_composite: int = 2  # as in the paper
    max_negative_classes: int = 600  # of all sets of classes, so many are used; the paper's number for ImageNet
    balanced: bool = False  # whether every class is as probable in a batch of positives, however many samples it has
    training_priors: bool = False  # whether BatchNorm is in training mode where the class priors are fitted
    holdout: float = 0.1  # share of every class that is kept from training, to measure source accuracy

    def __post_init__(self) -> None:
        names = ("update_every", "max_epochs", "negative_batch", "composites", "max_negative_classes")
        if min(getattr(self, name) for name in names) < 1:
            raise InputError(f"{', '.join(names)} start at 1")
        if self.iterations < 0:
            raise InputError("iterations is a number of them, or 0 for as many as the source needs")
        if self.images_per_composite < 2 or self.batch < 2:
            raise InputError("a composite has two images or more, a batch two positives or more")
        if not (0 <= self.holdout < 1 and 0 < self.lr < math.inf and 0 <= self.alpha < math.inf):
            raise InputError("holdout must be in [0, 1), lr positive and alpha not negative")

    def scaled(self, classes: int) -> ProcurementSettings:
        """With batches and learning rate for that many classes: both × classes / 250 beyond 250.

        64 positives out of 1,000 classes hardly ever hold two of a class, and at 1e-4 the logits of 1,000 classes take
        thousands of iterations to part. Larger batches bear a learning rate that is larger in proportion.
        """
        times = max(1.0, classes / CLASSES)
        batch, negative_batch = round(times * self.batch), round(times * self.negative_batch)
        return replace(self, batch=batch, negative_batch=negative_batch, lr=times * self.lr)


@dataclass(frozen=True)
class UsfdaSettings:
    """Defaults of method ``usfda``; docs/usfda.md says how they were chosen."""

    steps: int = 200  # the last one counts; any number from 100 to 400 gives the same mean on Office-31
    batch: int = 64  # as in the ports of the authors' code
    lr: float = 1e-4  # of Adam, as in the paper
    beta: float = 0.1  # weight of the entropies L_d2, as in the paper
    rescale: Rescaling = (
        "target"  # of w and w' to [0, 1]: over the target set, over the batch, or ranks in the target set
    )
    settled: float = 0.0  # over when so few samples changed side in 20 steps (a share); 0: not before the last step

    def __post_init__(self) -> None:
        if self.rescale not in get_args(Rescaling):
            raise InputError(f"rescale is one of {', '.join(get_args(Rescaling))}, not {self.rescale!r}")
        if not 0 <= self.settled < 1:
            raise InputError("settled is a share of the samples, from 0 to below 1")
        if self.steps < 0 or self.batch < 2 or not (0 < self.lr < math.inf and 0 <= self.beta < math.inf):
            raise InputError("steps and beta must not be negative, batch at least 2 and lr positive")


@dataclass(frozen=True)
class TrainingSet:
    """What the vendor's networks learn from: vectors of the source and, where they are made of images, of negatives."""

    X: Matrix
    y: np.ndarray  # positions of the classes, 0 … classes−1
    classes: int
    train: np.ndarray  # indices of the samples to learn from; the others are held out
    kind: Negatives
    negative_classes: int
    X_n: Matrix | None = None
    y_n: np.ndarray | None = None


def hold_out(y: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Indices to train on and to hold out: evenly spaced in every class, the same for every seed."""
    if share == 0:
        return np.arange(len(y)), np.empty(0, np.int64)
    held_out = []
    for members in members_of(y):
        n = min(max(1, round(share * len(members))), len(members) - 1)  # one at least to learn from
        held_out.append(members[((np.arange(n) + 0.5) * len(members) / n).astype(int)])
    out = np.sort(np.concatenate(held_out))
    return np.setdiff1d(np.arange(len(y)), out), out

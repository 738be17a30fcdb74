"""What every system offers: ``learn`` where the labels are, ``adapt`` where the unlabelled samples are, ``decide``.

A system of one's own is a class with these three; docs/baselines.md has an example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..backbones import Backbone
from ..data import Samples


@dataclass(frozen=True)
class Source:
    """The labelled side: vectors, labels, and what they were made of."""

    X: Any  # (n, d) float32, read by index: X[index]
    y: np.ndarray  # positions in ``classes``
    classes: list[str]
    samples: Samples | None = None  # images where there are any; None: X alone
    backbone: Backbone | None = None  # M, with images


@dataclass(frozen=True)
class Outcome:
    """For n samples: the best source class, whether it is one at all, and a score from 0 (unknown) to 1 (known)."""

    best: np.ndarray
    known: np.ndarray
    score: np.ndarray


class System(ABC):
    """A system of universal domain adaptation on frozen vectors; the same seed gives the same decisions."""

    source_free: ClassVar[bool]  # adapts without a source sample
    rejects: ClassVar[str]  # how it decides what is unknown

    def __init__(self, seed: int = 0):
        self.seed = seed

    def learn(self, source: Source) -> None:  # noqa: B027  a system that trains on both sides at once has no such stage
        """At the vendor, before any target is known. A source-free system keeps no sample of it."""

    @abstractmethod
    def adapt(self, X: Any, source: Source | None) -> None:
        """At the client, on unlabelled vectors; ``source`` is None for a source-free system."""

    @abstractmethod
    def decide(self, X: Any) -> Outcome:
        """For vectors of the target's domain."""

    @property
    def parameters(self) -> int:
        """Learnable parameters in ``adapt``."""
        return 0

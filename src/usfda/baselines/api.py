"""What every system offers: ``learn`` where the labels are, ``adapt`` where the unlabelled samples are, ``decide``.

A system of one's own is a class with these three; docs/baselines.md has an example.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ..backbones import Backbone
from ..data import Samples

CORE = (
    "backbones", "checks", "data", "deployment", "features", "geometry", "metrics", "mixture", "model", "negatives",
    "networks", "priors", "procurement",
)  # fmt: skip


@cache
def core_code() -> str:
    """Of the files that turn images into figures: when one changes, what was procured or measured before is another."""
    folder = Path(__file__).parents[1]
    return hashlib.sha256(b"".join((folder / f"{name}.py").read_bytes() for name in CORE)).hexdigest()[:16]


@dataclass(frozen=True)
class Source:
    """The labelled side: vectors, labels, and what they were made of."""

    X: Any  # (n, d) float32, read by index: X[index]
    y: np.ndarray  # positions in ``classes``
    classes: list[str]
    samples: Samples | None = None  # images where there are any; None: X alone
    backbone: Backbone | None = None  # M, with images
    fingerprint: str | None = None  # of all of it: what was learnt from the same source can be used again
    negative_classes: int | None = None  # that a protocol asks for, where it does


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
    learnt_in: float | None = None  # seconds of ``learn``, where it used what had been learnt before

    def __init__(self, seed: int = 0):
        self.seed = seed

    def prepare(self, source: Source) -> None:  # noqa: B027  most have nothing of the kind
        """What runs of all seeds have in common and keep in the store; done once, with all threads, before any."""

    def learn(self, source: Source) -> None:  # noqa: B027  a system that trains on both sides at once has no such stage
        """At the vendor, before any target is known. A source-free system keeps no sample of it."""

    @abstractmethod
    def adapt(self, X: Any, source: Source | None) -> None:
        """At the client, on unlabelled vectors; ``source`` is None for a source-free system."""

    @abstractmethod
    def decide(self, X: Any) -> Outcome:
        """For vectors of the target's domain."""

    def latent(self, X: Any) -> np.ndarray:
        """The vectors that samples are compared by; X itself where the system learns none."""
        return np.asarray(X)

    @property
    def parameters(self) -> int:
        """Learnable parameters in ``adapt``."""
        return 0

    @property
    def settings(self) -> dict[str, Any]:
        """All that the run depends on but its data, seed and code; plain numbers and texts."""
        return {}

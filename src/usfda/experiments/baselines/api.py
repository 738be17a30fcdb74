"""What every baseline offers: ``learn`` where the labels are, ``adapt`` where the unlabelled samples are, ``decide``.

A baseline of your own is derived from ``Baseline``; docs/baselines.md has an example.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...backbones.backbone import Backbone
from ...card import Check
from ...config import Config
from ...data.samples import Features, LabelledFeatures, Matrix
from ...methods.decision import Decision
from ...stages.common import settings_from
from ..tasks import Task

__all__ = ["Baseline", "Decision", "Features", "LabelledFeatures", "Matrix", "NoSettings"]


@dataclass(frozen=True)
class NoSettings:
    """Of a baseline that has nothing to set."""


class Baseline(ABC):
    """A baseline of universal domain adaptation on frozen vectors; the same seed gives the same decisions.

    Parameters
    ----------
    seed : int
        Of everything random.
    config : Config, optional
        How to run.
    backbone : Backbone, optional
        M, where the vectors are those of images.
    **settings
        Fields of the baseline's ``Settings`` that are not the default.

    Attributes
    ----------
    version : int
        Raise it when the same data, settings and seed would give other decisions: finished runs are then repeated.
    source_free : bool
        Whether it adapts without any source sample.
    rejects : str
        How it decides what is unknown, in words.
    Settings : type
        A frozen data class of what can be set.
    """

    version: ClassVar[int] = 1
    source_free: ClassVar[bool]
    rejects: ClassVar[str]
    Settings: ClassVar[type] = NoSettings
    settings: Any

    def __init__(self, seed: int = 0, config: Config | None = None, backbone: Backbone | None = None, **settings: Any):
        self.seed, self.config, self.backbone = seed, config or Config(), backbone
        self.settings = settings_from(self.Settings, settings)

    @classmethod
    def settings_for(cls, task: Task) -> dict[str, Any]:
        """The settings that a task asks for; most baselines have none of those."""
        return {}

    def prepare(self, source: LabelledFeatures) -> None:  # noqa: B027  (most have nothing of the kind)
        """Compute what runs of all seeds share and keep in the cache: once, with all threads, before any run."""

    def learn(self, source: LabelledFeatures) -> None:  # noqa: B027  (a baseline that trains on both sides has no such stage)
        """The vendor's stage, before any target is known. A source-free baseline keeps no source sample.

        Parameters
        ----------
        source : LabelledFeatures
            ``X`` (n, d), ``y`` (positions in ``classes``), ``classes``; of images also ``paths`` and ``keys``.
        """

    @abstractmethod
    def adapt(self, X: Matrix, source: LabelledFeatures | None) -> None:
        """The client's stage, on unlabelled vectors (n, d); ``source`` is None for a source-free baseline."""

    @abstractmethod
    def decide(self, X: Matrix) -> Decision:
        """Decide for vectors of the target's domain; ``best``, ``known`` and ``score`` are needed."""

    def latent(self, X: Matrix) -> np.ndarray:
        """The vectors by which samples are compared; X itself where the baseline learns none."""
        return np.asarray(X)

    def check(self) -> Check | None:
        """What the baseline knows about its adaptation without labels, for the record."""
        return None

    @property
    def parameters(self) -> int:
        """The number of learnable parameters in ``adapt``."""
        return 0

    @property
    def weights(self) -> str | None:
        """The version of the weights that it comes with, where it comes with some."""
        return None

    @property
    def learning_seconds(self) -> float | None:
        """Seconds of ``learn``, where it used what had been learnt before; None: as measured."""
        return None

    def all_settings(self) -> dict[str, Any]:
        """All settings of the run, for its record."""
        return dataclasses.asdict(self.settings)

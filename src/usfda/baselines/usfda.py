from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ..backbones import DEFAULT
from ..data import Samples
from ..deployment import adapt
from ..model import Model
from ..procurement import Negatives, procure
from .api import Outcome, Source, System


class Usfda(System):
    """This project's own method, the default of ``usfda adapt`` (docs/usfda.md)."""

    source_free = True
    rejects = "more probably of an unknown cluster than of any class"
    method: ClassVar[str] = "usfda"
    negatives: ClassVar[Negatives | None] = None
    model: Model

    def learn(self, source: Source) -> None:
        samples = source.samples or Samples(X=source.X, labels=np.asarray(source.classes)[source.y])
        backbone = source.backbone or DEFAULT  # which vectors do not need
        self.model = procure(samples, backbone=backbone, negatives=self.negatives, seed=self.seed)

    def adapt(self, X: Any, source: Source | None) -> None:
        self.model = adapt(self.model, Samples(X=X), method=self.method, seed=self.seed)

    def decide(self, X: Any) -> Outcome:
        decided = self.model.decide(X)
        return Outcome(decided.best, decided.known, decided.score)

    @property
    def parameters(self) -> int:
        return int(self.model.card["deployment"].get("learnable_parameters", 0))


class Paper(Usfda):
    """Kundu et al., Universal Source-Free Domain Adaptation, CVPR 2020, to the letter (docs/method.md)."""

    rejects = "a negative class is the most probable"
    method = "paper"


class UsfdaB(Paper):
    """The same with negatives simulated between the class priors in place of composites."""

    negatives = "prior"

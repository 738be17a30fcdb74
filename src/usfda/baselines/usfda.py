from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np
from filelock import FileLock

from ..backbones import DEFAULT
from ..data import Samples
from ..deployment import DeploymentSettings, adapt
from ..features import vendor_models
from ..model import Model, load, versions
from ..procurement import Negatives, ProcurementSettings, prepare, procure
from ..runtime import InputError, runtime
from .api import Outcome, Source, System, core_code


def vendor(source: Source, kind: Negatives | None, settings: ProcurementSettings, seed: int) -> Model:
    """The procured model; one that was procured before from the same source in the same way is read from the store."""
    backbone = source.backbone or DEFAULT  # which vectors do not need

    def make() -> Model:
        return procure(_samples(source), backbone=backbone, negatives=kind, seed=seed, settings=settings)

    if source.fingerprint is None:
        return make()
    parts = [source.fingerprint, source.backbone and source.backbone.key, kind, runtime.threads, seed]
    name = json.dumps([*parts, dataclasses.asdict(settings), versions(), core_code()])
    file = vendor_models() / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.usfda"
    file.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{file}.lock"):
        with suppress(InputError):  # absent, or damaged
            return load(file)
        make().save(file, backbone=False)
        return load(file)


def _samples(source: Source) -> Samples:
    return source.samples or Samples(X=source.X, labels=np.asarray(source.classes)[source.y])


def settings_for(source: Source, given: Mapping[str, Any] | None = None) -> ProcurementSettings:
    """As the source's protocol asks for, but for those that are given."""
    asked = {} if source.negative_classes is None else {"max_negative_classes": source.negative_classes}
    return ProcurementSettings(**{**asked, **(given or {})})


class Usfda(System):
    """This project's own method, the default of ``usfda adapt`` (docs/usfda.md)."""

    source_free = True
    rejects = "more probably of an unknown cluster than of any class"
    method: ClassVar[str] = "usfda"
    negatives: Negatives | None = None
    model: Model

    def __init__(
        self,
        seed: int = 0,
        negatives: Negatives | None = None,
        procurement: Mapping[str, Any] | None = None,
        deployment: Mapping[str, Any] | None = None,
    ):
        """``procurement`` and ``deployment`` are those of their stage's settings that are not the default."""
        super().__init__(seed)
        self.negatives = negatives or self.negatives
        self._procurement, self._deployment = procurement, deployment

    def prepare(self, source: Source) -> None:
        prepare(_samples(source), source.backbone, self.negatives, settings_for(source, self._procurement))

    def learn(self, source: Source) -> None:
        self.model = vendor(source, self.negatives, settings_for(source, self._procurement), self.seed)
        self.learnt_in = self.model.card["procurement"]["seconds"]["training"]

    def adapt(self, X: Any, source: Source | None) -> None:
        settings = None if self._deployment is None else DeploymentSettings(**self._deployment)
        self.model = adapt(self.model, Samples(X=X), method=self.method, seed=self.seed, settings=settings)

    def decide(self, X: Any) -> Outcome:
        decided = self.model.decide(X)
        return Outcome(decided.best, decided.known, decided.score)

    def latent(self, X: Any) -> np.ndarray:
        return self.model.transform(np.asarray(X))

    @property
    def parameters(self) -> int:
        return int(self.model.card["deployment"].get("learnable_parameters", 0))

    @property
    def settings(self) -> dict[str, Any]:
        card = self.model.card
        stages = {stage: card[stage]["settings"] for stage in ("procurement", "deployment")}
        return {"negatives": card["procurement"]["negatives"], **stages}


class Paper(Usfda):
    """Kundu et al., Universal Source-Free Domain Adaptation, CVPR 2020, to the letter (docs/method.md)."""

    rejects = "a negative class is the most probable"
    method = "paper"


class UsfdaB(Paper):
    """The same with negatives simulated between the class priors in place of composites."""

    negatives = "prior"

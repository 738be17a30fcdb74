"""The methods of the package in a comparison: ``mixture``, the paper's ``usfda``, and its variant USFDA-b."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from filelock import FileLock

from ...backbones.zoo import DEFAULT
from ...card import Check
from ...errors import InputError
from ...methods.settings import Negatives, ProcurementSettings, TrainingSet, hold_out
from ...model import Model, load, versions
from ...stages.adapt import adapt
from ...stages.common import VERSION, settings_from
from ...stages.procure import procure, source_features, training_set
from ..tasks import Task, fingerprint
from .api import Baseline, Decision, Features, LabelledFeatures, Matrix


@dataclass(frozen=True)
class StageSettings:
    """Settings of the two stages."""

    procurement: Mapping[str, Any] = field(default_factory=dict)  # fields of ProcurementSettings
    deployment: Mapping[str, Any] = field(default_factory=dict)  # fields of MixtureSettings or UsfdaSettings


@dataclass(frozen=True)
class UsfdaMethodSettings(StageSettings):
    """Settings of the paper's two stages."""

    negatives: Negatives | None = None  # as ``procure`` has it by default


@dataclass(frozen=True)
class UsfdaBSettings(UsfdaMethodSettings):
    """Settings of USFDA-b."""

    negatives: Negatives | None = "prior"


class Mixture(Baseline):
    """Method ``mixture``, the default of ``usfda adapt`` (docs/mixture.md)."""

    version = VERSION["mixture"]
    source_free = True
    rejects = "more probably of an unknown cluster, or like nothing at all, than of any class"
    Settings = StageSettings
    settings: StageSettings
    method: ClassVar[Literal["mixture", "usfda"]] = "mixture"
    model: Model

    @classmethod
    def settings_for(cls, task: Task) -> dict[str, Any]:
        return {} if task.weights is None else {"deployment": {"weights": task.weights}}

    @property
    def procurement(self) -> ProcurementSettings:
        """The settings of the vendor's stage."""
        return settings_from(ProcurementSettings, self.settings.procurement)

    def learn(self, source: LabelledFeatures) -> None:
        self.model = self.procure(source)

    def procure(self, source: LabelledFeatures, negatives: Negatives | None = None) -> Model:
        """The vendor's model, for this method alone."""
        backbone = self.backbone or DEFAULT  # which vectors do not need
        return procure(
            source, method=self.method, backbone=backbone, negatives=negatives, seed=self.seed,
            settings=self.procurement, config=self.config,
        )  # fmt: skip

    def adapt(self, X: Matrix, source: LabelledFeatures | None) -> None:
        settings, config = self.settings.deployment, self.config
        self.model = adapt(
            self.model, Features(X), method=self.method, seed=self.seed, settings=settings, config=config
        )

    def decide(self, X: Matrix) -> Decision:
        return self.model.decide(X)

    def latent(self, X: Matrix) -> np.ndarray:
        return self.model.transform(Features(X))

    def check(self) -> Check | None:
        return self.model.deployment.get("check")

    @property
    def parameters(self) -> int:
        return self.model.deployment["learnable_parameters"]

    @property
    def weights(self) -> str | None:
        deployed = self.model.card["deployment"]
        return None if deployed is None else deployed.get("weights")

    @property
    def learning_seconds(self) -> float | None:
        seconds = self.model.card["procurement"]["seconds"]
        return float(seconds.get("class_statistics", 0) + seconds.get("networks", 0))

    def all_settings(self) -> dict[str, Any]:
        card = self.model.card
        stages = {"procurement": card["procurement"], "deployment": card["deployment"]}
        found = {name: stage["settings"] for name, stage in stages.items() if stage is not None}
        made = {part: card["procurement"].get(part) for part in ("negatives", "training")}
        return {**made, **found}


class Usfda(Mixture):
    """Kundu et al., Universal Source-Free Domain Adaptation, CVPR 2020, to the letter (docs/usfda.md)."""

    rejects = "a negative class is the most probable"
    Settings = UsfdaMethodSettings
    settings: UsfdaMethodSettings
    version = VERSION["usfda"]
    method = "usfda"

    @classmethod
    def settings_for(cls, task: Task) -> dict[str, Any]:
        return {} if task.negative_classes is None else {"procurement": {"max_negative_classes": task.negative_classes}}

    def training_set(self, source: LabelledFeatures) -> TrainingSet:
        """What the vendor's networks learn from."""
        extractor, _ = source_features(source, backbone=self.backbone or DEFAULT, config=self.config)
        train, _ = hold_out(source.y, self.procurement.holdout)
        return training_set(source, train, self.settings.negatives, self.procurement, extractor)

    def prepare(self, source: LabelledFeatures) -> None:
        self.training_set(source)

    def learn(self, source: LabelledFeatures) -> None:
        """A model that was procured before from the same source in the same way is read from the cache."""
        cache, negatives = self.config.cache, self.settings.negatives
        if cache is None:
            self.model = self.procure(source, negatives)
            return
        depends_on = {
            "source": fingerprint(source), "backbone": self.backbone and self.backbone.key, "seed": self.seed,
            "negatives": negatives, "for": self.method, "threads": self.config.threads,
            "settings": dataclasses.asdict(self.procurement), "core": self.version, "versions": versions(),
        }  # fmt: skip
        name = hashlib.sha256(json.dumps(depends_on, sort_keys=True).encode()).hexdigest()[:32]
        file = cache / "vendors" / f"{name}.usfda"
        file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{file}.lock"):
            with suppress(InputError):  # absent, or damaged
                self.model = load(file)
                return
            self.procure(source, negatives).save(file, backbone=False)
            self.model = load(file)


class UsfdaB(Usfda):
    """The same with negatives simulated between the class priors instead of composites."""

    Settings = UsfdaBSettings

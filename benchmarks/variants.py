"""Method ``mixture`` with one part changed, and what privacy costs (suite.py runs them)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from usfda import Model
from usfda.data.samples import LabelledFeatures
from usfda.experiments.baselines.deployment import Mixture, StageSettings
from usfda.experiments.runner import Baselines, Settings
from usfda.methods.heads import starting_head
from usfda.methods.privacy import PrivacySettings, fit_private_class_statistics
from usfda.methods.settings import Negatives
from usfda.methods.vendor import Vendor


@dataclass(frozen=True)
class PrivateSettings(StageSettings):
    """How much of the covariance is told."""

    directions: int = 8


class Private(Mixture):
    """The class statistics of ``usfda procure --private``, also of classes with fewer than ten images."""

    Settings = PrivateSettings
    settings: PrivateSettings

    def procure(self, source: LabelledFeatures, negatives: Negatives | None = None) -> Model:
        told = PrivacySettings(least_images=2, directions=self.settings.directions)
        vendor = Vendor(None, fit_private_class_statistics(source.X, source.y, len(source.classes), told))
        card: Any = {"procurement": {"method": "mixture", "seconds": {}, "settings": {}}, "deployment": None}
        return Model(source.classes, vendor, starting_head(vendor), None, card)


# No image is held out: the class statistics use all of them, and validation takes most of the time.
PROCUREMENT = {"holdout": 0.0}


def changed(kind: type[Mixture], **given: Any) -> tuple[str, Settings]:
    """One of the baselines of this file."""
    return f"{__file__}:{kind.__name__}", {"procurement": PROCUREMENT, **given}


def deployed(**given: float) -> tuple[str, Settings]:
    """The method with other settings of its client's stage."""
    return "mixture", {"procurement": PROCUREMENT, "deployment": given}


WHOLE: Baselines = {"whole method": deployed()}
PARTS: Baselines = {
    "samples not smoothed over their neighbours": deployed(rounds=0),
    "one cluster of unknowns": deployed(clusters=1),
    **{f"outliers below {part} of min(κ, κ_t)": deployed(rest=part) for part in (0.0, 0.3, 0.5)},
}
PRIVATE: Baselines = {f"{k} directions": changed(Private, directions=k) for k in (8, 16, 32, 64)}

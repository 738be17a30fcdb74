"""Method ``usfda`` with one thing changed: what each of its parts pays, and what privacy costs (suite.py runs them)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.special import expit, logit

from usfda import Features, Model
from usfda.experiments.runner import Settings, Systems
from usfda.experiments.systems.api import Matrix
from usfda.experiments.systems.usfda import StageSettings, Usfda
from usfda.methods.groups import LEAST_DENSITY, Groups, UsfdaSettings, correlation, fit_known_unknown
from usfda.methods.heads import starting_head
from usfda.methods.privacy import PrivacySettings, fit_private_geometry
from usfda.methods.settings import Negatives
from usfda.methods.vendor import Vendor


@dataclass(frozen=True)
class LineSettings(StageSettings):
    """Where the line between the groups lies."""

    shares: float = 0.0  # the power of the estimated shares that the densities are multiplied by: 1 is Bayes' rule
    shift: float = 0.0  # log-odds towards known
    density: float = 0.5  # the power of the density that similarities are divided by


class Line(Usfda):
    """Another line between known and unknown."""

    Settings = LineSettings
    settings: LineSettings

    def adapt(self, X: Matrix, source: Features | None) -> None:
        with patch("usfda.methods.mixture.fit_known_unknown", self.groups):
            super().adapt(X, source)

    def groups(
        self,
        similarity: np.ndarray,
        density: np.ndarray,
        cohesion: float,
        settings: UsfdaSettings,
        weight: np.ndarray,
        typicality: float | None,
    ) -> Groups:
        """The method's own with other densities, and the line moved."""
        density, w = density.clip(min=LEAST_DENSITY), weight / weight.sum()
        if typicality is None:
            typicality = correlation(similarity.max(1), density, w)
        powered = density ** (2 * self.settings.density)  # of which the method takes the root
        plain, found = (
            fit_known_unknown(similarity, powered, cohesion, leaning, weight, typicality)
            for leaning in (replace(settings, typical_lean=0.0, distant_lean=0.0), settings)
        )
        share, llr = 0.5, log_odds(plain.known)
        for _ in range(1000):  # EM's share of the known: the mean of their probabilities, where nothing leans
            share = float(np.clip(w @ expit(logit(share) + llr), 1e-3, 1 - 1e-3))
        moved = log_odds(found.known) + self.settings.shares * logit(share) + self.settings.shift
        return replace(found, known=expit(moved))


def log_odds(probability: np.ndarray) -> np.ndarray:
    """Of a probability; those of 0 and 1 are finite, too."""
    odds: np.ndarray = logit(probability.clip(1e-12, 1 - 1e-12))
    return odds


@dataclass(frozen=True)
class PrivateSettings(StageSettings):
    """How much of the covariance is told."""

    directions: int = 8


class Private(Usfda):
    """The geometry of ``usfda procure --private``, also of classes with fewer than ten images."""

    Settings = PrivateSettings
    settings: PrivateSettings

    def procure(self, source: Features, negatives: Negatives | None = None) -> Model:
        told = PrivacySettings(least_images=2, directions=self.settings.directions)
        vendor = Vendor(None, fit_private_geometry(source.X, source.y, len(source.classes), told))
        card = {"procurement": {"method": "usfda", "seconds": {}, "settings": {}}, "deployment": None}
        return Model(source.classes, vendor, starting_head(vendor), None, card)


# No image is held out: the geometry is that of all of them in any case, and what the vendor measures takes most time.
PROCUREMENT = {"holdout": 0.0}


def changed(kind: type[Usfda], **given: Any) -> tuple[str, Settings]:
    """One of the systems of this file."""
    return f"{__file__}:{kind.__name__}", {"procurement": PROCUREMENT, **given}


def deployed(**given: float) -> tuple[str, Settings]:
    """The method with other settings of its client's stage."""
    return "usfda", {"procurement": PROCUREMENT, "deployment": given}


WHOLE: Systems = {"whole method": deployed()}
PARTS: Systems = {
    "samples not moved towards their neighbours": deployed(rounds=0),
    "without the test for nothing unknown": deployed(typical_lean=0.0),
    "without the test for nothing shared": deployed(distant_lean=0.0),
    "without either": deployed(typical_lean=0.0, distant_lean=0.0),
    "the test for nothing shared leans earlier (distant=0.7)": deployed(distant=0.7),
    "one cluster of unknowns": deployed(clusters=1),
    **{f"rest at {part} of min(κ, κ_t)": deployed(rest=part) for part in (0.0, 0.35, 0.45, 0.5)},
    "similarity not over density": changed(Line, density=0.0),
    "over its fourth root": changed(Line, density=0.25),
    "over the density itself": changed(Line, density=1.0),
    "line half a unit of log-odds towards known": changed(Line, shift=0.5),
    "towards unknown": changed(Line, shift=-0.5),
    "densities times the roots of the estimated shares": changed(Line, shares=0.5),
    "times the shares (Bayes' rule)": changed(Line, shares=1.0),
}
PRIVATE: Systems = {f"{k} directions": changed(Private, directions=k) for k in (8, 16, 32, 64)}

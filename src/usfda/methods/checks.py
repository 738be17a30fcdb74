"""What can be told of an adaptation without a label: does it help, how much is unknown, which classes are absent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..data.reading import UNKNOWN
from .mixture import NeighbourGraph


@dataclass(frozen=True)
class CheckSettings:
    """Limits of the check, chosen on the development suite (docs/usfda.md)."""

    weak: float = 0.5  # evidence below which the share of unknowns is a guess
    # How far the estimated share of unknowns was above and below the truth, by evidence: 3 and 97 % quantiles over the
    # development suite, which held in nine of ten tasks of a data set that was left out.
    evidence: tuple[float, ...] = (0.5, 0.7, 0.9, 1.1)
    too_high: tuple[float, ...] = (0.81, 0.76, 0.63, 0.54)
    too_low: tuple[float, ...] = (0.62, 0.56, 0.37, 0.23)
    absent: float = 0.1  # of the samples of a usual class: a class with fewer than that, and than
    few: int = 2  # samples, seems absent; nothing is said of it where the target has fewer for each class
    better: float = 0.2  # gain of consistency from which on a decision looks better: right in four of five tasks
    worse: float = 0.02  # loss of consistency from which on a decision looks worse


def label_consistency(labels: np.ndarray, graph: NeighbourGraph) -> float | None:
    """Share of neighbours with the same label beyond what chance gives (Cohen's κ); None where all labels are one."""
    _, y = np.unique(labels, return_inverse=True)
    pairs = graph.weight.tocoo()
    chance = float(np.sum((np.bincount(y) / len(y)) ** 2))
    if chance == 1 or pairs.data.sum() == 0:
        return None
    same = float(pairs.data @ (y[pairs.row] == y[pairs.col]) / pairs.data.sum())
    return (same - chance) / (1 - chance)


def check(
    graph: NeighbourGraph,
    source: np.ndarray,
    adapted: np.ndarray,
    probability: np.ndarray,
    classes: list[str],
    evidence: float,
    settings: CheckSettings,
    weight: np.ndarray,
) -> dict[str, Any]:
    """Compare the labels before and after adaptation.

    ``probability`` has the source classes and, last, unknown; ``weight`` is the number of samples behind each row.
    """
    w = weight / weight.sum()
    share = float(w @ probability[:, -1])
    low = max(0.0, share - np.interp(evidence, settings.evidence, settings.too_high))
    high = min(1.0, share + np.interp(evidence, settings.evidence, settings.too_low))
    before, after = label_consistency(source, graph), label_consistency(adapted, graph)
    verdict = "unclear"
    if before is not None and after is not None:
        if after > before + settings.better:
            verdict = "better"
        elif after < before - settings.worse and evidence >= settings.weak:
            # With less evidence next to all is unknown, and κ means little.
            verdict = "worse"
    return {
        "verdict": verdict,
        "consistency": {"source": before, "adapted": after},
        "called_unknown": {
            "source": round(100 * float(w @ (source == UNKNOWN)), 2),
            "adapted": round(100 * float(w @ (adapted == UNKNOWN)), 2),
        },
        "changed": round(100 * float(w @ (source != adapted)), 2),
        "evidence": round(evidence, 4),
        "weak": evidence < settings.weak,
        "unknown_estimate": round(100 * share, 2),
        "unknown_interval": [round(100 * float(x), 2) for x in (low, high)],
        "absent": absent_classes(probability, classes, settings, weight),
    }


def absent_classes(
    probability: np.ndarray, classes: list[str], settings: CheckSettings, weight: np.ndarray
) -> list[str]:
    """Those of the classes, whose columns are the first, that next to nothing is taken for."""
    mass = weight @ probability[:, :-1]
    usual = np.median(mass[mass >= 1]) if (mass >= 1).any() else 1.0
    # A few samples of a class are some, however many the others have; and a few in all need not show every class.
    least = min(settings.absent * usual, settings.few)
    enough = weight.sum() >= settings.few * len(classes)
    return [name for name, m in zip(classes, mass, strict=False) if enough and m < least]

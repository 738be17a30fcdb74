"""What can be said of an adaptation without labels: which decision to use, and which source classes are absent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from .learned import Expected

Verdict = Literal["better", "same", "kept"]
MARGIN = 5.0  # points of the expected figure: less is no difference
ABSENT = 0.1  # of the samples of a usual class: a class with fewer than that, and than
FEW = 2  # samples, seems absent; nothing is said of it where the target has fewer for each class


def verdict_of(expected: Expected) -> Verdict:
    """Which decision is used, from what is expected of it and of the class means: ``kept`` stands for the latter."""
    gain = expected.adapted - expected.other
    return "better" if gain > MARGIN else "kept" if gain < -MARGIN else "same"


def absent_classes(probability: np.ndarray, classes: Sequence[str], weight: np.ndarray) -> list[str]:
    """Classes with almost no predicted samples; their columns of ``probability`` are the first."""
    mass = weight @ probability[:, :-1]
    usual = np.median(mass[mass >= 1]) if (mass >= 1).any() else 1.0
    # A few samples of a class are some, however many the others have; and a few in all need not show every class.
    least = min(ABSENT * usual, FEW)
    enough = weight.sum() >= FEW * len(classes)
    return [name for name, m in zip(classes, mass, strict=False) if enough and m < least]

"""What the stages share: their version, their settings, what they count, their clock."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, TypeVar, get_args

import numpy as np
from scipy.linalg import cholesky

from ..card import TaughtCounts
from ..errors import InputError
from ..memory import BUFFER, check_room
from ..methods.decision import Decision, Some
from ..methods.heads import MixtureHead

Method = Literal["mixture", "usfda"]
METHODS: tuple[str, ...] = get_args(Method)
Settings = TypeVar("Settings")

# Of what the stages compute for a method: raise it whenever the same data, settings and seed would give another model.
VERSION: dict[Method, int] = {"mixture": 6, "usfda": 4}


def settings_from(kind: type[Settings], given: object) -> Settings:
    """A settings object: the one that is given, one with the given values, or the defaults."""
    if isinstance(given, kind):
        return given
    if given is not None and not isinstance(given, Mapping):
        raise InputError(f"settings must be a {kind.__name__} or a dict of its fields, not {type(given).__name__}")
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    values: dict[str, Any] = dict(given or {})
    if wrong := sorted(set(values) - set(names)):
        raise InputError(f"no setting {wrong[0]!r}; choose from {', '.join(names)}")
    return kind(**values)


def check_choice(what: str, given: str, choices: Sequence[str]) -> None:
    """Raise an error unless what is given is one of the choices."""
    if given not in choices:
        raise InputError(f"no {what} {given!r}; choose from {', '.join(choices)}")


def take_buffers(threads: int) -> None:
    """Let OpenBLAS take memory for its work, while it is certain that there is some."""
    check_room(BUFFER * (threads + 1))
    cholesky(np.eye(1))


class UnknownCounts(TypedDict):
    """The sizes of the clusters that have unknown samples, and the number of outliers."""

    clusters: dict[str, int]
    outliers: int


def unknown_counts(decided: Decision, weight: np.ndarray) -> UnknownCounts:
    """Count the unknown samples."""
    cluster = np.zeros(len(weight), int) if decided.cluster is None else decided.cluster
    sizes = np.bincount(cluster[~decided.known], weight[~decided.known], minlength=1).round().astype(int)
    return {"clusters": {str(c): int(n) for c, n in enumerate(sizes) if c > 0 and n > 0}, "outliers": int(sizes[0])}


def number_by_size(head: MixtureHead, decided: Some, weight: np.ndarray) -> tuple[MixtureHead, Some]:
    """The head with its clusters numbered by their size, the largest first, and its decisions with these numbers."""
    assert decided.cluster is not None
    sizes = np.bincount(decided.cluster[~decided.known], weight[~decided.known], len(head.bias) - head.classes + 1)[1:]
    order = np.argsort(-sizes, kind="stable")
    number = np.concatenate([[0], 1 + np.argsort(order)])
    return head.reordered(order), dataclasses.replace(decided, cluster=number[decided.cluster])


def taught_counts(
    taught: Mapping[str, TaughtCounts], classes: Sequence[str], decided: Decision, weight: np.ndarray
) -> dict[str, TaughtCounts]:
    """The taught classes, each with its number of target images."""
    best, of_known = decided.best[decided.known], weight[decided.known]
    images = {name: round(float(of_known[best == classes.index(name)].sum())) for name in taught}
    return {name: {**of, "images": images[name]} for name, of in taught.items()}


class Clock:
    """Seconds of the parts of a stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._started = time.perf_counter()

    def lap(self, part: str) -> None:
        """The part that ends now took all the time since the one before."""
        now = time.perf_counter()
        self.seconds[part], self._started = now - self._started, now


def rounded(history: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Losses as the card keeps them: five digits say enough."""
    return {name: [float(f"{value:.5g}") for value in values] for name, values in history.items()}

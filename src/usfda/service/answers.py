"""The shapes of answers, for the service's own description, ``/openapi.json``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal

from pydantic import BaseModel

from ..methods.findings import Findings
from ..text.findings import describe


class Error(BaseModel):
    """What is wrong with a request, and what to do about it."""

    detail: str


class Record(BaseModel):
    """An image that was read, as of ``usfda predict``."""

    path: str
    label: str
    score: float
    ssm: float | None
    top: list[tuple[str, float]]
    cluster: int | None


class Unread(BaseModel):
    """A file that cannot be read, and why."""

    path: str
    error: str


class Predictions(BaseModel):
    """A record for each file, in their order, and the sha256 of the model that gave them."""

    model: str
    results: list[Record | Unread]


class NoImage(Error):
    """No file can be read, and why not."""

    results: list[Unread] = []


class Health(BaseModel):
    """That the service answers."""

    status: Literal["ok"]


class ClusterOfKept(BaseModel):
    """Kept images in a cluster of the unknown, and about how many it has in the model; typical ones by their sha256."""

    number: int
    images: int
    samples: int
    examples: list[str]


class ModelAnswer(BaseModel):
    """The model that serves; ``earlier`` is how many models a rollback can return to."""

    hash: str
    classes: list[str]
    card: dict[str, Any]
    findings: dict[str, Any] | None
    clusters: list[ClusterOfKept]
    earlier: int


class Change(BaseModel):
    """A kept image, by its sha256, that has another label than before."""

    image: str
    before: str
    after: str


class Comparison(BaseModel):
    """The labels of the kept images before and after."""

    images: int
    changed: int
    changes: list[Change]


class AdaptationAnswer(BaseModel):
    """How far the adaptation is, and what it found; how many images are kept, and how many it takes."""

    state: Literal["idle", "running", "ready", "failed"]
    progress: float
    findings: dict[str, Any] | None
    comparison: Comparison | None
    kept: int
    needed: int


class Serving(BaseModel):
    """The sha256 of the model that serves now."""

    model: str


class Taught(Serving):
    """And its classes; a warning for a name that may have been meant for another of them."""

    classes: list[str]
    warnings: list[str]


def findings_of(findings: Findings) -> dict[str, Any]:
    """Findings for an answer: their values, and their sentences."""
    return asdict(findings) | {"reliability": findings.reliability, "sentences": describe(findings)}

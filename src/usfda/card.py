"""The card of a model: facts about how it was made. The stages write it; nothing reads it to make a prediction.

These declarations are the schema of ``card.json`` as well: ``read_card`` validates the card of an untrusted file with
them and drops what they do not name.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
from msgspec import Meta

from .errors import InputError

Count = Annotated[int, Meta(ge=0, le=10**12)]
Percent = Annotated[float, Meta(ge=0, le=100)]
Share = Annotated[float, Meta(ge=0, le=1)]
ClusterNumber = Annotated[str, Meta(pattern=r"^[1-9][0-9]{0,5}$")]
Losses = dict[str, list[float]]
Settings = dict[str, Any]


class Validation(TypedDict):
    """The accuracy of ``head`` on held-out source samples, in percent; None without such samples."""

    head: str
    samples: Count
    accuracy: float | None
    rejected: float | None


class NegativesCard(TypedDict):
    """The negative classes of the paper's method."""

    kind: str
    classes: Count
    samples: Count


class Training(TypedDict):
    """The training of the vendor's networks."""

    iterations: Count
    batch: Count
    lr: float
    accuracy: list[float]


class Noise(TypedDict):
    """Differential privacy: (ε, δ), σ of the noise, and the bound on an attack's AUC that they imply."""

    epsilon: float
    delta: float
    sigma: float
    auc_bound: float


class Membership(TypedDict):
    """The best membership attack, its AUC, and the numbers of images that it was measured on."""

    attack: str
    auc: float
    members: Count
    others: Count


class Privacy(TypedDict):
    """What the file leaks about single source images."""

    private: bool
    least_images: Count
    noise: NotRequired[Noise]
    membership: NotRequired[Membership]


class Procurement(TypedDict):
    """The vendor's stage."""

    method: str
    classes: dict[str, Count]
    settings: Settings
    seed: int
    validation: Validation
    seconds: dict[str, float]
    versions: dict[str, str]
    negatives: NotRequired[NegativesCard]
    training: NotRequired[Training]
    history: NotRequired[Losses]
    privacy: NotRequired[Privacy]
    learnable_parameters: NotRequired[Count]


class ExpectedFigures(TypedDict):
    """The expected figure of each decision, in percent; None where the file has no source network."""

    adapted: float
    class_means: float
    source_network: float | None


class Check(TypedDict):
    """What is known about an adaptation without labels, in percent and samples."""

    verdict: Literal["better", "same", "kept"]
    expected: NotRequired[ExpectedFigures]
    decision: NotRequired[Literal["learned", "simple"]]
    unknown_estimate: float
    unknown_interval: Annotated[list[float], Meta(min_length=2, max_length=2)]
    absent: list[str]
    clusters: NotRequired[Annotated[dict[ClusterNumber, Count], Meta(max_length=10_000)]]
    outliers: NotRequired[Count]


class TaughtCounts(TypedDict):
    """The images of the target that a taught class has, and what it was taught from."""

    images: Count
    examples: Count
    clusters: Count


class SsmCounts(TypedDict):
    """Mean and histogram, from 1 to e, of the source similarity metric over the target."""

    mean: float
    histogram: list[Count]


class MeasuredFigure(TypedDict):
    """A figure that answers measured, in percent, None where no answer bears on it, and its 90 % interval."""

    value: Percent | None
    interval: Annotated[list[Percent], Meta(min_length=2, max_length=2)]


class Measured(TypedDict):
    """What a review measured."""

    shared_accuracy: MeasuredFigure
    t_unk: MeasuredFigure
    h_score: MeasuredFigure


class AnswerCounts(TypedDict):
    """Answers of a review: the best class is right, it is another one, it is none of them, skipped."""

    right: Count
    other: Count
    none: Count
    skipped: Count


class BeforeReview(TypedDict):
    """What ``--forget-review`` restores."""

    strictness: Share
    unknown_share: Percent
    clusters: NotRequired[dict[ClusterNumber, Count]]
    outliers: NotRequired[Count]


class ReviewCard(TypedDict):
    """A person's answers for some images of the target, as statistics alone."""

    asked: Count
    answered: Count
    answers: AnswerCounts
    threshold: Share
    merged: dict[ClusterNumber, str]
    measured: Measured
    before: BeforeReview


class Deployment(TypedDict):
    """The client's stage."""

    method: str
    strictness: Share
    samples: Count
    seed: int
    settings: Settings
    unknown_share: Percent
    seconds: dict[str, float]
    versions: dict[str, str]
    skipped: NotRequired[Count]
    reject_at_most: NotRequired[Percent]
    earlier_samples: NotRequired[Count]
    repeated: NotRequired[Count]
    relabelled: NotRequired[Count]
    taught: NotRequired[dict[str, TaughtCounts]]
    joined: NotRequired[list[str]]
    weights: NotRequired[str]
    learnable_parameters: NotRequired[Count]
    steps: NotRequired[Count]
    history: NotRequired[Losses]
    ssm: NotRequired[SsmCounts]
    check: NotRequired[Check]
    review: NotRequired[ReviewCard]


class BackboneCard(TypedDict):
    """The backbone and, for images, its preprocessing record."""

    name: str
    sha256: str
    record: dict[str, Any] | None


class Card(TypedDict):
    """All of it."""

    procurement: Procurement
    deployment: Deployment | None
    backbone: NotRequired[BackboneCard]


class FileCard(Card):
    """``card.json``: the card, the source classes and the name of the head."""

    classes: Annotated[list[str], Meta(min_length=2)]
    head: str


def read_card(values: dict[str, Any]) -> FileCard:
    """The card of a file, from the plain values in it."""
    try:
        return msgspec.convert(values, FileCard)
    except msgspec.ValidationError as error:
        raise InputError(f"its card is not valid: {error}") from None


def check_review(review: ReviewCard, classes: set[str]) -> None:
    """Raise an error where numbers of a review contradict each other, or it names other classes."""
    if review["answered"] > review["asked"] or sum(review["answers"].values()) > review["asked"]:  # type: ignore[arg-type]
        raise InputError("its review has more answers than questions")
    if not set(review["merged"].values()) <= classes:
        raise InputError("its review names other classes than its card")
    for figure in review["measured"].values():
        low, high = figure["interval"]  # type: ignore[index]
        value = figure["value"]  # type: ignore[index]
        if not low <= (low if value is None else value) <= high:
            raise InputError("its review has a figure outside its interval")


def canonical(procurement: Procurement | dict[str, Any]) -> Procurement:
    """The same facts with the types that they have once they were read from a file."""
    return msgspec.convert(procurement, Procurement)


def card_of(file: FileCard) -> Card:
    """The card without what the file needs beside it."""
    card: Card = {"procurement": file["procurement"], "deployment": file["deployment"]}
    return {**card, "backbone": file["backbone"]} if "backbone" in file else card

"""What an adaptation found, as numbers and enums; ``text`` turns them into sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

WIDE = 50  # points: a wider interval of the share of unknown samples says nothing


class Reliability(StrEnum):
    """How reliable the labels of a model are expected to be."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


LEVELS = ((85.0, Reliability.HIGH), (65.0, Reliability.MEDIUM))  # from which expected figure on, in percent


@dataclass(frozen=True)
class Cluster:
    """A group of unknown samples that look alike.

    Parameters
    ----------
    number : int
        Its number in predictions and for ``teach``, from 1.
    samples : int
        How many samples of all batches are in it; about, where the model was updated or taught.
    examples : tuple of str
        The most typical of them, by name, while the model that was just adapted is in memory: a file has no names.
    """

    number: int
    samples: int
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Taught:
    """A class that the client taught.

    Parameters
    ----------
    name : str
        As it was named.
    images : int
        About so many images of the target it stands for.
    examples : int
        Labelled images that were given for it.
    clusters : int
        Clusters of the unknown that were given its name.
    """

    name: str
    images: int
    examples: int
    clusters: int


@dataclass(frozen=True)
class Findings:
    """What an adaptation found.

    Parameters
    ----------
    method : str
        ``mixture`` or ``usfda``.
    samples : int
        Samples of the target, without those of earlier batches until the model is taught.
    earlier_samples : int
        Samples of earlier batches, for a model that was updated and not taught since.
    strictness : float
        The rejection threshold: a sample with a lower score is unknown.
    unknown_share : float
        Percent of ``samples`` that are called unknown.
    unknown_estimate : float or None
        Percent that are unknown, as estimated over all batches; None where the method does not estimate it, as for all
        below.
    unknown_interval : (float, float) or None
        Where the true percentage lies in nine of ten targets.
    verdict : {"better", "same", "kept"} or None
        How the adapted decision is expected to compare with the class means. With "kept", the class means are used.
    expected : mapping of str to float or None
        The expected figure, in percent, of the adapted decision, of the class means, which are not adapted, and of the
        source network: H; accuracy where nothing is unknown; T_unk where nothing is known. Empty in older files.
    decision : {"learned", "simple"} or None
        Which rule separated known samples from unknown ones.
    absent : tuple of str
        Source classes that seem to be absent.
    clusters : tuple of Cluster
        Of the unknown, of all batches, the largest first.
    outliers : int
        Unknown samples in no cluster.
    taught : tuple of Taught
        Classes that the client taught.
    joined : tuple of str
        Classes of the source that the client gave clusters or examples.
    repeated : int
        Samples of an update that were adapted to before, as far as they are recognised.
    relabelled : int or None
        Samples of an update that had another label before it; None where it was none.
    reject_at_most : float or None
        Percent that may be called unknown, where the user has set that.
    """

    method: str
    samples: int
    earlier_samples: int
    strictness: float
    unknown_share: float
    unknown_estimate: float | None
    unknown_interval: tuple[float, float] | None
    verdict: Literal["better", "same", "kept"] | None
    expected: Mapping[str, float | None]
    decision: Literal["learned", "simple"] | None
    absent: tuple[str, ...]
    clusters: tuple[Cluster, ...]
    outliers: int
    taught: tuple[Taught, ...]
    joined: tuple[str, ...]
    repeated: int = 0
    relabelled: int | None = None
    reject_at_most: float | None = None

    @classmethod
    def of(cls, card: Mapping[str, Any], examples: Mapping[int, Sequence[str]] | None = None) -> Findings:
        """From the deployment's part of a card."""
        found, examples = card.get("check") or {}, examples or {}
        clusters = [Cluster(int(c), n, tuple(examples.get(int(c), ()))) for c, n in found.get("clusters", {}).items()]
        interval = found.get("unknown_interval")
        return cls(
            card["method"],
            card["samples"],
            card.get("earlier_samples", 0),
            card["strictness"],
            card["unknown_share"],
            found.get("unknown_estimate"),
            None if interval is None else (interval[0], interval[1]),
            found.get("verdict"),
            found.get("expected", {}),
            found.get("decision"),
            tuple(found.get("absent", ())),
            tuple(sorted(clusters, key=lambda c: (-c.samples, c.number))),
            found.get("outliers", 0),
            tuple(
                Taught(name, of["images"], of["examples"], of["clusters"])
                for name, of in card.get("taught", {}).items()
            ),
            tuple(card.get("joined", ())),
            card.get("repeated", 0),
            card.get("relabelled"),
            card.get("reject_at_most"),
        )

    @property
    def reliability(self) -> Reliability | None:
        """How reliable the labels are, from the expected figure of the decision that is used; None if not measured."""
        figure = self.expected.get("class_means" if self.verdict == "kept" else "adapted")
        if figure is None:
            return None
        return next((level for least, level in LEVELS if figure >= least), Reliability.LOW)

    @property
    def likely_interval(self) -> tuple[float, float] | None:
        """``unknown_interval``; None where it is so wide that it says nothing."""
        interval = self.unknown_interval
        return interval if interval is not None and interval[1] - interval[0] <= WIDE else None

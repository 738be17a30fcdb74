"""What every method answers for a sample: a class, or *unknown*."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np

from ..errors import InputError

STRICTNESS = 0.5  # the method's own decision


@dataclass(frozen=True)
class Decision:
    """Decisions for n samples.

    Parameters
    ----------
    best : array (n,)
        Position of the best source class, whether it is accepted or not.
    known : array (n,) of bool
        Whether the sample is of its best class; otherwise it is unknown.
    score : array (n,)
        From 0 (unknown) to 1 (known). A sample is known where its score reaches the rejection threshold.
    cluster : array (n,) of int, optional
        The cluster of an unknown sample, from 1; 0 where there is none.
    """

    best: np.ndarray
    known: np.ndarray
    score: np.ndarray
    cluster: np.ndarray | None = None


@dataclass(frozen=True, kw_only=True)
class ProbabilisticDecision(Decision):
    """Decisions with the probabilities that they follow from.

    Parameters
    ----------
    probability : array (n, classes + 1)
        The source classes and, last, unknown; rows sum to 1.
    """

    probability: np.ndarray

    def without_probabilities(self) -> Decision:
        """The decisions alone: for a million samples of a thousand classes the probabilities take 4 GB."""
        return Decision(self.best, self.known, self.score, self.cluster)

    def top(self, most: int = 3) -> tuple[np.ndarray, np.ndarray]:
        """(n, most) positions of the best classes of every sample, and their shares among the classes."""
        known = self.probability[:, :-1]
        share = known / np.maximum(known.sum(1, keepdims=True), 1e-30)
        order = np.argsort(-share, axis=1, kind="stable")[:, :most]
        return order, np.take_along_axis(share, order, 1)


Some = TypeVar("Some", bound=Decision)


def joined(decisions: Sequence[Some]) -> Some:
    """Decisions for some samples, then for others, as one."""
    kind = type(decisions[0])
    columns = {field.name: [getattr(decision, field.name) for decision in decisions] for field in fields(kind)}
    return kind(**{name: None if c[0] is None else np.concatenate(c) for name, c in columns.items()})  # type: ignore[arg-type]


def known_score(probability: np.ndarray) -> np.ndarray:
    """p_best / (p_best + p_unknown) for rows of source classes and, last, unknown."""
    best, unknown = probability[:, :-1].max(1).astype(np.float64), probability[:, -1]
    score: np.ndarray = best / np.maximum(best + unknown, 1e-300)
    return score


def accept(score: np.ndarray, strictness: float) -> np.ndarray:
    """Whether each sample is known: its score reaches the rejection threshold."""
    known: np.ndarray = score >= strictness
    return known


def decide(probability: np.ndarray, strictness: float, cluster: np.ndarray | None = None) -> ProbabilisticDecision:
    """The rule: the best class where (1 − s)·p_best ≥ s·p_unknown for the rejection threshold s, otherwise unknown.

    At the default s = ½ the label is the most probable column of a row. The ONNX export computes the same rule
    (``operators.add_decision``). ``cluster`` is the cluster of each sample if it is unknown.
    """
    score = known_score(probability)
    known = accept(score, strictness)
    cluster = None if cluster is None else np.where(known, 0, cluster)
    return ProbabilisticDecision(probability[:, :-1].argmax(1), known, score, cluster, probability=probability)


def check_strictness(value: float) -> float:
    """The strictness, or an error where it is not from 0 to 1."""
    if not 0 <= value <= 1:
        raise InputError(f"strictness is from 0 (reject nothing) to 1 (reject everything), not {value}")
    return value

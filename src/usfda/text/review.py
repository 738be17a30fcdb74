"""Sentences of ``usfda review``: the questions, how to answer them, and what the answers show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .words import are, count

SHOWN = 40  # classes that are listed
FIGURES = {"shared_accuracy": "known images labelled right", "t_unk": "new images called unknown", "h_score": "H"}
KEYS = "y: yes, n: no, a class by name or number, none: none of the classes, s: skip, quit"
KINDS = "yes, the name or number of a class, none (none of these), or skip"
NO_ANSWER = "no question is answered; answer some of them first"
NOT_ADAPTED = "the model was not adapted; adapt it first, then review it"
NO_REVIEW = "the model has no review that could be taken back"
WHICH = "which class is it (name or number), or none? "
REVIEWED = "was reviewed"


def numbered(classes: Sequence[str]) -> str:
    """``1 mug, 2 pen``."""
    more = f" and {len(classes) - SHOWN} more" if len(classes) > SHOWN else ""
    return "classes: " + ", ".join(f"{i} {name}" for i, name in enumerate(classes[:SHOWN], 1)) + more


def question(number: int, total: int, name: str, guess: str, confidence: float) -> str:
    """One question."""
    return f"{number}/{total}  {name}\n  is this {guess}? (confidence {confidence:.2f}) "


def not_understood(text: str, where: str = "") -> str:
    """An answer that means nothing."""
    place = f"{where}: " if where else ""
    return f"{place}{text[:80]!r} is no answer; give {KINDS}"


def ambiguous(text: str, where: str = "") -> str:
    """*No* alone does not say what the image shows."""
    place = f"{where}: " if where else ""
    return f"{place}{text!r} is not enough: give the name or number of the class, or none"


def written(file: object, questions: int, classes: Sequence[str], command: str) -> list[str]:
    """What to do with a file of questions."""
    return [
        f"{file}: {count(questions, 'question')}; fill in the column answer with {KINDS}",
        numbered(classes),
        f"next:    {command}",
    ]


def page_at(address: str) -> str:
    """Where the page is."""
    return f"answer the questions at {address}; Ctrl-C stops, and the answers so far are kept"


def kept(answered: int, total: int) -> str:
    """After an interruption."""
    return f"answers are kept ({answered} of {total}); the same command continues"


def too_few(kept: int, needed: int) -> str:
    """Too few images are kept for a review."""
    return f"{are(kept, 'image')} kept; a review needs {needed}"


def going_on(answered: int, total: int) -> str:
    """After an earlier interruption."""
    return f"{answered} of {count(total, 'question')} answered before; the others follow"


def forgotten(output: object, threshold: float) -> str:
    """After ``--forget-review``."""
    return f"{output}: the threshold is {threshold:.3g}, as before the review"


def result(output: object, review: Mapping[str, Any]) -> list[str]:
    """What a review changed and measured."""
    before, after = review["before"]["strictness"], review["threshold"]
    change = f"threshold {before:.3g} → {after:.3g}" if after != before else f"threshold {after:.3g}, as before"
    merged = [f"cluster {cluster} is {name}" for cluster, name in review["merged"].items()]
    return [
        f"{output}: {review['answered']} of {count(review['asked'], 'question')} answered",
        "; ".join([change, *merged]),
        *measured(review["measured"]),
    ]


def measured(figures: Mapping[str, Any]) -> list[str]:
    """The measured figures with their intervals."""
    lines = []
    for name, meaning in FIGURES.items():
        value, (low, high) = figures[name]["value"], figures[name]["interval"]
        shown = "not measured: no answer bears on it"
        if value is not None:
            shown = f"{value:.0f} % (90 % interval {low:.0f} to {high:.0f} %)"
        lines.append(f"{meaning}: {shown}")
    return lines

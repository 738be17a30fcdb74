"""A person's stage: ``review``, which turns answers for a few images into a better threshold and a measurement."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..card import BeforeReview, Card, Deployment, ReviewCard
from ..config import Config
from ..data.reading import read_target
from ..data.samples import Features, Place
from ..errors import InputError
from ..methods.heads import updatable_head
from ..methods.review import NONE, Answers, Choice, Decided, choose, draw, measure, widened, without_each
from ..model import Model, as_model
from ..text import review as text
from .common import unknown_counts

COUNT = 20  # questions, by default
YES, NO, NO_CLASS, SKIP = ({"y", "yes"}, {"n", "no"}, {"none", "none of these"}, {"", "s", "skip"})


@dataclass(frozen=True)
class Question:
    """Is this image of its best class?

    Parameters
    ----------
    row : int
        Its row in the target.
    name : str
        The image's path, or the row of a vector.
    guess : str
        The best class, whether the sample is accepted or not.
    confidence : float
        That it is of a known class.
    probability : float
        With which it was drawn.
    place : Path, Url or Held, optional
        Where the image is.
    """

    row: int
    name: str
    guess: str
    confidence: float
    probability: float
    place: Place | None = None


def review(
    model: Model | str | Path,
    target: Any,
    answers: Mapping[str, str] | Callable[[Question], str],
    *,
    count: int = COUNT,
    seed: int = 0,
    config: Config | None = None,
) -> Model:
    """A model whose threshold follows a person's answers, with figures that they measured.

    The given model is not changed. The card of the result has statistics of the answers alone.

    Parameters
    ----------
    model : Model or path
        One that was adapted.
    target : path, sequence of paths or images, array, Samples or Features
        What it was adapted to, or other samples of the same domain.
    answers : callable or mapping of str to str
        The answer to a ``Question``, or answers by the name of the image or the row of the vector: ``yes``, a class by
        name or number, ``none`` or ``skip``. What a mapping does not have is skipped.
    count : int
        Questions.
    seed : int
        Of the draw of the questions.
    config : Config, optional
        How to run.

    Examples
    --------
    >>> reviewed = review(model, "new-photos/", lambda question: input(f"{question.name}: {question.guess}? "))
    ... # doctest: +SKIP
    """
    survey = Survey.of(model, target, config)
    asked = survey.questions(count, seed)
    answer = (lambda question: answers.get(question.name, "")) if isinstance(answers, Mapping) else answers
    return survey.finish([(question, answer(question)) for question in asked])


def forget_review(model: Model | str | Path) -> Model:
    """The model as it decided before its first review."""
    model = as_model(model)
    deployed = model.card["deployment"]
    if deployed is None or "review" not in deployed:
        raise InputError(text.NO_REVIEW)
    return _with(model, None, deployed["review"]["before"])


@dataclass(frozen=True)
class Survey:
    """A model and a target that questions are asked about."""

    model: Model
    features: Features

    @classmethod
    def of(cls, model: Model | str | Path, target: Any, config: Config | None = None) -> Survey:
        """Reads the target as vectors."""
        model = as_model(model)
        if not model.adapted:
            raise InputError(text.NOT_ADAPTED)
        return cls(model, model.features(read_target(target), config=config, text="target features"))

    @cached_property
    def decided(self) -> Decided:
        """The target as the model decides it now."""
        found = self.model.decide(self.features.X, probabilities=False)
        cluster = np.zeros(len(found.best), int) if found.cluster is None else found.cluster
        return Decided(found.score, found.best, cluster, self.model.strictness, len(self.model.classes_))

    def questions(self, count: int = COUNT, seed: int = 0) -> list[Question]:
        """Questions in random order: those that are answered first are a random part of them."""
        if count < 1:
            raise InputError(f"count is at least 1, not {count}")
        rows, probability = draw(self.decided, count, np.random.default_rng(seed))
        return [self.question(row, share) for row, share in zip(rows.tolist(), probability.tolist(), strict=True)]

    def question(self, row: int, probability: float, guess: str | None = None) -> Question:
        """The question about a row; whether the ``guess`` is right is asked instead of the best class."""
        place = None if self.features.paths is None else self.features.paths[row]
        guess = guess or self.model.classes_[self.decided.best[row]]
        return Question(row, self._name(row), guess, float(self.decided.score[row]), probability, place)

    def _name(self, row: int) -> str:
        return str(row if self.features.paths is None else self.features.paths[row])

    def rows(self, names: Sequence[str], spelled: Callable[[str], str] = str) -> list[int]:
        """The rows of names, which must be of the target; ``spelled`` is how a name is written."""
        place = {spelled(self._name(row)): row for row in range(len(self.features))}
        if missing := [name for name in names if name not in place]:
            raise InputError(f"{missing[0]} is not an image of the target; give the target that was asked about")
        return [place[name] for name in names]

    def key(self, asked: Iterable[Question]) -> str:
        """Of the model, the target and the questions: what was answered for other ones does not count."""
        asked = list(asked)
        digest = hashlib.sha256(f"{self.model.vendor_sha256} {self.model.strictness} {len(self.features)}".encode())
        for name, tensor in sorted(self.model.head.tensors().items()):
            digest.update(name.encode() + tensor.tobytes())
        for question in asked:
            digest.update(f"{question.row} {question.probability}".encode())
        digest.update(self.features.X[np.asarray([question.row for question in asked])].tobytes())
        return digest.hexdigest()

    def understand(self, answer: str, guess: str, where: str = "") -> int | None:
        """The position of the class that is meant, ``NONE``, or None for a skipped question."""
        said, classes = answer.strip(), self.model.classes_
        word = said.casefold()
        if said in classes and word not in YES | NO | NO_CLASS | SKIP:
            return classes.index(said)
        if word in SKIP:
            return None
        if word in YES:
            return classes.index(guess)
        if word in NO_CLASS:
            return NONE
        if word in NO:
            raise InputError(text.ambiguous(said, where))
        alike = [i for i, name in enumerate(classes) if name.casefold() == word]
        if len(alike) == 1:
            return alike[0]
        if said.isascii() and said.isdecimal() and 1 <= int(said[:9]) <= len(classes):
            return int(said) - 1
        raise InputError(text.not_understood(said, where))

    def finish(self, given: Iterable[tuple[Question, str]]) -> Model:
        """The model that the answers give."""
        given = list(given)
        found = [self.understand(answer, question.guess, question.name) for question, answer in given]
        answered = [(q, truth) for (q, _), truth in zip(given, found, strict=True) if truth is not None]
        if not answered:
            raise InputError(text.NO_ANSWER)
        rows = np.asarray([q.row for q, _ in answered])
        truth = np.asarray([truth for _, truth in answered])
        answers = Answers(rows, truth, np.asarray([q.probability for q, _ in answered]))
        deployed = self.model.deployment
        most = deployed.get("reject_at_most", 100.0) / 100
        choice = choose(self.decided, answers, most)
        right = self._right(answers, without_each(self.decided, answers, most))
        fitted = self._right(answers, [choice] * len(answered))
        figures = widened(*(measure(truth, one, answers.probability) for one in (right, fitted)))
        best = self.decided.best[rows] == truth
        known = answers.known
        merged = self._merged(choice)
        card: ReviewCard = {
            "asked": len(given),
            "answered": len(answered),
            "answers": {
                "right": int(best.sum()), "other": int((known & ~best).sum()), "none": int((~known).sum()),
                "skipped": len(given) - len(answered),
            },
            "threshold": choice.threshold,
            "merged": {str(cluster): self.model.classes_[name] for cluster, name in merged.items()},
            "measured": {
                name: {"value": _rounded(one.value), "interval": [round(end, 2) for end in one.interval]}
                for name, one in figures.items()
            },  # type: ignore[typeddict-item]
            "before": deployed["review"]["before"] if "review" in deployed else _state(deployed),
        }  # fmt: skip
        changed = self._decides(choice)
        decided = changed.decide(self.features.X, probabilities=False)
        state: BeforeReview = {
            "strictness": choice.threshold, "unknown_share": round(100 * float(np.mean(~decided.known)), 2),
        }  # fmt: skip
        if decided.cluster is not None:
            state = {**state, **unknown_counts(decided, np.ones(len(self.features)))}
        return _with(changed, card, state)

    def _merged(self, choice: Choice) -> dict[int, int]:
        """With those of earlier reviews."""
        mixture = updatable_head(self.model.head)
        earlier = {} if mixture is None else mixture.merged
        return {**earlier, **choice.merged}

    def _decides(self, choice: Choice) -> Model:
        """The model with a choice."""
        m, head, merged = self.model, self.model.head, self._merged(choice)
        if (mixture := updatable_head(head)) is not None and merged:
            clusters = len(mixture.bias) - mixture.classes
            assigned = [merged.get(cluster, NONE) for cluster in range(1, clusters + 1)]
            head = replace(mixture, assigned=np.asarray(assigned, np.float32))
        return Model(m.source_classes, m.vendor, head, m.backbone, m.card, m.taught, choice.threshold)

    def _right(self, answers: Answers, choices: list[Choice]) -> np.ndarray:
        """Whether each answered sample is labelled right by a choice of its own."""
        right = np.empty(len(choices), bool)
        for choice in choices:
            same = np.asarray([other == choice for other in choices])  # most are
            if choice is choices[int(np.argmax(same))]:
                found = self._decides(choice).decide(self.features.X[answers.rows[same]], probabilities=False)
                right[same] = np.where(found.known, found.best, NONE) == answers.truth[same]
        return right


def _state(deployed: Deployment) -> BeforeReview:
    """What a review changes."""
    state: BeforeReview = {"strictness": deployed["strictness"], "unknown_share": deployed["unknown_share"]}
    check = deployed.get("check", {})
    if "clusters" in check and "outliers" in check:
        state |= {"clusters": check["clusters"], "outliers": check["outliers"]}
    return state


def _with(model: Model, card: ReviewCard | None, state: BeforeReview) -> Model:
    """The model with a state and a review; without a review its clusters are merged with no class."""
    head, deployed = model.head, model.deployment.copy()
    deployed["strictness"], deployed["unknown_share"] = state["strictness"], state["unknown_share"]
    if "check" in deployed and "clusters" in state:
        deployed["check"] = {**deployed["check"], "clusters": state["clusters"], "outliers": state["outliers"]}
    deployed.pop("review", None)
    if card is not None:
        deployed["review"] = card
    elif (mixture := updatable_head(head)) is not None:
        head = replace(mixture, assigned=None)
    whole: Card = {**model.card, "deployment": deployed}
    return Model(model.source_classes, model.vendor, head, model.backbone, whole, model.taught, deployed["strictness"])


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def probability_of(value: str, where: str) -> float:
    """The probability of a draw, from a file that somebody else has edited."""
    try:
        found = float(value)
    except ValueError:
        found = math.nan
    if not 0 < found <= 1:
        raise InputError(f"{where}: the probability must be above 0 and at most 1, not {value[:40]!r}")
    return found

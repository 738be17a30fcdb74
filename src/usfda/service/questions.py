"""The questions of a review as a page has them, and the answers that it sends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import BaseModel, Field, StringConstraints

from ..errors import InputError
from ..stages.review import Question, Survey

Answer = Annotated[str, Field(max_length=255)]
Id = Annotated[str, StringConstraints(pattern="^[0-9]{1,12}$")]


class AskedQuestion(BaseModel):
    """Is this image of the class ``guess``? ``answer`` is None until it is answered."""

    id: str
    name: str
    guess: str
    confidence: float
    picture: str
    answer: str | None


class Questions(BaseModel):
    """The questions of a review, and the classes by their number, from 1."""

    classes: list[str]
    questions: list[AskedQuestion]


class Given(BaseModel):
    """Answers by the id of their question: ``yes``, a class by name or number, ``none``, ``skip``."""

    answers: Annotated[dict[Id, Answer], Field(max_length=1000)]
    finish: bool = False


class Reviewed(BaseModel):
    """How many questions are answered; after ``finish``, what the answers changed and measured."""

    answered: int
    result: list[str] = []


def questions_of(
    survey: Survey, asked: Sequence[Question], kept: Mapping[int, str], picture: Callable[[Question], str]
) -> Questions:
    """The questions for a page."""
    found = [
        AskedQuestion(
            id=str(one.row), name=one.name, guess=one.guess, confidence=one.confidence, picture=picture(one),
            answer=kept.get(one.row),
        )
        for one in asked
    ]  # fmt: skip
    return Questions(classes=survey.model.classes_, questions=found)


def take_answers(survey: Survey, asked: Sequence[Question], given: Given, kept: MutableMapping[int, str]) -> None:
    """Keep answers; ``InputError`` for one that is not understood."""
    by_id = {str(one.row): one for one in asked}
    for number, answer in given.answers.items():
        if number not in by_id:
            raise InputError(f"there is no question {number}")
        survey.understand(answer, by_id[number].guess)
        kept[by_id[number].row] = answer


@dataclass(frozen=True)
class Asked:
    """A review that goes on: the sha256 of its model, its questions, and the answers by row."""

    model: str
    survey: Survey
    questions: Sequence[Question]
    answers: dict[int, str] = field(default_factory=dict)

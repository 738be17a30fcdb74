"""The command ``usfda review``: a person answers for a few images, in the terminal, in a file or on a page."""

from __future__ import annotations

import csv
import io
import json
import logging
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import config as configuration
from ..config import Config
from ..errors import InputError
from ..files import atomic_write, read_json, read_text, rows_of
from ..text import review as text
from ..text.commands import command
from .arguments import BackboneFile, JsonOut, PlaceOfModel, Seed, Signed, WithoutBackbone, model_of
from .output import check_output, in_utf8, out, printable, write_json

if TYPE_CHECKING:
    from ..stages.review import Question, Survey

log = logging.getLogger("usfda")
COLUMNS = ("path", "guess", "confidence", "probability", "answer")
VIEWERS = ("xdg-open", "open")


def review(
    ctx: typer.Context,
    model: PlaceOfModel,
    target: Annotated[
        list[str] | None, typer.Argument(metavar="TARGET", help="Images, folders, lists, features (.npz), `-`.")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="The .usfda file to write.")] = (
        None
    ),
    count: Annotated[int, typer.Option(min=1, help="Questions.")] = 20,
    write: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the questions to a CSV file, for somebody to answer.")
    ] = None,
    answers: Annotated[Path | None, typer.Option(metavar="FILE", help="Read the answers from that file.")] = None,
    page: Annotated[bool, typer.Option("--page", help="Answer on a page in the browser, with pictures.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the page; 0 is any that is free.")] = 0,
    json_file: JsonOut = None,
    forget: Annotated[
        bool, typer.Option("--forget-review", help="Take a review back: the threshold is as before.")
    ] = False,
    seed: Seed = 0,
    backbone: BackboneFile = None,
    without_backbone: WithoutBackbone = False,
    signed_by: Signed = None,
) -> None:
    """Answer for a few images: the threshold follows, and the result is measured.

    Asks for images of TARGET whether the best class is right, sets the rejection threshold of MODEL accordingly, merges
    clusters that are a known class, and reports shared accuracy, T_unk and H with 90 % intervals. OUTPUT has statistics
    of the answers, no image. Interrupted, the same command goes on where it stopped.

    Examples: `usfda review client.usfda new-photos/ -o reviewed.usfda`, the same with `--page`, or

    `usfda review client.usfda new-photos/ --write ask.csv`, later
    `usfda review client.usfda new-photos/ --answers ask.csv -o reviewed.usfda`
    """
    from ..data.reading import read_several
    from ..stages.review import Survey, forget_review

    if sum((write is not None, answers is not None, page, forget)) > 1:
        raise InputError("--write, --answers, --page and --forget-review exclude each other; give one of them")
    if output is None and write is None:
        raise InputError("name the file to write with -o")
    check_output(json_file, write, model=output, source=model, inputs=[*(target or []), answers, backbone])
    ready = model_of(model, backbone, signed_by, inputs=target or [])
    if forget:
        before = forget_review(ready)
        before.save(output, backbone=not without_backbone)  # type: ignore[arg-type]
        log.info("%s", text.forgotten(output, before.strictness))
        return
    if not target:
        raise InputError("name the images to ask about: usfda review MODEL TARGET -o MODEL")
    survey = Survey.of(ready, read_several(target), ctx.obj)
    if answers is not None:
        given = read_answers(answers, survey)
    else:
        asked = survey.questions(count, seed)
        if write is not None:
            write_questions(write, asked)
            again = command("review", str(model), *target, "--answers", str(write), "-o", "FILE")
            for line in text.written(write, len(asked), ready.classes_, again):
                log.info("%s", line)
            return
        assert output is not None
        with kept_answers(ctx.obj, output, survey.key(asked), asked) as kept:
            if page:
                from ..service.review import answer_on_page

                answer_on_page(survey, asked, kept, port)
            else:
                answer_in_terminal(survey, asked, kept, view=ctx.obj.progress is not configuration.silent)
            given = [(question, kept[question.row]) for question in asked]
            result = survey.finish(given)
            result.save(output, backbone=not without_backbone)
    if answers is not None:
        result = survey.finish(given)
        assert output is not None
        result.save(output, backbone=not without_backbone)
    found = result.deployment["review"]
    facts = {key: value for key, value in found.items() if key != "before"}
    write_json(json_file, facts)
    for line in text.result(output, found):
        out.print(printable(line))


class Kept(dict[int, str]):
    """Answers by row, saved to a file as soon as they are given."""

    def __init__(self, file: Path, key: str):
        super().__init__()
        self.file, self.key = file, key
        if file.is_file():
            found = read_json(file)
            if isinstance(found, dict) and found.get("key") == key and isinstance(found.get("answers"), dict):
                self.update({int(row): str(said) for row, said in found["answers"].items()})

    def give(self, row: int, answer: str) -> None:
        """Keep an answer."""
        self[row] = answer
        with atomic_write(self.file) as file:
            file.write(json.dumps({"key": self.key, "answers": self}).encode())


@contextmanager
def kept_answers(config: Config, output: Path, key: str, asked: Sequence[Question]) -> Iterator[Kept]:
    """The answers so far, in the cache or beside the output; they are removed once the model is written."""
    folder = output.absolute().parent if config.cache is None else config.cache / "reviews"
    kept = Kept(folder / f".{key[:32]}.review.json", key)
    if kept:
        log.info("%s", text.going_on(len(kept), len(asked)))
    try:
        yield kept
    except BaseException:
        if kept:
            log.info("%s", text.kept(len(kept), len(asked)))
        raise
    kept.file.unlink(missing_ok=True)


def answer_in_terminal(survey: Survey, asked: Sequence[Question], kept: Kept, view: bool) -> None:
    """Ask one question after the other."""
    out.print(printable(text.numbered(survey.model.classes_)))
    out.print(text.KEYS)
    viewer = next(filter(None, map(shutil.which, VIEWERS)), None) if view and _is_terminal() else None
    for number, question in enumerate(asked, 1):
        if question.row in kept:
            continue
        if viewer is not None and isinstance(question.place, Path):
            subprocess.Popen(
                [viewer, str(question.place.absolute())],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        ask = text.question(
            number, len(asked), printable(question.name), printable(question.guess), question.confidence
        )
        while True:
            said = _said(ask)
            if not said:
                continue
            try:
                survey.understand(said, question.guess)
            except InputError as error:
                if said.casefold() not in ("n", "no"):
                    out.print(printable(str(error)))
                ask = text.WHICH
                continue
            kept.give(question.row, said)
            break


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _said(question: str) -> str:
    """What is typed; the end of the input, and ``quit``, interrupt the command."""
    print(question, end="", flush=True)
    line = sys.stdin.readline()
    if not line or line.strip().casefold() == "quit":
        raise KeyboardInterrupt
    return line.strip()


def write_questions(file: Path, asked: Sequence[Question]) -> None:
    """The questions as CSV, with an empty column for the answers."""
    with in_utf8() as escaped, atomic_write(file) as raw:
        content = io.StringIO(newline="")
        writer = csv.writer(content)
        writer.writerow(COLUMNS)
        for one in asked:
            row = [escaped(one.name), one.guess, f"{one.confidence:.4f}", repr(one.probability), ""]
            writer.writerow(row)
        raw.write(content.getvalue().encode())


def read_answers(file: Path, survey: Survey) -> list[tuple[Question, str]]:
    """Questions and answers of such a file, which somebody else has edited."""
    from ..stages.review import probability_of

    head, *rows = rows_of(read_text(file), file) or [[]]
    names = [name.strip().casefold() for name in head]
    if missing := [name for name in COLUMNS if name not in names and name != "confidence"]:
        raise InputError(f"{file}: has no column {missing[0]}; its columns are those that --write gives")
    if wrong := [i for i, row in enumerate(rows, 2) if len(row) != len(head)]:
        raise InputError(f"{file}: line {wrong[0]} has another number of columns than the first")
    found: list[dict[str, Any]] = [dict(zip(names, row, strict=True)) for row in rows]
    if len({one["path"] for one in found}) < len(found):
        raise InputError(f"{file}: names an image twice")
    given = []
    with in_utf8() as escaped:
        places = survey.rows([one["path"] for one in found], escaped)
    for line, (row, one) in enumerate(zip(places, found, strict=True), 2):
        where = f"{file}: line {line}"
        if one["guess"] not in survey.model.classes_:
            raise InputError(f"{where}: {one['guess'][:80]!r} is no class of this model; ask again with --write")
        question = survey.question(row, probability_of(one["probability"], where), one["guess"])
        survey.understand(one["answer"], one["guess"], where)
        given.append((question, one["answer"]))
    return given

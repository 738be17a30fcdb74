"""The commands that a message suggests: made and quoted here, and nowhere else."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from ..methods.findings import Findings, Reliability
from .words import SHOWN


@dataclass(frozen=True)
class Step:
    """What to do next: a word for it, the command, and its purpose."""

    name: str
    command: str
    why: str


def command(name: str, *words: str) -> str:
    """A line that a shell reads as ``usfda name words…``."""
    return shlex.join(["usfda", name, *words])


def beside(model: str, word: str) -> str:
    """The name of a file that is made of a model, other than its own: the earlier one is the only way back."""
    return f"{model.removesuffix('.usfda')}-{word}.usfda"


def model_words(model: str, backbone: str | None) -> list[str]:
    """The words that name a model: its file, and its backbone where the file is without it."""
    return [model] if backbone is None else [model, "--backbone", backbone]


def next_steps(findings: Findings | None, model: str, *target: str, backbone: str | None = None) -> list[Step]:
    """The commands that come next, for a model file and its target; None for a model that was not adapted.

    The first is the most important. ``backbone`` is what must be named where the file does not have it.
    """
    used = model_words(model, backbone)
    if findings is None:
        line = command("adapt", *used, *target, "-o", "client.usfda")
        return [Step("adapt", line, "fit the model to these images, without labels")]
    steps = [
        Step("look", command("report", *used, *target, "-o", "report.html"), "see the images, their labels, clusters")
    ]
    if findings.reliability is not Reliability.HIGH:
        line = command("review", *used, *target, "-o", beside(model, "reviewed"))
        why = "answer questions about a few images: this improves the model and measures its accuracy"
        steps.insert(0, Step("review", line, why))
    if findings.clusters:
        # Together in one command, since the clusters that remain are numbered anew.
        names = [word for c in findings.clusters[:SHOWN] for word in ("--name", f"{c.number}=NAME")]
        why = "named clusters become classes; a list of path,label instead of the names corrects wrong labels"
        steps.append(Step("teach", command("teach", model, *names, "-o", beside(model, "taught")), why))
    elif findings.verdict in ("better", "same"):
        why = "add classes: a folder with one folder for each new class, a few images in each"
        steps.append(Step("teach", command("teach", *used, "EXAMPLES", "-o", beside(model, "taught")), why))
    return [*steps, Step("use it", command("predict", *used, "PATH..."), "label further images")]

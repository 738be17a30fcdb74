"""What teaching changed, in sentences."""

from __future__ import annotations

from ..methods.findings import Findings
from .commands import Step, beside, command, model_words
from .findings import adapted_to
from .words import count

RENUMBERED = "the remaining clusters have new numbers: look at them again before you name another"


def result(file: str, classes: int, findings: Findings) -> str:
    """The result, in one line."""
    return f"{file}: {count(classes, 'class')}; adapted to {adapted_to(findings)}"


def joins(number: int, name: str) -> str:
    """A cluster that was given the name of a class that the model has."""
    return f"cluster {number} joins {name}"


def next_steps(findings: Findings, model: str, backbone: str | None) -> list[Step]:
    """The commands that come next."""
    used = model_words(model, backbone)
    look = [Step("look", command("report", *used, "PATH...", "-o", "report.html"), "see the clusters that remain")]
    update = command("adapt", *used, "PATH...", "--update", "-o", beside(model, "updated"))
    return [
        *(look if findings.clusters else ()),
        Step("use it", command("predict", *used, "PATH..."), "label further images"),
        Step("more", update, "adapt to more images"),
    ]

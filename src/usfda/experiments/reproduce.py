"""`usfda reproduce`: the paper's tables and figures, one name each.

An experiment asks the lab for runs and makes of their records a result: what the table says, and a figure. Runs are
kept as they finish; one that is there is not repeated.
"""

from __future__ import annotations

import csv
import io
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from ..backbones import DEFAULT
from ..baselines import core_code
from ..datasets import NAMES, DataSet, choose, find
from ..protocols import Task
from ..runtime import InputError, console, progress, runtime, whole_file
from .display import describe
from .jobs import Domains, Variant, jobs_for, key_of, prepare
from .runs import Job, Journal, run_all
from .tables import markdown_table

log = logging.getLogger("usfda")


@dataclass(frozen=True)
class Result:
    """What an experiment found."""

    title: str
    text: Sequence[str]  # paragraphs: what was done, how to read it
    tables: Mapping[str, tuple[Sequence[str], Sequence[Sequence[str]]]]  # caption to head and rows, as shown
    rows: Sequence[Mapping[str, Any]]  # the same as data
    figure: Figure


@dataclass(eq=False)
class Lab:
    """Where an experiment takes place: the data, the tasks that were asked for, the seeds, the runs so far."""

    name: str
    data: Path
    out: Path
    wanted: str | None = None
    seeds: int = 5
    backbone: str = DEFAULT
    shared: Mapping[str, str] | None = None  # Caltech class to wnid
    failed: list[dict[str, Any]] = field(default_factory=list)
    sets: list[DataSet] = field(default_factory=list)  # that were found
    versions: list[dict[str, str]] = field(default_factory=list)  # that the runs were made with

    @property
    def shown_backbone(self) -> str:
        """Its name without the place of a file."""
        return re.sub(r"[^:]*[/\\]", "", self.backbone)

    @cached_property
    def domains(self) -> Domains:
        return Domains(self.backbone)

    @cached_property
    def journal(self) -> Journal:
        return Journal(self.out / "runs.jsonl")

    def find(self, keys: Sequence[str]) -> list[str]:
        """Looks for these data sets; what is missing, in words. None of them is an error."""
        if not self.data.is_dir():
            raise InputError(f"{self.data}: no such folder")
        missing = []
        for key in keys:
            try:
                self.sets.append(find(self.data, key, self.shared))
            except InputError as error:
                missing.append(str(error).removeprefix(f"{self.data}: "))
        if not self.sets:
            raise InputError(f"{self.data}: {'; '.join(missing)}")
        return missing

    def choose(self, missing: Sequence[str]) -> list[tuple[DataSet, tuple[str, str]]]:
        """The tasks that were asked for."""
        try:
            return choose(self.sets, self.wanted)
        except InputError as error:
            raise InputError("; ".join([str(error), *missing])) from None

    @cache  # noqa: B019  one lab a process
    def task(self) -> tuple[DataSet, tuple[str, str]]:
        """The one that was asked for, or the first of the first data set that is there: A→D of Office-31."""
        missing = self.find(list(NAMES))
        pairs = self.choose(missing)
        if self.wanted is not None and len(pairs) > 1:
            raise InputError(f"{self.name} is about one task; --tasks names {len(pairs)}")
        found, pair = pairs[0]
        if found.name != "Office-31":
            log.info("the paper's task is A→D of Office-31; this is %s of %s", "→".join(pair), found.name)
        return found, pair

    def run(self, tasks: Sequence[Task], variants: Sequence[Variant]) -> list[dict[str, Any]]:
        """Records of all variants on all tasks with all seeds."""
        jobs = jobs_for(tasks, variants, self.seeds, self.domains)
        return self.do(jobs, prepare)

    def measure(
        self,
        task: Task,
        function: Callable[..., dict[str, Any]],
        settings: Sequence[Mapping[str, Any]],
        in_turn: bool = False,
    ) -> list[dict[str, Any]]:
        """Records of ``function(source, target, seed, given)`` for each of the settings and seeds."""
        source, target = self.domains.sides(task)
        labelled = source.as_source(task.negative_classes)
        key = key_of(task, source, target) | {"code": core_code()}
        jobs = [
            Job({**key, **given, "seed": seed}, function, (labelled, target, seed, given))
            for given in settings
            for seed in range(self.seeds)
        ]
        shared = Variant("paper").make()
        return self.do(jobs, lambda left: shared.prepare(labelled) if left and not in_turn else None, in_turn)

    def do(
        self, jobs: Sequence[Job], before: Callable[[list[Job]], None] = lambda left: None, in_turn: bool = False
    ) -> list[dict[str, Any]]:
        records, left = self.journal.resume(jobs)
        before(left)
        with progress(len(left), self.name, "runs") as advance:
            for record in run_all(left, self.journal, in_turn):
                (self.failed if "error" in record else records).append(record)
                advance(1)
                if not (runtime.progress and console.is_terminal):
                    log.info("%d of %d: %s", len(records) + len(self.failed), len(jobs), describe(record))
        if not records:
            raise RuntimeError(f"all runs failed: {self.failed[-1]['error']}")
        for record in records:
            if record["versions"] not in self.versions:
                self.versions.append(record["versions"])
        return records


def experiments() -> dict[str, Callable[[Lab], Result]]:
    from . import ablations, complexity, gaps, paper_tables

    return {
        "table1": paper_tables.table1,
        "table2": paper_tables.table2,
        "fig-ssm": ablations.ssm,
        "fig-beta": ablations.beta,
        "fig-alpha": ablations.alpha,
        "fig-batch-ratio": ablations.batch_ratio,
        "fig-negatives": ablations.negatives,
        "fig-gap": gaps.grid,
        "one-shot": gaps.nothing_shared,
        "complexity": complexity.complexity,
    }


def reproduce(lab: Lab) -> Result:
    """Runs the experiment and writes NAME.md, .csv, .svg and .png to the lab's folder, beside runs.jsonl."""
    every = experiments()
    if lab.name not in every:
        raise InputError(f"no experiment {lab.name!r}; there is {', '.join(every)}")
    result = every[lab.name](lab)
    result.figure.suptitle(f"{result.title} ({lab.shown_backbone})", fontsize=10)
    table = io.StringIO()
    writer = csv.DictWriter(table, list(result.rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()} for row in result.rows)
    picture = {kind: io.BytesIO() for kind in ("svg", "png")}
    with rc_context({"svg.hashsalt": lab.name}):  # neither a date nor random names: the same numbers, the same file
        result.figure.savefig(picture["svg"], format="svg", metadata={"Date": None})
        result.figure.savefig(picture["png"], format="png", dpi=150)
    contents = {"csv": table.getvalue().encode(), "md": page(lab, result).encode()}
    for kind, content in (contents | {kind: buffer.getvalue() for kind, buffer in picture.items()}).items():
        with whole_file(lab.out / f"{lab.name}.{kind}") as file:
            file.write(content)
    return result


def page(lab: Lab, result: Result) -> str:
    parts = [f"# {result.title}", *result.text]
    command = f"usfda reproduce {lab.name} --data DIR --seeds {lab.seeds} --backbone {lab.shown_backbone}"
    command += f" --tasks {lab.wanted}" if lab.wanted else ""
    command += " --shared FILE" if lab.shared is not None else ""
    parts.append(f"```\n{command}\n```")
    for caption, (head, rows) in result.tables.items():
        parts += [f"**{caption}**", markdown_table(head, rows)]
    parts.append(f"![{result.title}]({lab.name}.svg)")
    parts += [f"{line}." for found in lab.sets for line in found.notes]
    if differences := [line for found in lab.sets for line in found.differences]:
        parts.append("Data that is not as published: " + "; ".join(differences) + ".")
    if lab.failed:
        last = lab.failed[-1]["error"]
        parts.append(f"{len(lab.failed)} runs failed and are left out (last: {last}); the same call tries them again.")
    used = [", ".join(f"{name} {number}" for name, number in made.items()) for made in lab.versions]
    parts.append(f"Seeds 0 to {lab.seeds - 1}; backbone {lab.shown_backbone}; {'; some runs: '.join(used)}.")
    return "\n\n".join(parts) + "\n"

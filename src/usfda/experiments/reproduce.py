"""`usfda reproduce`: the paper's tables and figures, one experiment each.

An experiment asks the runner for records and makes a result of them: a table and a figure.
"""

from __future__ import annotations

import io
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..backbones.zoo import DEFAULT
from ..config import Config
from ..errors import InputError
from ..files import atomic_write
from .datasets import FoundBenchmark, choose, find
from .figures import Picture, rc_context
from .protocols import NAMES, Pair
from .runner import Baselines, Runner, Settings
from .runs import Experiment, Record
from .tables import csv_table, markdown_table, measured, with_provenance, write_text
from .tasks import Task

log = logging.getLogger("usfda")


@dataclass(frozen=True)
class Result:
    """What an experiment found."""

    title: str
    text: Sequence[str]  # paragraphs: what was done, how to read it
    tables: Mapping[str, tuple[Sequence[str], Sequence[Sequence[str]]]]  # caption to head and rows, as shown
    rows: Sequence[Mapping[str, Any]]  # the same as data
    picture: Picture


class DataFolder:
    """The data sets in a folder, and which tasks of them are asked for.

    Parameters
    ----------
    folder : Path
        Has one or several data sets in it.
    wanted : str, optional
        Tasks, such as ``A-D,D-W``.
    shared : dict, optional
        For ImageNet-Caltech: Caltech class to wnid of each shared class.
    """

    def __init__(self, folder: Path, wanted: str | None = None, shared: Mapping[str, str] | None = None):
        self.folder, self.wanted, self.shared = folder, wanted, shared
        self.benchmarks: list[FoundBenchmark] = []
        self.missing: list[str] = []  # what was looked for and is not there, in words

    def find(self, names: Sequence[str]) -> None:
        """Look for data sets; that none of them is there is an error."""
        if not self.folder.is_dir():
            raise InputError(f"{self.folder}: no such folder")
        for name in names:
            try:
                self.benchmarks.append(find(self.folder, name, self.shared))
            except InputError as error:
                self.missing.append(str(error).removeprefix(f"{self.folder}: "))
        if not self.benchmarks:
            raise InputError(f"{self.folder}: {'; '.join(self.missing)}")

    def chosen(self) -> list[tuple[FoundBenchmark, Pair]]:
        """The tasks that were asked for, of the data sets that were found."""
        try:
            return choose(self.benchmarks, self.wanted)
        except InputError as error:
            raise InputError("; ".join([str(error), *self.missing])) from None

    def one_task(self, experiment: str) -> tuple[FoundBenchmark, Pair]:
        """The task that was asked for, or the first of the first data set that is there: A→D of Office-31."""
        self.find(list(NAMES))
        pairs = self.chosen()
        if self.wanted is not None and len(pairs) > 1:
            raise InputError(f"{experiment} is about one task; --tasks names {len(pairs)}")
        found, pair = pairs[0]
        if found.id != "office31":
            log.info("the paper's task is A→D of Office-31; this is %s of %s", "→".join(pair), found.name)
        return found, pair


class PaperExperiment(Experiment, ABC):
    """A table or a figure of the paper."""

    @abstractmethod
    def result(self, runner: Runner, data: DataFolder) -> Result:
        """Run it."""

    def records(self, runner: Runner, tasks: Sequence[Task], baselines: Baselines) -> dict[str, list[Record]]:
        """The records of all runs by label; an error where every run failed."""
        found = runner.run(self, tasks, baselines)
        if not any(found.values()):
            raise RuntimeError(f"all runs failed: {runner.failed[-1]['error']}")
        return found


def reproduce(
    experiment: PaperExperiment,
    data: Path,
    out: Path,
    *,
    tasks: str | None = None,
    shared: Mapping[str, str] | None = None,
    seeds: int = 5,
    backbone: str = DEFAULT,
    settings: Mapping[str, Settings] | None = None,
    config: Config | None = None,
    log_runs: bool = False,
) -> tuple[Result, Runner]:
    """Run an experiment and write its table and figure.

    Every run is kept in ``runs.jsonl`` when it is finished; one that is there is not repeated.

    Parameters
    ----------
    experiment : PaperExperiment
        As ``get_experiment(name)`` gives it.
    data : Path
        Folder of one or several data sets, as they are distributed.
    out : Path
        Folder for runs.jsonl and for NAME.md, .csv, .svg and .png.
    tasks : str, optional
        Such as ``A-D,D-W``; all by default, for a figure the first.
    shared : dict, optional
        For ImageNet-Caltech: Caltech class to wnid of each shared class.
    seeds, backbone, settings, config, log_runs
        As for ``Runner``.
    """
    runner = Runner(out, backbone=backbone, seeds=seeds, settings=settings, config=config, log_runs=log_runs)
    folder, name = DataFolder(data, tasks, shared), experiment.name
    result = experiment.result(runner, folder)
    result.picture.suptitle(f"{result.title} ({runner.backbone_name})", fontsize=10)
    with rc_context({"svg.hashsalt": name}):  # neither a date nor random names: the same numbers, the same file
        for kind in ("svg", "png"):
            content = io.BytesIO()
            result.picture.savefig(content, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
            with atomic_write(out / f"{name}.{kind}") as file:
                file.write(content.getvalue())
    rows = with_provenance(result.rows, runner.records, command_of(name, runner, folder))
    write_text(out / f"{name}.csv", csv_table(rows, 4))
    write_text(out / f"{name}.md", page(name, result, runner, folder))
    return result, runner


def command_of(name: str, runner: Runner, data: DataFolder) -> str:
    """The call that does the same, without folders."""
    command = f"usfda reproduce {name} --data DIR --seeds {runner.seeds} --backbone {runner.backbone_name}"
    command += f" --tasks {data.wanted}" if data.wanted else ""
    return command + (" --shared FILE" if data.shared is not None else "")


def page(name: str, result: Result, runner: Runner, data: DataFolder) -> str:
    """The result as a page in Markdown."""
    parts = [f"# {result.title}", *result.text]
    parts.append(f"```\n{command_of(name, runner, data)}\n```")
    for caption, (head, rows) in result.tables.items():
        parts += [f"**{caption}**", markdown_table(head, rows)]
    parts.append(f"![{result.title}]({name}.svg)")
    parts += [f"{line}." for found in data.benchmarks for line in found.notes]
    if differences := [line for found in data.benchmarks for line in found.differences]:
        parts.append("Data that is not as published: " + "; ".join(differences) + ".")
    if runner.failed:
        last = runner.failed[-1]["error"]
        parts.append(
            f"{len(runner.failed)} runs failed and are left out (last: {last}); the same call tries them again."
        )
    used = [", ".join(f"{library} {number}" for library, number in r["versions"].items()) for r in runner.records]
    versions = "; some runs: ".join(dict.fromkeys(used))
    seeds = f"Seeds 0 to {runner.seeds - 1}" if runner.seeds > 1 else "Seed 0"
    parts.append(f"{measured(runner.records)}. {seeds}; backbone {runner.backbone_name}; {versions}.")
    return "\n\n".join(parts) + "\n"

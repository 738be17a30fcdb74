"""Tables 1 and 2: T_avg, T_unk, H and shared accuracy of all methods on every task, beside the paper's own figures.

The paper prints T_avg over |C|+1 classes, which are the |C| shared ones and *unknown*, and T_unk. Both imply the rest:

    shared accuracy = ((|C| + 1)·T_avg − T_unk) / |C|,    H = 2·shared·T_unk / (shared + T_unk)
"""

from __future__ import annotations

import csv
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import product
from typing import Any, ClassVar

from ..data.samples import LabelledFeatures
from ..errors import InputError
from ..methods.decision import Decision
from ..methods.heads import UsfdaHead
from ..methods.settings import UsfdaSettings
from ..methods.usfda.adaptation import train_target
from ..metrics import score_decision
from ..model import Model
from ..stages.common import settings_from
from ..text.words import count
from .baselines.api import Baseline
from .baselines.deployment import Usfda
from .figures import Picture, points
from .protocols import DATA_SETS, IMAGENET_CALTECH, NAMES
from .reproduce import DataFolder, PaperExperiment, Result
from .runner import Runner
from .runs import Record
from .tables import Statistic, mean_over_tasks
from .tasks import Task

log = logging.getLogger("usfda")

METRICS = {"t_avg": "T_avg", "t_unk": "T_unk", "h_score": "H", "shared_accuracy": "shared accuracy"}
SHARED = {**{found.name: found.shared for found in DATA_SETS.values()}, NAMES[IMAGENET_CALTECH]: 84}  # |C|
# The methods of the tables, and the rows of the paper that each stands beside.
PAPER_ROWS = {
    "source-only": ("ResNet",), "iwan": ("IWAN",), "pada": ("PADA",), "ati": ("ATI",), "osbp": ("OSBP",),
    "uan": ("UAN", "UAN*"), "dann": (), "rtn": (), "usfda-b": (), "usfda": ("USFDA",), "mixture": (),
}  # fmt: skip
PAPER = "paper, ResNet-50"
IMPLIED = f"{PAPER}, implied"
BEST = "`usfda`, best step by target labels: not a result"
LOOK = 10  # steps between two looks at the decisions of `usfda`


@dataclass(frozen=True)
class Printed:
    """A figure as it is printed in the paper."""

    mean: str
    deviation: str

    def __str__(self) -> str:
        return f"{self.mean} ± {self.deviation}" if self.deviation else self.mean


@cache
def printed() -> dict[tuple[str, str, str, str], Printed]:
    """By data set, task (A-D, or Avg), row and metric; what stands only in comments of its source is left out."""
    text = files(__package__).joinpath("paper_tables.csv").read_text()
    return {
        (row["dataset"], row["task"], row["method"], row["metric"]): Printed(row["mean"], row["std"])
        for row in csv.DictReader(text.splitlines())
        if row["printed"] == "yes"
    }


def of_paper(dataset: str, task: str, row: str, metric: str) -> Printed | None:
    """A figure of the paper by the metric's name: printed, or implied by what is printed; None where neither is."""
    t_avg, t_unk = (printed().get((dataset, task, row, name)) for name in ("T_avg", "T_unk"))
    if metric in ("T_avg", "T_unk"):
        return t_avg if metric == "T_avg" else t_unk
    if t_avg is None or t_unk is None:
        return None
    n, unknown = SHARED[dataset], float(t_unk.mean)
    shared = ((n + 1) * float(t_avg.mean) - unknown) / n
    return Printed(f"{shared if metric != 'H' else 2 * shared * unknown / (shared + unknown):.1f}", "")


class PaperTable(PaperExperiment):
    """All metrics of methods on all tasks of some data sets."""

    title: ClassVar[str]
    datasets: ClassVar[tuple[str, ...]]  # by identifier

    def measure(self, baseline: Baseline, source: LabelledFeatures, target: LabelledFeatures) -> dict[str, Any]:
        """All metrics; for `usfda` also those along its steps, which are scored when all is decided."""
        record = super().measure(baseline, source, target)
        if type(baseline) is Usfda:
            record["along"] = _along(baseline, source, target)
        return record

    def result(self, runner: Runner, data: DataFolder) -> Result:
        """Run it."""
        tasks = self._tasks(data)
        records = self.records(runner, list(tasks.values()), {name: (name, {}) for name in PAPER_ROWS})
        tables: dict[str, tuple[list[str], list[list[str]]]] = {}
        rows: list[dict[str, Any]] = []
        # The paper's data sets, and what was found instead of one of them: a reduced copy has a table of its own.
        datasets = dict.fromkeys([*(NAMES[key] for key in self.datasets), *(dataset for dataset, _ in tasks)])
        for dataset, (metric, name) in product(datasets, METRICS.items()):
            # As in the paper, with its mean at the end.
            columns = list(dict.fromkeys(task for d, task, *_ in printed() if d == dataset))
            columns = columns or [*(task for d, task in tasks if d == dataset), "Avg"]
            body = []
            for (baseline, figures), cells in _lines(records, tasks, runner, dataset, metric, columns).items():
                if cells:
                    body.append([baseline, figures, *(str(cells.get(task, "–")) for task in columns)])
                for task, value in cells.items():
                    line = {"dataset": dataset, "metric": name, "method": baseline.replace("`", ""), "figures": figures}
                    rows.append({**line, "task": task, "mean": value.mean, "deviation": value.deviation})
            head = ["mean" if task == "Avg" else task.replace("-", "→") for task in columns]
            tables[f"{dataset}, {name}"] = (["method", "figures", *head], body)
        seeds = count(runner.seeds, "seed")
        text = [
            f"T_avg, T_unk, H and shared accuracy in percent, mean ± deviation over {seeds}, last step, no checkpoint "
            f"is picked. Ours are on frozen features of {runner.backbone_name}; the paper's of ResNet-50, its ± over "
            "5 runs. UAN is quoted there from its own paper; UAN* is the run of USFDA's authors, with the best figures "
            "of the run. `usfda` is the paper's method, `mixture` our default. The paper prints nothing "
            "for DANN, RTN and USFDA-b.",
            "H and shared accuracy of the paper are implied by its T_avg, which is a mean over the shared classes and "
            "unknown, and its T_unk: on Office-31, 90.2 and 79.3 imply a shared accuracy of 91.3 and H 84.9.",
            "The line *best step by target labels* has that step of the same runs at which T_avg is highest, as the "
            "known ports select it. Such a choice needs the target's labels, which nobody has: it shows how much of "
            "the difference to the paper's figures is selection, and is not a result.",
            *(f"Not run: {line}." for line in data.missing),
        ]
        title = f"{self.title}: {', '.join(dict.fromkeys(dataset for dataset, _ in tasks))}"
        return Result(title, text, tables, rows, _picture(records, tasks, runner))

    def _tasks(self, data: DataFolder) -> dict[tuple[str, str], Task]:
        """By the names that the paper's tables have for the data set and the task."""
        data.find(self.datasets)
        tasks = {}
        for found, pair in data.chosen():
            try:
                tasks[found.name, "-".join(pair)] = found.task(pair)
            except InputError as error:  # half of a data set: the others are run, unless it was asked for
                if data.wanted is not None:
                    raise
                data.missing.append(f"{found.name} {'→'.join(pair)}: {str(error).replace(f'{data.folder}/', '')}")
                log.warning("not run: %s", data.missing[-1])
        if not tasks:
            raise InputError("; ".join(data.missing))
        return tasks


class Table1(PaperTable):
    """Table 1: Office-Home."""

    name = "table1"
    version = 3
    title = "Table 1"
    datasets = ("office-home",)


class Table2(PaperTable):
    """Table 2: Office-31, VisDA, ImageNet-Caltech."""

    name = "table2"
    version = 3
    title = "Table 2"
    datasets = ("office31", "visda", "imagenet-caltech")


def _along(baseline: Usfda, source: LabelledFeatures, target: LabelledFeatures) -> list[dict[str, Any]]:
    """The metrics after every ten steps: adapted once more from the same seed, decided, and only then scored."""
    model = baseline.model
    decisions: dict[int, Decision] = {}
    networks = model.vendor.networks
    assert networks is not None

    def decide(step: int, head: UsfdaHead) -> None:
        if step % LOOK == 0:
            decisions[step] = Model(model.source_classes, model.vendor, head, model.backbone, model.card).decide(
                target.X
            )

    settings = settings_from(UsfdaSettings, baseline.settings.deployment)
    train_target(networks, target.X, settings, baseline.seed, baseline.config, decide)
    scores = {step: score_decision(target.labels, decided, source.classes) for step, decided in decisions.items()}
    return [{"step": step, **{metric: s[metric] for metric in METRICS}} for step, s in scores.items()]


def _best_step(record: Record) -> Record:
    """The record with the metrics of the step that has the highest T_avg."""
    return {**record, **max([record, *record.get("along", ())], key=lambda at: at["t_avg"])}


def _lines(
    records: Mapping[str, Sequence[Record]],
    tasks: Mapping[tuple[str, str], Task],
    runner: Runner,
    dataset: str,
    metric: str,
    columns: Sequence[str],
) -> dict[tuple[str, str], dict[str, Any]]:
    """A line of the table for each method and for each row of the paper: its figures by column."""

    def figures(mine: Sequence[Record]) -> dict[str, Any]:
        ours = {}
        for column in columns:
            parts = columns[:-1] if column == "Avg" else [column]
            ids = [tasks[dataset, part].id for part in parts if (dataset, part) in tasks]
            if len(ids) == len(parts):
                ours[column] = mean_over_tasks(mine, metric, ids, runner.seeds)
        return ours

    lines: dict[tuple[str, str], dict[str, Any]] = {}
    for baseline, paper_rows in PAPER_ROWS.items():
        lines[f"`{baseline}`", runner.backbone_name] = figures(records[baseline])
        if baseline == "usfda":
            lines[BEST, runner.backbone_name] = figures([_best_step(record) for record in records[baseline]])
        for row in paper_rows:
            every = {column: of_paper(dataset, column, row, METRICS[metric]) for column in columns}
            lines[row, PAPER if metric in ("t_avg", "t_unk") else IMPLIED] = {c: v for c, v in every.items() if v}
    return lines


def _picture(records: Mapping[str, Sequence[Record]], tasks: Mapping[tuple[str, str], Task], runner: Runner) -> Picture:
    """Means over the tasks that were run, ours and the paper's over the same ones.

    Reduced copies, for which the paper prints nothing, are left out unless there is nothing else.
    """
    panels: dict[str, dict[str, list[Statistic]]] = {}
    tasks = {key: task for key, task in tasks.items() if key[0] in NAMES.values()} or tasks
    ids = [task.id for task in tasks.values()]
    for metric, name in METRICS.items():
        series: dict[str, list[Statistic]] = {runner.backbone_name: [], PAPER: [], "UAN* of the paper": []}
        for baseline, rows in PAPER_ROWS.items():
            series[runner.backbone_name].append(mean_over_tasks(records[baseline], metric, ids, runner.seeds))
            for place, label in enumerate(list(series)[1:]):
                found = [of_paper(*task, row, name) for task in tasks for row in rows[place : place + 1]]
                theirs = Statistic.of([float(f.mean) for f in found if f] if all(found) else [])
                series[label].append(Statistic(theirs.mean, None))  # its spread is of tasks, not of seeds
        panels[f"{name}, mean of {len(tasks)} tasks"] = series
    return points(list(PAPER_ROWS), panels)

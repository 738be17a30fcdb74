"""Tables 1 and 2: T_avg and T_unk of USFDA and the baselines on every task, beside the paper's own figures."""

from __future__ import annotations

import csv
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import product
from typing import Any

from ..datasets import NAMES
from ..runtime import InputError
from .figures import beside
from .jobs import Variant
from .reproduce import Lab, Result
from .tables import Figure, figure, mean_of_tasks

log = logging.getLogger("usfda")

METRICS = {"t_avg": "T_avg", "t_unk": "T_unk"}
# The rows of the paper that a system of ours stands beside.
SYSTEMS = {
    "source-only": ("ResNet",), "iwan": ("IWAN",), "pada": ("PADA",), "ati": ("ATI",), "osbp": ("OSBP",),
    "uan": ("UAN", "UAN*"), "dann": (), "rtn": (), "usfda-b": (), "paper": ("USFDA",), "usfda": (),
}  # fmt: skip
PAPER = "paper, ResNet-50"


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
    text = files("usfda.experiments").joinpath("paper_tables.csv").read_text()
    return {
        (row["dataset"], row["task"], row["method"], row["metric"]): Printed(row["mean"], row["std"])
        for row in csv.DictReader(text.splitlines())
        if row["printed"] == "yes"
    }


def table1(lab: Lab) -> Result:
    return _table(lab, "Table 1", ["office-home"])


def table2(lab: Lab) -> Result:
    return _table(lab, "Table 2", ["office31", "visda", "imagenet-caltech"])


def _table(lab: Lab, title: str, keys: Sequence[str]) -> Result:
    missing = lab.find(keys)
    tasks, run = [], {}
    for found, pair in lab.choose(missing):
        try:
            tasks.append(found.task(pair))
            run[found.name, "-".join(pair)] = tasks[-1].name
        except InputError as error:  # half of a data set: the others are run, unless it was asked for
            if lab.wanted is not None:
                raise
            missing.append(f"{found.name} {'→'.join(pair)}: {str(error).replace(f'{lab.data}/', '')}")
            log.warning("not run: %s", missing[-1])
    if not tasks:
        raise InputError("; ".join(missing))
    records = lab.run(tasks, [Variant(method) for method in SYSTEMS])
    tables: dict[str, tuple[list[str], list[list[str]]]] = {}
    rows: list[dict[str, Any]] = []
    for dataset, (metric, name) in product((NAMES[key] for key in keys), METRICS.items()):
        # As in the paper, with its mean at the end.
        columns = list(dict.fromkeys(task for d, task, *_ in printed() if d == dataset))
        body = []
        for method, paper_rows in SYSTEMS.items():
            mine = [record for record in records if record["key"]["method"] == method]
            ours: dict[str, Any] = {}
            for task in columns:
                parts = columns[:-1] if task == "Avg" else [task]
                names = [run[dataset, part] for part in parts if (dataset, part) in run]
                if len(names) == len(parts):
                    ours[task] = mean_of_tasks(mine, metric, names, lab.seeds)
            lines = {(f"`{method}`", lab.shown_backbone): ours}
            for row in paper_rows:
                every = {task: printed().get((dataset, task, row, name)) for task in columns}
                lines[row, PAPER] = {task: value for task, value in every.items() if value}
            for (system, figures), cells in lines.items():
                if cells:
                    body.append([system, figures, *(str(cells.get(task, "–")) for task in columns)])
                for task, value in cells.items():
                    line = {"dataset": dataset, "metric": name, "system": system.strip("`"), "figures": figures}
                    rows.append({**line, "task": task, "mean": value.mean, "deviation": value.deviation})
        head = ["mean" if task == "Avg" else task.replace("-", "→") for task in columns]
        tables[f"{dataset}, {name}"] = (["system", "figures", *head], body)
    text = [
        f"T_avg and T_unk in percent, mean ± deviation over {lab.seeds} seeds, last step, no checkpoint is picked. "
        f"Ours are on frozen features of {lab.shown_backbone}; the paper's are of ResNet-50, its ± over 5 runs. UAN is "
        "quoted there from its own paper; UAN* is the run of USFDA's authors, with the best figures of the run. "
        "`paper` is USFDA to the letter, `usfda` the default of this project. The paper prints nothing for DANN, RTN "
        "and USFDA-b.",
        *(f"Not run: {line}." for line in missing),
    ]
    title += f": {', '.join(dict.fromkeys(dataset for dataset, _ in run))}"
    return Result(title, text, tables, rows, _figure(lab, records, run))


def _figure(lab: Lab, records: Sequence[dict[str, Any]], run: dict[tuple[str, str], str]) -> Any:
    """Means over the tasks that were run, ours and the paper's over the same ones."""
    panels: dict[str, dict[str, list[Figure]]] = {}
    for metric, name in METRICS.items():
        series: dict[str, list[Figure]] = {lab.shown_backbone: [], PAPER: [], "UAN* of the paper": []}
        for method, rows in SYSTEMS.items():
            mine = [record for record in records if record["key"]["method"] == method]
            series[lab.shown_backbone].append(mean_of_tasks(mine, metric, list(run.values()), lab.seeds))
            for place, label in enumerate(list(series)[1:]):
                found = [printed().get((*task, row, name)) for task in run for row in rows[place : place + 1]]
                theirs = figure([float(f.mean) for f in found if f] if all(found) else [])
                series[label].append(Figure(theirs.mean, None))  # its spread is of tasks, not of seeds
        panels[f"{name}, mean of {len(run)} tasks"] = series
    return beside(list(SYSTEMS), panels)

"""Tables of records: mean and deviation of every method, as JSON, CSV and Markdown."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..data.samples import LabelledFeatures
from ..files import atomic_write
from .baselines.api import Baseline
from .runs import Record
from .tasks import Task

METRICS = {
    "t_avg": "T_avg", "t_unk": "T_unk", "h_score": "H", "shared_accuracy": "shared", "closed_accuracy": "closed",
    "auroc": "AUROC",
}  # fmt: skip
METRICS_BY_TASK = ("h_score", "t_avg", "t_unk", "shared_accuracy")
STAGES = ("learn", "adapt", "decide")


@dataclass(frozen=True)
class Statistic:
    """Mean and deviation over the seeds; None where a metric is not defined, or for the deviation of one seed."""

    mean: float | None
    deviation: float | None

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Statistic:
        """Of those values that are defined."""
        found = [value for value in values if value is not None]
        if not found:
            return cls(None, None)
        return cls(float(np.mean(found)), float(np.std(found)) if len(found) > 1 else None)

    def __str__(self) -> str:
        if self.mean is None:
            return "–"
        return f"{self.mean:.1f}" if self.deviation is None else f"{self.mean:.1f} ± {self.deviation:.1f}"


def mean_over_tasks(records: Sequence[Record], metric: str, tasks: Sequence[str], seeds: int) -> Statistic:
    """Over the seeds, of the mean over the tasks (by id); a seed that lacks a task is left out.

    A mean over some of the tasks cannot be compared with one over all.
    """
    mine = [record for record in records if record["key"]["task"] in tasks]
    by_seed = [[record[metric] for record in mine if record["key"]["seed"] == seed] for seed in range(seeds)]
    return Statistic.of(np.mean(values) for values in by_seed if len(values) == len(tasks) and None not in values)


def columns(statistics: Mapping[str, Statistic]) -> dict[str, float | None]:
    """Mean and deviation of each metric, as columns of a CSV file."""
    return {
        key: value
        for name, found in statistics.items()
        for key, value in ((name, found.mean), (f"{name}_deviation", found.deviation))
    }


@dataclass(frozen=True)
class Summary:
    """A method in a comparison: its metrics on every task (by id), and over the seeds' means of all tasks."""

    method: str
    source_free: bool
    rejects: str
    finished: int
    failed: int
    runs: int
    error: str | None  # of the last run that failed
    parameters: int | None
    overall: dict[str, Statistic]
    tasks: dict[str, dict[str, Statistic]]
    seconds: dict[str, float]

    @property
    def rank(self) -> float:
        """What methods are ordered by: H, or T_avg where there is no H."""
        h, t = self.overall["h_score"].mean, self.overall["t_avg"].mean
        return h if h is not None else -1.0 if t is None else t


def summarise(
    method: str,
    baseline: type[Baseline],
    records: Sequence[Record],
    errors: Sequence[str],
    tasks: list[str],
    seeds: int,
) -> Summary:
    """The summary of a method's records, and of the errors of its failed runs; ``tasks`` are identifiers."""

    def values(metric: str, task: str) -> list[float | None]:
        return [record[metric] for record in records if record["key"]["task"] == task]

    return Summary(
        method,
        baseline.source_free,
        baseline.rejects,
        len(records),
        len(errors),
        len(tasks) * seeds,
        errors[-1] if errors else None,
        max((record["parameters"] for record in records), default=None),
        {metric: mean_over_tasks(records, metric, tasks, seeds) for metric in METRICS},
        {task: {metric: Statistic.of(values(metric, task)) for metric in METRICS} for task in tasks},
        {stage: float(np.mean([r["seconds"][stage] for r in records] or [0])) for stage in STAGES},
    )


HEAD = ["method", "source-free", *METRICS.values(), "learn, s", "adapt, s", "learnable", "runs"]


def cells(row: Summary) -> list[str]:
    """A row of the table, as text."""
    state = f"{row.finished}/{row.runs}"
    if row.error:
        state += f", {row.failed} failed: {row.error[:100]}"
    return [
        row.method,
        "yes" if row.source_free else "no",
        *(str(row.overall[metric]) for metric in METRICS),
        *(f"{row.seconds[stage]:.1f}" for stage in ("learn", "adapt")),
        "–" if row.parameters is None else f"{row.parameters / 1e6:.2f} M",
        state,
    ]


def measured(records: Iterable[Record]) -> str:
    """When, from which code and on what the records were made; of the date the newest, of the rest all that occur."""
    every = list(records)
    if not (found := [record for record in every if "date" in record]):
        return "Measured by a version that kept no date"
    commits: dict[str, dict[str, None]] = {}  # and the methods that each has runs of, in their order
    for record in found:
        if record["commit"]:
            commits.setdefault(record["commit"], {})[record["key"]["method"]] = None
    named = [f"{c} ({', '.join(baselines)})" if len(commits) > 1 else c for c, baselines in commits.items()]
    hardware = [record["hardware"] for record in found if record["hardware"]]
    # The commit identifies a checkout: the installed version may be another.
    versions = [r["versions"]["usfda"] for r in found if not r["commit"] and "usfda" in r["versions"]]
    text = f"Measured {max(record['date'] for record in found)}"
    for before, values in ((" with usfda ", versions), (" at commit ", named), (" on ", hardware)):
        text += before + " and ".join(dict.fromkeys(values)) if values else ""
    return text if len(found) == len(every) else f"{text}, some runs earlier"


def provenance(records: Iterable[Record], command: str) -> dict[str, str]:
    """The columns of every CSV file that say how a row was measured: of the date the newest, of the rest all values."""
    found = list(records)

    def every(values: Iterable[Any]) -> str:
        return ", ".join(sorted({str(value) for value in values if value is not None}))

    seeds = sorted({record["key"]["seed"] for record in found})
    whole = len(seeds) > 1 and seeds == list(range(seeds[0], seeds[-1] + 1))
    return {
        "version": every(record["versions"].get("usfda") for record in found if "versions" in record),
        "date": max((record["date"] for record in found if "date" in record), default=""),
        "commit": every(record.get("commit") for record in found),
        "command": command if found else "",
        "seeds": f"{seeds[0]} to {seeds[-1]}" if whole else every(seeds),
        "backbone": every(record.get("backbone") for record in found),
        "weights": every(record.get("weights") for record in found),
    }


def with_provenance(rows: Iterable[Mapping[str, Any]], records: Sequence[Record], command: str) -> list[dict[str, Any]]:
    """Rows with these columns: of the runs of the row's method, or of all where no method is named."""

    def runs(row: Mapping[str, Any]) -> list[Record]:
        method = row.get("method", "").partition(",")[0]
        return [record for record in records if "method" not in row or record["key"]["method"] == method]

    return [{**row, **provenance(runs(row), command)} for row in rows]


def class_counts(sides: Iterable[tuple[LabelledFeatures, LabelledFeatures]]) -> str:
    """The sizes of the label sets, such as 10/10/11: shared, of the source alone, of the target alone."""
    known = [(set(source.classes), set(target.classes)) for source, target in sides]
    return " or ".join(dict.fromkeys(f"{len(s & t)}/{len(s - t)}/{len(t - s)}" for s, t in known))


def markdown(rows: Sequence[Summary], tasks: Sequence[Task], about: Mapping[str, Any]) -> str:
    """The page of a comparison."""
    metric = "h_score" if any(row.overall["h_score"].mean is not None for row in rows) else "t_avg"
    shown = [name for name in METRICS_BY_TASK if any(row.overall[name].mean is not None for row in rows)] or ["t_avg"]
    first = next((row for row in rows if row.rank >= 0), None)
    names = [task.name for task in tasks]
    by_task = {
        METRICS[name]: [[row.method, *(str(row.tasks[task.id][name]) for task in tasks)] for row in rows]
        for name in shown
    }
    lines = [
        f"Mean ± deviation over the seeds ({about['seeds']}) of the mean over the tasks ({', '.join(names)}); backbone "
        f"{about['backbone'] or 'none, features'}; seconds per run on one thread; parameters learnt in `adapt`.",
        "",
        *([f"```\n{about['command']}\n```", ""] if about["command"] else ()),
        f"{about['measured']}. Classes that source and target share, of the source alone, of the target alone: "
        f"{about['classes']}. Every method is taken as its last step leaves it; no target label takes part in a run.",
        "",
        f"First on {METRICS[metric]}: **{first.method}** ({first.overall[metric]})."
        if first
        else "No method has finished all tasks.",
        "",
        markdown_table(HEAD, map(cells, rows)),
        "",
        *(
            line
            for name, body in by_task.items()
            for line in (f"{name} by task:", "", markdown_table(["method", *names], body), "")
        ),
        "How each decides what is unknown:",
        "",
        *(f"- `{row.method}`: {row.rejects}" for row in rows),
    ]
    return "\n".join(lines) + "\n"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines)


def csv_table(rows: Sequence[Mapping[str, Any]], digits: int) -> str:
    """A table as CSV, its columns those of the first row."""
    table = io.StringIO()
    writer = csv.DictWriter(table, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: round(v, digits) if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    return table.getvalue()


def write_text(file: Path, text: str) -> None:
    """Write a text atomically; what UTF-8 cannot hold, as in the name of a file, is escaped."""
    with atomic_write(file) as out:
        out.write(text.encode(errors="backslashreplace"))


def write_comparison(
    out: Path, rows: Sequence[Summary], records: Sequence[Record], about: Mapping[str, Any], tasks: Sequence[Task]
) -> None:
    """Write results.json and results.csv, which name tasks by their identifiers, and results.md."""
    lines: list[dict[str, Any]] = []
    for row in rows:
        for task, found in {"overall": row.overall, **row.tasks}.items():
            line: dict[str, Any] = {"method": row.method, "task": task, **columns(found)}
            if task == "overall":
                line |= {f"{stage}_seconds": value for stage, value in row.seconds.items()}
                line |= {key: getattr(row, key) for key in ("parameters", "finished", "failed", "runs", "error")}
            lines.append(line)
    whole = {
        **about, "tasks": {task.id: task.name for task in tasks}, "methods": [asdict(row) for row in rows],
        "runs": records,
    }  # fmt: skip
    write_text(out / "results.json", json.dumps(whole, indent=1))
    lines = with_provenance(lines, records, about["command"] or "")
    write_text(out / "results.csv", csv_table(lines, 2))
    write_text(out / "results.md", markdown(rows, tasks, about))

"""Tables of runs: mean and deviation of every system, as JSON, CSV and Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..baselines import System
from ..output import write_json
from ..runtime import whole_file

METRICS = {
    "t_avg": "T_avg", "t_unk": "T_unk", "h_score": "H", "shared_accuracy": "shared", "closed_accuracy": "closed",
    "auroc": "AUROC",
}  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """A metric over the seeds; None where it is not defined, or for the deviation of one seed."""

    mean: float | None
    deviation: float | None

    def __str__(self) -> str:
        if self.mean is None:
            return "–"
        return f"{self.mean:.1f}" if self.deviation is None else f"{self.mean:.1f} ± {self.deviation:.1f}"


def figure(values: Sequence[float | None]) -> Figure:
    found = [value for value in values if value is not None]
    if not found:
        return Figure(None, None)
    return Figure(float(np.mean(found)), float(np.std(found)) if len(found) > 1 else None)


def mean_of_tasks(records: Sequence[dict[str, Any]], metric: str, tasks: Sequence[str], seeds: int) -> Figure:
    """Over the seeds, the mean of the tasks; a mean over some of them cannot be compared with one over all."""
    mine = [record for record in records if record["key"]["task"] in tasks]
    each = [[record[metric] for record in mine if record["key"]["seed"] == seed] for seed in range(seeds)]
    return figure([figure(v).mean for v in each if len(v) == len(tasks) and None not in v])


def spread(figures: Mapping[str, Figure]) -> dict[str, float | None]:
    """Mean and deviation of each metric, as columns of a CSV file."""
    return {key: v for name, f in figures.items() for key, v in ((name, f.mean), (f"{name}_deviation", f.deviation))}


@dataclass(frozen=True)
class Row:
    """A system: its figures on every task, and overall, over the seeds' means of all tasks."""

    method: str
    source_free: bool
    rejects: str
    finished: int
    failed: int
    runs: int
    error: str | None  # of the last run that failed
    parameters: int | None
    overall: dict[str, Figure]
    tasks: dict[str, dict[str, Figure]]
    seconds: dict[str, float]

    @property
    def rank(self) -> float:
        """What it is ordered by: H, or T_avg where there is no H."""
        h, t = self.overall["h_score"].mean, self.overall["t_avg"].mean
        return h if h is not None else -1.0 if t is None else t


def make_row(method: str, system: type[System], records: list[dict[str, Any]], tasks: list[str], seeds: int) -> Row:
    mine = [record for record in records if record["key"]["method"] == method]
    good = [record for record in mine if "error" not in record]
    errors = [record["error"] for record in mine if "error" in record]

    def values(metric: str, task: str) -> list[float | None]:
        return [record[metric] for record in good if record["key"]["task"] == task]

    return Row(
        method,
        system.source_free,
        system.rejects,
        len(good),
        len(errors),
        len(tasks) * seeds,
        errors[-1] if errors else None,
        max((record["parameters"] for record in good), default=None),
        {metric: mean_of_tasks(good, metric, tasks, seeds) for metric in METRICS},
        {task: {metric: figure(values(metric, task)) for metric in METRICS} for task in tasks},
        {part: float(np.mean([r["seconds"][part] for r in good] or [0])) for part in ("learn", "adapt", "decide")},
    )


def cells(row: Row) -> list[str]:
    """A row of the table, as text."""
    state = f"{row.finished}/{row.runs}"
    if row.error:
        state += f", {row.failed} failed: {row.error[:100]}"
    return [
        row.method,
        "yes" if row.source_free else "no",
        *(str(row.overall[metric]) for metric in METRICS),
        *(f"{row.seconds[part]:.1f}" for part in ("learn", "adapt")),
        "–" if row.parameters is None else f"{row.parameters / 1e6:.2f} M",
        state,
    ]


HEAD = ["system", "source-free", *METRICS.values(), "learn, s", "adapt, s", "learnable", "runs"]


def markdown(rows: list[Row], tasks: list[str], about: dict[str, Any]) -> str:
    metric = "h_score" if any(row.overall["h_score"].mean is not None for row in rows) else "t_avg"
    first = next((row for row in rows if row.rank >= 0), None)
    lines = [
        f"Mean ± deviation over the seeds ({about['seeds']}) of the mean over the tasks ({', '.join(tasks)}); backbone "
        f"{about['backbone'] or 'none, features'}; seconds a run on one thread; parameters learnt in `adapt`.",
        "",
        f"First on {METRICS[metric]}: **{first.method}** ({first.overall[metric]})."
        if first
        else "No system has finished all tasks.",
        "",
        markdown_table(HEAD, map(cells, rows)),
        "",
        f"{METRICS[metric]} by task:",
        "",
        markdown_table(
            ["system", *tasks], ([row.method, *(str(row.tasks[task][metric]) for task in tasks)] for row in rows)
        ),
        "",
        "How each decides what is unknown:",
        "",
        *(f"- `{row.method}`: {row.rejects}" for row in rows),
    ]
    return "\n".join(lines) + "\n"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines)


def write(out: Path, rows: list[Row], records: list[dict[str, Any]], about: dict[str, Any], tasks: list[str]) -> None:
    lines: list[dict[str, Any]] = []
    for row in rows:
        for name, figures in {"overall": row.overall, **row.tasks}.items():
            line: dict[str, Any] = {"method": row.method, "task": name, **spread(figures)}
            if name == "overall":
                line |= {f"{part}_seconds": value for part, value in row.seconds.items()}
                line |= {key: getattr(row, key) for key in ("parameters", "finished", "failed", "runs", "error")}
            lines.append({key: round(v, 2) if isinstance(v, float) else v for key, v in line.items()})
    table = io.StringIO()
    writer = csv.DictWriter(table, lines[0])
    writer.writeheader()
    writer.writerows(lines)
    whole = {**about, "tasks": tasks, "systems": [asdict(row) for row in rows], "runs": records}
    write_json(out / "results.json", whole)
    for name, text in {"results.csv": table.getvalue(), "results.md": markdown(rows, tasks, about)}.items():
        with whole_file(out / name) as file:
            file.write(text.encode())

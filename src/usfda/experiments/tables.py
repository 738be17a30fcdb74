"""Tables of runs: mean and deviation of every system, as JSON, CSV and Markdown."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from ..baselines import System
from ..runtime import whole_file

METRICS = {
    "t_avg": "T_avg", "t_unk": "T_unk", "h_score": "H", "shared_accuracy": "shared", "closed_accuracy": "closed",
    "auroc": "AUROC",
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A system over all tasks: the mean over tasks for every seed, then mean and deviation over the seeds."""

    method: str
    source_free: bool
    rejects: str
    finished: int
    failed: int
    runs: int
    error: str | None  # of the last run that failed
    parameters: int | None
    mean: dict[str, float | None]
    deviation: dict[str, float | None]
    tasks: dict[str, dict[str, float | None]]  # mean over the seeds
    seconds: dict[str, float]

    @property
    def rank(self) -> float:
        """What it is ordered by: H, or T_avg where there is no H."""
        value = self.mean["h_score"] if self.mean["h_score"] is not None else self.mean["t_avg"]
        return -1.0 if value is None else value


def make_row(method: str, system: type[System], records: list[dict[str, Any]], tasks: list[str], seeds: int) -> Row:
    mine = [record for record in records if record["key"]["method"] == method]
    good = [record for record in mine if "error" not in record]
    errors = [record["error"] for record in mine if "error" in record]

    def values(metric: str, **wanted: Any) -> list[float | None]:
        return [r[metric] for r in good if all(r["key"][k] == v for k, v in wanted.items())]

    mean: dict[str, float | None] = {}
    deviation: dict[str, float | None] = {}
    for metric in METRICS:
        each = [values(metric, seed=seed) for seed in range(seeds)]
        # A mean over some of the tasks cannot be compared with one over all.
        whole = [_mean(v) for v in each if len(v) == len(tasks) and None not in v]
        mean[metric] = _mean(whole)
        deviation[metric] = float(np.std(whole)) if len(whole) > 1 else None  # type: ignore[arg-type]
    return Row(
        method,
        system.source_free,
        system.rejects,
        len(good),
        len(errors),
        len(tasks) * seeds,
        errors[-1] if errors else None,
        max((record["parameters"] for record in good), default=None),
        mean,
        deviation,
        {task: {metric: _mean(values(metric, task=task)) for metric in METRICS} for task in tasks},
        {part: float(np.mean([r["seconds"][part] for r in good] or [0])) for part in ("learn", "adapt", "decide")},
    )


def _mean(values: Sequence[float | None]) -> float | None:
    found = [v for v in values if v is not None]
    return float(np.mean(found)) if found else None


def cell(mean: float | None, deviation: float | None = None) -> str:
    if mean is None:
        return "–"
    return f"{mean:.1f}" if deviation is None else f"{mean:.1f} ± {deviation:.1f}"


def cells(row: Row) -> list[str]:
    """A row of the table, as text."""
    state = f"{row.finished}/{row.runs}"
    if row.error:
        state += f", {row.failed} failed: {row.error[:100]}"
    return [
        row.method,
        "yes" if row.source_free else "no",
        *(cell(row.mean[metric], row.deviation[metric]) for metric in METRICS),
        *(f"{row.seconds[part]:.1f}" for part in ("learn", "adapt")),
        "–" if row.parameters is None else f"{row.parameters / 1e6:.2f} M",
        state,
    ]


def brief(rows: list[Row], caption: str | None = None) -> Table:
    """For a terminal; in brackets the mean of the tasks so far."""
    table = Table("system", "T_avg", "T_unk", "H", "seconds", "runs", box=None, caption=caption)
    for row in rows:
        means = []
        for metric in ("t_avg", "t_unk", "h_score"):
            so_far = _mean([task[metric] for task in row.tasks.values()])
            whole = row.mean[metric] is not None or so_far is None
            means.append(cell(row.mean[metric], row.deviation[metric]) if whole else f"({so_far:.1f})")
        state = f"{row.finished}/{row.runs}" + (f", {row.failed} failed" if row.failed else "")
        table.add_row(row.method, *means, f"{row.seconds['learn'] + row.seconds['adapt']:.1f}", state)
    return table


HEAD = ["system", "source-free", *METRICS.values(), "learn, s", "adapt, s", "learnable", "runs"]


def markdown(rows: list[Row], tasks: list[str], about: dict[str, Any]) -> str:
    figure = "h_score" if any(row.mean["h_score"] is not None for row in rows) else "t_avg"
    first = next((row for row in rows if row.rank >= 0), None)
    lines = [
        f"Mean ± deviation over the seeds ({about['seeds']}) of the mean over the tasks ({', '.join(tasks)}); backbone "
        f"{about['backbone'] or 'none, features'}; seconds a run on one thread; parameters learnt in `adapt`.",
        "",
        f"First on {METRICS[figure]}: **{first.method}** ({cell(first.mean[figure], first.deviation[figure])})."
        if first
        else "No system has finished all tasks.",
        "",
        _table(HEAD, map(cells, rows)),
        "",
        f"{METRICS[figure]} by task, mean of the seeds:",
        "",
        _table(["system", *tasks], ([row.method, *(cell(row.tasks[t][figure]) for t in tasks)] for row in rows)),
        "",
        "How each decides what is unknown:",
        "",
        *(f"- `{row.method}`: {row.rejects}" for row in rows),
    ]
    return "\n".join(lines) + "\n"


def _table(head: Sequence[str], rows: Any) -> str:
    lines = [head, ["---"] * len(head), *([text.replace("|", "\\|") for text in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write(out: Path, rows: list[Row], records: list[dict[str, Any]], about: dict[str, Any], tasks: list[str]) -> None:
    table = io.StringIO()
    writer = csv.writer(table)
    parts = [f"{metric}{suffix}" for metric in METRICS for suffix in ("", "_deviation")]
    writer.writerow(
        [
            "method",
            "task",
            *parts,
            "learn_seconds",
            "adapt_seconds",
            "parameters",
            "finished",
            "failed",
            "runs",
            "error",
        ]
    )
    for row in rows:
        rest = [
            row.seconds["learn"],
            row.seconds["adapt"],
            row.parameters,
            row.finished,
            row.failed,
            row.runs,
            row.error,
        ]
        writer.writerow([row.method, "mean", *(v for m in METRICS for v in (row.mean[m], row.deviation[m])), *rest])
        for task in tasks:
            writer.writerow([row.method, task, *(v for m in METRICS for v in (row.tasks[task][m], None))])
    whole = {**about, "tasks": tasks, "systems": [asdict(row) for row in rows], "runs": records}
    contents = {
        "results.json": json.dumps(whole, indent=1, ensure_ascii=False),
        "results.csv": table.getvalue(),
        "results.md": markdown(rows, tasks, about),
    }
    for name, content in contents.items():
        with whole_file(out / name) as file:
            file.write(content.encode())

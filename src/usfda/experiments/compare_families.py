"""Methods side by side on families of data sets: one table over families, one figure, one CSV file.

The *figure* of a task is H, shared accuracy where nothing is unknown, T_unk where nothing is shared. Tasks are averaged
within a kind, kinds within a family, families in the mean. Every method is measured twice: with its own rule for what
is unknown, and with a threshold on its scores that rejects the share of samples which method ``mixture`` estimates to
be unknown on the same task with the same seed. The best threshold by labels is given, too; it is not a result.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..backbones.zoo import DEFAULT
from ..config import Config
from ..data.samples import LabelledFeatures
from ..files import atomic_write
from ..methods.decision import Decision
from .baselines import get_baseline
from .baselines.api import Baseline
from .families import KINDS, Family, find_families
from .figures import overview
from .runner import Runner
from .runs import Experiment, Record
from .tables import METRICS, csv_table, markdown_table, measured, provenance, write_text
from .tasks import Task

METHODS = (
    "mixture", "class-means", "source-only", "shot", "ovanet", "usfda-b", "uan", "dann", "lead", "glc", "usfda",
)  # fmt: skip
FIGURES = {"mixed": "h_score", "no-unknown": "shared_accuracy", "no-shared": "t_unk"}  # of a task, by its kind
RULES = {"own": "own rule", "estimated": "estimated share rejected", "best": "best threshold by labels"}
ESTIMATOR = "mixture"


def figures_by_share(truth: np.ndarray, decision: Decision, classes: Sequence[str]) -> list[float]:
    """The figure where the samples of the lowest scores are unknown: 0, 1, … 100 percent of them."""
    n = len(truth)
    order = np.argsort(decision.score, kind="stable")
    shared = np.isin(truth, classes)
    rejected = np.round(np.linspace(0, n, 101)).astype(int)
    found = []
    if (~shared).any():
        hits = np.concatenate([[0], np.cumsum(~shared[order])])
        found.append(hits[rejected] / hits[-1])
    if shared.any():
        names, y = np.unique(truth[shared], return_inverse=True)
        weight = np.zeros(n)
        weight[shared] = 1 / (len(names) * np.bincount(y)[y])  # the mean over classes of the accuracy within each
        right = weight * (np.asarray(classes)[decision.best] == truth)
        lost = np.concatenate([[0], np.cumsum(right[order])])
        found.append(np.clip(lost[-1] - lost[rejected], 0, 1))
    figure = found[0] if len(found) == 1 else 2 * found[0] * found[1] / np.maximum(found[0] + found[1], 1e-12)
    return [round(100 * float(value), 3) for value in figure]


class FamilyRun(Experiment):
    """All metrics, and the figure for every share of rejected samples."""

    name = "families"
    version = 1

    def measure(self, baseline: Baseline, source: LabelledFeatures, target: LabelledFeatures) -> dict[str, Any]:
        """One run."""
        record = super().measure(baseline, source, target)
        assert target.labels is not None
        record["by_share"] = figures_by_share(target.labels, baseline.decide(target.X), source.classes)
        for name in ("confusion", "per_class"):  # of which thousands of records would be full
            del record[name]
        return record


@dataclass(frozen=True)
class Score:
    """The figures of a run by rule; None where the estimate is missing."""

    family: str
    kind: str
    method: str
    figures: Mapping[str, float | None]
    record: Record


def scores_of(records: Mapping[str, Sequence[Record]]) -> list[Score]:
    """The figures of all runs, by method."""

    def place(record: Record) -> tuple[str, int]:
        return record["key"]["task"], record["key"]["seed"]

    estimates = {
        place(r): r["check"]["unknown_estimate"] for r in records.get(ESTIMATOR, ()) if "unknown_estimate" in r["check"]
    }
    found = []
    for method, mine in records.items():
        for record in mine:
            _, family, kind, _ = record["key"]["task"].split("/")
            share = estimates.get(place(record))
            figures = {
                "own": record[FIGURES[kind]],
                "estimated": None if share is None else record["by_share"][round(share)],
                "best": max(record["by_share"]),
            }
            found.append(Score(family, kind, method, figures, record))
    return found


def mean_figure(scores: Iterable[Score], rule: str) -> float | None:
    """Over the families, of the mean over the kinds, of the mean over tasks and seeds; None where one is missing."""
    groups: dict[str, dict[str, list[float | None]]] = {}
    for score in scores:
        groups.setdefault(score.family, {}).setdefault(score.kind, []).append(score.figures[rule])
    values = [value for kinds in groups.values() for mine in kinds.values() for value in mine]
    if not values or None in values:
        return None
    return float(np.mean([np.mean([np.mean(np.asarray(mine, float)) for mine in k.values()]) for k in groups.values()]))


def compare_families(
    data: Path,
    out: Path,
    *,
    methods: Sequence[str] = METHODS,
    families: Sequence[str] | None = None,
    seeds: int = 1,
    backbone: str = DEFAULT,
    config: Config | None = None,
    command: str = "",
) -> tuple[tuple[list[str], list[list[str]]], Runner]:
    """Run methods on families; finished runs are kept in runs.jsonl.

    Written are families.csv, families.md, families.svg and families.png.

    Parameters
    ----------
    data, out : Path
        Folder of the data sets, and for runs, tables and made images.
    methods : sequence of str
        Names of methods, or classes of your own as ``file.py:Class``.
    families : sequence of str, optional
        Only these.
    seeds, backbone, config
        As for ``Runner``.
    command : str
        For the provenance: the command that does the same.

    Returns
    -------
    table, runner
        Head and rows for the methods' own rules, the best first.
    """
    for method in methods:
        get_baseline(method)
    runner = Runner(out, backbone=backbone, seeds=seeds, config=config, log_runs=True)
    found = find_families(data, out, families)
    tasks: list[Task] = [task for family in found for task in family.tasks()]
    records = runner.run(FamilyRun(), tasks, {method: (method, {}) for method in methods})
    scores = [score for score in scores_of(records) if score.record["key"]["task"] in {task.id for task in tasks}]
    complete = [m for m in methods if sum(s.method == m for s in scores) == len(tasks) * seeds]
    order = sorted(complete, key=lambda m: -(mean_figure([s for s in scores if s.method == m], "own") or 0))
    scores = [score for score in scores if score.method in complete]
    write_text(out / "families.csv", csv_table(lines(scores, order, found, command), 2))
    names = [family.id for family in found]
    tables = {rule: table(scores, order, names, rule) for rule in RULES}
    left = [method for method in methods if method not in complete]
    write_text(out / "families.md", page(tables, kinds_table(scores, order), found, runner, command, left))
    if order:
        own, estimated = (table_of_numbers(scores, order, names, rule) for rule in ("own", "estimated"))
        picture = overview(own, estimated, order, names)
        for kind in ("svg", "png"):
            content = io.BytesIO()
            picture.savefig(content, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
            with atomic_write(out / f"families.{kind}") as file:
                file.write(content.getvalue())
    return tables["own"], runner


def table_of_numbers(scores: Sequence[Score], methods: Sequence[str], families: Sequence[str], rule: str) -> np.ndarray:
    """(methods, 1 + families): the mean, and each family; NaN where it is missing."""
    columns = [set(families), *({family} for family in families)]
    found = [
        [mean_figure([s for s in scores if s.method == method and s.family in column], rule) for column in columns]
        for method in methods
    ]
    return np.asarray(found, float).reshape(len(methods), len(columns))


def _text(value: float | None) -> str:
    return "–" if value is None or np.isnan(value) else f"{value:.1f}"


def table(
    scores: Sequence[Score], methods: Sequence[str], families: Sequence[str], rule: str
) -> tuple[list[str], list[list[str]]]:
    """Head and rows for one rule."""
    numbers = table_of_numbers(scores, methods, families, rule)
    rows = [[method, *map(_text, line)] for method, line in zip(methods, numbers.tolist(), strict=True)]
    return ["method", "mean", *families], rows


def kinds_table(scores: Sequence[Score], methods: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Head and rows by what the target has: own rule / estimated share rejected."""
    rows = []
    for method in methods:
        cells = []
        for kind in KINDS:
            some = [score for score in scores if score.method == method and score.kind == kind]
            cells.append(" / ".join(_text(mean_figure(some, rule)) for rule in ("own", "estimated")))
        rows.append([method, *cells])
    return ["method", *KINDS.values()], rows


def lines(
    scores: Sequence[Score], methods: Sequence[str], families: Sequence[Family], command: str
) -> list[dict[str, Any]]:
    """The rows of the CSV file: every method on every kind of task of every family, with provenance."""
    found = []
    for method in methods:
        for family in families:
            for kind, metric in FIGURES.items():
                some = [s for s in scores if (s.method, s.family, s.kind) == (method, family.id, kind)]
                mine = [score.record for score in some]
                line: dict[str, Any] = {"family": family.id, "target_has": KINDS[kind], "method": method}
                line |= {"runs": len(some), "figure": metric}
                line |= {rule: mean_figure(some, rule) for rule in RULES}
                for name in METRICS:
                    values = [record[name] for record in mine if record[name] is not None]
                    line[name] = float(np.mean(values)) if values else None
                found.append(line | provenance(mine, command))
    return found


def page(
    tables: Mapping[str, tuple[list[str], list[list[str]]]],
    kinds: tuple[list[str], list[list[str]]],
    families: Sequence[Family],
    runner: Runner,
    command: str,
    left: Sequence[str],
) -> str:
    """The result as a page in Markdown."""
    seeds = "seed 0" if runner.seeds == 1 else f"seeds 0 to {runner.seeds - 1}"
    count = sum(len(family.tasks()) for family in families)
    parts = [
        "# Methods on families of data sets",
        f"{len(families)} families, {count} tasks, {seeds}, backbone {runner.backbone_name}. Figure: H; shared "
        "accuracy where nothing is unknown; T_unk where nothing is shared. Mean over tasks, then kinds of task, then "
        "families. `mixture` has weights whose training did not see the family.",
        f"```\n{command}\n```",
        "**With each method's own rule**",
        markdown_table(*tables["own"]),
        "**With a threshold that rejects the share of unknown samples which `mixture` estimates**",
        markdown_table(*tables["estimated"]),
        "**With the best threshold by target labels: not a result**",
        markdown_table(*tables["best"]),
        "**By what the target has: own rule / estimated share rejected**",
        markdown_table(*kinds),
        "![Methods on families](families.svg)",
        *(f"{note}." for family in families for note in family.notes),
    ]
    if left:
        parts.append(f"Not finished, and left out: {', '.join(left)}; the same call goes on.")
    return "\n\n".join([*parts, measured(runner.records) + "."]) + "\n"

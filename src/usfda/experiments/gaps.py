"""Category gaps: every split of the classes on a grid, and the case that nothing is shared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..errors import InputError
from ..methods.findings import count
from ..metrics import one_shot
from .datasets import CommonClasses
from .figures import heat_maps, points
from .protocols import Pair, Protocol, split
from .reproduce import DataFolder, PaperExperiment, Result
from .runner import Runner
from .tables import Statistic, columns

METRICS = {"t_avg": "T_avg", "h_score": "H"}
ONE_SHOT_METRICS = {"one_shot": "one-shot", "t_unk": "T_unk"}
PRINTED = {"usfda": "64.72", "uan": "13.43 (UAN*)"}  # one-shot accuracy in the paper, for A→D of Office-31
BACKBONE = "none: vectors of the backbone"


@dataclass(frozen=True)
class GapExperiment(PaperExperiment):
    """An experiment with label sets of its own."""

    baselines: tuple[str, ...] = ("mixture", "usfda", "uan", "source-only")

    def _benchmark(self, data: DataFolder) -> tuple[CommonClasses, Pair]:
        found, pair = data.one_task(self.name)
        if not isinstance(found, CommonClasses):
            raise InputError(f"{self.name} needs a data set whose domains have the same classes")
        return found, pair


@dataclass(frozen=True)
class CategoryGap(GapExperiment):
    """Classes keep their order: the source has the first ones, so that its model depends on their number alone."""

    name: ClassVar[str] = "fig-gap"
    version: ClassVar[int] = 1
    steps: int = 6  # of the grid, in each direction: 26 splits of Office-31

    def result(self, runner: Runner, data: DataFolder) -> Result:
        """Run it."""
        found, pair = self._benchmark(data)
        classes = found.dataset.classes
        n = len(classes)
        ticks = list(range(0, n, max(1, round(n / self.steps))))
        across = [t for t in ticks if n - t >= 2]  # a source needs two classes
        cells = [(s, t) for t in across for s in ticks if n - s - t >= 1]
        names = {(s, t): f"{n - s - t}/{s}/{t}" for s, t in cells}
        tasks = {(s, t): found.with_protocol(split(classes, n - s - t, s)).task(pair) for s, t in cells}
        records = self.records(runner, list(tasks.values()), {name: (name, {}) for name in self.baselines})
        values = {
            (baseline, cell): {
                metric: Statistic.of(r[metric] for r in records[baseline] if r["key"]["task"] == task.id)
                for metric in ("t_avg", "t_unk", "h_score")
            }
            for baseline in self.baselines
            for cell, task in tasks.items()
        }
        rows = []
        grids = {
            name: {m: np.full((len(ticks), len(across)), np.nan) for m in self.baselines} for name in METRICS.values()
        }
        for (baseline, (s, t)), statistics in values.items():
            sizes = {"shared": n - s - t, "source_private": s, "target_private": t}
            rows.append({"method": baseline, **sizes, **columns(statistics)})
            for metric, name in METRICS.items():
                if (mean := statistics[metric].mean) is not None:
                    grids[name][baseline][ticks.index(s), across.index(t)] = mean
        means = [
            [
                f"`{baseline}`",
                *(str(Statistic.of(values[baseline, c][metric].mean for c in cells)) for metric in METRICS),
            ]
            for baseline in self.baselines
        ]
        shown = [
            [names[cell], *(str(values[baseline, cell][metric]) for metric in METRICS for baseline in self.baselines)]
            for cell in cells
        ]
        tables = {
            "Mean ± deviation over the cells": (["method", *METRICS.values()], means),
            "Every cell: shared/source-private/target-private": (
                ["split", *(f"{baseline}, {name}" for name in METRICS.values() for baseline in self.baselines)],
                shown,
            ),
        }
        seeds = count(runner.seeds, "seed")
        text = [
            f"{found.name} {'→'.join(pair)}: all {n} classes are split into shared, source-private and target-private "
            f"ones, in steps of {ticks[1]}; {len(cells)} splits, {seeds}. H needs private classes of the "
            "target. A source of a single class is left out, since it needs two.",
        ]
        axes = ("|C_s \\ C_t|, source-private classes", "|C_t \\ C_s|, target-private classes")
        title = f"Category gap, T_avg and H for every split of the classes: {found.name} {'→'.join(pair)}"
        return Result(title, text, tables, rows, heat_maps((ticks, across), grids, axes))


@dataclass(frozen=True)
class OneShotRecognition(GapExperiment):
    """|C_s| = 15, |C_t| = 16 of Office-31: one labelled sample per class is the centre, the rest go to the nearest."""

    name: ClassVar[str] = "one-shot"
    version: ClassVar[int] = 1

    def result(self, runner: Runner, data: DataFolder) -> Result:
        """Run it."""
        found, pair = self._benchmark(data)
        classes = found.dataset.classes
        half = len(classes) // 2
        task = found.with_protocol(Protocol("nothing-shared", classes[:half], classes[half:])).task(pair)
        records = self.records(runner, [task], {name: (name, {}) for name in self.baselines})
        values = {
            baseline: {metric: Statistic.of(r[metric] for r in mine) for metric in ONE_SHOT_METRICS}
            for baseline, mine in records.items()
        }
        target = runner.reader.read(task)[1]
        assert target.labels is not None
        alone = one_shot(np.asarray(target.X), target.labels).mean
        values[BACKBONE] = {"one_shot": Statistic(alone, None), "t_unk": Statistic(None, None)}
        printed = PRINTED if (found.id, pair) == ("office31", ("A", "D")) else {}
        order = sorted(values, key=lambda baseline: -(values[baseline]["one_shot"].mean or 0))
        body = [[m, *(str(values[m][metric]) for metric in ONE_SHOT_METRICS), printed.get(m, "–")] for m in order]
        rows = [
            {"method": baseline, "paper_one_shot": printed.get(baseline, "").split(" ")[0], **columns(values[baseline])}
            for baseline in order
        ]
        seeds = count(runner.seeds, "seed")
        text = [
            f"{found.name} {'→'.join(pair)}, |C_s| = {half}, |C_t| = {len(classes) - half}, no class in common. One "
            "labelled target sample per class is a centre in the adapted space, the rest go to the nearest: accuracy "
            f"in percent, mean of 20 draws, ± over {seeds}. T_unk: share of the target that is called "
            "unknown, as all of it should be.",
        ]
        tables = {"One-shot accuracy": (["method", *ONE_SHOT_METRICS.values(), "paper, ResNet-50: one-shot"], body)}
        theirs = [Statistic.of([float(printed[m].split()[0])] if m in printed else []) for m in order]
        series = {runner.backbone_name: [values[m]["one_shot"] for m in order], "paper, ResNet-50": theirs}
        picture = points(order, {"one-shot accuracy": series})
        return Result(f"No shared class, one-shot recognition: {found.name} {task.name}", text, tables, rows, picture)

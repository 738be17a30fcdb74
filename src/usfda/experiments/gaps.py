"""Category gaps: every split of the classes on a grid, and the case that nothing is shared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..datasets import CommonClasses
from ..metrics import one_shot
from ..protocols import split
from ..runtime import InputError
from .figures import beside, heat_maps
from .jobs import Variant
from .reproduce import Lab, Result
from .tables import figure, spread

SYSTEMS = ("usfda", "paper", "uan", "source-only")
METRICS = {"t_avg": "T_avg", "h_score": "H"}
STEPS = 6  # of the grid, in each direction
ONE_SHOT = {"paper": "64.72", "uan": "13.43 (UAN*)"}  # as printed, for A→D of Office-31
ONE_SHOT_METRICS = {"one_shot": "one-shot", "t_unk": "T_unk"}
BACKBONE = "none: vectors of the backbone"


def _found(lab: Lab) -> tuple[CommonClasses, tuple[str, str]]:
    found, pair = lab.task()
    if not isinstance(found, CommonClasses):
        raise InputError(f"{lab.name} needs a data set whose domains have the same classes")
    return found, pair


def grid(lab: Lab) -> Result:
    """Classes keep their order: the source has the first ones, so that its model depends on their number alone."""
    found, pair = _found(lab)
    classes = found.benchmark.classes
    n = len(classes)
    ticks = list(range(0, n, max(1, round(n / STEPS))))
    columns = [t for t in ticks if n - t >= 2]  # a source needs two classes
    cells = [(s, t) for t in columns for s in ticks if n - s - t >= 1]
    names = {(s, t): f"{n - s - t}/{s}/{t}" for s, t in cells}
    tasks = [replace(found.task(pair, split(classes, n - s - t, s)), name=name) for (s, t), name in names.items()]
    records = lab.run(tasks, [Variant(method) for method in SYSTEMS])
    values = {
        (method, cell): {
            metric: figure([r[metric] for r in records if r["key"]["method"] == method and r["key"]["task"] == name])
            for metric in ("t_avg", "t_unk", "h_score")
        }
        for method in SYSTEMS
        for cell, name in names.items()
    }
    rows = []
    pictures = {name: {m: np.full((len(ticks), len(columns)), np.nan) for m in SYSTEMS} for name in METRICS.values()}
    for (method, (s, t)), figures in values.items():
        split_of = {"shared": n - s - t, "source_private": s, "target_private": t}
        rows.append({"method": method, **split_of, **spread(figures)})
        for metric, name in METRICS.items():
            if (mean := figures[metric].mean) is not None:
                pictures[name][method][ticks.index(s), columns.index(t)] = mean
    means = [
        [f"`{method}`", *(str(figure([values[method, cell][metric].mean for cell in cells])) for metric in METRICS)]
        for method in SYSTEMS
    ]
    shown = [
        [names[cell], *(str(values[method, cell][metric]) for metric in METRICS for method in SYSTEMS)]
        for cell in cells
    ]
    tables = {
        "Mean ± deviation over the cells": (["system", *METRICS.values()], means),
        "Every cell: shared/source-private/target-private": (
            ["split", *(f"{method}, {name}" for name in METRICS.values() for method in SYSTEMS)],
            shown,
        ),
    }
    text = [
        f"{found.name} {'→'.join(pair)}: all {n} classes are split into shared, source-private and target-private "
        f"ones, in steps of {ticks[1]}; {len(cells)} splits, {lab.seeds} seeds. H needs private classes of the target. "
        "A source of a single class is left out, since it needs two.",
    ]
    names_of_axes = ("|C_s \\ C_t|, source-private classes", "|C_t \\ C_s|, target-private classes")
    title = f"Category gap, T_avg and H for every split of the classes: {found.name} {'→'.join(pair)}"
    return Result(title, text, tables, rows, heat_maps((ticks, columns), pictures, names_of_axes))


def nothing_shared(lab: Lab) -> Result:
    """|C_s| = 15 and |C_t| = 16 of Office-31; one labelled sample a class is the centre, the rest go to the nearest."""
    found, pair = _found(lab)
    classes = found.benchmark.classes
    half = len(classes) // 2
    task = found.task(pair, (list(classes[:half]), list(classes[half:])))
    records = lab.run([task], [Variant(method) for method in SYSTEMS])
    values = {
        method: {
            metric: figure([r[metric] for r in records if r["key"]["method"] == method]) for metric in ONE_SHOT_METRICS
        }
        for method in SYSTEMS
    }
    printed = ONE_SHOT if (found.name, pair) == ("Office-31", ("A", "D")) else {}
    target = lab.domains.sides(task)[1]
    values[BACKBONE] = {"one_shot": figure([one_shot(np.asarray(target.X), target.labels).mean]), "t_unk": figure([])}
    order = sorted(values, key=lambda method: -(values[method]["one_shot"].mean or 0))
    body = [[m, *(str(values[m][metric]) for metric in ONE_SHOT_METRICS), printed.get(m, "–")] for m in order]
    rows = [
        {"method": method, "paper_one_shot": printed.get(method, "").split(" ")[0], **spread(values[method])}
        for method in order
    ]
    text = [
        f"{found.name} {'→'.join(pair)}, |C_s| = {half}, |C_t| = {len(classes) - half}, no class in common. One "
        "labelled target sample a class is a centre in the adapted space, the rest go to the nearest: accuracy in "
        f"percent, mean of 20 draws, ± over {lab.seeds} seeds. T_unk: share of the target that is called unknown, as "
        "all of it should be.",
    ]
    tables = {"One-shot accuracy": (["system", *ONE_SHOT_METRICS.values(), "paper, ResNet-50: one-shot"], body)}
    theirs = [figure([float(printed[method].split()[0])] if method in printed else []) for method in order]
    ours = [values[method]["one_shot"] for method in order]
    picture = beside(order, {"one-shot accuracy": {lab.shown_backbone: ours, "paper, ResNet-50": theirs}})
    return Result(f"No shared class, one-shot recognition: {found.name} {task.name}", text, tables, rows, picture)

"""Figures of decisions on tasks, and the comparison with whole families left out."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

Task = dict[str, Any]


def load_tasks(output: Path, tags: Iterable[str], families: Iterable[str] | None = None) -> list[Task]:
    """All tasks that were generated, by tag; each has its file's seed."""
    found: list[Task] = []
    for tag in tags:
        for file in sorted((output / "tasks").glob(f"{tag}-*.pkl")):
            _, rest = file.stem.split("-", 1)
            family, seed = rest.rsplit("-", 1)
            if families is None or family in families:
                found += [{**task, "seed": int(seed)} for task in pickle.loads(file.read_bytes())]
    return found


def load_reference(output: Path, tag: str, families: Iterable[str]) -> list[Task]:
    """The reference tasks of some families."""
    files = [output / "reference" / f"{tag}-{family}-1.pkl" for family in families]
    return [task for file in files if file.exists() for task in pickle.loads(file.read_bytes())]


def figure(task: Task, known: np.ndarray, right: np.ndarray | None = None) -> float:
    """H, shared accuracy where nothing is unknown, T_unk where nothing is known; in percent."""
    truth, label = task["known"], task["label"]
    right = (task["right"] if right is None else right) & known
    accuracy = rejected = None
    if truth.any():
        _, y = np.unique(label[truth], return_inverse=True)
        accuracy = float((np.bincount(y, right[truth]) / np.bincount(y)).mean())
    if not truth.all():
        rejected = float((~known[~truth]).mean())
    if accuracy is None:
        return 100 * rejected  # type: ignore[operator]
    if rejected is None:
        return 100 * accuracy
    return 100 * 2 * accuracy * rejected / max(accuracy + rejected, 1e-9)


def oracle(task: Task, score: np.ndarray) -> float:
    """The best figure that a threshold on the scores gives."""
    truth = task["known"]
    if not truth.any():
        return 100.0
    if truth.all():
        return figure(task, np.ones(len(score), bool))
    return max(figure(task, score >= q) for q in np.unique(np.quantile(score, np.linspace(0, 1, 50))))


def kind_of(task: Task) -> str:
    """What the target has."""
    share = task["known"].mean()
    return "none unknown" if share == 1 else "none shared" if share == 0 else "both"


def means_figure(task: Task) -> float:
    """Of the class means, not adapted."""
    return figure(task, task["means_known"], task["means_best"] == task["truth_class"])


def mean_by_kind(tasks: list[Task], values: np.ndarray) -> tuple[float, float, float]:
    """The mean over the tasks of each kind."""
    kinds = np.asarray([kind_of(task) for task in tasks])
    a, b, c = (
        float(np.mean(values[kinds == kind])) if (kinds == kind).any() else np.nan
        for kind in ("both", "none unknown", "none shared")
    )
    return a, b, c

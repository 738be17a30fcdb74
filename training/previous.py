"""Another version of the package on the tasks that ``evaluate.py --write`` wrote: its adapted model, through its API.

PYTHONPATH=OTHER/src python -m training.previous TASKS -o FILE.csv
"""

from __future__ import annotations

import argparse
import csv
import logging
import warnings
from pathlib import Path

import numpy as np

import usfda


def figure(truth: np.ndarray, labels: np.ndarray, classes: list[str]) -> float:
    """H; shared accuracy where nothing is unknown; T_unk where nothing is known."""
    known = np.isin(truth, classes)
    accuracy = [np.mean(labels[truth == name] == name) for name in np.unique(truth[known])]
    rejected = float(np.mean(labels[~known] == "unknown")) if not known.all() else None
    if not accuracy:
        return 100 * (rejected or 0.0)
    mean = float(np.mean(accuracy))
    return 100 * (mean if rejected is None else 2 * mean * rejected / max(mean + rejected, 1e-9))


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    with options.output.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["tag", "family", "task", "version", "figure", "kind"])
        for place in sorted(options.tasks.glob("*.npz")):
            tag, rest = place.stem.split("-", 1)
            family, number = rest.rsplit("-", 1)
            with np.load(place) as task:
                X, y, target, truth = (task[name] for name in ("X", "y", "X_t", "y_t"))
            model = usfda.procure(X.astype(np.float32), y.tolist(), method="mixture", settings={"holdout": 0.0})
            labels = usfda.adapt(model, target.astype(np.float32)).predict(target.astype(np.float32))
            share = np.isin(truth, model.classes_).mean()
            kind = "none unknown" if share == 1 else "none shared" if share == 0 else "both"
            row = [tag, family, number, usfda.__version__, round(figure(truth, labels, model.classes_), 2), kind]
            writer.writerow(row)
            file.flush()


if __name__ == "__main__":
    main()

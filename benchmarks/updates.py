"""A target that arrives in batches, `adapt --update`, against all of it at once: Office-31, labels only score.

python benchmarks/updates.py OFFICE31 [--batches 10] [--backbone NAME]
"""

from __future__ import annotations

import argparse

import numpy as np

from usfda import Config, adapt, procure
from usfda.experiments.datasets import benchmark_tasks
from usfda.experiments.tasks import TaskReader
from usfda.metrics import score_decision

FIGURES = {"open-partial": "h_score", "closed": "shared_accuracy"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("office31")
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--backbone", default="efficientnet_lite0")
    options = parser.parse_args()
    reader = TaskReader(options.backbone, Config())
    for gap, figure in FIGURES.items():
        found = []
        for task in benchmark_tasks(options.office31, f"office31-{gap}"):
            source, target = reader.read(task)
            vendor, X = procure(source, method="mixture", backbone=reader.backbone), target.X[:]
            given = {"weights": task.weights or "all"}
            whole, later = adapt(vendor, X, settings=given), None
            for batch in np.array_split(np.random.default_rng(0).permutation(len(X)), options.batches):
                later = adapt(later or vendor, X[batch], update=later is not None, settings=given)
            assert later is not None
            both = [score_decision(target.labels, m.decide(X), m.classes_)[figure] for m in (whole, later)]
            print(f"{gap} {task.name}: at once {both[0]:.1f}, in {options.batches} batches {both[1]:.1f}", flush=True)
            found.append(both)
        print("{}: at once {:.1f}, in batches {:.1f}".format(gap, *np.mean(found, 0)))


if __name__ == "__main__":
    main()

"""How the check without labels compares with the truth: method usfda on the six tasks of Office-31.

python benchmarks/check.py OFFICE31 -o runs/ [--gap open-partial] [--seeds 3] [--backbone NAME]

The metrics themselves are what `usfda compare --data OFFICE31 --protocol office31-GAP` prints.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from usfda import Features
from usfda.experiments.datasets import benchmark_tasks
from usfda.experiments.protocols import OFFICE31_GAPS
from usfda.experiments.runner import Runner
from usfda.experiments.runs import Experiment, Record
from usfda.experiments.systems.api import System
from usfda.metrics import score_decision

# The metric that a gap is judged by; H for the others.
JUDGED_BY = {"partial": "shared_accuracy", "closed": "shared_accuracy", "nothing-shared": "t_unk"}


class CheckAgainstTruth(Experiment):
    """The metrics of a system, and those of its source model before adaptation."""

    name = "check-against-truth"
    version = 1

    def measure(self, system: System, source: Features, target: Features) -> dict[str, Any]:
        assert target.labels is not None
        system.learn(source)
        before = score_decision(target.labels, system.decide(target.X), source.classes)
        return {**super().measure(system, source, target), "source_model": before}


def compare_checks(records: list[Record], known: set[str], metric: str) -> None:
    """What the check said without a label, beside the truth."""
    gains: dict[str, list[float]] = {}
    inside: list[bool] = []
    hits = called = there = 0
    for record in records:
        check = record["check"]
        gains.setdefault(check["verdict"], []).append(record[metric] - record["source_model"][metric])
        unknown = sum(found["samples"] for name, found in record["per_class"].items() if name not in known)
        low, high = check["unknown_interval"]
        inside.append(low <= 100 * unknown / record["samples"] <= high)
        absent = known - set(record["per_class"])
        hits += len(absent & set(check["absent"]))
        called += len(check["absent"])
        there += len(absent)
    for verdict, found in gains.items():
        better = sum(gain > 0 for gain in found)
        print(f"verdict {verdict}: {len(found)} runs, better in {better}, mean gain {np.mean(found):.1f}")
    print(f"share of unknowns inside the interval: {sum(inside)} of {len(inside)}")
    print(f"absent classes: {hits} of {called} named are absent, of {there} that are")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--gap", choices=OFFICE31_GAPS, default="open-partial")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--backbone", default="efficientnet_lite0")
    options = parser.parse_args()
    runner = Runner(options.output, backbone=options.backbone, seeds=options.seeds)
    tasks = benchmark_tasks(options.folder, f"office31-{options.gap}")
    records = runner.run(CheckAgainstTruth(), tasks, {"usfda": ("usfda", {})})["usfda"]
    compare_checks(records, set(OFFICE31_GAPS[options.gap].source), JUDGED_BY.get(options.gap, "h_score"))


if __name__ == "__main__":
    main()

"""Method mixture on the six tasks of Office-31 with every category gap, and its check without labels beside the truth.

python benchmarks/check.py OFFICE31 -o runs/ [--gaps open-partial,closed] [--seeds 1] [--backbone NAME]

A gap's figure is H, shared accuracy where no class is private to the target, T_unk where none is shared; its oracle is
the best figure that a threshold on the method's own scores would give. *Without rejection* is the accuracy on shared
classes with rejection switched off, the README's figure in brackets. The weights of the learned decision were trained
without Office-31.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from suite import METRICS, SuiteRun

from usfda.experiments.datasets import benchmark_tasks
from usfda.experiments.protocols import OFFICE31_GAPS
from usfda.experiments.runner import Runner
from usfda.experiments.runs import Record
from usfda.experiments.tables import markdown_table

JUDGED_BY = {"partial": "shared_accuracy", "closed": "shared_accuracy", "nothing-shared": "t_unk"}
HEAD = [
    "gap", "figure", "without rejection", "oracle", "class means", "ece", "expected better: right",
    "same: better", "class means kept", "share of unknowns inside its interval", "width", "absent classes named: right",
    "of all absent",
]  # fmt: skip


def row(gap: str, records: list[Record]) -> list[str]:
    """The means over tasks and seeds, and what was said without a label beside the truth."""
    metric, known = JUDGED_BY.get(gap, METRICS[0]), set(OFFICE31_GAPS[gap].source)
    gains: dict[str, list[float]] = {"better": [], "same": [], "kept": []}
    inside, widths = [], []
    hits = called = there = 0
    for record in records:
        check = record["check"]
        gains[check["verdict"]].append(record[metric] - record["class_means"][metric])
        unknown = sum(found["samples"] for name, found in record["per_class"].items() if name not in known)
        low, high = check["unknown_interval"]
        inside.append(low <= 100 * unknown / record["samples"] <= high)
        widths.append(high - low)
        absent = known - set(record["per_class"])
        hits += len(absent & set(check["absent"]))
        called += len(check["absent"])
        there += len(absent)
    said = {verdict: f"{len(found)}: {sum(gain > 0 for gain in found)}" for verdict, found in gains.items()}
    said["kept"] = str(len(gains["kept"]))
    figures = [[r[metric], r["oracle"], r["class_means"][metric], r["ece"]] for r in records]
    closed = [r["closed_accuracy"] for r in records if r["closed_accuracy"] is not None]  # none where nothing is shared
    figure, *others = (f"{value:.1f}" for value in np.mean(figures, 0))
    return [
        gap, figure, f"{np.mean(closed):.1f}" if closed else "–", *others, *said.values(),
        f"{sum(inside)} of {len(inside)}", f"{np.mean(widths):.0f}", f"{called}: {hits}", str(there),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--gaps", default=",".join(OFFICE31_GAPS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--backbone", default="efficientnet_lite0")
    options = parser.parse_args()
    runner = Runner(options.output, backbone=options.backbone, seeds=options.seeds)
    rows = []
    for gap in options.gaps.split(","):
        tasks = benchmark_tasks(options.folder, f"office31-{gap}")
        records = runner.run(SuiteRun(), tasks, {gap: ("mixture", {})})
        rows.append(row(gap, records[gap]))
    print(markdown_table(HEAD, rows))


if __name__ == "__main__":
    main()

"""What decisions that the paper leaves open change in its method: one changed at a time, on a few tasks.

    python benchmarks/causes.py DATA -o RUNS [--protocol office31] [--tasks A-D,D-W,W-A] [--seeds N] [--method usfda]
        [--iterations N] [--variants a,b]

Written is RUNS/causes.csv, with the mean over the tasks of every metric. Finished runs are not repeated.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from usfda.experiments.datasets import benchmark_tasks
from usfda.experiments.runner import Baselines, Runner, merge_settings
from usfda.experiments.runs import Experiment
from usfda.experiments.tables import csv_table, markdown_table, mean_over_tasks, provenance, write_text

VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "balanced": {"procurement": {"balanced": True}},
    "training-priors": {"procurement": {"training_priors": True}},
    "300 iterations": {"procurement": {"iterations": 300}},
    "1000 iterations": {"procurement": {"iterations": 1000}},
    "rescaled per batch": {"deployment": {"rescale": "batch"}},
    "ranks": {"deployment": {"rescale": "rank"}},
    "not adapted": {"deployment": {"steps": 0}},
}
METRICS = {"t_avg": "T_avg", "t_unk": "T_unk", "h_score": "H", "shared_accuracy": "shared", "closed_accuracy": "closed"}


class Causes(Experiment):
    """All metrics."""

    name = "causes"
    version = 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--protocol", default="office31")
    parser.add_argument("--tasks", default="A-D,D-W,W-A")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--method", default="usfda", choices=("usfda", "usfda-b"))
    parser.add_argument("--iterations", type=int, default=0, help="of procurement in all variants that set none")
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--backbone", default="efficientnet_lite0")
    options = parser.parse_args()
    tasks = benchmark_tasks(options.data, options.protocol, options.tasks)
    usual = {"procurement": {"iterations": options.iterations}} if options.iterations else {}
    variants: Baselines = {
        name: (options.method, merge_settings(usual, VARIANTS[name])) for name in options.variants.split(",")
    }
    runner = Runner(options.output, backbone=options.backbone, seeds=options.seeds, log_runs=True)
    found = runner.run(Causes(), tasks, variants)
    command = f"benchmarks/causes.py DATA --protocol {options.protocol} --tasks {options.tasks} --seeds {options.seeds}"
    command += f" --method {options.method} --iterations {options.iterations} --backbone {runner.backbone_name}"
    rows, body = [], []
    for name, records in found.items():
        means = {m: mean_over_tasks(records, m, [task.id for task in tasks], options.seeds) for m in METRICS}
        row = {"protocol": options.protocol, "tasks": options.tasks, "method": options.method, "variant": name}
        rows.append({**row, **{m: value.mean for m, value in means.items()}, **provenance(records, command)})
        body.append([name, *map(str, means.values())])
    write_text(options.output / "causes.csv", csv_table(rows, 2))
    print(markdown_table(["variant", *METRICS.values()], body))


if __name__ == "__main__":
    main()

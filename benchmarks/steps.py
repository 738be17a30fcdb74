"""Method usfda after fewer steps of adaptation, and with a stop: six tasks of Office-31, the same vendor's models.

python benchmarks/steps.py OFFICE31 -o runs/ [--seeds 3]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from usfda.experiments.datasets import benchmark_tasks
from usfda.experiments.runner import Runner
from usfda.experiments.runs import Experiment
from usfda.experiments.tables import Statistic, markdown_table

METRICS = {"t_avg": "T_avg", "t_unk": "T_unk", "h_score": "H", "auroc": "AUROC"}


class Steps(Experiment):
    """All metrics, after fewer steps than the default's 200, or until the decision is settled."""

    name = "steps"
    version = 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    lengths: dict[str, dict[str, float]] = {str(steps): {"steps": steps} for steps in (0, 10, 25, 50, 100, 200)}
    lengths |= {f"until {part:.0%} change side": {"settled": part} for part in (0.06, 0.05)}
    baselines = {length: ("usfda", {"deployment": given}) for length, given in lengths.items()}
    runner = Runner(options.output, seeds=options.seeds)
    records = runner.run(Steps(), benchmark_tasks(options.folder), baselines)
    rows = [
        [steps, *(str(Statistic(Statistic.of(r[metric] for r in mine).mean, None)) for metric in METRICS)]
        for steps, mine in records.items()
    ]
    print(markdown_table(["steps", *METRICS.values()], rows))


if __name__ == "__main__":
    main()

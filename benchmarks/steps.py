"""Other lengths of adaptation on Office-31: fewer steps of ``paper``, from the same vendor's models; more of LEAD, GLC.

python benchmarks/steps.py OFFICE31 -o runs/ [--system lead] [--tasks A-D,D-W] [--seeds 3]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from usfda.experiments.datasets import benchmark_tasks
from usfda.experiments.runner import Runner
from usfda.experiments.runs import Experiment
from usfda.experiments.tables import Statistic, markdown_table

METRICS = {"t_avg": "T_avg", "t_unk": "T_unk", "h_score": "H", "auroc": "AUROC"}


# A system's setting, and its values; the default's are 200 steps and 50 epochs.
LENGTHS: dict[str, dict[str, dict[str, Any]]] = {
    "paper": {
        **{f"{steps} steps": {"deployment": {"steps": steps}} for steps in (0, 10, 25, 50, 100, 200)},
        **{f"{part:.0%} change side": {"deployment": {"settled": part}} for part in (0.06, 0.05)},
    },
    **{system: {f"{n} epochs": {"epochs": n} for n in (50, 150, 400)} for system in ("lead", "glc")},
}


class Steps(Experiment):
    """All metrics, after another length of adaptation."""

    name = "steps"
    version = 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--system", default="paper", choices=LENGTHS)
    parser.add_argument("--tasks")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    systems = {length: (options.system, given) for length, given in LENGTHS[options.system].items()}
    runner = Runner(options.output, seeds=options.seeds)
    records = runner.run(Steps(), benchmark_tasks(options.folder, wanted=options.tasks), systems)
    rows = [
        [length, *(str(Statistic(Statistic.of(r[metric] for r in mine).mean, None)) for metric in METRICS)]
        for length, mine in records.items()
    ]
    print(markdown_table([options.system, *METRICS.values()], rows))


if __name__ == "__main__":
    main()

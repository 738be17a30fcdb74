"""Method paper after fewer steps of adaptation: the six tasks of Office-31, from the same vendor's models.

python benchmarks/steps.py OFFICE31 -o runs/ [--seeds 3]
"""

import argparse
from pathlib import Path

from usfda.experiments.jobs import Variant
from usfda.experiments.reproduce import Lab
from usfda.experiments.tables import figure, markdown_table

METRICS = {"t_avg": "T_avg", "t_unk": "T_unk", "h_score": "H", "auroc": "AUROC"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    lab = Lab("steps", options.folder, options.output, seeds=options.seeds)
    tasks = [found.task(pair) for found, pair in lab.choose(lab.find(["office31"]))]
    variants = {steps: Variant("paper", {"deployment": {"steps": steps}}) for steps in (0, 10, 25, 50, 100, 200)}
    records = lab.run(tasks, list(variants.values()))
    rows = [
        [str(steps), *(f"{figure([r[metric] for r in records if v.made(r)]).mean:.1f}" for metric in METRICS)]
        for steps, v in variants.items()
    ]
    print(markdown_table(["steps", *METRICS.values()], rows))


if __name__ == "__main__":
    main()

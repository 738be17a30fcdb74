"""The figure over the number of families that the first network is trained on, families left out in turn.

python -m training.curve -o OUTPUT [--numbers 2,4,8,12] [--draws 3]

For each family that is left out and each number, so many of the others are drawn, and one network is trained on their
tasks. The figure is that of its decision on the reference tasks (``generate --reference``), the mean of three kinds.
"""

from __future__ import annotations

import argparse
import csv
import zlib
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch

from .families import left_out_with
from .measure import figure, load_reference, load_tasks, mean_by_kind
from .network import Bank, TrainSettings, train, weights_of


def figures(output: Path, tags: list[str], family: str, numbers: list[int], draws: int) -> list[tuple[str, int, float]]:
    """Of one family: the number of families in training and the figure, for each draw."""
    torch.set_num_threads(1)
    gone = left_out_with(family)
    tasks = [task for task in load_tasks(output, tags) if task["family"] not in gone]
    reference = load_reference(output, "lite0", [family])
    bank = Bank.of(tasks + reference)
    of = np.asarray([task["family"] for task in tasks])
    names = sorted(set(of))
    found = []
    for number in [*(n for n in numbers if n < len(names)), len(names)]:
        for draw in range(draws if number < len(names) else 1):
            rng = np.random.default_rng(zlib.crc32(f"{family} {number} {draw}".encode()))
            chosen = np.flatnonzero(np.isin(of, rng.permutation(names)[:number]))
            trained = train(bank, chosen, weights_of(bank, chosen), TrainSettings(), [draw])
            values = [figure(task, trained(bank, len(tasks) + i)[:, 0] >= 0) for i, task in enumerate(reference)]
            found.append((family, number, round(float(np.mean(mean_by_kind(reference, np.asarray(values)))), 2)))
    return found


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--tags", default="lite0,made,gradients,bands,pixels")
    parser.add_argument("--families", default="office,emoji,kinds,severe")
    parser.add_argument("--numbers", default="2,4,8,12")
    parser.add_argument("--draws", type=int, default=3)
    options = parser.parse_args()
    families, numbers = options.families.split(","), [int(n) for n in options.numbers.split(",")]
    n = len(families)
    rest = [options.output] * n, [options.tags.split(",")] * n, families, [numbers] * n, [options.draws] * n
    (options.output / "results").mkdir(exist_ok=True)
    with ProcessPoolExecutor(2) as pool, (options.output / "results" / "curve.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["family left out", "families in training", "figure"])
        for rows in pool.map(figures, *rest):
            writer.writerows(rows)
            file.flush()
            for number in dict.fromkeys(row[1] for row in rows):
                print(rows[0][0], number, round(float(np.mean([row[2] for row in rows if row[1] == number])), 1))


if __name__ == "__main__":
    main()

"""Which statistics pay: with whole families left out, the figure that is lost when one statistic is shuffled.

python -m training.importance -o OUTPUT --tags lite0,made,gradients --families office,kinds

Statistics of a sample are shuffled over the samples of a task, those of the target over the tasks.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from .families import left_out_with
from .measure import figure, load_reference, load_tasks
from .network import Bank, Trained, TrainSettings, train, weights_of


def lost(trained: Trained, bank: Bank, chosen: list[int], rng: np.random.Generator) -> dict[str, float]:
    """WeightedSamples of the figure that shuffling each statistic costs, the mean over tasks."""

    def mean(s: np.ndarray, g: np.ndarray) -> float:
        changed = replace(bank, s=s, g=g)
        return float(np.mean([figure(bank.tasks[i], trained(changed, i)[:, 0] >= 0) for i in chosen]))

    whole = mean(bank.s, bank.g)
    found = {}
    for j, name in enumerate(bank.samples):
        s = bank.s.copy()
        for i in chosen:
            rows = np.arange(bank.start[i], bank.start[i + 1])
            s[rows, j] = s[rng.permutation(rows), j]
        found[name] = whole - mean(s, bank.g)
    for j, name in enumerate(bank.whole):
        g = bank.g.copy()
        g[chosen, j] = g[rng.permutation(chosen), j]
        found[f"G.{name}"] = whole - mean(bank.s, g)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--tags", default="lite0,made,gradients")
    parser.add_argument("--families", default="office,imagenet-caltech,severe,emoji,kinds")
    parser.add_argument("--drop", default="", help="statistics left out from the beginning")
    options = parser.parse_args()
    torch.set_num_threads(1)
    tasks = load_tasks(options.output, options.tags.split(","))
    families = options.families.split(",")
    reference = load_reference(options.output, "lite0", families)
    bank = Bank.of(tasks + reference, tuple(filter(None, options.drop.split(","))))
    family = np.asarray([task["family"] for task in bank.tasks])
    is_reference = np.arange(len(bank)) >= len(tasks)
    total: dict[str, list[float]] = {}
    for left_out in families:
        chosen = np.flatnonzero(~np.isin(family, list(left_out_with(left_out))) & ~is_reference)
        trained = train(bank, chosen, weights_of(bank, chosen), TrainSettings(), [0])
        measured = np.flatnonzero((family == left_out) & is_reference).tolist()
        for name, value in lost(trained, bank, measured, np.random.default_rng(0)).items():
            total.setdefault(name, []).append(value)
        print(left_out, "done", flush=True)
    for name, values in sorted(total.items(), key=lambda item: -np.mean(item[1])):
        print(f"{name:20s} {np.mean(values):6.2f}   ", " ".join(f"{value:6.2f}" for value in values), flush=True)


if __name__ == "__main__":
    main()

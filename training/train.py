"""Train the learned decision and write its weights; with families left out, too.

python -m training.train -o OUTPUT --tags lite0,made,gradients,tinyvit,resnet50,dinov2 --sets all,without-office

The weights go to OUTPUT/weights/SET.safetensors. ``make train`` copies them into the package.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import torch
from scipy.special import expit
from torch import nn

from usfda.methods.learned import LEAST_SPREAD, LearnedDecision, Outputs, perceptron, summary

from .families import left_out_with
from .measure import Task, figure, load_tasks, means_figure
from .network import Bank, Trained, TrainSettings, train, weights_of

VERSION = 1
NETWORKS = 4
FOLDS = 3  # of families, for what the second network reads
EXPECTED_STEPS = 6000
HIDDEN = 32
COVERAGE = 0.9
BASICS = ("K", "n_K", "c", "share", "b90", "agree", "rho", "shift", "k_only")  # of the target, for the second network


def outputs_of(trained: Trained, bank: Bank, i: int, mask: bool = False) -> Outputs:
    """As the package computes them."""
    s, g = trained.standardised(bank, i, mask)
    with torch.no_grad():
        out = np.stack([net(s, g)[0].numpy() for net in trained.nets])
    mean = out.mean(0)
    p = 1 / (1 + np.exp(-mean[:, 1:]))
    return Outputs(mean[:, 0], p[:, 0], p[:, 1], float(out[..., 0].std(0).mean()))


def inputs_of(trained: Trained, bank: Bank, i: int, basics: list[int], mask: bool) -> np.ndarray:
    """What the second network reads of a task."""
    task, outputs = bank.tasks[i], outputs_of(trained, bank, i, mask)
    n = len(task["best"])
    parts = summary(outputs, np.full(n, 1 / n), task["best"], task["means_best"], task["means_known"])
    _, g = trained.standardised(bank, i, mask)
    return np.concatenate([parts, g[0].numpy()[basics]])


def truth_of(task: Task, outputs: Outputs) -> np.ndarray:
    """The share of unknowns, the figure of the learned decision and that of the class means, from 0 to 1."""
    return np.asarray([
        1 - task["known"].mean(), figure(task, outputs.log_odds >= 0) / 100, means_figure(task) / 100,
    ])  # fmt: skip


def train_expected(x: np.ndarray, y: np.ndarray, weight: np.ndarray, seed: int = 0) -> dict[str, np.ndarray]:
    """The second network: the share of unknowns, how far it is off, and the two figures."""
    torch.manual_seed(seed)
    centre, scale = np.median(x, 0), x.std(0) + 1e-6
    inputs = torch.from_numpy(((x - centre) / scale).clip(-4, 4).astype(np.float32))
    truth = torch.from_numpy(y.astype(np.float32))
    first, last = nn.Linear(x.shape[1], HIDDEN), nn.Linear(HIDDEN, 4)
    net = nn.Sequential(first, nn.ReLU(), nn.Dropout(0.1), last)
    optimiser = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, total_steps=EXPECTED_STEPS)
    rng = np.random.default_rng(seed)
    for _ in range(EXPECTED_STEPS):
        some = rng.choice(len(x), 128, p=weight)
        out = net(inputs[some] + 0.05 * torch.randn(128, x.shape[1]))
        p = torch.sigmoid(out)
        off = (truth[some, 0] - p[:, 0]).abs()
        spread = LEAST_SPREAD + p[:, 1]
        figures = (p[:, 2:] - truth[some, 1:]).abs().sum(1)
        loss = (off + 0.5 * figures + 0.1 * (spread.log() + off.detach() / spread)).mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
    return {
        "centre": centre, "scale": scale, "one.weight": first.weight.detach().numpy(),
        "one.bias": first.bias.detach().numpy(), "out.weight": last.weight.detach().numpy(),
        "out.bias": last.bias.detach().numpy(),
    }  # fmt: skip


def interval_width(x: np.ndarray, y: np.ndarray, weight: np.ndarray, fold: np.ndarray) -> float:
    """How many spreads the share is off in nine of ten tasks of families that the network was not trained on."""
    ratio = np.zeros(len(x))
    for j in np.unique(fold):
        inner, outer = fold != j, fold == j
        t = train_expected(x[inner], y[inner], weight[inner] / weight[inner].sum())
        out = expit(np.stack([perceptron(t, row) for row in x[outer]]))
        ratio[outer] = np.abs(out[:, 0] - y[outer, 0]) / (LEAST_SPREAD + out[:, 1])
    order = np.argsort(ratio)
    return float(ratio[order][np.searchsorted(np.cumsum(weight[order]), COVERAGE)])


def families_of(bank: Bank) -> np.ndarray:
    """Of every task."""
    return np.asarray([task["family"] for task in bank.tasks])


def fit(bank: Bank, left_out: str | None, settings: TrainSettings, commit: str) -> LearnedDecision:
    """Both networks, without a family and those that share images with it."""
    family = families_of(bank)
    gone = left_out_with(left_out) if left_out else set()
    chosen = np.flatnonzero(~np.isin(family, list(gone)))
    trained = train(bank, chosen, weights_of(bank, chosen), settings, list(range(NETWORKS)))
    # What the second network reads is of families that the first was not trained on, as in use.
    names = sorted(set(family[chosen]))
    basics = [bank.whole.index(name) for name in BASICS]
    x, y, index, of_fold = [], [], [], []
    for fold in range(FOLDS):
        out = set(names[fold::FOLDS])
        apart = set().union(*(left_out_with(name) for name in out)) | gone
        inner = np.flatnonzero(~np.isin(family, list(apart)))
        part = train(bank, inner, weights_of(bank, inner), settings, [100, 101])
        for i in np.flatnonzero(np.isin(family, list(out))).tolist():
            masked = bool(i % 3 == 0)
            x.append(inputs_of(part, bank, i, basics, masked))
            y.append(truth_of(bank.tasks[i], outputs_of(part, bank, i, masked)))
            index.append(i)
            of_fold.append(fold)
    seen = np.asarray(x), np.asarray(y), weights_of(bank, np.asarray(index))
    expected = train_expected(*seen)
    expected["width"] = np.asarray(interval_width(*seen, np.asarray(of_fold)))
    tensors = {f"expected.{name}": value for name, value in expected.items()}
    for j, net in enumerate(trained.nets):
        tensors |= {f"net{j}.{name}": value.numpy() for name, value in net.state_dict().items()}
    for place, centre, scale in zip(("samples", "whole"), trained.centre, trained.scale, strict=True):
        tensors |= {f"{place}.centre": centre, f"{place}.scale": scale}
    low, high = np.nanquantile(bank.g[chosen], [0.002, 0.998], axis=0)
    tensors |= {"whole.low": low, "whole.high": high}
    count = {name: int((family[chosen] == name).sum()) for name in names}
    record: dict[str, Any] = {
        "version": f"{VERSION}{'' if left_out is None else f' without {left_out}'}", "networks": NETWORKS,
        "samples": bank.samples, "whole": bank.whole, "expected": basics, "families": count,
        "left_out": sorted(gone), "backbones": sorted({bank.tasks[i]["tag"] for i in chosen}), "commit": commit,
    }  # fmt: skip
    return LearnedDecision(record, tensors)


def save(decision: LearnedDecision, file: Path) -> None:
    """The weights in half precision, but for what is subtracted and divided by."""
    file.parent.mkdir(parents=True, exist_ok=True)
    exact = ("centre", "scale", "low", "high", "width")
    tensors = {
        name: np.ascontiguousarray(value, np.float32 if name.endswith(exact) else np.float16)
        for name, value in decision.tensors.items()
    }
    safetensors.numpy.save_file(tensors, file, {"record": json.dumps(dict(decision.record))})


def one(output: Path, tags: list[str], name: str, drop: tuple[str, ...]) -> str:
    """Train one set of weights."""
    torch.set_num_threads(1)
    started = time.perf_counter()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    bank = Bank.of(load_tasks(output, tags), drop)
    left_out = None if name == "all" else name.removeprefix("without-")
    decision = fit(bank, left_out, TrainSettings(), commit)
    save(decision, output / "weights" / f"{name}.safetensors")
    return f"{name}: {len(bank)} tasks, {time.perf_counter() - started:.0f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--tags", default="lite0,made,gradients,tinyvit,resnet50,dinov2")
    parser.add_argument("--sets", default="all")
    parser.add_argument("--drop", default="", help="statistics that are left out")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    names, drop = options.sets.split(","), tuple(filter(None, options.drop.split(",")))
    jobs = [(options.output, options.tags.split(","), name, drop) for name in names]
    with ProcessPoolExecutor(options.jobs) as pool:
        for said in pool.map(one, *zip(*jobs, strict=True)):
            print(said, flush=True)


if __name__ == "__main__":
    main()

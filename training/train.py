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
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import torch
from scipy.special import expit
from torch import nn

from usfda.methods.mixture.learned import LEAST_SPREAD, LearnedDecision, Outputs, aggregates, context, perceptron
from usfda.methods.mixture.neighbours import NeighbourGraph

from .families import left_out_with
from .measure import Task, figure, load_tasks, means_figure
from .network import Bank, Trained, TrainSettings, train, weights_of

VERSION = 2
NETWORKS = 4
FOLDS = 3  # of families, for what the second and third networks read
EXPECTED_STEPS = 6000
HIDDEN = 32  # of the second and third networks
COVERAGE = 0.9
BASICS = (
    "K",
    "n_K",
    "c",
    "share",
    "b90",
    "agree",
    "rho",
    "shift",
    "k_only",
)  # of the target, for the second and third networks


def outputs_of(trained: Trained, bank: Bank, i: int, mask: bool = False) -> Outputs:
    """As the package computes them."""
    s, g = trained.standardised(bank, i, mask)
    with torch.no_grad():
        out = np.stack([net(s, g)[0].numpy() for net in trained.nets])
    mean = out.mean(0)
    p = 1 / (1 + np.exp(-mean[:, 1:]))
    return Outputs(mean[:, 0], p[:, 0], p[:, 1], float(out[..., 0].std(0).mean()))


def unseen_outputs(bank: Bank, settings: TrainSettings) -> list[Outputs]:
    """The first network's outputs for every task, by one that was trained on other families."""
    family = families_of(bank)
    names = sorted(set(family))
    found: dict[int, Outputs] = {}
    for fold in range(FOLDS):
        out = set(names[fold::FOLDS])
        apart = set().union(*(left_out_with(name) for name in out))
        inner = np.flatnonzero(~np.isin(family, list(apart)))
        part = train(bank, inner, weights_of(bank, inner), settings, [100, 101])
        for i in np.flatnonzero(np.isin(family, list(out))).tolist():
            found[i] = outputs_of(part, bank, i, mask=i % 3 == 0)
    return [found[i] for i in range(len(bank))]


def bank_of_outputs(bank: Bank, outputs: list[Outputs]) -> Bank:
    """The inputs of the second network."""
    basics = [bank.whole.index(name) for name in BASICS]
    read = []
    for task, found in zip(bank.tasks, outputs, strict=True):
        n, graph = len(task["best"]), NeighbourGraph(task["graph"], np.zeros(0))
        read.append(context(found, np.full(n, 1 / n), task["best"], graph.smooth))
    s, g = zip(*read, strict=True)
    whole = np.column_stack([np.asarray(g), bank.g[:, basics]]).astype(np.float32)
    none = np.zeros(0, int)
    return replace(bank, s=np.concatenate(s).astype(np.float32), g=whole, block=(none, none))


def inputs_of(task: Task, outputs: Outputs) -> np.ndarray:
    """What the third network reads of a task."""
    n = len(task["best"])
    parts = aggregates(outputs, np.full(n, 1 / n), task["best"], task["means_best"], task["means_known"])
    return np.concatenate([parts, [task["whole"][name] for name in BASICS]])


def truth_of(task: Task, outputs: Outputs) -> np.ndarray:
    """The share of unknowns, the figure of the learned decision and that of the class means, from 0 to 1."""
    return np.asarray([
        1 - task["known"].mean(), figure(task, outputs.log_odds >= 0) / 100, means_figure(task) / 100,
    ])  # fmt: skip


def train_expected(x: np.ndarray, y: np.ndarray, weight: np.ndarray, seed: int = 0) -> dict[str, np.ndarray]:
    """The third network: the share of unknowns, how far it is off, and the two figures."""
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


def tensors_of(trained: Trained) -> dict[str, np.ndarray]:
    """The networks, and the standardisation of their inputs."""
    tensors = {
        f"net{j}.{name}": value.numpy()
        for j, net in enumerate(trained.nets)
        for name, value in net.state_dict().items()
    }
    for place, centre, scale in zip(("samples", "whole"), trained.centre, trained.scale, strict=True):
        tensors |= {f"{place}.centre": centre, f"{place}.scale": scale}
    return tensors


def fit(bank: Bank, left_out: str | None, settings: TrainSettings, commit: str) -> LearnedDecision:
    """All networks, from the tasks of the families that are not left out."""
    family, chosen = families_of(bank), np.arange(len(bank))
    weight = weights_of(bank, chosen)
    first = train(bank, chosen, weight, settings, list(range(NETWORKS)))
    # What the others read is of families that the first was not trained on, as in use.
    of_outputs = bank_of_outputs(bank, unseen_outputs(bank, settings))
    second = train(of_outputs, chosen, weight, replace(settings, width=HIDDEN), list(range(NETWORKS)))
    corrected = [outputs_of(second, of_outputs, i) for i in range(len(bank))]
    x = np.asarray([inputs_of(*pair) for pair in zip(bank.tasks, corrected, strict=True)])
    y = np.asarray([truth_of(*pair) for pair in zip(bank.tasks, corrected, strict=True)])
    names = sorted(set(family))
    fold = np.asarray([names.index(name) % FOLDS for name in family])
    expected = train_expected(x, y, weight)
    expected["width"] = np.asarray(interval_width(x, y, weight, fold))
    tensors = {
        f"{prefix}.{name}": value
        for prefix, some in (("first", tensors_of(first)), ("second", tensors_of(second)), ("expected", expected))
        for name, value in some.items()
    }
    low, high = np.nanquantile(bank.g, [0.002, 0.998], axis=0)
    tensors |= {"whole.low": low, "whole.high": high}
    record: dict[str, Any] = {
        "version": f"{VERSION}{'' if left_out is None else f' without {left_out}'}",
        "samples": bank.samples, "whole": bank.whole, "basics": BASICS,
        "families": {name: int((family == name).sum()) for name in names},
        "left_out": sorted(left_out_with(left_out)) if left_out else [],
        "backbones": sorted({task["tag"] for task in bank.tasks}), "commit": commit,
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
    left_out = None if name == "all" else name.removeprefix("without-")
    gone = left_out_with(left_out) if left_out else set()
    bank = Bank.of([task for task in load_tasks(output, tags) if task["family"] not in gone], drop)
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

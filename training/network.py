"""The network of the learned decision, in torch: trained here, run by NumPy in the package."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from usfda.methods.mixture import classifier, statistics

CLIP = 4.0  # standardised statistics are cut here
SAMPLES = 160  # of a task in one training step


@dataclass(frozen=True)
class TrainSettings:
    """How the network is trained."""

    width: int = 64
    dropout: float = 0.15
    noise: float = 0.05
    lr: float = 2e-3
    weight_decay: float = 1e-3
    epochs: float = 5
    batch: int = 16  # tasks
    cross_entropy: float = 0.05  # beside the figure
    calibration: float = 0.2  # weight of the two calibrated outputs' cross-entropy
    mask: float = 0.35  # how often a task's classifier block is masked
    drop: tuple[str, ...] = field(default=())  # statistics left out


class Net(nn.Module):
    """Log-odds of the decision, of known, and of the best class being right, for every sample of a task."""

    def __init__(self, samples: int, whole: int, settings: TrainSettings):
        super().__init__()
        inputs = samples + whole
        self.one, self.two = nn.Linear(inputs, settings.width), nn.Linear(settings.width, settings.width)
        self.out = nn.Linear(settings.width, 3)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, s: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        """s (B, n, samples), g (B, whole) → (B, n, 3)."""
        parts = [s, g[:, None].expand(-1, s.shape[1], -1)]
        h = self.dropout(torch.relu(self.one(torch.cat(parts, 2))))
        h = self.dropout(torch.relu(self.two(h)))
        return self.out(h)  # type: ignore[no-any-return]


@dataclass
class Bank:
    """Tasks as tensors, one after the other."""

    tasks: list[dict[str, Any]]
    samples: list[str]
    whole: list[str]
    s: np.ndarray
    g: np.ndarray
    start: np.ndarray
    right: np.ndarray  # weight of each sample in the shared accuracy, 0 where its best class is wrong
    known: np.ndarray  # weights that sum to 1 over the known samples, classes alike
    unknown: np.ndarray  # weights that sum to 1 over the unknown ones
    correct: np.ndarray
    block: tuple[np.ndarray, np.ndarray]  # columns of the classifier's statistics, in s and g

    @classmethod
    def of(cls, tasks: list[dict[str, Any]], drop: tuple[str, ...] = ()) -> Bank:
        """All tasks; where a task has no statistics of a classifier, they are NaN."""
        most = max(tasks, key=lambda task: len(task["samples"]))
        used = {*statistics.MEANING, *classifier.MEANING}
        samples = [name for name in most["samples"] if name in used and name not in drop]
        whole = [name for name in most["whole"] if name in used and f"G.{name}" not in drop]
        s, right, known, unknown, correct = [], [], [], [], []
        for task in tasks:
            n = len(task["best"])
            s.append(np.column_stack([task["samples"].get(name, np.full(n, np.nan, np.float32)) for name in samples]))
            is_known = task["known"]
            k, u = np.zeros(n), np.zeros(n)
            if is_known.any():
                _, label = np.unique(task["label"][is_known], return_inverse=True)
                k[is_known] = 1 / (label.max() + 1) / np.bincount(label)[label]
            if (~is_known).any():
                u[~is_known] = 1 / (~is_known).sum()
            right.append(k * task["right"])
            known.append(k)
            unknown.append(u)
            correct.append(task["right"] & is_known)
        g = np.asarray([[task["whole"].get(name, np.nan) for name in whole] for task in tasks], np.float32)
        block = (
            np.asarray([i for i, name in enumerate(samples) if name in classifier.MEANING], int),
            np.asarray([i for i, name in enumerate(whole) if name in classifier.MEANING], int),
        )
        start = np.cumsum([0, *(len(part) for part in s)])
        joined = [np.concatenate(part).astype(np.float32) for part in (s, right, known, unknown, correct)]
        return cls(
            tasks, samples, whole, joined[0], g, start, joined[1], joined[2], joined[3], joined[4], block
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.tasks)


@dataclass
class Trained:
    """Networks and the standardisation of their inputs."""

    nets: list[Net]
    centre: tuple[np.ndarray, np.ndarray]
    scale: tuple[np.ndarray, np.ndarray]

    def standardised(self, bank: Bank, i: int, mask: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs of one task."""
        rows = slice(bank.start[i], bank.start[i + 1])
        s = np.clip((bank.s[rows] - self.centre[0]) / self.scale[0], -CLIP, CLIP)
        g = np.clip((bank.g[i] - self.centre[1]) / self.scale[1], -CLIP, CLIP)
        if mask:
            s[:, bank.block[0]], g[bank.block[1]] = 0, 0
        return torch.from_numpy(np.nan_to_num(s))[None], torch.from_numpy(np.nan_to_num(g))[None]

    def __call__(self, bank: Bank, i: int, mask: bool = False) -> np.ndarray:
        """(n, 3) log-odds of a task: the mean over the networks."""
        s, g = self.standardised(bank, i, mask)
        with torch.no_grad():
            out = [net(s, g)[0].numpy() for net in self.nets]
        found: np.ndarray = np.mean(out, 0)
        return found


PLAIN = ("gradients", "pixels", "bands")  # tags of vectors that are not of an image network
MADE_SHARE = 0.1  # of the training weight


def weights_of(bank: Bank, chosen: np.ndarray) -> np.ndarray:
    """How often each task is drawn: families alike, and within a family its backbones alike but for the root of n.

    Vectors of a family that are not of an image network count as a family of their own.
    """
    family = [bank.tasks[i]["family"] + "'" * (bank.tasks[i]["tag"] in PLAIN) for i in chosen]
    group = np.asarray([f"{name} {bank.tasks[i]['tag']}" for name, i in zip(family, chosen, strict=True)])
    names, position, count = np.unique(group, return_inverse=True, return_counts=True)
    share = np.sqrt(count)  # of a family and backbone
    of = np.asarray([name.split()[0] for name in names])
    for name in set(family):
        share[of == name] *= (MADE_SHARE if name == "made" else 1 / len(set(family))) / share[of == name].sum()
    found: np.ndarray = (share / count)[position]
    found /= found.sum()
    return found


def train(
    bank: Bank, chosen: np.ndarray, probability: np.ndarray, settings: TrainSettings, seeds: list[int]
) -> Trained:
    """Networks for the chosen tasks, each drawn with its probability."""
    rows = np.concatenate([np.arange(bank.start[i], bank.start[i + 1])[::5] for i in chosen])
    centre = (np.nanmedian(bank.s[rows], 0), np.nanmedian(bank.g[chosen], 0))
    scale = (np.nanstd(bank.s[rows], 0) + 1e-6, np.nanstd(bank.g[chosen], 0) + 1e-6)
    s_all = torch.from_numpy(np.nan_to_num(np.clip((bank.s - centre[0]) / scale[0], -CLIP, CLIP)).astype(np.float32))
    g_all = torch.from_numpy(np.nan_to_num(np.clip((bank.g - centre[1]) / scale[1], -CLIP, CLIP)).astype(np.float32))
    truth = [torch.from_numpy(x) for x in (bank.right, bank.known, bank.unknown, bank.correct)]
    trained = Trained([], centre, scale)
    steps = int(settings.epochs * len(chosen) / settings.batch)
    for seed in seeds:
        torch.manual_seed(seed)
        rng = np.random.default_rng(seed)
        net = Net(bank.s.shape[1], bank.g.shape[1], settings)
        optimiser = torch.optim.AdamW(net.parameters(), lr=settings.lr, weight_decay=settings.weight_decay)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, settings.lr, total_steps=steps)
        net.train()
        for _ in range(steps):
            picked = rng.choice(chosen, settings.batch, p=probability)
            index = np.zeros((len(picked), SAMPLES), np.int64)
            there = np.zeros((len(picked), SAMPLES), np.float32)
            for j, i in enumerate(picked):
                n = bank.start[i + 1] - bank.start[i]
                some = rng.permutation(n)[:SAMPLES] if n > SAMPLES else np.arange(n)
                index[j, : len(some)] = bank.start[i] + some
                there[j, : len(some)] = 1
            here = torch.from_numpy(there)
            s, g = s_all[index], g_all[picked]
            masked = torch.from_numpy(rng.random(len(picked)) < settings.mask)
            if len(bank.block[0]):
                columns = torch.zeros(s.shape[2])
                columns[bank.block[0]] = 1
                s = s * (1 - masked[:, None, None] * columns)
                columns = torch.zeros(g.shape[1])
                columns[bank.block[1]] = 1
                g = g * (1 - masked[:, None] * columns)
            s = s + settings.noise * torch.randn_like(s)
            out = net(s, g)
            r, k, u, correct = (t[index] * here for t in truth)
            loss = figure_loss(out, r, k, u, correct, here, settings)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimiser.step()
            schedule.step()
        trained.nets.append(net.eval())
    return trained


def figure_loss(
    out: torch.Tensor,
    r: torch.Tensor,
    k: torch.Tensor,
    u: torch.Tensor,
    correct: torch.Tensor,
    here: torch.Tensor,
    settings: TrainSettings,
) -> torch.Tensor:
    """1 − the soft figure of every task, and cross-entropies."""
    ks, us = k.sum(1), u.sum(1)
    has_k, has_u = (ks > 0).float(), (us > 0).float()
    r, k, u = r / ks.clamp(min=1e-9)[:, None], k / ks.clamp(min=1e-9)[:, None], u / us.clamp(min=1e-9)[:, None]
    p = torch.sigmoid(out[..., 0])
    accuracy, rejected = (p * r).sum(1), ((1 - p) * u).sum(1)
    h = 2 * accuracy * rejected / (accuracy + rejected + 1e-6)
    figure = has_k * has_u * h + has_k * (1 - has_u) * accuracy + (1 - has_k) * rejected
    entropy = -(k * nn.functional.logsigmoid(out[..., 0])).sum(1) - (u * nn.functional.logsigmoid(-out[..., 0])).sum(1)
    loss = (1 - figure) + settings.cross_entropy * entropy
    is_known = (k > 0).float()
    bce = nn.functional.binary_cross_entropy_with_logits
    for column, truth in ((1, is_known), (2, correct)):
        each = bce(out[..., column], truth, reduction="none") * here
        loss = loss + settings.calibration * each.sum(1) / here.sum(1)
    return loss.mean()

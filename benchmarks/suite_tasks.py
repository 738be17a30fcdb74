"""The tasks of the development suite: which classes of which domains, and what part of the target (suite.py runs them).

Tasks of seven data sets: Office-31 (all gaps with random class orders, few and many classes, one and two shared ones,
unknowns of 1 to 97 %, unequal class sizes, tiny targets, thirds of targets), Office-31 with Caltech-10, ImageNet with
Caltech-101 (reduced copies, whole and by random subsets), Office-31 under severe shifts that are made, emoji of several
makers, photographs against drawings of the same kinds of things, and handwritten digits.
"""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from suite_data import SHIFTS, A, D, W, all_domains, folder, labels_of

from usfda import Samples
from usfda.experiments.tasks import Benchmark, Task

Gap = tuple[int, int, int]  # shared, source-private and target-private classes


@dataclass(frozen=True)
class Cut:
    """What a task is made of: its data set and row, its domains, its classes, and what part of the target is taken."""

    data: str
    row: str
    source: str
    target: str
    gap: Gap
    part: str | int | None  # "unequal", "third", "97%" (of unknowns), or a number of samples
    name: str  # by which everything random is drawn

    @property
    def metric(self) -> str:
        """What the task's figure is."""
        shared, _, extra = self.gap
        return "t_unk" if not shared else "h_score" if extra else "shared_accuracy"


def weights_of(cut: Cut) -> str:
    """Weights of the learned decision that were trained without the task's data set."""
    return f"without-{'office' if cut.data in ('office31', 'caltech10') else cut.data}"


def photograph_cuts() -> list[Cut]:
    """All tasks but those of the digits."""
    made: list[Cut] = []

    def add(data: str, row: str, gap: Gap, source: str, target: str, part: str | int | None = None) -> None:
        row = f"{row} {gap[0]}/{gap[1]}/{gap[2]}"
        made.append(Cut(data, row, source, target, gap, part, f"{data}|{row}|{source}>{target}|{len(made)}"))

    gaps: list[Gap] = [(10, 10, 11), (10, 0, 11), (10, 21, 0), (31, 0, 0), (20, 0, 4), (0, 15, 16)]
    few: list[Gap] = [(3, 2, 2), (4, 0, 3), (3, 4, 0), (7, 0, 0), (0, 4, 3)]
    for gap in gaps:
        for pair in [(A, D), (W, A), (D, W)]:
            add("office31", "gap", gap, *pair)
        for pair in [(A, W), (W, A)]:
            add("office31", "third", gap, *pair, "third")
    for gap in few:
        for pair in [(A, W), (A, W), (W, A), (W, A)]:
            add("office31", "few", gap, *pair)
    for gap in [(1, 10, 20), (2, 9, 20)]:
        for pair in [(A, D), (W, A), (D, W)]:
            add("office31", "one or two", gap, *pair)
    for gap in [(5, 2, 24), (24, 4, 3)]:
        for pair in [(A, W), (W, A)]:
            add("office31", "many", gap, *pair)
    for share in ("1%", "3%", "5%", "10%", "50%", "90%", "97%"):
        for pair in [(A, W), (W, A)]:
            add("office31", f"unknown {share}", (10, 10, 11), *pair, share)
    for gap in [(10, 10, 11), (10, 21, 0), (31, 0, 0)]:
        for pair in [(A, W), (W, A)]:
            add("office31", "unequal", gap, *pair, "unequal")
    for gap in [(10, 10, 11), (10, 21, 0), (5, 5, 5)]:
        for pair in [(A, W), (W, A)]:
            for n in (20, 40):
                add("office31", "tiny", gap, *pair, n)

    C = "caltech10"
    for source in (A, D, W):
        add(C, "31 to 10", (10, 21, 0), source, C)
    for gap in [(5, 5, 5), (10, 0, 0), (3, 2, 2), (3, 4, 0), (1, 4, 5), (0, 5, 5)]:
        for pair in [(A, C), (W, C), (C, A), (C, W)]:
            add(C, "gap", gap, *pair)

    I1K, C101 = "imagenet", "caltech101"
    add("imagenet-caltech", "whole C→I", (31, 69, 967), C101, I1K)
    add("imagenet-caltech", "whole I→C", (31, 967, 69), I1K, C101)
    for gap in [(3, 2, 2), (5, 0, 5), (5, 5, 5), (5, 5, 0), (10, 0, 0), (0, 5, 5), (1, 9, 10)]:
        for pair in [(C101, I1K), (I1K, C101)]:
            add("imagenet-caltech", "small", gap, *pair)
    for gap in [(20, 30, 30), (25, 25, 0), (31, 0, 19)]:
        for pair in [(C101, I1K), (I1K, C101)]:
            add("imagenet-caltech", "50", gap, *pair)
    add("imagenet-caltech", "200", (31, 169, 69), I1K, C101)
    add("imagenet-caltech", "200", (31, 69, 169), C101, I1K)
    add("imagenet-caltech", "200", (31, 169, 0), I1K, C101)

    for gap in [(10, 10, 11), (31, 0, 0), (3, 2, 2), (3, 4, 0)]:
        for shift in SHIFTS:
            for source, target in [(A, W), (W, A)]:
                add("severe", "severe", gap, source, f"{target}-{shift.__name__}")

    for gap in [(10, 5, 10), (20, 0, 0), (3, 2, 2), (4, 0, 3), (3, 4, 0), (0, 4, 3), (1, 6, 8)]:
        for source, target in [
            ("google", "openmoji-black"), ("apple", "twitter"), ("openmoji-color", "facebook"),
            ("fluent-high-contrast", "google"),
        ]:  # fmt: skip
            add("emoji", "makers", gap, source, target)

    for gap in [*few, (2, 3, 2), (6, 5, 6), (17, 0, 0)]:
        for pair in [
            ("photographs", "clip-art"), ("clip-art", "photographs"), ("photographs", "lines"), ("lines", "clip-art"),
        ]:  # fmt: skip
            add("kinds", "kinds", gap, *pair)
    return made


def digit_cuts() -> list[Cut]:
    """The tasks of handwritten digits."""
    made: list[Cut] = []
    for gap in [(5, 2, 3), (4, 3, 3), (5, 0, 5), (10, 0, 0), (5, 5, 0), (0, 5, 5), (1, 4, 5)]:
        for source, target in [("mnist", "uci"), ("uci", "mnist")] * 2:
            row = f"digits {gap[0]}/{gap[1]}/{gap[2]}"
            made.append(Cut("digits", row, source, target, gap, None, f"{row}|{source}>{target}|{len(made)}"))
    return made


class Suite(Benchmark):
    """The tasks of a list of cuts, of domains by name."""

    id = "suite"
    name = "development suite"

    def __init__(self, cuts: list[Cut], domains: Mapping[str, Samples]):
        super().__init__()
        self.cuts = {f"{self.id}/{cut.name}": cut for cut in cuts}
        self.domains = domains

    def tasks(self) -> list[Task]:
        return [Task(name, cut.name, *self.cut(cut), weights=weights_of(cut)) for name, cut in self.cuts.items()]

    def cut(self, cut: Cut) -> tuple[Samples, Samples]:
        """Source and target, all drawn by the task's name.

        Shared classes are drawn from those of both domains; private ones from what is left of the domain's own, so that
        no class is private to both.
        """
        rng = np.random.default_rng(zlib.crc32(cut.name.encode()))
        source_side, target_side = self.domains[cut.source], self.domains[cut.target]
        ours, theirs = (_enough(side) for side in (source_side, target_side))
        shared, private, extra = cut.gap
        both = rng.permutation(np.intersect1d(ours, theirs))
        known = both[:shared]
        # Classes of one domain alone come first: they cost no other class.
        pool = [*rng.permutation(np.setdiff1d(ours, theirs)), *both[shared:]]
        mine = np.asarray(pool[:private], dtype=both.dtype)
        pool = [*rng.permutation(np.setdiff1d(theirs, ours)), *np.setdiff1d(both[shared:], mine)]
        new = np.asarray(pool[:extra], dtype=both.dtype)
        if (len(known), len(mine), len(new)) != cut.gap:
            raise ValueError(f"{cut.name}: only {len(known)}/{len(mine)}/{len(new)} classes")
        labels = labels_of(target_side)
        index = np.flatnonzero(np.isin(labels, [*known, *new]))
        kept = _part(cut.part, index, labels, np.isin(labels, new), rng)
        return source_side[np.flatnonzero(np.isin(labels_of(source_side), [*known, *mine]))], target_side[kept]


def _enough(samples: Samples) -> np.ndarray:
    """Classes with three samples or more."""
    names, counts = np.unique(labels_of(samples), return_counts=True)
    return names[counts >= 3]


def _part(
    part: str | int | None, index: np.ndarray, labels: np.ndarray, new: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Some of the target's samples ``index``; ``new`` are those of private classes."""
    if part == "unequal":  # the largest class whole, the smallest a twelfth of it
        kept = []
        names = rng.permutation(np.unique(labels[index]))
        for j, name in enumerate(names):
            members = index[labels[index] == name]
            kept.append(rng.permutation(members)[: max(2, round(len(members) * 0.08 ** (j / (len(names) - 1))))])
        index = np.concatenate(kept)
    elif part == "third":
        index = rng.permutation(index)[: len(index) // 3]
    elif isinstance(part, str):
        share = float(part.rstrip("%")) / 100
        known, unknown = (rng.permutation(index[new[index] == side]) for side in (False, True))
        n = min(len(known) / (1 - share), len(unknown) / share)
        index = np.concatenate([known[: round(n * (1 - share))], unknown[: max(1, round(n * share))]])
    elif isinstance(part, int):
        index = rng.permutation(index)[:part]
    return np.sort(index)


def load_suite(data: Path, packages: Path, out: Path, backbone: str) -> Suite:
    """The tasks for a backbone."""
    if backbone in ("pixels", "gradients"):
        from usfda.experiments.digits import write_images

        mnist, uci = write_images(out / "digits")
        return Suite(digit_cuts(), {"mnist": folder(mnist), "uci": folder(uci)})
    return Suite(photograph_cuts(), all_domains(data, packages, out))


def suite_parser(text: str | None) -> argparse.ArgumentParser:
    """What every call that uses the suite is given."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("emoji", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--backbone", default="efficientnet_lite0")
    return parser

"""The development suite: what changes to method ``usfda`` are chosen by. It is frozen, and it is not the protocol.

Tasks of seven data sets: Office-31 (all gaps with random class orders, few and many classes, one and two shared ones,
unknowns of 1 to 97 %, unequal class sizes, tiny targets, thirds of targets), Office-31 with Caltech-10, ImageNet with
Caltech-101 (reduced copies, whole and by random subsets), Office-31 under severe shifts that are made, emoji of several
makers, photographs against drawings of the same kinds of things, and handwritten digits.

A task's *figure* is H, shared accuracy where no class is private to the target, T_unk where none is shared. Its
*oracle* is the best figure that any threshold on the method's own scores would give, found with the target's labels.
The *decision ratio* is the one over the other. A *failure* is a task on which all samples, or none, are called unknown
while the opposite holds of some. Tasks are averaged within a row, rows within a data set, data sets within the suite.

python benchmarks/suite.py DATA EMOJI -o suite/ [--backbone NAME] [--sets office31,emoji] [--ablate] [--directions]
    [--json FILE]

With ``--backbone pixels`` or ``gradients`` the digits are run, with any other backbone all the rest. Pictures that have
to be made and runs.jsonl go to the output folder. ``--ablate`` runs the method also with one part changed at a time,
``--directions`` with fewer directions (as ``usfda procure --private``) and with more: variants.py has them.
"""

from __future__ import annotations

import argparse
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from suite_data import SHIFTS, A, D, W, all_domains, folder, labels_of
from variants import OTHER_DIRECTIONS, PARTS, WHOLE

from usfda import Features, Samples
from usfda.experiments.runner import Runner
from usfda.experiments.runs import Experiment, Record
from usfda.experiments.systems.api import Decision, System
from usfda.experiments.tables import markdown_table
from usfda.experiments.tasks import Benchmark, Task
from usfda.metrics import score_decision

METRICS = ("h_score", "shared_accuracy", "t_unk", "unknown_share")
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
        return [Task(name, cut.name, *self.cut(cut)) for name, cut in self.cuts.items()]

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


def oracle(truth: np.ndarray, decision: Decision, classes: list[str]) -> float:
    """The best figure that a threshold on the scores would give, with the labels at hand, in percent."""
    shared = np.isin(truth, classes)
    if not shared.any():
        return 100.0
    right = np.asarray(classes)[decision.best] == truth
    order = np.argsort(-decision.score, kind="stable")
    names, y = np.unique(truth[shared], return_inverse=True)
    weight = np.zeros(len(truth))
    weight[shared] = 1 / (len(names) * np.bincount(y)[y])  # the mean over classes of the accuracy within each
    accuracy = np.concatenate([[0], np.cumsum((weight * right)[order])])
    if shared.all():
        return 100 * float(accuracy[-1])
    rejected = 1 - np.concatenate([[0], np.cumsum(~shared[order])]) / (~shared).sum()
    # A threshold lies between two different scores.
    between = np.concatenate([[True], np.diff(decision.score[order]) != 0, [True]])
    h = 2 * accuracy * rejected / np.maximum(accuracy + rejected, 1e-12)
    return 100 * float(h[between].max())


class SuiteRun(Experiment):
    """All metrics, the oracle on the method's own scores, and those of the source model before adaptation."""

    name = "suite"
    version = 2

    def measure(self, system: System, source: Features, target: Features) -> dict[str, Any]:
        assert target.labels is not None
        system.learn(source)
        before = score_decision(target.labels, system.decide(target.X), source.classes)
        record = super().measure(system, source, target)
        best = oracle(target.labels, system.decide(target.X), source.classes)
        return {**record, "oracle": best, "source_model": {name: before[name] for name in METRICS}}


@dataclass(frozen=True)
class Result:
    """What one task gave."""

    cut: Cut
    figure: float
    oracle: float
    failed: bool
    ece: float
    gain: float  # over the source model
    verdict: str  # of the check without labels
    unknown: float  # the true share of unknowns, the estimated one, and its interval
    estimate: float
    interval: tuple[float, float]

    @classmethod
    def of(cls, cut: Cut, classes: set[str], record: Record) -> Result:
        """From its record; ``classes`` are the source's."""
        called, wrong = record["unknown_share"], {0.0, 100.0}
        failed = called in (wrong if cut.metric == "h_score" else wrong - {100.0 if cut.metric == "t_unk" else 0.0})
        figure, check = record[cut.metric], record["check"]
        unknown = sum(found["samples"] for name, found in record["per_class"].items() if name not in classes)
        return cls(
            cut, figure, record["oracle"], failed, record["ece"], figure - record["source_model"][cut.metric],
            check["verdict"], 100 * unknown / record["samples"], check["unknown_estimate"], check["unknown_interval"],
        )  # fmt: skip

    @property
    def ratio(self) -> float:
        """The decision ratio."""
        return self.figure / max(self.oracle, 1e-9)


def by_row(results: list[Result]) -> dict[str, dict[str, tuple[float, float, float]]]:
    """Data set and row to figure, oracle and decision ratio, each the mean over the row's tasks."""
    found: dict[str, dict[str, list[Result]]] = {}
    for result in results:
        found.setdefault(result.cut.data, {}).setdefault(result.cut.row, []).append(result)
    return {
        data: {row: _mean([(r.figure, r.oracle, r.ratio) for r in some]) for row, some in rows.items()}
        for data, rows in found.items()
    }


def _mean(values: list[tuple[float, float, float]]) -> tuple[float, float, float]:
    figure, best, ratio = np.mean(values, 0).tolist()
    return figure, best, ratio


def summary(results: list[Result]) -> list[list[str]]:
    """One line for each data set, and one for all of them."""
    rows = by_row(results)
    means = {data: _mean(list(found.values())) for data, found in rows.items()}
    table = []
    for data, (figure, best, ratio) in [*means.items(), ("all", _mean(list(means.values())))]:
        some = [r for r in results if data in ("all", r.cut.data)]
        worst = min((found[row][2], row) for name, found in rows.items() if data in ("all", name) for row in found)
        table.append([
            data, str(len(some)), f"{figure:.1f}", f"{best:.1f}", f"{ratio:.3f}", f"{worst[0]:.2f} ({worst[1]})",
            str(sum(r.failed for r in some)), f"{np.mean([r.ece for r in some]):.1f}",
        ])  # fmt: skip
    return table


def by_kind(results: list[Result]) -> list[list[str]]:
    """Figure, oracle and decision ratio by what the target has."""
    kinds = {"h_score": "known and unknown", "shared_accuracy": "nothing unknown", "t_unk": "nothing shared"}
    table = []
    for metric, kind in kinds.items():
        some = [r for r in results if r.cut.metric == metric]
        if some:
            figure, best, ratio = _mean([_mean(list(rows.values())) for rows in by_row(some).values()])
            table.append([kind, str(len(some)), f"{figure:.1f}", f"{best:.1f}", f"{ratio:.3f}"])
    return table


def said(results: list[Result]) -> list[list[str]]:
    """What the check without labels says, beside the truth, over tasks."""
    table = []
    for data in [*dict.fromkeys(r.cut.data for r in results), "all"]:
        some = [r for r in results if data in ("all", r.cut.data)]
        called = {verdict: [r.gain for r in some if r.verdict == verdict] for verdict in ("better", "worse")}
        inside = np.mean([r.interval[0] <= r.unknown <= r.interval[1] for r in some])
        table.append([
            data, f"{100 * np.mean([r.gain > 0 for r in some]):.0f} %", f"{np.mean([r.gain for r in some]):.1f}",
            f"{len(called['better'])}: {sum(gain > 0 for gain in called['better'])}",
            str(len(called["worse"])), f"{100 * inside:.0f} %",
            f"{np.mean([r.interval[1] - r.interval[0] for r in some]):.0f}",
            f"{np.mean([abs(r.estimate - r.unknown) for r in some]):.0f}",
        ])  # fmt: skip
    return table


def beside(found: dict[str, list[Result]]) -> tuple[list[str], list[list[str]]]:
    """One line for each variant: its figure on every data set, and their mean, decision ratio and failures."""
    body: list[list[str]] = []
    for label, results in found.items():
        lines = summary(results)
        body.append([label, *(line[2] for line in lines), lines[-1][4], lines[-1][6]])
    return ["", *(line[0] for line in lines), "decision ratio", "failures"], body


def load_suite(data: Path, packages: Path, out: Path, backbone: str) -> Suite:
    """The tasks for a backbone."""
    if backbone in ("pixels", "gradients"):
        from usfda.experiments.digits import write_images

        mnist, uci = write_images(out / "digits")
        return Suite(digit_cuts(), {"mnist": folder(mnist), "uci": folder(uci)})
    return Suite(photograph_cuts(), all_domains(data, packages, out))


HEAD = ["data set", "tasks", "figure", "oracle", "decision ratio", "worst row", "failures", "ece"]
KIND_HEAD = ["target has", "tasks", "figure", "oracle", "decision ratio"]
SAID_HEAD = [
    "data set", "adaptation is better", "mean gain", "said better: right", "said worse",
    "share of unknowns inside its interval", "width", "estimate off by",
]  # fmt: skip


def suite_parser(text: str | None) -> argparse.ArgumentParser:
    """What every call that uses the suite is given."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("emoji", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--backbone", default="efficientnet_lite0")
    return parser


def main() -> None:
    parser = suite_parser(__doc__)
    parser.add_argument("--sets", help="only these data sets")
    parser.add_argument("--ablate", action="store_true")
    parser.add_argument("--directions", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    suite = load_suite(options.data, options.emoji, options.output, options.backbone)
    systems = {**WHOLE, **(PARTS if options.ablate else {}), **(OTHER_DIRECTIONS if options.directions else {})}
    sets = set(options.sets.split(",")) if options.sets else {cut.data for cut in suite.cuts.values()}
    tasks = [task for task in suite.tasks() if suite.cuts[task.id].data in sets]
    runner = Runner(options.output, backbone=options.backbone)
    records = runner.run(SuiteRun(), tasks, systems)
    if runner.failed:
        raise SystemExit(f"{len(runner.failed)} runs failed, the last: {runner.failed[-1]['error']}")
    classes = {task.id: set(labels_of(suite.cut(suite.cuts[task.id])[0]).tolist()) for task in tasks}

    def result(record: Record) -> Result:
        task = record["key"]["task"]
        return Result.of(suite.cuts[task], classes[task], record)

    order = {task.id: i for i, task in enumerate(tasks)}
    found = {
        label: [result(record) for record in sorted(mine, key=lambda record: order[record["key"]["task"]])]
        for label, mine in records.items()
    }
    for label, results in found.items():
        print(f"\n{label}\n")
        for head, body in ((HEAD, summary(results)), (KIND_HEAD, by_kind(results)), (SAID_HEAD, said(results))):
            print(markdown_table(head, body), end="\n\n")
    if len(found) > 1:
        print(markdown_table(*beside(found)))
    if options.json:
        options.json.write_text(json.dumps({label: by_row(results) for label, results in found.items()}, indent=1))


if __name__ == "__main__":
    main()

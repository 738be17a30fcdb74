"""The development suite: what changes to method ``mixture`` are chosen by. It is frozen, and it is not the protocol.

Its tasks, of seven data sets, are in suite_tasks.py.

A task's *figure* is H, shared accuracy where no class is private to the target, T_unk where none is shared. Its
*oracle* is the best figure that any threshold on the method's own scores would give, found with the target's labels.
The *decision ratio* is the one over the other. A *failure* is a task on which all samples, or none, are called unknown
while the opposite holds of some. Tasks are averaged within a row, rows within a data set, data sets within the suite.

python benchmarks/suite.py DATA EMOJI -o suite/ [--backbone NAME] [--sets office31,emoji] [--ablate] [--private]
    [--json FILE]

With ``--backbone pixels`` or ``gradients`` the digits are run, with any other backbone all the rest. Pictures that have
to be made and runs.jsonl go to the output folder. ``--ablate`` runs the method also with one part changed at a time,
``--private`` with what ``usfda procure --private`` tells, and with more directions: variants.py has them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from suite_data import labels_of
from suite_tasks import Cut, load_suite, suite_parser
from variants import PARTS, PRIVATE, WHOLE

from usfda.data.samples import LabelledFeatures
from usfda.experiments.baselines.api import Baseline, Decision
from usfda.experiments.runner import Runner
from usfda.experiments.runs import Experiment, Record
from usfda.experiments.tables import markdown_table
from usfda.metrics import score_decision

METRICS = ("h_score", "shared_accuracy", "t_unk", "unknown_share")


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
    """All metrics, the oracle on the method's own scores, and those of the class means before adaptation."""

    name = "suite"
    version = 3

    def measure(self, baseline: Baseline, source: LabelledFeatures, target: LabelledFeatures) -> dict[str, Any]:
        baseline.learn(source)
        before = score_decision(target.labels, baseline.decide(target.X), source.classes)
        record = super().measure(baseline, source, target)
        best = oracle(target.labels, baseline.decide(target.X), source.classes)
        return {**record, "oracle": best, "class_means": {name: before[name] for name in METRICS}}


@dataclass(frozen=True)
class Result:
    """What one task gave."""

    cut: Cut
    figure: float
    oracle: float
    failed: bool
    ece: float
    gain: float  # over the class means
    verdict: str  # which decision is used, and how it is expected to compare
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
            cut, figure, record["oracle"], failed, record["ece"], figure - record["class_means"][cut.metric],
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
        called = {verdict: [r.gain for r in some if r.verdict == verdict] for verdict in ("better", "kept")}
        inside = np.mean([r.interval[0] <= r.unknown <= r.interval[1] for r in some])
        table.append([
            data, f"{100 * np.mean([r.gain > 0 for r in some]):.0f} %", f"{np.mean([r.gain for r in some]):.1f}",
            f"{len(called['better'])}: {sum(gain > 0 for gain in called['better'])}",
            str(len(called["kept"])), f"{100 * inside:.0f} %",
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


HEAD = ["data set", "tasks", "figure", "oracle", "decision ratio", "worst row", "failures", "ece"]
KIND_HEAD = ["target has", "tasks", "figure", "oracle", "decision ratio"]
SAID_HEAD = [
    "data set", "better than class means", "mean gain", "expected better: right", "class means kept",
    "share of unknowns inside its interval", "width", "estimate off by",
]  # fmt: skip


def main() -> None:
    parser = suite_parser(__doc__)
    parser.add_argument("--sets", help="only these data sets")
    parser.add_argument("--ablate", action="store_true")
    parser.add_argument("--private", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    suite = load_suite(options.data, options.emoji, options.output, options.backbone)
    baselines = {**WHOLE, **(PARTS if options.ablate else {}), **(PRIVATE if options.private else {})}
    sets = set(options.sets.split(",")) if options.sets else {cut.data for cut in suite.cuts.values()}
    tasks = [task for task in suite.tasks() if suite.cuts[task.id].data in sets]
    runner = Runner(options.output, backbone=options.backbone)
    records = runner.run(SuiteRun(), tasks, baselines)
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

"""``usfda review`` with answers from labels: H and shared accuracy before and after, and coverage of the intervals.

python -m benchmarks.review OUTPUT [--families office31,office,…] [--tasks N] [--draws N] [--csv FILE]

OUTPUT is the folder of ``training/vectors.py``. ``office31`` are the six tasks of the paper's protocol, the other names
are families of ``training/families.py``, with their reference tasks; the weights of the learned decision were trained
without the family. The figure is H; shared accuracy where nothing is unknown; T_unk where nothing is known. The oracle
is the best figure of any threshold, found with all labels.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import subprocess
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from training.generate import load_classifier, tasks_of
from training.tasks import Source, Target
from usfda import Config, Features, Model, adapt, procure
from usfda.methods.heads import ClassMeansHead, MixtureHead
from usfda.methods.mixture.classifier import fit_classifier
from usfda.methods.vendor import Vendor
from usfda.metrics import score
from usfda.stages.review import Survey

COUNTS = (10, 20, 40)
WITHOUT = {"office31": "office", "severe": "office"}  # the weights of other families have their own names
FAMILIES = ("office31", "office", "severe", "emoji", "kinds", "imagenet-caltech", "digits")
METRICS = ("shared_accuracy", "t_unk", "h_score")
CONFIG = Config(threads=1, cache=None)
PROTOCOL = [  # shared classes of the paper's protocol
    "back_pack", "bike", "calculator", "headphones", "keyboard", "laptop_computer", "monitor", "mouse", "mug",
    "projector",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class MixtureTable(MixtureHead):
    """A head that looks its components up: a vector has the number of its row alone."""

    table: np.ndarray = field(default_factory=lambda: np.empty(0))

    def components(self, v: np.ndarray) -> np.ndarray:
        found: np.ndarray = self.table[v[:, 0].astype(int)].copy()
        return found


class MeansTable(ClassMeansHead):
    """The same of the class means."""

    def __init__(self, head: ClassMeansHead, table: np.ndarray):
        super().__init__(head.class_statistics)
        self.table = table

    def probability(self, v: np.ndarray) -> np.ndarray:
        found: np.ndarray = self.table[v[:, 0].astype(int)]
        return found


def tabulated(model: Model, X: np.ndarray) -> Model:
    """The same decisions for rows of X, by their numbers: quicker, where there are thousands of them."""
    head = model.head
    if isinstance(head, MixtureHead):
        model.head = MixtureTable(
            **{one.name: getattr(head, one.name) for one in fields(head)}, table=head.components(X)
        )
    elif isinstance(head, ClassMeansHead):
        model.head = MeansTable(head, head.probability(X))
    return model


def numbers(target: Target) -> np.ndarray:
    return np.arange(len(target.X), dtype=np.float32)[:, None]


def protocol(output: Path, tag: str) -> Iterator[tuple[Source, list[Target]]]:
    """10 shared classes, 10 of the source alone, 11 of the target alone; all pairs of domains."""
    domains = {}
    for name in ("amazon", "dslr", "webcam"):
        with np.load(output / "vectors" / tag / f"{name}.npz") as found:
            domains[name] = found["X"].astype(np.float32), found["y"].astype(str)
    rest = sorted(set(domains["amazon"][1].tolist()) - set(PROTOCOL))
    ours, theirs = np.asarray(sorted(PROTOCOL + rest[:10])), PROTOCOL + rest[10:]
    for first, (X, y) in domains.items():
        for second, (X_t, y_t) in domains.items():
            if first != second:
                mine, new = np.isin(y, ours), np.isin(y_t, theirs)
                source = Source(first, X[mine], np.searchsorted(ours, y[mine]), ours)
                yield source, [Target(second, "both", "all", X_t[new], y_t[new])]


def adapted(source: Source, target: Target, weights: str, classifier: Any) -> Model:
    model = procure(source.X, source.classes[source.y], method="mixture", config=CONFIG)
    if classifier is not None:
        weight, bias = classifier
        of = fit_classifier(weight, bias, source.X, source.y, len(source.classes))
        model.vendor = Vendor(None, model.vendor.class_statistics, of)
    return tabulated(adapt(model, target.X, settings={"weights": weights}, config=CONFIG), target.X)


def figures(model: Model, target: Target) -> dict[str, float | None]:
    """The metrics of a model, and ``figure``."""
    decided = model.decide(numbers(target), probabilities=False)
    best = np.asarray(model.classes_)[decided.best]
    found = score(target.y, model.labels_of(decided), best, decided.score, model.classes_)
    kept: dict[str, float | None] = {name: found[name] for name in METRICS}
    return kept | {"figure": next(found[n] for n in ("h_score", "shared_accuracy", "t_unk") if found[n] is not None)}


def oracle(model: Model, target: Target) -> float:
    """The best figure of any threshold."""
    decided, before, best = model.decide(numbers(target), probabilities=False), model.strictness, 0.0
    for threshold in [*np.unique(np.quantile(decided.score, np.linspace(0, 1, 60))).tolist(), 0.0, 1.0]:
        model.strictness = threshold
        best = max(best, figures(model, target)["figure"] or 0.0)
    model.strictness = before
    return best


def reviewed(model: Model, target: Target, draws: int) -> Iterator[dict[str, Any]]:
    """One row for each number of answers: means over the draws."""
    before, best = figures(model, target), oracle(model, target)
    survey = Survey(model, Features(numbers(target)))
    known = set(model.classes_)
    for count in COUNTS:
        after, inside, width = [], {name: [] for name in METRICS}, {name: [] for name in METRICS}  # type: ignore[var-annotated]
        merged = 0
        for seed in range(draws):
            asked = survey.questions(count, seed)
            truth = [str(target.y[question.row]) for question in asked]
            given = [(q, label if label in known else "none") for q, label in zip(asked, truth, strict=True)]
            result = survey.finish(given)
            found, card = figures(result, target), result.deployment["review"]
            merged += len(card["merged"])
            after.append([found["figure"], found["shared_accuracy"]])
            for name in METRICS:
                low, high = card["measured"][name]["interval"]  # type: ignore[literal-required]
                if (value := found[name]) is not None:
                    inside[name].append(low - 0.01 <= value <= high + 0.01)
                    width[name].append(high - low)
        mean = np.asarray(after, float).mean(0)
        row: dict[str, Any] = {
            "answers": count, "before": before["figure"], "after": float(mean[0]), "oracle": best,
            "accuracy_before": before["shared_accuracy"], "accuracy_after": float(mean[1]), "merged": merged / draws,
        }  # fmt: skip
        for name in METRICS:
            row[f"{name}_inside"] = float(np.mean(inside[name])) if inside[name] else None
            row[f"{name}_width"] = float(np.mean(width[name])) if width[name] else None
        yield row


def family_rows(output: Path, tag: str, family: str, tasks: int, draws: int) -> Iterator[dict[str, Any]]:
    """All tasks of a family."""
    weights, classifier = f"without-{WITHOUT.get(family, family)}", load_classifier(output, tag)
    pairs = protocol(output, tag) if family == "office31" else tasks_of(output, tag, family, tasks, 1, True)
    for i, (source, targets) in enumerate(pairs):
        target = targets[0]
        model = adapted(source, target, weights, classifier)
        for row in reviewed(model, target, draws):
            about = {"family": family, "task": i, "source": source.domain, "target": target.domain, "kind": target.kind}
            yield {**about, **row, "weights": weights, "backbone": tag, "seeds": draws}


def summary(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Means by family and number of answers."""

    def mean(some: list[dict[str, Any]], name: str) -> float:
        values = [row[name] for row in some if row[name] is not None and not np.isnan(row[name])]
        return float(np.mean(values)) if values else float("nan")

    for family in dict.fromkeys(row["family"] for row in rows):
        for count in COUNTS:
            some = [row for row in rows if (row["family"], row["answers"]) == (family, count)]
            before, after, best = (mean(some, name) for name in ("before", "after", "oracle"))
            shares = [
                f"{100 * mean(some, f'{name}_inside'):.0f} % ({mean(some, f'{name}_width'):.0f})" for name in METRICS
            ]
            yield (
                f"{family:17s} {len(some):3d} tasks  {count:2d} answers  figure {before:.1f} → {after:.1f}, oracle "
                f"{best:.1f}, closed {100 * (after - before) / max(best - before, 1e-9):.0f} %  accuracy "
                f"{mean(some, 'accuracy_before'):.1f} → {mean(some, 'accuracy_after'):.1f}  inside (width): "
                f"{', '.join(shares)}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--tag", default="lite0")
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--tasks", type=int, default=12)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    about = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
        ).stdout.strip(),
        "command": f"python -m benchmarks.review OUTPUT --tag {options.tag} --tasks {options.tasks}",
    }
    rows = []
    with threadpool_limits(1):
        for family in options.families.split(","):
            mine = [
                {**row, **about}
                for row in family_rows(options.output, options.tag, family, options.tasks, options.draws)
            ]
            rows += mine
            print("\n".join(summary(mine)), flush=True)
            if options.csv:
                options.csv.parent.mkdir(parents=True, exist_ok=True)
                with options.csv.open("w", newline="") as file:
                    writer = csv.DictWriter(file, rows[0])
                    writer.writeheader()
                    for row in rows:
                        writer.writerow({k: round(v, 2) if isinstance(v, float) else v for k, v in row.items()})


if __name__ == "__main__":
    main()

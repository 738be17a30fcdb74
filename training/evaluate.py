"""The whole method on the reference tasks of families that its weights were not trained on, one CSV row for each task.

python -m training.evaluate -o OUTPUT --tag lite0 --families office,kinds [--count N] [--write DIR]

The figure is H; shared accuracy where nothing is unknown; T_unk where nothing is known: of the adapted head, of the
class means, of the two-component rule alone, and of the decision that the method chose. With ``--write`` the tasks are
written as npz files, so that another version of the package can be run on them (``previous.py``).
"""

from __future__ import annotations

import argparse
import csv
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from usfda.methods.heads import ClassMeansHead
from usfda.methods.mixture.checks import verdict_of
from usfda.methods.mixture.class_statistics import fit_class_statistics
from usfda.methods.mixture.classifier import fit_classifier
from usfda.methods.mixture.fit import WeightedSamples, fit_mixture
from usfda.methods.mixture.learned import LearnedSplitter, load_decision
from usfda.methods.settings import MixtureSettings
from usfda.methods.vendor import Vendor, signed_root

from .generate import load_classifier, tasks_of
from .measure import figure, kind_of, oracle
from .tasks import Source, Target

FAMILIES = ("office", "imagenet-caltech", "severe", "emoji", "kinds")
SAME = {"severe": "office"}  # families that are left out together with another have its weights


def measured(source: Source, target: Target, splitter: LearnedSplitter, classifier: Any) -> dict[str, Any]:
    """One task."""
    K = len(source.classes)
    class_statistics = fit_class_statistics(source.X, source.y, K)
    of_classifier = None if classifier is None else fit_classifier(classifier[0], classifier[1], source.X, source.y, K)
    points = WeightedSamples.of_samples(signed_root(target.X), len(target.X))
    fitted = fit_mixture(Vendor(None, class_statistics, of_classifier), points, MixtureSettings(), splitter, 0)
    known = np.isin(target.y, source.classes)
    truth = {"known": known, "label": np.unique(target.y, return_inverse=True)[1]}

    def figure_of(best: np.ndarray, is_known: np.ndarray) -> float:
        return figure(truth, is_known, source.classes[best] == target.y)

    p, q = fitted.head.probability(target.X), ClassMeansHead(class_statistics).probability(target.X)
    adapted = figure_of(p[:, :-1].argmax(1), p[:, :-1].max(1) >= p[:, -1])
    means = figure_of(q[:, :-1].argmax(1), q[:, :-1].max(1) >= q[:, -1])
    row = {"adapted": adapted, "class_means": means}
    # Of the points, which are the samples without copies.
    place = {x.tobytes(): i for i, x in enumerate(points.x)}
    of = np.asarray([place[x.tobytes()] for x in signed_root(target.X)])
    split = fitted.split
    row["split"] = figure_of(split.best[of], split.log_odds[of] >= 0)
    right = {**truth, "right": source.classes[split.best[of]] == target.y}
    row["oracle"] = oracle(right, split.log_odds[of])
    expected = split.expected
    verdict = verdict_of(expected)
    return {
        **{name: round(value, 2) for name, value in row.items()},
        "chosen": round(means if verdict == "kept" else adapted, 2), "verdict": verdict,
        "expected_adapted": round(expected.adapted, 1), "expected_means": round(expected.other, 1),
        "unknown": round(100 * float(1 - known.mean()), 2), "estimate": round(100 * expected.unknown, 2),
        "low": round(100 * expected.interval[0], 2), "high": round(100 * expected.interval[1], 2),
        "simple": split.outside, "kind": kind_of(truth), "mode": target.mode, "classes": K, "samples": len(target.X),
        "source": source.domain, "target": target.domain,
    }  # fmt: skip


def family_rows(
    output: Path, tag: str, family: str, count: int, weights: str, write: Path | None
) -> list[dict[str, Any]]:
    """All tasks of a family."""
    warnings.simplefilter("ignore")
    splitter, classifier = LearnedSplitter(load_decision(weights)), load_classifier(output, tag)
    rows = []
    with threadpool_limits(1):
        for i, (source, targets) in enumerate(tasks_of(output, tag, family, count, 1, True)):
            row = measured(source, targets[0], splitter, classifier)
            rows.append({"tag": tag, "family": family, "task": i, "weights": splitter.decision.version, **row})
            if write is not None:
                write.mkdir(parents=True, exist_ok=True)
                np.savez(
                    write / f"{tag}-{family}-{i}.npz", X=source.X.astype(np.float16), y=source.classes[source.y],
                    X_t=targets[0].X.astype(np.float16), y_t=targets[0].y,
                )  # fmt: skip
    return rows


def summary_lines(rows: list[dict[str, Any]]) -> list[str]:
    """Figures by family and kind of task; the estimates over all."""
    kinds, columns = ("both", "none unknown", "none shared"), ("class_means", "adapted", "chosen", "split", "oracle")
    lines, means = [], []
    for family in dict.fromkeys(row["family"] for row in rows):
        mine = [row for row in rows if row["family"] == family]
        by_kind = {c: [np.mean([r[c] for r in mine if r["kind"] == kind]) for kind in kinds] for c in columns}
        means.append([np.mean(by_kind[c]) for c in columns])
        parts = [
            f"{c} {' / '.join(f'{value:.1f}' for value in by_kind[c])} ({np.mean(by_kind[c]):.1f})" for c in columns
        ]
        lines.append(f"{family:17s} {len(mine):4d}  " + "  ".join(parts))
    lines.append(
        "mean              " + "  ".join(f"{c} {v:.1f}" for c, v in zip(columns, np.mean(means, 0), strict=True))
    )
    off = np.mean([abs(r["estimate"] - r["unknown"]) for r in rows])
    inside = 100 * np.mean([r["low"] - 0.5 <= r["unknown"] <= r["high"] + 0.5 for r in rows])
    width = np.mean([r["high"] - r["low"] for r in rows])
    close = 100 * np.mean([r["chosen"] >= max(r["adapted"], r["class_means"]) - 2 for r in rows])
    simple = sum(r["simple"] for r in rows)
    lines.append(
        f"share of unknowns off by {off:.1f}, inside its interval {inside:.0f} %, mean width {width:.0f}; chosen one "
        f"within 2 points of the better one in {close:.0f} %; simple rule in {simple} of {len(rows)}"
    )
    return lines


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--tag", default="lite0")
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--count", type=int, default=120)
    parser.add_argument("--weights", help="instead of those without the family")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    families = options.families.split(",")
    weights = [options.weights or f"without-{SAME.get(family, family)}" for family in families]
    n = len(families)
    with ProcessPoolExecutor(options.jobs) as pool:
        found = pool.map(
            family_rows, [options.output] * n, [options.tag] * n, families, [options.count] * n, weights,
            [options.write] * n,
        )  # fmt: skip
        rows = [row for some in found for row in some]
    place = options.output / "results"
    place.mkdir(exist_ok=True)
    with (place / f"families-{options.tag}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    print("\n".join(summary_lines(rows)))


if __name__ == "__main__":
    main()

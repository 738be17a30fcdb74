"""Kinds of things that come after the adaptation: are they called unknown? On the tasks of the development suite.

Of each task's target, half of the images are adapted to, without every second one of its private classes. Scored are
the other half; unseen classes: images of the classes that were left out and of up to ten more that neither side has
seen; and latecomers: images of source classes that the target did not have. Measured with the method,
with all its clusters named, and without outliers (``--set outlier=0``). Labels only score.

python benchmarks/unseen_classes.py DATA EMOJI -o suite/ [--backbone NAME] [--outlier 0.4]
"""

from __future__ import annotations

import zlib

import numpy as np
from suite_data import labels_of
from suite_tasks import Cut, Suite, load_suite, suite_parser

from usfda import Config, Features, adapt, procure, teach
from usfda.data.reading import UNKNOWN
from usfda.experiments.tables import markdown_table
from usfda.experiments.tasks import Task, TaskReader
from usfda.methods.settings import MixtureSettings
from usfda.metrics import score_decision

MORE, MOST = 10, 400  # further classes, and images of unseen classes, at most
WAYS = "default", "all clusters named", "without outliers"
WHAT = "accuracy", "unseen classes unknown", "harmonic mean of these", "latecomers right"
Scores = tuple[float, float, float, float]  # in percent; NaN where the task has no such images


def scores(suite: Suite, cut: Cut, reader: TaskReader, outlier: float) -> dict[str, Scores] | None:
    """By way; None where there are too few images, or no unseen classes."""
    source, target = suite.cut(cut)
    domain = suite.domains[cut.target]
    rng = np.random.default_rng(zlib.crc32(f"strangers of {cut.name}".encode()))
    known, there = set(labels_of(source).tolist()), set(labels_of(target).tolist())
    private = sorted(there - known)
    left_out = private[::2] if len(private) > 1 else []
    others = rng.permutation(sorted(set(labels_of(domain).tolist()) - known - there))[:MORE]
    index = np.flatnonzero(np.isin(labels_of(domain), [*left_out, *others]))
    if len(index) == 0:
        return None
    strange = domain[np.sort(rng.permutation(index)[:MOST])]
    absent = np.flatnonzero(np.isin(labels_of(domain), sorted(known - there)))
    late = domain[np.sort(rng.permutation(absent)[:MOST])] if len(absent) > 1 else strange
    (labelled, seen), (_, later), (_, latecomers) = (
        reader.read(Task(cut.name, cut.name, source, side)) for side in (target, strange, late)
    )
    first = rng.random(len(seen.labels)) < 0.5
    kept = ~np.isin(seen.labels, left_out)
    scored = kept & ~first & np.isin(seen.labels, labelled.classes)
    if (kept & first).sum() < 10 or scored.sum() < 5:
        return None
    vendor = procure(Features(labelled.X, labelled.labels), method="mixture", settings={"holdout": 0.0})
    found = {}
    adapted, without = (
        adapt(vendor, seen.X[kept & first], settings=given) for given in ({"outlier": outlier}, {"outlier": 0.0})
    )
    clusters = adapted.findings.clusters if adapted.findings else ()
    named = teach(adapted, names={c.number: "new" for c in clusters}) if clusters else adapted
    for way, model in zip(WAYS, (adapted, named, without), strict=True):
        accuracy = score_decision(seen.labels[scored], model.decide(seen.X[scored]), model.classes_)["shared_accuracy"]
        rejected = 100 * float(np.mean(model.predict(later.X) == UNKNOWN))
        found_late = np.mean(model.predict(latecomers.X) == latecomers.labels) if len(absent) > 1 else np.nan
        both = 2 * accuracy * rejected / max(accuracy + rejected, 1e-9)
        found[way] = accuracy, rejected, both, 100 * float(found_late)
    return found


def main() -> None:
    parser = suite_parser(__doc__)
    parser.add_argument("--outlier", type=float, default=MixtureSettings().outlier, help="instead of the default")
    options = parser.parse_args()
    suite = load_suite(options.data, options.emoji, options.output, options.backbone)
    reader = TaskReader(options.backbone, Config())
    found: dict[str, list[dict[str, Scores]]] = {}
    for cut in suite.cuts.values():
        suits = cut.gap[0] > 1 and cut.part in (None, "unequal", "third") and "whole" not in cut.row
        if suits and (ways := scores(suite, cut, reader, options.outlier)) is not None:
            found.setdefault(cut.data, []).append(ways)
    rows = {data: [np.nanmean([one[way] for one in some], 0) for way in WAYS] for data, some in found.items()}
    rows["mean"] = list(np.nanmean(list(rows.values()), 0))
    found["mean"] = [one for some in found.values() for one in some]
    head = ["data set", "tasks", *(f"{way}: {what}" for way in WAYS for what in WHAT)]
    body = [
        [data, str(len(found[data])), *(f"{value:.1f}" for values in ways for value in values)]
        for data, ways in rows.items()
    ]
    print(markdown_table(head, body))


if __name__ == "__main__":
    main()

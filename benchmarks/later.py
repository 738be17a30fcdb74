"""A taught model and images that come later, on the tasks of the development suite.

Half of each target is adapted to, without every third one of its private classes and every fourth of the shared ones,
and the model is taught: each cluster gets the name of most of its images, or each class of that half two examples. Then
it is updated with the other half, in which those classes are new kinds of things, and latecomers. Accuracies are means
over classes; what was not taught is right as unknown. Labels teach and score.

python benchmarks/later.py DATA EMOJI -o suite/ [--backbone NAME]
"""

from __future__ import annotations

import zlib

import numpy as np
from suite_data import labels_of
from suite_tasks import Cut, Suite, load_suite, suite_parser

from usfda import Config, Features, InputError, Model, adapt, procure, teach
from usfda.data.reading import UNKNOWN
from usfda.experiments.tables import markdown_table
from usfda.experiments.tasks import Task, TaskReader

KINDS = "vendor's classes, earlier", "taught, earlier", "vendor's classes, later", "taught, later"
PARTS = *KINDS, "new kinds unknown", "latecomers"
WAYS = "not taught, updated", "clusters named", "clusters named, updated", "examples", "examples, updated"


def named(model: Model, X: np.ndarray, y: np.ndarray) -> Model:
    """Each cluster has the name of most of its images."""
    cluster, names = model.decide(X).cluster, {}
    assert cluster is not None
    for c in np.unique(cluster[cluster > 0]).tolist():
        found, counts = np.unique(y[cluster == c], return_counts=True)
        names[c] = str(found[counts.argmax()])
    return teach(model, names=names)


def shown(model: Model, X: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> Model:
    """Each class has two examples."""
    chosen = [i for c in np.unique(y) if np.sum(y == c) > 1 for i in rng.permutation(np.flatnonzero(y == c))[:2]]
    return teach(model, X[chosen], y[chosen])


def scores(suite: Suite, cut: Cut, reader: TaskReader) -> dict[str, list[float]] | None:
    """By way and part, in percent; None where there is too little, or nothing to teach."""
    source, target = suite.cut(cut)
    rng = np.random.default_rng(zlib.crc32(f"taught of {cut.name}".encode()))
    known, there = set(labels_of(source).tolist()), set(labels_of(target).tolist())
    private, shared = sorted(there - known), sorted(known & there)
    late = shared[::4] if len(shared) > 3 else []
    labelled, seen = reader.read(Task(cut.name, cut.name, source, target))
    X, y = seen.X[:], np.asarray(seen.labels)
    first = rng.random(len(y)) < 0.5
    earlier = first & ~np.isin(y, [*private[::3], *late])
    if len(private) < 2 or earlier.sum() < 20 or (~first).sum() < 10:
        return None
    vendor = procure(Features(labelled.X, labelled.labels), method="mixture")
    adapted = adapt(vendor, X[earlier])
    if adapted.findings is None or not adapted.findings.clusters:
        return None

    def judged(model: Model, classes: list[str]) -> list[float]:
        right = model.predict(X) == np.where(np.isin(y, classes), y, UNKNOWN)
        of_vendor, of_client = np.isin(y, sorted(known - set(late))), np.isin(y, sorted(set(classes) - known))
        parts = [side & of for side in (earlier, ~first) for of in (of_vendor, of_client)]
        parts += [~first & ~np.isin(y, classes), ~first & np.isin(y, late)]
        return [
            100 * float(np.mean([right[part & (y == c)].mean() for c in np.unique(y[part])])) if part.any() else np.nan
            for part in parts
        ]

    found = {"not taught, updated": judged(adapt(adapted, X[~first], update=True), adapted.classes_)}
    for way in ("clusters named", "examples"):
        try:
            clusters = way == "clusters named"
            taught = named(adapted, X[earlier], y[earlier]) if clusters else shown(adapted, X[earlier], y[earlier], rng)
        except InputError:  # an example that is like nothing in the target
            continue
        found[way] = judged(taught, taught.classes_)
        found[f"{way}, updated"] = judged(adapt(taught, X[~first], update=True), taught.classes_)
    return found


def main() -> None:
    options = suite_parser(__doc__).parse_args()
    suite = load_suite(options.data, options.emoji, options.output, options.backbone)
    reader = TaskReader(options.backbone, Config())
    found: dict[str, list[dict[str, list[float]]]] = {}
    for cut in suite.cuts.values():
        suits = cut.gap[0] > 1 and cut.part in (None, "unequal", "third") and "whole" not in cut.row
        if suits and (ways := scores(suite, cut, reader)) is not None:
            found.setdefault(cut.data, []).append(ways)
    rows = {
        data: [np.nanmean([one[way] for one in some if way in one], 0) for way in WAYS] for data, some in found.items()
    }
    rows["mean"] = list(np.nanmean(list(rows.values()), 0))
    found["mean"] = [one for some in found.values() for one in some]
    body = [
        [data, str(len(found[data])), way, *(f"{value:.1f}" for value in values)]
        for data, of_ways in rows.items()
        for way, values in zip(WAYS, of_ways, strict=True)
    ]
    print(markdown_table(["data set", "tasks", "way", *PARTS], body))


if __name__ == "__main__":
    main()

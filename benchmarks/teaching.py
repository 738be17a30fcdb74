"""Teaching on Office-31: examples of new classes, and clusters named as a person would. Labels teach and score.

python benchmarks/teaching.py OFFICE31 [--tasks A-D,…] [--backbone NAME]
"""

from __future__ import annotations

import argparse

import numpy as np

from usfda import Config, InputError, Model, adapt, procure, teach
from usfda.data.reading import UNKNOWN
from usfda.data.samples import LabelledFeatures
from usfda.experiments.datasets import benchmark_tasks
from usfda.experiments.tasks import TaskReader
from usfda.metrics import evaluate, one_shot

DRAWS = 20


def vectors(features: LabelledFeatures) -> LabelledFeatures:
    return LabelledFeatures(features.X[:], features.labels)


def draws(model: Model, target: LabelledFeatures, new: list[str], count: int) -> np.ndarray:
    """Accuracy on the new classes' other images: as labelled, and among the taught classes alone; T_unk of the rest."""
    results = []
    for seed in range(DRAWS):
        rng = np.random.default_rng(seed)
        chosen = np.sort(rng.permutation(new)[:count])
        examples = np.asarray([rng.choice(np.flatnonzero(target.labels == name)) for name in chosen])
        taught = None
        while taught is None:
            try:
                taught = teach(model, target.X[examples], target.labels[examples])
            except InputError as error:  # like nothing in the target: the class stays untaught, its images are errors
                examples = np.asarray([e for e in examples if f"example of {target.labels[e]};" not in str(error)])
        rest = np.setdiff1d(np.arange(len(target)), examples)
        labels, decided = target.labels[rest], taught.decide(target.X[rest])
        assert decided.probability is not None
        predicted, mine = taught.labels_of(decided), np.isin(labels, chosen)
        first = len(taught.source_classes)
        among = np.asarray(taught.classes_[first:])[decided.probability[:, first:-1].argmax(1)]
        others = np.isin(labels, list(set(new) - set(chosen)))
        results.append(
            [
                np.mean(predicted[mine] == labels[mine]),
                np.mean(among[mine] == labels[mine]),
                np.mean(predicted[others] == UNKNOWN) if others.any() else np.nan,
            ]
        )
    mean: np.ndarray = 100 * np.mean(results, axis=0)
    return mean


def named(model: Model, target: LabelledFeatures, new: list[str]) -> tuple[float, float, int, int]:
    """Accuracy over all classes of the target before and after each cluster got the name of its majority."""
    cluster = model.decide(target.X).cluster
    assert cluster is not None
    names = {}
    for c in np.unique(cluster[cluster > 0]).tolist():
        found, counts = np.unique(target.labels[cluster == c], return_counts=True)
        names[c] = str(found[counts.argmax()])
    after = teach(model, names=names)

    def accuracy(model: Model) -> float:
        """Mean over all classes; to call a new thing unknown does not name it."""
        labels = model.predict(target.X[:])
        return 100 * float(np.mean([np.mean(labels[target.labels == c] == c) for c in np.unique(target.labels)]))

    return accuracy(model), accuracy(after), len(names), len(set(names.values()) & set(new))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("office31")
    parser.add_argument("--tasks")
    parser.add_argument("--backbone", default="efficientnet_lite0")
    given = parser.parse_args()
    config = Config()
    reader = TaskReader(given.backbone, config)
    for gap in ("nothing-shared", "open-partial"):
        for task in benchmark_tasks(given.office31, f"office31-{gap}", given.tasks):
            source, target = map(vectors, reader.read(task))
            model = adapt(procure(source, method="mixture"), target)
            new = sorted(set(target.classes) - set(source.classes))
            mine = np.isin(target.labels, new)
            latent = one_shot(model.transform(target.X[mine]), target.labels[mine]).mean
            print(f"{gap} {task.name}: nearest example by the head's own vectors {latent:.1f}")
            for count in (len(new), 2):
                form = "  {} new classes, one example each: labelled {:.1f}, among taught {:.1f}, T_unk {:.1f}"
                print(form.format(count, *draws(model, target, new, count)))
            before, after, clusters, classes = named(model, target, new)
            h = evaluate(model, target)["h_score"]
            print(
                f"  {clusters} clusters named ({classes} of {len(new)} new classes): {before:.1f} → {after:.1f} (H {h})"
            )


if __name__ == "__main__":
    main()

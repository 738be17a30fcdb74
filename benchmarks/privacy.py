"""What a model file tells about the images that it was made of: attacks on Office-31, and what privacy costs.

python benchmarks/privacy.py OFFICE31 [--seeds 3] [--shadows 4] [--backbone NAME] [--parts vendor,classifier]
    [--directions 16,32]

Half of the images of every class, drawn by the seed, are the vendor's (or the client's); the other half was never seen.
The attacker has the file, an image of either half, and its class. Copies of an image are taken once. AUC is 0.5 for
chance; beside it, how many members are found where one in a hundred others is taken for one. *With shadows*: the score
less its mean over models of other halves, made with the image and without it (after LiRA, Carlini and others 2022).
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from usfda import Config, Model, adapt, procure
from usfda.backbones.zoo import get_backbone
from usfda.data.samples import LabelledFeatures
from usfda.experiments.datasets import benchmark_tasks
from usfda.experiments.tables import markdown_table
from usfda.experiments.tasks import TaskReader
from usfda.methods.heads import MixtureHead, starting_head
from usfda.methods.membership import auc, scores
from usfda.methods.mixture.class_statistics import fit_class_statistics, fit_without_quantile
from usfda.methods.mixture.classifier import fit_classifier
from usfda.methods.privacy import PrivacySettings, fit_noisy_class_statistics, fit_private_class_statistics
from usfda.methods.vendor import ClassStatistics, Vendor, normalise, signed_root
from usfda.metrics import score_decision

EPSILONS = (30.0, 10.0, 3.0, 1.0)
FEW = PrivacySettings(least_images=2)  # a half of the smallest class of dslr has three images
Fit = Callable[[np.ndarray, np.ndarray, int], ClassStatistics]
Side = tuple[np.ndarray, np.ndarray]  # vectors and the names of their classes


def noisy(epsilon: float) -> Fit:
    return lambda X, y, classes: fit_noisy_class_statistics(X, y, classes, FEW, epsilon)[0]


def private(directions: int = FEW.directions) -> Fit:
    return lambda X, y, classes: fit_private_class_statistics(X, y, classes, replace(FEW, directions=directions))


KINDS: dict[str, Fit] = {"default": fit_without_quantile, "--private": private()}
KINDS |= {f"--epsilon {epsilon:g}": noisy(epsilon) for epsilon in EPSILONS}


def different(X: np.ndarray, labels: np.ndarray) -> Side:
    """Each image once."""
    first = np.sort(np.unique(X, axis=0, return_index=True)[1])
    return X[first], labels[first]


def half(y: np.ndarray, seed: int) -> np.ndarray:
    """Whether each sample is of the half that is seen, class by class."""
    rng, seen = np.random.default_rng(seed), np.zeros(len(y), bool)
    for c in np.unique(y):
        of_class = rng.permutation(np.flatnonzero(y == c))
        seen[of_class[: len(of_class) // 2]] = True
    return seen


def found_at(members: np.ndarray, others: np.ndarray, wrong: float = 0.01) -> float:
    """The share of members above a line that so many of the others exceed."""
    return float(np.mean(members > np.quantile(others, 1 - wrong, method="higher")))


def judged(score: np.ndarray, seen: np.ndarray) -> tuple[float, float]:
    return auc(score[seen], score[~seen]), found_at(score[seen], score[~seen])


def spread(values: list[tuple[float, float]]) -> str:
    """Means over the seeds, and the spread of the AUC."""
    a, t = np.array(values).T
    return f"{a.mean():.3f} ± {a.std():.3f}, {100 * t.mean():.0f} %"


def attacked(make: Callable[[np.ndarray], Vendor], X: np.ndarray, y: np.ndarray, seeds: int, shadows: int) -> list[str]:
    """The best attack on each part of the file, over seeds; the last is the best of all with shadows."""
    plain: dict[str, list[tuple[float, float]]] = {}
    targets = [(seen, scores(make(seen), X, y)) for seen in (half(y, seed) for seed in range(seeds))]
    for seen, found in targets:
        for name, score in found.items():
            plain.setdefault(name, []).append(judged(score, seen))
    parts: dict[str, str] = {}
    for name in plain:
        part = name.split(",")[0]
        if part not in parts or np.mean(plain[name], 0)[0] > np.mean(plain[parts[part]], 0)[0]:
            parts[part] = name
    shown = ("class-means", "covariance", "networks", "classifier")
    row = [spread(plain[parts[part]]) if part in parts else "–" for part in shown]
    if shadows:
        inside = np.stack([half(y, 1000 + i) for i in range(shadows)])
        others = [scores(make(seen), X, y) for seen in inside]
        sharp = {}
        for name in plain:
            if not all(name in found for found in [*others, *(found for _, found in targets)]):
                continue  # noise has left a covariance that cannot be one
            given = np.stack([found[name] for found in others])
            line = (middle(given, inside) + middle(given, ~inside)) / 2
            sharp[name] = [judged(found[name] - line, seen) for seen, found in targets]
        row.append(spread(max(sharp.values(), key=lambda values: float(np.mean(values, 0)[0]))))
    return row


def middle(given: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Of the chosen scores of each image; of all images where it has none."""
    count = chosen.sum(0)
    mean = (given * chosen).sum(0) / np.maximum(count, 1)
    result: np.ndarray = np.where(count > 0, mean, (given * chosen).sum() / chosen.sum())
    return result


def vendor_rows(sides: dict[str, Side], seeds: int, shadows: int) -> Iterator[list[str]]:
    for kind, fit in KINDS.items():
        for domain, (X, labels) in sides.items():
            names, y = np.unique(labels, return_inverse=True)

            def make(
                seen: np.ndarray, fit: Fit = fit, X: np.ndarray = X, y: np.ndarray = y, k: int = len(names)
            ) -> Vendor:
                return Vendor(None, fit(X[seen], y[seen], k))

            row = attacked(make, X, y, seeds, shadows)
            yield [kind, f"{domain}, {len(y) // 2} images", *row[:2], *row[4:]]


def classifier_rows(sides: dict[str, Side], backbone: str, seeds: int, shadows: int) -> Iterator[list[str]]:
    """The mean answers of the backbone's classifier alone; nothing where it has none."""
    layer = get_backbone(backbone).last_layer
    if layer is None:
        return
    weight, bias = layer
    for domain, (X, labels) in sides.items():
        names, y = np.unique(labels, return_inverse=True)

        def make(seen: np.ndarray, X: np.ndarray = X, y: np.ndarray = y, k: int = len(names)) -> Vendor:
            return Vendor(None, None, fit_classifier(weight, bias, X[seen], y[seen], k))

        row = attacked(make, X, y, seeds, shadows)
        yield [f"{domain}, {len(y) // 2} images", *row[3:]]


def network_rows(sides: dict[str, Side], seeds: int) -> Iterator[list[str]]:
    for domain, (X, labels) in sides.items():
        y = np.unique(labels, return_inverse=True)[1]

        def make(seen: np.ndarray, X: np.ndarray = X, labels: np.ndarray = labels) -> Vendor:
            return procure(X[seen], labels[seen], method="usfda", settings={"holdout": 0.0}).vendor

        yield [domain, attacked(make, X, y, seeds, 0)[2]]


def client_rows(sides: dict[str, Side], targets: dict[str, Side], seeds: int) -> Iterator[list[str]]:
    """The client's part: the source is another domain, the target's half is adapted to."""
    for domain, (X, labels) in targets.items():
        source = "webcam" if domain != "webcam" else "amazon"
        vendor = procure(*sides[source], method="mixture")
        y, x = np.unique(labels, return_inverse=True)[1], signed_root(X)
        found: dict[str, list[tuple[float, float]]] = {"coreset": [], "centres": [], "mean": []}
        nearest: dict[str, list[float]] = {"seen": [], "not seen": []}
        for seed in range(seeds):
            seen = half(y, seed)
            head = adapt(vendor, X[seen]).head
            assert isinstance(head, MixtureHead)
            z, e = head.class_statistics.project(x, head.mean), normalise(x - head.mean)
            groups = normalise(head.coreset - head.mean)
            found["coreset"].append(judged((e @ groups.T).max(1), seen))
            found["centres"].append(judged((z @ head.centres.T).max(1), seen))
            found["mean"].append(judged(-np.linalg.norm(x - head.mean, axis=1), seen))
            pairs = groups[head.counts < 2.5]
            nearest["seen"].append(float((pairs @ e[seen].T).max(1).mean()))
            nearest["not seen"].append(float((pairs @ e[~seen].T).max(1).mean()))
        yield [domain, *(spread(values) for values in found.values()), *(f"{np.mean(v):.2f}" for v in nearest.values())]


def rebuilt_rows(sides: dict[str, Side], seeds: int) -> Iterator[list[str]]:
    """Vectors: the nearest image to a class's mean, as the file tells it. Images: the best scores in a mixed pool."""
    for kind in ("default", "--private", "--epsilon 10"):
        for domain, (X, labels) in sides.items():
            names, y = np.unique(labels, return_inverse=True)
            near: dict[bool, list[float]] = {True: [], False: []}
            right = []
            for seed in range(seeds):
                seen = half(y, seed)
                g = KINDS[kind](X[seen], y[seen], len(names))
                means = normalise(np.linalg.solve(g.whitener.astype(np.float64), g.means.T).T)
                cosine = (normalise(signed_root(X) - g.overall_mean) * means[y]).sum(1)
                for state, values in near.items():
                    values += [cosine[(y == c) & (seen == state)].max() for c in range(len(names))]
                # The other domains' images of the same classes are public.
                others = [side for name, side in sides.items() if name != domain]
                pool = np.concatenate([X, *(side[0] for side in others)])
                of = np.concatenate([y, *(np.searchsorted(names, side[1]) for side in others)])
                member = np.concatenate([seen, np.zeros(len(pool) - len(X), bool)])
                given = scores(Vendor(None, g), pool, of).values()
                right.append(max(member[np.argsort(-score)[: member.sum()]].mean() for score in given))
            cells = [f"{np.mean(near[True]):.2f}", f"{np.mean(near[False]):.2f}", f"{100 * np.mean(right):.0f} %"]
            yield [kind, domain, *cells, f"{100 * member.mean():.0f} %"]


def cost_rows(reader: TaskReader, office31: str, seeds: int) -> Iterator[list[str]]:
    """H of the six tasks; the runs differ by their noise."""
    tasks = benchmark_tasks(office31, "office31-open-partial")
    eight = PrivacySettings(least_images=8)  # the smallest class of dslr has eight

    def h_score(class_statistics: ClassStatistics, names: list[str], target: LabelledFeatures) -> float:
        vendor = Vendor(None, class_statistics)
        card: Any = {"procurement": {"method": "mixture"}, "deployment": None}
        adapted = adapt(Model(names, vendor, starting_head(vendor), None, card), target.X[:])
        return float(score_decision(target.labels, adapted.decide(target.X), adapted.classes_)["h_score"] or 0)

    def whole(kind: str) -> Fit:
        if kind == "default":
            return fit_class_statistics
        if kind == "--private":
            return lambda X, y, k: fit_private_class_statistics(X, y, k, eight)
        return lambda X, y, k: fit_noisy_class_statistics(X, y, k, eight, float(kind.split()[1]))[0]

    for kind in KINDS:
        runs = []
        for _ in range(seeds if "epsilon" in kind else 1):
            made: dict[str, ClassStatistics] = {}
            figures = []
            for task in tasks:
                source, target = reader.read(task)
                domain = task.name[0]
                if domain not in made:
                    made[domain] = whole(kind)(source.X[:], source.y, len(source.classes))
                figures.append(h_score(made[domain], source.classes, target))
            runs.append([*figures, float(np.mean(figures))])
        mean, deviation = np.mean(runs, 0), np.std(runs, 0)
        yield [kind, *(f"{m:.1f}" for m in mean[:-1]), f"{mean[-1]:.1f} ± {deviation[-1]:.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("office31")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--shadows", type=int, default=4)
    parser.add_argument("--backbone", default="efficientnet_lite0")
    parser.add_argument("--parts", default="cost,vendor,rebuilt,client,networks")
    parser.add_argument("--directions", help="part vendor: --private with these numbers of directions alone, as 16,32")
    options = parser.parse_args()
    if options.directions:
        KINDS.clear()
        KINDS.update({f"{k} directions": private(int(k)) for k in options.directions.split(",")})
    logging.getLogger("usfda").setLevel(logging.ERROR)
    reader = TaskReader(options.backbone, Config())
    sources: dict[str, Side] = {}
    targets: dict[str, Side] = {}
    for task in benchmark_tasks(options.office31, "office31-open-partial"):
        source, target = reader.read(task)
        names = {"A": "amazon", "D": "dslr", "W": "webcam"}
        sources[names[task.name[0]]] = different(source.X[:], source.labels)
        targets[names[task.name[-1]]] = different(target.X[:], target.labels)
    seeds = options.seeds
    tables: dict[str, tuple[list[str], Callable[[], Iterator[list[str]]]]] = {
        "cost": (
            ["H", "A→D", "A→W", "D→A", "D→W", "W→A", "W→D", "mean"],
            lambda: cost_rows(reader, options.office31, seeds),
        ),
        "vendor": (
            ["file", "source", "class-means", "covariance", "the best with shadows"],
            lambda: vendor_rows(sources, seeds, options.shadows),
        ),
        "classifier": (
            ["source", "classifier", "with shadows"],
            lambda: classifier_rows(sources, options.backbone, seeds, options.shadows),
        ),
        "rebuilt": (
            ["file", "source", "nearest member to P_c", "nearest other", "members among the best of a pool", "chance"],
            lambda: rebuilt_rows(sources, seeds),
        ),
        "client": (
            ["target", "coreset", "centres", "mean", "groups of two: nearest member", "nearest other"],
            lambda: client_rows(sources, targets, seeds),
        ),
        "networks": (["source", "networks (negatives prior)"], lambda: network_rows(sources, seeds)),
    }
    for part in options.parts.split(","):
        head, rows = tables[part]
        print(markdown_table(head, []).rstrip(), flush=True)
        for row in rows():  # as they come: the whole takes long
            print(f"| {' | '.join(row)} |", flush=True)
        print()


if __name__ == "__main__":
    main()

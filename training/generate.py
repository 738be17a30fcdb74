"""Draw random tasks of a family and write their statistics: what the learned decision is trained and measured on.

python -m training.generate -o OUTPUT --tag lite0 [--families a,b] [--sources N] [--seeds 0,1]

Files that are there already are not made again. Each holds a list of tasks with their statistics, the truth, and the
un-adapted class means' decision.
"""

from __future__ import annotations

import argparse
import pickle
import time
import warnings
import zlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from usfda.methods.mixture.class_statistics import fit_class_statistics
from usfda.methods.mixture.classifier import fit_classifier
from usfda.methods.mixture.fit import WeightedSamples, view_of
from usfda.methods.mixture.learned import all_statistics, class_means
from usfda.methods.settings import MixtureSettings
from usfda.methods.vendor import Vendor, signed_root

from .families import FAMILIES
from .made import made_domains
from .tasks import Domain, Source, Target, draw, draw_reference


def load_classifier(output: Path, tag: str) -> tuple[np.ndarray, np.ndarray] | None:
    """The backbone's last layer, where there is one."""
    file = output / "vectors" / f"{tag}-classifier.npz"
    if not file.exists():
        return None
    with np.load(file) as found:
        return found["weight"], found["bias"]


def statistics_of(
    source: Source, targets: list[Target], classifier: tuple[np.ndarray, np.ndarray] | None
) -> list[dict[str, Any]]:
    """What is kept of the tasks of a source."""
    K = len(source.classes)
    class_statistics = fit_class_statistics(source.X, source.y, K)
    of_classifier = None if classifier is None else fit_classifier(classifier[0], classifier[1], source.X, source.y, K)
    vendor = Vendor(None, class_statistics, of_classifier)
    made = []
    for target in targets:
        one = np.ones(len(target.X))
        view = view_of(vendor, WeightedSamples(signed_root(target.X), one, one), K, MixtureSettings(), 0)
        samples, whole = all_statistics(view)
        best = view.best
        means_best, means_known = class_means(view)
        made.append({
            "source": source.domain, "target": target.domain, "kind": target.kind, "mode": target.mode, "K": K,
            "samples": {name: np.asarray(value, np.float32) for name, value in samples.items()}, "whole": whole,
            "known": np.isin(target.y, source.classes), "label": np.unique(target.y, return_inverse=True)[1],
            "right": source.classes[best] == target.y, "best": best, "truth_class": np.where(
                np.isin(target.y, source.classes), np.searchsorted(source.classes, target.y).clip(max=K - 1), -1),
            "means_best": means_best, "means_known": means_known, "graph": view.neighbours.weight,
        })  # fmt: skip
    return made


def tasks_of(
    output: Path, tag: str, family: str, sources: int, seed: int, reference: bool
) -> Iterator[tuple[Source, list[Target]]]:
    """Random tasks of a family: the same for the same arguments."""
    rng = np.random.default_rng(zlib.crc32(f"{tag} {family} {seed}".encode()))

    @lru_cache(None)
    def load(name: str) -> Domain:
        with np.load(output / "vectors" / tag / f"{name}.npz") as found:
            return found["X"], found["y"].astype(str)

    there = output / "vectors" / tag
    known = [pair for pair in FAMILIES.get(family, []) if all((there / f"{name}.npz").exists() for name in pair)]
    for i in range(sources if known or tag == "made" else 0):
        if tag == "made":
            domains = {str(j): domain for j, domain in enumerate(made_domains(rng))}
            yield draw([(a, b) for a in domains for b in domains if a != b], domains.__getitem__, rng)
        elif reference:
            yield draw_reference(known, load, rng)
        else:
            yield draw(known, load, rng, most=3000 if i % 25 == 24 else 700)


def generate(output: Path, tag: str, family: str, sources: int, seed: int, reference: bool = False) -> str:
    """Write one file of tasks."""
    file = output / ("reference" if reference else "tasks") / f"{tag}-{family}-{seed}.pkl"
    if file.exists():
        return f"{file.name}: there"
    warnings.simplefilter("ignore")
    started = time.perf_counter()
    classifier = load_classifier(output, tag) if tag != "made" else None
    tasks: list[dict[str, Any]] = []
    with threadpool_limits(1):
        for i, (source, targets) in enumerate(tasks_of(output, tag, family, sources, seed, reference)):
            made = statistics_of(source, targets, classifier)
            tasks += [{**task, "family": family, "tag": tag, "draw": i} for task in made]
    if not tasks:
        return f"{file.name}: no vectors"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.with_suffix(".tmp").write_bytes(pickle.dumps(tasks))
    file.with_suffix(".tmp").rename(file)
    return f"{file.name}: {len(tasks)} tasks, {time.perf_counter() - started:.0f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--tag", default="lite0", help="the backbone's, or made for made vectors")
    parser.add_argument("--families")
    parser.add_argument("--sources", type=int, default=60)
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--reference", action="store_true", help="the reference tasks, for measuring alone")
    options = parser.parse_args()
    families = (
        options.families.split(",") if options.families else ["made"] if options.tag == "made" else list(FAMILIES)
    )
    seeds = [int(seed) for seed in options.seeds.split(",")]
    rest = (options.sources, options.reference)
    jobs = [(options.output, options.tag, family, rest[0], seed, rest[1]) for seed in seeds for family in families]
    with ProcessPoolExecutor(2) as pool:
        for said in pool.map(generate, *zip(*jobs, strict=True)):
            print(said, flush=True)


if __name__ == "__main__":
    main()

"""Protocol ``families``: tasks of families of data sets that have as little in common as possible.

A family is a few domains with shared classes. Two pairs of them give three tasks each, with one source: a target with
known and unknown classes, one without unknown classes, and one without shared classes. The default method decides with
weights whose training did not see the family.

Found in the data folder: Office-31 with Caltech-10, severe shifts that are made of Office-31, ImageNet with Caltech-101
or Caltech-256; and each folder ``families/NAME`` that has one folder per domain, with one folder per class in it.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ..data.reading import read
from ..data.samples import Samples
from ..errors import InputError
from ..methods.mixture.learned import WEIGHTS, load_decision
from .datasets import CommonClasses, find, folders_in, places
from .protocols import FAMILIES, IMAGENET_CALTECH, OFFICE31_CALTECH10
from .shifts import SHIFTS, shifted
from .tasks import Benchmark, Task

log = logging.getLogger("usfda")

PAIRS = 2  # of domains in each family, at most
MOST_CLASSES = 10  # shared, private to the source, private to the target: of each so many at most
MOST_IMAGES = 30  # of a class and domain, evenly spaced
FEWEST_IMAGES = 3  # of a class, for it to be used
KINDS = {"mixed": "known and unknown", "no-unknown": "nothing unknown", "no-shared": "nothing shared"}


def weights_without(family: str) -> str | None:
    """The weights that were trained without a family; those trained on all where it is in no training; else None."""
    names = sorted((file.stem for file in WEIGHTS.glob("*.safetensors")), key=lambda name: name != f"without-{family}")
    left_out = [name for name in names if family in load_decision(name).record["left_out"]]
    if left_out:
        return left_out[0]
    return None if family in load_decision("all").record["families"] else "all"


class Family(Benchmark):
    """Domains with shared classes."""

    def __init__(self, name: str, domains: dict[str, Samples], pairs: Sequence[tuple[str, str]] | None = None):
        super().__init__()
        self.id = self.name = name
        self.domains = {domain: some_of_each_class(samples) for domain, samples in domains.items()}
        names = list(domains)
        self.pairs = some_pairs(pairs or list(zip(names, [*names[1:], names[0]], strict=True)))
        self.weights = weights_without(name)
        if self.weights is None:
            self.notes.append(f"{name}: all weights of the learned decision were trained on it")

    def tasks(self) -> list[Task]:
        """Those of all pairs."""
        return [task for pair in self.pairs for task in self.of_pair(*pair)]

    def of_pair(self, source: str, target: str) -> list[Task]:
        """The tasks from one domain to another; all classes are drawn by the pair's name.

        Private classes are such as the other domain lacks, as far as there are any: they cost no other class.
        """
        rng = np.random.default_rng(zlib.crc32(f"{self.id} {source} {target}".encode()))
        ours, theirs = classes_of(self.domains[source]), classes_of(self.domains[target])
        both = rng.permutation(np.intersect1d(ours, theirs))
        size = min(MOST_CLASSES, len(both) // 3)
        if size == 0:
            raise InputError(f"{self.id}: {source} and {target} share {len(both)} classes; three are needed")
        shared, rest = both[:size].tolist(), both[size:].tolist()
        private = [*rng.permutation(np.setdiff1d(ours, theirs)).tolist(), *rest][:size]
        rest = [name for name in rest if name not in private]
        new = [*rng.permutation(np.setdiff1d(theirs, ours)).tolist(), *rest][:size]
        targets = {
            "mixed": [*shared, *new],
            "no-unknown": [*shared, *(name for name in private if name in theirs)],
            "no-shared": new,
        }
        return [
            Task(
                f"{FAMILIES}/{self.id}/{kind}/{source}-{target}", f"{self.id} {source}→{target}, {KINDS[kind]}",
                self.domains[source], self.domains[target], [*shared, *private], classes, weights=self.weights or "all",
            )
            for kind, classes in targets.items()
        ]  # fmt: skip


def some_pairs(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """At most ``PAIRS`` of them, evenly spaced."""
    count = min(PAIRS, len(pairs))
    return [pairs[i * len(pairs) // count] for i in range(count)]


def classes_of(samples: Samples) -> np.ndarray:
    """Classes with enough images."""
    names, counts = np.unique(labels_of(samples), return_counts=True)
    return names[counts >= FEWEST_IMAGES]


def labels_of(samples: Samples) -> np.ndarray:
    """Labels of labelled samples."""
    assert samples.labels is not None
    return samples.labels


def some_of_each_class(samples: Samples) -> Samples:
    """At most ``MOST_IMAGES`` of each class, evenly spaced."""
    labels = labels_of(samples)
    members = [np.flatnonzero(labels == name) for name in np.unique(labels)]
    kept = [mine[np.linspace(0, len(mine) - 1, min(MOST_IMAGES, len(mine))).astype(int)] for mine in members]
    return samples[np.sort(np.concatenate(kept))]


def find_families(data: Path, out: Path, wanted: Sequence[str] | None = None) -> list[Family]:
    """The families that can be made of a data folder.

    Parameters
    ----------
    data : Path
        Has data sets, and perhaps a folder ``families``, in it.
    out : Path
        Made images are written here.
    wanted : sequence of str, optional
        Only these.
    """
    makers: dict[str, Any] = {"office": _office, "severe": _severe, IMAGENET_CALTECH: _imagenet_caltech}
    further = next((place for place in places(data) if place.name == FAMILIES), None)
    makers |= {place.name: _folders for place in (folders_in(further) if further else ()) if place.name not in makers}
    if unknown := [name for name in wanted or () if name not in makers]:
        raise InputError(f"{data}: no family {unknown[0]!r}; choose from {', '.join(makers)}")
    found = []
    for name, make in makers.items():
        if wanted is None or name in wanted:
            try:
                found.append(make(further / name) if make is _folders and further else make(data, out))
            except InputError as error:
                if wanted is not None:
                    raise
                log.warning("family %s: %s", name, error)
    if not found:
        raise InputError(f"{data}: no family can be made of it")
    return found


@lru_cache(maxsize=1)
def _office31(data: Path) -> CommonClasses:
    found = find(data, "office31")
    assert isinstance(found, CommonClasses)
    return found


def _office(data: Path, out: Path) -> Family:
    office31 = _office31(data)
    domains = {short: office31.samples(short) for short in ("A", "W", "D")}
    caltech = find(data, OFFICE31_CALTECH10).task(("A", "C")).target
    assert isinstance(caltech, Samples)
    return Family("office", {"A": domains["A"], "W": domains["W"], "C": caltech, "D": domains["D"]})


def _severe(data: Path, out: Path) -> Family:
    """Amazon to the shifts of webcam and back, in turn."""
    office31 = _office31(data)
    domains = {short: some_of_each_class(office31.samples(short)) for short in ("A", "W")}
    made = {}
    pairs = []
    for shift, (source, target) in zip(SHIFTS, [("A", "W"), ("W", "A")] * (len(SHIFTS) // 2), strict=True):
        pairs.append((source, f"{target}-{shift.__name__}"))
        made[pairs[-1][1]] = domains[target], shift
    for _, name in (chosen := some_pairs(pairs)):
        domains[name] = shifted(*made[name], out / "made" / name)
    return Family("severe", domains, chosen)


def _imagenet_caltech(data: Path, out: Path) -> Family:
    task = find(data, IMAGENET_CALTECH).task(("C", "I"))
    assert isinstance(task.source, Samples)
    assert isinstance(task.target, Samples)
    return Family(IMAGENET_CALTECH, {"C": task.source, "I": task.target})


def _folders(place: Path) -> Family:
    domains = {}
    for folder in folders_in(place):
        found = read(folder, labelled=True)
        assert isinstance(found, Samples)
        domains[folder.name] = found
    if len(domains) < 2:
        raise InputError(f"{place}: one folder per domain is needed, two at least")
    return Family(place.name, domains)

"""The paper's data sets, found in a folder in the layouts in which they are distributed, and checked against the
published counts (published_counts.csv). Nothing is downloaded; docs/datasets.md says where each comes from."""

from __future__ import annotations

import csv
import logging
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import ClassVar

import numpy as np

from .data import Samples, read
from .imagenet import Imagenet
from .protocols import BENCHMARKS, OFFICE31_GAPS, Benchmark, Task, office31
from .runtime import InputError

log = logging.getLogger("usfda")

DEPTH = 4  # levels below the folder that is given: ILSVRC/Data/CLS-LOC/train, and one to spare
MANY = 50  # a folder with more sub-folders holds classes, not data sets
CALTECH = ("001.ak47", "257.clutter")  # by which Caltech-256 is known: other sets number their classes, too
IMAGENET_CALTECH = "imagenet-caltech"
NAMES = {**{key: benchmark.name for key, benchmark in BENCHMARKS.items()}, IMAGENET_CALTECH: "ImageNet-Caltech"}


class DataSet(ABC):
    """A data set that was found. A domain is read and checked when a task needs it."""

    name: str
    pairs: tuple[tuple[str, str], ...]  # of short names of domains: the tasks
    aliases: Mapping[str, str]  # other name of a domain, simplified, to its short one

    def __init__(self) -> None:
        self.differences: list[str] = []  # from what was published, of the domains that were read
        self.notes: list[str] = []  # what a reader of results must know

    @abstractmethod
    def task(self, pair: tuple[str, str], label_sets: tuple[list[str], list[str]] | None = None) -> Task:
        """With the paper's label sets, or others."""

    def check(self, name: str, domain: str, samples: Samples) -> None:
        assert samples.labels is not None
        if found := differences(name, domain, Counter(samples.labels.tolist())):
            self.differences += found
            more = f"; and {len(found) - 5} more" if len(found) > 5 else ""
            log.warning("not as published: %s%s", "; ".join(found[:5]), more)


class CommonClasses(DataSet):
    """One of the benchmarks whose domains have the same classes."""

    def __init__(self, benchmark: Benchmark, folders: Mapping[str, Path]):
        super().__init__()
        self.benchmark, self._folders = benchmark, folders
        self.name, self.pairs = benchmark.name, benchmark.tasks
        self.aliases = {simple(folder): short for short, folder in benchmark.domains.items()}
        self._samples = cache(self._read)

    def task(self, pair: tuple[str, str], label_sets: tuple[list[str], list[str]] | None = None) -> Task:
        source, target = label_sets or self.benchmark.label_sets()
        return Task("→".join(pair), self._samples(pair[0]), self._samples(pair[1]), source, target)

    def _read(self, domain: str) -> Samples:
        folder = self._folders[domain]
        samples = read(folder, labelled=True)
        if missing := sorted(set(self.benchmark.classes) - set(samples.labels.tolist())):  # type: ignore[union-attr]
            every = len(self.benchmark.classes)
            raise InputError(f"{folder}: {self.name} has {every} classes, here {', '.join(missing)} are missing")
        self.check(self.name, self.benchmark.domains[domain], samples)
        return samples


class ImagenetCaltech(DataSet):
    """Classes of one name are shared; what is left is private to its side. A shared class has Caltech's name."""

    name = "ImageNet-Caltech"
    pairs = (("I", "C"), ("C", "I"))
    negative_classes: ClassVar = {"I": 600, "C": 200}

    def __init__(self, imagenet: Imagenet, caltech: Path, shared: Mapping[str, str] | None):
        super().__init__()
        self.aliases = {"imagenet": "I", "caltech": "C", "caltech256": "C"}
        self._imagenet, self._folder, self._shared = imagenet, caltech, shared
        self._samples = cache(self._read)

    def task(self, pair: tuple[str, str], label_sets: tuple[list[str], list[str]] | None = None) -> Task:
        if label_sets is not None:
            raise InputError(f"{self.name}: the two sides have classes of their own, other label sets are not defined")
        source, target = self._samples(pair[0], "train"), self._samples(pair[1], "val")
        return Task("→".join(pair), source, target, negative_classes=self.negative_classes[pair[0]])

    def _read(self, domain: str, part: str) -> Samples:
        """ImageNet as a source is its training set, as a target its validation set: M was trained on the former."""
        if domain == "C":
            found = read(self._folder, labelled=True)
            assert found.labels is not None
            samples = found[np.flatnonzero(~np.char.endswith(found.labels, ".clutter"))]
            self.check("Caltech-256", "256_ObjectCategories", samples)
            return samples
        samples = self._imagenet.read(part)
        self.check("ImageNet", part, samples)
        names = self.shared()
        labels = np.asarray([names.get(wnid, wnid) for wnid in samples.labels.tolist()])  # type: ignore[union-attr]
        return Samples(samples.paths, labels=labels)

    @cache  # noqa: B019  one object a process
    def shared(self) -> dict[str, str]:
        """wnid to the folder of the Caltech class that is the same."""
        folders = [f.name for f in sorted(self._folder.iterdir()) if re.match(r"\d{3}\.", f.name)]
        wnids = self._imagenet.wnids()
        if self._shared is not None:
            by_name = {caltech_name(folder): folder for folder in folders} | {folder: folder for folder in folders}
            if wrong := [a for a, b in self._shared.items() if a not in by_name or b not in wnids]:
                raise InputError(f"--shared: no such pair of a Caltech class and a wnid of the folder: {wrong[0]}")
            if len(set(self._shared.values())) < len(self._shared):
                raise InputError("--shared: a wnid stands beside two Caltech classes")
            found = {wnid: by_name[name] for name, wnid in self._shared.items()}
        else:
            words = self._imagenet.words()
            found = match_names(folders, {wnid: words[wnid] for wnid in wnids})
        if not found:
            raise InputError(
                f"{self._folder}: no class has the name of an ImageNet class; `usfda reproduce` takes a list (--shared)"
            )
        how = "by a list that was given" if self._shared is not None else "by their names"
        self.notes.append(
            f"{self.name}: {len(found)} classes are shared, {how} (84 in the paper, whose list is not public)"
        )
        log.info(self.notes[-1])
        return found


def match_names(folders: Sequence[str], words: Mapping[str, str]) -> dict[str, str]:
    """wnid to Caltech folder where the name, or its plural, is among the synonyms of one class of ImageNet, and that
    of no other Caltech class is."""
    by_name: dict[str, set[str]] = {}
    for wnid, synonyms in words.items():
        for word in synonyms.split(","):
            by_name.setdefault(simple(word).rstrip("s"), set()).add(wnid)
    found = {folder: by_name.get(simple(caltech_name(folder)).rstrip("s"), set()) for folder in folders}
    times = Counter(wnid for wnids in found.values() for wnid in wnids)
    clear = {folder: next(iter(wnids)) for folder, wnids in found.items() if len(wnids) == 1}
    return {wnid: folder for folder, wnid in clear.items() if times[wnid] == 1}


def caltech_name(folder: str) -> str:
    """012.binoculars and 251.airplanes-101 without what is no name."""
    return folder.partition(".")[2].removesuffix("-101")


def simple(name: str) -> str:
    """Real World, real_world and RealWorld are one name."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def differences(dataset: str, domain: str, counts: Mapping[str, int]) -> list[str]:
    """Where the numbers of images are not the published ones, in words."""
    text = files("usfda").joinpath("published_counts.csv").read_text()
    found = []
    for row in csv.DictReader(text.splitlines()):
        if (row["dataset"], row["domain"]) != (dataset, domain):
            continue
        least, most = int(row["least"]), int(row["most"])
        here = {"": sum(counts.values())} if row["class"] == "" else counts
        for name in here if row["class"] in ("", "*") else [row["class"]]:
            if not least <= here.get(name, 0) <= most:
                limits = f"{least:,}" if least == most else f"{least:,} to {most:,}"
                place = f"{dataset} {domain} {name}".strip()
                found.append(f"{place} has {here.get(name, 0):,} images, published {limits}")
    return found


def find(folder: str | Path, key: str, shared: Mapping[str, str] | None = None) -> DataSet:
    """The data set ``key`` in ``folder`` or below it; an error says what of it is missing."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    if key == IMAGENET_CALTECH:
        caltech = next((p for p in places(folder) if any((p / name).is_dir() for name in CALTECH)), None)
        imagenet = next((made for p in places(folder) if (made := Imagenet.at(p))), None)
        if caltech is not None and imagenet is not None:
            return ImagenetCaltech(imagenet, caltech, shared)
        missing = [] if caltech else [f"Caltech-256 (a folder with {' and '.join(CALTECH)})"]
        missing += [] if imagenet else ["ImageNet-1k (a folder train with n01440764 and others)"]
        raise InputError(f"{folder}: of {NAMES[key]} is missing: {' and '.join(missing)}")
    benchmark = BENCHMARKS[key]
    wanted = {simple(name): short for short, name in benchmark.domains.items()}
    best: dict[str, Path] = {}
    for place in places(folder):
        named = {wanted[simple(f.name)]: f for f in folders_in(place) if simple(f.name) in wanted}
        here = {short: f for short, f in named.items() if _holds(f, benchmark.classes)}
        if len(here) == len(wanted):
            return CommonClasses(benchmark, here)
        best = max(best, here, key=len)
    text = f"{folder}: no {benchmark.name} here, that is, folders {', '.join(benchmark.domains.values())} side by side"
    if best:
        text += f"; only {', '.join(str(f.relative_to(folder)) for f in best.values())} is there"
    raise InputError(text)


def _holds(folder: Path, classes: Sequence[str]) -> bool:
    """Whether one of the classes is in it, or one level deeper."""
    inside = folders_in(folder)
    deeper = folders_in(inside[0]) if len(inside) == 1 else []
    return any(f.name in classes for f in [*inside, *deeper])


def folders_in(folder: Path) -> list[Path]:
    try:
        return sorted(f for f in folder.iterdir() if f.is_dir() and not f.name.startswith("."))
    except OSError:
        return []


def places(folder: str | Path) -> Iterator[Path]:
    """The folder and those below it, level by level; a folder of classes is not entered."""
    level = [Path(folder)]
    for depth in range(DEPTH + 1):
        yield from level
        inside = [folders_in(place) for place in level]
        level = [f for folders in inside if len(folders) <= MANY or depth == 0 for f in folders]


def choose(sets: Sequence[DataSet], wanted: str | None) -> list[tuple[DataSet, tuple[str, str]]]:
    """Tasks of a list such as ``A-D,D-W`` (or of whole names, ``amazon-dslr``); without it all."""
    every = {pair: (found, pair) for found in sets for pair in found.pairs}
    if wanted is None:
        return list(every.values())
    aliases = {simple(short): short for found in sets for pair in found.pairs for short in pair}
    for found in sets:
        aliases |= found.aliases
    chosen = {}
    for text in wanted.split(","):
        pair = tuple(aliases.get(simple(part), part) for part in text.replace("→", "-").split("-"))
        if pair not in every:
            raise InputError(f"no task {text.strip()!r}; there is {', '.join('-'.join(pair) for pair in every)}")
        chosen[pair] = every[pair]
    return list(chosen.values())


def benchmark_tasks(folder: str | Path, protocol: str = "office31", wanted: str | None = None) -> list[Task]:
    """Tasks of a protocol: a data set with the paper's label sets, or ``office31-closed`` and other gaps of it."""
    if protocol in NAMES:
        return [found.task(pair) for found, pair in choose([find(folder, protocol)], wanted)]
    gap = protocol.removeprefix("office31").strip("-:/")
    if gap not in OFFICE31_GAPS:
        known = ", ".join([*NAMES, *(f"office31-{name}" for name in OFFICE31_GAPS)])
        raise InputError(f"no protocol {protocol!r}; there is {known}")
    return [found.task(pair, office31(gap)) for found, pair in choose([find(folder, "office31")], wanted)]

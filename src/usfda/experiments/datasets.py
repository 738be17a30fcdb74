"""The paper's data sets, found in a folder in the layouts in which they are distributed, as benchmarks.

They are checked against the published counts (published_counts.csv). Nothing is downloaded; docs/datasets.md
lists their origins.
"""

from __future__ import annotations

import copy
import csv
import logging
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import ClassVar

import numpy as np

from ..data.reading import read
from ..data.samples import Samples
from ..errors import InputError
from .imagenet import Imagenet
from .protocols import (
    DATA_SETS,
    IMAGENET_CALTECH,
    NAMES,
    OFFICE31,
    OFFICE31_CALTECH10,
    OFFICE31_GAPS,
    PROTOCOLS,
    DataSet,
    Pair,
    Protocol,
)
from .tasks import Benchmark, Task

log = logging.getLogger("usfda")

DEPTH = 4  # levels below the folder that is given: ILSVRC/Data/CLS-LOC/train, and one to spare
MANY = 50  # a folder with more sub-folders holds classes, not data sets
CALTECH = ("001.ak47", "257.clutter")  # by which Caltech-256 is known: other sets number their classes, too
CALTECH101 = ("accordion", "yin_yang")  # by which Caltech-101 is known
NO_CLASSES = ("257.clutter", "BACKGROUND_Google", "Faces_easy")  # Caltech's clutter, and its faces a second time
CALTECH10 = {"backpack": "back_pack", "laptop": "laptop_computer"}  # Caltech-256's names to those of Office-31


class FoundBenchmark(Benchmark):
    """A data set that was found in a folder. A domain is read and checked when a task needs it.

    Attributes
    ----------
    pairs : tuple of (str, str)
        Source and target of each task, by the short names of their domains.
    aliases : dict
        Another name of a domain, simplified, to its short one.
    """

    pairs: tuple[Pair, ...]
    aliases: Mapping[str, str]

    @abstractmethod
    def task(self, pair: Pair) -> Task:
        """The task from one domain to another; an error names the missing data."""

    def tasks(self) -> list[Task]:
        """One for each pair."""
        return [self.task(pair) for pair in self.pairs]

    def check(self, name: str, domain: str, samples: Samples) -> None:
        """Remember and warn where the numbers of images are not the published ones."""
        assert samples.labels is not None
        if found := differences(name, domain, Counter(samples.labels.tolist())):
            self.differences += found
            more = f"; and {len(found) - 5} more" if len(found) > 5 else ""
            log.warning("not as published: %s%s", "; ".join(found[:5]), more)


class CommonClasses(FoundBenchmark):
    """A data set whose domains have the same classes, which a protocol splits into shared and private ones."""

    def __init__(self, dataset: DataSet, folders: Mapping[str, Path]):
        super().__init__()
        self.dataset, self._folders, self.protocol = dataset, folders, dataset.protocol
        self.id, self.name, self.pairs = dataset.id, dataset.name, dataset.pairs
        self.aliases = {simple(folder): short for short, folder in dataset.domains.items()}
        self.samples = cache(self._read)  # of a domain, by its short name

    def with_protocol(self, protocol: Protocol) -> CommonClasses:
        """The same data with other label sets."""
        other = copy.copy(self)
        other.protocol = protocol
        return other

    def task(self, pair: Pair) -> Task:
        """The task from one domain to another, with the label sets of the protocol."""
        name = f"{self.id}/{self.protocol.id}/{'-'.join(pair)}"
        source, target = self.samples(pair[0]), self.samples(pair[1])
        classes = self.protocol.source, self.protocol.target
        return Task(name, "→".join(pair), source, target, *classes, weights=self.dataset.weights)

    def _read(self, domain: str) -> Samples:
        folder = self._folders[domain]
        samples = read(folder, labelled=True)
        assert isinstance(samples, Samples)
        if missing := sorted(set(self.dataset.classes) - set(samples.labels.tolist())):  # type: ignore[union-attr]
            every = len(self.dataset.classes)
            raise InputError(f"{folder}: {self.name} has {every} classes, here {', '.join(missing)} are missing")
        self.check(self.name, self.dataset.domains[domain], samples)
        return samples


class Office31Caltech10(FoundBenchmark):
    """From all 31 classes of a domain of Office-31 to the ten that Caltech-256 has, too: a partial task."""

    id = OFFICE31_CALTECH10
    name = "Office-31 → Caltech10"

    def __init__(self, office31: CommonClasses, caltech: Path):
        super().__init__()
        self.pairs = tuple((domain, "C") for domain in office31.dataset.domains)
        self.aliases = {**office31.aliases, "caltech": "C", "caltech10": "C"}
        self._office31, self._caltech = office31, caltech

    def task(self, pair: Pair) -> Task:
        """The task from a domain of Office-31, whose names the classes of both sides have."""
        source = self._office31.samples(pair[0])
        found = read(self._caltech, labelled=True)
        assert isinstance(found, Samples)
        assert found.labels is not None
        labels = np.asarray([CALTECH10.get(name, name) for name in found.labels.tolist()])
        name, weights = f"{self.id}/partial/{'-'.join(pair)}", self._office31.dataset.weights
        return Task(name, "→".join(pair), source, Samples(found.paths, labels), weights=weights)

    @staticmethod
    def at(folder: Path) -> bool:
        """Whether the folder, called caltech or caltech10, has the ten classes, under either name."""
        inside = {CALTECH10.get(f.name, f.name) for f in folders_in(folder)}
        return simple(folder.name) in ("caltech", "caltech10") and inside == set(OFFICE31[:10])


class ImagenetCaltech(FoundBenchmark):
    """Classes of one name are shared; what is left is private to its side. A shared class has Caltech's name.

    A copy with a few images of each class, or Caltech-101 instead of Caltech-256, is no task of the paper: it is
    called reduced wherever it is named.
    """

    pairs = (("I", "C"), ("C", "I"))
    negative_classes: ClassVar = {"I": 600, "C": 200}  # as in the paper, by the source

    def __init__(self, imagenet: Imagenet, caltech: Path, shared: Mapping[str, str] | None):
        super().__init__()
        self.aliases = {"imagenet": "I", "caltech": "C", "caltech256": "C", "caltech101": "C"}
        self._imagenet, self._folder, self._given = imagenet, caltech, shared
        small = not is_caltech256(caltech)
        self.reduced = imagenet.reduced or small
        self.id, self.name = IMAGENET_CALTECH, NAMES[IMAGENET_CALTECH]
        self._names = {
            "I": "ImageNet-mini" if imagenet.reduced else "ImageNet", "C": "Caltech-101" if small else "Caltech-256"
        }  # fmt: skip
        if self.reduced:
            self.id, self.name = f"{self.id}-reduced", f"{self._names['I']} and {self._names['C']}, reduced"
        self._samples = cache(self._read)
        self.shared = cache(self._shared)  # wnid to the folder of the Caltech class that is the same

    def task(self, pair: Pair) -> Task:
        """ImageNet as a source is its training set, as a target its validation set: M was trained on the former."""
        source = self._samples(pair[0], "train")
        target = self._samples(pair[1], "train" if self._imagenet.reduced else "val")
        shown = "→".join(pair)
        if self.reduced:
            shown = f"{self._names[pair[0]]} → {self._names[pair[1]]}, reduced"
            self._describe(shown, source, target)
        name = f"{self.id}/open-partial/{'-'.join(pair)}"
        negatives = self.negative_classes[pair[0]]
        return Task(name, shown, source, target, negative_classes=negatives, weights="without-imagenet-caltech")

    def _describe(self, task: str, source: Samples, target: Samples) -> None:
        one, two = (set(np.asarray(side.labels).tolist()) for side in (source, target))
        line = (
            f"{task}: {len(one & two)} shared classes, {len(one - two)} private to the source, {len(two - one)} to the "
            f"target; {len(source):,} and {len(target):,} images. It is not the paper's ImageNet-Caltech"
        )
        if line not in self.notes:
            self.notes.append(line)

    def _read(self, domain: str, part: str) -> Samples:
        if domain == "C":
            found = read(self._folder, labelled=True)
            assert isinstance(found, Samples)
            samples = found[np.flatnonzero(~np.isin(np.asarray(found.labels), NO_CLASSES))]
            if not self.reduced:
                self.check("Caltech-256", "256_ObjectCategories", samples)
            return samples
        samples = self._imagenet.read(part)
        if not self.reduced:
            self.check("ImageNet", part, samples)
        names = self.shared()
        labels = np.asarray([names.get(wnid, wnid) for wnid in samples.labels.tolist()])  # type: ignore[union-attr]
        return Samples(samples.paths, labels)

    def _shared(self) -> dict[str, str]:
        folders = [f.name for f in folders_in(self._folder) if f.name not in NO_CLASSES]
        wnids = self._imagenet.wnids()
        if self._given is not None:
            by_name = {caltech_name(folder): folder for folder in folders} | {folder: folder for folder in folders}
            if wrong := [a for a, b in self._given.items() if a not in by_name or b not in wnids]:
                raise InputError(f"--shared: no such pair of a Caltech class and a wnid of the folder: {wrong[0]}")
            if len(set(self._given.values())) < len(self._given):
                raise InputError("--shared: a wnid stands beside two Caltech classes")
            found = {wnid: by_name[name] for name, wnid in self._given.items()}
        else:
            found = match_names(folders, self._imagenet.words(wnids))
        if not found:
            raise InputError(
                f"{self._folder}: no class has the name of an ImageNet class; `usfda reproduce` takes a list (--shared)"
            )
        how = "by a list that was given" if self._given is not None else "by their names"
        self.notes.append(
            f"{self.name}: {len(found)} classes are shared, {how} (84 in the paper, whose list is not public)"
        )
        log.info(self.notes[-1])
        return found


def is_caltech256(folder: Path) -> bool:
    """Whether the folder has Caltech-256 in it."""
    return any((folder / known).is_dir() for known in CALTECH)


def match_names(folders: Sequence[str], words: Mapping[str, str]) -> dict[str, str]:
    """The wnid and the Caltech folder of every class that both data sets clearly have.

    The name of the folder, or its plural, is among the synonyms of one class of ImageNet, and that of no other Caltech
    class is.
    """
    by_name: dict[str, set[str]] = {}
    for wnid, synonyms in words.items():
        for word in synonyms.split(","):
            by_name.setdefault(simple(word).rstrip("s"), set()).add(wnid)
    found = {folder: by_name.get(simple(caltech_name(folder)).rstrip("s"), set()) for folder in folders}
    times = Counter(wnid for wnids in found.values() for wnid in wnids)
    clear = {folder: next(iter(wnids)) for folder, wnids in found.items() if len(wnids) == 1}
    return {wnid: folder for folder, wnid in clear.items() if times[wnid] == 1}


def caltech_name(folder: str) -> str:
    """012.binoculars and 251.airplanes-101 without their number and without -101; Caltech-101 has no numbers."""
    return re.sub(r"^\d{3}\.", "", folder).removesuffix("-101")


def simple(name: str) -> str:
    """Real World, real_world and RealWorld are one name."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def differences(dataset: str, domain: str, counts: Mapping[str, int]) -> list[str]:
    """Where the numbers of images are not the published ones, in words."""
    text = files(__package__).joinpath("published_counts.csv").read_text()
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


def find(folder: str | Path, name: str, shared: Mapping[str, str] | None = None) -> FoundBenchmark:
    """The data set with identifier ``name``, in ``folder`` or below it; an error names what is missing.

    ``shared`` is for ImageNet-Caltech: Caltech class to wnid of each shared class.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    if name == IMAGENET_CALTECH:
        caltech = next((p for p in places(folder) if is_caltech256(p)), None)
        if caltech is None:
            caltech = next((p for p in places(folder) if all((p / known).is_dir() for known in CALTECH101)), None)
        imagenet = next((made for p in places(folder) if (made := Imagenet.at(p))), None)
        if caltech is not None and imagenet is not None:
            return ImagenetCaltech(imagenet, caltech, shared)
        missing = [] if caltech else [f"Caltech-256 (a folder with {' and '.join(CALTECH)})"]
        missing += [] if imagenet else ["ImageNet-1k (a folder train with n01440764 and others)"]
        raise InputError(f"{folder}: of {NAMES[name]} is missing: {' and '.join(missing)}")
    if name == OFFICE31_CALTECH10:
        office31 = find(folder, "office31")
        assert isinstance(office31, CommonClasses)
        caltech = next((p for p in places(folder) if Office31Caltech10.at(p)), None)
        if caltech is None:
            raise InputError(f"{folder}: no folder caltech10 with the ten classes that Office-31 and Caltech-256 share")
        return Office31Caltech10(office31, caltech)
    dataset = DATA_SETS[name]
    wanted = {simple(domain): short for short, domain in dataset.domains.items()}
    best: dict[str, Path] = {}
    for place in places(folder):
        named = {wanted[simple(f.name)]: f for f in folders_in(place) if simple(f.name) in wanted}
        here = {short: f for short, f in named.items() if _holds(f, dataset.classes)}
        if len(here) == len(wanted):
            return CommonClasses(dataset, here)
        best = max(best, here, key=len)
    text = f"{folder}: no {dataset.name} here, that is, folders {', '.join(dataset.domains.values())} side by side"
    if best:
        text += f"; only {', '.join(str(f.relative_to(folder)) for f in best.values())} is there"
    raise InputError(text)


def _holds(folder: Path, classes: Sequence[str]) -> bool:
    """Whether one of the classes is in it, or one level deeper."""
    inside = folders_in(folder)
    deeper = folders_in(inside[0]) if len(inside) == 1 else []
    return any(f.name in classes for f in [*inside, *deeper])


def folders_in(folder: Path) -> list[Path]:
    """The folders directly in a folder, without hidden ones; none where it cannot be read."""
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


def choose(benchmarks: Sequence[FoundBenchmark], wanted: str | None) -> list[tuple[FoundBenchmark, Pair]]:
    """The tasks that a list names; without a list, all.

    ``A-D,D-W`` or, by whole names, ``amazon-dslr``. Where two data sets have such a pair, both are chosen, unless the
    data set is named: ``visda/S-R``.
    """
    every = {(found.id, pair): (found, pair) for found in benchmarks for pair in found.pairs}
    if wanted is None:
        return list(every.values())
    chosen: dict[tuple[str, Pair], tuple[FoundBenchmark, Pair]] = {}
    for text in wanted.split(","):
        dataset, _, domains = text.strip().rpartition("/")
        names = domains.replace("→", "-").split("-")
        mine = {}
        for found in benchmarks:
            aliases = {simple(short): short for pair in found.pairs for short in pair} | dict(found.aliases)
            short = [aliases.get(simple(name), name) for name in names]
            for pair in found.pairs:
                if list(pair) == short and simple(dataset) in ("", simple(found.id)):
                    mine[found.id, pair] = found, pair
        if not mine:
            known = ", ".join("-".join(pair) for _, pair in every)
            raise InputError(f"no task {text.strip()!r}; choose from {known}")
        chosen |= mine
    return list(chosen.values())


def benchmark_tasks(folder: str | Path, protocol: str = "office31", wanted: str | None = None) -> list[Task]:
    """Tasks of a data set with the paper's label sets, or of ``office31-closed`` and other gaps of Office-31."""
    gap = protocol.removeprefix("office31").strip("-:/")
    if protocol not in PROTOCOLS and gap not in OFFICE31_GAPS:
        raise InputError(f"no protocol {protocol!r}; choose from {', '.join(PROTOCOLS)}")
    found = find(folder, "office31" if gap in OFFICE31_GAPS else protocol)
    if gap in OFFICE31_GAPS and isinstance(found, CommonClasses):
        found = found.with_protocol(OFFICE31_GAPS[gap])
    return [chosen.task(pair) for chosen, pair in choose([found], wanted)]

"""ImageNet-1k as distributed: ``train`` with one folder per class, ``val`` the same, or flat with a list of labels.

Kaggle's archive has LOC_synset_mapping.txt (names) and LOC_val_solution.csv (labels of val) beside it; image-net.org's
has its development kit, with data/meta.mat and data/ILSVRC2012_validation_ground_truth.txt.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from scipy.io import loadmat

from ..data.reading import read
from ..data.samples import Samples
from ..errors import InputError
from ..files import read_text

WORDS = ("LOC_synset_mapping.txt", "synset_words.txt")
SOLUTION = "LOC_val_solution.csv"
DEVKIT = "ILSVRC2012_devkit_t12/data"
MINI = 100  # images that no class of a reduced copy has; ImageNet-1k has 732 of each class at least
ABOVE = 3  # levels above the folder of train and val where the lists may lie: ILSVRC/Data/CLS-LOC


class Imagenet:
    """ImageNet-1k in a folder that has ``train`` and ``val``."""

    def __init__(self, folder: Path):
        self.folder = folder

    @classmethod
    def at(cls, folder: Path) -> Imagenet | None:
        """Where the folder has a folder train of classes."""
        train = folder / "train"
        found = train.is_dir() and any(re.fullmatch(r"n\d{8}", f.name) for f in train.iterdir())
        return cls(folder) if found else None

    def wnids(self) -> list[str]:
        """The identifiers of the classes in ``train``, such as n01440764."""
        return sorted(f.name for f in (self.folder / "train").iterdir() if re.fullmatch(r"n\d{8}", f.name))

    @cached_property
    def reduced(self) -> bool:
        """Whether it is a copy with a few images per class and no ``val``: those few then are source and target."""
        sizes = (sum(1 for _ in (self.folder / "train" / wnid).iterdir()) for wnid in self.wnids())
        return not (self.folder / "val").is_dir() and all(size < MINI for size in sizes)

    def words(self, wnids: Sequence[str]) -> dict[str, str]:
        """The synonyms of each class, with commas; an error where the list of names lacks one."""
        file = next(filter(None, map(self._file, (*WORDS, f"{DEVKIT}/meta.mat"))), None)
        if file is None:
            wanted = " or ".join((*WORDS, f"{DEVKIT}/meta.mat"))
            raise InputError(f"{self.folder}: the names of ImageNet's classes are missing ({wanted})")
        if file.suffix == ".mat":
            words = dict(self._meta.values())
        else:
            rows = [line.split(None, 1) for line in read_text(file).splitlines()]
            words = {row[0]: row[1] for row in rows if len(row) == 2}
        if missing := [wnid for wnid in wnids if wnid not in words]:
            raise InputError(
                f"{file}: has no name for class {missing[0]} of {self.folder / 'train'}; complete the list"
            )
        return {wnid: words[wnid] for wnid in wnids}

    def read(self, part: str) -> Samples:
        """``train`` or ``val``, labelled by wnid."""
        folder = self.folder / part
        if not folder.is_dir():
            raise InputError(f"{self.folder}: ImageNet's folder {part} is missing")
        if any(f.is_dir() for f in folder.iterdir()):
            labelled = read(folder, labelled=True)
            assert isinstance(labelled, Samples)
            return labelled
        found = read(folder)
        assert isinstance(found, Samples)
        return Samples(found.paths, np.asarray(self._val_labels([Path(str(path)) for path in found.paths])))

    def _val_labels(self, paths: Sequence[Path]) -> list[str]:
        if file := self._file(SOLUTION):
            rows = list(csv.reader(read_text(file).splitlines()))[1:]
            solution = {row[0]: row[1].split()[0] for row in rows if len(row) == 2}
            if missing := [path.name for path in paths if path.stem not in solution]:
                raise InputError(f"{file}: has no label for {missing[0]}")
            return [solution[path.stem] for path in paths]
        if (file := self._file(f"{DEVKIT}/ILSVRC2012_validation_ground_truth.txt")) and self._meta:
            truth = read_text(file).split()
            if len(truth) != len(paths):
                raise InputError(f"{file}: has {len(truth)} labels for {len(paths)} images of val")
            if unknown := [number for number in truth if not number.isdigit() or int(number) not in self._meta]:
                raise InputError(f"{file}: has a label {unknown[0]!r} that {DEVKIT}/meta.mat does not explain")
            return [self._meta[int(number)][0] for number in truth]
        raise InputError(
            f"{self.folder / 'val'}: images without labels; needs one folder per class, {SOLUTION}, or {DEVKIT}"
        )

    @cached_property
    def _meta(self) -> dict[int, tuple[str, str]]:
        """Number in the development kit to wnid and synonyms."""
        file = self._file(f"{DEVKIT}/meta.mat")
        if file is None:
            return {}
        rows = np.atleast_1d(loadmat(file, squeeze_me=True)["synsets"])
        return {int(row["ILSVRC2012_ID"]): (str(row["WNID"]), str(row["words"])) for row in rows}

    def _file(self, name: str) -> Path | None:
        places = [self.folder, *self.folder.absolute().parents[:ABOVE]]
        return next((place / name for place in places if (place / name).is_file()), None)

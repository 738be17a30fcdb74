"""Label sets of the paper's benchmarks: which classes are shared, private to the source, private to the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

from .data import Samples

# Positions 0–9 are the ten shared with Caltech-256, the rest is alphabetical.
OFFICE31 = (
    "back_pack", "bike", "calculator", "headphones", "keyboard", "laptop_computer", "monitor", "mouse", "mug",
    "projector", "bike_helmet", "bookcase", "bottle", "desk_chair", "desk_lamp", "desktop_computer",
    "file_cabinet", "letter_tray", "mobile_phone", "paper_notebook", "pen", "phone", "printer", "punchers",
    "ring_binder", "ruler", "scissors", "speaker", "stapler", "tape_dispenser", "trash_can",
)  # fmt: skip

OFFICE_HOME = (
    "Alarm_Clock", "Backpack", "Batteries", "Bed", "Bike", "Bottle", "Bucket", "Calculator", "Calendar", "Candles",
    "Chair", "Clipboards", "Computer", "Couch", "Curtains", "Desk_Lamp", "Drill", "Eraser", "Exit_Sign", "Fan",
    "File_Cabinet", "Flipflops", "Flowers", "Folder", "Fork", "Glasses", "Hammer", "Helmet", "Kettle", "Keyboard",
    "Knives", "Lamp_Shade", "Laptop", "Marker", "Monitor", "Mop", "Mouse", "Mug", "Notebook", "Oven", "Pan",
    "Paper_Clip", "Pen", "Pencil", "Postit_Notes", "Printer", "Push_Pin", "Radio", "Refrigerator", "Ruler",
    "Scissors", "Screwdriver", "Shelf", "Sink", "Sneakers", "Soda", "Speaker", "Spoon", "TV", "Table", "Telephone",
    "ToothBrush", "Toys", "Trash_Can", "Webcam",
)  # fmt: skip

VISDA = (
    "aeroplane", "bicycle", "bus", "car", "horse", "knife", "motorcycle", "person", "plant", "skateboard", "train",
    "truck",
)  # fmt: skip

# Positions (source, target) of every category gap on Office-31.
OFFICE31_GAPS = {
    "open-partial": (range(20), [*range(10), *range(20, 31)]),
    "open-set": (range(10), [*range(10), *range(20, 31)]),
    "partial": (range(31), range(10)),
    "closed": (range(31), range(31)),
    "few-unknown": (range(20), range(24)),
    "nothing-shared": (range(15), range(15, 31)),
}


def office31(gap: str = "open-partial") -> tuple[list[str], list[str]]:
    """Class names of source and target for a gap."""
    source, target = OFFICE31_GAPS[gap]
    return [OFFICE31[i] for i in source], [OFFICE31[i] for i in target]


@dataclass(frozen=True)
class Benchmark:
    """A data set of domains with the same classes: the first ``shared`` of them are on both sides, the next
    ``source_private`` only in the source, the rest only in the target."""

    name: str  # as in the paper's tables
    domains: dict[str, str]  # short name to folder
    classes: tuple[str, ...]
    shared: int
    source_private: int
    tasks: tuple[tuple[str, str], ...]

    def label_sets(self) -> tuple[list[str], list[str]]:
        """Class names of source and target."""
        return split(self.classes, self.shared, self.source_private)


def split(classes: Sequence[str], shared: int, source_private: int) -> tuple[list[str], list[str]]:
    """Class names of source and target; what is neither shared nor private to the source is private to the target."""
    known = shared + source_private
    return list(classes[:known]), [*classes[:shared], *classes[known:]]


def _benchmark(
    name: str, domains: dict[str, str], classes: tuple[str, ...], shared: int, source_private: int
) -> Benchmark:
    return Benchmark(name, domains, classes, shared, source_private, tuple(permutations(domains, 2)))


BENCHMARKS = {
    "office31": _benchmark("Office-31", {"A": "amazon", "D": "dslr", "W": "webcam"}, OFFICE31, 10, 10),
    "office-home": _benchmark(
        "Office-Home", {"Ar": "Art", "Cl": "Clipart", "Pr": "Product", "Rw": "Real World"}, OFFICE_HOME, 10, 5
    ),
    "visda": Benchmark("VisDA", {"S": "train", "R": "validation"}, VISDA, 6, 3, (("S", "R"),)),
    "digits": Benchmark("digits", {"M": "mnist", "U": "uci"}, tuple("0123456789"), 5, 2, (("M", "U"),)),
}


@dataclass(frozen=True)
class Task:
    """From a labelled source to a target whose labels only score; each a folder, a list, features (.npz) or samples."""

    name: str
    source: str | Path | Samples
    target: str | Path | Samples
    source_classes: Sequence[str] | None = None  # only these
    target_classes: Sequence[str] | None = None
    negative_classes: int | None = None  # that the paper uses, where it does not use all pairs

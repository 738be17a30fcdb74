"""Label sets of the paper's benchmarks: which classes are shared, private to the source, private to the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

Pair = tuple[str, str]  # short names of the source's and the target's domain

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


@dataclass(frozen=True)
class Protocol:
    """Which classes the source has, and which the target has."""

    id: str
    source: tuple[str, ...]
    target: tuple[str, ...]


def split(classes: Sequence[str], shared: int, source_private: int, name: str | None = None) -> Protocol:
    """The first ``shared`` classes on both sides, the next ``source_private`` in the source, the rest in the target.

    Without a name, the protocol is called by the three numbers.
    """
    known = shared + source_private
    name = name or f"{shared}-{source_private}-{len(classes) - known}"
    return Protocol(name, tuple(classes[:known]), (*classes[:shared], *classes[known:]))


@dataclass(frozen=True)
class DataSet:
    """A published data set of several domains that have the same classes.

    Parameters
    ----------
    id : str
        As in a task's identifier.
    name : str
        As in the paper's tables.
    domains : dict
        Short name of a domain to the name of its folder.
    classes : tuple of str
        Their order decides which ones are shared and private.
    shared, source_private : int
        Sizes of the paper's label sets; the rest is private to the target.
    pairs : tuple of (str, str)
        Source and target of each task, by their short names.
    weights : str, optional
        Weights of the learned decision that were trained without this data set.
    """

    id: str
    name: str
    domains: dict[str, str]
    classes: tuple[str, ...]
    shared: int
    source_private: int
    pairs: tuple[Pair, ...]
    weights: str | None = None

    @property
    def protocol(self) -> Protocol:
        """The paper's label sets."""
        return split(self.classes, self.shared, self.source_private, "open-partial")


OFFICE31_DOMAINS = {"A": "amazon", "D": "dslr", "W": "webcam"}
OFFICE_HOME_DOMAINS = {"Ar": "Art", "Cl": "Clipart", "Pr": "Product", "Rw": "Real World"}
DATA_SETS = {
    found.id: found
    for found in (
        DataSet(
            "office31", "Office-31", OFFICE31_DOMAINS, OFFICE31, 10, 10, (*permutations(OFFICE31_DOMAINS, 2),),
            "without-office",
        ),
        DataSet(
            "office-home", "Office-Home", OFFICE_HOME_DOMAINS, OFFICE_HOME, 10, 5,
            (*permutations(OFFICE_HOME_DOMAINS, 2),),
        ),
        DataSet("visda", "VisDA", {"S": "train", "R": "validation"}, VISDA, 6, 3, (("S", "R"),)),
        DataSet(
            "digits", "digits", {"M": "mnist", "U": "uci"}, tuple("0123456789"), 5, 2, (("M", "U"),), "without-digits"
        ),
    )
}  # fmt: skip
IMAGENET_CALTECH = "imagenet-caltech"
NAMES = {**{key: found.name for key, found in DATA_SETS.items()}, IMAGENET_CALTECH: "ImageNet-Caltech"}

# Positions (source, target) of every category gap on Office-31.
_OFFICE31_GAPS = {
    "open-partial": (range(20), [*range(10), *range(20, 31)]),
    "open-set": (range(10), [*range(10), *range(20, 31)]),
    "partial": (range(31), range(10)),
    "closed": (range(31), range(31)),
    "few-unknown": (range(20), range(24)),
    "nothing-shared": (range(15), range(15, 31)),
    "one-shared": (range(11), [0, *range(11, 31)]),
}
OFFICE31_GAPS = {
    gap: Protocol(gap, tuple(OFFICE31[i] for i in source), tuple(OFFICE31[i] for i in target))
    for gap, (source, target) in _OFFICE31_GAPS.items()
}
OFFICE31_CALTECH10 = "office31-caltech10"  # the usual partial task: 31 source classes, ten of them in the target
# What `usfda compare --protocol` takes: a data set with the paper's label sets, a category gap of Office-31, or the
# partial task from Office-31 to the ten of its classes that Caltech-256 has.
PROTOCOLS = (*NAMES, *(f"office31-{gap}" for gap in OFFICE31_GAPS), OFFICE31_CALTECH10)
FAMILIES = "families"  # and tasks of several families of data sets (families.py)

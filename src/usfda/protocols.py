"""Label sets of the paper's benchmarks: which classes are shared, private to the source, private to the target."""

from __future__ import annotations

# Positions 0–9 are the ten shared with Caltech-256, the rest is alphabetical.
OFFICE31 = (
    "back_pack", "bike", "calculator", "headphones", "keyboard", "laptop_computer", "monitor", "mouse", "mug",
    "projector", "bike_helmet", "bookcase", "bottle", "desk_chair", "desk_lamp", "desktop_computer",
    "file_cabinet", "letter_tray", "mobile_phone", "paper_notebook", "pen", "phone", "printer", "punchers",
    "ring_binder", "ruler", "scissors", "speaker", "stapler", "tape_dispenser", "trash_can",
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

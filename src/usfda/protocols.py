"""Label sets of the paper's benchmarks: which classes are shared, private to the source, private to the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

from .data import Samples
from .runtime import InputError

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


OFFICE31_DOMAINS = ("amazon", "dslr", "webcam")


@dataclass(frozen=True)
class Task:
    """From a labelled source to a target whose labels only score; each a folder, a list or features (.npz)."""

    name: str
    source: str | Path | Samples
    target: str | Path | Samples
    source_classes: Sequence[str] | None = None  # only these
    target_classes: Sequence[str] | None = None
    negative_classes: int | None = None  # that the paper uses, where it does not use all pairs


def office31_tasks(folder: str | Path, protocol: str = "office31", wanted: str | None = None) -> list[Task]:
    """Tasks of Office-31: ``office31`` (open-partial, the paper's), ``office31-open-set`` …, or the gap alone.

    ``wanted`` is a list such as ``A-D,D-W`` (or whole names, ``amazon-dslr``); without it all six.
    """
    gap = protocol.removeprefix("office31").strip("-:/") or "open-partial"
    if gap not in OFFICE31_GAPS:
        known = ", ".join(f"office31-{name}" for name in OFFICE31_GAPS)
        raise InputError(f"no protocol {protocol!r}; there is office31 (open-partial), {known}")
    if missing := [domain for domain in OFFICE31_DOMAINS if not Path(folder, domain).is_dir()]:
        raise InputError(f"{folder}: has no folder {', '.join(missing)}; Office-31 is {', '.join(OFFICE31_DOMAINS)}")
    every = {
        (s, t): Task(f"{s[0]}→{t[0]}".upper(), Path(folder, s), Path(folder, t), *office31(gap))
        for s, t in permutations(OFFICE31_DOMAINS, 2)
    }
    if wanted is None:
        return list(every.values())
    names = {alias: domain for domain in OFFICE31_DOMAINS for alias in (domain, domain[0])}
    found = {}
    for text in wanted.split(","):
        pair = tuple(names.get(part.strip().lower(), part) for part in text.replace("→", "-").split("-"))
        if pair not in every:
            known = ", ".join(task.name.replace("→", "-") for task in every.values())
            raise InputError(f"no task {text.strip()!r}; there is {known}")
        found[pair] = every[pair]
    return list(found.values())

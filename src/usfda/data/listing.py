"""Folders behind URLs become ``Samples``, by the rules for local ones, from one listing of all that lies below."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath

import numpy as np

from ..errors import InputError
from ..urls import Url, files_below
from .folders import folders_above, leads_there, warn_of_ignored
from .images import OTHER_PICTURES, SUFFIXES
from .samples import Paths, Samples

log = logging.getLogger("usfda")


def _listing(url: Url) -> list[PurePosixPath]:
    """All files below a folder, relative to it, in the order of a walk: a folder's own files come first."""
    names = [PurePosixPath(name) for name in files_below(url)]
    if not names:
        raise InputError(f"{url}: no such folder, or nothing in it")
    shown = [name for name in names if not any(part.startswith(".") for part in name.parts)]
    return sorted(shown, key=lambda name: [*((1, part) for part in name.parts[:-1]), (0, name.name)])


def any_folder(url: Url) -> Samples:
    """All images below a folder, with the names of their folders as labels."""
    names = _listing(url)
    images = [name for name in names if name.suffix.lower() in SUFFIXES]
    _warn_of_others(url, names)
    labels = [name.parent.name or url.name for name in images]
    return Samples(Paths(url / str(name) for name in images), np.asarray(labels, dtype=str))


def class_folders(url: Url, classes: Sequence[str] | None) -> Samples:
    """Images in one folder per class, or the same one level deeper."""
    names = _listing(url)
    images = [name for name in names if name.suffix.lower() in SUFFIXES]
    inside = [name for name in images if len(name.parts) == 2]
    folders = {name.parts[0] for name in names if len(name.parts) > 1}
    direct = Counter(dict.fromkeys(folders, 0) | Counter(name.parts[0] for name in inside))
    deeper = Counter(name.parts[0] for name in images if len(name.parts) > 2)
    parts = Counter(top for top, _ in {name.parts[:2] for name in images if len(name.parts) == 3})
    below = folders_above(direct, deeper, parts, classes)
    if below is not None:
        if leads_there(below, direct):
            warn_of_ignored(url, Counter({str(url): sum(len(name.parts) == 1 for name in images)}))
            return class_folders(url / below[0], classes)
        hint = f"; give one of {', '.join(str(url / name) for name in below[:3])}" if below else ""
        raise InputError(f"{url}: wrong folder level, one folder per class with images in it is needed{hint}")
    warn_of_ignored(url, Counter(str((url / str(name)).parent) for name in images if len(name.parts) != 2))
    _warn_of_others(url, names)
    labels = [name.parts[0] for name in inside]
    empty = sorted(folders - set(labels) if classes is None else (folders - set(labels)) & set(classes))
    return Samples(Paths(url / str(name) for name in inside), np.asarray(labels, dtype=str), tuple(empty))


def _warn_of_others(url: Url, names: Sequence[PurePosixPath]) -> None:
    others = Counter(name.suffix.lower() for name in names if name.suffix.lower() in OTHER_PICTURES)
    if others:
        named = ", ".join(f"{n} {suffix}" for suffix, n in others.most_common())
        log.warning("%s: %s left out: such files are not read; save them as JPEG or PNG", url, named)

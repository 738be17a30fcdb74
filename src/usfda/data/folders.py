"""Folders of images: one folder per class, or any tree."""

from __future__ import annotations

import logging
import os
import stat
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..files import is_file
from ..urls import Url
from .images import ARCHIVES, OTHER_PICTURES, SUFFIXES, format_of
from .samples import Paths, Samples

log = logging.getLogger("usfda")
NAMED = 4  # folders that a warning names, of those with images that are left out
HIDDEN = (".", "__MACOSX")  # names of files and folders that nobody means begin so


def _is_image(path: str) -> bool:
    name = os.path.basename(path)  # noqa: PTH119 (hot)
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in SUFFIXES  # noqa: PTH122 (hot)


def begins_as_image(path: str) -> bool:
    """By its first bytes; those of PNM may begin a text as well."""
    if not is_file(path):
        return False  # a pipe would never end
    try:
        with Path(path).open("rb") as file:
            return format_of(file.read(16)) not in (None, "PPM")
    except OSError:
        return False


@dataclass
class _LeftOut:
    """What may be meant as images and is not read: counted, so that a warning can say so."""

    others: Counter[str] = field(default_factory=Counter)  # files, by their suffix
    misnamed: list[str] = field(default_factory=list)  # images without the suffix of one
    archives: list[str] = field(default_factory=list)
    dangling: list[str] = field(default_factory=list)  # links that lead nowhere
    folders: list[OSError] = field(default_factory=list)

    def file(self, path: str) -> None:
        suffix = Path(path).suffix.lower()
        if Path(path).name.startswith("."):
            return
        if suffix in OTHER_PICTURES:
            self.others[suffix] += 1
        elif suffix in ARCHIVES:
            self.archives.append(path)
        elif os.path.islink(path) and not os.path.exists(path):  # noqa: PTH110, PTH114 (hot)
            self.dangling.append(path)
        elif begins_as_image(path):
            self.misnamed.append(path)

    def warn(self, folder: Path) -> None:
        if self.others:
            named = ", ".join(f"{n} {suffix}" for suffix, n in self.others.most_common())
            log.warning("%s: %s left out: such files are not read; save them as JPEG or PNG", folder, named)
        for paths, kind, what_to_do in (
            (self.misnamed, "image", " without the suffix of one, such as %s; give them one, as .jpg"),
            (self.archives, "archive", ", such as %s; unpack what has images"),
            (self.dangling, "link", " to what is not there, such as %s"),
        ):
            if paths:
                several = "s" * (len(paths) > 1)
                log.warning(f"%s: left out %d {kind}{several}{what_to_do}", folder, len(paths), paths[0])
        if self.folders:
            first, several = self.folders[0], "s" * (len(self.folders) > 1)
            log.warning("%s: left out %d folder%s that cannot be read, such as %s (%s)",
                        folder, len(self.folders), several, first.filename, first.strerror)  # fmt: skip


def _leads_up(path: Path) -> bool:
    """Whether it is a link to a folder above it, below which all is found again."""
    return path.is_symlink() and path.resolve() in (here := path.parent.resolve(), *here.parents)


def _entries(folder: Path, left: _LeftOut | None = None) -> tuple[list[Path], list[str]]:
    """Sub-folders, and the names of images, directly in a folder, sorted; hidden ones are left out."""
    with os.scandir(folder) as found:
        shown = [(entry.name, entry.is_dir()) for entry in found if not entry.name.startswith(HIDDEN)]
    entries = sorted(entry for entry in shown if not (entry[1] and _leads_up(folder / entry[0])))
    for name, is_folder in entries:
        if left is not None and not is_folder and not _is_image(name):
            left.file(f"{folder}/{name}")
    return [folder / name for name, is_folder in entries if is_folder], [name for name, _ in entries if _is_image(name)]


def class_folders(folder: Path, classes: Sequence[str] | None) -> Samples:
    """The images of a folder with one folder per class, or the same one level deeper; ``classes`` are those wanted."""
    left = _LeftOut()
    folders, loose = _entries(folder, left)
    inside = {f: _entries(f, left) for f in folders}
    left.warn(folder)
    ignored = Counter({str(folder): len(loose)})  # images that lie directly in no class, by folder
    direct = Counter({f.name: len(images) for f, (_, images) in inside.items()})
    deeper, parts = Counter[str](), Counter[str]()
    for f, (subs, _) in inside.items():
        for sub in subs:
            found = Counter(os.path.dirname(path) for path in _walk(sub, _LeftOut()))  # noqa: PTH120 (hot)
            deeper[f.name] += found.total()
            parts[f.name] += str(sub) in found
            ignored += found
    below = folders_above(direct, deeper, parts, classes)
    if below is not None:
        if leads_there(below, direct):
            warn_of_ignored(folder, Counter({str(folder): len(loose)}))
            return class_folders(folder / below[0], classes)
        _explain_wrong_level(folder, [folder / name for name in below], bool(loose))
    wanted = [f for f in folders if classes is None or f.name in classes]
    warn_of_ignored(folder, ignored)
    without = [f for f in wanted if not inside[f][1]]
    paths, labels = Paths(), []
    for f, (_, images) in inside.items():
        for path in _each_once(f"{f}/{name}" for name in images):
            paths.append(path)
            labels.append(f.name)
    return Samples(paths, np.asarray(labels, dtype=str), tuple(f.name for f in without))


def folders_above(
    direct: Counter[str], deeper: Counter[str], parts: Counter[str], classes: Sequence[str] | None
) -> list[str] | None:
    """Which folders are not classes but have classes in them; None where the level is right.

    For the name of each folder: how many images lie directly in it, how many deeper, and in how many of its sub-folders
    images lie directly. Where most images of a folder lie deeper, those directly in it are strays. The level is wrong
    where such folders have more parts than there are other folders with images.
    """
    named = {name for name in direct if classes is None or name in classes}
    above = {name for name in named or direct if deeper[name] > direct[name]}
    others = {name for name in direct if direct[name]} - above
    if direct.total() and sum(parts[name] for name in above) <= len(others):
        return None
    return sorted(name for name in (above if direct.total() else direct) if parts[name])


def leads_there(below: list[str], direct: Counter[str]) -> bool:
    """Whether one folder alone leads to the classes: there is no other, or none has an image."""
    return len(below) == 1 and (len(direct) == 1 or not direct.total())


def warn_of_ignored(folder: Path | Url, ignored: Counter[str]) -> None:
    """Where the folders of a folder are classes: how many images lie in none of them, or deeper, by their folder."""
    if n := ignored.total():
        where = ", ".join(f"{place} ({count})" for place, count in ignored.most_common(NAMED) if count)
        more = f" and {len(ignored) - NAMED} more folders" if len(ignored) > NAMED else ""
        said = f"%s: left out %d image{'s' * (n > 1)} not directly in a class folder: %s%s"
        log.warning(said, folder, n, where, more)


def _explain_wrong_level(folder: Path, below: list[Path], loose: bool) -> None:
    if below:
        parts = [{sub.name for sub in _entries(f)[0]} for f in below]
        names = ("one of " if len(below) > 1 else "") + ", ".join(str(f) for f in below[:3])
        text = f"{folder}: wrong folder level, class folders lie one level deeper; give {names}"
        if common := set.intersection(*parts):
            text += f"; if {below[0].name} is a class with parts such as {min(common)}, give a .csv of paths and labels"
        raise InputError(text)
    if loose:
        raise InputError(
            f"{folder}: wrong folder level, images lie directly in it; put those of each class into a folder of its "
            "own in it, or, if it is itself one class, give the folder above"
        )
    if deeper := next(_walk(folder, _LeftOut()), None):
        raise InputError(
            f"{folder}: wrong folder level; give the folder whose sub-folders are the classes, "
            f"perhaps {Path(deeper).parent.parent}"
        )
    raise InputError(f"{folder}: empty, it has no folder with an image in it")


def _identity(path: str) -> tuple[int, int] | str:
    """Device and inode, by which a file or folder is one however many links lead to it."""
    try:
        found = os.stat(path)  # noqa: PTH116 (hot)
    except OSError:
        return path  # a broken link: it is reported when it is read
    return found.st_dev, found.st_ino


def _each_once(paths: Iterable[str]) -> Iterator[str]:
    seen: set[Any] = set()
    for path in paths:
        if (identity := _identity(path)) not in seen:
            seen.add(identity)
            yield path


def _walk(folder: Path, left: _LeftOut) -> Iterator[str]:
    """All images below a folder, each file and each folder once, however many links lead to it.

    ``left`` is called with what is not read. Only files that can be reached in two ways are remembered: with a million
    others, memory is the same.
    """
    root = os.path.realpath(folder)
    seen = {_identity(root)}

    def below(place: str) -> bool:
        """Whether a real path is one of those that are walked anyway."""
        within = place == root or place.startswith(root.rstrip("/") + "/")
        return within and not any(part.startswith(".") for part in place[len(root) :].split("/"))

    def first_time(path: str) -> bool:
        before = len(seen)
        seen.add(_identity(path))
        return len(seen) > before

    def once(path: str, inside: bool) -> bool:
        try:
            found = os.lstat(path)
        except OSError:
            return True
        if stat.S_ISLNK(found.st_mode):
            place = os.path.realpath(path)
            if below(place) and _is_image(place) and os.path.exists(place):  # noqa: PTH110 (hot)
                return False  # it is found in its own place
        elif inside and found.st_nlink == 1:
            return True
        return first_time(path)

    for place, folders, files in os.walk(folder, onerror=left.folders.append, followlinks=True):
        shown = [name for name in sorted(folders) if not (name.startswith(".") or _leads_up(Path(place, name)))]
        folders[:] = [name for name in shown if first_time(f"{place}/{name}")]
        inside = below(os.path.realpath(place))
        for name in sorted(files):
            path = os.path.join(place, name)  # noqa: PTH118 (hot)
            if not _is_image(name):
                left.file(path)
            elif once(path, inside):
                yield path


def any_folder(folder: Path) -> Samples:
    """All images below a folder; the name of the folder that an image lies in serves as its label."""
    os.scandir(folder).close()  # raises an error where it cannot be read itself
    left = _LeftOut()
    paths, labels = Paths(), []
    for path in _walk(folder, left):
        paths.append(path)
        labels.append(sys.intern(os.path.basename(os.path.dirname(path))))  # noqa: PTH119, PTH120 (hot)
    left.warn(folder)
    return Samples(paths, np.asarray(labels, dtype=str))

"""Folders, lists, arrays and ``.npz`` files become ``Samples`` or ``Features``."""

from __future__ import annotations

import csv
import logging
import math
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ..errors import InputError
from ..files import read_text
from .images import OTHER_PICTURES, SUFFIXES, picture
from .samples import Features, Samples

log = logging.getLogger("usfda")

LISTS = {".txt", ".csv", ".tsv"}
UNKNOWN = "unknown"  # the answer for what no class fits; no class may be called so
MAX_NAME = 255  # characters of a class name: those of a folder; an array of names takes as much for each as the longest


def read(
    source: Any, y: Any = None, *, classes: str | Sequence[str] | None = None, labelled: bool = False
) -> Samples | Features:
    """Read images or vectors.

    Parameters
    ----------
    source : path, sequence of paths or images, array, Samples or Features
        A folder, a list file, an image, a ``.npz``, ``-`` for a list on standard input, a sequence of image paths, of
        images of Pillow or of arrays (height, width, 3) of bytes, or an array (n, d) of vectors.
    y : sequence, optional
        A label for each sample.
    classes : str or sequence of str, optional
        Keep only samples with such a label: names, or a text as for ``--classes``.
    labelled : bool
        Ask for labels: one folder per class (or the same one level deeper), or a list with labels. Without it any
        folder will do, and the names of folders serve only to select by ``classes``.

    Returns
    -------
    Samples or Features
        Samples for images, Features for vectors.
    """
    if isinstance(classes, str):
        classes = class_names(classes)
    found: Samples | Features
    if isinstance(source, str) and source == "-":
        where, found = "standard input", _list(sys.stdin.read(), "standard input", Path())
    elif isinstance(source, str | os.PathLike):
        where, found = str(source), _read_path(Path(source), labelled, classes)
    else:
        where, found = "the samples", _read_object(source)
    if y is not None:
        if len(y) != len(found):
            raise InputError(f"{len(found)} samples but {len(y)} labels")
        found = replace(found, labels=_labels(y, "y"))
    if classes is not None:
        found = _keep(found, list(classes), where)
    if len(found) == 0:
        raise InputError(f"{where}: no sample found; images end in {' '.join(sorted(SUFFIXES))}")
    if labelled and found.labels is None:
        raise InputError(f"{where}: labels are needed here; give one folder per class, a list with labels, or y")
    return found


def read_several(sources: Sequence[Any]) -> Samples | Features:
    """What several paths have, one after the other, with the names of folders as labels; images or vectors."""
    found = [read(source) for source in sources]
    if len(found) == 1:
        return found[0]
    samples = [one for one in found if isinstance(one, Samples)]
    vectors = [one for one in found if isinstance(one, Features)]
    if samples and vectors:
        raise InputError("images and features cannot be read together; give one kind")
    labels = [one.labels for one in found if one.labels is not None]
    together = np.concatenate(labels) if len(labels) == len(found) else None
    if samples:
        return Samples([path for one in samples for path in one.paths], together)
    if len({(one.backbone, one.X.shape[1]) for one in vectors}) > 1:
        raise InputError("these features come from different backbones; give those of one")
    return Features(np.concatenate([one.X[:] for one in vectors]), together, vectors[0].backbone)


def read_target(source: Any, *, classes: str | Sequence[str] | None = None) -> Samples | Features:
    """Read a target: its labels, which may select samples by ``classes``, are gone from what is returned."""
    return read(source, classes=classes).without_labels()


def check_source(source: Samples | Features) -> None:
    """Raise an error unless there are two classes with two images each: one to learn from, one to check with.

    Two are also the fewest images that a mean in a model file may be taken over.
    """
    assert source.labels is not None
    labels = source.labels.tolist()
    if isinstance(source, Features) and source.keys is not None:  # copies of one image are one
        labels = [label for label, _ in set(zip(labels, source.keys, strict=True))]
    counts = dict.fromkeys(source.empty, 0) | Counter(labels)
    if len(source) == 0:
        raise InputError("none of the source images can be read")
    if len(counts) < 2:
        raise InputError(f"the source has a single class ({next(iter(counts))}); at least two are needed")
    if few := sorted(name for name, n in counts.items() if n < 2):
        raise InputError(f"fewer than two usable images in class {', '.join(few)}; add some, or leave it out")
    check_class_names(list(counts))


def check_class_names(names: Sequence[str]) -> None:
    """Raise an error for a class that cannot be shown or that means something else."""
    if any(name.strip().casefold() == UNKNOWN for name in names):
        raise InputError(f"a source class is called {UNKNOWN!r}, the answer for what no class fits; rename it")
    if wrong := [name for name in names if not name.strip() or not name.isprintable()]:
        raise InputError(f"class name {wrong[0][:80]!r} cannot be printed; rename it")
    if long := [name for name in names if len(name) > MAX_NAME]:
        raise InputError(f"class name {long[0][:80]!r}… is longer than {MAX_NAME} characters; rename it")


def class_names(text: str) -> list[str]:
    """The names in ``a,b,c``, or in the file of ``@FILE`` with one name per line."""
    if text.startswith("@"):
        file = Path(text[1:])
        if not file.is_file():
            raise InputError(f"--classes: no file {file}")
        names = [line.strip() for line in read_text(file).splitlines()]
    else:
        names = [name.strip() for name in text.split(",")]
    names = [name for name in names if name]
    if not names:
        raise InputError("--classes names no class")
    return names


def _labels(y: Any, where: str) -> np.ndarray:
    """Labels as names; whole numbers have one name whether they come as 3 or as 3.0."""
    values = np.asarray(y)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise InputError(f"{where}: labels must be one row of names or numbers, not of shape {values.shape}")
    given = np.asarray(y, dtype=object).ravel()  # NumPy turns a NaN among names into the name "nan"
    if missing := [i for i, label in enumerate(given.tolist()) if _is_missing(label)]:
        raise InputError(f"{where}: {len(missing)} labels are missing, the first is that of sample {missing[0]}")
    if values.dtype.kind == "f":
        if not np.isfinite(values).all():
            raise InputError(f"{where}: some labels are infinite")
        values = values.astype(int) if (values == values.round()).all() else values
    return values.astype(str)


def _is_missing(value: Any) -> bool:
    """None, NaN, and what pandas uses for a missing value."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and math.isnan(value)


def _keep(found: Samples | Features, classes: list[str], where: str) -> Samples | Features:
    have = set(found.empty) | (set() if found.labels is None else set(found.labels.tolist()))
    if missing := [name for name in classes if name not in have]:
        known = ", ".join(sorted(have)[:40]) or "none"
        raise InputError(f"{where} has no class {', '.join(missing)}; it has: {known}")
    kept = found[np.flatnonzero(np.isin(found.labels, classes))]  # type: ignore[arg-type]
    return replace(kept, empty=tuple(name for name in found.empty if name in classes))


def _read_object(source: Any) -> Samples | Features:
    if isinstance(source, Samples | Features):
        return source
    if isinstance(source, Image.Image):
        source = [source]
    if isinstance(source, Sequence | np.ndarray) and len(source):
        if isinstance(source[0], str | os.PathLike):
            return Samples([Path(p) for p in source])
        if isinstance(source[0], Image.Image) or (isinstance(source[0], np.ndarray) and source[0].ndim >= 2):
            return Samples([picture(image, f"image {i}") for i, image in enumerate(source)])
    return Features(_vectors(source, "X"))


def _vectors(values: Any, where: str) -> np.ndarray:
    try:
        if np.iscomplexobj(values):
            raise TypeError("complex")
        with np.errstate(over="ignore"):  # what is too large for float32 is found below
            X = np.require(values, np.float32, ["C", "W"])
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: not an array of numbers ({error})") from None
    if X.ndim != 2 or X.shape[1] == 0:
        raise InputError(f"{where}: features must be an array of shape (samples, dimensions), not {X.shape}")
    if len(bad := np.flatnonzero(~np.isfinite(X).all(1))):
        raise InputError(f"{where}: {len(bad)} rows have NaN or infinite values, the first is row {bad[0]}")
    return X


def _read_path(path: Path, labelled: bool, classes: Sequence[str] | None) -> Samples | Features:
    if path.is_dir():
        return _class_folders(path, classes) if labelled else _any_folder(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file or folder")
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return _npz(path)
    if suffix in LISTS:
        return _list(read_text(path), str(path), path.parent, suffix)
    if suffix in SUFFIXES:
        return Samples([path])
    raise InputError(f"{path}: neither a folder, an image, a list ({' '.join(sorted(LISTS))}) nor features (.npz)")


def _npz(path: Path) -> Features:
    try:
        with np.load(path, allow_pickle=False) as file:
            content = {name: file[name] for name in ("X", "y", "backbone") if name in file}
    except Exception as error:
        raise InputError(f"{path}: not a readable .npz of plain arrays ({error})") from None
    if "X" not in content:
        raise InputError(f"{path}: has no array X")
    X = _vectors(content["X"], str(path))
    labels = _labels(content["y"], f"{path}: y") if "y" in content else None
    if labels is not None and len(labels) != len(X):
        raise InputError(f"{path}: X has {len(X)} rows, y has {len(labels)}")
    return Features(X, labels, str(content["backbone"]) if "backbone" in content else None)


def _list(text: str, where: str, folder: Path, suffix: str = ".txt") -> Samples:
    """A list: ``path label`` or ``path`` per line, or CSV with or without a header; relative to the list's folder."""
    if suffix == ".txt":
        rows = [_split(line.strip(), folder) for line in text.splitlines() if line.strip()]
    else:
        delimiter = "\t" if suffix == ".tsv" else ","
        rows = [row for row in csv.reader(text.splitlines(), delimiter=delimiter) if any(row)]
        if rows and Path(rows[0][0]).suffix.lower() not in SUFFIXES:
            rows = _by_header(rows, where)
    if not rows:
        raise InputError(f"{where}: the list is empty")
    labelled = {len(row) > 1 and bool(row[1].strip()) for row in rows}
    if len(labelled) > 1:
        raise InputError(f"{where}: some lines have a label and some have none")
    paths = [folder / row[0].strip() for row in rows]
    if not any(_is_file(p) for p in paths):
        form = "path,label" if suffix == ".csv" else "path, a tab or a blank, label"
        raise InputError(f"{where}: none of its files exists, the first is {str(paths[0])[:200]!r}; a line is: {form}")
    return Samples(paths, np.asarray([row[1].strip() for row in rows], dtype=str) if labelled == {True} else None)


def _split(line: str, folder: Path) -> list[str]:
    if "\t" in line:
        return line.split("\t")
    # A name may have blanks: the line is a path where such a file exists, else a path and a label.
    return [line] if _is_file(folder / line) else line.rsplit(None, 1)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long
        return False


def _by_header(rows: list[list[str]], where: str) -> list[list[str]]:
    header = [cell.strip().lower() for cell in rows[0]]
    place = next((i for i, cell in enumerate(header) if cell in ("path", "file", "filename", "image")), None)
    label = next((i for i, cell in enumerate(header) if cell in ("label", "class")), None)
    if place is None:
        raise InputError(f"{where}: the header needs a column path (and label), it has: {', '.join(header)}")
    if short := next((n for n, row in enumerate(rows, 1) if len(row) < len(header)), None):
        raise InputError(f"{where}: row {short} has fewer columns than the header")
    return [[row[place]] if label is None else [row[place], row[label]] for row in rows[1:]]


def _is_image(name: str) -> bool:
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in SUFFIXES  # noqa: PTH122 (hot)


def _other_picture(name: str) -> list[str]:
    """Its suffix, where it may be meant as a picture and is not read."""
    suffix = Path(name).suffix.lower()
    return [suffix] if suffix in OTHER_PICTURES and not name.startswith(".") else []


def _warn_of_others(folder: Path, others: Counter[str]) -> None:
    if others:
        named = ", ".join(f"{n} {suffix}" for suffix, n in others.most_common())
        log.warning("%s: %s left out: such files are not read; save them as JPEG or PNG", folder, named)


def _entries(folder: Path) -> tuple[list[Path], list[Path]]:
    """Sub-folders and images directly in a folder, sorted; hidden ones are left out."""
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    return [e for e in entries if e.is_dir()], [e for e in entries if _is_image(e.name)]


def _class_folders(folder: Path, classes: Sequence[str] | None) -> Samples:
    folders, loose = _entries(folder)
    inside = {f: _entries(f) for f in folders}
    if not any(images for _, images in inside.values()):
        below = [f for f in folders if any(_entries(sub)[1] for sub in inside[f][0])]
        if len(below) == 1:
            return _class_folders(below[0], classes)
        _explain_wrong_level(folder, below, bool(loose))
    wanted = {f.name for f in folders} if classes is None else set(classes)
    empty = tuple(f.name for f, (_, images) in inside.items() if not images and f.name in wanted)
    if ignored := len(loose) + sum(1 for subs, _ in inside.values() for sub in subs for _ in _walk(sub)):
        log.warning("%s: %d images do not lie directly in a class folder and are left out", folder, ignored)
    others: Counter[str] = Counter()
    for f in folders:
        for entry in f.iterdir():
            others.update(_other_picture(entry.name))
    _warn_of_others(folder, others)
    pairs = [(path, f.name) for f, (_, images) in inside.items() for path in _each_once(images)]
    labels = np.asarray([label for _, label in pairs], dtype=str)
    return Samples([path for path, _ in pairs], labels, empty)


def _explain_wrong_level(folder: Path, below: list[Path], loose: bool) -> None:
    if below:
        names = ", ".join(str(f) for f in below[:3])
        raise InputError(f"{folder}: wrong folder level, class folders lie one level deeper; give one of {names}")
    if loose:
        raise InputError(
            f"{folder}: wrong folder level, images lie directly in it; give the folder above, with one folder per class"
        )
    if deeper := next(_walk(folder), None):
        raise InputError(
            f"{folder}: wrong folder level; give the folder whose sub-folders are the classes, "
            f"perhaps {deeper.parent.parent}"
        )
    raise InputError(f"{folder}: empty, it has no folder with an image in it")


def _identity(path: str | Path) -> tuple[int, int] | str:
    """Device and inode, by which a file or folder is one however many links lead to it."""
    try:
        found = os.stat(path)  # noqa: PTH116 (hot)
    except OSError:
        return str(path)  # a broken link: it is reported when it is read
    return found.st_dev, found.st_ino


def _each_once(paths: Sequence[Path]) -> list[Path]:
    first: dict[Any, Path] = {}
    for path in paths:
        first.setdefault(_identity(path), path)
    return list(first.values())


def _walk(folder: Path, others: Counter[str] | None = None) -> Iterator[Path]:
    """All images below a folder, each file and each folder once, however many links lead to it.

    ``others`` counts files that may be meant as pictures and are not read, by their suffix.
    """
    seen = {_identity(folder)}

    def first_time(path: str) -> bool:
        before = len(seen)
        seen.add(_identity(path))
        return len(seen) > before

    for place, folders, files in os.walk(folder, followlinks=True):
        folders[:] = [name for name in sorted(folders) if not name.startswith(".") and first_time(f"{place}/{name}")]
        for name in sorted(files):
            if _is_image(name) and first_time(f"{place}/{name}"):
                yield Path(place, name)
            elif others is not None:
                others.update(_other_picture(name))


def _any_folder(folder: Path) -> Samples:
    others: Counter[str] = Counter()
    paths = list(_walk(folder, others))
    _warn_of_others(folder, others)
    return Samples(paths, np.asarray([path.parent.name for path in paths], dtype=str))

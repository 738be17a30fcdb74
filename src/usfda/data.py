"""Samples in: folders and lists of images, arrays of features, their labels, and the files that cannot be read."""

from __future__ import annotations

import csv
import logging
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from .runtime import InputError

log = logging.getLogger("usfda")

FORMATS = {
    "JPEG": (".jpg", ".jpeg", ".jpe", ".jfif"),
    "PNG": (".png",),
    "BMP": (".bmp", ".dib"),
    "GIF": (".gif",),
    "TIFF": (".tif", ".tiff"),
    "WEBP": (".webp",),
    "PPM": (".ppm", ".pgm", ".pbm"),
}
SUFFIXES = {suffix for suffixes in FORMATS.values() for suffix in suffixes}
LISTS = {".txt", ".csv", ".tsv"}
MAX_PIXELS = 89_478_485  # Pillow's own limit: a quarter of a GiB in RGB


@dataclass(frozen=True)
class Samples:
    """Images by path or vectors, one of the two, with a label for each where the layout gives any."""

    paths: list[Path] | None = None
    X: Any = None  # an array (n, d), or the store's rows of one
    labels: np.ndarray | None = None
    backbone: str | None = None  # sha256 of the backbone that made X, where it is known
    empty: tuple[str, ...] = ()  # class folders without an image

    def __len__(self) -> int:
        return len(self.paths) if self.paths is not None else len(self.X)

    def __getitem__(self, index: np.ndarray) -> Samples:
        return Samples(
            None if self.paths is None else [self.paths[i] for i in index],
            None if self.X is None else self.X[index],
            None if self.labels is None else self.labels[index],
            self.backbone,
            self.empty,
        )


def read(source: Any, y: Any = None, *, classes: str | Sequence[str] | None = None, labelled: bool = False) -> Samples:
    """Samples of a folder, a list file, an image, a ``.npz``, a sequence of paths, or an array (n, d).

    ``classes`` (names, or a text as for ``--classes``) keeps those with such a label. ``labelled`` asks for the layout
    *class/file* (or one level deeper) or a list with labels; without it any folder will do, and labels serve only to
    select.
    """
    if isinstance(classes, str):
        classes = class_names(classes)
    if isinstance(source, str | os.PathLike):
        found = _read_path(Path(source), labelled, classes)
    elif isinstance(source, Samples):
        found = source
    elif isinstance(source, Sequence | np.ndarray) and len(source) and isinstance(source[0], str | os.PathLike):
        found = Samples(paths=[Path(p) for p in source])
    else:
        found = Samples(X=_vectors(source, "X"))
    where = str(source) if isinstance(source, str | os.PathLike) else "the samples"
    if y is not None:
        if len(y) != len(found):
            raise InputError(f"{len(found)} samples but {len(y)} labels")
        found = Samples(found.paths, found.X, _labels(y, "y"), found.backbone)
    if classes is not None:
        found = _keep(found, list(classes), where)
    if len(found) == 0:
        raise InputError(f"{where}: no sample found; images end in {' '.join(sorted(SUFFIXES))}")
    if labelled and found.labels is None:
        raise InputError(f"{where}: labels are needed here; give one folder a class, a list with labels, or y")
    return found


def check_source(samples: Samples) -> None:
    """A source must have two classes with two samples each: one to learn from, one to check with."""
    assert samples.labels is not None
    counts = dict.fromkeys(samples.empty, 0) | Counter(samples.labels.tolist())
    if len(samples) == 0:
        raise InputError("none of the source images can be read")
    if len(counts) < 2:
        raise InputError(f"the source has a single class ({next(iter(counts))}); at least two are needed")
    if few := sorted(name for name, n in counts.items() if n < 2):
        raise InputError(f"fewer than two usable images in class {', '.join(few)}; add some, or leave it out")
    if "unknown" in counts:
        raise InputError("a source class is called 'unknown', the answer for what no class fits; rename it")
    if wrong := [name for name in counts if not name or not name.isprintable()]:
        raise InputError(f"class name {wrong[0]!r} cannot be printed; rename it")


def class_names(text: str) -> list[str]:
    """Names of ``a,b,c`` or of ``@FILE`` with one a line."""
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


def read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read as UTF-8 text ({error})") from None


def _labels(y: Any, where: str) -> np.ndarray:
    """Names; whole numbers are named alike whether they come as 3 or as 3.0."""
    values = np.asarray(y)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise InputError(f"{where}: labels must be one row of names or numbers, not of shape {values.shape}")
    if values.dtype.kind == "f":
        if not np.isfinite(values).all():
            raise InputError(f"{where}: some labels are NaN or infinite")
        values = values.astype(int) if (values == values.round()).all() else values
    return values.astype(str)


def _keep(found: Samples, classes: list[str], where: str) -> Samples:
    have = set(found.empty) | (set() if found.labels is None else set(found.labels.tolist()))
    if missing := [name for name in classes if name not in have]:
        known = ", ".join(sorted(have)[:40]) or "none"
        raise InputError(f"{where} has no class {', '.join(missing)}; it has: {known}")
    kept = found[np.flatnonzero(np.isin(found.labels, classes))]  # type: ignore[arg-type]
    return replace(kept, empty=tuple(name for name in found.empty if name in classes))


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


def _read_path(path: Path, labelled: bool, classes: Sequence[str] | None) -> Samples:
    if path.is_dir():
        return _class_folders(path, classes) if labelled else _any_folder(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file or folder")
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return _npz(path)
    if suffix in LISTS:
        return _list(path)
    if suffix in SUFFIXES:
        return Samples(paths=[path])
    raise InputError(f"{path}: neither a folder, an image, a list ({' '.join(sorted(LISTS))}) nor features (.npz)")


def _npz(path: Path) -> Samples:
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
    return Samples(X=X, labels=labels, backbone=str(content["backbone"]) if "backbone" in content else None)


def _list(path: Path) -> Samples:
    """``path label`` or ``path`` alone a line; CSV with or without a header; relative to the list's own folder."""
    text = read_text(path)
    suffix = path.suffix.lower()
    if suffix == ".txt":
        rows = [_split(line.strip(), path.parent) for line in text.splitlines() if line.strip()]
    else:
        delimiter = "\t" if suffix == ".tsv" else ","
        rows = [row for row in csv.reader(text.splitlines(), delimiter=delimiter) if any(row)]
        if rows and Path(rows[0][0]).suffix.lower() not in SUFFIXES:
            rows = _by_header(rows, path)
    if not rows:
        raise InputError(f"{path}: the list is empty")
    sizes = {min(len(row), 2) for row in rows}
    if len(sizes) > 1:
        raise InputError(f"{path}: some lines have a label and some have none")
    paths = [path.parent / row[0].strip() for row in rows]
    if not any(_is_file(p) for p in paths):
        form = "path,label" if suffix == ".csv" else "path, a tab or a blank, label"
        raise InputError(f"{path}: none of its files exists, the first is {str(paths[0])[:200]!r}; a line is: {form}")
    return Samples(
        paths=paths, labels=np.asarray([row[1].strip() for row in rows], dtype=str) if sizes == {2} else None
    )


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


def _by_header(rows: list[list[str]], path: Path) -> list[list[str]]:
    header = [cell.strip().lower() for cell in rows[0]]
    place = next((i for i, cell in enumerate(header) if cell in ("path", "file", "filename", "image")), None)
    label = next((i for i, cell in enumerate(header) if cell in ("label", "class")), None)
    if place is None:
        raise InputError(f"{path}: the header needs a column path (and label), it has: {', '.join(header)}")
    if short := next((n for n, row in enumerate(rows, 1) if len(row) < len(header)), None):
        raise InputError(f"{path}: row {short} has fewer columns than the header")
    return [[row[place]] if label is None else [row[place], row[label]] for row in rows[1:]]


def _is_image(name: str) -> bool:
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in SUFFIXES  # noqa: PTH122 (hot)


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
        if below:
            names = ", ".join(str(f) for f in below[:3])
            raise InputError(f"{folder}: wrong folder level, class folders lie one level deeper; give one of {names}")
        if loose:
            raise InputError(
                f"{folder}: wrong folder level, images lie directly in it; give the folder above, one folder a class"
            )
        deeper = next(_walk(folder), None)
        if deeper is not None:
            raise InputError(
                f"{folder}: wrong folder level; give the folder whose sub-folders are the classes, "
                f"perhaps {deeper.parent.parent}"
            )
        raise InputError(f"{folder}: empty, it has no folder with an image in it")
    wanted = {f.name for f in folders} if classes is None else set(classes)
    empty = tuple(f.name for f, (_, images) in inside.items() if not images and f.name in wanted)
    if ignored := len(loose) + sum(1 for subs, _ in inside.values() for sub in subs for _ in _walk(sub)):
        log.warning("%s: %d images do not lie directly in a class folder and are left out", folder, ignored)
    pairs = [(path, f.name) for f, (_, images) in inside.items() for path in images]
    labels = np.asarray([label for _, label in pairs], dtype=str)
    return Samples(paths=[path for path, _ in pairs], labels=labels, empty=empty)


def _walk(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder, followlinks=True):
        here = Path(place)
        if here.is_symlink() and here.resolve() in (here.parent.resolve() / "x").parents:
            folders.clear()  # a link to a folder above it, which would never end
            continue
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(place, name) for name in sorted(files) if _is_image(name))


def _any_folder(folder: Path) -> Samples:
    paths = list(_walk(folder))
    return Samples(paths=paths, labels=np.asarray([path.parent.name for path in paths], dtype=str))


def open_rgb(file: Any, least: int | None = None) -> Image.Image:
    """An upright RGB image; raises ValueError or OSError for what is no sound image.

    ``least`` (the side that is needed) lets a JPEG be decoded at a half, a quarter or an eighth.
    """
    image: Image.Image = Image.open(file, formats=list(FORMATS))
    if least is not None and image.format == "JPEG":
        image.draft(None, (least, least))
    if image.width * image.height > MAX_PIXELS:
        raise ValueError(f"refused: {image.width}×{image.height} pixels")
    image.load()
    ImageOps.exif_transpose(image, in_place=True)
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        values = np.asarray(image, dtype=np.float32)
        if not np.isfinite(values).all():
            raise ValueError("NaN or infinite pixels")
        # Modes I and F do not say how bright white is: the next usual limit above what there is.
        limits = {"I": (255.0, 65535.0), "F": (1.0, 255.0, 65535.0)}.get(image.mode, (65535.0,))
        white = next((limit for limit in limits if values.max() <= limit), values.max())
        return Image.fromarray((values / white * 255).clip(0, 255).astype(np.uint8)).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")

"""Samples in: folders and lists of images, arrays of features, their labels, and the files that cannot be read."""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from .runtime import InputError

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

    def __len__(self) -> int:
        return len(self.paths) if self.paths is not None else len(self.X)

    def __getitem__(self, index: np.ndarray) -> Samples:
        return Samples(
            None if self.paths is None else [self.paths[i] for i in index],
            None if self.X is None else self.X[index],
            None if self.labels is None else self.labels[index],
            self.backbone,
        )


def read(source: Any, y: Any = None, *, classes: Sequence[str] | None = None, labelled: bool = False) -> Samples:
    """Samples of a folder, a list file, an image, a ``.npz``, a sequence of paths, or an array (n, d).

    ``classes`` keeps those with such a label. ``labelled`` asks for the layout *class/file* (or one level deeper) or a
    list with labels; without it any folder will do, and labels serve only to select.
    """
    if isinstance(source, str | os.PathLike):
        found = _read_path(Path(source), labelled, classes)
    elif isinstance(source, Samples):
        found = source
    elif isinstance(source, Sequence) and source and isinstance(source[0], str | os.PathLike):
        found = Samples(paths=[Path(p) for p in source])
    else:
        found = Samples(X=_vectors(source, "X"))
    where = str(source) if isinstance(source, str | os.PathLike) else "the samples"
    if y is not None:
        if len(y) != len(found):
            raise InputError(f"{len(found)} samples but {len(y)} labels")
        found = Samples(found.paths, found.X, np.asarray(y).astype(str), found.backbone)
    if classes is not None:
        found = _keep(found, list(classes), where)
    if len(found) == 0:
        raise InputError(f"{where}: no image found; looked for {' '.join(sorted(SUFFIXES))}")
    if labelled and found.labels is None:
        raise InputError(f"{where}: labels are needed here; give one folder a class, a list with labels, or y")
    return found


def check_source(labels: np.ndarray) -> None:
    """A source must have two classes with two samples each: one to learn from, one to check with."""
    counts = Counter(labels.tolist())
    if not counts:
        raise InputError("none of the source images can be read")
    if len(counts) < 2:
        raise InputError(f"the source has a single class ({next(iter(counts))}); at least two are needed")
    if few := sorted(name for name, n in counts.items() if n < 2):
        raise InputError(f"fewer than two usable images in class {', '.join(few)}; add some, or leave it out")
    if "unknown" in counts:
        raise InputError("a source class is called 'unknown', the answer for what no class fits; rename it")


def class_names(text: str | None) -> list[str] | None:
    """Names of ``a,b,c`` or of ``@FILE`` with one a line."""
    if text is None:
        return None
    if text.startswith("@"):
        file = Path(text[1:])
        if not file.is_file():
            raise InputError(f"--classes: no file {file}")
        names = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    else:
        names = [name.strip() for name in text.split(",")]
    names = [name for name in names if name]
    if not names:
        raise InputError("--classes names no class")
    return names


def _keep(found: Samples, classes: list[str], where: str) -> Samples:
    have = set() if found.labels is None else set(found.labels.tolist())
    if missing := [name for name in classes if name not in have]:
        known = ", ".join(sorted(have)[:40]) or "none"
        raise InputError(f"{where} has no class {', '.join(missing)}; it has: {known}")
    return found[np.flatnonzero(np.isin(found.labels, classes))]  # type: ignore[arg-type]


def _vectors(values: Any, where: str) -> np.ndarray:
    try:
        X = np.asarray(values, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: not an array of numbers ({error})") from None
    if X.ndim != 2 or X.shape[1] == 0:
        raise InputError(f"{where}: features must be an array of shape (samples, dimensions), not {X.shape}")
    if len(bad := np.flatnonzero(~np.isfinite(X).all(1))):
        raise InputError(f"{where}: {len(bad)} rows have NaN or infinite values, the first is row {bad[0]}")
    return X


def _read_path(path: Path, labelled: bool, classes: Sequence[str] | None) -> Samples:
    if path.is_dir():
        paths, labels = _class_folders(path, classes) if labelled else _any_folder(path)
        return Samples(paths=paths, labels=np.asarray(labels, dtype=str))
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
    labels = content["y"].astype(str) if "y" in content else None
    if labels is not None and labels.shape != (len(X),):
        raise InputError(f"{path}: X has {len(X)} rows, y has shape {labels.shape}")
    return Samples(X=X, labels=labels, backbone=str(content["backbone"]) if "backbone" in content else None)


def _list(path: Path) -> Samples:
    """``path label`` or ``path`` alone a line; CSV with or without a header; relative to the list's own folder."""
    text = path.read_text(encoding="utf-8-sig")
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
    if missing := [p for p in paths if not p.is_file()]:
        raise InputError(f"{path}: {len(missing)} of {len(paths)} files do not exist, the first is {missing[0]}")
    return Samples(
        paths=paths, labels=np.asarray([row[1].strip() for row in rows], dtype=str) if sizes == {2} else None
    )


def _split(line: str, folder: Path) -> list[str]:
    if "\t" in line:
        return line.split("\t")
    # A name may have blanks: the line is a path where such a file exists, else a path and a label.
    return [line] if (folder / line).is_file() else line.rsplit(None, 1)


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


def _class_folders(folder: Path, classes: Sequence[str] | None) -> tuple[list[Path], list[str]]:
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
    if empty := [f.name for f, (_, images) in inside.items() if not images and f.name in wanted]:
        raise InputError(f"{folder}: no image directly in class folder {', '.join(empty)}; remove it or fill it")
    pairs = [(path, f.name) for f, (_, images) in inside.items() for path in images]
    return [path for path, _ in pairs], [label for _, label in pairs]


def _walk(folder: Path) -> Iterator[Path]:
    seen: set[str] = set()  # links are followed, each folder once
    for place, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(place, name) for name in sorted(files) if _is_image(name))


def _any_folder(folder: Path) -> tuple[list[Path], list[str]]:
    paths = list(_walk(folder))
    return paths, [path.parent.name for path in paths]


def open_rgb(file: Any, least: tuple[float, float] | None = None) -> Image.Image:
    """An upright RGB image; raises ValueError or OSError for what is no sound image.

    ``least`` (width and height that are needed) lets a JPEG be decoded at a half, a quarter or an eighth.
    """
    image: Image.Image = Image.open(file, formats=list(FORMATS))
    if image.width * image.height > MAX_PIXELS:
        raise ValueError(f"refused: {image.width}×{image.height} pixels")
    if least is not None and image.format == "JPEG":
        image.draft(None, (int(np.ceil(least[0])), int(np.ceil(least[1]))))
    image.load()
    ImageOps.exif_transpose(image, in_place=True)
    if image.mode == "RGB":
        return image
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        values = np.asarray(image, dtype=np.float32)
        top = 1.0 if image.mode == "F" and values.max() <= 1 else 255.0 if values.max() <= 255 else 65535.0
        return Image.fromarray((values / top * 255).clip(0, 255).astype(np.uint8)).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")

"""Folders, lists, arrays and ``.npz`` files become ``Samples`` or ``Features``."""

from __future__ import annotations

import logging
import math
import os
import struct
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
from PIL import Image

from ..errors import InputError
from ..files import is_file, read_lines, read_text
from ..urls import Url, fetched, is_url, place_of
from . import listing
from .folders import any_folder, begins_as_image, class_folders
from .images import ARCHIVES, MAX_FILE, SUFFIXES, picture
from .lists import LISTS, read_list
from .samples import MAX_NAME, Features, Held, Mapped, Matrix, Paths, Samples

log = logging.getLogger("usfda")
MAX_FEATURES = 2**36  # bytes of a .npz that is fetched from a URL
LARGE, RATIO = 2**28, 100  # bytes of an array, and how many times its size in the file: beyond both it is a bomb
UNKNOWN = "unknown"  # the answer for what no class fits; no class may be called so
FIRST_MARK = 0x300  # of the characters that change the one before them
BATCH = 4096  # vectors that are looked at together: those of a file are never all in memory


def read(
    source: Any, y: Any = None, *, classes: str | Sequence[str] | None = None, labelled: bool = False
) -> Samples | Features:
    """Read images or vectors.

    Parameters
    ----------
    source : path, sequence of paths or images, array, Samples or Features
        A folder, a list file, an image, a ``.npz``, ``-`` for a list on standard input, a sequence of image paths, of
        images of Pillow or of arrays (height, width, 3) of bytes, or an array (n, d) of vectors. For a path, a URL
        that fsspec knows will do, as ``s3://bucket/photos/``.
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
    if classes is not None:
        classes = [normalize("NFC", name) for name in (class_names(classes) if isinstance(classes, str) else classes)]
    found: Samples | Features
    source = place_of(source) if is_url(source) else source
    if isinstance(source, str) and source == "-":
        where, found = "standard input", read_list(_standard_input(), "standard input", Path())
    elif isinstance(source, Url):
        where, found = str(source), _read_url(source, labelled, classes)
    elif isinstance(source, str | os.PathLike):
        where, found = str(source), _read_path(Path(source), labelled, classes)
    else:
        where, found = "the input", _read_object(source)
    if y is not None:
        if len(y) != len(found):
            raise InputError(f"{len(found)} samples but {len(y)} labels")
        found = replace(found, labels=_labels(y, "y"))
    found = _composed(found)
    if classes is not None:
        found = _keep(found, classes, where)
    if len(found) == 0:
        raise InputError(f"{where}: no sample found; images end in {' '.join(sorted(SUFFIXES))}")
    if labelled and found.labels is None:
        raise InputError(f"{where}: labels are needed here; give one folder per class, a list with labels, or y")
    return found


def _composed(found: Samples | Features) -> Samples | Features:
    """The same samples with class names in one spelling: a folder from a Mac may have ö as an o and two dots."""
    if found.labels is None or found.labels.dtype.kind != "U" or not found.labels.dtype.itemsize:
        return found
    if (np.ascontiguousarray(found.labels).view(np.uint32) < FIRST_MARK).all():
        return found
    names, positions = np.unique(found.labels, return_inverse=True)
    return replace(found, labels=np.asarray([normalize("NFC", name) for name in names])[positions])


def _standard_input() -> Iterator[str]:
    try:
        yield from sys.stdin
    except UnicodeDecodeError as error:
        raise InputError(f"standard input: cannot be read as text ({error})") from None


def read_several(
    sources: Sequence[Any], *, classes: str | Sequence[str] | None = None, labelled: bool = False
) -> Samples | Features:
    """What several paths have, one after the other, as ``read`` gives it; images or vectors."""
    if len(sources) > 1:  # as a shell's photos/* gives them
        others = [source for source in sources if _is_other_file(source)]
        if 0 < len(others) < len(sources):
            log.warning("left out %d of %d paths, such as %s: neither images, lists nor features",
                        len(others), len(sources), others[0])  # fmt: skip
            sources = [source for source in sources if not _is_other_file(source)]
    if len(sources) == 1:
        return read(sources[0], classes=classes, labelled=labelled)
    found = [read(source, labelled=labelled) for source in sources]
    samples = [one for one in found if isinstance(one, Samples)]
    vectors = [one for one in found if isinstance(one, Features)]
    if samples and vectors:
        raise InputError("images and features cannot be read together; give one kind")
    labels = [one.labels for one in found if one.labels is not None]
    together = np.concatenate(labels) if len(labels) == len(found) else None
    if samples:
        places = list(chain.from_iterable(one.paths for one in samples))
        names = [hash(os.path.abspath(place) if isinstance(place, Path) else place) for place in places]  # noqa: PTH100
        _, rows = np.unique(names, return_index=True)
        if again := len(places) - len(rows):  # folders may overlap
            log.warning("%d of %d images are given more than once, and are taken once", again, len(places))
            places = [places[i] for i in np.sort(rows)]
            together = None if together is None else together[np.sort(rows)]
        paths = [place for place in places if not isinstance(place, Held)]
        whole: Samples | Features = Samples(Paths(paths) if len(paths) == len(places) else places, together)
    elif len({(one.backbone, one.X.shape[1]) for one in vectors}) > 1:
        raise InputError("these features come from different backbones; give those of one")
    else:
        whole = Features(np.concatenate([one.X[:] for one in vectors]), together, vectors[0].backbone)
    return read(whole, classes=classes, labelled=labelled)


def _is_other_file(source: Any) -> bool:
    if not isinstance(source, str | os.PathLike) or is_url(source) or str(source) == "-":
        return False
    path = Path(source)
    return path.suffix.lower() not in {*SUFFIXES, *LISTS, ".npz"} and is_file(path)


def read_target(source: Any, *, classes: str | Sequence[str] | None = None) -> Samples | Features:
    """Read a target: its labels, which may select samples by ``classes``, are gone from what is returned."""
    return read(source, classes=classes).without_labels()


def check_source(source: Samples | Features) -> None:
    """Raise an error unless there are two classes with two images each: one to learn from, one to check with.

    Two are also the fewest images that a mean in a model file may be taken over.
    """
    assert source.labels is not None
    counts = dict.fromkeys(source.empty, 0) | Counter(source.labels.tolist())
    if isinstance(source, Features) and source.keys is not None:  # copies of one image are one
        first: dict[str, bytes] = {}
        several = {
            c for c, key in zip(source.labels.tolist(), source.keys, strict=True) if first.setdefault(c, key) != key
        }
        counts |= dict.fromkeys(first.keys() - several, 1)
    if len(source) == 0:
        raise InputError("none of the source images can be read")
    if len(counts) < 2:
        raise InputError(f"the source has a single class ({next(iter(counts))}); at least two are needed")
    if few := sorted(name for name, n in counts.items() if n < 2):
        raise InputError(
            f"fewer than two usable images in class {', '.join(few)} (different ones, directly in its folder); add "
            "some, remove its folder, or name all others with --classes"
        )
    check_class_names(list(counts))
    if isinstance(source, Features) and source.paths is not None:
        return  # the images were reported already
    spelled: dict[str, str] = {}
    for name in sorted(counts):
        if (other := spelled.setdefault(name.casefold(), name)) != name:
            log.warning("classes %s and %s differ in case alone; if they are the same, give both one name", other, name)


def differing_in_case(new: Sequence[str], known: Sequence[str]) -> dict[str, str]:
    """New names that differ from a known one in case alone, and that one. It may be meant: a and A."""
    spelled = {name.casefold(): name for name in known}
    return {name: spelled[name.casefold()] for name in new if name.casefold() in spelled}


def check_class_names(names: Sequence[str]) -> None:
    """Raise an error for a class that cannot be shown or that means something else."""
    if any(name.strip().casefold() == UNKNOWN for name in names):
        raise InputError(f"a class cannot be called {UNKNOWN!r}, the answer for what no class fits; rename it")
    if wrong := [name for name in names if not name.strip() or not name.isprintable()]:
        raise InputError(f"class name {wrong[0][:80]!r} cannot be printed; rename it")
    if long := [name for name in names if len(name) > MAX_NAME]:
        raise InputError(f"class name {long[0][:80]!r}… is longer than {MAX_NAME} characters; rename it")


def class_names(text: str) -> list[str]:
    """The names in ``a,b,c``, or in the file of ``@FILE`` with one name per line."""
    if text.startswith("@"):
        file = Path(text[1:])
        if not is_file(file):
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
    if values.ndim != 1 or values.dtype.kind in "cV":
        raise InputError(f"{where}: labels must be one row of names or numbers, not of shape {values.shape}")
    given = np.asarray(y, dtype=object).ravel()  # NumPy turns a NaN among names into the name "nan"
    if missing := [i for i, label in enumerate(given.tolist()) if _is_missing(label)]:
        raise InputError(f"{where}: {len(missing)} labels are missing, the first is that of sample {missing[0]}")
    if values.dtype.kind == "f":
        if not np.isfinite(values).all():
            raise InputError(f"{where}: some labels are infinite")
        whole = (values == values.round()) & (abs(values) < 2**63)
        values = values.astype(int) if whole.all() else values
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
            return Samples(Paths(map(place_of, source)))
        if isinstance(source[0], Image.Image) or (isinstance(source[0], np.ndarray) and source[0].ndim >= 2):
            return Samples([picture(image, f"image {i}") for i, image in enumerate(source)])
    X = _vectors(source, "X")
    _check_finite(X, "X")
    return Features(X)


def _vectors(values: Any, where: str) -> np.ndarray:
    try:
        if np.iscomplexobj(values):
            raise TypeError("complex")
        with np.errstate(over="ignore"):  # what is too large for float32 is found later
            X = np.require(values, np.float32, ["C", "W"])
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: not an array of numbers ({error})") from None
    if X.ndim != 2 or X.shape[1] == 0:
        raise InputError(f"{where}: features must be an array of shape (samples, dimensions), not {X.shape}")
    return X


def _check_finite(X: Matrix, where: str) -> None:
    finite = np.concatenate([np.isfinite(X[i : i + BATCH]).all(1) for i in range(0, max(1, len(X)), BATCH)])
    if len(bad := np.flatnonzero(~finite)):
        raise InputError(f"{where}: {len(bad)} rows have NaN or infinite values, the first is row {bad[0]}")


def _read_path(path: Path, labelled: bool, classes: Sequence[str] | None) -> Samples | Features:
    try:
        if path.is_dir():
            return class_folders(path, classes) if labelled else any_folder(path)
    except OSError as error:  # a folder that may not be read, a name that is too long
        raise InputError(f"{error.filename or path}: {error.strerror}") from None
    if not is_file(path):
        raise InputError(f"{path}: no such file or folder")
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return _npz(path, str(path))
    if suffix in LISTS and not begins_as_image(str(path)):
        log.info("%s: read as a list of images", path)
        return read_list(read_lines(path), str(path), path.parent, suffix, labelled=labelled)
    if suffix in SUFFIXES or suffix in LISTS:
        return Samples([path])
    if suffix in ARCHIVES:
        raise InputError(f"{path}: an archive; unpack it and give the folder")
    raise InputError(f"{path}: neither a folder, an image, a list ({' '.join(sorted(LISTS))}) nor features (.npz)")


def _read_url(url: Url, labelled: bool, classes: Sequence[str] | None) -> Samples | Features:
    """As a path; the suffix of a URL shows what it stands for, because not every server knows folders."""
    suffix = url.suffix.lower()
    if suffix == ".npz":
        with fetched(url, MAX_FEATURES) as file:
            return _npz(file, str(url))
    if suffix in LISTS:
        with fetched(url, MAX_FILE) as file:
            return read_list(read_lines(file), str(url), url.parent, suffix, labelled=labelled)
    if suffix in SUFFIXES:
        return Samples([url])
    return listing.class_folders(url, classes) if labelled else listing.any_folder(url)


def _npz(place: Path, path: str) -> Features:
    try:
        with zipfile.ZipFile(place) as archive:
            packed = [(part.file_size, part.compress_size) for part in archive.infolist()]
        if any(size > LARGE and size > RATIO * there for size, there in packed):
            raise InputError(f"{path}: refused, it unpacks to more than {RATIO} times its size")
        with np.load(place, allow_pickle=False) as file:
            mapped = _mapped(place, "X.npy") if "X" in file else None
            names = ("y", "backbone") if mapped else ("X", "y", "backbone")
            content = {name: file[name] for name in names if name in file}
        if mapped is None and "X" not in content:
            raise InputError(f"{path}: has no array X")
        if any(array.dtype.itemsize == 0 for array in content.values()):
            raise InputError(f"{path}: an array whose elements take no room")  # of which a few bytes claim any number
        X = mapped or _vectors(content["X"], path)
        labels = _labels(content["y"], f"{path}: y") if "y" in content else None
        backbone = str(content["backbone"]) if "backbone" in content else None
    except InputError:
        raise
    except Exception as error:  # NumPy lets through texts that Python cannot hold
        raise InputError(f"{path}: not a readable .npz of plain arrays ({error})") from None
    _check_finite(X, path)
    if labels is not None and len(labels) != len(X):
        raise InputError(f"{path}: X has {len(X)} rows, y has {len(labels)}")
    return Features(X, labels, backbone)


def _mapped(path: Path, name: str) -> Mapped | None:
    """An array of an ``.npz`` as it lies in the file; None where it is compressed or not rows of float32."""
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(name)
    with path.open("rb") as file:
        file.seek(info.header_offset + 26)  # of the lengths of name and extra field, which the member's content follows
        file.seek(sum(struct.unpack("<HH", file.read(4))), os.SEEK_CUR)
        if info.compress_type != zipfile.ZIP_STORED or np.lib.format.read_magic(file) != (1, 0):
            return None
        shape, by_column, kind = np.lib.format.read_array_header_1_0(file)
        if kind != np.dtype("<f4") or len(shape) != 2 or by_column or 0 in shape:
            return None
        return Mapped(np.memmap(file, kind, "r", file.tell(), shape))

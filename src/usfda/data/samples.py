"""The two kinds of data: ``Samples`` are images by their place, ``Features`` are vectors.

Either may be a million: places take some thirty bytes each, vectors stay on the disk until they are asked for, and what
is chosen of either is an index into it, not a copy.
"""

from __future__ import annotations

import mmap
import os
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar, overload

import numpy as np

from ..errors import InputError
from ..urls import Url

Item = TypeVar("Item")
MAX_NAME = 255  # characters of a class name: those of a folder; an array of names takes as much for each as the longest
MAPPED = 1 << 26  # bytes of a file that are read before its pages are given back
AROUND = 1 << 19  # bytes that the kernel maps around a row that is read (measured: 280 kB)
AT_ONCE = MAPPED // AROUND  # scattered rows that are read together


class Matrix(Protocol):
    """Vectors (n, d) of float32 that are read by index: an array, or rows of a memory-mapped file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any, /) -> np.ndarray: ...


class Mapped:
    """Vectors that lie in a file and are mapped into memory; what is read of them is a copy.

    The kernel would keep pages that were read in the process's memory as long as there is room, so that a walk over a
    large file would seem to take as much memory as the file has; now and then they are given back.
    """

    def __init__(self, vectors: np.memmap[Any, np.dtype[np.float32]]):
        self._vectors: np.ndarray = np.asarray(vectors)  # quicker to index than the subclass
        self._file: mmap.mmap = vectors._mmap  # type: ignore[attr-defined]
        self._read = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of vectors, and the size of one."""
        return len(self._vectors), self._vectors.shape[1]

    def __len__(self) -> int:
        return len(self._vectors)

    def __getitem__(self, index: Any, /) -> np.ndarray:
        if isinstance(index, np.ndarray) and index.dtype != bool and len(index) > AT_ONCE:
            return np.concatenate([self[index[i : i + AT_ONCE]] for i in range(0, len(index), AT_ONCE)])
        found = np.array(self._vectors[index], np.float32)
        self._read += max(found.nbytes, AROUND * (len(found) if isinstance(index, np.ndarray) else 1))
        if self._read > MAPPED and hasattr(mmap, "MADV_DONTNEED"):
            self._file.madvise(mmap.MADV_DONTNEED)
            self._read = 0
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self[:].astype(dtype or np.float32, copy=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return np.asarray, (self[:],)


class Rows:
    """Some rows of a matrix, read when they are asked for: ``X[index]`` is a float32 array.

    To another process it goes as an array of its own rows: neither the rest of the matrix goes with it, nor is a file
    opened by a name that may stand for other vectors by then.
    """

    def __init__(self, vectors: Matrix, rows: np.ndarray):
        self._vectors, self._rows = vectors, rows

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of vectors, and the size of one."""
        return len(self._rows), self._vectors.shape[1]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any, /) -> np.ndarray:
        return np.asarray(self._vectors[self._rows[index]], dtype=np.float32)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self[:].astype(dtype or np.float32, copy=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return np.asarray, (self[:],)


class Items(Sequence[Item]):
    """A sequence whose items are made when they are asked for; it equals a list of the same."""

    def item(self, i: int) -> Item:
        """The i-th item, from 0."""
        raise NotImplementedError

    @overload
    def __getitem__(self, i: int) -> Item: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[Item]: ...
    def __getitem__(self, i: int | slice) -> Item | Sequence[Item]:
        if isinstance(i, slice):
            return Chosen(self, np.arange(len(self))[i])
        return self.item(range(len(self))[i])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]


class Chosen(Items[Item]):
    """Some items of a sequence, by their index."""

    def __init__(self, items: Sequence[Item], index: np.ndarray):
        self._items, self._index = items, index

    def __len__(self) -> int:
        return len(self._index)

    def item(self, i: int) -> Item:
        """As every sequence of items."""
        return self._items[int(self._index[i])]


class Paths(Items[Path | Url]):
    """Many paths or URLs in little memory: each folder once, and the names in one array of bytes."""

    def __init__(self, paths: Iterable[str | Path | Url] = ()):
        self._folders: list[str | Url] = []
        self._numbers: dict[str | Url, int] = {}  # of the folders
        self._folder, self._names, self._ends = array("L"), bytearray(), array("Q")
        for path in paths:
            self.append(path)

    def append(self, path: str | Path | Url) -> None:
        """Put a path behind all others."""
        folder: str | Url
        if isinstance(path, Url):
            folder, name = path.parent, path.url.rpartition("/")[2]
        else:
            folder, name = os.path.split(path)
        if folder not in self._numbers:
            self._numbers[folder] = len(self._folders)
            self._folders.append(folder)
        self._folder.append(self._numbers[folder])
        self._names += os.fsencode(name)
        self._ends.append(len(self._names))

    def __len__(self) -> int:
        return len(self._ends)

    def item(self, i: int) -> Path | Url:
        """As every sequence of items."""
        name = os.fsdecode(bytes(self._names[self._ends[i - 1] if i else 0 : self._ends[i]]))
        folder = self._folders[self._folder[i]]
        return Url(f"{folder.url}/{name}") if isinstance(folder, Url) else Path(folder, name)


@dataclass(frozen=True)
class Held:
    """An image that is held in memory: a name, and the content of a file that it could be."""

    name: str
    content: bytes

    def __str__(self) -> str:
        return self.name


Place = Path | Url | Held


@dataclass(frozen=True)
class Samples:
    """Images by their place, with a label for each where the layout gives any.

    Parameters
    ----------
    paths : sequence of Path, Url or Held
        The image files, here or elsewhere, or images in memory.
    labels : array of str or None
        The class name of each image.
    empty : tuple of str
        Names of classes that have a folder but no image.
    """

    paths: Sequence[Place]
    labels: np.ndarray | None = None
    empty: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: np.ndarray) -> Samples:
        labels = None if self.labels is None else self.labels[index]
        return Samples(Chosen(self.paths, index), labels, self.empty)

    def without_labels(self) -> Samples:
        """The same images without their classes."""
        return Samples(self.paths)


@dataclass(frozen=True)
class Unread:
    """An image that could not be read, and why."""

    path: str
    error: str


@dataclass(frozen=True)
class Features:
    """Vectors, with their labels where there are any, and what they were made of.

    Parameters
    ----------
    X : Matrix
        The vectors (n, d), float32.
    labels : array of str or None
        The class name of each vector.
    backbone : str or None
        sha256 of the backbone that made the vectors, where it is known.
    paths : sequence of Path, Url or Held, or None
        The images that the vectors were made of, row by row.
    keys : sequence of bytes or None
        sha256 of each image's content.
    empty : tuple of str
        Names of classes of which no sample is left.
    skipped : sequence of Path, Url or Held
        Images that could not be read, and so have no vector.
    reasons : sequence of str
        Why not, for each of them.
    """

    X: Matrix
    labels: np.ndarray | None = None
    backbone: str | None = None
    paths: Sequence[Place] | None = None
    keys: Sequence[bytes] | None = None
    empty: tuple[str, ...] = ()
    skipped: Sequence[Place] = ()
    reasons: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.X)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        rows = self.X[:]
        return np.asarray(rows, dtype) if copy is None else np.array(rows, dtype, copy=copy)  # NumPy 1 has no copy=None

    def __getitem__(self, index: np.ndarray) -> Self:
        return replace(
            self,
            X=Rows(self.X, index),
            labels=None if self.labels is None else self.labels[index],
            paths=None if self.paths is None else Chosen(self.paths, index),
            keys=None if self.keys is None else Chosen(self.keys, index),
        )

    def without_labels(self) -> Features:
        """The same vectors; nothing tells their classes."""
        return Features(self.X, backbone=self.backbone, paths=self.paths, skipped=self.skipped, reasons=self.reasons)

    def labelled(self) -> LabelledFeatures:
        """The same, as features that certainly have labels; an error where they have none."""
        if self.labels is None:
            raise InputError("these features have no labels")
        about = (self.backbone, self.paths, self.keys, self.empty, self.skipped, self.reasons)
        return LabelledFeatures(self.X, self.labels, *about)


@dataclass(frozen=True)
class LabelledFeatures(Features):
    """Features whose every vector has a label."""

    labels: np.ndarray

    @cached_property
    def classes(self) -> list[str]:
        """The class names, sorted."""
        names: list[str] = np.unique(self.labels).tolist()
        return names

    @cached_property
    def y(self) -> np.ndarray:
        """The position of each label in ``classes``."""
        return np.searchsorted(self.classes, self.labels)

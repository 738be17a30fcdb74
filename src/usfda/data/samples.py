"""The two kinds of data: ``Samples`` are images by their place, ``Features`` are vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np


class Matrix(Protocol):
    """Vectors (n, d) of float32 that are read by index: an array, or rows of a memory-mapped file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any, /) -> np.ndarray: ...


@dataclass(frozen=True)
class Held:
    """An image that is held in memory: a name, and the content of a file that it could be."""

    name: str
    content: bytes

    def __str__(self) -> str:
        return self.name


Place = Path | Held


@dataclass(frozen=True)
class Samples:
    """Images by their place, with a label for each where the layout gives any.

    Parameters
    ----------
    paths : sequence of Path or Held
        The image files, or images in memory.
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
        return Samples([self.paths[i] for i in index], labels, self.empty)

    def without_labels(self) -> Samples:
        """The same images; nothing tells their classes."""
        return Samples(self.paths)


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
    paths : sequence of Path or Held, or None
        The images that the vectors were made of, row by row.
    keys : sequence of bytes or None
        sha256 of each image's content.
    empty : tuple of str
        Names of classes of which no sample is left.
    """

    X: Matrix
    labels: np.ndarray | None = None
    backbone: str | None = None
    paths: Sequence[Place] | None = None
    keys: Sequence[bytes] | None = None
    empty: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.X)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.X[:], dtype, copy=copy)

    def __getitem__(self, index: np.ndarray) -> Features:
        return replace(
            self,
            X=self.X[index],
            labels=None if self.labels is None else self.labels[index],
            paths=None if self.paths is None else [self.paths[i] for i in index],
            keys=None if self.keys is None else [self.keys[i] for i in index],
        )

    @cached_property
    def classes(self) -> list[str]:
        """The class names, sorted."""
        assert self.labels is not None
        names: list[str] = np.unique(self.labels).tolist()
        return names

    @cached_property
    def y(self) -> np.ndarray:
        """The position of each label in ``classes``."""
        assert self.labels is not None
        return np.searchsorted(self.classes, self.labels)

    def without_labels(self) -> Features:
        """The same vectors; nothing tells their classes."""
        return Features(self.X, backbone=self.backbone, paths=self.paths)

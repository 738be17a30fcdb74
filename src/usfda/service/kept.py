"""The images that are kept for an adaptation: as they were uploaded, each content once, with its vector.

They lie in memory, or in a folder: ``images/NUMBER-SHA256.jpg``, numbered as they arrived, and the feature cache. A
file appears when it is complete, so that a kill leaves no part of an image. Vectors go to the cache many at a
time; those that a kill takes away are made again when they are needed.
"""

from __future__ import annotations

import logging
import re
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Generic, TypeVar

import numpy as np

from ..backbones.backbone import Backbone
from ..config import Config
from ..data.images import FORMATS, format_of, read_file
from ..data.samples import Features, Matrix, Samples
from ..errors import InputError, UnreadableImage
from ..features.extract import Extractor
from ..files import atomic_write, clear_parts
from ..text.words import count

log = logging.getLogger("usfda")

STORED = 64  # vectors at a time
SPARE = 1024  # vectors of images that made way, beyond as many as there are images
NAME = re.compile(r"(\d{12})-([0-9a-f]{64})\.[a-z]+")


@dataclass(frozen=True)
class Image:
    """An image to keep: the sha256 of its content, the content, and its vector."""

    key: bytes
    content: bytes
    vector: np.ndarray


Where = TypeVar("Where", Image, Path)


@dataclass(frozen=True)
class Place(Generic[Where]):
    """What is known of a kept image: its number, its size, and where it is."""

    number: int
    size: int
    where: Where


class Kept(ABC, Generic[Where]):
    """Images by the sha256 of their content, in the order in which they arrived; the oldest make way for new ones.

    One that made way after an adaptation to it gets the number that it had when it comes again: it is no new one.

    Parameters
    ----------
    seen : int
        The highest number that an adaptation was given; images that come get higher ones, even if none is left.
    most, most_bytes : int
        Images that are kept.
    most_gone : int
        Images that made way and are known again.
    """

    def __init__(self, seen: int, most: int, most_bytes: int, most_gone: int):
        self._most, self._most_bytes, self._most_gone = most, most_bytes, most_gone
        self._places: OrderedDict[bytes, Place[Where]] = OrderedDict()
        self._gone: OrderedDict[bytes, int] = OrderedDict()  # numbers of images that made way
        self._lock = Lock()
        self._bytes = 0
        self.seen = self.newest = seen  # the newest: the highest number of all
        self.arrived = 0  # since the start; also those that come again

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: bytes) -> bool:
        return key in self._places

    def add(self, images: Sequence[Image]) -> None:
        """Keep those that are new; when this returns, they are kept."""
        new = list({image.key: image for image in images if image.key not in self._places}.values())
        with self._lock:
            numbers = [self._gone.get(image.key) or self._next() for image in new]
        for place in self._write(new, numbers):
            self._enter(place)
        with self._lock:
            self.arrived += len(new)

    def _next(self) -> int:
        self.newest += 1
        return self.newest

    def places(self, newest: int | None = None) -> list[tuple[bytes, Place[Where]]]:
        """Keys and places, the oldest first: all, or so many of the newest."""
        with self._lock:
            places = list(self._places.items())
        return places if newest is None else places[-newest:]

    @abstractmethod
    def content(self, key: bytes) -> bytes | None:
        """The image as it was uploaded; None where it is not kept."""

    @abstractmethod
    def vectors(self, keys: Sequence[bytes]) -> tuple[list[bytes], Matrix]:
        """The keys that there is a vector for, and their vectors."""

    @abstractmethod
    def target(self, places: Sequence[Place[Where]]) -> Samples | Features:
        """What an adaptation to these images is given."""

    def close(self) -> None:
        """Finish what can wait."""

    @abstractmethod
    def _write(self, images: Sequence[Image], numbers: Sequence[int]) -> Iterator[tuple[bytes, Place[Where]]]:
        """Put images where they are kept, by their numbers; each is given out when it is there."""

    @abstractmethod
    def _remove(self, place: Place[Where]) -> None:
        """Of an image that makes way."""

    def _enter(self, entry: tuple[bytes, Place[Where]]) -> None:
        key, place = entry
        with self._lock:  # also while files are removed: an image that comes again is written to the same place
            kept = self._places.setdefault(key, place)
            if kept is place:
                self._bytes += place.size
                self._gone.pop(key, None)
            elif kept.number != place.number:  # another request was first with the same content
                self._remove(place)
            while len(self._places) > self._most or self._bytes > self._most_bytes:
                key, place = self._places.popitem(last=False)
                self._remove(place)
                self._bytes -= place.size
                if place.number <= self.seen:
                    self._gone[key] = place.number
            while len(self._gone) > self._most_gone:
                self._gone.popitem(last=False)


class InMemory(Kept[Image]):
    """Images that end with the process."""

    def content(self, key: bytes) -> bytes | None:
        """Held as it came."""
        place = self._places.get(key)
        return None if place is None else place.where.content

    def vectors(self, keys: Sequence[bytes]) -> tuple[list[bytes], Matrix]:
        """Held beside the images."""
        found = [place.where for place in map(self._places.get, keys) if place is not None]
        X = np.stack([image.vector for image in found]) if found else np.empty((0, 0), np.float32)
        return [image.key for image in found], X

    def target(self, places: Sequence[Place[Image]]) -> Features:
        """Vectors, by the sha256 of their images."""
        found = [place.where for place in places]
        return Features(np.stack([image.vector for image in found]), paths=[Path(image.key.hex()) for image in found])

    def _write(self, images: Sequence[Image], numbers: Sequence[int]) -> Iterator[tuple[bytes, Place[Image]]]:
        for number, image in zip(numbers, images, strict=True):
            held = replace(image, vector=image.vector.copy())  # not as a row of its whole batch
            yield image.key, Place(number, len(image.content) + held.vector.nbytes, held)

    def _remove(self, place: Place[Image]) -> None:
        pass


class OnDisk(Kept[Path]):
    """Images in a folder, which outlast the process.

    Parameters
    ----------
    folder : Path
        Of the service's data.
    backbone : Backbone
        Whose vectors the feature cache holds.
    seen, most, most_bytes, most_gone : int
        As of ``Kept``.
    """

    def __init__(self, folder: Path, backbone: Backbone, seen: int, most: int, most_bytes: int, most_gone: int):
        super().__init__(seen, most, most_bytes, most_gone)
        self._folder = folder / "images"
        cache = Extractor.make(backbone, Config(cache=folder)).cache
        if cache is None:
            raise InputError(f"{folder}: cannot be written; give another folder with --data")
        self._cache = cache
        self._storing, self._stored = Lock(), len(cache.keys())
        self._uncached: dict[bytes, np.ndarray] = {}
        self._folder.mkdir(exist_ok=True)
        clear_parts(self._folder, NAME.pattern)
        for file in sorted(self._folder.iterdir()):
            if name := NAME.fullmatch(file.name):
                number = int(name[1])
                self.newest = max(self.newest, number)
                self._enter((bytes.fromhex(name[2]), Place(number, file.stat().st_size, file)))

    def content(self, key: bytes) -> bytes | None:
        """Read from its file."""
        place = self._places.get(key)
        try:
            return None if place is None else read_file(place.where)
        except UnreadableImage:  # it made way just now
            return None

    def vectors(self, keys: Sequence[bytes]) -> tuple[list[bytes], Matrix]:
        """Those that the cache has: of another backbone than the present one it may have none."""
        self.close()
        try:
            rows, vectors = self._cache.find(keys)
        except InputError as error:  # no reason not to answer: they are made again
            log.warning("kept vectors cannot be read: %s", error)
            return [], np.empty((0, 0), np.float32)
        found = np.flatnonzero(rows >= 0)
        return [keys[i] for i in found.tolist()], np.asarray(vectors[rows[found]])

    def target(self, places: Sequence[Place[Path]]) -> Samples:
        """Files, whose vectors the cache has."""
        self.close()
        return Samples([place.where for place in places])

    def _write(self, images: Sequence[Image], numbers: Sequence[int]) -> Iterator[tuple[bytes, Place[Path]]]:
        for number, image in zip(numbers, images, strict=True):
            suffix = FORMATS[format_of(image.content) or "JPEG"][0]
            file = self._folder / f"{number:012d}-{image.key.hex()}{suffix}"
            with atomic_write(file) as out:
                out.write(image.content)
            yield image.key, Place(number, len(image.content), file)
        with self._storing:
            self._uncached |= {image.key: image.vector.copy() for image in images}
        if len(self._uncached) >= STORED:
            self.close()

    def close(self) -> None:
        """Write the vectors that are not cached yet; where the disk is full, they are made again when it is not."""
        with self._storing:
            if self._uncached:
                vectors, self._uncached = self._uncached, {}
                try:
                    self._cache.append(list(vectors), np.stack(list(vectors.values())))
                    self._stored += len(vectors)
                    if self._stored > 2 * len(self) + SPARE:
                        self._forget()
                except InputError as error:
                    log.warning("vectors of %s are not kept: %s", count(len(vectors), "image"), error)

    def _forget(self) -> None:
        """Begin the store anew with the vectors of the images that are kept."""
        keys = [key for key, _ in self.places()]
        rows, vectors = self._cache.find(keys)
        found = np.flatnonzero(rows >= 0)
        self._cache.clear()  # the old vectors remain mapped until they are written again
        for start in range(0, len(found), SPARE):
            some = found[start : start + SPARE]
            self._cache.append([keys[i] for i in some.tolist()], np.asarray(vectors[rows[some]]))
        self._stored = len(found)

    def _remove(self, place: Place[Path]) -> None:
        place.where.unlink(missing_ok=True)


def key_of(name: str) -> str:
    """The sha256, in hexadecimal digits, of a kept image, by the name that a target gives it."""
    found = NAME.fullmatch(Path(name).name)
    return found[2] if found else name

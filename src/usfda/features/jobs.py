"""What is done to images, wherever it is done: a job can be pickled, so that it runs on this machine or on others."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..backbones.backbone import Backbone
from ..data.images import read_file
from ..data.samples import Place
from ..errors import UnreadableImage
from ..memory import THREAD, check_room
from ..urls import Url

# Of content keys, which ones have a vector already.
Known = Callable[[list[bytes]], Sequence[bool] | np.ndarray]


class Job(Protocol):
    """Reads images and prepares them for its backbone. What it needs for one lies in the item."""

    @property
    def backbone(self) -> Backbone:
        """M."""

    def load(self, item: Any) -> tuple[bytes, Callable[[], np.ndarray]]:
        """The content key of an image, and what gives its pixels, prepared; both may raise ``UnreadableImage``."""


@dataclass(frozen=True)
class ImageJob:
    """Image files, by their place: each is read once, and decoded from the bytes that were hashed."""

    backbone: Backbone

    def load(self, item: Place) -> tuple[bytes, Callable[[], np.ndarray]]:
        """As every job."""
        content = read_file(item)
        return hashlib.sha256(content).digest(), lambda: self.backbone.prepare(content)


@dataclass(frozen=True)
class Done:
    """What became of a batch: keys of the images that could be read, errors of the others, vectors of new contents."""

    keys: dict[int, bytes]
    errors: dict[int, str]
    new: list[bytes]
    X: np.ndarray

    @property
    def count(self) -> int:
        """How many images it was."""
        return len(self.keys) + len(self.errors)


def run(job: Job, batch: Sequence[tuple[int, Any]], known: Known) -> Done:
    """The work on a batch of items, each with its number: what is known is neither decoded nor run through M."""
    keys: dict[int, bytes] = {}
    errors: dict[int, str] = {}
    loaded: list[tuple[int, bytes, Callable[[], np.ndarray]]] = []
    check_room(THREAD)
    for (i, _), found in zip(batch, _load(job, [item for _, item in batch]), strict=True):
        if isinstance(found, UnreadableImage):
            errors[i] = str(found)
        else:
            loaded.append((i, *found))
    images: dict[bytes, np.ndarray] = {}
    for (i, key, prepare), there in zip(loaded, known([key for _, key, _ in loaded]), strict=True):
        try:
            if not there and key not in images:
                check_room(THREAD)  # no image is begun without some to give up with
                images[key] = prepare()
            keys[i] = key
        except UnreadableImage as error:
            errors[i] = str(error)
    if not images:
        return Done(keys, errors, [], np.empty((0, job.backbone.dim), np.float32))
    return Done(keys, errors, list(images), job.backbone.run(np.stack(list(images.values()))))


def _load(job: Job, items: list[Any]) -> list[Any]:
    """What the job loads, or why it cannot; files from elsewhere at once, because each is waited for."""

    def load(item: Any) -> Any:
        try:
            return job.load(item)
        except UnreadableImage as error:
            return error

    if not any(isinstance(item, Url) for item in items):
        return [load(item) for item in items]
    with ThreadPoolExecutor(len(items)) as readers:
        return list(readers.map(load, items))

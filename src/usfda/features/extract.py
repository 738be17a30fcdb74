"""Images become vectors: each file is read once, decoded from the bytes that were hashed, and run through M once."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..backbones.backbone import Backbone
from ..config import Config, Progress
from ..data.samples import Chosen, Features, Items, Matrix, Place, Rows, Samples
from ..errors import InputError
from .cache import KEY, FeatureCache
from .engines import Engine, Threads
from .jobs import Done, ImageJob, Job

log = logging.getLogger("usfda")

ATTEMPTS = 4  # further passes over what is missing, should another process clear the cache in the meantime


@dataclass(frozen=True)
class Extracted:
    """Vectors of those images, by index, that could be read; and for the others, why not."""

    X: Matrix
    index: np.ndarray
    keys: Sequence[bytes]
    errors: dict[int, str]


@dataclass(frozen=True)
class Extractor:
    """Turns images into vectors.

    Parameters
    ----------
    backbone : Backbone
        M.
    cache : FeatureCache or None
        Keeps the vectors, so that none is computed twice. Without one they are held in memory.
    engine : Engine
        Where decoding and M run.
    progress : Progress
        Shows how far the work is.
    """

    backbone: Backbone
    cache: FeatureCache | None
    engine: Engine
    progress: Progress

    @classmethod
    def make(cls, backbone: Backbone, config: Config) -> Extractor:
        """By ``config``; without a cache, and with a warning, where its folder cannot be written."""
        if backbone.device != config.device:
            backbone = replace(backbone, device=config.device)
        engine: Engine = Threads(config.threads)
        if config.engine == "ray":
            from .cluster import Ray

            # The name of the cache has the device that M runs on: with "auto" another machine might choose another one.
            on_gpu = backbone.providers[0] == "CUDAExecutionProvider"
            backbone = replace(backbone, device="cuda" if on_gpu else "cpu")
            engine = Ray(config.threads, config.address)
        cache = None
        if config.cache is not None:
            try:
                cache = FeatureCache(config.cache / "features" / backbone.key[:32], backbone.dim)
            except InputError as error:
                log.warning("%s; features are not kept, and a second run computes them again", error)
        return cls(backbone, cache, engine, config.progress)

    def features(self, samples: Samples, text: str = "") -> Features:
        """Vectors of the images that can be read; a warning names the others.

        ``text`` stands beside the progress bar; without a text there is none.
        """
        return self._features(samples, self.extract(ImageJob(self.backbone), samples.paths, text))

    def batches(self, samples: Samples, size: int) -> Iterator[Features]:
        """The same as they come, for about ``size`` consecutive images at a time, without labels."""
        unlabelled = samples.without_labels()
        for found in self._stream(ImageJob(self.backbone), samples.paths, size):
            yield self._features(unlabelled, found)

    def _features(self, samples: Samples, found: Extracted) -> Features:
        if found.errors:
            _warn_skipped(samples.paths, found)
        labels, lost = None, ()
        if samples.labels is not None:
            labels = samples.labels[found.index]
            lost = tuple(np.setdiff1d(samples.labels, labels).tolist())
        paths, skipped = (Chosen(samples.paths, index) for index in (found.index, np.asarray(sorted(found.errors))))
        empty, reasons = (*samples.empty, *lost), [found.errors[i] for i in sorted(found.errors)]
        return Features(found.X, labels, self.backbone.sha256, paths, found.keys, empty, skipped, reasons)

    def extract(self, job: Job, items: Sequence[Any], text: str = "") -> Extracted:
        """Vectors of all items, which ``job`` reads; what the cache has is not computed again."""
        with self.progress(len(items) if text else 0, text, "images") as advance:
            (found,) = self._stream(job, items, len(items), advance)
        return found

    def _stream(
        self, job: Job, items: Sequence[Any], size: int, advance: Callable[[int], None] = lambda n: None
    ) -> Iterator[Extracted]:
        """Vectors of consecutive items, in batches of at least ``size``; the last one may have fewer."""
        batch, seen, made = _Batch(), 0, 0
        for done in self.engine.run(job, items, range(len(items)), self.cache):
            self._take(batch, done)
            advance(done.count)
            seen, made = seen + done.count, made + len(done.new)
            if batch.count >= size and seen < len(items):
                yield self._finished(batch, job, items)
                batch = _Batch()
        log.debug("%d of %d features were computed, the others were there already", made, seen)
        yield self._finished(batch, job, items)

    def _take(self, batch: _Batch, done: Done) -> None:
        for i, key in done.keys.items():
            batch.index.append(i)
            batch.keys.append(key)
        batch.errors.update(done.errors)
        if self.cache and done.new:
            self.cache.append(done.new, done.X)
        elif done.new:
            batch.held.update(zip(done.new, done.X, strict=True))

    def _finished(self, batch: _Batch, job: Job, items: Sequence[Any]) -> Extracted:
        for attempt in range(ATTEMPTS + 1):
            index = np.frombuffer(batch.index, np.int64) if batch.index else np.empty(0, np.int64)
            if self.cache is None:
                empty = np.empty((0, self.backbone.dim), np.float32)
                X = np.stack([batch.held[key] for key in batch.keys]) if batch.index else empty
                return Extracted(X, index, batch.keys, batch.errors)
            rows, vectors = self.cache.find(batch.keys)
            if (rows >= 0).all():
                return Extracted(Rows(vectors, rows), index, batch.keys, batch.errors)
            if attempt < ATTEMPTS:  # here, because an engine elsewhere may have its hands full with the next batch
                again = _Batch(errors=batch.errors)
                for done in Threads(self.engine.threads).run(job, items, index.tolist(), self.cache):
                    self._take(again, done)
                batch = again
        log.warning("other processes keep clearing the feature cache; features are held in memory")
        alone, again = replace(self, cache=None), _Batch(errors=batch.errors)
        for done in Threads(self.engine.threads).run(job, items, list(batch.index), None):
            alone._take(again, done)
        return alone._finished(again, job, items)


class Keys(Items[bytes]):
    """Many keys in one array of bytes."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def append(self, key: bytes) -> None:
        """Put a key behind all others."""
        self._bytes += key

    def __len__(self) -> int:
        return len(self._bytes) // KEY

    def item(self, i: int) -> bytes:
        """As every sequence of items."""
        return bytes(self._bytes[KEY * i : KEY * (i + 1)])


@dataclass
class _Batch:
    """What is known so far of some images; results come in the order of the images."""

    index: array[int] = field(default_factory=lambda: array("q"))
    keys: Keys = field(default_factory=Keys)
    errors: dict[int, str] = field(default_factory=dict)
    held: dict[bytes, np.ndarray] = field(default_factory=dict)  # instead of a cache

    @property
    def count(self) -> int:
        return len(self.index) + len(self.errors)


def _warn_skipped(paths: Sequence[Place], found: Extracted) -> None:
    errors, total = found.errors, len(found.errors) + len(found.index)
    skipped = sorted(errors)
    shown = skipped if log.isEnabledFor(logging.DEBUG) else skipped[:20]
    named = "; ".join(f"{paths[i]} ({errors[i]})" for i in shown)
    more = f"; and {len(skipped) - len(shown)} more (--verbose names all)" if len(shown) < len(skipped) else ""
    log.warning("skipped %d of %d images: %s%s", len(skipped), total, named, more)

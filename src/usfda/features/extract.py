"""Images become vectors: each file is read once, decoded from the bytes that were hashed, and run through M once."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..backbones.backbone import Backbone
from ..config import Config, Progress
from ..data.images import read_file
from ..data.samples import Features, Matrix, Place, Samples
from ..errors import InputError, UnreadableImage
from .engines import Engine, Threads
from .store import Rows, Store

log = logging.getLogger("usfda")

ATTEMPTS = 4  # passes over what is missing, should another process clear the store in the meantime

# The content key of an image, and a function that gives its pixels, prepared for the backbone. Both may raise
# UnreadableImage.
Load = Callable[[int], tuple[bytes, Callable[[], np.ndarray]]]


@dataclass(frozen=True)
class Extracted:
    """Vectors of those images, by index, that could be read; and for the others, why not."""

    X: Matrix
    index: np.ndarray
    keys: list[bytes]
    errors: dict[int, str]


@dataclass(frozen=True)
class Extractor:
    """Turns images into vectors.

    Parameters
    ----------
    backbone : Backbone
        M.
    store : Store or None
        Keeps the vectors, so that none is computed twice. Without one they are held in memory.
    engine : Engine
        Where decoding and M run.
    progress : Progress
        Shows how far the work is.
    """

    backbone: Backbone
    store: Store | None
    engine: Engine
    progress: Progress

    @classmethod
    def make(cls, backbone: Backbone, config: Config) -> Extractor:
        """As ``config`` says; where the place of the store cannot be written, a warning says so and there is none."""
        if backbone.device != config.device:
            backbone = replace(backbone, device=config.device)
        store = None
        if config.cache is not None:
            try:
                store = Store(config.cache / "features" / backbone.key[:32], backbone.dim)
            except InputError as error:
                log.warning("%s; features are not kept, and a second run computes them again", error)
        return cls(backbone, store, Threads(config.threads), config.progress)

    def features(self, samples: Samples, text: str = "") -> Features:
        """Vectors of the images that can be read; a warning names the others.

        ``text`` stands beside the progress bar; without a text there is none.
        """

        def load(i: int) -> tuple[bytes, Callable[[], np.ndarray]]:
            content = read_file(samples.paths[i])
            return hashlib.sha256(content).digest(), lambda: self.backbone.prepare(content)

        found = self.extract(len(samples), load, text)
        if found.errors:
            _warn_skipped(samples.paths, found.errors)
        labels, lost = None, ()
        if samples.labels is not None:
            labels = samples.labels[found.index]
            lost = tuple(np.setdiff1d(samples.labels, labels).tolist())
        paths = [samples.paths[i] for i in found.index]
        return Features(found.X, labels, self.backbone.sha256, paths, found.keys, (*samples.empty, *lost))

    def extract(self, count: int, load: Load, text: str = "") -> Extracted:
        """Vectors of the images 0 … count−1, which ``load`` reads; what the store has is not computed again."""
        keys: dict[int, bytes] = {}
        errors: dict[int, str] = {}
        held: dict[bytes, np.ndarray] = {}  # in place of a store

        def work(batch: list[int]) -> tuple[list[bytes], np.ndarray]:
            """Keys and vectors of those images of a batch that are new."""
            loaded: list[tuple[int, bytes, Callable[[], np.ndarray]]] = []
            for i in batch:
                try:
                    key, prepare = load(i)
                    loaded.append((i, key, prepare))
                except UnreadableImage as error:
                    errors[i] = str(error)
            stored = self.store.find([key for _, key, _ in loaded])[0] >= 0 if self.store else [False] * len(loaded)
            images: dict[bytes, np.ndarray] = {}
            for (i, key, prepare), there in zip(loaded, stored, strict=True):
                try:
                    if not there and key not in images:
                        images[key] = prepare()
                    keys[i] = key
                except UnreadableImage as error:
                    errors[i] = str(error)
            if not images:
                return [], np.empty((0, self.backbone.dim), np.float32)
            return list(images), self.backbone.run(np.stack(list(images.values())))

        left, size = list(range(count)), self.backbone.batch_size
        for _ in range(ATTEMPTS):
            batches = [left[i : i + size] for i in range(0, len(left), size)]
            with self.progress(len(left) if text else 0, text, "images") as advance:
                for batch, (new, X) in zip(batches, self.engine.map(work, batches), strict=True):
                    if self.store and new:
                        self.store.append(new, X)
                    elif new:
                        held.update(zip(new, X, strict=True))
                    advance(len(batch))
            index = np.asarray(sorted(keys), dtype=np.int64)
            found = [keys[i] for i in index.tolist()]
            if self.store is None:
                empty = np.empty((0, self.backbone.dim), np.float32)
                return Extracted(np.stack([held[key] for key in found]) if found else empty, index, found, errors)
            rows, vectors = self.store.find(found)
            left = index[rows < 0].tolist()
            if not left:
                return Extracted(Rows(vectors, rows), index, found, errors)
        raise RuntimeError("features vanish from the store as fast as they are made")


def _warn_skipped(paths: Sequence[Place], errors: dict[int, str]) -> None:
    skipped = sorted(errors)
    shown = skipped if log.isEnabledFor(logging.DEBUG) else skipped[:20]
    named = "; ".join(f"{paths[i]} ({errors[i]})" for i in shown)
    more = f"; and {len(skipped) - len(shown)} more (--verbose names all)" if len(shown) < len(skipped) else ""
    log.warning("skipped %d of %d images: %s%s", len(skipped), len(paths), named, more)

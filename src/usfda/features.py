"""Decode → M → feature store: an image is turned into a vector once, and the vector is kept.

The store has one folder a backbone with two files, ``keys`` (sha256 of what the vector stands for, checksum of the
vector) and ``vectors`` (float32, row by row, memory-mapped). Rows are only ever appended, under a file lock, the vector
before its key: after a kill a row is whole or absent, and two processes can fill one store. A row whose checksum fails
counts as absent.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from .backbones import Backbone
from .data import Samples
from .runtime import progress, runtime

log = logging.getLogger("usfda")

BATCH = 16  # images a worker takes at once; larger ones are no faster and hold more memory
KEY = np.dtype([("key", "V32"), ("crc", "<u4")])


class Store:
    """Vectors by key. ``find`` gives rows (−1: absent or damaged) of ``vectors``."""

    def __init__(self, folder: Path, dim: int):
        self.folder, self.dim = folder, dim
        folder.mkdir(parents=True, exist_ok=True)
        self._keys, self._vectors = folder / "keys", folder / "vectors"
        self._file_lock = FileLock(folder / "lock")
        self._lock = threading.Lock()

    def append(self, keys: Sequence[bytes], X: np.ndarray) -> None:
        X = np.ascontiguousarray(X, dtype="<f4")
        entries = np.empty(len(keys), KEY)
        entries["key"] = np.frombuffer(b"".join(keys), "V32")
        entries["crc"] = [zlib.crc32(row.data) for row in X]
        with self._lock, self._file_lock, self._keys.open("ab") as k, self._vectors.open("ab") as v:
            rows = k.tell() // KEY.itemsize
            k.truncate(rows * KEY.itemsize)  # what a killed process left of a row
            if v.tell() < rows * X.shape[1] * 4:  # keys without vectors: damage, the checksum will tell
                v.write(bytes(rows * X.shape[1] * 4 - v.tell()))
            v.truncate(rows * X.shape[1] * 4)
            v.write(X.data)
            v.flush()
            k.write(entries.data)

    def find(self, keys: Sequence[bytes]) -> np.ndarray:
        """The newest sound row of every key."""
        if not keys:
            return np.empty(0, np.int64)
        entries, vectors = self._open()
        if len(entries) == 0:
            return np.full(len(keys), -1)
        wanted = np.frombuffer(b"".join(keys), "V32")
        # The first eight bytes of a sha256 sort like random numbers; the whole key is compared below.
        short = np.ascontiguousarray(entries["key"]).view("<u8")[::4]
        order = np.argsort(short, kind="stable")
        place = np.searchsorted(short[order], wanted.view("<u8")[::4], side="right") - 1
        rows = np.where(place >= 0, order[place], -1)
        rows[entries["key"][rows] != wanted] = -1
        for i in np.flatnonzero(rows >= 0):
            if zlib.crc32(vectors[rows[i]].data) != entries["crc"][rows[i]]:
                rows[i] = -1
        return rows

    def vectors(self) -> np.ndarray:
        return self._open()[1]

    def _open(self) -> tuple[np.ndarray, np.ndarray]:
        entries = np.fromfile(self._keys, KEY) if self._keys.exists() else np.empty(0, KEY)
        size = self._vectors.stat().st_size if self._vectors.exists() else 0
        rows = min(len(entries), size // (4 * self.dim))
        if rows == 0:
            return np.empty(0, KEY), np.empty((0, self.dim), np.float32)
        return entries[:rows], np.memmap(self._vectors, "<f4", "r", shape=(rows, self.dim))


class Rows:
    """Vectors in the store, read when they are asked for: ``X[index]`` is a float32 array."""

    def __init__(self, vectors: np.ndarray, rows: np.ndarray):
        self._vectors, self._rows = vectors, rows
        self.shape = (len(rows), vectors.shape[1])

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> np.ndarray:
        return np.asarray(self._vectors[self._rows[index]])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self[:].astype(dtype or np.float32, copy=False)


def store_for(backbone: Backbone) -> Store:
    return Store(runtime.cache / "features" / backbone.key[:32], backbone.dim)


def store_info() -> dict[str, Any]:
    """Place and size of the store, by backbone."""
    folder = runtime.cache / "features"
    stores = {}
    for keys in sorted(folder.glob("*/keys")):
        size = sum(file.stat().st_size for file in keys.parent.iterdir())
        stores[keys.parent.name] = {"vectors": keys.stat().st_size // KEY.itemsize, "bytes": size}
    return {"folder": str(folder), "bytes": sum(s["bytes"] for s in stores.values()), "stores": stores}


def store_clear() -> None:
    """Empties the store. The locks stay: a process may be waiting at one."""
    for keys in (runtime.cache / "features").glob("*/keys"):
        with FileLock(keys.parent / "lock"):
            keys.unlink(missing_ok=True)
            (keys.parent / "vectors").unlink(missing_ok=True)


def fill(
    store: Store,
    keys: Sequence[bytes],
    backbone: Backbone,
    images: Callable[[list[int]], Iterable[tuple[int, np.ndarray]]],
    text: str,
) -> None:
    """Computes what the store lacks of ``keys``; ``images`` yields the prepared image of each index it is given.

    Every worker decodes and runs a batch of its own, so that decoding and M share all cores and none waits.
    """
    first: dict[bytes, int] = {}
    for i in np.flatnonzero(store.find(keys) < 0).tolist():
        first.setdefault(keys[i], i)
    todo = list(first.values())
    batches = [todo[i : i + BATCH] for i in range(0, len(todo), BATCH)]

    def work(batch: list[int]) -> int:
        made = list(images(batch))
        if made:
            v = backbone.run(np.stack([image for _, image in made]))
            store.append([keys[i] for i, _ in made], v)
        return len(batch)

    with progress(len(todo) if text else 0, text, "images") as advance, closing(_pool()) as pool:
        for n in pool.map(work, batches):
            advance(n)


class _pool(ThreadPoolExecutor):
    """Threads that, after an error or Ctrl-C, drop what has not begun."""

    def __init__(self) -> None:
        super().__init__(runtime.threads)

    def close(self) -> None:
        self.shutdown(cancel_futures=True)


def extract(samples: Samples, backbone: Backbone, text: str = "") -> tuple[Samples, np.ndarray, list[bytes]]:
    """Vectors of the samples, and the indices and content keys of those that could be read; a warning names
    the others.

    ``text`` stands beside the progress bar; without a text there is none.
    """
    assert samples.paths is not None
    paths = samples.paths
    bad: dict[int, str] = {}

    def key(i: int) -> bytes | None:
        try:
            return hashlib.sha256(paths[i].read_bytes()).digest()
        except OSError as error:
            bad[i] = str(error)
            return None

    with closing(_pool()) as pool:
        hashed = list(pool.map(key, range(len(paths)), chunksize=64))
    index = np.asarray([i for i, k in enumerate(hashed) if k is not None], dtype=np.int64)
    keys = [k for k in hashed if k is not None]
    store = store_for(backbone)

    def images(batch: list[int]) -> Iterator[tuple[int, np.ndarray]]:
        for j in batch:
            path = paths[index[j]]
            try:
                yield j, backbone.prepare(path)
            except Exception as error:  # Pillow's decoders raise many kinds for damaged files
                bad[int(index[j])] = "empty file" if path.stat().st_size == 0 else str(error).split("\n")[0]

    fill(store, keys, backbone, images, text)
    X, sound = collect(store, keys)
    kept = index[sound]
    if len(kept) < len(paths):
        _warn_skipped(paths, np.setdiff1d(np.arange(len(paths)), kept), bad)
    labels = None if samples.labels is None else samples.labels[kept]
    return Samples(X=X, labels=labels, backbone=backbone.sha256), kept, [keys[j] for j in sound]


def collect(store: Store, keys: Sequence[bytes]) -> tuple[Rows, np.ndarray]:
    """The vectors that the store has of ``keys``, and which those are."""
    rows = store.find(keys)
    return Rows(store.vectors(), rows[rows >= 0]), np.flatnonzero(rows >= 0)


def _warn_skipped(paths: list[Path], skipped: np.ndarray, bad: dict[int, str]) -> None:
    shown = skipped if log.isEnabledFor(logging.DEBUG) else skipped[:20]
    named = "; ".join(f"{paths[i]} ({bad.get(int(i), 'same content as an unreadable file')})" for i in shown)
    more = f"; and {len(skipped) - len(shown)} more (--verbose names all)" if len(shown) < len(skipped) else ""
    log.warning("skipped %d of %d images: %s%s", len(skipped), len(paths), named, more)

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
from .runtime import InputError, progress, runtime

log = logging.getLogger("usfda")

BATCH = 16  # images a worker takes at once; larger ones are no faster and hold more memory
KEY = np.dtype([("key", "V32"), ("crc", "<u4")])


class Store:
    """Vectors by key. ``find`` gives the rows of keys; a damaged one counts as absent."""

    def __init__(self, folder: Path, dim: int):
        self.folder, self.dim = folder, dim
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{folder}: cannot hold the feature store ({error.strerror}); set --cache") from None
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

    def find(self, keys: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """The newest sound row of every key (−1 where there is none), and the vectors that the rows count in."""
        entries, vectors = self._open()
        rows = np.full(len(keys), -1)
        wanted = np.frombuffer(b"".join(keys), "V32")
        # The first eight bytes of a sha256 sort like random numbers; the whole key is compared below.
        short, wanted_short = (np.ascontiguousarray(k).view("<u8")[::4] for k in (entries["key"], wanted))
        order = np.argsort(short, kind="stable")
        place = np.searchsorted(short[order], wanted_short, side="right") - 1
        left = np.arange(len(keys))
        while len(left := left[place[left] >= 0]):
            row = order[place[left]]
            same = short[row] == wanted_short[left]
            left, row = left[same], row[same]
            sound = entries["key"][row] == wanted[left]
            for i in np.flatnonzero(sound):
                sound[i] = zlib.crc32(vectors[row[i]].data) == entries["crc"][row[i]]
            rows[left[sound]] = row[sound]
            left = left[~sound]
            place[left] -= 1
        return rows, vectors

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


def vendor_models() -> Path:
    """The store's folder of models that the runs of experiments share."""
    return runtime.cache / "vendors"


def store_info() -> dict[str, Any]:
    """Place and size of the store: vectors by backbone, and models."""
    folder = runtime.cache / "features"
    stores = {}
    for lock in sorted(folder.glob("*/lock")):
        size = {f.name: f.stat().st_size for f in lock.parent.iterdir()}
        if sum(size.values()):
            stores[lock.parent.name] = {
                "vectors": size.get("keys", 0) // KEY.itemsize,
                "bytes": sum(size.values()),
            }
    sizes = [file.stat().st_size for file in vendor_models().glob("*.usfda")]
    total = sum(s["bytes"] for s in stores.values()) + sum(sizes)
    models = {"count": len(sizes), "bytes": sum(sizes)}
    return {"folder": str(runtime.cache), "bytes": total, "stores": stores, "models": models}


def store_clear() -> None:
    """Empties the store. The locks stay: a process may be waiting at one."""
    for lock in (runtime.cache / "features").glob("*/lock"):
        with FileLock(lock):
            for name in ("keys", "vectors"):
                (lock.parent / name).unlink(missing_ok=True)
    for lock in vendor_models().glob("*.lock"):
        with FileLock(lock):
            lock.with_suffix("").unlink(missing_ok=True)


def fill(
    store: Store,
    keys: Sequence[bytes],
    backbone: Backbone,
    images: Callable[[list[int]], Iterable[tuple[int, np.ndarray]]],
    text: str,
) -> tuple[Rows, np.ndarray]:
    """The vectors of ``keys``, and which those are: all but the ones that ``images`` could not make.

    ``images`` yields the prepared image of each index it is given. Every worker decodes and runs a batch of its own, so
    that decoding and M share all cores and none waits.
    """
    failed: set[bytes] = set()

    def work(batch: list[int]) -> int:
        made = list(images(batch))
        if made:
            store.append([keys[i] for i, _ in made], backbone.run(np.stack([image for _, image in made])))
        failed.update({keys[i] for i in batch} - {keys[i] for i, _ in made})
        return len(batch)

    for last in (False, False, False, True):  # again, should another process have cleared the store in the meantime
        rows, vectors = store.find(keys)
        first: dict[bytes, int] = {}
        for i in np.flatnonzero(rows < 0).tolist():
            first.setdefault(keys[i], i)
        todo = [i for key, i in first.items() if key not in failed]
        if not todo:
            return Rows(vectors, rows[rows >= 0]), np.flatnonzero(rows >= 0)
        if last:
            break
        batches = [todo[i : i + BATCH] for i in range(0, len(todo), BATCH)]
        with progress(len(todo) if text else 0, text, "images") as advance, closing(_pool()) as pool:
            for n in _map(pool, work, batches):
                advance(n)
    raise RuntimeError(f"{store.folder}: features vanish from the store as fast as they are made")


def _map(pool: ThreadPoolExecutor, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
    """In windows, because a pool makes an object for every item at once."""
    for start in range(0, len(items), 4096):
        yield from pool.map(function, items[start : start + 4096])


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
            content = paths[i].read_bytes() if paths[i].is_file() else b""  # a pipe would never end
            if content:
                return hashlib.sha256(content).digest()
            bad[i] = "empty file" if paths[i].is_file() else "no such file"
        except OSError as error:
            bad[i] = str(error.strerror)
        return None

    with closing(_pool()) as pool:
        hashed = list(_map(pool, key, range(len(paths))))
    index = np.asarray([i for i, k in enumerate(hashed) if k is not None], dtype=np.int64)
    keys = [k for k in hashed if k is not None]
    store = store_for(backbone)

    def images(batch: list[int]) -> Iterator[tuple[int, np.ndarray]]:
        for j in batch:
            try:
                yield j, backbone.prepare(paths[index[j]])
            except Exception as error:  # Pillow's decoders raise many kinds for damaged files
                bad[int(index[j])] = str(error).split("\n")[0]

    X, sound = fill(store, keys, backbone, images, text)
    kept = index[sound]
    if len(kept) < len(paths):
        _warn_skipped(paths, np.setdiff1d(np.arange(len(paths)), kept), bad)
    labels = None if samples.labels is None else samples.labels[kept]
    lost = () if samples.labels is None else tuple(np.setdiff1d(samples.labels, samples.labels[kept]).tolist())
    return Samples(X=X, labels=labels, backbone=backbone.sha256, empty=lost), kept, [keys[j] for j in sound]


def _warn_skipped(paths: list[Path], skipped: np.ndarray, bad: dict[int, str]) -> None:
    shown = skipped if log.isEnabledFor(logging.DEBUG) else skipped[:20]
    named = "; ".join(f"{paths[i]} ({bad.get(int(i), 'same content as an unreadable file')})" for i in shown)
    more = f"; and {len(skipped) - len(shown)} more (--verbose names all)" if len(shown) < len(skipped) else ""
    log.warning("skipped %d of %d images: %s%s", len(skipped), len(paths), named, more)

"""The feature cache: vectors by the content they stand for, on disk.

A cache is a folder with ``index-N.sqlite``, a table that gives the row and the checksum of every key, and
``vectors-N.bin``, the rows, which readers map into memory. The highest N counts:

* A row is written behind all others and never again; its key is entered afterwards, in the same transaction, which is
  also the lock between threads and processes. What a killed process leaves of a row has no key.
* Clearing a cache starts number N+1 and then unlinks what is lower. Whoever has mapped the old vectors keeps them, and
  no number, so no row, ever stands for other vectors. An index that is damaged is left behind in the same way, and
  two processes that both find it damaged both go on with the same N+1.
* The checksum is over key and vector: whatever happens to either file, a vector is the right one or absent.

SQLite's journal is the usual one (not WAL, which needs shared memory and so fails on network drives), and SQLite does
not wait for the disk (``synchronous = OFF``): a kill cannot hurt what the system already has, and a power cut may cost
vectors, which are made again, but cannot pass the checksum. A connection lasts for one call: none is shared by threads
or inherited by a process.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import sqlite3
import zlib
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from filelock import FileLock

from ..data.samples import Mapped, Matrix
from ..errors import InputError

log = logging.getLogger("usfda")

T = TypeVar("T")
FILES = re.compile(r"(?:index|vectors)-(\d{1,9})\.(?:sqlite(?:-\w+)?|bin)")
TABLE = "CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, row INTEGER, crc INTEGER) WITHOUT ROWID"
ENTER = "INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)"
LOOK_UP = "SELECT row, crc FROM vectors WHERE key = ?"
# Errors that are the place's and not the index's, which damage lets fail in every other way.
PLACE = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}
KEY = 32  # bytes of a key, a sha256
PATIENCE = 60  # seconds to wait while others write
ATTEMPTS = 10  # at an index, should others clear the cache again and again


class FeatureCache:
    """Vectors by key.

    Threads may share it, and processes its folder; to another process it goes as its folder.

    Parameters
    ----------
    folder : Path
        The cache's own folder, which is made if there is none.
    dim : int
        The size of a vector.

    Raises
    ------
    InputError
        If the folder cannot hold a cache, or later, if it cannot any more, as on a full disk.
    """

    def __init__(self, folder: Path, dim: int):
        self.folder, self.dim = folder, dim
        self._use(lambda db, file: None)

    def append(self, keys: Sequence[bytes], X: np.ndarray) -> None:
        """Keeps a vector for every key; the newest one counts."""
        X = np.ascontiguousarray(X, dtype="<f4")
        if X.shape != (len(keys), self.dim):
            raise ValueError(f"{len(keys)} keys for vectors of shape {X.shape}, each of which should have {self.dim}")

        def write(db: sqlite3.Connection, file: Path) -> None:
            db.execute("BEGIN IMMEDIATE")
            with file.open("ab") as vectors:
                first = -(-vectors.tell() // (4 * self.dim))
                vectors.write(bytes(first * 4 * self.dim - vectors.tell()))  # after what a kill left of a row
                vectors.write(X.data)
            entries = {key: (first + i, _checksum(key, X[i])) for i, key in enumerate(keys)}
            db.executemany(ENTER, [(key, *entry) for key, entry in entries.items()])
            if any(db.execute(LOOK_UP, (key,)).fetchone() != entry for key, entry in entries.items()):
                raise sqlite3.DatabaseError("what is entered is not there")  # or callers would try again for ever
            db.execute("COMMIT")

        if len(keys):
            self._use(write)

    def find(self, keys: Sequence[bytes]) -> tuple[np.ndarray, Matrix]:
        """The row of every key, −1 where there is no sound one, and the memory-mapped vectors that rows count in."""

        def read(db: sqlite3.Connection, file: Path) -> tuple[list[Any], Matrix]:
            db.execute("BEGIN")
            return [db.execute(LOOK_UP, (key,)).fetchone() for key in keys], self._map(file)

        entries, vectors = self._use(read)
        rows = np.full(len(keys), -1)
        for i, (key, entry) in enumerate(zip(keys, entries, strict=True)):
            row, crc = entry or (-1, 0)
            if isinstance(row, int) and 0 <= row < len(vectors) and crc == _checksum(key, vectors[row]):
                rows[i] = row
        return rows, vectors

    def keys(self) -> np.ndarray:
        """All keys, sorted, without a look at their vectors: an array of bytes that others can search."""
        found = self._use(lambda db, file: db.execute("SELECT key FROM vectors ORDER BY key").fetchall())
        return np.asarray([key for (key,) in found], dtype=f"S{KEY}")

    def clear(self) -> None:
        """Begins anew; vectors that were found before stay valid."""
        self._use(lambda db, file: _start(self.folder, _newest(self.folder) + 1))

    def _map(self, file: Path) -> Matrix:
        with suppress(FileNotFoundError), file.open("rb") as vectors:  # or nothing is kept yet, or any more
            if count := os.fstat(vectors.fileno()).st_size // (4 * self.dim):
                return Mapped(np.memmap(vectors, "<f4", "r", shape=(count, self.dim)))
        return np.empty((0, self.dim), np.float32)

    def _use(self, work: Callable[[sqlite3.Connection, Path], T]) -> T:
        """What ``work`` gives for the index and the file of vectors that count now."""
        try:
            for _ in range(ATTEMPTS):
                self.folder.mkdir(parents=True, exist_ok=True)
                if not os.access(self.folder, os.W_OK):
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
                number = _newest(self.folder)
                index, file = _index(self.folder, number or 1), self.folder / f"vectors-{number or 1}.bin"
                try:
                    with closing(_connect(index, create=number == 0)) as db:
                        db.execute("PRAGMA synchronous = OFF")
                        db.execute(TABLE)
                        done = work(db, file)
                    if not index.exists():  # cleared meanwhile, and what was written since belongs to no index
                        file.unlink(missing_ok=True)
                    return done
                except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter from a message that quotes garbage
                    if not index.exists():
                        continue  # cleared meanwhile
                    if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF in PLACE:
                        raise
                    log.warning("%s: damaged (%s); the feature cache starts anew", index, error)
                    _start(self.folder, number + 1)
        except OSError as error:
            if error.errno == errno.ENOMEM:  # another place would not help
                raise
            raise self._error(error.strerror or str(error)) from None
        except sqlite3.Error as error:
            raise self._error(str(error)) from None
        raise self._error("its files vanish as fast as they are made")

    def _error(self, reason: str) -> InputError:
        return InputError(f"{self.folder}: cannot hold the feature cache ({reason}); make room there or set --cache")


def cache_info(cache: Path) -> dict[str, Any]:
    """Place and size of the cache: vectors by backbone, and the models of vendors that experiments share."""
    caches = {}
    try:
        for folder in _caches(cache):
            if size := sum(map(_size, folder.iterdir())):
                caches[folder.name] = {"vectors": _count(folder), "bytes": size}
        sizes = [_size(file) for file in (cache / "vendors").glob("*.usfda")]
    except OSError as error:
        raise InputError(f"{error.filename or cache}: cannot be read ({error.strerror}); set --cache") from None
    total = sum(one["bytes"] for one in caches.values()) + sum(sizes)
    models = {"count": len(sizes), "bytes": sum(sizes)}
    return {"folder": str(cache), "bytes": total, "caches": caches, "models": models}


def clear_cache(cache: Path) -> None:
    """Empties the cache, also while others use it: they keep what they have read."""
    try:
        for folder in _caches(cache):
            _start(folder, _newest(folder) + 1)
        for file in (cache / "vendors").glob("*.usfda"):
            with FileLock(f"{file}.lock"):  # not between a process's writing and reading it; the lock's own file stays
                file.unlink(missing_ok=True)
    except (OSError, sqlite3.Error) as error:
        raise InputError(f"{cache}: cannot be cleared ({error})") from None


def _caches(cache: Path) -> list[Path]:
    return sorted({index.parent for index in (cache / "features").glob("*/index-*.sqlite")})


def _index(folder: Path, number: int) -> Path:
    return folder / f"index-{number}.sqlite"


def _newest(folder: Path) -> int:
    """The number that counts, 0 if there is none yet."""
    names = [FILES.fullmatch(file.name) for file in folder.glob("index-*.sqlite")]
    return max((int(name[1]) for name in names if name), default=0)


def _start(folder: Path, number: int) -> None:
    """Makes a number the one that counts, empty unless another process was first, and removes all lower ones."""
    _connect(_index(folder, number), create=True).close()
    for file in sorted(folder.iterdir()):  # an index before its journal: a reader that misses it finds nothing at all
        if (name := FILES.fullmatch(file.name)) and int(name[1]) < number:
            file.unlink(missing_ok=True)


def _connect(index: Path, create: bool = False) -> sqlite3.Connection:
    uri = f"{index.absolute().as_uri()}?mode={'rwc' if create else 'rw'}"
    db = sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None)
    db.text_factory = bytes  # a damaged entry may hold anything
    return db


def _checksum(key: bytes, vector: np.ndarray) -> int:
    return zlib.crc32(vector.data, zlib.crc32(key))


def _count(folder: Path) -> int:
    try:
        with closing(_connect(_index(folder, _newest(folder)))) as db:
            return int(db.execute("SELECT COUNT(*) FROM vectors").fetchone()[0])
    except (sqlite3.Error, UnicodeDecodeError):  # damaged, or cleared just now
        return 0


def _size(file: Path) -> int:
    with suppress(FileNotFoundError):  # a journal lasts for moments
        return file.stat().st_size
    return 0

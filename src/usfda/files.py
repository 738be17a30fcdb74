"""Files that are written atomically, and texts that are read with a clear error."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any

from .errors import InputError
from .urls import Url, sent

try:
    import fcntl
except ImportError:  # Windows, where a file that is open cannot be removed
    fcntl = None  # type: ignore[assignment]


@contextmanager
def atomic_write(path: Path | Url) -> Iterator[IO[bytes]]:
    """Opens a file for writing that appears under its name only when it is complete.

    It is written under another name and then renamed: after an error or a kill the path is as it was before, and the
    next call for the same path removes what a kill left. A link is followed; a pipe or a device is written to directly.
    What a URL stands for is sent when it is complete.
    """
    if isinstance(path, Url):
        with sent(path) as file:
            yield file
        return
    path = path.resolve()
    if path.exists() and not path.is_file():
        with path.open("wb") as device:
            yield device
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with naming(path):
        part, file = _open_part(path)
        if fcntl is not None:
            with suppress(OSError):  # nobody may read the new content who could not read the old
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
        # The lock lasts until the file has its name; from then on its former name may be another writer's.
        with nullcontext() if fcntl is None else os.fdopen(os.dup(file.fileno()), "rb"):
            try:
                with file:
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                part.replace(path)
            except BaseException:
                part.unlink(missing_ok=True)
                raise


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Around the writing of a file: an error such as that of a full disk names the file."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


def _open_part(path: Path) -> tuple[Path, IO[bytes]]:
    """A new file beside a path, locked for as long as it is open: without a lock it is what a kill left."""
    number = 1
    while True:
        part = path.with_name(f".{path.name}.part{number}")
        try:
            file = part.open("xb")
        except FileExistsError:
            number += not _remove_left(part)  # another process writes the same file just now
            continue
        if fcntl is not None:
            with suppress(OSError):  # a drive without locks: then nobody takes it for abandoned
                fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return part, file
        file.close()  # somebody took it for abandoned before it was locked


def _remove_left(part: Path) -> bool:
    """Remove a file that a killed process was writing; whether there is none any more."""
    try:
        with part.open("r+b") as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file.fileno()), part.stat()):  # and not renamed since, to its final name
                part.unlink()
        return True
    except FileNotFoundError:
        return not os.path.lexists(part)
    except OSError:  # it is locked, or somebody else's
        return False


def clear_parts(folder: Path, name: str) -> None:
    """Remove what kills left of files in a folder, whose names a regular expression describes, that were being written.

    Only for a folder in which nobody else writes just now.
    """
    part = re.compile(rf"\.{name}\.part\d+")
    for file in folder.iterdir():
        if part.fullmatch(file.name):
            file.unlink()


def is_file(path: str | Path) -> bool:
    """Whether there is such a file; a name that is too long is that of none."""
    return os.path.isfile(path)  # noqa: PTH113 (Path.is_file raises OSError for such a name)


def sha256_of(file: Path) -> str:
    """Of its content, in hexadecimal digits."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: cannot be read as UTF-8 text ({error}); save it as UTF-8") from None


def read_lines(file: Path) -> Iterator[str]:
    """The lines of a UTF-8 file, with or without a byte-order mark, one after the other."""
    with _reading(file), file.open(encoding="utf-8-sig") as lines:
        yield from lines


def read_text(file: Path) -> str:
    """The text of a UTF-8 file, with or without a byte-order mark."""
    with _reading(file):
        return file.read_text(encoding="utf-8-sig")


def read_json(file: Path) -> Any:
    """The value in a JSON file."""
    try:
        return json.loads(read_text(file))
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file}: not JSON ({error})") from None


def rows_of(text: str, where: object, delimiter: str = ",") -> list[list[str]]:
    """The rows of a CSV text that are not empty."""
    try:
        return [row for row in csv.reader(text.splitlines(), delimiter=delimiter) if any(row)]
    except csv.Error as error:  # a field of more than 128 KiB
        raise InputError(f"{where}: cannot be read as CSV ({error})") from None

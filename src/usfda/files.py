"""Files that are written whole or not at all, and texts that are read with a clear error."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from .errors import InputError


@contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """Opens a file for writing that appears under its name only when it is complete.

    It is written under another name and then renamed: after an error or a kill the path is as it was before. A link is
    followed; a pipe or a device is written to directly.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def clear_parts(folder: Path, name: str) -> None:
    """Remove what kills left of files in a folder, whose names a regular expression describes, that were being written.

    Only for a folder in which nobody else writes just now.
    """
    part = re.compile(rf"\.{name}\.[0-9a-f]{{8}}")
    for file in folder.iterdir():
        if part.fullmatch(file.name):
            file.unlink()


def read_text(file: Path) -> str:
    """The text of a UTF-8 file, with or without a byte-order mark."""
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read as UTF-8 text ({error})") from None

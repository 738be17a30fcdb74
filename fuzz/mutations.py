"""Changes that keep a format whole: of JSON values, and of the members of a zip."""

from __future__ import annotations

import io
import warnings
import zipfile
from random import Random
from typing import Any

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 0.5, -0.0, 1e308, 5e-324, 2**31, 2**63 - 1, 2**63, -(2**63), 10**30,
    "", " ", "a", "unknown", "\x1b[31m", "\ud800", "\u202e", "\0", "0", "NaN", "a" * 300, "{x}", "%s", [], {},
    [0, 1], [[]], {"": 0}, {"a": {"b": []}}, "F32", "I64", "F64", "mixture", "class-means", "source", "usfda",
)  # fmt: skip


def odd_json(value: Any, random: Random) -> Any:
    """The same value with one change somewhere in it."""
    inner = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    if not inner or random.random() < 0.1:
        if isinstance(value, int | float) and random.random() < 0.5:
            return random.choice((value + 1, value - 1, -value, value * 2, value / 3, float(value)))
        if isinstance(value, str) and random.random() < 0.5:
            place = random.randint(0, len(value))
            return value[:place] + random.choice(("", "\n", "é", "\x7f", "/", "0", "\ud800")) + value[place + 1 :]
        return random.choice(ODD)
    place = random.choice(inner)
    changed: Any = dict(value) if isinstance(value, dict) else list(value)
    what = random.random()
    if what < 0.1:
        del changed[place]
    elif what < 0.2 and isinstance(changed, dict):
        changed[random.choice((*(o for o in ODD if isinstance(o, str)), *inner))] = changed.pop(place)
    elif what < 0.25 and isinstance(changed, list):
        changed.insert(place, random.choice(ODD))
    else:
        changed[place] = odd_json(changed[place], random)
    return changed


def members(content: bytes) -> list[tuple[str, bytes]] | None:
    """What a zip holds; None if it is none."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            small = [info for info in archive.infolist() if info.file_size < 2**20]
            return [(info.filename, archive.read(info)) for info in small]
    except Exception:
        return None


def packed(parts: list[tuple[str, bytes]], compression: int = zipfile.ZIP_STORED) -> bytes:
    """A zip with the checksums and sizes of what it holds."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two members of one name
        for name, content in parts:
            archive.writestr(zipfile.ZipInfo(name), content, compression)
    return file.getvalue()

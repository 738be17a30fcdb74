"""Parts of an image file before its pixels, counted before Pillow reads them one by one.

Each scan follows Pillow's own reading, which takes microseconds and some hundred bytes for a part of a few bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from PIL.JpegImagePlugin import MARKER

from ..errors import UnreadableImage

MAX_BYTES = {"JPEG": 2**26, "GIF": 2**26, "WEBP": 2**26, "HEIF": 2**26, "PNG": 2**27, "AVIF": 2**24}
MAX_PARTS = 2**16  # a PNG of 2**27 bytes has a quarter of it, in chunks of the usual size
MAX_COMMENT = 2**20  # bytes of comments in a GIF, which Pillow copies for each of them
MAX_HEADER = 2**16  # bytes of the header of a PNM
START_OF_SCAN = 0xFFDA
FILL = b"\xff" * 2**16  # among the pixels of a JPEG: libjpeg begins anew with each piece that it is given

_MARKER = re.compile(rb"\xff[^\x00\xff]")
_BETWEEN = re.compile(rb"(?:\s|#[^\r\n]*[\r\n]?)*+")
_TOKEN = re.compile(rb"(?:[^\s#]++|#[^\r\n]*[\r\n]?)*+")


def check_container(name: str, content: bytes) -> None:
    """Raise ``UnreadableImage`` for a file of a format that is too large, or has too many parts before its pixels."""
    if len(content) > (most := MAX_BYTES.get(name, len(content))):
        raise UnreadableImage(f"refused: {name} of {len(content) >> 20} MiB, at most {most >> 20} are read")
    if name in _SCANS and not _SCANS[name](content):
        raise UnreadableImage(f"refused: {name} with too many parts beside its pixels; save it anew")


def _jpeg(content: bytes) -> bool:
    at, parts = 2, 0
    if b"\xff\xff" in content[:: len(FILL) // 2] and FILL in content:  # the first is a thousand times faster
        return False
    while parts <= MAX_PARTS and (found := _MARKER.search(content, at)):
        parts += 1 + found.start() - at  # fill bytes are read one by one
        code, at = int.from_bytes(found[0]), found.end()
        if code == START_OF_SCAN or code not in MARKER:
            return parts <= MAX_PARTS
        if MARKER[code][2] is not None:  # it has a length, which counts itself
            at += max(2, int.from_bytes(content[at : at + 2]))
    return parts + len(content) - at <= MAX_PARTS


def _png(content: bytes) -> bool:
    at, parts = 8, 0
    while parts <= MAX_PARTS and at < len(content):
        at, parts = at + 12 + int.from_bytes(content[at : at + 4]), parts + 1
    return parts <= MAX_PARTS


def _gif(content: bytes) -> bool:
    flags = content[10]
    at, parts, comment = 13 + (flags >> 7) * (6 << (flags & 7)), 0, 0
    while parts <= MAX_PARTS and comment <= MAX_COMMENT and at < len(content) and content[at] not in b",;":
        parts += 1
        if content[at] != ord("!"):
            at += 1  # junk is skipped
            continue
        start = at = at + 2
        while parts <= MAX_PARTS and at < len(content) and content[at]:
            at, parts = at + 1 + content[at], parts + 1
        comment += (at - start) * (content[start - 1] == 0xFE)
        at += 1
    return parts <= MAX_PARTS and comment <= MAX_COMMENT


def _pnm(content: bytes) -> bool:
    head, at = content[: MAX_HEADER + 1], 2
    for _ in range(2 if content[1:2] in b"14" else 3):
        for part in (_BETWEEN, _TOKEN):
            if found := part.match(head, at):
                at = found.end()
    return at <= MAX_HEADER


_SCANS: dict[str, Callable[[bytes], bool]] = {"JPEG": _jpeg, "PNG": _png, "GIF": _gif, "PPM": _pnm}

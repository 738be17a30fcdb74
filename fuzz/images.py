"""Images of every format that is read: odd bytes, and odd chunks of PNG under checksums that are right."""

from __future__ import annotations

import io
import zlib
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from PIL import Image

from usfda.backbones.zoo import get_backbone
from usfda.data.images import MAX_DECODED, decode
from usfda.errors import UnreadableImage

from .harness import Change, Harness

SIGNATURE = b"\x89PNG\r\n\x1a\n"


class Fuzzed(Harness):
    """The decoder."""

    longest = 2**12
    memory = 64 + MAX_DECODED // 2**20

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.backbone = get_backbone("pixels")

    def seeds(self) -> list[bytes]:
        """Formats, modes, frames, turns, profiles."""
        exif = Image.Exif()
        exif[0x112] = 6
        small = Image.linear_gradient("L").resize((12, 9))
        ways: list[tuple[str, str, dict[str, Any]]] = [
            ("JPEG", "RGB", {"exif": exif, "quality": 30}), ("JPEG", "L", {"progressive": True}), ("JPEG", "CMYK", {}),
            ("JPEG", "RGB", {"icc_profile": bytes(200), "subsampling": 2, "restart_marker_blocks": 1}),
            ("PNG", "RGBA", {}), ("PNG", "P", {"transparency": 3}), ("PNG", "I;16", {}), ("PNG", "1", {"exif": exif}),
            ("PNG", "LA", {"icc_profile": bytes(50)}), ("PNG", "L", {"save_all": True, "append_images": [small]}),
            ("BMP", "RGB", {}), ("BMP", "P", {}), ("BMP", "1", {}),
            ("GIF", "P", {"save_all": True, "append_images": [small.rotate(90)], "transparency": 0}),
            ("TIFF", "RGB", {"compression": "tiff_lzw", "exif": exif}), ("TIFF", "F", {}),
            ("TIFF", "L", {"compression": "jpeg"}), ("TIFF", "1", {"compression": "group4"}),
            ("TIFF", "CMYK", {"compression": "tiff_adobe_deflate"}), ("TIFF", "I;16", {"big_tiff": True}),
            ("TIFF", "RGBA", {"compression": "packbits"}),
            ("WEBP", "RGB", {"exif": exif}), ("WEBP", "RGBA", {"lossless": True}),
            ("WEBP", "RGB", {"save_all": True, "append_images": [small.rotate(90).convert("RGB")]}),
            ("PPM", "RGB", {}), ("PPM", "L", {}), ("PPM", "1", {}), ("PPM", "I;16", {}),
            ("AVIF", "RGB", {"exif": exif}), ("HEIF", "RGB", {}),
        ]  # fmt: skip
        decode(b"P5 1 1 255\n0")  # makes the formats known
        made = [b"P2 2 2 9\n1 2 3\n9", b"P1\n# a\n2 2 1 0 0 1", b"P3 1 1 255 1 2 3", b"Pf 2 1 -1.0\n" + bytes(8)]
        for name, mode, options in ways:
            if name in Image.SAVE:
                small.convert("RGB").convert(mode).save(file := io.BytesIO(), name, **options)
                made.append(file.getvalue())
        return made

    def one_input(self, data: bytes) -> None:
        """An image is refused, or gives pixels: all of them, and as a backbone takes them."""
        with suppress(UnreadableImage):
            _whole(data)
        try:
            prepared = self.backbone.prepare(data)
        except UnreadableImage as error:
            assert len(str(error)) < 2**12, "a message of one line is not that long"
            return
        assert prepared.shape == (16, 16, 3)
        assert np.isfinite(self.backbone.normalise(prepared[None])).all()

    def mutate(self, data: bytes, most: int, random: Random, change: Change) -> bytes:
        """An odd chunk of a PNG, or odd pixels, under checksums that are right."""
        if not data.startswith(SIGNATURE) or random.random() < 0.1:
            return change(data, most)
        chunks, at = [], len(SIGNATURE)
        while at + 12 <= len(data):
            length = int.from_bytes(data[at : at + 4], "big")
            chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
            at += 12 + length
        if not chunks:
            return change(data, most)
        place = random.randrange(len(chunks))
        name, content = chunks[place]
        if random.random() < 0.1:
            chunks.insert(random.randrange(len(chunks)), chunks[place])
        elif name == b"IDAT" and random.random() < 0.5:
            with suppress(zlib.error):
                content = zlib.compress(change(zlib.decompressobj().decompress(content, 2**16), 2**16))
        else:
            content = change(content, most)
        if random.random() < 0.05:
            name = random.choice((b"IDAT", b"fdAT", b"acTL", b"fcTL", b"PLTE", b"tRNS", b"eXIf", b"iCCP", b"zTXt"))
        chunks[place] = name, content
        return SIGNATURE + b"".join(
            len(c).to_bytes(4, "big") + n + c + zlib.crc32(n + c).to_bytes(4, "big") for n, c in chunks
        )


def _whole(data: bytes) -> None:
    """All pixels, which are gone afterwards: a bound is on one image at a time."""
    image = decode(data)
    assert image.mode == "RGB"
    assert min(image.size) > 0

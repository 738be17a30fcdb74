"""Severe shifts that are made of images: the protocol ``families`` has Office-31 as edges, blurred and so on."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter, ImageOps

from ..data.samples import Samples
from ..files import atomic_write

SIDE = 256  # pixels of the longer side, at most


def edges(image: Image.Image) -> Image.Image:
    """Dark lines on white."""
    lines = image.convert("L").filter(ImageFilter.GaussianBlur(1)).filter(ImageFilter.FIND_EDGES)
    return ImageOps.autocontrast(ImageOps.invert(lines), cutoff=1).convert("RGB")


def posterised(image: Image.Image) -> Image.Image:
    """Flat areas of few colours."""
    return ImageOps.posterize(image.filter(ImageFilter.ModeFilter(7)), 2)


def inverted(image: Image.Image) -> Image.Image:
    """A negative."""
    return ImageOps.invert(image)


def blurred(image: Image.Image) -> Image.Image:
    """Gaussian, by 3 % of the longer side."""
    return image.filter(ImageFilter.GaussianBlur(max(image.size) * 0.03))


def recoloured(image: Image.Image) -> Image.Image:
    """Channels exchanged, one brighter, one inverted."""
    red, green, blue = image.split()
    brighter = blue.point([int(255 * (v / 255) ** 0.5) for v in range(256)])
    return Image.merge("RGB", (brighter, red, ImageOps.invert(green)))


def covered(image: Image.Image) -> Image.Image:
    """Six of sixteen tiles, each in a colour of its own."""
    pixels = np.array(image)
    rng = np.random.default_rng(zlib.crc32(pixels.tobytes()))
    h, w = pixels.shape[:2]
    for tile in rng.permutation(16)[:6]:
        i, j = divmod(int(tile), 4)
        pixels[i * h // 4 : (i + 1) * h // 4, j * w // 4 : (j + 1) * w // 4] = rng.integers(0, 256, 3)
    return Image.fromarray(pixels)


SHIFTS: tuple[Callable[[Image.Image], Image.Image], ...] = (edges, posterised, inverted, blurred, recoloured, covered)


def shifted(samples: Samples, shift: Callable[[Image.Image], Image.Image], out: Path) -> Samples:
    """The images under a shift, written to a folder as PNG files unless they are there."""
    files = []
    for i, path in enumerate(samples.paths):
        files.append(out / f"{i}.png")
        if not files[-1].exists():
            image = Image.open(str(path)).convert("RGB")
            image.thumbnail((SIDE, SIDE))
            with atomic_write(files[-1]) as file:
                shift(image).save(file, "PNG", compress_level=1)
    return Samples(files, samples.labels)

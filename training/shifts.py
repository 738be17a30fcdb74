"""Shifts that are made of photographs: each takes an image, a strength from 0 to 1 and a generator.

They resemble what separates real domains: other media (drawing, painting, print), other light, other cameras, other
backgrounds. The development suite has six of its own (``benchmarks/suite_data.py``).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PIL import Image, ImageChops, ImageEnhance, ImageFilter, ImageOps

Shift = Callable[[Image.Image, float, np.random.Generator], Image.Image]
SIDE = 256  # an image is brought to this size first, so that a radius means the same for all


def drawing(image: Image.Image, s: float, rng: np.random.Generator) -> Image.Image:
    """Dark outlines on white."""
    grey = image.convert("L").filter(ImageFilter.GaussianBlur(1 + 1.5 * s))
    lines = ImageOps.invert(ImageOps.autocontrast(grey.filter(ImageFilter.FIND_EDGES), cutoff=1))
    return lines.point([int(255 * min(1, (v / 255) ** (1 + 2 * s))) for v in range(256)]).convert("RGB")


def sketch(image: Image.Image, s: float, rng: np.random.Generator) -> Image.Image:
    """Pencil: the grey image divided by its own blurred copy."""
    grey = np.asarray(image.convert("L"), float)
    blurred = np.asarray(
        Image.fromarray((255 - grey).astype(np.uint8)).filter(ImageFilter.GaussianBlur(3 + 9 * s)), float
    )
    return Image.fromarray((255 * np.clip(grey / np.maximum(255 - blurred, 1), 0, 1)).astype(np.uint8)).convert("RGB")


def painting(image: Image.Image, s: float, rng: np.random.Generator) -> Image.Image:
    """Flat, saturated patches."""
    size = 2 * round(2 + 3 * s) + 1
    flat = image.filter(ImageFilter.ModeFilter(size)).filter(ImageFilter.SMOOTH_MORE)
    return ImageEnhance.Color(flat).enhance(1.3 + s)


def poster(image: Image.Image, s: float, rng: np.random.Generator) -> Image.Image:
    """Few colours with dark outlines, as in a cartoon."""
    few = ImageOps.posterize(image.filter(ImageFilter.MedianFilter(7)), 3 - round(1.4 * s))
    lines = drawing(image, s, rng).convert("L").point([0 if v < 140 else 255 for v in range(256)])
    return ImageChops.multiply(few, lines.convert("RGB"))


def silhouette(image: Image.Image, s: float, rng: np.random.Generator) -> Image.Image:
    """Two tones, split at a quantile of the brightness."""
    grey = np.asarray(image.convert("L").filter(ImageFilter.GaussianBlur(1 + 3 * s)), float)
    return Image.fromarray(
        np.where(grey > np.quantile(grey, rng.uniform(0.35, 0.65)), 255, 0).astype(np.uint8)
    ).convert("RGB")


def printed(image: Image.Image, s: float, rng: np.random.Generator) -> Image.Image:
    """Dots of a newspaper."""
    grey = np.asarray(ImageOps.autocontrast(image.convert("L")), float) / 255
    period = 3 + 4 * s
    y, x = np.mgrid[: grey.shape[0], : grey.shape[1]]
    screen = 0.5 + 0.25 * (np.cos(2 * np.pi * (x + y) / (1.4 * period)) + np.cos(2 * np.pi * (x - y) / (1.4 * period)))
    return Image.fromarray(np.where(grey > screen, 255, 0).astype(np.uint8)).convert("RGB")


def dark(image: Image.Image, s: float, rng: np.random.Generator) -> Image.Image:
    """Low light with the noise of a camera."""
    x = (np.asarray(image, float) / 255) ** (1.5 + s) * (0.35 - 0.22 * s)
    x = x + rng.normal(0, 0.02 + 0.04 * s, x.shape)
    return Image.fromarray((255 * np.clip(x, 0, 1)).astype(np.uint8))


def noisy(image: Image.Image, s: float, rng: np.random.Generator) -> Image.Image:
    """Gaussian noise."""
    x = np.asarray(image, float) + rng.normal(0, 25 + 70 * s, (*image.size[::-1], 3))
    return Image.fromarray(np.clip(x, 0, 255).astype(np.uint8))


def blurry(image: Image.Image, s: float, rng: np.random.Generator) -> Image.Image:
    """Out of focus."""
    return image.filter(ImageFilter.GaussianBlur(2 + 6 * s))


def small(image: Image.Image, s: float, rng: np.random.Generator) -> Image.Image:
    """Low resolution."""
    side = round(56 - 32 * s)
    return image.resize((side, side), Image.Resampling.BILINEAR)


def scenery(image: Image.Image, s: float, rng: np.random.Generator) -> Image.Image:
    """The thing is smaller, before a background of coarse random texture."""
    coarse = rng.integers(0, 256, (rng.integers(2, 9), rng.integers(2, 9), 3)).astype(np.uint8)
    background = Image.fromarray(coarse).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    side = round(SIDE * (0.75 - 0.35 * s))
    corner = rng.integers(0, SIDE - side, 2).tolist()
    background.paste(image.resize((side, side)), (corner[0], corner[1]))
    return background


def tinted(image: Image.Image, s: float, rng: np.random.Generator) -> Image.Image:
    """Colours rotated, or none at all."""
    if rng.random() < 0.3:
        return ImageOps.grayscale(image).convert("RGB")
    hue, saturation, value = image.convert("HSV").split()
    turn = round(40 + 88 * s)
    return Image.merge("HSV", (hue.point([(v + turn) % 256 for v in range(256)]), saturation, value)).convert("RGB")


def negative(image: Image.Image, s: float, rng: np.random.Generator) -> Image.Image:
    """Inverted."""
    return ImageOps.invert(image)


def close(image: Image.Image, s: float, rng: np.random.Generator) -> Image.Image:
    """A part of the image, turned."""
    side = SIDE * (0.75 - 0.35 * s)
    left, upper = rng.uniform(0, SIDE - side, 2)
    part = image.crop((int(left), int(upper), int(left + side), int(upper + side)))
    return part.rotate(float(rng.uniform(-60, 60)) * s, Image.Resampling.BILINEAR)


SHIFTS: dict[str, Shift] = {
    shift.__name__: shift
    for shift in (
        drawing, sketch, painting, poster, silhouette, printed, dark, noisy, blurry, small, scenery, tinted, negative,
        close,
    )
}  # fmt: skip


def shifted(image: Image.Image, name: str, rng: np.random.Generator) -> Image.Image:
    """The image with a shift of random strength."""
    square = image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    return SHIFTS[name](square, float(rng.uniform(0.1, 1)), rng)

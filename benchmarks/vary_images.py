"""Make many different photographs of few: crops, mirror images, other sizes, light, colours and qualities, as JPEG.

    python benchmarks/vary_images.py OFFICE31 OUT --count 100000

OUT gets one folder per class, as OFFICE31's domains have, so that OUT can be procured from as well as adapted to. The
same call makes the same files, and goes on where one was interrupted.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image, ImageEnhance

from usfda.data.images import SUFFIXES
from usfda.files import atomic_write

LARGEST = 400  # pixels of the longer side: about what the photographs of a shop have


def vary(i: int, *, photographs: list[Path], folder: Path) -> None:
    """Write the i-th picture."""
    source = photographs[i % len(photographs)]
    out = folder / source.parent.name / f"{i:07}.jpg"
    if out.exists():
        return
    rng = np.random.default_rng(i)
    with Image.open(source) as opened:
        opened.draft("RGB", (2 * LARGEST, 2 * LARGEST))
        image = opened.convert("RGB")
    width, height = image.size
    share = rng.uniform(0.75, 1, 2)
    left, top = rng.uniform(0, 1 - share) * (width, height)
    image = image.crop((int(left), int(top), int(left + share[0] * width), int(top + share[1] * height)))
    image.thumbnail((int(rng.integers(280, LARGEST)),) * 2, Image.Resampling.BILINEAR)
    if rng.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    for kind in (ImageEnhance.Brightness, ImageEnhance.Color, ImageEnhance.Contrast):
        image = kind(image).enhance(rng.uniform(0.8, 1.2))
    with atomic_write(out) as file:
        image.save(file, "JPEG", quality=int(rng.integers(75, 95)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photographs", type=Path, metavar="OFFICE31")
    parser.add_argument("folder", type=Path, metavar="OUT")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    photographs = sorted(p for p in args.photographs.rglob("*") if p.suffix.lower() in SUFFIXES)
    np.random.default_rng(0).shuffle(photographs)
    with ProcessPoolExecutor(args.processes) as pool:
        make = partial(vary, photographs=photographs, folder=args.folder)
        for _ in pool.map(make, range(args.count), chunksize=200):
            pass


if __name__ == "__main__":
    main()

"""Vectors of all domains of the training families, one file for each backbone and domain; what is there is not redone.

python -m training.vectors DATA EMOJI FURTHER -o OUTPUT [--backbone NAME] [--tag TAG] [--domains a,b] [--most N]

Two tags have no backbone: ``pixels`` are the digits as 8 by 8 grey values, and ``bands`` are sounds (``sounds.py``).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from usfda.backbones.zoo import get_backbone

from .families import DIGITS, Picture, all_pictures, digit_pictures, squared
from .sounds import sounds

BATCH = 16
Named = Iterator[tuple[str, np.ndarray, np.ndarray]]  # domains, their vectors and classes
_worker: list[Any] = []


def pixels(further: Path) -> Named:
    """The digits as 8 by 8 grey values."""
    for name in DIGITS:
        pictures = squared(digit_pictures(name, further))
        small = [np.asarray(picture.open().resize((8, 8), Image.Resampling.BOX)).ravel() for picture in pictures]
        yield name, np.asarray(small, np.float32), np.asarray([picture.label for picture in pictures])


def write(file: Path, X: np.ndarray, y: np.ndarray) -> None:
    """Vectors in half precision, without those that are not numbers."""
    good = np.isfinite(X).all(1)
    np.savez(file.with_suffix(".tmp.npz"), X=X[good].astype(np.float16), y=y[good])
    file.with_suffix(".tmp.npz").rename(file)


def _start(backbone: str) -> None:
    _worker.append(get_backbone(backbone, "cpu"))


def _run(pictures: list[Picture]) -> np.ndarray:
    """Vectors of a batch; NaN for an image that cannot be read."""
    backbone = _worker[0]
    images, good = [], []
    for i, picture in enumerate(pictures):
        try:
            images.append(backbone.prepare(picture.open()))
            good.append(i)
        except Exception as error:
            print("left out:", picture.source, error, flush=True)
    X = np.full((len(pictures), backbone.dim), np.nan, np.float32)
    if images:
        X[good] = backbone.run(np.stack(images))
    return X


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("emoji", type=Path)
    parser.add_argument("further", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--backbone", default="efficientnet_lite0")
    parser.add_argument("--tag", default="lite0")
    parser.add_argument("--domains", help="only these")
    parser.add_argument("--most", type=int, default=100_000, help="images of a domain")
    options = parser.parse_args()
    place = options.output / "vectors" / options.tag
    place.mkdir(parents=True, exist_ok=True)
    if options.tag in ("pixels", "bands"):
        for name, X, y in pixels(options.further) if options.tag == "pixels" else sounds():
            write(place / f"{name}.npz", X, y)
        return
    only = options.domains.split(",") if options.domains else None
    if (layer := get_backbone(options.backbone, "cpu").last_layer) is not None:
        np.savez(options.output / "vectors" / f"{options.tag}-classifier.npz", weight=layer[0], bias=layer[1])
    with ProcessPoolExecutor(2, initializer=_start, initargs=(options.backbone,)) as pool:
        for name, pictures in all_pictures(options.data, options.emoji, options.output / "pictures", options.further):
            file = place / f"{name}.npz"
            if file.exists() or (only and name not in only):
                continue
            if options.backbone == "gradients" and name in DIGITS:
                pictures = squared(pictures)
            if len(pictures) > options.most:
                kept = np.sort(np.random.default_rng(0).permutation(len(pictures))[: options.most])
                pictures = [pictures[i] for i in kept]
            started = time.perf_counter()
            batches = [pictures[i : i + BATCH] for i in range(0, len(pictures), BATCH)]
            X = np.concatenate(list(pool.map(_run, batches)))
            y = np.asarray([picture.label for picture in pictures])
            write(file, X, y)
            seconds = time.perf_counter() - started
            print(f"{options.tag} {name}: {len(y)} images, {len(np.unique(y))} classes, {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()

"""Small pictures of a target's images, so small that thousands of them fit into a page."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

import numpy as np
from PIL import Image

from ..config import Config
from ..data.images import decode, read_file
from ..data.samples import Place
from ..errors import UnreadableImage
from ..features.engines import Threads

SIDES = (160, 128, 96, 80, 64, 48)  # of a picture, in pixels: the largest with which all fit
SPACE = 12_000_000  # characters of a page for its pictures
MOST = 20_000  # pictures of a page: for those of a larger target, one in so many images has a picture
TRIALS = 64  # images from which their size is estimated
QUALITY = 60  # of WebP, out of 100


def thumbnails(paths: Sequence[Place], config: Config, space: int = SPACE, most: int = MOST) -> list[str]:
    """Each image as WebP in base64; an empty text where it has no picture, or cannot be read any more."""
    chosen = np.unique(np.linspace(0, len(paths) - 1, min(most, len(paths))).round().astype(int)).tolist()
    engine, pictures = Threads(config.threads), [""] * len(paths)
    side = _largest_side([paths[i] for i in chosen], engine, space)
    with config.progress(len(chosen), "pictures", "images") as advance:
        for i, picture in zip(chosen, engine.map(lambda i: _thumbnail(paths[i], side), chosen), strict=True):
            pictures[i] = picture
            advance(1)
    return pictures


def _largest_side(paths: Sequence[Place], engine: Threads, space: int) -> int:
    """With which the pictures fit into their space, by those of some of them."""
    some = [paths[i] for i in np.linspace(0, len(paths) - 1, min(TRIALS, len(paths))).round().astype(int).tolist()]
    for side in SIDES:
        taken = [len(picture) for picture in engine.map(lambda path, side=side: _thumbnail(path, side), some)]  # type: ignore[misc]
        if len(paths) * float(np.mean(taken)) <= space:
            return side
    return SIDES[-1]


def _thumbnail(path: Place, side: int) -> str:
    try:
        image = decode(read_file(path), side)
    except UnreadableImage:  # it could be read when its features were made
        return ""
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    image.save(file, "WEBP", quality=QUALITY)
    return base64.b64encode(file.getvalue()).decode()

"""Negative samples D_n: spline composites of images of different classes (latent.py has their substitutes).

A composite merges two images along a parabola through the central region. The unordered set of its classes is its
negative class. Which images and splines are merged depends on the images and class names alone, never on the seed, and
a composite's key is made of the keys of its images and splines: seeds, label sets and experiments share its features.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..vendor import members_of

SPLINES_PER_GROUP = 2  # each used both ways round: four composites of every group of images, as in the authors' port


@dataclass(frozen=True)
class Composites:
    """Plan of n composites: images (n, k) by index, splines (n, k−1, 5), negative class (n,)."""

    images: np.ndarray
    splines: np.ndarray
    y: np.ndarray
    classes: list[tuple[str, ...]]

    def __len__(self) -> int:
        return len(self.y)


def spline(u: np.ndarray) -> np.ndarray:
    """Uniform (…, 5) to splines (y_0, x_m, y_m, y_1, vertical) through (0, y_0), (x_m, y_m), (1, y_1), side = 1."""
    u = u.copy()
    u[..., 1] = 0.5 + (2 * u[..., 1] - 1) * 30 / 224
    u[..., 2] = 0.5 + (2 * u[..., 2] - 1) * 10 / 224
    u[..., 4] = u[..., 4] < 0.5
    return u


def masks(splines: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Boolean (n, height, width): the side of each parabola on which the first image stands."""
    out = np.empty((len(splines), *size), bool)
    vertical = splines[:, 4] > 0
    out[~vertical] = _above(splines[~vertical], *size)
    out[vertical] = _above(splines[vertical], *size[::-1]).transpose(0, 2, 1)
    return out


def _above(splines: np.ndarray, height: int, width: int) -> np.ndarray:
    y0, xm, ym, y1, _ = splines.T[:, :, None]
    x = np.linspace(0, 1, width, dtype=np.float32)
    # Lagrange's form of the parabola through the three points.
    curve = y0 * (x - xm) * (x - 1) / xm + ym * x * (x - 1) / (xm * (xm - 1)) + y1 * x * (x - xm) / (1 - xm)
    y: np.ndarray = np.arange(height, dtype=np.float32)[:, None] / height
    out: np.ndarray = y < curve[:, None, :]
    return out


def compose(images: np.ndarray, splines: np.ndarray) -> np.ndarray:
    """Composites (n, h, w, 3) of images (n, k, h, w, 3): each further image takes the far side of its own spline."""
    n, k, height, width, channels = images.shape
    lines = images.reshape(n, k, height, width * channels)  # numpy is twice as fast where nothing is broadcast
    out = lines[:, 0]
    for j in range(1, k):
        out = np.where(masks(splines[:, j - 1], (height, width)).repeat(channels, 2), out, lines[:, j])
    return out.reshape(n, height, width, channels)


def negative_classes(classes: int, images: int, most: int) -> list[tuple[int, ...]]:
    """All sets of ``images`` classes, by index, or ``most`` of them drawn evenly where there are more."""
    if classes < images:
        return []
    if math.comb(classes, images) <= most:
        return list(itertools.combinations(range(classes), images))
    rng = np.random.default_rng(0)
    chosen: set[tuple[int, ...]] = set()
    while len(chosen) < most:
        chosen.add(tuple(sorted(rng.choice(classes, images, replace=False).tolist())))
    return sorted(chosen)


def plan(labels: np.ndarray, total: int, images: int = 2, most: int = 600) -> Composites:
    """About ``total`` composites, evenly over the negative classes."""
    members = {str(labels[mine[0]]): mine for mine in members_of(labels)}
    names = list(members)
    groups = [tuple(names[c] for c in group) for group in negative_classes(len(names), images, most)]
    each = math.ceil(total / max(1, len(groups)) / (2 * SPLINES_PER_GROUP))
    chosen, splines = [np.empty((0, images), np.int64)], [np.empty((0, images - 1, 5), np.float32)]
    for group in groups:
        # A row of random numbers is a group of images with its splines: more composites keep those that there were.
        rng = np.random.default_rng(zlib.crc32("\n".join(group).encode()))
        u = rng.random((each, images + SPLINES_PER_GROUP * (images - 1) * 5), dtype=np.float32)
        pick = np.stack([members[name][(u[:, j] * len(members[name])).astype(int)] for j, name in enumerate(group)], 1)
        pick = np.repeat(pick, SPLINES_PER_GROUP, 0)
        cuts = spline(u[:, images:].reshape(len(pick), images - 1, 5))
        chosen += [pick, pick[:, ::-1]]  # the complementary composite has the images in reverse order
        splines += [cuts, cuts[:, ::-1]]
    y = np.repeat(np.arange(len(groups)), 2 * SPLINES_PER_GROUP * each)
    return Composites(np.concatenate(chosen), np.concatenate(splines), y, groups)


def composite_key(keys: Sequence[bytes], splines: np.ndarray) -> bytes:
    """The content key of a composite: that of its images and its splines."""
    return hashlib.sha256(b"composite" + b"".join(keys) + splines.astype("<f4").tobytes()).digest()

"""Composites per second before M (masks and merging, 224×224), against M itself on the same machine.

python benchmarks/composites.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from usfda.backbones.zoo import get_backbone
from usfda.methods.usfda.negatives import compose, spline


def rate(run: Callable[[], object], n: int, rounds: int) -> float:
    run()
    started = time.perf_counter()
    for _ in range(rounds):
        run()
    return n * rounds / (time.perf_counter() - started)


def main() -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (16, 2, 224, 224, 3), dtype=np.uint8)
    splines = spline(rng.random((16, 1, 5), dtype=np.float32))
    m = get_backbone()
    print(f"composing  {rate(lambda: compose(images, splines), 16, 50):7.0f} per second, one thread")
    print(f"M          {rate(lambda: m.run(images[:, 0]), 16, 5):7.0f} per second, one thread")


if __name__ == "__main__":
    main()

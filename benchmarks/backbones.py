"""Backbones side by side: size, dimensions, and images per second of M alone, one thread, interleaved in one run.

python benchmarks/backbones.py IMAGES BACKBONE...
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from usfda import Samples
from usfda.backbones.zoo import get_backbone
from usfda.data.images import read_file
from usfda.data.reading import read

ROUNDS, IMAGES = 5, 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images")
    parser.add_argument("backbones", nargs="+")
    options = parser.parse_args()
    samples = read(options.images)
    assert isinstance(samples, Samples)
    contents = [read_file(path) for path in samples.paths[:IMAGES]]
    models = [get_backbone(name) for name in options.backbones]
    prepared = [np.stack([m.prepare(content) for content in contents]) for m in models]
    seconds = np.full((ROUNDS, len(models)), np.inf)
    for r in range(-1, ROUNDS):  # the first is not counted
        for i, (m, images) in enumerate(zip(models, prepared, strict=True)):
            start = time.perf_counter()
            m.run(images)
            seconds[max(r, 0), i] = min(seconds[max(r, 0), i], time.perf_counter() - start) if r >= 0 else np.inf
    best = seconds.min(0)
    for m, name, s in zip(models, options.backbones, best, strict=True):
        rate, relative = len(contents) / s, best[0] / s
        print(f"{name}: {len(m.onnx) / 1e6:.1f} MB, d = {m.dim}, {rate:.0f} images/s, {relative:.2f} of the first")


if __name__ == "__main__":
    main()

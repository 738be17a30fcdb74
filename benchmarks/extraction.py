"""Images per second of the whole extraction path over bare onnxruntime on prepared tensors, in one run, on all cores.

Both take turns on pieces of the same images, so that a noisy machine disturbs both alike. Bare onnxruntime is given the
better of its two ways to use the cores: one call with all threads, or one call per core.

    python benchmarks/extraction.py OFFICE31/amazon
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime

from usfda import Config, Samples
from usfda.backbones.backbone import BATCH, Backbone
from usfda.backbones.zoo import get_backbone
from usfda.data.images import read_file
from usfda.data.reading import read
from usfda.features.extract import Extractor

PIECE = 320


def bare(m: Backbone, threads: int, workers: int) -> Callable[[np.ndarray], float]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(m.onnx, options)
    name = session.get_inputs()[0].name
    pool = ThreadPoolExecutor(workers)

    def run(tensors: np.ndarray) -> float:
        started = time.perf_counter()
        list(pool.map(lambda i: session.run(None, {name: tensors[i : i + BATCH]}), range(0, len(tensors), BATCH)))
        return time.perf_counter() - started

    return run


def main(folder: str) -> None:
    with tempfile.TemporaryDirectory() as cache:
        config, m = Config(cache=Path(cache)), get_backbone()
        extractor, samples = Extractor.make(m, config), read(folder)
        assert isinstance(samples, Samples)
        ways = {
            "bare, one call on all threads": bare(m, config.threads, 1),
            "bare, one call per core": bare(m, 1, config.threads),
        }
        seconds = dict.fromkeys([*ways, "whole path"], 0.0)
        pieces = [np.arange(i, i + PIECE) for i in range(0, len(samples) - PIECE + 1, PIECE)]
        for index in pieces:
            images = np.stack([m.prepare(read_file(samples.paths[i])) for i in index.tolist()])
            tensors = ((images.transpose(0, 3, 1, 2).astype(np.float32)) - 127) / 128
            for name, run in ways.items():
                seconds[name] += run(tensors)
            started = time.perf_counter()
            extractor.features(samples[index])
            seconds["whole path"] += time.perf_counter() - started
    n = PIECE * len(pieces)
    print(f"{n} images, {config.threads} threads")
    for name, t in seconds.items():
        print(f"  {name:<32} {n / t:6.1f} images/s")
    print(f"  ratio to the better bare way     {min(seconds[name] for name in ways) / seconds['whole path']:.3f}")


if __name__ == "__main__":
    main(sys.argv[1])

"""Images a second of the whole extraction path over bare onnxruntime on prepared tensors, in one run, on all cores.

Both take turns on pieces of the same images, so that a noisy machine disturbs both alike. Bare onnxruntime is given the
better of its two ways to use the cores: one call with all threads, or one call a core.

    python benchmarks/extraction.py OFFICE31/amazon
"""

import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime

from usfda.backbones import Backbone, get_backbone
from usfda.data import read
from usfda.features import BATCH, extract
from usfda.runtime import runtime

PIECE = 320


def bare(m: Backbone, threads: int, workers: int):
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
        runtime.cache = Path(cache)
        m = get_backbone()
        samples = read(folder)
        ways = {
            "bare, one call on all threads": bare(m, runtime.threads, 1),
            "bare, one call a core": bare(m, 1, runtime.threads),
        }
        seconds = dict.fromkeys([*ways, "whole path"], 0.0)
        pieces = [np.arange(i, i + PIECE) for i in range(0, len(samples) - PIECE + 1, PIECE)]
        for index in pieces:
            images = np.stack([m.prepare(samples.paths[i]) for i in index])
            tensors = ((images.transpose(0, 3, 1, 2).astype(np.float32)) - 127) / 128
            for name, run in ways.items():
                seconds[name] += run(tensors)
            started = time.perf_counter()
            extract(samples[index], m)
            seconds["whole path"] += time.perf_counter() - started
    n = PIECE * len(pieces)
    print(f"{n} images, {runtime.threads} threads")
    for name, t in seconds.items():
        print(f"  {name:<32} {n / t:6.1f} images/s")
    print(f"  ratio to the better bare way     {min(seconds[name] for name in ways) / seconds['whole path']:.3f}")


if __name__ == "__main__":
    main(sys.argv[1])

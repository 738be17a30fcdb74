"""Seconds of `adapt` with method mixture, features at hand, as the target grows: 1,000, 10,000 and 100,000 vectors.

python benchmarks/scaling.py [--dim 1280]
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from usfda import ProcurementSettings, adapt, procure


def vectors(classes: range, n: int, d: int, shift: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian classes around fixed centres, as features of a network: not negative."""
    centres = np.random.default_rng(0).normal(0, 1, (40, d)).astype(np.float32)
    rng = np.random.default_rng(seed)
    y = rng.choice(classes, n)
    X = rng.standard_normal((n, d), np.float32)
    X += centres[y] + np.float32(shift)
    return np.maximum(X, 0, out=X), y


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dim", type=int, default=1280)
    d = parser.parse_args().dim
    X, y = vectors(range(20), 2000, d, 0, 1)
    model = procure(X, y, method="all", settings=ProcurementSettings(iterations=20, update_every=10))
    before = None
    for n in (1_000, 10_000, 100_000):
        X, _ = vectors(range(10, 30), n, d, 0.3, 2)
        started = time.perf_counter()
        adapt(model, X)
        seconds = time.perf_counter() - started
        grown = "" if before is None else f", ×{seconds / before:.1f} for ×10 vectors"
        print(f"{n:>7} vectors: {seconds:.1f} s{grown}", flush=True)
        before = seconds


if __name__ == "__main__":
    main()

"""Peak memory of `adapt` and `predict` with ten times the images, each in a process of its own with an empty cache.

python benchmarks/memory.py OFFICE31/amazon
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from usfda import Samples
from usfda.data.reading import read


def peak(*args: object) -> float:
    """MiB that the process held at most."""
    with tempfile.TemporaryDirectory() as cache:
        call = [sys.executable, "-m", "usfda", "--cache", cache, "--quiet", *map(str, args)]
        process = subprocess.Popen(call)
        _, status, usage = os.wait4(process.pid, 0)
    assert status == 0
    return usage.ru_maxrss / 1024


def main(folder: str) -> None:
    samples = read(folder)
    assert isinstance(samples, Samples)
    paths = [Path(str(path)).absolute() for path in samples.paths]
    n = len(paths) // 10
    with tempfile.TemporaryDirectory() as place:
        few, many, model, out = (Path(place, name) for name in ("few.txt", "many.txt", "m.usfda", "out.csv"))
        few.write_text("\n".join(map(str, paths[::10][:n])))
        many.write_text("\n".join(map(str, paths[: 10 * n])))
        source = Path(place, "source.csv")
        source.write_text("\n".join(f"{path},{path.parent.name}" for path in paths[::20]))
        peak("procure", source, "--for", "all", "-o", model, "--set", "composites=64", "--set", "iterations=20")
        for name, args in {
            "adapt": ("-o", Path(place, "a.usfda")),
            "predict": ("-o", out),
        }.items():
            small, large = (peak(name, model, target, *args) for target in (few, many))
            print(f"{name:<8} {n} images {small:.0f} MiB, {10 * n} images {large:.0f} MiB, ratio {large / small:.2f}")


if __name__ == "__main__":
    main(sys.argv[1])

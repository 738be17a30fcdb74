"""One harness under atheris: ``python -m fuzz.one NAME CORPUS [options of libFuzzer]``."""

from __future__ import annotations

import logging
import os
import resource
import sys
import tempfile
import warnings
from pathlib import Path
from random import Random

import atheris

from .harness import INSTRUMENTED, make


def peak() -> float:
    """MiB that this process has taken at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Run until the executions are done or something is found."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    name, corpus = sys.argv[1], Path(sys.argv[2])
    logging.disable()  # what an input is told is no matter here
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(dir=_memory_folder()) as folder:
        with atheris.instrument_imports(include=["mixture", *INSTRUMENTED.get(name, ())]):
            harness = make(name, Path(folder))
            seeds = harness.seeds()
            for seed in seeds:
                harness.one_input(seed)
        for number, seed in enumerate(seeds):
            (corpus / f"seed-{number}").write_bytes(seed)
        most = peak() + harness.memory

        def one_input(data: bytes) -> None:
            harness.one_input(data)
            if peak() > most:
                raise AssertionError(f"an input took the process to {peak():.0f} MiB, beyond {most:.0f}")

        def mutate(data: bytes, size: int, seed: int) -> bytes:
            return harness.mutate(data, size, Random(seed), atheris.Mutate)[:size]

        options = [f"-max_len={harness.longest}", "-timeout=20", "-rss_limit_mb=4096", "-print_final_stats=1"]
        atheris.Setup([sys.argv[0], *options, *sys.argv[2:]], one_input, custom_mutator=mutate)
        atheris.Fuzz()


def _memory_folder() -> str | None:
    """Where files are written without a disk, should there be such a place."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


if __name__ == "__main__":
    main()

"""The fault campaign: ``PYTHONPATH=tests python -m soak [--kills 200] [--seed 0] [-o TABLE.md]``, or ``make soak``.

It makes small images, runs each command undisturbed, then disturbs it, and compares. Exit code 1 where anything was
damaged, lost, left behind or not said clearly.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from . import faults, kills, service
from .report import Outcome, table
from .work import Work

QUICK = ("procure", "adapt", "predict", "teach")
SERVE = 6  # every sixth kill is of the service


def campaign(work: Work, count: int, rng: random.Random) -> Iterator[Outcome]:
    """All faults, one after the other."""
    yield from kills.signals(work, signal.SIGKILL, count - count // SERVE, rng)
    yield from service.kills(work, count // SERVE, rng)
    yield from kills.signals(work, signal.SIGINT, count // 5, rng)
    yield from kills.signals(work, signal.SIGTERM, count // 5, rng)
    if faults.root():
        yield from faults.full_disk(work)
        yield from faults.read_only(work)
    else:
        yield from faults.limited_files(work)
    yield from faults.shared_store(work, rounds=5)
    yield from faults.clock(work, rng)
    yield from faults.handles(work)
    yield from memory(work, count, rng)


def memory(work: Work, count: int, rng: random.Random) -> Iterator[Outcome]:
    """The faults of memory alone."""
    yield from faults.memory(work)
    yield from faults.worker_killed(work, rng)


def short(work: Work, count: int, rng: random.Random) -> Iterator[Outcome]:
    """A little of it, which the tests run."""
    yield from kills.signals(work, signal.SIGKILL, count, rng)
    yield from kills.signals(work, signal.SIGINT, count // 2, rng)
    yield from kills.signals(work, signal.SIGTERM, count // 2, rng)
    yield from faults.limited_files(work)
    yield from faults.memory(work, faults.MEMORY[1:2], faults.MORE[1:2])
    yield from service.worker_killed(work, rng)


def main() -> int:
    """Run the campaign; the table is written after every fault, so that an interrupted one has its part."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--short", action="store_true", help="signals and limits for the quick commands alone")
    parser.add_argument("--memory", action="store_true", help="the faults of memory alone")
    parser.add_argument("-o", "--output", type=Path)
    asked = parser.parse_args()
    seen: list[Outcome] = []
    folder = Path(tempfile.mkdtemp(prefix="soak-"))  # not one that a fork removes when it ends
    try:
        work = Work(folder, QUICK) if asked.short else Work(folder)
        faults_of = short if asked.short else memory if asked.memory else campaign
        for outcome in faults_of(work, asked.kills, random.Random(asked.seed)):
            seen.append(outcome)
            if not outcome.sound:
                print(f"{outcome.fault}, {outcome.command}: {outcome.message}", file=sys.stderr, flush=True)
            if asked.output is not None:
                asked.output.write_text(table(seen))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(table(seen))
    return int(any(not outcome.sound for outcome in seen))


if __name__ == "__main__":
    sys.exit(main())

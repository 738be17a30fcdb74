"""Images per second of Ray with one and two workers over as many threads, on this machine, without a cache.

All take turns, so that a noisy machine disturbs them alike. Measured is the middle of each run, where every worker has
its backbone and more work; the start, until the first result, and the cluster's are told apart. Beside seconds on the
clock, which say little where others use the same cores, stand seconds of processors, with all processes of Ray.

    python benchmarks/many_machines.py OFFICE31/amazon [IMAGES [TURNS]]
"""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

from usfda import Samples
from usfda.backbones.zoo import get_backbone
from usfda.data.reading import read
from usfda.features.cluster import Ray
from usfda.features.engines import Engine, Threads
from usfda.features.jobs import ImageJob

EDGE = 128  # images at the beginning and at the end of a run that are not measured
MARK = f"USFDA_BENCHMARK={os.getpid()}"  # in the environment of all processes that this one starts


def of_cluster() -> dict[str, float]:
    """Seconds of processors that each process of Ray has had."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if MARK.encode() in (place / "environ").read_bytes():
                fields = (place / "stat").read_text().rpartition(")")[2].split()
                found[place.name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def run(engine: Engine, job: ImageJob, samples: Samples, count: int) -> tuple[float, float, float]:
    """Seconds to the first result; for an image of the middle, seconds on the clock and of processors."""
    started, first, done = time.perf_counter(), 0.0, 0
    marks: list[tuple[int, float, float]] = []
    for batch in engine.run(job, samples.paths, range(count), None):
        now, done = time.perf_counter(), done + batch.count
        first = first or now - started
        if (not marks and done >= EDGE) or (len(marks) == 1 and done >= count - EDGE):
            of_ray = sum(of_cluster().values()) if isinstance(engine, Ray) else 0.0  # else an earlier one may be ending
            marks.append((done, now, time.process_time() + of_ray))
    (n, wall, processors), (n_end, wall_end, processors_end) = marks
    return first, (wall_end - wall) / (n_end - n), (processors_end - processors) / (n_end - n)


def main(folder: str, count: int = 896, turns: int = 2) -> None:
    name, _, value = MARK.partition("=")
    os.environ[name] = value
    samples, job = read(folder), ImageJob(get_backbone())
    assert isinstance(samples, Samples)
    run(Threads(2), job, samples, 3 * EDGE)  # loads the backbone, which threads share
    taken: dict[tuple[str, int], list[tuple[float, float, float]]] = defaultdict(list)
    cluster: dict[int, list[float]] = defaultdict(list)
    for _ in range(turns):
        for n in (1, 2):
            taken["threads", n].append(run(Threads(n), job, samples, count))
            started = time.perf_counter()
            ray = Ray(n, None).connect()
            cluster[n].append(time.perf_counter() - started)
            taken["ray", n].append(run(Ray(n, None), job, samples, count))
            ray.shutdown()
    print(f"{count} images, the mean of {turns} turns")
    mean = {key: [sum(column) / turns for column in zip(*values, strict=True)] for key, values in taken.items()}
    for n in (1, 2):
        for kind in ("threads", "ray"):
            first, wall, processors = mean[kind, n]
            print(f"  {kind:<8}{n}: {1 / wall:5.1f} images/s, {1e3 * processors:5.1f} ms of a core each; ", end="")
            print(f"first result after {first:.1f} s")
        (_, wall, processors), (_, wall_ray, processors_ray) = mean["threads", n], mean["ray", n]
        print(f"  Ray over threads: images/s {wall / wall_ray:.2f}, images per second of a core ", end="")
        print(f"{processors / processors_ray:.2f}; starting the cluster {sum(cluster[n]) / turns:.1f} s")
    two = (mean[kind, 1][1] / mean[kind, 2][1] for kind in ("threads", "ray"))
    print("  two over one: threads {:.2f}, Ray {:.2f}".format(*two))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:4]))

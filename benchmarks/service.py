"""Images per second and latency of the service over bare onnxruntime, with 16 clients; also while it adapts.

Bare is what the service cannot do without: the same images decoded and run through M, by as many threads as there are
cores, for 16 callers that each wait for their answer. Both take turns, so that a noisy machine disturbs both alike.

    python benchmarks/service.py client.usfda OFFICE31/amazon
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import numpy as np

from usfda import Samples, load
from usfda.config import available_cores
from usfda.data.images import read_file
from usfda.data.reading import read

CLIENTS = 16
BOUNDARY = b"boundary-of-the-benchmark"
HEADERS = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY.decode()}"}
Times = list[float]


def body(content: bytes) -> bytes:
    head = b'Content-Disposition: form-data; name="files"; filename="image.jpg"\r\n\r\n'
    return b"--%b\r\n%b%b\r\n--%b--\r\n" % (BOUNDARY, head, content, BOUNDARY)


def closed_loop(ask: Callable[[], Callable[[bytes], None]], contents: list[bytes], seconds: float) -> Times:
    """What 16 callers wait for each image, for so many seconds; ``ask`` makes what a caller calls."""
    images = itertools.cycle(contents)  # threads may share it: it is one call of C
    numbers = itertools.count()
    until = time.perf_counter() + seconds

    def caller() -> Times:
        call, times = ask(), []
        while (started := time.perf_counter()) < until:
            call(next(images) + b"%d-%d" % (next(numbers), started * 1e9))  # never the same content twice
            times.append(time.perf_counter() - started)
        return times

    with ThreadPoolExecutor(CLIENTS) as pool:
        return list(itertools.chain(*pool.map(lambda _: caller(), range(CLIENTS))))


def through_http(port: int, contents: list[bytes], seconds: float) -> Times:
    def ask() -> Callable[[bytes], None]:
        connection = http.client.HTTPConnection("127.0.0.1", port)

        def call(content: bytes) -> None:
            connection.request("POST", "/predict", body(content), HEADERS)
            answer = connection.getresponse()
            assert json.loads(answer.read())["results"][0]["label"], answer.status

        return call

    return closed_loop(ask, contents, seconds)


def bare(model: Path) -> Callable[[list[bytes], float], Times]:
    m = load(model).backbone
    assert m is not None
    pool = ThreadPoolExecutor(available_cores())

    def one(content: bytes) -> None:
        m.run(m.prepare(content)[None])

    def ask() -> Callable[[bytes], None]:
        return lambda content: pool.submit(one, content).result()

    return lambda contents, seconds: closed_loop(ask, contents, seconds)


def seconds_of(process: int) -> float:
    """Seconds that a process has spent on the cores, in the system too."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def service(model: Path, data: str) -> Iterator[tuple[int, int]]:
    """Its port and its process."""
    command = [sys.executable, "-m", "usfda", "serve", str(model), "--port", "0", "--data", data]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        found = next(filter(None, (re.search(r"http://127\.0\.0\.1:(\d+)", line) for line in process.stderr)))
        Thread(target=process.stderr.read, daemon=True).start()
        yield int(found[1]), process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        print(f"the service ended with exit code {process.wait()}")


def adapting(port: int) -> bool:
    """Whether an adaptation runs; if not, the next one is started."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/adapt")
    return connection.getresponse().status in (202, 409)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("folder")
    parser.add_argument("--seconds", type=float, default=2, help="of a turn")
    parser.add_argument("--turns", type=int, default=8)
    options = parser.parse_args()
    samples = read(options.folder)
    assert isinstance(samples, Samples)
    contents = [read_file(path) for path in samples.paths[:256]]
    times: dict[str, Times] = {"bare": [], "service": [], "service while it adapts": []}
    spent = {"bare": 0.0, "service": 0.0}
    alone = bare(options.model)
    # Clients in a process of their own, as they are in life; started before threads are.
    with (
        multiprocessing.get_context("spawn").Pool(1) as clients,
        tempfile.TemporaryDirectory() as data,
        service(options.model, data) as (port, process),
    ):
        clients.apply(through_http, (port, contents, 1.0))
        alone(contents, 1.0)
        for _ in range(options.turns):
            spent["bare"] -= time.process_time()
            times["bare"] += alone(contents, options.seconds)
            spent["bare"] += time.process_time()
            spent["service"] -= seconds_of(process)
            times["service"] += clients.apply(through_http, (port, contents, options.seconds))
            spent["service"] += seconds_of(process)
            assert adapting(port)
            going = clients.apply_async(through_http, (port, contents, options.seconds))
            while not going.ready():
                adapting(port)
                time.sleep(0.2)
            times["service while it adapts"] += going.get()
    print(f"{CLIENTS} clients, {available_cores()} cores, {options.turns} turns of {options.seconds:g} s")
    rate = {name: len(found) / options.turns / options.seconds for name, found in times.items()}
    for name, found in times.items():
        p50, p99 = 1000 * np.quantile(found, [0.5, 0.99])
        print(
            f"  {name:<26} {rate[name]:6.1f} images/s ({rate[name] / rate['bare']:.2f} of bare), "
            f"p50 {p50:.0f} ms, p99 {p99:.0f} ms ({p99 / 1000 / np.quantile(times['bare'], 0.99):.2f} of bare)"
        )
    each = {name: 1000 * spent[name] / len(times[name]) for name in spent}
    print(
        f"  a core spends {each['bare']:.1f} ms on an image, in the service {each['service']:.1f} ms "
        f"({each['bare'] / each['service']:.2f}): a ratio that other work on the machine disturbs less"
    )


if __name__ == "__main__":
    main()

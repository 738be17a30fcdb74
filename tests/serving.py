"""A service for tests: in a thread of this process, or as a program of its own; both on a free port of the loopback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import numpy as np
from conftest import texture
from PIL import Image

from usfda import Config
from usfda.service.limits import Limits
from usfda.service.run import listen, make_server
from usfda.service.service import Service

HOST = "127.0.0.1"
PATIENCE = 120  # seconds after which something that should happen has not


def write_grainy_photos(folder: Path, kinds: list[int], each: int, seed: int = 1) -> list[Path]:
    """Photos of a camera that is so poor that the vendor's model takes most of them for unknown."""
    rng = np.random.default_rng(seed)
    files = []
    folder.mkdir()
    for kind in kinds:
        for i in range(each):
            grey = 128 + 0.5 * (texture(kind, rng) - 128.0)
            grey += rng.normal(0, 40, grey.shape)
            files.append(folder / f"kind{kind}-{i:02d}.png")
            Image.fromarray(grey.clip(0, 255).astype(np.uint8)).save(files[-1])
    return files


class Client(httpx.Client):
    """Calls that tests repeat."""

    def send_images(self, files: Sequence[Path], **query: Any) -> httpx.Response:
        return self.post("/predict", files=[("files", (f.name, f.read_bytes())) for f in files], params=query)

    def wait(self, *states: str) -> dict[str, Any]:
        """What ``GET /adapt`` answers as soon as the adaptation is in one of these states."""
        until = time.monotonic() + PATIENCE
        while (found := self.get("/adapt").json())["state"] not in states:
            assert time.monotonic() < until, found
            time.sleep(0.05)
        return dict(found)


def client(port: int, token: str | None = None) -> Client:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return Client(base_url=f"http://{HOST}:{port}", headers=headers, timeout=PATIENCE)


@contextmanager
def running(
    model: Path, data: Path | None = None, token: str | None = None, limits: Limits | None = None
) -> Iterator[int]:
    """A service in a thread; its port."""
    limits = limits or Limits()
    with listen(HOST, 0, token, limits) as bound:
        server = make_server(bound, Service(model, data, Config(threads=2, cache=None), limits), HOST, token)
        thread = Thread(target=server.run, args=([bound],))
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            yield bound.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


class Program:
    """``usfda serve`` as a program of its own."""

    def __init__(self, model: Path, *options: object):
        command = [sys.executable, "-m", "usfda", "serve", str(model), "--port", "0", *map(str, options)]
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env=os.environ | {"COLUMNS": "1000"}, start_new_session=True
        )
        assert self.process.stderr is not None
        self.said = self.process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", self.said)
        assert found, self.said
        self.port = int(found[1])

    def end(self, sign: signal.Signals) -> int:
        """Send a signal; the exit code."""
        self.process.send_signal(sign)
        return self.wait()

    def wait(self) -> int:
        code = self.process.wait(PATIENCE)
        assert self.process.stderr is not None
        self.said += self.process.stderr.read()
        self.process.stderr.close()
        return code


@contextmanager
def program(model: Path, *options: object) -> Iterator[Program]:
    """A program that is killed in the end, if it still runs."""
    started = Program(model, *options)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.end(signal.SIGKILL)

"""An adaptation in the background: a process of its own, its progress and its result."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any, Literal

import numpy as np

from ..text import service as text

log = logging.getLogger("usfda")

State = Literal["idle", "running", "ready", "failed"]
STATES: tuple[State, ...] = ("idle", "running", "ready", "failed")


@dataclass(frozen=True)
class Task:
    """What is to be adapted.

    Parameters
    ----------
    model : Path
        The file of the model that serves.
    output : Path
        The file to write.
    images : sequence of str
        Names of the kept images: files, whose vectors are in the cache, or the sha256 of images in memory.
    first : int
        From which of them on they are new to the model.
    seen : int
        The number of the last of them.
    vectors : array or None
        Of images in memory.
    cache : Path or None
        Of the cache.
    threads : int
        For the process.
    """

    model: Path
    output: Path
    images: Sequence[str]
    first: int
    seen: int
    vectors: np.ndarray | None
    cache: Path | None
    threads: int


class Adaptation:
    """The one adaptation that may run, or wait for a decision. Its owner lets no two threads begin or end one."""

    def __init__(self) -> None:
        self.state: State = "idle"
        self.progress = 0.0
        self.seen = 0
        self.found: dict[str, Any] = {}  # findings and comparison, when it is ready
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: Thread | None = None

    def start(self, task: Task) -> None:
        """Begin; what ``state`` and ``progress`` say follows by itself."""
        threads = {name: str(task.threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
        process = subprocess.Popen(
            [sys.executable, "-m", "usfda.service.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | threads | {"OMP_WAIT_POLICY": "passive"},
            start_new_session=True,  # Ctrl-C is for the service, which ends it
        )
        self._process, self.seen = process, task.seen
        self.state, self.progress, self.found = "running", 0.0, {}
        self._watcher = Thread(target=self._watch, args=(process, task), daemon=True)
        self._watcher.start()

    def end(self) -> None:
        """Forget it, whether it runs, is ready or has failed."""
        process, self._process = self._process, None
        if process is not None and self._watcher is not None:
            process.kill()
            self._watcher.join()
        self.state, self.progress, self.found = "idle", 0.0, {}

    def _watch(self, process: subprocess.Popen[bytes], task: Task) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        found: dict[str, Any] = {}
        with suppress(OSError):  # it is gone already
            process.stdin.write(_given(task))
            process.stdin.flush()
        with process.stdout:
            for line in process.stdout:
                found = json.loads(line)
                self.progress = found.pop("progress")
        code = process.wait()
        with suppress(OSError):
            process.stdin.close()  # not before: that would end the process
        if self._process is not process:
            return
        if code == 0 and found:
            self.found, self.state = found, "ready"
        else:
            reason = text.KILLED if code < 0 else found.get("failed", f"exit code {code}")
            log.warning(text.failed(reason))
            self.progress, self.state = 0.0, "failed"


def _given(task: Task) -> bytes:
    vectors = io.BytesIO()
    if task.vectors is not None:
        np.save(vectors, task.vectors)
    head = {
        "model": str(task.model),
        "output": str(task.output),
        "images": list(task.images),
        "first": task.first,
        "cache": task.cache and str(task.cache),
        "threads": task.threads,
        "bytes": len(vectors.getvalue()),
    }
    return json.dumps(head).encode() + b"\n" + vectors.getvalue()

"""A command as a process: the program as a user starts it, or a fork of this process, which has loaded all libraries.

A fork spends its time with the work and not with loading libraries, so a signal at a random moment meets the work.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import joblib  # noqa: F401  all that the commands load
import onnxruntime  # noqa: F401
import scipy.stats  # noqa: F401
import sklearn.manifold  # noqa: F401
import torch  # noqa: F401

import usfda.cli.main
import usfda.experiments.compare
import usfda.experiments.display
import usfda.stages.adapt
import usfda.stages.procure
import usfda.stages.teach  # noqa: F401
from usfda.__main__ import main


class Process(Protocol):
    """What is needed of one."""

    pid: int

    def poll(self) -> int | None:
        """The exit code, None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Until it ends; the exit code."""

    def send_signal(self, sig: int, /) -> None:
        """If it still runs."""

    def kill(self) -> None:
        """End it."""


class Fork:
    """Runs a command in a fork of this process."""

    def __init__(
        self, args: Sequence[str], env: Mapping[str, str], cwd: Path, said: int, before: Callable[[], object] | None
    ):
        self.code: int | None = None
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._run(args, env, cwd, said, before or int)

    def _run(
        self, args: Sequence[str], env: Mapping[str, str], cwd: Path, said: int, before: Callable[[], object]
    ) -> None:
        code = 70
        try:
            os.environ |= env
            os.chdir(cwd)
            for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), said, said)):
                os.dup2(file, number)
            sys.stdout, sys.stderr = (os.fdopen(number, "w") for number in (1, 2))  # a test may have put others there
            sys.argv, sys.modules["__main__"] = ["usfda", *args], sys.modules[main.__module__]
            before()
            code = main()
            atexit._run_exitfuncs()
        except BaseException:
            traceback.print_exc()
        finally:
            with suppress(OSError):  # a limit may hold for what it says, too
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code

    def wait(self, timeout: float | None = None) -> int:
        """Until it ends; the exit code."""
        until = time.monotonic() + (timeout or 1e9)
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired("fork", timeout or 0)
            time.sleep(0.002)
        return code

    def send_signal(self, sig: int, /) -> None:
        """If it still runs."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


def start(
    args: Sequence[str], env: Mapping[str, str], cwd: Path, said: int, before: Callable[[], object] | None, fork: bool
) -> Process:
    """Begin a command; what it says goes to the descriptor ``said``."""
    if fork:
        return Fork(args, env, cwd, said, before)
    return subprocess.Popen(
        [sys.executable, "-m", "usfda", *args],
        cwd=cwd, env=os.environ | env, stdin=subprocess.DEVNULL, stdout=said, stderr=said, preexec_fn=before,
    )  # fmt: skip

"""How to run: a value that a command or a caller makes once and passes down. Nothing else is shared by modules."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from .errors import InputError

Device = Literal["auto", "cpu", "cuda"]
DEVICES = ("auto", "cpu", "cuda")
EngineName = Literal["threads", "ray"]
ENGINES = ("threads", "ray")


class Progress(Protocol):
    """Shows how far some work is: ``with progress(total, text, unit) as advance: … advance(n)``."""

    def __call__(self, total: int, text: str, unit: str) -> AbstractContextManager[Callable[[int], None]]:
        """Begin; what is given back moves the display on by n."""


def silent(total: int, text: str, unit: str) -> AbstractContextManager[Callable[[int], None]]:
    """The progress of a library: none."""
    return nullcontext(lambda n: None)


def available_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_cache() -> Path | None:
    """``USFDA_CACHE``, or a folder ``usfda`` where the user's caches are; None for a user without a home."""
    if place := os.environ.get("USFDA_CACHE"):
        return Path(place)
    try:
        caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return None if caches == Path("/.cache") else Path(caches) / "usfda"  # as where HOME is empty
    except RuntimeError:  # as in a container that runs under a number alone
        return None


@dataclass(frozen=True)
class Config:
    """How to run.

    Beyond rounding, none of these choices changes a result.

    Parameters
    ----------
    threads : int
        Threads for decoding, for the backbone and for training. Default: all cores that the process may use.
    cache : Path or None
        Folder of the feature cache. With None nothing is stored.
    progress : Progress
        Shows the progress of long work. Default: nothing is shown.
    device : {"auto", "cpu", "cuda"}
        Where networks run. ``auto`` takes a GPU where the installed libraries can use one.
    engine : {"threads", "ray"}
        Where images become vectors: in threads of this process, or on a Ray cluster (``docs/cluster.md``).
    address : str, optional
        Of the Ray cluster. Without it one is started on this machine, with ``threads`` workers.
    """

    threads: int = field(default_factory=available_cores)
    cache: Path | None = field(default_factory=default_cache)
    progress: Progress = silent
    device: Device = "auto"
    engine: EngineName = "threads"
    address: str | None = None

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise InputError(f"threads: at least 1, not {self.threads}")
        if self.device not in DEVICES:
            raise InputError(f"device: choose from {', '.join(DEVICES)}, not {self.device!r}")
        if self.engine not in ENGINES:
            raise InputError(f"engine: choose from {', '.join(ENGINES)}, not {self.engine!r}")
        if self.address is not None and self.engine != "ray":
            raise InputError("an address is that of a Ray cluster; add --engine ray")

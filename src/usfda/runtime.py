"""What all stages share: threads, the place of the store, progress on the screen, the error for bad input."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

console = Console(stderr=True, emoji=False)


class InputError(ValueError):
    """The call or the input is wrong; the message says what, where, and what to do about it."""


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cache() -> Path:
    if place := os.environ.get("USFDA_CACHE"):
        return Path(place)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "usfda"


@dataclass
class Runtime:
    """Process-wide choices; beyond rounding, none changes a result."""

    threads: int = field(default_factory=_cores)
    cache: Path = field(default_factory=_cache)
    progress: bool = False  # a library is silent; the commands switch it on


runtime = Runtime()


@contextmanager
def progress(total: int, text: str, unit: str) -> Iterator[Callable[[int], None]]:
    """A bar on stderr; yields the function that moves it on by n."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not runtime.progress or total == 0) as bar:
        task = bar.add_task(text, total=total, rate="")

        def advance(n: int) -> None:
            bar.update(task, advance=n)
            state = bar.tasks[0]
            rate = state.completed / max(state.elapsed or 0, 1e-3)
            bar.update(task, rate=f"{rate:.0f} {unit}/s" if rate >= 1 else f"{60 * rate:.0f} {unit}/min")

        yield advance


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Written under another name, then renamed: the file is whole or, after an error, as it was before.

    A link is followed; a pipe or a device is written to as it is.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)

"""Where the work of an extraction is done: in the threads of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

WINDOW = 4096  # items that are handed out at a time, because a pool makes an object for each at once


class Engine(Protocol):
    """Applies a function to many items; another engine may do so on other machines."""

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """The results, in the order of the items."""


@dataclass(frozen=True)
class Threads:
    """Threads of this process; decoding and onnxruntime both leave Python's lock while they work."""

    threads: int

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """The results, in the order of the items; after an error or Ctrl-C, what has not begun is dropped."""
        pool = ThreadPoolExecutor(self.threads)
        try:
            for start in range(0, len(items), WINDOW):
                yield from pool.map(function, items[start : start + WINDOW])
        finally:
            pool.shutdown(cancel_futures=True)

"""Where the work of an extraction is done: in the threads of this process, or elsewhere (``cluster.py``)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ..memory import THREAD, check_room
from . import jobs
from .cache import FeatureCache
from .jobs import Done, Job

Item = TypeVar("Item")
Result = TypeVar("Result")

WINDOW = 256  # items that are handed out and not yet taken back: enough for all threads, however slow the taker is


class Engine(Protocol):
    """Runs a job on many items. It reads the cache, if at all; only its caller writes there."""

    @property
    def threads(self) -> int:
        """How many threads this machine has for the work."""

    def run(self, job: Job, items: Sequence[Any], index: Sequence[int], cache: FeatureCache | None) -> Iterator[Done]:
        """The items at ``index``, batch by batch, in their order; what the cache has is not computed again."""


@dataclass(frozen=True)
class Threads:
    """Threads of this process; decoding and onnxruntime both leave Python's lock while they work."""

    threads: int

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """The results, in the order of the items; after an error or Ctrl-C, what has not begun is dropped."""
        check_room(THREAD * self.threads)
        pool = ThreadPoolExecutor(self.threads)
        running: deque[Future[Result]] = deque()
        try:
            for item in items:
                running.append(pool.submit(function, item))
                if len(running) == WINDOW:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)

    def run(self, job: Job, items: Sequence[Any], index: Sequence[int], cache: FeatureCache | None) -> Iterator[Done]:
        """As every engine; the cache is asked at the moment, so that what another process adds is found."""

        def known(keys: list[bytes]) -> Any:
            return [False] * len(keys) if cache is None else cache.find(keys)[0] >= 0

        def work(batch: Sequence[int]) -> Done:
            return jobs.run(job, [(i, items[i]) for i in batch], known)

        return self.map(work, batches(index, job.backbone.batch_size))


def batches(index: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """The index, ``size`` at a time."""
    return (index[i : i + size] for i in range(0, len(index), size))

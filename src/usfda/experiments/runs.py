"""Runs of an experiment: as many at once as there are threads, one thread each, each kept as soon as it is finished.

A run with one thread gives the same numbers however many others there are. The journal holds one JSON line a run; what
a killed process left of a line does not count.
"""

from __future__ import annotations

import json
import logging
import os
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from ..runtime import InputError, runtime

log = logging.getLogger("usfda")

AHEAD = 2  # jobs that are handed out to every process


@dataclass(frozen=True)
class Job:
    """One run: ``function(*args)`` gives a record; ``key`` is all that the record depends on."""

    key: dict[str, Any]
    function: Callable[..., dict[str, Any]]
    args: tuple[Any, ...]


class Journal:
    """Finished runs by key. One that failed is told, but not counted as finished."""

    def __init__(self, file: Path):
        self.file = file
        self.records: dict[str, dict[str, Any]] = {}
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("a+b") as opened:  # whether it can be written is better known now than after the first run
                opened.seek(0)
                content = opened.read()
                if content and not content.endswith(b"\n"):  # a line of which a killed process left a part
                    opened.write(b"\n")
        except OSError as error:
            raise InputError(f"{file}: cannot be used for the runs ({error.strerror})") from None
        for line in content.splitlines():
            try:
                record = json.loads(line)
                self.records[_name(record["key"])] = record
            except (ValueError, KeyError, TypeError):
                continue

    def finished(self, job: Job) -> dict[str, Any] | None:
        record = self.records.get(_name(job.key))
        return None if record is None or "error" in record else record

    def resume(self, jobs: Iterable[Job]) -> tuple[list[dict[str, Any]], list[Job]]:
        """Records of the jobs that are finished, and the other jobs."""
        found = [(job, self.finished(job)) for job in jobs]
        records, left = [record for _, record in found if record], [job for job, record in found if not record]
        if records:
            log.info("%d of %d runs are finished already", len(records), len(found))
        return records, left

    def add(self, record: dict[str, Any]) -> None:
        self.records[_name(record["key"])] = record
        with self.file.open("ab") as file:
            file.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def _name(key: dict[str, Any]) -> str:
    return json.dumps(key, sort_keys=True)


def run_all(jobs: list[Job], journal: Journal, in_turn: bool = False) -> Iterator[dict[str, Any]]:
    """The record of every job, in the order in which they finish; ``in_turn``: one by one, each with all threads, as
    where seconds are measured."""
    if in_turn:
        for job in jobs:
            record = _run(job, runtime.cache, runtime.threads)
            journal.add(record)
            yield record
        return
    left = {_name(job.key): job for job in jobs}
    while left:
        for record in _attempt(left):
            del left[_name(record["key"])]
            journal.add(record)
            yield record


def _attempt(left: dict[str, Job]) -> Iterator[dict[str, Any]]:
    if runtime.threads == 1:
        yield from (_run(job, runtime.cache) for job in list(left.values()))
        return
    yield from _side_by_side(list(left.values()))
    # What is left had a process that died, as where memory runs out; the first of them were under way then.
    yield from map(_alone, list(left.values())[: AHEAD * runtime.threads])


def _side_by_side(jobs: list[Job]) -> Iterator[dict[str, Any]]:
    """Ends early when a process dies: who was in it cannot be told."""
    pool = Parallel(
        runtime.threads, return_as="generator_unordered", batch_size=1, pre_dispatch=AHEAD * runtime.threads
    )
    with suppress(BrokenProcessPool):
        yield from pool(delayed(_run)(job, runtime.cache) for job in jobs)


def _alone(job: Job) -> dict[str, Any]:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        try:
            return pool.submit(_run, job, runtime.cache).result()
        except BrokenProcessPool:
            return {"key": job.key, "error": "its process died; perhaps memory ran out"}


def _run(job: Job, cache: Path, threads: int = 1) -> dict[str, Any]:
    before = runtime.threads, runtime.cache, runtime.progress
    runtime.threads, runtime.cache, runtime.progress = threads, cache, False
    try:
        with threadpool_limits(threads):  # also what scikit-learn and BLAS would use
            return {"key": job.key, **job.function(*job.args)}
    except Exception as error:  # of a system: it is a row that says so, and the others go on
        said = " ".join(f"{type(error).__name__}: {error}".split())
        return {"key": job.key, "error": said, "trace": traceback.format_exc()}
    finally:
        runtime.threads, runtime.cache, runtime.progress = before

"""The one runner: it turns tasks into vectors, does the runs that are not finished, and keeps a record of each.

As many runs go on at once as there are threads, with one thread each: a run gives the same numbers however many others
there are. Each record is a line of ``runs.jsonl`` as soon as it is finished; a killed experiment goes on from there.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from threading import Thread
from typing import Any

from joblib import Parallel, delayed

from ..backbones.zoo import DEFAULT
from ..config import Config, silent
from ..errors import InputError
from ..files import naming
from .baselines import baseline_version, get_baseline
from .runs import Experiment, Record, Run, key_name
from .tasks import Task, TaskReader, fingerprint

log = logging.getLogger("usfda")

AHEAD = 2  # runs that are handed out to every process, so that none waits
Settings = Mapping[str, Any]
Baselines = Mapping[str, tuple[str, Settings]]  # label to a method and those of its settings that are not the default
Shown = Callable[[Mapping[str, Sequence[Record]], Record | None], None]


class Journal:
    """The file of records, one JSON line each.

    A run that failed is there, but it is not finished: it is tried again. What a killed process left of a line does not
    count.
    """

    def __init__(self, file: Path):
        self.file = file
        self._records: dict[str, Record] = {}
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
            with suppress(ValueError, KeyError, TypeError):
                record = json.loads(line)
                self._records[key_name(record["key"])] = record

    def finished(self, run: Run) -> Record | None:
        """The record of a run, unless it failed or never was."""
        record = self._records.get(key_name(run.key))
        return None if record is None or "error" in record else record

    @property
    def methods(self) -> list[str]:
        """Names of all methods that have a finished run."""
        return sorted({record["key"]["method"] for record in self._records.values() if "error" not in record})

    def add(self, line: str) -> Record:
        """Keep a record."""
        record: Record = json.loads(line)
        self._records[key_name(record["key"])] = record
        with naming(self.file), self.file.open("ab") as file:
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        return record


def without_folders(given: str) -> str:
    """Names of files in an option, as in ``onnx:FILE`` or ``uan,FILE.py:Class``, without their places."""
    return re.sub(r"[^:,@]*[/\\]", "", given)


class Runner:
    """Runs experiments.

    Parameters
    ----------
    out : Path
        Folder for ``runs.jsonl``.
    backbone : str
        M, for tasks of images.
    seeds : int
        Every method runs on every task with the seeds 0 … seeds−1.
    settings : dict, optional
        Method to settings that replace its defaults in all runs.
    config : Config, optional
        How to run.
    log_runs : bool
        Whether each finished run is reported by a message.

    Attributes
    ----------
    records, failed : list of dict
        The records of all runs that are finished, and of those that failed.
    """

    def __init__(
        self,
        out: Path,
        *,
        backbone: str = DEFAULT,
        seeds: int = 1,
        settings: Mapping[str, Settings] | None = None,
        config: Config | None = None,
        log_runs: bool = False,
    ):
        if seeds < 1:
            raise InputError(f"--seeds is 1 or more, not {seeds}")
        self.out, self.seeds, self.config, self.log_runs = out, seeds, config or Config(), log_runs
        self.settings = settings or {}
        self.journal = Journal(out / "runs.jsonl")
        self.reader = TaskReader(backbone, self.config)
        self.backbone_name = without_folders(backbone)
        self.records: list[Record] = []
        self.failed: list[Record] = []

    def run(
        self, experiment: Experiment, tasks: Sequence[Task], baselines: Baselines, shown: Shown | None = None
    ) -> dict[str, list[Record]]:
        """Run every method on every task with every seed, but for what is finished already.

        Parameters
        ----------
        experiment : Experiment
            Measures each run.
        tasks : sequence of Task
            What to run on.
        baselines : dict
            Label to a method's name and its settings.
        shown : callable, optional
            Called with the records so far and the newest one, first with None, when all is prepared. By default a
            progress bar is shown.

        Returns
        -------
        dict
            Label to its records, without those that failed.
        """
        planned = self._plan(experiment, tasks, baselines)
        found: dict[str, list[Record]] = {label: [] for label in baselines}
        left: dict[str, tuple[Run, list[str]]] = {}  # two labels may stand for the same run, which is done once
        for label, run in planned:
            if record := self.journal.finished(run):
                found[label].append(record)
                self.records.append(record)
            else:
                left.setdefault(key_name(run.key), (run, []))[1].append(label)
        if before := sum(map(len, found.values())):
            log.info("%d of %d runs are finished already", before, len(planned))
        runs = [run for run, _ in left.values()]
        ready, broken = (runs, []) if experiment.one_at_a_time else self._prepare(runs)
        if shown is not None:
            shown(found, None)
        lines = chain(broken, execute_all(ready, self.config, experiment.one_at_a_time))
        with (self.config.progress if shown is None else silent)(len(runs), experiment.name, "runs") as advance:
            for record in map(self.journal.add, lines):
                for label in left[key_name(record["key"])][1] if "error" not in record else ():
                    found[label].append(record)
                (self.failed if "error" in record else self.records).append(record)
                advance(1)
                if shown is not None:
                    shown(found, record)
                if self.log_runs:
                    done = len(self.records) + len(self.failed)
                    log.info("%d of %d: %s", done, len(planned), describe(record))
        return found

    def _plan(self, experiment: Experiment, tasks: Sequence[Task], baselines: Baselines) -> list[tuple[str, Run]]:
        """All runs, with their labels.

        Every method is once on every task before any is a second time, and the tasks with one source, which would wait
        for the same vendor's model, are apart.
        """
        kinds = {name: (get_baseline(name), baseline_version(name)) for name, _ in baselines.values()}
        planned = []
        for task in tasks:
            source, target = self.reader.read(task)
            backbone = self.reader.backbone_of(source)
            data = {
                "task": task.id, "source": fingerprint(source), "target": fingerprint(target),
                "backbone": backbone and backbone.key,
            }  # fmt: skip
            for place, (label, (name, given)) in enumerate(baselines.items()):
                kind, version = kinds[name]
                settings = merge_settings(self.settings.get(name, {}), kind.settings_for(task), given)
                for seed in range(self.seeds):
                    key = {
                        "experiment": experiment.name, "version": experiment.version, **data,
                        "method": name, "method_version": version, "settings": settings, "seed": seed,
                        **experiment.depends_on(self.config),
                    }  # fmt: skip
                    order = seed, place, key["target"], task.id
                    planned.append((order, label, Run(experiment, key, source, target, backbone)))
        return [(label, run) for _, label, run in sorted(planned, key=lambda item: item[0])]

    def _prepare(self, runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
        """Do what the runs would otherwise each wait for, or do at the same time.

        Returns the runs that can go on, and the records of those whose method failed.
        """
        failures: dict[str, BaseException | None] = {}
        ready, broken = [], []
        for run in runs:
            name = key_name({part: run.key[part] for part in ("method", "settings", "source")})
            if name not in failures:
                failures[name] = None
                try:
                    run.baseline(self.config).prepare(run.source)
                except KeyboardInterrupt:
                    raise
                except BaseException as error:  # as in a run
                    failures[name] = error
            if (failure := failures[name]) is None:
                ready.append(run)
            else:
                broken.append(run.failed(failure))
        return ready, broken


def merge_settings(*parts: Settings) -> dict[str, Any]:
    """One after the other; settings of a stage, which are a dict themselves, are merged in the same way."""
    merged: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            merged[name] = merge_settings(merged.get(name, {}), value) if isinstance(value, Mapping) else value
    return merged


def execute_all(runs: Sequence[Run], config: Config, one_at_a_time: bool = False) -> Iterator[str]:
    """The record of every run, as a line, in the order in which they finish."""
    if one_at_a_time:
        yield from (run.execute(replace(config, progress=silent)) for run in runs)
        return
    left = {key_name(run.key): run for run in runs}
    single = replace(config, threads=1, progress=silent)
    while left:
        for line in _attempt(list(left.values()), left, config.threads, single):
            left.pop(key_name(json.loads(line)["key"]), None)
            yield line


def _attempt(runs: list[Run], left: Mapping[str, Run], processes: int, config: Config) -> Iterator[str]:
    if processes == 1:
        yield from (run.execute(config) for run in runs)
        return
    # Vectors are plain arrays, which joblib shares with its processes as memory maps of its own, private files.
    pool = Parallel(
        processes, return_as="generator_unordered", batch_size=1, pre_dispatch=AHEAD * processes,
        initializer=_leave_with, initargs=(os.getpid(),),
    )  # fmt: skip
    with suppress(BrokenProcessPool):  # ends early when a process dies: which run was in it is not known
        yield from pool(delayed(Run.execute)(run, config) for run in runs)
    # What is left had a process that died, as where memory runs out; the first of them were under way then.
    yield from (_execute_alone(run, config) for run in list(left.values())[: AHEAD * processes])


def _execute_alone(run: Run, config: Config) -> str:
    with ProcessPoolExecutor(1, get_context("spawn"), _leave_with, (os.getpid(),)) as pool:
        try:
            return pool.submit(run.execute, config).result()
        except BrokenProcessPool:
            return run.failed("its process died; perhaps memory ran out: fewer --threads need less")


def _leave_with(parent: int) -> None:
    """From now on, let this process end soon after its parent has been killed, which cannot end it any more."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def describe(record: Mapping[str, Any]) -> str:
    """A record in a line."""
    key = record["key"]
    parts = [key["method"], key["task"], f"seed {key['seed']}"]
    for name, value in key["settings"].items():
        parts += [f"{k} {v}" for k, v in (value if isinstance(value, dict) else {name: value}).items()]
    said = record.get("error") or (f"T_avg {record['t_avg']:.1f}" if "t_avg" in record else "done")
    return f"{' '.join(parts)}: {said}"

"""Systems side by side: the same vectors, the same splits, the same metrics, over tasks and seeds."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..backbones import DEFAULT, Backbone, get_backbone
from ..baselines import SYSTEMS, Outcome, Source, fingerprint, get_system
from ..data import Samples, check_source, read
from ..features import extract
from ..metrics import score
from ..model import UNKNOWN, versions
from ..protocols import Task
from ..runtime import InputError
from .runs import Job, Journal, run_all
from .tables import Row, make_row, write

log = logging.getLogger("usfda")


def compare(
    tasks: Sequence[Task],
    out: str | Path,
    *,
    methods: Sequence[str] = tuple(SYSTEMS),
    seeds: int = 3,
    backbone: str = DEFAULT,
    shown: Callable[[list[Row], dict[str, Any] | None], None] = lambda rows, record: None,
) -> list[Row]:
    """Runs every system on every task with seeds 0 … seeds−1, and writes results.json, .csv and .md to ``out``.

    Runs are kept in ``out``/runs.jsonl as they finish; one that is there is not repeated. ``shown`` is called with the
    rows so far after each. Target labels go to the metrics alone.
    """
    systems = {method: get_system(method) for method in methods}
    codes = {method: fingerprint(method) for method in methods}
    version = versions()["usfda"]
    if seeds < 1:
        raise InputError(f"--seeds is 1 or more, not {seeds}")
    journal = Journal(Path(out, "runs.jsonl"))
    names = [task.name for task in tasks]
    domains = Domains(backbone)
    jobs = []
    for task in tasks:
        source = domains.read(task.source, task.source_classes, "source features")
        target = domains.read(task.target, task.target_classes, "target features")
        if (source.backbone is None) != (target.backbone is None):
            raise InputError(f"{task.name}: one side has images and the other has features; give both alike")
        if source.X.shape[1] != target.X.shape[1]:
            sizes = f"{source.X.shape[1]} and {target.X.shape[1]}"
            raise InputError(f"{task.name}: source and target have {sizes} dimensions")
        if len(target.labels) < 2:
            raise InputError(f"{task.name}: a target of one sample says nothing about its domain")
        labelled = source.as_source()
        for seed in range(seeds):
            for method in systems:
                key = {
                    "task": task.name, "method": method, "seed": seed, "code": codes[method],
                    "source": source.fingerprint, "target": target.fingerprint,
                    "backbone": source.backbone and source.backbone.sha256, "version": version,
                }  # fmt: skip
                jobs.append(Job(key, run, (method, codes[method], labelled, target.X, target.labels, seed)))
    jobs.sort(key=lambda job: job.key["seed"])  # every system and task once, before any a second time
    found = [(job, journal.finished(job)) for job in jobs]
    records = [record for _, record in found if record]

    def rows() -> list[Row]:
        made = [make_row(method, system, records, names, seeds) for method, system in systems.items()]
        return sorted(made, key=lambda row: -row.rank)

    if records:
        log.info("%d of %d runs are finished already", len(records), len(jobs))
    shown(rows(), None)
    for record in run_all([job for job, record in found if not record], journal):
        records.append(record)
        shown(rows(), record)
    done = rows()
    about = {"backbone": domains.used, "seeds": seeds, "versions": versions()}
    write(Path(out), done, records, about, names)
    return done


def run(method: str, code: str, source: Source, X: Any, truth: np.ndarray, seed: int) -> dict[str, Any]:
    """One system on one task; the labels of the target are used after its last decision."""
    if fingerprint(method) != code:
        raise RuntimeError("its file was changed while the comparison ran; call it again")
    system = get_system(method)(seed)
    times = [time.perf_counter()]
    system.learn(source)
    times.append(time.perf_counter())
    system.adapt(X, None if system.source_free else source)
    times.append(time.perf_counter())
    outcome = system.decide(X)
    times.append(time.perf_counter())
    _check(outcome, len(truth), len(source.classes))
    best = np.asarray(source.classes)[outcome.best]
    predicted = np.where(outcome.known, best, UNKNOWN)
    return {
        **score(truth, predicted, best, outcome.score, source.classes),
        "seconds": dict(zip(("learn", "adapt", "decide"), np.diff(times).round(3).tolist(), strict=True)),
        "parameters": system.parameters,
        "versions": versions(),
    }


def _check(outcome: Outcome, n: int, classes: int) -> None:
    if not isinstance(outcome, Outcome):
        raise RuntimeError(f"decide gives {type(outcome).__name__}, not Outcome")
    if np.asarray(outcome.known).dtype != bool:
        raise RuntimeError("decide gives a known that is not of true and false")
    for name, values in vars(outcome).items():
        if np.shape(values) != (n,):
            raise RuntimeError(f"decide gives {name} of shape {np.shape(values)} for {n} samples")
    if not np.isfinite(outcome.score).all():
        raise RuntimeError("diverged: some scores are not finite")
    if outcome.score.min() < 0 or outcome.score.max() > 1:
        raise RuntimeError("decide gives scores outside [0, 1]")
    if outcome.best.min() < 0 or outcome.best.max() >= classes:
        raise RuntimeError(f"decide gives classes outside 0 … {classes - 1}")


@dataclass(frozen=True)
class Domain:
    """One side of a task: vectors and labels, and the images that they were made of, if they were."""

    samples: Samples
    X: Any
    labels: np.ndarray
    fingerprint: str
    backbone: Backbone | None  # None: vectors from the start

    def as_source(self) -> Source:
        check_source(Samples(X=self.X, labels=self.labels, empty=self.samples.empty))
        classes, y = np.unique(self.labels, return_inverse=True)
        return Source(self.X, y, classes.tolist(), self.samples if self.backbone else None, self.backbone)


class Domains:
    """Domains, each read once and turned into vectors by one backbone."""

    def __init__(self, backbone: str):
        self._name = backbone
        self.used: str | None = None  # name of the backbone, once there were images
        self._read: dict[Any, Domain] = {}

    @cached_property
    def backbone(self) -> Backbone:
        return get_backbone(self._name)

    def read(self, place: Any, classes: Sequence[str] | None, text: str) -> Domain:
        name = (str(place), None if classes is None else tuple(classes))
        if name not in self._read:
            samples = read(place, classes=classes, labelled=True)
            X, content, backbone = samples.X, b"", None
            if samples.paths is not None:
                backbone, self.used = self.backbone, self._name
                found, kept, keys = extract(samples, backbone, text)
                if len(kept) == 0:
                    raise InputError(f"{place}: none of the images can be read")
                samples, X, content = samples[kept], found.X, b"".join(keys)
            assert samples.labels is not None
            digest = hashlib.sha256(content or X.tobytes())
            digest.update("\n".join(samples.labels.tolist()).encode())
            self._read[name] = Domain(samples, X, samples.labels, digest.hexdigest()[:16], backbone)
        return self._read[name]

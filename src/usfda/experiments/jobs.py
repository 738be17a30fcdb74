"""One run: a system with its settings on a task with a seed; and the vectors of the tasks, which all runs share."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..backbones import Backbone, get_backbone
from ..baselines import Outcome, Source, System, fingerprint, get_system
from ..data import Samples, check_source, read
from ..features import extract
from ..metrics import one_shot, score
from ..model import UNKNOWN, versions
from ..protocols import Task
from ..runtime import InputError
from .runs import Job


@dataclass(frozen=True)
class Variant:
    """A system, and those of its settings that are not the default."""

    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def make(self, seed: int = 0) -> System:
        return get_system(self.method)(seed, **self.settings)

    def made(self, record: Mapping[str, Any]) -> bool:
        """Whether the record is of a run of this one."""
        key = record["key"]
        return bool(key["method"] == self.method and key.get("settings", {}) == self.settings)


def jobs_for(tasks: Sequence[Task], variants: Sequence[Variant], seeds: int, domains: Domains) -> list[Job]:
    """All runs; every variant and task once, before any a second time, and what would wait for the same vendor's model
    (the tasks with one source) apart."""
    if seeds < 1:
        raise InputError(f"--seeds is 1 or more, not {seeds}")
    codes = {variant.method: fingerprint(variant.method) for variant in variants}
    jobs = []
    for task in tasks:
        source, target = domains.sides(task)
        labelled = source.as_source(task.negative_classes)
        for seed in range(seeds):
            for variant in variants:
                code = codes[variant.method]
                key = key_of(task, source, target) | {"method": variant.method, "seed": seed, "code": code}
                if variant.settings:
                    key["settings"] = dict(variant.settings)
                jobs.append(Job(key, run, (variant, code, labelled, target.X, target.labels, seed)))
    place = {id(variant): i for i, variant in enumerate(variants)}
    return sorted(jobs, key=lambda j: (j.key["seed"], place[id(j.args[0])], j.key["task"].rpartition("→")[2]))


def key_of(task: Task, source: Domain, target: Domain) -> dict[str, Any]:
    """What every run on a task depends on."""
    key = {
        "task": task.name, "source": source.fingerprint, "target": target.fingerprint,
        "backbone": source.backbone and source.backbone.key, "version": versions()["usfda"],
    }  # fmt: skip
    return key if task.negative_classes is None else key | {"negative_classes": task.negative_classes}


def prepare(jobs: Sequence[Job]) -> None:
    """What the runs would otherwise each wait for, or do at the same time."""
    done = set()
    for job in jobs:
        variant, _, source, *_ = job.args
        name = str(variant), job.key["source"]
        if name not in done:
            done.add(name)
            variant.make().prepare(source)


def run(variant: Variant, code: str, source: Source, X: Any, truth: np.ndarray, seed: int) -> dict[str, Any]:
    """One system on one task; the labels of the target are used after its last decision."""
    if fingerprint(variant.method) != code:
        raise RuntimeError("its file was changed while the comparison ran; call it again")
    system = variant.make(seed)
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
    seconds = dict(zip(("learn", "adapt", "decide"), np.diff(times).round(3).tolist(), strict=True))
    if system.learnt_in is not None:
        seconds["learn"] = round(system.learnt_in, 3)
    record = {
        **score(truth, predicted, best, outcome.score, source.classes),
        "seconds": seconds,
        "parameters": system.parameters,
        "settings": system.settings,
        "backbone": source.backbone and source.backbone.name,
        "versions": versions(),
    }
    if not np.isin(truth, source.classes).any():
        record["one_shot"] = one_shot(system.latent(X), truth).mean
    return record


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

    def as_source(self, negative_classes: int | None = None) -> Source:
        check_source(Samples(X=self.X, labels=self.labels, empty=self.samples.empty))
        classes, y = np.unique(self.labels, return_inverse=True)
        images = self.samples if self.backbone else None
        return Source(self.X, y, classes.tolist(), images, self.backbone, self.fingerprint, negative_classes)


class Domains:
    """Domains, each read once and turned into vectors by one backbone."""

    def __init__(self, backbone: str):
        self._name = backbone
        self.used: str | None = None  # name of the backbone, once there were images
        self._read: dict[Any, Domain] = {}

    @cached_property
    def backbone(self) -> Backbone:
        return get_backbone(self._name)

    def sides(self, task: Task) -> tuple[Domain, Domain]:
        """Source and target of a task, which must go together."""
        source = self.read(task.source, task.source_classes, "source features")
        target = self.read(task.target, task.target_classes, "target features")
        if (source.backbone is None) != (target.backbone is None):
            raise InputError(f"{task.name}: one side has images and the other has features; give both alike")
        if source.X.shape[1] != target.X.shape[1]:
            sizes = f"{source.X.shape[1]} and {target.X.shape[1]}"
            raise InputError(f"{task.name}: source and target have {sizes} dimensions")
        if len(target.labels) < 2:
            raise InputError(f"{task.name}: a target of one sample says nothing about its domain")
        return source, target

    def read(self, place: Any, classes: Sequence[str] | None, text: str) -> Domain:
        name = (
            id(place) if isinstance(place, Samples) else str(place),
            None if classes is None else tuple(classes),
        )
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

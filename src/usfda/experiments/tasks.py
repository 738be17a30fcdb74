"""Benchmark → Task: what is measured on; and the vectors of a task's two sides, each image read once."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..backbones.backbone import Backbone
from ..backbones.zoo import get_backbone
from ..config import Config
from ..data.reading import check_source, read
from ..data.samples import Features, LabelledFeatures, Matrix, Place, Samples
from ..errors import InputError
from ..features.extract import Extractor


@dataclass(frozen=True)
class Task:
    """From a labelled source to a target whose labels only score.

    Parameters
    ----------
    id : str
        By which its records are found again, such as ``office31/open-partial/A-D``.
    name : str
        As it is shown, such as ``A→D``.
    source, target : path, Samples or Features
        A folder, a list, a ``.npz``, or samples; both with labels.
    source_classes, target_classes : sequence of str, optional
        Only samples of these classes.
    negative_classes : int, optional
        The number that the protocol asks for, where it does not use all pairs of classes.
    weights : str, optional
        Weights of the learned decision that were trained without this data.
    """

    id: str
    name: str
    source: str | Path | Samples | Features
    target: str | Path | Samples | Features
    source_classes: Sequence[str] | None = None
    target_classes: Sequence[str] | None = None
    negative_classes: int | None = None
    weights: str | None = None


class Benchmark(ABC):
    """A named set of tasks.

    Attributes
    ----------
    id : str
        The first part of its tasks' identifiers.
    name : str
        As it is shown.
    notes : list of str
        What a reader of results must know about the data.
    differences : list of str
        Where the data is not as it was published.
    """

    id: str
    name: str

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.differences: list[str] = []

    @abstractmethod
    def tasks(self) -> list[Task]:
        """All its tasks."""


def fingerprint(features: LabelledFeatures) -> str:
    """Of the content of the images, or of the vectors where there are none, and of the labels."""
    digest = hashlib.sha256(b"".join(features.keys) if features.keys is not None else np.asarray(features.X).tobytes())
    digest.update("\n".join(features.labels.tolist()).encode(errors="surrogatepass"))
    return digest.hexdigest()[:16]


class TaskReader:
    """Turns both sides of tasks into features.

    An image that is part of several tasks is read, hashed and run through the backbone once. Vectors are held in memory
    as plain arrays that cannot be written to: neither a method nor another process that clears the feature cache can
    change them under a run.
    """

    def __init__(self, backbone: str, config: Config):
        self._name, self._config = backbone, config
        self._sides: dict[Any, tuple[Any, LabelledFeatures]] = {}
        # An image's key, and where its vector is; None where it cannot be read.
        self._seen: dict[Place, tuple[bytes, Matrix, int] | None] = {}

    @cached_property
    def backbone(self) -> Backbone:
        """M, for images."""
        return get_backbone(self._name, self._config.device)

    def backbone_of(self, features: LabelledFeatures) -> Backbone | None:
        """M where the features are those of images; None where they were vectors from the start."""
        return None if features.paths is None else self.backbone

    def read(self, task: Task) -> tuple[LabelledFeatures, LabelledFeatures]:
        """Source and target of a task, both labelled, which must go together."""
        source = self._side(task.source, task.source_classes, "source")
        target = self._side(task.target, task.target_classes, "target")
        for side, features in (("source", source), ("target", target)):
            if len(features) == 0:
                raise InputError(f"{task.name}: none of the images of its {side} can be read")
        if (source.paths is None) != (target.paths is None):
            raise InputError(f"{task.name}: one side has images and the other has features; give both alike")
        if source.X.shape[1] != target.X.shape[1]:
            sizes = f"{source.X.shape[1]} and {target.X.shape[1]}"
            raise InputError(f"{task.name}: source and target have {sizes} dimensions")
        if len(target) < 2:
            raise InputError(f"{task.name}: a target of one sample does not describe its domain")
        check_source(source)
        return source, target

    def _side(self, place: Any, classes: Sequence[str] | None, side: str) -> LabelledFeatures:
        name = (str(place) if isinstance(place, str | Path) else id(place), None if classes is None else tuple(classes))
        if name not in self._sides:
            found = read(place, classes=classes, labelled=True)
            features = self._features(found, f"{side} features") if isinstance(found, Samples) else found
            X = np.asarray(features.X[:], dtype=np.float32)
            X.flags.writeable = False
            self._sides[name] = place, replace(features.labelled(), X=X)  # with its place, whose id must stay its own
        return self._sides[name][1]

    def _features(self, samples: Samples, text: str) -> Features:
        """Vectors of the images that can be read; only those that no task had before are extracted."""
        if new := [i for i, path in enumerate(samples.paths) if path not in self._seen]:
            found = Extractor.make(self.backbone, self._config).features(samples[np.asarray(new)], text)
            self._seen |= dict.fromkeys((samples.paths[i] for i in new), None)
            for row, (path, key) in enumerate(zip(found.paths or (), found.keys or (), strict=True)):
                self._seen[path] = key, found.X, row
        index = [i for i, path in enumerate(samples.paths) if self._seen[path] is not None]
        kept, seen = samples[np.asarray(index, np.int64)], [self._seen[samples.paths[i]] for i in index]
        X = np.empty((len(kept), self.backbone.dim), np.float32)
        keys = []
        for i, (key, vectors, row) in enumerate(filter(None, seen)):
            X[i] = vectors[row]
            keys.append(key)
        assert samples.labels is not None
        assert kept.labels is not None
        lost = tuple(np.setdiff1d(samples.labels, kept.labels).tolist())
        return Features(X, kept.labels, self.backbone.sha256, kept.paths, keys, (*samples.empty, *lost))

"""The service without HTTP: images in, records out; what is kept; the model that serves, and how it changes."""

from __future__ import annotations

import hashlib
import io
import logging
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from PIL import Image as Pillow

from ..config import Config
from ..data.images import decode
from ..data.reading import differing_in_case
from ..data.samples import Features
from ..errors import InputError, UnreadableImage
from ..stages.review import Survey
from ..text import review as review_text
from ..text import service as text
from .adaptation import Adaptation, Task
from .answers import findings_of
from .batching import Batcher
from .kept import Image, InMemory, Kept, OnDisk
from .limits import Limits
from .metrics import Metrics
from .models import Models, Served
from .questions import Asked, Given, Reviewed, take_answers

log = logging.getLogger("usfda")

RECENT = 2000  # kept images that examples of clusters are chosen from
SIDE = 160  # pixels of a small picture
FEWEST_NEW = 2  # images: an update by a single one changes nothing


class Conflict(Exception):
    """The request cannot be done now; the message gives the reason."""


@dataclass(frozen=True)
class Upload:
    """A file of a request: its name, its content and the sha256 of that."""

    name: str
    content: bytes
    key: bytes


class Service:
    """What the routes call. Methods may take a while and may be called by several threads.

    Parameters
    ----------
    model : Path
        The model file to begin with.
    data : Path or None
        Where images and models are kept; without it in memory, until the process ends.
    config : Config
        How to run.
    limits : Limits
        What may be asked and held.
    signed_by : Path, optional
        The key or certificate that the model must be signed with.
    """

    def __init__(self, model: Path, data: Path | None, config: Config, limits: Limits, signed_by: Path | None = None):
        self.limits, self._data, self._threads = limits, data, config.threads
        self.place = "in memory, until it ends" if data is None else f"in {data}"
        with ExitStack() as stack:
            self.models = Models(model, stack.enter_context(_folder(data)), limits.models, signed_by)
            backbone = self.models.backbone
            backbone.run(np.zeros((1, *backbone.size, 3), np.uint8))  # an error now, not at the first image
            seen = self.models.seen
            self.kept: Kept[Any] = (
                InMemory(seen, limits.memory_images, limits.memory_bytes, limits.forgotten)
                if data is None
                else OnDisk(data, backbone, seen, limits.disk_images, limits.disk_bytes, limits.forgotten)
            )
            stack.callback(self.kept.close)
            self.batcher = Batcher(backbone, config.threads, limits.waiting)
            stack.callback(self.batcher.close)
            self.adaptation = Adaptation()
            stack.callback(self.adaptation.end)
            self._open = stack.pop_all()
        self.metrics = Metrics(self)
        self._change = Lock()  # of the model or the adaptation
        self._decoding = Lock()  # one small picture at a time, whatever is asked
        self.picture = lru_cache(maxsize=1024)(self._picture)
        self._looking = Lock()  # likewise for clusters
        self._reviewing = Lock()
        self._asked: Asked | None = None
        self._looked: tuple[Any, Counter[int]] = None, Counter()

    def close(self) -> None:
        """End what runs; after the last request."""
        self._open.close()

    def uploads(self, files: Sequence[tuple[str, bytes]]) -> tuple[list[Upload], dict[bytes, np.ndarray]]:
        """The files of a request, and the vectors of those that are kept already."""
        uploads = [Upload(name, content, hashlib.sha256(content).digest()) for name, content in files]
        if not (there := [upload.key for upload in uploads if upload.key in self.kept]):
            return uploads, {}
        keys, X = self.kept.vectors(there)
        return uploads, dict(zip(keys, X[:], strict=True))

    def answer(
        self, uploads: Sequence[Upload], vectors: Sequence[np.ndarray | UnreadableImage], keep: bool
    ) -> tuple[str, list[dict[str, Any]]]:
        """The sha256 of the model that answers, and a record for each file. What is to be kept is kept by then."""
        served = self.models.current
        good = [
            Image(upload.key, upload.content, vector)
            for upload, vector in zip(uploads, vectors, strict=True)
            if isinstance(vector, np.ndarray)
        ]
        X = np.stack([image.vector for image in good]) if good else np.empty((0, served.model.dim), np.float32)
        decided = served.model.predictions(Features(X))
        records = [
            {"path": upload.name, "error": _reason(vector)}
            if isinstance(vector, UnreadableImage)
            else asdict(replace(next(decided), path=upload.name))
            for upload, vector in zip(uploads, vectors, strict=True)
        ]
        self.metrics.answered(served, [record.get("label") for record in records])
        if keep:
            try:
                self.kept.add(good)
            except (OSError, InputError) as error:  # a full disk is no reason not to answer
                log.warning(text.not_kept(len(good), error))
        return served.entry.sha256, records

    def _picture(self, key: bytes) -> bytes:
        """A kept image as a small JPEG; ``KeyError`` where it is not kept."""
        content = self.kept.content(key)
        if content is None:
            raise KeyError(key)
        with self._decoding:
            image = decode(content, SIDE)
        image.thumbnail((SIDE, SIDE), Pillow.Resampling.BILINEAR)
        image.save(small := io.BytesIO(), "JPEG", quality=80)
        return small.getvalue()

    def describe(self) -> dict[str, Any]:
        """The model that serves, and which of the kept images it takes for each cluster of the unknown."""
        served = self.models.current
        model, counts = served.model, self._clusters(served)
        found = model.findings
        samples = {} if found is None else {cluster.number: cluster.samples for cluster in found.clusters}
        return {
            "hash": served.entry.sha256,
            "classes": model.classes_,
            "card": model.card,
            "findings": None if found is None else findings_of(found),
            "clusters": [
                {"number": c, "images": n, "samples": samples.get(c, 0), "examples": model.examples.get(c, [])}
                for c, n in counts.most_common()
            ],
            "earlier": self.models.earlier,
        }

    def _clusters(self, served: Served) -> Counter[int]:
        """How many of the latest kept images are in each cluster; the model's examples are of them from now on."""
        with self._looking:
            state = served.entry.sha256, self.kept.arrived
            if self._looked[0] != state:
                keys, X = self.kept.vectors([key for key, _ in self.kept.places(RECENT)])
                counts: Counter[int] = Counter()
                if keys and (decided := served.model.decide(X)).cluster is not None:
                    served.model.find_examples(Features(X, paths=[Path(key.hex()) for key in keys]), decided)
                    counts.update(c for c in decided.cluster.tolist() if c)
                self._looked = state, counts
            return self._looked[1]

    def status(self) -> dict[str, Any]:
        """How far the adaptation is, and what it found."""
        now = self.adaptation
        return {
            "state": now.state,
            "progress": now.progress,
            "findings": None,
            "comparison": None,
            **now.found,
            "kept": len(self.kept),
            "needed": self.limits.needed,
        }

    def start(self) -> None:
        """Adapt to the kept images: a model that was adapted before, to those that are new to it."""
        with self._change:
            if self.adaptation.state == "running":
                raise Conflict(text.RUNNING)
            places = sorted((place for _, place in self.kept.places()), key=lambda place: place.number)
            if len(places) < self.limits.needed:
                raise Conflict(text.too_few(len(places), self.limits.needed))
            served = self.models.current
            new = sum(place.number > served.entry.seen for place in places)
            update = served.model.head.updatable
            if update and new < FEWEST_NEW:  # the others would count twice
                raise Conflict(text.too_few_new(new, FEWEST_NEW))
            target = self.kept.target(places)
            self.kept.seen = places[-1].number
            self.adaptation.end()
            self.adaptation.start(
                Task(
                    self.models.file(),
                    self.models.candidate,
                    [str(path) for path in target.paths or ()],
                    len(places) - new if update else 0,
                    places[-1].number,
                    target.X[:] if isinstance(target, Features) else None,
                    self._data,
                    max(1, self._threads // 2),
                )
            )
            log.info(text.begins(new if update else len(places)))

    def accept(self) -> str:
        """Let the adapted model serve; its sha256."""
        with self._change:
            if self.adaptation.state != "ready":
                raise Conflict(text.NOT_READY)
            served = self.models.accept(self.adaptation.seen)
            self.adaptation.end()
        return self._now_serving(served, "was adapted")

    def discard(self) -> None:
        """Forget the adaptation."""
        with self._change:
            if self.adaptation.state == "idle":
                raise Conflict(text.NO_ADAPTATION)
            self.adaptation.end()
        log.info(text.DISCARDED)

    def rollback(self, model: str | None = None) -> str:
        """Let the model before the present one serve again; its sha256. ``model`` is that of the one to give up."""
        with self._change:
            self._check_settled()
            self._check_serving(model, "look at it, then ask again")
            if not self.models.earlier:
                raise Conflict(text.NO_EARLIER)
            return self._now_serving(self.models.rollback(), "was there before")

    def teach(self, names: Mapping[int, str], model: str | None = None) -> tuple[str, list[str], list[str]]:
        """Give clusters of the unknown the names of classes; the sha256 of the model, its classes, and warnings.

        ``model`` is the sha256 of the model whose clusters are meant: another one numbers them otherwise.
        """
        from ..stages.teach import teach  # which needs SciPy

        with self._change:
            self._check_settled()
            self._check_serving(model, "look at its clusters again")
            if not self.models.current.model.head.updatable:
                raise Conflict(text.NO_CLUSTERS)
            known = self.models.current.model.classes_
            served = self.models.add(teach(self.models.current.model, names=names))
        warnings = [  # as of teach itself, but with what can be done here
            text.similar_name(name, other)
            for name, other in differing_in_case(sorted({*names.values()} - {*known}), known).items()
        ]
        return self._now_serving(served, text.taught(names, known)), served.model.classes_, warnings

    def review(self) -> Asked:
        """The review of the model that serves, on the kept images: the same questions until it ends."""
        with self._reviewing:
            served = self.models.current
            if self._asked is None or self._asked.model != served.entry.sha256:
                if not served.model.adapted:
                    raise Conflict(review_text.NOT_ADAPTED)
                keys, X = self.kept.vectors([key for key, _ in self.kept.places(RECENT)])
                if len(keys) < self.limits.needed:
                    raise Conflict(review_text.too_few(len(keys), self.limits.needed))
                survey = Survey(served.model, Features(X, paths=[Path(key.hex()) for key in keys]))
                self._asked = Asked(served.entry.sha256, survey, survey.questions())
            return self._asked

    def answered(self, given: Given) -> Reviewed:
        """Keep answers; at the end of the review its model serves."""
        with self._change:
            asked = self.review()
            take_answers(asked.survey, asked.questions, given, asked.answers)
            if not given.finish:
                return Reviewed(answered=len(asked.answers))
            self._check_settled()
            answers = [(one, asked.answers.get(one.row, "skip")) for one in asked.questions]
            served = self.models.add(asked.survey.finish(answers))
        sha256 = self._now_serving(served, review_text.REVIEWED)
        lines = review_text.result(f"model {sha256[:12]}", served.model.deployment["review"])
        return Reviewed(answered=len(asked.answers), result=lines)

    def _now_serving(self, served: Served, why: str) -> str:
        log.info(text.now_serving(served.entry.sha256, why))
        return served.entry.sha256

    def _check_settled(self) -> None:
        if self.adaptation.state in ("running", "ready"):
            raise Conflict(text.UNDECIDED)

    def _check_serving(self, model: str | None, what_to_do: str) -> None:
        if model not in (None, self.models.current.entry.sha256):
            raise Conflict(text.other_model(what_to_do))


@contextmanager
def _folder(data: Path | None) -> Iterator[Path]:
    """Where models are written: in the folder of the data, for one service at a time, or in one that is removed."""
    if data is None:
        with tempfile.TemporaryDirectory(prefix="usfda-") as folder:
            yield Path(folder)
        return
    lock = FileLock(data / "lock", thread_local=False)  # it is released by another thread
    try:
        data.mkdir(0o700, parents=True, exist_ok=True)  # what is sent is for nobody else's eyes
        lock.acquire(timeout=0)
    except Timeout:
        raise InputError(f"{data}: another service uses it; give each one a folder of its own") from None
    except OSError as error:
        raise InputError(f"{data}: cannot be written ({error.strerror}); give another folder with --data") from None
    try:
        yield data
    finally:
        lock.release()


def _reason(error: UnreadableImage) -> str:
    """Why an image cannot be read; a library's own message may leak something of the inside."""
    return str(error) if error.__cause__ is None else text.DAMAGED

"""Metrics for Prometheus: requests, images, the share that is called unknown, the queue, the model, the adaptation."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Enum,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    generate_latest,
)

from ..data.reading import UNKNOWN
from .adaptation import STATES
from .models import Served

if TYPE_CHECKING:
    from .service import Service

RECENT = 1000  # images that the share of unknowns is taken over
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """Counters and gauges of a service."""

    def __init__(self, service: Service):
        self._service = service
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._requests = Counter(
            "usfda_requests", "Requests, by route, method and status.", ["route", "method", "status"], registry=registry
        )
        self._seconds = Histogram(
            "usfda_request_seconds", "From the head of a request to its answer.", ["route"], buckets=SECONDS,
            registry=registry,
        )  # fmt: skip
        self._images = Counter(
            "usfda_images", "Images, by answer: known, unknown or unreadable.", ["answer"], registry=registry
        )
        for answer in ("known", "unknown", "unreadable"):
            self._images.labels(answer)
        Gauge(
            "usfda_unknown_share", f"Share called unknown of the last {RECENT} images that this model answered.",
            registry=registry,
        ).set_function(self._unknown_share)  # fmt: skip
        Gauge("usfda_queue_images", "Images that wait for their vector.", registry=registry).set_function(
            lambda: service.batcher.waiting
        )
        Gauge("usfda_kept_images", "Images that are kept.", registry=registry).set_function(lambda: len(service.kept))
        self._model = Info("usfda_model", "The model that serves.", registry=registry)
        self._state = Enum("usfda_adaptation", "What the adaptation is doing.", states=list(STATES), registry=registry)
        self._lock = Lock()
        self._recent: deque[bool] = deque(maxlen=RECENT)
        self._of = ""

    def answered(self, served: Served, labels: Sequence[str | None]) -> None:
        """Count answers: labels, and None where an image could not be read."""
        with self._lock:
            if self._of != served.entry.sha256:  # the share is that of one model
                self._of = served.entry.sha256
                self._recent.clear()
            for label in labels:
                if label is None:
                    self._images.labels("unreadable").inc()
                    continue
                self._images.labels("unknown" if label == UNKNOWN else "known").inc()
                self._recent.append(label == UNKNOWN)

    def requested(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(route, method, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        """In Prometheus' format."""
        self._model.info({"sha256": self._service.models.current.entry.sha256})
        self._state.state(self._service.adaptation.state)
        return generate_latest(self._registry)

    def _unknown_share(self) -> float:
        with self._lock:
            return sum(self._recent) / len(self._recent) if self._recent else 0.0

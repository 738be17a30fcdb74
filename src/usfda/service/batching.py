"""Images become vectors as they arrive: decoded in some threads, run through M in others, in batches of what is there.

Nothing waits for a batch to fill: a thread of M takes its share of the images that are prepared, one or many.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from queue import Empty, Queue
from threading import Condition, Lock, Thread

import numpy as np

from ..backbones.backbone import Backbone
from ..errors import InputError, UnreadableImage

AHEAD = 2  # batches that are prepared for each thread of M: more would only hold memory
ON_CPU = 4  # images in a batch: a core runs 103 images a second one by one, 99 by fours, 85 by sixteens

Vector = Future[np.ndarray]
Job = tuple[bytes, Vector]


class Busy(Exception):
    """More images wait than the service may hold."""


class Turns:
    """Jobs of several requests, one of each in turn, so that a small request does not wait for a large one."""

    def __init__(self) -> None:
        self._requests: deque[deque[Job]] = deque()
        self._changed = Condition()
        self._closed = False

    def put(self, jobs: Sequence[Job]) -> None:
        """Add the jobs of a request."""
        with self._changed:
            self._requests.append(deque(jobs))
            self._changed.notify(len(jobs))

    def get(self) -> Job | None:
        """The next job, as soon as there is one; None when there is none and there will be none."""
        with self._changed:
            while not self._requests and not self._closed:
                self._changed.wait()
            if not self._requests:
                return None
            request = self._requests.popleft()
            job = request.popleft()
            if request:
                self._requests.append(request)
            return job

    def close(self) -> None:
        """Nothing more will come."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class Batcher:
    """Turns the images of all requests into vectors.

    Parameters
    ----------
    backbone : Backbone
        M.
    threads : int
        So many images are decoded, and so many batches run, at the same time.
    most : int
        Images that may wait.
    """

    def __init__(self, backbone: Backbone, threads: int, most: int):
        self.backbone, self.most = backbone, most
        self.waiting = 0
        self._lock = Lock()
        self._turns = Turns()
        on_cpu = backbone.providers[0] == "CPUExecutionProvider"
        self.batch = min(backbone.batch_size, ON_CPU) if on_cpu else backbone.batch_size
        self._prepared: Queue[tuple[np.ndarray, Vector] | None] = Queue(AHEAD * threads * self.batch)
        self._decoders = [Thread(target=self._decode, daemon=True) for _ in range(threads)]
        self._runners = [Thread(target=self._run, daemon=True) for _ in range(threads)]
        for thread in self._decoders + self._runners:
            thread.start()

    def submit(self, contents: Sequence[bytes]) -> list[Vector]:
        """A vector for each image, in the future, or ``UnreadableImage``."""
        with self._lock:
            if self.waiting + len(contents) > self.most:
                raise Busy
            self.waiting += len(contents)
        jobs: list[Job] = [(content, Future()) for content in contents]
        for _, vector in jobs:
            vector.add_done_callback(self._finished)
        if jobs:
            self._turns.put(jobs)
        return [vector for _, vector in jobs]

    def close(self) -> None:
        """Finish what there is, and end."""
        self._turns.close()
        for thread in self._decoders:
            thread.join()
        for _ in self._runners:
            self._prepared.put(None)
        for thread in self._runners:
            thread.join()

    def _finished(self, vector: Vector) -> None:
        with self._lock:
            self.waiting -= 1

    def _decode(self) -> None:
        while job := self._turns.get():
            content, vector = job
            if not vector.set_running_or_notify_cancel():
                continue
            try:
                image = self.backbone.prepare(content)
            except Exception as error:
                vector.set_exception(error)
            else:
                self._prepared.put((image, vector))

    def _run(self) -> None:
        while first := self._prepared.get():
            batch = [first]
            share = min(self.batch, 1 + self._prepared.qsize() // len(self._runners))
            try:
                while len(batch) < share:
                    if (more := self._prepared.get_nowait()) is None:
                        self._prepared.put(None)  # meant for a thread that has nothing else to do
                        break
                    batch.append(more)
            except Empty:
                pass
            self._give(batch)

    def _give(self, batch: list[tuple[np.ndarray, Vector]]) -> None:
        try:
            X = self.backbone.run(np.stack([image for image, _ in batch]))
        except InputError:  # no finite vector: alone, so that one image does not take others with it
            if len(batch) > 1:
                for one in batch:
                    self._give([one])
                return
            batch[0][1].set_exception(UnreadableImage("the model's backbone has no vector for it"))
        except Exception as error:
            for _, vector in batch:
                vector.set_exception(error)
        else:
            for (_, vector), x in zip(batch, X, strict=True):
                vector.set_result(x)

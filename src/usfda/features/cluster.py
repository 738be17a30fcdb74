"""The work of an extraction on a Ray cluster: paths go out, vectors come back, and this process alone writes them down.

A batch of items is a row of a Ray dataset, a few batches are a task, and workers with a core each take tasks as they
can. Where a worker is killed, Ray starts another one and gives it the task again; a task's results count once. What a
run that was killed as a whole has stored is known to the next one, whose workers get the keys of the cache.
"""

from __future__ import annotations

import logging
import os
import pickle
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from . import jobs
from .cache import KEY, FeatureCache
from .engines import batches
from .jobs import Done, Job

log = logging.getLogger("usfda")

TASK = 4  # batches of a task: about a second's work; less costs more in handing out, more is lost with a worker
TASKS = 10_000  # at most, so that the list of them stays small; of a large data set each is larger


@dataclass(frozen=True)
class Ray:
    """A Ray cluster, by its address, or one on this machine that lasts as long as this process.

    Parameters
    ----------
    threads : int
        Workers of a cluster that is started here, each with one core.
    address : str or None
        Of a cluster that runs already, as for ``ray.init``; all of its cores are used. Without it ``RAY_ADDRESS``
        counts, and without that, one is started.
    """

    threads: int
    address: str | None

    def run(self, job: Job, items: Sequence[Any], index: Sequence[int], cache: FeatureCache | None) -> Iterator[Done]:
        """As every engine; what the cache had at the beginning is known."""
        if not len(index):
            return
        ray = self.connect()
        size = job.backbone.batch_size
        rows = [pickle.dumps([(i, items[i]) for i in batch]) for batch in batches(index, size)]
        tasks = min(-(-len(rows) // TASK), TASKS)
        gpu = job.backbone.device == "cuda"
        workers = max(1, min(tasks, int(ray.cluster_resources().get("GPU" if gpu else "CPU", 1))))
        known = None if cache is None else cache.keys()
        # Both go to the workers by reference; they must last as long as a worker may have to be replaced.
        references = ray.put(job), ray.put(known)
        data = ray.data.from_items(rows, override_num_blocks=tasks).map(
            Worker,
            fn_constructor_args=(*references, str(Path.cwd()), version("usfda")),
            compute=ray.data.ActorPoolStrategy(min_size=1, initial_size=workers, max_size=tasks),
            num_cpus=1,
            num_gpus=1 if gpu else None,
        )
        data.context.execution_options.preserve_order = True
        try:
            for table in data.iter_batches(batch_size=None, batch_format="pyarrow"):
                for done in map(pickle.loads, table["done"].to_pylist()):
                    if isinstance(done, Exception):
                        raise done
                    yield done if cache is None else _fresh(done, cache)
        except ray.exceptions.RayError as error:  # whose message is a long trace, and the reason stands last
            reason = str(error).strip().split("\n")[-1]
            raise RuntimeError(
                f"the Ray cluster failed ({reason}); the same command goes on from what is stored"
            ) from error
        del references

    def connect(self) -> Any:
        """Ray, connected: to the cluster that this process uses already, to the given one, or to one that it starts."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        if not log.isEnabledFor(logging.DEBUG):
            os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # what is an error to us comes as an exception
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # or Ray warns that it will change
        address = self.address or os.environ.get("RAY_ADDRESS") or "local"
        if address == "local" and "RAY_AUTH_MODE" not in os.environ:
            # Ray listens on all interfaces, and every client of it may run any code.
            os.environ["RAY_AUTH_MODE"], os.environ["RAY_AUTH_TOKEN"] = "token", secrets.token_hex(32)
        try:
            import ray
            import ray.data
        except ImportError:
            raise InputError("engine ray needs: pip install 'usfda[ray]'") from None
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        ray._private.worker._worker_logs_enabled = False  # it reports killed workers on stdout, where results go
        ray.data.DataContext.get_current().enable_progress_bars = False
        if not ray.is_initialized():
            own: dict[str, Any] = {"num_cpus": self.threads, "include_dashboard": False} if address == "local" else {}
            try:
                ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **own)
            except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
                reason = str(error).strip().split("\n")[0][:200]
                raise InputError(
                    f"address {address}: no Ray cluster can be used there ({reason}); does it run, and do "
                    "RAY_AUTH_MODE and RAY_AUTH_TOKEN stand for its token?"
                ) from None
        return ray


class Worker:
    """What a worker holds: the job with its backbone, and the keys of the cache as it was."""

    def __init__(self, job: Any, known: Any, folder: str, release: str):
        import ray

        with suppress(OSError):  # for relative paths; where there is no such folder, they are reported as missing
            os.chdir(folder)
        self._job: Job = ray.get(job)
        self._keys: np.ndarray | None = ray.get(known)
        self._release = release

    def __call__(self, row: dict[str, Any]) -> dict[str, bytes]:
        """Results of a batch, or the error that ends the run: pickled, so that it reaches the caller as it is."""
        try:
            if (other := version("usfda")) != self._release:
                raise InputError(f"a worker has usfda {other}, this machine {self._release}; install the same")
            done: Done | Exception = jobs.run(self._job, pickle.loads(row["item"]), self._known)
        except Exception as error:
            done = error
        return {"done": pickle.dumps(done)}

    def _known(self, keys: list[bytes]) -> np.ndarray:
        wanted = np.asarray(keys, dtype=f"S{KEY}")
        if self._keys is None or not len(self._keys):
            return np.zeros(len(keys), bool)
        place = np.searchsorted(self._keys, wanted)
        found: np.ndarray = self._keys[np.minimum(place, len(self._keys) - 1)] == wanted
        return found


def _fresh(done: Done, cache: FeatureCache) -> Done:
    """Without what has been stored since: two workers may have met the same content."""
    new = cache.find(done.new)[0] < 0
    return Done(done.keys, done.errors, [key for key, is_new in zip(done.new, new, strict=True) if is_new], done.X[new])

"""Run → Record: a method with its settings on a task with a seed, and what an experiment measures of it."""

from __future__ import annotations

import json
import subprocess
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from threadpoolctl import threadpool_limits

from ..backbones.backbone import Backbone
from ..config import Config, available_cores
from ..data.samples import LabelledFeatures
from ..methods.decision import Decision
from ..metrics import one_shot, score_decision
from ..model import versions
from .baselines import baseline_version, get_baseline
from .baselines.api import Baseline

# One line of runs.jsonl: the run's ``key``, and what was measured; or ``error`` and ``trace`` where the run failed.
Record = dict[str, Any]


class Experiment:
    """Something that is measured by runs.

    Attributes
    ----------
    name : str
        Part of the key of its records.
    version : int
        Likewise. Raise it when what the experiment measures changes: its finished runs are then repeated.
    one_at_a_time : bool
        Whether its runs go one by one, each with all threads, as where seconds are measured.
    """

    name: ClassVar[str]
    version: ClassVar[int]
    one_at_a_time: ClassVar[bool] = False

    def depends_on(self, config: Config) -> dict[str, Any]:
        """What its records depend on besides data, method, settings and seed."""
        return {}

    def measure(self, baseline: Baseline, source: LabelledFeatures, target: LabelledFeatures) -> dict[str, Any]:
        """One run: what goes into its record.

        The method sees no label of the target; they are used after its last decision.
        """
        X, truth = target.X, target.labels
        assert truth is not None
        times = [time.perf_counter()]
        baseline.learn(source)
        times.append(time.perf_counter())
        baseline.adapt(X, None if baseline.source_free else source)
        times.append(time.perf_counter())
        decision = baseline.decide(X)
        times.append(time.perf_counter())
        check_decision(decision, len(truth), len(source.classes))
        seconds = dict(zip(("learn", "adapt", "decide"), np.diff(times).round(3).tolist(), strict=True))
        if baseline.learning_seconds is not None:
            seconds["learn"] = round(baseline.learning_seconds, 3)
        record = {
            **score_decision(truth, decision, source.classes),
            "seconds": seconds,
            "parameters": baseline.parameters,
            **circumstances(baseline),
        }
        if (check := baseline.check()) is not None:
            record["check"] = check
        if not np.isin(truth, source.classes).any():
            record["one_shot"] = one_shot(baseline.latent(X), truth).mean
        return record


def circumstances(baseline: Baseline) -> dict[str, Any]:
    """How a record came about."""
    import torch

    gpu = "a GPU" if torch.cuda.is_available() and baseline.config.device != "cpu" else "no GPU"
    return {
        "settings": baseline.all_settings(),
        "backbone": baseline.backbone and baseline.backbone.name,
        "weights": baseline.weights,
        "versions": versions(),
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit(),
        "hardware": f"{available_cores()} cores, {gpu}",
    }


@cache
def commit(root: Path = Path(__file__).parents[3]) -> str | None:
    """The commit of the checkout that this code runs from, with + where files differ from it; None where it is none."""
    if (root / ".git").exists():
        command = ["git", "-C", str(root), "describe", "--always", "--exclude=*", "--dirty=+"]
        with suppress(OSError, subprocess.CalledProcessError):  # no git; or it may not read what another user owns
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return None


def check_decision(decision: Decision, n: int, classes: int) -> None:
    """Raise an error where a method's decision for n samples is not what it should be."""
    if not isinstance(decision, Decision):
        raise RuntimeError(f"decide gives {type(decision).__name__}, not Decision")
    if np.asarray(decision.known).dtype != bool:
        raise RuntimeError("decide gives a known that is not of true and false")
    for name in ("best", "known", "score"):
        if (shape := np.shape(getattr(decision, name))) != (n,):
            raise RuntimeError(f"decide gives {name} of shape {shape} for {n} samples")
    if not np.isfinite(decision.score).all():
        raise RuntimeError("diverged: some scores are not finite")
    if decision.score.min() < 0 or decision.score.max() > 1:
        raise RuntimeError("decide gives scores outside [0, 1]")
    if decision.best.min() < 0 or decision.best.max() >= classes:
        raise RuntimeError(f"decide gives classes outside 0 … {classes - 1}")


@dataclass(frozen=True)
class Run:
    """A method with its settings on a task with a seed, for an experiment.

    Parameters
    ----------
    experiment : Experiment
        Measures it.
    key : dict
        All that its record depends on: ``experiment``, ``task``, ``baseline``, ``settings``, ``seed``, fingerprints of
        the data, versions.
    source, target : LabelledFeatures
        The vectors, both labelled.
    backbone : Backbone or None
        M, where the vectors are those of images.
    """

    experiment: Experiment
    key: Mapping[str, Any]
    source: LabelledFeatures
    target: LabelledFeatures
    backbone: Backbone | None

    def baseline(self, config: Config) -> Baseline:
        """The method at the beginning of the run."""
        name = self.key["method"]
        if baseline_version(name) != self.key["method_version"]:
            raise RuntimeError("its file was changed while the comparison ran; call it again")
        return get_baseline(name)(self.key["seed"], config, self.backbone, **self.key["settings"])

    def execute(self, config: Config) -> str:
        """Do the run.

        Returns
        -------
        str
            The record, as one line of JSON. A failure is a record too, whatever the method does: it raises an error, it
            ends Python, it reports what JSON cannot hold. Only Ctrl-C gets through.
        """
        try:
            with threadpool_limits(config.threads):  # also for what scikit-learn and BLAS would use
                measured = self.experiment.measure(self.baseline(config), self.source, self.target)
            return to_line({"key": self.key, **measured})
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return self.failed(error)

    def failed(self, error: BaseException | str) -> str:
        """The record of a run that failed, as one line of JSON."""
        if isinstance(error, str):
            return to_line({"key": self.key, "error": error})
        said = " ".join("".join(traceback.format_exception_only(error)).split())
        name = type(error).__name__
        said = name + said.partition(name)[2]  # without its module
        return to_line({"key": self.key, "error": said, "trace": "".join(traceback.format_exception(error))})


def to_line(record: Mapping[str, Any]) -> str:
    """A record as one line of JSON, in ASCII: numbers of NumPy become plain, all else that JSON lacks is an error."""
    return json.dumps(record, default=_plain, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"JSON cannot hold a {type(value).__name__}")


def key_name(key: Mapping[str, Any]) -> str:
    """A key as a text, by which keys are compared."""
    return json.dumps(key, sort_keys=True)

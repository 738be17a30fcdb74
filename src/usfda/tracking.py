"""What a stage did, to those who keep records of experiments: losses, findings and settings go to a tracker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from .errors import InputError
from .model import Model

TRACKERS = ("tensorboard:FOLDER", "mlflow")


def get_tracker(name: str) -> Callable[[Model], None]:
    """A function that sends the last stage of a model to ``tensorboard:FOLDER`` or ``mlflow``.

    MLflow writes where its own settings say (``MLFLOW_TRACKING_URI``, the active experiment and run).

    >>> get_tracker("tensorboard:runs/first")(model)     # doctest: +SKIP
    """
    kind, _, folder = name.partition(":")
    if kind == "tensorboard" and folder:
        return _tensorboard(folder)
    if name == "mlflow":
        return _mlflow()
    raise InputError(f"no tracker {name!r}; choose from {', '.join(TRACKERS)}")


def _stage(model: Model) -> tuple[str, dict[str, Any]]:
    if model.adapted:
        return "deployment", dict(model.deployment)
    return "procurement", dict(model.card["procurement"])


def _series(model: Model) -> Iterator[tuple[str, list[float]]]:
    """Losses, step by step, and all single numbers of the card, by their path in it."""
    stage, card = _stage(model)
    for name, values in card.get("history", {}).items():
        yield f"{stage}/{name}", values
    for name, value in _numbers(card, stage):
        yield name, [value]


def _numbers(values: dict[str, Any], prefix: str) -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, dict) and name not in ("settings", "history", "versions"):
            yield from _numbers(value, f"{prefix}/{name}")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}/{name}", float(value)


def _tensorboard(folder: str) -> Callable[[Model], None]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InputError("tracking with TensorBoard needs: pip install 'usfda[track]'") from None

    def send(model: Model) -> None:
        with SummaryWriter(folder) as writer:
            for name, values in _series(model):
                for step, value in enumerate(values):
                    writer.add_scalar(name, value, step)

    return send


def _mlflow() -> Callable[[Model], None]:
    try:
        import mlflow
        from mlflow.entities import Metric, Param
    except ImportError:
        raise InputError("tracking with MLflow needs: pip install 'usfda[track]'") from None

    def send(model: Model) -> None:
        stage, card = _stage(model)
        said = {"stage": stage, "method": card["method"], "seed": card["seed"], **card["settings"]}
        now = int(1000 * time.time())
        metrics = [Metric(name, v, now, step) for name, values in _series(model) for step, v in enumerate(values)]
        with mlflow.start_run(nested=mlflow.active_run() is not None) as run:
            client, here = mlflow.MlflowClient(), run.info.run_id
            client.log_batch(here, params=[Param(name, str(value)) for name, value in said.items()])
            for start in range(0, len(metrics), 1000):  # as many as one call may have
                client.log_batch(here, metrics[start : start + 1000])

    return send

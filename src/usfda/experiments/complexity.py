"""Learnable parameters and seconds of procurement, deployment and UAN."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ..backbones import Backbone
from ..baselines import Source, get_system
from ..baselines.usfda import settings_for
from ..data import Samples
from ..deployment import adapt
from ..features import extract
from ..model import versions
from ..networks import D, learnable, make_f, make_g
from ..procurement import procure
from ..runtime import runtime
from .figures import beside
from .jobs import Domain
from .reproduce import Lab, Result
from .tables import figure

# Stage to what the paper prints: learnable parameters, seconds.
STAGES = {
    "procurement": ("11.1 M", 380.0),
    "deployment, `paper`": ("3.5 M", 44.0),
    "deployment, `usfda`": ("–", None),
    "UAN": ("26.7 M", 450.0),
}


def complexity(lab: Lab) -> Result:
    """Runs one after the other, each with all threads and an empty store, so that M's seconds are measured, too."""
    found, pair = lab.task()
    task = found.task(pair)
    source, target = lab.domains.sides(task)
    records = lab.measure(task, measure, [{"threads": runtime.threads}], in_turn=True)
    rows, body = [], []
    papers_own = found.name == "Office-31"
    training, whole, printed = [], [], []
    for stage, (printed_parameters, printed_seconds) in STAGES.items():
        parameters, seconds = (printed_parameters, printed_seconds) if papers_own else ("–", None)
        mine = [r["stages"][stage] for r in records]
        m, own = (figure([part[name] for part in mine]) for name in ("features", "training"))
        printed.append(figure([] if seconds is None else [seconds]))
        training.append(own)
        whole.append(figure([part["features"] + part["training"] for part in mine]))
        learnt = mine[0]["parameters"]
        shown = "–" if seconds is None else f"{seconds:.0f}"
        body.append([stage, f"{learnt / 1e6:.2f} M", str(m), str(own), parameters, shown])
        rows.append(
            {
                "stage": stage.replace("`", ""), "parameters": learnt, "seconds_of_M": m.mean,
                "seconds_of_training": own.mean, "seconds_of_training_deviation": own.deviation,
                "paper_parameters": parameters, "paper_seconds": seconds,
            }
        )  # fmt: skip
    width, classes = source.X.shape[1], len(np.unique(source.labels))
    pairs = records[0]["negative_classes"]
    at_2048 = [learnable(make_f(2048), make_g(2048), D(classes, pairs)) / 1e6, learnable(make_f(2048)) / 1e6]
    text = [
        f"{found.name} {task.name}: {len(source.labels)} source images, {len(target.labels)} target images, "
        f"{classes} classes, vectors of {width} dimensions; {runtime.threads} threads of a CPU, {lab.seeds} seeds, one "
        "run at a time. Seconds of M include decoding and, in procurement, the composites; a second run takes them "
        "from the store.",
        f"With ResNet-50's 2048 dimensions our networks have {at_2048[0]:.1f} M parameters in procurement and "
        f"{at_2048[1]:.1f} M in deployment (the paper: 11.1 M and 3.5 M). The paper's 26.7 M of UAN include the "
        "ResNet-50 that it trains; ours learns on frozen vectors. Its seconds are of other hardware.",
    ]
    head = ["stage", "learnable", "M, s", "training, s", "paper: learnable", "paper: s"]
    series = {"training": training, "with M": whole, "paper": printed}
    picture = beside([stage.replace("`", "") for stage in STAGES], {"seconds": series}, "seconds")
    return Result(
        f"Complexity: {found.name} {task.name}", text, {"Parameters and seconds": (head, body)}, rows, picture
    )


def measure(source: Source, target: Domain, seed: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """One run of every stage, from images."""
    assert source.samples is not None
    assert source.backbone is not None
    with TemporaryDirectory() as folder:
        runtime.cache = Path(folder)
        model = procure(source.samples, backbone=source.backbone, seed=seed, settings=settings_for(source))
        card = model.card["procurement"]
        stages = {"procurement": _stage(card)}
        for method in ("paper", "usfda"):
            adapted = adapt(model, target.samples, method=method, seed=seed)
            stages[f"deployment, `{method}`"] = _stage(adapted.card["deployment"])
        # The second deployment found the vectors in the store.
        stages["deployment, `usfda`"]["features"] = stages["deployment, `paper`"]["features"]
        stages["UAN"] = _uan(source, target.samples, source.backbone, seed)
    return {
        "stages": stages,
        "negative_classes": card["negatives"]["classes"],
        "settings": {"procurement": card["settings"], **given},
        "backbone": source.backbone.name,
        "versions": versions(),
    }


def _stage(card: dict[str, Any]) -> dict[str, float]:
    return {"parameters": card["learnable_parameters"], **card["seconds"]}


def _uan(source: Source, target: Samples, backbone: Backbone, seed: int) -> dict[str, float]:
    """It has no stage without the source: M's seconds are those of both sides, without composites."""
    assert source.samples is not None
    with TemporaryDirectory() as folder:
        runtime.cache = Path(folder)
        started = time.perf_counter()
        X_s, X_t = extract(source.samples, backbone)[0].X, extract(target, backbone)[0].X
        extracted = time.perf_counter()
        system = get_system("uan")(seed)
        system.adapt(X_t, Source(X_s, source.y, source.classes))
        done = time.perf_counter()
    return {"parameters": system.parameters, "features": extracted - started, "training": done - extracted}

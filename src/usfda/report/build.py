"""The data of a report: a model and a target in, plain data out, and with ``page`` a file."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from ..config import Config
from ..data.reading import read, read_target
from ..data.samples import Features
from ..files import atomic_write
from ..methods.decision import Decision, ProbabilisticDecision, accept
from ..methods.findings import Findings
from ..metrics import reliability, score_decision
from ..model import Model, as_model, versions
from ..text import findings as of_findings
from ..text import report as text
from ..text.commands import next_steps
from ..text.evaluation import MEANINGS
from .embedding import embed
from .page import page
from .pictures import thumbnails

log = logging.getLogger("usfda")

MOST = 20_000  # samples that a page shows: with their pictures some 26 MB, which a browser still shows at once
GRID = 1000  # steps of the map in each direction
POINTS = 240  # of a training curve


def write_report(
    model: Model | str | Path,
    target: Any,
    path: str | Path,
    *,
    labelled: bool = False,
    model_name: str = "client.usfda",
    target_name: str | Sequence[str] | None = None,
    config: Config | None = None,
) -> None:
    """Write what a model makes of a target as one HTML file that works from disk, without a network.

    Parameters
    ----------
    model : Model or path
        Adapted or not.
    target : path, sequence of paths, array, Samples or Features
        Images, or vectors, which have no pictures unless they know their images, as those of ``Model.features`` do.
    path : str or Path
        The file to write.
    labelled : bool
        Read the target's labels, and show metrics. Without it labels are not looked at.
    model_name : str
        The model's file, for the lines to copy, where it is not given by its path.
    target_name : str or sequence of str, optional
        What to call the target, or its parts, where it is not given by its place.
    config : Config, optional
        How to run.

    Examples
    --------
    >>> write_report(model, "new-photos/", "report.html")            # doctest: +SKIP
    """
    if isinstance(model, str | Path):
        model_name = str(model)
    model = as_model(model)
    if target_name is None:
        target_name = str(target) if isinstance(target, str | os.PathLike) else "target"
    config = config or Config()
    found = read(target, labelled=True) if labelled else read_target(target)
    features = model.features(found, config=config, text="target features")
    total, rows = len(features), np.arange(len(features))
    if total > MOST:
        rows = np.sort(np.random.default_rng(0).choice(total, MOST, replace=False))
        log.warning(text.drawn(MOST, total))
        features = features[rows]
    names = [target_name] if isinstance(target_name, str) else list(target_name)
    data = report_data(model, features, model_name, names, config)
    if total > MOST:
        if features.paths is None:
            data["samples"]["name"] = [f"row {i}" for i in rows.tolist()]
        data["answers"].append(text.drawn(MOST, total))
    if lost := features.skipped:
        data["answers"].append(text.unreadable([str(place) for place in lost]))
    content = page(data)
    with atomic_write(Path(path)) as file:
        file.write(content)


def report_data(
    model: Model, features: Features, model_name: str, target_names: list[str], config: Config
) -> dict[str, Any]:
    """Everything that the page shows, in plain lists, texts and numbers; metrics where the features have labels."""
    every = model.decide(features.X, 1)  # in which each sample has the cluster that it would be of as an unknown one
    decided = replace(every, known=accept(every.score, model.strictness))
    counts = np.bincount(decided.best[decided.known], minlength=len(model.classes_)).tolist()
    pictured = features.paths is not None
    word = "image" if pictured else "sample"
    findings = model.findings
    quality = None if features.labels is None else _quality(features.labels, decided, model.classes_)
    trust = of_findings.NOT_ADAPTED if findings is None else of_findings.reliability(findings)
    done = {"look"}  # by this report
    if quality is not None:
        trust, done = text.measured(quality["shared_accuracy"], quality["t_unk"]), {"look", "review"}
    steps = [step for step in next_steps(findings, model_name, *target_names) if step.name not in done]
    folder, samples = _samples(model, features, every, config)
    return {
        "target": " ".join(target_names),
        "model": model_name,
        "made": date.today().isoformat(),
        "version": versions()["usfda"],
        "word": word,
        "classes": model.classes_,
        "counts": counts,
        "strictness": model.strictness,
        "answers": text.answers(int(np.sum(~decided.known)), dict(zip(model.classes_, counts, strict=True)), word),
        "findings": None if findings is None else _findings(findings),
        "trust": trust,
        "steps": [asdict(step) for step in steps],
        "folder": folder,
        "samples": samples,
        "pictures": thumbnails(features.paths, config) if features.paths is not None else None,
        "quality": quality,
        **card_data(model.card),
    }


def _findings(findings: Findings) -> dict[str, Any]:
    """What was found, with sentences but for the reliability, which has its own place, and an interval to draw."""
    more = {"reliability": findings.reliability, "sentences": of_findings.details(findings)}
    return asdict(findings) | more | {"unknown_interval": findings.likely_interval}


def card_data(card: Mapping[str, Any]) -> dict[str, Any]:
    """The training curves and the entries of a card, by its parts."""
    curves = [*_curves("Procurement", card["procurement"]), *_curves("Adaptation", card["deployment"] or {})]
    parts = [part for part in ("deployment", "procurement", "backbone") if card.get(part)]
    return {"curves": curves, "card": {part: [[key, text] for key, text in _flat(card[part])] for part in parts}}


def _samples(
    model: Model, features: Features, every: ProbabilisticDecision, config: Config
) -> tuple[str, dict[str, Any]]:
    """The folder that all images have in common, and the columns of what is known of each."""
    names = [f"row {i}" for i in range(len(features))]
    folder = ""
    if features.paths is not None:
        places = [str(path) for path in features.paths]
        common = os.path.commonprefix(places)  # noqa: RUF071 (cut at a separator below; some may be relative)
        folder = common[: common.rfind(os.sep) + 1]
        names = [place.removeprefix(folder) for place in places]
    order, share = every.top()
    x, y = np.rint(GRID * embed(model, features.X, config)).astype(int).T
    truth, ssm = None, model.ssm(features.X)
    if features.labels is not None:
        labelled = features.labelled()
        truth = {"names": labelled.classes, "of": labelled.y.tolist()}
    return folder, {
        "name": names,
        "best": every.best.tolist(),
        "score": every.score.tolist(),  # in full, so that the page cuts where the model does
        "cluster": None if every.cluster is None else every.cluster.tolist(),
        "ssm": None if ssm is None else ssm.round(2).astype(float).tolist(),
        "top": order.tolist(),
        "share": np.rint(1000 * share).astype(int).tolist(),
        "x": x.tolist(),
        "y": y.tolist(),
        "truth": truth,
    }


def _quality(truth: np.ndarray, decided: Decision, classes: list[str]) -> dict[str, Any]:
    result = score_decision(truth, decided, classes)
    n, scores, known = reliability(decided.score, np.isin(truth, classes))
    filled = n > 0
    return result | {
        "meanings": MEANINGS,
        "reliability": np.column_stack([n, scores / np.maximum(n, 1), known / np.maximum(n, 1)])[filled].tolist(),
    }


def _curves(title: str, card: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The losses of a stage, and the accuracy after each of its rounds, where it has any."""
    for name, values in card.get("history", {}).items():
        if len(values) > 1:
            means = [float(np.mean(part)) for part in np.array_split(values, min(POINTS, len(values)))]
            yield {
                "stage": title,
                "name": name,
                "text": text.LOSSES.get(name, ""),
                "steps": len(values),
                "values": means,
            }
    accuracy = card.get("training", {}).get("accuracy", [])
    if len(accuracy) > 1:
        yield {"stage": title, "name": "accuracy", "text": text.ACCURACY, "steps": len(accuracy), "values": accuracy}


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """The entries of a card, one to a line; those of training, which are drawn, are left out."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            if key != "history":
                yield from _flat(value, f"{above}{key}.")
        else:
            listed = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            yield f"{above}{key}", listed

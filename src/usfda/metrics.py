"""T_avg, T_unk, H, AUROC, calibration, one-shot (docs/formats.md). All in percent, None where undefined."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.metrics import confusion_matrix, roc_auc_score

from .config import Config
from .data.reading import UNKNOWN, read
from .errors import InputError
from .methods.decision import Decision
from .methods.heads import ClassMeansHead, Head, SourceNetworkHead
from .methods.vendor import members_of
from .model import Model, as_model

log = logging.getLogger("usfda")

BINS = 15  # of the calibration error
UNADAPTED: dict[str, type[Head]] = {"class_means": ClassMeansHead, "source_network": SourceNetworkHead}
SIMILAR = 0.8  # of two names, from which on they may mean the same (difflib's ratio)


def evaluate(
    model: Model | str | Path,
    labelled: Any,
    y: Any = None,
    *,
    classes: str | Sequence[str] | None = None,
    rename: Mapping[str, str] | None = None,
    strictness: float | None = None,
    config: Config | None = None,
) -> dict[str, Any]:
    """All metrics of a model, adapted or not, on labelled samples.

    Parameters
    ----------
    model : Model or path
        The model.
    labelled : path, sequence of paths or images, array, Samples or Features
        As for ``procure``. A class that the model does not have counts as unknown.
    y : sequence, optional
        The labels.
    classes : str or sequence of str, optional
        Only samples of these classes.
    rename : mapping, optional
        Class names of the samples to those of the model, where the two sides name a class differently.
    strictness : float, optional
        The score below which a sample is unknown; by default as the model was adapted.
    config : Config, optional
        How to run.

    Returns
    -------
    dict
        In percent, None where undefined; docs/formats.md explains each. ``shared_classes`` and ``private_classes`` are
        those of the samples, ``suspects`` pairs of a private one with the class of the model that it may be.
        ``class_means`` and ``source_network`` have the same metrics of these decisions, None where the file lacks
        them, and ``uses`` is the name of the decision that the model uses: one of the two, or ``adapted``.
    """
    model = as_model(model)
    found = read(labelled, y, classes=classes, labelled=True)
    features = model.features(found, config=config, text="features")
    assert features.labels is not None
    rename = rename or {}
    if wrong := sorted(set(rename.values()) - set(model.classes_)):
        raise InputError(f"rename: the model has no class {', '.join(wrong)}")
    if idle := sorted(set(rename) - set(features.labels.tolist())):
        log.warning("rename: the samples have no class %s", ", ".join(idle))
    truth = np.asarray([rename.get(name, name) for name in features.labels.tolist()])
    decided = model.decide(features.X, strictness, probabilities=False)
    result = score_decision(truth, decided, model.classes_)
    names = set(truth.tolist())
    result["shared_classes"] = [name for name in model.classes_ if name in names]
    result["private_classes"] = sorted(names - set(model.classes_))
    absent = [name for name in model.classes_ if name not in names]
    result["suspects"] = suspects(truth, model.labels_of(decided), result["private_classes"], absent)
    result["uses"] = "adapted"
    for name, kind in UNADAPTED.items():
        result[name] = None
        if getattr(model.vendor, kind.needs) is not None:
            other = model.source_model
            other.head = kind.build(model.vendor, {})
            decided = other.decide(features.X, strictness, probabilities=False)
            result[name] = score_decision(truth, decided, other.classes_)
            if isinstance(model.head, kind):
                result["uses"] = name
    return result


def suspects(truth: np.ndarray, labels: np.ndarray, private: list[str], absent: list[str]) -> dict[str, str]:
    """Private classes that may be a class of the model under another name.

    One is suspect where its name is nearly that of a class without samples, and its samples look like that class: a
    third or more are labelled with it, and fewer with any other class.
    """
    plain = {_plain(name): name for name in absent}
    found = {}
    for name in private:
        alike = [other for other in plain if _digits(other) == _digits(name)]  # room3 is not nearly room4
        near = difflib.get_close_matches(_plain(name), alike, 1, SIMILAR)
        mine = labels[truth == name]
        classes, counts = np.unique(mine[mine != UNKNOWN], return_counts=True)
        if near and len(classes) and classes[counts.argmax()] == plain[near[0]] and 3 * counts.max() >= len(mine):
            found[name] = plain[near[0]]
    return found


def _plain(name: str) -> str:
    """In small letters, without separators and the s of a plural."""
    return "".join(c for c in name.casefold() if c.isalnum()).rstrip("s")


def _digits(name: str) -> str:
    return "".join(filter(str.isdecimal, name))


def score_decision(truth: np.ndarray, decision: Decision, classes: Sequence[str]) -> dict[str, Any]:
    """Metrics of a decision: ``truth`` are the class names, ``classes`` those of the model."""
    best = np.asarray(classes)[decision.best]
    return score(truth, np.where(decision.known, best, UNKNOWN), best, decision.score, list(classes))


def score(
    truth: np.ndarray, predicted: np.ndarray, best: np.ndarray, known_score: np.ndarray, classes: list[str]
) -> dict[str, Any]:
    """Metrics of labels: ``predicted`` is ``unknown`` for a rejection, ``best`` is the best class in any case."""
    shared = np.isin(truth, classes)
    expected = np.where(shared, truth, UNKNOWN)
    right, among_classes = predicted == expected, best == truth
    per_class, hits, closed = {}, [], []
    for members in members_of(truth):
        accuracy = _percent(np.mean(right[members]))
        per_class[str(truth[members[0]])] = {"accuracy": accuracy, "samples": len(members)}
        if shared[members[0]]:
            hits.append(accuracy)
            closed.append(_percent(np.mean(among_classes[members])))
    t_unk = _percent(np.mean(predicted[~shared] == UNKNOWN)) if (~shared).any() else None
    shared_accuracy = float(np.mean(hits)) if hits else None
    both = bool(hits) and t_unk is not None
    h = None
    if shared_accuracy is not None and t_unk is not None:
        h = 2 * shared_accuracy * t_unk / (shared_accuracy + t_unk) if shared_accuracy + t_unk else 0.0
    labels = [*classes, UNKNOWN]
    return {
        "t_avg": float(np.mean(hits + ([] if t_unk is None else [t_unk]))),
        "t_unk": t_unk,
        "h_score": h,
        "shared_accuracy": shared_accuracy,
        "closed_accuracy": float(np.mean(closed)) if closed else None,
        "auroc": _percent(roc_auc_score(shared, known_score)) if both else None,
        "ece": calibration_error(known_score, shared),
        "samples": len(truth),
        "unknown_share": _percent(np.mean(predicted == UNKNOWN)),
        "per_class": per_class,
        "confusion": {
            "labels": labels,
            "matrix": confusion_matrix(expected, predicted, labels=labels).tolist(),
        },
    }


def _percent(share: Any) -> float:
    return 100 * float(share)


def calibration_error(known_score: np.ndarray, known: np.ndarray) -> float:
    """Expected calibration error: mean |score − share that is known| over bins, weighted by their samples."""
    n, scores, hits = reliability(known_score, known)
    return _percent(np.abs(scores - hits).sum() / n.sum())


def reliability(known_score: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """In bins of the score: how many samples, the sum of their scores, and how many of them are known."""
    bins = np.minimum((known_score * BINS).astype(int), BINS - 1)
    n = np.bincount(bins, minlength=BINS)
    return n, np.bincount(bins, known_score, BINS), np.bincount(bins, known.astype(float), BINS)


@dataclass(frozen=True)
class OneShot:
    """Accuracy in percent, and its deviation over the draws."""

    mean: float
    deviation: float


def one_shot(u: np.ndarray, labels: np.ndarray, draws: int = 20, seed: int = 0) -> OneShot:
    """One labelled sample per class is the centre, the rest go to the nearest; accuracy over several draws."""
    rng = np.random.default_rng(seed)
    names, y = np.unique(labels, return_inverse=True)
    if len(y) == len(names):
        raise InputError("one-shot: every class has a single sample, so that none is left to be recognised")
    results = []
    for _ in range(draws):
        centres = np.asarray([rng.choice(np.flatnonzero(y == c)) for c in range(len(names))])
        rest = np.setdiff1d(np.arange(len(y)), centres)
        results.append(100 * float(np.mean(cdist(u[rest], u[centres]).argmin(1) == y[rest])))
    return OneShot(float(np.mean(results)), float(np.std(results)))

"""The client's other stage, ``teach``: a person adds classes."""

from __future__ import annotations

import copy
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..card import Card, Deployment, TaughtCounts
from ..config import Config
from ..data.reading import check_class_names, differing_in_case, read
from ..errors import InputError
from ..methods import teaching
from ..methods.heads import MixtureHead, updatable_head
from ..methods.mixture.checks import absent_classes
from ..methods.vendor import signed_root, signed_square
from ..model import Model, as_model
from ..text import stages as text
from .common import number_by_size, taught_counts, unknown_counts

log = logging.getLogger("usfda")


def teach(
    model: Model | str | Path,
    examples: Any = None,
    y: Any = None,
    *,
    names: Mapping[int, str] | None = None,
    forget: Sequence[str] = (),
    config: Config | None = None,
) -> Model:
    """Turn clusters of the unknown, or labelled examples, into classes of an adapted model.

    The given model is not changed. The remaining clusters get new numbers.

    Parameters
    ----------
    model : Model or path
        One that was adapted with method ``mixture``.
    examples : path, sequence of paths or images, array, Samples or Features, optional
        One or a few labelled images for each class, new or known, as for ``procure``.
    y : sequence, optional
        Their labels.
    names : mapping of int to str, optional
        A cluster of the unknown, by its number, to the name of its class: a new one, or one that the model has.
    forget : sequence of str
        Taught classes that are to be clusters of the unknown again, before anything else is done.
    config : Config, optional
        How to run.

    Examples
    --------
    >>> model = teach(model, names={3: "giraffe", 5: "zebra"})        # doctest: +SKIP
    >>> model = teach(model, "examples/")                # doctest: +SKIP
    """
    model = as_model(model)
    was = model.card["deployment"]
    head = updatable_head(model.head)
    if head is None or was is None:
        raise InputError("only a model that was adapted with method mixture can be taught; adapt it first")
    names = {**_merged(model, forget), **(names or {})}
    if examples is None and not names and not forget:
        raise InputError("nothing to teach: give examples, the name of a cluster, or a class to forget")
    taught: dict[str, TaughtCounts] = copy.deepcopy(was.get("taught", {}))
    head = replace(head, assigned=None)
    if wrong := [name for name in forget if name not in taught]:
        have = f"the taught classes are {', '.join(taught)}" if taught else "none was taught"
        raise InputError(f"{wrong[0]!r} is no taught class; {have}")
    if forget:
        head = teaching.forget(head, [model.classes_.index(name) for name in forget])
        for name in forget:
            del taught[name]
    x, labels = np.empty((0, model.dim), np.float32), np.empty(0, dtype=str)
    if examples is not None:
        found = model.features(read(examples, y, labelled=True), config=config, text="examples")
        assert found.labels is not None
        x, labels = signed_root(found.X[:]), found.labels
    known = [*model.source_classes, *taught]
    new = sorted({*names.values(), *labels.tolist()} - set(known))
    check_class_names(new)
    for name, other in differing_in_case(new, known).items():
        log.warning(text.similar_name(name, other))
    place = {name: i for i, name in enumerate([*known, *new])}
    number = {cluster: place[name] for cluster, name in names.items()}
    try:
        head = teaching.teach(head, number, x, np.asarray([place[name] for name in labels.tolist()], int), len(new))
    except teaching.Lonely as error:
        name = [*known, *new][error.args[0]]
        raise InputError(f"nothing in the target is like the one example of {name}; give two or more") from None
    given, clusters = Counter(labels.tolist()), Counter(names.values())
    for name in new:
        taught[name] = {"images": 0, "examples": 0, "clusters": 0}
    for name in taught:
        taught[name]["examples"] += given[name]
        taught[name]["clusters"] += clusters[name]
    joined = {*names.values(), *labels.tolist()} & set(model.source_classes) | set(was.get("joined", ()))
    card: Card = {**model.card, "deployment": None}
    result = Model(model.source_classes, model.vendor, head, model.backbone, card, list(taught), model.strictness)
    deployed = _counted(was, model, result, head, taught)
    if joined:
        deployed["joined"] = sorted(joined)
    result.card = {**card, "deployment": deployed}
    if len(labels):
        given_to = result.predict(found.X)
        differing = np.flatnonzero(given_to != labels)
        if len(differing):
            first = differing[0]
            example = "" if found.paths is None else str(found.paths[first])
            log.warning(text.other_labels(len(differing), len(labels), example, given_to[first], labels[first]))
    return result


def settled(model: Model) -> Model:
    """The model with the clusters that a review merged as parts of their classes."""
    return teach(model) if _merged(model) else model


def _merged(model: Model, forget: Sequence[str] = ()) -> dict[int, str]:
    """Clusters that a review merged, and their classes."""
    head = updatable_head(model.head)
    names = {} if head is None else {cluster: model.classes_[c] for cluster, c in head.merged.items()}
    return {cluster: name for cluster, name in names.items() if name not in forget}


def _counted(
    was: Deployment, before: Model, model: Model, head: MixtureHead, taught: Mapping[str, TaughtCounts]
) -> Deployment:
    """The card's part with new counts, by the coreset, since the target is not there any more.

    The mean of a group is more similar to a class or a cluster than its samples are. Therefore counts of samples stay,
    and change by as much as the counts of groups change.
    """
    groups = signed_square(head.coreset)
    earlier = before.decide(groups)
    model.head, decided = number_by_size(head, model.decide(groups), head.counts)
    weight = head.counts / head.counts.sum()
    share = 100 * float(weight @ ~decided.known)
    if "earlier_samples" not in was:
        share = was["unknown_share"] + share - 100 * float(weight @ ~earlier.known)
    found = copy.deepcopy(was)
    found.pop("earlier_samples", None)
    found.pop("repeated", None)
    found.pop("relabelled", None)
    found.pop("review", None)  # its figures are those of another decision
    found["samples"] = round(float(head.counts.sum(dtype=float)))  # new and earlier ones are not distinguished
    found["unknown_share"] = _percent(share)
    found["taught"] = taught_counts(taught, model.classes_, decided, head.counts)
    if "check" in found:
        check = found["check"]
        outliers = check.get("outliers", 0) - unknown_counts(earlier, head.counts)["outliers"]
        counts = unknown_counts(decided, head.counts)
        had, has = (
            absent_classes(probability, model.source_classes, head.counts)
            for probability in (earlier.probability, decided.probability)
        )
        shift = 100 * float(weight @ (decided.probability[:, -1] - earlier.probability[:, -1]))
        low, high = check["unknown_interval"]  # a lower end of 0 was cut off, and stays
        found["check"] = {
            **check,
            "clusters": counts["clusters"],
            "outliers": max(0, counts["outliers"] + outliers),
            "absent": [name for name in has if name in check["absent"] or name not in had],
            "unknown_estimate": _percent(check["unknown_estimate"] + shift),
            "unknown_interval": [_percent(low + shift) if low else 0.0, _percent(high + shift)],
        }
    return found


def _percent(value: float) -> float:
    return round(min(100.0, max(0.0, value)), 2)

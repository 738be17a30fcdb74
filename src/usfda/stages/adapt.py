"""The client's stage: ``adapt``."""

from __future__ import annotations

import copy
import dataclasses
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from ..config import Config
from ..data.reading import read_target
from ..data.samples import Features, Matrix
from ..errors import InputError
from ..methods.decision import STRICTNESS, check_strictness
from ..methods.heads import ClassMeansHead, MixtureHead, SourceNetworkHead, starting_head
from ..methods.mixture.checks import absent_classes, verdict_of
from ..methods.mixture.fit import Before, WeightedSamples, fit_mixture, repeated
from ..methods.mixture.learned import LearnedSplitter, answer_of, load_decision
from ..methods.settings import FEW, MixtureSettings, UsfdaSettings
from ..methods.vendor import FEWEST, signed_root, signed_square
from ..model import Model, as_model, versions
from .common import (
    METHODS,
    Clock,
    Method,
    check_choice,
    count_taught,
    rounded,
    settings_from,
    take_buffers,
    unknown_counts,
)

log = logging.getLogger("usfda")


def adapt(
    model: Model | str | Path,
    target: Any,
    *,
    method: Method = "mixture",
    classes: str | Sequence[str] | None = None,
    strictness: float | None = None,
    reject_at_most: float | None = None,
    update: bool = False,
    seed: int = 0,
    settings: MixtureSettings | UsfdaSettings | Mapping[str, Any] | None = None,
    config: Config | None = None,
) -> Model:
    """The client's stage: a model for the target's domain, from the vendor's model and unlabelled target samples.

    The model that comes in is left as it is; one that was adapted before starts from the vendor's part again, unless
    ``update`` is set.

    Parameters
    ----------
    model : Model or path
        The vendor's model.
    target : path, sequence of paths or images, array, Samples or Features
        A folder or a list of images, a ``.npz`` or an array of vectors. Labels that it may have are never looked at,
        except by ``classes``.
    method : {"mixture", "usfda"}
        ``mixture``: a mixture of known classes and unknown clusters. ``usfda``: to the letter.
    classes : str or sequence of str, optional
        Only samples in folders of these names.
    strictness : float
        A sample is unknown where its score is below it: from 0 (never unknown) to 1 (readily). By default ½.
    reject_at_most : float, optional
        The share of the target, from 0 to 1, that may be called unknown: the strictness is lowered as far as it takes.
    update : bool
        Continue from a model that was adapted with method ``mixture``: its coreset (means of small groups of samples)
        stands for its earlier targets. Strictness and bound remain what they
        were, where none is given; other settings are those of this call.
    seed : int
        The same seed on the same machine gives the same model.
    settings : MixtureSettings, UsfdaSettings or dict, optional
        Settings of the method that are not the default.
    config : Config, optional
        How to run.

    Examples
    --------
    >>> adapted = adapt(model, "new-photos/")            # doctest: +SKIP
    >>> adapted = adapt(adapted, "newer-photos/", update=True)       # doctest: +SKIP
    """
    config = config or Config()
    model = as_model(model)
    check_choice("method", method, METHODS)
    if reject_at_most is not None and not 0 <= reject_at_most <= 1:
        raise InputError(f"reject_at_most is a share of the target, from 0 to 1, not {reject_at_most}")
    earlier = _earlier(model, method) if update else None
    if model.adapted and not update:
        taught = ", ".join(model.classes_[len(model.source_classes) :])
        lost = f", and what it was taught ({taught}) is not in it" if taught else ""
        log.warning("the model was adapted before; this starts anew from the vendor's part%s (--update goes on)", lost)
    was = model.card["deployment"] if update else {}
    if reject_at_most is None and "reject_at_most" in was:
        reject_at_most = was["reject_at_most"] / 100
    elif strictness is None:
        strictness = was.get("strictness")
    strictness = check_strictness(STRICTNESS if strictness is None else strictness)
    clock = Clock()
    features = model.features(read_target(target, classes=classes), config=config, text="target features")
    clock.lap("features")
    take_buffers(config.threads)
    before = was["samples"] + was.get("earlier_samples", 0) if update else 0
    if len(features) + before < FEW:
        log.warning("only %d target samples: too few to measure their domain by (%d would do)", len(features), FEW)
    card: dict[str, Any] = {"method": method, "strictness": strictness, "samples": len(features), "seed": seed}
    if features.skipped:
        card["skipped"] = len(features.skipped)
    if reject_at_most is not None:
        card["reject_at_most"] = 100 * reject_at_most
    if update:
        card["earlier_samples"] = before
        card |= copy.deepcopy({key: was[key] for key in ("taught", "joined") if key in was})
    start = {**model.card, "deployment": card}
    adapted = Model(model.source_classes, model.vendor, starting_head(model.vendor), model.backbone, start)
    if method == "usfda":
        card |= _adapt_usfda(adapted, features.X, settings, seed, config)
    else:
        of_method = settings_from(MixtureSettings, settings)
        with threadpool_limits(config.threads):
            card |= _adapt_mixture(adapted, features, earlier, of_method, seed)
    clock.lap("training")
    _bound_rejections(adapted, features.X)
    decided = adapted.decide(features.X, probabilities=False)
    card |= {"seconds": clock.seconds, "versions": versions()}
    card["unknown_share"] = round(100 * float(np.mean(~decided.known)), 2)
    if update:
        labels = model.labels_of(model.decide(features.X, probabilities=False))
        card["relabelled"] = int(np.sum(labels != adapted.labels_of(decided)))
    if decided.ssm is not None:
        histogram = np.histogram(decided.ssm, 20, (1, np.e))[0].tolist()
        card["ssm"] = {"mean": float(decided.ssm.mean()), "histogram": histogram}
    if decided.cluster is not None and "check" in card and not update:
        card["check"] |= unknown_counts(decided, np.ones(len(features)))
    adapted.find_examples(features, decided)
    return adapted


def _missing(model: Model, method: str) -> InputError:
    made = model.card["procurement"].get("method", "another method")
    return InputError(
        f"the model was procured for method {made} alone and cannot be adapted with method {method}; "
        f"procure it again with --for all, or adapt it with --method {made}"
    )


def _adapt_usfda(model: Model, X: Matrix, given: object, seed: int, config: Config) -> dict[str, Any]:
    """Give the model its head; the card's part."""
    from ..methods.usfda.adaptation import train_target  # and torch, which method mixture can do without

    settings = settings_from(UsfdaSettings, given)
    if model.vendor.networks is None:
        raise _missing(model, "usfda")
    model.head, history = train_target(model.vendor.networks, X, settings, seed, config)
    parameters = sum(t.size for name, t in model.head.tensors().items() if name.endswith(("weight", "bias")))
    return {
        "settings": dataclasses.asdict(settings),
        "learnable_parameters": parameters,
        "steps": len(history["L_d1"]),
        "history": rounded(history),
    }


def _earlier(model: Model, method: Method) -> MixtureHead:
    """The head that an update goes on from."""
    if method == "mixture" and isinstance(model.head, MixtureHead):
        return model.head
    raise InputError(
        "only method mixture can update, and only a model that it has adapted before; leave out --update this time"
    )


def _bound_rejections(model: Model, X: Matrix) -> None:
    """Lower the strictness so far that no more of the target is called unknown than was asked for."""
    card = model.card["deployment"]
    if (most := card.get("reject_at_most")) is not None:
        scores = np.sort(model.decide(X, probabilities=False).score)
        allowed = int(most / 100 * len(scores) + 1e-9)
        if allowed < len(scores):
            # Between two scores, since a score is rounded in another way when a sample is decided alone.
            highest, lowest = float(scores[allowed - 1]) if allowed else 0.0, float(scores[allowed])
            between = (highest + lowest) / 2 if highest < lowest else lowest * (1 - 1e-4)
            card["strictness"] = min(model.strictness, between)


def _adapt_mixture(
    model: Model, features: Features, earlier: MixtureHead | None, settings: MixtureSettings, seed: int
) -> dict[str, Any]:
    """Give the model the head that is expected to be best; the card's part."""
    vendor, X = model.vendor, features.X
    if vendor.class_statistics is None:
        raise _missing(model, "mixture")
    splitter = LearnedSplitter(load_decision(settings.weights))
    card: dict[str, Any] = {"settings": dataclasses.asdict(settings), "weights": splitter.decision.version}
    some = np.arange(len(X))
    if len(X) > settings.most:
        some = np.sort(np.random.default_rng(seed).choice(len(X), settings.most, replace=False))
    points, before = WeightedSamples.of_samples(signed_root(X[some]), len(X)), None
    if len(points.x) < FEWEST:
        kept = "source model's" if earlier is None else "earlier"
        log.warning(
            "one target sample, or copies of one, say nothing about their domain: the %s decision is kept", kept
        )
        if earlier is not None:
            model.head = earlier
        return card | {"learnable_parameters": 0}
    if earlier is not None:
        if again := repeated(points.x, earlier.coreset):
            card["repeated"] = again
        points = points.with_more(WeightedSamples.of_coreset(earlier))
        joined = [model.source_classes.index(name) for name in model.card["deployment"].get("joined", ())]
        before = Before(earlier, [*joined, *range(len(model.source_classes), earlier.classes)])
    fitted = fit_mixture(vendor, points, settings, splitter, seed, before)
    V, split = signed_square(points.x), fitted.split
    expected, networks = split.expected, None
    if vendor.networks is not None:
        answer = answer_of(SourceNetworkHead(vendor.networks).probability(V))
        w = points.weight / points.weight.sum()
        networks = splitter.decision.expected(split.outputs, split.whole, w, split.best, answer).other
    verdict = verdict_of(expected)
    model.head = fitted.head if verdict != "kept" else earlier or ClassMeansHead(vendor.class_statistics)
    decided = model.decide(V)
    assert decided.probability is not None
    count_taught(model, decided, points.weight)
    found: dict[str, Any] = {
        "verdict": verdict,
        "expected": {
            "adapted": round(expected.adapted, 1), "class_means": round(expected.other, 1),
            "source_network": None if networks is None else round(networks, 1),
        },
        "decision": "simple" if split.outside else "learned",
        "unknown_estimate": round(100 * expected.unknown, 2),
        "unknown_interval": [round(100 * share, 2) for share in expected.interval],
        "absent": absent_classes(decided.probability, model.classes_, points.weight),
    }  # fmt: skip
    if earlier is not None and decided.cluster is not None:  # of all batches, as far as the summary says
        found |= unknown_counts(decided, points.weight)
    return card | {"learnable_parameters": fitted.head.centres.size + fitted.head.bias.size, "check": found}

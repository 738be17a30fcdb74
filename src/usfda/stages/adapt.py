"""The client's stage: ``adapt``."""

from __future__ import annotations

import dataclasses
import logging
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from threadpoolctl import threadpool_limits

from ..card import Card, Check, Deployment, TaughtCounts
from ..config import Config
from ..data.reading import read_target
from ..data.samples import Features, Matrix
from ..errors import InputError
from ..methods.decision import STRICTNESS, check_strictness
from ..methods.heads import ClassMeansHead, Head, MixtureHead, SourceNetworkHead, starting_head, updatable_head
from ..methods.mixture.checks import absent_classes, verdict_of
from ..methods.mixture.fit import Before, WeightedSamples, fit_mixture, repeated
from ..methods.mixture.learned import LearnedSplitter, answer_of, load_decision
from ..methods.settings import FEW, MixtureSettings, UsfdaSettings
from ..methods.vendor import FEWEST, signed_root, signed_square
from ..model import Model, as_model, versions
from ..modelfile import MAX_COUNT
from ..text import stages as text
from .common import (
    METHODS,
    Clock,
    Method,
    check_choice,
    number_by_size,
    rounded,
    settings_from,
    take_buffers,
    taught_counts,
    unknown_counts,
)
from .teach import settled

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

    The given model is not changed; one that was adapted before starts from the vendor's part again, unless
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
        The rejection threshold: a sample with a score below it is unknown; from 0 to 1, by default ½.
    reject_at_most : float, optional
        The largest share of the target, from 0 to 1, that may be rejected: the strictness is lowered accordingly.
    update : bool
        Continue from a model that was adapted with method ``mixture``: its coreset (means of small groups of samples)
        represents its earlier targets. Strictness and bound stay as they were unless they are given.
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
    if update:
        model = settled(model)
    earlier = _earlier(model, method) if update else None
    if model.adapted and not update:
        log.warning(text.starts_anew(model.classes_[len(model.source_classes) :]))
    was = model.card["deployment"] if update else None
    before = 0 if was is None else was["samples"] + was.get("earlier_samples", 0)
    if before > MAX_COUNT:
        raise InputError(
            f"the model counts {before:,} earlier samples, more than a model file may; adapt it without --update"
        )
    if reject_at_most is None and was is not None and "reject_at_most" in was:
        reject_at_most = was["reject_at_most"] / 100
    elif strictness is None and was is not None:
        strictness = was["strictness"]
    strictness = check_strictness(STRICTNESS if strictness is None else strictness)
    clock = Clock()
    features = model.features(read_target(target, classes=classes), config=config, text="target features")
    clock.lap("features")
    take_buffers(config.threads)
    if len(features) + before < FEW:
        log.warning(text.few_samples(len(features), FEW))
    if method == "usfda":
        found = _adapt_usfda(model, features.X, settings, seed, config)
    else:
        of_method = settings_from(MixtureSettings, settings)
        with threadpool_limits(config.threads):
            found = _adapt_mixture(model, features, was, earlier, of_method, seed)
    clock.lap("training")
    names = [] if was is None else list(was.get("taught", {}))
    card: Card = {**model.card, "deployment": None}
    adapted = Model(model.source_classes, model.vendor, found.head, model.backbone, card, names, strictness)
    if reject_at_most is not None:
        adapted.strictness = _bounded(adapted, features.X, reject_at_most)
    decided = adapted.decide(features.X, probabilities=False)
    deployed: Deployment = {
        "method": method, "strictness": adapted.strictness, "samples": len(features), "seed": seed,
        "settings": dataclasses.asdict(found.settings), "unknown_share": round(100 * float(np.mean(~decided.known)), 2),
        "seconds": clock.seconds, "versions": versions(), "learnable_parameters": found.parameters,
        **found.facts,  # type: ignore[typeddict-item]  # the other optional keys follow
    }  # fmt: skip
    if features.skipped:
        deployed["skipped"] = len(features.skipped)
    if reject_at_most is not None:
        deployed["reject_at_most"] = 100 * reject_at_most
    if was is not None:
        deployed["earlier_samples"] = before
        labels = model.labels_of(model.decide(features.X, probabilities=False))
        deployed["relabelled"] = int(np.sum(labels != adapted.labels_of(decided)))
        if "joined" in was:
            deployed["joined"] = list(was["joined"])
    if (ssm := adapted.ssm(features.X)) is not None:
        deployed["ssm"] = {"mean": float(ssm.mean()), "histogram": np.histogram(ssm, 20, (1, np.e))[0].tolist()}
    if (mixture := updatable_head(found.head)) is not None and "check" in deployed and not update:
        adapted.head, decided = number_by_size(mixture, decided, np.ones(len(features)))
        deployed["check"] = {**deployed["check"], **unknown_counts(decided, np.ones(len(features)))}
    adapted.card = {**card, "deployment": deployed}
    adapted.find_examples(features, decided)
    return adapted


class Facts(TypedDict, total=False):
    """The part of the card that a method adds."""

    steps: int
    history: dict[str, list[float]]
    weights: str
    repeated: int
    taught: dict[str, TaughtCounts]
    check: Check


@dataclasses.dataclass(frozen=True)
class Found:
    """The head of an adaptation, its learnable parameters, and what the card says of it."""

    head: Head
    settings: MixtureSettings | UsfdaSettings
    parameters: int
    facts: Facts


def _missing(model: Model, method: str) -> InputError:
    made = model.card["procurement"]["method"]
    return InputError(
        f"the model was procured for method {made} alone and cannot be adapted with method {method}; "
        f"procure it again with --for all, or adapt it with {shlex.join(['--method', made])}"
    )


def _adapt_usfda(model: Model, X: Matrix, given: object, seed: int, config: Config) -> Found:
    """The head of the paper's method."""
    from ..methods.usfda.adaptation import train_target  # and torch, which method mixture can do without

    settings = settings_from(UsfdaSettings, given)
    if model.vendor.networks is None:
        raise _missing(model, "usfda")
    head, history = train_target(model.vendor.networks, X, settings, seed, config)
    parameters = sum(t.size for name, t in head.tensors().items() if name.endswith(("weight", "bias")))
    return Found(head, settings, parameters, {"steps": len(history["L_d1"]), "history": rounded(history)})


def _earlier(model: Model, method: Method) -> MixtureHead:
    """The head that an update goes on from."""
    if method == "mixture" and (head := updatable_head(model.head)) is not None:
        return head
    raise InputError(
        "only method mixture can update, and only a model that it has adapted before; leave out --update this time"
    )


def _bounded(model: Model, X: Matrix, most: float) -> float:
    """The strictness, lowered so far that at most this share of the target is rejected."""
    scores = np.sort(model.decide(X, probabilities=False).score)
    allowed = int(most * len(scores) + 1e-9)
    if allowed >= len(scores):
        return model.strictness
    # Between two scores, since a score is rounded in another way when a sample is decided alone.
    highest, lowest = float(scores[allowed - 1]) if allowed else 0.0, float(scores[allowed])
    between = (highest + lowest) / 2 if highest < lowest else lowest * (1 - 1e-4)
    return min(model.strictness, between)


def _adapt_mixture(
    model: Model,
    features: Features,
    was: Deployment | None,
    earlier: MixtureHead | None,
    settings: MixtureSettings,
    seed: int,
) -> Found:
    """The head that is expected to be best: a mixture, the class means, or that of an earlier adaptation."""
    vendor, X = model.vendor, features.X
    if vendor.class_statistics is None:
        raise _missing(model, "mixture")
    splitter = LearnedSplitter(load_decision(settings.weights))
    facts: Facts = {"weights": splitter.decision.version}
    had = {} if was is None else was.get("taught", {})
    if had:
        facts["taught"] = dict(had)
    some = np.arange(len(X))
    if len(X) > settings.most:
        some = np.sort(np.random.default_rng(seed).choice(len(X), settings.most, replace=False))
    samples, before = WeightedSamples.of_samples(signed_root(X[some]), len(X)), None
    if len(samples.x) < FEWEST:
        log.warning(text.one_sample(update=earlier is not None))
        return Found(starting_head(vendor) if earlier is None else earlier, settings, 0, facts)
    if earlier is not None and was is not None:
        if again := repeated(samples.x, earlier.coreset):
            facts["repeated"] = again
        samples = samples.with_more(WeightedSamples.of_coreset(earlier))
        joined = [model.source_classes.index(name) for name in was.get("joined", ())]
        before = Before(earlier, [*joined, *range(len(model.source_classes), earlier.classes)])
    fitted = fit_mixture(vendor, samples, settings, splitter, seed, before)
    V, split = signed_square(samples.x), fitted.split
    expected, networks = split.expected, None
    if vendor.networks is not None:
        answer = answer_of(SourceNetworkHead(vendor.networks).probability(V))
        w = samples.weight / samples.weight.sum()
        networks = splitter.decision.expected(split.outputs, split.whole, w, split.best, answer).other
    verdict = verdict_of(expected)
    head: Head = fitted.head if verdict != "kept" else earlier or ClassMeansHead(vendor.class_statistics)
    classes = [*model.source_classes, *had]
    decided = Model(model.source_classes, vendor, head, None, model.card, list(had)).decide(V)
    if had:
        facts["taught"] = taught_counts(had, classes, decided, samples.weight)
    check: Check = {
        "verdict": verdict,
        "expected": {
            "adapted": round(expected.adapted, 1), "class_means": round(expected.other, 1),
            "source_network": None if networks is None else round(networks, 1),
        },
        "decision": "simple" if split.outside else "learned",
        "unknown_estimate": round(100 * expected.unknown, 2),
        "unknown_interval": [round(100 * share, 2) for share in expected.interval],
        "absent": absent_classes(decided.probability, classes, samples.weight),
    }  # fmt: skip
    if earlier is not None and (mixture := updatable_head(head)) is not None:  # of all batches, by the coreset
        if mixture is not earlier:
            head, decided = number_by_size(mixture, decided, samples.weight)
        check = {**check, **unknown_counts(decided, samples.weight)}
    return Found(head, settings, fitted.head.centres.size + fitted.head.bias.size, {**facts, "check": check})

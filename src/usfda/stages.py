"""The stages: ``procure`` at the vendor, ``adapt`` at the client. Only here do data, features and methods meet."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from threadpoolctl import threadpool_limits

from .backbones.backbone import Backbone
from .backbones.zoo import DEFAULT, get_backbone
from .config import Config
from .data.images import read_file
from .data.reading import check_source, read, read_target
from .data.samples import Features, Matrix
from .errors import InputError, UnreadableImage
from .features.extract import Extractor
from .methods.checks import CheckSettings, check
from .methods.decision import STRICTNESS, Decision, check_strictness
from .methods.geometry import fit_geometry
from .methods.groups import FEWEST, UsfdaSettings
from .methods.heads import PrototypeHead, UsfdaHead, starting_head
from .methods.mixture import Points, fit_mixture, typicality_of
from .methods.negatives import Composites, compose, composite_key, negative_classes, plan
from .methods.paper import FEW, PaperSettings, train_target
from .methods.procurement import Negatives, ProcurementSettings, Trained, TrainingSet, hold_out, train_source
from .methods.vendor import SourceNetworks, Vendor, signed_root, signed_square
from .model import Model, versions

log = logging.getLogger("usfda")

Method = Literal["usfda", "paper"]
METHODS: tuple[str, ...] = get_args(Method)
Settings = TypeVar("Settings")

VERSION = 4  # of what the stages compute: raise it whenever the same data, settings and seed would give another model
EXAMPLES = 5  # names of a cluster's most typical samples
CANDIDATES = 5000  # samples of a cluster that they are chosen from, at most
# The parts of a procurement, in their order, and what each is for.
PURPOSES = {
    "features": "every method",
    "geometry": "method usfda",
    "negatives": "method paper",
    "networks": "method paper, the source model and the SSM",
}


def settings_from(kind: type[Settings], given: object) -> Settings:
    """A settings object: the one that is given, one with the given values, or the defaults."""
    if isinstance(given, kind):
        return given
    if given is not None and not isinstance(given, Mapping):
        raise InputError(f"settings must be a {kind.__name__} or a dict of its fields, not {type(given).__name__}")
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    values: dict[str, Any] = dict(given or {})
    if wrong := sorted(set(values) - set(names)):
        raise InputError(f"no setting {wrong[0]!r}; choose from {', '.join(names)}")
    return kind(**values)


def _check_choice(what: str, given: str, choices: Sequence[str]) -> None:
    if given not in choices:
        raise InputError(f"no {what} {given!r}; choose from {', '.join(choices)}")


class _Clock:
    """Seconds of the parts of a stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._started = time.perf_counter()

    def lap(self, part: str) -> None:
        now = time.perf_counter()
        self.seconds[part], self._started = now - self._started, now


def procure(
    source: Any,
    y: Any = None,
    *,
    method: Literal["all", "usfda", "paper"] = "all",
    classes: str | Sequence[str] | None = None,
    backbone: str | Backbone = DEFAULT,
    negatives: Negatives | None = None,
    seed: int = 0,
    settings: ProcurementSettings | Mapping[str, Any] | None = None,
    config: Config | None = None,
) -> Model:
    """The vendor's stage: a model of labelled source samples, ready to be adapted where no source sample is.

    Parameters
    ----------
    source : path, sequence of paths, array, Samples or Features
        A folder with one folder per class, a list file, a ``.npz``, image paths with labels ``y``, or an array (n, d)
        of vectors with labels ``y``.
    y : sequence, optional
        The labels.
    method : {"all", "usfda", "paper"}
        The method of deployment that the model is to serve. A model for one of them is smaller and made faster.
    classes : str or sequence of str, optional
        Only samples of these classes.
    backbone : str or Backbone
        M, for images.
    negatives : {"composite", "latent", "prior"}, optional
        For method ``paper``. By default composites of images; for vectors, where there is no image to compose, samples
        between the class priors.
    seed : int
        The same seed on the same machine gives the same model.
    settings : ProcurementSettings or dict, optional
        Settings that are not the default.
    config : Config, optional
        How to run.

    Examples
    --------
    >>> model = procure("photos/")                       # doctest: +SKIP
    >>> model = procure(X, y, negatives="latent")        # doctest: +SKIP
    """
    config, settings = config or Config(), settings_from(ProcurementSettings, settings)
    _check_choice("method", method, ("all", *METHODS))
    _check_choice("negatives", negatives or "composite", get_args(Negatives))
    clock = _Clock()
    extractor, features = source_features(source, y, classes=classes, backbone=backbone, config=config)
    clock.lap("features")
    train, held_out = hold_out(features.y, settings.holdout)
    card: dict[str, Any] = {
        "method": method,
        "classes": dict(zip(features.classes, np.bincount(features.y).tolist(), strict=True)),
        "settings": dataclasses.asdict(settings),
        "seed": seed,
    }
    geometry = None
    if method != "paper":
        with threadpool_limits(config.threads):
            geometry = fit_geometry(features.X, features.y, len(features.classes))
        clock.lap("geometry")
    networks: SourceNetworks | None = None
    if method != "usfda":
        data = training_set(features, train, negatives, settings, extractor)
        clock.lap("negatives")
        trained = train_source(data, settings, seed, config, f"networks (for {PURPOSES['networks']})")
        clock.lap("networks")
        networks = trained.networks
        card |= _networks_card(data, trained, settings)
    vendor = Vendor(networks, geometry)
    whole: dict[str, Any] = {"procurement": card, "deployment": None}
    if extractor is None and features.backbone:  # vectors that say where they come from
        whole["backbone"] = {"name": "features", "sha256": features.backbone, "record": None}
    model = Model(features.classes, vendor, starting_head(vendor), extractor.backbone if extractor else None, whole)
    card["validation"] = _validate(model, features, train, held_out)
    card |= {"seconds": clock.seconds, "versions": versions()}
    return model


def source_features(
    source: Any,
    y: Any = None,
    *,
    classes: str | Sequence[str] | None = None,
    backbone: str | Backbone = DEFAULT,
    config: Config,
) -> tuple[Extractor | None, Features]:
    """A labelled source as vectors, and the extractor that they come from, where they are vectors of images."""
    found = read(source, y, classes=classes, labelled=True)
    check_source(found)
    if isinstance(found, Features):
        # Vectors that know their images, as those of an experiment, come with the backbone that made them.
        known = isinstance(backbone, Backbone) and found.paths is not None and found.backbone == backbone.sha256
        return (Extractor.make(backbone, config) if known else None), found  # type: ignore[arg-type]
    m = get_backbone(backbone, config.device) if isinstance(backbone, str) else backbone
    extractor = Extractor.make(m, config)
    features = extractor.features(found, f"source features (for {PURPOSES['features']})")
    check_source(features)
    return extractor, features


def training_set(
    features: Features,
    train: np.ndarray,
    negatives: Negatives | None,
    settings: ProcurementSettings,
    extractor: Extractor | None,
) -> TrainingSet:
    """What the vendor's networks learn from; composites are made of the images of the samples to train on."""
    kind: Negatives = negatives or ("prior" if extractor is None else "composite")
    X, y, classes = features.X, features.y, len(features.classes)
    _check_choice("negatives", kind, get_args(Negatives))
    if kind != "composite":
        if 0 < settings.iterations <= settings.update_every:
            raise InputError(f"negatives {kind} begin with the first priors: iterations must be more than update_every")
        count = len(negative_classes(classes, 2, settings.max_negative_classes)) if kind == "prior" else 1
        return TrainingSet(X, y, classes, train, kind, count)
    if extractor is None:
        raise InputError("composites are made of images; for features use negatives latent or prior")
    assert features.labels is not None
    images = settings.images_per_composite
    made = plan(features.labels[train], settings.composites, images, settings.max_negative_classes)
    if not made.classes:
        raise InputError(f"{classes} classes are too few for composites of {images} images")
    X_n = composite_features(features[train], made, extractor)
    return TrainingSet(X, y, classes, train, kind, len(made.classes), X_n, made.y)


def composite_features(source: Features, made: Composites, extractor: Extractor) -> Matrix:
    """Vectors of composites of the source's images."""
    paths, keys, backbone = source.paths, source.keys, extractor.backbone
    assert paths is not None
    assert keys is not None

    @lru_cache(maxsize=1024)  # made class by class, so that the few images in use are decoded once: 224×224 take 150 MB
    def prepare(i: int) -> np.ndarray:
        content = read_file(paths[i])
        if hashlib.sha256(content).digest() != keys[i]:
            raise UnreadableImage(f"{paths[i]} has changed since it was first read")
        return backbone.prepare(content)

    def load(j: int) -> tuple[bytes, Callable[[], np.ndarray]]:
        images, splines = made.images[j].tolist(), made.splines[j]

        def composed() -> np.ndarray:
            image: np.ndarray = compose(np.stack([prepare(i) for i in images])[None], splines[None])[0]
            return image

        return composite_key([keys[i] for i in images], splines), composed

    found = extractor.extract(len(made), load, f"negatives (for {PURPOSES['negatives']})")
    if found.errors:
        raise RuntimeError(f"an image of the source cannot be used any more: {next(iter(found.errors.values()))}")
    return found.X


def _networks_card(data: TrainingSet, trained: Trained, settings: ProcurementSettings) -> dict[str, Any]:
    made, used = 0 if data.X_n is None else len(data.X_n), settings.scaled(data.classes)
    return {
        "training": {
            "iterations": trained.iterations, "batch": used.batch, "lr": used.lr,
            "accuracy": [round(100 * value, 2) for value in trained.accuracy],
        },
        "negatives": {"kind": data.kind, "classes": data.negative_classes, "samples": made},
        "learnable_parameters": trained.parameters,
        "history": _rounded(trained.history),
    }  # fmt: skip


def _rounded(history: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Losses as the card keeps them: five digits say enough."""
    return {name: [float(f"{value:.5g}") for value in values] for name, values in history.items()}


def _validate(model: Model, features: Features, train: np.ndarray, held_out: np.ndarray) -> dict[str, Any]:
    """Accuracy on held-out source samples of the head that the client starts from; a rejection is an error."""
    if len(held_out) == 0:
        return {"head": model.head.name, "samples": 0, "accuracy": None, "rejected": None}
    if model.head.name == PrototypeHead.name:  # its prototypes are those of all samples: without the held-out ones
        geometry = fit_geometry(features.X[train], features.y[train], len(features.classes))
        model = Model(model.classes_, Vendor(None, geometry), PrototypeHead(geometry), None, {})
    decided = model.decide(features.X[held_out])
    right = decided.known & (decided.best == features.y[held_out])
    return {
        "head": model.head.name,
        "samples": len(held_out),
        "accuracy": round(100 * float(np.mean(right)), 2),
        "rejected": round(100 * float(np.mean(~decided.known)), 2),
    }


def adapt(
    model: Model,
    target: Any,
    *,
    method: Method = "usfda",
    classes: str | Sequence[str] | None = None,
    strictness: float | None = None,
    reject_at_most: float | None = None,
    update: bool = False,
    seed: int = 0,
    settings: UsfdaSettings | PaperSettings | Mapping[str, Any] | None = None,
    limits: CheckSettings | None = None,
    config: Config | None = None,
) -> Model:
    """The client's stage: a model for the target's domain, from the vendor's model and unlabelled target samples.

    The model that comes in is left as it is; one that was adapted before starts from the vendor's part again, unless
    ``update`` is set.

    Parameters
    ----------
    model : Model
        The vendor's model.
    target : path, sequence of paths, array, Samples or Features
        A folder or a list of images, a ``.npz`` or an array of vectors. Labels that it may have are never looked at,
        except by ``classes``.
    method : {"usfda", "paper"}
        ``usfda``: a mixture of known classes and unknown clusters. ``paper``: to the letter.
    classes : str or sequence of str, optional
        Only samples in folders of these names.
    strictness : float
        A sample is unknown where its score is below it: from 0 (never unknown) to 1 (readily). By default ½.
    reject_at_most : float, optional
        The share of the target, from 0 to 1, that may be called unknown: the strictness is lowered as far as it takes.
    update : bool
        Go on from a model that was adapted with method ``usfda``: what it keeps of its earlier targets, means of small
        groups of their samples, counts as if those samples were there again. Strictness and bound remain what they
        were, where none is given; other settings are those of this call.
    seed : int
        The same seed on the same machine gives the same model.
    settings : UsfdaSettings, PaperSettings or dict, optional
        Settings of the method that are not the default.
    limits : CheckSettings, optional
        From where on the result of method ``usfda`` looks better or worse than the source model.
    config : Config, optional
        How to run.

    Examples
    --------
    >>> adapted = adapt(model, "new-photos/")            # doctest: +SKIP
    >>> adapted = adapt(adapted, "newer-photos/", update=True)       # doctest: +SKIP
    """
    config = config or Config()
    if not isinstance(model, Model):
        raise InputError("adapt takes a model; read one from its file with usfda.load(FILE)")
    _check_choice("method", method, METHODS)
    if reject_at_most is not None and not 0 <= reject_at_most <= 1:
        raise InputError(f"reject_at_most is a share of the target, from 0 to 1, not {reject_at_most}")
    earlier = _earlier(model, method) if update else None
    was = model.card["deployment"] if update else {}
    if reject_at_most is None and "reject_at_most" in was:
        reject_at_most = was["reject_at_most"] / 100
    elif strictness is None:
        strictness = was.get("strictness")
    strictness = check_strictness(STRICTNESS if strictness is None else strictness)
    clock = _Clock()
    features = model.features(read_target(target, classes=classes), config=config, text="target features")
    clock.lap("features")
    before = was["samples"] + was.get("earlier_samples", 0) if update else 0
    if len(features) + before < FEW:
        log.warning("only %d target samples: too few to measure their domain by (%d would do)", len(features), FEW)
    card: dict[str, Any] = {"method": method, "strictness": strictness, "samples": len(features), "seed": seed}
    if reject_at_most is not None:
        card["reject_at_most"] = 100 * reject_at_most
    if update:
        card["earlier_samples"] = before
    start = {**model.card, "deployment": card}
    adapted = Model(model.classes_, model.vendor, starting_head(model.vendor), model.backbone, start)
    if method == "paper":
        card |= _adapt_paper(adapted, features.X, settings_from(PaperSettings, settings), seed, config)
    else:
        of_method = settings_from(UsfdaSettings, settings)
        with threadpool_limits(config.threads):
            card |= _adapt_usfda(adapted, features, earlier, of_method, limits or CheckSettings(), seed)
    clock.lap("training")
    _bound_rejections(adapted, features.X)
    decided = adapted.decide(features.X)
    card |= {"seconds": clock.seconds, "versions": versions()}
    card["unknown_share"] = round(100 * float(np.mean(~decided.known)), 2)
    if decided.ssm is not None:
        histogram = np.histogram(decided.ssm, 20, (1, np.e))[0].tolist()
        card["ssm"] = {"mean": float(decided.ssm.mean()), "histogram": histogram}
    if decided.cluster is not None and "check" in card:
        sizes = np.bincount(decided.cluster)
        card["check"]["clusters"] = {str(c): int(n) for c, n in enumerate(sizes) if c > 0 and n > 0}
    if isinstance(adapted.head, UsfdaHead):
        _find_examples(adapted, adapted.head, features, decided)
    return adapted


def _missing(model: Model, method: str) -> InputError:
    made = model.card["procurement"].get("method", "another method")
    return InputError(
        f"the model was procured for method {made} alone and cannot be adapted with method {method}; "
        f"procure it again with --for all, or adapt it with --method {made}"
    )


def _adapt_paper(model: Model, X: Matrix, settings: PaperSettings, seed: int, config: Config) -> dict[str, Any]:
    """Give the model its head; the card's part."""
    if model.vendor.networks is None:
        raise _missing(model, "paper")
    model.head, history = train_target(model.vendor.networks, X, settings, seed, config)
    parameters = sum(t.size for name, t in model.head.tensors().items() if name.endswith(("weight", "bias")))
    return {
        "settings": dataclasses.asdict(settings),
        "learnable_parameters": parameters,
        "steps": len(history["L_d1"]),
        "history": _rounded(history),
    }


def _earlier(model: Model, method: Method) -> UsfdaHead:
    """The head that an update goes on from."""
    if method == "usfda" and isinstance(model.head, UsfdaHead):
        return model.head
    raise InputError(
        "only method usfda can update, and only a model that it has adapted before; adapt it without --update first"
    )


def _bound_rejections(model: Model, X: Matrix) -> None:
    """Lower the strictness so far that no more of the target is called unknown than was asked for."""
    card = model.card["deployment"]
    if (most := card.get("reject_at_most")) is not None:
        scores = np.sort(model.decide(X).score)
        allowed = int(most / 100 * len(scores) + 1e-9)
        if allowed < len(scores):
            # Between two scores, since a score is rounded in another way when a sample is decided alone.
            highest, lowest = float(scores[allowed - 1]) if allowed else 0.0, float(scores[allowed])
            between = (highest + lowest) / 2 if highest < lowest else lowest * (1 - 1e-4)
            card["strictness"] = min(model.strictness, between)


def _adapt_usfda(
    model: Model,
    features: Features,
    earlier: UsfdaHead | None,
    settings: UsfdaSettings,
    limits: CheckSettings,
    seed: int,
) -> dict[str, Any]:
    """Give the model its head, unless it looks worse than the source model's decision; the card's part."""
    geometry, X = model.vendor.geometry, features.X
    if geometry is None:
        raise _missing(model, "usfda")
    card: dict[str, Any] = {"settings": dataclasses.asdict(settings)}
    some = np.arange(len(X))
    if len(X) > settings.most:
        some = np.sort(np.random.default_rng(seed).choice(len(X), settings.most, replace=False))
    points, typicality = Points.of_samples(signed_root(X[some]), len(X)), None
    if len(points.x) < FEWEST:
        said = "one target sample says nothing about its domain"
        log.warning("%s: the %s decision is kept", said, "source model's" if earlier is None else "earlier")
        if earlier is not None:
            model.head = earlier
        return card | {"learnable_parameters": 0}
    if earlier is not None:
        new = points
        points = new.with_more(Points.of_summary(earlier))
        now = typicality_of(geometry, new.x, points.mean, settings)
        share = new.weight.sum() / points.weight.sum()
        typicality = float(share * now + (1 - share) * earlier.typicality)
    head, groups, graph = fit_mixture(geometry, points, settings, seed, typicality)
    V = signed_square(points.x)
    before = model.labels_of(model.decide(V))
    start, model.head = model.head, head
    decided = model.decide(V)
    assert decided.probability is not None
    found = check(
        graph, before, model.labels_of(decided), decided.probability, model.classes_, groups.evidence, limits,
        points.weight,
    )  # fmt: skip
    if found["verdict"] == "worse":
        model.head = earlier or start
    return card | {"learnable_parameters": head.centres.size + head.bias.size, "check": found}


def _find_examples(model: Model, head: UsfdaHead, features: Features, decided: Decision) -> None:
    """The most typical samples of each cluster, by name."""
    assert decided.cluster is not None
    for c in np.unique(decided.cluster[decided.cluster > 0]).tolist():
        members = np.flatnonzero(decided.cluster == c)[:CANDIDATES]
        p = head.components(features.X[members])[:, len(model.classes_) + c - 1]
        typical = members[np.argsort(-p)[:EXAMPLES]].tolist()
        model.examples[c] = [str(i if features.paths is None else features.paths[i]) for i in typical]

"""The vendor's stage: ``procure``."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from threadpoolctl import threadpool_limits

from ..backbones.backbone import Backbone
from ..backbones.zoo import DEFAULT, get_backbone
from ..card import Card, canonical
from ..config import Config
from ..data.images import read_file
from ..data.reading import BATCH, check_source, read
from ..data.samples import Features, LabelledFeatures, Matrix, Place
from ..errors import InputError, UnreadableImage
from ..features.extract import Extractor
from ..methods.heads import starting_head
from ..methods.membership import best_attack
from ..methods.mixture.class_statistics import fit_class_statistics
from ..methods.mixture.classifier import fit_classifier
from ..methods.privacy import (
    PrivacySettings,
    attack_bound,
    fit_noisy_class_statistics,
    fit_private_class_statistics,
    noise_level,
)
from ..methods.settings import Negatives, ProcurementSettings, TrainingSet, hold_out
from ..methods.usfda.negatives import Composites, compose, composite_key, negative_classes, plan
from ..methods.vendor import MAX_THINGS, ClassifierStatistics, ClassStatistics, SourceNetworks, Vendor
from ..model import Model, versions
from ..modelfile import check_class_count
from ..text.procurement import label
from ..text.stages import contradictions
from .common import METHODS, Clock, check_choice, rounded, settings_from, take_buffers

if TYPE_CHECKING:
    from ..methods.usfda.procurement import Trained

log = logging.getLogger("usfda")
MOST_MEMBERS = 1024  # that an attack is measured with, and as many others: enough for its AUC


def procure(
    source: Any,
    y: Any = None,
    *,
    method: Literal["all", "mixture", "usfda"] = "mixture",
    classes: str | Sequence[str] | None = None,
    backbone: str | Backbone = DEFAULT,
    negatives: Negatives | None = None,
    private: bool | PrivacySettings = False,
    epsilon: float | None = None,
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
    method : {"all", "mixture", "usfda"}
        The method of deployment that the model is to serve. Only ``usfda`` and ``all`` train the paper's networks.
    classes : str or sequence of str, optional
        Only samples of these classes.
    backbone : str or Backbone
        M, for images.
    negatives : {"composite", "latent", "prior"}, optional
        For method ``usfda``. By default composites of images; for vectors, where there is no image to compose, samples
        between the class priors.
    private : bool or PrivacySettings
        Leak less about single images (docs/privacy.md): for method ``mixture``, with at least ten images per class;
        the class statistics have the covariance in a few directions alone.
    epsilon : float, optional
        Private, and with noise that makes the file (ε, δ)-differentially private; it is another one in every run,
        whatever the seed.
    seed : int
        The same seed on the same machine gives the same model.
    settings : ProcurementSettings or dict, optional
        Settings that are not the default.
    config : Config, optional
        How to run.

    Examples
    --------
    >>> model = procure("photos/")                       # doctest: +SKIP
    >>> model = procure(X, y, method="all", negatives="latent")      # doctest: +SKIP
    """
    config, settings = config or Config(), settings_from(ProcurementSettings, settings)
    check_choice("method", method, ("all", *METHODS))
    check_choice("negatives", negatives or "composite", get_args(Negatives))
    check_class_count(0, settings.max_negative_classes)
    privacy = private if isinstance(private, PrivacySettings) else PrivacySettings() if private or epsilon else None
    if privacy is not None:
        if method == "usfda":
            raise InputError("a private file has no networks, which method usfda needs; procure it for method mixture")
        method = "mixture"
    if negatives is not None and method == "mixture":
        raise InputError("negatives are for the networks of method usfda; procure the model for usfda or all")
    if epsilon is not None:
        noise_level(epsilon, PrivacySettings.delta)  # whether there is one, before the long work
    clock = Clock()
    extractor, features = source_features(source, y, classes=classes, backbone=backbone, config=config)
    _warn_of_contradictions(features)
    clock.lap("features")
    take_buffers(config.threads)
    train, held_out = hold_out(features.y, settings.holdout)
    sizes = np.bincount(features.y)
    if privacy is not None:
        _check_sizes(features.classes, sizes, privacy.least_images)
    card: dict[str, Any] = {
        "method": method,
        "classes": dict(zip(features.classes, sizes.tolist(), strict=True)),
        "settings": dataclasses.asdict(settings),
        "seed": seed,
    }
    class_statistics = classifier = None
    if method != "usfda":
        with threadpool_limits(config.threads):
            if privacy is None and extractor is not None:
                classifier = _classifier(extractor.backbone, features)
            class_statistics, sizes = _fit_class_statistics(
                features.X, features.y, len(features.classes), privacy, epsilon
            )
        card["classes"] = dict(zip(features.classes, sizes.tolist(), strict=True))
        clock.lap("class_statistics")
    networks: SourceNetworks | None = None
    if method != "mixture":
        from ..methods.usfda.procurement import train_source  # and torch, which method mixture can do without

        data = training_set(features, train, negatives, settings, extractor)
        clock.lap("negatives")
        trained = train_source(data, settings, seed, config, label("networks", "networks"))
        clock.lap("networks")
        networks = trained.networks
        card |= _networks_card(data, trained, settings)
    vendor = Vendor(networks, class_statistics, classifier)
    whole: Card = {"procurement": {}, "deployment": None}  # type: ignore[typeddict-item]  # completed below
    if extractor is None and features.backbone:  # vectors that say where they come from
        whole["backbone"] = {"name": "features", "sha256": features.backbone, "record": None}
    model = Model(features.classes, vendor, starting_head(vendor), extractor.backbone if extractor else None, whole)
    if privacy is not None and epsilon is not None:
        card |= _promised(model.head.name, privacy, epsilon)
    else:
        with threadpool_limits(config.threads):
            card |= _measured(model, features, train, held_out, privacy)
    # The duration depends on the images: with noise, it is left out as well.
    card |= {"seconds": clock.seconds if epsilon is None else {}, "versions": versions()}
    model.card = {**model.card, "procurement": canonical(card)}
    return model


def source_features(
    source: Any,
    y: Any = None,
    *,
    classes: str | Sequence[str] | None = None,
    backbone: str | Backbone = DEFAULT,
    config: Config,
) -> tuple[Extractor | None, LabelledFeatures]:
    """A labelled source as vectors, and the extractor that they come from, where they are vectors of images."""
    found = read(source, y, classes=classes, labelled=True)
    check_source(found)
    assert found.labels is not None
    check_class_count(len(np.unique(found.labels)))
    if isinstance(found, Features):
        # Vectors that know their images, as those of an experiment, come with the backbone that made them.
        _check_varied(found.X)
        known = isinstance(backbone, Backbone) and found.paths is not None and found.backbone == backbone.sha256
        return (Extractor.make(backbone, config) if known else None), found.labelled()  # type: ignore[arg-type]
    m = get_backbone(backbone, config.device) if isinstance(backbone, str) else backbone
    extractor = Extractor.make(m, config)
    features = extractor.features(found, label("source features", "features"))
    check_source(features)
    _check_varied(features.X)
    return extractor, features.labelled()


def _check_varied(X: Matrix) -> None:
    """Raise an error where all vectors are the same: nothing tells the classes apart."""
    first = X[:1]
    if all((X[i : i + BATCH] == first).all() for i in range(0, len(X), BATCH)):
        raise InputError("all source samples are the same: nothing tells the classes apart")


def training_set(
    features: LabelledFeatures,
    train: np.ndarray,
    negatives: Negatives | None,
    settings: ProcurementSettings,
    extractor: Extractor | None,
) -> TrainingSet:
    """What the vendor's networks learn from; composites are made of the images of the samples to train on."""
    kind: Negatives = negatives or ("prior" if extractor is None else "composite")
    X, y, classes = features.X, features.y, len(features.classes)
    check_choice("negatives", kind, get_args(Negatives))
    if kind != "composite":
        if 0 < settings.iterations <= settings.update_every:
            raise InputError(f"negatives {kind} begin with the first priors: iterations must be more than update_every")
        count = len(negative_classes(classes, 2, settings.max_negative_classes)) if kind == "prior" else 1
        return TrainingSet(X, y, classes, train, kind, count)
    if extractor is None:
        raise InputError("composites are made of images; for features use negatives latent or prior")
    images = settings.images_per_composite
    made = plan(features.labels[train], settings.composites, images, settings.max_negative_classes)
    if not made.classes:
        raise InputError(f"{classes} classes are too few for composites of {images} images")
    X_n = composite_features(features[train], made, extractor)
    return TrainingSet(X, y, classes, train, kind, len(made.classes), X_n, made.y)


class CompositeJob:
    """Composites of images, which come by place and key, with the splines between them."""

    def __init__(self, backbone: Backbone):
        self.backbone = backbone
        # Made class by class, so that the few images in use are decoded once: 224×224 take 150 MB.
        self._prepared = lru_cache(maxsize=1024)(self._prepare)

    def __reduce__(self) -> tuple[Any, ...]:  # to another process without the images
        return CompositeJob, (self.backbone,)

    def _prepare(self, path: Place, key: bytes) -> np.ndarray:
        content = read_file(path)
        if hashlib.sha256(content).digest() != key:
            raise UnreadableImage(f"{path} has changed since it was first read")
        return self.backbone.prepare(content)

    def load(self, item: tuple[list[tuple[Place, bytes]], np.ndarray]) -> tuple[bytes, Callable[[], np.ndarray]]:
        """As every job."""
        images, splines = item

        def composed() -> np.ndarray:
            stacked = np.stack([self._prepared(path, key) for path, key in images])
            image: np.ndarray = compose(stacked[None], splines[None])[0]
            return image

        return composite_key([key for _, key in images], splines), composed


def composite_features(source: Features, made: Composites, extractor: Extractor) -> Matrix:
    """Vectors of composites of the source's images."""
    paths, keys, backbone = source.paths, source.keys, extractor.backbone
    assert paths is not None
    assert keys is not None

    items = [
        ([(paths[i], keys[i]) for i in images], cuts)
        for images, cuts in zip(made.images.tolist(), made.splines, strict=True)
    ]
    found = extractor.extract(CompositeJob(backbone), items, label("negatives", "negatives"))
    if found.errors:
        raise RuntimeError(f"an image of the source cannot be used any more: {next(iter(found.errors.values()))}")
    return found.X


def _warn_of_contradictions(features: LabelledFeatures) -> None:
    """Say which samples are the same but for their labels."""
    X, y, labels, paths = features.X, features.y, features.labels, features.paths
    rows = (row.tobytes() for i in range(0, len(X), BATCH) for row in X[i : i + BATCH])
    content = np.fromiter(map(hash, features.keys or rows), np.int64, len(X))  # of a million, 8 MB
    order = np.lexsort((y, content))
    one, other = order[:-1], order[1:]
    wrong = (content[one] == content[other]) & (y[one] != y[other])
    if wrong.any():
        first = np.argmin(np.where(wrong, one, len(X)))
        names = [f"{paths[i] if paths else f'row {i}'} ({labels[i]})" for i in (one[first], other[first])]
        log.warning(contradictions(len(np.unique(content[one[wrong]])), *names))


def _networks_card(data: TrainingSet, trained: Trained, settings: ProcurementSettings) -> dict[str, Any]:
    made, used = 0 if data.X_n is None else len(data.X_n), settings.scaled(data.classes)
    return {
        "training": {
            "iterations": trained.iterations, "batch": used.batch, "lr": used.lr,
            "accuracy": [round(100 * value, 2) for value in trained.accuracy],
        },
        "negatives": {"kind": data.kind, "classes": data.negative_classes, "samples": made},
        "learnable_parameters": trained.parameters,
        "history": rounded(trained.history),
    }  # fmt: skip


def _check_sizes(classes: Sequence[str], sizes: np.ndarray, least: int) -> None:
    """Raise an error where a class has too few images for a private file: none is left out unless that is asked for."""
    if small := [f"{name} ({n})" for name, n in zip(classes, sizes.tolist(), strict=True) if n < least]:
        raise InputError(
            f"a private file needs {least} images of every class; fewer are there of {', '.join(small)}: add some, or "
            "leave the class out with --classes"
        )


def _fit_class_statistics(
    X: Matrix, y: np.ndarray, classes: int, privacy: PrivacySettings | None, epsilon: float | None
) -> tuple[ClassStatistics, np.ndarray]:
    """The class statistics and the number of samples of each class, as far as privacy allows."""
    if privacy is None:
        return fit_class_statistics(X, y, classes), np.bincount(y)
    if epsilon is None:
        return fit_private_class_statistics(X, y, classes, privacy), np.bincount(y)
    return fit_noisy_class_statistics(X, y, classes, privacy, epsilon)


def _classifier(backbone: Backbone, features: LabelledFeatures) -> ClassifierStatistics | None:
    """What the backbone's own classifier says of the source, where it has one of a usual size."""
    if backbone.last_layer is None or len(backbone.last_layer[1]) > MAX_THINGS:
        return None
    weight, bias = (np.ascontiguousarray(part, np.float32) for part in backbone.last_layer)
    if weight.shape[1] != backbone.dim:
        return None
    return fit_classifier(weight, bias, features.X, features.y, len(features.classes))


def _measured(
    model: Model, features: LabelledFeatures, train: np.ndarray, held_out: np.ndarray, privacy: PrivacySettings | None
) -> dict[str, Any]:
    """How the head that the client starts from does on held-out source samples, and how far it tells them from others.

    The file's statistics are those of all samples; those that are measured here are computed without the held-out ones.
    """
    validation: dict[str, Any] = {"head": model.head.name, "samples": 0, "accuracy": None, "rejected": None}
    told: dict[str, Any] = {
        "private": privacy is not None,
        "least_images": 1 if privacy is None else privacy.least_images,
    }
    if len(held_out) == 0:
        return {"validation": validation, "privacy": told}
    vendor = model.vendor
    if vendor.class_statistics is not None:
        X, y, classes = features[train].X, features.y[train], len(features.classes)
        class_statistics, _ = _fit_class_statistics(X, y, classes, privacy, None)
        known = vendor.classifier
        vendor = Vendor(
            vendor.networks, class_statistics, known and fit_classifier(known.weight, known.bias, X, y, classes)
        )
        model = Model(model.source_classes, vendor, starting_head(vendor), None, model.card)
    decided = model.decide(features[held_out].X, probabilities=False)
    right = decided.known & (decided.best == features.y[held_out])
    validation |= {
        "samples": len(held_out),
        "accuracy": round(100 * float(np.mean(right)), 2),
        "rejected": round(100 * float(np.mean(~decided.known)), 2),
    }
    members, others = (index[:: -(-len(index) // MOST_MEMBERS)] for index in (train, held_out))
    both = np.concatenate([members, others])
    attack, auc = best_attack(vendor, features.X[both], features.y[both], np.arange(len(both)) < len(members))
    told["membership"] = {"attack": attack, "auc": round(auc, 3), "members": len(members), "others": len(others)}
    return {"validation": validation, "privacy": told}


def _promised(head: str, privacy: PrivacySettings, epsilon: float) -> dict[str, Any]:
    """With noise nothing is measured on the samples: the bound that no attack exceeds."""
    sigma = noise_level(epsilon, privacy.delta)
    noise = {"epsilon": epsilon, "delta": privacy.delta, "sigma": sigma, "auc_bound": round(attack_bound(sigma), 3)}
    return {
        "validation": {"head": head, "samples": 0, "accuracy": None, "rejected": None},
        "privacy": {"private": True, "least_images": privacy.least_images, "noise": noise},
    }

"""The vendor's stage: ``procure``."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
from threadpoolctl import threadpool_limits

from ..backbones.backbone import Backbone
from ..backbones.zoo import DEFAULT, get_backbone
from ..config import Config
from ..data.images import read_file
from ..data.reading import check_source, read
from ..data.samples import Features, Matrix
from ..errors import InputError, UnreadableImage
from ..features.extract import Extractor
from ..methods.geometry import fit_geometry
from ..methods.heads import PrototypeHead, starting_head
from ..methods.negatives import Composites, compose, composite_key, negative_classes, plan
from ..methods.procurement import Negatives, ProcurementSettings, Trained, TrainingSet, hold_out, train_source
from ..methods.vendor import SourceNetworks, Vendor
from ..model import Model, versions
from .common import METHODS, Clock, check_choice, rounded, settings_from

# The parts of a procurement, in their order, and what each is for.
PURPOSES = {
    "features": "every method",
    "geometry": "method usfda",
    "negatives": "method paper",
    "networks": "method paper, the source model and the SSM",
}


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
    check_choice("method", method, ("all", *METHODS))
    check_choice("negatives", negatives or "composite", get_args(Negatives))
    clock = Clock()
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
    check_choice("negatives", kind, get_args(Negatives))
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
        "history": rounded(trained.history),
    }  # fmt: skip


def _validate(model: Model, features: Features, train: np.ndarray, held_out: np.ndarray) -> dict[str, Any]:
    """Accuracy on held-out source samples of the head that the client starts from; a rejection is an error."""
    if len(held_out) == 0:
        return {"head": model.head.name, "samples": 0, "accuracy": None, "rejected": None}
    if model.head.name == PrototypeHead.name:  # its prototypes are those of all samples: without the held-out ones
        geometry = fit_geometry(features.X[train], features.y[train], len(features.classes))
        model = Model(model.source_classes, Vendor(None, geometry), PrototypeHead(geometry), None, {})
    decided = model.decide(features.X[held_out])
    right = decided.known & (decided.best == features.y[held_out])
    return {
        "head": model.head.name,
        "samples": len(held_out),
        "accuracy": round(100 * float(np.mean(right)), 2),
        "rejected": round(100 * float(np.mean(~decided.known)), 2),
    }

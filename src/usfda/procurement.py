"""Procurement, the vendor's stage: F_s, D and G learn the source classes and what is none of them.

Four losses take turns, one an iteration, each with an Adam of its own (method `paper`, docs/method.md):

    L_CE (F_s, D)  −log ŷ_s − α·log ŷ_n        one softmax over K = |C_s| + |C_n|
    L_v  (F_s, G)  |v_s − G(F_s(v_s))|          positives
    L_u  (F_s, G)  |u_r − F_s(G(u_r))|          u_r ~ N(μ_c, Σ_c), c uniform
    L_p  (F_s)     −log softmax_c(log N(u_s | μ_c, Σ_c) / T) at the true class, T = dim u

Until the first priors, at ``update_every``, only L_CE and L_v run.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from .backbones import DEFAULT, Backbone, get_backbone
from .data import Samples, check_source, read
from .features import extract
from .geometry import fit_geometry
from .model import Model, rounded, versions
from .negatives import composite_features, latent_negatives, negative_classes, plan
from .networks import D, device, in_pieces, learnable, make_f, make_g
from .priors import ClassPriors
from .runtime import InputError, progress

Negatives = Literal["composite", "latent", "prior"]


@dataclass(frozen=True)
class ProcurementSettings:
    """Defaults of the vendor's stage; the reasons are in docs/method.md."""

    iterations: int = 300  # turns of all losses together
    update_every: int = 100  # iterations between two updates of the class priors
    batch: int = 64  # positives a step
    negative_batch: int = 64  # negatives a step
    lr: float = 1e-4
    alpha: float = 0.2  # weight of the negatives in L_CE
    composites: int = 4000  # negatives made of source images, in all
    images_per_composite: int = 2
    max_negative_classes: int = 600  # of all sets of classes, so many are used
    holdout: float = 0.1  # share of every class that is kept from training, to measure source accuracy

    def __post_init__(self) -> None:
        counts = (self.iterations, self.update_every, self.negative_batch, self.composites, self.max_negative_classes)
        if min(counts) < 1:
            raise InputError("iterations, update_every, negative_batch, composites, max_negative_classes start at 1")
        if self.images_per_composite < 2 or self.batch < 2:
            raise InputError("a composite has two images or more, a batch two positives or more")
        if not (0 <= self.holdout < 1 and 0 < self.lr < math.inf and 0 <= self.alpha < math.inf):
            raise InputError("holdout must be in [0, 1), lr positive and alpha not negative")


@dataclass
class Trained:
    f: nn.Module
    d: D
    g: nn.Module
    history: dict[str, list[float]]


def procure(
    source: Any,
    y: Any = None,
    *,
    classes: str | Sequence[str] | None = None,
    backbone: str | Backbone = DEFAULT,
    negatives: Negatives | None = None,
    seed: int = 0,
    settings: ProcurementSettings | None = None,
) -> Model:
    """The vendor's stage: a model of labelled source samples, ready to be adapted where no source sample is.

    ``source`` is a folder with one folder a class, a list file, a ``.npz``, a sequence of image paths with labels
    ``y``, or an array (n, d) of features with labels ``y``. Negatives are composites of images; for features, where
    there is no image to compose, they are simulated between the class priors.

    >>> model = procure("photos/")                       # doctest: +SKIP
    >>> model = procure(X, y, negatives="latent")        # doctest: +SKIP
    """
    settings = settings or ProcurementSettings()
    samples = read(source, y, classes=classes, labelled=True)
    started = time.perf_counter()
    m: Backbone | None = None
    if samples.paths is not None:
        m = get_backbone(backbone) if isinstance(backbone, str) else backbone
    ready = prepare(samples, m, negatives, settings)
    samples, names, targets = ready.samples, ready.names, ready.targets
    extracted = time.perf_counter()
    trained = train_source(ready, settings, seed)
    geometry = fit_geometry(samples.X, targets, len(names))
    counts = np.bincount(targets)
    card = {
        "classes": {str(name): int(n) for name, n in zip(names, counts, strict=True)},
        "negatives": {
            "kind": ready.kind,
            "classes": ready.negative_classes,
            "samples": 0 if ready.X_n is None else len(ready.X_n),
        },
        "settings": dataclasses.asdict(settings),
        "seed": seed,
        "learnable_parameters": learnable(trained.f, trained.d, trained.g),
        "seconds": {"features": extracted - started, "training": time.perf_counter() - extracted},
        "history": rounded(trained.history),
        "versions": versions(),
    }
    whole: dict[str, Any] = {"procurement": card, "deployment": None}
    if m is None and samples.backbone:  # features that say where they come from
        whole["backbone"] = {"name": "features", "sha256": samples.backbone, "record": None}
    model = Model(names.tolist(), trained.f, trained.d, geometry, m, whole)
    card["validation"] = _validate(model, samples, targets, ready.held_out)
    return model


@dataclass(frozen=True)
class Prepared:
    """The source as vectors, and its negatives as far as they are made of images."""

    samples: Samples
    names: np.ndarray  # of the classes
    targets: np.ndarray  # positions in ``names``
    train: np.ndarray
    held_out: np.ndarray
    kind: Negatives
    negative_classes: int
    X_n: Any = None
    y_n: np.ndarray | None = None


def prepare(
    samples: Samples, m: Backbone | None, negatives: Negatives | None, settings: ProcurementSettings
) -> Prepared:
    """All that comes before training; what is in the store is not computed again. ``m`` is needed for images."""
    check_source(samples)
    kind: Negatives = negatives or ("composite" if samples.paths is not None else "prior")
    if kind not in get_args(Negatives):
        raise InputError(f"negatives are one of {', '.join(get_args(Negatives))}, not {kind!r}")
    if kind != "composite" and settings.iterations <= settings.update_every:
        raise InputError(f"negatives {kind} begin with the first priors: iterations must be more than update_every")
    if kind == "composite" and samples.paths is None:
        raise InputError("composites are made of images; for features use negatives latent or prior")
    keys: list[bytes] = []
    paths = samples.paths
    if paths is not None:
        assert m is not None
        samples, kept, keys = extract(samples, m, "source features")
        check_source(samples)
        paths = [paths[i] for i in kept]
    assert samples.labels is not None
    names, targets = np.unique(samples.labels, return_inverse=True)
    train, held_out = split(targets, settings.holdout)
    if kind != "composite":
        pairs = negative_classes(len(names), 2, settings.max_negative_classes) if kind == "prior" else [()]
        return Prepared(samples, names, targets, train, held_out, kind, len(pairs))
    assert m is not None
    assert paths is not None
    images = settings.images_per_composite
    made = plan(samples.labels[train], settings.composites, images, settings.max_negative_classes)
    if not made.classes:
        raise InputError(f"{len(names)} classes are too few for composites of {images} images")
    X_n = composite_features([paths[i] for i in train], [keys[i] for i in train], made, m)
    return Prepared(samples, names, targets, train, held_out, kind, len(made.classes), X_n, made.y)


def split(targets: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Indices to train on and to hold out: evenly spaced in every class, the same for every seed."""
    if share == 0:
        return np.arange(len(targets)), np.empty(0, np.int64)
    held_out = []
    for c in np.unique(targets):
        members = np.flatnonzero(targets == c)
        n = min(max(1, round(share * len(members))), len(members) - 1)  # one at least to learn from
        held_out.append(members[((np.arange(n) + 0.5) * len(members) / n).astype(int)])
    out = np.sort(np.concatenate(held_out))
    return np.setdiff1d(np.arange(len(targets)), out), out


def _validate(model: Model, samples: Samples, targets: np.ndarray, held_out: np.ndarray) -> dict[str, Any]:
    """Accuracy on the held-out source samples; a rejection is an error."""
    if len(held_out) == 0:
        return {"samples": 0, "accuracy": None, "rejected": None}
    decided = model.decide(samples.X[held_out])
    return {
        "samples": len(held_out),
        "accuracy": round(100 * float(np.mean((decided.best == targets[held_out]) & decided.known)), 2),
        "rejected": round(100 * float(np.mean(~decided.known)), 2),
    }


def batches(index: np.ndarray, size: int, rng: np.random.Generator) -> Callable[[], np.ndarray]:
    """Endless batches of one size: the indices in a new order each round, the rest of a round dropped."""
    size = min(size, len(index))
    queue = np.empty(0, index.dtype)

    def take() -> np.ndarray:
        nonlocal queue
        if len(queue) < size:
            queue = rng.permutation(index)
        batch, queue = queue[:size], queue[size:]
        return batch

    return take


def l_p(u: Tensor, y: Tensor, priors: ClassPriors) -> Tensor:
    """Cross-entropy over log-densities; T = dim u keeps it finite: a log-density grows with the dimension."""
    return functional.cross_entropy(priors.log_density(u) / u.shape[1], y)


def train_source(ready: Prepared, settings: ProcurementSettings, seed: int) -> Trained:
    """F_s, D, G from vectors."""
    X, y, train, kind = ready.samples.X, ready.targets, ready.train, ready.kind
    X_n, y_n, shape = ready.X_n, ready.y_n, (len(ready.names), ready.negative_classes)
    place = device()
    rng = np.random.default_rng(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        f, g, d = make_f(X.shape[1]).to(place), make_g(X.shape[1]).to(place), D(*shape).to(place)
    generator = torch.Generator().manual_seed(seed)
    optimisers = {
        name: torch.optim.Adam([p for m in modules for p in m.parameters()], lr=settings.lr, fused=True)
        for name, modules in {"L_CE": (f, d), "L_v": (f, g), "L_u": (f, g), "L_p": (f,)}.items()
    }
    next_positive = batches(train, settings.batch, rng)
    next_negative = batches(np.arange(0 if y_n is None else len(y_n)), settings.negative_batch, rng)
    y_all = torch.from_numpy(y.astype(np.int64)).to(place)
    priors: ClassPriors | None = None
    latent: Callable[[], tuple[Tensor, Tensor]] | None = None
    history: dict[str, list[float]] = {name: [] for name in optimisers}

    def vectors(index: np.ndarray, source: Any = X) -> Tensor:
        return torch.from_numpy(source[index]).to(place)

    def l_ce(index: np.ndarray) -> Tensor:
        y_s = y_all[index]
        if X_n is not None and y_n is not None:
            chosen = next_negative()
            u = f(torch.cat([vectors(index), vectors(chosen, X_n)]))
            u_s, u_n, c_n = u[: len(index)], u[len(index) :], torch.from_numpy(y_n[chosen]).to(place)
        else:
            u_s = f(vectors(index))
            u_n, c_n = latent() if latent else (u_s[:0], y_s[:0])
        loss = functional.cross_entropy(d(u_s), y_s)
        if len(u_n) == 0:
            return loss
        return loss + settings.alpha * functional.cross_entropy(d(u_n), shape[0] + c_n)

    with progress(settings.iterations, "procurement", "iterations") as advance:
        for iteration in range(settings.iterations):
            if iteration and iteration % settings.update_every == 0:
                u = in_pieces(f.eval(), vectors, train)
                priors = ClassPriors(u, y_all[train], shape[0])
                if kind != "composite":
                    latent = latent_negatives(
                        kind, priors, u, y_all[train], settings.negative_batch, settings.max_negative_classes, generator
                    )
            turns = ("L_CE", "L_v", "L_u", "L_p") if priors else ("L_CE", "L_v")
            name = turns[iteration % len(turns)]
            index = next_positive()
            f.train()
            if name == "L_CE":
                loss = l_ce(index)
            elif name == "L_v":
                v = vectors(index)
                loss = (v - g(f(v))).abs().mean()
            elif name == "L_u":
                assert priors is not None
                c = torch.randint(shape[0], (len(index),), generator=generator).to(place)
                u_r = priors.sample(c, generator)
                loss = (u_r - f(g(u_r))).abs().mean()
            else:
                assert priors is not None
                loss = l_p(f(vectors(index)), y_all[index], priors)
            optimisers[name].zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimisers[name].step()
            history[name].append(loss.item())
            if not np.isfinite(history[name][-1]):
                raise RuntimeError(f"procurement diverged: {name} is not finite at iteration {iteration}")
            advance(1)
    return Trained(f.eval(), d.eval(), g.eval(), history)

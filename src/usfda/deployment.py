"""Deployment, the client's stage: a model for the target's domain, from unlabelled samples; M, F_s and D are frozen.

Method ``usfda``, the default, is in mixture.py. Method ``paper``: F_t starts from F_s and learns, with weights that
come from the frozen source path ŷ = σ(D∘F_s∘M(x)), rescaled to [0, 1] over the target set:

    w = exp(max_{i≤|C_s|} ŷ_i)      w' = exp(1 − max_{i≤|C_s|} ŷ_i)
    L_d1 = w·(−log Σ_{k≤|C_s|} ẑ_k) + w'·(−log Σ_{k>|C_s|} ẑ_k)      ẑ = σ(D∘F_t∘M(x))
    L_d2 = w·H(softmax of the positive logits) + w'·H(softmax of the negative logits)
    L_d = L_d1 + β·L_d2
"""

from __future__ import annotations

import copy
import dataclasses
import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .checks import check
from .data import read
from .geometry import domain_mean
from .mixture import MOST, fit_mixture
from .model import STRICTNESS, Model, check_strictness, rounded, versions
from .networks import device, in_pieces, learnable
from .procurement import batches
from .runtime import InputError, progress, runtime

log = logging.getLogger("usfda")

METHODS = ("usfda", "paper")
FEW = 16  # fewer samples say too little about their domain: w is not rescaled over them, BatchNorm not fitted to them
EXAMPLES = 5  # names of a cluster's most typical samples
HUGE = 1e4  # stands for infinity in a loss, and keeps its gradient finite


@dataclass(frozen=True)
class DeploymentSettings:
    """Defaults of method ``paper``; the reasons are in docs/method.md."""

    steps: int = 200
    batch: int = 64
    lr: float = 1e-4
    beta: float = 0.1  # weight of the entropies, L_d2

    def __post_init__(self) -> None:
        if self.steps < 0 or self.batch < 2 or not (0 < self.lr < math.inf and 0 <= self.beta < math.inf):
            raise InputError("steps and beta must not be negative, batch at least 2 and lr positive")


def adapt(
    model: Model,
    target: Any,
    *,
    classes: str | Sequence[str] | None = None,
    method: str = "usfda",
    strictness: float = STRICTNESS,
    seed: int = 0,
    settings: DeploymentSettings | None = None,
) -> Model:
    """The client's stage: a model for the target's domain, from the vendor's model and unlabelled target samples.

    ``target`` is a folder or a list of images, a ``.npz`` or an array of features; labels that it may have are never
    looked at, except by ``classes``, which selects files by their folder's name. ``strictness`` moves the decision from
    0 (never unknown) to 1 (readily); ½ is the method's own. ``settings`` are those of method ``paper``; ``usfda`` has
    none. The model that comes in is left as it is; one that was adapted before starts from the vendor's part again.

    >>> adapted = adapt(model, "new-photos/")            # doctest: +SKIP
    """
    if method not in METHODS:
        raise InputError(f"no method {method!r}; there is {', '.join(METHODS)}")
    if settings is not None and method != "paper":
        raise InputError(f"method {method} has no settings; those that were given are of method paper")
    check_strictness(strictness)
    started = time.perf_counter()
    names, X = model.named_vectors(read(target, classes=classes), "target features")
    if len(names) == 0:
        raise InputError("none of the target's images can be read")
    if len(X) < FEW:
        log.warning("only %d target samples: too few to measure their domain by (%d would do)", len(X), FEW)
    extracted = time.perf_counter()
    start = {**model.card, "deployment": None}
    adapted = Model(model.classes_, model.f_s, model.d, model.geometry, model.backbone, start)
    card: dict[str, Any] = {"method": method, "strictness": strictness, "samples": len(X)}
    if method == "paper":
        card |= _paper(adapted, X, settings or DeploymentSettings(), seed)
    else:
        card |= _usfda(adapted, names, X, seed)
    card |= {
        "seed": seed,
        "seconds": {"features": extracted - started, "training": time.perf_counter() - extracted},
        "versions": versions(),
    }
    adapted.card["deployment"] = card
    decided = adapted.decide(X)
    card["unknown_share"] = round(100 * float(np.mean(~decided.known)), 2)
    card["ssm"] = {
        "mean": float(decided.ssm.mean()),
        "histogram": np.histogram(decided.ssm, 20, (1, np.e))[0].tolist(),
    }
    return adapted


def _paper(model: Model, X: Any, settings: DeploymentSettings, seed: int) -> dict[str, Any]:
    """Gives the model its F_t; the card's part."""
    model.f_t, history = train_target(model.f_s, model.d, X, len(model.classes_), settings, seed)
    return {
        "settings": dataclasses.asdict(settings),
        "learnable_parameters": learnable(model.f_t),
        "history": rounded(history),
    }


def _usfda(model: Model, names: list[str], X: Any, seed: int) -> dict[str, Any]:
    """Gives the model its mixture, unless it looks worse than the source model, and examples; the card's part."""
    torch.set_num_threads(runtime.threads)
    rng = np.random.default_rng(seed)
    some = np.arange(len(X)) if len(X) <= MOST else np.sort(rng.choice(len(X), MOST, replace=False))
    mean, V = domain_mean(X), X[some]
    z = model.geometry.z(torch.from_numpy(V), mean).numpy()
    mixture, groups, graph = fit_mixture(model.geometry, z, mean, seed)
    before = model.labels_of(model.decide(V))
    model.mixture = mixture
    p, decided = mixture(torch.from_numpy(V)).numpy(), model.decide(V)
    found = check(graph, before, model.labels_of(decided), p, model.classes_, groups.evidence)
    if found["verdict"] == "worse":
        model.mixture = None
    else:
        found["clusters"] = {}
        for cluster in np.unique(decided.cluster[decided.cluster > 0]).tolist():
            members = np.flatnonzero(decided.cluster == cluster)
            typical = members[np.argsort(-p[members, len(model.classes_) + cluster - 1])[:EXAMPLES]]
            model.examples[cluster] = [names[some[i]] for i in typical]
            found["clusters"][str(cluster)] = len(members)
    parameters = mixture.centres.numel() + mixture.bias.numel()
    return {"settings": {}, "learnable_parameters": parameters, "check": found}


def rescale(w: Tensor) -> Tensor:
    """To [0, 1] over the target set; over [1, e], all that w can be, where the set is too small to say more."""
    low, high = (w.min(), w.max()) if len(w) >= FEW else (w.new_tensor(1.0), w.new_tensor(math.e))
    return (w - low) / (high - low).clamp(min=1e-6)


def l_d1(z: Tensor, w: Tensor, w_: Tensor, n_source: int) -> Tensor:
    """w·(−log Σ_{k≤|C_s|} ẑ_k) + w'·(−log Σ_{k>|C_s|} ẑ_k) from logits, mean over the batch."""
    whole = z.logsumexp(1)
    positive, negative = z[:, :n_source].logsumexp(1), z[:, n_source:].logsumexp(1)
    return (w * (whole - positive).clamp(max=HUGE) + w_ * (whole - negative).clamp(max=HUGE)).mean()


def entropy(z: Tensor) -> Tensor:
    """H of softmax(z), by row."""
    log_p = z.log_softmax(1).clamp(min=-HUGE)
    return -(log_p.exp() * log_p).sum(1)


def l_d2(z: Tensor, w: Tensor, w_: Tensor, n_source: int) -> Tensor:
    """w·H_s + w'·H_n, mean over the batch."""
    return (w * entropy(z[:, :n_source]) + w_ * entropy(z[:, n_source:])).mean()


def train_target(
    f_s: nn.Module, d: nn.Module, X: Any, n_source: int, settings: DeploymentSettings, seed: int
) -> tuple[nn.Module, dict[str, list[float]]]:
    """F_t and the history of both losses."""
    place = device()
    f_s, d = copy.deepcopy(f_s).to(place).eval(), copy.deepcopy(d).to(place).eval()
    f_t = copy.deepcopy(f_s)

    def vectors(index: np.ndarray) -> Tensor:
        return torch.from_numpy(X[index]).to(place)

    index = np.arange(len(X))
    y_max = in_pieces(lambda v: d(f_s(v)).softmax(1)[:, :n_source].amax(1), vectors, index)
    w, w_ = rescale(y_max.exp()), rescale((1 - y_max).exp())
    optimiser = torch.optim.Adam(f_t.parameters(), lr=settings.lr, fused=True)
    next_batch = batches(index, settings.batch, np.random.default_rng(seed))
    history: dict[str, list[float]] = {"L_d1": [], "L_d2": []}
    f_t.train(len(X) >= FEW)
    with progress(settings.steps, "deployment", "steps") as advance:
        for step in range(settings.steps):
            batch = next_batch()
            z = d(f_t(vectors(batch)))
            one, two = l_d1(z, w[batch], w_[batch], n_source), l_d2(z, w[batch], w_[batch], n_source)
            optimiser.zero_grad()
            (one + settings.beta * two).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            history["L_d1"].append(one.item())
            history["L_d2"].append(two.item())
            if not np.isfinite(history["L_d1"][-1] + history["L_d2"][-1]):
                raise RuntimeError(f"deployment diverged: the loss is not finite at step {step}")
            advance(1)
    return f_t.cpu().eval(), history

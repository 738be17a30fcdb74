"""Was this image among the vendor's? Attacks on what a model file holds, for the card and ``benchmarks/privacy.py``.

The attacker has the file and an image, and knows its class. A score is greater where the image is considered one that
the file was made of.

- ``class-means``: z·P_c; an image draws the mean of its class towards itself.
- ``covariance``: Σ is known from W, and Σ = 0.8·level·I + 0.2·S with level = tr Σ / d gives back S, the covariance
  within the classes. Images of the source differ from the mean of their class in directions of S alone, others do not.
  With A = (S + η·level·I)⁻¹, e = x̃ − μ and the direction c = W⁻¹P_c of the class, eᵀAe − (eᵀAc)²/cᵀAc over eᵀe is what
  of an image lies where S has no more than η, however far from μ its class is.
- ``classifier``: p·R_c / |p|, where the file has the mean answers R_c of the backbone's classifier for each class; an
  image draws the mean of its class towards its own answers p.
- ``networks``: log ŷ of the class, which training raises.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve, inv
from scipy.stats import rankdata

from .mixture.class_statistics import SHRINKAGE
from .vendor import ClassifierStatistics, ClassStatistics, SourceNetworks, Vendor, run_f, signed_root, softmax

RIDGES = (1e-4, 1.0)  # η: the first finds directions without spread, the second those with the most
LEAST = 1e-9  # of eᵀAe


def scores(vendor: Vendor, X: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """Of every attack, for vectors X of the classes y."""
    found: dict[str, np.ndarray] = {}
    if vendor.class_statistics is not None:
        found |= _of_class_statistics(vendor.class_statistics, X, y)
    if vendor.classifier is not None:
        found["classifier"] = _of_classifier(vendor.classifier, X, y)
    if vendor.networks is not None:
        found["networks"] = _of_networks(vendor.networks, X, y)
    return found


def _of_class_statistics(class_statistics: ClassStatistics, X: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    found = {
        "class-means": (class_statistics.whiten(X, class_statistics.overall_mean) * class_statistics.means[y]).sum(1)
    }
    d = class_statistics.dim
    root = inv(class_statistics.whitener.astype(np.float64))
    sigma = root @ root.T
    level = np.trace(sigma) / d
    S = (sigma - SHRINKAGE * level * np.eye(d)) / (1 - SHRINKAGE)
    centres = class_statistics.means @ root.T
    e = signed_root(X).astype(np.float64) - class_statistics.overall_mean
    for ridge in RIDGES:
        try:
            factor = cho_factor(S + ridge * level * np.eye(d), lower=True)
        except np.linalg.LinAlgError:  # rounding, or another W, has left S with values below zero
            continue
        with_e, with_c = cho_solve(factor, e.T).T, cho_solve(factor, centres.T).T
        beside = (e * with_c[y]).sum(1) ** 2 / (centres * with_c).sum(1)[y]
        left = ((e * with_e).sum(1) - beside) / np.maximum((e * e).sum(1), 1e-12)
        found[f"covariance, η = {ridge:g}"] = -np.log(np.maximum(left, LEAST))
    return found


def _of_classifier(classifier: ClassifierStatistics, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    p = softmax(classifier.logits(X))
    score: np.ndarray = (p * classifier.share[y]).sum(1) / np.linalg.norm(p, axis=1)
    return score


def _of_networks(networks: SourceNetworks, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    p = networks.of_blocks(lambda z: z[:, : networks.classes], run_f(networks.F_s, X))
    score: np.ndarray = np.log(p[np.arange(len(y)), y] + 1e-12)
    return score


def auc(members: np.ndarray, others: np.ndarray) -> float:
    """How often a member has the greater score than another image; half where they are equal."""
    ranks = rankdata(np.concatenate([members, others]))[: len(members)]
    return float((ranks.sum() - len(members) * (len(members) + 1) / 2) / (len(members) * len(others)))


def best_attack(vendor: Vendor, X: np.ndarray, y: np.ndarray, member: np.ndarray) -> tuple[str, float]:
    """The attack that tells members from others best, and its AUC: chosen with hindsight, so a little above chance."""
    found = {name: auc(score[member], score[~member]) for name, score in scores(vendor, X, y).items()}
    name = max(found, key=lambda name: found[name])
    return name, found[name]

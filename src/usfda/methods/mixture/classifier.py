"""The backbone's own classifier as evidence: how much of what M sees in a sample the source classes are made of.

M was trained to tell J things apart, and its last layer gives their logits l = A·v + a for any vector v = M(x). With
p = softmax(l), the vendor keeps the mean of p over each source class, R (K, J). A thing j belongs to the source as far
as r_j = max_c R_cj; of a target sample x the *mass* Σ_j p_j(x)·min(r_j/ρ, 1) says how much of it belongs to the source.
This compares "one of the vendor's classes" with anything else in the world, so it has an absolute meaning.

Everything is computed from the logits, and again from the logits less their mean over the domain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from scipy.sparse import csr_array

from ...data.samples import Matrix
from ..numeric import weighted_quantile
from ..vendor import ClassifierStatistics, normalise, softmax
from .target import TargetView

RELATED = 0.05  # ρ: a thing with this share in a source class belongs to the source wholly
UNRELATED = 0.02  # a thing with less in every source class is foreign to it
WIDE, NARROW = 0.01, 0.2  # other values of ρ
KIN = 20  # foreign things that resemble a class
BATCH = 4096  # rows at a time
VARIANTS = ("raw", "centred")
_MASS = "mass Σ_j p_j·min(r_j/ρ, 1) over the neighbours: how much of the sample the source classes are made of"
_CLASS = "the same of its best class alone, Σ_j p_j·min(R_cj/ρ, 1)"
_MARGIN = "largest logit of a thing with r_j ≥ 0.02 less the largest of the others"
_NULL = "mean mass of a source class when it is left out: what an unknown sample of the same kind reaches"
_KIN = (
    "largest logit of a thing that its best class is made of, R_cj ≥ 0.02, less the largest of the things that "
    "resemble these and belong to no class, over the neighbours"
)
MEANING = {
    # of a sample
    "centred_mass_s": f"{_MASS}, ρ = 0.05",
    "centred_mass_rel": "the same over its mean in the source",
    **{f"{variant}_mass_wide": f"{_MASS}, ρ = 0.01" for variant in VARIANTS},
    **{f"{variant}_mass_narrow": f"{_MASS}, ρ = 0.2" for variant in VARIANTS},
    **{f"{variant}_class": _CLASS for variant in VARIANTS},
    **{f"{variant}_class_s": f"{_CLASS}, over the neighbours" for variant in VARIANTS},
    **{f"{variant}_margin_s": f"{_MARGIN}, over the neighbours" for variant in VARIANTS},
    **{f"{variant}_kin_s": _KIN for variant in VARIANTS},
    **{f"{variant}_fit_s": "Σ_j √(p_j·R_cj) with its best class, over the neighbours" for variant in VARIANTS},
    **{f"{variant}_fit_rel": "the same over its upper tenth in the target" for variant in VARIANTS},
    **{f"{variant}_fit_gap": "the same less that of the best other class" for variant in VARIANTS},
    **{f"{variant}_mass_part": "(mass − m₀)/(mass of the source − m₀)" for variant in VARIANTS},
    "raw_entropy": "entropy of p: a sample that M does not recognise says little by its mass",
    # of the target
    **{f"{variant}_mass{q}": f"{q} % quantile of the mass" for variant in VARIANTS for q in (10, 75)},
    "centred_mass25": "25 % quantile of the mass",
    **{f"{variant}_fit90": "upper tenth of Σ_j √(p_j·R_cj)" for variant in VARIANTS},
    **{f"{variant}_kin50": "median of the margin to the things that resemble the best class" for variant in VARIANTS},
    **{f"{variant}_median_margin": "median margin" for variant in VARIANTS},
    **{f"{variant}_dev_margin": "deviation of the margin: high where there are two groups" for variant in VARIANTS},
    **{f"{variant}_null": f"m₀, {_NULL}" for variant in VARIANTS},
    "raw_related": "share of things with r_j ≥ 0.02: how much of the world the source covers",
    "centred_home_mass": "mean mass of the source: what a known sample can reach",
    **{f"{variant}_less_entropy": "mean entropy of the source less that of the target" for variant in VARIANTS},
}


def fit_classifier(
    weight: np.ndarray, bias: np.ndarray, X: Matrix, y: np.ndarray, classes: int
) -> ClassifierStatistics:
    """The statistics of source vectors X with labels y in 0 … classes−1, for a last layer A, a."""
    counts = np.bincount(y, minlength=classes)
    rows = [slice(i, i + BATCH) for i in range(0, len(y), BATCH)]

    def answers(centre: np.ndarray | float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for some in rows:
            yield y[some], X[some] @ weight.T + bias - centre

    def class_means(values: Iterable[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        sums = np.zeros((classes, len(bias)))
        for labels, logits in values:
            members = csr_array((np.ones(len(labels)), (labels, np.arange(len(labels)))), (classes, len(labels)))
            sums += members @ logits
        return sums / counts[:, None]

    mean = class_means(answers(0)).mean(0).astype(np.float32)
    shares, levels = [], []
    for centre in (np.zeros_like(mean), mean):
        shares.append(class_means((labels, softmax(logits)) for labels, logits in answers(centre)).astype(np.float32))
        total = np.zeros(3)
        for _, logits in answers(centre):
            total += [part.sum() for part in _mass_margin_entropy(logits, softmax(logits), shares[-1].max(0))]
        levels.append(total / len(y))
    return ClassifierStatistics(weight, bias, mean, shares[0], shares[1], np.asarray(levels, np.float32))


def _mass_margin_entropy(logits: np.ndarray, p: np.ndarray, relation: np.ndarray) -> tuple[np.ndarray, ...]:
    mass = p @ np.minimum(relation / RELATED, 1)
    related = relation >= UNRELATED
    inside = logits[:, related].max(1) if related.any() else np.zeros(len(logits))
    outside = logits[:, ~related].max(1) if not related.all() else np.zeros(len(logits))
    return mass, inside - outside, -(p * np.log(p + 1e-12)).sum(1)


def _mass_of_left_out(share: np.ndarray) -> float:
    """The mean over the classes of Σ_j R_cj·min(max_{k≠c} R_kj/ρ, 1)."""
    order = np.partition(share, -2, axis=0)
    others = np.where(share == order[-1], order[-2], order[-1])
    return float((share * np.minimum(others / RELATED, 1)).sum(1).mean())


def _kin_margin(weight: np.ndarray, logits: np.ndarray, share: np.ndarray, best: np.ndarray) -> np.ndarray:
    """How far each sample's best class is above the things that resemble it and belong to no class."""
    rows = normalise(weight - weight.mean(0))
    foreign = np.flatnonzero(share.max(0) < UNRELATED)
    found = np.zeros(len(logits), logits.dtype)
    if not len(foreign):
        return found
    resemblance = (share @ rows) @ rows[foreign].T
    for c in np.unique(best):
        mine = np.flatnonzero(best == c)
        related = np.flatnonzero(share[c] >= min(UNRELATED, share[c].max()))
        kin = foreign[np.argsort(-resemblance[c])[:KIN]]
        found[mine] = logits[np.ix_(mine, related)].max(1) - logits[np.ix_(mine, kin)].max(1)
    return found


def compute(view: TargetView) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Statistics of each sample and of the target; the vendor's part has those of the classifier."""
    vendor, w, best, smooth = view.vendor.classifier, view.w, view.best, view.neighbours.smooth
    assert vendor is not None
    samples: dict[str, np.ndarray] = {}
    target: dict[str, float] = {}
    shares = vendor.share, vendor.share_centred
    for variant, (own, p), share, level in zip(VARIANTS, view.answers, shares, vendor.level, strict=True):
        relation = share.max(0)
        mass, margin, entropy = _mass_margin_entropy(own, p, relation)
        mass_s = smooth(mass)
        of_class = (p * np.minimum(share / RELATED, 1)[best]).sum(1)
        kin = smooth(_kin_margin(vendor.weight, own, share, best))
        fits = np.sqrt(p) @ np.sqrt(share).T
        fit = fits[np.arange(len(p)), best]
        fits[np.arange(len(p)), best] = -1
        fit, fit_gap = smooth(fit), smooth(fit - fits.max(1))
        home_mass, _, home_entropy = (float(x) for x in level)
        null = _mass_of_left_out(share)
        samples |= {
            f"{variant}_mass_s": mass_s, f"{variant}_mass_wide": smooth(p @ np.minimum(relation / WIDE, 1)),
            f"{variant}_mass_narrow": smooth(p @ np.minimum(relation / NARROW, 1)),
            f"{variant}_class": of_class, f"{variant}_class_s": smooth(of_class), f"{variant}_margin_s": smooth(margin),
            f"{variant}_kin_s": kin, f"{variant}_fit_s": fit, f"{variant}_fit_gap": fit_gap,
            f"{variant}_fit_rel": fit / max(weighted_quantile(fit, w, 0.9), 1e-3),
            f"{variant}_mass_part": np.clip((mass_s - null) / max(home_mass - null, 0.02), -2, 4),
            f"{variant}_mass_rel": mass_s / max(home_mass, 1e-3), f"{variant}_entropy": entropy,
        }  # fmt: skip
        target |= {
            **{f"{variant}_mass{q}": weighted_quantile(mass_s, w, q / 100) for q in (10, 25, 75)},
            f"{variant}_fit90": weighted_quantile(fit, w, 0.9), f"{variant}_kin50": weighted_quantile(kin, w, 0.5),
            f"{variant}_median_margin": weighted_quantile(margin, w, 0.5),
            f"{variant}_dev_margin": float(np.sqrt(w @ (margin - w @ margin) ** 2)),
            f"{variant}_null": null, f"{variant}_home_mass": home_mass,
            f"{variant}_related": float((relation >= UNRELATED).mean()),
            f"{variant}_less_entropy": home_entropy - float(w @ entropy),
        }  # fmt: skip
    return (
        {name: value for name, value in samples.items() if name in MEANING},
        {name: value for name, value in target.items() if name in MEANING},
    )

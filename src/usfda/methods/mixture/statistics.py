"""Statistics of a target that the learned decision reads: of each sample, and of the target as a whole.

All are computed from the vendor's class statistics and the unlabelled target, and none depends on the scale of the
vectors: cosines are divided by the source's within-class similarity c, and counts by what equal classes would have.

Symbols: z is a whitened vector, v the same after smoothing over its neighbours (``mixture.py``), P_k the class means,
b = max_k v·P_k and b₂ the second largest, g = b − b₂; a is the score of a class (``target.py``). z·P_k gives b_z and
g_z, without smoothing, and b_s with z centred on the source's mean. The null is what the best similarity of an unknown
sample would be: the second best of a known one, b₂ + b/(K−1), with mean m₀ and deviation s₀ over the target. Clusters
are those of all samples together.

``MEANING`` has a line for each: its formula, and what it says. ``training/importance.py`` measures what is lost when
one is shuffled while whole families of data sets are left out of the training.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from scipy.special import expit

from ..numeric import correlation, ranks, two_best, weighted_quantile
from ..vendor import normalise, softmax
from .split import likelihood_ratio
from .target import LEAST_SIMILARITY, TargetView

LEAST_DENSITY = 0.02  # below which a sample has no neighbours to speak of
MEANING = {
    # of a sample
    "b": "b/c: similarity to the best class, in units of the source's own",
    "bz": "b_z/c: the same without its neighbours' help",
    "bs": "b_s/c: the same centred on the source's mean, which does not depend on what else the target has",
    "gap": "(b − b₂)/c: a sample of a class has one best class, others are between several",
    "gap_s": "(b_s − b_s2)/c: the same centred on the source's mean",
    "score_gap": "a − a₂, best score less the second: the same of all the evidence for a class",
    "score_p": "largest of softmax(a): high where the best class is surely the best",
    "llr": "log-odds of the two-component rule on b",
    "llr_z": "the same on b_z",
    "rank": "rank of b in the target, from 0 to 1",
    "density": "mean cosine with the nearest neighbours, over c: a sample apart from others is dissimilar to any class",
    "density_rel": "the same over its median in the target",
    "agreement": "share of neighbours with the same best class by b_z; −0.1 without neighbours",
    "entropy": "entropy of softmax(16·z·P) over log K",
    "length": "|W(x̃ − μ)| over its median: outliers are longer",
    "class_mass": "log of the share of its best class times K: an absent class attracts few samples",
    "class_mean": "mean b of its best class, over c",
    "class_towards": "cosine of the mean z of its best class with P: unknown samples pull a class off its place",
    "twin": "largest cosine of its best class's P with another's: classes that resemble each other have small gaps",
    "gap_part": "gap over 1 − twin: 1 for a sample of a class as in the source",
    "span": "length of v's part in the span of the class means: what lies outside is of no class",
    "own": "similarity, over c, to the mean v of those of its best class that are above its mean b, itself left out",
    "own_gap": "the same less that to the best other class",
    "k_b": "best similarity of its cluster's mean, over c: a decision by clusters",
    "k_gap": "the same less the second best",
    "k_score_gap": "the mean of a over its cluster, best less second best",
    "k_mean": "mean b of its cluster, over c",
    "k_first": "1 where its cluster is the most similar one to its class: a class has one cluster, others are rivals",
    "k_rel": "similarity of its cluster over that of the most similar one to the same class",
    "k_size": "log of the share of its cluster times K",
    # of the target
    "K": "log K",
    "n_K": "log n/K: with few samples of a class neighbours say little",
    "c": "within-class similarity of the source: how compact its classes are",
    "rho": "correlation of b with the density: high where the dissimilar are odd samples, not unknown classes",
    "share": "mean probability of known by the two-component rule",
    "sep": "(mean b − m₀)/s₀: how far the target lies above the null",
    "classes": "exp of the entropy of the classes' shares, over K: 1 where all classes have equal shares",
    "agree": "mean agreement",
    "dens": "median density over c",
    "dens_dev": "deviation of the density over its mean",
    "shift": "|W(μ − μ_source)| over the median length: the shift of the domain's mean",
    "off_max": "largest cosine between two class means: the source's most similar classes",
    "twins": "mean of twin over the classes: b/c of an unknown class of the same kind",
    "b50": "median of b over c",
    "b90": "upper tenth of b over c: low where no class is shared, or the shift is severe",
    "z90": "the same of b_z",
    "g90": "upper tenth of b − b₂ over c",
    "s0": "s₀/c",
    "mz": "mean of the null without neighbours, over c",
    "k_pure": "mean share of the commonest class in a cluster",
    "k_only": "share of the samples in a cluster that is the first of its class",
    "score50": "median of a − a₂",
    "own50": "median of own",
    "span50": "median of span",
    "kurt": "kurtosis of b: low where there are two groups",
}
SHARPNESS = 16.0  # of the softmax over the classes whose entropy is a statistic: that of the mixture


def compute(view: TargetView) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """The statistics of each sample, and those of the target."""
    P, K, n = view.means, len(view.means), len(view.z)
    w, c = view.w, view.within_class_similarity
    S, Z = view.similarity, view.z @ P.T
    b, b2 = two_best(S)
    bz, bz2 = two_best(Z)
    bs, bs2 = two_best(view.shrink[:, None] * view.source_similarity)
    best, best_z = view.best, Z.argmax(1)
    score, score_2 = two_best(view.scores)
    density = view.neighbours.density.clip(min=LEAST_DENSITY)

    def average(values: np.ndarray) -> float:
        return float(w @ values)

    def deviation(values: np.ndarray) -> float:
        return float(np.sqrt(w @ (values - w @ values) ** 2))

    def quantile(values: np.ndarray, q: float) -> float:
        return weighted_quantile(values, w, q)

    null, null_z = b2 + b / (K - 1), bz2 + bz / (K - 1)
    llr, llr_z = (np.clip(likelihood_ratio(*pair, w), -20, 20) for pair in ((b, null), (bz, null_z)))
    m0, s0 = average(null), deviation(null) + 1e-6
    pairs = view.neighbours.weight.tocoo()
    degree = np.bincount(pairs.row, minlength=n)
    same = np.bincount(pairs.row, (best_z[pairs.row] == best_z[pairs.col]).astype(float), n)
    agreement = np.where(degree > 0, same / np.maximum(degree, 1), -0.1)
    p = softmax(SHARPNESS * Z)
    entropy = -(p * np.log(p + 1e-12)).sum(1) / np.log(K)
    length = view.lengths
    median_length = max(quantile(length, 0.5), 1e-12)

    # Of the class that each sample is most similar to.
    mass = np.bincount(best, w, K)
    class_mean = np.bincount(best, w * b, K) / np.maximum(mass, 1e-12)
    sums = csr_array((w, (best, np.arange(n))), (K, n)) @ view.z
    towards = (normalise(sums) * P).sum(1)

    similar = P @ P.T
    # Of the classes as they are in the target: the mean of the upper part of each.
    upper = w * (b >= class_mean[best])
    seeds = csr_array((upper, (best, np.arange(n))), (K, n)) @ view.v
    total = np.linalg.norm(seeds, axis=1)
    V = view.v @ normalise(seeds).T
    size_of = total[best]
    inner = V[np.arange(n), best]  # of the sums without the sample itself: (u·s − w)/|s − w·u|
    others = size_of**2 - 2 * upper * inner * size_of + upper**2
    own = (inner * size_of - upper) / np.sqrt(np.maximum(others, 1e-24))
    own[others < 1e-20] = 0
    V[np.arange(n), best] = -1
    own_gap = own - V.max(1)
    twin = (similar - 2 * np.eye(K)).max(1)
    span = np.sqrt(np.maximum(((S @ np.linalg.inv(similar + 1e-3 * np.eye(K))) * S).sum(1), 0))

    # Of the cluster that each sample is in.
    member = view.clusters
    count = int(member.max()) + 1
    size = np.bincount(member, w, count)
    inside = np.maximum(size, 1e-12)
    cluster_S = normalise(csr_array((w, (member, np.arange(n))), (count, n)) @ view.v) @ P.T
    kb, kb2 = two_best(cluster_S)
    cluster_a, cluster_a2 = two_best(csr_array((w, (member, np.arange(n))), (count, n)) @ view.scores / inside[:, None])
    cluster_class = cluster_S.argmax(1)
    leader = np.full(K, -1.0)
    np.maximum.at(leader, cluster_class, np.where(size > 0, kb, -1))
    first = (kb >= leader[cluster_class] - 1e-9).astype(float)
    relative = kb / np.maximum(leader[cluster_class], LEAST_SIMILARITY)
    votes = np.bincount(member * K + best_z, w, count * K).reshape(count, K)
    purity = votes.max(1) / inside
    cluster_mean = np.bincount(member, w * b, count) / inside

    samples = {
        "b": b / c, "bz": bz / c, "bs": bs / c, "gap": (b - b2) / c, "gap_s": (bs - bs2) / c,
        "score_gap": score - score_2, "score_p": softmax(view.scores).max(1),
        "llr": llr, "llr_z": llr_z, "rank": ranks(b, w), "density": density / c,
        "density_rel": density / max(quantile(density, 0.5), 1e-6),
        "agreement": agreement, "entropy": entropy, "length": length / median_length,
        "class_mass": np.log((mass[best] + 0.5 / n) * K), "class_mean": class_mean[best] / c,
        "class_towards": towards[best],
        "twin": twin[best], "gap_part": np.clip((b - b2) / c / np.maximum(1 - twin[best], 0.1), -2, 4),
        "span": span, "own": own / c, "own_gap": own_gap / c,
        "k_b": kb[member] / c, "k_gap": (kb - kb2)[member] / c, "k_mean": cluster_mean[member] / c,
        "k_score_gap": (cluster_a - cluster_a2)[member],
        "k_first": first[member], "k_rel": relative[member], "k_size": np.log(inside[member] * K),
    }  # fmt: skip
    masses = mass[mass > 0]
    skewed = (b - average(b)) / max(deviation(b), 1e-6)
    target = {
        "K": np.log(K), "n_K": np.log(n / K), "c": c,
        "rho": correlation(b, density, w), "share": average(expit(llr)), "sep": (average(b) - m0) / s0,
        "classes": np.exp(-(masses * np.log(masses)).sum()) / K, "agree": average(agreement),
        "dens": quantile(density, 0.5) / c, "dens_dev": deviation(density) / max(average(density), 1e-6),
        "shift": view.shift,
        "off_max": similar[~np.eye(K, dtype=bool)].max(),
        "b50": quantile(b, 0.5) / c, "b90": quantile(b, 0.9) / c, "z90": quantile(bz, 0.9) / c,
        "g90": quantile(b - b2, 0.9) / c, "s0": s0 / c, "mz": average(null_z) / c,
        "k_pure": float(size @ purity), "k_only": float(size @ first), "kurt": average(skewed**4),
        "score50": quantile(score - score_2, 0.5), "own50": quantile(own, 0.5) / c, "span50": quantile(span, 0.5),
        "twins": float(twin.mean()),
    }  # fmt: skip
    return samples, {name: float(value) for name, value in target.items()}

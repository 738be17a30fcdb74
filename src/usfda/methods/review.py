"""Which samples of a target a person is asked about, and what the answers change and measure.

1. *Draw.* Every sample i has a known probability π_i of being asked, proportional to √(P_i(1 − P_i)) with the
   probability P_i that it is known: high near the threshold. The samples are drawn systematically in the order of their
   groups (the class of an accepted sample, the cluster of a rejected one) and of their confidence, so that the
   questions spread over classes, clusters and the range of confidence. Each answer counts 1/π_i times, so all of them
   serve the measurement as well as the threshold.
2. *Choose.* The log-odds of being known are a Gaussian process,

       f_i = β·z_i + a + b·z_i + u_g(i),    a, b, u_g ~ N(0, ·),

   with z_i the log-odds of the confidence above the present threshold: calibration is regularised towards the present
   decision, and an answer says most about its own group. The posterior (Laplace's approximation) gives P_i, these the
   expected H of every threshold. The hypotheses that nothing is unknown, or nothing known, are weighed against it by
   their evidence. A cluster whose answers name one class is merged with it where that raises the expected figure.
3. *Measure.* Shares are weighted by 1/π_i. Whether the decision is right for an answered sample is found without its
   own answer (``without_each``), which is pessimistic; with it, the upper ends of the intervals may be higher. The 90 %
   intervals are those of Clopper and Pearson with the effective sample size (Korn and Graubard, 1998); that of H comes
   from draws of both shares.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import expit, log_expit, logit
from scipy.stats import beta

NONE = -1  # instead of a class: the sample is of none of them


@dataclass(frozen=True)
class ReviewSettings:
    """Chosen on reference tasks of families that the weights were not trained on (``benchmarks/review.py``)."""

    slope: float = 0.5  # β: confidences are too extreme; the median of logistic fits to each task is 0.58
    offset_sd: float = 1.0  # of a, in log-odds
    slope_sd: float = 0.35  # of b
    group_sd: float = 1.5  # of u_g: a class of the source that is absent has accepted samples that are all unknown
    clip: float = 6.0  # |z|: probabilities of the mixture saturate
    pure: float = 0.3  # prior probability that nothing is unknown, and that nothing is known
    right: tuple[float, float] = (1.5, 0.2)  # log-odds that the best class of a known sample is right: at z = 0, per z
    margin: float = 0.02  # of the expected figure, a share, that a change must gain: good thresholds stay
    agreement: float = 0.6  # share of a cluster's answers that must name the class that it joins
    candidates: int = 400  # thresholds that are compared
    coverage: float = 0.9  # of an interval
    alike: float = 0.15  # correlation of being right between samples of a class (Kish's design effect)
    draws: int = 4000  # of both shares, for the interval of H


DEFAULT = ReviewSettings()


@dataclass(frozen=True)
class Decided:
    """A target as a model decides it before the review.

    Parameters
    ----------
    score : array (n,)
        The confidence.
    best : array (n,) of int
        The best class.
    cluster : array (n,) of int
        The cluster that the sample is of if it is unknown, from 1; 0 where there is none.
    threshold : float
        Of the confidence.
    classes : int
        How many classes there are.
    settings : ReviewSettings
        Constants of the model of the answers.
    """

    score: np.ndarray
    best: np.ndarray
    cluster: np.ndarray
    threshold: float
    classes: int
    settings: ReviewSettings = DEFAULT

    @cached_property
    def z(self) -> np.ndarray:
        """Log-odds of the confidence above the threshold."""
        s, (score, threshold) = self.settings, (np.clip(x, 1e-9, 1 - 1e-9) for x in (self.score, self.threshold))
        found: np.ndarray = np.clip(logit(score) - logit(threshold), -s.clip, s.clip)
        return found

    @cached_property
    def group(self) -> np.ndarray:
        """The class of an accepted sample, or the cluster of a rejected one."""
        return np.where(self.score >= self.threshold, self.best, self.classes + self.cluster)

    def covariance(self, rows: np.ndarray) -> np.ndarray:
        """Of f between all samples and some."""
        s, z = self.settings, self.z
        same = self.group[:, None] == self.group[rows]
        found: np.ndarray = s.offset_sd**2 + s.slope_sd**2 * np.outer(z, z[rows]) + s.group_sd**2 * same
        return found

    def known_probability(self, rows: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, float]:
        """P, given whether some samples are known, and the log evidence of these answers."""
        s, mean = self.settings, self.settings.slope * self.z
        variance = s.offset_sd**2 + s.slope_sd**2 * self.z**2 + s.group_sd**2
        evidence = 0.0
        if len(rows):
            K, y = self.covariance(rows), np.asarray(known, float)
            alpha, root, L = _laplace(K[rows], mean[rows], y)
            f = mean[rows] + K[rows] @ alpha
            evidence = float(-alpha @ (f - mean[rows]) / 2 + log_expit(np.where(known, f, -f)).sum())
            evidence -= float(np.log(np.diag(L)).sum())
            variance = variance - (np.linalg.solve(L, (K * root).T) ** 2).sum(0)
            mean = mean + K @ alpha
        p: np.ndarray = expit(mean / np.sqrt(1 + np.pi * variance.clip(min=0) / 8))
        return p, evidence


@dataclass(frozen=True)
class Answers:
    """What a person said.

    Parameters
    ----------
    rows : array (m,) of int
        The samples.
    truth : array (m,) of int
        The class of each, or ``NONE``.
    probability : array (m,)
        π, with which each was drawn.
    """

    rows: np.ndarray
    truth: np.ndarray
    probability: np.ndarray

    @property
    def known(self) -> np.ndarray:
        """Whether each is of one of the classes."""
        return np.asarray(self.truth != NONE)


@dataclass(frozen=True)
class Choice:
    """What the answers change: the threshold, and clusters that are merged with a class."""

    threshold: float
    merged: dict[int, int]


@dataclass(frozen=True)
class Estimate:
    """A figure in percent, None where no answer bears on it, and its interval."""

    value: float | None
    interval: tuple[float, float]


def _laplace(K: np.ndarray, mean: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The mode of f = mean + K·α under logistic answers, by Newton's method (Rasmussen and Williams, algorithm 3.1).

    Returns α, √W, and the Cholesky factor of 1 + √W·K·√W.
    """
    alpha, sign = np.zeros(len(y)), 2 * y - 1

    def objective(alpha: np.ndarray) -> float:
        return float(log_expit(sign * (mean + K @ alpha)).sum() - alpha @ K @ alpha / 2)

    for _ in range(50):
        f = mean + K @ alpha
        p = expit(f)
        root = np.sqrt(p * (1 - p))
        L = np.linalg.cholesky(np.eye(len(y)) + root[:, None] * K * root)
        b = root**2 * (f - mean) + y - p
        step = b - root * np.linalg.solve(L.T, np.linalg.solve(L, root * (K @ b))) - alpha
        size = 1.0
        while size > 1e-3 and objective(alpha + size * step) < objective(alpha):
            size /= 2
        alpha = alpha + size * step
        if np.abs(K @ step).max() < 1e-6:
            break
    return alpha, root, L


def draw(decided: Decided, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Samples to ask about, in random order, so that those that are answered are a random part; and their π."""
    n = len(decided.score)
    if count >= n:
        return rng.permutation(n), np.ones(n)
    p, _ = decided.known_probability(np.empty(0, int), np.empty(0))
    probability = inclusion(np.sqrt(p * (1 - p)), count)
    order = np.lexsort((rng.random(n), decided.z, decided.group))
    ends = np.cumsum(probability[order])
    rows = rng.permutation(order[np.searchsorted(ends, rng.random() + np.arange(count), side="right").clip(max=n - 1)])
    return rows, probability[rows]


def inclusion(size: np.ndarray, count: int) -> np.ndarray:
    """Probabilities that are proportional to a size, at most 1, and sum to ``count``."""
    certain = np.zeros(len(size), bool)
    while True:
        left = count - certain.sum()
        found = np.where(certain, 1.0, left * size / size[~certain].sum())
        if not (found > 1).any():
            return found
        certain |= found > 1


def choose(decided: Decided, answers: Answers, most_rejected: float = 1.0) -> Choice:
    """The threshold and the merged clusters with the highest expected figure; ``most_rejected`` bounds rejections."""
    s, z, known = decided.settings, decided.z, answers.known
    p, evidence = decided.known_probability(answers.rows, known)
    pure = [np.log(s.pure) if same else -np.inf for same in (known.all(), not known.any())]
    weights = np.exp(np.asarray([np.log(1 - 2 * s.pure) + evidence, *pure]) - max(evidence, *pure))
    # The figure averages over classes: a sample counts less the larger its class is.
    mass = np.bincount(decided.best, p * (decided.score >= decided.threshold), decided.classes)
    usual = mass.sum() / max(1, (mass > 1).sum())
    figure = Figure(p, 1 / np.maximum(mass[decided.best], usual / 4 + 1), weights / weights.sum())
    right = expit(s.right[0] + s.right[1] * z)
    score, merged = decided.score.copy(), {}
    for cluster, name, share in _named_clusters(decided, answers):
        members = decided.group == decided.classes + cluster
        now = [np.where(members, 1.0, score), np.where(members, share, right)]
        one = np.asarray([decided.threshold])
        if figure.at(one, *now)[0] > figure.at(one, score, right)[0] + s.margin:
            score, right = now
            merged[cluster] = name

    values = np.unique(decided.score)
    between = (values[1:] + values[:-1]) / 2
    some = np.unique(np.linspace(0, len(between) - 1, min(s.candidates, len(between))).astype(int))
    candidates = np.concatenate([[decided.threshold, 0.0, 1.0], between[some]])
    expected = figure.at(candidates, score, right)
    rejected = np.searchsorted(np.sort(score), candidates) / len(score)
    allowed = rejected <= max(most_rejected, rejected[0])
    best = int(np.argmax(np.where(allowed, expected, -1.0)))
    return Choice(float(candidates[best if expected[best] > expected[0] + s.margin else 0]), merged)


def without_each(decided: Decided, answers: Answers, most_rejected: float = 1.0) -> list[Choice]:
    """For each answer, the choice by all others: what they decide for its sample is no result of fitting to it."""
    rest = ~np.eye(len(answers.rows), dtype=bool)
    return [
        choose(decided, Answers(answers.rows[k], answers.truth[k], answers.probability[k]), most_rejected) for k in rest
    ]


@dataclass(frozen=True)
class Figure:
    """The expected figure: H; shared accuracy if nothing is unknown; T_unk if nothing is known.

    Parameters
    ----------
    known : array (n,)
        P.
    weight : array (n,)
        Of each sample in the shared accuracy.
    hypotheses : array (3,)
        Probabilities: both are there; nothing is unknown; nothing is known.
    """

    known: np.ndarray
    weight: np.ndarray
    hypotheses: np.ndarray

    def at(self, thresholds: np.ndarray, score: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Of each threshold; ``right`` is the probability that the label of a known sample is right."""
        order = np.argsort(score)
        place = np.searchsorted(score[order], thresholds)  # samples from there on are accepted

        def accepted(values: np.ndarray) -> np.ndarray:
            share: np.ndarray = 1 - np.append(0, np.cumsum(values[order]))[place] / max(values.sum(), 1e-9)
            return share

        hit, total = self.weight * right, self.weight.sum()
        accuracy = accepted(hit * self.known) * (hit @ self.known) / max(self.weight @ self.known, 1e-9)
        rejected = 1 - accepted(1 - self.known)
        none_unknown, none_known = accepted(hit) * hit.sum() / total, place / len(score)
        figure: np.ndarray = self.hypotheses @ np.stack([_harmonic(accuracy, rejected), none_unknown, none_known])
        return figure


def _named_clusters(decided: Decided, answers: Answers) -> list[tuple[int, int, float]]:
    """Clusters whose rejected samples were mostly said to be of one class, that class, and its estimated share."""
    found, group = [], decided.group[answers.rows]
    for cluster in np.unique(group[group > decided.classes] - decided.classes).tolist():
        truth = answers.truth[group == decided.classes + cluster]
        named, counts = np.unique(truth[truth != NONE], return_counts=True)
        if len(named) and counts.max() >= decided.settings.agreement * len(truth):
            found.append((cluster, int(named[counts.argmax()]), (counts.max() + 0.5) / (len(truth) + 1)))
    return found


def measure(
    truth: np.ndarray, right: np.ndarray, probability: np.ndarray, settings: ReviewSettings = DEFAULT, seed: int = 0
) -> dict[str, Estimate]:
    """Shared accuracy, T_unk and H of a decision.

    Parameters
    ----------
    truth : array (m,) of int
        The class of each answered sample, or ``NONE``.
    right : array (m,) of bool
        Whether its label is right; *unknown* is the right one of a sample that is not known.
    probability : array (m,)
        π, with which each was drawn.
    """
    tails, rng = ((1 - settings.coverage) / 2, (1 + settings.coverage) / 2), np.random.default_rng(seed)
    found, both = {}, []
    for name, members in (("shared_accuracy", truth != NONE), ("t_unk", truth == NONE)):
        weight, hit = 1 / probability[members], right[members]
        if not len(hit):
            found[name] = Estimate(None, (0.0, 100.0))
            continue
        share = min(1.0, float(weight @ hit / weight.sum()))
        n = float(weight.sum() ** 2 / (weight @ weight))  # effective
        if name == "shared_accuracy":  # a mean over classes, and the samples of a class are alike
            _, counts = np.unique(truth[members], return_counts=True)
            n /= 1 + settings.alike * (counts @ counts / counts.sum() - 1)
        hits, misses = (0.0 if x < 1e-9 else x for x in (n * share, n * (1 - share)))
        low = beta.ppf(tails[0], hits, misses + 1) if hits else 0.0
        high = beta.ppf(tails[1], hits + 1, misses) if misses else 1.0
        found[name] = Estimate(100 * share, (100 * float(low), 100 * float(high)))
        draws = np.zeros(settings.draws)
        lowest = rng.beta(hits, misses + 1, settings.draws) if hits else draws
        highest = rng.beta(hits + 1, misses, settings.draws) if misses else draws + 1
        both.append((share, lowest, highest))
    if len(both) < 2:
        return found | {"h_score": Estimate(None, (0.0, 100.0))}
    value, low, high = (_harmonic(one, other) for one, other in zip(*both, strict=True))
    interval = (100 * float(np.quantile(low, tails[0])), 100 * float(np.quantile(high, tails[1])))
    return found | {"h_score": Estimate(100 * float(value), interval)}


def widened(found: dict[str, Estimate], other: dict[str, Estimate]) -> dict[str, Estimate]:
    """Estimates with intervals that hold those of others."""
    return {
        name: Estimate(one.value, (min(one.interval[0], two.interval[0]), max(one.interval[1], two.interval[1])))
        for (name, one), two in zip(found.items(), other.values(), strict=True)
    }


def _harmonic(accuracy: np.ndarray, rejected: np.ndarray) -> np.ndarray:
    mean: np.ndarray = 2 * accuracy * rejected / np.maximum(np.add(accuracy, rejected), 1e-9)
    return mean

"""Known or unknown: the two groups of target samples, told apart without a label (docs/usfda.md).

s_i = max_c S_ic, the best similarity of a sample, comes from one of two groups, known ~ N(m_1, v_1) and unknown
~ N(m_0, v_0). What an *unknown* sample's best similarity would be shows in a known one's *second* best, which is what
its best would be were its class not there. So m_0 and v_0 do not depend on there being any unknown sample.

A sample is known where N(s | m_1, v_1) > N(s | m_0, v_0): whatever share of the samples is unknown. That share cannot
be estimated well, and a decision that trusts it calls everything known, or everything unknown, where it is wrong. Only
two tests, both free of scale, move the line where a group seems to be missing altogether.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit

from ..errors import InputError

FEW = 16  # fewer samples say too little about their domain: method paper neither rescales w nor fits BatchNorm by them
FEWEST = 2  # images behind every mean that is saved, so that no model file holds the vector of a single one
LEAST_DENSITY = 0.02  # below which a sample is as lonely as can be
ITERATIONS = 100  # of EM, at most
RAMP = 0.3  # how far beyond its threshold a test has its full weight
LONELIEST = 0.3  # the least of g: divided by less, a sample far from all others would seem similar to any class


@dataclass(frozen=True)
class UsfdaSettings:
    """Defaults of method ``usfda``, chosen on the development suite (docs/usfda.md)."""

    most: int = 5000  # samples that groups and centres are fitted to, so that time and memory stay linear
    neighbours: int = 10  # of a sample, and at most half of a class's share of the target
    rounds: int = 3  # of moving a sample towards its neighbours
    scale: float = 16.0  # τ: as peaked as the source classes are at home
    clusters: int = 64  # of unknown samples, at most
    rest: float = 0.4  # of the usual cosine of a sample with its centre: what has less with all resembles nothing
    typical: float = 0.6  # correlation of similarity with density above which the dissimilar are odd, not unknown
    typical_lean: float = 4.0  # log-odds towards known where that correlation is 0.3 higher
    distant: float = 0.5  # upper tenth of the similarities over the source's cohesion below which no class may be there
    distant_lean: float = 3.0  # log-odds towards unknown where it is 0.3 lower

    def __post_init__(self) -> None:
        if self.most < FEWEST or self.neighbours < 1 or self.clusters < 1 or self.rounds < 0:
            raise InputError("most starts at 2, neighbours and clusters at 1, rounds at 0")
        if not 0 < self.scale < math.inf:
            raise InputError("scale must be positive")
        if not 0 <= self.rest <= 1:
            raise InputError("rest is from 0 to 1")
        if not all(map(math.isfinite, (self.typical, self.typical_lean, self.distant, self.distant_lean))):
            raise InputError("typical, distant and their leans must be finite")


@dataclass(frozen=True)
class Groups:
    """The two groups.

    Parameters
    ----------
    known : array (n,)
        Each sample's probability to be known if as many were known as unknown.
    typicality : float
        ρ, the correlation of a sample's best similarity with the density around it.
    evidence : float
        r, the upper tenth of the best similarities over the source's cohesion.
    """

    known: np.ndarray
    typicality: float
    evidence: float


def fit_known_unknown(
    similarity: np.ndarray,
    density: np.ndarray,
    cohesion: float,
    settings: UsfdaSettings,
    weight: np.ndarray | None = None,
    typicality: float | None = None,
) -> Groups:
    """The groups of samples by their similarity (n, classes) and the density around each.

    ``weight`` is the number of samples that each row stands for. Where rows are means of several, ``typicality`` must
    be given: a mean is more similar to its class and to its neighbours at once, which is no sign of it.
    """
    n, classes = similarity.shape
    w = np.full(n, 1 / n) if weight is None else weight / weight.sum()
    density = density.clip(min=LEAST_DENSITY)
    # A sample that lies apart from all others is less similar to its own class, too: S_ic / g_i takes that out.
    g = np.sqrt(density / weighted_quantile(density, w, 0.5)).clip(min=LONELIEST)
    ordered = np.sort(similarity, axis=1)
    best = ordered[:, -1]
    s = best / g
    # Prototypes are centred: a sample at s from its own lies on average at −s/(K−1) from the others.
    second = ordered[:, -2] / g + s / (classes - 1)
    llr = _likelihood_ratio(s, second, w)
    if typicality is None:
        typicality = correlation(best, density, w)
    evidence = float(weighted_quantile(best, w, 0.9)) / max(cohesion, 1e-6)
    lean = settings.typical_lean * np.clip((typicality - settings.typical) / RAMP, 0, 1)
    lean -= settings.distant_lean * np.clip((settings.distant - evidence) / RAMP, 0, 1)
    return Groups(expit(llr + lean), typicality, evidence)


def _likelihood_ratio(s: np.ndarray, second: np.ndarray, w: np.ndarray) -> np.ndarray:
    """log N(s | m_1, v_1) − log N(s | m_0, v_0), fitted by EM; rows have weights w that sum to 1."""
    mean = w @ s
    spread = np.sqrt(w @ (s - mean) ** 2)
    known = expit((s - weighted_quantile(s, w, 0.5)) / (0.3 * spread + 1e-9))
    llr = np.zeros(len(s))
    for _ in range(ITERATIONS):
        share = w @ known
        m_0 = w @ (known * second + (1 - known) * s)
        v_0 = w @ (known * (second - m_0) ** 2 + (1 - known) * (s - m_0) ** 2) + 1e-8
        m_1 = max(w @ (known * s) / max(share, 1e-9), m_0)
        v_1 = max(w @ (known * (s - m_1) ** 2) / max(share, 1e-9), v_0)
        # Beyond its mean, a group is as likely as at it: a better similarity never makes a sample less known.
        log_1 = -((np.clip(s, m_0, m_1) - m_1) ** 2) / (2 * v_1) - np.log(v_1) / 2
        log_0 = -((np.maximum(s, m_0) - m_0) ** 2) / (2 * v_0) - np.log(v_0) / 2
        llr = log_1 - log_0
        before, known = known, expit(logit(np.clip(share, 1e-3, 1 - 1e-3)) + llr)
        if np.abs(known - before).max() < 1e-4:
            break
    return llr


def weighted_quantile(values: np.ndarray, w: np.ndarray, q: float) -> float:
    """The least value that at least a share q of the weight does not exceed."""
    order = np.argsort(values)
    total = np.cumsum(w[order])
    return float(values[order[min(np.searchsorted(total, q * total[-1]), len(order) - 1)]])


def correlation(a: np.ndarray, b: np.ndarray, w: np.ndarray) -> float:
    """Pearson's, with weights that sum to 1; 0 where one of the two does not vary."""
    a, b = a - w @ a, b - w @ b
    return float(w @ (a * b) / max(np.sqrt((w @ a**2) * (w @ b**2)), 1e-12))

"""Known or unknown by two components: the simple rule, and a statistic of the learned one.

s_i = max_c S_ic, the best similarity of a sample, comes from one of two components, known ~ N(m_1, v_1) and unknown
~ N(m_0, v_0). The best similarity of an *unknown* sample is distributed like the second best of a known one, which is
what its best would be without its class. So m_0 and v_0 do not depend on there being any unknown sample.

A sample is known where N(s | m_1, v_1) > N(s | m_0, v_0), whatever share of the samples is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit

from ..numeric import two_best, weighted_quantile
from .target import TargetView

ITERATIONS = 100  # of EM, at most


@dataclass(frozen=True)
class Split:
    """The best class of each sample, and the log-odds that it is known: it is where they are 0 or more."""

    best: np.ndarray
    log_odds: np.ndarray


def two_components(view: TargetView) -> Split:
    """The simple rule."""
    best, second = two_best(view.similarity)
    # Class means are centred: a sample at s from its own lies on average at −s/(K−1) from the others.
    null = second + best / (len(view.means) - 1)
    return Split(view.similarity.argmax(1), likelihood_ratio(best, null, view.w))


def likelihood_ratio(s: np.ndarray, second: np.ndarray, w: np.ndarray) -> np.ndarray:
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
        # Beyond its mean, a component is as likely as at it: a better similarity never makes a sample less known.
        log_1 = -((np.clip(s, m_0, m_1) - m_1) ** 2) / (2 * v_1) - np.log(v_1) / 2
        log_0 = -((np.maximum(s, m_0) - m_0) ** 2) / (2 * v_0) - np.log(v_0) / 2
        llr = log_1 - log_0
        before, known = known, expit(logit(np.clip(share, 1e-3, 1 - 1e-3)) + llr)
        if np.abs(known - before).max() < 1e-4:
            break
    return llr

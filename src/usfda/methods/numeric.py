"""Small numeric functions that several modules use."""

from __future__ import annotations

import numpy as np


def two_best(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest and the second largest of every row."""
    top = np.partition(values, -2, axis=1)[:, -2:]
    return top[:, 1], top[:, 0]


def weighted_quantile(values: np.ndarray, w: np.ndarray, q: float) -> float:
    """The least value that at least a share q of the weight does not exceed."""
    order = np.argsort(values)
    total = np.cumsum(w[order])
    return float(values[order[min(np.searchsorted(total, q * total[-1]), len(order) - 1)]])


def ranks(values: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The share of the weight below each value, half of its own included; w sums to 1."""
    order = np.argsort(values, kind="stable")
    found = np.empty(len(values))
    found[order] = np.cumsum(w[order]) - w[order] / 2
    return found


def correlation(a: np.ndarray, b: np.ndarray, w: np.ndarray) -> float:
    """Pearson's, with weights that sum to 1; 0 where one of the two does not vary."""
    a, b = a - w @ a, b - w @ b
    return float(w @ (a * b) / max(np.sqrt((w @ a**2) * (w @ b**2)), 1e-12))

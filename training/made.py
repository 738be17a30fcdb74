"""Made vectors: classes that are Gaussian mixtures, in two or more domains that differ by a random shift.

They stand for vectors of anything: no network has seen them, their dimension is from 4 to 400, and classes may be round
or stretched, apart or overlapping, each a single blob or several.
"""

from __future__ import annotations

import numpy as np

Domain = tuple[np.ndarray, np.ndarray]  # vectors and class names


def made_domains(rng: np.random.Generator) -> list[Domain]:
    """Three domains with the same classes."""
    d = int(np.exp(rng.uniform(np.log(4), np.log(400))))
    classes = int(np.exp(rng.uniform(np.log(4), np.log(60))))
    per_class = int(rng.integers(15, 60))
    rank = max(2, int(d * rng.uniform(0.1, 1)))
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    scale = np.exp(rng.normal(0, rng.uniform(0, 1), d))  # a stretched covariance
    directions = basis[:, :rank]
    apart = rng.uniform(1.2, 5)  # distance of class means in units of the spread along a line between them
    blobs = int(rng.integers(1, 4))
    parents = rng.normal(size=(max(2, classes // 4), rank))  # classes come in kinds that resemble each other
    alike = rng.uniform(0, 0.8)
    means = alike * parents[rng.integers(0, len(parents), classes)] + np.sqrt(1 - alike**2) * rng.normal(
        size=(classes, rank)
    )
    means = apart * means / np.sqrt(2 * rank) * np.sqrt(rng.uniform(2, 12))
    inner = rng.normal(size=(classes, blobs, rank)) * rng.uniform(0, 0.5) * apart / np.sqrt(rank)
    heavy = rng.random() < 0.3  # tails of Student's t
    kind = rng.choice(["plain", "positive", "unit"])
    domains = []
    for j in range(3):
        strength = 0.0 if j == 0 else rng.uniform(0, 1)
        shift = rng.normal(size=d) * strength * apart * rng.uniform(0, 1) / np.sqrt(d) * 2
        a = strength * rng.uniform(0, 0.8)
        turn = np.linalg.qr(np.eye(d) + a * rng.normal(size=(d, d)) / np.sqrt(d))[0]
        turn *= np.sign(np.diag(turn))
        gain = np.exp(strength * rng.uniform(0, 0.5) * rng.normal(size=d))
        drift = rng.normal(size=(classes, d)) * strength * rng.uniform(0, 0.7) * apart / np.sqrt(d)
        noise = 1 + strength * rng.uniform(-0.4, 1.2)
        y = np.repeat(np.arange(classes), per_class)
        centre = (means[y] + inner[y, rng.integers(0, blobs, len(y))]) @ directions.T
        spread = rng.normal(size=(len(y), d))
        if heavy:
            spread *= np.sqrt(4 / rng.chisquare(4, (len(y), 1)))
        within = noise * spread * scale / np.sqrt((scale**2).mean())
        X = (centre + within @ basis.T + drift[y]) @ turn.T * gain + shift
        if kind == "positive":  # as after a rectifier
            X = np.maximum(X, 0)
        elif kind == "unit":
            X = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-9)
        domains.append((X.astype(np.float32), np.char.add("c", y.astype(str))))
    return domains

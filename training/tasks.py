"""Random adaptation tasks: which classes of which domains, and what part of the target.

A *source draw* is a domain and some of its classes; several targets are drawn for it, so that the vendor's statistics,
the slowest part, are computed once. Classes that one domain alone has are used as private classes as often as the
domains' common ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

FEWEST = 3  # samples of a class for it to be used
MOST_TARGET = 700  # samples, but for a few large tasks
MOST_SOURCE = 2500
KINDS = ("both", "none unknown", "none shared")
KIND_SHARES = (0.6, 0.2, 0.2)
MODES = ("all", "unequal", "share", "small", "repeated")
MODE_SHARES = (0.38, 0.22, 0.2, 0.15, 0.05)

Domain = tuple[np.ndarray, np.ndarray]  # vectors and class names


@dataclass(frozen=True)
class Source:
    """The vendor's side of a task."""

    domain: str
    X: np.ndarray
    y: np.ndarray  # positions in classes
    classes: np.ndarray


@dataclass(frozen=True)
class Target:
    """The client's side of a task; labels are class names."""

    domain: str
    kind: str
    mode: str
    X: np.ndarray
    y: np.ndarray


def usable(y: np.ndarray) -> np.ndarray:
    """Classes with enough samples."""
    names, counts = np.unique(y, return_counts=True)
    return names[counts >= FEWEST]


def log_uniform(rng: np.random.Generator, low: float, high: float) -> int:
    """A whole number whose logarithm is uniform."""
    return round(float(np.exp(rng.uniform(np.log(low), np.log(max(low, high))))))


def draw_source(name: str, domain: Domain, others: list[np.ndarray], rng: np.random.Generator) -> Source | None:
    """Some classes of a domain; ``others`` are the classes of the domains that targets come from."""
    X, y = domain
    own = usable(y)
    everything = np.unique(np.concatenate([own, *others]))
    most = len(own) if rng.random() < 0.25 or len(everything) > len(own) + 3 else max(2, len(own) - 2)
    count = log_uniform(rng, 2, min(most, 200))
    if len(own) >= 500 and rng.random() < 0.05:
        count = len(own)
    chosen = np.sort(rng.permutation(own)[:count])
    index = np.flatnonzero(np.isin(y, chosen))
    if rng.random() < 0.2:  # few images of every class
        few = int(rng.integers(2, 9))
        index = np.concatenate([rng.permutation(index[y[index] == name])[:few] for name in chosen])
    if len(index) > MOST_SOURCE:
        index = rng.permutation(index)[:MOST_SOURCE]
    index = np.sort(index)
    classes = np.unique(y[index])
    if len(classes) < 2:
        return None
    return Source(name, X[index].astype(np.float32), np.searchsorted(classes, y[index]), classes)


def draw_target(
    source: Source,
    name: str,
    domain: Domain,
    rng: np.random.Generator,
    most: int = MOST_TARGET,
    kind: str | None = None,
) -> Target | None:
    """A target for a source; None where the domains do not allow what was drawn."""
    X, y = domain
    own = usable(y)
    both, new = np.intersect1d(source.classes, own), np.setdiff1d(own, source.classes)
    kind = kind or str(rng.choice(KINDS, p=KIND_SHARES))
    shared = extra = 0
    if kind != "none shared":
        if not len(both):
            return None
        chance = rng.random()
        shared = 1 if chance < 0.12 else len(both) if chance < 0.35 else int(rng.integers(1, len(both) + 1))
    if kind != "none unknown":
        if not len(new):
            return None
        extra = 1 if rng.random() < 0.12 else log_uniform(rng, 1, min(len(new), 60))
        if len(new) > 300 and rng.random() < 0.1:
            extra = len(new)
    known, unknown = rng.permutation(both)[:shared], rng.permutation(new)[:extra]
    index = np.flatnonzero(np.isin(y, [*known, *unknown]))
    mode = str(rng.choice(MODES, p=MODE_SHARES))
    is_new = np.isin(y, unknown)
    if mode == "unequal":
        kept = []
        for label in np.unique(y[index]):
            members = rng.permutation(index[y[index] == label])
            kept.append(members[: max(2, round(len(members) * rng.uniform(0.05, 1)))])
        index = np.concatenate(kept)
    elif mode == "share" and kind == "both":
        share = float(np.clip(expit(rng.normal(0, 2.2)), 0.01, 0.99))
        old, fresh = (rng.permutation(index[is_new[index] == side]) for side in (False, True))
        n = min(len(old) / (1 - share), len(fresh) / share)
        index = np.concatenate([old[: max(2, round(n * (1 - share)))], fresh[: max(1, round(n * share))]])
    elif mode == "small":
        index = rng.permutation(index)[: rng.integers(15, 80)]
    if len(index) > most:
        index = rng.permutation(index)[:most]
    if mode == "repeated":  # the statistics see each image once, as adaptation does
        index = np.unique(index[rng.integers(0, len(index), len(index))])
    if (len(index) < 15 and mode != "small") or len(index) < 8:
        return None
    return Target(name, kind, mode, X[index].astype(np.float32), y[index])


Load = Callable[[str], Domain]


def draw(
    pairs: list[tuple[str, str]], load: Load, rng: np.random.Generator, targets: int = 4, most: int = MOST_TARGET
) -> tuple[Source, list[Target]]:
    """A source and some targets of a family."""
    while True:
        first = pairs[rng.integers(len(pairs))][0]
        partners = [target for source, target in pairs if source == first]
        source = draw_source(first, load(first), [usable(load(name)[1]) for name in partners], rng)
        if source is None:
            continue
        found: list[Target] = []
        for _ in range(4 * targets):
            name = partners[rng.integers(len(partners))]
            target = draw_target(source, name, load(name), rng, most)
            if target is not None:
                found.append(target)
            if len(found) == targets:
                return source, found
        if found:
            return source, found


def draw_reference(pairs: list[tuple[str, str]], load: Load, rng: np.random.Generator) -> tuple[Source, list[Target]]:
    """One task of the first experiments: 4 to 60 classes, at least 15 target samples, no source of few images.

    Figures of different versions of the decision are compared on these; nothing is trained on them.
    """
    while True:
        first, second = pairs[rng.integers(len(pairs))]
        (Xs, ys), (Xt, yt) = load(first), load(second)
        ours, theirs = usable(ys), usable(yt)
        both = rng.permutation(np.intersect1d(ours, theirs))
        mine, new = rng.permutation(np.setdiff1d(ours, theirs)), rng.permutation(np.setdiff1d(theirs, ours))
        kind = str(rng.choice(KINDS, p=[0.6, 0.22, 0.18]))
        total = log_uniform(rng, 4, max(5, min(len(both) + len(mine) + len(new), 60)))
        if kind == "both":
            parts = rng.dirichlet([1.5, 1, 1.2])
        elif kind == "none unknown":
            parts = np.append(rng.dirichlet([1.5, 1]), 0)
        else:
            parts = np.append(0, rng.dirichlet([1, 1]))
        a, b = round(parts[0] * total), round(parts[1] * total)
        c = total - a - b
        if kind == "none unknown":
            b, c = b + c, 0
        if a + b < 2 or a > len(both) or (kind != "none shared" and a < 1) or (kind != "none unknown" and c < 1):
            continue
        rest = both[a:]
        pool = [*mine, *rest] if rng.random() < 0.5 else rng.permutation([*mine, *rest]).tolist()
        private = pool[:b]
        pool = [name for name in rng.permutation([*new, *rest]).tolist() if name not in set(private)]
        extra = pool[:c]
        if len(private) < b or len(extra) < c:
            continue
        index_s = np.flatnonzero(np.isin(ys, [*both[:a], *private]))
        index = np.flatnonzero(np.isin(yt, [*both[:a], *extra]))
        index_s = rng.permutation(index_s)[:3000]
        mode = str(rng.choice(["all", "unequal", "share", "small"], p=[0.45, 0.2, 0.2, 0.15]))
        is_new = np.isin(yt, extra)
        if mode == "unequal":
            members = [rng.permutation(index[yt[index] == label]) for label in np.unique(yt[index])]
            index = np.concatenate([some[: max(2, round(len(some) * rng.uniform(0.05, 1)))] for some in members])
        elif mode == "share" and kind == "both":
            share = float(expit(rng.normal(0, 2)))
            old, fresh = (rng.permutation(index[is_new[index] == side]) for side in (False, True))
            n = min(len(old) / (1 - share), len(fresh) / share)
            index = np.concatenate([old[: max(2, round(n * (1 - share)))], fresh[: max(2, round(n * share))]])
        elif mode == "small":
            index = rng.permutation(index)[: rng.integers(20, 80)]
        index = rng.permutation(index)[:MOST_TARGET]
        classes = np.unique(ys[index_s])
        if len(index) >= 15 and len(classes) >= 2:
            source = Source(first, Xs[index_s].astype(np.float32), np.searchsorted(classes, ys[index_s]), classes)
            return source, [Target(second, kind, mode, Xt[index].astype(np.float32), yt[index])]

"""New classes for an adapted model: named clusters of the unknown, and groups of samples that examples point at.

The images of the target are gone, but its coreset is there: groups of neighbouring samples. An example e of a class
claims the groups g that it is akin to,

    a(g, e) = Σ_j √(p(j|g)·p(j|e)) + 2·z_g·z_e,

which is how far the mixture takes both for the same component, and how similar they are. The groups of a class give its
centre. A single example lends its class no part of its own vector: no model file holds the vector of a single image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from scipy.sparse import csr_matrix

from ..errors import InputError
from .heads import MixtureHead
from .vendor import FEWEST, normalise

NEARNESS = 2.0  # weight of the cosine in a(g, e): it is about a quarter where the first part is one
DISSIMILAR = 0.5  # of the squared within-class similarity, the usual cosine of two samples of a source class
AKIN = 0.5  # a group that was unknown is claimed above this: the same cluster, or a cosine that few other images reach


def teach(head: MixtureHead, named: Mapping[int, int], x: np.ndarray, y: np.ndarray, new: int) -> MixtureHead:
    """The head with classes that it did not know, or knew less well.

    Parameters
    ----------
    head : MixtureHead
        It is not changed.
    named : mapping of int to int
        Cluster, from 1, to the class that it is.
    x : array (n, d)
        x̃ of examples.
    y : array (n,) of int
        The class of each.
    new : int
        How many classes are new; they come after those that the head has.
    """
    named_head = _with_named_clusters(head, named, new)
    if len(x) == 0:
        return named_head
    fresh = np.setdiff1d(np.arange(head.classes, head.classes + new), list(named.values()))
    return _with_examples(named_head, x, y, fresh)


def forget(head: MixtureHead, classes: list[int]) -> MixtureHead:
    """The head without some of its taught classes: each is a cluster of the unknown again, after the others."""
    kept = np.setdiff1d(np.arange(len(head.bias)), classes)
    order = np.concatenate([kept, classes]).astype(int)
    first = len(head.class_statistics.means)
    taught_means = np.delete(head.taught_means, np.asarray(classes) - first, axis=0)
    return replace(head, centres=head.centres[order], bias=head.bias[order], taught_means=taught_means)


def masses(head: MixtureHead) -> np.ndarray:
    """The number of samples in each component, from log((m_j + ½) / (mean m + ½)), which the head keeps."""
    mean = head.counts.sum() / len(head.bias)
    mass: np.ndarray = ((mean + 0.5) * np.exp(head.bias.astype(np.float64)) - 0.5).clip(min=0)
    return mass


def _rebuilt(head: MixtureHead, centres: np.ndarray, mass: np.ndarray, classes: int) -> MixtureHead:
    bias = np.log((mass + 0.5) / (mass.mean() + 0.5)).astype(np.float32)
    centres = centres.astype(np.float32)
    return replace(head, centres=centres, bias=bias, taught_means=centres[len(head.class_statistics.means) : classes])


def _with_named_clusters(head: MixtureHead, named: Mapping[int, int], new: int) -> MixtureHead:
    """Components of named clusters become those of classes. A new class that no cluster is has no mass as yet."""
    k, classes = head.classes, head.classes + new
    clusters = len(head.bias) - k
    if wrong := sorted(set(named) - set(range(1, clusters + 1))):
        have = "no cluster" if not clusters else "cluster 1" if clusters == 1 else f"clusters 1 to {clusters}"
        raise InputError(f"there is no cluster {wrong[0]}; the model has {have} of the unknown")
    becomes = np.concatenate([np.arange(k), [named.get(c, -1) for c in range(1, clusters + 1)]]).astype(int)
    rest = np.flatnonzero(becomes < 0)
    becomes[rest] = classes + np.arange(len(rest))
    mass, centres = np.zeros(classes + len(rest)), np.zeros((classes + len(rest), head.centres.shape[1]))
    before = masses(head)
    np.add.at(mass, becomes, before)
    # A class without samples keeps its centre where nothing joins it.
    np.add.at(centres, becomes, np.maximum(before, 1e-6)[:, None] * head.centres)
    return _rebuilt(head, normalise(centres), mass, classes)


def _with_examples(head: MixtureHead, x: np.ndarray, y: np.ndarray, fresh: np.ndarray) -> MixtureHead:
    """Groups that are akin to an example go over to its class; the centres and masses are those of the groups.

    ``fresh`` are new classes that no cluster was named for.
    """
    means, classes = head.class_statistics.means, head.classes
    z, z_e = (head.class_statistics.project(points, head.mean) for points in (head.coreset, x))
    there = ~np.isin(np.arange(len(head.bias)), fresh)
    p, p_e, p_s = (_posterior(head, points, there) for points in (z, z_e, means))
    is_known = p[:, :classes].max(1) >= p[:, classes:].sum(1)
    component = np.where(is_known, p[:, :classes].argmax(1), classes + _argmax(p[:, classes:]))
    affinity = _affinity(z_e, p_e, z, p)
    # The mixture assigns every example to a component; one that is not similar to any group claims none.
    affinity[(z_e @ z.T).max(1) < DISSIMILAR * head.class_statistics.within_class_similarity**2] = -np.inf
    akin = np.full((classes, len(z)), -np.inf)
    np.maximum.at(akin, y, affinity)
    # A source class compares its mean with the examples.
    own = _affinity(z, p, means, p_s)[np.arange(len(z)), component.clip(max=len(means) - 1)]
    claimed = akin.max(0) > np.where(component < len(means), own, AKIN)
    member = np.where(claimed, akin.argmax(0), component)
    different = {c: np.unique(z_e[y == c], axis=0) for c in np.unique(y).tolist()}
    for c in np.setdiff1d(fresh, member).tolist():  # other classes are nearer to every group: it has the nearest to it
        if len(different[c]) < FEWEST:
            nearest = akin[c].argmax()
            if akin[c, nearest] <= AKIN:
                raise Lonely(c)
            member[nearest] = c
    share = csr_matrix((head.counts, (member, np.arange(len(z)))), (len(head.bias), len(z)))
    total, mass = share @ z, np.bincount(member, head.counts, len(head.bias))
    for c in fresh.tolist():
        if len(different[c]) >= FEWEST:
            total[c] += different[c].sum(0)
            mass[c] += len(different[c])
    if len(fresh):
        mass[fresh] = mass[fresh].mean()  # a few examples do not show how frequent a class is
    without = np.flatnonzero(mass == 0)
    total[without] = np.concatenate([means, head.centres[len(means) :]])[without]
    keep = np.setdiff1d(np.arange(len(mass)), without[without >= classes])
    return _rebuilt(head, normalise(total[keep]), mass[keep], classes)


class Lonely(Exception):
    """A class with a single example, and nothing in the target is akin to it."""


def _posterior(head: MixtureHead, z: np.ndarray, there: np.ndarray) -> np.ndarray:
    """p(j|z) over the components that are there."""
    p = head.components_of(z)[:, :-1] * there
    sums_to_one: np.ndarray = p / p.sum(1, keepdims=True)
    return sums_to_one


def _affinity(z: np.ndarray, p: np.ndarray, z_e: np.ndarray, p_e: np.ndarray) -> np.ndarray:
    """a(g, e) for all groups and examples."""
    a: np.ndarray = np.sqrt(p) @ np.sqrt(p_e).T + NEARNESS * z @ z_e.T
    return a


def _argmax(p: np.ndarray) -> np.ndarray:
    """The most probable column; 0 where there is none."""
    best: np.ndarray = p.argmax(1) if p.shape[1] else np.zeros(len(p), int)
    return best

"""What a head computes, in operators of ONNX: the formulas of ``heads.py`` and ``decision.py`` once more, for export.

Only what takes the same inputs in every opset from 13 on is used, so that a backbone of any of them can be joined.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from ..errors import InputError
from .heads import SCALE, ClassMeansHead, Head, MixtureHead, SourceNetworkHead, UsfdaHead
from .vendor import ClassStatistics, SourceNetworks, Tensors

OPSET = 13
NO_OUTLIER = np.zeros((), np.float32)
ROWS = np.array([1])  # the axis along which a row is summed up


class Graph:
    """Nodes and weights, as they are added: ``add("Sub", x, mean)`` is the name of x − mean.

    An input is the name of another value, or an array, which becomes a weight.
    """

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def __call__(self, op: str, *inputs: str | np.ndarray, name: str = "", **settings: Any) -> str:
        """Add a node and return the name of its output."""
        name = name or f"{op}.{len(self.nodes)}"
        names = [x if isinstance(x, str) else self.weight(x) for x in inputs]
        self.nodes.append(helper.make_node(op, names, [name], name, **settings))
        return name

    def weight(self, value: np.ndarray, name: str = "") -> str:
        """Add a weight and return its name."""
        name = name or f"weight.{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name

    def columns(self, x: str, start: int, end: int) -> str:
        """x[:, start:end]."""
        return self("Slice", x, np.array([start]), np.array([end]), ROWS)

    def row_sums(self, x: str) -> str:
        """(n, 1)."""
        return self("ReduceSum", x, ROWS, keepdims=1)

    def largest(self, x: str) -> tuple[str, str]:
        """Where the largest number of each row is, and the number: (n, 1) each."""
        where = self("ArgMax", x, axis=1, keepdims=1)
        return where, self("GatherElements", x, where, axis=1)


def probability(add: Graph, head: Head, v: str) -> tuple[str, str]:
    """``Head.probability`` of the vectors v: of the classes (n, classes), and of unknown (n, 1)."""
    match head:
        case SourceNetworkHead():
            return _of_networks(add, head.networks, head.networks.F_s, v)
        case UsfdaHead():
            return _of_networks(add, head.networks, head.f_t, v)
        case ClassMeansHead(class_statistics=class_statistics):
            # Unknown is a centre of zeros, whose logit is its bias.
            centres = np.vstack([class_statistics.means, np.zeros_like(class_statistics.overall_mean)])
            bias = np.append(
                np.zeros(len(class_statistics.means)), SCALE * class_statistics.similarity_quantile
            ).astype(np.float32)
            return _of_centres(
                add,
                _whiten(add, class_statistics, class_statistics.overall_mean, v),
                centres,
                bias,
                SCALE,
                len(bias) - 1,
            )
        case MixtureHead():
            z = _whiten(add, head.class_statistics, head.mean, v)
            return _of_centres(
                add, z, head.centres, head.bias, float(head.scale), head.classes, head.outlier, head.merged
            )
    raise InputError(f"a model with head {head.name} cannot be exported; adapt it again with this version of usfda")


def decide(add: Graph, known: str, unknown: str, classes: int) -> None:
    """``Model.decide``: makes the values label, score and probabilities, and takes the value strictness.

    In double precision, like ``known_score``; its lower bound is not needed, because p_best and p_unknown are never
    both 0 in a row that sums to 1.
    """
    add("Concat", known, unknown, name="probabilities", axis=1)
    best, p_best = add.largest(known)
    p_best, p_unknown, strictness = (add("Cast", x, to=TensorProto.DOUBLE) for x in (p_best, unknown, "strictness"))
    score = add("Div", p_best, add("Add", p_best, p_unknown))
    label = add("Where", add("GreaterOrEqual", score, strictness), best, np.array(classes))
    add("Reshape", label, np.array([-1]), name="label")
    add("Reshape", add("Cast", score, to=TensorProto.FLOAT), np.array([-1]), name="score")


def _whiten(add: Graph, class_statistics: ClassStatistics, mean: np.ndarray, v: str) -> str:
    """z = W(x̃ − μ), at unit length."""
    root = add("Mul", add("Sign", v), add("Sqrt", add("Abs", v)))
    z = add("Gemm", add("Sub", root, mean), class_statistics.whitener, transB=1)
    length = add("Sqrt", add.row_sums(add("Mul", z, z)))
    return add("Div", z, add("Max", length, np.asarray(1e-12, np.float32)))


def _of_centres(
    add: Graph,
    z: str,
    centres: np.ndarray,
    bias: np.ndarray,
    scale: float,
    classes: int,
    outlier: np.ndarray = NO_OUTLIER,
    merged: Mapping[int, int] | None = None,
) -> tuple[str, str]:
    """softmax(τ·z·C + b); what comes after the classes, which may be nothing, is summed up, with the outliers.

    Of the clusters there, from 1, some may be merged with a class.
    """
    cosine = add("Gemm", z, centres, transB=1)
    tau, one = (np.asarray(value, np.float32) for value in (scale, 1))
    p = add("Softmax", add("Add", add("Mul", cosine, tau), bias), axis=1)
    is_unknown = (np.arange(len(bias)) >= classes).astype(np.float32)
    known = add.columns(p, 0, classes)
    if merged:
        counts_as = np.eye(len(bias), classes, dtype=np.float32)
        for cluster, name in merged.items():
            counts_as[classes + cluster - 1, name], is_unknown[classes + cluster - 1] = 1, 0
        known = add("MatMul", p, counts_as)
    unknown = add.row_sums(add("Mul", p, is_unknown))
    if outlier == 0:
        return known, unknown
    _, best = add.largest(cosine)
    alike = add("Sigmoid", add("Mul", add("Sub", best, outlier), tau))
    return add("Mul", known, alike), add("Sub", one, add("Mul", add("Sub", one, unknown), alike))


def _of_networks(add: Graph, networks: SourceNetworks, f: Tensors, v: str) -> tuple[str, str]:
    """``usfda_probability`` of softmax(D∘F(v))."""

    def linear(x: str, weights: Tensors, layer: object) -> str:
        return add("Gemm", x, weights[f"{layer}.weight"], weights[f"{layer}.bias"], transB=1)

    def batch_norm(x: str, layer: int) -> str:
        names = ("weight", "bias", "running_mean", "running_var")
        return add("BatchNormalization", x, *(f[f"{layer}.{name}"] for name in names), epsilon=1e-5)

    u = add("Elu", linear(v, f, 0))
    u = add("Elu", batch_norm(linear(u, f, 2), 3))
    u = add("Elu", linear(u, f, 5))
    u = add("Elu", batch_norm(linear(u, f, 7), 8))
    logits = add("Concat", *(linear(u, networks.D, part) for part in ("source", "negative")), axis=1)
    z, classes = add("Softmax", logits, axis=1), networks.classes
    source = add.columns(z, 0, classes)
    _, negative = add.largest(add.columns(z, classes, classes + networks.negative_classes))
    total = add("Add", add.row_sums(source), negative)
    return add("Div", source, total), add("Div", negative, total)

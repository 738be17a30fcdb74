"""What the vendor hands over, and what it computes. NumPy alone: a model that only decides needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np

from ..errors import InputError

Tensors = Mapping[str, np.ndarray]
Shape = tuple[int, ...]
Value = TypeVar("Value")
LATENT = 256  # dimensions of u = F(v)
MAX_THINGS = 10_000  # that a backbone's own classifier may tell apart
MAX_NEGATIVES = 10_000  # classes of negatives in a model file
AT_ONCE = 2**22  # probabilities that are computed together
FEWEST = 2  # images behind every mean that is saved, so that no model file holds the vector of a single one


def softmax(z: np.ndarray) -> np.ndarray:
    """Of each row."""
    e = np.exp(z - z.max(1, keepdims=True))
    p: np.ndarray = e / e.sum(1, keepdims=True)
    return p


def members_of(y: np.ndarray) -> list[np.ndarray]:
    """The indices of each label's samples, by label, in one pass over any number of labels."""
    order = np.argsort(y, kind="stable")
    return np.split(order, np.flatnonzero(y[order][1:] != y[order][:-1]) + 1) if len(y) else []


def normalise(v: np.ndarray) -> np.ndarray:
    """Rows at unit length; a row of zeros stays one."""
    unit: np.ndarray = v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-12)
    return unit


def signed_root(v: np.ndarray) -> np.ndarray:
    """x̃ = sign(x)·√|x|, which evens out the few large coordinates of a feature."""
    root: np.ndarray = np.sign(v) * np.sqrt(np.abs(v))
    return root


def signed_square(x: np.ndarray) -> np.ndarray:
    """The vector whose x̃ this is."""
    square: np.ndarray = x * np.abs(x)
    return square


def run_f(f: Tensors, v: np.ndarray) -> np.ndarray:
    """u = F(v) for the weights of an F (``networks.make_f``), as torch computes it in eval mode."""

    def linear(x: np.ndarray, i: int) -> np.ndarray:
        y: np.ndarray = x @ f[f"{i}.weight"].T + f[f"{i}.bias"]
        return y

    def batch_norm(x: np.ndarray, i: int) -> np.ndarray:
        gain = f[f"{i}.weight"] / np.sqrt(f[f"{i}.running_var"] + np.float32(1e-5))
        y: np.ndarray = (x - f[f"{i}.running_mean"]) * gain + f[f"{i}.bias"]
        return y

    def elu(x: np.ndarray) -> np.ndarray:
        return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))

    u = elu(linear(v, 0))
    u = elu(batch_norm(linear(u, 2), 3))
    u = elu(linear(u, 5))
    return elu(batch_norm(linear(u, 7), 8))


def f_layout(d: int) -> dict[str, Shape]:
    """The shapes of the weights of an F."""
    layout: dict[str, Shape] = {}
    for i, (rows, columns) in {0: (1024, d), 2: (1024, 1024), 5: (LATENT, 1024), 7: (LATENT, LATENT)}.items():
        layout |= {f"{i}.weight": (rows, columns), f"{i}.bias": (rows,)}
    for i, width in {3: 1024, 8: LATENT}.items():
        layout |= {f"{i}.{name}": (width,) for name in ("weight", "bias", "running_mean", "running_var")}
        layout[f"{i}.num_batches_tracked"] = ()
    return layout


def size_in(shapes: Mapping[str, Shape], name: str, axis: int) -> int:
    """The size of a tensor along an axis; an error where there is no such tensor, or nothing in it."""
    if name not in shapes or len(shapes[name]) <= axis or shapes[name][axis] == 0:
        raise InputError(f"its tensor {name} is missing or empty")
    return shapes[name][axis]


@dataclass(frozen=True)
class SourceNetworks:
    """The weights of F_s and D: for method ``usfda``, for the source model and for the SSM."""

    F_s: Tensors
    D: Tensors

    @staticmethod
    def layout(shapes: Mapping[str, Shape], classes: int) -> dict[str, Shape]:
        """The shapes of all its tensors in a model file, from the sizes of those that are there."""
        d, n = size_in(shapes, "F_s.0.weight", 1), size_in(shapes, "D.negative.bias", 0)
        if n > MAX_NEGATIVES:
            raise InputError(f"it has {n:,} negative classes, more than {MAX_NEGATIVES:,}")
        layout = {f"F_s.{name}": shape for name, shape in f_layout(d).items()}
        layout |= {"D.source.weight": (classes, LATENT), "D.source.bias": (classes,)}
        return layout | {"D.negative.weight": (n, LATENT), "D.negative.bias": (n,)}

    @property
    def classes(self) -> int:
        """|C_s|."""
        return len(self.D["source.bias"])

    @property
    def negative_classes(self) -> int:
        """|C_n|."""
        return len(self.D["negative.bias"])

    @property
    def dim(self) -> int:
        """d, the size of a vector."""
        return int(self.F_s["0.weight"].shape[1])

    def classify(self, u: np.ndarray) -> np.ndarray:
        """softmax(D(u)) over all K = |C_s| + |C_n| classes."""
        parts = [u @ self.D[f"{part}.weight"].T + self.D[f"{part}.bias"] for part in ("source", "negative")]
        return softmax(np.concatenate(parts, 1))

    def of_blocks(self, function: Callable[[np.ndarray], np.ndarray], u: np.ndarray) -> np.ndarray:
        """A function of ``classify(u)``, for so few rows at once that all classes together take little memory."""
        step = max(1, AT_ONCE // (self.classes + self.negative_classes))
        return np.concatenate([function(self.classify(u[i : i + step])) for i in range(0, max(1, len(u)), step)])

    def ssm(self, v: np.ndarray) -> np.ndarray:
        """w = exp(max_{i≤|C_s|} ŷ_i), the source similarity metric of eq. 2 before it is rescaled."""
        w: np.ndarray = np.exp(self.of_blocks(lambda z: z[:, : self.classes].max(1), run_f(self.F_s, v)))
        return w


@dataclass(frozen=True)
class ClassStatistics:
    """Statistics of the source classes in the space of M, for method ``mixture``.

    Parameters
    ----------
    whitener : array (d, d)
        W, which whitens the spread within the source classes.
    means : array (classes, d)
        P_c, the mean of z over a class, at unit length.
    overall_mean : array (d,)
        μ of the source: the mean of the class means of x̃.
    within_class_similarity : array ()
        Of the source: mean cosine of a sample with the mean of the others of its class.
    similarity_quantile : array ()
        The cosine above which 95 % of the source samples lie.
    """

    whitener: np.ndarray
    means: np.ndarray
    overall_mean: np.ndarray
    within_class_similarity: np.ndarray
    similarity_quantile: np.ndarray

    @staticmethod
    def layout(shapes: Mapping[str, Shape], classes: int) -> dict[str, Shape]:
        """The shapes of all its tensors in a model file, from the sizes of those that are there."""
        d = size_in(shapes, "class_statistics.whitener", 0)
        layout: dict[str, Shape] = {"whitener": (d, d), "means": (classes, d), "overall_mean": (d,)}
        layout |= {"within_class_similarity": (), "similarity_quantile": ()}
        return {f"class_statistics.{name}": shape for name, shape in layout.items()}

    @property
    def dim(self) -> int:
        """d, the size of a vector."""
        return len(self.whitener)

    def whiten(self, v: np.ndarray, mean: np.ndarray) -> np.ndarray:
        """z = W(x̃ − μ), at unit length."""
        return self.project(signed_root(v), mean)

    def project(self, x: np.ndarray, mean: np.ndarray) -> np.ndarray:
        """The same for x̃ itself."""
        return normalise(self.away(x, mean))

    def away(self, x: np.ndarray, mean: np.ndarray) -> np.ndarray:
        """W(x̃ − μ), at its own length."""
        with np.errstate(over="ignore", invalid="ignore"):  # numbers in an untrusted file may be finite and absurd
            away: np.ndarray = (x - mean) @ self.whitener.T
            squares = np.einsum("ij,ij->i", away, away)
        if not np.isfinite(squares).all():
            raise InputError("the model gives no finite numbers for these vectors")
        return away


def own_part(tensors: Mapping[str, Value], prefix: str) -> dict[str, Value]:
    """Those tensors whose name begins with the prefix, by the rest of their name."""
    return {key.removeprefix(f"{prefix}."): t for key, t in tensors.items() if key.startswith(f"{prefix}.")}


@dataclass(frozen=True)
class ClassifierStatistics:
    """The backbone's own classifier, and its answers for the source (``classifier.py``).

    Parameters
    ----------
    weight : array (J, d)
        Of the last layer, which gives the logits of J things.
    bias : array (J,)
        Likewise.
    mean : array (J,)
        Mean logits of the source: the mean of the means of its classes.
    share, share_centred : array (classes, J)
        Mean probability of every thing over each source class, from the logits and from the logits less their mean.
    level : array (2, 3)
        Mean mass, margin and entropy of the source, of both kinds of logits.
    """

    weight: np.ndarray
    bias: np.ndarray
    mean: np.ndarray
    share: np.ndarray
    share_centred: np.ndarray
    level: np.ndarray

    @staticmethod
    def layout(shapes: Mapping[str, Shape], classes: int, d: int) -> dict[str, Shape]:
        """The shapes of all its tensors in a model file, from the sizes of those that are there."""
        things = size_in(shapes, "classifier.bias", 0)
        if things > MAX_THINGS:
            raise InputError(f"its backbone's classifier tells {things} things apart, more than {MAX_THINGS}")
        shape = (classes, things)
        layout: dict[str, Shape] = {"weight": (things, d), "bias": (things,), "mean": (things,), "level": (2, 3)}
        return {f"classifier.{name}": s for name, s in {**layout, "share": shape, "share_centred": shape}.items()}

    def logits(self, v: np.ndarray) -> np.ndarray:
        """Of vectors (n, d)."""
        found: np.ndarray = v @ self.weight.T + self.bias
        return found


@dataclass(frozen=True)
class Vendor:
    """The vendor's part of a model: what a method of deployment starts from.

    One of networks and class statistics may be missing, and so may the statistics of the backbone's classifier.
    """

    networks: SourceNetworks | None
    class_statistics: ClassStatistics | None
    classifier: ClassifierStatistics | None = None

    @property
    def dim(self) -> int:
        """d, the size of the vectors that the model takes."""
        part = self.networks or self.class_statistics
        assert part is not None
        return part.dim

    def tensors(self) -> dict[str, np.ndarray]:
        """Its part of the model file."""
        parts: dict[str, Tensors] = {}
        if self.networks is not None:
            parts |= {"F_s": self.networks.F_s, "D": self.networks.D}
        for name, part in (("class_statistics", self.class_statistics), ("classifier", self.classifier)):
            if part is not None:
                parts[name] = {f.name: getattr(part, f.name) for f in fields(part)}
        return {f"{part}.{name}": t for part, tensors in parts.items() for name, t in tensors.items()}

    @staticmethod
    def layout(shapes: Mapping[str, Shape], classes: int) -> dict[str, Shape]:
        """The shapes of all its tensors in a model file, from the sizes of those that are there."""
        layout = SourceNetworks.layout(shapes, classes) if own_part(shapes, "F_s") else {}
        if own_part(shapes, "class_statistics"):
            layout |= ClassStatistics.layout(shapes, classes)
            if own_part(shapes, "classifier"):
                layout |= ClassifierStatistics.layout(shapes, classes, size_in(shapes, "class_statistics.whitener", 0))
        return layout

    @classmethod
    def build(cls, tensors: Tensors) -> Vendor:
        """Of the tensors of a model file, which were checked before."""
        f_s, class_statistics, classifier = (
            own_part(tensors, part) for part in ("F_s", "class_statistics", "classifier")
        )
        return cls(
            SourceNetworks(f_s, own_part(tensors, "D")) if f_s else None,
            ClassStatistics(**class_statistics) if class_statistics else None,
            ClassifierStatistics(**classifier) if classifier else None,
        )

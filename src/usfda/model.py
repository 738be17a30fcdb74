"""The model: what the vendor hands over and the client adapts. It takes vectors and decides."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np

from .backbones.backbone import Backbone, check_record
from .card import BackboneCard, Card, Deployment, FileCard, canonical, card_of
from .config import Config
from .data.reading import UNKNOWN, read
from .data.samples import Features, Matrix, Samples, Unread
from .errors import InputError
from .features.extract import Extractor
from .files import atomic_write
from .methods.decision import STRICTNESS, Decision, ProbabilisticDecision, check_strictness, decide, joined
from .methods.findings import Findings
from .methods.heads import HEADS, Head, starting_head
from .methods.vendor import Vendor, own_part
from .modelcard import FILE, PAGE, model_file
from .modelfile import MAX_SIZE, MESSAGE, ModelFile, read_model_file, write_model_file
from .signing import verify
from .text.model import page
from .urls import Url, fetched, place_of

CHUNK = 512  # images at a time when predicting: memory does not depend on their number
BATCH = 4096  # vectors at a time when deciding, likewise
EXAMPLES = 5  # names of a cluster's most typical samples
CANDIDATES = 5000  # samples of a cluster that they are chosen from, at most


@dataclass(frozen=True)
class Prediction:
    """The record of one sample.

    Parameters
    ----------
    path : str
        The image's path, or the row of a vector.
    label : str
        A class, or ``unknown``.
    score : float
        From 0 (unknown) to 1 (known); at least the strictness where the sample is labelled.
    ssm : float or None
        The paper's source similarity metric, from 1 (no source class) to e; None where the file has no networks.
    top : list of (str, float)
        The three best classes and their shares among the classes.
    cluster : int or None
        Which of the unknown clusters, where the method finds any.
    """

    path: str
    label: str
    score: float
    ssm: float | None
    top: list[tuple[str, float]]
    cluster: int | None = None


class Model:
    """A procured or adapted model.

    Attributes
    ----------
    source_classes : list of str
        Those of the vendor alone.
    vendor : Vendor
        The part that a method of deployment starts from.
    head : Head
        What decides.
    backbone : Backbone or None
        Turns images into vectors; None for a model of vectors, or one that was saved without it.
    card : Card
        Facts about how it was made: counts, settings, versions, hashes; no path and no file name. Read-only.
    taught : sequence of str
        The classes that the client added.
    strictness : float
        The rejection threshold: a sample with a score below it is unknown.
    """

    def __init__(
        self,
        classes: Sequence[str],
        vendor: Vendor,
        head: Head,
        backbone: Backbone | None,
        card: Card,
        taught: Sequence[str] = (),
        strictness: float = STRICTNESS,
    ):
        self.source_classes, self.taught, self.strictness = list(classes), list(taught), strictness
        self.vendor, self.head, self.backbone, self.card = vendor, head, backbone, card
        self.examples: dict[int, list[str]] = {}  # of the clusters, by name; for the client's eyes, never saved
        if backbone is not None:
            about: BackboneCard = {"name": backbone.name, "sha256": backbone.sha256, "record": backbone.record}
            self.card = {**card, "backbone": about}

    @property
    def classes_(self) -> list[str]:
        """The names of the classes: those of the source, then those that were taught.

        The columns of ``predict_proba`` are in this order, with one more: unknown.
        """
        return [*self.source_classes, *self.taught]

    @property
    def findings(self) -> Findings | None:
        """What the adaptation found; None for a model that was not adapted."""
        deployed = self.card["deployment"]
        return None if deployed is None else Findings.of(deployed, self.examples)

    @property
    def source_model(self) -> Model:
        """The vendor's model, not adapted."""
        card: Card = {**self.card, "deployment": None}
        return Model(self.source_classes, self.vendor, starting_head(self.vendor), self.backbone, card)

    @property
    def vendor_sha256(self) -> str:
        """Sha256 of the vendor's part: the same in every file that was adapted or taught from one vendor's file.

        It covers the classes, the vendor's tensors and part of the card, and the backbone, but not the head.
        """
        facts = [self.source_classes, self.card.get("backbone"), canonical(self.card["procurement"])]
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
        for name, tensor in sorted(self.vendor.tensors().items()):
            digest.update(f"{name} {tensor.dtype} {tensor.shape}".encode() + tensor.tobytes())
        return digest.hexdigest()

    @property
    def adapted(self) -> bool:
        """Whether it was adapted to a target."""
        return self.card["deployment"] is not None

    @property
    def deployment(self) -> Deployment:
        """The part of the card about the adaptation; an error where there was none."""
        if self.card["deployment"] is None:
            raise InputError("the model was not adapted; adapt it first")
        return self.card["deployment"]

    @property
    def dim(self) -> int:
        """d, the size of the vectors that the model takes."""
        return self.vendor.dim

    def __repr__(self) -> str:
        return f"Model({len(self.classes_)} classes, head {self.head.name}, d={self.dim})"

    @overload
    def decide(
        self, X: Matrix, strictness: float | None = None, *, probabilities: Literal[True] = True
    ) -> ProbabilisticDecision: ...
    @overload
    def decide(self, X: Matrix, strictness: float | None = None, *, probabilities: bool) -> Decision: ...
    def decide(self, X: Matrix, strictness: float | None = None, *, probabilities: bool = True) -> Decision:
        """Decide for vectors.

        Parameters
        ----------
        X : array (n, d)
            Vectors of the target's domain.
        strictness : float, optional
            The rejection threshold: a sample with a score below it is unknown; from 0 to 1, by default the model's.
        probabilities : bool
            Whether to give them, too: for a million samples of a thousand classes they would take 4 GB.
        """
        strictness = self.strictness if strictness is None else check_strictness(strictness)
        starts = range(0, max(1, len(X)), BATCH)
        found = (self._decide(X[i : i + BATCH], strictness) for i in starts)
        return joined(list(found)) if probabilities else joined([some.without_probabilities() for some in found])

    def _decide(self, v: np.ndarray, strictness: float) -> ProbabilisticDecision:
        with np.errstate(over="ignore", invalid="ignore"):
            probability, cluster = self.head.answer(v)
        if not np.isfinite(probability).all():
            raise InputError("the model gives no finite probabilities for these vectors")
        return decide(probability, strictness, cluster)

    def ssm(self, X: Matrix) -> np.ndarray | None:
        """The paper's source similarity metric, from 1 to e, of vectors; None where the file has no networks."""
        networks = self.vendor.networks
        if networks is None:
            return None
        with np.errstate(over="ignore", invalid="ignore"):
            return np.concatenate([networks.ssm(X[i : i + BATCH]) for i in range(0, max(1, len(X)), BATCH)])

    def labels_of(self, decision: Decision) -> np.ndarray:
        """The class names of a decision, and ``unknown``."""
        return np.where(decision.known, np.asarray(self.classes_)[decision.best], UNKNOWN)

    def predict(self, source: Any, strictness: float | None = None, *, config: Config | None = None) -> np.ndarray:
        """A label, or ``unknown``, for every sample of a folder, a list, paths, or an array of vectors."""
        return self.labels_of(self.decide(self._all(source, config), strictness, probabilities=False))

    def predict_proba(self, source: Any, *, config: Config | None = None) -> np.ndarray:
        """(n, classes + 1): the classes in the order of ``classes_``, then unknown; rows sum to 1.

        With strictness s, ``predict`` labels a sample unknown where (1 − s)·p_best < s·p_unknown; with the default ½,
        where unknown is the most probable column.
        """
        return self.decide(self._all(source, config)).probability

    def transform(self, source: Any, *, config: Config | None = None) -> np.ndarray:
        """The vectors by which the head compares samples."""
        X = self._all(source, config)
        return np.concatenate([self.head.latent(X[i : i + BATCH]) for i in range(0, len(X), BATCH)])

    def features(self, source: Any, *, config: Config | None = None, text: str = "") -> Features:
        """The samples as vectors of this model's backbone; images that cannot be read are left out."""
        samples = read(source)
        if isinstance(samples, Features):
            return self._checked(samples)
        found = self.extractor(config).features(samples, text)
        if len(found) == 0:
            raise InputError(f"none of the {len(samples)} images can be read")
        return found

    def predictions(
        self, source: Any, strictness: float | None = None, *, config: Config | None = None
    ) -> Iterator[Prediction]:
        """One record per sample, as they come: a hundred thousand images need no more memory than a thousand."""
        return (record for record in self.records(source, strictness, config) if isinstance(record, Prediction))

    def records(self, source: Any, strictness: float | None, config: Config | None) -> Iterator[Prediction | Unread]:
        """The same, and one for each image that cannot be read, after those that were read with it."""
        config, samples = config or Config(), read(source)
        with config.progress(len(samples), "predict", "images") as advance:
            seen = 0
            for found in self._batches(samples, config):
                names = [str(seen + i) for i in range(len(found))] if found.paths is None else map(str, found.paths)
                yield from self._records(list(names), found.X, strictness)
                if isinstance(samples, Samples):
                    yield from map(Unread, map(str, found.skipped), found.reasons)
                advance(len(found))
                seen += len(found)
            advance(len(samples) - seen)  # those that cannot be read

    def _batches(self, samples: Samples | Features, config: Config) -> Iterator[Features]:
        if isinstance(samples, Samples):
            return self.extractor(config).batches(samples, CHUNK)
        index = np.arange(len(samples))
        return (self._checked(samples[index[i : i + CHUNK]]) for i in range(0, len(index), CHUNK))

    def _records(self, names: list[str], X: Matrix, strictness: float | None) -> Iterator[Prediction]:
        if not names:
            return
        v = X[:]
        decided, ssm = self.decide(v, strictness), self.ssm(v)
        order, share = decided.top()
        for i, label in enumerate(self.labels_of(decided)):
            yield Prediction(
                names[i],
                str(label),
                round(float(decided.score[i]), 4),
                None if ssm is None else round(float(ssm[i]), 4),
                [(self.classes_[k], round(float(s), 4)) for k, s in zip(order[i], share[i], strict=True)],
                None if decided.cluster is None else int(decided.cluster[i]) or None,
            )

    def find_examples(self, features: Features, decided: Decision) -> None:
        """Name the most typical samples of each cluster, where the head finds any."""
        if decided.cluster is None:
            return
        examples = {}
        for c in np.unique(decided.cluster[decided.cluster > 0]).tolist():
            members = np.flatnonzero(decided.cluster == c)[:CANDIDATES]
            p = self.head.of_cluster(features.X[members], c)
            typical = members[np.argsort(-p)[:EXAMPLES]].tolist()
            examples[c] = [str(i if features.paths is None else features.paths[i]) for i in typical]
        self.examples = examples

    def _all(self, source: Any, config: Config | None) -> Matrix:
        """Vectors of all samples: what is returned as an array must match what was given, row by row."""
        samples = read(source)
        X = self.features(samples, config=config).X
        if len(X) < len(samples):
            raise InputError(
                f"{len(samples) - len(X)} of {len(samples)} images cannot be read; predictions() skips them"
            )
        return X

    def _checked(self, features: Features) -> Features:
        known = self.card.get("backbone")
        if features.backbone and known and features.backbone != known["sha256"]:
            raise InputError(
                f"these features come from another backbone (sha256 {features.backbone[:12]}…) than the model's "
                f"{known['name']} ({known['sha256'][:12]}…)"
            )
        if features.X.shape[1] != self.dim:
            raise InputError(f"the features have {features.X.shape[1]} dimensions, the model takes {self.dim}")
        return features

    def extractor(self, config: Config | None = None) -> Extractor:
        """What turns images into vectors for this model."""
        if self.backbone is not None:
            return Extractor.make(self.backbone, config or Config())
        known = self.card.get("backbone")
        if known is not None and known["record"] is not None:
            raise InputError(
                f"the model file was saved without its backbone; give {known['name']} "
                f"(sha256 {known['sha256'][:12]}…) with --backbone"
            )
        raise InputError("this model was made of features, not of images; give it features too")

    def use_backbone(self, backbone: Backbone) -> None:
        """Give a model that was saved without its backbone the one it was made with; any other is an error."""
        known = self.card.get("backbone")
        if known is None or known["record"] is None:
            raise InputError("this model was made of features and takes no backbone")
        if (backbone.sha256, backbone.record) != (known["sha256"], known["record"]):
            other = f"not the model's {known['name']} ({known['sha256'][:12]}…)"
            if backbone.sha256 == known["sha256"]:
                other = "the model's, but prepares images otherwise"
            raise InputError(f"backbone {backbone.name} (sha256 {backbone.sha256[:12]}…) is {other}")
        self.backbone = backbone

    def page(self) -> str:
        """The card as a page that model hubs show, in Markdown."""
        return page(FILE, self.classes_, self.card, self.findings)

    def save(self, path: str | Path | Url, *, backbone: bool = True) -> None:
        """Write the file, whole or not at all; ``backbone=False`` leaves the ONNX file out and keeps its sha256.

        In a folder that is there already, or a path that ends with a slash, the file is called ``model.usfda``, and a
        page that model hubs show lies beside it; ``load`` takes the folder. For a path, a URL will do, as for ``load``.
        """
        place = place_of(path)
        if isinstance(place, Path) and (place.is_dir() or str(path).endswith("/")):
            place.mkdir(parents=True, exist_ok=True)
            with atomic_write(place / PAGE) as file:
                file.write(self.page().encode())
            place /= FILE
        tensors = self.vendor.tensors()
        tensors |= {f"{self.head.part}.{name}": t for name, t in self.head.tensors().items()}
        card: FileCard = {"classes": self.source_classes, "head": self.head.name, **self.card}
        graph = self.backbone.onnx if backbone and self.backbone is not None else None
        write_model_file(place, ModelFile(card, tensors, graph))


def load(path: str | Path | Url, *, signed_by: str | Path | None = None) -> Model:
    """Read a model file, also by a URL, or the one in a folder that ``save`` made.

    The file is untrusted: nothing in it is executed before it has been checked.

    Parameters
    ----------
    path : str or Path
        The file, or the folder.
    signed_by : str or Path, optional
        The file of a public key or a certificate (PEM); a model that has no signature of it is an error.

    >>> model = load("client.usfda")                     # doctest: +SKIP
    """
    if isinstance(path := place_of(path), Url):
        if signed_by is not None:
            raise InputError(f"{path}: signatures are of local files; fetch the model and its .sig first")
        with fetched(path, MAX_SIZE) as copy:
            try:
                return load(copy)
            except InputError as error:
                raise InputError(str(error).replace(str(copy), str(path))) from None
    path = model_file(path)
    content = read_model_file(path, None if signed_by is None else verify(path, signed_by))
    classes, head = content.card["classes"], HEADS[content.card["head"]]
    card, deployed = card_of(content.card), content.card["deployment"]
    taught, strictness = [], STRICTNESS
    if deployed is not None:
        taught, strictness = list(deployed.get("taught", {})), deployed["strictness"]
    vendor = Vendor.build(content.tensors)
    try:
        backbone = _backbone(card.get("backbone"), content.backbone, vendor.dim)
    except InputError as error:
        raise InputError(f"{path}: {str(error)[:MESSAGE]}") from None
    built = head.build(vendor, own_part(content.tensors, head.part))
    return Model(classes, vendor, built, backbone, card, taught, strictness)


def as_model(model: Model | str | Path) -> Model:
    """A model, or the model of a file."""
    if isinstance(model, Model):
        return model
    if isinstance(model, str | Path):
        return load(model)
    raise InputError(f"give a model, or the path of a model file, not {type(model).__name__}")


def _backbone(known: Any, graph: bytes | None, dim: int) -> Backbone | None:
    """The backbone of a model file; an error where it is not as the card and the tensors say, or may not run."""
    if known is not None:
        texts = isinstance(known, dict) and all(isinstance(known.get(key), str) for key in ("name", "sha256"))
        if not texts or "record" not in known:
            raise InputError("its card does not describe the backbone")
    if graph is None:
        return None
    if known is None:
        raise InputError("it has a backbone that the card does not name")
    backbone = Backbone(known["name"], graph, check_record(known["record"], "its backbone"))
    if backbone.sha256 != known["sha256"]:
        raise InputError("its backbone is not the one that the card names")
    if backbone.dim != dim:
        raise InputError(f"its backbone gives vectors of {backbone.dim} dimensions, its tensors take {dim}")
    return backbone


def versions() -> dict[str, str]:
    """The versions of Python, of this package, and of the libraries that figures depend on."""
    names = ("usfda", "torch", "onnxruntime", "numpy", "scipy", "scikit-learn", "pillow")
    found = {"python": platform.python_version()}
    for name in names:
        with suppress(PackageNotFoundError):  # torch, which not all of the package needs
            found[name] = version(name)
    return found

"""The model: what the vendor hands over and the client adapts; its predictions, and its file.

A ``.usfda`` file is a plain zip, nothing compressed and nothing pickled: ``card.json``, ``tensors.safetensors`` (F_s,
D, the source's geometry and, once adapted, F_t or the mixture) and ``backbone.onnx``. It holds no image and no sample's
features, no path and no file name.
"""

from __future__ import annotations

import json
import platform
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import nn

from .backbones import Backbone, check_record
from .data import Samples, read
from .features import extract
from .geometry import Geometry
from .mixture import Mixture
from .networks import D, in_pieces, make_f
from .runtime import InputError, progress, runtime, whole_file

FORMAT = 2
UNKNOWN = "unknown"
STRICTNESS = 0.5  # unknown below this probability of being known: the method's own decision
CHUNK = 512  # images at a time when predicting: memory does not depend on their number


@dataclass(frozen=True)
class Decision:
    """For n samples: best source class, whether it is one at all, known-score, SSM, softmax, and cluster."""

    best: np.ndarray  # index into the source classes
    known: np.ndarray  # bool; false is unknown
    score: np.ndarray  # Σ_{k≤|C_s|} ẑ_k in [0, 1]: high is known
    ssm: np.ndarray  # w = exp(max ŷ) of the frozen source path, in [1, e]
    probability: np.ndarray  # ẑ over the source classes, (n, |C_s|)
    cluster: np.ndarray  # of the unknown ones, from 1; 0 where there is none


@dataclass(frozen=True)
class Prediction:
    """One sample: a source class or ``unknown``."""

    path: str
    label: str
    score: float
    ssm: float
    top: list[tuple[str, float]]  # the three best source classes and their share among the source classes
    cluster: int | None = None  # which of the groups of unknown samples, where the method finds any


class Model:
    """A procured or adapted model. ``predict`` and ``predict_proba`` take images (folder, list, paths) or features."""

    def __init__(
        self,
        classes: list[str],
        f_s: nn.Module,
        d: D,
        geometry: Geometry,
        backbone: Backbone | None,
        card: dict[str, Any],
        *,
        f_t: nn.Module | None = None,
        mixture: Mixture | None = None,
    ):
        self.classes_ = list(classes)
        self.f_s, self.d, self.geometry = f_s.cpu().eval(), d.cpu().eval(), geometry
        self.f_t, self.mixture = f_t, mixture
        self.examples: dict[int, list[str]] = {}  # of the clusters, by name; for the client's eyes, never saved
        self.backbone = backbone
        self.card = card
        if backbone is not None:
            card["backbone"] = {"name": backbone.name, "sha256": backbone.sha256, "record": backbone.record}

    @property
    def adapted(self) -> bool:
        return self.card.get("deployment") is not None

    @cached_property
    def dim(self) -> int:
        """d, the size of the vectors that the model takes."""
        return int(self.f_s.state_dict()["0.weight"].shape[1])

    def __repr__(self) -> str:
        return f"Model({len(self.classes_)} classes, {'adapted' if self.adapted else 'procured'}, d={self.dim})"

    def vectors(self, samples: Samples, text: str = "") -> Samples:
        """The samples as vectors of this model's backbone; images that cannot be read are left out."""
        if samples.paths is not None:
            found = extract(samples, self._backbone(), text)[0]
            if len(found) == 0:
                raise InputError(f"none of the {len(samples)} images can be read")
            return found
        known = self.card.get("backbone")
        if samples.backbone and known and samples.backbone != known["sha256"]:
            raise InputError(
                f"these features come from another backbone (sha256 {samples.backbone[:12]}…) than the model's "
                f"{known['name']} ({known['sha256'][:12]}…)"
            )
        if samples.X.shape[1] != self.dim:
            raise InputError(f"the features have {samples.X.shape[1]} dimensions, the model takes {self.dim}")
        return samples

    def _backbone(self) -> Backbone:
        if self.backbone is not None:
            return self.backbone
        known = self.card.get("backbone")
        if known is not None and known["record"] is not None:
            raise InputError(
                f"the model file was saved without its backbone; give {known['name']} "
                f"(sha256 {known['sha256'][:12]}…) with --backbone"
            )
        raise InputError("this model was made of features, not of images; give it features too")

    def use_backbone(self, backbone: Backbone) -> None:
        """Gives a model that was saved without its backbone the one it was made with; any other is an error."""
        known = self.card.get("backbone")
        if known is None or known["record"] is None:
            raise InputError("this model was made of features and takes no backbone")
        same = Backbone(known["name"], backbone.onnx, known["record"])
        if (backbone.sha256, backbone.key) != (known["sha256"], same.key):
            raise InputError(
                f"backbone {backbone.name} (sha256 {backbone.sha256[:12]}…) is not the model's {known['name']} "
                f"({known['sha256'][:12]}…)"
            )
        self.backbone = backbone

    def transform(self, source: Any) -> np.ndarray:
        """u = F_t∘M(x) (F_s before adaptation), (n, 256); after ``usfda`` √p over the mixture's components."""
        X = self._all(source)
        latent = self.f_t or self.f_s if self.mixture is None else lambda v: self.mixture(v).sqrt()  # type: ignore[misc]
        return np.asarray(in_pieces(latent, lambda index: torch.from_numpy(X[index]), np.arange(len(X))))

    def decide(self, X: Any, strictness: float | None = None) -> Decision:
        """Decisions for vectors (n, d). Unknown is what is less likely known than ``strictness``, from 0 (never
        unknown) to 1 (readily); without it, as the model was adapted: by default ½, the method's own decision."""
        if strictness is None:
            strictness = (self.card.get("deployment") or {}).get("strictness", STRICTNESS)
        strictness = check_strictness(strictness)
        torch.set_num_threads(runtime.threads)
        parts = [self._decide(torch.from_numpy(X[i : i + 4096]), strictness) for i in range(0, len(X), 4096)]
        return Decision(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def _decide(self, v: torch.Tensor, strictness: float) -> tuple[np.ndarray, ...]:
        n = len(self.classes_)
        with torch.no_grad():
            y = self.d(self.f_s(v)).softmax(1)
            if self.mixture is not None:
                z = self.mixture(v)
            else:
                z = self.d(self.f_t(v)).softmax(1) if self.f_t is not None else y
        positive, rest = z[:, :n], z[:, n:]
        best, score = positive.argmax(1), positive.sum(1).clamp(0, 1)
        cluster = torch.zeros_like(best)
        if self.mixture is not None:
            known = score >= strictness
            if rest.shape[1]:
                cluster = torch.where(known, cluster, 1 + rest.argmax(1))
        else:  # argmax over K: any negative class is unknown
            known = (1 - strictness) * positive.amax(1) >= strictness * rest.amax(1)
        columns = best, known, score, y[:, :n].amax(1).exp(), positive, cluster
        return tuple(column.numpy() for column in columns)

    def predict(self, source: Any, strictness: float | None = None) -> np.ndarray:
        """A label, or ``unknown``, for every sample."""
        return self.labels_of(self.decide(self._all(source), strictness))

    def predict_proba(self, source: Any) -> np.ndarray:
        """(n, |C_s|+1): the source classes in the order of ``classes_``, then unknown; rows sum to 1."""
        p = self.decide(self._all(source)).probability
        return np.column_stack([p, np.clip(1 - p.sum(1), 0, 1)])

    def _all(self, source: Any) -> Any:
        """Vectors of all samples: what is returned as an array must match what was given, row by row."""
        samples = read(source)
        X = self.vectors(samples).X
        if len(X) < len(samples):
            raise InputError(
                f"{len(samples) - len(X)} of {len(samples)} images cannot be read; predictions() skips them"
            )
        return X

    def labels_of(self, decided: Decision) -> np.ndarray:
        return np.where(decided.known, np.asarray(self.classes_)[decided.best], UNKNOWN)

    def named_vectors(self, samples: Samples, text: str = "") -> tuple[list[str], Any]:
        """Names (paths, or row numbers) and vectors of the samples that can be read."""
        if samples.paths is None:
            return [str(i) for i in range(len(samples))], self.vectors(samples).X
        found, kept, _ = extract(samples, self._backbone(), text)
        return [str(samples.paths[i]) for i in kept], found.X

    def predictions(self, source: Any, strictness: float | None = None) -> Iterator[Prediction]:
        """One record a sample, as they come: a hundred thousand images need no more memory than a thousand."""
        samples = read(source)
        with progress(len(samples), "predict", "images") as advance:
            for start in range(0, len(samples), CHUNK):
                index = np.arange(start, min(start + CHUNK, len(samples)))
                names, X = self.named_vectors(samples[index])
                if samples.paths is None:
                    names = [str(i) for i in index]
                yield from self._records(names, X, strictness)
                advance(len(index))

    def _records(self, names: list[str], X: Any, strictness: float | None) -> Iterator[Prediction]:
        if not names:
            return
        decided = self.decide(X, strictness)
        share = decided.probability / np.maximum(decided.probability.sum(1, keepdims=True), 1e-30)
        order = np.argsort(-share, axis=1, kind="stable")[:, :3]
        for i, label in enumerate(self.labels_of(decided)):
            yield Prediction(
                names[i],
                str(label),
                round(float(decided.score[i]), 4),
                round(float(decided.ssm[i]), 4),
                [(self.classes_[k], round(float(share[i, k]), 4)) for k in order[i]],
                int(decided.cluster[i]) or None,
            )

    def save(self, path: str | Path, *, backbone: bool = True) -> None:
        """Writes the file, whole or not at all; ``backbone=False`` leaves the ONNX file out and keeps its sha256."""
        parts = {"F_s": self.f_s, "D": self.d, "geometry": self.geometry, "F_t": self.f_t}
        tensors = {f"{part}.{k}": t.contiguous() for part, m in parts.items() if m for k, t in m.state_dict().items()}
        if self.mixture is not None:
            tensors |= {f"mixture.{name}": t.contiguous() for name, t in self.mixture.own().items()}
        card = {"format": FORMAT, "classes": self.classes_, **self.card}
        members = {
            "card.json": json.dumps(card, indent=1, ensure_ascii=False).encode(),
            "tensors.safetensors": safetensors.torch.save(tensors),
        }
        if backbone and self.backbone is not None:
            members["backbone.onnx"] = self.backbone.onnx
        with whole_file(Path(path)) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, content in members.items():
                archive.writestr(zipfile.ZipInfo(name), content)


def load(path: str | Path) -> Model:
    """Reads a model file; nothing in it is executed."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such model file")
    try:
        with zipfile.ZipFile(path) as archive:
            if any(info.compress_type != zipfile.ZIP_STORED for info in archive.infolist()):
                raise InputError(f"{path}: not a usfda model file (its members are compressed)")
            members = {name: archive.read(name) for name in archive.namelist()}
        card = json.loads(members["card.json"])
        if card.get("format") != FORMAT:
            raise InputError(
                f"{path}: model file format {card.get('format')}, this version of usfda reads {FORMAT}; "
                "procure it again, or use the version that made it"
            )
        tensors = safetensors.torch.load(members["tensors.safetensors"])
        return _build(card, tensors, members.get("backbone.onnx"))
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{path}: not a usfda model file, or damaged ({error})") from error


def _build(card: dict[str, Any], tensors: dict[str, torch.Tensor], graph: bytes | None) -> Model:
    def part(name: str) -> dict[str, torch.Tensor]:
        return {key.removeprefix(f"{name}."): t for key, t in tensors.items() if key.startswith(f"{name}.")}

    def network(name: str) -> nn.Module:
        f = make_f(tensors[f"{name}.0.weight"].shape[1])
        f.load_state_dict(part(name))
        return f.eval()

    d = D(len(tensors["D.source.bias"]), len(tensors["D.negative.bias"]))
    d.load_state_dict(part("D"))
    classes = card["classes"]
    if len(classes) != d.source.out_features:
        raise ValueError("the card and the tensors disagree about the classes")
    backbone = None
    if graph is not None:
        known = card["backbone"]
        backbone = Backbone(known["name"], graph, check_record(known["record"], "the model's backbone"))
        if backbone.sha256 != known["sha256"]:
            raise ValueError("the backbone is not the one that the card names")
    geometry = Geometry(*tensors["geometry.prototypes"].shape[::-1])
    geometry.load_state_dict(part("geometry"))
    f_t = network("F_t") if "F_t.0.weight" in tensors else None
    mixture = None
    if "mixture.bias" in tensors:
        mixture = Mixture(geometry, len(tensors["mixture.bias"]))
        mixture.load_state_dict(part("mixture") | {f"geometry.{k}": t for k, t in geometry.state_dict().items()})
    content = {key: value for key, value in card.items() if key not in ("format", "classes")}
    return Model(classes, network("F_s"), d, geometry, backbone, content, f_t=f_t, mixture=mixture)


def check_strictness(value: float) -> float:
    if not 0 <= value <= 1:
        raise InputError(f"strictness is from 0 (never unknown) to 1 (readily), not {value}")
    return value


def contents(path: str | Path) -> dict[str, int]:
    """What the file holds, in bytes."""
    with zipfile.ZipFile(path) as archive:
        return {info.filename: info.file_size for info in archive.infolist()}


def versions() -> dict[str, str]:
    names = ("usfda", "torch", "onnxruntime", "numpy", "scipy", "scikit-learn", "pillow")
    return {"python": platform.python_version()} | {name: version(name) for name in names}


def rounded(history: dict[str, list[float]]) -> dict[str, list[float]]:
    """Losses as the card keeps them: five digits say enough."""
    return {name: [float(f"{value:.5g}") for value in values] for name, values in history.items()}

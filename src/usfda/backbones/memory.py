"""Memory that onnxruntime takes for a node beyond its outputs, measured on its CPU provider."""

from __future__ import annotations

from onnx import TensorProto as Types

from .sizes import Node, bytes_per_image
from .tensors import Tensor

BLOCK = 16  # channels that are laid out together (AVX-512): a convolution to one channel takes room for all of them
# Operators that may be computed in this layout, and those that are made of several others.
_BLOCKED = frozenset((
    "Add", "AveragePool", "BatchNormalization", "Clip", "Concat", "Conv", "GlobalAveragePool", "GlobalMaxPool",
    "HardSigmoid", "LeakyRelu", "MaxPool", "Mul", "Relu", "Sigmoid", "Sum", "Tanh",
))  # fmt: skip
_COMPOSED = frozenset(("Gelu", "GroupNormalization", "HardSwish", "Mish", "Swish"))
_HALF = (Types.FLOAT16, Types.BFLOAT16)  # cast to float32 before a node, and back after it


def memory_per_image(node: Node, outputs: list[Tensor]) -> int:
    """Memory that onnxruntime takes for a node, the batch taken out: its outputs, padded, and copies of them.

    A convolution may copy its input into blocks of channels, and its output out of them.
    """
    memory = sum(
        (_in_blocks(tensor) if node.op in _BLOCKED else bytes_per_image(tensor)) * (3 if tensor.type in _HALF else 1)
        for tensor in outputs
    )
    if node.op == "Conv":
        memory += _in_blocks(node.input(0)) + bytes_per_image(outputs[0])
    return memory * (2 if node.op in _COMPOSED else 1)


def _in_blocks(tensor: Tensor) -> int:
    """Memory of a tensor whose channels are padded to whole blocks, the batch taken out."""
    if len(tensor.shape) < 3:
        return bytes_per_image(tensor)
    n, channels, *sizes = tensor.shape
    return bytes_per_image(tensor._replace(shape=(n, -(-channels // BLOCK) * BLOCK, *sizes)))

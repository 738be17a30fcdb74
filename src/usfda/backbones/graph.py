"""What an untrusted ONNX graph may contain, and what it costs to run: computed before any runtime sees it.

Three steps, each on what the one before has let through: the file's wire format (no field but those a backbone needs,
hence no external data and no graph within a graph), its weights (``tensors.py``), and its nodes (``sizes.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto as Types

from ..errors import InputError
from .memory import memory_per_image
from .sizes import BATCH, DOMAINS, MAX_BYTES, Node, bytes_per_image, operations_per_image, outputs_of
from .tensors import PLAIN, Refusal, Tensor, need, read_weight, word

MAX_CONTENT = 2**30  # bytes of the file
MAX_ENTRIES = 1_000_000  # fields of the file: small ones take many times their size once they are parsed
MAX_NODES = 20_000  # TinyViT has 1,605
MAX_OPERATIONS = 10**12  # multiply-adds for one image
OPSETS = range(7, 26)  # from 7 on, elementwise operators broadcast as numpy does

# All of the ONNX format that a backbone needs; any other field is refused, those of a later format too.
_FORMAT = {
    "ModelProto": "ir_version opset_import producer_name producer_version domain model_version doc_string graph "
    "metadata_props",
    "OperatorSetIdProto": "domain version",
    "StringStringEntryProto": "key value",
    "GraphProto": "node name initializer doc_string input output value_info metadata_props",
    "NodeProto": "input output name op_type domain attribute doc_string metadata_props",
    "AttributeProto": "name doc_string type f i s t floats ints",
    "TensorProto": "dims data_type float_data int32_data int64_data uint64_data double_data raw_data name doc_string "
    "data_location metadata_props",
    "ValueInfoProto": "name type doc_string metadata_props",
    "TypeProto": "tensor_type denotation",
    "Tensor": "elem_type shape",
    "TensorShapeProto": "dim",
    "Dimension": "dim_value dim_param denotation",
}
_REFUSED = {
    "external_data": "keeps weights in another file (external data)",
    "g": "has a node with a graph inside, such as Loop, Scan or If",
    "graphs": "has a node with graphs inside",
    "functions": "defines operators of its own (functions)",
    "training_info": "holds training information",
    "sparse_initializer": "holds sparse weights",
    "sparse_tensor": "holds a sparse constant",
    "sparse_tensors": "holds sparse constants",
    "string_data": "contains text instead of numbers",
    "strings": "contains text instead of numbers",
}


@dataclass(frozen=True)
class GraphCost:
    """What one image takes, and gives; a batch of n takes at most n times as much."""

    bytes_per_image: int  # the image and the outputs of all nodes, as if none were freed
    operations_per_image: int  # multiply-adds
    dim: int  # the size of its vector
    memory_per_image: int  # bytes_per_image, and what onnxruntime takes beside them: padding and copies


def check_graph(content: bytes, name: str, size: tuple[int, int]) -> GraphCost:
    """Refuse a graph that holds or needs more than a backbone may, without running any of it.

    Parameters
    ----------
    content : bytes
        The ONNX file.
    name : str
        Of the backbone, for the message of the InputError.
    size : tuple of int
        Height and width of the images it will get.
    """
    try:
        if len(content) > MAX_CONTENT:
            raise Refusal(f"the file is larger than {MAX_CONTENT} bytes")
        if content[4:8] == b"ORTM":
            raise Refusal("is of onnxruntime's own format, or pretends to be; give a plain ONNX file")
        _scan(content)
        return _analyse(onnx.ModelProto.FromString(content), size)
    except Refusal as error:
        raise InputError(f"backbone {name}: {error}") from None
    except Exception as error:  # whatever else a hostile file provokes in protobuf, onnx or numpy
        raise InputError(f"backbone {name}: not a sound ONNX file ({type(error).__name__})") from None


_MESSAGES = vars(onnx) | {"Tensor": onnx.TypeProto.Tensor, "Dimension": onnx.TensorShapeProto.Dimension}
_WIRE = {  # message → field number → its name, its type and the message in it ("" if none)
    name: {
        field.number: (field.name, field.type, getattr(field.message_type, "name", ""))
        for field in _MESSAGES[name].DESCRIPTOR.fields
    }
    for name in _FORMAT
}
_ALLOWED = {message: frozenset(fields.split()) for message, fields in _FORMAT.items()}


def _varint(content: bytes, at: int) -> tuple[int, int]:
    if content[at] < 128:
        return content[at], at + 1
    number = 0
    for shift in range(0, 70, 7):
        byte = content[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
    raise ValueError


def _scan(content: bytes) -> None:
    """Refuse fields outside _FORMAT wherever they stand, and too many fields, before a parser allocates for them.

    No message in _FORMAT can hold itself, so the depth is bounded too.
    """
    entries = nodes = 0
    stack = [("ModelProto", 0, len(content))]
    while stack:
        message, at, end = stack.pop()
        while at < end:
            tag, start = _varint(content, at)
            wire = tag & 7  # 0: a number, 1: 8 bytes, 2: a length and as many bytes, 5: 4 bytes
            field, kind, inner = _WIRE[message].get(tag >> 3, (f"number {tag >> 3}", 0, ""))
            number, at = _varint(content, start) if wire in (0, 2) else (0, start + {1: 8, 5: 4}[wire])
            if field not in _ALLOWED[message] or (field == "data_location" and (wire or number)):
                field = "external_data" if field == "data_location" else field
                raise Refusal(f"{_REFUSED.get(field, f'holds the field {message} {field}')}; {PLAIN}")
            if wire == 2:
                start, at = at, at + number
            need(at <= end and (wire == 2 or kind not in (9, 11, 12)))  # strings, messages and bytes have a length
            if wire == 2 and kind not in (9, 11, 12):  # a list of numbers: integers (not 1, 2) grow when parsed
                entries += (at - start) >> ((8 if kind in (1, 2) else 6) if field.endswith("_data") else 0)
            if kind == 9:
                content[start:at].decode()  # a name that is no text, at which runtimes stumble, is an error here
            entries += 1
            nodes += inner == "NodeProto"
            if nodes > MAX_NODES or entries > MAX_ENTRIES:
                raise Refusal(f"has more than {MAX_NODES} nodes or {MAX_ENTRIES} entries")
            if inner:
                stack.append((inner, start, at))


def _image(graph: Any, weights: dict[str, Tensor], size: tuple[int, int]) -> tuple[str, Tensor]:
    inputs = [value for value in graph.input if value.name not in weights]  # old files list their weights as inputs too
    dims = [d for value in inputs for d in value.type.tensor_type.shape.dim]
    if len(inputs) != 1 or inputs[0].type.tensor_type.elem_type != Types.FLOAT or len(dims) != 4:
        raise Refusal("it must have one float32 input, NCHW")
    batch, *takes = [d.dim_value if d.HasField("dim_value") else word(d.dim_param) for d in dims]
    need(not isinstance(batch, int) or batch > 0)
    if any(isinstance(d, int) and d != r for d, r in zip(takes, (3, *size), strict=True)):
        raise Refusal(f"takes {tuple(takes)}, its record has {(3, *size)}")
    return inputs[0].name, Tensor(Types.FLOAT, (batch if isinstance(batch, int) else BATCH, 3, *size))


def _analyse(model: Any, size: tuple[int, int]) -> GraphCost:
    graph = model.graph
    opsets = [o.version for o in model.opset_import if o.domain in DOMAINS]
    if len(opsets) != 1 or opsets[0] not in OPSETS:
        raise Refusal(f"must be of one opset from {OPSETS[0]} to {OPSETS[-1]}")
    tensors: dict[str, Tensor] = {}
    operations = 0

    def add(name: str, tensor: Tensor) -> None:
        if not name or name in tensors:
            raise Refusal(f"{word(name)} is made twice")
        tensors[name] = tensor

    for proto in graph.initializer:
        add(proto.name, read_weight(proto))
    name, image = _image(graph, tensors, size)
    add(name, image)
    batch = image.shape[0]
    size_of_all = memory = bytes_per_image(image)
    for proto in graph.node:
        node = Node(proto, opsets[0], tensors)
        try:
            with np.errstate(all="ignore"):
                outputs = outputs_of(node)
            size_of_all += sum(bytes_per_image(tensor) for tensor in outputs)
            memory += memory_per_image(node, outputs)
            operations += operations_per_image(node, outputs)
        except Refusal:
            raise
        except Exception:
            raise Refusal(f"the size of {word(node.outputs[0])} ({node.op}) cannot be determined in advance") from None
        if memory > MAX_BYTES:
            raise Refusal(f"needs more than {MAX_BYTES} bytes of memory for one image")
        if operations > MAX_OPERATIONS:
            raise Refusal(f"needs more than {MAX_OPERATIONS} multiply-adds for one image")
        for name, tensor in zip(node.outputs, outputs, strict=True):
            add(name, tensor)
    first = tensors.get(graph.output[0].name) if graph.output else None
    if first is None or len(first.shape) != 2 or first.shape[0] != batch or not 0 < first.shape[1] < BATCH:
        raise Refusal("its first output must be (batch, dimensions), pooled")
    images = 1 if batch == BATCH else batch
    size_of_all, operations, memory = (-(-total // images) for total in (size_of_all, operations, memory))
    return GraphCost(size_of_all, operations, first.shape[1], memory)

"""Sizes of what the nodes of an ONNX graph make, worked out in plain Python before any runtime sees the graph.

Shape inference of onnx is not used: it is native code with a record of memory faults on hostile graphs, and it does
not resolve the sizes that transformers compute as they run.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto as Types
from onnx.helper import get_attribute_value
from onnx.numpy_helper import from_array

from .tensors import FOLLOWED, MAX_RANK, PLAIN, SMALL, STORAGE, Refusal, Shape, Tensor, need, objects, read_weight, word

MAX_BYTES = 2**31  # of all tensors that come into being for one image, with what onnxruntime adds to them
DOMAINS = ("", "ai.onnx")

# Operators, by how the size of their output follows. Left out although some backbone may want them: Einsum, LRN,
# ConvTranspose and Attention take memory beyond their output; the size that Resize gives hangs on how a runtime
# rounds; how much NonZero or TopK gives hangs on the image; and the rest of ONNX is for other networks.
_OUTPUT_LIKE = {
    "the input": "Abs BatchNormalization Cast Ceil Celu Clip Cos DequantizeLinear Dropout Elu Erf Exp Floor Gelu "
    "GroupNormalization HardSigmoid HardSwish Identity InstanceNormalization IsNaN LayerNormalization LeakyRelu Log "
    "LogSoftmax LpNormalization Mish Neg Not QuantizeLinear RMSNormalization Reciprocal Relu Round Selu Sigmoid Sign "
    "Sin Softmax Softplus Softsign Sqrt Swish Tanh ThresholdedRelu",
    "the inputs together": "Add And Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mod Mul Or PRelu "
    "Pow Sub Sum Where Xor",
    "the input without axes": "ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare",
    "a rule of its own": "AveragePool Concat Constant ConstantOfShape Conv Expand Flatten Gather Gemm "
    "GlobalAveragePool GlobalMaxPool MatMul MaxPool Pad Reshape Shape Slice Split Squeeze Tile Transpose Unsqueeze",
}
_SAME, _BROADCAST, _REDUCE, _OTHER = (frozenset(names.split()) for names in _OUTPUT_LIKE.values())
OPERATORS = _SAME | _BROADCAST | _REDUCE | _OTHER
_LOGICAL = frozenset(("And", "Equal", "Greater", "GreaterOrEqual", "IsNaN", "Less", "LessOrEqual", "Not", "Or", "Xor"))

# A free batch size stands in the analysis as this prime, larger than any product of two 64-bit numbers. A size is then
# a plain number, a multiple of the batch, or neither, and neither is refused. So memory grows in proportion to the
# batch, and no arithmetic on the batch size makes a graph larger for 32 images than it was found to be for one.
BATCH = 2**127 - 1
FEW = MAX_RANK  # inputs of a node whose numbers are followed: a file has room for a million, a size for these
_UNSURE = BATCH + 1  # a number that could be another one for another batch


@functools.cache
def _schema(op: str, opset: int) -> Any:
    return onnx.defs.get_schema(op, opset, "")


class Node:
    """A node of an allowed operator, with the attributes and as many inputs and outputs as its opset knows."""

    def __init__(self, proto: Any, opset: int, tensors: dict[str, Tensor]) -> None:
        self.op, self.outputs = proto.op_type, list(proto.output)
        if self.op not in OPERATORS or proto.domain not in DOMAINS:
            whose = f" of {word(proto.domain)}" if proto.domain else ""
            raise Refusal(f"has a {word(self.op)} node{whose}; {PLAIN}")
        try:  # an attribute of another version would be read here and overlooked there
            schema = _schema(self.op, opset)
            need(all(schema.attributes[a.name].type.value == a.type for a in proto.attribute))
            need(schema.min_input <= len(proto.input) <= schema.max_input)
            need(len(self.outputs) == 1 or self.op == "Split")
            need(len({a.name for a in proto.attribute}) == len(proto.attribute))
        except Exception:
            raise Refusal(f"has a {self.op} node in a form that opset {opset} does not know") from None
        values = [read_weight(a.t) if a.type == a.TENSOR else get_attribute_value(a) for a in proto.attribute]
        self.attributes: dict[str, Any] = dict(zip((a.name for a in proto.attribute), values, strict=True))
        for missing in (x for x in proto.input if x and x not in tensors):
            raise Refusal(f"a {self.op} node uses {word(missing)} before anything makes it")
        self.inputs = [tensors[x] if x else None for x in proto.input]

    def get(self, attribute: str, default: Any) -> Any:
        """An attribute, or what it is if it is not stated."""
        return self.attributes.get(attribute, default)

    def input(self, index: int) -> Tensor:
        """An input that must be there."""
        if (tensor := self.inputs[index]) is None:
            raise ValueError
        return tensor

    def numbers(self, attribute: str, index: int, default: Any = None) -> list[int]:
        """A list that older opsets keep in an attribute and newer ones in an input."""
        if attribute in self.attributes:
            need(len(self.attributes[attribute]) <= SMALL)
            return list(self.attributes[attribute])
        if index >= len(self.inputs) or self.inputs[index] is None:
            return list(default)
        value = self.input(index).value
        if value is None or not all(isinstance(n, int) for n in value.flat):
            raise ValueError
        return list(value.flat)


def _axis(axis: int, rank: int) -> int:
    need(-rank <= axis < rank)
    return axis % rank


def _broadcast(*shapes: Shape) -> Shape:
    rank = max(map(len, shapes))
    sizes = [set(dims) - {1} for dims in zip(*((1,) * (rank - len(s)) + s for s in shapes), strict=True)]
    need(all(len(dims) <= 1 for dims in sizes))
    return tuple(dims.pop() if dims else 1 for dims in sizes)


def _window(node: Node, sizes: Shape, kernel: Shape) -> Shape:
    """Height and width of what a convolution or pooling gives."""
    n = len(kernel)
    strides, dilations = node.get("strides", [1] * n), node.get("dilations", [1] * n)
    pads, auto = node.get("pads", [0] * 2 * n), node.get("auto_pad", b"NOTSET")
    need(n == len(sizes) == len(strides) == len(dilations) == len(pads) / 2)
    need(min(*kernel, *strides, *dilations) > 0 <= min(pads))
    if auto in (b"SAME_UPPER", b"SAME_LOWER"):
        return tuple(-(-size // stride) for size, stride in zip(sizes, strides, strict=True))
    shape = []
    for i, size in enumerate(sizes):
        before, after = (0, 0) if auto == b"VALID" else (pads[i], pads[i + n])
        room = size + before + after - dilations[i] * (kernel[i] - 1) - 1
        steps = room // strides[i]
        if node.get("ceil_mode", 0):
            steps = -(-room // strides[i])
            need(steps * strides[i] < size + before)  # runtimes differ on a last window that sees padding only
        need(room >= 0)
        shape.append(steps + 1)
    return tuple(shape)


def _slices(node: Node, rank: int) -> dict[int, slice]:
    starts, ends = node.numbers("starts", 1), node.numbers("ends", 2)
    axes, steps = node.numbers("axes", 3, range(len(starts))), node.numbers("steps", 4, [1] * len(starts))
    need(all(abs(n) < BATCH for n in starts + ends + steps))
    parts = {_axis(a, rank): slice(*part) for a, *part in zip(axes, starts, ends, steps, strict=True)}
    need(len(parts) == len(axes))
    return parts


def _shapes(node: Node) -> list[Shape]:
    """Sizes of the outputs. Any exception means that they cannot be computed."""
    if node.op == "ConstantOfShape":
        return [tuple(node.numbers("", 0))]
    if node.op in _BROADCAST:
        return [_broadcast(*(node.input(i).shape for i in range(len(node.inputs))))]
    x = node.input(0).shape
    rank = len(x)
    axis = node.get("axis", 0)
    match node.op:
        case op if op in _SAME:
            return [x]
        case op if op in _REDUCE:
            need(0 not in x)
            axes = [_axis(a, rank) for a in node.numbers("axes", 1, ())]
            if not axes and not node.get("noop_with_empty_axes", 0):
                axes = list(range(rank))
            keep = node.get("keepdims", 1)
            return [tuple(1 if i in axes else d for i, d in enumerate(x) if keep or i not in axes)]
        case "Conv":
            w, group = node.input(1).shape, node.get("group", 1)
            need(x[1] == w[1] * group and w[0] % group == 0 and tuple(node.get("kernel_shape", w[2:])) == w[2:])
            out = _window(node, x[2:], w[2:])
            # Beside its output, onnxruntime may lay out all patches that the kernel sees, or a pointer to each number.
            if math.prod(w[2:]) * math.prod(out) * max(8, 4 * w[1]) > MAX_BYTES:
                raise Refusal(f"a Conv node needs more than {MAX_BYTES} bytes of memory for one image")
            return [(x[0], w[0], *out)]
        case "MaxPool" | "AveragePool":
            return [(*x[:2], *_window(node, x[2:], tuple(node.get("kernel_shape", ()))))]
        case "GlobalAveragePool" | "GlobalMaxPool":
            return [x[:2] + (1,) * (rank - 2)]
        case "MatMul":
            y = node.input(1).shape
            need(x[-1] == y[-2])
            return [(*_broadcast(x[:-2], y[:-2]), x[-2], y[-1])]
        case "Gemm":
            (m, k), (j, n) = x, node.input(1).shape
            m, k = (k, m) if node.get("transA", 0) else (m, k)
            j, n = (n, j) if node.get("transB", 0) else (j, n)
            need(k == j)
            return [(m, n)]
        case "Shape":
            return [(len(x[node.get("start", None) : node.get("end", None)]),)]
        case "Gather":
            axis = _axis(axis, rank)
            return [x[:axis] + node.input(1).shape + x[axis + 1 :]]
        case "Concat":
            axis = _axis(axis, rank)
            parts = [node.input(i).shape for i in range(len(node.inputs))]
            need(len({(len(p), p[:axis], p[axis + 1 :]) for p in parts}) == 1)
            return [(*x[:axis], sum(p[axis] for p in parts), *x[axis + 1 :])]
        case "Split":
            axis, n = _axis(axis, rank), len(node.outputs)
            each = -(-x[axis] // n)
            sizes = node.numbers("split", 1, [each] * (n - 1) + [x[axis] - each * (n - 1)])
            need(len(sizes) == n == node.get("num_outputs", n) and sum(sizes) == x[axis])
            return [(*x[:axis], size, *x[axis + 1 :]) for size in sizes]
        case "Flatten":
            axis = node.get("axis", 1)
            axis = axis if axis == rank else _axis(axis, rank)
            return [(math.prod(x[:axis]), math.prod(x[axis:]))]
        case "Reshape":
            dims = node.numbers("shape", 1)
            dims = [x[i] if d == 0 and not node.get("allowzero", 0) else d for i, d in enumerate(dims)]
            if -1 in dims:
                dims[dims.index(-1)] = math.prod(x) // -math.prod(dims)
            need(math.prod(dims) == math.prod(x))
            return [tuple(dims)]
        case "Transpose":
            order = node.get("perm", range(rank)[::-1])
            need(sorted(order) == list(range(rank)))
            return [tuple(x[i] for i in order)]
        case "Unsqueeze":
            axes = node.numbers("axes", 1)
            axes = [_axis(a, rank + len(axes)) for a in axes]
            rest = iter(x)
            return [tuple(1 if i in axes else next(rest) for i in range(rank + len(axes)))]
        case "Squeeze":  # without axes, what goes would depend on the batch
            ones = [i for i, d in enumerate(x) if d == 1] if all(d < BATCH for d in x) else None
            axes = [_axis(a, rank) for a in node.numbers("axes", 1, ones)]
            need(all(x[i] == 1 for i in axes))
            return [tuple(d for i, d in enumerate(x) if i not in axes)]
        case "Expand":
            return [_broadcast(x, tuple(node.numbers("shape", 1)))]
        case "Tile":
            return [tuple(d * n for d, n in zip(x, node.numbers("repeats", 1), strict=True))]
        case "Pad":
            pads, axes = node.numbers("pads", 1), node.numbers("axes", 3, range(rank))
            dims = list(x)
            for a, before, after in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
                dims[_axis(a, rank)] += before + after
            return [tuple(dims)]
        case "Slice":
            dims = list(x)
            for a, part in _slices(node, rank).items():
                if x[a] < BATCH:
                    # Backwards from before the beginning, or to beyond the end, runtimes do not do as numpy does.
                    need(part.step > 0 or (-x[a] <= part.start and part.stop <= x[a]))
                    dims[a] = len(range(*part.indices(x[a])))
                else:  # how much of a batch is left would depend on the batch, unless it is all
                    need((part.start, part.step) == (0, 1) and part.stop >= 2**31 - 1)
            return [tuple(dims)]
    raise ValueError


def _divide(a: Any, b: Any) -> Any:
    if isinstance(a, float):
        return a / b
    if a % b and max(abs(a), abs(b)) >= BATCH:
        return _UNSURE
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _decided(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A comparison: between a multiple of the batch and a plain number only their signs decide it for every batch."""

    def compare(a: Any, b: Any) -> Any:
        return function(a, b) if (abs(a) >= BATCH) == (abs(b) >= BATCH) or (a > 0) != (b > 0) else _UNSURE

    return compare


_ARITHMETIC: dict[str, tuple[int, Callable[..., Any]]] = {
    "Add": (2, operator.add), "Sub": (2, operator.sub), "Mul": (2, operator.mul), "Div": (2, _divide),
    "Mod": (2, lambda a, b: a % b if max(abs(a), abs(b)) < BATCH or a % b == 0 else _UNSURE),
    "Min": (2, _decided(min)), "Max": (2, _decided(max)), "Equal": (2, _decided(operator.eq)),
    "Less": (2, _decided(operator.lt)), "Greater": (2, _decided(operator.gt)),
    "LessOrEqual": (2, _decided(operator.le)), "GreaterOrEqual": (2, _decided(operator.ge)),
    "And": (2, operator.and_), "Or": (2, operator.or_), "Xor": (2, operator.xor), "Not": (1, operator.not_),
    "Neg": (1, operator.neg), "Floor": (1, lambda a: float(math.floor(a))), "Ceil": (1, lambda a: float(math.ceil(a))),
    "Where": (3, lambda condition, a, b: a if condition else b),
}  # fmt: skip
_CASTS: dict[int, Callable[[Any], Any]] = {Types.FLOAT: float, Types.BOOL: bool, Types.INT32: int, Types.INT64: int}


def _certain(number: Any, kind: int) -> bool:
    """Whether every runtime has just this number, whatever the batch: no rounding, no overflow, no mixed multiples."""
    if kind == Types.FLOAT:
        return bool(abs(number) < 2**63 and float(np.float32(number)) == number)
    if kind == Types.BOOL:
        return number in (False, True)
    plain = abs(number) < (2**63 if kind == Types.INT64 else 2**31)
    return bool(plain or (kind == Types.INT64 and number % BATCH == 0 and abs(number) < BATCH * 2**31))


def _value(node: Node, kind: int, shape: Shape) -> np.ndarray | None:
    """The numbers in a small output, where they follow from numbers known in advance."""
    values = [tensor.value for tensor in node.inputs if tensor]
    known = [value for value in values if value is not None]
    if kind not in FOLLOWED or math.prod(shape) > SMALL or max(shape, default=0) > SMALL:
        return None
    if node.op == "Shape":
        return objects(node.input(0).shape[node.get("start", None) : node.get("end", None)], shape)
    if len(known) < len(values) or len(known) > FEW or node.get("fmod", 0):
        return None
    x = known[0]
    match node.op:
        case op if op in _ARITHMETIC:
            count, function = _ARITHMETIC[op]
            apply = np.frompyfunc(function, count, 1)
            result = functools.reduce(apply, known) if count == 2 else apply(*known)
        case "Clip" if not node.attributes:
            for bound, pick in zip(node.inputs[1:], (max, min), strict=False):
                x = x if bound is None else np.frompyfunc(_decided(pick), 2, 1)(x, bound.value)
            result = x
        case "Cast":
            result = np.frompyfunc(_CASTS[kind], 1, 1)(x)
        case "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze" | "Identity":
            result = x
        case "Transpose":
            result = x.transpose(node.get("perm", None))
        case "Concat":
            result = np.concatenate(known, axis=node.get("axis", 0))
        case "Gather":
            result = np.take(x, known[1].astype(np.int64), axis=node.get("axis", 0))
        case "Slice":
            parts = _slices(node, x.ndim)
            result = x[tuple(parts.get(i, slice(None)) for i in range(x.ndim))]
        case "Expand":
            result = np.broadcast_to(x, shape)
        case "ConstantOfShape":
            result = np.broadcast_to(node.get("value", _ZERO).value, shape)
        case _:
            return None
    result = np.asarray(result, object).reshape(shape)
    return result if all(_certain(number, kind) for number in result.flat) else None


_ZERO = Tensor(Types.FLOAT, (1,), objects([0.0], (1,)))  # what ConstantOfShape gives if nothing is stated


def _type(node: Node) -> int:
    if node.op in _LOGICAL:
        return Types.BOOL
    if node.op == "ConstantOfShape":
        return int(node.get("value", _ZERO).type)
    stated = {"Shape": Types.INT64, "Cast": node.get("to", 0)}.get(node.op, node.get("output_dtype", 0))
    source = {"Where": 1, "DequantizeLinear": 1, "QuantizeLinear": 2}.get(node.op, 0)
    return int(stated) or (node.input(source).type if source < len(node.inputs) else Types.UINT8)


def outputs_of(node: Node) -> list[Tensor]:
    """The output of a node. Any exception means that it cannot be computed in advance."""
    if node.op == "Constant":
        ((name, value),) = node.attributes.items()
        types = {"value_int": np.int64, "value_float": np.float32}
        stated = isinstance(value, Tensor)
        return [value if stated else read_weight(from_array(np.array(value, types[name.rstrip("s")])))]
    kind, shapes = _type(node), _shapes(node)
    need(kind in STORAGE)
    for shape in shapes:
        need(len(shape) <= MAX_RANK and all(d >= 0 and _certain(d, Types.INT64) for d in shape))
    outputs = [Tensor(kind, shape, _value(node, kind, shape) if len(shapes) == 1 else None) for shape in shapes]
    for tensor in outputs:  # runtimes differ on layers that get nothing; a list of sizes may be empty
        need(0 not in tensor.shape or (len(tensor.shape) == 1 and tensor.value is not None))
    return outputs


def _per_image(*factors: int) -> int:
    """A product of sizes, the batch taken out, which may be in only one of them."""
    need(sum(size >= BATCH for size in factors) <= 1)
    return math.prod(size // BATCH if size >= BATCH else size for size in factors)


def bytes_per_image(tensor: Tensor) -> int:
    """Memory of a tensor, the batch taken out."""
    return _per_image(*tensor.shape) * np.dtype(STORAGE[tensor.type][0]).itemsize


def operations_per_image(node: Node, outputs: list[Tensor]) -> int:
    """Multiply-adds of a node, the batch taken out."""
    read, *_ = [tensor.shape for tensor in node.inputs if tensor] or [(0,)]
    each: Shape = ()  # the product of these is spent on one number of the output
    match node.op:
        case "Conv":
            each = node.input(1).shape[1:]
        case "MatMul" | "Gemm":
            each = (read[0 if node.get("transA", 0) else -1],)
        case "MaxPool" | "AveragePool":
            each = tuple(node.attributes["kernel_shape"])
        case "Max" | "Mean" | "Min" | "Sum":
            each = (max(1, len(node.inputs) - 1),)
    return max(_per_image(*read), sum(_per_image(*each, *tensor.shape) for tensor in outputs))

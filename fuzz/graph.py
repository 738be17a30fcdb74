"""ONNX graphs: odd bytes, and odd nodes in a sound file; what passes is run, and must take what was told."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper
from onnx.parser import parse_model

from usfda.backbones.backbone import load_onnxruntime
from usfda.backbones.graph import GraphCost, check_graph
from usfda.backbones.sizes import OPERATORS
from usfda.errors import InputError

from .harness import Change, Harness

SIZE = (8, 8)
RUN = 2**22  # bytes and multiply-adds up to which a graph is run
N = "sh = Shape (image) z = Constant <value_ints = [0]> () n = Gather (sh, z) "
ONES = "ones = Constant <value = float[3] {1, 1, 1}> () "
BODIES = (
    (17, ""),
    (17, "r = Relu (image) s = Softmax <axis = 1> (r) t = ReduceMean <axes = [1]> (s) u = Add (image, t)"),
    (17, "ws = Constant <value_ints = [4, 3, 3, 3]> () w = ConstantOfShape <value = float[1] {1}> (ws) "
         "c = Conv <pads = [1, 1, 1, 1], strides = [2, 3], dilations = [2, 1]> (image, w) "
         'e = Conv <auto_pad = "SAME_UPPER", strides = [2, 3]> (image, w)'),
    (17, "c = MaxPool <kernel_shape = [3, 2], strides = [2, 2], pads = [1, 0, 1, 1]> (image) "
         "d = AveragePool <kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1> (image)"),
    (17, ONES + "c = BatchNormalization (image, ones, ones, ones, ones) d = InstanceNormalization (c, ones, ones)"),
    (21, ONES + "a = Transpose <perm = [0, 2, 3, 1]> (image) b = LayerNormalization (a, ones) "
         "c = GroupNormalization <num_groups = 1> (image, ones, ones)"),
    (13, "s = Constant <value_float = 0.1> () z = Constant <value = int8 {0}> () a = QuantizeLinear (image, s, z) "
         "b = DequantizeLinear (a, s, z)"),
    (17, "a = Transpose <perm = [0, 1, 3, 2]> (image) b = MatMul (image, a) c = Flatten (image) "
         "s = Constant <value_ints = [5, 192]> () w = ConstantOfShape (s) d = Gemm <transB = 1> (c, w)"),
    (17, "s = Constant <value_ints = [0, 3, -1]> () a = Reshape (image, s) o = Constant <value_ints = [1, -1]> () "
         "b = Unsqueeze (a, o) d = Squeeze (b, o) x = Shape <start = 1, end = -1> (image)"),
    (17, "i = Constant <value = int64[2,1] {0, -1}> () a = Gather <axis = 2> (image, i) b = Concat <axis = -1> (a, a)"),
    (18, "a, b, c = Split <axis = -1, num_outputs = 3> (image) s = Constant <value_ints = [2, 6]> () "
         "d, e = Split <axis = 3> (image, s)"),
    (17, "f = Constant <value_ints = [0, -1]> () t = Constant <value_ints = [3, -99]> () "
         "a = Constant <value_ints = [2, -1]> () s = Constant <value_ints = [1, -3]> () c = Slice (image, f, t, a, s)"),
    (18, "s = Constant <value_ints = [1, 2, 0, -1]> () v0 = Constant <value_float = 0.0> () "
         "a = Constant <value_ints = [2, 3]> () c = Pad (image, s, v0, a)"),
    (17, "s = Constant <value_ints = [1, 2, 1, 3]> () c = Tile (image, s) "
         "e = Constant <value_ints = [2, 1, 1, 8, 1]> () d = Expand (image, e)"),
    (17, N + "k = Constant <value_ints = [2]> () m = Mul (n, k) q = Div (m, k) r = Mod (m, k) x = Max (q, r) "
         "y = Sub (x, n) e = Less (n, z) f = Neg (y) g = Add (f, k) a = ConstantOfShape (g) b = ConstantOfShape (m)"),
    (17, "h = Shape (image) i = Constant <value_ints = [2]> () a = Gather (h, i) b = Cast <to = 1> (a) "
         "s = Constant <value_floats = [2.0]> () d = Div (b, s) e = Ceil (d) g = Mul (e, s) j = Sub (g, b) "
         "r = Cast <to = 7> (j) w = ConstantOfShape (r)"),
)  # fmt: skip
NUMBERS = (0, 1, -1, 2, 3, 4, 5, 7, 8, 16, 64, 65, 255, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, -(2**63), -2, -9)


def build(body: str = "", opset: int = 17) -> ModelProto:
    """A sound backbone, mean colours, with further nodes in ONNX's own notation."""
    head = f'<ir_version: 8, opset_import: ["" : {opset}]>'
    end = "p = GlobalAveragePool (image) v = Flatten (p)"
    return parse_model(f"{head} g (float[n,3,8,8] image) => (float[n,d] v) {{ {body} {end} }}")


class Fuzzed(Harness):
    """The check of graphs."""

    longest = 2**13
    memory = 512

    def seeds(self) -> list[bytes]:
        """Every rule for sizes is in one of them."""
        weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2, 1], float_data=[1.0, 2.0])
        with_weight = build("a = MatMul (image, image)")
        with_weight.graph.initializer.append(weight)
        return [model.SerializeToString() for model in (*(build(body, opset) for opset, body in BODIES), with_weight)]

    def one_input(self, data: bytes) -> None:
        """A graph is refused, or it gives vectors of the size that was told and takes the memory that was told."""
        try:
            cost = check_graph(data, "x", SIZE)
        except InputError as error:
            assert str(error).startswith("backbone x: "), error
            assert str(error).isprintable(), error
            return
        if cost.bytes_per_image < RUN > cost.operations_per_image:
            run(data, cost)

    def mutate(self, data: bytes, most: int, random: Random, change: Change) -> bytes:
        """An odd node in a sound file."""
        return odd_graph(data, most, random, change)


def run(content: bytes, cost: GraphCost) -> None:
    """Run a graph with all that its nodes make as outputs; onnxruntime may refuse it."""
    model = ModelProto.FromString(content)
    first = model.graph.output[0].name
    have = {output.name for output in model.graph.output}
    made = {name for node in model.graph.node for name in node.output}
    for name in made - have:
        model.graph.output.add(name=name)
    runtime = load_onnxruntime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:
        return
    image, names = session.get_inputs()[0], list(dict.fromkeys(output.name for output in session.get_outputs()))
    for batch in (1, 3):
        images = np.random.default_rng(0).normal(size=(batch, 3, *SIZE)).astype(np.float32)
        try:
            outputs = dict(zip(names, session.run(names, {image.name: images}), strict=True))
        except Exception:
            continue
        taken = images.nbytes + sum(np.asarray(value).nbytes for name, value in outputs.items() if name in made)
        assert taken <= batch * cost.bytes_per_image, (taken, batch, cost)
        assert outputs[first].shape == (batch, cost.dim), (outputs[first].shape, batch, cost)


def odd_graph(content: bytes, most: int, random: Random, change: Change) -> bytes:
    """A graph with one change."""
    if random.random() < 0.15:
        return change(content, most)
    try:
        model = ModelProto.FromString(content)
        for _ in range(random.choice((1, 1, 1, 2, 4))):
            _change_node(model, random)
        made: bytes = model.SerializeToString()
    except Exception:  # no graph any more, or one with texts that are none
        return change(content, most)
    return made if len(made) <= most else content


def _change_node(model: Any, random: Random) -> None:
    nodes, names = model.graph.node, [name for node in model.graph.node for name in (*node.input, *node.output)]
    node = random.choice(nodes)
    what = random.randrange(10)
    if what == 0:
        node.op_type = random.choice(sorted(OPERATORS))
    elif what == 1 and node.input:
        node.input[random.randrange(len(node.input))] = random.choice((*names, ""))
    elif what == 2:
        node.input.append(random.choice(names))
    elif what == 3 and node.input:
        del node.input[random.randrange(len(node.input))]
    elif what == 4:
        copy = nodes.add()
        copy.CopyFrom(node)
        copy.output[:] = [f"{name}{len(nodes)}" for name in node.output]
        copy.input[:] = [random.choice(names) if random.random() < 0.3 else name for name in node.input]
    elif what == 5 and len(nodes) > 1:
        nodes.remove(node)
    elif what == 6:
        model.opset_import[0].version = random.randint(6, 27) if model.opset_import else 0
    elif what == 7:
        attribute = random.choice((
            ("axis", random.choice(NUMBERS)), ("axes", random.choices(NUMBERS, k=2)), ("keepdims", 0),
            ("allowzero", 1), ("group", 3), ("ceil_mode", 1), ("to", random.randrange(20)), ("auto_pad", "VALID"),
            ("start", random.choice(NUMBERS)), ("end", random.choice(NUMBERS)), ("perm", [1, 0, 2, 3]),
        ))  # fmt: skip
        node.attribute.append(helper.make_attribute(*attribute))
    elif model.graph.initializer and what == 8:
        _change_numbers(random.choice(model.graph.initializer).dims, random)
    elif node.attribute:
        attribute = random.choice(node.attribute)
        if attribute.HasField("t"):
            _change_numbers(random.choice((attribute.t.dims, attribute.t.int64_data)), random)
            attribute.t.data_type = random.choice((attribute.t.data_type,) * 9 + (random.randrange(24),))
        elif attribute.ints:
            _change_numbers(attribute.ints, random)
        else:
            attribute.i = random.choice(NUMBERS)


def _change_numbers(numbers: Any, random: Random) -> None:
    if numbers and random.random() < 0.8:
        numbers[random.randrange(len(numbers))] = random.choice(NUMBERS)
    elif numbers and random.random() < 0.5:
        numbers.pop()
    else:
        numbers.append(random.choice(NUMBERS))

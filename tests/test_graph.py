"""What a stranger's graph may hold: every hostile kind is refused, what backbones need passes with its exact cost."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measured
import numpy as np
import onnxruntime
import pytest
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper
from onnx.parser import parse_model

from usfda.backbones import graph, sizes
from usfda.backbones.graph import GraphCost, check_graph
from usfda.backbones.zoo import get_backbone
from usfda.errors import InputError

SIZE = (8, 8)
POOLED = "p = GlobalAveragePool (image) v = Flatten (p)"


def build(body: str = "", opset: int = 17, image: str = "float[n,3,8,8]", end: str = POOLED) -> ModelProto:
    """A sound backbone, mean colours, with further nodes in ONNX's own notation."""
    head = f'<ir_version: 8, opset_import: ["" : {opset}]>'
    return parse_model(f"{head} g ({image} image) => (float[n,d] v) {{ {body} {end} }}")


def check(model: ModelProto | bytes, size: tuple[int, int] = SIZE) -> GraphCost:
    return check_graph(model if isinstance(model, bytes) else model.SerializeToString(), "x", size)


def refused(model: ModelProto | bytes, match: str) -> None:
    """It is refused in one line that names the backbone."""
    with pytest.raises(InputError, match=match) as caught:
        check(model)
    assert str(caught.value).startswith("backbone x: ")
    assert len(str(caught.value).splitlines()) == 1


def weight(name: str = "w", kind: int = TensorProto.FLOAT, dims: tuple[int, ...] = (1,), **fields: Any) -> TensorProto:
    return TensorProto(name=name, data_type=kind, dims=dims, **fields)


def with_weight(tensor: TensorProto) -> ModelProto:
    model = build()
    model.graph.initializer.append(tensor)
    return model


def with_constant(tensor: TensorProto) -> ModelProto:
    model = build()
    model.graph.node.append(helper.make_node("Constant", [], ["c"], value=tensor))
    return model


# The file


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not an onnx file",
        build().SerializeToString()[:-3],
        b"\x3b",  # a group, which ONNX does not use
        b"\xff" * 12,  # a number without an end
        b"\x3a\xff\xff\xff\xff\x0f",  # a graph longer than the file
        b"\x38\x01",  # a graph that is a number
        build().SerializeToString().replace(b"Flatten", b"\xff" * 7),  # an operator whose name is no text
    ],
    ids=["empty", "text", "cut off", "group", "endless number", "too long", "wrong type", "bad text"],
)
def test_what_is_not_onnx_is_refused(content: bytes) -> None:
    refused(content, "not a sound ONNX file|one opset")


def test_too_large_a_file_is_refused() -> None:
    with pytest.raises(InputError, match="larger"):
        check_graph(bytes(graph.MAX_CONTENT + 1), "x", SIZE)


def varint(number: int) -> bytes:
    return bytes([number & 127 | 128]) + varint(number >> 7) if number > 127 else bytes([number])


@pytest.mark.parametrize(
    "content",
    [
        b"\x3a" + varint(2 * graph.MAX_NODES + 2) + b"\x0a\x00" * (graph.MAX_NODES + 1),  # empty nodes
        b"\x72\x00" * (graph.MAX_ENTRIES + 1),  # empty metadata
        b"\x3a\x96\x80\x80\x10\x0a\x91\x80\x80\x10\x2a\x8c\x80\x80\x10\x42\x87\x80\x80\x10" + bytes(2**25 + 7),  # ints
    ],
    ids=["nodes", "metadata", "packed list"],
)
def test_too_many_entries_are_refused_before_they_are_parsed(content: bytes) -> None:
    with pytest.raises(InputError, match="20000"):
        check_graph(content, "x", SIZE)


@pytest.mark.parametrize("opsets", [[], [6], [26], [17, 18]])
def test_opset_must_be_one_and_known(opsets: list[int]) -> None:
    model = build()
    del model.opset_import[:]
    model.opset_import.extend(helper.make_opsetid(d, v) for d, v in zip(("", "ai.onnx"), opsets, strict=False))
    refused(model, "must be of one opset from 7 to 25")


# External data


def in_initializer(model: ModelProto, tensor: TensorProto) -> None:
    model.graph.initializer.append(tensor)


def in_attribute(model: ModelProto, tensor: TensorProto) -> None:
    model.graph.node.append(helper.make_node("Constant", [], ["c"], value=tensor))


def in_tensors(model: ModelProto, tensor: TensorProto) -> None:
    node = model.graph.node.add(op_type="Relu", input=["image"], output=["c"])
    node.attribute.add(name="all", type=AttributeProto.TENSORS, tensors=[tensor])


def in_sparse_values(model: ModelProto, tensor: TensorProto) -> None:
    model.graph.sparse_initializer.add(values=tensor, dims=[1])


def in_sparse_indices(model: ModelProto, tensor: TensorProto) -> None:
    model.graph.sparse_initializer.add(indices=tensor, dims=[1])


def in_sparse_attribute(model: ModelProto, tensor: TensorProto) -> None:
    node = model.graph.node.add(op_type="Constant", output=["c"])
    node.attribute.add(name="sparse_value", type=AttributeProto.SPARSE_TENSOR).sparse_tensor.values.CopyFrom(tensor)


def in_subgraph(model: ModelProto, tensor: TensorProto) -> None:
    node = model.graph.node.add(op_type="If", input=["image"], output=["c"])
    node.attribute.add(name="then_branch", type=AttributeProto.GRAPH).g.initializer.append(tensor)


def in_graphs(model: ModelProto, tensor: TensorProto) -> None:
    node = model.graph.node.add(op_type="Relu", input=["image"], output=["c"])
    node.attribute.add(name="all", type=AttributeProto.GRAPHS).graphs.add().initializer.append(tensor)


def in_function(model: ModelProto, tensor: TensorProto) -> None:
    node = model.functions.add(name="f").node.add(op_type="Constant", output=["c"])
    node.attribute.add(name="value", type=AttributeProto.TENSOR).t.CopyFrom(tensor)


def in_training_start(model: ModelProto, tensor: TensorProto) -> None:
    model.training_info.add().initialization.initializer.append(tensor)


def in_training(model: ModelProto, tensor: TensorProto) -> None:
    model.training_info.add().algorithm.initializer.append(tensor)


PLACES: dict[Callable[[ModelProto, TensorProto], None], str] = {
    in_initializer: "external data",
    in_attribute: "external data",
    in_tensors: "AttributeProto tensors",
    in_sparse_values: "sparse weights",
    in_sparse_indices: "sparse weights",
    in_sparse_attribute: "sparse constant",
    in_subgraph: "graph inside",
    in_graphs: "graphs inside",
    in_function: "functions",
    in_training_start: "training information",
    in_training: "training information",
}


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
@pytest.mark.parametrize("location", ["weights.bin", "../secret", "/etc/passwd", "*/_ORT_MEM_ADDR_/*", None])
def test_external_data_is_refused_wherever_it_stands(
    place: Callable[[ModelProto, TensorProto], None], location: str | None
) -> None:
    tensor = weight(data_location=TensorProto.EXTERNAL)
    if location is not None:
        tensor.external_data.add(key="location", value=location)
    model = build()
    place(model, tensor)
    refused(model, PLACES[place])


def test_external_data_without_its_mark_is_refused_and_the_mark_of_none_passes() -> None:
    tensor = weight(raw_data=bytes(4))
    tensor.data_location = TensorProto.DEFAULT  # as tools write that took the data in
    check(with_weight(tensor))
    tensor.external_data.add(key="location", value="weights.bin")
    refused(with_weight(tensor), "external data")


# Nodes


@pytest.mark.parametrize("op", ["If", "Loop", "Scan"])
def test_graphs_within_the_graph_are_refused(op: str) -> None:
    inner = helper.make_graph([], "inner", [], [])
    model = build()
    model.graph.node.append(helper.make_node(op, ["image"], ["c"], body=inner))
    refused(model, "has a node with a graph inside, such as Loop, Scan or If; a backbone may hold only plain layers")


@pytest.mark.parametrize(
    "op",
    ["Loop", "NonZero", "Range", "Resize", "Einsum", "LRN", "ConvTranspose", "LSTM", "RandomNormal", "ImageDecoder",
     "StringConcat", "SequenceEmpty", "QLinearConv", "NoSuchThing", "", "two\nlines" * 99],
)  # fmt: skip
def test_operators_no_backbone_needs_are_refused(op: str) -> None:
    model = build()
    model.graph.node.append(helper.make_node(op, ["image"], ["c"]))
    refused(model, f"has a {op[:3]}.* node; a backbone may hold only plain layers")


@pytest.mark.parametrize("domain", ["com.microsoft", "ai.onnx.ml", "custom"])
def test_operators_of_other_domains_are_refused(domain: str) -> None:
    model = build()
    model.graph.node.append(helper.make_node("Relu", ["image"], ["c"], domain=domain))
    refused(model, f"has a Relu node of {domain}; a backbone may hold only plain layers")


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("Relu", ["image"], ["c"], slope=1.0),  # no such attribute
        helper.make_node("Unsqueeze", ["image"], ["c"], axes=[0]),  # one of older opsets
        helper.make_node("Softmax", ["image"], ["c"], axis=1.0),  # of another type
        helper.make_node("Add", ["image"], ["c"]),
        helper.make_node("MaxPool", ["image"], ["c", "where"], kernel_shape=[2, 2]),
        helper.make_node("Gelu", ["image"], ["c"]),  # only of later opsets
    ],
    ids=["attribute", "older attribute", "type", "inputs", "outputs", "later operator"],
)
def test_forms_the_opset_does_not_know_are_refused(node: Any) -> None:
    model = build()
    model.graph.node.append(node)
    refused(model, f"has a {node.op_type} node in a form that opset 17 does not know")


def test_an_attribute_given_twice_is_refused() -> None:
    model = build("c = Softmax <axis = 1> (image)")
    model.graph.node[0].attribute.append(helper.make_attribute("axis", 2))
    refused(model, "has a Softmax node in a form that opset 17 does not know")


@pytest.mark.parametrize(
    ("body", "match"),
    [
        ("b = Relu (c) c = Relu (image)", "a Relu node uses c before anything makes it"),
        ("image = Relu (image)", "image is made twice"),
        ("c = Relu (image) c = Relu (image)", "c is made twice"),
    ],
)
def test_an_unordered_graph_is_refused(body: str, match: str) -> None:
    refused(build(body), match)


def test_fields_a_backbone_does_not_need_are_refused() -> None:
    model = build()
    model.graph.quantization_annotation.add(tensor_name="image")
    refused(model, "holds the field GraphProto quantization_annotation; a backbone may hold only plain layers")
    refused(build().SerializeToString() + b"\xf2\x3f\x00", "holds the field ModelProto number 1022")


# Weights


@pytest.mark.parametrize("put", [with_weight, with_constant])
@pytest.mark.parametrize(
    "tensor",
    [
        weight(dims=(2**60,), raw_data=bytes(4)),
        weight(dims=(2**31, 2**31, 2**31), raw_data=bytes(4)),
        weight(dims=(-1,), raw_data=bytes(4)),
        weight(dims=(-1, -1), raw_data=bytes(4)),
        weight(dims=(1,) * 9, raw_data=bytes(4)),
        weight(dims=(2**62,) * 100_000, raw_data=bytes(4)),  # whose product would take long
        weight(dims=(2,), raw_data=bytes(7)),
        weight(dims=(2,), raw_data=bytes(12)),
        weight(dims=(2,)),
        weight(dims=(2,), float_data=[1]),
        weight(dims=(2,), float_data=[1, 2, 3]),
        weight(dims=(1,), double_data=[1]),
        weight(dims=(1,), float_data=[1], int32_data=[1]),
        weight(dims=(1,), raw_data=bytes(4), float_data=[1]),
    ],
    ids=["2**60", "overflow", "negative", "both negative", "rank", "high rank", "short", "long", "none", "few", "many",
         "elsewhere", "elsewhere too", "twice"],
)  # fmt: skip
def test_weights_that_lie_about_their_size_are_refused(
    put: Callable[[TensorProto], ModelProto], tensor: TensorProto
) -> None:
    refused(put(tensor), "weight w does not hold as many numbers as its size requires")


@pytest.mark.parametrize("put", [with_weight, with_constant])
@pytest.mark.parametrize(
    "kind", [TensorProto.UNDEFINED, TensorProto.COMPLEX64, TensorProto.FLOAT8E5M2, TensorProto.INT4, TensorProto.STRING]
)
def test_weights_other_than_plain_numbers_are_refused(put: Callable[[TensorProto], ModelProto], kind: int) -> None:
    refused(put(weight(kind=kind, raw_data=bytes(8))), "weight w does not hold plain numbers")


def test_long_lists_are_refused() -> None:
    model = build(opset=11)
    model.graph.node.append(helper.make_node("Unsqueeze", ["image"], ["c"], axes=list(range(100_000))))
    refused(model, "cannot be determined in advance")


@pytest.mark.parametrize("put", [with_weight, with_constant])
def test_text_is_refused(put: Callable[[TensorProto], ModelProto]) -> None:
    refused(put(weight(kind=TensorProto.STRING, string_data=[b"a"])), "contains text instead of numbers")
    refused(build('c = Constant <value_strings = ["a"]> ()'), "contains text instead of numbers")
    refused(build('c = Constant <value_string = "a"> ()'), "cannot be determined in advance")


BFLOAT16_NAN, BFLOAT16_LARGEST = b"\xc0\x7f", b"\x7f\x7f"


@pytest.mark.parametrize("put", [with_weight, with_constant])
@pytest.mark.parametrize(
    "tensor",
    [numpy_helper.from_array(np.array([0, n], t), "w") for n in (np.nan, np.inf, -np.inf) for t in ("f2", "f4", "f8")]
    + [
        weight(float_data=[np.nan]),
        weight(kind=TensorProto.DOUBLE, double_data=[np.inf]),
        weight(kind=TensorProto.FLOAT16, int32_data=[0x7C00]),
        weight(kind=TensorProto.BFLOAT16, int32_data=[0x7F80]),
        weight(kind=TensorProto.BFLOAT16, raw_data=BFLOAT16_NAN),
    ],
)
def test_weights_that_are_not_finite_are_refused(put: Callable[[TensorProto], ModelProto], tensor: TensorProto) -> None:
    refused(put(tensor), "weight w holds NaN or infinite numbers")


@pytest.mark.parametrize(
    "tensor",
    [numpy_helper.from_array(np.array([np.finfo(t).max, np.finfo(t).min, 0], t), "w") for t in ("f2", "f4", "f8")]
    + [numpy_helper.from_array(np.array([0, 1], t), "w") for t in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "?")]
    + [
        weight(kind=TensorProto.BFLOAT16, raw_data=BFLOAT16_LARGEST),
        weight(kind=TensorProto.FLOAT16, int32_data=[0x7BFF]),
        weight(kind=TensorProto.INT8, int32_data=[-1]),
        weight(kind=TensorProto.UINT64, uint64_data=[2**64 - 1]),
        weight(dims=(0, 3)),
        weight(dims=(), float_data=[1]),
    ],
)
def test_plain_weights_pass(tensor: TensorProto) -> None:
    check(with_weight(tensor))


# Memory and time

LARGE = "s = Constant <value = int64[2] {100000, 100000}> ()"
LONG = "t = Constant <value_ints = [99999, 1]> () a = ConstantOfShape (t) b = Transpose (a)"
TOO_MUCH = "needs more than 2147483648 bytes of memory for one image"
TOO_LONG = "needs more than 1000000000000 multiply-adds for one image"
UNDETERMINED = r"the size of \w+ \(\w+\) cannot be determined in advance"
DOUBLED = "c0 = Relu (image) " + " ".join(f"c{i + 1} = Concat <axis = 1> (c{i}, c{i})" for i in range(60))


@pytest.mark.parametrize(
    ("body", "match"),
    [
        (f"{LARGE} c = ConstantOfShape (s)", TOO_MUCH),
        (f"{LARGE} o = Constant <value_float = 1.0> () c = Expand (o, s)", TOO_MUCH),
        ("s = Constant <value_ints = [1, 1, 1000000000, 1000000000]> () c = Tile (image, s)", TOO_MUCH),
        ("s = Constant <value_ints = [0, 0, 0, 0, 0, 0, 1000000000, 0]> () c = Pad (image, s)", TOO_MUCH),
        (DOUBLED, TOO_MUCH),
        (f"{LONG} c = MatMul (a, b)", TOO_MUCH),
        (f"{LONG} c = Add (a, b)", TOO_MUCH),
        ("t = Constant <value_ints = [9999]> () i = ConstantOfShape <value = int64[1] {0}> (t) "
         "a = Gather (image, i) b = Gather <axis = 1> (a, i) c = Gather <axis = 2> (b, i)", TOO_MUCH),
        ("s = Constant <value_ints = [10000, 10000]> () a = ConstantOfShape (s) c = MatMul (a, a) d = MatMul (a, a)",
         TOO_LONG),
        ("s = Constant <value_ints = [10000, 10000]> () a = ConstantOfShape (s) c = Gemm (a, a)", TOO_LONG),
        ("c = AveragePool <kernel_shape = [200000, 200000], auto_pad = \"SAME_UPPER\"> (image)", TOO_LONG),
        ("s = Constant <value_ints = [1, 3, 5000, 5000]> () w = ConstantOfShape (s) "
         "c = Conv <auto_pad = \"SAME_UPPER\"> (image, w)", "a Conv node needs more than"),
        ("s = Constant <value_ints = [1, 1, 1, 1, 1]> () c = Unsqueeze (image, s)", UNDETERMINED),
        ("s = Constant <value_ints = [4, 5, 6, 7, 8]> () c = Unsqueeze (image, s)", UNDETERMINED),
        ("s = Constant <value_ints = [4611686018427387904, 4611686018427387904]> () c = ConstantOfShape (s)", TOO_MUCH),
        ("s = Constant <value_ints = [-1, 3]> () c = ConstantOfShape (s)", UNDETERMINED),
    ],
)  # fmt: skip
def test_graphs_that_would_burst_are_refused_without_bursting(body: str, match: str) -> None:
    model = build(body)
    tracemalloc.start()
    try:
        refused(model, match)
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


# Sizes that only a run would tell


@pytest.mark.parametrize(
    "body",
    [
        "a = Cast <to = 7> (p) s = Flatten <axis = 0> (a) t = Shape (s) c = Reshape (image, s)",
        "a = Cast <to = 7> (p) s = Flatten <axis = 0> (a) c = ConstantOfShape (s)",
        "a = Cast <to = 7> (p) s = Flatten <axis = 0> (a) c = Expand (image, s)",
        "a = Cast <to = 7> (p) s = Flatten <axis = 0> (a) c = Tile (image, s)",
        "a = Cast <to = 7> (p) s = Flatten <axis = 0> (a) c = Pad (image, s)",
        "a = Cast <to = 7> (p) s = Flatten <axis = 0> (a) c = Slice (image, s, s)",
        # 1/3 is rounded, and the last bit of it would be multiplied
        "a = Constant <value_floats = [1.0]> () b = Constant <value_floats = [3.0]> () q = Div (a, b) "
        "r = Cast <to = 7> (q) c = ConstantOfShape (r)",
        "a = Constant <value_floats = [16777216.0]> () b = Constant <value_floats = [1.0]> () q = Add (a, b) "
        "r = Cast <to = 7> (q) c = ConstantOfShape (r)",
        # beyond 64 bits it would begin anew
        "a = Constant <value_ints = [4611686018427387904]> () b = Add (a, a) c = Add (b, b) d = ConstantOfShape (c)",
        "a = Constant <value_ints = [65536]> () b = Cast <to = 6> (a) c = Mul (b, b) d = Cast <to = 7> (c) "
        "e = ConstantOfShape (d)",
        # onnxruntime's versions differ on a window that sees nothing but padding
        "c = MaxPool <kernel_shape = [2, 2], strides = [3, 3], pads = [1, 1, 1, 1], ceil_mode = 1> (image)",
        # sizes that do not fit
        "s = Constant <value_ints = [5, -1]> () c = Reshape (image, s)",
        "s = Constant <value_ints = [-1, -1]> () c = Reshape (image, s)",
        "s = Constant <value_ints = [7, 1, 1]> () c = Expand (image, s)",
        "s = Constant <value_ints = [2, 2, 2]> () c = Tile (image, s)",
        "s = Constant <value_ints = [-9, 0, 0, 0, 0, 0, 0, 0]> () c = Pad (image, s)",
        "c = MatMul (image, p)",
        "c = Transpose <perm = [0, 0, 1, 2]> (image)",
        "s = Constant <value_ints = [1, 1]> () a, b = Split <axis = 1> (image, s)",
        "c = Concat <axis = 1> (image, v)",
        "s = Constant <value_ints = [0]> () c = Slice (image, s, s, s, s)",
        # backwards from before the beginning, or to the far end: onnxruntime does not do as numpy does
        "f = Constant <value_ints = [-9]> () a = Constant <value_ints = [2]> () b = Constant <value_ints = [-1]> () "
        "c = Slice (image, f, f, a, b)",
        "f = Constant <value_ints = [9223372036854775807]> () a = Constant <value_ints = [2]> () "
        "b = Constant <value_ints = [-1]> () c = Slice (image, b, f, a, b)",
    ],
)
def test_sizes_that_cannot_be_told_are_refused(body: str) -> None:
    refused(build(f"{POOLED} {body}", end=""), UNDETERMINED)


N = "z = Constant <value_ints = [0]> () i = Constant <value_int = 0> () h = Shape (image) n = Gather (h, z) "
NUMBER = "k = Constant <value_ints = [4]> () big = Constant <value_ints = [1000000000]> () "


@pytest.mark.parametrize(
    "body",
    [
        "m = Mul (n, n) c = ConstantOfShape (m)",
        "s = Concat <axis = 0> (n, n) c = ConstantOfShape (s)",
        "a = Flatten (image) b = Transpose (a) c = MatMul (a, b)",
        "m = Sub (n, k) c = ConstantOfShape (m)",
        "d = Sub (n, k) m = Max (d, z) e = Mul (m, big) c = ConstantOfShape (e)",
        "m = Min (n, k) e = Sub (k, m) f = Mul (e, big) c = ConstantOfShape (f)",
        "q = Equal (n, k) e = Cast <to = 7> (q) f = Mul (e, big) c = ConstantOfShape (f)",
        "q = Greater (n, k) f = Where (q, big, k) c = ConstantOfShape (f)",
        "m = Mod (n, k) f = Mul (m, big) c = ConstantOfShape (f)",
        "m = Div (n, k) f = Mul (m, big) c = ConstantOfShape (f)",
        "m = Div (big, n) c = ConstantOfShape (m)",
        "m = Cast <to = 1> (n) f = Cast <to = 7> (m) c = ConstantOfShape (f)",
        "m = Cast <to = 6> (n) f = Cast <to = 7> (m) c = ConstantOfShape (f)",
        "a = Slice (image, z, k) c = Relu (a)",
        "a = Slice (big, z, n) s = Shape (a) f = Mul (s, big) c = ConstantOfShape (f)",
        "a = Gather (h, n) c = ConstantOfShape (a)",
        "a = Squeeze (image) c = Relu (a)",
        "a = Constant <value_ints = [0, 0, 0, 0, 1, 0, 0, 0]> () c = Pad (image, a)",
        "s = Constant <value_ints = [2, 3, 8, 8]> () c = Expand (image, s)",
        "a, b = Split <axis = 0> (image)",
        "s = Constant <value_ints = [5, 1, 1, 1]> () w = ConstantOfShape (s) c = Add (image, w)",
        "s = Constant <value_ints = [5, 3, 8, 8]> () w = ConstantOfShape (s) c = Concat <axis = 0> (image, w)",
    ],
)
def test_sizes_that_do_not_grow_in_step_with_the_batch_are_refused(body: str) -> None:
    refused(build(N + NUMBER + body), UNDETERMINED)


def test_an_input_left_out_is_none() -> None:
    model = build()
    model.graph.node.append(helper.make_node("Squeeze", ["image", ""], ["c"]))
    refused(model, UNDETERMINED)


@pytest.mark.parametrize(
    "body",
    [
        "s = Constant <value_ints = [0, 1099511627776]> () c = ConstantOfShape (s)",
        "s = Constant <value_ints = [0]> () c = Slice (image, s, s, s)",
        "s = Constant <value = float[0] {}> () c = ReduceSum (s)",
        "s = Constant <value = float[2,0] {}> () c = Transpose (s)",
    ],
)
def test_layers_that_get_nothing_are_refused(body: str) -> None:
    """Sizes beside an axis of none take no memory, and runtimes differ on what follows from them."""
    refused(build(body), UNDETERMINED)


# Input and output


@pytest.mark.parametrize("image", ["float16[n,3,8,8]", "uint8[n,3,8,8]", "float[n,3,8]", "float", "float[n,3,8,8,1]"])
def test_one_float32_input_is_asked_for(image: str) -> None:
    refused(build(image=image), "it must have one float32 input, NCHW")


def test_a_second_input_is_refused_but_for_weights_of_old_files() -> None:
    model = build("c = Mul (image, w)", image="float[1] w, float[n,3,8,8]")
    refused(model, "it must have one float32 input, NCHW")
    model.graph.initializer.append(weight(float_data=[1]))
    check(model)


@pytest.mark.parametrize("image", ["float[n,1,8,8]", "float[n,3,9,8]", "float[n,3,h,9]", "float[n,8,8,3]"])
def test_the_record_must_fit_the_graph(image: str) -> None:
    refused(build(image=image), r"takes \(.*\), its record has \(3, 8, 8\)")


@pytest.mark.parametrize(
    "end",
    [
        "v = GlobalAveragePool (image)",
        "p = GlobalAveragePool (image) v = Flatten <axis = 0> (p)",
        "p = GlobalAveragePool (image) q = Flatten (p) v = Transpose (q)",
        "w = Flatten (image)",
        "v = Constant <value = float[1,2] {1, 2}> ()",
    ],
)
def test_pooled_features_are_asked_for(end: str) -> None:
    refused(build(end=end), r"its first output must be \(batch, dimensions\), pooled")


# What backbones need


def cost_in_onnxruntime(model: ModelProto, batch: int, size: tuple[int, int] = SIZE) -> int:
    """Bytes of the images and of all that the nodes make, in a real run without optimisation."""
    model = ModelProto.FromString(model.SerializeToString())
    have = {output.name for output in model.graph.output}
    for name in (name for node in model.graph.node for name in node.output if name not in have):
        model.graph.output.add(name=name)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    images = np.random.default_rng(0).normal(size=(batch, 3, *size)).astype(np.float32)
    given = session.get_inputs()[0].name
    return images.nbytes + sum(np.asarray(output).nbytes for output in session.run(None, {given: images}))


def agrees_with_onnxruntime(model: ModelProto, size: tuple[int, int] = SIZE) -> GraphCost:
    """For one image it is as told; for more it is at most as many times as much."""
    cost = check(model, size)
    assert cost.bytes_per_image == cost_in_onnxruntime(model, 1, size)
    assert cost_in_onnxruntime(model, 3, size) <= 3 * cost.bytes_per_image
    return cost


ONES = "ones = Constant <value = float[3] {1, 1, 1}> () "
KERNEL = "ws = Constant <value_ints = [4, 3, 3, 3]> () w = ConstantOfShape <value = float[1] {1}> (ws) "
PLAIN = (
    "Abs Ceil Celu Cos Dropout Elu Erf Exp Floor Gelu HardSigmoid HardSwish Identity IsNaN LeakyRelu Log LogSoftmax "
)
PLAIN += "LpNormalization Mish Neg Reciprocal Relu Round Selu Sigmoid Sign Sin Softmax Softplus Softsign Sqrt Tanh "
PLAIN += "ThresholdedRelu GlobalAveragePool GlobalMaxPool Flatten Shape Transpose"
REDUCE = "ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare"
BINARY = "Add Div Max Mean Min Mul PRelu Pow Sub Sum Equal Greater GreaterOrEqual Less LessOrEqual"
BODIES: list[tuple[int, str]] = [
    *((22, f"c = {op} (image)") for op in PLAIN.split()),
    *((13, f"c = {op} <axes = [1, -1], keepdims = 0> (image)") for op in REDUCE.split() if op != "ReduceSum"),
    *((18, f"a = Constant <value_ints = [2]> () b = {op} (image, a) c = {op} (image)") for op in REDUCE.split()),
    (18, "a = Constant <value = int64[0] {}> () c = ReduceSum <noop_with_empty_axes = 1> (image, a)"),
    *((17, f"a = ReduceMean <axes = [1]> (image) b = {op} (image, a)") for op in BINARY.split()),
    (17, "a = Less (image, image) b = Not (a) c = And (a, b) d = Or (a, c) e = Xor (c, d) f = Where (e, image, image)"),
    (17, "c = Mod <fmod = 1> (image, image) d = Cast <to = 10> (c) e = Cast <to = 9> (d) f = Clip (image)"),
    (9, "c = Clip <min = 0.0> (image) a, b = Split <axis = 2> (c) "
        "d = Slice <starts = [1], ends = [3], axes = [3]> (a)"),
    (17, ONES + "c = BatchNormalization (image, ones, ones, ones, ones) d = InstanceNormalization (c, ones, ones)"),
    (21, ONES + "a = Transpose <perm = [0, 2, 3, 1]> (image) b = LayerNormalization (a, ones) "
         "c = GroupNormalization <num_groups = 1> (image, ones, ones)"),
    (23, ONES + "a = Transpose <perm = [0, 2, 3, 1]> (image) c = RMSNormalization (a, ones)"),
    (24, "c = Swish (image)"),
    (13, "s = Constant <value_float = 0.1> () z = Constant <value = int8 {0}> () a = QuantizeLinear (image, s, z) "
         "b = DequantizeLinear (a, s, z) c = QuantizeLinear (image, s)"),
    (17, KERNEL + "c = Conv (image, w) d = Conv <pads = [1, 1, 1, 1], strides = [2, 3], dilations = [2, 1]> (image, w) "
         'e = Conv <auto_pad = "SAME_UPPER", strides = [2, 3]> (image, w) f = Conv <auto_pad = "VALID"> (image, w)'),
    (17, "s = Constant <value_ints = [6, 1, 2, 2]> () w = ConstantOfShape (s) c = Conv <group = 3> (image, w)"),
    (17, "c = MaxPool <kernel_shape = [3, 2], strides = [2, 2], pads = [1, 0, 1, 1]> (image) "
         "d = AveragePool <kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1> (image) "
         'e = MaxPool <kernel_shape = [3, 3], strides = [3, 2], auto_pad = "SAME_LOWER"> (image)'),
    (17, "a = Transpose <perm = [0, 1, 3, 2]> (image) b = MatMul (image, a) c = Flatten (image) "
         "s = Constant <value_ints = [5, 192]> () w = ConstantOfShape (s) d = Gemm <transB = 1> (c, w) "
         "t = Transpose (c) e = Gemm <transA = 1, transB = 1> (t, w)"),
    (17, "s = Constant <value_ints = [0, 3, -1]> () a = Reshape (image, s) o = Constant <value_ints = [1, -1]> () "
         "b = Unsqueeze (a, o) d = Squeeze (b, o) x = Shape <start = 1, end = -1> (image)"),
    (17, "i = Constant <value = int64[2,1] {0, -1}> () a = Gather <axis = 2> (image, i) b = Concat <axis = -1> (a, a)"),
    (18, "a, b, c = Split <axis = -1, num_outputs = 3> (image) s = Constant <value_ints = [2, 6]> () "
         "d, e = Split <axis = 3> (image, s)"),
    (17, "f = Constant <value_ints = [0, -1, 0]> () t = Constant <value_ints = [9223372036854775807, -99, -2]> () "
         "a = Constant <value_ints = [0, 2, -1]> () s = Constant <value_ints = [1, -3, 2]> () "
         "c = Slice (image, f, t, a, s)"),
    (18, "s = Constant <value_ints = [1, 2, 0, -1]> () v0 = Constant <value_float = 0.0> () "
         "a = Constant <value_ints = [2, 3]> () c = Pad (image, s, v0, a)"),
    (17, "s = Constant <value_ints = [1, 2, 1, 3]> () c = Tile (image, s) "
         "e = Constant <value_ints = [2, 1, 1, 8, 1]> () d = Expand (image, e)"),
    # what exporters write for a size that depends on the batch
    (17, N + "m = Constant <value_ints = [-1]> () e = Equal (n, m) s = Where (e, m, n) "
         "k = Constant <value_ints = [192]> () d = Concat <axis = 0> (s, k) a = Reshape (image, d) "
         "o = ConstantOfShape <value = float[1] {1}> (d) b = Add (a, o)"),
    (17, N + "k = Constant <value_ints = [2]> () m = Mul (n, k) q = Div (m, k) r = Mod (m, k) x = Max (q, r) "
         "y = Sub (x, n) e = Less (n, z) f = Neg (y) g = Add (f, k) a = ConstantOfShape (g) b = ConstantOfShape (m)"),
    # "same" padding as timm computes it, in floating point
    (17, "h = Shape (image) i = Constant <value_ints = [2]> () a = Gather (h, i) b = Cast <to = 1> (a) "
         "s = Constant <value_floats = [2.0]> () d = Div (b, s) e = Ceil (d) f = Floor (e) g = Mul (f, s) "
         "j = Sub (g, b) l = Constant <value_float = 1.0> () m = Clip (j, l) r = Cast <to = 7> (m) y = Min (r, r) "
         "x = Identity (y) w = ConstantOfShape (x)"),
]  # fmt: skip


@pytest.mark.parametrize(("opset", "body"), BODIES)
def test_sizes_are_those_of_a_real_run(opset: int, body: str) -> None:
    agrees_with_onnxruntime(build(body, opset))


def test_every_operator_that_may_be_used_has_been_run() -> None:
    assert {node.op_type for opset, body in BODIES for node in build(body, opset).graph.node} == sizes.OPERATORS


def test_operations_are_counted() -> None:
    cost = check(build(KERNEL + "c = Conv (image, w)"))
    convolution, weights, means = 4 * 6 * 6 * 27, 4 * 27, 3 * 8 * 8 + 3
    assert cost.operations_per_image == convolution + weights + 4 + means
    assert cost.bytes_per_image == 4 * (192 + 2 * 4 + 4 * 27 + 4 * 6 * 6 + 3 + 3)


def test_a_fixed_batch_is_shared_out() -> None:
    assert check(build(image="float[4,3,8,8]")) == check(build())
    refused(build(image="float[99999999,3,8,8]"), TOO_MUCH)
    refused(build(image="float[0,3,8,8]"), "not a sound ONNX file")


def test_metadata_and_unused_domains_are_no_matter() -> None:
    model = build()
    helper.set_model_props(model, {"author": "someone"})
    model.graph.node[0].metadata_props.add(key="pkg", value="torch")
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    assert check(model) == check(build())


@pytest.mark.parametrize(("name", "size"), [("efficientnet_lite0", (224, 224)), ("pixels", (16, 16))])
def test_backbones_of_this_project_pass(name: str, size: tuple[int, int]) -> None:
    agrees_with_onnxruntime(ModelProto.FromString(get_backbone(name).onnx), size)


@pytest.mark.parametrize(
    ("name", "mega_operations"), [("resnet50_imagenet", 3896), ("tiny_vit_5m_224_in22k", 1314)], ids=["cnn", "vit"]
)
def test_published_backbones_pass(name: str, mega_operations: int) -> None:
    folder = os.environ.get("USFDA_BACKBONES")
    if not folder:
        pytest.skip("USFDA_BACKBONES names no folder of backbones")
    content = Path(folder, f"{name}.onnx").read_bytes()
    cost = check(content, (224, 224))
    assert round(cost.operations_per_image / 1e6) == mega_operations
    assert cost.bytes_per_image == cost_in_onnxruntime(ModelProto.FromString(content), 1, (224, 224))


def test_a_file_that_is_of_onnxruntimes_own_format_too_is_refused() -> None:
    """Bytes that are sound ONNX and, to onnxruntime, a graph of its own format that nobody checked."""
    model = build()
    model.producer_name = "ORTM"
    content = model.SerializeToString()
    assert content[4:8] == b"ORTM"
    refused(content, "of onnxruntime's own format")


# Memory: onnxruntime takes more than the outputs of the nodes


def conv(channels: int, pad: int) -> ModelProto:
    """A convolution to a few channels of a large picture, which is mostly padding."""
    model = build(f"y = Conv <pads = [{pad}, {pad}, {pad}, {pad}]> (image, w)", end=POOLED.replace("image", "y"))
    model.graph.initializer.append(numpy_helper.from_array(np.ones((channels, 3, 1, 1), np.float32), "w"))
    return model


def halves(op: str) -> ModelProto:
    """An operator on large tensors in half precision."""
    body = f"""c = Cast <to = 10> (image) r = Constant <value_ints = [1, 1, 400, 400]> () t = Tile (c, r)
    a = {op} (t) p = GlobalAveragePool (a) q = Cast <to = 1> (p) v = Flatten (q)"""
    return build(body, opset=24, end="")


SESSION = """
import numpy as np
from usfda.backbones import backbone
from usfda.errors import InputError
record = {"input_size": [3, 8, 8], "crop_pct": 1, "interpolation": "bicubic", "mean": [0.5] * 3, "std": [0.5] * 3}
"""
RUN = """
graph = backbone.Backbone("x", content, record)
try:
    graph.run(np.zeros((1, 8, 8, 3), np.uint8))
    print(graph.cost.memory_per_image)
except InputError as error:
    print(error)
"""


@pytest.mark.parametrize(
    "model",
    [*(conv(channels, 700) for channels in (1, 2, 8, 16)), *map(halves, ("HardSwish", "Mish", "Sigmoid", "Swish"))],
    ids=["1 channel", "2 channels", "8 channels", "16 channels", "HardSwish", "Mish", "Sigmoid", "Swish"],
)
def test_a_graph_takes_no_more_memory_than_was_counted(model: ModelProto) -> None:
    content = model.SerializeToString()
    taken, counted = measured.run(f"{SESSION}\ncontent = {content!r}", RUN)
    assert int(counted) > 2**26
    assert taken < int(counted) / 2**20 + 64  # the session and the runtime


def test_convolution_to_one_channel_counts_as_many_as_are_laid_out_together() -> None:
    refused(conv(1, 4064), "needs more than 2147483648 bytes of memory for one image")


def test_memory_is_bounded_whatever_was_counted() -> None:
    """The count is put out of action: what remains is the bound of the runtime."""
    setup = f"""{SESSION}
from usfda.backbones import graph
graph.memory_per_image = lambda node, outputs: 0
backbone.MOST_BYTES = 2**28
content = {conv(1, 4064).SerializeToString()!r}"""
    taken, said = measured.run(setup, RUN)
    assert said.startswith("backbone x: onnxruntime cannot run it")
    assert taken < 256 + 64

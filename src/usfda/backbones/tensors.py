"""Tensors as the analysis of a graph knows them, and the weights in an ONNX file, refused where they are not plain."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto as Types

MAX_RANK = 8
PLAIN = "a backbone may hold only plain layers and their weights"

STORAGE: dict[int, tuple[str, str]] = {  # the numbers a tensor may hold: form in raw data, field if not raw
    Types.FLOAT: ("<f4", "float_data"), Types.DOUBLE: ("<f8", "double_data"), Types.FLOAT16: ("<u2", "int32_data"),
    Types.BFLOAT16: ("<u2", "int32_data"), Types.INT8: ("<i1", "int32_data"), Types.UINT8: ("<u1", "int32_data"),
    Types.INT16: ("<i2", "int32_data"), Types.UINT16: ("<u2", "int32_data"), Types.INT32: ("<i4", "int32_data"),
    Types.UINT32: ("<u4", "uint64_data"), Types.INT64: ("<i8", "int64_data"), Types.UINT64: ("<u8", "uint64_data"),
    Types.BOOL: ("?", "int32_data"),
}  # fmt: skip
# Bits of the exponent, all set in NaN and infinite numbers: many times faster than to compare half-precision numbers.
_EXPONENTS = {Types.FLOAT: 0xFF << 23, Types.DOUBLE: 0x7FF << 52, Types.FLOAT16: 0x1F << 10, Types.BFLOAT16: 0xFF << 7}

SMALL = 64  # elements up to which the numbers in a tensor are followed: sizes that a graph computes
FOLLOWED = (Types.FLOAT, Types.INT32, Types.INT64, Types.BOOL)

Shape = tuple[int, ...]


class Tensor(NamedTuple):
    """What is known of a tensor without running the graph."""

    type: int
    shape: Shape
    value: np.ndarray | None = None  # if known in advance: objects of int, bool or float


class Refusal(Exception):
    """Why the graph is refused, in words for the user."""


def word(text: str) -> str:
    """A name out of the file, fit for a message of one line."""
    return "".join(c if c.isprintable() else "?" for c in text[:60])


def need(condition: bool) -> None:
    """Stop where something does not fit; the caller turns that into a message."""
    if not condition:
        raise ValueError


def read_weight(proto: Any) -> Tensor:
    """A weight or a constant: as much data as its size requires, plain and finite."""
    if proto.data_type not in STORAGE:
        raise Refusal(f"weight {word(proto.name)} does not hold plain numbers (data type {proto.data_type})")
    code, field = STORAGE[proto.data_type]
    shape, raw, listed = tuple(proto.dims[: MAX_RANK + 1]), proto.raw_data, getattr(proto, field)
    count = math.prod(shape)
    others = sum(len(getattr(proto, f)) for f in {f for _, f in STORAGE.values()} - {field})
    there = (len(raw) / np.dtype(code).itemsize, len(listed)) if raw else (count, len(listed) - count)
    if len(shape) > MAX_RANK or min(shape, default=0) < 0 or others or there != (count, 0):
        raise Refusal(f"weight {word(proto.name)} does not hold as many numbers as its size requires")
    array = np.frombuffer(raw, code) if raw else np.fromiter(listed, code, count)
    if exponent := _EXPONENTS.get(proto.data_type, 0):
        bits = array.view(f"<u{array.itemsize}")
        parts = (bits[i : i + 2**18] & exponent for i in range(0, count, 2**18))  # each of them fits into the cache
        if any((part == exponent).any() for part in parts):
            raise Refusal(f"weight {word(proto.name)} holds NaN or infinite numbers")
    if count > SMALL or proto.data_type not in FOLLOWED:
        return Tensor(proto.data_type, shape)
    return Tensor(proto.data_type, shape, objects(array.tolist(), shape))


def objects(numbers: Any, shape: Shape) -> np.ndarray:
    """Numbers of any size in an array."""
    value = np.empty(len(numbers), object)
    value[:] = numbers
    return value.reshape(shape)

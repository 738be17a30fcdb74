"""A model file from a stranger: whatever is wrong with it, the answer is one line, exit code 2 and no burst of memory.

The files are packed here by ``zipfile`` and by hand, not by the code under test.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import os
import struct
import subprocess
import sys
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import measured
import numpy as np
import onnx
import pytest
import safetensors.numpy
from conftest import blobs, write_photos
from onnx import TensorProto, helper, numpy_helper

from usfda import Config, InputError, Model, ProcurementSettings, UsfdaSettings, adapt, load, procure, teach
from usfda.cli.main import main
from usfda.modelfile import FORMAT
from usfda.report.build import card_data
from usfda.text.model import of_card

Members = list[tuple[str, bytes]]
Refused = Callable[..., str]
LIMITS = {"card.json": 2**23, "tensors.safetensors": 2**30, "backbone.onnx": 2**30}  # as docs/security says


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes of vectors of six numbers, adapted and taught a third one: a few kilobytes."""
    X, y = blobs([0, 1], 12, d=6)
    target, _ = blobs([0, 1, 7, 8], 12, d=6, shift=0.3, seed=1)
    file = tmp_path_factory.mktemp("tiny") / "tiny.usfda"
    adapted = adapt(procure(X, y, method="mixture"), target)
    teach(adapted, names={1: "okapi"}).save(file)
    assert load(file).classes_ == ["c0", "c1", "okapi"]
    assert load(file).findings.clusters  # type: ignore[union-attr]
    return file


@pytest.fixture(scope="module")
def image_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Of images, with all parts: as procured, and adapted with each method."""
    folder = tmp_path_factory.mktemp("whole")
    config = Config(cache=None)
    source = write_photos(folder / "source", [0, 1, 2], 8)
    target = write_photos(folder / "target", [0, 1, 4], 8, seed=1, invert=True)
    few = ProcurementSettings(iterations=8, update_every=4, composites=30)
    model = procure(source, method="all", backbone="pixels", settings=few, config=config)
    made: dict[str, Model] = {
        "source": model,
        "mixture": adapt(model, target, config=config),
        "usfda": adapt(model, target, method="usfda", settings=UsfdaSettings(steps=2), config=config),
    }
    assert [m.head.name for m in made.values()] == ["source-network", "mixture", "usfda"]
    for name, m in made.items():
        m.save(folder / f"{name}.usfda")
    return {name: folder / f"{name}.usfda" for name in made}


def unpack(file: Path) -> Members:
    with zipfile.ZipFile(file) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def pack(file: Path, members: Members) -> Path:
    """As a stranger would: with ``zipfile``."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two members of one name
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content)
    return file


def card_of(file: Path) -> dict[str, Any]:
    card: dict[str, Any] = json.loads(dict(unpack(file))["card.json"])
    return card


def tensors_of(file: Path) -> dict[str, np.ndarray]:
    tensors: dict[str, np.ndarray] = safetensors.numpy.load(dict(unpack(file))["tensors.safetensors"])
    return tensors


def changed(file: Path, to: Path, **parts: Any) -> Path:
    """A copy with other parts: ``card`` and ``tensors`` as bytes or as what they hold, ``backbone`` as bytes."""
    members = dict(unpack(file))
    for part, content in parts.items():
        name = {"card": "card.json", "tensors": "tensors.safetensors", "backbone": "backbone.onnx"}[part]
        if content is None:
            del members[name]
        elif isinstance(content, bytes):
            members[name] = content
        else:
            members[name] = json.dumps(content).encode() if part == "card" else safetensors.numpy.save(content)
    return pack(to, list(members.items()))


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], cache: Path) -> Refused:
    """Asserts that a file is refused with one line that names it, by the library and by a command."""

    def check(file: Path, says: str = "", command: tuple[str, ...] = ("inspect",)) -> str:
        with pytest.raises(InputError) as found:
            load(file)
        text = str(found.value)
        assert text.startswith(f"{file}: ")
        assert text.isprintable()
        assert len(text) < 1000
        assert says in text
        capsys.readouterr()
        call = [command[0], str(file), *command[1:]]
        assert main([*call, "--quiet"]) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err.startswith("error: ")
        assert shown.err.count("\n") == 1
        assert " ".join(says.split()) in shown.err
        assert "\x1b" not in shown.err
        return text

    return check


def test_a_file_that_zipfile_packed_is_the_same_file(tiny: Path, image_files: dict[str, Path], tmp_path: Path) -> None:
    """So what follows is refused for what is wrong with it, and not for how it was packed."""
    for file in (tiny, *image_files.values()):
        assert pack(tmp_path / "again.usfda", unpack(file)).read_bytes() == file.read_bytes()
    assert changed(tiny, tmp_path / "c.usfda", card=card_of(tiny)) != tiny
    assert load(tmp_path / "c.usfda").classes_ == ["c0", "c1", "okapi"]
    changed(image_files["mixture"], tmp_path / "t.usfda", tensors=tensors_of(image_files["mixture"]))
    assert load(tmp_path / "t.usfda").adapted


# The zip


def test_members_must_be_the_three_in_their_order(
    image_files: dict[str, Path], tmp_path: Path, refused: Refused
) -> None:
    card, tensors, backbone = unpack(image_files["mixture"])
    file = tmp_path / "m.usfda"
    for members in ([card], [tensors], [backbone], [tensors, backbone], [card, backbone], []):
        refused(pack(file, members), "not a usfda model file")
    for members in ([card, card, tensors], [card, tensors, tensors], [card, tensors, backbone, backbone]):
        refused(pack(file, members), "its members are")
    for members in ([tensors, card], [card, backbone, tensors], [backbone, card, tensors], [tensors, card, backbone]):
        refused(pack(file, members), "its members are")
    assert load(pack(file, [card, tensors])).backbone is None  # this one may be left out


@pytest.mark.parametrize("name", ["readme.txt", "../card.json", "/etc/passwd", "CARD.JSON", "card.json/", "x" * 300])
def test_a_fourth_member_is_refused(image_files: dict[str, Path], tmp_path: Path, refused: Refused, name: str) -> None:
    members = unpack(image_files["mixture"])
    refused(pack(tmp_path / "m.usfda", [*members, (name, b"more")]), "it has a member")
    refused(pack(tmp_path / "m.usfda", [(name, b"more"), *members]), "it has a member")
    refused(pack(tmp_path / "m.usfda", [members[0], (name, b"more"), *members[1:]]), "it has a member")


def test_other_ways_to_pack_are_refused(tiny: Path, tmp_path: Path, refused: Refused) -> None:
    """One file has one form, so that nothing can hide in it."""
    file, members = tmp_path / "m.usfda", unpack(tiny)

    def written(**options: Any) -> Path:
        comment = options.pop("comment", b"")
        with zipfile.ZipFile(file, "w") as archive:
            archive.comment = comment
            for name, content in members:
                info = zipfile.ZipInfo(name)
                for key, value in options.items():
                    setattr(info, key, value)
                archive.writestr(info, content)
        return file

    assert load(written()).adapted
    for options in (
        {"compress_type": zipfile.ZIP_DEFLATED},
        {"compress_type": zipfile.ZIP_BZIP2},
        {"compress_type": zipfile.ZIP_LZMA},
        {"comment": b"hello"},
        {"extra": b"\x99\x99\x04\x00hide"},
        {"date_time": (2020, 1, 1, 0, 0, 0)},
        {"external_attr": 0o777 << 16},
        {"create_system": 0},
    ):
        refused(written(**options), "not a usfda model file")

    class Stream(io.RawIOBase):
        """Cannot go back, so that sizes follow the data."""

        def __init__(self) -> None:
            self.content = b""

        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            self.content += bytes(data)
            return len(data)

    stream = Stream()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content)
    file.write_bytes(stream.content)
    refused(file)


def test_bytes_before_after_and_between_are_refused(tiny: Path, tmp_path: Path, refused: Refused) -> None:
    content, file = tiny.read_bytes(), tmp_path / "m.usfda"
    second = content.index(b"PK\3\4", 4)
    end = content.rindex(b"PK\1\2")
    for other in (
        b"#!/bin/sh\n" + content,
        content + b"more",
        content + content,
        content[:second] + b"more" + content[second:],
        content[:end] + b"more" + content[end:],
    ):
        file.write_bytes(other)
        refused(file)


def local_header(name: str, size: int) -> bytes:
    return struct.pack("<4s5H3L2H", b"PK\3\4", 20, 0, 0, 0, 33, 0, size, size, len(name), 0) + name.encode()


@pytest.mark.parametrize("large", LIMITS)
def test_a_member_beyond_its_bound_is_refused_unread(tiny: Path, tmp_path: Path, refused: Refused, large: str) -> None:
    """The header claims so much, and the sparse file has it."""
    file = tmp_path / "m.usfda"
    with file.open("wb") as out:
        for name, content in unpack(tiny):
            if name == large:
                break
            out.write(local_header(name, len(content)) + content)
        out.write(local_header(large, LIMITS[large] + 1))
        out.truncate(out.tell() + LIMITS[large] + 1)
    refused(file, f"its member {large} has {LIMITS[large] + 1:,} bytes")


def test_a_header_that_claims_other_sizes_is_refused(tiny: Path, tmp_path: Path, refused: Refused) -> None:
    content, file = tiny.read_bytes(), tmp_path / "m.usfda"
    (size,) = struct.unpack_from("<L", content, 22)
    for claim in (0, 1, size - 1, size + 1, 2**23, 2**32 - 1):
        other = bytearray(content)
        struct.pack_into("<2L", other, 18, claim, claim)
        file.write_bytes(other)
        refused(file)


def test_a_truncated_file_is_refused_wherever_it_ends(tiny: Path, tmp_path: Path, refused: Refused) -> None:
    content, file = tiny.read_bytes(), tmp_path / "m.usfda"
    places = {0, 1, 4, 29, 30, 38, 39, 40, len(content) - 1, len(content) - 21, len(content) - 22, len(content) - 23}
    places |= {content.index(b"PK\3\4", 4) + i for i in (-1, 0, 1, 30)}
    places |= {content.index(b"PK\1\2") + i for i in (-1, 0, 1, 46)} | set(range(0, len(content), len(content) // 150))
    for place in sorted(places):
        file.write_bytes(content[:place])
        with pytest.raises(InputError, match=r"m\.usfda: "):
            load(file)
    refused(file)


def test_a_flipped_bit_is_refused_wherever_it_is(tiny: Path, tmp_path: Path, refused: Refused) -> None:
    """All bits of the headers, and some hundred of the rest."""
    content, file = tiny.read_bytes(), tmp_path / "m.usfda"
    rng = np.random.default_rng(0)
    second, end = content.index(b"PK\3\4", 4), content.index(b"PK\1\2")
    headers = [*range(39), *range(second, second + 49), *range(end, len(content))]
    bits = [8 * place + int(rng.integers(8)) for place in headers] + rng.integers(0, 8 * len(content), 400).tolist()
    for bit in bits:
        other = bytearray(content)
        other[bit // 8] ^= 1 << bit % 8
        file.write_bytes(other)
        with pytest.raises(InputError, match=r"m\.usfda: "):
            load(file)
    refused(file)


def test_what_is_no_file_at_all(tmp_path: Path, refused: Refused) -> None:
    refused(tmp_path / "gone.usfda", "no such model file")
    refused(tmp_path, "no model.usfda is in it")
    os.mkfifo(tmp_path / "pipe.usfda")
    refused(tmp_path / "pipe.usfda", "no such model file")
    for content in (b"", b"garbage" * 100, b"PK\5\6" + bytes(18), b"PK\3\4", b"\x80\x04K\x01."):
        (tmp_path / "m.usfda").write_bytes(content)
        refused(tmp_path / "m.usfda", "not a usfda model file")


# The tensors


def raw_tensors(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def split_tensors(file: Path) -> tuple[dict[str, Any], bytes]:
    content = dict(unpack(file))["tensors.safetensors"]
    (length,) = struct.unpack_from("<Q", content)
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def test_headers_of_tensors_that_lie(tiny: Path, tmp_path: Path, refused: Refused) -> None:
    file = tmp_path / "m.usfda"
    header, data = split_tensors(tiny)
    names = ["class_statistics.within_class_similarity", "class_statistics.means"]
    assert header[names[1]]["shape"] == [2, 6]
    text = json.dumps(header).encode()

    def other(**values: Any) -> bytes:
        made = copy.deepcopy(header)
        made[names[1]] |= values
        return raw_tensors(made, data)

    start, end = header[names[1]]["data_offsets"]
    shape = header[names[1]]["shape"]
    twice = text[:-1] + b"," + json.dumps(names[0]).encode() + b":" + json.dumps(header[names[0]]).encode() + b"}"
    for content in (
        b"",
        b"\0\0\0",
        raw_tensors(text, data, 2**63),
        raw_tensors(text, data, 2**64 - 1),
        raw_tensors(text, data, len(text) + len(data) + 1),
        raw_tensors(text, data, len(text) + 1),
        raw_tensors(text, data, len(text) - 1),
        raw_tensors(text + b" " * 2**20, data),  # an honest length, beyond the bound
        raw_tensors(b"no JSON", data),
        raw_tensors(b"\xff\xfe", data),
        raw_tensors(b"[" * 10_000, data),
        raw_tensors([], data),
        raw_tensors(3, data),
        raw_tensors({}, b""),
        raw_tensors({}, data),
        raw_tensors(twice, data),
        raw_tensors(header | {"__metadata__": {"a": "b"}}, data),
        raw_tensors(header | {"empty": {"dtype": "F32", "shape": [0], "data_offsets": [end, end]}}, data),
        raw_tensors(header, data + b"more"),
        raw_tensors(header, data[:-1]),
        raw_tensors(header, b"more" + data),
        other(data_offsets=[start - 4, end - 4]),
        other(data_offsets=[start + 4, end + 4]),
        other(data_offsets=[end, start]),
        other(data_offsets=[start, end + 4]),
        other(data_offsets=[float(start), float(end)]),
        other(data_offsets=[-4, end]),
        other(data_offsets=[start]),
        other(data_offsets=[start, end, end]),
        other(data_offsets="ab"),
        other(data_offsets=None),
        other(data_offsets=[2**70, 2**71]),
        other(shape=[*shape, 1]),
        other(shape=[1, 1, *shape]),
        other(shape=[float(n) for n in shape]),
        other(shape=[str(n) for n in shape]),
        other(shape=[-n for n in shape]),
        other(shape=[2**62, 2**62]),
        other(shape=[[n] for n in shape]),
        other(shape=[True, 12]),
        other(shape="ab"),
        other(shape=None),
        other(shape={}),
        other(dtype="F16"),
        other(dtype="F64"),
        other(dtype="BF16"),
        other(dtype="I32"),
        other(dtype="STR"),
        other(dtype="BOOL"),
        other(dtype=None),
        other(dtype=["F32"]),
        other(more=1),
        raw_tensors(header | {names[1]: None}, data),
        raw_tensors(json.dumps(header).replace('"F32"', "NaN", 1).encode(), data),
        raw_tensors(json.dumps(header).replace('"F32"', "1e999", 1).encode(), data),
    ):
        refused(changed(tiny, file, tensors=content))


def test_a_tensor_whose_name_holds_escapes_is_not_printed(tiny: Path, tmp_path: Path, refused: Refused) -> None:
    header, data = split_tensors(tiny)
    name = "\x1b[2J\x1b[31mowned\n"
    for made in (
        header | {name: next(iter(header.values()))},
        {name: {"dtype": name, "shape": [], "data_offsets": [0, 4]}},
    ):
        refused(changed(tiny, tmp_path / "m.usfda", tensors=raw_tensors(made, data)))
    long = {"x" * 500_000: {"dtype": "F8", "shape": [], "data_offsets": [0, 4]}}
    refused(changed(tiny, tmp_path / "m.usfda", tensors=raw_tensors(long, data)))


def other_shapes() -> Iterator[tuple[str, str, Callable[[dict[str, np.ndarray]], Any]]]:
    """The file to start from, what the error names, and the change."""

    def resize(name: str, *shape: int) -> Callable[[dict[str, np.ndarray]], Any]:
        return lambda t: t.update({name: np.zeros(shape, np.float32)})

    def cut_width(prefix: str) -> Callable[[dict[str, np.ndarray]], Any]:
        return lambda t: t.update({f"{prefix}.0.weight": t[f"{prefix}.0.weight"][:, :-1].copy()})

    def narrow(prefix: str) -> Callable[[dict[str, np.ndarray]], Any]:
        """All of the class statistics for vectors of another size."""
        return lambda t: t.update(
            {
                "class_statistics.whitener": np.eye(9, dtype=np.float32),
                "class_statistics.means": np.zeros((3, 9), np.float32),
                "class_statistics.overall_mean": np.zeros(9, np.float32),
            }
        )

    def components(n: int) -> Callable[[dict[str, np.ndarray]], Any]:
        return lambda t: t.update(
            {"mixture.centres": np.zeros((n, 256), np.float32), "mixture.bias": np.zeros(n, np.float32)}
        )

    def negatives(n: int) -> Callable[[dict[str, np.ndarray]], Any]:
        return lambda t: t.update(
            {"D.negative.weight": np.zeros((n, 256), np.float32), "D.negative.bias": np.zeros(n, np.float32)}
        )

    yield "source", "class_statistics.means", resize("class_statistics.means", 2, 256)
    yield "source", "class_statistics.means", resize("class_statistics.means", 3, 255)
    yield "source", "class_statistics.whitener", resize("class_statistics.whitener", 256, 255)
    yield "source", "class_statistics.whitener", resize("class_statistics.whitener", 256)
    yield "source", "class_statistics.overall_mean", resize("class_statistics.overall_mean", 255)
    yield "source", "class_statistics.similarity_quantile", resize("class_statistics.similarity_quantile", 1)
    yield "source", "different sizes", narrow("class_statistics")
    yield "source", "different sizes", cut_width("F_s")
    yield "source", "D.source.weight", resize("D.source.weight", 4, 256)
    yield "source", "D.source.bias", resize("D.source.bias", 4)
    yield "source", "D.negative.weight", resize("D.negative.weight", 9, 256)
    yield "source", "missing or empty", negatives(0)
    yield "source", "F_s.2.weight", resize("F_s.2.weight", 1024, 1023)
    yield "source", "F_s.3.running_mean", resize("F_s.3.running_mean", 1)
    yield "source", "is one too many", resize("F_s.9.weight", 3)
    yield "source", "is one too many", resize("mixture.mean", 256)
    yield "source", "is one too many", resize("F_t.0.weight", 1024, 256)
    yield "source", "F_s.8.bias is missing", lambda t: t.pop("F_s.8.bias")
    yield "source", "F_s.0.weight is missing", lambda t: t.pop("F_s.0.weight")
    yield "source", "class_statistics.whitener is missing", lambda t: t.pop("class_statistics.whitener")
    yield (
        "source",
        "class_statistics.similarity_quantile is missing",
        lambda t: t.pop("class_statistics.similarity_quantile"),
    )
    yield "source", "networks that it needs are missing", lambda t: [t.pop(n) for n in list(t) if n[:3] == "F_s"]
    yield (
        "mixture",
        "class_statistics that it needs are missing",
        lambda t: [t.pop(n) for n in list(t) if n[:16] == "class_statistics"],
    )
    yield "mixture", "mixture has 2 components for 3 classes", components(2)
    yield "mixture", "components for 3 classes", components(10_004)
    yield "mixture", "mixture.centres", resize("mixture.centres", 3, 256)
    yield "mixture", "mixture.mean", resize("mixture.mean", 255)
    yield "mixture", "mixture.scale", resize("mixture.scale", 1)
    yield "mixture", "bias is missing", lambda t: t.pop("mixture.bias")
    yield "usfda", "F_t.0.weight", cut_width("F_t")
    yield "usfda", "F_t.5.bias is missing", lambda t: t.pop("F_t.5.bias")
    for dtype in ("float64", "float16", "int32", "int64", "uint8", "bool"):
        mean = {"class_statistics.overall_mean": np.zeros(256, dtype)}
        yield "mixture", "class_statistics.overall_mean", lambda t, mean=mean: t.update(mean)  # type: ignore[misc]
    yield "source", "num_batches_tracked", resize("F_s.3.num_batches_tracked")


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=f"{case[0]} {case[1]} {i}") for i, case in enumerate(other_shapes())]
)
def test_tensors_that_do_not_fit_are_refused(
    image_files: dict[str, Path], tmp_path: Path, refused: Refused, case: tuple[str, str, Callable[[Any], Any]]
) -> None:
    start, says, change = case
    tensors = tensors_of(image_files[start])
    change(tensors)
    refused(changed(image_files[start], tmp_path / "m.usfda", tensors=tensors), says)


def test_a_head_without_its_part_is_refused(image_files: dict[str, Path], tmp_path: Path, refused: Refused) -> None:
    for start, head in (
        ("source", "mixture"),
        ("source", "usfda"),
        ("mixture", "source-network"),
        ("usfda", "mixture"),
    ):
        card = card_of(image_files[start]) | {"head": head}
        refused(changed(image_files[start], tmp_path / "m.usfda", card=card))
    card = card_of(image_files["source"]) | {"head": "class-means"}
    assert load(changed(image_files["source"], tmp_path / "m.usfda", card=card)).head.name == "class-means"


@pytest.mark.parametrize("start", ["source", "mixture", "usfda"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_refused(
    image_files: dict[str, Path], tmp_path: Path, refused: Refused, start: str, bad: float
) -> None:
    """In every tensor; of the vendor's parts in one file only."""
    tensors = tensors_of(image_files[start])
    own = {"source": ("F_s", "D", "class_statistics"), "mixture": ("mixture",), "usfda": ("F_t",)}[start]
    names = [n for n, t in tensors.items() if n.split(".")[0] in own and not n.endswith("tracked") and t.size]
    assert len(names) >= 4
    for name in names:
        flat = tensors[name].copy()
        flat.reshape(-1)[-1] = bad
        file = changed(image_files[start], tmp_path / "m.usfda", tensors=tensors | {name: flat})
        with pytest.raises(InputError, match=f"m.usfda: its tensor {name} has NaN or infinite values"):
            load(file)
    refused(file)


@pytest.mark.parametrize(("start", "part"), [("source", "F_s"), ("usfda", "F_t")])
def test_a_negative_variance_is_refused(
    image_files: dict[str, Path], tmp_path: Path, refused: Refused, start: str, part: str
) -> None:
    tensors = tensors_of(image_files[start])
    for name in (f"{part}.3.running_var", f"{part}.8.running_var"):
        values = tensors[name].copy()
        values[7] = -1e-3
        file = changed(image_files[start], tmp_path / "m.usfda", tensors=tensors | {name: values})
        refused(file, "negative variance")


@pytest.mark.parametrize(
    ("tensor", "value"),
    [("counts", -1), ("counts", 0), ("counts", 1e38), ("outlier", -0.1), ("outlier", 2)],
)
def test_a_mixture_that_cannot_be_is_refused(
    image_files: dict[str, Path], tmp_path: Path, refused: Refused, tensor: str, value: float
) -> None:
    tensors = tensors_of(image_files["mixture"])
    name = f"mixture.{tensor}"
    wrong = np.full_like(tensors[name], value)
    refused(
        changed(image_files["mixture"], tmp_path / "m.usfda", tensors=tensors | {name: wrong}), "values that cannot be"
    )


# The card


def test_taught_classes_are_those_of_the_tensors(tiny: Path, tmp_path: Path, refused: Refused) -> None:
    file, card = tmp_path / "m.usfda", card_of(tiny)
    (of,) = card["deployment"]["taught"].values()

    def taught(names: Any) -> Path:
        return changed(tiny, file, card=card | {"deployment": card["deployment"] | {"taught": names}})

    assert load(taught({"zebra": of})).classes_[-1] == "zebra"
    for names in ({}, {"a": of, "b": of}):
        refused(taught(names), "names other taught classes than its tensors have")
    refused(taught({"c0": of}), "different classes")
    refused(taught({"Unknown": of}), "'unknown'")
    refused(taught({"a": {}}), "images")
    refused(taught([["a", of]]), "taught")
    refused(changed(tiny, file, card=card | {"deployment": None}), "taught classes")


def test_formats_of_other_versions_say_what_to_do(tiny: Path, tmp_path: Path, refused: Refused) -> None:
    file, card = tmp_path / "m.usfda", card_of(tiny)
    for older in (1, 2, 3, 4):  # which it is not
        refused(changed(tiny, file, card=card | {"format": older}))
    refused(
        changed(tiny, file, card=card | {"format": 99}),
        f"its format is 99 and this version of usfda reads 1 to {FORMAT}",
    )
    wrong: Any
    for wrong in ("3", 3.0, None, [3], {}):
        refused(changed(tiny, file, card=card | {"format": wrong}), "its card names no format")
    refused(changed(tiny, file, card={key: value for key, value in card.items() if key != "format"}), "names no format")
    assert main(["adapt", str(file), str(file), "-o", str(tmp_path / "out.usfda")]) == 2


@pytest.mark.parametrize(
    ("classes", "says"),
    [
        (["c0", "c1\x1b[31m"], "cannot be printed"),
        (["c0", "two\nlines"], "cannot be printed"),
        (["c0", "bell\x07"], "cannot be printed"),
        (["c0", "\u202eright to left"], "cannot be printed"),
        (["c0", "half \ud800"], "cannot be printed"),
        (["c0", "\x9b31m"], "cannot be printed"),
        (["c0", ""], "rename it"),
        (["c0", "unknown"], "called 'unknown'"),
        (["c0", "c0"], "twice"),
        (["c0"], "classes"),
        ([], "classes"),
        (["c0", "c1", "c2"], "names other classes"),
        (["c0", 1], "classes[1]"),
        (["c0", None], "classes[1]"),
        (["c0", ["c1"]], "m.usfda"),
        ("ab", "classes"),
        ({"c0": 1, "c1": 2}, "classes"),
        (None, "classes"),
        ([f"c{i}" for i in range(10_001)], "classes"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_class_names(tiny: Path, tmp_path: Path, refused: Refused, classes: Any, says: str) -> None:
    refused(changed(tiny, tmp_path / "m.usfda", card=card_of(tiny) | {"classes": classes}), says)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to everything in a card."""
    if path:
        yield path
    for key in value if isinstance(value, dict) else range(min(len(value), 2)) if isinstance(value, list) else ():
        yield from places(value[key], (*path, key))


def put(card: Any, path: tuple[Any, ...], value: Any) -> Any:
    card = copy.deepcopy(card)
    at = card
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return card


def test_escapes_anywhere_in_the_card_are_refused(
    image_files: dict[str, Path], tmp_path: Path, refused: Refused
) -> None:
    """In a text or in a name, however deep."""
    start = image_files["mixture"]
    members, card = unpack(start), card_of(start)
    texts = [path for path in places(card) if not isinstance(path[-1], int)]
    assert len(texts) > 60
    for n, path in enumerate(texts):
        made = put(card, path, "\x1b]0;owned\x07")
        file = pack(tmp_path / "m.usfda", [("card.json", json.dumps(made).encode()), *members[1:]])
        with pytest.raises(InputError, match="printed"):
            load(file)
        made = put(card, (*path[:-1], "\x1b[2J"), 1)
        pack(file, [("card.json", json.dumps(made).encode()), *members[1:]])
        with pytest.raises(InputError, match="printed"):
            load(file)
        if n % 20 == 0:
            refused(file, "text that cannot be printed")


ODD: tuple[Any, ...] = (None, True, -1, 0.5, "x", [], [1], ["a", "b", "c"], {}, {"x": 1}, {"x": None}, [[]])


def test_no_card_ends_in_anything_but_a_refusal_or_a_clean_text(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every value of a card in turn is missing or of another kind: it is shown, or the file is refused."""
    card, members = card_of(tiny), unpack(tiny)
    for part in ("procurement", "deployment"):  # of which nothing in particular is asked
        for name in ("settings", "versions"):
            card[part][name] = dict(list(card[part][name].items())[:1])
    shown = {0: 0, 2: 0}
    for n, path in enumerate(places(card)):
        made = copy.deepcopy(card)
        at = made
        for key in path[:-1]:
            at = at[key]
        del at[path[-1]]
        for other in (made, *(put(card, path, value) for value in ODD)):
            file = pack(tmp_path / "m.usfda", [("card.json", json.dumps(other).encode()), *members[1:]])
            try:
                model = load(file)
                lines = of_card(model.classes_, model.head.name, model.dim, model.card, model.findings, complete=True)
                text = " ".join(f"{key} {value}" for key, value in lines)
                text += json.dumps(card_data(model.card), allow_nan=False)
                code = 0
            except InputError as error:
                text, code = str(error), 2
            assert text.isprintable(), path
            shown[code] += 1
        if n % 5 == 0:
            assert main(["inspect", str(file), "--quiet"]) == code, path
            assert capsys.readouterr().err.count("\n") == (code == 2)
    assert min(shown.values()) > 90


REQUIRED = [
    ("classes",),
    ("head",),
    ("procurement",),
    ("deployment",),
    *(("procurement", name) for name in ("method", "classes", "settings", "seed", "validation", "seconds", "versions")),
    *(("procurement", "validation", name) for name in ("head", "samples", "accuracy", "rejected")),
    *(("deployment", name) for name in ("method", "strictness", "samples", "seed", "settings", "unknown_share")),
    *(("deployment", name) for name in ("seconds", "versions")),
    *(("deployment", "check", name) for name in ("verdict", "unknown_estimate", "unknown_interval", "absent")),
    *(("deployment", "check", "expected", name) for name in ("adapted", "class_means", "source_network")),
]


@pytest.mark.parametrize("path", REQUIRED, ids=".".join)
def test_a_missing_field_or_one_of_the_wrong_kind_is_refused(
    tiny: Path, tmp_path: Path, refused: Refused, path: tuple[str, ...]
) -> None:
    card = card_of(tiny)
    at = made = copy.deepcopy(card)
    for key in path[:-1]:
        at = at[key]
    del at[path[-1]]
    refused(changed(tiny, tmp_path / "m.usfda", card=made), path[-1])
    refused(changed(tiny, tmp_path / "m.usfda", card=put(card, path, [["odd"]])))


@pytest.mark.parametrize("history", [[1.0], {"L_d1": 1.0}, {"L_d1": ["x"]}, {"L_d1": [[1.0]]}])
def test_losses_are_lists_of_numbers(tiny: Path, tmp_path: Path, refused: Refused, history: Any) -> None:
    for part in ("procurement", "deployment"):
        refused(changed(tiny, tmp_path / "m.usfda", card=put(card_of(tiny), (part, "history"), history)))


@pytest.mark.parametrize("strictness", [-0.1, 1.1, "0.5", None, [0.5], 2**70])
def test_an_absurd_strictness_is_refused(tiny: Path, tmp_path: Path, refused: Refused, strictness: Any) -> None:
    refused(changed(tiny, tmp_path / "m.usfda", card=put(card_of(tiny), ("deployment", "strictness"), strictness)))


def test_the_page_of_a_model_shows_texts_of_the_card_as_text(tiny: Path) -> None:
    model, hostile = load(tiny), "<img src=x onerror=alert(1)> [x](javascript:alert(1))"
    model.card["procurement"] |= {"method": hostile, "versions": {hostile: hostile}}
    model.deployment["method"] = hostile
    page = model.page()
    assert page.count("javascript") == 4
    assert "<img" not in page.replace(r"\<", "")
    assert "](" not in page.replace(r"\]", "").replace(r"\(", "")


def test_absurdly_many_clusters_are_refused(tiny: Path, tmp_path: Path, refused: Refused) -> None:
    card = card_of(tiny)
    card["deployment"]["check"]["clusters"] = {str(c): 1 for c in range(1, 100_001)}
    refused(changed(tiny, tmp_path / "x.usfda", card=card), "clusters")


@pytest.mark.parametrize("most", [-1e10, -0.1, 100.1])
def test_an_absurd_bound_on_rejections_is_refused(tiny: Path, tmp_path: Path, refused: Refused, most: float) -> None:
    card = card_of(tiny)
    card["deployment"]["reject_at_most"] = most
    refused(changed(tiny, tmp_path / "x.usfda", card=card), "reject_at_most")


@pytest.mark.parametrize("name", ["samples", "earlier_samples"])
def test_a_count_that_an_update_could_not_write_is_refused(
    tiny: Path, tmp_path: Path, refused: Refused, name: str
) -> None:
    card = card_of(tiny)
    card["deployment"][name] = 9 * 10**18
    refused(changed(tiny, tmp_path / "x.usfda", card=card), name)


def test_an_update_that_could_not_be_written_ends_before_its_work(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = card_of(tiny)
    card["deployment"] |= {"samples": 10**12, "earlier_samples": 10**12}
    model = load(changed(tiny, tmp_path / "x.usfda", card=card))
    monkeypatch.setattr(Model, "features", lambda *given, **named: pytest.fail("the work has begun"))
    with pytest.raises(InputError, match=r"counts 2,000,000,000,000 earlier samples, more than a model file may"):
        adapt(model, blobs([0, 1], 9, d=6)[0], update=True)


def test_more_classes_than_a_file_may_have_end_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("usfda.stages.procure.fit_class_statistics", lambda *given: pytest.fail("the work has begun"))
    X = np.zeros((20_002, 6), np.float32)
    with pytest.raises(InputError, match="10,000"):
        procure(X, np.repeat(np.arange(10_001), 2), method="usfda")
    with pytest.raises(InputError, match="negative"):
        procure(X[:4], ["a", "a", "b", "b"], method="usfda", settings={"max_negative_classes": 10_001})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"samples": 2**63}, "a number that is too large"),
        ({"strictness": 2.0}, "strictness"),
        ({"taught": {}}, "names other taught classes than its tensors have"),
    ],
)
def test_what_could_not_be_read_again_is_not_written(
    tiny: Path, tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    model, file = load(tiny), tmp_path / "x.usfda"
    file.write_bytes(b"as it was")
    model.deployment.update(change)  # type: ignore[typeddict-item]
    with pytest.raises(InputError, match=f"not written, since it could not be read again: .*{says}"):
        model.save(file)
    assert file.read_bytes() == b"as it was"


def with_negatives(image_files: dict[str, Path], to: Path, count: int, said: int) -> Path:
    card, tensors = card_of(image_files["source"]), tensors_of(image_files["source"])
    card["procurement"]["negatives"]["classes"] = said
    tensors["D.negative.weight"] = np.zeros((count, 256), np.float32)
    tensors["D.negative.bias"] = np.full(count, -20, np.float32)
    return changed(image_files["source"], to, card=card, tensors=tensors)


def test_negative_classes_are_those_of_the_card_and_bounded(
    image_files: dict[str, Path], tmp_path: Path, refused: Refused
) -> None:
    refused(with_negatives(image_files, tmp_path / "a.usfda", 100, 3), "another number of negative classes")
    refused(
        with_negatives(image_files, tmp_path / "b.usfda", 10_001, 10_001), "10,001 negative classes, more than 10,0"
    )


def test_many_negative_classes_take_little_memory(image_files: dict[str, Path], tmp_path: Path) -> None:
    file = with_negatives(image_files, tmp_path / "many.usfda", 10_000, 10_000)
    setup = f"""
import numpy as np
from usfda import load
model = load({str(file)!r})
model.decide(np.ones((1, model.dim), np.float32))"""
    taken, _ = measured.run(setup, "model.decide(np.ones((4096, model.dim), np.float32))")
    assert taken < 256  # all at once took 800


def test_cards_that_are_no_plain_json(tiny: Path, tmp_path: Path, refused: Refused) -> None:
    file, text = tmp_path / "m.usfda", json.dumps(card_of(tiny))
    for content, says in (
        (b"", ""),
        (b"{", ""),
        (b"no JSON", ""),
        (b"[]", "no JSON object"),
        (b"3", "no JSON object"),
        (b"null", "no JSON object"),
        (b"{}", "names no format"),
        (b"\xff\xfe{}", ""),
        (text.encode("utf-16"), ""),
        (text.encode() + b"{}", ""),
        (b"\x00" * 100, ""),
        ((text[:-1] + ', "head": "mixture"}').encode(), "names something twice"),
        (text.replace('"seed": 0', '"seed": 0, "seed": 1').encode(), "names something twice"),
        (text.replace('"seed": 0', '"seed": NaN').encode(), "number NaN"),
        (text.replace('"seed": 0', '"seed": -Infinity').encode(), "number -Infinity"),
        (text.replace('"seed": 0', '"seed": 1e999').encode(), "too large"),
        (text.replace('"seed": 0', f'"seed": {10**400}').encode(), "too large"),
        (text.replace('"seed": 0', '"seed": ' + "9" * 10_000).encode(), ""),
        (b"[" * 10_000, ""),
        (b"[" * 10_000 + b"]" * 10_000, ""),
        (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, ""),
        ((text[:-1] + ', "x": ' + "[" * 13 + "]" * 13 + "}").encode(), "nested too deeply"),
        ((text[:-1] + ', "x": [' + "[]," * 300_000 + "[]]}").encode(), "more than 524,288 values"),
        ((text[:-1] + ', "head": "' + "x" * 10**6 + '"}').encode(), ""),
    ):
        refused(changed(tiny, file, card=content), says)
    refused(changed(tiny, file, card=card_of(tiny) | {"head": "x" * 10**6}), "its head is")
    refused(
        changed(tiny, file, card=card_of(tiny) | {"head": "best"}),
        "choose from source-network, class-means",
    )


# The backbone


@pytest.mark.parametrize(
    "wrong",
    [
        {"input_size": [3, 100_000, 100_000]},
        {"input_size": [3, -16, -16]},
        {"input_size": [3, 16.0, 16.5]},
        {"input_size": ["3", "16", "16"]},
        {"input_size": [3, 16]},
        {"input_size": [3, 15, 15]},  # other than the graph takes
        {"input_size": None},
        {"crop_pct": 1e-9},
        {"crop_pct": "all"},
        {"std": [0, 0, 0]},
        {"std": [1, 1, 1e-300]},
        {"mean": ["a", "b", "c"]},
        {"mean": [0, 0]},
        {"interpolation": "x" * 10**6},
        {"interpolation": None},
    ],
    ids=lambda wrong: str(wrong)[:40],
)
def test_a_record_with_absurd_values_is_refused(
    image_files: dict[str, Path], tmp_path: Path, refused: Refused, wrong: dict[str, Any]
) -> None:
    card = card_of(image_files["mixture"])
    card["backbone"]["record"] |= wrong
    refused(changed(image_files["mixture"], tmp_path / "m.usfda", card=card), "backbone")


def test_a_backbone_must_be_the_one_of_the_card(image_files: dict[str, Path], tmp_path: Path, refused: Refused) -> None:
    start, file = image_files["mixture"], tmp_path / "m.usfda"
    card = card_of(start)
    known = card["backbone"]
    refused(changed(start, file, card=put(card, ("backbone", "sha256"), "0" * 64)), "not the one that the card names")
    refused(
        changed(start, file, card={k: v for k, v in card.items() if k != "backbone"}), "that the card does not name"
    )
    wrong: Any
    for wrong in (3, "pixels", [], {}, {"name": "x"}, known | {"name": 3}, known | {"sha256": None}):
        refused(changed(start, file, card=card | {"backbone": wrong}), "backbone")
    record: Any
    for record in (None, [], 3, {}, {"input_size": [3, 16, 16]}):
        refused(changed(start, file, card=put(card, ("backbone", "record"), record)), "record")


def graph(*nodes: Any, tensors: list[Any] | None = None, width: int = 256) -> onnx.ModelProto:
    """Any nodes from ``image`` (n, 3, 16, 16) to ``v`` (n, width)."""
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, 16, 16])
    v = helper.make_tensor_value_info("v", TensorProto.FLOAT, ["n", width])
    made = helper.make_graph(list(nodes), "M", [image], [v], tensors or [])
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def with_graph(start: Path, to: Path, model: onnx.ModelProto | bytes) -> Path:
    content = model if isinstance(model, bytes) else model.SerializeToString()
    card = put(card_of(start), ("backbone", "sha256"), hashlib.sha256(content).hexdigest())
    return changed(start, to, card=card, backbone=content)


def grey(to: str = "v") -> list[Any]:
    return [
        helper.make_node("ReduceMean", ["image"], ["grey"], axes=[1], keepdims=0),
        helper.make_node("Flatten", ["grey"], [to]),
    ]


def test_a_graph_that_is_not_one(image_files: dict[str, Path], tmp_path: Path, refused: Refused) -> None:
    file = tmp_path / "m.usfda"
    assert load(with_graph(image_files["mixture"], file, graph(*grey()))).backbone is not None
    for content in (b"", b"garbage", graph(*grey()).SerializeToString()[:-5]):
        refused(with_graph(image_files["mixture"], file, content), "backbone")


def test_a_backbone_of_another_width_is_refused(image_files: dict[str, Path], tmp_path: Path, refused: Refused) -> None:
    pooled = [helper.make_node("GlobalAveragePool", ["image"], ["p"]), helper.make_node("Flatten", ["p"], ["v"])]
    file = with_graph(image_files["mixture"], tmp_path / "m.usfda", graph(*pooled, width=3))
    refused(file, "gives vectors of 3 dimensions, its tensors take 256")


SECRET = b"the client's own secret, 64 bytes of it that nobody is to see..."


@pytest.mark.parametrize("way", ["relative", "parent", "absolute"])
def test_external_data_is_never_read(
    image_files: dict[str, Path], tmp_path: Path, refused: Refused, way: str, monkeypatch: pytest.MonkeyPatch,
    new_photos: Path, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Fault: a file of the client was read as a weight, and left with the adapted model."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    place = {"relative": folder / "secret", "parent": tmp_path / "secret", "absolute": tmp_path / "far" / "secret"}[way]
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(SECRET * 16)
    location = {"relative": "secret", "parent": "../secret", "absolute": str(place)}[way]
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[256], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", "0"), ("length", "1024")):
        weight.external_data.add(key=key, value=value)
    nodes = [*grey("f"), helper.make_node("Add", ["f", "w"], ["v"])]
    file = with_graph(image_files["mixture"], folder / "m.usfda", graph(*nodes, tensors=[weight]))
    refused(file, "external data")
    out = folder / "out.usfda"
    assert main(["adapt", str(file), str(new_photos), "-o", str(out), "--json", str(folder / "card.json")]) == 2
    shown = capsys.readouterr()
    assert not out.exists()
    assert not (folder / "card.json").exists()
    assert SECRET.decode() not in shown.out + shown.err
    # The same as a backbone of the client's own choice.
    (folder / "g.onnx").write_bytes(graph(*nodes, tensors=[weight]).SerializeToString())
    (folder / "g.onnx.json").write_text(json.dumps(card_of(image_files["mixture"])["backbone"]["record"]))
    call = ["procure", str(new_photos), "-o", str(out), "--backbone", f"onnx:{folder / 'g.onnx'}"]
    assert main(call) == 2
    assert "external data" in capsys.readouterr().err
    assert not out.exists()


def loop() -> onnx.ModelProto:
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Add", ["x", "x"], ["y"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
        ],
    )
    often = numpy_helper.from_array(np.asarray(2**60, np.int64), "often")
    always = numpy_helper.from_array(np.asarray(True), "always")
    node = helper.make_node("Loop", ["often", "always", "f"], ["v"], body=body)
    return graph(*grey("f"), node, tensors=[often, always])


def constant(*shape: int) -> onnx.ModelProto:
    """A constant of so many numbers, of which one is added."""
    size = numpy_helper.from_array(np.asarray(shape, np.int64), "size")
    nodes = [
        *grey("f"),
        helper.make_node("ConstantOfShape", ["size"], ["many"]),
        helper.make_node("ReduceMax", ["many"], ["one"], keepdims=0),
        helper.make_node("Add", ["f", "one"], ["v"]),
    ]
    return graph(*nodes, tensors=[size])


def tiled() -> onnx.ModelProto:
    often = numpy_helper.from_array(np.asarray([1, 2**24], np.int64), "often")
    nodes = [
        *grey("f"),
        helper.make_node("Tile", ["f", "often"], ["many"]),
        helper.make_node("ReduceMax", ["many"], ["one"], axes=[1]),
        helper.make_node("Add", ["f", "one"], ["v"]),
    ]
    return graph(*nodes, tensors=[often])


def foreign() -> onnx.ModelProto:
    model = graph(*grey("f"), helper.make_node("Gelu", ["f"], ["v"], domain="com.microsoft"))
    model.opset_import.add(domain="com.microsoft", version=1)
    return model


HOSTILE: dict[str, Callable[[], onnx.ModelProto]] = {
    "a loop": loop,
    "4 GiB of zeros": lambda: constant(2**15, 2**15),
    "16 EiB of zeros": lambda: constant(2**31, 2**31),
    "tiles": tiled,
    "another's operator": foreign,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_graphs_are_refused(
    image_files: dict[str, Path], tmp_path: Path, refused: Refused, kind: str, new_photos: Path
) -> None:
    file = with_graph(image_files["mixture"], tmp_path / "m.usfda", HOSTILE[kind]())
    out = tmp_path / "out.usfda"
    refused(file, "backbone pixels: ", ("adapt", str(new_photos), "-o", str(out)))
    assert not out.exists()


MEASURE = """
import resource, sys, time
import usfda
from usfda import InputError, load
from usfda.methods import heads
usfda.load  # imported; what follows is the file's own cost
def peak(): return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) // 1024
before, start = peak(), time.perf_counter()
try:
    load(sys.argv[1])
    print("loaded")
except InputError as error:
    print("refused")
print(peak() - before, round(time.perf_counter() - start, 2))
"""


def cost(file: Path) -> tuple[str, int, float]:
    """Whether a file was refused, MiB that it took beyond the program, and seconds: in a process of its own."""
    said = subprocess.run([sys.executable, "-c", MEASURE, str(file)], capture_output=True, text=True, check=True)
    state, memory, seconds = said.stdout.split()
    print(f"{file.name}: {state}, {memory} MiB, {seconds} s")
    return state, int(memory), float(seconds)


def sparse(file: Path, members: Members, large: str, size: int) -> Path:
    """A file whose member is ``size`` zero bytes after what it begins with, with the checksum that it should have."""
    with file.open("wb") as out:
        entries = []
        for name, content in members:
            total = size if name == large else len(content)
            crc = zlib.crc32(content)
            for left in range(total - len(content), 0, -(2**24)):
                crc = zlib.crc32(bytes(min(left, 2**24)), crc)
            entries.append((name, crc, total, out.tell()))
            header = bytearray(local_header(name, total))
            struct.pack_into("<L", header, 14, crc)
            out.write(bytes(header) + content)
            out.seek(total - len(content), os.SEEK_CUR)
        start = out.tell()
        for name, crc, total, place in entries:
            fields = (20, 3, 20, 0, 0, 0, 0, 33, crc, total, total, len(name), 0, 0, 0, 0, 0o600 << 16, place)
            out.write(struct.pack("<4s4B4H3L5H2L", b"PK\1\2", *fields) + name.encode())
        end = out.tell() - start
        out.write(struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, len(entries), len(entries), end, start, 0))
    return file


def test_refusals_take_little_memory(tiny: Path, image_files: dict[str, Path], tmp_path: Path) -> None:
    """The time is only printed: ``pytest -s`` shows it."""
    members = unpack(tiny)
    assert sparse(tmp_path / "same.usfda", members, "", 0).read_bytes() == tiny.read_bytes()
    (card_name, card), (tensors_name, _) = members
    values = card[:-1].replace(b'"head"', b'"hand"') + b', "x": [' + b'{"":0},' * (2**18 - 2000) + b"0]}"
    wide = raw_tensors(
        {"class_statistics.whitener": {"dtype": "F32", "shape": [2**14, 2**14], "data_offsets": [0, 2**30]}}
    )
    files = {
        "a card of many values": pack(tmp_path / "values.usfda", [(card_name, values), members[1]]),
        "tensors of a gigabyte that the card does not ask for": sparse(
            tmp_path / "wide.usfda", [members[0], (tensors_name, wide)], tensors_name, 2**30
        ),
    }
    for kind in HOSTILE:
        file = tmp_path / f"{kind}.usfda".replace(" ", "-")
        files[kind] = with_graph(image_files["mixture"], file, HOSTILE[kind]())
    for kind, file in files.items():
        state, memory, _ = cost(file)
        assert state == "refused", kind
        assert memory < 150, kind


def test_a_member_that_is_too_large_is_an_error_before_it_is_written(tiny: Path, tmp_path: Path) -> None:
    model = load(tiny)
    model.card["procurement"]["settings"]["note"] = "x" * 2**23
    with pytest.raises(InputError, match="bytes"):
        model.save(tmp_path / "m.usfda")
    assert not (tmp_path / "m.usfda").exists()

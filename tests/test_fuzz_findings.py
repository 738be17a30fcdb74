"""What fuzzing and attacks made by hand have found, each with its input; docs/fuzzing.md tells of them."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import measured
import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper
from PIL import Image

import fuzz.graph
from fuzz.uploads import Fuzzed, form, request
from usfda import InputError, load
from usfda.backbones.graph import MAX_OPERATIONS, check_graph
from usfda.cli.arguments import pairs_of
from usfda.data.containers import MAX_BYTES, MAX_COMMENT, MAX_PARTS
from usfda.data.images import MAX_COMMENTS, MAX_EXIF, MAX_SCANS, MAX_TAGS, decode
from usfda.data.reading import class_names, read
from usfda.data.samples import MAX_NAME
from usfda.errors import UnreadableImage

# Requests

FORM = b"content-type: multipart/form-data; boundary=b"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzed]:
    made = Fuzzed(tmp_path_factory.mktemp("service"))
    yield made
    made.close()


@pytest.mark.parametrize(
    "content",
    [
        request(0, FORM + b"\norigin: http://[", form(b"x")),
        request(0, FORM + b"; charset=undefined", form(b"x")),
        request(0, FORM + b"; charset=unicode_escape", form(b"x", rb"\ud800")),
        request(0, FORM + b"; charset=utf-7", form(b"x", b"+2AA-.png")),
    ],
    ids=["origin", "no charset", "half a character", "half a character of utf-7"],
)
def test_a_request_that_was_a_5xx(service: Fuzzed, content: bytes) -> None:
    service.one_input(content)


# Lists


def npy(kind: object, shape: tuple[int, ...], data: bytes = b"") -> bytes:
    header = f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + data


def npz(**arrays: bytes) -> bytes:
    with zipfile.ZipFile(file := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in arrays.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


ONE = npy("<f4", (1, 2), bytes(8))
LISTS = {
    "a long field": ("a.csv", b"a.png," + b"x" * 200_000),
    "a long field after tabs": ("a.tsv", b"a.png\t" + b"x" * 200_000),
    "one long label among many": ("a.txt", b"a.png x\n" * 100 + b"a.png " + b"y" * (MAX_NAME + 1)),
    "labels of bytes that are no text": ("a.npz", npz(X=ONE, y=npy("|S1", (1,), b"\xff"))),
    "labels beyond Unicode": ("a.npz", npz(X=ONE, y=npy("<U1", (1,), b"\xff" * 4))),
    "labels of several fields": ("a.npz", npz(X=ONE, y=npy([("a", "<f4"), ("b", "<U1")], (1,), bytes(8)))),
    "labels of no kind": ("a.npz", npz(X=ONE, y=npy("|V3", (1,), b"abc"))),
    "a billion labels of no size": ("a.npz", npz(X=ONE, y=npy("<U0", (10**9,)))),
    "a billion vectors of no size": ("a.npz", npz(X=npy("<U0", (10**9, 1)))),
    "a backbone beyond Unicode": ("a.npz", npz(X=ONE, backbone=npy("<U1", (), b"\xff" * 4))),
    "zeros in a small file": ("a.npz", npz(X=npy("<f4", (2**26 + 1, 1), bytes(2**28 + 4)))),
}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_that_ended_in_a_traceback_or_without_memory(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.png").touch()
    file, content = LISTS[name]
    (tmp_path / file).write_bytes(content)
    with pytest.raises(InputError, match=file):
        read(tmp_path / file)


def test_whole_numbers_that_are_too_large_for_an_integer_are_no_other_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(npz(X=ONE, y=npy("<f8", (1,), struct.pack("<d", 1e300))))
    assert read(tmp_path / "a.npz").labels.tolist() == ["1e+300"]  # type: ignore[union-attr]


def test_pairs_that_ended_in_a_traceback(tmp_path: Path) -> None:
    for name, content in {"a.csv": b"a," + b"x" * 200_000, "a.json": b"[" * 100_000}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=f"{name}: (cannot be read as CSV|not JSON)"):
            pairs_of(tmp_path / name)


def test_names_that_are_too_long_for_a_file() -> None:
    long = "a" * 300
    for call in (lambda: read(long), lambda: load(long), lambda: class_names(f"@{long}"), lambda: pairs_of(Path(long))):
        with pytest.raises(InputError, match=long):
            call()


def test_standard_input_that_is_no_text() -> None:
    code = "from usfda.data.reading import read; read('-')"
    strict = os.environ | {"PYTHONIOENCODING": "utf-8:strict"}  # as a terminal of UTF-8 has it
    ran = subprocess.run([sys.executable, "-c", code], input=b"\xff.png", capture_output=True, check=False, env=strict)
    assert b"InputError: standard input: cannot be read as text" in ran.stderr


# Images


def tiff(*tags: tuple[int, int, int, int | bytes]) -> bytes:
    """A TIFF, or EXIF: tags with their type, their count, and a number or, behind the directory, bytes."""
    directory, behind = struct.pack("<H", len(tags)), b""
    for tag, kind, count, value in sorted(tags, key=lambda entry: entry[0]):
        place = 8 + 2 + 12 * len(tags) + 4 + len(behind)
        directory += struct.pack("<HHII", tag, kind, count, place if isinstance(value, bytes) else value)
        behind += value if isinstance(value, bytes) else b""
    return b"II*\0\x08\0\0\0" + directory + bytes(4) + behind


PIXELS: tuple[tuple[int, int, int, int | bytes], ...] = (
    (256, 4, 1, 16), (257, 4, 1, 16), (259, 3, 1, 1), (262, 3, 1, 1), (277, 3, 1, 1), (278, 4, 1, 16), (279, 4, 1, 256)
)  # fmt: skip
BITS, STRIP = (258, 3, 1, 8), (273, 4, 1, bytes(256))
MANY = MAX_TAGS + 1
EXIF = 0x8769


def png(*chunks: tuple[bytes, bytes]) -> bytes:
    head = struct.pack(">IIBBBBB", 16, 16, 8, 0, 0, 0, 0)
    every = [(b"IHDR", head), (b"IDAT", zlib.compress(bytes(17 * 16))), *chunks, (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in every
    )


def jpeg(**options: object) -> bytes:
    Image.new("L", (16, 16), 99).save(file := io.BytesIO(), "JPEG", **options)
    return file.getvalue()


def scans(count: int) -> bytes:
    """A progressive JPEG whose last scan comes again and again."""
    whole = jpeg(progressive=True)
    last = whole[whole.rindex(b"\xff\xda") : -2]
    return whole[:-2] + last * (count - whole.count(b"\xff\xda")) + whole[-2:]


def pieces_of_exif(count: int) -> bytes:
    return b"\xff\xd8" + b"\xff\xe1\0\x0aExif\0\0ab" * count + jpeg()[2:]


def with_directory(*tags: tuple[int, int, int, int | bytes]) -> bytes:
    """A TIFF with a directory of EXIF, which Pillow reads whole."""
    exif = tiff(*tags)[8:]
    place = len(tiff(*PIXELS, BITS, STRIP, (EXIF, 4, 1, 0)))
    return tiff(*PIXELS, BITS, STRIP, (EXIF, 4, 1, place)) + exif


def behind(part: bytes, times: int, place: int, content: bytes) -> bytes:
    return content[:place] + part * times + content[place:]


Image.new("L", (16, 16), 99).save(gif := io.BytesIO(), "GIF")
GIF = gif.getvalue()
AT = GIF.index(b",\0\0\0\0")  # of its first frame
Image.new("L", (16, 16), 99).save(plain := io.BytesIO(), "PNG")
PLAIN = plain.getvalue()
EMPTY = b"\0\0\0\0prVt" + zlib.crc32(b"prVt").to_bytes(4)
PARTS: dict[str, Callable[[int], bytes]] = {  # of a few bytes each, so many times
    "empty segments": lambda n: behind(b"\xff\xe5\0\2", n, 2, jpeg()),
    "segments without a length": lambda n: behind(b"\xff\xd0", n, 2, jpeg()),
    "fill before the pixels": lambda n: behind(b"\xff", n, 2, jpeg()),
    "fill among the pixels": lambda n: behind(b"\xff", n, -2, jpeg()),
    "chunks before the pixels": lambda n: behind(EMPTY, n, 33, PLAIN),
    "chunks after the pixels": lambda n: behind(EMPTY, n, -12, PLAIN),
    "comments of a byte": lambda n: behind(b"\x21\xfe\1x\0", n, AT, GIF),
    "a comment in pieces": lambda n: behind(b"\x21\xfe" + b"\1x" * n + b"\0", 1, AT, GIF),
    "junk": lambda n: behind(b"\0", n, AT, GIF),
    "blanks in a header": lambda n: behind(b" ", n, 2, b"P6 1 1 255 abc"),
    "comments in a header": lambda n: behind(b" #\n", n, 2, b"P6 1 1 255 abc"),
    "comments in a number": lambda n: behind(b"#\n", n, 4, b"P6 1 1 255 abc"),
}


@pytest.mark.parametrize("name", PARTS)
def test_an_image_with_very_many_parts_is_refused_and_one_with_some_is_read(name: str) -> None:
    with pytest.raises(UnreadableImage, match="with too many parts beside its pixels; save it anew"):
        decode(PARTS[name](MAX_PARTS + 1), 16)
    assert decode(PARTS[name](1000), 16).mode == "RGB"


def test_a_gif_with_long_comments_is_refused() -> None:
    comment = b"\x21\xfe\xff" + bytes(255) + b"\0"
    assert decode(behind(comment, 100, AT, GIF), 16).mode == "RGB"
    with pytest.raises(UnreadableImage, match="too many parts"):
        decode(behind(comment, MAX_COMMENT // 255, AT, GIF), 16)


def test_what_follows_the_end_of_a_jpeg_does_not_count() -> None:
    """A telephone may put a film there."""
    assert decode(jpeg() + b"\xff\xe5\0\2" * MAX_PARTS, 16).mode == "RGB"


def test_parts_of_an_image_take_little_memory(tmp_path: Path) -> None:
    """As many as are read, and many more, which took 2 GiB."""
    for name, make in PARTS.items():
        (tmp_path / f"{name}, some").write_bytes(make(MAX_PARTS - 100))
        (tmp_path / f"{name}, many").write_bytes(make(4_000_000))
    (tmp_path / "first").write_bytes(PLAIN)
    setup = f"""
from pathlib import Path
from usfda.data.images import decode
from usfda.errors import UnreadableImage
files = [Path({str(tmp_path)!r}, name) for name in {[f"{name}, {n}" for name in PARTS for n in ("some", "many")]}]
decode(Path({str(tmp_path)!r}, "first").read_bytes(), 16)
"""
    work = """
for file in files:
    try:
        decode(file.read_bytes(), 16)
    except UnreadableImage as error:
        assert "refused" in str(error), (file, error)
    else:
        assert "many" not in file.name, file
"""
    taken, _ = measured.run(setup, work)
    assert taken < 128  # the largest of the files has 48 MiB, and is read twice


IMAGES = {
    "rationals in a tag": tiff(*PIXELS, BITS, STRIP, (282, 5, MANY, bytes(8 * MANY))),
    "rationals in EXIF of a TIFF": with_directory((0x829A, 5, MANY, bytes(8 * MANY))),
    "strips": tiff(*PIXELS, BITS, (273, 4, MANY, bytes(4 * MANY))),
    "strips as bytes": tiff(*PIXELS, BITS, (273, 1, MANY, bytes(MANY))),
    "colours as bytes": tiff(*PIXELS, BITS, STRIP, (320, 1, MANY, bytes(MANY))),
    "rationals in EXIF of a PNG": png((b"eXIf", tiff((274, 5, MANY, bytes(8 * MANY))))),
    "scans": scans(MAX_SCANS + 1),
    "batches of EXIF": pieces_of_exif(MAX_EXIF + 1),
    "comments": b"P2 2 2 9 " + b"#\n" * (MAX_COMMENTS + 1) + b"1 2 3 4",
    "a long AVIF": b"\0\0\0\x20ftypavif".ljust(MAX_BYTES["AVIF"] + 1, b"\0"),
}
FINE = {
    "tags": tiff(*PIXELS, BITS, STRIP, (282, 5, 1, bytes(8)), (700, 1, MANY, bytes(MANY)), (270, 2, 9, b"a" * 9)),
    "EXIF of a TIFF": with_directory((0x829A, 5, 1, bytes(8))),
    "turned by EXIF of a PNG": png((b"eXIf", tiff((274, 3, 1, 6)))),
    "scans": scans(MAX_SCANS),
    "batches of EXIF": pieces_of_exif(MAX_EXIF),
    "comments": b"P2 2 2 9 " + b"#\n" * MAX_COMMENTS + b"1 2 3 4",
}


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_that_took_more_than_was_promised_is_refused(name: str) -> None:
    with pytest.raises(UnreadableImage, match="refused: "):
        decode(IMAGES[name], 16)


@pytest.mark.parametrize("name", FINE)
def test_an_image_like_it_within_the_bounds_is_read(name: str) -> None:
    assert decode(FINE[name], 16).mode == "RGB"


def test_an_avif_is_counted_with_what_its_decoder_holds() -> None:
    Image.new("RGB", (5000, 5000)).save(file := io.BytesIO(), "AVIF", speed=10, quality=1)
    with pytest.raises(UnreadableImage, match="refused"):
        decode(file.getvalue(), 16)


# Graphs


def with_nodes(*nodes: object, weights: tuple[TensorProto, ...] = ()) -> bytes:
    model: ModelProto = fuzz.graph.build()
    after = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*nodes, *after])
    model.graph.initializer.extend(weights)
    return bytes(model.SerializeToString())


@pytest.mark.parametrize(("name", "other"), [(b"image", b"imag\xca"), (b"\x01n", b"\x01\xca"), (b"\x01p", b"\x01\xca")])
def test_names_that_are_no_text_are_refused(name: bytes, other: bytes) -> None:
    content = fuzz.graph.build().SerializeToString()
    assert name in content
    with pytest.raises(InputError, match="ONNX"):
        check_graph(content.replace(name, other), "x", fuzz.graph.SIZE)


@pytest.mark.parametrize("op", ["Max", "Mean", "Min", "Sum"])
def test_every_input_of_a_sum_counts(op: str) -> None:
    inputs = 1001
    one = check_graph(with_nodes(helper.make_node(op, ["image"], ["a"])), "x", fuzz.graph.SIZE)
    many = check_graph(with_nodes(helper.make_node(op, ["image"] * inputs, ["a"])), "x", fuzz.graph.SIZE)
    assert many.operations_per_image - one.operations_per_image == (inputs - 2) * 3 * np.prod(fuzz.graph.SIZE)


def test_a_small_file_cannot_hide_work_in_the_inputs_of_a_node() -> None:
    sizes = helper.make_tensor("sizes", TensorProto.INT64, [1], [2**26])
    large = helper.make_node("ConstantOfShape", ["sizes"], ["large"])
    inputs = MAX_OPERATIONS // 2**26 + 2
    content = with_nodes(large, helper.make_node("Sum", ["large"] * inputs, ["a"]), weights=(sizes,))
    assert len(content) < 2**20
    with pytest.raises(InputError, match="multiply-adds"):
        check_graph(content, "x", fuzz.graph.SIZE)


def test_known_numbers_are_followed_through_few_inputs() -> None:
    """A file has room for a million, and each takes a while."""
    size = helper.make_tensor("size", TensorProto.INT64, [1], [2])
    for inputs, known in ((8, True), (9, False)):
        nodes = [helper.make_node("Max", ["size"] * inputs, ["a"]), helper.make_node("ConstantOfShape", ["a"], ["b"])]
        content = with_nodes(*nodes, weights=(size,))
        if known:
            check_graph(content, "x", fuzz.graph.SIZE)
        else:
            with pytest.raises(InputError, match="advance"):
                check_graph(content, "x", fuzz.graph.SIZE)

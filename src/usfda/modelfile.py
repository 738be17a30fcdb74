"""The ``.usfda`` file: read as untrusted input, written atomically.

It is a zip of exactly ``card.json``, ``tensors.safetensors`` and (unless it was left out) ``backbone.onnx``, in this
order, nothing compressed and nothing pickled. Reading it accepts these bytes and no others: the headers of the zip are
compared with the ones that writing it would give, every member with its checksum and a bound on its size, the names,
types and shapes of all tensors with those that the card asks for, before anything is allocated for them. The graph of
the backbone is checked when it is built (``backbones/graph.py``).

The file holds no image, no path and no file name, and no vector of a single image: every statistic in it is taken
over two samples or more. What it tells about them all the same: docs/privacy.md.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import safetensors.numpy

from .card import FileCard, check_review, read_card
from .data.reading import check_class_names
from .errors import InputError
from .files import atomic_write, is_file
from .methods.heads import HEADS, MixtureHead
from .methods.vendor import Shape, Tensors, Vendor, own_part
from .oldformats import upgrade
from .urls import Url

FORMAT = 8
LIMITS = {  # the members in their order, and how many bytes each may have
    "card.json": 2**23,
    "tensors.safetensors": 2**30,
    "backbone.onnx": 2**30,
}
MAX_SIZE = 2**20 + sum(LIMITS.values())  # bytes of a whole file
MAX_HEADER = 2**20  # bytes of the header of the tensors
DTYPES = {"F32": "<f4", "I64": "<i8"}
PIECE = 2**20  # numbers that are looked at together
MAX_CLASSES = 10_000  # what adapting takes grows with classes × samples
MAX_VALUES = 2**19  # in the card: each takes many times its size once it is parsed
MAX_NUMBER = 2**63
MAX_COUNT = 10**12  # of samples
DEPTH = 12  # of nested values in the card
MESSAGE = 400  # characters of a message that may repeat what stands in a file

# What a group of the coreset stands for, two samples or more; a cosine; shares.
RANGES = {
    "mixture.counts": (1.99, MAX_COUNT), "mixture.outlier": (0, 1.001), "mixture.assigned": (-1, MAX_CLASSES),
    "classifier.share": (0, 1.001), "classifier.share_centred": (0, 1.001),
}  # fmt: skip

# The structures of a zip with stored members, to the byte as Python's zipfile writes them. They have no place for a
# comment, an extra field, a second member of a name, or another date.
LOCAL = struct.Struct("<4s5H3L2H")
CENTRAL = struct.Struct("<4s4B4H3L5H2L")
END = struct.Struct("<4s4H2LH")
DATE = 33  # the first of January 1980
MODE = 0o600 << 16  # of an unpacked file


@dataclass(frozen=True)
class ModelFile:
    """What a model file holds."""

    card: FileCard
    tensors: Tensors
    backbone: bytes | None


def _zip_parts(members: list[tuple[str, int, int]]) -> tuple[list[bytes], bytes]:
    """The local header of each member (name, crc, size), and all that follows the last of them."""
    headers, central, offset = [], b"", 0
    for name, crc, size in members:
        common = (20, 0, 0, 0, DATE, crc, size, size, len(name), 0)
        headers.append(LOCAL.pack(b"PK\3\4", *common) + name.encode())
        entry = (20, 3, 20, 0, 0, 0, 0, DATE, crc, size, size, len(name), 0, 0, 0, 0, MODE, offset)
        central += CENTRAL.pack(b"PK\1\2", *entry) + name.encode()
        offset += len(headers[-1]) + size
    end = END.pack(b"PK\5\6", 0, 0, len(members), len(members), len(central), offset, 0)
    return headers, central + end


def write_model_file(path: Path | Url, content: ModelFile) -> None:
    """Write the file, whole or not at all."""
    card = json.dumps({"format": FORMAT, **content.card}, indent=1, ensure_ascii=False).encode()
    sizes = (len(card), MAX_HEADER + sum(t.nbytes for t in content.tensors.values()), len(content.backbone or b""))
    for size, (name, limit) in zip(sizes, LIMITS.items(), strict=True):
        if size > limit:
            raise InputError(f"{path}: {name} would have {size:,} bytes, more than the {limit:,} of a model file")
    tensors = {name: np.asarray(t, order="C") for name, t in content.tensors.items()}
    members = {"card.json": card, "tensors.safetensors": safetensors.numpy.save(tensors)}
    try:
        _check_written(*members.values())
    except InputError as error:
        raise InputError(f"{path}: not written, since it could not be read again: {error}") from None
    if content.backbone is not None:
        members["backbone.onnx"] = content.backbone
    headers, end = _zip_parts([(name, zlib.crc32(data), len(data)) for name, data in members.items()])
    with atomic_write(path) as file:
        for header, data in zip(headers, members.values(), strict=True):
            file.write(header)
            file.write(data)
        file.write(end)


def read_model_file(path: Path, sha256: str | None = None) -> ModelFile:
    """Read and check a file; nothing in it is executed. An error is one line that names the file.

    Where a sha256 is given, what is returned was made of a file that has it: it is taken over the very bytes that were
    loaded, so that nobody can exchange the file between a check of its signature and its use.
    """
    with _errors_of(path), path.open("rb") as file:
        _check_format(file)
        found = _member_headers(file, path.stat().st_size)
        members = {member.name: member for member in found}
        contents = {"card.json": _content(file, members["card.json"])}
        values, number = _read_card(contents["card.json"])
        places = _read_header(file, members["tensors.safetensors"])
        values, added, names = upgrade(values, {name: place.shape for name, place in places.items()}, number)
        places = {names[name]: place for name, place in places.items() if name in names}
        card = _check_card(values)
        _check_tensors(places, added, card)
        contents |= {member.name: _content(file, member) for member in found[1:]}
        if sha256 is not None and sha256 != _sha256(found, contents):
            raise InputError("was exchanged while its signature was checked")
        tensors = _read_tensors(contents["tensors.safetensors"], places, card)
        tensors |= {name: np.zeros(shape, np.float32) for name, shape in added.items()}
        return ModelFile(card, tensors, contents.get("backbone.onnx"))


def _check_written(card: bytes, tensors: bytes) -> None:
    """Raise an error where a file with this card and these tensors would be refused."""
    values, _ = _read_card(card)
    checked, places = _check_card(values), _tensor_header(tensors[: 8 + MAX_HEADER], len(tensors))
    _check_tensors(places, {}, checked)
    _read_tensors(tensors, places, checked)


def check_class_count(classes: int, negatives: int = 0) -> None:
    """Raise an error for more classes than a model file may have, before the work that would make it."""
    if max(classes, negatives) > MAX_CLASSES:
        raise InputError(f"a model file has at most {MAX_CLASSES:,} classes, and as many negative ones")


def member_sizes(path: Path) -> dict[str, int]:
    """The members of a file and their sizes in bytes, from its headers alone."""
    with _errors_of(path), path.open("rb") as file:
        return {member.name: member.size for member in _member_headers(file, path.stat().st_size)}


def file_format(path: Path) -> int:
    """The number of the format that a file has, which may be older than that of a file written now."""
    with _errors_of(path), path.open("rb") as file:
        return _read_card(_content(file, _member_headers(file, path.stat().st_size)[0]))[1]


@contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    """Whatever is wrong with a file is one line that names it."""
    if not is_file(path):
        raise InputError(f"{path}: no such model file")
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {str(error)[:MESSAGE]}") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, RecursionError, struct.error) as error:
        reason = f"{type(error).__name__}: {error}"[:MESSAGE]
        raise InputError(f"{path}: not a usfda model file, or damaged ({reason})") from None


class Member(NamedTuple):
    """A part of the file: its name, checksum and size, and where its data begin."""

    name: str
    crc: int
    size: int
    place: int


def _member_headers(file: IO[bytes], total: int) -> list[Member]:
    """The members, from the headers alone."""
    damaged = InputError("not a usfda model file, or damaged (its zip headers are not those of one)")
    found: list[Member] = []
    offset = 0
    while len(found) <= len(LIMITS):
        file.seek(offset)
        header = file.read(LOCAL.size)
        if len(header) < LOCAL.size or not header.startswith(b"PK\3\4"):
            break
        *_, crc, size, _, length, _ = LOCAL.unpack(header)
        name = file.read(min(length, 64)).decode("ascii", "replace")
        if name not in LIMITS:
            raise InputError(f"not a usfda model file (it has a member {name!r})")
        if size > LIMITS[name]:
            raise InputError(f"its member {name} has {size:,} bytes, more than the {LIMITS[name]:,} that are allowed")
        found.append(Member(name, crc, size, offset + LOCAL.size + length))
        offset = found[-1].place + size
    names = [member.name for member in found]
    if names not in ([*LIMITS], [*LIMITS][:2]):
        raise InputError(f"not a usfda model file (its members are {', '.join(names) or 'none'})") if names else damaged
    headers, end = _zip_parts([member[:3] for member in found])
    if offset + len(end) != total:
        raise damaged
    for header, member in zip(headers, found, strict=True):
        file.seek(member.place - len(header))
        if file.read(len(header)) != header:
            raise damaged
    file.seek(offset)
    if file.read() != end:
        raise damaged
    return found


def _content(file: IO[bytes], member: Member) -> bytes:
    file.seek(member.place)
    content = file.read(member.size)
    if len(content) != member.size or zlib.crc32(content) != member.crc:
        raise InputError(f"damaged ({member.name} does not have the checksum that the file states)")
    return content


def _sha256(members: list[Member], contents: Mapping[str, bytes]) -> str:
    """Of the one file that has these members."""
    headers, end = _zip_parts([member[:3] for member in members])
    digest = hashlib.sha256()
    for header, member in zip(headers, members, strict=True):
        digest.update(header)
        digest.update(contents[member.name])
    digest.update(end)
    return digest.hexdigest()


def _parse(content: bytes, part: str) -> dict[str, Any]:
    """The JSON object in a part of the file: plain values, no name twice, and texts that can be printed."""

    def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise InputError(f"{part} names something twice")
        return dict(pairs)

    def no_constant(name: str) -> None:
        raise InputError(f"{part} has the number {name}")

    if sum(content.count(sign) for sign in (b",", b"[", b"{")) > MAX_VALUES:
        raise InputError(f"{part} has more than {MAX_VALUES:,} values")
    values = json.loads(content.decode(), object_pairs_hook=no_duplicates, parse_constant=no_constant)
    if not isinstance(values, dict):
        raise InputError(f"{part} is no JSON object")
    _check_values(values, part, DEPTH)
    return values


def _check_values(value: Any, part: str, depth: int) -> None:
    """No text can move a cursor, set a colour or hide what follows it; no number is beyond what can be shown."""
    if depth == 0:
        raise InputError(f"{part} is nested too deeply")
    if isinstance(value, str) and not value.isprintable():
        raise InputError(f"{part} has a text that cannot be printed: {value[:80]!r}")
    if isinstance(value, int | float) and not abs(value) < MAX_NUMBER:
        raise InputError(f"{part} has a number that is too large")
    if isinstance(value, dict):
        for key in value:
            _check_values(key, part, depth)
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_values(inner, part, depth - 1)


def _check_format(file: IO[bytes]) -> None:
    """Raise an error where the file is newer than the program, whatever else may be new about it.

    That the card is the first member, and its format the first that it names, is a promise to older programs.
    """
    found = re.match(rb'PK\x03\x04.{26}card\.json\{\s*"format":\s*([0-9]{1,9}),', file.read(256), re.DOTALL)
    if found is not None:
        _check_number(int(found[1]))


def _check_number(number: Any) -> None:
    if type(number) is not int or number < 1:
        raise InputError("not a usfda model file (its card names no format)")
    if number > FORMAT:
        raise InputError(
            f"its format is {number} and this version of usfda reads 1 to {FORMAT}: a newer version made it; upgrade "
            "usfda to read it"
        )


def _read_card(content: bytes) -> tuple[dict[str, Any], int]:
    """The card, as yet unchecked but for being plain values, and its format."""
    card = _parse(content, "its card")
    number = card.pop("format", None)
    _check_number(number)
    return card, number


def _check_card(values: dict[str, Any]) -> FileCard:
    card = read_card(values)
    classes, deployed = card["classes"], card["deployment"]
    check_class_names(classes)
    if len(set(classes)) < len(classes):
        raise InputError("its card names a class twice")
    if card["head"] not in HEADS:
        raise InputError(f"its head is {card['head']!r}; choose from {', '.join(HEADS)}")
    if list(card["procurement"]["classes"]) != classes:
        raise InputError("its procurement names other classes than its card")
    if deployed is not None and not set(deployed.get("joined", ())) <= set(classes):
        raise InputError("its card names other classes as those that were added to")
    taught = _taught(card)
    if deployed is not None and "review" in deployed:
        check_review(deployed["review"], {*classes, *taught})
    check_class_names(taught)
    if set(taught) & set(classes) or len(classes) + len(taught) > MAX_CLASSES:
        raise InputError(f"its card must name 2 to {MAX_CLASSES:,} different classes")
    return card


def _taught(card: FileCard) -> list[str]:
    """The names of the classes that the client taught."""
    return [] if card["deployment"] is None else list(card["deployment"].get("taught", {}))


class Place(NamedTuple):
    """Where a tensor lies in its member, as its header says."""

    dtype: str
    shape: Shape
    start: int


def _read_header(file: IO[bytes], member: Member) -> dict[str, Place]:
    """The header of the tensors."""
    file.seek(member.place)
    return _tensor_header(file.read(min(member.size, 8 + MAX_HEADER)), member.size)


def _check_tensors(header: Mapping[str, Place], added: Mapping[str, Shape], card: FileCard) -> None:
    """Raise an error unless names, types and shapes are those that the card asks for, but for what is ``added``."""
    shapes = {name: place.shape for name, place in header.items()}
    wanted = _tensor_layout({**shapes, **added}, len(card["classes"]), card["head"])
    if any(wanted.pop(name, None) != shape for name, shape in added.items()):
        raise InputError("its tensors are not those of its format")
    taught_means = f"{MixtureHead.part}.taught_means"
    if len(_taught(card)) != wanted.get(taught_means, (0,))[0]:
        raise InputError("its card names other taught classes than its tensors have")
    negatives = card["procurement"].get("negatives")
    if negatives and wanted.get("D.negative.bias", (0,))[0] != negatives["classes"]:
        raise InputError("its card names another number of negative classes than its tensors have")
    if wrong := sorted(set(wanted) ^ set(header)):
        state = "one too many" if wrong[0] in header else "missing"
        raise InputError(f"its tensors are not those of the card: {wrong[0]} is {state}")
    for name, (dtype, shape, _) in header.items():
        expected = "I64" if name.endswith("num_batches_tracked") else "F32"
        if (dtype, shape) != (expected, wanted[name]):
            raise InputError(f"its tensor {name} is {dtype} {shape}, where {expected} {wanted[name]} is needed")


def _tensor_header(content: bytes, size: int) -> dict[str, Place]:
    """Each tensor's place; an error unless they fill the member exactly, one after the other."""
    (length,) = struct.unpack_from("<Q", content)
    if length > min(MAX_HEADER, size - 8):
        raise InputError(f"the header of its tensors claims {length:,} bytes")
    found, last = {}, 0
    header = _parse(content[8 : 8 + length], "the header of its tensors")
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        dtype, shape, (start, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        plain = isinstance(shape, list) and all(type(n) is int and n >= 0 for n in (*shape, start, end))
        if dtype not in DTYPES or not plain or len(shape) > 2 or len(entry) > 3:
            raise InputError(f"its tensor {name} is of type {dtype} and shape {shape}")
        if start != last or end - start != math.prod(shape) * np.dtype(DTYPES[dtype]).itemsize:
            raise InputError(f"its tensor {name} does not lie where its shape says")
        found[name], last = Place(dtype, tuple(shape), 8 + length + start), end
    if 8 + length + last != size:
        raise InputError("its tensors do not fill their member")
    return found


def _read_tensors(content: bytes, places: Mapping[str, Place], card: FileCard) -> dict[str, np.ndarray]:
    """The tensors, which share the memory of the content."""
    tensors = {}
    for name, (dtype, shape, start) in places.items():
        values = np.frombuffer(content, DTYPES[dtype], math.prod(shape), start)
        if not all(np.isfinite(values[i : i + PIECE]).all() for i in range(0, len(values), PIECE)):
            raise InputError(f"its tensor {name} has NaN or infinite values")
        if name.endswith("running_var") and values.min() < 0:
            raise InputError(f"its tensor {name} has a negative variance")
        if name in RANGES and not (RANGES[name][0] <= values.min() and values.max() <= RANGES[name][1]):
            raise InputError(f"its tensor {name} has values that cannot be")
        tensors[name] = values.reshape(shape)
    _check_assigned(tensors.get(f"{MixtureHead.part}.assigned"), len(card["classes"]) + len(_taught(card)))
    return tensors


def _check_assigned(assigned: np.ndarray | None, classes: int) -> None:
    """Raise an error unless clusters are merged with classes that are there."""
    if assigned is not None and not np.isin(assigned, np.arange(-1, classes)).all():
        raise InputError("its mixture merges clusters with classes that it does not have")


def _tensor_layout(shapes: Mapping[str, Shape], classes: int, head: str) -> dict[str, Shape]:
    """The shape of every tensor of a model; sizes that the card does not tell are taken from those that are there."""
    kind, wanted = HEADS[head], Vendor.layout(shapes, classes)
    marks = {"networks": "F_s.0.weight", "class_statistics": "class_statistics.overall_mean"}
    if marks[kind.needs] not in wanted:
        raise InputError(f"its head is {head}, but the vendor's {kind.needs} that it needs are missing")
    sizes = {wanted[mark][-1] for mark in marks.values() if mark in wanted}
    if len(sizes) > 1:
        raise InputError(f"its parts are for vectors of different sizes: {sorted(sizes)}")
    (d,) = sizes
    own = kind.layout(own_part(shapes, kind.part), classes, d)
    return wanted | {f"{kind.part}.{name}": shape for name, shape in own.items()}

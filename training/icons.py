"""Icons of things from many icon sets, by style, and photographs of the same things.

The sets are npm packages, ``@iconify-json/NAME``, beside those of the emoji; sets of emoji are not among them. An
icon's class is read from its name: ``cat-outline`` is a cat. An icon whose name has other words is left out.
"""

from __future__ import annotations

import io
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

SIDE = 160  # of a drawn icon
MOST = 24  # icons of a class and style
FEWEST = 8
THINGS = frozenset(
    "airplane ambulance anchor apple baby backpack balloon banana basketball bat bear bed bee beer bell bicycle bird "
    "boat bomb bone book bottle bowl box brain bread bridge brush bug building bus butterfly cactus cake calculator "
    "calendar camera candle candy car carrot castle cat chair cheese cherry chicken church clock cloud coffee compass "
    "cookie corn cow crab crown cup dice dna dog donut door drum duck ear egg elephant envelope eraser eye fan feather "
    "fire fish flag flashlight flask flower fork frog gear ghost gift glasses globe grapes guitar hammer hamburger "
    "hand hat headphones heart helicopter horse hourglass house key keyboard knife lamp laptop leaf lemon lightbulb "
    "lightning lion lipstick lock magnet mask medal microphone microscope monkey monitor moon motorcycle mountain "
    "mouse mushroom newspaper octopus owl palette panda paperclip pen pencil phone piano pig pill pineapple pizza "
    "planet printer pumpkin puzzle rabbit radio rainbow ring robot rocket rose ruler satellite scissors screwdriver "
    "ship shirt shoe shovel shower skull snail snake snowflake snowman sofa spider spoon star stethoscope strawberry "
    "suitcase sun sunglasses sword syringe tank teapot telescope tent thermometer toilet tomato tooth tractor train "
    "trash tree trophy truck trumpet turtle tv umbrella vase violin volcano wallet watch watermelon whale wheel "
    "windmill wine wrench".split()
)
SAME = {
    "plane": "airplane", "aeroplane": "airplane", "bike": "bicycle", "home": "house", "burger": "hamburger",
    "cap": "hat", "bulb": "lightbulb", "mail": "envelope", "tshirt": "shirt", "eyeglasses": "glasses",
    "boot": "shoe", "boots": "shoe", "sneaker": "shoe", "headphone": "headphones", "television": "tv", "cog": "gear",
    "gears": "gear", "grape": "grapes", "couch": "sofa", "smartphone": "phone", "telephone": "phone", "mug": "cup",
    "goblet": "cup", "bunny": "rabbit", "doughnut": "donut", "sailboat": "boat", "spanner": "wrench", "bin": "trash",
    "cherries": "cherry", "flame": "fire", "bolt": "lightning", "briefcase": "suitcase", "taxi": "car",
}  # fmt: skip
STYLE_WORDS = frozenset(
    "outline filled fill line solid bold thin light duotone regular linear broken flat duo remix rounded round sharp "
    "twotone alt simple variant color black white negative stroke small large big new old open closed o s l r one two "
    "three half full empty side front face head classic basic freehand".split()
)
SUBJECTS = frozenset(
    "animal animals food nature weather shopping business music pet sports travel health medical school office "
    "technology transportation".split()
)
DRAWN = ("game-icons",)  # whose last word is the thing, after what it is like
COLOUR = (
    "flat-color-icons", "fluent-color", "marketeq", "icon-park", "streamline-color",
    "streamline-cyber-color", "streamline-flex-color", "streamline-freehand-color", "streamline-kameleon-color",
    "streamline-plump-color", "streamline-sharp-color", "streamline-ultimate-color",
)  # fmt: skip
GLYPHS = ("game-icons", "pixelarticons", "streamline-pixel", "pixel", "memory")
SOLID = ("fa-solid", "fa6-solid", "bxs", "vaadin", "maki", "temaki", "icon-park-solid", "uim", "wpf", "raphael")
LINES = (
    "iconoir", "hugeicons", "lucide", "carbon", "icon-park-outline", "streamline-freehand", "pepicons-pencil", "uil",
    "circum", "guidance",
)  # fmt: skip
BOTH = (
    "tabler", "ph", "mdi", "material-symbols", "ion", "solar", "mingcute", "fluent", "ri", "tdesign", "f7", "heroicons",
    "mynaui", "healthicons", "basil", "bi", "streamline-plump", "streamline-ultimate",
)  # fmt: skip
STYLES = ("icons-colour", "icons-glyphs", "icons-solid", "icons-lines")
# mini-ImageNet's classes that there are icons of; others of it have a class of their own.
PHOTOGRAPHED = {
    "bird": "n01532829 n01558993 n01843383 n01855672", "snake": "n01749939", "spider": "n01770081",
    "crab": "n01981276", "dog": "n02089867 n02091244 n02091831 n02099601 n02101006 n02105505 n02108089",
    "lion": "n02129165", "bug": "n02165456 n02174001", "fish": "n02606052", "ship": "n02687172", "trash": "n02747177",
    "bottle": "n02823428", "box": "n02971356 n03127925", "boat": "n02981792 n04612504", "bell": "n03017168",
    "shoe": "n03047690", "lock": "n03075370", "guitar": "n03272010", "truck": "n03417042", "hourglass": "n03544143",
    "lipstick": "n03676483", "rocket": "n03773504", "bowl": "n03775546", "piano": "n04515003 n03854065",
    "printer": "n03924679", "tank": "n04389033", "bicycle": "n04509417", "vase": "n04522168", "cake": "n07613480",
    "mushroom": "n13054560",
}  # fmt: skip
PRODUCE = frozenset("apple banana carrot grapes lemon pineapple watermelon tomato corn".split())


def thing_of(name_of_set: str, name: str) -> str | None:
    """What an icon shows, by its name."""
    words = [SAME.get(word, word) for word in name.split("-") if word not in STYLE_WORDS and not word.isdigit()]
    if len(words) == 1 and words[0] in THINGS:
        return words[0]
    if len(words) == 2 and words[1] in THINGS and (name_of_set in DRAWN or words[0] in SUBJECTS):
        return words[1]
    return None


def style_of(name_of_set: str, name: str) -> str | None:
    """In which of the domains an icon is."""
    if name_of_set in COLOUR:
        return "icons-colour"
    if name_of_set in GLYPHS:
        return "icons-glyphs"
    words = set(name.split("-"))
    if name_of_set in SOLID or (name_of_set in BOTH and words & {"fill", "filled", "solid", "bold"}):
        return "icons-solid"
    return "icons-lines" if name_of_set in (*LINES, *BOTH) else None


def drawn(svg: str, style: str) -> Image.Image:
    """An icon at a random size on a plain ground: dark on light, light on dark for glyphs."""
    from resvg_py import svg_to_bytes

    rng = np.random.default_rng(zlib.crc32(svg.encode()))
    strong, weak = rng.integers(0, 110, 3), rng.integers(215, 256, 3)
    if style in ("icons-lines", "icons-colour") and rng.random() < 0.7:
        strong, weak = strong // 3, np.full(3, 255)
    if style == "icons-glyphs" and rng.random() < 0.6:
        strong, weak = weak, strong
    ink = "#" + "".join(f"{part:02x}" for part in strong.tolist())
    side = int(SIDE * rng.uniform(0.6, 0.95))
    picture = bytes(svg_to_bytes(svg_string=svg.replace("currentColor", ink), width=side, height=side))
    icon = Image.open(io.BytesIO(picture)).convert("RGBA")
    ground = Image.new("RGBA", (SIDE, SIDE), (*weak.tolist(), 255))
    corner = tuple(rng.integers(0, SIDE - side + 1, 2).tolist())
    ground.alpha_composite(icon, corner)
    return ground.convert("RGB")


def icons(packages: Path, out: Path) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """For each style: the files of the icons, which are drawn once, and their things."""
    found: dict[str, dict[str, list[tuple[str, str, str]]]] = {style: {} for style in STYLES}
    for place in sorted((packages / "@iconify-json").iterdir()):
        content = json.loads((place / "icons.json").read_text())
        seen = set()
        for name, icon in content["icons"].items():
            style, thing = style_of(place.name, name), thing_of(place.name, name)
            plain = re.sub(r"-\d+", "", name)  # sizes of one icon
            if style is None or thing is None or plain in seen:
                continue
            seen.add(plain)
            width, height = (icon.get(key, content.get(key, 16)) for key in ("width", "height"))
            svg = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">{icon["body"]}</svg>'
            found[style].setdefault(thing, []).append((place.name, name, svg))
    for style, things in found.items():
        entries = []
        for thing, members in sorted(things.items()):
            if len(members) < FEWEST:
                continue
            chosen = np.random.default_rng(zlib.crc32(thing.encode())).permutation(len(members))[:MOST]
            for i in chosen:
                name_of_set, name, svg = members[i]
                file = out / style / f"{name_of_set}-{name}.png"
                if not file.exists():
                    file.parent.mkdir(parents=True, exist_ok=True)
                    drawn(svg, style).save(file)
                entries.append((str(file), thing))
        yield style, entries


def photographed(file: Path) -> str:
    """The thing on a photograph of mini-ImageNet, or its own class."""
    identifier = file.parts[0]
    return next((thing for thing, names in PHOTOGRAPHED.items() if identifier in names), identifier)


if __name__ == "__main__":  # the names of the packages, for npm install
    print(*sorted({f"@iconify-json/{name}" for name in (*COLOUR, *GLYPHS, *SOLID, *LINES, *BOTH)}))

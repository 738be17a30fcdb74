"""Domains of the training families as folders of images, which the protocol ``families`` reads.

    PYTHONPATH=benchmarks:. python benchmarks/family_folders.py DATA EMOJI FURTHER -o DIR [--work DIR]

DATA, EMOJI and FURTHER are what training/families.py expects. Written are ``DIR/families/NAME/DOMAIN/CLASS``, with
links to images that exist as files. What is drawn first goes to the work folder.
"""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Iterator
from pathlib import Path

from suite_data import all_domains, labels_of

from training.families import DIGITS, SINGLE, Picture, digit_pictures, of_folder, with_shifts

DOMAINS = {
    "emoji": ("google", "openmoji-black", "twitter"),
    "kinds": ("photographs", "clip-art", "lines"),
    "digits": DIGITS[:3],
    "objects": ("objects", "objects-drawing", "objects-painting"),
}
MOST_IMAGES = 30  # of a class, evenly spaced, as the protocol has it


def pictures(options: argparse.Namespace) -> Iterator[tuple[str, str, list[Picture]]]:
    """Family, domain and pictures."""
    drawn = all_domains(options.data, options.emoji, options.work)
    for family in ("emoji", "kinds"):
        for domain in DOMAINS[family]:
            samples = drawn[domain]
            labels = labels_of(samples).tolist()
            yield family, domain, [Picture(str(path), label) for path, label in zip(samples.paths, labels, strict=True)]
    for domain in DOMAINS["digits"]:
        yield "digits", domain, digit_pictures(domain, options.further)
    place, most, _ = SINGLE["objects"]
    for domain, found in with_shifts("objects", of_folder(options.further / place, most, lambda file: file.parts[0])):
        if domain in DOMAINS["objects"]:
            yield "objects", domain, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("emoji", type=Path)
    parser.add_argument("further", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("family-work"))
    options = parser.parse_args()
    for family, domain, found in pictures(options):
        print(family, domain, write(found, options.output / "families" / family / domain), flush=True)


def write(found: list[Picture], place: Path) -> int:
    """One file for each of some different pictures of every class; returns how many there are."""
    counts: dict[str, int] = {}
    seen: set[tuple[str, bytes]] = set()
    order = sorted(range(len(found)), key=lambda i: zlib.crc32(f"{found[i].label} {i}".encode()))
    for i in order:
        picture = found[i]
        n = counts.get(picture.label, 0)
        if n == MOST_IMAGES or (content := (picture.label, picture.open().convert("RGB").tobytes())) in seen:
            continue
        seen.add(content)
        counts[picture.label] = n + 1
        source = picture.source if isinstance(picture.source, str) and not picture.shift else None
        suffix = Path(source).suffix if source else ".png"
        file = place / picture.label.replace("/", "-") / f"{i}{suffix}"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            if source:
                file.symlink_to(Path(source).resolve())
            else:
                picture.open().convert("RGB").save(file, compress_level=1)
    return sum(counts.values())


if __name__ == "__main__":
    main()

"""The development suite: what changes to method ``usfda`` are chosen by. It is frozen, and it is not the protocol.

23 rows of 108 tasks made of Office-31: all gaps with random class orders, few and many classes, unequal class sizes,
tiny targets, and severe shifts (edges, posterised, inverted, blurred, recoloured, partly covered). A row's figure is
the mean over its tasks of H, of shared accuracy where no class is private to the target, of T_unk where none is shared.

python benchmarks/suite.py OFFICE31 -o suite/ [--backbone NAME] [--ablate] [--json FILE]

Shifted images and runs.jsonl go to the output folder.
"""

from __future__ import annotations

import argparse
import json
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter, ImageOps

from usfda import Samples
from usfda.data.reading import read
from usfda.experiments.runner import Runner, Settings
from usfda.experiments.runs import Experiment, Record
from usfda.experiments.tables import markdown_table
from usfda.experiments.tasks import Benchmark, Task

A, D, W = "amazon", "dslr", "webcam"
EVERY = {A: 3, W: 1}  # of amazon every third image is shifted
KINDS = ("gap", "few", "many", "unequal", "tiny", "severe")
# Of method usfda; no networks are procured, which it does not use.
ABLATIONS: dict[str, dict[str, float]] = {
    "whole method": {},
    "without neighbours": {"rounds": 0},
    "without the test for evidence": {"evidence": -9.0},
    "without a class's own share": {"class_prior": 1e9},
    "without the vendor's prior": {"prior": 1e-3},
    "one cluster of unknowns": {"clusters": 1},
}


def edges(image: Image.Image) -> Image.Image:
    lines = image.convert("L").filter(ImageFilter.GaussianBlur(1)).filter(ImageFilter.FIND_EDGES)
    return ImageOps.autocontrast(ImageOps.invert(lines), cutoff=1).convert("RGB")


def posterised(image: Image.Image) -> Image.Image:
    return ImageOps.posterize(image.filter(ImageFilter.ModeFilter(7)), 2)


def inverted(image: Image.Image) -> Image.Image:
    return ImageOps.invert(image)


def blurred(image: Image.Image) -> Image.Image:
    return image.filter(ImageFilter.GaussianBlur(max(image.size) * 0.03))


def recoloured(image: Image.Image) -> Image.Image:
    red, green, blue = image.split()
    brighter = blue.point([int(255 * (v / 255) ** 0.5) for v in range(256)])
    return Image.merge("RGB", (brighter, red, ImageOps.invert(green)))


def covered(image: Image.Image) -> Image.Image:
    """Six of sixteen tiles, each in a colour of its own."""
    pixels = np.array(image)
    rng = np.random.default_rng(zlib.crc32(pixels.tobytes()))
    h, w = pixels.shape[:2]
    for tile in rng.permutation(16)[:6]:
        i, j = divmod(int(tile), 4)
        pixels[i * h // 4 : (i + 1) * h // 4, j * w // 4 : (j + 1) * w // 4] = rng.integers(0, 256, 3)
    return Image.fromarray(pixels)


SHIFTS = (edges, posterised, inverted, blurred, recoloured, covered)


@dataclass(frozen=True)
class Cut:
    """What a task is made of: its row, its domains, its classes, and what part of the target is taken."""

    row: str
    source: str
    target: str
    gap: tuple[int, int, int]  # shared, source-private and target-private classes
    part: str | int | None
    name: str  # by which everything random is drawn

    @property
    def metric(self) -> str:
        """What the task's figure is."""
        shared, _, extra = self.gap
        return "t_unk" if not shared else "h_score" if extra else "shared_accuracy"


def all_cuts() -> list[Cut]:
    made: list[Cut] = []

    def add(row: str, gap: tuple[int, int, int], source: str, target: str, part: str | int | None = None) -> None:
        row = f"{row} {gap[0]}/{gap[1]}/{gap[2]}"
        made.append(Cut(row, source, target, gap, part, f"{row}|{source}>{target}|{len(made)}"))

    for gap in [(10, 10, 11), (10, 0, 11), (10, 21, 0), (31, 0, 0), (20, 0, 4), (0, 15, 16)]:
        for pair in [(A, D), (W, A), (D, W)]:
            add("gap", gap, *pair)
    for gap in [(3, 2, 2), (4, 0, 3), (3, 4, 0), (7, 0, 0), (0, 4, 3)]:
        for pair in [(A, W), (A, W), (W, A), (W, A)]:
            add("few", gap, *pair)
    for gap in [(5, 2, 24), (24, 4, 3)]:
        for pair in [(A, W), (W, A)]:
            add("many", gap, *pair)
    for gap in [(10, 10, 11), (10, 21, 0), (31, 0, 0)]:
        for pair in [(A, W), (W, A)]:
            add("unequal", gap, *pair, "unequal")
    for gap in [(10, 10, 11), (10, 21, 0), (5, 5, 5)]:
        for pair in [(A, W), (W, A)]:
            for n in (20, 40):
                add("tiny", gap, *pair, n)
    for gap in [(10, 10, 11), (31, 0, 0), (3, 2, 2), (3, 4, 0)]:
        for shift in SHIFTS:
            for source, target in [(A, W), (W, A)]:
                add("severe", gap, source, f"{target}-{shift.__name__}")
    return made


class Suite(Benchmark):
    """The suite, of a folder with the three domains of Office-31; shifted images are made once, in ``shifted``."""

    id = "suite"
    name = "development suite"

    def __init__(self, folder: Path, shifted: Path):
        super().__init__()
        self.cuts = {f"{self.id}/{cut.name}": cut for cut in all_cuts()}
        self._domains = dict(_domains(folder, shifted))

    def tasks(self) -> list[Task]:
        return [Task(name, cut.name, *self._cut(cut)) for name, cut in self.cuts.items()]

    def _cut(self, cut: Cut) -> tuple[Samples, Samples]:
        """Source and target, all drawn by the task's name."""
        rng = np.random.default_rng(zlib.crc32(cut.name.encode()))
        order = np.unique(_labels(self._domains[A]))[rng.permutation(31)].tolist()
        shared, private, extra = cut.gap
        target = order[:shared] + order[shared + private : shared + private + extra]
        source_side, target_side = self._domains[cut.source], self._domains[cut.target]
        labels = _labels(target_side)
        ours = np.flatnonzero(np.isin(_labels(source_side), order[: shared + private]))
        theirs = np.flatnonzero(np.isin(labels, target))
        if cut.part == "unequal":  # the largest class whole, the smallest a twelfth of it
            kept = []
            for j, name in enumerate(rng.permutation(target)):
                members = theirs[labels[theirs] == name]
                kept.append(rng.permutation(members)[: max(2, round(len(members) * 0.08 ** (j / (len(target) - 1))))])
            theirs = np.sort(np.concatenate(kept))
        elif isinstance(cut.part, int):
            theirs = np.sort(rng.permutation(theirs)[: cut.part])
        return source_side[ours], target_side[theirs]


def _labels(samples: Samples) -> np.ndarray:
    assert samples.labels is not None
    return samples.labels


def _domains(folder: Path, shifted: Path) -> dict[str, Samples]:
    """The three domains and their shifted versions."""
    found = {}
    for domain in (A, D, W):
        samples = read(folder / domain, labelled=True)
        assert isinstance(samples, Samples)
        found[domain] = samples
        for shift in SHIFTS if domain in EVERY else ():
            files = []
            for i, path in enumerate(samples.paths[:: EVERY[domain]]):
                files.append(shifted / domain / shift.__name__ / f"{i}.png")
                if not files[-1].exists():
                    files[-1].parent.mkdir(parents=True, exist_ok=True)
                    image = Image.open(path).convert("RGB")
                    image.thumbnail((256, 256))
                    shift(image).save(files[-1], compress_level=1)
            found[f"{domain}-{shift.__name__}"] = Samples(files, _labels(samples)[:: EVERY[domain]])
    return found


class SuiteRun(Experiment):
    """All metrics; the figure of a task is one of them."""

    name = "suite"
    version = 1


def by_row(suite: Suite, records: list[Record]) -> dict[str, float]:
    """The mean figure of each row."""
    figures: dict[str, list[float]] = {}
    for record in records:
        cut = suite.cuts[record["key"]["task"]]
        figures.setdefault(cut.row, []).append(record[cut.metric])
    return {row: float(np.mean(figures[row])) for row in dict.fromkeys(cut.row for cut in suite.cuts.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--backbone", default="efficientnet_lite0")
    parser.add_argument("--ablate", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    suite = Suite(options.folder, options.output)
    chosen = ABLATIONS if options.ablate else {"whole method": ABLATIONS["whole method"]}
    systems: dict[str, tuple[str, Settings]] = {
        label: ("usfda", {"procured_for": "usfda", "deployment": given}) for label, given in chosen.items()
    }
    runner = Runner(options.output, backbone=options.backbone)
    records = runner.run(SuiteRun(), suite.tasks(), systems)
    if runner.failed:
        raise SystemExit(f"{len(runner.failed)} runs failed, the last: {runner.failed[-1]['error']}")
    results = {label: by_row(suite, mine) for label, mine in records.items()}
    table = []
    for label, rows in results.items():
        worst = min(rows, key=rows.__getitem__)
        kinds = [np.mean([figure for row, figure in rows.items() if row.startswith(kind)]) for kind in KINDS]
        ece = np.mean([record["ece"] for record in records[label]])
        mean = f"{np.mean(list(rows.values())):.1f}"
        table.append([label, mean, f"{rows[worst]:.1f} ({worst})", *(f"{v:.1f}" for v in (*kinds, ece))])
    print(markdown_table(["", "mean", "worst row", *KINDS, "ece"], table))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()

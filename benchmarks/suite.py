"""The development suite: what changes to method ``usfda`` are chosen by. It is frozen, and it is not the protocol.

23 rows of 108 tasks made of Office-31: all gaps with random class orders, few and many classes, unequal class sizes,
tiny targets, and severe shifts (edges, posterised, inverted, blurred, recoloured, partly covered). A row's figure is
the mean over its tasks of H, of shared accuracy where no class is private to the target, of T_unk where none is shared.

python benchmarks/suite.py OFFICE31 -o shifted/ [--backbone NAME] [--ablate] [--json FILE]
"""

import argparse
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageFilter, ImageOps
from scipy.sparse import csr_matrix

from usfda import geometry, mixture
from usfda.backbones import get_backbone
from usfda.data import Samples, read
from usfda.features import extract
from usfda.metrics import score

A, D, W = "amazon", "dslr", "webcam"
EVERY = {A: 3, W: 1}  # of amazon every third image is shifted


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


def tasks() -> list[dict[str, Any]]:
    """Row, source, target, (shared, source-private, target-private), and what part of the target is taken."""
    made: list[dict[str, Any]] = []

    def add(row: str, gap: tuple[int, int, int], source: str, target: str, part: Any = None) -> None:
        row = f"{row} {gap[0]}/{gap[1]}/{gap[2]}"
        name = f"{row}|{source}>{target}|{len(made)}"
        made.append({"row": row, "gap": gap, "source": source, "target": target, "part": part, "name": name})

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


def domains(folder: Path, out: Path, backbone: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Vectors and labels of the three domains and of their shifted versions, whose images are made once."""
    m = get_backbone(backbone)
    found = {}
    for domain in (A, D, W):
        samples = read(folder / domain, labelled=True)
        sets = {domain: samples}
        for shift in SHIFTS if domain in EVERY else ():
            paths = []
            for i, path in enumerate(samples.paths[:: EVERY[domain]]):
                file = out / domain / shift.__name__ / f"{i}.png"
                paths.append(file)
                if not file.exists():
                    file.parent.mkdir(parents=True, exist_ok=True)
                    image = Image.open(path).convert("RGB")
                    image.thumbnail((256, 256))
                    shift(image).save(file, compress_level=1)
            sets[f"{domain}-{shift.__name__}"] = Samples(paths=paths, labels=samples.labels[:: EVERY[domain]])
        for name, images in sets.items():
            vectors, _, _ = extract(images, m, name)
            found[name] = (np.asarray(vectors.X), vectors.labels)
    return found


def cut(task: dict[str, Any], sets: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Source vectors and labels, target vectors and labels; all drawn by the task's name."""
    rng = np.random.default_rng(zlib.crc32(task["name"].encode()))
    order = np.unique(sets[A][1])[rng.permutation(31)].tolist()
    shared, private, extra = task["gap"]
    source, target = order[: shared + private], order[:shared] + order[shared + private : shared + private + extra]
    X_s, y_s = sets[task["source"]]
    X_t, y_t = sets[task["target"]]
    ours, theirs = np.isin(y_s, source), np.flatnonzero(np.isin(y_t, target))
    if task["part"] == "unequal":  # the largest class whole, the smallest a twelfth of it
        kept = []
        for j, name in enumerate(rng.permutation(target)):
            members = theirs[y_t[theirs] == name]
            kept.append(rng.permutation(members)[: max(2, round(len(members) * 0.08 ** (j / (len(target) - 1))))])
        theirs = np.sort(np.concatenate(kept))
    elif task["part"]:
        theirs = np.sort(rng.permutation(theirs)[: task["part"]])
    return X_s[ours], y_s[ours], X_t[theirs], y_t[theirs]


def run(task: dict[str, Any], sets: dict[str, Any]) -> dict[str, Any]:
    X_s, y_s, X_t, y_t = cut(task, sets)
    names, y = np.unique(y_s, return_inverse=True)
    home = geometry.fit_geometry(X_s, y, len(names))
    mean = geometry.domain_mean(X_t)
    model = mixture.fit_mixture(home, home.z(torch.from_numpy(X_t), mean).numpy(), mean, 0)[0]
    p = model(torch.from_numpy(X_t)).numpy()[:, : len(names)]
    known = p.sum(1).clip(0, 1)
    best = names[p.argmax(1)]
    result = score(y_t, np.where(known >= 0.5, best, "unknown"), best, known, names.tolist())
    shared, _, extra = task["gap"]
    result["figure"] = result["t_unk" if not shared else "h_score" if extra else "shared_accuracy"]
    return result


def ablations() -> dict[str, dict[str, Any]]:
    """What is put in place of a part of the method, by attribute."""
    whole = geometry.rooted, mixture.two_groups, mixture.components, mixture.neighbours

    def identity_covariance(self: Any, v: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.normalize(whole[0](v) - mean, dim=1)

    def no_gate(scores: np.ndarray, cohesion: float) -> mixture.Groups:
        before, mixture.EVIDENCE = mixture.EVIDENCE, -9.0
        try:
            return whole[1](scores, cohesion)
        finally:
            mixture.EVIDENCE = before

    def otsu(scores: np.ndarray, cohesion: float) -> mixture.Groups:
        s = np.sort(scores.max(1))
        below = np.arange(1, len(s))
        low = np.cumsum(s)[:-1] / below
        high = (s.sum() - low * below) / (len(s) - below)
        i = int((below * (len(s) - below) * (high - low) ** 2).argmax())
        return mixture.Groups((scores.max(1) > (s[i] + s[i + 1]) / 2).astype(float), 1.0)

    def one_cluster(v: Any, scores: Any, known: Any, prototypes: Any, seed: int) -> Any:
        before, mixture.CLUSTERS = mixture.CLUSTERS, 1
        try:
            return whole[2](v, scores, known, prototypes, seed)
        finally:
            mixture.CLUSTERS = before

    def alone(z: np.ndarray, classes: int) -> mixture.Graph:
        return mixture.Graph(csr_matrix((len(z), len(z)), dtype=np.float32), whole[3](z, classes).density)

    def even(v: np.ndarray, graph: mixture.Graph, prototypes: np.ndarray) -> np.ndarray:
        return v @ prototypes.T

    return {
        "whole method": {},
        "without the square root": {"geometry.rooted": lambda v: v},
        "without whitening": {"geometry.Geometry.z": identity_covariance},
        "without neighbours": {"mixture.neighbours": alone},
        "without q": {"mixture.likeness": even},
        "Otsu's split for the two groups": {"mixture.two_groups": otsu},
        "without the test for evidence": {"mixture.two_groups": no_gate},
        "without a class's own share": {"mixture.CLASS_PRIOR": 1e9},
        "without the vendor's prior": {"mixture.PRIOR": 1e-3},
        "one cluster of unknowns": {"mixture.components": one_cluster},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--backbone", default="efficientnet_lite0")
    parser.add_argument("--ablate", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    sets = domains(options.folder, options.output, options.backbone)
    places = {"geometry": geometry, "mixture": mixture, "geometry.Geometry": geometry.Geometry}
    kinds = ("gap", "few", "many", "unequal", "tiny", "severe")
    results: dict[str, dict[str, float]] = {}
    print(f"| | mean | worst row | {' | '.join(kinds)} | ece |\n|---|---|---|{'---|' * len(kinds)}---|")
    for name, parts in ablations().items() if options.ablate else [("whole method", {})]:
        before = {key: getattr(places[key.rsplit(".", 1)[0]], key.rsplit(".", 1)[1]) for key in parts}
        for key, value in parts.items():
            setattr(places[key.rsplit(".", 1)[0]], key.rsplit(".", 1)[1], value)
        runs: dict[str, list[dict[str, Any]]] = {}
        for task in tasks():
            runs.setdefault(task["row"], []).append(run(task, sets))
        for key, value in before.items():
            setattr(places[key.rsplit(".", 1)[0]], key.rsplit(".", 1)[1], value)
        rows = {row: float(np.mean([r["figure"] for r in some])) for row, some in runs.items()}
        ece = np.mean([r["ece"] for some in runs.values() for r in some])
        worst = min(rows, key=rows.__getitem__)
        by_kind = [np.mean([v for row, v in rows.items() if row.startswith(kind)]) for kind in kinds]
        cells = " | ".join(f"{v:.1f}" for v in by_kind)
        mean = np.mean(list(rows.values()))
        print(f"| {name} | {mean:.1f} | {rows[worst]:.1f} ({worst}) | {cells} | {ece:.1f} |", flush=True)
        results[name] = rows
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()

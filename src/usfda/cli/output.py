"""What the commands show and write: bars and messages on stderr, results on stdout, files, the card as text."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ..card import Procurement, Training
from ..errors import InputError
from ..files import atomic_write
from ..memory import THREAD, check_room
from ..methods.findings import OF_TARGET, Findings, count, next_steps, privacy_sentence
from ..modelcard import FILE
from ..urls import Url, filesystem, is_url, place_of

log = logging.getLogger("usfda")
out = Console(soft_wrap=True, markup=False, highlight=False, emoji=False)  # results
console = Console(stderr=True, emoji=False)  # all else
PIECE = 4096  # records that are written together to Parquet
CLUSTERS = 3  # of the unknown, whose examples are listed; the report shows them all
EXAMPLES = 3  # of each
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet computes begins so


@contextmanager
def progress_bar(total: int, text: str, unit: str) -> Iterator[Callable[[int], None]]:
    """A bar on stderr with the rate and the time that is left."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    check_room(THREAD)  # which draws it
    with Progress(*columns, console=console, disable=total == 0) as bar:
        task = bar.add_task(text, total=total, rate="")

        def advance(n: int) -> None:
            bar.update(task, advance=n)
            state = bar.tasks[0]
            rate = state.completed / max(state.elapsed or 0, 1e-3)
            bar.update(task, rate=f"{rate:.0f} {unit}/s" if rate >= 1 else f"{60 * rate:.0f} {unit}/min")

        yield advance


def printable(text: str) -> str:
    """The text on one line, with escapes instead of what could move the cursor or set a colour."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class Messages(logging.Handler):
    """One line per message on stderr, above a progress bar, never folded."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print it; a warning says that it is one."""
        warned = record.levelno >= logging.WARNING
        text = printable(f"warning: {record.getMessage()}" if warned else record.getMessage())
        console.print(text, style="yellow" if warned else "", markup=False, highlight=False, soft_wrap=True)


def check_output(
    *paths: Path | Url | None,
    model: Path | Url | None = None,
    source: Path | Url | None = None,
    inputs: Sequence[object] = (),
) -> None:
    """Raise an error where a file cannot be written, or must not be: before the long work, not after it.

    A warning names a file that is there already and will be replaced.

    Parameters
    ----------
    *paths : Path, Url or None
        Files to write. None has the name of an image or of a model.
    model : Path, Url or None
        A model to write, which has not the name of an image.
    source : Path, Url or None
        The model that is read: only another model may replace it.
    inputs : sequence
        What else is read, as it was given: paths, lists, ``@FILE``, ``onnx:FILE``. Nothing may replace it.
    """
    from ..data.images import SUFFIXES  # which loads Pillow

    read = [Path(str(given).removeprefix("@").removeprefix("onnx:")) for given in inputs if given is not None]
    outputs = [path for path in (model, *paths) if path is not None]
    if twice := [path for i, path in enumerate(outputs) if _resolved(path) in map(_resolved, outputs[:i])]:
        raise InputError(f"{twice[0]}: is named for two outputs; name another file for one of them")
    for path in outputs:
        if isinstance(path, Url):
            filesystem(path)
            continue
        if path.is_dir():
            raise InputError(f"{path}: is a folder; name a file to write")
        kept = {*SUFFIXES} if path is model else {*SUFFIXES, ".usfda"}
        if path.suffix.lower() in kept:
            kind = "a model" if path.suffix.lower() == ".usfda" else "an image"
            raise InputError(f"{path}: has the name of {kind}, which this would not be; name another file")
        others = [] if path is model or not isinstance(source, Path) else [source, source / FILE]
        if path.exists() and any(os.path.exists(given) and path.samefile(given) for given in (*read, *others)):  # noqa: PTH110 (Path.exists raises OSError for a name that is too long)
            raise InputError(f"{path}: would be written over what is read; name another file")
        above = next(folder for folder in path.absolute().parents if folder.exists())
        if not above.is_dir() or not os.access(above, os.W_OK):
            raise InputError(f"{path}: cannot be written in {above}")
        if path.exists():
            log.warning("%s: is there already, and will be replaced", path)


def _resolved(path: Path | Url) -> str:
    return str(path.resolve() if isinstance(path, Path) else path)


def write_json(file: Path | None, content: Any) -> None:
    """Write a JSON file, where one is asked for."""
    if file is not None:
        with in_utf8() as escaped, atomic_write(file) as out_file:
            out_file.write(json.dumps(escaped(content), indent=1, ensure_ascii=False).encode())


@contextmanager
def in_utf8() -> Iterator[Callable[[Any], Any]]:
    """A function that escapes what UTF-8 cannot hold, as names of files may have; one warning says so at the end."""
    names: set[str] = set()

    def escaped(value: Any) -> Any:
        if isinstance(value, str):
            text = value.encode(errors="backslashreplace").decode()
            if text != value:
                names.add(text)
            return text
        if isinstance(value, dict):
            return {escaped(key): escaped(one) for key, one in value.items()}
        return [escaped(one) for one in value] if isinstance(value, list | tuple) else value

    yield escaped
    if names:
        said = "names that are not UTF-8: %d, written with escapes, as %s; to find such a file by its name, rename it"
        log.warning(said, len(names), min(names))


@contextmanager
def writer_of(path: Path | Url | None, *, binary: bool) -> Iterator[Any]:
    """A file, of text unless it is to be binary, that is written whole or not at all; without a path, stdout."""
    if path is None:
        yield sys.stdout
        return
    with atomic_write(path) as raw:
        if binary:
            yield raw
            return
        file = io.TextIOWrapper(raw, "utf-8", newline="")
        yield file
        file.flush()
        file.detach()


def write_predictions(records: Iterable[Any], form: str, file: Any, *, formulas: bool = False) -> None:
    """Write records of predictions as ``table``, ``csv``, ``jsonl`` or, to a binary file, ``parquet``.

    Names that a spreadsheet would compute are made text in CSV, unless ``formulas`` lets them be.
    """
    with in_utf8() as escaped:
        records = (dataclasses.replace(record, path=escaped(record.path)) for record in records)
        if form == "parquet":
            _write_parquet(records, file)
        else:
            _write_text(records, form, file, formulas)


def _as_text(cell: Any, mark: str = "'") -> Any:
    """A cell that no spreadsheet takes for a formula."""
    return mark + cell if isinstance(cell, str) and cell.startswith(FORMULA) else cell


def _write_text(records: Iterable[Any], form: str, file: Any, formulas: bool) -> None:
    if form == "csv":
        writer = csv.writer(file)
        columns = [f"{k}{i}" for i in (1, 2, 3) for k in ("top", "share")]
        writer.writerow(["path", "label", "cluster", "score", "ssm", *columns])
    for record in records:
        if form == "jsonl":
            file.write(json.dumps(dataclasses.asdict(record), ensure_ascii=False) + "\n")
        elif form == "csv":
            pairs = (x for pair in record.top for x in pair)
            cells = [record.label, record.cluster, record.score, record.ssm, *pairs]
            if formulas:
                writer.writerow([record.path, *cells])
            else:  # ./ is the same file
                writer.writerow([_as_text(record.path, "./"), *map(_as_text, cells)])
        else:
            best = ", ".join(f"{name} {share:.2f}" for name, share in record.top)
            label = f"{record.label} (cluster {record.cluster})" if record.cluster else record.label
            ssm = "" if record.ssm is None else f"  ssm {record.ssm:.2f}"
            file.write(printable(f"{label:<20} score {record.score:.2f}{ssm}  {record.path}  ({best})") + "\n")


def _write_parquet(records: Iterable[Any], file: Any) -> None:
    """Piece by piece: a million records need no more memory than a thousand."""
    try:
        import pyarrow as pa
        from pyarrow.parquet import ParquetWriter
    except ImportError:
        raise InputError("Parquet needs: pip install 'usfda[parquet]'") from None
    best = pa.list_(pa.struct([("class", pa.string()), ("share", pa.float64())]))
    kinds = [("path", pa.string()), ("label", pa.string()), ("score", pa.float64()), ("ssm", pa.float64())]
    schema = pa.schema([*kinds, ("top", best), ("cluster", pa.int64())])
    left = iter(records)
    with ParquetWriter(file, schema) as writer:
        while piece := list(itertools.islice(left, PIECE)):
            rows = [dataclasses.asdict(record) for record in piece]
            for row in rows:
                row["top"] = [{"class": name, "share": share} for name, share in row["top"]]
            writer.write_table(pa.Table.from_pylist(rows, schema))


def describe_parts(card: Procurement) -> list[str]:
    """The parts of a procurement: what each is for, and what it took."""
    from ..stages.procure import PURPOSES

    return [f"{part} (for {PURPOSES[part]}): {seconds:.1f} s" for part, seconds in card["seconds"].items()]


def describe_training(training: Training) -> str:
    """How long the vendor's networks learnt, and what each round of it gave."""
    text = "{iterations} iterations in batches of {batch}, learning rate {lr:g}".format(**training)
    rounds = ", ".join(f"{value:.1f}" for value in training["accuracy"])
    return text + (f"; source accuracy after each round, which tells when to stop: {rounds} %" if rounds else "")


def shown_places(places: Sequence[str]) -> list[str]:
    """As they were given, but URLs without what signs them."""
    return [str(place_of(place)) if is_url(place) else place for place in places]


def adapted_on(findings: Findings) -> str:
    """The size of the target, and how much of it is called unknown."""
    samples, of = count(findings.samples, "sample"), ""
    if findings.earlier_samples:
        samples, of = f"{samples} and {findings.earlier_samples} earlier ones", "of the new ones "
    # The images are gone when a model is taught, and so the share is an estimate from then on.
    about = "about " if (findings.taught or findings.joined) and not of else ""
    return f"{samples}, {about}{findings.unknown_share:.1f} % {of}called unknown"


def missing_backbone(model: Any, left_out: bool = False) -> str | None:
    """What ``--backbone`` must name for a file that is without its backbone, or was just saved so."""
    known = model.card.get("backbone")
    if known is None or known["record"] is None or not (left_out or model.backbone is None):
        return None
    return "onnx:FILE" if known["name"].startswith("onnx:") else str(known["name"])


def describe_adaptation(
    findings: Findings, file: str, target: Sequence[str], reported: bool, backbone: str | None
) -> Iterator[str]:
    """What was found, what to look at, and the next commands; ``reported``: a report is being written already."""
    yield f"{file}: adapted to {adapted_on(findings)}"
    for line in findings.sentences():
        yield f"  {line}"
    for cluster in findings.clusters[:CLUSTERS]:
        if cluster.examples:
            yield f"  cluster {cluster.number}, for example:"
            for name in cluster.examples[:EXAMPLES]:
                yield f"    {name}"
    if len(findings.clusters) > CLUSTERS:
        yield "  the report shows the other clusters"
    if findings.earlier_samples and findings.clusters:
        yield "  the clusters have new numbers: look at them before you name one; give report the earlier images, too"
    yield f"  {OF_TARGET}"
    for step in next_steps(findings, file, *target, backbone=backbone):
        if not (reported and step.name == "look"):
            yield f"{step.name + ':':<8} {step.command}"


WORST = 10  # classes, and as many confusions, that are listed; --json has all


def describe_evaluation(result: dict[str, Any]) -> Table:
    """The metrics, of the source model too where the model was adapted."""
    from ..metrics import MEANINGS

    columns = {"adapted": result, "source model": result["source_model"]} if "source_model" in result else {"": result}
    table = Table("percent", *columns, "", box=None)
    for key, text in MEANINGS.items():
        table.add_row(key, *("–" if one[key] is None else f"{one[key]:.1f}" for one in columns.values()), text)
    return table


def describe_classes(result: dict[str, Any]) -> Iterator[str]:
    """What was taken as shared and what as unknown, the worst classes and the most frequent confusions."""
    shared, private = result["shared_classes"], result["private_classes"]
    yield f"{count(result['samples'], 'sample')}; {count(len(shared), 'shared class')}: {', '.join(shared) or 'none'}"
    yield f"counted as unknown, {count(len(private), 'class')}: {', '.join(private) or 'none'}"
    accuracy = sorted((of["accuracy"], name, of["samples"]) for name, of in result["per_class"].items())
    worst = [f"{name} {value:.0f} % of {n}" for value, name, n in accuracy[:WORST] if value < 100]
    if worst:
        yield f"worst classes: {', '.join(worst)}"
    labels, matrix = result["confusion"]["labels"], result["confusion"]["matrix"]
    pairs = [(n, labels[i], labels[j]) for i, row in enumerate(matrix) for j, n in enumerate(row) if n and i != j]
    if pairs:
        pairs.sort(key=lambda pair: (-pair[0], *pair[1:]))
        yield "confused: " + ", ".join(f"{is_} labelled {called} ({n})" for n, is_, called in pairs[:WORST])


def describe_model(model: Any) -> Iterable[tuple[str, str]]:
    """The card of a model as pairs of a name and a text."""
    from ..backbones.zoo import DEFAULT, LITE0_RECORD, LITE0_SHA256  # which loads onnx

    card, deployed = model.card["procurement"], model.card["deployment"]
    known = model.card.get("backbone")
    taught = [f"{name} (taught)" for name in model.classes_[len(card["classes"]) :]]
    names = ", ".join([f"{name} ({n})" for name, n in card["classes"].items()] + taught)
    yield "stage", "adapted" if model.adapted else "procured, not adapted"
    yield "head", model.head.name
    yield f"{len(model.classes_)} classes", names
    backbone = f"{known['name']}, sha256 {known['sha256']}" if known else f"none: features of {model.dim} dimensions"
    if known and known["name"] == DEFAULT:
        genuine = (known["sha256"], known["record"]) == (LITE0_SHA256, LITE0_RECORD)
        backbone += ", as this package has it" if genuine else ", which is NOT the one of this name in this package"
    if missing_backbone(model):
        backbone += "; not in the file: name it to every command with --backbone"
    yield "backbone", backbone
    yield "procured for", "every method" if card["method"] == "all" else f"method {card['method']} alone"
    if "negatives" in card:
        yield "negatives", "{kind}: {classes} classes, {samples} samples".format(**card["negatives"])
    if "training" in card:
        yield "networks", describe_training(card["training"])
    if card["validation"]["samples"]:
        form = "{accuracy} % of {samples} samples with head {head}, {rejected} % rejected"
        yield "held-out source", form.format(**card["validation"])
    if "privacy" in card:  # files of older versions have none
        yield "privacy", f"of the vendor's images: {privacy_sentence(card['privacy'])}"
    yield "procured with", _pairs(card["settings"] | {"seed": card["seed"]})
    if "history" in card:
        yield "final losses", _pairs({name: values[-1] for name, values in card["history"].items() if values})
    yield "versions", _pairs(card["versions"])
    if deployed:
        yield "adapted on", adapted_on(model.findings)
        with_what = {"method": deployed["method"], "strictness": deployed["strictness"], "seed": deployed["seed"]}
        yield "adapted with", _pairs(with_what | deployed["settings"])
        for line in (*model.findings.sentences(), OF_TARGET):
            yield "", line


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())

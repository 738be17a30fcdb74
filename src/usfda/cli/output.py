"""What the commands show and write: bars and messages on stderr, results on stdout, files."""

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

from ..errors import InputError
from ..files import atomic_write
from ..memory import THREAD, check_room
from ..modelcard import FILE
from ..text import predictions
from ..urls import Url, filesystem, is_url, place_of

log = logging.getLogger("usfda")
out = Console(soft_wrap=True, markup=False, highlight=False, emoji=False)  # results
console = Console(stderr=True, emoji=False)  # all else
BATCH = 4096  # records that are written together to Parquet
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet computes a cell that begins so


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
        """Print it; a warning begins with that word."""
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
    """A function that escapes what UTF-8 cannot hold, as names of files may have; with one warning at the end."""
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
    """A file, of text unless it is to be binary, that is written atomically; without a path, stdout."""
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
    from ..data.reading import UNKNOWN
    from ..data.samples import Unread  # which loads NumPy

    if form == "csv":
        writer = csv.writer(file)
        columns = [f"{k}{i}" for i in (1, 2, 3) for k in ("top", "share")]
        writer.writerow(["path", "label", "cluster", "score", "ssm", *columns, "error"])
    for record in records:
        if form == "jsonl":
            file.write(json.dumps(dataclasses.asdict(record), ensure_ascii=False) + "\n")
        elif form == "csv":
            cells: list[Any] = [None] * 10 + [record.error] if isinstance(record, Unread) else [None] * 11
            if not isinstance(record, Unread):
                found = [record.label, record.cluster, record.score, record.ssm, *itertools.chain(*record.top)]
                cells[: len(found)] = found
            if formulas:
                writer.writerow([record.path, *cells])
            else:  # ./ is the same file
                writer.writerow([_as_text(record.path, "./"), *map(_as_text, cells)])
        elif isinstance(record, Unread):
            file.write(printable(f"{'cannot be read':<20} {record.path}  ({record.error})") + "\n")
        else:
            line = predictions.line(**dataclasses.asdict(record), known=record.label != UNKNOWN)
            file.write(printable(line) + "\n")


def _write_parquet(records: Iterable[Any], file: Any) -> None:
    """In batches: a million records need no more memory than a thousand."""
    try:
        import pyarrow as pa
        from pyarrow.parquet import ParquetWriter
    except ImportError:
        raise InputError("Parquet needs: pip install 'usfda[parquet]'") from None
    best = pa.list_(pa.struct([("class", pa.string()), ("share", pa.float64())]))
    kinds = [("path", pa.string()), ("label", pa.string()), ("score", pa.float64()), ("ssm", pa.float64())]
    schema = pa.schema([*kinds, ("top", best), ("cluster", pa.int64()), ("error", pa.string())])
    left = iter(records)
    with ParquetWriter(file, schema) as writer:
        while batch := list(itertools.islice(left, BATCH)):
            rows = [dataclasses.asdict(record) for record in batch]
            for row in rows:
                row["top"] = [{"class": name, "share": share} for name, share in row.get("top", ())]
            writer.write_table(pa.Table.from_pylist(rows, schema))


def shown_places(places: Sequence[str]) -> list[str]:
    """As they were given, but URLs without what signs them."""
    return [str(place_of(place)) if is_url(place) else place for place in places]


def missing_backbone(model: Any, left_out: bool = False) -> str | None:
    """What ``--backbone`` must name for a file that is without its backbone, or was just saved so."""
    known = model.card.get("backbone")
    if known is None or known["record"] is None or not (left_out or model.backbone is None):
        return None
    return "onnx:FILE" if known["name"].startswith("onnx:") else str(known["name"])


def say(*lines: str) -> None:
    """Print results to stdout, each on one line."""
    for line in lines:
        out.print(printable(line))


def note(*lines: str) -> None:
    """Details that --verbose shows."""
    for line in lines:
        log.debug("  %s", line)

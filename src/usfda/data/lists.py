"""Lists of images: ``path label`` or ``path`` per line, or CSV with or without a header, read line by line."""

from __future__ import annotations

import csv
import logging
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np

from ..errors import InputError
from ..files import is_file
from ..urls import Url, place_of
from .images import SUFFIXES
from .samples import MAX_NAME, Paths, Samples

log = logging.getLogger("usfda")
LISTS = {".txt", ".csv", ".tsv"}
PLACES = {"path", "file", "filename", "image"}  # names of the column of paths
PREDICTED = {"score", "top1"}  # columns that distinguish the output of ``predict`` from a list with true labels


def read_list(
    lines: Iterable[str], where: str, folder: Path | Url, suffix: str = ".txt", *, labelled: bool = False
) -> Samples:
    """The images of a list, relative to the list's folder; ``where`` names the list in errors.

    Where labels are asked for, those of a model will not do.
    """
    paths, labels, without = Paths(), [], 0
    exists, at = False, 0

    def counted() -> Iterator[str]:
        nonlocal at
        for at, line in enumerate(lines, 1):  # noqa: B007 (the line of the row that is looked at)
            yield line

    for row in _rows(counted(), where, folder, suffix, labelled):
        if not row[0].strip():
            raise InputError(f"{where}: line {at} has no path")
        path = place_of(row[0].strip(), folder)
        exists = exists or _exists(path)
        paths.append(path)
        label = row[1].strip() if len(row) > 1 else ""
        if len(label) > MAX_NAME:
            raise InputError(f"{where}: the label {label[:80]!r}… is longer than {MAX_NAME} characters")
        labels.append(sys.intern(label))
        without += not label
        if without not in (0, len(paths)):
            has = "a label" if label else "no label"
            raise InputError(f"{where}: line {at} has {has}, unlike those before it; give every line one, or none")
    if not paths:
        raise InputError(f"{where}: the list is empty")
    if again := len(paths) - len(np.unique([hash(line) for line in zip(paths, labels, strict=True)])):
        log.warning("%s: %d of %d lines repeat an earlier line, and count as further images",
                    where, again, len(paths))  # fmt: skip
    if not exists:
        form = "path,label" if suffix == ".csv" else "path, a tab or a blank, label"
        first = str(paths[0])[:200]
        why = f"{folder}" if "\\" not in first else f"{folder}; write / instead of \\"
        raise InputError(
            f"{where}: none of its files exists, the first is {first}; a line is: {form}, and paths are relative to "
            f"the list's folder, {why}"
        )
    return Samples(paths, None if without else np.asarray(labels, dtype=str))


def _rows(lines: Iterable[str], where: str, folder: Path | Url, suffix: str, labelled: bool) -> Iterator[list[str]]:
    """The path and, where there is one, the label of each line."""
    if suffix == ".txt":
        yield from (_split(line.strip(), folder) for line in lines if line.strip())
        return
    try:
        lines = iter(lines)
        line = next((line for line in lines if line.strip()), None)
        if line is None:
            return
        delimiter = "\t" if suffix == ".tsv" else _delimiter(line)
        rows = (row for row in csv.reader(chain([line], lines), delimiter=delimiter) if any(row))
        first = next(rows, None)
        if first is None:
            return
        if _is_image(first[0]):
            yield first
            yield from rows
        else:
            yield from _by_header(first, rows, where, labelled)
    except csv.Error as error:
        raise InputError(f"{where}: cannot be read as CSV ({error})") from None


def _delimiter(line: str) -> str:
    """A comma, or the semicolon that Excel writes in many countries: where only that makes sense of the first line."""
    for sign in ",;":
        cells = next(csv.reader([line], delimiter=sign))
        if _is_image(cells[0]) or PLACES & {cell.strip().lower() for cell in cells}:
            return sign
    return ","


def _is_image(path: str) -> bool:
    return Path(path).suffix.lower() in SUFFIXES


def _split(line: str, folder: Path | Url) -> list[str]:
    if "\t" in line:
        return line.split("\t")
    # A name may have blanks: the line is a path where such a file exists, else a path and a label.
    return [line] if _exists(place_of(line, folder)) else line.rsplit(None, 1)


def _exists(path: Path | Url) -> bool:
    """To ask for every line of a list of URLs would take as long as to read the images."""
    return path.suffix.lower() in SUFFIXES if isinstance(path, Url) else is_file(path)


def _by_header(first: list[str], rows: Iterator[list[str]], where: str, labelled: bool) -> Iterator[list[str]]:
    header = [cell.strip().lower() for cell in first]
    place = next((i for i, cell in enumerate(header) if cell in PLACES), None)
    label = next((i for i, cell in enumerate(header) if cell in ("label", "class")), None)
    if place is None:
        raise InputError(f"{where}: the header needs a column path (and label), it has: {', '.join(header)}")
    if labelled and set(header) >= PREDICTED:
        raise InputError(
            f"{where}: its labels are those that predict gave; give true ones, in folders or a list of path and label"
        )
    for n, row in enumerate(rows, 2):
        if len(row) < len(header):
            raise InputError(f"{where}: row {n} has fewer columns than the header")
        yield [row[place]] if label is None else [row[place], row[label]]

"""What the commands write: files, predictions, the card of a model as text."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from .runtime import InputError, whole_file

out = Console(soft_wrap=True, markup=False, highlight=False, emoji=False)  # results; all else goes to stderr


def check_output(*paths: Path | None) -> None:
    """Before the long work, not after it."""
    for path in filter(None, paths):
        if path.is_dir():
            raise InputError(f"{path}: is a folder; name a file to write")
        above = next(folder for folder in path.absolute().parents if folder.exists())
        if not above.is_dir() or not os.access(above, os.W_OK):
            raise InputError(f"{path}: cannot be written in {above}")


def write_json(file: Path | None, content: Any) -> None:
    if file is not None:
        with whole_file(file) as out_file:
            out_file.write(json.dumps(content, indent=1, ensure_ascii=False).encode())


@contextmanager
def writer_to(path: Path | None) -> Iterator[Any]:
    if path is None:
        yield sys.stdout
        return
    check_output(path)
    with whole_file(path) as raw:
        file = io.TextIOWrapper(raw, "utf-8", "surrogateescape", "")  # file names may be other than UTF-8
        yield file
        file.flush()
        file.detach()


def write_predictions(records: Iterable[Any], form: str, file: Any) -> None:
    if form == "csv":
        writer = csv.writer(file)
        columns = [f"{k}{i}" for i in (1, 2, 3) for k in ("top", "share")]
        writer.writerow(["path", "label", "cluster", "score", "ssm", *columns])
    for record in records:
        if form == "jsonl":
            file.write(json.dumps(dataclasses.asdict(record), ensure_ascii=False) + "\n")
        elif form == "csv":
            pairs = (x for pair in record.top for x in pair)
            writer.writerow([record.path, record.label, record.cluster, record.score, record.ssm, *pairs])
        else:
            best = ", ".join(f"{name} {share:.2f}" for name, share in record.top)
            label = f"{record.label} (cluster {record.cluster})" if record.cluster else record.label
            file.write(f"{label:<20} score {record.score:.2f}  ssm {record.ssm:.2f}  {record.path}  ({best})\n")


def describe_model(model: Any) -> Iterable[tuple[str, str]]:
    from .checks import describe

    card, deployed = model.card["procurement"], model.card["deployment"]
    known = model.card.get("backbone")
    names = ", ".join(f"{name} ({n})" for name, n in card["classes"].items())
    yield "stage", "adapted" if model.adapted else "procured, not adapted"
    yield f"{len(model.classes_)} classes", names
    yield (
        "backbone",
        f"{known['name']}, sha256 {known['sha256']}" if known else f"none: features of {model.dim} dimensions",
    )
    yield "negatives", "{kind}: {classes} classes, {samples} samples".format(**card["negatives"])
    if card["validation"]["samples"]:
        yield "held-out source", "{accuracy} % of {samples} samples, {rejected} % rejected".format(**card["validation"])
    yield "procured with", _pairs(card["settings"] | {"seed": card["seed"]})
    yield "final losses", _pairs({name: values[-1] for name, values in card["history"].items() if values})
    yield "versions", _pairs(card["versions"])
    if deployed:
        yield "adapted on", f"{deployed['samples']} samples, {deployed['unknown_share']} % of them called unknown"
        with_what = {"method": deployed["method"], "strictness": deployed["strictness"], "seed": deployed["seed"]}
        yield "adapted with", _pairs(with_what | deployed["settings"])
        for line in describe(deployed):
            yield "", line


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())

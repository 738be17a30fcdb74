"""What the commands are given: options that several of them share, and the reading of their values."""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ..backbones import NAMES
from ..errors import InputError
from ..files import read_text

if TYPE_CHECKING:
    from ..model import Model

Settings = TypeVar("Settings")
VALUED = ("--threads", "--cache", "--device")  # global options that are followed by a value
Classes = Annotated[
    str | None, typer.Option(help="Only these classes, by folder name: `a,b,c`, or `@FILE` with one name per line.")
]
Seed = Annotated[
    int, typer.Option(min=0, max=2**32 - 1, help="The same seed on the same machine gives the same model.")
]
Set = Annotated[list[str] | None, typer.Option("--set", help="A setting, as KEY=VALUE; may be repeated.")]
Backbone = Annotated[str, typer.Option(help=f"Choose from {', '.join(f'`{name}`' for name in NAMES)}.")]
BackboneFile = Annotated[
    str | None, typer.Option("--backbone", help="For a model that was saved without its backbone.")
]
WithoutBackbone = Annotated[bool, typer.Option("--without-backbone", help="Leave the backbone out, keep its sha256.")]
ModelIn = Annotated[Path, typer.Argument(metavar="MODEL", help="A .usfda file.", show_default=False)]
ModelOut = Annotated[Path, typer.Option("-o", "--output", help="The .usfda file to write.", show_default=False)]
STRICT = "A sample is *unknown* where its score is below this: from 0 (never) to 1 (readily); 0.5 is the method's own."
JsonOut = Annotated[Path | None, typer.Option("--json", help="Write the result to this file, too.")]


def load_model(path: Path, backbone: str | None) -> Model:
    """Read a model file; ``backbone`` is for one that was saved without it."""
    from ..backbones.zoo import get_backbone
    from ..model import load

    model = load(path)
    if backbone is not None:
        model.use_backbone(get_backbone(backbone))
    return model


def settings_of(kind: type[Settings], pairs: Sequence[str] | None) -> Settings:
    """A settings object with the values of KEY=VALUE; an unknown key is an error that lists all."""
    fields: dict[str, Any] = {field.name: type(field.default) for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for pair in pairs or []:
        key, sign, value = pair.partition("=")
        if key not in fields or not sign:
            raise InputError(f"--set {pair}: the settings are {', '.join(fields)}, as KEY=VALUE")
        try:
            values[key] = fields[key](value)
        except ValueError:
            raise InputError(f"--set {pair}: {key} takes a number ({fields[key].__name__})") from None
    return kind(**values)


def pairs_of(file: Path | None, option: str = "--rename") -> dict[str, str] | None:
    """Pairs of names, from a CSV or JSON file."""
    if file is None:
        return None
    if not file.is_file():
        raise InputError(f"{option}: no file {file}")
    text = read_text(file)
    if file.suffix.lower() == ".json":
        try:
            names = json.loads(text)
        except ValueError as error:
            raise InputError(f"{file}: not JSON ({error})") from None
        if not isinstance(names, dict):
            raise InputError(f"{file}: must be one object of pairs of names")
        return {str(key): str(value) for key, value in names.items()}
    rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines()) if any(row)]
    if any(len(row) != 2 for row in rows):
        raise InputError(f"{file}: every line must be a pair of names")
    return dict(rows)


def share_of(text: str, option: str) -> float:
    """A share from 0 to 1, given as such or in percent: a plain number above 1 is in percent, too; 1 could be both."""
    try:
        value = float(text.rstrip("%"))
    except ValueError:
        value = -1
    share = value / 100 if text.endswith("%") or value > 1 else value
    if not 0 <= share <= 1 or text == "1":
        raise InputError(f"{option} {text}: give a share of the target, as 10% or 0.1")
    return share


def globals_first(args: Sequence[str]) -> list[str]:
    """The global options may stand anywhere before a ``--``; typer wants them before the command."""
    front: list[str] = []
    rest: list[str] = []
    todo = list(args)
    while todo:
        arg = todo.pop(0)
        if arg == "--":
            rest += [arg, *todo]
            break
        if arg in ("--verbose", "--quiet") or arg.startswith(tuple(f"{name}=" for name in VALUED)):
            front.append(arg)
        elif arg in VALUED:
            front += [arg, *todo[:1]]
            del todo[:1]
        else:
            rest.append(arg)
    return front + rest

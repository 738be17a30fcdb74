"""What the commands are given: options that several of them share, and the reading of their values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ..backbones import NAMES
from ..config import Config
from ..errors import InputError
from ..files import is_file, read_json, read_text, rows_of
from ..urls import Url, place_of

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
Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting; may be repeated.")]
Backbone = Annotated[str, typer.Option(help=f"Choose from {', '.join(f'`{name}`' for name in NAMES)}.")]
BackboneFile = Annotated[
    str | None, typer.Option("--backbone", help="For a model that was saved without its backbone.")
]
WithoutBackbone = Annotated[bool, typer.Option("--without-backbone", help="Leave the backbone out, keep its sha256.")]
ModelIn = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="A .usfda file, or a folder with model.usfda in it.", show_default=False),
]
Signed = Annotated[
    Path | None,
    typer.Option(
        "--require-signature",
        metavar="KEY",
        help="Refuse MODEL unless it is signed with this: a public key, or the certificate of an authority (PEM).",
    ),
]
# A path, or a URL that stays one: `Path` would make a single slash of its two.
PlaceOfModel = Annotated[
    Any,
    typer.Argument(
        metavar="MODEL", parser=place_of, help="A .usfda file, or a folder with model.usfda in it.", show_default=False
    ),
]
ModelOut = Annotated[
    Any,
    typer.Option(
        "-o", "--output", metavar="FILE", parser=place_of, help="The .usfda file to write.", show_default=False
    ),
]
Track = Annotated[
    str | None,
    typer.Option(metavar="TRACKER", help="Send losses and findings to `tensorboard:FOLDER` or `mlflow`."),
]
Engine = Annotated[
    str, typer.Option(help="Where images become vectors: `threads`, or `ray`, a cluster; see docs/cluster.md.")
]
Address = Annotated[
    str | None,
    typer.Option(help="Of the Ray cluster, as `HOST:6379`. [default: one that is started on this machine]"),
]
STRICT = "The rejection threshold: a sample with a lower score is *unknown*; from 0 (no rejections) to 1; usually 0.5."
Strictness = Annotated[float | None, typer.Option(min=0, max=1, help=STRICT + " Default: as the model was adapted.")]
JsonOut = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the result to this file, too.")]


def model_of(
    path: Path | Url, backbone: str | None, signed_by: Path | None = None, *, inputs: Sequence[str | None] = ()
) -> Model:
    """The model of a file, with its backbone where that was left out of it; no model is among the ``inputs``."""
    from ..backbones.zoo import get_backbone
    from ..model import load

    swapped = [given for given in inputs if str(given).lower().endswith(".usfda")]
    if swapped and path.suffix.lower() != ".usfda":
        raise InputError(f"{path}: MODEL comes first; give {swapped[0]} before it")
    model = load(path, signed_by=signed_by)
    if backbone is not None:
        model.use_backbone(get_backbone(backbone))
    return model


def config_with(config: Config, engine: str, address: str | None) -> Config:
    """The configuration, with the engine that a command was given."""
    return dataclasses.replace(config, engine=engine, address=address)  # type: ignore[arg-type]


def tracker_of(name: str | None) -> Callable[[Model], None]:
    """What sends a model's last stage to a tracker, where one is asked for; found before the long work."""
    if name is None:
        return lambda model: None
    from ..tracking import get_tracker

    return get_tracker(name)


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
    if not is_file(file):
        raise InputError(f"{option}: no file {file}")
    if file.suffix.lower() == ".json":
        names = read_json(file)
        if not isinstance(names, dict):
            raise InputError(f"{file}: must be one object of pairs of names")
        return {str(key): str(value) for key, value in names.items()}
    rows = [[cell.strip() for cell in row] for row in rows_of(read_text(file), file)]
    if any(len(row) != 2 for row in rows):
        raise InputError(f"{file}: every line must be a pair of names with a comma between")
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

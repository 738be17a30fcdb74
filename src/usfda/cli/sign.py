"""The commands of signatures: `usfda sign` and `usfda verify`."""

from __future__ import annotations

import os
import sys
from getpass import getpass
from pathlib import Path
from typing import Annotated

import typer

from ..errors import InputError
from ..text.commands import command
from .arguments import ModelIn
from .output import out, printable

PASSWORD = "USFDA_KEY_PASSWORD"


def sign(
    model: ModelIn,
    key: Annotated[Path, typer.Option(help="Your private key (PEM, elliptic curve).", show_default=False)],
    certificate: Annotated[
        Path | None,
        typer.Option(help="The certificate of KEY (PEM), followed by those between it and the one that clients trust."),
    ] = None,
) -> None:
    """Write MODEL.sig, by which others can tell that MODEL is yours and unchanged.

    The password of KEY, where it has one, is read from `USFDA_KEY_PASSWORD` or asked for. A pair of keys is made with

    `openssl ecparam -name prime256v1 -genkey -noout -out vendor.key`

    `openssl ec -in vendor.key -pubout -out vendor.pub`

    Hand out vendor.pub, by another way than the model; keep vendor.key.

    Example: `usfda sign vendor.usfda --key vendor.key`
    """
    from ..signing import has_password
    from ..signing import sign as run

    password = os.environ.get(PASSWORD)
    if password is None and sys.stdin.isatty() and has_password(key):
        password = getpass(printable(f"Password of {key}: "))
    made = run(model, key, certificate=certificate, password=password)
    out.print(printable(f"{made}: hand it out beside the model"))


def verify(
    model: ModelIn,
    key: Annotated[
        Path,
        typer.Option(
            help="The vendor's public key, or the certificate of an authority that vouches for it (PEM).",
            show_default=False,
        ),
    ],
) -> None:
    """Whether MODEL is signed with KEY, and unchanged; exit code 2 where it is not.

    This proves the origin of MODEL, not that it is harmless. Every command that uses a model has
    `--require-signature KEY`.

    Example: `usfda verify vendor.usfda --key vendor.pub`
    """
    from ..signing import verify as run

    try:
        out.print(printable(f"{model}: signed with {key}, sha256 {run(model, key)}"))
    except InputError as error:
        made = made_here(model)
        if made is None:
            raise
        raise InputError(
            f"{error}; it was adapted, and a signature is of the vendor's file as it came: compare the sha256 of the "
            f"vendor's part, {made[:12]}… ({command('inspect', str(model))}), with that of the file that is signed"
        ) from None


def made_here(model: Path) -> str | None:
    """The sha256 of the vendor's part of a model that was adapted; None for another file."""
    from ..model import load

    try:
        found = load(model)
    except InputError:
        return None
    return found.vendor_sha256 if found.adapted else None

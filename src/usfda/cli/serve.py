"""The command of the service: `usfda serve`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ..errors import InputError
from .arguments import ModelIn, Signed

TOKEN = "USFDA_TOKEN"


def serve(
    ctx: typer.Context,
    model: ModelIn,
    host: Annotated[str, typer.Option(help="The address to listen at; other than this machine's with a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 is any that is free.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            envvar=TOKEN,
            help="What requests must bring: `Authorization: Bearer TOKEN`. Better in the variable: `ps` shows options.",
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder in which images and models are kept; in memory without it.")
    ] = None,
    signed_by: Signed = None,
) -> None:
    """Answer requests over HTTP, and a page for the browser; adapt to the images that arrive.

    Images that are sent are kept, so that the model can be adapted to them; its owner accepts or discards the result.

    Example: `usfda serve client.usfda --data kept/`
    """
    try:
        from ..service.run import serve as run
    except ImportError as error:
        raise InputError(f"serving needs {error.name}; pip install 'usfda[serve]'") from None

    if token is None:  # typer takes an empty variable for none, but a secret that is missing must not open the service
        token = os.environ.get(TOKEN)
    run(model, host, port, token, data, ctx.obj, signed_by)

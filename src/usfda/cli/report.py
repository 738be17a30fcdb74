"""The command `usfda report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .arguments import BackboneFile, Classes, ModelIn, Signed, model_of
from .output import check_output, say, shown_places


def report(
    ctx: typer.Context,
    model: ModelIn,
    target: Annotated[
        list[str],
        typer.Argument(metavar="TARGET...", help="Images, folders, lists, `-`, or features (.npz): without pictures."),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The HTML file to write.", show_default=False)],
    labelled: Annotated[
        bool, typer.Option("--labelled", help="Read the labels of TARGET, as `evaluate` does, and show metrics.")
    ] = False,
    classes: Classes = None,
    backbone: BackboneFile = None,
    signed_by: Signed = None,
) -> None:
    """What MODEL makes of TARGET, to look at: one HTML file that needs no network.

    A summary in plain words, a map, galleries by class, of the clusters of unknown images and of borderline cases, and
    what another strictness would change. Without `--labelled` no label is looked at.

    Example: `usfda report client.usfda new-photos/ -o report.html`
    """
    from ..data.reading import read_several
    from ..report.build import write_report

    check_output(output, inputs=target)
    ready = model_of(model, backbone, signed_by, inputs=target)
    found = read_several(target, classes=classes, labelled=labelled)
    names = shown_places(target)
    write_report(ready, found, output, labelled=labelled, model_name=str(model), target_name=names, config=ctx.obj)
    say(f"{output}: {output.stat().st_size / 1e6:.1f} MB; open it in a browser")

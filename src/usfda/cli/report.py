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
        typer.Argument(metavar="TARGET", help="Images, folders, lists, `-`, or features (.npz): without pictures."),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The HTML file to write.", show_default=False)
    ],
    labelled: Annotated[
        bool, typer.Option("--labelled", help="Read the labels of TARGET, as `evaluate` does, and show metrics.")
    ] = False,
    classes: Classes = None,
    backbone: BackboneFile = None,
    signed_by: Signed = None,
) -> None:
    """A report of MODEL on TARGET: one HTML file that needs no network.

    It has a summary, a map, galleries by class, of clusters of unknown images and of borderline cases, and shows the
    effect of another threshold. Labels are read with `--labelled` only.

    Example: `usfda report client.usfda new-photos/ -o report.html`
    """
    from ..data.reading import read_several
    from ..report.build import write_report

    check_output(output, source=model, inputs=[*target, classes, backbone])
    ready = model_of(model, backbone, signed_by, inputs=target)
    found = read_several(target, classes=classes, labelled=labelled)
    names = shown_places(target)
    write_report(ready, found, output, labelled=labelled, model_name=str(model), target_name=names, config=ctx.obj)
    say(f"{output}: {output.stat().st_size / 1e6:.1f} MB; open it in a browser")

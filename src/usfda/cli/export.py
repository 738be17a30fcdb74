"""The command `usfda export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import InputError
from .arguments import BackboneFile, ModelIn, Signed, model_of
from .output import check_output, say


def export(
    ctx: typer.Context,
    model: ModelIn,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The .onnx file to write.", show_default=False)
    ],
    int8: Annotated[
        bool, typer.Option("--int8", help="Quantise the backbone: a smaller, usually faster file, other results.")
    ] = False,
    calibrate: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="For `--int8`: a folder or list of images similar to those in use."),
    ] = None,
    backbone: BackboneFile = None,
    signed_by: Signed = None,
) -> None:
    """MODEL as one ONNX file, from an image to its label, for which onnxruntime is enough.

    It is written only if it predicts as MODEL does. How to use it: docs/export.md.

    Examples: `usfda export client.usfda -o model.onnx` or
    `usfda export client.usfda --int8 --calibrate photos/ -o small.onnx`
    """
    from ..export import TOLERANCE, export_onnx

    if int8 and calibrate is None:
        raise InputError("--int8 needs images to calibrate with, like those that the file is for: --calibrate PATH")
    if calibrate is not None and not int8:
        raise InputError("--calibrate belongs to --int8")
    check_output(output, source=model, inputs=[calibrate, backbone])
    ready = model_of(model, backbone, signed_by)
    quantised = export_onnx(ready, output, calibrate=calibrate, config=ctx.obj)
    size = f"{output.stat().st_size / 1e6:.1f} MB"
    if quantised is None:
        say(f"{output}: {size}; labels as the model's, scores and probabilities within {TOLERANCE:g}")
        return
    say(
        f"{output}: {size}; in int8: {', '.join(quantised.operators)}",
        f"  on the {quantised.images} images that it was calibrated with, and perhaps less on others:",
        f"  {100 * quantised.agreement:.1f} % have the same label as in float32",
        f"  their score differs by {quantised.difference:.3f} on average",
        f"  {quantised.speed:.2f} times the speed of float32, one image at a time on this machine",
    )

"""The command ``teach``."""

from __future__ import annotations

import logging
import shlex
from typing import Annotated

import typer

from ..errors import InputError
from .arguments import BackboneFile, ModelIn, ModelOut, WithoutBackbone, model_of
from .output import check_output

log = logging.getLogger("usfda")


def teach(
    ctx: typer.Context,
    model: ModelIn,
    output: ModelOut,
    examples: Annotated[
        str | None,
        typer.Argument(help="A folder with one folder per class, or a list with labels: one or a few images each."),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option("--name", metavar="CLUSTER=CLASS", help="What a cluster of the unknown is; may be repeated."),
    ] = None,
    forget: Annotated[
        list[str] | None,
        typer.Option(metavar="CLASS", help="A taught class that is to be unknown again; may be repeated."),
    ] = None,
    backbone: BackboneFile = None,
    without_backbone: WithoutBackbone = False,
) -> None:
    """New classes for an adapted MODEL: name clusters of the unknown, or give a few labelled EXAMPLES.

    From then on they are classes like the others, also after `adapt --update`. EXAMPLES of a class that the model has
    help it to find more of it. The clusters that remain are numbered anew.

    Examples: `usfda teach client.usfda --name 3=giraffe --name 5=zebra -o client.usfda` or
    `usfda teach client.usfda examples/ -o client.usfda`
    """
    from ..methods.findings import count
    from ..stages.teach import teach as run

    check_output(output, model=True)
    before = model_of(model, backbone, inputs=[examples])
    after = run(before, examples, names=clusters_of(name), forget=forget or (), config=ctx.obj)
    after.save(output, backbone=not without_backbone)
    findings = after.findings
    assert findings is not None
    log.info("%s: %s, %.1f %% called unknown", output, count(len(after.classes_), "class"), findings.unknown_share)
    for line in findings.sentences():
        log.info("  %s", line)
    if findings.clusters:
        log.info("  the clusters that remain have new numbers: look at them again before you name another")
    log.info("use it:  usfda predict %s PATH...", shlex.quote(str(output)))


def clusters_of(pairs: list[str] | None) -> dict[int, str]:
    """The names of clusters, from CLUSTER=CLASS."""
    names: dict[int, str] = {}
    for pair in pairs or []:
        number, sign, name = pair.partition("=")
        if not sign or not number.strip().isdecimal() or not name.strip():
            raise InputError(f"--name {pair}: give the number of a cluster and its class, as 3=giraffe")
        if int(number) in names:
            raise InputError(f"--name {pair}: cluster {int(number)} is named twice")
        names[int(number)] = name.strip()
    return names

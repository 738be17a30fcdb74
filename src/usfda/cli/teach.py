"""The command ``teach``."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from ..errors import InputError
from .arguments import BackboneFile, ModelIn, ModelOut, Signed, WithoutBackbone, model_of
from .output import check_output, missing_backbone, note, say

log = logging.getLogger("usfda")


def teach(
    ctx: typer.Context,
    model: ModelIn,
    output: ModelOut,
    examples: Annotated[
        str | None,
        typer.Argument(
            metavar="EXAMPLES",
            help="A folder with one folder per class, or a list with labels: one or a few images each.",
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--name", metavar="CLUSTER=CLASS", help="The name of a cluster of unknown samples; may be repeated."
        ),
    ] = None,
    forget: Annotated[
        list[str] | None,
        typer.Option(metavar="CLASS", help="A taught class to make unknown again; may be repeated."),
    ] = None,
    backbone: BackboneFile = None,
    without_backbone: WithoutBackbone = False,
    signed_by: Signed = None,
) -> None:
    """New classes for an adapted MODEL: name clusters of the unknown, or give a few labelled EXAMPLES.

    From then on they are classes like the others, also after `adapt --update`. EXAMPLES of a class that the model has
    help it to find more of it. The clusters that remain are numbered anew.

    Examples: `usfda teach client.usfda --name 3=giraffe --name 5=zebra -o taught.usfda` or
    `usfda teach client.usfda examples/ -o taught.usfda`; a file of another name is a way back
    """
    from ..stages.teach import teach as run
    from ..text import findings as of_findings
    from ..text import teaching as text

    check_output(model=output, source=model, inputs=[examples, backbone])
    before = model_of(model, backbone, signed_by, inputs=[examples])
    names = clusters_of(name)
    after = run(before, examples, names=names, forget=forget or (), config=ctx.obj)
    after.save(output, backbone=not without_backbone)
    findings = after.findings
    assert findings is not None
    say(text.result(str(output), len(after.classes_), findings))
    say(*(f"  {text.joins(number, known)}" for number, known in names.items() if known in before.classes_))
    say(of_findings.reliability(findings))
    note(*of_findings.details(findings))
    if findings.clusters:
        log.info(text.RENUMBERED)
    for step in text.next_steps(findings, str(output), missing_backbone(after, without_backbone)):
        say(f"{step.name + ':':<8} {step.command}")


def clusters_of(pairs: list[str] | None) -> dict[int, str]:
    """The names of clusters, from CLUSTER=CLASS."""
    names: dict[int, str] = {}
    for pair in pairs or []:
        number, sign, name = pair.partition("=")
        if not sign or not number.strip().isdecimal() or not name.strip():
            raise InputError(f"--name {pair}: give the number of a cluster and its class, as 3=giraffe")
        if name.strip() == "NAME":  # as the suggested command has it
            raise InputError(f"--name {pair}: replace NAME by what the cluster shows, as {int(number)}=giraffe")
        if int(number) in names:
            raise InputError(f"--name {pair}: cluster {int(number)} is named twice")
        names[int(number)] = name.strip()
    return names

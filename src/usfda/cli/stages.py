"""The commands of the two stages: `usfda procure` and `usfda adapt`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import InputError
from .arguments import (
    STRICT,
    Address,
    Backbone,
    BackboneFile,
    Classes,
    Engine,
    JsonOut,
    ModelOut,
    PlaceOfModel,
    Seed,
    Set,
    Signed,
    Track,
    WithoutBackbone,
    config_with,
    model_of,
    settings_of,
    share_of,
    tracker_of,
)
from .output import (
    check_output,
    missing_backbone,
    note,
    say,
    shown_places,
    write_json,
)

log = logging.getLogger("usfda")


def procure(
    ctx: typer.Context,
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A folder with one folder per class, a list, or features (.npz).")
    ],
    output: ModelOut,
    method: Annotated[
        str, typer.Option("--for", help="The method that the file is to serve: `mixture`, `usfda` or `all`.")
    ] = "mixture",
    classes: Classes = None,
    backbone: Backbone = "efficientnet_lite0",
    negatives: Annotated[
        str | None,
        typer.Option(help="For method `usfda`: `composite` (images; default), `latent`, `prior` (features; default)."),
    ] = None,
    private: Annotated[
        bool,
        typer.Option(
            "--private",
            help="Leak less about single images: for method `mixture`, with at least ten images per class.",
        ),
    ] = False,
    epsilon: Annotated[
        float | None,
        typer.Option(metavar="E", help="Private, with noise for this ε of differential privacy; new in every run."),
    ] = None,
    seed: Seed = 0,
    settings: Set = None,
    track: Track = None,
    without_backbone: WithoutBackbone = False,
    engine: Engine = "threads",
    address: Address = None,
) -> None:
    """Train and package a model at the vendor, from the labelled SOURCE.

    The file serves method `mixture`; `--for usfda` and `--for all` train the paper's networks, which takes longer and
    makes a larger file.

    Examples: `usfda procure photos/ -o vendor.usfda` or `usfda procure photos/ --for all -o vendor.usfda`
    """
    from ..methods.settings import ProcurementSettings
    from ..stages.procure import procure as run
    from ..text import procurement as text
    from ..text.commands import next_steps

    config = config_with(ctx.obj, engine, address)
    check_output(model=output, inputs=[source, classes, backbone])
    tracker = tracker_of(track)
    model = run(
        source,
        method=method,  # type: ignore[arg-type]
        classes=classes,
        backbone=backbone,
        negatives=negatives,  # type: ignore[arg-type]
        private=private,
        epsilon=epsilon,
        seed=seed,
        settings=settings_of(ProcurementSettings, settings),
        config=config,
    )
    model.save(output, backbone=not without_backbone)
    tracker(model)
    card = model.card["procurement"]
    say(text.result(str(output), card))
    note(*text.details(card))
    say(*text.leaks(card))
    for step in next_steps(None, str(output), "NEW-IMAGES", backbone=missing_backbone(model, without_backbone)):
        say(f"next: {step.command}")


def adapt(
    ctx: typer.Context,
    model: PlaceOfModel,
    target: Annotated[
        list[str],
        typer.Argument(metavar="TARGET", help="Images, folders, lists, features (.npz), `-`; no label is used."),
    ],
    output: ModelOut,
    classes: Classes = None,
    method: Annotated[
        str,
        typer.Option(help="`mixture`: ours, a mixture of known classes and unknown clusters; `usfda`: the paper's."),
    ] = "mixture",
    strictness: Annotated[
        float | None, typer.Option(min=0, max=1, help=f"{STRICT} [default: 0.5; with `--update`, as before]")
    ] = None,
    reject_at_most: Annotated[
        str | None,
        typer.Option(metavar="P", help="Call no more than this share of TARGET unknown, as `10%`, `10` or `0.1`."),
    ] = None,
    update: Annotated[
        bool, typer.Option("--update", help="Continue from a MODEL that was adapted before, with new images only.")
    ] = False,
    seed: Seed = 0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of the method; may be repeated.")
    ] = None,
    json_file: JsonOut = None,
    track: Track = None,
    report_file: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE", help="Write a report of TARGET, too: an HTML file to look at."),
    ] = None,
    backbone: BackboneFile = None,
    without_backbone: WithoutBackbone = False,
    signed_by: Signed = None,
    engine: Engine = "threads",
    address: Address = None,
) -> None:
    """Adapt MODEL to the unlabelled TARGET, at the client.

    Prints the share of unknown samples, how reliable the labels are expected to be, and the next step. A report
    (`--report`) has the details: clusters of unknown samples, classes that seem to be absent, every image.

    Example: `usfda adapt vendor.usfda new-photos/ -o client.usfda`

    More images, later: `usfda adapt client.usfda newer-photos/ --update -o newer.usfda`
    """
    from ..data.reading import read_several, read_target
    from ..methods.settings import MixtureSettings, UsfdaSettings
    from ..stages.adapt import adapt as run
    from ..stages.common import Clock
    from ..text import findings as text
    from ..text.commands import next_steps

    config = config_with(ctx.obj, engine, address)
    check_output(json_file, report_file, model=output, source=model, inputs=[*target, classes, backbone])
    tracker = tracker_of(track)
    ready = model_of(model, backbone, signed_by, inputs=target)
    if not ready.adapted and isinstance(output, Path) and output.exists() and output.samefile(str(model)):
        raise InputError(f"{output}: is the vendor's file, as it came; name another one for the adapted model")
    samples: Any = read_target(read_several(target), classes=classes)
    clock = Clock()
    if report_file is not None:  # the report takes the same features
        samples = ready.features(samples, config=config, text="target features")
    clock.lap("features")
    adapted = run(
        ready,
        samples,
        method=method,  # type: ignore[arg-type]
        strictness=strictness,
        reject_at_most=None if reject_at_most is None else share_of(reject_at_most, "--reject-at-most"),
        update=update,
        seed=seed,
        settings=settings_of(UsfdaSettings, settings) if method == "usfda" else settings_of(MixtureSettings, settings),
        config=config,
    )
    adapted.deployment["seconds"]["features"] += clock.seconds["features"]
    adapted.save(output, backbone=not without_backbone)
    tracker(adapted)
    findings = adapted.findings
    assert findings is not None
    shown = shown_places(target)
    needed = missing_backbone(adapted, without_backbone)
    say(text.result(str(output), findings), text.reliability(findings))
    done = {"look"} if report_file is not None else set()
    step = next(step for step in next_steps(findings, str(output), *shown, backbone=needed) if step.name not in done)
    say(f"next: {step.command}")
    note(*text.details(findings), *text.examples(findings), text.OF_TARGET)
    if findings.repeated:
        log.warning(text.REPEATED)
    if signed_by is not None:
        log.info(text.own_file(str(model), str(signed_by), str(output)))
    more = {"examples": adapted.examples, "reliability": findings.reliability, "sentences": text.describe(findings)}
    write_json(json_file, {**adapted.deployment, **more})
    if report_file is not None:
        from ..report.build import write_report

        write_report(adapted, samples, report_file, model_name=str(output), target_name=shown, config=config)
        say(f"{report_file}: open it in a browser")

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
    describe_adaptation,
    describe_parts,
    describe_training,
    missing_backbone,
    shown_places,
    write_json,
)

log = logging.getLogger("usfda")


def procure(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(help="A folder with one folder per class, a list, or features (.npz).")],
    output: ModelOut,
    method: Annotated[
        str, typer.Option("--for", help="The method that the file is to serve: `all`, `mixture` or `usfda`.")
    ] = "all",
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
    """The vendor's stage: learn the labelled SOURCE, and what is none of its classes.

    A file for one method alone is made faster and is smaller.

    Examples: `usfda procure photos/ -o vendor.usfda` or `usfda procure photos/ --for mixture -o vendor.usfda`
    """
    from ..methods.findings import named_counts, next_steps, privacy_sentence
    from ..methods.settings import ProcurementSettings
    from ..stages.procure import procure as run

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
    checked = card["validation"]
    log.info("%s: %d classes, %d samples", output, len(model.classes_), sum(card["classes"].values()))
    log.info("  %s%s", named_counts(card["classes"]), "" if epsilon is None else ", with noise")
    for line in describe_parts(card):
        log.info("  %s", line)
    if "negatives" in card:
        log.info("  {classes} negative classes, {kind}".format(**card["negatives"]))
        log.info("  networks: %s", describe_training(card["training"]))
    if checked["samples"]:
        log.info("  held-out source accuracy {accuracy:.1f} %, {rejected:.1f} % called unknown".format(**checked))
        log.info("  (of {samples} samples, with head {head}, from which the client starts)".format(**checked))
    log.info("  %s", privacy_sentence(card["privacy"]))
    if not card["privacy"]["private"] and method != "usfda":
        log.info("  (--private and --epsilon tell less about single images; docs/privacy.md)")
    elif card["privacy"]["private"]:
        more = "each further file of the same images adds its own ε" if epsilon else "--epsilon adds a proven bound"
        log.info("  (for method mixture alone, without networks; %s; docs/privacy.md)", more)
    for step in next_steps(None, str(output), "NEW-IMAGES", backbone=missing_backbone(model, without_backbone)):
        log.info("next:    %s", step.command)


def adapt(
    ctx: typer.Context,
    model: PlaceOfModel,
    target: Annotated[
        list[str],
        typer.Argument(metavar="TARGET...", help="Images, folders, lists, features (.npz), `-`; no label is used."),
    ],
    output: ModelOut,
    classes: Classes = None,
    method: Annotated[
        str, typer.Option(help="`mixture`: a mixture of known classes and unknown clusters; `usfda`: to the letter.")
    ] = "mixture",
    strictness: Annotated[
        float | None, typer.Option(min=0, max=1, help=f"{STRICT} [default: 0.5; with `--update`, as before]")
    ] = None,
    reject_at_most: Annotated[
        str | None,
        typer.Option(metavar="P", help="Call no more than this share of TARGET unknown, as `10%`, `10` or `0.1`."),
    ] = None,
    update: Annotated[
        bool, typer.Option("--update", help="Go on from a MODEL that was adapted before, with new images only.")
    ] = False,
    seed: Seed = 0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the method, as KEY=VALUE; may be repeated.")
    ] = None,
    json_file: JsonOut = None,
    track: Track = None,
    report_file: Annotated[
        Path | None, typer.Option("--report", help="Write a report of TARGET, too: an HTML file to look at.")
    ] = None,
    backbone: BackboneFile = None,
    without_backbone: WithoutBackbone = False,
    signed_by: Signed = None,
    engine: Engine = "threads",
    address: Address = None,
) -> None:
    """The client's stage: adapt MODEL to the unlabelled TARGET.

    Says how much looks unknown, whether the result looks better than the source model, which classes seem absent, and
    which samples are typical of each cluster of unknown ones.

    Example: `usfda adapt vendor.usfda new-photos/ -o client.usfda`

    More images, later: `usfda adapt client.usfda newer-photos/ --update -o newer.usfda`
    """
    from ..data.reading import read_several, read_target
    from ..methods.settings import MixtureSettings, UsfdaSettings
    from ..stages.adapt import adapt as run
    from ..stages.common import Clock

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
    for line in describe_adaptation(findings, str(output), shown, report_file is not None, needed):
        log.info("%s", line)
    if findings.repeated:
        log.warning("leave out the images that were adapted to before, and update %s again", model)
    if signed_by is not None:
        log.info("  %s is signed with %s; %s is a file of your own, without a signature", model, signed_by, output)
    write_json(json_file, {**adapted.deployment, "examples": adapted.examples, "sentences": findings.sentences()})
    if report_file is not None:
        from ..report.build import write_report

        write_report(adapted, samples, report_file, model_name=str(output), target_name=shown, config=config)
        log.info("%s: open it in a browser", report_file)

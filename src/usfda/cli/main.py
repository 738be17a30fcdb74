"""The commands. Results go to stdout, everything else to stderr."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.table import Table

from .. import config as configuration
from ..errors import InputError
from .arguments import (
    STRICT,
    Backbone,
    BackboneFile,
    Classes,
    JsonOut,
    ModelIn,
    ModelOut,
    Seed,
    Set,
    WithoutBackbone,
    globals_first,
    load_model,
    pairs_of,
    settings_of,
    share_of,
)
from .experiments import compare, reproduce
from .export import export
from .output import (
    Messages,
    check_output,
    console,
    describe_adaptation,
    describe_model,
    describe_parts,
    describe_training,
    out,
    printable,
    progress_bar,
    text_writer,
    write_json,
    write_predictions,
)

if TYPE_CHECKING:
    from ..model import Prediction

app = typer.Typer(
    help="Procure a model where the labels are, adapt it where the images are: it labels what it knows and says "
    "*unknown* to the rest.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
cache_app = typer.Typer(help="Show or clear the feature store.", no_args_is_help=True)
app.add_typer(cache_app, name="cache")
log = logging.getLogger("usfda")

INTERRUPTED = "interrupted; features and runs so far are kept, and the next call goes on from there"
FORMATS = {".csv": "csv", ".jsonl": "jsonl", ".txt": "table"}  # of predictions, by the suffix of their file


@app.callback()
def options(
    ctx: typer.Context,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads for decoding, the backbone and training; all cores by default.")
    ] = None,
    cache: Annotated[Path | None, typer.Option(help="Folder of the feature store (or `USFDA_CACHE`).")] = None,
    device: Annotated[str, typer.Option(help="Where networks run: `auto`, `cpu` or `cuda`.")] = "auto",
    verbose: Annotated[bool, typer.Option("--verbose", help="Say more; add the trace to an error.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress, no notes; warnings and results only.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """The global options, which become the configuration that is passed down."""
    ctx.obj = configuration.Config(
        threads or configuration.available_cores(),
        cache or configuration.default_cache(),
        configuration.silent if quiet else progress_bar,
        cast(configuration.Device, device),
    )
    logging.basicConfig(level=logging.WARNING, handlers=[Messages()], force=True)
    log.setLevel(logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO)
    if not verbose:
        warnings.simplefilter("ignore")  # of libraries; ours go through logging


@app.command(no_args_is_help=True)
def procure(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(help="A folder with one folder per class, a list, or features (.npz).")],
    output: ModelOut,
    method: Annotated[
        str, typer.Option("--for", help="The method that the file is to serve: `all`, `usfda` or `paper`.")
    ] = "all",
    classes: Classes = None,
    backbone: Backbone = "efficientnet_lite0",
    negatives: Annotated[
        str | None,
        typer.Option(help="For method `paper`: `composite` (images; default), `latent`, `prior` (features; default)."),
    ] = None,
    seed: Seed = 0,
    settings: Set = None,
    without_backbone: WithoutBackbone = False,
) -> None:
    """The vendor's stage: learn the labelled SOURCE, and what is none of its classes.

    A file for one method alone is made faster and is smaller.

    Examples: `usfda procure photos/ -o vendor.usfda` or `usfda procure photos/ --for usfda -o vendor.usfda`
    """
    from ..methods.procurement import ProcurementSettings
    from ..stages.procure import procure as run

    check_output(output)
    model = run(
        source,
        method=method,  # type: ignore[arg-type]
        classes=classes,
        backbone=backbone,
        negatives=negatives,  # type: ignore[arg-type]
        seed=seed,
        settings=settings_of(ProcurementSettings, settings),
        config=ctx.obj,
    )
    model.save(output, backbone=not without_backbone)
    card = model.card["procurement"]
    checked = card["validation"]
    log.info("%s: %d classes, %d samples", output, len(model.classes_), sum(card["classes"].values()))
    for line in describe_parts(card):
        log.info("  %s", line)
    if "negatives" in card:
        log.info("  {classes} negative classes, {kind}".format(**card["negatives"]))
        log.info("  networks: %s", describe_training(card["training"]))
    if checked["samples"]:
        log.info("  held-out source accuracy {accuracy:.1f} %, {rejected:.1f} % called unknown".format(**checked))
        log.info("  (of {samples} samples, with head {head}, from which the client starts)".format(**checked))


@app.command(no_args_is_help=True)
def adapt(
    ctx: typer.Context,
    model: ModelIn,
    target: Annotated[str, typer.Argument(help="Any folder or list of images, or features (.npz); no label is used.")],
    output: ModelOut,
    classes: Classes = None,
    method: Annotated[
        str, typer.Option(help="`usfda`: a mixture of known classes and unknown clusters; `paper`: to the letter.")
    ] = "usfda",
    strictness: Annotated[
        float | None, typer.Option(min=0, max=1, help=f"{STRICT} [default: 0.5; with `--update`, as before]")
    ] = None,
    reject_at_most: Annotated[
        str | None,
        typer.Option(metavar="P", help="Call no more than this share of TARGET unknown, as `10%` or `0.1`."),
    ] = None,
    update: Annotated[
        bool, typer.Option("--update", help="Go on from a MODEL that was adapted before, with further images.")
    ] = False,
    seed: Seed = 0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the method, as KEY=VALUE; may be repeated.")
    ] = None,
    json_file: JsonOut = None,
    backbone: BackboneFile = None,
    without_backbone: WithoutBackbone = False,
) -> None:
    """The client's stage: adapt MODEL to the unlabelled TARGET.

    Says how much looks unknown, whether the result looks better than the source model, which classes seem absent, and
    which samples are typical of each cluster of unknown ones.

    Example: `usfda adapt vendor.usfda new-photos/ -o client.usfda`

    More images, later: `usfda adapt client.usfda newer-photos/ --update -o client.usfda`
    """
    from ..methods.groups import UsfdaSettings
    from ..methods.paper import PaperSettings
    from ..stages.adapt import adapt as run

    check_output(output, json_file)
    adapted = run(
        load_model(model, backbone),
        target,
        classes=classes,
        method=method,  # type: ignore[arg-type]
        strictness=strictness,
        reject_at_most=None if reject_at_most is None else share_of(reject_at_most, "--reject-at-most"),
        update=update,
        seed=seed,
        settings=settings_of(PaperSettings, settings) if method == "paper" else settings_of(UsfdaSettings, settings),
        config=ctx.obj,
    )
    adapted.save(output, backbone=not without_backbone)
    findings = adapted.findings
    assert findings is not None
    for line in describe_adaptation(findings, str(output), target):
        log.info("%s", line)
    card = adapted.card["deployment"]
    write_json(json_file, card | {"examples": adapted.examples})


@app.command(no_args_is_help=True)
def predict(
    ctx: typer.Context,
    model: ModelIn,
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Images, folders, lists, features (.npz).")],
    form: Annotated[str | None, typer.Option("--format", help="`table`, `csv` or `jsonl`.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="A .csv, .jsonl or .txt (table) file.")] = None,
    strictness: Annotated[
        float | None, typer.Option(min=0, max=1, help=STRICT + " Default: as the model was adapted.")
    ] = None,
    no_store: Annotated[bool, typer.Option("--no-store", help="Neither read nor write the feature store.")] = False,
    backbone: BackboneFile = None,
) -> None:
    """A label or *unknown* for every image.

    Beside it: its score (1: known, 0: unknown), its SSM (the paper's source similarity metric, from 1 to 2.72), the
    three best classes, and the cluster of an unknown one.

    Examples: `usfda predict client.usfda holiday.jpg` or `usfda predict client.usfda photos/ -o labels.csv`
    """
    from ..data.reading import read

    config: configuration.Config = ctx.obj
    form = form or ("table" if output is None else FORMATS.get(output.suffix.lower(), output.suffix))
    if form not in FORMATS.values():
        raise InputError(f"no format {form!r}; choose from {', '.join(sorted(FORMATS.values()))}")
    ready = load_model(model, backbone)
    wanted = [read(path) for path in paths]
    if no_store:
        config = replace(config, cache=None)
    if output is None and sys.stdout.isatty():
        config = replace(config, progress=configuration.silent)  # the bar and the table would write over each other
    counts: Counter[str] = Counter()

    def records() -> Iterable[Prediction]:
        for samples in wanted:
            for record in ready.predictions(samples, strictness, config=config):
                counts[record.label] += 1
                yield record

    with text_writer(output) as file:
        write_predictions(records(), form, file)
        if not counts:
            raise InputError("none of the images can be read")
    if output:
        log.info("%s: %d samples, %d unknown", output, counts.total(), counts["unknown"])


@app.command(no_args_is_help=True)
def evaluate(
    ctx: typer.Context,
    model: ModelIn,
    labelled: Annotated[
        str, typer.Argument(help="A folder with one folder per class, a list with labels, or features.")
    ],
    classes: Classes = None,
    rename: Annotated[
        Path | None, typer.Option(help="CSV or JSON: class name in LABELLED, class name in MODEL.")
    ] = None,
    json_file: JsonOut = None,
    backbone: BackboneFile = None,
) -> None:
    """All metrics of MODEL on LABELLED; a class that the model does not have counts as unknown.

    Example: `usfda evaluate client.usfda labelled-photos/ --json result.json`
    """
    from ..metrics import evaluate as run

    check_output(json_file)
    result = run(load_model(model, backbone), labelled, classes=classes, rename=pairs_of(rename), config=ctx.obj)
    table = Table(box=None, show_header=False)
    texts = {
        "t_avg": "mean accuracy over shared classes and unknown",
        "t_unk": "private samples called unknown",
        "h_score": "harmonic mean of shared accuracy and t_unk",
        "shared_accuracy": "mean accuracy over shared classes",
        "closed_accuracy": "the same with rejection switched off",
        "auroc": "known against unknown, by score",
        "ece": "calibration error of the score",
        "unknown_share": "samples called unknown",
    }
    for key, text in texts.items():
        table.add_row(key, "–" if result[key] is None else f"{result[key]:.1f}", text)
    table.add_row("samples", str(result["samples"]))
    write_json(json_file, result)
    out.print(table)


@app.command(no_args_is_help=True)
def inspect(
    model: ModelIn,
    as_json: Annotated[bool, typer.Option("--json", help="The whole card, as JSON.")] = False,
) -> None:
    """The card of MODEL, and what its file contains.

    Example: `usfda inspect client.usfda`
    """
    from ..modelfile import member_sizes

    ready = load_model(model, None)
    size = member_sizes(model)
    if as_json:
        card = {"classes": ready.classes_, "head": ready.head.name, **ready.card, "contents": size}
        print(json.dumps(card, indent=1, ensure_ascii=False))
        return
    for key, text in describe_model(ready):
        out.print(f"{key:<16} {text}")
    out.print(f"{'file':<16} {', '.join(f'{name} {n / 1e6:.1f} MB' for name, n in size.items())}")


app.command(no_args_is_help=True)(export)
app.command(no_args_is_help=True)(compare)
app.command(no_args_is_help=True)(reproduce)


@app.command()
def demo(
    ctx: typer.Context,
    folder: Annotated[
        Path, typer.Option("-o", "--output", "--out", help="Where images, models and the report go.")
    ] = Path("demo-out"),
) -> None:
    """The whole story on handwritten digits of two sources, with a report; about a minute, no download.

    Example: `usfda demo --out demo-out`
    """
    try:
        from ..experiments.digits import run
    except ImportError as error:
        raise InputError(f"the demo needs {error.name}; pip install 'usfda[demo]'") from None

    run(folder, out, ctx.obj)


@cache_app.command("info")
def cache_info(ctx: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """The folder and the size of the feature store.

    Example: `usfda cache info --json`
    """
    from ..features.store import store_info

    info = store_info(ctx.obj.cache)
    if as_json:
        print(json.dumps(info, indent=1))
        return
    out.print(f"{info['folder']}: {info['bytes'] / 1e6:.1f} MB")
    for name, store in info["stores"].items():
        out.print(f"  backbone {name[:12]}: {store['vectors']} vectors, {store['bytes'] / 1e6:.1f} MB")
    if info["models"]["count"]:
        out.print(f"  vendors' models: {info['models']['count']}, {info['models']['bytes'] / 1e6:.1f} MB")


@cache_app.command("clear")
def cache_clear(ctx: typer.Context) -> None:
    """Remove all stored features and models of experiments; they are computed again when they are needed.

    Example: `usfda cache clear`
    """
    from ..features.store import clear_store, store_info

    size = store_info(ctx.obj.cache)["bytes"]
    clear_store(ctx.obj.cache)
    log.info("cleared %.1f MB", size / 1e6)


def main(args: Sequence[str] | None = None) -> int:
    """Run a command. Exit codes: 0 done, 1 the work failed, 2 the call or the input was wrong. An error is one line."""
    # Before torch is loaded: its threads then sleep while they wait for each other. Spinning makes a step of these
    # small networks many times slower as soon as another process wants a core (measured: 630 against 80 ms).
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    args = globals_first(sys.argv[1:] if args is None else args)
    if "--version" in args:
        from .. import __version__

        print(f"usfda {__version__}")
        return 0
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for a terminal that lacks a character
    try:
        result = app(args=args, standalone_mode=False)
        return _fail(INTERRUPTED, 1) if result == 130 else 0
    except (KeyboardInterrupt, typer.Abort):
        return _fail(INTERRUPTED, 1)
    except SystemExit:  # typer and rich end so when the reader of a pipe has left, which is no failure
        return 0
    except Exception as error:
        if "--verbose" in args:
            console.print_exception()
        if callable(say := getattr(error, "format_message", None)):  # the parser's own errors
            return _fail(say(), getattr(error, "exit_code", 2))
        if isinstance(error, InputError):
            return _fail(str(error), 2)
        return _fail(f"{type(error).__name__}: {error}", 1)


def _fail(text: str, code: int) -> int:
    if text.strip():  # the help of a call without arguments has been printed already
        line = printable(" ".join(text.split()))
        console.print("error:", line, style="red", markup=False, highlight=False, soft_wrap=True)
    return code

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
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console

from .. import config as configuration
from ..errors import InputError
from ..files import sha256_of
from ..memory import check_room, room_to_load
from ..text.words import count
from ..urls import place_of
from .arguments import (
    Address,
    BackboneFile,
    Classes,
    Engine,
    JsonOut,
    ModelIn,
    PlaceOfModel,
    Signed,
    Strictness,
    config_with,
    globals_first,
    model_of,
    pairs_of,
)
from .ending import INTERRUPTED, explain
from .experiments import compare, reproduce
from .export import export
from .help import PlainCommand, PlainGroup
from .output import (
    Messages,
    check_output,
    console,
    missing_backbone,
    out,
    printable,
    progress_bar,
    say,
    write_json,
    write_predictions,
    writer_of,
)
from .report import report
from .review import review
from .serve import serve
from .sign import sign, verify
from .stages import adapt, procure
from .teach import teach

if TYPE_CHECKING:
    from ..data.samples import Unread
    from ..model import Prediction

app = typer.Typer(
    cls=PlainGroup,
    help="Train a model where the labels are, adapt it where the images are: it labels images of known classes and "
    "calls the others *unknown*.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
cache_app = typer.Typer(cls=PlainGroup, help="Show or clear the feature cache.", no_args_is_help=True)
app.add_typer(cache_app, name="cache")
log = logging.getLogger("usfda")

# Of predictions, by the suffix of their file.
FORMATS = {".csv": "csv", ".jsonl": "jsonl", ".parquet": "parquet", ".txt": "table"}


@app.callback()
def options(
    ctx: typer.Context,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads for decoding, the backbone and training; all cores by default.")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the feature cache (or `USFDA_CACHE`).")
    ] = None,
    device: Annotated[str, typer.Option(help="Where networks run: `auto`, `cpu` or `cuda`.")] = "auto",
    verbose: Annotated[bool, typer.Option("--verbose", help="Show details; add the trace to an error.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show results and warnings only.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """The global options, which become the configuration that is passed down."""
    check_room(room_to_load(configuration.available_cores()))
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


app.command(cls=PlainCommand, no_args_is_help=True)(procure)
app.command(cls=PlainCommand, no_args_is_help=True)(adapt)


@app.command(cls=PlainCommand, no_args_is_help=True)
def predict(
    ctx: typer.Context,
    model: PlaceOfModel,
    paths: Annotated[list[str], typer.Argument(metavar="PATH", help="Images, folders, lists, features (.npz).")],
    form: Annotated[str | None, typer.Option("--format", help="`table`, `csv`, `jsonl` or `parquet`.")] = None,
    output: Annotated[
        Any,
        typer.Option(
            "-o", "--output", metavar="FILE", parser=place_of, help="A .csv, .jsonl, .parquet or .txt (table) file."
        ),
    ] = None,
    strictness: Strictness = None,
    formulas: Annotated[
        bool, typer.Option("--formulas", help="In CSV, keep names that begin with = + - or @, which spreadsheets run.")
    ] = False,
    no_store: Annotated[bool, typer.Option("--no-store", help="Neither read nor write the feature cache.")] = False,
    backbone: BackboneFile = None,
    signed_by: Signed = None,
    engine: Engine = "threads",
    address: Address = None,
) -> None:
    """A label or *unknown* for every image.

    Also its score (the confidence that its class is known, from 0 to 1; images below the threshold are unknown), its
    ssm (the paper's source similarity metric, from 1, like no source class, to 2.72; if the file has networks), the
    three best classes with their shares (among the classes, without unknown), and the cluster of an unknown image. An
    image that cannot be read has the reason instead.

    Examples: `usfda predict client.usfda holiday.jpg` or `usfda predict client.usfda photos/ -o labels.csv`
    """
    from ..data.reading import read_several
    from ..model import Prediction
    from ..text.predictions import not_adapted

    config = config_with(ctx.obj, engine, address)
    by_name = None if output is None else FORMATS.get(output.suffix.lower())
    form = form or ("table" if output is None else by_name)
    if form is None:
        raise InputError(f"{output}: name a .csv, .jsonl, .parquet or .txt file, or give --format")
    if form not in FORMATS.values():
        raise InputError(f"no format {form!r}; choose from {', '.join(sorted(FORMATS.values()))}")
    if by_name not in (None, form):
        raise InputError(f"--format {form} does not go with {output}, whose name stands for {by_name}; leave one out")
    if form == "parquet" and output is None:
        raise InputError("--format parquet is for a file; name one with -o")
    check_output(output, source=model, inputs=[*paths, backbone])
    ready = model_of(model, backbone, signed_by, inputs=paths)
    wanted = read_several(paths)
    if no_store:
        config = replace(config, cache=None)
    if output is None and sys.stdout.isatty():
        config = replace(config, progress=configuration.silent)  # the bar and the table would write over each other
    counts: Counter[str] = Counter()

    def records() -> Iterable[Prediction | Unread]:
        for record in ready.records(wanted, strictness, config):
            if isinstance(record, Prediction):
                counts[record.label] += 1
            yield record

    with writer_of(output, binary=form == "parquet") as file:
        write_predictions(records(), form, file, formulas=formulas)
        if not counts:
            raise InputError("none of the images can be read")
    if output:
        say(f"{output}: {count(counts.total(), 'sample')}, {counts['unknown']} unknown")
    if not ready.adapted:
        log.info(not_adapted(str(model)))


@app.command(cls=PlainCommand, no_args_is_help=True)
def evaluate(
    ctx: typer.Context,
    model: ModelIn,
    labelled: Annotated[
        str,
        typer.Argument(metavar="LABELLED", help="A folder with one folder per class, a list with labels, or features."),
    ],
    classes: Classes = None,
    rename: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="CSV or JSON: class name in LABELLED, class name in MODEL."),
    ] = None,
    strictness: Strictness = None,
    json_file: JsonOut = None,
    backbone: BackboneFile = None,
    signed_by: Signed = None,
) -> None:
    """All metrics of MODEL on LABELLED, next to those of the class means and of the source network.

    These two are not adapted; a file has the source network if it was procured for method `usfda` or `all`. A class
    that the model does not have counts as unknown; the command lists these classes.

    Example: `usfda evaluate client.usfda labelled-photos/ --json result.json`
    """
    from ..metrics import evaluate as run
    from ..text import evaluation as text

    check_output(json_file, source=model, inputs=[labelled, classes, rename, backbone])
    ready = model_of(model, backbone, signed_by, inputs=[labelled])
    result = run(ready, labelled, classes=classes, rename=pairs_of(rename), strictness=strictness, config=ctx.obj)
    write_json(json_file, result)
    say(*text.table(result, adapted=ready.adapted), *text.details(result))
    for line in text.legend():
        log.info("  %s", line)
    if taught := ready.classes_[len(ready.source_classes) :]:
        say(text.taught(taught))
    if not result["shared_classes"]:
        log.warning(text.nothing_shared(labelled))
    for name, other in result["suspects"].items():
        log.warning(text.suspect(name, other))


@app.command(cls=PlainCommand, no_args_is_help=True)
def inspect(
    model: ModelIn,
    as_json: Annotated[bool, typer.Option("--json", help="The whole card, as JSON.")] = False,
    card_file: Annotated[
        Path | None, typer.Option("--card", metavar="README.md", help="Write it as a page for model hubs.")
    ] = None,
) -> None:
    """The card of MODEL, the contents of its file, and the next commands.

    Examples: `usfda inspect client.usfda` or `usfda inspect client.usfda --card README.md`
    """
    from ..modelcard import model_file
    from ..modelfile import file_format, member_sizes
    from ..signing import signature_of
    from ..text import model as text
    from ..text.commands import next_steps

    check_output(card_file, source=model)
    ready = model_of(model, None)
    if card_file is not None:
        with writer_of(card_file, binary=False) as page:
            page.write(ready.page())
        return
    file = model_file(model)
    number, size, sha256 = file_format(file), member_sizes(file), sha256_of(file)
    if as_json:
        card = {"format": number, "classes": ready.classes_, "head": ready.head.name, **ready.card}
        hashes = {"sha256": sha256, "vendor_sha256": ready.vendor_sha256}
        print(json.dumps(card | {"contents": size} | hashes, indent=1, ensure_ascii=False))
        return
    signature, missing = signature_of(file), missing_backbone(ready)
    named = signature.name if signature.is_file() else None
    graph = ready.backbone is not None
    lines = [
        *text.of_card(ready.classes_, ready.head.name, ready.dim, ready.card, ready.findings, complete=missing is None),
        *text.of_file(number, size, sha256, ready.vendor_sha256, named, graph=graph),
        *((step.name, step.command) for step in next_steps(ready.findings, str(model), "NEW-IMAGES", backbone=missing)),
    ]
    say(*(f"{key:<16} {value}" for key, value in lines))


app.command(cls=PlainCommand, no_args_is_help=True)(review)
app.command(cls=PlainCommand, no_args_is_help=True)(teach)
app.command(cls=PlainCommand, no_args_is_help=True)(report)
app.command(cls=PlainCommand, no_args_is_help=True)(export)
app.command(cls=PlainCommand, no_args_is_help=True)(compare)
app.command(cls=PlainCommand, no_args_is_help=True)(reproduce)
app.command(cls=PlainCommand, no_args_is_help=True)(serve)
app.command(cls=PlainCommand, no_args_is_help=True)(sign)
app.command(cls=PlainCommand, no_args_is_help=True)(verify)


@app.command(cls=PlainCommand)
def demo(
    ctx: typer.Context,
    folder: Annotated[
        Path, typer.Option("-o", "--output", "--out", metavar="DIR", help="Folder for images, models and the report.")
    ] = Path("demo-out"),
) -> None:
    """All steps on handwritten digits of two sources, with a report; a minute, no download (`usfda[demo]`).

    Example: `usfda demo --out demo-out`
    """
    try:
        from ..experiments.digits import run
    except ImportError as error:
        raise InputError(f"the demo needs {error.name}; pip install 'usfda[demo]'") from None

    run(folder, out, ctx.obj)


@cache_app.command("info", cls=PlainCommand)
def cache_info(ctx: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """The folder and the size of the feature cache.

    Example: `usfda cache info --json`
    """
    from ..features.cache import cache_info

    info = cache_info(ctx.obj.cache)
    if as_json:
        print(json.dumps(info, indent=1))
        return
    out.print(f"{info['folder']}: {info['bytes'] / 1e6:.1f} MB")
    for name, cache in info["caches"].items():
        out.print(f"  backbone {name[:12]}: {cache['vectors']} vectors, {cache['bytes'] / 1e6:.1f} MB")
    if info["models"]["count"]:
        out.print(f"  vendors' models: {info['models']['count']}, {info['models']['bytes'] / 1e6:.1f} MB")


@cache_app.command("clear", cls=PlainCommand)
def cache_clear(ctx: typer.Context) -> None:
    """Remove all stored features and models of experiments; they are computed again when they are needed.

    Example: `usfda cache clear`
    """
    from ..features.cache import cache_info, clear_cache

    size = cache_info(ctx.obj.cache)["bytes"]
    clear_cache(ctx.obj.cache)
    log.info("cleared %.1f MB", size / 1e6)


def main(args: Sequence[str] | None = None) -> int:
    """Run a command. An error is one line.

    Exit codes: 0 done, 1 the work failed, 2 the call or the input was wrong, 130 it was interrupted.
    """
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
        return _fail(INTERRUPTED, 130) if result == 130 else 0
    except (KeyboardInterrupt, typer.Abort):
        return _fail(INTERRUPTED, 130)
    except SystemExit:  # typer and rich end so when the reader of a pipe has left, which is no failure
        return 0
    except Exception as error:
        if "--verbose" in args:
            console.print_exception()
        if callable(say := getattr(error, "format_message", None)):  # the parser's own errors
            return _fail(say(), getattr(error, "exit_code", 2))
        if isinstance(error, InputError):
            return _fail(str(error), 2)
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            return _fail("this needs PyTorch, which is not installed: pip install torch", 2)
        return _fail(explain(error), 1)


def _fail(text: str, code: int) -> int:
    if text.strip():  # the help of a call without arguments has been printed already
        line = printable(" ".join(text.split()))
        # One of its own: an interrupt within a print may leave the other console holding back all that follows.
        last = Console(stderr=True, emoji=False)
        last.print("error:", line, style="red", markup=False, highlight=False, soft_wrap=True)
    return code

"""The commands; each a few lines over the public names. Results go to stdout, everything else to stderr."""

from __future__ import annotations

import io
import json
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

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
    rename_of,
    settings_of,
)
from .experiments.commands import compare, reproduce
from .output import check_output, describe_model, out, write_json, write_predictions, writer_to
from .runtime import InputError, console, runtime

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


@app.callback()
def options(
    threads: Annotated[int, typer.Option(min=1, help="Threads for decoding, M and training.")] = runtime.threads,
    cache: Annotated[Path | None, typer.Option(help="Place of the feature store (or `USFDA_CACHE`).")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Say more; add the trace to an error.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress, no notes; warnings and results only.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    runtime.threads, runtime.cache, runtime.progress = threads, cache or runtime.cache, not quiet
    level = logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO
    logging.basicConfig(level=logging.WARNING, handlers=[_Messages()], force=True)
    log.setLevel(level)
    if not verbose:
        warnings.simplefilter("ignore")  # of libraries; ours go through logging


class _Messages(logging.Handler):
    """One line a message on stderr, above a progress bar, never folded."""

    def emit(self, record: logging.LogRecord) -> None:
        warned = record.levelno >= logging.WARNING
        text = f"warning: {record.getMessage()}" if warned else record.getMessage()
        console.print(text, style="yellow" if warned else "", markup=False, highlight=False, soft_wrap=True)


@app.command(no_args_is_help=True)
def procure(
    source: Annotated[str, typer.Argument(help="A folder with one folder a class, a list, or features (.npz).")],
    output: ModelOut,
    classes: Classes = None,
    backbone: Backbone = "efficientnet_lite0",
    negatives: Annotated[
        str | None, typer.Option(help="`composite` (images; default), `latent` or `prior` (default for features).")
    ] = None,
    seed: Seed = 0,
    settings: Set = None,
    without_backbone: WithoutBackbone = False,
) -> None:
    """The vendor's stage: learn the labelled SOURCE, and what is none of its classes.

    Example: `usfda procure photos/ -o vendor.usfda`
    """
    from .procurement import ProcurementSettings
    from .procurement import procure as run

    check_output(output)
    model = run(
        source,
        classes=classes,
        backbone=backbone,
        negatives=negatives,  # type: ignore[arg-type]
        seed=seed,
        settings=settings_of(ProcurementSettings, settings),
    )
    model.save(output, backbone=not without_backbone)
    card = model.card["procurement"]
    checked = card["validation"]
    _note(
        f"{output}: {len(model.classes_)} classes, {sum(card['classes'].values())} samples, "
        f"{card['negatives']['classes']} negative classes"
    )
    if checked["samples"]:
        _note(f"held-out source accuracy {checked['accuracy']:.1f} % ({checked['samples']} samples)")


@app.command(no_args_is_help=True)
def adapt(
    model: ModelIn,
    target: Annotated[str, typer.Argument(help="Any folder or list of images, or features (.npz); no label is used.")],
    output: ModelOut,
    classes: Classes = None,
    method: Annotated[
        str, typer.Option(help="`usfda`: a mixture of known classes and unknown clusters; `paper`: to the letter.")
    ] = "usfda",
    strictness: Annotated[float, typer.Option(min=0, max=1, help=STRICT)] = 0.5,
    seed: Seed = 0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of method `paper`, as KEY=VALUE; may be repeated.")
    ] = None,
    json_file: JsonOut = None,
    backbone: BackboneFile = None,
    without_backbone: WithoutBackbone = False,
) -> None:
    """The client's stage: adapt MODEL to the unlabelled TARGET.

    Says how much looks unknown, whether the result looks better than the source model, which classes seem absent, and
    which samples are typical of each cluster of unknown ones.

    Example: `usfda adapt vendor.usfda new-photos/ -o client.usfda`
    """
    from .checks import describe
    from .deployment import DeploymentSettings
    from .deployment import adapt as run

    check_output(output, json_file)
    adapted = run(
        _load(model, backbone),
        target,
        classes=classes,
        method=method,
        strictness=strictness,
        seed=seed,
        settings=settings_of(DeploymentSettings, settings) if settings else None,
    )
    adapted.save(output, backbone=not without_backbone)
    card = adapted.card["deployment"]
    _note(f"{output}: adapted to {card['samples']} samples, {card['unknown_share']:.1f} % of them called unknown")
    for line in describe(card):
        _note(f"  {line}")
    for cluster, names in adapted.examples.items():
        shown = ", ".join(str(Path(*Path(name).parts[-2:])) for name in names)
        _note(f"  cluster {cluster}, for example: {shown}")
    write_json(json_file, card | {"examples": adapted.examples})


@app.command(no_args_is_help=True)
def predict(
    model: ModelIn,
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Images, folders, lists, features (.npz).")],
    form: Annotated[str | None, typer.Option("--format", help="`table`, `csv` or `jsonl`.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="A .csv, .jsonl or .txt (table) file.")] = None,
    strictness: Annotated[
        float | None, typer.Option(min=0, max=1, help=STRICT + " Default: as the model was adapted.")
    ] = None,
    backbone: BackboneFile = None,
) -> None:
    """A label or *unknown* for every image, its score (1: known, 0: unknown), its SSM, the three best classes, and the
    cluster of an unknown one.

    Example: `usfda predict client.usfda holiday.jpg` or `usfda predict client.usfda photos/ -o labels.csv`
    """
    from .data import read
    from .model import Prediction

    suffixes = {".csv": "csv", ".jsonl": "jsonl", ".txt": "table"}
    form = form or ("table" if output is None else suffixes.get(output.suffix.lower(), output.suffix))
    if form not in suffixes.values():
        raise InputError(f"--format is table, csv or jsonl, not {form!r}")
    ready = _load(model, backbone)
    wanted = [read(path) for path in paths]
    if output is None and sys.stdout.isatty():
        runtime.progress = False  # the bar and the table would write over each other
    counts: Counter[str] = Counter()

    def records() -> Iterable[Prediction]:
        for samples in wanted:
            for record in ready.predictions(samples, strictness):
                counts[record.label] += 1
                yield record

    with writer_to(output) as file:
        write_predictions(records(), form, file)
        if not counts:
            raise InputError("none of the images can be read")
    if output:
        _note(f"{output}: {counts.total()} samples, {counts['unknown']} unknown")


@app.command(no_args_is_help=True)
def evaluate(
    model: ModelIn,
    labelled: Annotated[str, typer.Argument(help="A folder with one folder a class, a list with labels, or features.")],
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
    from .metrics import evaluate as run

    check_output(json_file)
    result = run(_load(model, backbone), labelled, classes=classes, rename=rename_of(rename))
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
    from .model import contents

    ready = _load(model, None)
    size = contents(model)
    if as_json:
        print(json.dumps({"classes": ready.classes_, **ready.card, "contents": size}, indent=1, ensure_ascii=False))
        return
    for key, text in describe_model(ready):
        out.print(f"{key:<16} {text}")
    out.print(f"{'file':<16} {', '.join(f'{name} {n / 1e6:.1f} MB' for name, n in size.items())}")


app.command(no_args_is_help=True)(compare)
app.command(no_args_is_help=True)(reproduce)


@app.command()
def demo(
    folder: Annotated[Path, typer.Option("--out", help="Where images, models and the report go.")] = Path("demo-out"),
) -> None:
    """The whole story on handwritten digits of two sources, with a report; about a minute, no download.

    Example: `usfda demo --out demo-out`
    """
    try:
        from .digits import run
    except ImportError as error:
        raise InputError(f"the demo needs {error.name}; pip install 'usfda[demo]'") from None

    run(folder, out)


@cache_app.command("info")
def cache_info(as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """Place and size of the feature store.

    Example: `usfda cache info --json`
    """
    from .features import store_info

    info = store_info()
    if as_json:
        print(json.dumps(info, indent=1))
        return
    out.print(f"{info['folder']}: {info['bytes'] / 1e6:.1f} MB")
    for name, store in info["stores"].items():
        out.print(f"  backbone {name[:12]}: {store['vectors']} vectors, {store['bytes'] / 1e6:.1f} MB")
    if info["models"]["count"]:
        out.print(f"  vendors' models: {info['models']['count']}, {info['models']['bytes'] / 1e6:.1f} MB")


@cache_app.command("clear")
def cache_clear() -> None:
    """Remove all stored features and models of experiments; they are computed again when they are needed.

    Example: `usfda cache clear`
    """
    from .features import store_clear, store_info

    size = store_info()["bytes"]
    store_clear()
    _note(f"cleared {size / 1e6:.1f} MB")


def _note(text: str) -> None:
    log.info(text)


def _load(path: Path, backbone: str | None) -> Any:
    from .backbones import get_backbone
    from .model import load

    model = load(path)
    if backbone is not None:
        model.use_backbone(get_backbone(backbone))
    return model


def main(args: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 the work failed, 2 the call or the input was wrong. An error is one line."""
    args = globals_first(sys.argv[1:] if args is None else args)
    if "--version" in args:
        from . import __version__

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
        console.print("error:", " ".join(text.split()), style="red", markup=False, highlight=False, soft_wrap=True)
    return code


if __name__ == "__main__":
    sys.exit(main())

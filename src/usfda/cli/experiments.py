"""The commands of experiments: `usfda compare` and `usfda reproduce`."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ..config import Config, silent
from ..errors import InputError
from ..experiments import EXPERIMENTS, get_experiment
from ..experiments.baselines import BASELINES
from ..experiments.protocols import FAMILIES, PROTOCOLS
from ..text.commands import command
from ..text.words import count
from .arguments import Backbone, pairs_of
from .output import console, out

log = logging.getLogger("usfda")


def _names(names: object) -> str:
    return ", ".join(f"`{name}`" for name in names)  # type: ignore[attr-defined]


def compare(
    ctx: typer.Context,
    source: Annotated[str | None, typer.Argument(help="Labelled images or features, as for `procure`.")] = None,
    target: Annotated[str | None, typer.Argument(help="The same; its labels only score.")] = None,
    data: Annotated[Path | None, typer.Option(help="In place of both: the folder of a data set.")] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            help=f"The label sets: {_names(PROTOCOLS)}; by default `{PROTOCOLS[0]}`. `{FAMILIES}`: tasks of all "
            "families of data sets in the folder."
        ),
    ] = None,
    tasks: Annotated[
        str | None, typer.Option(help="Of the data set, such as `A-D,D-W`, or families by name; all by default.")
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help=f"With commas, from {', '.join(BASELINES)}, and `FILE.py:Class` for your own; all but that by default."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each method on each task.")] = 3,
    backbone: Backbone = "efficientnet_lite0",
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for runs and tables.")] = Path("compare-out"),
) -> None:
    """Methods side by side on the same features: ours, those of the paper's tables, and successors.

    A run that is finished is not repeated: after an interruption, or with more seeds or methods, call it again.

    Examples: `usfda compare photos/ labelled-new-photos/ --methods mixture,uan,mine.py:Mine` or
    `usfda compare --data office31/ --tasks A-D,D-W --seeds 1`
    """
    from ..experiments.compare import compare as run
    from ..experiments.datasets import benchmark_tasks
    from ..experiments.display import brief, watch
    from ..experiments.tasks import Task

    config: Config = ctx.obj
    if (data is None) == (source is None) or (source is None) != (target is None):
        raise InputError("give SOURCE and TARGET, or --data with the folder of a data set")
    if data is not None and protocol == FAMILIES:
        _compare_families(data, tasks, methods, seeds, backbone, output, config)
        return
    if data is not None:
        wanted = benchmark_tasks(data, protocol or PROTOCOLS[0], tasks)
    else:
        if tasks is not None or protocol is not None:
            raise InputError("--tasks and --protocol belong to --data")
        names = [Path(str(place)).stem for place in (source, target)]
        wanted = [Task("-".join(names), "→".join(names), str(source), str(target))]
    chosen = _chosen(methods, BASELINES)
    places = ["SOURCE", "TARGET"] if data is None else ["--data", "DIR", "--protocol", protocol or PROTOCOLS[0]]
    line = _command(places, tasks, methods, seeds, backbone)
    with watch(console if console.is_terminal and config.progress is not silent else None) as shown:
        rows = run(
            wanted, output, methods=chosen, seeds=seeds, backbone=backbone, config=config,
            shown=shown, command=line,
        )  # fmt: skip
    out.print(brief(rows))
    log.info("%s: results.md, results.csv, results.json; every run in runs.jsonl", output)
    if not any(row.finished for row in rows):
        raise RuntimeError(f"all runs failed: {rows[0].error}")
    for row in rows:
        if row.failed:
            failed = f"{row.method} failed {count(row.failed, 'time')}, the last: {row.error}"
            log.warning("%s (its trace is in runs.jsonl); the same call tries again", failed)
    if runs := sum(row.failed for row in rows):
        raise RuntimeError(f"{count(runs, 'run')} failed; the others are in the table")


def _chosen(methods: str | None, default: Iterable[str]) -> list[str]:
    """The names that --methods gives, each once."""
    if methods is None:
        return list(default)
    if not (chosen := [name.strip() for name in methods.split(",") if name.strip()]):
        raise InputError(f"--methods names no method; choose from {', '.join(BASELINES)}")
    return list(dict.fromkeys(chosen))


def _command(places: list[str], tasks: str | None, methods: str | None, seeds: int, backbone: str) -> str:
    """The call as a page or a table names it: without folders."""
    from ..experiments.runner import without_folders

    words = [*places]
    for option, given in (("tasks", tasks), ("methods", methods), ("seeds", seeds), ("backbone", backbone)):
        words += [] if given is None else [f"--{option}", without_folders(str(given))]
    return command("compare", *words)


def _compare_families(
    data: Path, tasks: str | None, methods: str | None, seeds: int, backbone: str, output: Path, config: Config
) -> None:
    """`usfda compare --protocol families`."""
    from ..experiments.compare_families import METHODS, compare_families

    (head, rows), runner = compare_families(
        data, output, methods=_chosen(methods, METHODS), families=None if tasks is None else tasks.split(","),
        seeds=seeds, backbone=backbone, config=config,
        command=_command(["--data", "DIR", "--protocol", FAMILIES], tasks, methods, seeds, backbone),
    )  # fmt: skip
    table = Table(*head, box=None)
    for row in rows:
        table.add_row(*row)
    out.print(table)
    log.info("%s: families.md, families.csv, families.svg, families.png; every run in runs.jsonl", output)
    if runner.failed:
        failed = f"{count(len(runner.failed), 'run')} failed, the last: {runner.failed[-1]['error']}"
        raise RuntimeError(f"{failed} (its trace is in runs.jsonl); the same call tries again")


def reproduce(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"One of {_names(EXPERIMENTS)}.")],
    data: Annotated[Path, typer.Option(help="Folder of one or several data sets, as they are distributed.")],
    tasks: Annotated[
        str | None, typer.Option(help="Such as `A-D,D-W`; all by default, for a figure the first: `A-D`.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each; the paper has five.")] = 5,
    backbone: Backbone = "efficientnet_lite0",
    shared: Annotated[
        Path | None,
        typer.Option(help="ImageNet-Caltech: CSV or JSON, Caltech class and wnid of each shared class."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder; by default `reproduce-out/NAME`.", show_default=False)
    ] = None,
) -> None:
    """A table or a figure of the paper, from its data sets: runs, table (Markdown, CSV) and figure (SVG, PNG).

    A run that is finished is not repeated: after an interruption, or with more seeds, call it again. What each is, and
    where the data sets come from: docs/reproduction.md.

    Examples: `usfda reproduce table2 --data office31/` or, after `usfda demo`, without any download,
    `usfda reproduce fig-beta --data demo-out --backbone gradients --seeds 2`
    """
    experiment = get_experiment(name)
    from ..experiments.reproduce import reproduce as run

    place = output or Path("reproduce-out", name)
    result, runner = run(
        experiment, data, place, tasks=tasks, shared=pairs_of(shared, "--shared"), seeds=seeds, backbone=backbone,
        config=ctx.obj, log_runs=not console.is_terminal,
    )  # fmt: skip
    wide = Console(width=1000, markup=False, highlight=False, emoji=False)  # a folded table cannot be read
    for caption, (head, rows) in result.tables.items():
        table = Table(*head, box=None, title=caption, title_justify="left")
        for row in rows:
            table.add_row(*row)
        wide.print(table)
    log.info(
        "%s: %s; every run in runs.jsonl", place, ", ".join(f"{name}.{kind}" for kind in ("md", "csv", "svg", "png"))
    )
    if runner.failed:
        failed = f"{count(len(runner.failed), 'run')} failed, the last: {runner.failed[-1]['error']}"
        raise RuntimeError(f"{failed} (its trace is in runs.jsonl); the same call tries again")

"""The commands of experiments: `usfda compare` and `usfda reproduce`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ..arguments import Backbone, rename_of
from ..output import out
from ..runtime import InputError

log = logging.getLogger("usfda")


def compare(
    source: Annotated[str | None, typer.Argument(help="Labelled images or features, as for `procure`.")] = None,
    target: Annotated[str | None, typer.Argument(help="The same; its labels only score.")] = None,
    data: Annotated[Path | None, typer.Option(help="In place of both: the folder of a benchmark.")] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            help="`office31` (open-partial; default), `office31-open-set`, `-partial`, `-closed` …, `office-home`, "
            "`visda`, `imagenet-caltech`."
        ),
    ] = None,
    tasks: Annotated[str | None, typer.Option(help="Of the benchmark, such as `A-D,D-W`; all by default.")] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="With commas, of usfda, paper, usfda-b, source-only, dann, rtn, iwan, pada, ati, osbp, uan, shot, "
            "ovanet, glc, lead, and `FILE.py:Class` for your own; all but that by default."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each system on each task.")] = 3,
    backbone: Backbone = "efficientnet_lite0",
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for runs and tables.")] = Path("compare-out"),
) -> None:
    """Systems side by side on the same features: ours, those of the paper's tables, and successors.

    A run that is finished is not repeated: after an interruption, or with more seeds or systems, call it again.

    Examples: `usfda compare photos/ labelled-new-photos/ --methods usfda,uan,mine.py:Mine` or
    `usfda compare --data office31/ --tasks A-D,D-W --seeds 1`
    """
    from ..baselines import SYSTEMS
    from ..datasets import benchmark_tasks
    from ..protocols import Task
    from .compare import compare as run
    from .display import brief, watch

    if (data is None) == (source is None) or (source is None) != (target is None):
        raise InputError("give SOURCE and TARGET, or --data with the folder of a benchmark")
    if data is not None:
        wanted = benchmark_tasks(data, protocol or "office31", tasks)
    else:
        if tasks is not None or protocol is not None:
            raise InputError("--tasks and --protocol belong to --data")
        wanted = [Task(f"{Path(str(source)).stem}→{Path(str(target)).stem}", str(source), str(target))]
    names = list(SYSTEMS)
    if methods is not None and not (names := [name.strip() for name in methods.split(",") if name.strip()]):
        raise InputError(f"--methods names no system; there is {', '.join(SYSTEMS)}")

    with watch() as shown:
        rows = run(wanted, output, methods=list(dict.fromkeys(names)), seeds=seeds, backbone=backbone, shown=shown)
    out.print(brief(rows))
    log.info(f"{output}: results.md, results.csv, results.json; every run in runs.jsonl")
    if not any(row.finished for row in rows):
        raise RuntimeError(f"all runs failed: {rows[0].error}")
    for row in rows:
        if row.failed:
            log.warning(
                "%s failed %d times, the last: %s (its trace is in runs.jsonl); the same call tries again",
                row.method,
                row.failed,
                row.error,
            )


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="`table1`, `table2`, `fig-ssm`, `fig-beta`, `fig-alpha`, `fig-batch-ratio`, `fig-negatives`, "
            "`fig-gap`, `one-shot` or `complexity`.",
        ),
    ],
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
    `usfda reproduce fig-beta --data demo-out --backbone pixels --seeds 2`
    """
    try:
        from .reproduce import Lab
        from .reproduce import reproduce as run
    except ImportError as error:
        raise InputError(f"figures need {error.name}; pip install 'usfda[reproduce]'") from None

    place = output or Path("reproduce-out", name)
    lab = Lab(name, data, place, tasks, seeds, backbone, rename_of(shared, "--shared"))
    result = run(lab)
    wide = Console(width=1000, markup=False, highlight=False, emoji=False)  # a folded table cannot be read
    for caption, (head, rows) in result.tables.items():
        table = Table(*head, box=None, title=caption, title_justify="left")
        for row in rows:
            table.add_row(*row)
        wide.print(table)
    log.info(f"{place}: {name}.md, {name}.csv, {name}.svg, {name}.png; every run in runs.jsonl")
    if lab.failed:
        log.warning(
            "%d runs failed, the last: %s (its trace is in runs.jsonl); the same call tries again",
            len(lab.failed),
            lab.failed[-1]["error"],
        )

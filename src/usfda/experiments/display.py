"""A comparison on the screen while it runs: a live table in a terminal, a line for each run elsewhere."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from rich.console import Console
from rich.live import Live
from rich.table import Table

from .runner import describe
from .runs import Record
from .tables import Statistic, Summary

log = logging.getLogger("usfda")


def brief(rows: list[Summary], caption: str | None = None) -> Table:
    """The table for a terminal; in brackets the mean of the tasks so far."""
    table = Table("method", "T_avg", "T_unk", "H", "shared", "seconds", "runs", box=None, caption=caption)
    for row in rows:
        means = []
        for metric in ("t_avg", "t_unk", "h_score", "shared_accuracy"):
            so_far = Statistic.of(task[metric].mean for task in row.tasks.values()).mean
            whole = row.overall[metric].mean is not None or so_far is None
            means.append(str(row.overall[metric]) if whole else f"({so_far:.1f})")
        state = f"{row.finished}/{row.runs}" + (f", {row.failed} failed" if row.failed else "")
        table.add_row(row.method, *means, f"{row.seconds['learn'] + row.seconds['adapt']:.1f}", state)
    return table


@contextmanager
def watch(console: Console | None) -> Iterator[Callable[[list[Summary], Record | None], None]]:
    """Yields what ``compare`` calls with the rows so far; ``console`` is that of the live table, None for lines."""
    with ExitStack() as stack:
        live: list[Live] = []
        times: list[float] = []

        def shown(rows: list[Summary], record: Record | None) -> None:
            times.append(time.monotonic())
            done, every = sum(row.finished + row.failed for row in rows), sum(row.runs for row in rows)
            state = f"{done} of {every}"
            if console is not None:
                if not live:  # not before the features: their bar and a live table cannot share the screen
                    live.append(stack.enter_context(Live(console=console, auto_refresh=False, transient=True)))
                if len(times) > 1:
                    left = (every - done) * (times[-1] - times[0]) / (len(times) - 1)
                    state += f" runs, about {left / 60:.0f} min left"
                live[0].update(brief(rows, state), refresh=True)
            elif record:
                log.info("%s: %s", state, describe(record))

        yield shown

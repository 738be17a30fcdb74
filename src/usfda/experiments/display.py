"""A comparison on the screen while it runs: a live table in a terminal, a line for each run elsewhere."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from rich.live import Live
from rich.table import Table

from ..runtime import console, runtime
from .tables import Row, figure

log = logging.getLogger("usfda")


def brief(rows: list[Row], caption: str | None = None) -> Table:
    """For a terminal; in brackets the mean of the tasks so far."""
    table = Table("system", "T_avg", "T_unk", "H", "seconds", "runs", box=None, caption=caption)
    for row in rows:
        means = []
        for metric in ("t_avg", "t_unk", "h_score"):
            so_far = figure([task[metric].mean for task in row.tasks.values()]).mean
            whole = row.overall[metric].mean is not None or so_far is None
            means.append(str(row.overall[metric]) if whole else f"({so_far:.1f})")
        state = f"{row.finished}/{row.runs}" + (f", {row.failed} failed" if row.failed else "")
        table.add_row(row.method, *means, f"{row.seconds['learn'] + row.seconds['adapt']:.1f}", state)
    return table


def describe(record: Mapping[str, Any]) -> str:
    """A run in a line."""
    key = record["key"]
    parts = [key.get("method", ""), key["task"], f"seed {key['seed']}"]
    for name, value in {"iterations": key.get("iterations"), **key.get("settings", {})}.items():
        parts += [f"{k} {v}" for k, v in (value if isinstance(value, dict) else {name: value}).items() if v is not None]
    said = record.get("error") or (f"T_avg {record['t_avg']:.1f}" if "t_avg" in record else "done")
    return f"{' '.join(filter(None, parts))}: {said}"


@contextmanager
def watch() -> Iterator[Callable[[list[Row], dict[str, Any] | None], None]]:
    """Yields what ``compare`` calls with the rows so far and, from the second time on, the run that is finished."""
    with ExitStack() as stack:
        live: list[Live] = []
        times: list[float] = []

        def shown(rows: list[Row], record: dict[str, Any] | None) -> None:
            times.append(time.monotonic())
            done, every = sum(row.finished + row.failed for row in rows), sum(row.runs for row in rows)
            state = f"{done} of {every}"
            if runtime.progress and console.is_terminal:
                if not live:  # not before the features: their bar and a live table cannot share the screen
                    live.append(stack.enter_context(Live(console=console, auto_refresh=False, transient=True)))
                if len(times) > 1:
                    left = (every - done) * (times[-1] - times[0]) / (len(times) - 1)
                    state += f" runs, about {left / 60:.0f} min left"
                live[0].update(brief(rows, state), refresh=True)
            elif record:
                log.info("%s: %s", state, describe(record))

        yield shown

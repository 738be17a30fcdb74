"""Systems side by side: the same vectors, the same splits, the same metrics, over tasks and seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..backbones import DEFAULT
from ..baselines import SYSTEMS, get_system
from ..model import versions
from ..protocols import Task
from .jobs import Domains, Variant, jobs_for, prepare
from .runs import Journal, run_all
from .tables import Row, make_row, write


def compare(
    tasks: Sequence[Task],
    out: str | Path,
    *,
    methods: Sequence[str] = tuple(SYSTEMS),
    seeds: int = 3,
    backbone: str = DEFAULT,
    shown: Callable[[list[Row], dict[str, Any] | None], None] = lambda rows, record: None,
) -> list[Row]:
    """Runs every system on every task with seeds 0 … seeds−1, and writes results.json, .csv and .md to ``out``.

    Runs are kept in ``out``/runs.jsonl as they finish; one that is there is not repeated. ``shown`` is called with the
    rows so far after each. Target labels go to the metrics alone.
    """
    systems = {method: get_system(method) for method in methods}
    journal = Journal(Path(out, "runs.jsonl"))
    names = [task.name for task in tasks]
    domains = Domains(backbone)
    jobs = jobs_for(tasks, [Variant(method) for method in methods], seeds, domains)
    records, left = journal.resume(jobs)

    def rows() -> list[Row]:
        made = [make_row(method, system, records, names, seeds) for method, system in systems.items()]
        return sorted(made, key=lambda row: -row.rank)

    prepare(left)
    shown(rows(), None)
    for record in run_all(left, journal):
        records.append(record)
        shown(rows(), record)
    done = rows()
    about = {"backbone": domains.used, "seeds": seeds, "versions": versions()}
    write(Path(out), done, records, about, names)
    return done

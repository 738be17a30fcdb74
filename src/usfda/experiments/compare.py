"""Methods side by side: the same vectors, the same splits, the same metrics, over tasks and seeds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..backbones.zoo import DEFAULT
from ..config import Config
from ..model import versions
from .baselines import BASELINES, get_baseline
from .runner import Runner, Settings
from .runs import Experiment, Record
from .tables import Summary, class_counts, measured, summarise, write_comparison
from .tasks import Task

log = logging.getLogger("usfda")


class Comparison(Experiment):
    """All metrics of methods with their default settings."""

    name = "compare"
    version = 1


def compare(
    tasks: Sequence[Task],
    out: str | Path,
    *,
    methods: Sequence[str] = tuple(BASELINES),
    seeds: int = 3,
    backbone: str = DEFAULT,
    settings: Mapping[str, Settings] | None = None,
    config: Config | None = None,
    shown: Callable[[list[Summary], Record | None], None] = lambda rows, record: None,
    command: str | None = None,
) -> list[Summary]:
    """Run methods on tasks.

    Every run is kept in ``runs.jsonl`` when it is finished; one that is there is not repeated. Target labels go to the
    metrics alone.

    Parameters
    ----------
    tasks : sequence of Task
        What to compare on.
    out : path
        Folder for runs.jsonl, results.json, results.csv and results.md.
    methods : sequence of str
        Names of methods, or classes of your own as ``file.py:Class``.
    seeds : int
        Every method runs on every task with the seeds 0 … seeds−1.
    backbone : str
        M, for tasks of images.
    settings : dict, optional
        Method to those of its settings that are not the default.
    config : Config, optional
        How to run.
    shown : callable, optional
        Called with the rows so far, when all is prepared and after each run, whose record it is given.
    command : str, optional
        For the page: the command that does the same.

    Returns
    -------
    list of Summary
        The best method first.
    """
    kinds = {method: get_baseline(method) for method in methods}
    runner = Runner(Path(out), seeds=seeds, backbone=backbone, settings=settings, config=config)
    identifiers = [task.id for task in tasks]

    def rows(found: Mapping[str, Sequence[Record]]) -> list[Summary]:
        made = []
        for method, kind in kinds.items():
            errors = [record["error"] for record in runner.failed if record["key"]["method"] == method]
            made.append(summarise(method, kind, found[method], errors, identifiers, seeds))
        return sorted(made, key=lambda row: -row.rank)

    def watched(found: Mapping[str, Sequence[Record]], record: Record | None) -> None:
        shown(rows(found), record)

    found = runner.run(Comparison(), tasks, {method: (method, {}) for method in kinds}, watched)
    done = rows(found)
    if others := [name for name in runner.journal.methods if name not in kinds]:
        log.info("%s has runs of %s, too: name them in --methods to have them in the table", out, ", ".join(others))
    backbone_of = runner.reader.backbone_of(runner.reader.read(tasks[0])[0])
    about = {
        "backbone": backbone_of and backbone_of.name, "seeds": seeds, "versions": versions(), "command": command,
        "measured": measured(runner.records), "classes": class_counts([runner.reader.read(task) for task in tasks]),
    }  # fmt: skip
    write_comparison(Path(out), done, [*runner.records, *runner.failed], about, tasks)
    return done

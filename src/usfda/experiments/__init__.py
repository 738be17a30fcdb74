"""Everything that is measured: data sets, protocols, baselines, one runner, the paper's tables and figures, the demo.

Benchmark → Task → Run → Record. A benchmark has tasks; an experiment runs methods with several seeds on tasks; each run
gives one record, a line of ``runs.jsonl``. ``runner.py`` is the one place where runs take place.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ..errors import InputError

if TYPE_CHECKING:
    from .reproduce import PaperExperiment

# The experiments of `usfda reproduce`: name to module and class. A class is imported when it is asked for, so that the
# help, which lists the names, needs neither torch nor matplotlib.
EXPERIMENTS = {
    "table1": "paper_tables:Table1",
    "table2": "paper_tables:Table2",
    "fig-ssm": "ablations:SourceSimilarity",
    "fig-beta": "ablations:Beta",
    "fig-alpha": "ablations:Alpha",
    "fig-batch-ratio": "ablations:BatchRatio",
    "fig-negatives": "ablations:NegativeClasses",
    "fig-gap": "gaps:CategoryGap",
    "one-shot": "gaps:OneShotRecognition",
    "complexity": "complexity:Complexity",
}


def get_experiment(name: str) -> PaperExperiment:
    """The experiment of that name, with its own settings at their defaults."""
    if name not in EXPERIMENTS:
        raise InputError(f"no experiment {name!r}; choose from {', '.join(EXPERIMENTS)}")
    module, _, kind = EXPERIMENTS[name].partition(":")
    experiment: PaperExperiment = getattr(import_module(f".{module}", __name__), kind)()
    return experiment

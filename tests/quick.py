"""Small budgets for the baselines, where only the way matters and not the result."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from usfda.experiments.baselines import BASELINES, get_baseline
from usfda.experiments.baselines.deployment import Mixture

PROCUREMENT = {"iterations": 12, "update_every": 5, "composites": 200}


def budget(name: str, steps: int = 12) -> dict[str, Any]:
    """Settings of a baseline with few steps."""
    baseline = get_baseline(name)
    if issubclass(baseline, Mixture):
        return {"procurement": PROCUREMENT, "deployment": {"steps": steps} if baseline.method == "usfda" else {}}
    return {"steps": steps} if "steps" in [field.name for field in fields(baseline.Settings)] else {}


QUICK = {name: budget(name) for name in BASELINES}

"""Small budgets for the systems, where only the way matters and not the result."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from usfda.experiments.systems import SYSTEMS, get_system
from usfda.experiments.systems.deployment import Mixture

PROCUREMENT = {"iterations": 12, "update_every": 5, "composites": 200}


def budget(name: str, steps: int = 12) -> dict[str, Any]:
    """Settings of a system with few steps."""
    system = get_system(name)
    if issubclass(system, Mixture):
        return {"procurement": PROCUREMENT, "deployment": {"steps": steps} if system.method == "usfda" else {}}
    return {"steps": steps} if "steps" in [field.name for field in fields(system.Settings)] else {}


QUICK = {name: budget(name) for name in SYSTEMS}

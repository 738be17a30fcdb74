"""Universal source-free domain adaptation: procure a model where the labels are, adapt it where the images are."""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .deployment import DeploymentSettings, adapt
    from .metrics import evaluate
    from .model import Model, Prediction, load
    from .procurement import ProcurementSettings, procure
    from .runtime import InputError

# Before torch is loaded: its threads then sleep while they wait for each other. Spinning makes a step of these small
# networks many times slower as soon as another process wants a core (measured: 630 against 80 ms).
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

__version__ = "0.1.0"
__all__ = [
    "DeploymentSettings",
    "InputError",
    "Model",
    "Prediction",
    "ProcurementSettings",
    "adapt",
    "evaluate",
    "load",
    "procure",
]
_HOME = {
    "DeploymentSettings": "deployment",
    "adapt": "deployment",
    "evaluate": "metrics",
    "Model": "model",
    "Prediction": "model",
    "load": "model",
    "ProcurementSettings": "procurement",
    "procure": "procurement",
    "InputError": "runtime",
}


def __getattr__(name: str) -> Any:
    # On first use: torch and onnxruntime take seconds to import, and `usfda --help` needs neither.
    if name not in _HOME:
        raise AttributeError(f"module 'usfda' has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)

"""Universal source-free domain adaptation: procure a model where the labels are, adapt it where the images are."""

from .deployment import DeploymentSettings, adapt
from .metrics import evaluate
from .model import Model, Prediction, load
from .procurement import ProcurementSettings, procure
from .runtime import InputError, runtime

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
    "runtime",
]

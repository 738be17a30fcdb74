"""Universal source-free domain adaptation: procure a model where the labels are, adapt it where the images are."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .config import Config
    from .data.samples import Features, Samples
    from .errors import InputError
    from .estimator import UsfdaClassifier
    from .export import Quantised, export_onnx
    from .methods.decision import Decision
    from .methods.findings import Findings
    from .methods.privacy import PrivacySettings
    from .methods.settings import MixtureSettings, ProcurementSettings, UsfdaSettings
    from .metrics import evaluate
    from .model import Model, Prediction, load
    from .report.build import write_report
    from .stages.adapt import adapt
    from .stages.procure import procure
    from .stages.review import Question, review
    from .stages.teach import teach
    from .text.findings import describe
    from .tracking import get_tracker

__version__ = "0.3.0"
_HOME = {
    "Config": "config",
    "Decision": "methods.decision",
    "Features": "data.samples",
    "Findings": "methods.findings",
    "InputError": "errors",
    "Model": "model",
    "UsfdaSettings": "methods.settings",
    "Prediction": "model",
    "PrivacySettings": "methods.privacy",
    "ProcurementSettings": "methods.settings",
    "Question": "stages.review",
    "Quantised": "export",
    "Samples": "data.samples",
    "UsfdaClassifier": "estimator",
    "MixtureSettings": "methods.settings",
    "adapt": "stages.adapt",
    "describe": "text.findings",
    "evaluate": "metrics",
    "export_onnx": "export",
    "get_tracker": "tracking",
    "load": "model",
    "procure": "stages.procure",
    "review": "stages.review",
    "teach": "stages.teach",
    "write_report": "report.build",
}
__all__ = [
    "Config",
    "Decision",
    "Features",
    "Findings",
    "InputError",
    "MixtureSettings",
    "Model",
    "Prediction",
    "PrivacySettings",
    "ProcurementSettings",
    "Quantised",
    "Question",
    "Samples",
    "UsfdaClassifier",
    "UsfdaSettings",
    "adapt",
    "describe",
    "evaluate",
    "export_onnx",
    "get_tracker",
    "load",
    "procure",
    "review",
    "teach",
    "write_report",
]


def __getattr__(name: str) -> Any:
    # On first use: torch and onnxruntime take seconds to import, and `usfda --help` needs neither.
    if name not in _HOME:
        raise AttributeError(f"module 'usfda' has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

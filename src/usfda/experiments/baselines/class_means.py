"""The nearest class mean, not adapted."""

from __future__ import annotations

from typing import Any

from ..tasks import Task
from .api import LabelledFeatures, Matrix
from .deployment import Mixture


class ClassMeans(Mixture):
    """The vendor's class means as they are: what method ``mixture`` starts from."""

    version = 1
    rejects = "farther from its class mean than 95 % of the source samples"
    parameters = 0
    weights = None

    @classmethod
    def settings_for(cls, task: Task) -> dict[str, Any]:
        return {}

    def adapt(self, X: Matrix, source: LabelledFeatures | None) -> None:
        pass

    def check(self) -> None:
        return None

"""The source network without adaptation."""

from __future__ import annotations

from .api import LabelledFeatures, Matrix
from .training import NetworkBaseline, network


class SourceOnly(NetworkBaseline):
    """The source network, not adapted (row "ResNet" of the paper's tables).

    L = −log softmax_y(C(F(v_s)))
    """

    source_free = True

    def learn(self, source: LabelledFeatures) -> None:
        self.net = self.seeded(lambda: network(source.X.shape[1], len(source.classes)))
        self.learn_classes(source)

    def adapt(self, X: Matrix, source: LabelledFeatures | None) -> None:
        pass

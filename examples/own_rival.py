r"""A baseline of your own beside ours, on the same vectors, with the same metrics; no change to the project is needed.

    python examples/digits.py        # once, for the images
    usfda compare examples-out/mnist examples-out/uci --backbone gradients --seeds 1 \
        --methods mixture,examples/own_rival.py:NearestMean -o examples-out/compare

The labels of the target only score: ``adapt`` and ``decide`` never see them.
"""

import numpy as np
from scipy.spatial.distance import cdist

from usfda.experiments.baselines.api import Baseline, Decision, Features, Matrix


class NearestMean(Baseline):
    """The nearest class mean, after both domains were shifted to a common mean."""

    source_free = True  # then `source` is None in adapt: what it needs of the source it keeps in learn
    rejects = "farther from its class mean than 95 % of the source"

    def learn(self, source: Features) -> None:
        """At the vendor: vectors ``X`` and labels ``y``, which are positions in ``classes``."""
        assert source.y is not None
        X, y = source.X[:], source.y
        self.centre = X.mean(0)
        self.means = np.stack([X[y == c].mean(0) for c in range(len(source.classes))]) - self.centre
        self.radius = np.quantile(np.linalg.norm(X - self.centre - self.means[y], axis=1), 0.95)

    def adapt(self, X: Matrix, source: Features | None) -> None:
        """At the client: vectors without labels. The whole adaptation is to take their own mean for the centre."""
        self.centre = X[:].mean(0)

    def decide(self, X: Matrix) -> Decision:
        """The class of every vector, whether it is known, and how sure that is: 0 is unknown, 1 known."""
        distance = cdist(X[:] - self.centre, self.means)
        nearest = distance.min(1)
        return Decision(distance.argmin(1), known=nearest <= self.radius, score=1 / (1 + nearest / self.radius))

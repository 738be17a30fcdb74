"""The learned decision: known or unknown by small networks that were trained on many data sets (``training/``).

For every sample the first network reads its statistics and those of the target as a whole (``statistics.py``,
``classifier.py``), standardised and cut to ±4; what is missing is 0. It has two hidden layers,

    h = relu(W₂·relu(W₁·[s_i, g] + a₁) + a₂),    (log-odds of the decision, of *known*, of *right*) = W₃·h + a₃,

and its answers are averaged over a few networks that were trained from different seeds. The first output was trained
for the figure itself (H; shared accuracy; T_unk), the others for cross-entropy, so that their means are estimates: of
the share of known samples, and of those whose best class is right.

The second network corrects these outputs. It reads them for the sample, its neighbours, its class and the whole target,
and a few statistics of the target. It was trained on the outputs for families of data sets that the first network had
not seen, and so learned how the first one errs on unfamiliar data.

The third, of one hidden layer, reads aggregates of the corrected outputs and gives what is expected of the target: the
share of unknown samples with a 90 % interval, and the figure of the adapted decision and of one that was not adapted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from scipy.special import expit, logit

from ...errors import InputError
from ..heads import ClassMeansHead
from ..numeric import ranks, weighted_quantile
from ..vendor import Tensors, own_part
from . import classifier, statistics
from .split import Split
from .target import TargetView

CLIP = 4.0  # standardised statistics are cut here
LARGEST = 8.0  # log-odds are cut here before the second network reads them
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)  # of the log-odds that the second network reads
OUTSIDE = 0.25  # share of the target's statistics outside the range of training from which on the simple rule decides
WEIGHTS = Path(__file__).with_name("weights")  # files of weights, by the families that they were trained on
# Estimated shares of unknown samples beyond which the log-odds are shifted by SHIFT, so that few samples of the other
# kind remain. Chosen on the reference tasks of five families left out (training/evaluate.py).
ALL_UNKNOWN, NONE_UNKNOWN = 0.95, 0.02
SHIFT = 4.0
LEAST_SPREAD = 0.02  # of the share of unknowns
OTHER_LABEL = 0.3  # of known − right: the chance that a label which is not the sample's best class is right


@dataclass(frozen=True)
class Outputs:
    """What the network says of n samples.

    Parameters
    ----------
    log_odds : array (n,)
        Of the decision: known where they are 0 or more.
    known : array (n,)
        Estimated probability that the sample is of a source class.
    right : array (n,)
        Estimated probability that it is of its best class.
    disagreement : float
        Standard deviation of the decision's log-odds over the networks, averaged over the samples.
    """

    log_odds: np.ndarray
    known: np.ndarray
    right: np.ndarray
    disagreement: float


@dataclass(frozen=True)
class Expected:
    """What is expected of a target; shares from 0 to 1, figures in percent.

    Parameters
    ----------
    unknown : float
        The share of unknown samples.
    interval : (float, float)
        Where that share lies in nine of ten targets.
    adapted, other : float
        The figure of the adapted decision and of the other one, which is not adapted.
    """

    unknown: float
    interval: tuple[float, float]
    adapted: float
    other: float


@dataclass(frozen=True)
class LearnedDecision:
    """The weights, and what they were trained on.

    Parameters
    ----------
    record : dict
        Version, names of the statistics, families, tasks, backbones, commit.
    tensors : mapping of str to array
        Of both networks, and the standardisation of their inputs.
    """

    record: Mapping[str, Any]
    tensors: Tensors

    @property
    def version(self) -> str:
        """By which a model card names the weights."""
        return str(self.record["version"])

    def outputs(self, samples: Mapping[str, np.ndarray], whole: Mapping[str, float]) -> Outputs:
        """The network's answers; statistics by name, of which those of a classifier may be missing."""
        t, n = self.tensors, len(next(iter(samples.values())))
        missing = np.full(n, np.nan)
        s = np.column_stack([samples.get(name, missing) for name in self.record["samples"]])
        return run(own_part(t, "first"), s, self._whole(whole))

    def corrected(
        self,
        outputs: Outputs,
        whole: Mapping[str, float],
        w: np.ndarray,
        best: np.ndarray,
        smooth: Callable[[np.ndarray], np.ndarray],
    ) -> Outputs:
        """The same after the second network; ``smooth`` averages values over a sample's neighbours."""
        s, g = context(outputs, w, best, smooth)
        return run(own_part(self.tensors, "second"), s, np.concatenate([g, self._basics(whole)]))

    def _basics(self, whole: Mapping[str, float]) -> np.ndarray:
        return np.asarray([whole[name] for name in self.record["basics"]])

    def _whole(self, whole: Mapping[str, float]) -> np.ndarray:
        return np.asarray([whole.get(name, np.nan) for name in self.record["whole"]])

    def is_outside(self, whole: Mapping[str, float]) -> bool:
        """Whether too many of the target's statistics lie outside the range of the training."""
        g = self._whole(whole)
        there = np.isfinite(g)
        beyond = (g < self.tensors["whole.low"]) | (g > self.tensors["whole.high"])
        return bool((beyond & there).sum() > OUTSIDE * there.sum())

    def expected(
        self,
        outputs: Outputs,
        whole: Mapping[str, float],
        w: np.ndarray,
        best: np.ndarray,
        other: tuple[np.ndarray, np.ndarray],
    ) -> Expected:
        """What is expected of the target, beside that of another decision, which was not adapted.

        ``w`` are weights that sum to 1, ``best`` is the best class of every sample; ``other`` is the class of every
        sample by that decision, and whether it is known.
        """
        t = own_part(self.tensors, "expected")
        out = expit(perceptron(t, np.concatenate([aggregates(outputs, w, best, *other), self._basics(whole)])))
        unknown, spread, adapted, figure = out.tolist()
        away = t["width"].item() * (LEAST_SPREAD + spread)
        return Expected(unknown, (max(0.0, unknown - away), min(1.0, unknown + away)), 100 * adapted, 100 * figure)


def run(t: Tensors, samples: np.ndarray, whole: np.ndarray) -> Outputs:
    """The mean of some networks, for inputs of each sample (n, ·) and of the target (·,)."""
    s = _standardised(samples, t["samples.centre"], t["samples.scale"])
    g = _standardised(whole, t["whole.centre"], t["whole.scale"])
    answers: list[np.ndarray] = []
    while net := own_part(t, f"net{len(answers)}"):
        first = net["one.weight"]
        # The target's part of the first layer is the same for all samples.
        h = s @ first[:, : s.shape[1]].T + (first[:, s.shape[1] :] @ g + net["one.bias"])
        h = np.maximum(h, 0) @ net["two.weight"].T + net["two.bias"]
        answers.append(np.maximum(h, 0) @ net["out.weight"].T + net["out.bias"])
    mean = np.mean(answers, 0)
    return Outputs(mean[:, 0], expit(mean[:, 1]), expit(mean[:, 2]), float(np.std(answers, 0)[:, 0].mean()))


def context(
    outputs: Outputs, w: np.ndarray, best: np.ndarray, smooth: Callable[[np.ndarray], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """What the second network reads of the first one's outputs: for each sample (n, 7), and for the target (9,)."""
    p, known = expit(outputs.log_odds), outputs.known
    log_odds, of_known = (np.clip(x, -LARGEST, LARGEST) for x in (outputs.log_odds, logit(known)))
    mass = np.maximum(np.bincount(best, w), 1e-12)
    of_class = [(np.bincount(best, w * x) / mass)[best] for x in (p, known)]
    samples = [log_odds, of_known, smooth(p), smooth(known), *of_class, ranks(log_odds, w)]
    quantiles = [weighted_quantile(log_odds, w, q) for q in QUANTILES]
    whole = [w @ known, w @ p, w @ (known * (1 - known)), w @ (np.abs(log_odds) > 2), *quantiles]
    return np.column_stack(samples), np.asarray(whole)


def aggregates(
    outputs: Outputs, w: np.ndarray, best: np.ndarray, label: np.ndarray, is_known: np.ndarray
) -> np.ndarray:
    """What the second network reads: of the target's outputs, and of a decision that was not adapted."""
    known, right, accepted = outputs.known, outputs.right, outputs.log_odds >= 0
    p = expit(outputs.log_odds)
    of_label = np.where(label == best, right, OTHER_LABEL * (known - right).clip(min=0))
    total, rest = max(float(w @ known), 1e-6), max(float(w @ (1 - known)), 1e-6)
    parts = [
        w @ known, w @ right, w @ p, w @ accepted, w @ (known * (1 - known)), w @ (p * (1 - p)),
        w @ (np.abs(outputs.log_odds) < 1), outputs.disagreement,
        w @ (right * accepted) / total, w @ ((1 - known) * ~accepted) / rest,
        w @ (of_label * is_known) / total, w @ ((1 - known) * ~is_known) / rest, w @ is_known,
        w @ (label == best), w @ (accepted == is_known),
    ]  # fmt: skip
    return np.asarray(parts, np.float64)


def perceptron(t: Tensors, x: np.ndarray) -> np.ndarray:
    """The second network, before the logistic function: share of unknowns, its spread, and the two figures."""
    h = np.maximum(t["one.weight"] @ ((x - t["centre"]) / t["scale"]).clip(-CLIP, CLIP) + t["one.bias"], 0)
    out: np.ndarray = t["out.weight"] @ h + t["out.bias"]
    return out


def _standardised(values: np.ndarray, centre: np.ndarray, scale: np.ndarray) -> np.ndarray:
    cut: np.ndarray = np.nan_to_num(np.clip((values - centre) / scale, -CLIP, CLIP))
    return cut


@dataclass(frozen=True)
class LearnedSplit(Split):
    """A split by the learned decision, with what it was made of.

    Parameters
    ----------
    outputs : Outputs
        Of the network.
    whole : mapping of str to float
        The statistics of the target.
    expected : Expected
        What is expected of it.
    outside : bool
        Whether they lie outside what training has seen, so that the simple rule decided.
    """

    outputs: Outputs
    whole: Mapping[str, float]
    expected: Expected
    outside: bool


def all_statistics(view: TargetView) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Of each sample and of the target, with those of the backbone's classifier where the vendor's file has it."""
    samples, whole = statistics.compute(view)
    if view.vendor.classifier is not None:
        more, rest = classifier.compute(view)
        samples, whole = samples | more, whole | rest
    return samples, whole


@dataclass(frozen=True)
class LearnedSplitter:
    """Splits a target by the learned decision; where its statistics are unlike any in training, by the simple rule.

    Where the estimated share of unknown samples is near 0 or 1, the log-odds are shifted towards known or unknown.
    """

    decision: LearnedDecision

    def __call__(self, view: TargetView) -> LearnedSplit:
        """The split of a target."""
        samples, whole = all_statistics(view)
        outputs = self.decision.outputs(samples, whole)
        outputs = self.decision.corrected(outputs, whole, view.w, view.best, view.neighbours.smooth)
        expected = self.decision.expected(outputs, whole, view.w, view.best, class_means(view))
        outside = self.decision.is_outside(whole)
        log_odds = samples["llr"] if outside else outputs.log_odds  # the simple rule is one of the statistics
        if not outside and expected.unknown > ALL_UNKNOWN:
            log_odds = log_odds - SHIFT
        elif not outside and expected.unknown < NONE_UNKNOWN:
            log_odds = log_odds + SHIFT
        return LearnedSplit(view.best, log_odds, outputs, whole, expected, outside)


Answer = tuple[np.ndarray, np.ndarray]  # the class of every sample, and whether it is known


def class_means(view: TargetView) -> Answer:
    """The decision of the class means, which are not adapted."""
    return answer_of(ClassMeansHead(view.class_statistics).of_similarity(view.source_similarity))


def answer_of(probability: np.ndarray) -> Answer:
    """The decision that goes with probabilities of the classes and, last, of unknown."""
    known = probability[:, :-1]
    return known.argmax(1), known.max(1) >= probability[:, -1]


@lru_cache(maxsize=8)
def load_decision(name: str = "all") -> LearnedDecision:
    """Weights by the families that they were trained on, ``all`` or ``without-FAMILY``, or those of another file."""
    path = WEIGHTS / f"{name}.safetensors" if name.replace("-", "").isalnum() else Path(name)
    try:
        with safetensors.safe_open(path, "numpy") as file:
            record = json.loads(file.metadata()["record"])
            tensors = {name: file.get_tensor(name).astype(np.float64) for name in file.keys()}  # noqa: SIM118
    except (OSError, KeyError, TypeError, ValueError, safetensors.SafetensorError) as error:
        there = ", ".join(sorted(file.stem for file in WEIGHTS.glob("*.safetensors")))
        raise InputError(f"no weights of the learned decision {name!r} ({error}); there are {there}") from None
    return LearnedDecision(record, tensors)

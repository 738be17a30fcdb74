"""The paper's ablations, on one task (A→D of Office-31): the SSM, and what method `usfda` makes of its settings.

β belongs to deployment, the others to procurement. Method `mixture` depends on none of them: it uses the source's
class statistics, which no loss shapes.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..data.samples import LabelledFeatures
from ..methods.settings import ProcurementSettings, UsfdaSettings, hold_out
from ..text.words import count
from .baselines.api import Baseline
from .baselines.deployment import Usfda
from .figures import curves, histograms
from .reproduce import DataFolder, PaperExperiment, Result
from .runner import Runner, Settings
from .runs import circumstances
from .tables import Statistic, columns
from .tasks import Task

METRICS = {"t_avg": "T_avg", "t_unk": "T_unk", "h_score": "H", "auroc": "AUROC"}
GROUPS = ("negatives", "target-private", "target-shared", "source-private", "source-shared")  # in the order of eq. 1
EDGES = np.linspace(1, math.e, 41)  # of the bins of w


@dataclass(frozen=True)
class Sensitivity(PaperExperiment):
    """Method `usfda` with several values of one setting, all else as by default."""

    axis: ClassVar[str]

    @abstractmethod
    def variants(self, task: Task, classes: int) -> tuple[dict[str, Settings], str]:
        """Label to settings, and the label of the default; ``classes`` is the number of source classes."""

    def apart(self, labels: list[str]) -> int | None:
        """From where on variants are of another kind, so that no line joins them."""
        return None

    def result(self, runner: Runner, data: DataFolder) -> Result:
        """Run it."""
        found, pair = data.one_task(self.name)
        task = found.task(pair)
        variants, default = self.variants(task, len(runner.reader.read(task)[0].classes))
        baselines = {label: ("usfda", {} if label == default else given) for label, given in variants.items()}
        records = self.records(runner, [task], baselines)
        values = {label: {m: Statistic.of(r[m] for r in mine) for m in METRICS} for label, mine in records.items()}
        bold = {label: f"**{label}**" if label == default else label for label in values}
        body = [[bold[label], *map(str, statistics.values())] for label, statistics in values.items()]
        lines = {name: [values[label][m] for label in values] for m, name in METRICS.items() if m != "auroc"}
        seeds = count(runner.seeds, "seed")
        text = [
            f"{found.name} {task.name}, method `usfda`, all else as by default (**bold**: the default); percent, mean "
            f"± deviation over {seeds}, last step.",
        ]
        tables = {self.axis: ([self.axis.split(",")[0], *METRICS.values()], body)}
        rows = [{"value": label, **columns(statistics)} for label, statistics in values.items()]
        picture = curves(list(values), lines, self.axis, default, self.apart(list(values)))
        return Result(f"Sensitivity to {self.axis}: {found.name} {task.name}", text, tables, rows, picture)


@dataclass(frozen=True)
class Beta(Sensitivity):
    """β, the weight of L_d2."""

    name: ClassVar[str] = "fig-beta"
    version: ClassVar[int] = 1
    axis: ClassVar[str] = "β, the weight of the entropies L_d2"
    values: tuple[float, ...] = (0.0, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)

    def variants(self, task: Task, classes: int) -> tuple[dict[str, Settings], str]:
        """One for each value."""
        return {f"{v:g}": {"deployment": {"beta": v}} for v in self.values}, f"{UsfdaSettings().beta:g}"


@dataclass(frozen=True)
class Alpha(Sensitivity):
    """α, the weight of the negatives."""

    name: ClassVar[str] = "fig-alpha"
    version: ClassVar[int] = 1
    axis: ClassVar[str] = "α, the weight of the negatives in L_CE"
    values: tuple[float, ...] = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)

    def variants(self, task: Task, classes: int) -> tuple[dict[str, Settings], str]:
        """One for each value."""
        return {f"{v:g}": {"procurement": {"alpha": v}} for v in self.values}, f"{ProcurementSettings().alpha:g}"


@dataclass(frozen=True)
class BatchRatio(Sensitivity):
    """The share of negatives in a batch."""

    name: ClassVar[str] = "fig-batch-ratio"
    version: ClassVar[int] = 1
    axis: ClassVar[str] = "positives : negatives in a batch of L_CE"
    values: tuple[int, ...] = (8, 16, 32, 64, 128, 256)

    def variants(self, task: Task, classes: int) -> tuple[dict[str, Settings], str]:
        """One for each number of negatives."""
        usual = ProcurementSettings()
        given: dict[str, Settings] = {f"{usual.batch}:{v}": {"procurement": {"negative_batch": v}} for v in self.values}
        return given, f"{usual.batch}:{usual.negative_batch}"


@dataclass(frozen=True)
class NegativeClasses(Sensitivity):
    """0* is a single negative class far from the priors; the others are composites of so many pairs of classes."""

    name: ClassVar[str] = "fig-negatives"
    version: ClassVar[int] = 1
    axis: ClassVar[str] = "|C_n|, the number of negative classes"
    values: tuple[int, ...] = (4, 8, 64, 150)  # and all pairs

    def variants(self, task: Task, classes: int) -> tuple[dict[str, Settings], str]:
        """One for each number of pairs, and one with composites of three images."""
        pairs = min(math.comb(classes, 2), task.negative_classes or ProcurementSettings().max_negative_classes)
        given: dict[str, Settings] = {"0*": {"negatives": "latent"}}
        given |= {str(v): {"procurement": {"max_negative_classes": v}} for v in self.values if v < pairs}
        given[str(pairs)] = {}
        if math.comb(classes, 3) >= pairs:
            more = {"images_per_composite": 3, "max_negative_classes": pairs}
            given[f"{pairs}, three images"] = {"procurement": more}
        return given, str(pairs)

    def apart(self, labels: list[str]) -> int | None:
        """Three images are no further number of pairs."""
        return next((i for i, label in enumerate(labels) if "three" in label), len(labels))


@dataclass(frozen=True)
class SourceSimilarity(PaperExperiment):
    """Histograms of w before adaptation, and the means that eq. 1 orders."""

    name: ClassVar[str] = "fig-ssm"
    version: ClassVar[int] = 1
    iterations: tuple[int, ...] = (100, 500)  # of procurement: early and late

    def measure(self, baseline: Baseline, source: LabelledFeatures, target: LabelledFeatures) -> dict[str, Any]:
        """Mean and histogram of w for each group; labels of the target only tell the groups apart."""
        assert isinstance(baseline, Usfda)
        baseline.learn(source)
        _, held_out = hold_out(source.y, baseline.procurement.holdout)
        known = np.isin(target.labels, source.classes)
        both = np.isin(source.labels[held_out], target.labels)
        negatives = baseline.training_set(source).X_n
        assert negatives is not None
        vectors = {
            "negatives": negatives[:], "target-private": target.X[~known], "target-shared": target.X[known],
            "source-private": source.X[held_out[~both]], "source-shared": source.X[held_out[both]],
        }  # fmt: skip
        w = {group: np.asarray(baseline.model.ssm(v)) for group, v in vectors.items() if len(v)}
        return {
            "means": {group: float(values.mean()) for group, values in w.items()},
            "histograms": {group: np.histogram(values, EDGES)[0].tolist() for group, values in w.items()},
            **circumstances(baseline),
        }

    def result(self, runner: Runner, data: DataFolder) -> Result:
        """Run it."""
        found, pair = data.one_task(self.name)
        task = found.task(pair)
        baselines = {str(n): ("usfda", {"procurement": {"iterations": n}}) for n in self.iterations}
        records = {label: mine for label, mine in self.records(runner, [task], baselines).items() if mine}
        groups = [name for name in GROUPS if name in next(iter(records.values()))[0]["means"]]
        means: dict[str, dict[str, Statistic]] = {}
        panels, rows = {}, []
        for n, mine in records.items():
            means[n] = {group: Statistic.of(r["means"][group] for r in mine) for group in groups}
            counts = {group: np.sum([r["histograms"][group] for r in mine], 0) for group in groups}
            panels[f"iteration {n}"] = {group: counts[group] for group in ("target-shared", "target-private")}
            for group in groups:
                bins = {f"bin{i}": int(count) for i, count in enumerate(counts[group])}
                value = means[n][group]
                rows.append({"iterations": n, "group": group, "mean": value.mean, "deviation": value.deviation, **bins})
        body = [[n, *(_two_digits(means[n][group]) for group in groups), _order(means[n])] for n in means]
        seeds = count(runner.seeds, "seed")
        text = [
            f"{found.name} {task.name}: w = exp(max ŷ) of the source network, from 1 (no source class) to e, before "
            f"adaptation, after {' and '.join(map(str, self.iterations))} iterations of procurement; all samples of "
            f"{seeds}. Source samples are held out from training; negatives are the composites that it "
            "was trained with.",
            "Eq. 1 expects: negatives ≈ target-private < target-shared < source-private ≈ source-shared.",
        ]
        tables = {"Means of w, ± over the seeds": (["iterations", *groups, "order of eq. 1"], body)}
        picture = histograms(EDGES, panels, "w = exp(max ŷ)")
        title = f"Source similarity metric of the target: {found.name} {task.name}"
        return Result(title, text, tables, rows, picture)


def _two_digits(value: Statistic) -> str:
    return f"{value.mean:.2f}" + ("" if value.deviation is None else f" ± {value.deviation:.2f}")


def _order(means: Mapping[str, Statistic]) -> str:
    """Whether negatives and private samples are below the shared ones, and these below the source's."""
    low = max(means[group].mean or 0 for group in ("negatives", "target-private") if group in means)
    high = min(means[group].mean or 0 for group in ("source-private", "source-shared") if group in means)
    return "holds" if low < (means["target-shared"].mean or 0) < high else "does not hold"

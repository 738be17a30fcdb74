"""The paper's ablations, on one task (A→D of Office-31): the SSM, and what method `paper` makes of its settings.

β belongs to deployment, the others to procurement. Method `usfda` depends on none of them: it uses the source's
geometry, which no loss shapes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..baselines import Source
from ..baselines.usfda import settings_for, vendor
from ..deployment import DeploymentSettings
from ..model import versions
from ..procurement import ProcurementSettings, prepare
from .figures import curves, histograms
from .jobs import Domain, Variant
from .reproduce import Lab, Result
from .tables import Figure, figure, spread

METRICS = {"t_avg": "T_avg", "t_unk": "T_unk", "h_score": "H", "auroc": "AUROC"}
ITERATIONS = (100, 500)
GROUPS = ("negatives", "target-private", "target-shared", "source-private", "source-shared")  # in the order of eq. 1
EDGES = np.linspace(1, math.e, 41)


def beta(lab: Lab) -> Result:
    values = (0.0, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
    variants = {f"{value:g}": {"deployment": {"beta": value}} for value in values}
    return _sensitivity(lab, "β, the weight of the entropies L_d2", variants, f"{DeploymentSettings().beta:g}")


def alpha(lab: Lab) -> Result:
    values = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
    variants = {f"{value:g}": {"procurement": {"alpha": value}} for value in values}
    return _sensitivity(lab, "α, the weight of the negatives in L_CE", variants, f"{ProcurementSettings().alpha:g}")


def batch_ratio(lab: Lab) -> Result:
    default = ProcurementSettings()
    variants = {
        f"{default.batch}:{negatives}": {"procurement": {"negative_batch": negatives}}
        for negatives in (8, 16, 32, 64, 128, 256)
    }
    return _sensitivity(
        lab, "positives : negatives in a batch of L_CE", variants, f"{default.batch}:{default.negative_batch}"
    )


def negatives(lab: Lab) -> Result:
    """0* is a single negative class far from the priors; the others are composites of so many pairs of classes."""
    found, pair = lab.task()
    task = found.task(pair)
    source = lab.domains.sides(task)[0].as_source(task.negative_classes)
    classes, most = len(source.classes), settings_for(source).max_negative_classes
    pairs = min(math.comb(classes, 2), most)
    variants: dict[str, Any] = {"0*": {"negatives": "latent"}}
    for count in (4, 8, 64, 150):
        if count < pairs:
            variants[str(count)] = {"procurement": {"max_negative_classes": count}}
    variants[str(pairs)] = {}
    apart = len(variants)
    if math.comb(classes, 3) >= pairs:
        more = {"images_per_composite": 3, "max_negative_classes": pairs}
        variants[f"{pairs}, three images"] = {"procurement": more}
    return _sensitivity(lab, "|C_n|, the number of negative classes", variants, str(pairs), apart)


def _sensitivity(
    lab: Lab, axis: str, settings: Mapping[str, Mapping[str, Any]], default: str, apart: int | None = None
) -> Result:
    """Method `paper` with each of the settings; one that is the default is run as such. From ``apart`` on they are of
    another kind."""
    found, pair = lab.task()
    variants = {label: Variant("paper", {} if label == default else given) for label, given in settings.items()}
    records = lab.run([found.task(pair)], list(variants.values()))
    values = {
        label: {metric: figure([r[metric] for r in records if variant.made(r)]) for metric in METRICS}
        for label, variant in variants.items()
    }
    rows = [{"value": label, **spread(figures)} for label, figures in values.items()]
    bold = {label: f"**{label}**" if label == default else label for label in values}
    body = [[bold[label], *map(str, figures.values())] for label, figures in values.items()]
    lines = {name: [values[label][metric] for label in values] for metric, name in METRICS.items() if metric != "auroc"}
    task = "→".join(pair)
    text = [
        f"{found.name} {task}, method `paper`, all else as by default (**bold**: the default); percent, mean ± "
        f"deviation over {lab.seeds} seeds, last step.",
    ]
    tables = {axis: ([axis.split(",")[0], *METRICS.values()], body)}
    picture = curves(list(values), lines, axis, default, apart)
    return Result(f"Sensitivity to {axis}: {found.name} {task}", text, tables, rows, picture)


def ssm(lab: Lab) -> Result:
    """Histograms of w before adaptation, and the means that eq. 1 orders."""
    found, pair = lab.task()
    task = found.task(pair)
    records = lab.measure(task, measure_ssm, [{"iterations": n} for n in ITERATIONS])
    groups = [name for name in GROUPS if name in records[0]["means"]]
    finished = sorted({r["key"]["iterations"] for r in records})
    means: dict[int, dict[str, Figure]] = {}
    panels = {}
    rows = []
    for n in finished:
        mine = [r for r in records if r["key"]["iterations"] == n]
        means[n] = {group: figure([r["means"][group] for r in mine]) for group in groups}
        counts = {group: np.sum([r["histograms"][group] for r in mine], 0) for group in groups}
        panels[f"iteration {n}"] = {group: counts[group] for group in ("target-shared", "target-private")}
        for group in groups:
            bins = {f"bin{i}": int(count) for i, count in enumerate(counts[group])}
            value = means[n][group]
            rows.append({"iterations": n, "group": group, "mean": value.mean, "deviation": value.deviation, **bins})
    body = [[str(n), *(_two(means[n][group]) for group in groups), _order(means[n])] for n in finished]
    text = [
        f"{found.name} {'→'.join(pair)}: w = exp(max ŷ) of the source model, from 1 (no source class) to e, before any "
        f"adaptation, after {' and '.join(map(str, ITERATIONS))} iterations of procurement; all samples of "
        f"{lab.seeds} seeds. Source samples are held out from training; negatives are the composites that it was "
        "trained with.",
        "Eq. 1 expects: negatives ≈ target-private < target-shared < source-private ≈ source-shared.",
    ]
    tables = {"Means of w, ± over the seeds": (["iterations", *groups, "order of eq. 1"], body)}
    picture = histograms(EDGES, panels, "w = exp(max ŷ)")
    title = f"Source similarity metric of the target: {found.name} {task.name}"
    return Result(title, text, tables, rows, picture)


def _two(value: Figure) -> str:
    return f"{value.mean:.2f}" + ("" if value.deviation is None else f" ± {value.deviation:.2f}")


def _order(means: Mapping[str, Figure]) -> str:
    """Whether negatives and private samples are below the shared ones, and these below the source's."""
    low = max(means[group].mean or 0 for group in ("negatives", "target-private") if group in means)
    high = min(means[group].mean or 0 for group in ("source-private", "source-shared") if group in means)
    return "holds" if low < (means["target-shared"].mean or 0) < high else "does not hold"


def measure_ssm(source: Source, target: Domain, seed: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """One run: mean and histogram of w for each group; labels of the target only tell the groups apart."""
    settings, X = settings_for(source, given), target.X[:]
    model = vendor(source, None, settings, seed)
    assert source.samples is not None
    ready = prepare(source.samples, source.backbone, None, settings)
    held_out = ready.held_out
    known = np.isin(target.labels, source.classes)
    both = np.isin(ready.names[ready.targets[held_out]], target.labels)
    vectors = {
        "negatives": ready.X_n[:], "target-private": X[~known], "target-shared": X[known],
        "source-private": ready.samples.X[held_out[~both]], "source-shared": ready.samples.X[held_out[both]],
    }  # fmt: skip
    w = {group: model.decide(v).ssm for group, v in vectors.items() if len(v)}
    return {
        "means": {group: float(values.mean()) for group, values in w.items()},
        "histograms": {group: np.histogram(values, EDGES)[0].tolist() for group, values in w.items()},
        "settings": {"procurement": model.card["procurement"]["settings"]},
        "backbone": source.backbone and source.backbone.name,
        "versions": versions(),
    }

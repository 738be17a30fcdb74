"""Learnable parameters and seconds of procurement, deployment and UAN."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..config import Config
from ..data.samples import Features, Samples
from ..features.extract import Extractor
from ..methods.findings import count
from ..methods.usfda.networks import D, learnable, make_f, make_g
from ..stages.adapt import adapt
from ..stages.procure import procure
from .baselines.api import Baseline
from .baselines.deployment import Mixture
from .figures import points
from .reproduce import DataFolder, PaperExperiment, Result
from .runner import Runner
from .runs import circumstances
from .tables import Statistic

# A row of the table: the method and the stage of its record, and what the paper prints (learnable parameters, seconds).
ROWS = {
    "procurement": ("usfda", "procurement", "11.1 M", 380.0),
    "deployment, `usfda`": ("usfda", "deployment", "3.5 M", 44.0),
    "deployment, `mixture`": ("mixture", "deployment", "–", None),
    "UAN": ("uan", "deployment", "26.7 M", 450.0),
}


class Complexity(PaperExperiment):
    """Runs go one after the other, each with all threads and an empty store, so that M's seconds are measured, too."""

    name = "complexity"
    version = 1
    one_at_a_time = True

    def depends_on(self, config: Config) -> dict[str, Any]:
        """Seconds depend on the number of threads."""
        return {"threads": config.threads}

    def measure(self, baseline: Baseline, source: Features, target: Features) -> dict[str, Any]:
        """Every stage of a method, from images."""
        assert source.paths is not None
        assert target.paths is not None
        from_images, unlabelled = Samples(source.paths, source.labels), Samples(target.paths)
        with TemporaryDirectory() as folder:
            config = replace(baseline.config, cache=Path(folder))
            if isinstance(baseline, Mixture):
                return _own_stages(baseline, from_images, unlabelled, config)
            return _trained_together(baseline, from_images, unlabelled, config)

    def result(self, runner: Runner, data: DataFolder) -> Result:
        """Run it."""
        found, pair = data.one_task(self.name)
        task = found.task(pair)
        source, target = runner.reader.read(task)
        records = self.records(runner, [task], {name: (name, {}) for name, *_ in ROWS.values()})
        rows, body = [], []
        training, whole, printed = [], [], []
        for row, (baseline, stage, printed_parameters, printed_seconds) in ROWS.items():
            parameters, seconds = (printed_parameters, printed_seconds) if found.id == "office31" else ("–", None)
            mine = [record["stages"][stage] for record in records[baseline]]
            m, own = (Statistic.of(part[name] for part in mine) for name in ("features", "training"))
            printed.append(Statistic(seconds, None))
            training.append(own)
            whole.append(Statistic.of(part["features"] + part["training"] for part in mine))
            learnt = mine[0]["parameters"] if mine else 0
            shown = "–" if seconds is None else f"{seconds:.0f}"
            body.append([row, f"{learnt / 1e6:.2f} M", str(m), str(own), parameters, shown])
            rows.append(
                {
                    "stage": row.replace("`", ""), "parameters": learnt, "seconds_of_M": m.mean,
                    "seconds_of_training": own.mean, "seconds_of_training_deviation": own.deviation,
                    "paper_parameters": parameters, "paper_seconds": seconds,
                }
            )  # fmt: skip
        width, classes, threads = source.X.shape[1], len(source.classes), runner.config.threads
        negatives = next((r["negative_classes"] for r in records["usfda"]), 0)
        at_2048 = [learnable(make_f(2048), make_g(2048), D(classes, negatives)) / 1e6, learnable(make_f(2048)) / 1e6]
        seeds = count(runner.seeds, "seed")
        text = [
            f"{found.name} {task.name}: {len(source)} source images, {len(target)} target images, {classes} classes, "
            f"vectors of {width} dimensions; {threads} threads of a CPU, {seeds}, one run at a time. "
            "Seconds of M include decoding and, in procurement, the composites; a second run takes them from the "
            "store.",
            f"With ResNet-50's 2048 dimensions our networks have {at_2048[0]:.1f} M parameters in procurement and "
            f"{at_2048[1]:.1f} M in deployment (the paper: 11.1 M and 3.5 M). The paper's 26.7 M of UAN include the "
            "ResNet-50 that it trains; ours learns on frozen vectors. Its seconds are of other hardware.",
        ]
        head = ["stage", "learnable", "M, s", "training, s", "paper: learnable", "paper: s"]
        series = {"training": training, "with M": whole, "usfda": printed}
        picture = points([row.replace("`", "") for row in ROWS], {"seconds": series}, "seconds")
        tables = {"Parameters and seconds": (head, body)}
        return Result(f"Complexity: {found.name} {task.name}", text, tables, rows, picture)


def _own_stages(baseline: Mixture, source: Samples, target: Samples, config: Config) -> dict[str, Any]:
    """Procurement for this method alone, and deployment."""
    assert baseline.backbone is not None
    model = procure(
        source, method=baseline.method, backbone=baseline.backbone, seed=baseline.seed, settings=baseline.procurement,
        config=config,
    )  # fmt: skip
    baseline.model = adapt(
        model, target, method=baseline.method, seed=baseline.seed, settings=baseline.settings.deployment, config=config
    )
    stages = {}
    for stage in ("procurement", "deployment"):
        card = baseline.model.card[stage]
        seconds = card["seconds"]
        of_m = sum(seconds.get(part, 0) for part in ("features", "negatives"))
        parameters = card.get("learnable_parameters", 0)
        stages[stage] = {"parameters": parameters, "features": of_m, "training": sum(seconds.values()) - of_m}
    classes = model.card["procurement"].get("negatives", {}).get("classes")
    return {"stages": stages, "negative_classes": classes, **circumstances(baseline)}


def _trained_together(baseline: Baseline, source: Samples, target: Samples, config: Config) -> dict[str, Any]:
    """A method without a stage of its own at the source: M's seconds are those of both sides, without composites."""
    assert baseline.backbone is not None
    extractor = Extractor.make(baseline.backbone, config)
    started = time.perf_counter()
    labelled, X = extractor.features(source), extractor.features(target).X
    extracted = time.perf_counter()
    baseline.adapt(X, labelled)
    done = time.perf_counter()
    seconds = {"features": extracted - started, "training": done - extracted}
    return {"stages": {"deployment": {"parameters": baseline.parameters, **seconds}}, **circumstances(baseline)}

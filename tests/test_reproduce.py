"""`usfda reproduce`: every experiment on the digits or made-up copies; the same numbers again; nothing done twice."""

from __future__ import annotations

import csv
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
from quick import QUICK
from test_datasets import office_home, others, write  # noqa: F401  (fixtures)
from threadpoolctl import threadpool_limits

from usfda import Config, Features, ProcurementSettings, UsfdaSettings, adapt, evaluate, procure
from usfda.cli.main import main
from usfda.experiments import EXPERIMENTS, get_experiment
from usfda.experiments.ablations import GROUPS, SourceSimilarity
from usfda.experiments.baselines.api import Baseline
from usfda.experiments.complexity import ROWS
from usfda.experiments.gaps import CategoryGap, OneShotRecognition
from usfda.experiments.paper_tables import PAPER_ROWS, Table2, printed
from usfda.experiments.protocols import OFFICE31
from usfda.experiments.reproduce import DataFolder, PaperExperiment, reproduce
from usfda.experiments.runner import Baselines, Runner
from usfda.experiments.runs import Experiment, Record
from usfda.experiments.tables import csv_table
from usfda.experiments.tasks import Task

SMALL: dict[str, PaperExperiment] = {
    "fig-ssm": SourceSimilarity(iterations=(30, 150)),
    "fig-gap": CategoryGap(steps=2),
}


class Done(Protocol):
    """Runs an experiment with a small budget, once for all tests."""

    def __call__(self, name: str) -> Path: ...


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built-in digits, twenty of each and domain."""
    from usfda.experiments.digits import write_images

    return write_images(tmp_path_factory.mktemp("digits"), each=20)[0].parent


def run(
    experiment: PaperExperiment, data: Path, out: Path, config: Config, tasks: str | None = None, **more: Any
) -> Runner:
    more = {"settings": QUICK, "seeds": 1, "backbone": "pixels", **more}
    return reproduce(experiment, data, out, tasks=tasks, config=replace(config, threads=1), **more)[1]


def of(name: str) -> PaperExperiment:
    return SMALL.get(name) or get_experiment(name)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Config:
    return Config(cache=tmp_path_factory.mktemp("shared-store"))


@pytest.fixture(scope="session")
def places(digits: Path, office_home: Path, others: Path) -> dict[str, tuple[Path, str | None]]:  # noqa: F811
    """Data and tasks of an experiment."""
    own = {"table1": (office_home, "Ar-Cl"), "table2": (others, None)}
    return {name: own.get(name, (digits, None)) for name in EXPERIMENTS}


@pytest.fixture(scope="session")
def done(
    tmp_path_factory: pytest.TempPathFactory, store: Config, places: Mapping[str, tuple[Path, str | None]]
) -> Done:
    @cache
    def once(name: str) -> Path:
        out = tmp_path_factory.mktemp(name)
        data, tasks = places[name]
        run(of(name), data, out, store, tasks)
        return out

    return once


def runs(out: Path) -> list[Record]:
    return [json.loads(line) for line in (out / "runs.jsonl").read_text().splitlines()]


def rows(out: Path, name: str) -> list[dict[str, str]]:
    with (out / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_contract(name: str, done: Done, store: Config, places: Mapping[str, tuple[Path, str | None]]) -> None:
    """Runs, writes its four files, and does nothing twice."""
    experiment = get_experiment(name)
    assert experiment.name == name
    assert experiment.version >= 1
    assert type(experiment).__doc__
    out = done(name)
    files = {file.name: file.read_bytes() for file in out.iterdir()}
    assert set(files) == {"runs.jsonl", *(f"{name}.{kind}" for kind in ("md", "csv", "svg", "png"))}
    assert all(r["key"]["experiment"] == name and "error" not in r for r in runs(out))
    assert all(r["versions"]["usfda"] and r["backbone"] == "pixels" for r in runs(out))
    data, tasks = places[name]
    again = run(of(name), data, out, store, tasks)
    assert len(again.records) == len(runs(out)) > 0
    assert files == {file.name: file.read_bytes() for file in out.iterdir()}


def test_names_are_those_of_the_help_and_the_docs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--help"]) == 0
    shown = "".join(capsys.readouterr().out.replace("│", " ").split())  # some versions of typer fold at hyphens
    assert ",".join(EXPERIMENTS) in shown
    page = (Path(__file__).parents[1] / "docs" / "reproduction.md").read_text()
    assert [name for name in EXPERIMENTS if name not in page] == [], "docs/reproduction.md must name them"


def test_an_experiment_that_measures_something_else_runs_again(digits: Path, tmp_path: Path, config: Config) -> None:
    """Raising its version is enough; another experiment in the same folder has records of its own."""

    @dataclass(frozen=True)
    class Raised(SourceSimilarity):
        version = SourceSimilarity.version + 1

    counts = []
    for experiment in (SourceSimilarity((12,)), SourceSimilarity((12,)), Raised((12,)), Raised((12,))):
        run(experiment, digits, tmp_path, config)
        counts.append(len(runs(tmp_path)))
    assert counts == [1, 1, 2, 2]
    run(OneShotRecognition(baselines=("source-only",)), digits, tmp_path, config)
    assert len(runs(tmp_path)) == 3


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("fig-beta", ["0", "0.01", "0.05", "0.1", "0.2", "0.5", "1", "2"]),
        ("fig-alpha", ["0", "0.05", "0.1", "0.2", "0.5", "1", "2"]),
        ("fig-batch-ratio", ["64:8", "64:16", "64:32", "64:64", "64:128", "64:256"]),
        ("fig-negatives", ["0*", "4", "8", "21", "21, three images"]),
    ],
)
def test_sensitivity(name: str, values: list[str], done: Done) -> None:
    out = done(name)
    assert [row["value"] for row in rows(out, name)] == values
    found = runs(out)
    assert len(found) == len(values)
    text = (out / f"{name}.md").read_text()
    assert "digits M→U" in text
    assert "backbone pixels" in text
    table = [line.replace("\\|", "") for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in table} == {6}  # five columns, also where a name has a bar in it
    settings = {json.dumps(r["settings"], sort_keys=True) for r in found}
    assert len(settings) == len(values)  # the setting in question is another in each run
    if name == "fig-negatives":
        made = [(r["settings"]["negatives"], r["settings"]["procurement"]) for r in found]
        kinds = {(n["kind"], n["classes"], p["images_per_composite"]) for n, p in made}
        composites = {("composite", 4, 2), ("composite", 8, 2), ("composite", 21, 2), ("composite", 21, 3)}
        assert kinds == {("latent", 1, 2), *composites}


def test_ssm(done: Done) -> None:
    table = rows(done("fig-ssm"), "fig-ssm")
    assert [(row["iterations"], row["group"]) for row in table[:2]] == [("30", "negatives"), ("30", "target-private")]
    sizes = {row["group"]: sum(int(row[f"bin{i}"]) for i in range(40)) for row in table}
    assert (sizes["target-private"], sizes["target-shared"]) == (60, 100)
    assert (sizes["source-private"], sizes["source-shared"]) == (4, 10)  # a tenth is held out
    for row in table:
        counts = np.asarray([int(row[f"bin{i}"]) for i in range(40)])
        centre = 1 + (np.arange(40) + 0.5) * (np.e - 1) / 40
        assert float(row["mean"]) == pytest.approx(counts @ centre / counts.sum(), abs=0.03)
    means = {row["group"]: float(row["mean"]) for row in table if row["iterations"] == "150"}
    assert means["target-private"] < means["target-shared"]
    assert {r["settings"]["procurement"]["iterations"] for r in runs(done("fig-ssm"))} == {30, 150}


def test_gap_grid(done: Done) -> None:
    table = rows(done("fig-gap"), "fig-gap")
    splits = {(int(r["shared"]), int(r["source_private"]), int(r["target_private"])) for r in table}
    assert all(sum(split) == 10 and split[0] >= 1 for split in splits)
    assert splits == {(10 - s - t, s, t) for s in (0, 5) for t in (0, 5) if s + t < 10}
    assert len(table) == 4 * len(splits)
    assert {r["key"]["task"] for r in runs(done("fig-gap"))} == {f"digits/{s}-{p}-{t}/M-U" for s, p, t in splits}
    for row in table:
        assert (row["h_score"] == "") == (row["target_private"] == "0")
        assert 0 <= float(row["t_avg"]) <= 100


def test_one_shot_where_nothing_is_shared(done: Done) -> None:
    table = {row["method"]: row for row in rows(done("one-shot"), "one-shot")}
    assert set(table) == {"mixture", "usfda", "uan", "source-only", "none: vectors of the backbone"}
    assert 20 < float(table["none: vectors of the backbone"]["one_shot"]) < 95
    assert all(row["paper_one_shot"] == "" for row in table.values())  # the paper's figure is of Office-31
    for record in runs(done("one-shot")):
        assert record["t_avg"] == record["t_unk"]


def test_complexity(done: Done) -> None:
    out = done("complexity")
    table = {row["stage"]: row for row in rows(out, "complexity")}
    assert list(table) == [row.replace("`", "") for row in ROWS]
    assert all(float(row["seconds_of_M"]) > 0 and float(row["seconds_of_training"]) > 0 for row in table.values())
    assert int(table["procurement"]["parameters"]) > int(table["deployment, usfda"]["parameters"])
    assert {row["paper_parameters"] for row in table.values()} == {"–"}  # the paper's are of Office-31
    assert {r["key"]["threads"] for r in runs(out)} == {1}
    assert "and 3.5 M in deployment (the paper: 11.1 M and 3.5 M)" in (out / "complexity.md").read_text()


def test_table1_beside_the_paper(done: Done) -> None:
    table = rows(done("table1"), "table1")
    ours = {(row["method"], row["metric"]): row for row in table if row["figures"] == "pixels"}
    assert len(ours) == 48  # four metrics of eleven methods, and what selection by labels would give
    assert all(row["task"] == "Ar-Cl" and 0 <= float(row["mean"]) <= 100 for row in ours.values())
    paper = [row for row in table if row["figures"] != "pixels"]
    assert {row["method"] for row in paper} == {"ResNet", "IWAN", "PADA", "ATI", "OSBP", "UAN", "USFDA"}
    assert len(paper) == 7 * 13
    text = (done("table1") / "table1.md").read_text()
    assert "| ResNet | paper, ResNet-50 | 59.37 | 76.58 |" in text
    assert "Data that is not as published: Office-Home Art has 195 images" in text


def test_table2_with_what_is_there(done: Done) -> None:
    assert "Not run: no Office-31 here" in (done("table2") / "table2.md").read_text()
    found = {(r["key"]["task"].rpartition("/")[2], r["key"]["method"]): r for r in runs(done("table2"))}
    assert {task for task, _ in found} == {"S-R", "I-C", "C-I"}
    assert found["C-I", "usfda"]["key"]["settings"]["procurement"]["max_negative_classes"] == 200
    assert found["C-I", "usfda"]["settings"]["procurement"]["max_negative_classes"] == 200
    assert found["I-C", "usfda"]["settings"]["procurement"]["max_negative_classes"] == 600
    assert "max_negative_classes" not in found["S-R", "usfda"]["key"]["settings"]["procurement"]
    assert found["C-I", "uan"]["key"]["settings"] == QUICK["uan"]
    for task, shared in (("S-R", 6), ("I-C", 2), ("C-I", 2)):
        record = found[task, "mixture"]
        assert sum(name in record["confusion"]["labels"] for name in record["per_class"]) == shared
    table = rows(done("table2"), "table2")
    assert {row["task"] for row in table if row["method"] == "mixture"} == {"S-R", "I-C", "C-I"}
    office31 = [row for row in table if row["dataset"] == "Office-31"]
    assert office31
    marked = "usfda, best step by target labels: not a result"
    for task in ("S-R", "I-C", "C-I"):
        along = found[task, "usfda"]["along"]
        assert [at["step"] for at in along] == [10]  # of twelve
        best = max(found[task, "usfda"]["t_avg"], along[0]["t_avg"])
        shown = [row for row in table if (row["method"], row["task"], row["metric"]) == (marked, task, "T_avg")]
        assert [float(row["mean"]) for row in shown] == [pytest.approx(best, abs=1e-3)]
    assert all("along" not in record for (_, baseline), record in found.items() if baseline != "usfda")
    assert {row["figures"] for row in office31} == {"paper, ResNet-50", "paper, ResNet-50, implied"}
    implied = {(row["method"], row["task"], row["metric"]): row["mean"] for row in office31}
    assert implied["USFDA", "Avg", "shared accuracy"] == "91.3"
    assert implied["USFDA", "Avg", "H"] == "84.9"
    ours = [row for row in table if row["method"] == "mixture"]
    weights = sorted({found[task, "mixture"]["weights"] for task in ("S-R", "I-C", "C-I")})
    assert {row["weights"] for row in ours} == {", ".join(weights)} != {""}
    assert {(row["seeds"], row["backbone"], row["date"]) for row in ours} == {("0", "pixels", ours[0]["date"])}
    assert all(row["command"].startswith("usfda reproduce table2 --data DIR") for row in ours)
    assert {row["command"] + row["date"] + row["backbone"] for row in office31} == {""}


def test_a_list_of_shared_classes(others: Path, tmp_path: Path, config: Config) -> None:  # noqa: F811
    shared = {"top-hat": "n02879718", "ak47": "n01440764", "012.binoculars": "n02841315"}
    run(Table2(), others, tmp_path, config, "I-C", shared=shared)
    record = next(r for r in runs(tmp_path) if r["key"]["method"] == "mixture")
    both = {name for name in record["per_class"] if name in record["confusion"]["labels"]}
    assert both == {"213.top-hat", "001.ak47", "012.binoculars"}
    text = (tmp_path / "table2.md").read_text()
    assert "--tasks I-C --shared FILE" in text
    assert "3 classes are shared, by a list that was given" in text


def test_half_of_a_data_set_stops_only_its_own_tasks(
    others: Path,  # noqa: F811
    tmp_path: Path,
    store: Config,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(others, tmp_path / "data")
    whole = tmp_path / "data" / "imagenet" / "ILSVRC" / "Data" / "CLS-LOC"
    shutil.rmtree(whole / "val")
    first = next((whole / "train" / "n01440764").iterdir())
    for i in range(100):  # so many images that it is no reduced copy
        shutil.copy(first, first.with_name(f"copy{i}.JPEG"))
    run(Table2(), tmp_path / "data", tmp_path / "out", store)
    assert {r["key"]["task"].rpartition("/")[2] for r in runs(tmp_path / "out")} == {"S-R", "I-C"}
    text = (tmp_path / "out" / "table2.md").read_text()
    assert "Not run: ImageNet-Caltech C→I: imagenet/ILSVRC/Data/CLS-LOC: ImageNet's folder val is missing." in text
    assert str(tmp_path) not in text
    assert main(["reproduce", "table2", "--data", str(tmp_path / "data"), "--tasks", "C-I", "-o", str(tmp_path)]) == 2
    assert "ImageNet's folder val is missing" in " ".join(capsys.readouterr().err.split())


class Made(Runner):
    """A runner whose records are known: T_avg is 10·seed + position of the task, T_unk twice that; one is missing."""

    def run(
        self, experiment: Experiment, tasks: Sequence[Task], baselines: Baselines, shown: Any = None
    ) -> dict[str, list[Record]]:
        return {
            label: [
                {
                    "key": {"task": task.id, "seed": seed},
                    "t_avg": 10.0 * seed + i,
                    "t_unk": 20.0 * seed + 2 * i,
                    "h_score": None,
                    "shared_accuracy": None,
                }
                for i, task in enumerate(tasks)
                for seed in range(self.seeds)
                if (label, seed, i) != ("uan", 1, 5)
            ]
            for label in baselines
        }


def test_means_and_deviations_of_the_tables(tmp_path: Path) -> None:
    for name in ("amazon", "dslr", "webcam"):
        write(tmp_path / name, list(OFFICE31), 1)
    result = Table2().result(Made(tmp_path / "out", seeds=3), DataFolder(tmp_path))
    table = csv.DictReader(csv_table(result.rows, 4).splitlines())
    found = {(row["method"], row["metric"], row["task"]): row for row in table}
    # A-D is the first task, W-D the last; the deviation of 0, 10, 20 is √(200/3).
    assert float(found["dann", "T_avg", "A-D"]["mean"]) == 10
    assert float(found["dann", "T_unk", "W-D"]["mean"]) == 30
    assert float(found["dann", "T_avg", "A-D"]["deviation"]) == pytest.approx((200 / 3) ** 0.5, abs=1e-4)
    assert float(found["dann", "T_avg", "Avg"]["mean"]) == 12.5  # over tasks 2.5, over seeds 10
    assert float(found["dann", "T_avg", "Avg"]["deviation"]) == pytest.approx((200 / 3) ** 0.5, abs=1e-4)
    # UAN lacks a task of seed 1: that seed counts for the other tasks, but not for the mean.
    assert float(found["uan", "T_avg", "A-D"]["mean"]) == 10
    assert float(found["uan", "T_avg", "W-D"]["mean"]) == 15
    assert float(found["uan", "T_avg", "Avg"]["mean"]) == 12.5
    assert float(found["uan", "T_avg", "Avg"]["deviation"]) == 10
    assert float(found["USFDA", "T_avg", "Avg"]["mean"]) == 90.18
    head, body = result.tables["Office-31, T_avg"]
    assert head == ["method", "figures", "A→W", "D→W", "W→D", "A→D", "D→A", "W→A", "mean"]
    line = ["`dann`", "efficientnet_lite0", "11.0 ± 8.2", "13.0 ± 8.2", "15.0 ± 8.2", "10.0 ± 8.2"]
    assert line in [row[:6] for row in body]
    assert result.title == "Table 2: Office-31"


def test_the_command_of_the_readme_shows_the_figures_in_brackets(tmp_path: Path) -> None:
    """Fault: accuracy without rejection stood in runs.jsonl alone."""
    for seed, name in enumerate(("amazon", "dslr", "webcam")):
        write(tmp_path / name, list(OFFICE31), 3, seed=seed)
    script = Path(__file__).parents[1] / "benchmarks" / "check.py"
    options = ["-o", str(tmp_path / "runs"), "--gaps", "closed", "--backbone", "pixels"]
    ran = subprocess.run([sys.executable, script, tmp_path, *options], capture_output=True, text=True, check=True)
    head, _, row = ([cell.strip() for cell in line.split("|")] for line in ran.stdout.strip().splitlines())
    shown = dict(zip(head, row, strict=True))
    records = [json.loads(line) for line in (tmp_path / "runs" / "runs.jsonl").read_text().splitlines()]
    assert shown["figure"] == f"{np.mean([record['shared_accuracy'] for record in records]):.1f}"
    assert shown["without rejection"] == f"{np.mean([record['closed_accuracy'] for record in records]):.1f}"


def test_only_what_is_printed_is_the_papers() -> None:
    found = printed()
    assert str(found["Office-31", "A-D", "USFDA", "T_avg"]) == "88.47 ± 0.3"
    assert str(found["VisDA", "S-R", "USFDA", "T_avg"]) == "63.92"
    assert {row for _, _, row, _ in found} == {row for paper_rows in PAPER_ROWS.values() for row in paper_rows}
    assert {metric for *_, row, metric in found if row in ("USFDA", "UAN*")} == {"T_avg", "T_unk"}


ONE_SHOT = """
import logging, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from quick import QUICK
from usfda import Config
from usfda.experiments.gaps import OneShotRecognition
from usfda.experiments.reproduce import reproduce

logging.basicConfig(level=logging.INFO)
config = Config(threads=1, cache=Path({cache!r}))
chosen = OneShotRecognition(("mixture", "source-only", "usfda", "shot"))
reproduce(chosen, Path({data!r}), Path({out!r}), seeds=1, backbone="pixels", settings=QUICK, config=config)
"""


def test_same_seed_settings_and_versions_give_the_same_numbers(digits: Path, tmp_path: Path) -> None:
    """A process that is really killed and called again, and the public names, with a cache of their own, with what a
    run's record says: the same numbers. Nothing is done twice, and what is drawn again is the same to the last byte."""
    out = tmp_path / "out"
    given = {"tests": Path(__file__).parent, "cache": tmp_path / "cache", "data": digits, "out": out}
    command = [sys.executable, "-c", ONE_SHOT.format(**{name: str(place) for name, place in given.items()})]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    journal = out / "runs.jsonl"
    while not (journal.exists() and journal.read_bytes().count(b"\n") >= 2) and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = journal.read_bytes().splitlines()[:2]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "of 4 runs are finished already" in finished.stderr
    assert journal.read_bytes().splitlines()[:2] == kept
    keys = [json.dumps(r["key"]) for r in runs(out)]
    assert len(keys) == len(set(keys)) == 4
    files = {kind: (out / f"one-shot.{kind}").read_bytes() for kind in ("csv", "md", "svg", "png")}
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "4 of 4 runs are finished already" in again.stderr
    assert files == {kind: (out / f"one-shot.{kind}").read_bytes() for kind in files}

    (record,) = [r for r in runs(out) if r["key"]["method"] == "usfda"]
    settings, seed, config = record["settings"], record["key"]["seed"], Config(threads=1, cache=tmp_path / "own")
    before, after = ProcurementSettings(**settings["procurement"]), UsfdaSettings(**settings["deployment"])
    source, target, private = digits / "mnist", digits / "uci", "5,6,7,8,9"
    with threadpool_limits(1):  # as in a run: sums of several threads are rounded in another order
        model = procure(
            source, method="all", classes="0,1,2,3,4", backbone=record["backbone"], seed=seed, settings=before,
            config=config,
        )  # fmt: skip
        adapted = adapt(model, target, classes=private, method="usfda", seed=seed, settings=after, config=config)
        found = evaluate(adapted, target, classes=private, config=config)
    assert found.keys() & record.keys() >= {"t_avg", "t_unk", "h_score", "per_class", "confusion"}
    assert all(record[key] == found[key] for key in found.keys() & record.keys())


@dataclass(frozen=True)
class Canned(SourceSimilarity):
    """Its records are those of the experiment itself, as far as their keys tell, and take no time."""

    one_at_a_time = True

    def measure(self, baseline: Baseline, source: Features, target: Features) -> dict[str, Any]:
        means = {group: 1.0 + i / 4 for i, group in enumerate(GROUPS)}
        return {"means": means, "histograms": dict.fromkeys(GROUPS, [1] * 40), "versions": {"usfda": "1"}}


def test_the_command_shows_what_is_finished(
    digits: Path, tmp_path: Path, config: Config, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "usfda"):
        run(Canned(), digits, tmp_path, config, settings=None, log_runs=True)
    assert "2 of 2: usfda digits/open-partial/M-U seed 0 iterations 500: done" in caplog.text
    call = ["reproduce", "fig-ssm", "--data", str(digits), "--backbone", "pixels", "--seeds", "1", "-o", str(tmp_path)]
    assert main(call) == 0
    shown = capsys.readouterr()
    assert "2 of 2 runs are finished already" in shown.err
    assert "fig-ssm.md, fig-ssm.csv, fig-ssm.svg, fig-ssm.png; every run in runs.jsonl" in shown.err
    assert "Means of w, ± over the seeds" in shown.out
    assert "holds" in shown.out


def test_what_fails_is_left_out_and_said(digits: Path, tmp_path: Path, config: Config) -> None:
    settings = {**QUICK, "uan": {"steps": 12, "rate": 1e30}}
    runner = run(OneShotRecognition(), digits, tmp_path, config, settings=settings)
    assert [r["error"] for r in runner.failed] == ["RuntimeError: diverged: the loss is not finite at step 1"]
    assert "1 runs failed and are left out" in (tmp_path / "one-shot.md").read_text()
    assert {row["method"]: row["one_shot"] for row in rows(tmp_path, "one-shot")}["uan"] == ""
    with pytest.raises(RuntimeError, match="diverged"):
        run(OneShotRecognition(baselines=("uan",)), digits, tmp_path, config, settings=settings)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fig-none", "--data", "DIR"], "no experiment 'fig-none'; choose from table1, table2, fig-ssm"),
        (["table1", "--data", "DIR"], "no Office-Home here, that is, folders Art, Clipart, Product, Real World"),
        (["fig-beta", "--data", "DIR", "--tasks", "A-D"], "no task 'A-D'; choose from M-U"),
        (["fig-beta", "--data", "absent"], "error: absent: no such folder"),
        (["fig-beta", "--data", "HOME", "--tasks", "Ar-Cl,Ar-Pr"], "fig-beta is about one task; --tasks names 2"),
        (["table1", "--data", "HOME", "--tasks", "A-D"], "no task 'A-D'; choose from Ar-Cl"),
        (["fig-beta"], "Missing option '--data'"),
        (["table2", "--data", "DIR", "--shared", "absent.csv"], "--shared: no file absent.csv"),
    ],
)
def test_wrong_calls(
    arguments: list[str],
    message: str,
    digits: Path,
    office_home: Path,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = {"DIR": str(digits), "HOME": str(office_home)}
    assert main(["reproduce", *(given.get(a, a) for a in arguments), "-o", str(tmp_path / "out")]) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert shown.count(message) == 1


@pytest.mark.parametrize(
    ("missing", "call"), [("matplotlib", ["reproduce", "fig-beta", "--data", "."]), ("mlxtend", ["demo"])]
)
def test_an_extra_that_is_missing_is_named(missing: str, call: list[str]) -> None:
    code = f"import sys; sys.modules['{missing}'] = None; from usfda.cli.main import main; sys.exit(main({call}))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert shown.returncode == 2
    assert f"{missing}; pip install 'usfda[{'demo' if missing == 'mlxtend' else 'reproduce'}]'" in shown.stderr

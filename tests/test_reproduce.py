"""`usfda reproduce`: every experiment on the digits or made-up copies; the same numbers again; nothing done twice."""

from __future__ import annotations

import csv
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_datasets import office_home, others, write  # noqa: F401  (fixtures)

from usfda import DeploymentSettings, ProcurementSettings, adapt, evaluate, procure
from usfda.cli import main
from usfda.digits import write_images
from usfda.experiments import ablations, complexity, gaps
from usfda.experiments.paper_tables import printed
from usfda.experiments.reproduce import Lab, experiments, reproduce
from usfda.protocols import OFFICE31
from usfda.runtime import runtime

NAMES = [
    "table1", "table2", "fig-ssm", "fig-beta", "fig-alpha", "fig-batch-ratio", "fig-negatives", "fig-gap", "one-shot",
    "complexity",
]  # fmt: skip


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built-in digits, twenty of each and domain."""
    whole, some = tmp_path_factory.mktemp("digits"), tmp_path_factory.mktemp("some")
    for domain in write_images(whole):
        for place in domain.iterdir():
            (some / domain.name / place.name).mkdir(parents=True)
            for file in sorted(place.iterdir())[:20]:
                shutil.copy(file, some / domain.name / place.name)
    return some


def call(name: str, data: Path, out: Path, *more: str, threads: int = 1) -> int:
    fixed = ["--backbone", "pixels", "--seeds", "1", "-o", str(out)]
    return main(["--threads", str(threads), "reproduce", name, "--data", str(data), *fixed, *more])


def runs(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "runs.jsonl").read_text().splitlines()]


def rows(out: Path, name: str) -> list[dict[str, str]]:
    with (out / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


def test_names_are_those_of_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(experiments()) == NAMES
    assert main(["reproduce", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert all(name in shown for name in NAMES)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    ("name", "count", "values"),
    [
        ("fig-beta", 8, ["0", "0.01", "0.05", "0.1", "0.2", "0.5", "1", "2"]),
        ("fig-alpha", 7, ["0", "0.05", "0.1", "0.2", "0.5", "1", "2"]),
        ("fig-batch-ratio", 6, ["64:8", "64:16", "64:32", "64:64", "64:128", "64:256"]),
        ("fig-negatives", 5, ["0*", "4", "8", "21", "21, three images"]),
    ],
)
def test_sensitivity(name: str, count: int, values: list[str], digits: Path, tmp_path: Path) -> None:
    assert call(name, digits, tmp_path) == 0
    assert [row["value"] for row in rows(tmp_path, name)] == values
    assert {path.name for path in tmp_path.iterdir()} == {
        "runs.jsonl",
        *(f"{name}.{k}" for k in ("md", "csv", "svg", "png")),
    }
    done = runs(tmp_path)
    assert len(done) == count
    text = (tmp_path / f"{name}.md").read_text()
    assert "digits M→U" in text
    assert "backbone pixels" in text
    table = [line.replace("\\|", "") for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in table} == {6}  # five columns, also where a name has a bar in it
    stages = {json.dumps(run["settings"], sort_keys=True) for run in done}
    assert len(stages) == count  # the setting in question is another in each run
    assert all(run["versions"]["usfda"] and run["backbone"] == "pixels" for run in done)
    if name == "fig-negatives":
        made = [(run["settings"]["negatives"], run["settings"]["procurement"]) for run in done]
        kinds = {(n["kind"], n["classes"], p["images_per_composite"]) for n, p in made}
        composites = {("composite", 4, 2), ("composite", 8, 2), ("composite", 21, 2), ("composite", 21, 3)}
        assert kinds == {("latent", 1, 2), *composites}


@pytest.mark.usefixtures("short")
def test_ssm(digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablations, "ITERATIONS", (30, 150))
    assert call("fig-ssm", digits, tmp_path) == 0
    table = rows(tmp_path, "fig-ssm")
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
    assert {run["settings"]["procurement"]["iterations"] for run in runs(tmp_path)} == {30, 150}


@pytest.mark.usefixtures("short")
def test_gap_grid(digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaps, "STEPS", 2)
    assert call("fig-gap", digits, tmp_path) == 0
    table = rows(tmp_path, "fig-gap")
    splits = {(int(r["shared"]), int(r["source_private"]), int(r["target_private"])) for r in table}
    assert all(sum(split) == 10 and split[0] >= 1 for split in splits)
    assert splits == {(10 - s - t, s, t) for s in (0, 5) for t in (0, 5) if s + t < 10}
    assert len(table) == 4 * len(splits)
    for row in table:
        assert (row["h_score"] == "") == (row["target_private"] == "0")
        assert 0 <= float(row["t_avg"]) <= 100


@pytest.mark.usefixtures("short")
def test_one_shot_where_nothing_is_shared(digits: Path, tmp_path: Path) -> None:
    assert call("one-shot", digits, tmp_path) == 0
    table = {row["method"]: row for row in rows(tmp_path, "one-shot")}
    assert set(table) == {"usfda", "paper", "uan", "source-only", "none: vectors of the backbone"}
    assert 20 < float(table["none: vectors of the backbone"]["one_shot"]) < 95
    assert all(row["paper_one_shot"] == "" for row in table.values())  # the paper's figure is of Office-31
    for run in runs(tmp_path):
        assert run["t_avg"] == run["t_unk"]


@pytest.mark.usefixtures("short")
def test_complexity(digits: Path, tmp_path: Path) -> None:
    before = runtime.cache
    assert call("complexity", digits, tmp_path) == 0
    assert runtime.cache == before
    table = {row["stage"]: row for row in rows(tmp_path, "complexity")}
    assert list(table) == [stage.replace("`", "") for stage in complexity.STAGES]
    assert all(float(row["seconds_of_M"]) > 0 and float(row["seconds_of_training"]) > 0 for row in table.values())
    assert int(table["procurement"]["parameters"]) > int(table["deployment, paper"]["parameters"])
    assert {row["paper_parameters"] for row in table.values()} == {"–"}  # the paper's are of Office-31
    text = (tmp_path / "complexity.md").read_text()
    assert "and 3.5 M in deployment (the paper: 11.1 M and 3.5 M)" in text


@pytest.mark.usefixtures("short", "office_home")
def test_table1_beside_the_paper(office_home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    assert call("table1", office_home, tmp_path, "--tasks", "Ar-Cl") == 0
    shown = capsys.readouterr()
    assert "not as published" in shown.err
    table = rows(tmp_path, "table1")
    ours = {(row["system"], row["metric"]): row for row in table if row["figures"] == "pixels"}
    assert len(ours) == 22
    assert all(row["task"] == "Ar-Cl" and 0 <= float(row["mean"]) <= 100 for row in ours.values())
    paper = [row for row in table if row["figures"] != "pixels"]
    assert {row["system"] for row in paper} == {"ResNet", "IWAN", "PADA", "ATI", "OSBP", "UAN", "USFDA"}
    assert len(paper) == 7 * 13
    text = (tmp_path / "table1.md").read_text()
    assert "| ResNet | paper, ResNet-50 | 59.37 | 76.58 |" in text
    assert "Data that is not as published: Office-Home Art has 195 images" in text


@pytest.mark.usefixtures("short", "others")
def test_table2_with_what_is_there(others: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    assert call("table2", others, tmp_path) == 0
    text = (tmp_path / "table2.md").read_text()
    assert "Not run: no Office-31 here" in text
    done = {(run["key"]["task"], run["key"]["method"]): run for run in runs(tmp_path)}
    assert {task for task, _ in done} == {"S→R", "I→C", "C→I"}
    assert all("error" not in run for run in done.values())
    assert done["C→I", "paper"]["key"]["negative_classes"] == 200
    assert done["C→I", "paper"]["settings"]["procurement"]["max_negative_classes"] == 200
    assert done["I→C", "paper"]["settings"]["procurement"]["max_negative_classes"] == 600
    assert "max_negative_classes" not in done["S→R", "uan"]["settings"]
    for task, n_shared in (("S→R", 6), ("I→C", 2), ("C→I", 2)):
        run = done[task, "usfda"]
        assert sum(name in run["confusion"]["labels"] for name in run["per_class"]) == n_shared
    table = rows(tmp_path, "table2")
    assert {row["task"] for row in table if row["system"] == "usfda"} == {"S-R", "I-C", "C-I"}
    office31 = [row for row in table if row["dataset"] == "Office-31"]
    assert office31
    assert {row["figures"] for row in office31} == {"paper, ResNet-50"}


@pytest.mark.usefixtures("short", "others")
def test_a_list_of_shared_classes(others: Path, tmp_path: Path) -> None:  # noqa: F811
    pairs = tmp_path / "shared.csv"
    pairs.write_text("top-hat,n02879718\nak47,n01440764\n012.binoculars,n02841315\n")
    assert call("table2", others, tmp_path / "out", "--tasks", "I-C", "--shared", str(pairs)) == 0
    run = next(run for run in runs(tmp_path / "out") if run["key"]["method"] == "usfda")
    shared = {name for name in run["per_class"] if name in run["confusion"]["labels"]}
    assert shared == {"213.top-hat", "001.ak47", "012.binoculars"}
    text = (tmp_path / "out" / "table2.md").read_text()
    assert "--tasks I-C --shared FILE" in text
    assert "3 classes are shared, by a list that was given" in text


@pytest.mark.usefixtures("short", "others")
def test_half_of_a_data_set_stops_only_its_own_tasks(
    others: Path,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(others, tmp_path / "data")
    shutil.rmtree(tmp_path / "data" / "imagenet" / "ILSVRC" / "Data" / "CLS-LOC" / "val")
    assert call("table2", tmp_path / "data", tmp_path / "out") == 0
    assert {run["key"]["task"] for run in runs(tmp_path / "out")} == {"S→R", "I→C"}
    text = (tmp_path / "out" / "table2.md").read_text()
    assert "Not run: ImageNet-Caltech C→I: imagenet/ILSVRC/Data/CLS-LOC: ImageNet's folder val is missing." in text
    assert str(tmp_path) not in text
    assert call("table2", tmp_path / "data", tmp_path / "out", "--tasks", "C-I") == 2
    assert "ImageNet's folder val is missing" in " ".join(capsys.readouterr().err.split())


class Made(Lab):
    """A lab whose figures are known: T_avg is 10·seed + position of the task, T_unk twice that; one run is missing."""

    def run(self, tasks: Any, variants: Any) -> list[dict[str, Any]]:
        self.versions.append({"usfda": "1"})
        return [
            {
                "key": {"method": v.method, "task": task.name, "seed": seed},
                "t_avg": 10.0 * seed + i,
                "t_unk": 20.0 * seed + 2 * i,
            }
            for v in variants
            for i, task in enumerate(tasks)
            for seed in range(self.seeds)
            if (v.method, seed, i) != ("uan", 1, 5)
        ]


def test_means_and_deviations_of_the_tables(tmp_path: Path) -> None:
    for name in ("amazon", "dslr", "webcam"):
        write(tmp_path / name, list(OFFICE31), 1)
    result = reproduce(Made("table2", tmp_path, tmp_path / "out", seeds=3))
    found = {(row["system"], row["metric"], row["task"]): row for row in rows(tmp_path / "out", "table2")}
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
    assert head == ["system", "figures", "A→W", "D→W", "W→D", "A→D", "D→A", "W→A", "mean"]
    line = ["`dann`", "efficientnet_lite0", "11.0 ± 8.2", "13.0 ± 8.2", "15.0 ± 8.2", "10.0 ± 8.2"]
    assert line in [row[:6] for row in body]
    assert result.title == "Table 2: Office-31"


def test_only_what_is_printed_is_the_papers() -> None:
    found = printed()
    assert str(found["Office-31", "A-D", "USFDA", "T_avg"]) == "88.47 ± 0.3"
    assert str(found["VisDA", "S-R", "USFDA", "T_avg"]) == "63.92"
    rows_of = {row for _, _, row, _ in found}
    assert rows_of == {"ResNet", "IWAN", "PADA", "ATI", "OSBP", "UAN", "UAN*", "USFDA"}
    assert {metric for *_, row, metric in found if row in ("USFDA", "UAN*")} == {"T_avg", "T_unk"}


def test_same_seed_settings_and_versions_give_the_same_numbers(digits: Path, tmp_path: Path) -> None:
    """A process that is really killed and called again, and the public names, with a store of their own, with what a
    run's record says: the same numbers. Nothing is done twice, and what is drawn again is the same to the last byte."""
    out = tmp_path / "out"
    command = [sys.executable, "-m", "usfda", "--threads", "1", "--cache", str(tmp_path / "cache"), "reproduce"]
    command += ["one-shot", "--data", str(digits), "--backbone", "pixels", "--seeds", "1", "-o", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    journal = out / "runs.jsonl"
    while not (journal.exists() and journal.read_bytes().count(b"\n") >= 2) and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = journal.read_bytes().splitlines()[:2]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "of 4 runs are finished already" in done.stderr
    assert journal.read_bytes().splitlines()[:2] == kept
    keys = [json.dumps(run["key"]) for run in runs(out)]
    assert len(keys) == len(set(keys)) == 4
    files = {kind: (out / f"one-shot.{kind}").read_bytes() for kind in ("csv", "md", "svg", "png")}
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "4 of 4 runs are finished already" in again.stderr
    assert files == {kind: (out / f"one-shot.{kind}").read_bytes() for kind in files}

    (record,) = [r for r in runs(out) if r["key"]["method"] == "paper"]
    settings, seed, before = record["settings"], record["key"]["seed"], runtime.threads
    runtime.threads = 1
    try:
        given = ProcurementSettings(**settings["procurement"])
        model = procure(digits / "mnist", classes="0,1,2,3,4", backbone=record["backbone"], seed=seed, settings=given)
        later = DeploymentSettings(**settings["deployment"])
        adapted = adapt(model, digits / "uci", classes="5,6,7,8,9", method="paper", seed=seed, settings=later)
        found = evaluate(adapted, digits / "uci", classes="5,6,7,8,9")
    finally:
        runtime.threads = before
    assert {key: record[key] for key in found} == found


@pytest.mark.usefixtures("short")
def test_what_fails_is_left_out_and_said(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from usfda.baselines import uan

    def fails(*_: Any) -> None:
        raise ArithmeticError("went wrong")

    monkeypatch.setattr(uan.UAN, "adapt", fails)
    assert call("one-shot", digits, tmp_path) == 0
    assert "1 runs failed, the last: ArithmeticError: went wrong (its trace is in runs.jsonl)" in " ".join(
        capsys.readouterr().err.split()
    )
    assert "1 runs failed and are left out" in (tmp_path / "one-shot.md").read_text()
    assert {row["method"]: row["one_shot"] for row in rows(tmp_path, "one-shot")}["uan"] == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fig-none", "--data", "DIR"], "no experiment 'fig-none'; there is table1, table2, fig-ssm"),
        (["table1", "--data", "DIR"], "no Office-Home here, that is, folders Art, Clipart, Product, Real World"),
        (["fig-beta", "--data", "DIR", "--tasks", "A-D"], "no task 'A-D'; there is M-U"),
        (["fig-beta", "--data", "absent"], "error: absent: no such folder"),
        (["fig-beta", "--data", "HOME", "--tasks", "Ar-Cl,Ar-Pr"], "fig-beta is about one task; --tasks names 2"),
        (["table1", "--data", "HOME", "--tasks", "A-D"], "no task 'A-D'; there is Ar-Cl"),
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
    places = {"DIR": str(digits), "HOME": str(office_home)}
    assert main(["reproduce", *(places.get(a, a) for a in arguments), "-o", str(tmp_path / "out")]) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert shown.count(message) == 1

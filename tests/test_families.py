"""`usfda compare --protocol families`: tasks of several families, two thresholds, provenance."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from test_datasets import write

from usfda.cli.main import main
from usfda.experiments.compare_families import figures_by_share
from usfda.experiments.families import find_families, weights_without
from usfda.experiments.protocols import OFFICE31
from usfda.methods.decision import Decision
from usfda.metrics import score_decision

THINGS = ["ant", "bee", "cat", "dog", "elk", "fox"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Office-31 without Caltech-10, and a family of folders."""
    folder = tmp_path_factory.mktemp("families-data")
    for seed, name in enumerate(("amazon", "dslr", "webcam")):
        write(folder / "office31" / name, list(OFFICE31), 3, seed=seed)
    for seed, name in enumerate(("drawn", "photographed")):
        write(folder / "families" / "animals" / name, THINGS, 6, seed=seed)
    return folder


def test_families_of_a_folder(data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is there is found, and what is not is named; classes of the sides go together as their kind says."""
    found = {family.id: family for family in find_families(data, tmp_path)}
    assert list(found) == ["severe", "animals"]
    assert "family office: " in caplog.text
    assert "family imagenet-caltech: " in caplog.text
    assert found["severe"].weights == "without-office"
    assert found["animals"].weights == "all"
    assert len(list((tmp_path / "made").iterdir())) == 2
    tasks = {task.id: task for task in found["animals"].tasks()}
    assert len(tasks) == 6
    for pair in ("drawn-photographed", "photographed-drawn"):
        mixed, closed, apart = (
            tasks[f"families/animals/{kind}/{pair}"] for kind in ("mixed", "no-unknown", "no-shared")
        )
        source = set(mixed.source_classes or ())
        assert len(source) == 4
        assert len(source & set(mixed.target_classes or ())) == len(set(mixed.target_classes or ()) - source) == 2
        assert set(closed.target_classes or ()) == source
        assert not source & set(apart.target_classes or ())
        assert mixed.source is closed.source is apart.source


def test_weights_that_did_not_see_a_family() -> None:
    assert weights_without("office") == weights_without("severe") == "without-office"
    assert weights_without("objects") == "without-imagenet-caltech"
    assert weights_without("kinds") == "without-kinds"
    assert weights_without("flowers") is None
    assert weights_without("a family of one's own") == "all"


@pytest.mark.parametrize("truth", [["a", "b", "b", "c"], ["a", "a", "b", "b"], ["c", "d", "d", "d"]])
def test_the_figure_for_every_share_of_rejected_samples(truth: list[str]) -> None:
    """It is that of the metrics where the samples of the lowest scores are unknown."""
    best, score = np.asarray([0, 1, 0, 1]), np.asarray([0.9, 0.7, 0.8, 0.1])
    labels = np.asarray(truth)
    found = figures_by_share(labels, Decision(best, score >= 0, score), ["a", "b"])
    assert len(found) == 101
    for rejected in range(5):
        known = np.argsort(np.argsort(score)) >= rejected
        metrics = score_decision(labels, Decision(best, known, score), ["a", "b"])
        figure = next(metrics[m] for m in ("h_score", "shared_accuracy", "t_unk") if metrics[m] is not None)
        assert found[25 * rejected] == pytest.approx(figure, abs=1e-3)


def test_the_command(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table, a figure and a CSV file with provenance; the second call repeats no run."""
    call = ["compare", "--protocol", "families", "--data", str(data), "--tasks", "animals", "--seeds", "1"]
    call += ["--methods", "mixture,class-means", "--backbone", "pixels", "-o", str(tmp_path)]
    assert main(call) == 0
    shown = capsys.readouterr()
    assert "class-means" in shown.out
    lines = (tmp_path / "runs.jsonl").read_text().splitlines()
    assert len(lines) == 12
    with (tmp_path / "families.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["figure"] for row in rows] == ["h_score", "shared_accuracy", "t_unk"] * 2
    for row in rows:
        assert 0 <= float(row["own"]) <= float(row["best"]) + 0.01 <= 100.01
        assert 0 <= float(row["estimated"]) <= 100
        assert row["date"]
        assert row["command"].startswith("usfda compare --data DIR --protocol families --tasks animals")
        assert (row["backbone"], row["seeds"], row["runs"]) == ("pixels", "0", "2")
        assert bool(row["weights"]) == (row["method"] == "mixture")
    records = [json.loads(line) for line in lines]
    (first,) = [r for r in rows if (r["method"], r["figure"]) == ("mixture", "h_score")]
    mine = [r["h_score"] for r in records if r["key"]["method"] == "mixture" and "/mixed/" in r["key"]["task"]]
    assert float(first["own"]) == pytest.approx(np.mean(mine), abs=0.01)
    assert "| method | mean | animals |" in (tmp_path / "families.md").read_text()
    assert (tmp_path / "families.png").read_bytes().startswith(b"\x89PNG")
    assert main(call) == 0
    assert (tmp_path / "runs.jsonl").read_text().splitlines() == lines


def test_a_family_that_is_not_there(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["compare", "--protocol", "families", "--data", str(data), "--tasks", "plants", "-o", str(tmp_path)]
    assert main(call) == 2
    assert "no family 'plants'; choose from office, severe, imagenet-caltech, animals" in capsys.readouterr().err

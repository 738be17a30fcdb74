"""`usfda compare`: any systems on any tasks, resumable, with a row for what fails."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import blobs

from usfda.backbones import get_backbone
from usfda.baselines import SYSTEMS, fingerprint, get_system
from usfda.cli import main
from usfda.experiments.compare import compare
from usfda.experiments.jobs import Domains, Variant, jobs_for
from usfda.experiments.runs import Job, Journal, run_all
from usfda.protocols import Task
from usfda.runtime import runtime

OWN = '''
from __future__ import annotations
import os, time
from dataclasses import dataclass
from pathlib import Path
import numpy as np
from usfda.baselines import Outcome, System


@dataclass
class Settings:  # a data class needs its module to be known while it is made
    scale: float = 1.0


class Nearest(System):
    """The nearest class mean; unknown is what is farther than the source's own samples ever are."""

    source_free = True
    rejects = "farther than any source sample from its mean"

    def learn(self, source):
        X = source.X[:]
        self.means = np.stack([X[source.y == c].mean(0) for c in range(len(source.classes))])
        self.radius = np.linalg.norm(X - self.means[source.y], axis=1).max()

    def adapt(self, X, source):
        assert source is None
        log = Path(os.environ["OWN_LOG"])
        log.write_text(log.read_text() + "x" if log.exists() else "x")
        time.sleep(float(os.environ.get("OWN_SLEEP", 0)))

    def decide(self, X):
        distance = np.linalg.norm(X[:][:, None] - self.means, axis=2)
        return Outcome(distance.argmin(1), distance.min(1) <= self.radius, 1 / (1 + distance.min(1)))


class WithSource(Nearest):
    source_free = False

    def learn(self, source):
        pass

    def adapt(self, X, source):
        super().learn(source)


class Fails(Nearest):
    def adapt(self, X, source):
        raise ArithmeticError("went wrong\\nbadly")


class NotFinite(Nearest):
    def adapt(self, X, source):
        pass

    def decide(self, X):
        return Outcome(np.zeros(len(X), int), np.ones(len(X), bool), np.full(len(X), np.nan))


class MinusOne(Nearest):
    def decide(self, X):
        return Outcome(np.zeros(len(X), int), -np.ones(len(X), int), np.ones(len(X)))


class Dies(Nearest):
    def adapt(self, X, source):
        os._exit(9)


class NoDecision(System):
    source_free = True
    rejects = "never"

    def adapt(self, X, source):
        pass
'''


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file with systems of one's own, and vectors to compare on, source.npz and target.npz, beside it."""
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.setenv("OWN_LOG", str(tmp_path / "log"))
    for name, classes, shift in (("source", [0, 1, 2, 3], 0.0), ("target", [0, 1, 8], 0.3)):
        X, y = blobs(classes, 20, shift, seed=len(name))
        np.savez(tmp_path / f"{name}.npz", X=X, y=y)
    monkeypatch.setattr(runtime, "threads", 1)
    return str(tmp_path / "own.py")


def call(folder: Path, methods: str, *more: str) -> int:
    places = [str(folder / name) for name in ("source.npz", "target.npz")]
    return main(["--threads", "1", "compare", *places, "--methods", methods, "-o", str(folder / "out"), *more])


def calls(folder: Path) -> int:
    return len((folder / "log").read_text())


def test_own_system_beside_ours(own: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(tmp_path, f"source-only,{own}:Nearest,{own}:WithSource", "--seeds", "2") == 0
    shown = capsys.readouterr()
    assert "source-only" in shown.out
    assert "6 of 6" in shown.err
    result = json.loads((tmp_path / "out" / "results.json").read_text())
    assert result["tasks"] == ["source→target"]
    rows = {row["method"].split(":")[-1]: row for row in result["systems"]}
    assert set(rows) == {"source-only", "Nearest", "WithSource"}
    nearest = rows["Nearest"]
    assert nearest["finished"] == nearest["runs"] == 2
    assert nearest["overall"]["t_unk"] == {"mean": 100, "deviation": 0}
    assert nearest["overall"]["h_score"]["mean"] > 95
    assert nearest["tasks"]["source→target"] == nearest["overall"]
    assert nearest["source_free"] is True
    assert rows["WithSource"]["source_free"] is False
    assert rows["WithSource"]["overall"] == nearest["overall"]
    assert len(result["runs"]) == 6
    for run in result["runs"]:
        assert run["seconds"].keys() == {"learn", "adapt", "decide"}
        assert {"t_avg", "t_unk", "h_score", "parameters", "versions", "confusion"} <= run.keys()
    with (tmp_path / "out" / "results.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["task"] for row in table] == ["overall", "source→target"] * 3
    assert float(table[0]["h_score"]) == pytest.approx(result["systems"][0]["overall"]["h_score"]["mean"], abs=0.01)
    text = (tmp_path / "out" / "results.md").read_text()
    assert "First on H: **" in text
    assert "farther than any source sample" in text


def test_finished_runs_are_not_repeated(own: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call(tmp_path, f"{own}:Nearest", "--seeds", "2")
    assert calls(tmp_path) == 2
    first = json.loads((tmp_path / "out" / "results.json").read_text())
    capsys.readouterr()
    call(tmp_path, f"{own}:Nearest", "--seeds", "3")
    assert calls(tmp_path) == 3
    assert "2 of 3 runs are finished already" in capsys.readouterr().err
    again = json.loads((tmp_path / "out" / "results.json").read_text())
    assert again["runs"][:2] == first["runs"]
    Path(own).write_text(OWN.replace("self.radius = ", "self.radius = 2 * "))  # another system now
    call(tmp_path, f"{own}:Nearest", "--seeds", "3")
    assert calls(tmp_path) == 6
    X, y = blobs([0, 1, 8], 20, 0.4, seed=9)  # another target now
    np.savez(tmp_path / "target.npz", X=X, y=y)
    call(tmp_path, f"{own}:Nearest", "--seeds", "3")
    assert calls(tmp_path) == 9


def test_a_file_that_changes_while_it_runs_is_not_mixed_with_itself(own: str, tmp_path: Path) -> None:
    tasks = [Task("t", tmp_path / "source.npz", tmp_path / "target.npz")]

    def shown(rows: list, record: dict | None) -> None:
        if record and record["key"]["seed"] == 0:
            Path(own).write_text(OWN + "# edited\n")

    (row,) = compare(tasks, tmp_path / "out", methods=[f"{own}:Nearest"], seeds=2, shown=shown)
    assert (row.finished, row.failed) == (1, 1)
    assert "was changed" in str(row.error)


def test_killed_and_called_again(own: str, tmp_path: Path) -> None:
    """A process that is really killed in the middle of its second run."""
    command = [sys.executable, "-m", "usfda", "--threads", "1", "compare", str(tmp_path / "source.npz")]
    command += [str(tmp_path / "target.npz"), "--methods", f"{own}:Nearest", "-o", str(tmp_path / "out")]
    process = subprocess.Popen(command, env={**os.environ, "OWN_SLEEP": "2"}, stderr=subprocess.DEVNULL)
    journal = tmp_path / "out" / "runs.jsonl"
    while not (journal.exists() and journal.read_bytes().endswith(b"\n")) and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = journal.read_bytes()
    before = calls(tmp_path)
    journal.write_bytes(kept + kept[:50])  # as if the kill had come while a line was being written
    assert call(tmp_path, f"{own}:Nearest") == 0
    assert calls(tmp_path) == before + 2
    lines = journal.read_bytes().splitlines()
    assert len(lines) == 4
    assert lines[0] + b"\n" == kept


def test_what_fails_is_a_row_and_the_others_finish(
    own: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(tmp_path, f"{own}:Fails,{own}:NotFinite,{own}:MinusOne,{own}:Nearest", "--seeds", "1") == 0
    shown = capsys.readouterr().err
    assert "ArithmeticError: went wrong badly" in shown
    rows = {row["method"].split(":")[-1]: row for row in read(tmp_path)["systems"]}
    assert rows["Fails"]["failed"] == 1
    assert rows["Fails"]["overall"]["h_score"]["mean"] is None
    assert "diverged" in rows["NotFinite"]["error"]
    assert "not of true and false" in rows["MinusOne"]["error"]
    assert rows["Nearest"]["finished"] == 1
    text = (tmp_path / "out" / "results.md").read_text()
    assert "0/1, 1 failed: ArithmeticError: went wrong badly" in text
    assert call(tmp_path, f"{own}:Fails", "--seeds", "1") == 1
    assert "all runs failed" in capsys.readouterr().err


def test_a_system_that_takes_its_process_down_is_a_row(
    own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "threads", 2)
    tasks = [Task("t", tmp_path / "source.npz", tmp_path / "target.npz")]
    rows = compare(tasks, tmp_path / "out", methods=[f"{own}:Dies", f"{own}:Nearest"], seeds=2)
    assert [(row.method.split(":")[-1], row.finished, row.failed) for row in rows] == [
        ("Nearest", 2, 0),
        ("Dies", 0, 2),
    ]
    assert "process died" in str(rows[1].error)


def read(folder: Path) -> dict:
    return json.loads((folder / "out" / "results.json").read_text())


def test_the_number_of_processes_changes_nothing(own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [Task("t", tmp_path / "source.npz", tmp_path / "target.npz")]
    one = compare(tasks, tmp_path / "one", methods=["source-only", "lead"], seeds=1)
    monkeypatch.setattr(runtime, "threads", 2)
    two = compare(tasks, tmp_path / "two", methods=["source-only", "lead"], seeds=1)
    assert [row.overall for row in one] == [row.overall for row in two]
    assert runtime.threads == 2


@pytest.mark.usefixtures("short")
def test_labels_of_the_target_only_score(own: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, y = blobs([0, 1, 8], 20, 0.3)
    for name, labels in (("true", y), ("shuffled", rng.permutation(y))):
        np.savez(tmp_path / f"{name}.npz", X=X, y=labels)
    methods = ["usfda", "shot", "osbp"]
    found = {}
    for name in ("true", "shuffled"):
        task = Task("t", tmp_path / "source.npz", tmp_path / f"{name}.npz")
        compare([task], tmp_path / name, methods=methods, seeds=1)
        runs = [json.loads(line) for line in (tmp_path / name / "runs.jsonl").read_text().splitlines()]
        found[name] = {r["key"]["method"]: np.sum(r["confusion"]["matrix"], 0).tolist() for r in runs}
    assert found["true"] == found["shuffled"]


def test_a_run_depends_on_how_images_are_prepared(photos: Path, new_photos: Path, tmp_path: Path) -> None:
    """The same graph with another mean gives other vectors, and so another run."""
    pixels, keys = get_backbone("pixels"), []
    (tmp_path / "m.onnx").write_bytes(pixels.onnx)
    for mean in (0.5, 0.1):
        (tmp_path / "m.onnx.json").write_text(json.dumps({**pixels.record, "mean": [mean] * 3}))
        task = Task("t", photos, new_photos)
        (job,) = jobs_for([task], [Variant("source-only")], 1, Domains(f"onnx:{tmp_path / 'm.onnx'}"))
        keys.append(job.key)
    assert keys[0] != keys[1]
    assert {k for k in keys[0] if keys[0][k] != keys[1][k]} == {"backbone"}


@pytest.mark.usefixtures("short")
def test_images(photos: Path, new_photos: Path, tmp_path: Path) -> None:
    methods = ["--methods", "usfda-b,source-only", "--backbone", "pixels", "--seeds", "1", "-o", str(tmp_path / "out")]
    assert main(["--threads", "1", "compare", str(photos), str(new_photos), *methods]) == 0
    result = read(tmp_path)
    assert result["backbone"] == "pixels"
    assert all(row["finished"] == 1 for row in result["systems"])


def test_the_example_of_the_docs(own: str, tmp_path: Path) -> None:
    page = Path(__file__).parents[1] / "docs" / "baselines.md"
    example = page.read_text().split("```python\n")[1].split("```")[0]
    (tmp_path / "mine.py").write_text(example)
    assert call(tmp_path, f"{tmp_path / 'mine.py'}:Nearest", "--seeds", "1") == 0
    assert read(tmp_path)["systems"][0]["overall"]["h_score"]["mean"] > 95


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["source.npz"], "give SOURCE and TARGET, or --data"),
        (["source.npz", "target.npz", "--data", "."], "give SOURCE and TARGET, or --data"),
        (["source.npz", "target.npz", "--tasks", "A-D"], "--tasks and --protocol belong to --data"),
        (["source.npz", "target.npz", "--protocol", "closed"], "--tasks and --protocol belong to --data"),
        (["source.npz", "target.npz", "--methods", " ,"], "--methods names no system; there is usfda"),
        (["source.npz", "target.npz", "--methods", "./own:Nearest"], "./own:Nearest: cannot be imported"),
        (["source.npz", "one.npz", "--methods", "osbp"], "a target of one sample"),
        (["source.npz", "target.npz", "--methods", "nothing"], "no system 'nothing'; there is usfda, paper"),
        (["source.npz", "target.npz", "--methods", "own.py:Missing"], "has no class Missing"),
        (
            ["source.npz", "target.npz", "--methods", "own.py:NoDecision"],
            "must have source_free, rejects, adapt and decide",
        ),
        (["source.npz", "target.npz", "--methods", "broken.py:X"], "cannot be imported (SyntaxError"),
        (["source.npz", "target.npz", "--methods", "absent.py:X"], "absent.py: cannot be read"),
        (["source.npz", "wide.npz"], "source and target have 32 and 5 dimensions"),
        (["source.npz", "unlabelled.npz"], "labels are needed here"),
        (["source.npz", "."], "one side has images and the other has features"),
    ],
)
def test_wrong_calls(
    own: str,
    tmp_path: Path,
    photos: Path,
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.py").write_text("class X(:")
    np.savez("wide.npz", X=np.ones((4, 5), np.float32), y=list("aabb"))
    np.savez("one.npz", X=np.ones((1, 32), np.float32), y=["c0"])
    np.savez("unlabelled.npz", X=np.ones((4, 32), np.float32))
    arguments = [str(photos) if argument == "." and "--data" not in arguments else argument for argument in arguments]
    assert main(["compare", *arguments, "-o", "out"]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_names_of_the_systems(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert ", ".join(SYSTEMS) in shown
    for name in SYSTEMS:
        system = get_system(name)
        assert isinstance(system.source_free, bool)
        assert system.rejects
        assert system.__doc__
        assert len(fingerprint(name)) == 16


def test_journal_keeps_failures_but_tries_them_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "runs.jsonl")
    bad, good = Job({"a": 1}, int, ("x",)), Job({"a": 2}, dict, ())
    runtime.threads = 1
    errors = {record["key"]["a"]: record.get("error") for record in run_all([bad, good], journal)}
    assert errors[2] is None
    assert str(errors[1]).startswith("ValueError")
    again = Journal(tmp_path / "runs.jsonl")
    assert again.finished(good) == {"key": {"a": 2}}
    assert again.finished(bad) is None

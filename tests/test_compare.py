"""`usfda compare`: any baselines on any tasks, resumable, with a row for what fails."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from conftest import blobs, write_photos
from quick import QUICK

from usfda import Config, Samples
from usfda.backbones.zoo import get_backbone
from usfda.cli.main import main
from usfda.data.reading import read
from usfda.errors import InputError
from usfda.experiments.baselines import BASELINES, get_baseline
from usfda.experiments.compare import Comparison, compare
from usfda.experiments.runner import Journal, Runner
from usfda.experiments.runs import Record, Run, commit
from usfda.experiments.tables import Summary, measured
from usfda.experiments.tasks import Task, TaskReader
from usfda.features.cache import FeatureCache, cache_info, clear_cache

OWN = '''
from __future__ import annotations
import os, sys, time
from dataclasses import dataclass
from pathlib import Path
import numpy as np
from usfda.experiments.baselines.api import Decision, Baseline


@dataclass(frozen=True)
class Settings:  # a data class needs its module to be known while it is made
    folder: str = ""


class Nearest(Baseline):
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
        return Decision(distance.argmin(1), distance.min(1) <= self.radius, 1 / (1 + distance.min(1)))


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
        return Decision(np.zeros(len(X), int), np.ones(len(X), bool), np.full(len(X), np.nan))


class MinusOne(Nearest):
    def decide(self, X):
        return Decision(np.zeros(len(X), int), -np.ones(len(X), int), np.ones(len(X)))


class Dies(Nearest):
    def adapt(self, X, source):
        os._exit(9)


class Exits(Nearest):
    def adapt(self, X, source):
        sys.exit(0)


class ExitsEarly(Nearest):
    def prepare(self, source):
        sys.exit(0)


class NotJson(Nearest):
    def all_settings(self):
        return {"settings": Settings()}


class Writes(Nearest):
    def adapt(self, X, source):
        X -= X.mean(0)


class Waits(Nearest):
    """Looks at the vectors only after another process has had its time with the cache."""

    Settings = Settings

    def adapt(self, X, source):
        folder = Path(self.settings.folder)
        (folder / f"started-{self.seed}").touch()
        while not (folder / "go").exists():
            time.sleep(0.01)


class NoDecision(Baseline):
    source_free = True
    rejects = "never"

    def adapt(self, X, source):
        pass
'''


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file with baselines of one's own, and vectors to compare on, source.npz and target.npz, beside it."""
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.setenv("OWN_LOG", str(tmp_path / "log"))
    for name, classes, shift in (("source", [0, 1, 2, 3], 0.0), ("target", [0, 1, 8], 0.3)):
        X, y = blobs(classes, 20, shift, seed=len(name))
        np.savez(tmp_path / f"{name}.npz", X=X, y=y)
    return str(tmp_path / "own.py")


@pytest.fixture
def single(cache: Path) -> Config:
    return Config(threads=1, cache=cache)


def task_in(folder: Path, target: str = "target") -> Task:
    return Task("own/task", "shown", folder / "source.npz", folder / f"{target}.npz")


def call(folder: Path, methods: str, *more: str, threads: int = 1) -> int:
    places = [str(folder / name) for name in ("source.npz", "target.npz")]
    call = ["--threads", str(threads), "compare", *places, "--methods", methods, "-o", str(folder / "out")]
    return main([*call, *more])


def calls(folder: Path) -> int:
    return len((folder / "log").read_text())


def results(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "out" / "results.json").read_text())
    return found


def records(folder: Path) -> list[Record]:
    return [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]


def by_class(rows: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {row["method"].split(":")[-1]: row for row in rows}


def test_own_system_beside_ours(own: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(tmp_path, f"source-only,{own}:Nearest,{own}:WithSource", "--seeds", "2") == 0
    shown = capsys.readouterr()
    assert "source-only" in shown.out
    assert "6 of 6" in shown.err
    result = results(tmp_path)
    assert result["tasks"] == {"source-target": "source→target"}
    rows = by_class(result["methods"])
    assert set(rows) == {"source-only", "Nearest", "WithSource"}
    nearest = rows["Nearest"]
    assert nearest["finished"] == nearest["runs"] == 2
    assert nearest["overall"]["t_unk"] == {"mean": 100, "deviation": 0}
    assert nearest["overall"]["h_score"]["mean"] > 95
    assert nearest["tasks"]["source-target"] == nearest["overall"]
    assert nearest["source_free"] is True
    assert rows["WithSource"]["source_free"] is False
    assert rows["WithSource"]["overall"] == nearest["overall"]
    assert len(result["runs"]) == 6
    for run in result["runs"]:
        assert run["seconds"].keys() == {"learn", "adapt", "decide"}
        assert {"t_avg", "t_unk", "h_score", "parameters", "versions", "confusion"} <= run.keys()
    with (tmp_path / "out" / "results.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["task"] for row in table] == ["overall", "source-target"] * 3
    assert float(table[0]["h_score"]) == pytest.approx(result["methods"][0]["overall"]["h_score"]["mean"], abs=0.01)
    assert all(row["date"] and row["command"].startswith("usfda compare SOURCE TARGET") for row in table)
    assert {row["seeds"] for row in table} == {"0 to 1"}
    text = (tmp_path / "out" / "results.md").read_text()
    assert "First on H: **" in text
    assert [f"{name} by task" in text for name in ("H", "T_avg", "T_unk", "shared")] == [True] * 4
    assert "farther than any source sample" in text
    assert f"usfda compare SOURCE TARGET --methods source-only,{Path(own).name}:Nearest," in text
    assert f"Measured {max(run['date'] for run in result['runs'])} " in text
    assert ": 2/2/1. " in text


@pytest.mark.skipif(shutil.which("git") is None, reason="no git")
def test_the_commit_of_a_checkout(tmp_path: Path) -> None:
    assert commit(tmp_path) is None

    def git(*words: str) -> str:
        who = ["-c", "user.name=x", "-c", "user.email=x"]
        done = subprocess.run(["git", *who, *words], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    git("init")
    (tmp_path / "code.py").write_text("1")
    git("add", ".")
    git("commit", "-m", "first")
    git("tag", "v1")
    commit.cache_clear()
    assert commit(tmp_path) == git("rev-parse", "--short", "HEAD")
    (tmp_path / "code.py").write_text("2")
    commit.cache_clear()
    assert commit(tmp_path) == git("rev-parse", "--short", "HEAD") + "+"
    commit.cache_clear()


def test_pages_say_when_and_where_they_were_measured() -> None:
    first: dict[str, Any] = {
        "date": "2026-01-02",
        "commit": "aaa",
        "hardware": "2 cores, no GPU",
        "versions": {"usfda": "1"},
    }
    first["key"] = {"method": "mixture"}
    second = first | {"date": "2026-01-01", "versions": {"usfda": "2"}, "key": {"method": "dann"}}
    older = {"versions": {"usfda": "0"}}
    assert measured([first, second]) == "Measured 2026-01-02 at commit aaa on 2 cores, no GPU"
    assert measured([first | {"commit": None}]) == "Measured 2026-01-02 with usfda 1 on 2 cores, no GPU"
    assert measured([first, older]) == f"{measured([first])}, some runs earlier"
    other = first | {"commit": "bbb", "key": {"method": "uan"}}
    assert "at commit aaa (mixture, dann) and bbb (uan) on" in measured([first, second, other])
    assert measured([older]) == "Measured by a version that kept no date"


def test_finished_runs_are_not_repeated(own: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call(tmp_path, f"{own}:Nearest", "--seeds", "2")
    assert calls(tmp_path) == 2
    first = results(tmp_path)
    capsys.readouterr()
    call(tmp_path, f"{own}:Nearest", "--seeds", "3")
    assert calls(tmp_path) == 3
    assert "2 of 3 runs are finished already" in capsys.readouterr().err
    again = results(tmp_path)
    assert again["runs"][:2] == first["runs"]
    call(tmp_path, "source-only", "--seeds", "1")
    assert f"has runs of {own}:Nearest, too" in capsys.readouterr().err.replace("\n", " ")
    Path(own).write_text(OWN.replace("self.radius = ", "self.radius = 2 * "))  # another baseline now
    call(tmp_path, f"{own}:Nearest", "--seeds", "3")
    assert calls(tmp_path) == 6
    X, y = blobs([0, 1, 8], 20, 0.4, seed=9)  # another target now
    np.savez(tmp_path / "target.npz", X=X, y=y)
    call(tmp_path, f"{own}:Nearest", "--seeds", "3")
    assert calls(tmp_path) == 9


def test_a_file_that_changes_while_it_runs_is_not_mixed_with_itself(own: str, tmp_path: Path, single: Config) -> None:
    def shown(rows: list[Summary], record: Record | None) -> None:
        if record and record["key"]["seed"] == 0:
            Path(own).write_text(OWN + "# edited\n")

    methods = [f"{own}:Nearest"]
    (row,) = compare([task_in(tmp_path)], tmp_path / "out", methods=methods, seeds=2, shown=shown, config=single)
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
    names = ("Fails", "NotFinite", "MinusOne", "Writes", "Nearest")
    assert call(tmp_path, ",".join(f"{own}:{name}" for name in names), "--seeds", "1") == 1
    assert "ArithmeticError: went wrong badly" in capsys.readouterr().err
    rows = by_class(results(tmp_path)["methods"])
    assert rows["Fails"]["failed"] == 1
    assert rows["Fails"]["overall"]["h_score"]["mean"] is None
    assert "diverged" in rows["NotFinite"]["error"]
    assert "not of true and false" in rows["MinusOne"]["error"]
    assert "read-only" in rows["Writes"]["error"]  # vectors are those of all runs
    assert rows["Nearest"]["finished"] == 1
    text = (tmp_path / "out" / "results.md").read_text()
    assert "0/1, 1 failed: ArithmeticError: went wrong badly" in text
    assert call(tmp_path, f"{own}:Fails", "--seeds", "1") == 1
    assert "all runs failed" in capsys.readouterr().err


@pytest.mark.parametrize("threads", [1, 2])
def test_neither_an_exit_nor_what_json_cannot_hold_ends_the_comparison(
    own: str, tmp_path: Path, threads: int, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("Exits", "ExitsEarly", "NotJson", "Nearest")
    assert call(tmp_path, ",".join(f"{own}:{name}" for name in names), "--seeds", "2", threads=threads) == 1
    rows = by_class(results(tmp_path)["methods"])
    assert {name: (row["finished"], row["failed"]) for name, row in rows.items()} == {
        "Exits": (0, 2),
        "ExitsEarly": (0, 2),
        "NotJson": (0, 2),
        "Nearest": (2, 0),
    }
    assert rows["Exits"]["error"] == rows["ExitsEarly"]["error"] == "SystemExit: 0"
    assert rows["NotJson"]["error"] == "TypeError: JSON cannot hold a Settings"
    assert call(tmp_path, f"{own}:Exits", "--seeds", "1", threads=threads) == 1
    assert "all runs failed: SystemExit: 0" in capsys.readouterr().err


def test_a_system_that_takes_its_process_down_is_a_row(own: str, tmp_path: Path, cache: Path) -> None:
    methods = [f"{own}:Dies", f"{own}:Nearest"]
    config = Config(threads=2, cache=cache)
    rows = compare([task_in(tmp_path)], tmp_path / "out", methods=methods, seeds=2, config=config)
    assert [(row.method.split(":")[-1], row.finished, row.failed) for row in rows] == [
        ("Nearest", 2, 0),
        ("Dies", 0, 2),
    ]
    assert "process died" in str(rows[1].error)


def test_the_number_of_processes_changes_nothing(own: str, tmp_path: Path, cache: Path) -> None:
    found = []
    for threads in (1, 2):
        rows = compare(
            [task_in(tmp_path)],
            tmp_path / str(threads),
            methods=["source-only", "lead"],
            seeds=1,
            settings=QUICK,
            config=Config(threads=threads, cache=cache),
        )
        found.append([row.overall for row in rows])
    assert found[0] == found[1]


def test_labels_of_the_target_only_score(own: str, tmp_path: Path, single: Config) -> None:
    rng = np.random.default_rng(0)
    X, y = blobs([0, 1, 8], 20, 0.3)
    for name, labels in (("true", y), ("shuffled", rng.permutation(y))):
        np.savez(tmp_path / f"{name}.npz", X=X, y=labels)
    methods = ["mixture", "shot", "osbp"]
    found = {}
    for name in ("true", "shuffled"):
        task = task_in(tmp_path, name)
        compare([task], tmp_path / name, methods=methods, seeds=1, settings=QUICK, config=single)
        runs = records(tmp_path / name)
        found[name] = {r["key"]["method"]: np.sum(r["confusion"]["matrix"], 0).tolist() for r in runs}
    assert found["true"] == found["shuffled"]


def test_a_run_depends_on_how_images_are_prepared(
    photos: Path, new_photos: Path, tmp_path: Path, single: Config
) -> None:
    """The same graph with another mean gives other vectors, and so another run."""
    pixels, keys = get_backbone("pixels"), []
    (tmp_path / "m.onnx").write_bytes(pixels.onnx)
    for mean in (0.5, 0.1):
        (tmp_path / "m.onnx.json").write_text(json.dumps({**pixels.record, "mean": [mean] * 3}))
        runner = Runner(tmp_path / "out", backbone=f"onnx:{tmp_path / 'm.onnx'}", settings=QUICK, config=single)
        found = runner.run(Comparison(), [Task("t", "t", photos, new_photos)], {"": ("source-only", {})})
        keys.append(found[""][0]["key"])
    assert {k for k in keys[0] if keys[0][k] != keys[1][k]} == {"backbone"}
    assert keys[0]["task"] == "t"


def test_images_are_read_once(photos: Path, new_photos: Path, tmp_path: Path, cache: Path) -> None:
    """The images are gone as soon as features and composites exist: no seed and no baseline reads a file again."""
    shutil.copytree(photos, tmp_path / "source")
    shutil.copytree(new_photos, tmp_path / "target")

    def shown(rows: list[Summary], record: Record | None) -> None:
        if record is None:
            shutil.rmtree(tmp_path / "source")
            shutil.rmtree(tmp_path / "target")

    rows = compare(
        [Task("t", "t", tmp_path / "source", tmp_path / "target")],
        tmp_path / "out",
        methods=["mixture", "usfda", "usfda-b", "source-only"],
        seeds=2,
        backbone="pixels",
        settings=QUICK,
        config=Config(threads=2, cache=cache),
        shown=shown,
    )
    assert [(row.finished, row.error) for row in rows] == [(2, None)] * 4


def test_usfda_alone_needs_no_negatives(photos: Path, new_photos: Path, tmp_path: Path, cache: Path) -> None:
    """The cache then has a vector of every image, and of nothing else."""
    config = Config(threads=1, cache=cache)

    def vectors_with(method: str) -> int:
        task = Task("t", "t", photos, new_photos)
        compare([task], tmp_path, methods=[method], seeds=1, backbone="pixels", settings=QUICK, config=config)
        return sum(store["vectors"] for store in cache_info(cache)["caches"].values())

    images = len({file.read_bytes() for folder in (photos, new_photos) for file in folder.rglob("*.png")})
    assert vectors_with("mixture") == images
    assert vectors_with("usfda") > images


def test_images_of_several_tasks_are_read_once(photos: Path, tmp_path: Path, single: Config) -> None:
    shutil.copytree(photos, tmp_path / "photos")
    samples = read(tmp_path / "photos", labelled=True)
    assert isinstance(samples, Samples)
    (tmp_path / "photos" / "kind0" / "000.png").write_bytes(b"no image")
    names = ["kind0", "kind1", "kind2", "kind3"]
    reader = TaskReader("pixels", single)
    first = reader.read(Task("a", "a", samples, samples, names[:2], names[:3]))
    shutil.rmtree(tmp_path / "photos")
    again = reader.read(Task("b", "b", samples, samples, names[1:3], names[:3]))
    assert (len(first[0]), len(first[1]), len(again[0]), len(again[1])) == (23, 35, 24, 35)
    np.testing.assert_array_equal(first[0].X[:][first[0].y == 1], again[0].X[:][again[0].y == 0])
    assert first[1] is again[1]
    with pytest.raises(InputError, match="source"):
        reader.read(Task("c", "c", samples, samples, names[3:], names))


def test_clearing_the_store_changes_no_vector_of_a_running_comparison(own: str, tmp_path: Path, cache: Path) -> None:
    """While two runs wait, all vectors are cleared, and others are put in their place under the same keys."""
    for name, kinds, seed in (("photos", [0, 1, 2, 3], 0), ("others", [0, 1, 4, 5], 1)):
        write_photos(tmp_path / name, kinds, 280, seed)  # more than a megabyte, from which on joblib shares an array
    task, backbone = Task("t", "t", tmp_path / "photos", tmp_path / "others"), get_backbone("pixels")
    config = Config(threads=2, cache=cache)

    def run(out: str) -> list[Summary]:
        name = f"{own}:Waits"
        given = {name: {"folder": str(tmp_path)}}
        return compare(
            [task], tmp_path / out, methods=[name], seeds=2, backbone="pixels", settings=given, config=config
        )

    def disturb() -> None:
        while not all((tmp_path / f"started-{seed}").exists() for seed in (0, 1)):
            time.sleep(0.01)
        clear_cache(cache)
        store = FeatureCache(cache / "features" / backbone.key[:32], backbone.dim)
        rng = np.random.default_rng(0)
        store.append(keys, rng.random((len(keys), backbone.dim), np.float32))
        (tmp_path / "go").touch()

    keys = [key for side in TaskReader("pixels", config).read(task) for key in side.keys or ()]
    other = Thread(target=disturb)
    other.start()
    (disturbed,) = run("disturbed")
    other.join()
    clear_cache(cache)
    (calm,) = run("calm")
    assert disturbed.error is None
    assert disturbed.finished == 2
    assert disturbed.overall == calm.overall
    assert calm.overall["t_avg"].mean != 0


def test_the_docs_list_the_baselines() -> None:
    page = (Path(__file__).parents[1] / "docs" / "baselines.md").read_text()
    for name in BASELINES:
        row = f"| `{name}` | {'yes' if get_baseline(name).source_free else 'no'} |"
        assert row in page, f"docs/baselines.md has no row that begins with {row}"


def test_the_example_of_the_docs(own: str, tmp_path: Path) -> None:
    page = Path(__file__).parents[1] / "docs" / "baselines.md"
    example = page.read_text().split("```python\n")[1].split("```")[0]
    (tmp_path / "mine.py").write_text(example)
    assert call(tmp_path, f"{tmp_path / 'mine.py'}:Nearest", "--seeds", "1") == 0
    assert results(tmp_path)["methods"][0]["overall"]["h_score"]["mean"] > 95


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["source.npz"], "give SOURCE and TARGET, or --data with the folder of a data set"),
        (
            ["source.npz", "target.npz", "--data", "."],
            "give SOURCE and TARGET, or --data with the folder of a data set",
        ),
        (["source.npz", "target.npz", "--tasks", "A-D"], "--tasks and --protocol belong to --data"),
        (["source.npz", "target.npz", "--protocol", "closed"], "--tasks and --protocol belong to --data"),
        (["source.npz", "target.npz", "--methods", " ,"], "--methods names no method; choose from mixture"),
        (["source.npz", "target.npz", "--methods", "./own:Nearest"], "./own:Nearest: cannot be imported"),
        (["source.npz", "one.npz", "--methods", "osbp"], "a target of one sample"),
        (["source.npz", "target.npz", "--methods", "nothing"], "no method 'nothing'; choose from mixture, usfda"),
        (["source.npz", "target.npz", "--methods", "own.py:Missing"], "has no class Missing"),
        (
            ["source.npz", "target.npz", "--methods", "own.py:NoDecision"],
            "must have source_free (bool), rejects (text), adapt and decide",
        ),
        (["source.npz", "target.npz", "--methods", "broken.py:X"], "cannot be imported (SyntaxError"),
        (["source.npz", "target.npz", "--methods", "exits.py:X"], "cannot be imported (SystemExit: 0"),
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
    Path("exits.py").write_text("raise SystemExit(0)")
    np.savez("wide.npz", X=np.ones((4, 5), np.float32), y=list("aabb"))
    np.savez("one.npz", X=np.ones((1, 32), np.float32), y=["c0"])
    np.savez("unlabelled.npz", X=np.ones((4, 32), np.float32))
    arguments = [str(photos) if argument == "." and "--data" not in arguments else argument for argument in arguments]
    assert main(["compare", *arguments, "-o", "out"]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_help_lists_the_baselines_and_needs_no_torch() -> None:
    code = (
        "import sys; from usfda.cli.main import main; main(['compare', '--help']); main(['reproduce', '--help']);"
        "print({'torch', 'matplotlib', 'sklearn'} & set(sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.endswith("set()\n")
    assert ", ".join(BASELINES) in " ".join(shown.replace("│", " ").split())


def test_journal_keeps_failures_but_tries_them_again(own: str, tmp_path: Path, single: Config) -> None:
    def run() -> Runner:
        runner = Runner(tmp_path / "out", config=single)
        baselines: dict[str, tuple[str, dict[str, Any]]] = {n: (f"{own}:{n}", {}) for n in ("Fails", "Nearest")}
        found = runner.run(Comparison(), [task_in(tmp_path)], baselines)
        assert [len(found[name]) for name in baselines] == [0, 1]
        return runner

    first, again = run(), run()
    assert [r["error"] for r in first.failed + again.failed] == ["ArithmeticError: went wrong badly"] * 2
    assert len(records(tmp_path / "out")) == 3
    journal = Journal(tmp_path / "out" / "runs.jsonl")
    source, target = first.reader.read(task_in(tmp_path))
    for record in first.records + first.failed:
        run_of = Run(Comparison(), record["key"], source, target, None)
        assert (journal.finished(run_of) is None) == ("error" in record)

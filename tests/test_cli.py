import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import blobs, write_photos

import usfda
from usfda.cli import globals_first, main
from usfda.runtime import runtime

QUICK = ["--set", "iterations=60", "--set", "update_every=20", "--set", "composites=200", "--backbone", "pixels"]
KEYS = {
    "t_avg", "t_unk", "h_score", "shared_accuracy", "closed_accuracy", "auroc", "ece",
    "samples", "unknown_share", "per_class", "confusion",
}  # fmt: skip


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]):
    """Runs a command in this process: exit code, stdout, stderr."""

    def call(*args: object) -> tuple[int, str, str]:
        code = main(["--cache", str(runtime.cache), *map(str, args)])
        return code, *capsys.readouterr()

    return call


def test_the_whole_path(run, photos: Path, new_photos: Path, tmp_path: Path) -> None:
    vendor, client = tmp_path / "out" / "vendor.usfda", tmp_path / "client.usfda"
    code, _, notes = run("procure", photos, "-o", vendor, *QUICK)
    assert code == 0
    assert "4 classes, 48 samples, 6 negative classes" in " ".join(notes.split())
    code, _, notes = run("adapt", vendor, new_photos, "-o", client, "--json", tmp_path / "a.json")
    assert code == 0
    assert "adapted to 40 samples" in " ".join(notes.split())
    assert "% unknown, likely between" in notes
    assert "the source model" in notes
    card = json.loads((tmp_path / "a.json").read_text())
    assert card["method"] == "usfda"
    low, high = card["check"]["unknown_interval"]
    assert 0 <= low <= card["check"]["unknown_estimate"] <= high <= 100
    for names in card["examples"].values():
        assert all(Path(name).is_file() for name in names)
    assert set(card["seconds"]) == {"features", "training"}
    code, shown, _ = run("evaluate", client, new_photos, "--json", tmp_path / "e.json")
    assert code == 0
    assert "h_score" in shown
    result = json.loads((tmp_path / "e.json").read_text())
    assert set(result) == KEYS
    assert set(result["per_class"]) == {"kind0", "kind1", "kind4", "kind5"}
    assert result["confusion"]["labels"] == ["kind0", "kind1", "kind2", "kind3", "unknown"]
    assert run("evaluate", vendor, new_photos)[0] == 0
    code, shown, _ = run("inspect", client)
    assert code == 0
    assert "adapted" in shown
    assert "backbone.onnx" in shown
    code, shown, _ = run("inspect", client, "--json")
    assert json.loads(shown)["deployment"]["samples"] == 40


@pytest.fixture(scope="module")
def vendor(tmp_path_factory) -> Path:
    X, y = blobs([0, 1, 2], 20)
    file = tmp_path_factory.mktemp("vendor") / "vendor.usfda"
    usfda.procure(X, y, settings=usfda.ProcurementSettings(iterations=60, update_every=20)).save(file)
    return file


@pytest.fixture
def features(tmp_path: Path) -> Path:
    X, y = blobs([0, 1, 7], 10, seed=3)
    np.savez(tmp_path / "f.npz", X=X, y=y)
    return tmp_path / "f.npz"


def test_predict_formats(run, vendor: Path, features: Path, tmp_path: Path) -> None:
    code, shown, _ = run("predict", vendor, features, "--format", "jsonl")
    rows = [json.loads(line) for line in shown.splitlines()]
    assert code == 0
    assert len(rows) == 30
    assert set(rows[0]) == {"path", "label", "score", "ssm", "top", "cluster"}
    assert run("predict", vendor, features, features, "-o", tmp_path / "p.csv")[0] == 0
    with (tmp_path / "p.csv").open() as file:
        table = list(csv.DictReader(file))
    assert len(table) == 60
    assert [row["label"] for row in table[:30]] == [row["label"] for row in rows]
    assert run("predict", vendor, features)[1].count("\n") == 30
    assert run("predict", vendor, features, "--format", "xml")[0] == 2


def test_predict_one_image_and_a_bad_one(run, photos: Path, tmp_path: Path) -> None:
    assert run("procure", photos, "-o", tmp_path / "m.usfda", *QUICK)[0] == 0
    (tmp_path / "bad.jpg").write_text("no image")
    one = photos / "kind0" / "000.png"
    code, shown, warned = run("predict", tmp_path / "m.usfda", one, tmp_path / "bad.jpg", "--format", "jsonl")
    assert code == 0
    assert len(shown.splitlines()) == 1
    assert "skipped 1 of 1 images" in " ".join(warned.split())
    code, _, warned = run("predict", tmp_path / "m.usfda", tmp_path / "bad.jpg")
    assert code == 2
    assert "none of the images can be read" in warned
    (tmp_path / "before.csv").write_text("before")
    assert run("predict", tmp_path / "m.usfda", tmp_path / "bad.jpg", "-o", tmp_path / "before.csv")[0] == 2
    assert (tmp_path / "before.csv").read_text() == "before"


def test_a_pipe_and_a_link_are_written_to_as_they_are(run, vendor: Path, features: Path, tmp_path: Path) -> None:
    (tmp_path / "real.csv").touch()
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    assert run("predict", vendor, features, "-o", tmp_path / "link.csv")[0] == 0
    assert (tmp_path / "link.csv").is_symlink()
    assert len((tmp_path / "real.csv").read_text().splitlines()) == 31
    os.mkfifo(tmp_path / "pipe.csv")
    with subprocess.Popen(["cat", tmp_path / "pipe.csv"], stdout=subprocess.PIPE, text=True) as reader:
        assert run("predict", vendor, features, "-o", tmp_path / "pipe.csv")[0] == 0
        assert len(reader.stdout.read().splitlines()) == 31
    assert not (tmp_path / "pipe.csv").is_file()


def test_a_class_whose_images_are_all_bad_is_an_error(run, photos: Path, tmp_path: Path) -> None:
    shutil.copytree(photos, tmp_path / "p")
    (tmp_path / "p" / "broken").mkdir()
    for i in range(3):
        (tmp_path / "p" / "broken" / f"{i}.jpg").write_text("no image")
    code, _, said = run("procure", tmp_path / "p", "-o", tmp_path / "m.usfda", *QUICK)
    assert code == 2
    assert "fewer than two usable images in class broken" in said


def test_evaluate_with_rename(run, vendor: Path, features: Path, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("c7,c2\n")
    (tmp_path / "r.json").write_text('{"c7": "c2"}')
    for name in ("r.csv", "r.json"):
        code, _, _ = run("evaluate", vendor, features, "--rename", tmp_path / name, "--json", tmp_path / "e.json")
        assert code == 0
        assert json.loads((tmp_path / "e.json").read_text())["t_unk"] is None


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["procure", "{tmp}/gone", "-o", "{tmp}/m"], 2, "no such file or folder"),
        (["procure", "{photos}/kind0", "-o", "{tmp}/m"], 2, "wrong folder level"),
        (["procure", "{photos}", "-o", "{tmp}/m", "--classes", "kind0"], 2, "single class"),
        (["procure", "{photos}", "-o", "{tmp}/m", "--classes", "kind0,sofa"], 2, "no class sofa"),
        (["procure", "{photos}", "-o", "{tmp}/m", "--backbone", "resnet"], 2, "no backbone"),
        (["procure", "{photos}", "-o", "{tmp}/m", "--negatives", "none"], 2, "negatives are one of"),
        (["procure", "{photos}", "-o", "{tmp}"], 2, "is a folder"),
        (["procure", "{photos}", "-o", "{tmp}/m", "--set", "alpha=much"], 2, "alpha takes a number"),
        (["procure", "{photos}", "-o", "{tmp}/m", "--set", "beta=1"], 2, "the settings are iterations"),
        (["procure", "{photos}"], 2, "Missing option"),
        (["adapt", "{photos}/kind0/000.png", "{photos}", "-o", "{tmp}/m"], 2, "not a usfda model file"),
        (["adapt", "{vendor}", "{features}", "-o", "{tmp}/m", "--method", "x"], 2, "no method 'x'"),
        (["adapt", "{vendor}", "{photos}", "-o", "{tmp}/m"], 2, "made of features"),
        (["evaluate", "{vendor}", "{features}", "--rename", "{tmp}/gone"], 2, "no file"),
        (["evaluate", "{vendor}", "{features}", "--classes", "c9"], 2, "no class c9"),
        (["inspect", "{tmp}/gone"], 2, "no such model file"),
        (["--threads", "0", "inspect", "{vendor}"], 2, "threads"),
        (["fly"], 2, "No such command"),
        (["evaluate", "{vendor}", "{features}", "--json", "{tmp}"], 2, "is a folder"),
        (["procure", "{photos}", "-o", "{features}/deep/m"], 2, "cannot be written"),
        (["predict", "{vendor}", "{features}", "{tmp}/gone.jpg"], 2, "gone.jpg: no such file"),
        (["predict", "{vendor}", "{features}", "-o", "{tmp}/x.json"], 2, "--format is table, csv or jsonl"),
        (["procure", "{photos}", "-o", "{tmp}/m", "--cache", "{features}"], 2, "cannot hold the feature store"),
        (["evaluate", "{vendor}", "{features}", "--json", "/proc/x.json"], 1, "x.json"),
    ],
)
def test_an_error_is_one_line_with_its_code(run, photos, vendor, features, tmp_path, args, code, says) -> None:
    places = {"photos": photos, "vendor": vendor, "features": features, "tmp": tmp_path}
    got, shown, said = run(*(arg.format(**places) for arg in args))
    assert got == code
    assert says in said
    assert said.count("\n") == 1
    assert said.startswith("error: ")
    assert shown == ""


def test_verbose_adds_the_trace(run, tmp_path: Path) -> None:
    assert "Traceback" in run("inspect", tmp_path / "gone", "--verbose")[2]
    assert "Traceback" not in run("inspect", tmp_path / "gone")[2]


def test_global_options_may_stand_anywhere() -> None:
    assert globals_first(["adapt", "m", "--threads", "2", "t", "--quiet", "--cache=x", "--", "--quiet"]) == [
        *["--threads", "2", "--quiet", "--cache=x"],
        *["adapt", "m", "t", "--", "--quiet"],
    ]


def test_quiet_says_nothing_but_results(run, vendor: Path, features: Path, tmp_path: Path) -> None:
    code, shown, said = run("adapt", vendor, features, "-o", tmp_path / "c.usfda", "--quiet")
    assert (code, shown, said) == (0, "", "")


def test_cache_commands(run, photos: Path, tmp_path: Path) -> None:
    run("procure", photos, "-o", tmp_path / "m.usfda", *QUICK)
    info = json.loads(run("cache", "info", "--json")[1])
    assert info["folder"].startswith(str(runtime.cache))
    (store,) = info["stores"].values()
    assert store["vectors"] == 48 + 216
    assert info["bytes"] > 264 * 1024
    assert run("cache", "clear")[0] == 0
    assert json.loads(run("cache", "info", "--json")[1])["bytes"] == 0


def test_as_a_program(vendor: Path, features: Path) -> None:
    environment = os.environ | {"USFDA_CACHE": str(runtime.cache)}
    usage = [sys.executable, "-m", "usfda"]
    shown = subprocess.run([*usage, "--version"], capture_output=True, text=True, check=True, env=environment).stdout
    assert shown == f"usfda {usfda.__version__}\n"
    for command in ("procure", "adapt", "predict", "evaluate", "inspect", "demo", "cache"):
        help_text = subprocess.run([*usage, command, "-h"], capture_output=True, text=True, check=True, env=environment)
        assert "Usage" in help_text.stdout
    bad = subprocess.run([*usage, "inspect", "gone"], capture_output=True, text=True, check=False, env=environment)
    assert (bad.returncode, bad.stdout) == (2, "")
    many = " ".join([str(features)] * 100)
    pipe = f"{sys.executable} -m usfda --quiet predict {vendor} {many} | head -1; echo ${{PIPESTATUS[0]}}"
    cut = subprocess.run(["bash", "-c", pipe], capture_output=True, text=True, check=True, env=environment)
    assert cut.stdout.splitlines()[1:] == ["0"]
    assert cut.stderr == ""


def test_names_with_brackets_are_no_markup(run, tmp_path: Path) -> None:
    X, y = blobs([0, 1], 10)
    np.savez(tmp_path / "f.npz", X=X, y=np.where(y == "c0", "[/b]", "[red]x"))
    few = ["--set", "iterations=20", "--set", "update_every=10"]
    assert run("procure", tmp_path / "f.npz", "-o", tmp_path / "m.usfda", *few)[0] == 0
    assert "[red]x (10)" in run("inspect", tmp_path / "m.usfda")[1]


def test_ctrl_c_is_one_line_and_loses_nothing(tmp_path: Path) -> None:
    source = write_photos(tmp_path / "source", [0, 1, 2], 700)
    call = [sys.executable, "-m", "usfda", "procure", str(source), "-o", str(tmp_path / "m.usfda"), *QUICK]
    process = subprocess.Popen(
        [*call, "--cache", str(runtime.cache)],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell in the background ignores it
    )
    deadline = time.monotonic() + 120
    while not any(file.stat().st_size for file in runtime.cache.glob("features/*/keys")):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "error: interrupted; features and runs so far are kept" in said
    assert "Traceback" not in said
    assert not (tmp_path / "m.usfda").exists()

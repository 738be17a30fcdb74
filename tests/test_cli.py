import csv
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import blobs, write_photos
from pyarrow import parquet

import usfda
from usfda.cli.arguments import globals_first, share_of
from usfda.cli.main import app, main
from usfda.cli.output import console
from usfda.features.cache import cache_info
from usfda.text import evaluation, findings, procurement

Run = Callable[..., tuple[int, str, str]]

QUICK = [
    *["--for", "all", "--backbone", "pixels"],
    *["--set", "iterations=12", "--set", "update_every=4", "--set", "composites=200"],
]
KEYS = {
    "t_avg", "t_unk", "h_score", "shared_accuracy", "closed_accuracy", "auroc", "ece",
    "samples", "unknown_share", "per_class", "confusion",
    "shared_classes", "private_classes", "suspects", "class_means", "source_network", "uses",
}  # fmt: skip


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], cache: Path) -> Run:
    """Runs a command in this process: exit code, stdout, stderr."""

    def call(*args: object) -> tuple[int, str, str]:
        code = main(["--cache", str(cache), *map(str, args)])
        return code, *capsys.readouterr()

    return call


def test_the_whole_path(run: Run, photos: Path, new_photos: Path, tmp_path: Path) -> None:
    vendor, client = tmp_path / "out" / "vendor.usfda", tmp_path / "client.usfda"
    code, shown, _ = run("procure", photos, "-o", vendor, *QUICK)
    assert code == 0
    procured = usfda.load(vendor).card["procurement"]
    assert shown.startswith(procurement.result(str(vendor), procured))
    assert set(procured["seconds"]) == set(procurement.PURPOSES)
    code, shown, _ = run("adapt", vendor, new_photos, "-o", client, "--json", tmp_path / "a.json")
    assert code == 0
    found = usfda.load(client).findings
    assert found is not None
    assert shown.splitlines()[:2] == [findings.result(str(client), found), findings.reliability(found)]
    for said in (run("inspect", client)[1], usfda.load(client).page().replace("\\", "")):
        assert all(line in said for line in (*usfda.describe(found), findings.OF_TARGET))
    card = json.loads((tmp_path / "a.json").read_text())
    assert card["method"] == "mixture"
    assert card["sentences"] == usfda.describe(found)
    assert card["reliability"] == found.reliability
    low, high = card["check"]["unknown_interval"]
    assert 0 <= low <= card["check"]["unknown_estimate"] <= high <= 100
    for names in card["examples"].values():
        assert all(Path(name).is_file() for name in names)
    assert set(card["seconds"]) == {"features", "training"}
    code, shown, _ = run("evaluate", client, new_photos, "--json", tmp_path / "e.json")
    assert code == 0
    assert [line.split("  ")[0] for line in shown.splitlines()[1:4]] == list(evaluation.DECISIONS.values())
    result = json.loads((tmp_path / "e.json").read_text())
    assert set(result) == KEYS
    assert set(result["per_class"]) == {"kind0", "kind1", "kind4", "kind5"}
    assert result["confusion"]["labels"] == ["kind0", "kind1", "kind2", "kind3", "unknown"]
    assert run("evaluate", vendor, new_photos)[0] == 0
    code, shown, _ = run("inspect", client)
    assert code == 0
    assert "backbone.onnx" in shown
    code, shown, _ = run("inspect", client, "--json")
    assert json.loads(shown)["deployment"]["samples"] == 40
    assert json.loads(shown)["sha256"] == hashlib.sha256(client.read_bytes()).hexdigest()
    with zipfile.ZipFile(client) as archive:
        assert set(json.loads(archive.read("card.json"))) <= set(json.loads(shown))
    of_vendor = json.loads(run("inspect", vendor, "--json")[1])
    assert json.loads(shown)["vendor_sha256"] == of_vendor["vendor_sha256"] != of_vendor["sha256"]
    assert of_vendor["vendor_sha256"] in run("inspect", client)[1]


def test_inspect_has_the_next_commands(run: Run, vendor: Path, features: Path, tmp_path: Path) -> None:
    file = tmp_path / "my model.usfda"
    file.write_bytes(vendor.read_bytes())
    _, shown, _ = run("inspect", file)
    assert hashlib.sha256(file.read_bytes()).hexdigest() in shown
    assert f"usfda adapt '{file}' NEW-IMAGES -o client.usfda" in shown
    assert run("adapt", file, features, "-o", tmp_path / "adapted.usfda")[0] == 0
    (tmp_path / "adapted.usfda").replace(file)
    (tmp_path / "my model.usfda.sig").write_text("whatever")
    _, shown, _ = run("inspect", file)
    assert "my model.usfda.sig" in shown
    assert f"usfda report '{file}' NEW-IMAGES -o report.html" in shown
    assert f"usfda predict '{file}' PATH..." in shown


@pytest.fixture(scope="module")
def vendor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    X, y = blobs([0, 1, 2], 20)
    file = tmp_path_factory.mktemp("vendor") / "vendor.usfda"
    usfda.procure(X, y, method="all", settings=usfda.ProcurementSettings(iterations=60, update_every=20)).save(file)
    return file


@pytest.fixture
def features(tmp_path: Path) -> Path:
    X, y = blobs([0, 1, 7], 10, seed=3)
    np.savez(tmp_path / "f.npz", X=X, y=y)
    return tmp_path / "f.npz"


def test_predict_formats(run: Run, vendor: Path, features: Path, tmp_path: Path) -> None:
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


def test_predict_one_image_and_a_bad_one(run: Run, photos: Path, tmp_path: Path) -> None:
    assert run("procure", photos, "-o", tmp_path / "m.usfda", *QUICK)[0] == 0
    (tmp_path / "bad.jpg").write_text("no image")
    one = photos / "kind0" / "000.png"
    code, shown, warned = run("predict", tmp_path / "m.usfda", one, tmp_path / "bad.jpg", "--format", "jsonl")
    assert code == 0
    assert [row.get("label") for row in map(json.loads, shown.splitlines())] == ["kind0", None]
    assert "warning" in warned
    code, _, warned = run("predict", tmp_path / "m.usfda", tmp_path / "bad.jpg")
    assert code == 2
    (tmp_path / "before.csv").write_text("before")
    assert run("predict", tmp_path / "m.usfda", tmp_path / "bad.jpg", "-o", tmp_path / "before.csv")[0] == 2
    assert (tmp_path / "before.csv").read_text() == "before"


def test_a_pipe_and_a_link_are_written_to_as_they_are(run: Run, vendor: Path, features: Path, tmp_path: Path) -> None:
    (tmp_path / "real.csv").touch()
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    assert run("predict", vendor, features, "-o", tmp_path / "link.csv")[0] == 0
    assert (tmp_path / "link.csv").is_symlink()
    assert len((tmp_path / "real.csv").read_text().splitlines()) == 31
    os.mkfifo(tmp_path / "pipe.csv")
    with subprocess.Popen(["cat", tmp_path / "pipe.csv"], stdout=subprocess.PIPE, text=True) as reader:
        assert run("predict", vendor, features, "-o", tmp_path / "pipe.csv")[0] == 0
        assert reader.stdout is not None
        assert len(reader.stdout.read().splitlines()) == 31
    assert not (tmp_path / "pipe.csv").is_file()


def test_a_class_whose_images_are_all_bad_is_an_error(run: Run, photos: Path, tmp_path: Path) -> None:
    shutil.copytree(photos, tmp_path / "p")
    (tmp_path / "p" / "broken").mkdir()
    for i in range(3):
        (tmp_path / "p" / "broken" / f"{i}.jpg").write_text("no image")
    code, _, said = run("procure", tmp_path / "p", "-o", tmp_path / "m.usfda", *QUICK)
    assert code == 2
    assert "broken" in said


def test_evaluate_compares_with_the_decisions_that_are_not_adapted(run: Run, vendor: Path, tmp_path: Path) -> None:
    for name, classes in {"source": [0, 1, 2], "other": [5, 6, 7]}.items():
        X, y = blobs(classes, 20, seed=3)
        np.savez(tmp_path / f"{name}.npz", X=X, y=y)
    client, result = tmp_path / "client.usfda", tmp_path / "e.json"
    assert run("adapt", vendor, tmp_path / "other.npz", "-o", client, "--strictness", 1)[0] == 0
    assert run("evaluate", client, tmp_path / "source.npz", "--json", result)[0] == 0
    found = json.loads(result.read_text())
    assert found["uses"] in evaluation.DECISIONS
    assert found["source_network"]["t_avg"] > found["t_avg"]
    assert run("evaluate", vendor, tmp_path / "source.npz", "--json", result)[0] == 0
    found = json.loads(result.read_text())
    assert found["uses"] == "source_network"
    assert found["source_network"]["t_avg"] == found["t_avg"]


def test_evaluate_with_rename(run: Run, vendor: Path, features: Path, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("c7,c2\n")
    (tmp_path / "r.json").write_text('{"c7": "c2"}')
    for name in ("r.csv", "r.json"):
        code, _, _ = run("evaluate", vendor, features, "--rename", tmp_path / name, "--json", tmp_path / "e.json")
        assert code == 0
        assert json.loads((tmp_path / "e.json").read_text())["t_unk"] is None


def test_an_error_is_said_whatever_an_interrupt_left(capfd: pytest.CaptureFixture[str]) -> None:
    """Fault: an interrupt within a print left the console holding back all that followed, the last word, too."""
    with console:  # as it is within a print
        assert main(["inspect", "nowhere.usfda"]) == 2
        assert "error: nowhere.usfda" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["procure", "{tmp}/gone", "-o", "{tmp}/m"], 2, "gone"),
        (["procure", "{photos}/kind0", "-o", "{tmp}/m"], 2, "kind0"),
        (["procure", "{photos}", "-o", "{tmp}/m", "--classes", "kind0"], 2, "class"),
        (["procure", "{photos}", "-o", "{tmp}/m", "--classes", "kind0,sofa"], 2, "sofa"),
        (["procure", "{photos}", "-o", "{tmp}/m", "--backbone", "resnet"], 2, "resnet"),
        (
            ["procure", "{photos}", "-o", "{tmp}/m", "--for", "all", "--negatives", "none"],
            2,
            "composite",
        ),
        (["procure", "{photos}", "-o", "{tmp}/m", "--for", "both"], 2, "mixture"),
        (["procure", "{photos}", "-o", "{tmp}"], 2, "folder"),
        (["procure", "{photos}", "-o", "{tmp}/m", "--set", "alpha=much"], 2, "alpha"),
        (["procure", "{photos}", "-o", "{tmp}/m", "--set", "beta=1"], 2, "iterations"),
        (["procure", "{photos}"], 2, "--output"),
        (["adapt", "{photos}/kind0/000.png", "{photos}", "-o", "{tmp}/m"], 2, "000.png"),
        (["adapt", "{vendor}", "{features}", "-o", "{tmp}/m", "--method", "x"], 2, "mixture"),
        (["adapt", "{vendor}", "{features}", "-o", "{tmp}/m", "--set", "most=0"], 2, "most"),
        (["adapt", "{vendor}", "{features}", "-o", "{tmp}/m", "--set", "steps=3"], 2, "most"),
        (["adapt", "{vendor}", "{features}", "-o", "{tmp}/m", "--strictness", "2"], 2, "strictness"),
        (["compare", "{photos}"], 2, "SOURCE"),
        (["adapt", "{vendor}", "{photos}", "-o", "{tmp}/m"], 2, "features"),
        (["evaluate", "{vendor}", "{features}", "--rename", "{tmp}/gone"], 2, "gone"),
        (["evaluate", "{vendor}", "{features}", "--classes", "c9"], 2, "c9"),
        (["inspect", "{tmp}/gone"], 2, "gone"),
        (["--threads", "0", "inspect", "{vendor}"], 2, "threads"),
        (["fly"], 2, "fly"),
        (["evaluate", "{vendor}", "{features}", "--json", "{tmp}"], 2, "folder"),
        (["procure", "{photos}", "-o", "{features}/deep/m"], 2, "deep"),
        (["predict", "{vendor}", "{features}", "{tmp}/gone.jpg"], 2, "gone.jpg"),
        (["predict", "{vendor}", "{features}", "-o", "{tmp}/x.json"], 2, ".parquet"),
        (["predict", "{vendor}", "{features}", "-o", "{tmp}/x"], 2, ".parquet"),
        (["predict", "{vendor}", "{features}", "--format", "xml"], 2, "parquet"),
        (["--device", "tpu", "inspect", "{vendor}"], 2, "cuda"),
        (["evaluate", "{vendor}", "{features}", "--json", "/proc/x.json"], 1, "x.json"),
    ],
)
def test_an_error_is_one_line_with_its_code(
    run: Run, photos: Path, vendor: Path, features: Path, tmp_path: Path, args: list[str], code: int, says: str
) -> None:
    places = {"photos": photos, "vendor": vendor, "features": features, "tmp": tmp_path}
    got, shown, said = run(*(arg.format(**places) for arg in args))
    assert got == code
    assert says in said
    assert said.count("\n") == 1
    assert said.startswith("error: ")
    assert shown == ""


def test_verbose_adds_the_trace(run: Run, tmp_path: Path) -> None:
    assert "Traceback" in run("inspect", tmp_path / "gone", "--verbose")[2]
    assert "Traceback" not in run("inspect", tmp_path / "gone")[2]


def test_global_options_may_stand_anywhere() -> None:
    assert globals_first(["adapt", "m", "--threads", "2", "t", "--quiet", "--cache=x", "--", "--quiet"]) == [
        *["--threads", "2", "--quiet", "--cache=x"],
        *["adapt", "m", "t", "--", "--quiet"],
    ]


def test_results_go_to_stdout_and_all_else_to_stderr(run: Run, vendor: Path, features: Path, tmp_path: Path) -> None:
    code, shown, said = run("adapt", vendor, features, "-o", tmp_path / "c.usfda")
    assert (code, len(shown.splitlines()), said) == (0, 3, "")
    assert run("adapt", vendor, features, "-o", tmp_path / "d.usfda", "--quiet") == (
        0,
        shown.replace("c.usfda", "d.usfda"),
        "",
    )
    assert len(run("adapt", vendor, features, "-o", tmp_path / "e.usfda", "--verbose")[2].splitlines()) > 3


def test_cache_commands(run: Run, photos: Path, tmp_path: Path, cache: Path) -> None:
    run("procure", photos, "-o", tmp_path / "m.usfda", *QUICK)
    info = json.loads(run("cache", "info", "--json")[1])
    assert info["folder"] == str(cache)
    (store,) = info["caches"].values()
    assert store["vectors"] == 48 + 216
    assert info["bytes"] > 264 * 1024
    assert "264 vectors" in run("cache", "info")[1]
    assert run("cache", "clear")[0] == 0
    assert sum(store["vectors"] for store in json.loads(run("cache", "info", "--json")[1])["caches"].values()) == 0


def test_every_command_has_help_and_an_example(run: Run) -> None:
    names = [command.name or str(getattr(command.callback, "__name__", "")) for command in app.registered_commands]
    assert {"procure", "adapt", "predict", "evaluate", "inspect", "demo", "compare", "reproduce"} <= set(names)
    for call in (*([name] for name in names), ["cache", "info"], ["cache", "clear"]):
        code, shown, _ = run(*call, "-h")
        assert code == 0
        assert "Usage" in shown
        assert "Example" in shown, call
    assert "Usage" in run("cache", "-h")[1]


def test_as_a_program(vendor: Path, features: Path) -> None:
    environment = dict(os.environ)
    usage = [sys.executable, "-m", "usfda"]
    shown = subprocess.run([*usage, "--version"], capture_output=True, text=True, check=True, env=environment).stdout
    assert shown == f"usfda {usfda.__version__}\n"
    bad = subprocess.run([*usage, "inspect", "gone"], capture_output=True, text=True, check=False, env=environment)
    assert (bad.returncode, bad.stdout) == (2, "")
    many = " ".join([str(features)] * 100)
    pipe = f"{sys.executable} -m usfda --quiet predict {vendor} {many} | head -1; echo ${{PIPESTATUS[0]}}"
    cut = subprocess.run(["bash", "-c", pipe], capture_output=True, text=True, check=True, env=environment)
    assert cut.stdout.splitlines()[1:] == ["0"]
    assert cut.stderr == ""


def test_names_with_brackets_are_no_markup(run: Run, tmp_path: Path) -> None:
    X, y = blobs([0, 1], 10)
    np.savez(tmp_path / "f.npz", X=X, y=np.where(y == "c0", "[/b]", "[red]x"))
    few = ["--set", "iterations=20", "--set", "update_every=10"]
    assert run("procure", tmp_path / "f.npz", "-o", tmp_path / "m.usfda", *few)[0] == 0
    assert "[red]x (10)" in run("inspect", tmp_path / "m.usfda")[1]


def test_ctrl_c_is_one_line_and_loses_nothing(tmp_path: Path, cache: Path) -> None:
    source = write_photos(tmp_path / "source", [0, 1, 2], 400)
    call = [sys.executable, "-m", "usfda", "procure", str(source), "-o", str(tmp_path / "m.usfda"), *QUICK]
    process = subprocess.Popen(
        [*call, "--cache", str(cache)],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell in the background ignores it
    )
    deadline = time.monotonic() + 120
    while not any(store["vectors"] for store in cache_info(cache)["caches"].values()):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert said.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in said
    assert not (tmp_path / "m.usfda").exists()


def test_predict_writes_clusters_and_takes_strictness(run: Run, vendor: Path, tmp_path: Path) -> None:
    X, _ = blobs([0, 1, 2, 7, 8], 20, shift=0.5, seed=1)
    np.savez(tmp_path / "f.npz", X=X)
    assert run("adapt", vendor, tmp_path / "f.npz", "-o", tmp_path / "m.usfda")[0] == 0
    call = ["predict", tmp_path / "m.usfda", tmp_path / "f.npz", "--quiet"]
    code, shown, _ = run(*call, "--format", "csv")
    assert code == 0
    header, *rows = shown.splitlines()
    assert header.split(",")[:4] == ["path", "label", "cluster", "score"]
    assert all((row.split(",")[1] == "unknown") == bool(row.split(",")[2]) for row in rows)
    assert any(row.split(",")[1] == "unknown" for row in rows)
    code, shown, _ = run(*call, "--strictness", "0")
    assert code == 0
    assert "unknown" not in shown
    assert run(*call, "--strictness", "2")[0] == 2


@pytest.mark.parametrize("strictness", ["0.1", "0.5", "0.9"])
def test_adapt_reports_with_its_strictness(run: Run, vendor: Path, tmp_path: Path, strictness: str) -> None:
    """Fault: what adapt reported was that of strictness ½: clusters, verdict, examples."""
    X, _ = blobs([0, 1, 2, 7, 8], 40, shift=1.0, seed=1)
    np.savez(tmp_path / "f.npz", X=X)
    client = tmp_path / "m.usfda"
    call = ["adapt", vendor, tmp_path / "f.npz", "-o", client, "--strictness", strictness]
    code, shown, _ = run(*call, "--json", tmp_path / "a.json")
    assert code == 0
    card = json.loads((tmp_path / "a.json").read_text())
    records = [
        json.loads(line) for line in run("predict", client, tmp_path / "f.npz", "--format", "jsonl")[1].split("\n")[:-1]
    ]
    unknown = [record for record in records if record["label"] == "unknown"]
    assert card["strictness"] == float(strictness)
    assert f"{100 * len(unknown) / len(records):.1f} %" in shown
    sizes = {str(c): sum(r["cluster"] == c for r in unknown) for c in {r["cluster"] for r in unknown}}
    assert card["check"].get("clusters", {}) == sizes
    assert [sizes[c] for c in sorted(sizes)] == sorted(sizes.values(), reverse=True), "numbered by size"
    for cluster, names in card["examples"].items():
        assert all(records[int(name)]["cluster"] == int(cluster) for name in names)


@pytest.fixture(scope="module")
def image_vendor(tmp_path_factory: pytest.TempPathFactory, photos: Path) -> Path:
    file = tmp_path_factory.mktemp("vendor") / "vendor.usfda"
    config = usfda.Config(cache=None)
    usfda.procure(photos, backbone="pixels", method="mixture", config=config).save(file)
    return file


def test_predict_without_a_store(run: Run, image_vendor: Path, new_photos: Path, tmp_path: Path, cache: Path) -> None:
    """Fault: a place to write was a condition of prediction."""
    call = ["predict", image_vendor, new_photos, "--format", "csv"]
    code, without, said = run(*call, "--no-store")
    assert code == 0
    assert "warning" not in said
    assert not (cache / "features").exists()
    (tmp_path / "file").touch()
    code, nowhere, said = run(*call, "--cache", tmp_path / "file")
    assert code == 0
    assert said.count("warning") == 1
    code, with_store, _ = run(*call)
    assert code == 0
    assert (cache / "features").exists()
    assert without == nowhere == with_store
    assert len(without.splitlines()) == 41


def test_names_that_are_not_utf8_leave_every_file_readable(
    run: Run, image_vendor: Path, new_photos: Path, tmp_path: Path
) -> None:
    """Fault: their bytes were written as they are, and no program could read the file."""
    parquet = pytest.importorskip("pyarrow.parquet")
    target, client = tmp_path / "target", tmp_path / "client.usfda"
    other = os.fsdecode(b"\xe9")  # é in Latin-1
    for photo in new_photos.rglob("*.png"):
        folder = target / photo.parent.name.replace("5", f"5-{other}")
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(photo, folder / f"{other}{photo.name}")
    found = []
    for suffix in ("csv", "jsonl", "parquet"):
        code, _, said = run("predict", image_vendor, target, "-o", tmp_path / f"p.{suffix}")
        assert code == 0
        assert said.count("UTF-8: 40") == 1
    with (tmp_path / "p.csv").open(encoding="utf-8") as file:
        found.append([row["path"] for row in csv.DictReader(file)])
    lines = (tmp_path / "p.jsonl").read_text(encoding="utf-8").splitlines()
    found.append([json.loads(line)["path"] for line in lines])
    found.append(parquet.read_table(tmp_path / "p.parquet")["path"].to_pylist())
    assert found[0] == found[1] == found[2]
    assert found[0][0] == f"{target}/kind0/\\udce9000.png"
    assert run("adapt", image_vendor, target, "-o", client, "--json", tmp_path / "a.json")[0] == 0
    examples = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["examples"]
    assert set() < {name for names in examples.values() for name in names} <= set(found[0])
    code, _, said = run("evaluate", client, target, "--json", tmp_path / "e.json")
    assert code == 0
    assert "UTF-8: 1," in said
    result = json.loads((tmp_path / "e.json").read_text(encoding="utf-8"))
    assert result["private_classes"] == ["kind4", "kind5-\\udce9"]
    assert run("adapt", image_vendor, tmp_path / "p.csv", "-o", client)[0] == 2


def test_all_commands_work_where_nothing_can_be_kept(run: Run, photos: Path, new_photos: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    vendor, client, place = tmp_path / "v.usfda", tmp_path / "c.usfda", ("--cache", tmp_path / "file")
    assert run("procure", photos, "-o", vendor, "--backbone", "pixels", "--for", "mixture", *place)[0] == 0
    assert run("adapt", vendor, new_photos, "-o", client, *place)[0] == 0
    assert run("evaluate", client, new_photos, *place)[0] == 0


def test_files_for_one_method(run: Run, photos: Path, new_photos: Path, tmp_path: Path) -> None:
    size = {}
    for method in ("all", "mixture", "usfda"):
        file = tmp_path / f"{method}.usfda"
        assert run("procure", photos, "-o", file, *QUICK, "--for", method)[0] == 0
        card = json.loads(run("inspect", file, "--json")[1])
        assert ("negatives" in card["procurement"]["seconds"]) == (method != "mixture")
        assert ("class_statistics" in card["procurement"]["seconds"]) == (method != "usfda")
        assert card["head"] == ("class-means" if method == "mixture" else "source-network")
        assert card["procurement"]["method"] == method
        size[method] = file.stat().st_size
    assert size["mixture"] < size["usfda"] < size["all"]
    for made, wanted in (("mixture", "usfda"), ("usfda", "mixture")):
        code, _, said = run("adapt", tmp_path / f"{made}.usfda", new_photos, "-o", tmp_path / "c", "--method", wanted)
        assert code == 2
        assert f"--method {made}" in said
        assert not (tmp_path / "c").exists()
    few = ("--method", "usfda", "--set", "steps=3")
    assert run("adapt", tmp_path / "mixture.usfda", new_photos, "-o", tmp_path / "m.usfda")[0] == 0
    assert run("adapt", tmp_path / "usfda.usfda", new_photos, "-o", tmp_path / "p.usfda", *few)[0] == 0
    assert run("adapt", tmp_path / "all.usfda", new_photos, "-o", tmp_path / "a.usfda")[0] == 0
    alone, whole = (
        [
            json.loads(line)["label"]
            for line in run("predict", tmp_path / f, new_photos, "--format", "jsonl")[1].splitlines()
        ]
        for f in ("m.usfda", "a.usfda")
    )
    assert alone == whole
    rows = run("predict", tmp_path / "m.usfda", new_photos, "--format", "jsonl")[1].splitlines()
    assert {json.loads(row)["ssm"] for row in rows} == {None}
    assert "ssm" not in run("predict", tmp_path / "m.usfda", new_photos)[1]


def test_a_model_without_its_backbone(run: Run, photos: Path, tmp_path: Path) -> None:
    file = tmp_path / "m.usfda"
    call = ["procure", photos, "-o", file, "--backbone", "pixels", "--for", "mixture", "--without-backbone"]
    code, shown, _ = run(*call)
    assert code == 0
    assert f"usfda adapt {file} --backbone pixels NEW-IMAGES" in shown
    shown = run("inspect", file)[1]
    assert f"usfda adapt {file} --backbone pixels NEW-IMAGES" in shown
    client = tmp_path / "c.usfda"
    call = ["adapt", file, photos, "--backbone", "pixels", "--without-backbone", "-o", client]
    assert f"{client} --backbone pixels" in run(*call)[1]
    code, _, said = run("predict", file, photos)
    assert code == 2
    assert "pixels" in said
    code, shown, _ = run("predict", file, photos, "--backbone", "pixels")
    assert code == 0
    assert len(shown.splitlines()) == 48
    assert run("predict", file, photos, "--backbone", "efficientnet_lite0")[0] == 2


@pytest.mark.parametrize(
    "call",
    [
        "adapt m l.txt -o l.txt",
        "adapt m l.txt -o new.usfda --json l.txt",
        "adapt m l.txt -o new.usfda --report l.txt",
        "adapt m l.txt -o new.usfda --json m",
        "adapt m l.txt --classes @names -o names",
        "predict m l.txt -o l.txt",
        "predict m photos -o m --format csv",
        "evaluate m l.txt --json l.txt",
        "evaluate m photos --json names --rename names",
        "procure l.txt -o l.txt",
        "procure photos -o graph --backbone onnx:graph",
        "teach m l.txt -o l.txt",
        "report m l.txt -o l.txt",
        "export m -o m",
        "export m --int8 --calibrate l.txt -o l.txt",
        "inspect m --card m",
        "inspect folder --card folder/model.usfda",
        "inspect m --card link",
    ],
)
def test_no_output_replaces_what_is_read(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Before any work: none of these files is even a model or a list."""
    monkeypatch.chdir(tmp_path)
    for folder in ("photos", "folder"):
        Path(folder).mkdir()
    files = [Path(name) for name in ("m", "l.txt", "names", "graph", "folder/model.usfda")]
    for file in files:
        file.write_text("as it was")
    Path("link").symlink_to("m")
    code, _, said = run(*call.split())
    assert code == 2
    assert "would be written over what is read" in said or "has the name of a model" in said
    assert all(file.read_text() == "as it was" for file in files)


def test_no_cell_of_a_csv_is_a_formula(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = ["=1+1", "+1", "-1", "@SUM(1)"]
    X, y = blobs([0, 1, 2, 3], 12)
    usfda.procure(X, [names[int(name[1:])] for name in y], method="usfda").save("m.usfda")
    write_photos(Path("photos"), [0], 1)
    shutil.copy("photos/kind0/000.png", "=x.png")
    usfda.procure(write_photos(Path("source"), [0, 1], 4), method="usfda", backbone="pixels").save("images.usfda")
    np.savez("x.npz", X=X)

    def rows(*call: str) -> list[list[str]]:
        code, text, said = run("predict", *call)
        assert code == 0, said
        return list(csv.reader(text.splitlines()))[1:]

    cells = [cell for row in rows("m.usfda", "x.npz", "--format", "csv") for cell in row]
    assert {"'" + name for name in names} <= set(cells)
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))]
    (row,) = rows("images.usfda", "=x.png", "--format", "csv")
    assert row[0] == "./=x.png"
    assert Path(row[0]).samefile("=x.png")
    kept = [cell for row in rows("m.usfda", "x.npz", "--format", "csv", "--formulas") for cell in row]
    assert set(names) <= set(kept)
    found = [
        json.loads(line)["label"] for line in run("predict", "m.usfda", "x.npz", "--format", "jsonl")[1].splitlines()
    ]
    assert set(names) <= set(found)
    assert run("predict", "m.usfda", "x.npz", "-o", "x.parquet")[0] == 0
    assert set(names) <= set(parquet.read_table("x.parquet").to_pydict()["label"])


def test_an_image_that_cannot_be_read_is_in_the_output(run: Run, photos: Path, tmp_path: Path) -> None:
    model, folder = tmp_path / "m.usfda", tmp_path / "photos"
    usfda.procure(photos, method="usfda", backbone="pixels").save(model)
    shutil.copytree(photos / "kind0", folder)
    (folder / "005.png").write_bytes(b"no image")
    (folder / "100.jpg").write_bytes(b"")
    why = {"005.png": "not an image of a known format", "100.jpg": "empty file"}
    for suffix in ("csv", "jsonl", "parquet", "txt"):
        assert run("predict", model, folder, "-o", tmp_path / f"p.{suffix}")[0] == 0
    with (tmp_path / "p.csv").open(newline="") as file:
        as_csv = list(csv.DictReader(file))
    as_json = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    for rows in (as_csv, as_json, parquet.read_table(tmp_path / "p.parquet").to_pylist()):
        assert len(rows) == 13
        unread = {Path(row["path"]).name: row for row in rows if row.get("error")}
        assert unread.keys() == why.keys()
        for name, row in unread.items():
            assert row["error"].startswith(why[name])
            assert not row.get("label")
    lines = (tmp_path / "p.txt").read_text().splitlines()
    assert sum(line.startswith("cannot be read") for line in lines) == 2


def test_predict_says_that_a_text_is_a_list_and_reads_an_image_of_that_name(
    run: Run, photos: Path, tmp_path: Path
) -> None:
    model, image = tmp_path / "m.usfda", photos / "kind0" / "000.png"
    usfda.procure(photos, method="usfda", backbone="pixels").save(model)
    (tmp_path / "x.txt").write_text(f"{image}\n{photos / 'kind1' / '000.png'}\n")
    _, shown, said = run("predict", model, tmp_path / "x.txt")
    assert len(shown.splitlines()) == 2
    assert "x.txt: read as a list of images" in " ".join(said.split())
    shutil.copy(image, tmp_path / "y.txt")
    _, shown, said = run("predict", model, tmp_path / "y.txt")
    assert len(shown.splitlines()) == 1
    assert "read as a list" not in said


@pytest.mark.parametrize("command", ["adapt {photos} {model} -o {model}.new", "predict {photos} {model}"])
def test_swapped_arguments_are_recognised(run: Run, photos: Path, tmp_path: Path, command: str) -> None:
    model = tmp_path / "m.usfda"
    usfda.procure(photos, method="usfda", backbone="pixels").save(model)
    code, _, said = run(*command.format(photos=photos, model=model).split())
    assert code == 2
    assert f"MODEL comes first; give {model} before it" in " ".join(said.split())


def test_labels_that_predict_gave_are_no_true_labels(run: Run, photos: Path, tmp_path: Path) -> None:
    model, labels = tmp_path / "m.usfda", tmp_path / "labels.csv"
    usfda.procure(photos, method="usfda", backbone="pixels").save(model)
    assert run("predict", model, photos, "-o", labels)[0] == 0
    code, _, said = run("evaluate", model, labels)
    assert code == 2
    assert "its labels are those that predict gave; give true ones" in " ".join(said.split())


@pytest.mark.parametrize(
    "call",
    [
        "adapt m photos -o x --json x",
        "adapt m photos -o x --report x",
        "adapt m photos -o new.usfda --json x --report ./x",
        "adapt m photos -o new.usfda --json photos/../x --report x",
    ],
)
def test_one_name_for_two_outputs_is_refused(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    code, _, said = run(*call.split())
    assert (code, "is named for two outputs" in said) == (2, True)
    assert not Path("x").exists()


def test_inspect_shows_whether_the_default_backbone_is_genuine(run: Run, photos: Path, tmp_path: Path) -> None:
    model = usfda.procure(photos, method="mixture", classes="kind0,kind1")
    model.save(tmp_path / "m.usfda")
    assert "NOT" not in run("inspect", tmp_path / "m.usfda")[1]
    assert model.backbone is not None
    other = replace(model.backbone, record=model.backbone.record | {"interpolation": "nearest"})
    usfda.Model(model.source_classes, model.vendor, model.head, other, model.card).save(tmp_path / "m.usfda")
    assert "NOT" in run("inspect", tmp_path / "m.usfda")[1]


def test_the_vendors_file_is_not_written_over(run: Run, vendor: Path, tmp_path: Path) -> None:
    X, _ = blobs([0, 1, 7], 20, shift=1.0, seed=1)
    np.savez(tmp_path / "f.npz", X=X)
    file = tmp_path / "vendor.usfda"
    file.write_bytes(vendor.read_bytes())
    assert run("adapt", file, tmp_path / "f.npz", "-o", file)[0] == 2
    assert file.read_bytes() == vendor.read_bytes()


def test_evaluate_at_another_strictness(run: Run, vendor: Path, tmp_path: Path) -> None:
    X, y = blobs([0, 1, 7], 20, shift=1.0, seed=1)
    np.savez(tmp_path / "l.npz", X=X, y=y)
    share = {}
    for strictness in ("0", "1"):
        call = ["evaluate", vendor, tmp_path / "l.npz", "--strictness", strictness, "--json", tmp_path / "e.json"]
        assert run(*call)[0] == 0
        share[strictness] = json.loads((tmp_path / "e.json").read_text())["unknown_share"]
    assert share["0"] == 0 < share["1"]


def test_help_needs_no_heavy_library() -> None:
    heavy = "[name for name in ('torch', 'onnxruntime', 'sklearn', 'numpy') if name in sys.modules]"
    code = f"import sys; from usfda.cli.main import main; main(['-h']); print({heavy})"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == "[]"


def test_the_default_method_adapts_without_torch(vendor: Path, tmp_path: Path) -> None:
    """Loading it would take as long as adapting."""
    X, _ = blobs([0, 1, 2, 7, 8], 40, shift=0.5, seed=1)
    np.savez(tmp_path / "target.npz", X=X)
    call = ["adapt", str(vendor), str(tmp_path / "target.npz"), "-o", str(tmp_path / "client.usfda"), "--quiet"]
    code = f"import sys; from usfda.cli.main import main; print(main({call}), 'torch' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == "0 False"


def test_updates_and_bounded_rejections(run: Run, vendor: Path, tmp_path: Path) -> None:
    X, _ = blobs([0, 1, 2, 7, 8], 40, shift=0.5, seed=1)
    client, later = tmp_path / "client.usfda", tmp_path / "later.usfda"
    for name, rows in (("first", X[::2]), ("second", X[1::2])):
        np.savez(tmp_path / f"{name}.npz", X=rows)
    code, _, notes = run("adapt", vendor, tmp_path / "first.npz", "-o", client, "--update")
    assert code == 2
    assert "--update" in notes
    assert run("adapt", vendor, tmp_path / "first.npz", "-o", client)[0] == 0
    record = tmp_path / "later.json"
    assert run("adapt", client, tmp_path / "second.npz", "-o", later, "--update", "--json", record)[0] == 0
    card = json.loads(record.read_text())
    assert (card["samples"], card["earlier_samples"]) == (100, 100)
    for text in ("10%", "0.1", "10"):
        call = ["adapt", vendor, tmp_path / "first.npz", "-o", client, "--json", record, "--reject-at-most", text]
        assert run(*call)[0] == 0
        card = json.loads(record.read_text())
        assert card["unknown_share"] == 10
        assert card["reject_at_most"] == 10
    code, _, notes = run("adapt", vendor, tmp_path / "first.npz", "-o", client, "--reject-at-most", "much")
    assert code == 2
    assert "10%" in notes


@pytest.mark.parametrize(("text", "share"), [("0", 0), ("1%", 0.01), ("100%", 1), ("35", 0.35), ("0.5", 0.5)])
def test_shares(text: str, share: float) -> None:
    assert share_of(text, "--option") == share


@pytest.mark.parametrize("text", ["1", "-1", "101%", "nan", "", "%"])
def test_shares_that_could_mean_two_things_or_nothing(text: str) -> None:
    with pytest.raises(usfda.InputError, match="10%"):
        share_of(text, "--option")


def test_what_needs_torch_says_so(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: the exit code was that of work that failed, and the line Python's own."""
    np.savez(tmp_path / "source.npz", X=blobs([0, 1], 12)[0], y=["a"] * 12 + ["b"] * 12)
    monkeypatch.setitem(sys.modules, "torch", None)
    code, _, notes = run("procure", tmp_path / "source.npz", "--for", "usfda", "-o", tmp_path / "no.usfda")
    assert code == 2
    assert notes.splitlines()[-1].endswith("pip install torch")

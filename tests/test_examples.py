"""The examples, run as their texts say: in a folder of one's own, each as a program."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from serving import HOST, PATIENCE, client, program

from usfda import load
from usfda.cli.main import main

pytest.importorskip("mlxtend")
EXAMPLES = Path(__file__).parents[1] / "examples"
SHARED = "01234"


def run(place: Path, *command: object, **variables: str) -> str:
    """What a command prints that is called beside the folder ``examples``; it must not fail."""
    done = subprocess.run(
        [str(part) for part in command], cwd=place, capture_output=True, text=True, env=os.environ | variables
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the examples, and the images."""
    folder = tmp_path_factory.mktemp("newcomer")
    shutil.copytree(EXAMPLES, folder / "examples", ignore=shutil.ignore_patterns("__pycache__", "examples-out"))
    shown = run(folder, sys.executable, "examples/digits.py")
    assert shown.splitlines() == ["examples-out/mnist: 420 images", "examples-out/uci: 480 images"]
    return folder


@pytest.fixture(scope="module")
def vendor(place: Path) -> str:
    return run(place, sys.executable, "examples/vendor.py", USFDA_CACHE=str(place / "cache"))


@pytest.fixture(scope="module")
def adapted(place: Path, vendor: str) -> str:
    """What the client's script prints."""
    return run(place, sys.executable, "examples/client.py", USFDA_CACHE=str(place / "cache"))


@pytest.mark.parametrize("name", ["vendor.py", "client.py"])
def test_the_two_sides_are_short(name: str) -> None:
    assert len((EXAMPLES / name).read_text().splitlines()) < 40


def test_the_table_has_every_example() -> None:
    table = (EXAMPLES / "README.md").read_text()
    for file in EXAMPLES.iterdir():
        if file.is_file() and file.name != "README.md":
            assert f"[{file.name}]({file.name})" in table


def test_vendor(place: Path, vendor: str) -> None:
    assert "classes: 0 1 2 3 4 5 6" in vendor
    found = re.search(r"of which ([\d.]+) % are labelled rightly", vendor)
    assert found
    assert float(found[1]) > 75
    assert not load(place / "examples-out" / "vendor.usfda").adapted


def test_client(place: Path, adapted: str) -> None:
    lines = adapted.splitlines()
    counts: dict[str, int] = ast.literal_eval(next(line for line in lines if line.startswith("{")))
    assert sum(counts.values()) == 480
    assert sum(counts[digit] for digit in SHARED) > 150, "three hundred are there"
    assert counts["unknown"] > 90, "a hundred and eighty are new"
    assert sum("examples-out/uci/" in line for line in lines) == 3
    assert "<html" in (place / "examples-out" / "report.html").read_text()
    assert load(place / "examples-out" / "client.usfda").adapted


def outputs(notebook: Any) -> list[list[str]]:
    """The kinds of what each cell shows."""
    return [[str(one["output_type"]) for one in cell.get("outputs", [])] for cell in notebook.cells]


def figures(notebook: Any) -> dict[str, Any]:
    (cell,) = [cell for cell in notebook.cells if "figures" in cell.metadata.get("tags", [])]
    return dict(json.loads(cell.outputs[0].text))


def test_notebook(place: Path, cache: Path) -> None:
    """It runs, and what the file shows is what it gives, but for what differs between machines."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    pytest.importorskip("matplotlib")
    kept = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    assert [cell.execution_count for cell in kept.cells if cell.cell_type == "code"] == [1, 2, 3, 4, 5, 6]
    fresh = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    where = {"metadata": {"path": str(place / "examples")}}
    nbclient.NotebookClient(
        fresh, timeout=PATIENCE * 5, coalesce_streams=True, resources=where
    ).execute()  # raises where a cell fails
    assert outputs(fresh) == outputs(kept)
    then, now = figures(kept), figures(fresh)
    assert now.keys() == then.keys()
    labels = Counter(now["labels"])
    labels.subtract(then["labels"])
    assert sum(now["labels"].values()) == sum(then["labels"].values()) == 480
    assert max(map(abs, labels.values())) <= 24, f"5 % of the images: {dict(labels)}"
    assert now["held-out accuracy"] == pytest.approx(then["held-out accuracy"], abs=6)
    for name in ("vendor's model", "adapted"):
        assert now[name] == pytest.approx(then[name], abs=6), name


def test_sound_features(place: Path) -> None:
    shown = run(place, sys.executable, "examples/sound_features.py")
    after = dict(re.findall(r"^(\w+) .*after \{'(\w+)'", shown, re.MULTILINE))
    assert [after[kind] for kind in ("siren", "bell", "whistle")] == ["siren", "bell", "whistle"]
    assert [after[kind] for kind in ("bird", "clock", "drum")].count("unknown") >= 2


def test_own_baseline(place: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command of its docstring, but for our own method: that one has tests of its own, and takes long."""
    monkeypatch.chdir(place)
    text = ast.get_docstring(ast.parse((EXAMPLES / "own_baseline.py").read_text())) or ""
    command = text[text.index("usfda compare") :].split("\n\n")[0].replace("\\\n", " ").split()
    assert command.count("mixture,examples/own_baseline.py:NearestMean") == 1
    assert main([word.removeprefix("mixture,") for word in command[1:]]) == 0
    (baseline,) = json.loads(Path("examples-out/compare/results.json").read_text())["methods"]
    assert baseline["overall"]["t_avg"]["mean"] > 40
    assert "own_baseline.py" in capfd.readouterr().out


def test_onnx_alone(place: Path, adapted: str) -> None:
    """It gives the model's labels, in a process that could not import usfda."""
    model = place / "examples-out" / "client.usfda"
    assert main(["export", str(model), "-o", str(place / "examples-out" / "model.onnx")]) == 0
    images = sorted((place / "examples-out" / "uci").rglob("*.png"))[::20]
    refuse = "import sys, runpy; sys.modules['usfda'] = None; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0])"
    shown = run(
        place, sys.executable, "-c", refuse, "examples/onnx_alone.py", "examples-out/model.onnx", *images
    )  # fmt: skip
    assert [line.split()[1] for line in shown.splitlines()] == load(model).predict(images).tolist()


def shell_of(script: str) -> str:
    """The program that runs a client of the service."""
    pytest.importorskip("uvicorn")
    shell = shutil.which("sh") if script.endswith(".sh") else sys.executable
    if shell is None or (script.endswith(".sh") and shutil.which("curl") is None):
        pytest.skip("sh and curl are needed")
    return shell


@pytest.mark.parametrize("script", ["service_client.py", "service_client.sh"])
def test_service_client(place: Path, vendor: str, script: str) -> None:
    """Against a real service that wants a token: its model is another one afterwards."""
    shell = shell_of(script)
    images = sorted((place / "examples-out" / "uci").rglob("*.png"))[::4]
    with program(place / "examples-out" / "vendor.usfda", "--token", "secret") as service:
        address = f"http://{HOST}:{service.port}/"
        before = client(service.port, "secret").get("/model").json()["hash"]
        shown = run(place, shell, f"examples/{script}", address, *images, USFDA_TOKEN="secret")
        assert client(service.port, "secret").get("/model").json()["hash"] != before
    first, second = shown.split("after:")
    for part in (first, second):
        counts = [int(n) for n in re.findall(r"': (\d+)", part) or re.findall(r"(\d+) \"label\"", part)]
        assert sum(counts) == len(images) == 120
    assert first.removeprefix("before:") != second, "the adapted model answers otherwise"


@pytest.mark.parametrize("script", ["service_client.py", "service_client.sh"])
def test_service_client_shows_what_the_service_has_against_it(place: Path, vendor: str, script: str) -> None:
    """And ends there, with an exit code that says so: 401, 409, 422, and where nobody answers."""
    shell = shell_of(script)
    images = sorted((place / "examples-out" / "uci").rglob("*.png"))[:3]
    with program(place / "examples-out" / "vendor.usfda", "--token", "secret") as service:
        address = f"http://{HOST}:{service.port}"
        for given, token, says in [
            ([address, *images], "wrong", "set USFDA_TOKEN" if script.endswith(".py") else "this token is wrong"),
            ([address, *images], "secret", "3 images are kept; an adaptation needs 16"),
            ([address, EXAMPLES / "README.md"], "secret", "none of the files can be read"),
            ([f"http://{HOST}:1", *images], "secret", "onnect"),
            ([], "secret", "usage"),
        ]:
            done = subprocess.run(
                [shell, f"examples/{script}", *map(str, given)],
                cwd=place, capture_output=True, text=True, env=os.environ | {"USFDA_TOKEN": token},
            )  # fmt: skip
            assert done.returncode == 1, done.stdout
            assert says in done.stderr
            assert len(done.stderr.splitlines()) <= (2 if script.endswith(".sh") else 1), "curl adds a line of its own"
            assert "after:" not in done.stdout

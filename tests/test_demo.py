"""The demo, as a user runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from browser import Open

from usfda import load

pytest.importorskip("mlxtend")
pytest.importorskip("torch")  # which the process that is started needs


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What it shows, and its folder."""
    place = tmp_path_factory.mktemp("demo")
    call = [sys.executable, "-m", "usfda", "--cache", str(place / "cache"), "demo", "--out", str(place / "d")]
    return subprocess.run(call, capture_output=True, text=True, check=True).stdout, place / "d"


def figures(shown: str) -> list[list[float]]:
    """H, T_unk, shared accuracy, …: of the class means, after adaptation, and after a review."""
    found = [
        [float(x) for x in re.findall(r"\d+\.\d", line)]
        for name in ("class means ", "adapted ")
        for line in shown.splitlines()
        if line.startswith(name)
    ]
    means, _, adapted, reviewed = found
    return [means, adapted, reviewed]


def test_the_demo(demo: tuple[str, Path]) -> None:
    shown, folder = demo
    before, after, reviewed = figures(shown)
    assert reviewed[0] > after[0] + 5, "H"
    assert after[0] > before[0] + 15, "H"
    assert after[1] > 50, "most new digits are unknown"
    assert after[2] > 65, "most known digits are labelled"
    assert len(list((folder / "mnist").rglob("*.png"))) == 5000
    assert len(list((folder / "uci").rglob("*.png"))) == 1797
    assert load(folder / "client.usfda").adapted


def test_it_ends_with_a_report(demo: tuple[str, Path], visit: Open) -> None:
    shown, folder = demo
    seen = visit((folder / "report.html").as_uri())
    assert "4000" in seen.page.locator("#lead").inner_text()
    assert "class means" in seen.page.locator("#found").inner_text()
    assert f"{figures(shown)[1][0]:.1f}" in seen.page.locator("#metrics").inner_text(), "labels are scored in it"
    clusters = load(folder / "client.usfda").deployment["check"]["clusters"]
    assert seen.page.locator("#clusters img").count() == 4 * min(len(clusters), 8)  # the largest ones
    assert not seen.errors
    assert len(seen.requests) == 1, "the page needs nothing from outside"

"""The demo, as a user runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from usfda import load

pytest.importorskip("mlxtend")


def test_the_demo_tells_the_whole_story(tmp_path: Path, cache: Path) -> None:
    call = [sys.executable, "-m", "usfda", "--cache", str(cache), "demo", "--out", str(tmp_path / "d")]
    shown = subprocess.run(call, capture_output=True, text=True, check=True).stdout
    before, after = (
        [float(x) for x in re.findall(r"\d+\.\d", line)]
        for line in shown.splitlines()
        if line.startswith("│") and ("source model" in line or "adapted " in line)
    )
    assert after[2] > before[2] + 30, "H-score"
    assert after[1] > 50, "most new digits are unknown"
    assert after[3] > 75, "most known digits are labelled"
    assert len(list((tmp_path / "d" / "mnist").rglob("*.png"))) == 5000
    assert len(list((tmp_path / "d" / "uci").rglob("*.png"))) == 1797
    adapted = load(tmp_path / "d" / "client.usfda")
    assert adapted.adapted
    page = (tmp_path / "d" / "report.html").read_text()
    clusters = len(adapted.card["deployment"]["check"]["clusters"])
    assert "% unknown" in shown
    assert "% unknown" in page
    assert page.count("<img") == 20 + 20 + 20 + 3 * clusters + 2
    assert page.count("data:image/png;base64,") == 60 + 3 * clusters
    assert "http" not in re.sub(r"data:image/[^\"]*", "", page), "the page needs nothing from outside"

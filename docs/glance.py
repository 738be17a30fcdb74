"""The picture of the README: vendor, file, client, label or unknown, on digits of the demo.

usfda demo --out demo-out
python docs/glance.py demo-out docs/glance.png

Nothing is chosen by hand: the client's images are the first of each class, with the labels of the demo's model.
"""

from __future__ import annotations

import base64
import html
import sys
from pathlib import Path
from string import Template

from playwright.sync_api import sync_playwright

import usfda
from usfda.experiments.digits import SOURCE, TARGET

EACH = 2  # images of a class at the client's


def figure(file: Path, caption: str, kind: str = "") -> str:
    """A picture with its label below it."""
    data = base64.b64encode(file.read_bytes()).decode()
    picture = f'<img src="data:image/png;base64,{data}">'
    return f'<figure class="{kind}">{picture}<figcaption>{html.escape(caption)}</figcaption></figure>'


def page(demo: Path) -> str:
    """The picture, as HTML."""
    vendor = [figure(min((demo / "uci" / name).iterdir()), name) for name in SOURCE]
    files = [file for name in TARGET for file in sorted((demo / "mnist" / name).iterdir())[:EACH]]
    labels = usfda.load(demo / "client.usfda").predict([str(file) for file in files])
    client = []
    for file, label in zip(files, labels, strict=True):
        truth = file.parent.name if file.parent.name in SOURCE else "unknown"
        kind = "unknown" if label == "unknown" else "known"
        client.append(figure(file, label, kind if label == truth else f"{kind} wrong"))
    template = Template(Path(__file__).with_suffix(".html").read_text())
    return template.substitute(vendor="".join(vendor), client="".join(client))


def main(demo: Path, output: Path) -> None:
    """Draw it with the Chromium of this machine."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        shown = browser.new_page(viewport={"width": 1180, "height": 300}, device_scale_factor=1.5)
        shown.set_content(page(demo))
        shown.screenshot(path=output, full_page=True)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

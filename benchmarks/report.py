"""The report of many images: how long it takes to write, how large it is, how long to open, and how it scrolls.

    python benchmarks/vary_images.py OFFICE31 many/ --count 10000
    python benchmarks/report.py client.usfda many/ [--threads N]

Vectors are computed first, and not timed. A frame is the time between two of the browser's own, while the page is
scrolled by a fixed number of pixels in each; Chromium must be there, and playwright (`usfda[dev]`).
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

from usfda import Config, load
from usfda.experiments.tables import markdown_table
from usfda.report.build import write_report

FRAMES = 240
SCROLL = f"""step => new Promise(done => {{
  const frames = [];
  let last = performance.now();
  const next = now => {{
    frames.push(now - last);
    last = now;
    window.scrollBy(0, step);
    frames.length < {FRAMES} ? requestAnimationFrame(next) : done(frames);
  }};
  requestAnimationFrame(next);
}})"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("images")
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    config = Config() if options.threads is None else Config(threads=options.threads)
    model = load(options.model)
    features = model.features(options.images, config=config)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder, "report.html")
        began = time.perf_counter()
        write_report(model, features, file, config=config)
        written = time.perf_counter() - began
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        began = time.perf_counter()
        page.goto(file.as_uri())
        opened = time.perf_counter() - began
        frames = [np.quantile(page.evaluate(SCROLL, step), [0.5, 0.95]) for step in (40, 120)]
        browser.close()
        size = file.stat().st_size / 1e6
    head = [
        "images",
        "file",
        "written in",
        "opened in",
        *(f"frame at {step} pixels: median, 95 %" for step in (40, 120)),
    ]
    row = [f"{len(features):,}", f"{size:.1f} MB", f"{written:.1f} s", f"{opened:.1f} s"]
    print(markdown_table(head, [[*row, *(f"{median:.0f}, {most:.0f} ms" for median, most in frames)]]))


if __name__ == "__main__":
    main()

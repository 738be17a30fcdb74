"""A page of text, tables and pictures in one HTML file that needs nothing else; matplotlib comes with an extra."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np
from PIL import Image

from ..errors import InputError
from ..files import atomic_write

try:
    from matplotlib.figure import Figure
except ImportError:
    raise InputError("the page needs matplotlib; pip install 'usfda[demo]'") from None

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1c2733; }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse } td, th { padding: .3rem .9rem; text-align: right; border-bottom: 1px solid #d8dee4 }
td:first-child, th:first-child { text-align: left } caption { caption-side: bottom; color: #5a6773; font-size: .85rem }
.grid { display: flex; flex-wrap: wrap; gap: .6rem } figure { margin: 0; text-align: center; font-size: .8rem }
.grid img { width: 64px; height: 64px; border: 1px solid #d8dee4 }
img.plot { max-width: 100% }
"""


def _uri(content: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


class Page:
    """Parts are added in their order; ``write`` makes the file."""

    def __init__(self, title: str):
        self._title = escape(title)
        self._parts: list[str] = []

    def text(self, text: str) -> None:
        """A paragraph."""
        self._parts.append(f"<p>{escape(text)}</p>")

    def list(self, title: str, lines: Sequence[str]) -> None:
        """A list under its title."""
        items = "".join(f"<li>{escape(line)}</li>" for line in lines)
        self._parts.append(f"<h2>{escape(title)}</h2><ul>{items}</ul>")

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> None:
        """A table over its caption."""

        def line(cells: Sequence[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

        body = "".join(line(row, "td") for row in rows)
        self._parts.append(f"<table><caption>{escape(caption)}</caption>{line(header, 'th')}{body}</table>")

    def images(self, title: str, images: np.ndarray, captions: Sequence[str]) -> None:
        """Prepared images (n, h, w, 3), each over its caption."""
        cells = []
        for image, caption in zip(images, captions, strict=True):
            buffer = io.BytesIO()
            Image.fromarray(image).save(buffer, "PNG")
            name = escape(caption)
            cells.append(f'<figure><img alt="{name}" src="{_uri(buffer.getvalue(), "png")}"><br>{name}</figure>')
        self._parts.append(f'<h2>{escape(title)}</h2><div class="grid">{"".join(cells)}</div>')

    def histogram(self, title: str, groups: dict[str, np.ndarray], axis: str) -> None:
        """The values of each group, over each other."""
        figure = Figure(figsize=(7, 2.6), layout="constrained")
        axes = figure.subplots()
        bins = np.linspace(min(v.min() for v in groups.values()), max(v.max() for v in groups.values()), 40)
        for name, values in groups.items():
            axes.hist(values, bins.tolist(), alpha=0.6, label=f"{name} ({len(values)})")
        axes.set_xlabel(axis)
        axes.set_ylabel("images")
        axes.legend()
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg")
        name = escape(title)
        self._parts.append(f'<h2>{name}</h2><img class="plot" alt="{name}" src="{_uri(buffer.getvalue(), "svg+xml")}">')

    def write(self, file: Path) -> None:
        """Write the file, whole or not at all."""
        head = f'<meta charset="utf-8"><title>{self._title}</title><style>{STYLE}</style>'
        body = f"<h1>{self._title}</h1>{''.join(self._parts)}"
        with atomic_write(file) as out:
            out.write(f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>'.encode())

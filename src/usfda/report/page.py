"""The page: data of a report in, one HTML file out, with its style, its script and its pictures in it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html import escape
from importlib.resources import files
from typing import Any

# One after another.
SCRIPTS = ("base", "views", "summary", "quality", "map", "score", "gallery", "teaching", "main")


def page(data: dict[str, Any]) -> bytes:
    """The HTML of a report.

    Names of files and classes, and the card, are untrusted. They are data in a block that is not executed, in which
    no ``<`` can end the block, and the script puts them into the page as text. The policy lets the browser run this
    one script, use this one style and load nothing.
    """
    style, script = _asset("report.css"), "".join(_asset(f"{name}.js") for name in SCRIPTS)
    policy = f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}"
    parts = {
        "policy": f"{policy}; base-uri 'none'; form-action 'none'",
        "title": escape(f"{data['target']}: a report of usfda"),
        "style": style,
        "data": json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
        "script": script,
    }
    text = re.sub(r"{{(\w+)}}", lambda found: parts[found[1]], _asset("report.html"))
    return text.encode(errors="xmlcharrefreplace")  # file names may be other than UTF-8


def _asset(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

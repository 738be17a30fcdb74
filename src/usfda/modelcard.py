"""The card of a model as a page that model hubs read: Markdown that begins with a few lines of YAML."""

from __future__ import annotations

import json
import os
from pathlib import Path

from .card import Card
from .errors import InputError
from .methods.findings import OF_TARGET, Findings, count, privacy_sentence

FILE = "model.usfda"  # the model in a folder that a hub can hold
PAGE = "README.md"  # its page there

USE = """
```python
import usfda

model = usfda.load("{file}")
print(model.predict("photo.jpg"))
```

To adapt it to images of your own, which need no labels: `usfda adapt {file} photos/ -o client.usfda`
"""


def model_file(path: Path) -> Path:
    """The model file: the path itself, or what lies in a folder that can be handed to a hub."""
    if not os.path.isdir(path):  # noqa: PTH112 (Path.is_dir raises OSError for a name that is too long)
        return path
    if not (path / FILE).is_file():
        raise InputError(f"{path}: a folder, and no {FILE} is in it; name a .usfda file")
    return path / FILE


def card_text(classes: list[str], card: Card, findings: Findings | None) -> str:
    """The page of a model with these classes, from its card and what its adaptation found."""
    procured, backbone = card["procurement"], card.get("backbone")
    tags = ["domain-adaptation", "source-free", "universal-domain-adaptation", "open-set-recognition", "onnx"]
    front = {"library_name": "usfda", "pipeline_tag": "image-classification", "tags": tags}
    state = "adapted to a target" if findings else "procured, not adapted to any target"
    lines = ["---", *(f"{key}: {json.dumps(value)}" for key, value in front.items()), "---", ""]
    lines += [f"# An image classifier of {count(len(classes), 'class')} that knows what it does not know", ""]
    lines += [f"A model of usfda: {state}. It gives one of its classes, or *unknown*. It holds no image.", ""]
    lines += ["## Use", USE.format(file=FILE).strip(), "", "## Classes", ""]
    lines += [f"- {escaped(name)}: {count(n, 'source image')}" for name, n in procured["classes"].items()]
    if findings:
        lines += [
            f"- {escaped(of.name)}: taught, stands for about {count(of.images, 'image')}" for of in findings.taught
        ]
    lines += ["", "## How it was made", ""]
    if backbone:
        lines.append(f"- backbone: {escaped(backbone['name'])}, sha256 `{backbone['sha256']}`")
    if (checked := procured["validation"])["samples"]:
        lines.append(f"- held-out source accuracy: {checked['accuracy']} % of {count(checked['samples'], 'sample')}")
    lines.append(f"- procured for: {'every method' if procured['method'] == 'all' else escaped(procured['method'])}")
    if "privacy" in procured:  # files of older versions have none
        lines.append(f"- privacy of the source: {escaped(privacy_sentence(procured['privacy']))}")
    versions = ", ".join(f"{name} {version}" for name, version in procured["versions"].items())
    lines.append(f"- versions: {escaped(versions)}")
    if findings:
        said = f"{count(findings.samples, 'sample')}, {findings.unknown_share:.1f} % of them called unknown"
        lines += ["", "## Its adaptation", "", f"- method {escaped(findings.method)}, to {said}"]
        lines += [f"- {escaped(line)}" for line in (*findings.sentences(), OF_TARGET)]
    lines += ["", "## Limits", "", "Nobody has checked its labels on the target: the findings were made without any."]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """The text as it is, whatever Markdown or HTML would make of it."""
    return "".join(f"\\{c}" if c in r"\`*_{}[]<>()#+-.!|~" else "&amp;" if c == "&" else c for c in text)

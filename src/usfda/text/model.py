"""A model file, in sentences: for ``inspect``, and as a page for model hubs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ..card import BackboneCard, Card
from ..methods.findings import Findings
from .commands import command
from .findings import OF_TARGET, adapted_to, describe
from .procurement import privacy_sentence, training
from .words import count

USE = """
```python
import usfda

model = usfda.load("{file}")
print(model.predict("photo.jpg"))
```

To adapt it to your own images, without labels: `{adapt}`
"""


def of_card(
    classes: list[str], head: str, dim: int, card: Card, findings: Findings | None, *, complete: bool
) -> Iterator[tuple[str, str]]:
    """The card of a model as pairs of a name and a text; ``complete``: the file has its backbone, or needs none."""
    procured, deployed = card["procurement"], card["deployment"]
    yield "stage", "adapted" if deployed else "procured, not adapted"
    yield "head", head
    taught = [f"{name} (taught)" for name in classes[len(procured["classes"]) :]]
    yield f"{len(classes)} classes", ", ".join([f"{name} ({n})" for name, n in procured["classes"].items()] + taught)
    yield "backbone", _backbone(card.get("backbone"), dim, complete)
    yield "procured for", "every method" if procured["method"] == "all" else f"method {procured['method']} alone"
    if "negatives" in procured:
        yield "negatives", "{kind}: {classes} classes, {samples} samples".format(**procured["negatives"])
    if "training" in procured:
        yield "networks", training(procured["training"])
    if (checked := procured["validation"])["samples"]:
        form = "{accuracy} % of {samples} samples with head {head}, {rejected} % rejected"
        yield "held-out source", form.format(**checked)
    if "privacy" in procured:  # files of older versions have none
        yield "privacy", f"of the vendor's images: {privacy_sentence(procured['privacy'])}"
    yield "procured with", _pairs(procured["settings"] | {"seed": procured["seed"]})
    if "history" in procured:
        yield "final losses", _pairs({name: values[-1] for name, values in procured["history"].items() if values})
    yield "versions", _pairs(procured["versions"])
    if deployed and findings is not None:
        yield "adapted to", adapted_to(findings)
        with_what = {"method": deployed["method"], "threshold": deployed["strictness"], "seed": deployed["seed"]}
        yield "adapted with", _pairs(with_what | deployed["settings"])
        for line in (*describe(findings), OF_TARGET):
            yield "", line


def of_file(
    number: int, sizes: Mapping[str, int], sha256: str, vendor_sha256: str, signature: str | None, *, graph: bool
) -> list[tuple[str, str]]:
    """What is known of the file itself; ``signature``: the name of that beside it; ``graph``: it has a backbone."""
    parts = ", ".join(f"{name} {n / 1e6:.1f} MB" for name, n in sizes.items())
    of_graph = ", and its backbone is a graph of layers that was checked" if graph else ""
    return [
        ("file", f"format {number}: {parts}"),
        ("safety", f"the file passed the checks of its format; no code in it is run{of_graph} (limits: SECURITY.md)"),
        ("sha256", sha256),
        ("vendor's part", f"sha256 {vendor_sha256}, the same in every file that was adapted or taught from it"),
        ("signature", "none" if signature is None else f"{signature}; check it with usfda verify"),
    ]


def page(file: str, classes: list[str], card: Card, findings: Findings | None) -> str:
    """The page of a model for model hubs: Markdown that begins with a few lines of YAML."""
    procured, backbone = card["procurement"], card.get("backbone")
    tags = ["domain-adaptation", "source-free", "universal-domain-adaptation", "open-set-recognition", "onnx"]
    front = {"library_name": "usfda", "pipeline_tag": "image-classification", "tags": tags}
    state = "adapted to a target" if findings else "procured, not adapted to any target"
    adapt = command("adapt", file, "photos/", "-o", "client.usfda")
    lines = ["---", *(f"{key}: {json.dumps(value)}" for key, value in front.items()), "---", ""]
    lines += [f"# An image classifier of {count(len(classes), 'class')} that rejects what it does not know", ""]
    lines += [f"A model of usfda: {state}. It gives one of its classes, or *unknown*. It holds no image.", ""]
    lines += ["## Use", USE.format(file=file, adapt=adapt).strip(), "", "## Classes", ""]
    lines += [f"- {escaped(name)}: {count(n, 'source image')}" for name, n in procured["classes"].items()]
    if findings:
        lines += [f"- {escaped(of.name)}: taught, about {count(of.images, 'image')}" for of in findings.taught]
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
        lines += [
            "",
            "## Its adaptation",
            "",
            f"- method {escaped(findings.method)}, to {escaped(adapted_to(findings))}",
        ]
        lines += [f"- {escaped(line)}" for line in (*describe(findings), OF_TARGET)]
    lines += ["", "## Limits", "", "Its labels on the target were not checked: the findings were made without labels."]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """The text as it is, whatever Markdown or HTML would make of it."""
    return "".join(f"\\{c}" if c in r"\`*_{}[]<>()#+-.!|~" else "&amp;" if c == "&" else c for c in text)


def _backbone(known: BackboneCard | None, dim: int, complete: bool) -> str:
    from ..backbones.zoo import DEFAULT, LITE0_RECORD, LITE0_SHA256  # which loads onnx

    if not known:
        return f"none: features of {dim} dimensions"
    text = f"{known['name']}, sha256 {known['sha256']}"
    if known["name"] == DEFAULT:
        genuine = (known["sha256"], known["record"]) == (LITE0_SHA256, LITE0_RECORD)
        text += ", as in this package" if genuine else ", which is NOT the one of this name in this package"
    return text if complete else f"{text}; not in the file: give it to every command with --backbone"


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())

"""Make the model files of this folder, each with the code that wrote its format; files that are there stay as they are.

    python tests/formats/make.py

It needs the history of the project and an environment with its dependencies. Beside each file stands, in
``expected.json``, what the code that made it predicted for ``images.npy``: a label for each image, at three values of
strictness. A new format gets a line in ``COMMITS`` for the one before, and a function of its own where more kinds of
model came with it.

The networks F of a model have 1.4 million weights. Here all but 16 units of each layer begin with weights of 0, which
training never changes, so that a file takes a few kilobytes once it is compressed.
"""

from __future__ import annotations

import json
import lzma
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

HERE = Path(__file__).parent
# The last commit of each format; None is what is checked out. 1 and 2 are of release 0.1, 3 to 5 of 0.2 before it was
# released, 6 of 0.2.
COMMITS = {1: "4d5dbad", 2: "dc5954a", 3: "b547e15", 4: "ec1f005", 5: "a2f8b8a", 6: "ca9dd17", 7: "0dceb92", 8: None}
STRICTNESS = (0.2, 0.5, 0.8)
ALIVE = 16
RECORD = {"input_size": [3, 16, 16], "crop_pct": 1.0, "interpolation": "bicubic", "mean": [0.5] * 3, "std": [0.5] * 3}
Models = Callable[[int, Path, list[str], str], Iterator[tuple[str, Any]]]
FEW = {"iterations": 240, "update_every": 40, "composites": 60}


def pictures(kinds: list[int], each: int, seed: int, light: float = 1.0) -> np.ndarray:
    """Grey images (n, 16, 16): every kind is a pattern of 4 x 4 fields."""
    patterns = np.random.default_rng(7).uniform(40, 215, (6, 4, 4))
    rng = np.random.default_rng(seed)
    fields = np.repeat(patterns[kinds], each, axis=0) + rng.normal(0, 25, (each * len(kinds), 4, 4))
    fine = light * fields.repeat(4, 1).repeat(4, 2) + rng.normal(0, 8, (each * len(kinds), 16, 16))
    grey: np.ndarray = fine.clip(0, 255).astype(np.uint8)
    return grey


def target_pictures() -> np.ndarray:
    """Kinds 0 and 1 in another light, 4 and 5, which are new, and mixtures of two that are hard to decide."""
    clear = pictures([0, 1, 4, 5], 10, seed=1, light=0.8)
    share = np.random.default_rng(2).uniform(0.2, 0.8, (20, 1, 1))
    mixed: np.ndarray = (share * clear[:20] + (1 - share) * clear[20:][::-1]).astype(np.uint8)
    return np.concatenate([clear, mixed])


def write_pngs(folder: Path, images: np.ndarray) -> list[str]:
    folder.mkdir(parents=True)
    for i, image in enumerate(images):
        Image.fromarray(np.repeat(image[..., None], 3, 2)).save(folder / f"{i:03d}.png")
    return sorted(str(path) for path in folder.iterdir())


def write_backbone(file: Path) -> str:
    """The mean over each of the 4 x 4 fields: 16 numbers."""
    import onnx
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("ReduceMean", ["image"], ["grey"], axes=[1], keepdims=1),
        helper.make_node("AveragePool", ["grey"], ["fields"], kernel_shape=[4, 4], strides=[4, 4]),
        helper.make_node("Flatten", ["fields"], ["v"]),
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, 16, 16])
    v = helper.make_tensor_value_info("v", TensorProto.FLOAT, ["n", 16])
    graph = helper.make_graph(nodes, "M", [image], [v])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(file))
    Path(f"{file}.json").write_text(json.dumps(RECORD))
    return f"onnx:{file}"


def make_networks_narrow(procurement: Any) -> None:
    """What a unit with no weight to it and none from it adds to a gradient is 0."""
    import torch

    wide = procurement.make_f

    def narrow(d: int) -> Any:
        f = wide(d)
        with torch.no_grad():
            for name, values in f.named_parameters():
                values[ALIVE:] = 0
                if values.ndim == 2 and name != "0.weight":
                    values[:, ALIVE:] = 0
        return f

    procurement.make_f = narrow


def models_of_0_1(number: int, source: Path, target: list[str], backbone: str) -> Iterator[tuple[str, Any]]:
    """Formats 1 and 2: what was procured was for all methods that there were."""
    usfda: Any = import_module("usfda")  # as it was then

    make_networks_narrow(import_module("usfda.procurement"))
    procured = usfda.procure(source, method="all", backbone=backbone, settings=usfda.ProcurementSettings(**FEW))
    yield "procured", procured
    yield "paper", usfda.adapt(procured, target, method="paper", settings=usfda.DeploymentSettings(steps=40))
    if number == 2:
        yield "usfda", usfda.adapt(procured, target)


def models_of_0_2(number: int, source: Path, target: list[str], backbone: str) -> Iterator[tuple[str, Any]]:
    """Formats 3 to 7, with the names that methods had then."""
    usfda: Any = import_module("usfda")

    make_networks_narrow(import_module("usfda.methods.procurement"))
    procured = {
        method: usfda.procure(source, backbone=backbone, method=method, settings=None if method == "usfda" else FEW)
        for method in ("usfda", "paper", "all")
    }
    for method, model in procured.items():
        if number >= 5 or method == "usfda":
            yield f"procured-{method}", model
    yield "paper", usfda.adapt(procured["paper"], target, method="paper", settings={"steps": 40})
    adapted = usfda.adapt(procured["usfda"], target)
    yield "usfda", adapted
    if number >= 4:
        updated = usfda.adapt(usfda.adapt(procured["usfda"], target[:30]), target[30:], update=True)
        yield "updated", updated
    if number >= 5:
        yield "taught", usfda.teach(updated, names={1: "okapi"})


def models_of_0_3(number: int, source: Path, target: list[str], backbone: str) -> Iterator[tuple[str, Any]]:
    """From format 8 on."""
    usfda: Any = import_module("usfda")

    make_networks_narrow(import_module("usfda.methods.usfda.procurement"))
    procured = {
        method: usfda.procure(source, backbone=backbone, method=method, settings=None if method == "mixture" else FEW)
        for method in ("mixture", "usfda", "all")
    }
    for method, model in procured.items():
        yield f"procured-{method}", model
    yield "usfda", usfda.adapt(procured["usfda"], target, method="usfda", settings={"steps": 40})
    yield "mixture", usfda.adapt(procured["mixture"], target)
    updated = usfda.adapt(usfda.adapt(procured["mixture"], target[:30]), target[30:], update=True)
    yield "updated", updated
    yield "taught", usfda.teach(updated, names={1: "okapi"})


def models(number: int) -> Models:
    """The function that makes the models of a format."""
    return models_of_0_1 if number < 3 else models_of_0_2 if number < 8 else models_of_0_3


def make(number: int, folder: Path) -> None:
    """The files of a format, with the package that is imported; whether it writes this format is asserted."""
    source, backbone = folder / "source", write_backbone(folder / "m.onnx")
    for i in range(3):
        write_pngs(source / f"kind{i}", pictures([i], 12, seed=10 + i))
    target = write_pngs(folder / "target", np.load(HERE / "images.npy"))
    expected = HERE / "expected.json"
    labels: dict[str, dict[str, list[str]]] = json.loads(expected.read_text()) if expected.exists() else {}
    for kind, model in models(number)(number, source, target, backbone):
        file = folder / f"format-{number}-{kind}.usfda"
        kept = HERE / f"{file.name}.xz"
        if kept.exists():
            continue
        model.save(file)
        assert f'"format": {number}'.encode() in file.read_bytes()[:100]
        kept.write_bytes(lzma.compress(file.read_bytes(), preset=9))
        if number == 1:  # had no strictness
            labels[file.stem] = {"0.5": model.predict(target).tolist()}
        else:
            labels[file.stem] = {str(s): model.predict(target, strictness=s).tolist() for s in STRICTNESS}
    lines = (f"{json.dumps(name)}: {json.dumps(found)}" for name, found in sorted(labels.items()))
    expected.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def run(number: int, commit: str | None) -> None:
    """``make`` in a process that imports the package as it was at a commit."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        code = HERE.parents[1]
        if commit is not None:
            content = subprocess.run(["git", "archive", commit, "src"], cwd=code, capture_output=True, check=True)
            with tarfile.open(fileobj=BytesIO(content.stdout)) as archive:
                archive.extractall(folder / "code", filter="data")
            code = folder / "code"
        environment = {**os.environ, "PYTHONPATH": str(code / "src"), "USFDA_CACHE": str(folder / "cache")}
        call = [sys.executable, __file__, str(number), str(folder)]
        subprocess.run(call, env=environment, check=True)


def main() -> None:
    if len(sys.argv) == 3:
        make(int(sys.argv[1]), Path(sys.argv[2]))
        return
    if not (HERE / "images.npy").exists():
        np.save(HERE / "images.npy", target_pictures())
    for number, commit in COMMITS.items():
        run(number, commit)


if __name__ == "__main__":
    main()

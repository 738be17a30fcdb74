import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import blobs, write_photos

from usfda import Config, Features, InputError, Model, UsfdaSettings, adapt, load, procure
from usfda.backbones.backbone import Backbone
from usfda.backbones.zoo import get_backbone
from usfda.card import Card
from usfda.modelfile import member_sizes

FEW = {"iterations": 12, "update_every": 4, "composites": 60}


@pytest.fixture(scope="module")
def image_models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Model]:
    folder = tmp_path_factory.mktemp("models")
    source = write_photos(folder / "secret-source", [0, 1, 2, 3], 12)
    target = write_photos(folder / "secret-target", [0, 1, 4], 8, seed=1, invert=True)
    config = Config(cache=folder / "store")
    procured = procure(source, method="all", backbone="pixels", settings=FEW, config=config)
    return procured, adapt(procured, target, method="usfda", settings=UsfdaSettings(steps=10), config=config)


def test_a_file_gives_back_the_model(image_models: tuple[Model, Model], new_photos: Path, tmp_path: Path) -> None:
    for i, model in enumerate(image_models):
        model.save(tmp_path / f"{i}.usfda")
        again = load(tmp_path / f"{i}.usfda")
        assert again.adapted == (i == 1)
        assert again.classes_ == model.classes_
        assert again.card == json.loads(json.dumps(model.card))
        assert np.array_equal(again.predict_proba(new_photos), model.predict_proba(new_photos))


def test_saving_twice_gives_the_same_bytes(image_models: tuple[Model, Model], tmp_path: Path) -> None:
    image_models[1].save(tmp_path / "a.usfda")
    load(tmp_path / "a.usfda").save(str(tmp_path / "b.usfda"))
    assert (tmp_path / "a.usfda").read_bytes() == (tmp_path / "b.usfda").read_bytes()


def test_all_files_of_a_vendor_s_have_its_part(image_models: tuple[Model, Model], tmp_path: Path) -> None:
    procured, adapted = image_models
    adapted.save(tmp_path / "a.usfda", backbone=False)
    assert load(tmp_path / "a.usfda").vendor_sha256 == adapted.vendor_sha256 == procured.vendor_sha256
    X, y = blobs([0, 1, 2], 20)
    one, other = procure(X, y, method="mixture"), procure(X[1:], y[1:], method="mixture")
    assert len({one.vendor_sha256, other.vendor_sha256, procured.vendor_sha256}) == 3
    renamed = Model(["a", "b", "c"], one.vendor, one.head, None, one.card)
    better: Card = {
        **one.card,
        "procurement": {**one.card["procurement"], "privacy": {"private": True, "least_images": 10}},
    }
    forged = Model(one.source_classes, one.vendor, one.head, None, better)
    assert len({renamed.vendor_sha256, forged.vendor_sha256, one.vendor_sha256}) == 3


def test_the_file_holds_no_image_no_place_and_no_pickle(image_models: tuple[Model, Model], tmp_path: Path) -> None:
    image_models[1].save(tmp_path / "m.usfda")
    content = (tmp_path / "m.usfda").read_bytes()
    for text in (b"secret", b"000.png", b"pickle", b"\x89PNG", str(tmp_path.parent).encode()):
        assert text not in content
    assert list(member_sizes(tmp_path / "m.usfda")) == ["card.json", "tensors.safetensors", "backbone.onnx"]
    with zipfile.ZipFile(tmp_path / "m.usfda") as archive:  # which any program for zip files can read
        assert archive.testzip() is None
        card = json.loads(archive.read("card.json"))
    assert card["procurement"]["classes"] == {f"kind{i}": 12 for i in range(4)}
    assert card["deployment"]["samples"] == 24
    assert card["backbone"]["sha256"] == get_backbone("pixels").sha256


def test_a_model_without_its_backbone_takes_only_that_one(
    image_models: tuple[Model, Model], new_photos: Path, tmp_path: Path
) -> None:
    image_models[0].save(tmp_path / "m.usfda", backbone=False)
    assert "backbone.onnx" not in member_sizes(tmp_path / "m.usfda")
    model = load(tmp_path / "m.usfda")
    with pytest.raises(InputError, match="pixels"):
        model.predict(new_photos)
    pixels = get_backbone("pixels")
    with pytest.raises(InputError, match="pixels"):
        model.use_backbone(get_backbone())
    with pytest.raises(InputError, match="prepares"):
        model.use_backbone(Backbone("pixels", pixels.onnx, pixels.record | {"crop_pct": 0.9}))
    model.use_backbone(pixels)
    assert np.array_equal(model.predict(new_photos), image_models[0].predict(new_photos))


def test_features_of_another_backbone_are_an_error(image_models: tuple[Model, Model], tmp_path: Path) -> None:
    X = np.random.default_rng(0).random((4, 256), dtype=np.float32)
    np.savez(tmp_path / "other.npz", X=X, backbone="0" * 64)
    np.savez(tmp_path / "same.npz", X=X, backbone=get_backbone("pixels").sha256)
    with pytest.raises(InputError, match="backbone"):
        image_models[0].predict(tmp_path / "other.npz")
    assert len(image_models[0].predict(tmp_path / "same.npz")) == 4
    with pytest.raises(InputError, match="dimensions"):
        image_models[0].predict(X[:, :3])


def test_features_that_name_their_backbone(tmp_path: Path) -> None:
    X, y = blobs([0, 1], 12)
    np.savez(tmp_path / "a.npz", X=X, y=y, backbone="a" * 64)
    np.savez(tmp_path / "b.npz", X=X, y=y, backbone="b" * 64)
    model = procure(tmp_path / "a.npz", method="mixture")
    model.save(tmp_path / "m.usfda")
    again = load(tmp_path / "m.usfda")
    assert len(again.predict(tmp_path / "a.npz")) == 24
    with pytest.raises(InputError, match="backbone"):
        again.predict(tmp_path / "b.npz")
    with pytest.raises(InputError, match="features"):
        again.predict([tmp_path / "x.png"])
    with pytest.raises(InputError, match="backbone"):
        again.use_backbone(get_backbone("pixels"))


def test_arrays_match_their_input_row_by_row(
    image_models: tuple[Model, Model], new_photos: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad.png").write_text("no image")
    paths = [new_photos / "kind0" / "000.png", tmp_path / "bad.png"]
    with pytest.raises(InputError, match="1 of 2"):
        image_models[0].predict(paths)
    assert len(list(image_models[0].predictions(paths))) == 1
    with pytest.raises(InputError, match="none"):
        image_models[0].features(paths[1:])


def test_a_model_of_features_takes_no_images(vector_model: Model, photos: Path) -> None:
    with pytest.raises(InputError, match="features"):
        vector_model.predict(photos)


SAVE_ON_A_FULL_DISK = """
import resource, signal, sys
from usfda import load
model = load(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
try:
    model.save(sys.argv[2])
except OSError as error:
    print("failed:", error.strerror)
"""


def test_a_failed_save_leaves_the_old_file(image_models: tuple[Model, Model], tmp_path: Path) -> None:
    """In a process that may write no more than 5,000 bytes."""
    folder, other = tmp_path / "models", tmp_path / "other.usfda"
    file = folder / "m.usfda"
    image_models[0].save(file)
    image_models[1].save(other)
    before = file.read_bytes()
    call = [sys.executable, "-c", SAVE_ON_A_FULL_DISK, str(other), str(file)]
    said = subprocess.run(call, capture_output=True, text=True, check=True).stdout
    assert said == "failed: File too large\n"
    assert [p.name for p in folder.iterdir()] == ["m.usfda"]
    assert file.read_bytes() == before


def test_predictions(image_models: tuple[Model, Model], new_photos: Path) -> None:
    model = image_models[1]
    records = list(model.predictions(new_photos))
    assert [r.label for r in records] == model.predict(new_photos).tolist()
    assert records[0].path.endswith("000.png")
    for record in records:
        assert 0 <= record.score <= 1
        assert record.ssm is not None
        assert 1 <= record.ssm <= np.e + 1e-3
        shares = [share for _, share in record.top]
        assert len(record.top) == 3
        assert shares == sorted(shares, reverse=True)
        if record.label != "unknown":
            assert record.label == record.top[0][0]
    single = list(model.predictions(new_photos / "kind0" / "003.png"))
    assert [(r.label, r.top) for r in single] == [(records[3].label, records[3].top)]


def test_predictions_come_as_they_are_made(vector_model: Model) -> None:
    """A chunk at a time: the first record does not wait for the last sample."""
    taken: list[int] = []

    class Slow:
        """Vectors that note which rows were read."""

        def __init__(self, X: np.ndarray):
            self.X, self.shape = X, X.shape

        def __len__(self) -> int:
            return len(self.X)

        def __getitem__(self, index: Any) -> np.ndarray:
            rows: np.ndarray = self.X[index]
            taken.append(len(rows))
            return rows

    X, _ = blobs([0, 1], 600)
    records = vector_model.predictions(Features(Slow(X)))
    assert next(records).path == "0"
    assert sum(taken) < len(X)
    assert [record.path for record in records] == [str(i) for i in range(1, len(X))]
    assert sum(taken) == len(X)


def test_transform(vector_model: Model) -> None:
    X, _ = blobs([0], 7)
    assert vector_model.transform(X).shape == (7, 256)


def test_a_model_says_what_it_is(vector_model: Model) -> None:
    assert repr(vector_model) == "Model(5 classes, head source-network, d=32)"


def test_the_card_of_one_model_is_not_that_of_another(vector_model: Model) -> None:
    X, _ = blobs([0, 1, 7], 20, seed=1)
    before = json.dumps(vector_model.card)
    adapted = adapt(vector_model, X)
    again = adapt(adapted, X, strictness=0.9)
    assert json.dumps(vector_model.card) == before
    assert (adapted.strictness, again.strictness) == (0.5, 0.9)

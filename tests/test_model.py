import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import QUICK, blobs, write_photos

from usfda import DeploymentSettings, InputError, Model, ProcurementSettings, adapt, load, procure
from usfda.backbones import Backbone, get_backbone
from usfda.model import contents


@pytest.fixture(scope="module")
def image_models(tmp_path_factory) -> tuple[Model, Model]:
    folder = tmp_path_factory.mktemp("models")
    source = write_photos(folder / "secret-source", [0, 1, 2, 3], 12)
    target = write_photos(folder / "secret-target", [0, 1, 4], 8, seed=1, invert=True)
    procured = procure(source, backbone="pixels", settings=QUICK)
    return procured, adapt(procured, target, method="paper", settings=DeploymentSettings(steps=10))


def test_a_file_gives_back_the_model(image_models, new_photos: Path, tmp_path: Path) -> None:
    for i, model in enumerate(image_models):
        model.save(tmp_path / f"{i}.usfda")
        again = load(tmp_path / f"{i}.usfda")
        assert again.adapted == (i == 1)
        assert again.classes_ == model.classes_
        assert again.card == json.loads(json.dumps(model.card))
        assert np.array_equal(again.predict_proba(new_photos), model.predict_proba(new_photos))


def test_saving_twice_gives_the_same_bytes(image_models, tmp_path: Path) -> None:
    image_models[1].save(tmp_path / "a.usfda")
    load(tmp_path / "a.usfda").save(tmp_path / "b.usfda")
    assert (tmp_path / "a.usfda").read_bytes() == (tmp_path / "b.usfda").read_bytes()


def test_the_file_holds_no_image_no_place_and_no_pickle(image_models, tmp_path: Path) -> None:
    image_models[1].save(tmp_path / "m.usfda")
    content = (tmp_path / "m.usfda").read_bytes()
    for text in (b"secret", b"000.png", b"pickle", b"\x89PNG", str(tmp_path.parent).encode()):
        assert text not in content
    assert set(contents(tmp_path / "m.usfda")) == {"card.json", "tensors.safetensors", "backbone.onnx"}
    with zipfile.ZipFile(tmp_path / "m.usfda") as archive:
        card = json.loads(archive.read("card.json"))
    assert card["procurement"]["classes"] == {f"kind{i}": 12 for i in range(4)}
    assert card["deployment"]["samples"] == 24
    assert card["backbone"]["sha256"] == get_backbone("pixels").sha256


def test_a_model_without_its_backbone_takes_only_that_one(image_models, new_photos: Path, tmp_path: Path) -> None:
    image_models[0].save(tmp_path / "m.usfda", backbone=False)
    assert "backbone.onnx" not in contents(tmp_path / "m.usfda")
    model = load(tmp_path / "m.usfda")
    with pytest.raises(InputError, match="saved without its backbone; give pixels"):
        model.predict(new_photos)
    pixels = get_backbone("pixels")
    with pytest.raises(InputError, match="is not the model's pixels"):
        model.use_backbone(get_backbone())
    with pytest.raises(InputError, match="is not the model's pixels"):
        model.use_backbone(Backbone("pixels", pixels.onnx, pixels.record | {"crop_pct": 0.9}))
    model.use_backbone(pixels)
    assert np.array_equal(model.predict(new_photos), image_models[0].predict(new_photos))


def test_features_of_another_backbone_are_an_error(image_models, tmp_path: Path) -> None:
    X = np.random.default_rng(0).random((4, 256), dtype=np.float32)
    np.savez(tmp_path / "other.npz", X=X, backbone="0" * 64)
    np.savez(tmp_path / "same.npz", X=X, backbone=get_backbone("pixels").sha256)
    with pytest.raises(InputError, match="another backbone"):
        image_models[0].predict(tmp_path / "other.npz")
    assert len(image_models[0].predict(tmp_path / "same.npz")) == 4
    with pytest.raises(InputError, match="3 dimensions, the model takes 256"):
        image_models[0].predict(X[:, :3])


def test_features_that_name_their_backbone(tmp_path: Path) -> None:
    X, y = blobs([0, 1], 12)
    np.savez(tmp_path / "a.npz", X=X, y=y, backbone="a" * 64)
    np.savez(tmp_path / "b.npz", X=X, y=y, backbone="b" * 64)
    model = procure(tmp_path / "a.npz", settings=ProcurementSettings(iterations=20, update_every=10))
    model.save(tmp_path / "m.usfda")
    assert len(load(tmp_path / "m.usfda").predict(tmp_path / "a.npz")) == 24
    with pytest.raises(InputError, match="another backbone"):
        load(tmp_path / "m.usfda").predict(tmp_path / "b.npz")


def test_arrays_match_their_input_row_by_row(image_models, new_photos: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_text("no image")
    paths = [new_photos / "kind0" / "000.png", tmp_path / "bad.png"]
    with pytest.raises(InputError, match="1 of 2 images cannot be read"):
        image_models[0].predict(paths)
    assert len(list(image_models[0].predictions(paths))) == 1


def test_a_model_of_features_takes_no_images(vector_model, photos: Path) -> None:
    with pytest.raises(InputError, match="made of features"):
        vector_model.predict(photos)


@pytest.mark.parametrize("damage", ["cut", "garbage", "flip", "empty", "other zip", "old format"])
def test_damaged_files_are_refused(image_models, tmp_path: Path, damage: str) -> None:
    file = tmp_path / "m.usfda"
    image_models[0].save(file)
    content = bytearray(file.read_bytes())
    if damage == "cut":
        file.write_bytes(content[: len(content) // 2])
    elif damage == "garbage":
        file.write_bytes(b"garbage" * 100)
    elif damage == "flip":
        content[len(content) // 2] ^= 255
        file.write_bytes(content)
    elif damage == "empty":
        file.write_bytes(b"")
    else:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("card.json" if damage == "old format" else "readme", json.dumps({"format": 99}))
    with pytest.raises(InputError, match=str(file)):
        load(file)


def test_a_failed_save_leaves_the_old_file(image_models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "m.usfda"
    image_models[0].save(file)
    before = file.read_bytes()

    def full(self: Path, target: Path) -> Path:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="no space"):
        image_models[1].save(file)
    assert [p.name for p in tmp_path.iterdir()] == ["m.usfda"]
    assert file.read_bytes() == before


def test_predictions(image_models, new_photos: Path) -> None:
    model = image_models[1]
    records = list(model.predictions(new_photos))
    assert [r.label for r in records] == model.predict(new_photos).tolist()
    assert records[0].path.endswith("000.png")
    for record in records:
        assert 0 <= record.score <= 1
        assert 1 <= record.ssm <= np.e + 1e-3
        shares = [share for _, share in record.top]
        assert len(record.top) == 3
        assert shares == sorted(shares, reverse=True)
        if record.label != "unknown":
            assert record.label == record.top[0][0]
    single = list(model.predictions(new_photos / "kind0" / "003.png"))
    assert [(r.label, r.top) for r in single] == [(records[3].label, records[3].top)]


def test_decision_is_the_argmax_over_all_classes(vector_model) -> None:
    X, _ = blobs([0, 5, 9], 10, seed=4)
    decided = vector_model.decide(X)
    with torch.no_grad():
        y = vector_model.d(vector_model.f_s(torch.from_numpy(X))).softmax(1).numpy()
    assert np.array_equal(decided.known, y.argmax(1) < 5)
    assert decided.ssm == pytest.approx(np.exp(y[:, :5].max(1)), rel=1e-5)
    assert decided.score == pytest.approx(y[:, :5].sum(1), abs=1e-5)


def test_one_sample_decides_as_in_a_crowd(vector_model) -> None:
    X, _ = blobs([0, 5, 9], 10, seed=4)
    alone = np.concatenate([vector_model.predict_proba(X[i : i + 1]) for i in range(len(X))])
    assert alone == pytest.approx(vector_model.predict_proba(X), abs=1e-5)


def test_transform(vector_model) -> None:
    X, _ = blobs([0], 7)
    assert vector_model.transform(X).shape == (7, 256)

import logging
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from usfda.backbones import get_backbone
from usfda.data import Samples, check_source, class_names, open_rgb, read
from usfda.features import extract
from usfda.runtime import InputError


def names_of(samples):
    return sorted(set(samples.labels.tolist()))


def test_class_folders_and_the_same_one_level_deeper(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "domain").mkdir()
    (tmp_path / "domain" / "images").symlink_to(photos)
    flat, deep = read(photos, labelled=True), read(tmp_path / "domain", labelled=True)
    assert names_of(flat) == names_of(deep) == ["kind0", "kind1", "kind2", "kind3"]
    assert len(flat) == len(deep) == 48
    assert [p.name for p in flat.paths] == [p.name for p in deep.paths]


def test_a_target_is_any_folder_and_classes_select_by_folder_name(photos: Path) -> None:
    assert len(read(photos)) == 48
    assert len(read(photos.parent)) == 48
    assert len(read(photos / "kind0")) == 12
    assert names_of(read(photos, classes=["kind1", "kind3"])) == ["kind1", "kind3"]


@pytest.mark.parametrize(
    ("level", "says"),
    [
        ("above", "wrong folder level.*deeper"),
        ("far above", "wrong folder level"),
        ("inside", "wrong folder level.*above"),
    ],
)
def test_wrong_folder_level(photos: Path, tmp_path: Path, level: str, says: str) -> None:
    for domain in ("a", "b"):
        (tmp_path / "above" / domain).mkdir(parents=True)
        (tmp_path / "far above" / domain / "images").mkdir(parents=True)
        for kind in photos.iterdir():
            (tmp_path / "above" / domain / kind.name).symlink_to(kind)
            (tmp_path / "far above" / domain / "images" / kind.name).symlink_to(kind)
    place = {"above": tmp_path / "above", "far above": tmp_path / "far above", "inside": photos / "kind0"}[level]
    with pytest.raises(InputError, match=says):
        read(place, labelled=True)


def test_empty_folder_and_empty_class(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="empty"):
        read(tmp_path, labelled=True)
    with pytest.raises(InputError, match="no sample found"):
        read(tmp_path)
    for kind in photos.iterdir():
        (tmp_path / kind.name).symlink_to(kind)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(InputError, match="fewer than two usable images in class nothing"):
        check_source(read(tmp_path, labelled=True))
    check_source(read(tmp_path, labelled=True, classes=["kind0", "kind1"]))


def test_images_beside_the_class_folders_are_counted(photos: Path, tmp_path: Path, caplog) -> None:
    shutil.copytree(photos, tmp_path / "p")
    image = photos / "kind0" / "000.png"
    (tmp_path / "p" / "kind0" / "deeper").mkdir()
    for place in (tmp_path / "p" / "loose.png", tmp_path / "p" / "kind0" / "deeper" / "x.png"):
        shutil.copy(image, place)
    with caplog.at_level(logging.WARNING, "usfda"):
        assert len(read(tmp_path / "p", labelled=True)) == 48
    assert "2 images do not lie directly in a class folder" in caplog.text


def test_links_are_followed_but_not_in_circles(photos: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).symlink_to(photos)
    (tmp_path / "round").symlink_to(tmp_path)
    assert len(read(tmp_path)) == 2 * 48


def test_a_class_that_the_folder_does_not_have(photos: Path) -> None:
    with pytest.raises(InputError, match=r"no class sofa; it has: kind0, kind1"):
        read(photos, classes=["kind0", "sofa"], labelled=True)


def test_source_needs_two_classes_of_two() -> None:
    with pytest.raises(InputError, match="single class"):
        check_source(Samples(paths=[Path()] * 2, labels=np.asarray(["a", "a"])))
    with pytest.raises(InputError, match="fewer than two usable images in class b"):
        check_source(Samples(paths=[Path()] * 3, labels=np.asarray(["a", "a", "b"])))
    check_source(Samples(paths=[Path()] * 4, labels=np.asarray(["a", "a", "b", "b"])))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list.txt", "kind0/000.png zero\nkind1/001.png one\n"),
        ("list.txt", "kind0/000.png\tzero\n\nkind1/001.png\tone"),
        ("list.csv", "kind0/000.png,zero\nkind1/001.png,one\n"),
        ("list.csv", "\ufefflabel,path,more\nzero,kind0/000.png,x\none,kind1/001.png,y\n"),
        ("list.tsv", "kind0/000.png\tzero\nkind1/001.png\tone\n"),
    ],
)
def test_lists_with_labels(photos: Path, tmp_path: Path, name: str, text: str) -> None:
    for kind in photos.iterdir():
        (tmp_path / kind.name).symlink_to(kind)
    (tmp_path / name).write_text(text, encoding="utf-8")
    samples = read(tmp_path / name, labelled=True)
    assert samples.labels.tolist() == ["zero", "one"]
    assert [p.name for p in samples.paths] == ["000.png", "001.png"]


def test_a_list_without_labels_and_a_name_with_blanks(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "my photo.png").write_bytes((photos / "kind0" / "000.png").read_bytes())
    (tmp_path / "list.txt").write_text("my photo.png\n")
    assert read(tmp_path / "list.txt").paths == [tmp_path / "my photo.png"]
    with pytest.raises(InputError, match="labels are needed"):
        read(tmp_path / "list.txt", labelled=True)
    (tmp_path / "list.txt").write_text("gone.png\n")
    with pytest.raises(InputError, match="none of its files exists"):
        read(tmp_path / "list.txt")
    (tmp_path / "list.txt").write_text("gone.png\nmy photo.png\n")
    assert len(read(tmp_path / "list.txt")) == 2
    (tmp_path / "list.csv").write_bytes("name,größe".encode("latin-1"))
    with pytest.raises(InputError, match=r"list\.csv: cannot be read as UTF-8"):
        read(tmp_path / "list.csv")


def test_features_file(tmp_path: Path) -> None:
    X = np.ones((3, 4))
    np.savez(tmp_path / "f.npz", X=X, y=[1, 2, 2])
    assert read(tmp_path / "f.npz", labelled=True).labels.tolist() == ["1", "2", "2"]
    np.savez(tmp_path / "n.npz", X=np.where(np.eye(3, 4) > 0, np.nan, X))
    with pytest.raises(InputError, match="NaN"):
        read(tmp_path / "n.npz")
    np.savez(tmp_path / "p.npz", X=np.asarray([{"a": 1}], dtype=object))
    with pytest.raises(InputError, match="not a readable"):
        read(tmp_path / "p.npz")
    np.savez(tmp_path / "k.npz", Z=X)
    with pytest.raises(InputError, match="no array X"):
        read(tmp_path / "k.npz")


def test_labels_are_names() -> None:
    X = np.ones((3, 2))
    for y in ([0, 1, 1], [0.0, 1.0, 1.0], np.asarray([[0], [1], [1]]), ["0", "1", "1"]):
        assert read(X, y).labels.tolist() == ["0", "1", "1"]
    for y in ([0, 1, np.nan], np.ones((3, 2))):
        with pytest.raises(InputError, match="labels"):
            read(X, y)
    assert read(np.ones((3, 2))[::-1]).X.flags["C_CONTIGUOUS"]
    with pytest.raises(InputError, match="complex"):
        read(np.ones((3, 2), complex))


def test_class_names(tmp_path: Path) -> None:
    (tmp_path / "names").write_text("\ufeffa b\n\nc\n", encoding="utf-8")
    assert class_names("x, y") == ["x", "y"]
    assert class_names(f"@{tmp_path / 'names'}") == ["a b", "c"]
    with pytest.raises(InputError, match="no file"):
        class_names("@gone")


RED_OVER_BLUE = np.zeros((8, 6, 3), np.uint8)
RED_OVER_BLUE[:4, :, 0] = 255
RED_OVER_BLUE[4:, :, 2] = 255


def test_exif_orientation_is_applied(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be shown turned by 90° clockwise
    Image.fromarray(RED_OVER_BLUE).save(tmp_path / "t.png", exif=exif)
    upright = np.asarray(open_rgb(tmp_path / "t.png"))
    assert upright.shape == (6, 8, 3)
    assert np.array_equal(upright, np.rot90(RED_OVER_BLUE, -1))


def test_all_kinds_of_pixels(tmp_path: Path) -> None:
    grey = np.tile(np.linspace(0, 255, 8).astype(np.uint8), (8, 1))
    kinds = {
        "L.png": Image.fromarray(grey),
        "16.png": Image.fromarray(grey.astype(np.uint16) * 257),
        "16.tif": Image.fromarray(grey.astype(np.uint16) * 257),
        "float.tif": Image.fromarray((grey / 255).astype(np.float32)),
        "P.gif": Image.fromarray(grey).convert("P"),
        "1.png": Image.fromarray((grey > 127).astype(np.uint8) * 255).convert("1"),
    }
    for name, image in kinds.items():
        image.save(tmp_path / name)
        seen = np.asarray(open_rgb(tmp_path / name))
        expected = np.where(grey > 127, 255, 0) if name == "1.png" else grey
        assert seen.shape == (8, 8, 3), name
        assert np.abs(seen[..., 0].astype(int) - expected).max() <= 1, name
    Image.new("CMYK", (8, 8), (0, 255, 255, 0)).save(tmp_path / "c.jpg", quality=95)
    assert np.asarray(open_rgb(tmp_path / "c.jpg"))[4, 4].tolist()[0] > 200


def test_transparent_pixels_are_white(tmp_path: Path) -> None:
    Image.new("RGBA", (4, 4), (10, 20, 30, 0)).save(tmp_path / "a.png")
    palette = Image.new("P", (4, 4), 0)
    palette.putpalette([0, 0, 0] * 256)
    palette.save(tmp_path / "p.png", transparency=0)
    for name in ("a.png", "p.png"):
        assert np.asarray(open_rgb(tmp_path / name)).min() == 255, name


def test_bad_files_are_skipped_counted_and_named(
    photos: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = (photos / "kind0" / "000.png").read_bytes()
    (tmp_path / "good.png").write_bytes(good)
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "text.jpg").write_text("no image")
    (tmp_path / "text copy.jpg").write_text("no image")
    (tmp_path / "cut.png").write_bytes(good[: len(good) // 2])
    os.mkfifo(tmp_path / "pipe.jpg")
    bomb = Image.new("1", (30000, 30000))
    bomb.save(tmp_path / "bomb.png")
    with caplog.at_level(logging.WARNING, "usfda"):
        found, kept, _ = extract(read(tmp_path), get_backbone("pixels"))
    assert len(found) == 1
    assert read(tmp_path).paths[kept[0]].name == "good.png"
    warning = caplog.text
    assert "skipped 6 of 7 images" in warning
    for name in ("empty.jpg (empty file)", "text.jpg", "text copy.jpg", "cut.png", "bomb.png", "pipe.jpg"):
        assert name in warning
    assert "pixels" in warning.split("bomb.png")[1]

import logging
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import blobs
from hypothesis import given
from hypothesis import strategies as st

from usfda import Features, InputError, Samples, evaluate, procure
from usfda.data.reading import check_source, class_names, read, read_target
from usfda.data.samples import Chosen, LabelledFeatures, Mapped, Paths


def samples_of(place: Any, **options: Any) -> Samples:
    found = read(place, **options)
    assert isinstance(found, Samples)
    return found


def features_of(place: Any, y: Any = None, **options: Any) -> Features:
    found = read(place, y, **options)
    assert isinstance(found, Features)
    return found


def labels_of(found: Samples | Features) -> list[str]:
    assert found.labels is not None
    labels: list[str] = found.labels.tolist()
    return labels


def names_of(found: Samples | Features) -> list[str]:
    return sorted(set(labels_of(found)))


def test_class_folders_and_the_same_one_level_deeper(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "domain").mkdir()
    (tmp_path / "domain" / "images").symlink_to(photos)
    flat, deep = samples_of(photos, labelled=True), samples_of(tmp_path / "domain", labelled=True)
    assert names_of(flat) == names_of(deep) == ["kind0", "kind1", "kind2", "kind3"]
    assert len(flat) == len(deep) == 48
    assert [p.name for p in flat.paths] == [p.name for p in deep.paths]


def test_a_target_is_any_folder_and_classes_select_by_folder_name(photos: Path) -> None:
    assert len(read(photos)) == 48
    assert len(read(photos.parent)) == 48
    assert len(read(photos / "kind0")) == 12
    assert names_of(read(photos, classes=["kind1", "kind3"])) == ["kind1", "kind3"]
    assert names_of(read(photos, classes="kind1,kind3")) == ["kind1", "kind3"]


def test_a_target_has_no_labels_to_look_at(photos: Path, tmp_path: Path) -> None:
    """Neither those of folders, which may select, nor those of vectors."""
    X, y = blobs([0, 1], 3)
    np.savez(tmp_path / "f.npz", X=X, y=y)
    vectors = Features(X, y, keys=[b""] * 6)
    for images in (photos, samples_of(photos)):
        found = read_target(images, classes=["kind0", "kind1"])
        assert (len(found), found.labels, found.empty) == (24, None, ())
    for target in (tmp_path / "f.npz", vectors):
        found = read_target(target, classes=["c1"])
        assert (len(found), found.labels, found.empty) == (3, None, ())
        assert isinstance(found, Features)
        assert found.keys is None


@pytest.mark.parametrize(
    ("level", "says"),
    [
        ("above", "wrong folder level.*deeper"),
        ("far above", "wrong folder level"),
        ("inside", "a folder of its own in it, or, if it is itself one class, give the folder above"),
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


def test_one_level_too_high_beside_a_folder_of_images(photos: Path, tmp_path: Path) -> None:
    """Fault: the advice was to add images to the class that is the vendor's folder, or to leave it out."""
    (tmp_path / "vendor").symlink_to(photos)
    (tmp_path / "new").symlink_to(photos / "kind0")
    with pytest.raises(InputError, match=f"wrong folder level.*; give {tmp_path / 'vendor'}; if vendor is a class"):
        procure(tmp_path)
    assert names_of(read(tmp_path, labelled=True, classes=["new"])) == ["new"]
    for i in range(4):
        (tmp_path / f"class{i}").symlink_to(photos / f"kind{i}")
    assert len(names_of(read(tmp_path, labelled=True))) == 5  # the level is right, one class has no image


def test_a_stray_image_beside_the_class_folders(photos: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Fault: the folder above the classes became the only class, and all other images were left out."""
    shutil.copytree(photos, tmp_path / "one" / "photos")
    stray = tmp_path / "one" / "photos" / "stray.png"
    shutil.copy(photos / "kind0" / "000.png", stray)
    assert names_of(read(tmp_path / "one", labelled=True)) == names_of(read(photos, labelled=True))
    assert f"left out 1 image not directly in a class folder: {stray.parent} (1)" in caplog.text
    assert names_of(read(tmp_path / "one", labelled=True, classes=["kind0", "kind1"])) == ["kind0", "kind1"]
    shutil.copytree(tmp_path / "one" / "photos", tmp_path / "one" / "more")
    with pytest.raises(InputError, match="level"):
        read(tmp_path / "one", labelled=True)


def test_names_that_differ_in_case_alone(photos: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for i, name in enumerate(("Mug", "mug", "pen")):
        shutil.copytree(photos / f"kind{i}", tmp_path / name)
    check_source(read(tmp_path, labelled=True))
    assert "Mug" in caplog.text


def test_a_list_that_names_a_file_twice(photos: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    image = photos / "kind0" / "000.png"
    (tmp_path / "list.csv").write_text(f"path,label\n{image},a\n{image},a\n{photos / 'kind1' / '000.png'},b\n")
    assert len(read(tmp_path / "list.csv")) == 3
    assert "1 of 3 lines" in caplog.text


def test_a_list_from_windows(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("path,label\nphotos\\mug\\1.jpg,mug\n")
    with pytest.raises(InputError, match="/"):
        read(tmp_path / "list.csv")


def test_empty_folder_and_empty_class(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="empty"):
        read(tmp_path, labelled=True)
    with pytest.raises(InputError, match="sample"):
        read(tmp_path)
    for kind in photos.iterdir():
        (tmp_path / kind.name).symlink_to(kind)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(InputError, match="--classes"):
        check_source(read(tmp_path, labelled=True))
    check_source(read(tmp_path, labelled=True, classes=["kind0", "kind1"]))


def test_images_beside_the_class_folders_are_counted(
    photos: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(photos, tmp_path / "p")
    image = photos / "kind0" / "000.png"
    (tmp_path / "p" / "kind0" / "deeper").mkdir()
    for place in (tmp_path / "p" / "loose.png", tmp_path / "p" / "kind0" / "deeper" / "x.png"):
        shutil.copy(image, place)
    with caplog.at_level(logging.WARNING, "usfda"):
        assert len(read(tmp_path / "p", labelled=True)) == 48
    assert (
        f"not directly in a class folder: {tmp_path / 'p'} (1), {tmp_path / 'p' / 'kind0' / 'deeper'} (1)"
        in caplog.text
    )


def test_links_are_followed_and_every_file_counts_once(photos: Path, tmp_path: Path) -> None:
    """Fault: two folders that link to each other made one image 41 samples, two links to one folder two samples."""
    for name in ("one", "two"):
        (tmp_path / name).symlink_to(photos)
    (tmp_path / "round").symlink_to(tmp_path)
    assert len(read(tmp_path)) == 48
    here, there = tmp_path / "circle" / "here", tmp_path / "circle" / "there"
    for folder, other in ((here, there), (there, here)):
        folder.mkdir(parents=True)
        (folder / "other").symlink_to(other)
    (here / "image.png").write_bytes((photos / "kind0" / "000.png").read_bytes())
    (there / "link.png").symlink_to(here / "image.png")
    (there / "second name.png").hardlink_to(here / "image.png")
    assert len(read(tmp_path / "circle")) == 1
    copy = there / "copy.png"  # another file of the same content is another sample
    copy.write_bytes((here / "image.png").read_bytes())
    assert len(read(tmp_path / "circle")) == 2


def test_a_link_to_a_folder_above_is_not_followed(
    photos: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Fault: among class folders it was a class without images; in a target it brought in all that lay beside."""
    shutil.copytree(photos, tmp_path / "p")
    for link, place in {"self": Path(), "kind0/up": Path(".."), "kind1/outside": tmp_path}.items():
        (tmp_path / "p" / link).symlink_to(place)
    shutil.copy(photos / "kind0" / "000.png", tmp_path / "beside.png")
    found = read(tmp_path / "p", labelled=True)
    check_source(found)
    assert (len(found), len(read(tmp_path / "p")), len(read(tmp_path / "p" / "kind1"))) == (48, 48, 12)
    assert not caplog.records


def test_links_in_class_folders_count_once_per_class(photos: Path, tmp_path: Path) -> None:
    """One file under two classes is two samples, as the user put it there; twice under one class is one."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(3):
            (tmp_path / name / f"{i}.png").symlink_to(photos / "kind0" / "000.png")
        (tmp_path / name / "other.png").symlink_to(photos / "kind0" / "001.png")
    assert sorted(labels_of(read(tmp_path, labelled=True))) == ["a", "a", "b", "b"]


def test_a_broken_link_is_one_unreadable_sample(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "gone.png").symlink_to(tmp_path / "nowhere.png")
    assert len(read(tmp_path)) == 1


def test_a_class_that_the_folder_does_not_have(photos: Path) -> None:
    with pytest.raises(InputError, match="sofa"):
        read(photos, classes=["kind0", "sofa"], labelled=True)


def test_source_needs_two_classes_of_two() -> None:
    with pytest.raises(InputError, match="class"):
        check_source(Samples([Path()] * 2, np.asarray(["a", "a"])))
    with pytest.raises(InputError, match="b"):
        check_source(Samples([Path()] * 3, np.asarray(["a", "a", "b"])))
    check_source(Samples([Path()] * 4, np.asarray(["a", "a", "b", "b"])))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list.txt", "kind0/000.png zero\nkind1/001.png one\n"),
        ("list.txt", "kind0/000.png\tzero\n\nkind1/001.png\tone"),
        ("list.csv", "kind0/000.png,zero\nkind1/001.png,one\n"),
        ("list.csv", "\ufefflabel,path,more\nzero,kind0/000.png,x\none,kind1/001.png,y\n"),
        ("list.csv", "\ufeffpath;label;note\r\nkind0/000.png;zero;1,5\r\nkind1/001.png;one;2,5\r\n"),
        ("list.csv", "\nkind0/000.png;zero\nkind1/001.png;one\n"),
        ("list.tsv", "kind0/000.png\tzero\nkind1/001.png\tone\n"),
    ],
)
def test_lists_with_labels(photos: Path, tmp_path: Path, name: str, text: str) -> None:
    for kind in photos.iterdir():
        (tmp_path / kind.name).symlink_to(kind)
    (tmp_path / name).write_text(text, encoding="utf-8")
    samples = samples_of(tmp_path / name, labelled=True)
    assert labels_of(samples) == ["zero", "one"]
    assert [p.name for p in samples.paths] == ["000.png", "001.png"]


def test_a_semicolon_in_a_path_separates_nothing(photos: Path, tmp_path: Path) -> None:
    for name in ("a;b.png", "c.png;d.png"):
        (tmp_path / name).write_bytes((photos / "kind0" / "000.png").read_bytes())
    for text in ("a;b.png,zero\nc.png;d.png,one\n", "path,label\na;b.png,zero\nc.png;d.png,one\n"):
        (tmp_path / "list.csv").write_text(text)
        assert [path.name for path in samples_of(tmp_path / "list.csv").paths] == ["a;b.png", "c.png;d.png"]
        assert labels_of(read(tmp_path / "list.csv")) == ["zero", "one"]


def test_a_list_without_labels_and_a_name_with_blanks(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "my photo.png").write_bytes((photos / "kind0" / "000.png").read_bytes())
    (tmp_path / "list.txt").write_text("my photo.png\n")
    assert list(samples_of(tmp_path / "list.txt").paths) == [tmp_path / "my photo.png"]
    with pytest.raises(InputError, match="labels"):
        read(tmp_path / "list.txt", labelled=True)
    (tmp_path / "list.txt").write_text("gone.png\n")
    with pytest.raises(InputError, match=f"none of its files exists.*relative to the list's folder, {tmp_path}"):
        read(tmp_path / "list.txt")
    (tmp_path / "list.txt").write_text("gone.png\nmy photo.png\n")
    assert len(read(tmp_path / "list.txt")) == 2
    (tmp_path / "list.csv").write_bytes("name,größe".encode("latin-1"))
    with pytest.raises(InputError, match=r"list\.csv: cannot be read as UTF-8.*; save it as UTF-8"):
        read(tmp_path / "list.csv")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the list is empty"),
        ("kind0/000.png,zero\nkind1/001.png,\n", "line 2 has no label, unlike those before it"),
        ("\npath,label\nkind0/000.png,\n\nkind1/001.png,one\n", "line 5 has a label, unlike those before it"),
        ("kind0/000.png,zero\n ,one\n", "line 2 has no path"),
        ("name,label\nkind0/000.png,zero\n", "the header needs a column path"),
        ("path,label\nkind0/000.png\n", "row 2 has fewer columns"),
    ],
)
def test_wrong_lists(photos: Path, tmp_path: Path, text: str, says: str) -> None:
    for kind in photos.iterdir():
        (tmp_path / kind.name).symlink_to(kind)
    (tmp_path / "list.csv").write_text(text)
    with pytest.raises(InputError, match=says):
        read(tmp_path / "list.csv")


def test_features_file(tmp_path: Path) -> None:
    X = np.ones((3, 4))
    np.savez(tmp_path / "f.npz", X=X, y=[1, 2, 2])
    assert labels_of(read(tmp_path / "f.npz", labelled=True)) == ["1", "2", "2"]
    np.savez(tmp_path / "n.npz", X=np.where(np.eye(3, 4) > 0, np.nan, X))
    with pytest.raises(InputError, match="NaN"):
        read(tmp_path / "n.npz")
    np.savez(tmp_path / "p.npz", X=np.asarray([{"a": 1}], dtype=object))
    with pytest.raises(InputError, match="readable"):
        read(tmp_path / "p.npz")
    np.savez(tmp_path / "k.npz", Z=X)
    with pytest.raises(InputError, match="X"):
        read(tmp_path / "k.npz")
    np.savez(tmp_path / "s.npz", X=X, y=[1, 2])
    with pytest.raises(InputError, match="rows"):
        read(tmp_path / "s.npz")


def test_labels_are_names() -> None:
    X = np.ones((3, 2))
    for y in ([0, 1, 1], [0.0, 1.0, 1.0], np.asarray([[0], [1], [1]]), ["0", "1", "1"], np.asarray([0, 1, 1], object)):
        assert labels_of(read(X, y)) == ["0", "1", "1"]
    assert labels_of(read(X, ["nan", "None", "b"])) == ["nan", "None", "b"]  # a user's own words
    with pytest.raises(InputError, match="labels"):
        read(X, np.ones((3, 2)))
    vectors = features_of(np.ones((3, 2))[::-1]).X
    assert isinstance(vectors, np.ndarray)
    assert vectors.flags["C_CONTIGUOUS"]
    with pytest.raises(InputError, match="complex"):
        read(np.ones((3, 2), complex))


class NAType:
    """As pandas has it for a missing value: to compare it tells nothing."""

    def __eq__(self, other: object) -> Any:
        return self

    def __bool__(self) -> bool:
        raise TypeError("boolean value of NA is ambiguous")

    def __repr__(self) -> str:
        return "<NA>"

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    "y",
    [
        ["a", None, "b"],
        ["a", math.nan, "b"],
        ["a", np.float32("nan"), "b"],
        [0, 1, math.nan],
        np.asarray([0, 1, np.nan], np.float32),
        np.asarray([0, 1, np.inf]),
        np.asarray(["a", None, "b"], object),
        np.asarray(["a", NAType(), "b"], object),
        np.asarray(["2020-01-01", "NaT", "2020-01-02"], "datetime64[D]"),
        [["a"], [None], ["b"]],
    ],
    ids=str,
)
def test_a_missing_label_is_an_error(y: Any) -> None:
    """Fault: None and NaN became classes of that name."""
    X = np.random.default_rng(0).normal(size=(3, 4))
    with pytest.raises(InputError, match="labels"):
        read(X, y)
    with pytest.raises(InputError, match="labels"):
        procure(X, y)


def test_class_names(tmp_path: Path) -> None:
    (tmp_path / "names").write_text("\ufeffa b\n\nc\n", encoding="utf-8")
    assert class_names("x, y") == ["x", "y"]
    assert class_names(f"@{tmp_path / 'names'}") == ["a b", "c"]
    with pytest.raises(InputError, match="file"):
        class_names("@gone")
    with pytest.raises(InputError, match="class"):
        class_names(" , ")


@pytest.mark.parametrize("name", ["unknown", "", "two\nlines", "\x1b[31mred", "\u202eback", "a\x00b"])
def test_a_class_that_cannot_be_shown_is_refused_before_the_work(name: str) -> None:
    X, y = blobs([0, 1], 5)
    with pytest.raises(InputError, match="rename"):
        procure(X, np.where(y == "c0", name, y))


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (np.empty((0, 3)), "no sample found"),
        (np.ones(3), "shape"),
        (np.ones((3, 0)), "shape"),
        ([["a", "b"]], "not an array of numbers"),
        (np.full((2, 2), 1e39), "infinite"),
        (Path("gone"), "no such file or folder"),
        (Path(__file__), "neither a folder, an image, a list"),
    ],
)
def test_what_cannot_be_read(source: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        read(source)


@pytest.mark.parametrize("name", ["photos.zip", "photos.tar.gz", "photos.tgz", "PHOTOS.7Z"])
def test_an_archive_is_to_be_unpacked(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"PK")
    with pytest.raises(InputError, match="archive"):
        read(tmp_path / name)


def test_features_by_index_keep_what_belongs_to_a_row() -> None:
    X, y = blobs([0, 1], 2)
    whole = LabelledFeatures(
        X, y, "a" * 64, [Path(str(i)) for i in range(4)], [bytes([i]) for i in range(4)], ("none",)
    )
    part = whole[np.asarray([3, 0])]
    assert np.array_equal(part.X[:], X[[3, 0]])
    assert labels_of(part) == ["c1", "c0"]
    assert (part.classes, part.y.tolist()) == (["c0", "c1"], [1, 0])
    assert (list(part.paths or ()), list(part.keys or ())) == ([Path("3"), Path("0")], [b"\3", b"\0"])
    assert (part.backbone, part.empty) == ("a" * 64, ("none",))


def test_labels_can_be_given_beside_paths(photos: Path) -> None:
    paths = sorted(photos.rglob("*.png"))[:4]
    assert labels_of(read([str(p) for p in paths], ["a", "a", "b", "b"], labelled=True)) == ["a", "a", "b", "b"]
    with pytest.raises(InputError, match="labels"):
        read(paths, ["a", "a", "b"])


def test_evaluate_wants_labels(vector_model: Any) -> None:
    X, _ = blobs([0], 3)
    with pytest.raises(InputError, match="labels"):
        evaluate(vector_model, X)


NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=12)


@given(st.lists(st.lists(NAMES, min_size=1, max_size=3), max_size=30), st.data())
def test_many_paths_in_little_memory_are_the_same_paths(parts: list[list[str]], data: st.DataObject) -> None:
    plain = [Path(*names) for names in parts]
    paths = Paths(plain)
    assert list(paths) == plain
    assert list(reversed(paths)) == plain[::-1]
    index = data.draw(st.lists(st.integers(0, len(plain) - 1), max_size=5)) if plain else []
    assert list(Chosen(paths, np.asarray(index, int))) == [plain[i] for i in index]
    assert list(paths[1:3]) == plain[1:3]


def test_a_name_that_is_not_utf_8_stays_what_it_is() -> None:
    name = os.fsdecode(b"caf\xe9.jpg")
    assert [os.fsencode(str(path)) for path in Paths([name])] == [b"caf\xe9.jpg"]


def test_vectors_of_an_npz_stay_in_the_file(tmp_path: Path) -> None:
    X, y = blobs([0, 1], 200)
    np.savez(tmp_path / "plain.npz", X=X, y=y)
    np.savez_compressed(tmp_path / "compressed.npz", X=X, y=y)
    np.savez(tmp_path / "columns.npz", X=np.asfortranarray(X), y=y)
    np.savez(tmp_path / "doubles.npz", X=X.astype(float), y=y)
    for name in ("plain", "compressed", "columns", "doubles"):
        found = read(tmp_path / f"{name}.npz")
        assert isinstance(found, Features)
        assert isinstance(found.X, Mapped) == (name == "plain")
        assert np.array_equal(found.X[:], X)
    whole = (tmp_path / "plain.npz").read_bytes()
    (tmp_path / "short.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="npz"):
        read(tmp_path / "short.npz")


def test_links_out_of_a_folder_lead_to_each_file_once(photos: Path, tmp_path: Path) -> None:
    """In whichever order a file, a link to it and a link to its folder are met; hidden files only by their links."""
    (tmp_path / "inside" / ".hidden").mkdir(parents=True)
    for outside in ("early", "late"):
        (tmp_path / outside).mkdir()
        shutil.copy(photos / "kind0" / "000.png", tmp_path / outside / "image.png")
    shutil.copy(photos / "kind0" / "000.png", tmp_path / "inside" / ".hidden" / "kept.png")
    (tmp_path / "inside" / "a folder").symlink_to(tmp_path / "early")
    (tmp_path / "inside" / "b.png").symlink_to(tmp_path / "early" / "image.png")
    (tmp_path / "inside" / "c.png").symlink_to(tmp_path / "late" / "image.png")
    (tmp_path / "inside" / "d folder").symlink_to(tmp_path / "late")
    (tmp_path / "inside" / "e.png").symlink_to(tmp_path / "inside" / ".hidden" / "kept.png")
    found = read(tmp_path / "inside")
    assert isinstance(found, Samples)
    places = sorted(str(Path(str(path)).resolve().relative_to(tmp_path)) for path in found.paths)
    assert places == ["early/image.png", "inside/.hidden/kept.png", "late/image.png"]


READ = """
import logging, sys
from usfda import load
from usfda.data.reading import read

logging.basicConfig(format="%(message)s", stream=sys.stdout)
for kind, place in zip(sys.argv[1::2], sys.argv[2::2]):
    try:
        print(load(place) if kind == "model" else len(read(place, labelled=kind == "labelled")), "images")
    except ValueError as error:
        print(error)
"""


def as_user(code: str, *args: object) -> str:
    """What a program prints for a user whom the modes of files bind; root has to give up its rights first."""
    drop = ["setpriv", "--bounding-set=-all"] if os.geteuid() == 0 else []
    if drop and (shutil.which("setpriv") is None or subprocess.run([*drop, "true"], check=False).returncode):
        pytest.skip("root cannot give up its rights here")
    call = [*drop, sys.executable, "-c", code, *map(str, args)]
    return subprocess.run(call, check=True, capture_output=True, text=True).stdout


def test_a_folder_that_may_not_be_read_is_named(photos: Path, tmp_path: Path) -> None:
    """Fault: its images were left out without a word, and as the only folder it was called empty."""
    shutil.copytree(photos, tmp_path / "p")
    locked = [tmp_path / "p" / name for name in ("kind0", "kind1")]
    for folder in locked:
        folder.chmod(0)
    (tmp_path / "classes" / "kind0" / "deeper").mkdir(parents=True, mode=0)
    shutil.copy(photos / "kind0" / "000.png", tmp_path / "classes" / "kind0")
    calls = "any", tmp_path / "p", "any", locked[0], "labelled", tmp_path / "p", "labelled", tmp_path / "classes"
    said = as_user(READ, *calls).splitlines()
    for folder in locked:
        folder.chmod(0o700)
    assert said == [
        f"{tmp_path / 'p'}: left out 2 folders that cannot be read, such as {locked[0]} (Permission denied)",
        "24 images",
        f"{locked[0]}: Permission denied",
        f"{locked[0]}: Permission denied",
        "1 images",
    ]


def test_a_file_that_may_not_be_read_says_so(vector_model: Any, tmp_path: Path) -> None:
    """Fault: a model was called damaged, a list no UTF-8."""
    vector_model.save(tmp_path / "m.usfda")
    (tmp_path / "list.csv").write_text("image.png")
    for name in ("m.usfda", "list.csv"):
        (tmp_path / name).chmod(0)
    said = as_user(READ, "model", tmp_path / "m.usfda", "any", tmp_path / "list.csv").splitlines()
    assert said == [f"{tmp_path / name}: Permission denied" for name in ("m.usfda", "list.csv")]

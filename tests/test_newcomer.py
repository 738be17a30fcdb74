"""What a person who tries it for the first time does: other names, other formats, images in memory, several folders."""

import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import texture, write_photos
from PIL import Image

from usfda import Model, adapt, evaluate, load, procure
from usfda.cli.main import main
from usfda.data.images import FORMATS
from usfda.methods.findings import Reliability
from usfda.text.evaluation import nothing_shared
from usfda.text.predictions import not_adapted

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], cache: Path) -> Run:
    def call(*args: object) -> tuple[int, str, str]:
        code = main(["--cache", str(cache), *map(str, args)])
        out, err = capsys.readouterr()
        return code, " ".join(out.split()), " ".join(err.split())

    return call


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, photos: Path, new_photos: Path) -> tuple[Path, Path]:
    """A vendor's file and a client's."""
    folder = tmp_path_factory.mktemp("models")
    vendor = procure(photos, method="mixture", backbone="pixels")
    vendor.save(folder / "vendor.usfda")
    adapt(vendor, new_photos).save(folder / "client.usfda")
    return folder / "vendor.usfda", folder / "client.usfda"


def renamed(photos: Path, folder: Path, **names: str) -> Path:
    """The same photographs, some classes of which have other names."""
    for kind in photos.iterdir():
        (folder / names.get(kind.name, kind.name)).mkdir(parents=True)
        for file in kind.iterdir():
            (folder / names.get(kind.name, kind.name) / file.name).write_bytes(file.read_bytes())
    return folder


def test_evaluate_lists_shared_and_private_classes(
    run: Run, models: tuple[Path, Path], new_photos: Path, tmp_path: Path
) -> None:
    assert run("evaluate", models[1], new_photos, "--json", tmp_path / "r.json")[0] == 0
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["suspects"] == {}
    assert (result["shared_classes"], result["private_classes"]) == (["kind0", "kind1"], ["kind4", "kind5"])
    assert result["uses"] in ("adapted", "class_means")
    assert result["source_network"] is None
    assert {"t_avg", "per_class", "confusion"} <= set(result["class_means"])


@pytest.mark.parametrize(("other", "suspected"), [("Kind-0", True), ("kind_0s", True), ("stripes", False)])
def test_a_class_under_another_name_is_suspected(
    models: tuple[Path, Path], new_photos: Path, tmp_path: Path, other: str, suspected: bool
) -> None:
    """Where both its name and its images say so."""
    folder = renamed(new_photos, tmp_path / "photos", kind0=other)
    result = evaluate(models[1], folder)
    assert result["private_classes"] == sorted([other, "kind4", "kind5"])
    assert result["suspects"] == ({other: "kind0"} if suspected else {})
    result = evaluate(models[1], folder, rename={other: "kind0"})
    assert result["shared_classes"] == ["kind0", "kind1"]
    assert result["suspects"] == {}


def test_a_similar_name_alone_is_no_suspicion(models: tuple[Path, Path], new_photos: Path, tmp_path: Path) -> None:
    """Fault: pictures of a house were suspected to be the model's horse."""
    folder = renamed(new_photos, tmp_path / "photos", kind0="other", kind4="Kind-0")
    assert evaluate(models[1], folder)["suspects"] == {}


def test_predicted_labels_are_no_truth(run: Run, models: tuple[Path, Path], new_photos: Path, tmp_path: Path) -> None:
    labels, output = tmp_path / "labels.csv", tmp_path / "m.usfda"
    assert run("predict", models[1], new_photos, "-o", labels)[0] == 0
    for call in (
        ("evaluate", models[1], labels),
        ("report", models[1], labels, "--labelled", "-o", tmp_path / "r.html"),
        ("procure", labels, "--backbone", "pixels", "--for", "mixture", "-o", output),
        ("teach", models[1], labels, "-o", output),
    ):
        code, _, said = run(*call)
        assert code == 2
        assert "predict" in said
    assert run("adapt", models[0], labels, "-o", output)[0] == 0
    assert run("predict", models[1], labels)[1].count("score") == 40


def test_nothing_shared_is_a_warning(run: Run, models: tuple[Path, Path], tmp_path: Path) -> None:
    folder = write_photos(tmp_path / "new", [4, 5], 6, invert=True)
    code, _, warned = run("evaluate", models[1], folder)
    assert code == 0
    assert nothing_shared(str(folder)) in warned


def test_what_is_not_read_is_counted(run: Run, models: tuple[Path, Path], new_photos: Path, tmp_path: Path) -> None:
    folder = renamed(new_photos, tmp_path / "photos")
    for name in ("a.pdf", "b.MOV", "c.mov", "d.txt"):
        (folder / "kind0" / name).write_bytes(b"?")
    for call in (("predict", models[1], folder, "--quiet"), ("evaluate", models[1], folder, "--quiet")):
        code, _, warned = run(*call)
        assert code == 0
        assert "2 .mov, 1 .pdf" in warned
        assert warned.count("warning") == 1


def test_images_without_a_suffix_are_counted(
    run: Run, models: tuple[Path, Path], new_photos: Path, tmp_path: Path
) -> None:
    """Fault: they, archives, and links that lead nowhere were left out without a word; a text still is."""
    folder = renamed(new_photos, tmp_path / "photos")
    for name in ("000", "001.bak", "002.png_1"):
        (folder / "kind0" / f"{name[:3]}.png").rename(folder / "kind0" / name)
    (folder / "kind0" / "old.zip").write_bytes(b"PK")
    (folder / "kind0" / "gone").symlink_to(tmp_path / "nowhere")
    for name in ("README", "Makefile"):
        (folder / "kind0" / name).write_text("Python makes it")  # as PNM may begin
    os.mkfifo(folder / "kind0" / "pipe")
    for call in (("predict", models[1], folder, "--quiet"), ("evaluate", models[1], folder, "--quiet")):
        code, _, warned = run(*call)
        assert code == 0
        assert warned.count("the suffix of one") == 1
        for n, example in ((3, "000"), (1, "old.zip"), (1, "gone")):
            assert re.search(f"left out {n} .* {folder / 'kind0' / example}", warned)
    (folder / "kind9").symlink_to(tmp_path / "nowhere")
    assert re.search(f"left out 2 .* {folder / 'kind9'}", run("evaluate", models[1], folder)[2])


def test_images_that_are_given_twice_are_taken_once(run: Run, models: tuple[Path, Path], new_photos: Path) -> None:
    code, rows, warned = run("predict", models[1], new_photos, new_photos / "kind0", "--format", "csv", "--quiet")
    assert code == 0
    every = run("predict", models[1], new_photos, "--format", "csv", "--quiet")[1]
    assert rows == every
    assert "10 of 50" in warned


@pytest.mark.parametrize("suffix", [".avif", ".heic"])
def test_formats_of_telephones(models: tuple[Path, Path], tmp_path: Path, suffix: str) -> None:
    pillow_heif = pytest.importorskip("pillow_heif")
    pillow_heif.register_heif_opener()
    image = Image.fromarray(texture(0, np.random.default_rng(5), side=64, invert=True))
    image.save(tmp_path / f"a{suffix}", quality=95)
    image.save(tmp_path / "a.png")
    model = load(models[1])
    assert model.predict(tmp_path / f"a{suffix}") == model.predict(tmp_path / "a.png")
    assert suffix in {s for suffixes in FORMATS.values() for s in suffixes}


def test_images_in_memory_are_as_good_as_files(models: tuple[Path, Path], photos: Path, new_photos: Path) -> None:
    files = sorted(new_photos.rglob("*.png"))
    opened = [Image.open(file) for file in files]
    arrays = np.stack([np.asarray(image) for image in opened])
    model, labels = load(models[1]), [file.parent.name for file in files]
    expected = model.predict_proba(files)
    for given in (opened, arrays, list(arrays)):
        assert model.predict_proba(given) == pytest.approx(expected, abs=1e-6)
        assert np.asarray(model.features(given)) == pytest.approx(np.asarray(model.features(files)), abs=1e-6)
    assert evaluate(model, arrays, labels)["t_avg"] == pytest.approx(evaluate(model, new_photos)["t_avg"])
    assert model.predict(opened[0])[0] == model.predict(files[0])[0]
    assert next(iter(model.predictions(opened))).path == "image 0"
    source = sorted(photos.rglob("*.png"))
    vendor = procure(
        [Image.open(file) for file in source],
        [file.parent.name for file in source],
        method="mixture",
        backbone="pixels",
    )
    adapted = adapt(vendor, arrays)
    assert np.array_equal(adapted.predict(arrays), adapt(models[0], new_photos).predict(files))


def test_what_is_no_image_says_so(models: tuple[Path, Path]) -> None:
    with pytest.raises(ValueError, match=r"image 0: an image is an array of uint8.*not float64 \(4, 4, 3\)"):
        load(models[1]).predict([np.zeros((4, 4, 3))])


def test_findings_are_a_value(models: tuple[Path, Path], new_photos: Path) -> None:
    adapted = adapt(models[0], new_photos)
    findings = adapted.findings
    assert findings is not None
    assert findings.samples == 40
    assert findings.verdict in ("better", "same", "kept")
    assert sum(cluster.samples for cluster in findings.clusters) == round(findings.unknown_share * 40 / 100)
    assert all(Path(name).is_file() for cluster in findings.clusters for name in cluster.examples)
    assert load(models[0]).findings is None
    again = load(models[1]).findings
    assert again is not None
    assert [(c.number, c.samples) for c in again.clusters] == [(c.number, c.samples) for c in findings.clusters]


def test_adapt_takes_several_paths_and_ends_with_what_to_do_next(
    run: Run, models: tuple[Path, Path], new_photos: Path, tmp_path: Path
) -> None:
    parts = [new_photos / f"kind{k}" for k in (0, 1, 4, 5)]
    code, shown, notes = run("adapt", models[0], *parts, "-o", tmp_path / "m.usfda")
    assert code == 0
    assert notes.count("target features") == 1
    assert np.array_equal(load(tmp_path / "m.usfda").predict(new_photos), load(models[1]).predict(new_photos))
    found = load(tmp_path / "m.usfda").findings
    assert found is not None
    assert found.samples == 40
    step = "report" if found.reliability == Reliability.HIGH else "review"
    assert f"usfda {step} {tmp_path / 'm.usfda'} {parts[0]}" in shown.splitlines()[-1]


def test_a_list_on_standard_input(
    run: Run, models: tuple[Path, Path], new_photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = sorted(new_photos.rglob("*.png"))[:3]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(map(str, files))))
    code, shown, _ = run("predict", models[1], "-", "--format", "csv", "--quiet")
    assert code == 0
    assert all(str(file) in shown for file in files)


def test_a_format_and_a_name_that_disagree(
    run: Run, models: tuple[Path, Path], new_photos: Path, tmp_path: Path
) -> None:
    code, _, said = run("predict", models[1], new_photos, "--format", "csv", "-o", tmp_path / "a.jsonl")
    assert code == 2
    assert "--format" in said
    assert not (tmp_path / "a.jsonl").exists()


def test_predict_notes_that_a_model_was_not_adapted(run: Run, models: tuple[Path, Path], new_photos: Path) -> None:
    assert not_adapted(str(models[0])) in run("predict", models[0], new_photos)[2]
    assert not_adapted(str(models[1])) not in run("predict", models[1], new_photos)[2]


def test_a_few_samples_say_nothing_of_absent_classes(vector_model: Model) -> None:
    from conftest import blobs

    X, _ = blobs([0, 1], 4, shift=0.5, seed=1)
    findings = adapt(vector_model, X).findings
    assert findings is not None
    assert findings.absent == ()
    many, _ = blobs([0, 1], 40, shift=0.5, seed=1)
    rare, _ = blobs([2], 4, shift=0.5, seed=2)
    findings = adapt(vector_model, np.concatenate([many, rare])).findings
    assert findings is not None
    assert "c2" not in findings.absent  # four are some


def test_neither_images_nor_models_are_written_over(
    run: Run, models: tuple[Path, Path], photos: Path, new_photos: Path, tmp_path: Path
) -> None:
    model, image = tmp_path / "m.usfda", tmp_path / "a.jpg"
    model.write_bytes(models[1].read_bytes())
    image.write_bytes(b"mine")
    listed = tmp_path / "list.csv"
    listed.write_text(f"path,label\n{next((new_photos / 'kind0').iterdir())},mug\n")
    for call in (
        ("report", model, new_photos, "-o", model),
        ("evaluate", model, new_photos, "--json", model),
        ("export", model, "-o", model),
        ("procure", photos, "--for", "mixture", "--backbone", "pixels", "-o", image),
        ("adapt", model, new_photos, "-o", tmp_path / "n.usfda", "--report", image),
        ("predict", model, listed, "-o", listed),
    ):
        assert run(*call)[0] == 2
    assert load(model).adapted
    assert image.read_bytes() == b"mine"
    assert listed.read_text().endswith(",mug\n")


def test_a_class_has_one_name_however_its_letters_are_composed(run: Run, photos: Path, tmp_path: Path) -> None:
    """Folders that were packed on a Mac have ö as two characters."""
    written = renamed(photos, tmp_path / "mac", kind0="Kopfho\u0308rer")
    model = procure(written, method="mixture", backbone="pixels")
    assert "Kopfh\u00f6rer" in model.classes_
    for name in ("Kopfho\u0308rer", "Kopfh\u00f6rer"):
        for given in (name, [name]):
            assert evaluate(model, written, classes=given)["shared_classes"] == ["Kopfh\u00f6rer"]
    X = np.random.default_rng(0).normal(size=(40, 8))
    assert procure(X, ["o\u0308", "b"] * 20, method="mixture").classes_ == ["b", "\u00f6"]


def test_what_a_shell_makes_of_a_star(run: Run, models: tuple[Path, Path], new_photos: Path, tmp_path: Path) -> None:
    photo = next((new_photos / "kind0").iterdir())
    (tmp_path / "Thumbs.db").write_bytes(b"x")
    code, shown, said = run("predict", models[1], tmp_path / "Thumbs.db", photo)
    assert (code, shown.count("score")) == (0, 1)
    assert "1 of 2" in said
    assert run("predict", models[1], tmp_path / "Thumbs.db")[0] == 2


def test_the_model_comes_first(run: Run, models: tuple[Path, Path], new_photos: Path, tmp_path: Path) -> None:
    output, photo = tmp_path / "m.usfda", next((new_photos / "kind0").iterdir())
    for call in (
        ("adapt", new_photos, models[0], "-o", output),
        ("predict", photo, models[1]),
        ("evaluate", new_photos, models[1]),
        ("report", new_photos, models[1], "-o", tmp_path / "r.html"),
        ("teach", new_photos, models[1], "-o", output),
    ):
        code, _, said = run(*call)
        assert code == 2
        assert "MODEL" in said
    assert run("inspect", new_photos)[0] == 2


def test_classes_with_parts(run: Run, photos: Path, tmp_path: Path) -> None:
    for kind in photos.iterdir():
        for i, file in enumerate(sorted(kind.iterdir())):
            place = tmp_path / "nested" / kind.name / f"{2023 + i % 2}"
            place.mkdir(parents=True, exist_ok=True)
            (place / file.name).write_bytes(file.read_bytes())
    code, _, said = run("procure", tmp_path / "nested", "-o", tmp_path / "m.usfda")
    assert code == 2
    assert "2023" in said


def test_a_user_without_a_home(run: Run, models: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs under a number that no list of users has."""
    monkeypatch.delenv("USFDA_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(
        Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("Could not determine home directory."))
    )
    assert main(["inspect", str(models[1])]) == 0

"""Model files of every format that there was: each gives the labels that the code which made it gave."""

from __future__ import annotations

import json
import lzma
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from PIL import Image

from usfda import Config, InputError, adapt, load, teach
from usfda.cli.main import main
from usfda.modelfile import FORMAT

HERE = Path(__file__).parent / "formats"
EXPECTED: dict[str, dict[str, list[str]]] = json.loads((HERE / "expected.json").read_text())
IMAGES = [Image.fromarray(grey).convert("RGB") for grey in np.load(HERE / "images.npy")]
CONFIG = Config(cache=None)
Unpacked = Callable[[str], Path]
READABLE = [name for name in EXPECTED if name != "format-3-usfda"]


@pytest.fixture
def unpacked(tmp_path: Path) -> Unpacked:
    def unpack(name: str) -> Path:
        file = tmp_path / f"{name}.usfda"
        with lzma.open(HERE / f"{name}.usfda.xz") as packed, file.open("wb") as out:
            shutil.copyfileobj(packed, out)
        return file

    return unpack


Change = Callable[[dict[str, Any]], dict[str, Any]]


def changed(file: Path, to: Path, card: Change | None = None, tensors: Change | None = None, more: str = "") -> Path:
    """A copy with another card, other tensors, or a member more."""
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    if card is not None:
        members["card.json"] = json.dumps(card(json.loads(members["card.json"]))).encode()
    if tensors is not None:
        members["tensors.safetensors"] = safetensors.numpy.save(
            tensors(safetensors.numpy.load(members["tensors.safetensors"]))
        )
    with zipfile.ZipFile(to, "w") as archive:
        for name, content in (*members.items(), *([(more, b"new")] if more else [])):
            archive.writestr(zipfile.ZipInfo(name), content)
    return to


def labels(file: Path, strictness: str) -> list[str]:
    found: list[str] = load(file).predict(IMAGES, float(strictness), config=CONFIG).tolist()
    return found


def test_every_format_has_its_files() -> None:
    """A new format is a reason to run formats/make.py."""
    kept = {file.name.removesuffix(".usfda.xz") for file in HERE.glob("*.xz")}
    assert kept == set(EXPECTED)
    assert {int(name.split("-")[1]) for name in kept} == set(range(1, FORMAT + 1))


@pytest.mark.parametrize("name", READABLE)
def test_a_file_decides_as_when_it_was_made(name: str, unpacked: Unpacked, tmp_path: Path) -> None:
    file = unpacked(name)
    for strictness, expected in EXPECTED[name].items():
        assert labels(file, strictness) == expected
    again = tmp_path / "again.usfda"
    load(file).save(again)  # in the present format
    for strictness, expected in EXPECTED[name].items():
        assert labels(again, strictness) == expected


@pytest.mark.parametrize("name", READABLE)
def test_commands_take_a_file(name: str, unpacked: Unpacked, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(unpacked(name))]) == 0
    assert "kind2" in capsys.readouterr().out


def test_what_was_procured_long_ago_can_be_adapted_now(unpacked: Unpacked) -> None:
    for name, method in (("format-1-procured", "usfda"), ("format-2-procured", "usfda"), ("format-2-usfda", "mixture")):
        settings: Any = {"steps": 2} if method == "usfda" else None
        adapted = adapt(unpacked(name), IMAGES, method=method, settings=settings, config=CONFIG)  # type: ignore[arg-type]
        assert adapted.head.name == method
    with pytest.raises(InputError, match="mixture"):
        adapt(unpacked("format-1-procured"), IMAGES, config=CONFIG)


def test_what_release_0_1_adapted_can_be_used_but_not_carried_on(unpacked: Unpacked, tmp_path: Path) -> None:
    model = load(unpacked("format-2-usfda"))
    assert model.findings is not None
    assert model.findings.clusters[0].samples == 12
    assert 1 in {p.cluster for p in model.predictions(IMAGES, config=CONFIG)}
    p = model.predict_proba(IMAGES, config=CONFIG)
    assert np.allclose(p.sum(1), 1)
    with pytest.raises(InputError, match="adapt"):
        teach(model, names={1: "okapi"})
    with pytest.raises(InputError, match="--update"):
        adapt(model, IMAGES, update=True, config=CONFIG)
    assert main(["export", str(unpacked("format-2-usfda")), "-o", str(tmp_path / "m.onnx"), "--quiet"]) == 2


def test_a_format_that_was_never_released_says_what_to_do(unpacked: Unpacked) -> None:
    with pytest.raises(InputError, match="released"):
        load(unpacked("format-3-usfda"))


def test_a_file_of_a_newer_version_says_so(
    unpacked: Unpacked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = unpacked(f"format-{FORMAT}-mixture")
    says = f"its format is {FORMAT + 1} and this version of usfda reads 1 to {FORMAT}: a newer version made it; upgrade"

    def newer(card: dict[str, Any]) -> dict[str, Any]:
        return {**card, "format": FORMAT + 1}

    # As it is but for its number; with a member and values that this version does not know; named last.
    for i, made in enumerate(
        (
            changed(file, tmp_path / "a.usfda", card=newer),
            changed(file, tmp_path / "b.usfda", card=newer, more="signature"),
            changed(file, tmp_path / "c.usfda", card=lambda card: {"format": FORMAT + 1, "all": "new"}),
            changed(file, tmp_path / "d.usfda", card=lambda card: {"all": "new", "format": FORMAT + 1}),
        )
    ):
        assert main(["inspect", str(made), "--quiet"]) == 2, i
        assert says in " ".join(capsys.readouterr().err.split())


def test_an_older_format_is_no_way_around_the_checks(unpacked: Unpacked, tmp_path: Path) -> None:
    old, to = unpacked("format-2-usfda"), tmp_path / "m.usfda"
    assert load(changed(old, to, card=lambda card: card, tensors=lambda tensors: tensors)).adapted
    cards: list[Change] = [
        lambda card: {**card, "format": 0},
        lambda card: {**card, "format": True},
        lambda card: {**card, "format": "2"},
        lambda card: {**card, "format": 3},
        lambda card: {**card, "format": 5},
        lambda card: {**card, "procurement": None},
        lambda card: {**card, "procurement": []},
        lambda card: {**card, "procurement": "x"},
        lambda card: {**card, "procurement": {**card["procurement"], "validation": 3}},
        lambda card: {**card, "deployment": [1]},
        lambda card: {**card, "deployment": {**card["deployment"], "strictness": 7}},
        lambda card: {**card, "deployment": {**card["deployment"], "taught": {"okapi": {}}}},
        lambda card: {**card, "deployment": {**card["deployment"], "check": {}}},
        lambda card: {**card, "classes": ["kind0", "kind1"]},
        lambda card: {**card, "classes": "\x1b"},
        lambda card: {key: value for key, value in card.items() if key != "deployment"},
    ]
    for change in cards:
        with pytest.raises(InputError, match=r"m\.usfda: "):
            load(changed(old, to, card=change))

    def without(name: str) -> Change:
        return lambda tensors: {key: t for key, t in tensors.items() if not key.startswith(name)}

    def with_(name: str, value: Any) -> Change:
        return lambda tensors: {**tensors, name: np.asarray(value, np.float32)}

    for tensors in (
        without("F_s"),
        without("D"),
        without("geometry"),
        without("mixture.mean"),
        with_("geometry.mean", np.zeros(16)),
        with_("geometry.floor", 0),
        with_("geometry.whitener", np.zeros((2**40, 0))),
        with_("geometry.whitener", np.full((16, 16), np.nan)),
        with_("mixture.bias", np.zeros(2)),
        with_("mixture.scale", 16),
        with_("F_t.0.weight", np.zeros((1024, 16))),
    ):
        with pytest.raises(InputError, match=r"m\.usfda: "):
            load(changed(old, to, tensors=tensors))

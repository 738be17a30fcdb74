import hashlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path, PosixPath
from typing import Any

import numpy as np
import pytest
from conftest import write_photos
from PIL import Image

from usfda import Config, Features, InputError, Model, Samples, procure
from usfda.backbones.backbone import Backbone
from usfda.backbones.zoo import get_backbone
from usfda.data.images import MAX_FILE
from usfda.data.reading import read
from usfda.features.cache import cache_info, clear_cache
from usfda.features.extract import Extractor


def samples_of(place: Any) -> Samples:
    found = read(place)
    assert isinstance(found, Samples)
    return found


@dataclass(frozen=True)
class Counting(Backbone):
    """Notes how many images it runs at a time."""

    runs: list[int] = field(default_factory=list)

    def run(self, images: np.ndarray) -> np.ndarray:
        self.runs.append(len(images))
        return super().run(images)


@dataclass(frozen=True)
class Clearing(Counting):
    """Another process clears the cache while it runs, the first two times."""

    cache: Path = Path()

    def run(self, images: np.ndarray) -> np.ndarray:
        if len(self.runs) < 2:
            clear_cache(self.cache)
        return super().run(images)


def counting() -> Counting:
    pixels = get_backbone("pixels")
    return Counting(pixels.name, pixels.onnx, pixels.record)


def extract(place: Any, backbone: Backbone | None = None, config: Config | None = None) -> Features:
    return Extractor.make(backbone or get_backbone("pixels"), config or Config()).features(samples_of(place))


def test_features_are_those_of_the_backbone(photos: Path) -> None:
    found = extract(photos)
    m = get_backbone("pixels")
    assert found.paths is not None
    assert found.keys is not None
    contents = [Path(str(path)).read_bytes() for path in found.paths]
    assert found.X[:] == pytest.approx(m.run(np.stack([m.prepare(content) for content in contents])), abs=1e-6)
    assert list(found.keys) == [hashlib.sha256(content).digest() for content in contents]
    assert found.backbone == m.sha256


def test_clearing_under_a_reader(photos: Path, cache: Path) -> None:
    found = extract(photos)
    before = found.X[:3]
    clear_cache(cache)
    assert np.array_equal(found.X[:3], before)
    assert cache_info(cache)["caches"] == {} or sum(s["vectors"] for s in cache_info(cache)["caches"].values()) == 0
    assert np.array_equal(extract(photos).X[:3], before)


def test_clearing_under_a_writer(photos: Path, cache: Path) -> None:
    """What another process clears while we extract is made again, and no sound image is lost."""
    pixels = get_backbone("pixels")
    found = extract(photos, Clearing(pixels.name, pixels.onnx, pixels.record, cache=cache))
    assert len(found) == 48
    assert np.array_equal(found.X[:], extract(photos, pixels, Config(cache=None)).X[:])


def test_nothing_is_computed_twice_and_new_images_cost_only_themselves(photos: Path, tmp_path: Path) -> None:
    m = counting()
    first = extract(photos, m)
    assert sum(m.runs) == 48
    write_photos(tmp_path / "more", [4], 3, seed=5)
    (tmp_path / "more" / "same").symlink_to(photos / "kind0")
    more = extract(tmp_path / "more", m)
    assert sum(m.runs) == 48 + 3
    assert np.array_equal(more.X[3:], first.X[:12])
    assert list(first.paths or ()) == list(samples_of(photos).paths)


def test_rows_are_read_when_asked(photos: Path) -> None:
    found = extract(photos)
    assert found.X.shape == (48, 256)
    assert found.X[np.asarray([2, 0])].shape == (2, 256)
    assert np.asarray(found.X).dtype == np.float32


def test_bad_files_are_skipped_counted_and_named(
    photos: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Fault: a file larger than any image that could be decoded was read whole, only to be hashed."""
    good = (photos / "kind0" / "000.png").read_bytes()
    (tmp_path / "good.png").write_bytes(good)
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "text.jpg").write_text("no image")
    (tmp_path / "text copy.jpg").write_text("no image")
    (tmp_path / "cut.png").write_bytes(good[: len(good) // 2])
    (tmp_path / "gone.png").symlink_to(tmp_path / "nowhere.png")
    os.mkfifo(tmp_path / "pipe.jpg")
    Image.new("1", (12000, 12000)).save(tmp_path / "bomb.png")
    with (tmp_path / "huge.png").open("wb") as file:
        file.write(good)
        file.truncate(MAX_FILE + 1)
    with caplog.at_level(logging.WARNING, "usfda"):
        found = extract(tmp_path)
    assert list(found.paths or ()) == [tmp_path / "good.png"]
    warning = caplog.text
    assert "8 of 9" in warning
    for reason in (
        "empty.jpg (empty file)",
        "text.jpg (not an image of a known format",
        "text copy.jpg (not an image of a known format",
        "cut.png (",
        "gone.png (no such file)",
        "pipe.jpg (not a regular file)",
        "bomb.png (refused: 12000×12000 pixels",
        f"huge.png (refused: a file of {MAX_FILE >> 20} MiB",
    ):
        assert reason in warning


opened: Counter[str] = Counter()


class Watched(PosixPath):
    """A path that counts how often its file is opened, and may replace the file as soon as it has been."""

    def open(self, *args: Any, **options: Any) -> Any:
        opened[self.name] += 1
        file = super().open(*args, **options)
        other = self.with_name(f"other-{self.name}")
        if os.path.exists(other):  # noqa: PTH110 (its own methods are watched)
            os.replace(other, self)  # noqa: PTH105
        return file


@pytest.mark.parametrize("stored", [True, False])
def test_an_image_is_read_once(photos: Path, tmp_path: Path, stored: bool, cache: Path) -> None:
    """Fault: a file was read twice, to hash it and to decode it, and could change in between.

    Here each file is replaced the moment it has been opened: key and vector are still those of one content.
    """
    opened.clear()
    m = get_backbone("pixels")
    first, second = (sorted((photos / kind).iterdir())[:5] for kind in ("kind0", "kind1"))
    for i, (one, two) in enumerate(zip(first, second, strict=True)):
        (tmp_path / f"{i}.png").write_bytes(one.read_bytes())
        (tmp_path / f"other-{i}.png").write_bytes(two.read_bytes())
    samples = Samples([Watched(tmp_path / f"{i}.png") for i in range(5)])
    config = Config(cache=cache if stored else None)
    found = Extractor.make(m, config).features(samples)
    assert opened == {f"{i}.png": 1 for i in range(5)}
    assert list(found.keys or ()) == [hashlib.sha256(path.read_bytes()).digest() for path in first]
    expected = m.run(np.stack([m.prepare(path.read_bytes()) for path in first]))
    assert found.X[:] == pytest.approx(expected, abs=1e-6)
    again = Extractor.make(m, config).features(samples)  # the files are now those of the other class
    assert opened == {f"{i}.png": 2 for i in range(5)}
    assert again.keys == [hashlib.sha256(path.read_bytes()).digest() for path in second]


class Short(PosixPath):
    """A file for which there is no memory."""

    def open(self, *args: Any, **options: Any) -> Any:
        raise MemoryError("no room")


@dataclass(frozen=True)
class Broken(Backbone):
    """A preparation with a mistake in it."""

    def prepare(self, content: bytes | Image.Image) -> np.ndarray:
        raise KeyError("a bug")


@dataclass(frozen=True)
class Full(Backbone):
    """A preparation for which there is no memory."""

    def prepare(self, content: bytes | Image.Image) -> np.ndarray:
        raise MemoryError("no room")


def test_errors_of_our_own_are_not_the_images_fault(photos: Path) -> None:
    """Fault: a shortage of memory, or a bug, made sound images "unreadable", which were then skipped."""
    pixels = get_backbone("pixels")
    path = photos / "kind0" / "000.png"
    with pytest.raises(MemoryError, match="no room"):
        Extractor.make(pixels, Config()).features(Samples([path, Short(path)]))
    with pytest.raises(KeyError, match="a bug"):
        extract([path], Broken(pixels.name, pixels.onnx, pixels.record))
    with pytest.raises(MemoryError, match="no room"):
        extract([path], Full(pixels.name, pixels.onnx, pixels.record))


def test_without_a_store(photos: Path, tmp_path: Path) -> None:
    """The same vectors, and nothing is written anywhere."""
    kept, free = extract(photos), extract(photos, config=Config(cache=None))
    assert np.array_equal(kept.X[:], free.X[:])
    assert kept.keys == free.keys
    (tmp_path / "bad.png").write_text("no image")
    none = extract(tmp_path, config=Config(cache=None))
    assert none.X.shape == (0, 256)


def test_where_nothing_can_be_written(photos: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A note, and the same vectors."""
    (tmp_path / "file").touch()
    with caplog.at_level(logging.WARNING, "usfda"):
        found = extract(photos, config=Config(cache=tmp_path / "file"))
    assert len(caplog.messages) == 1
    assert np.array_equal(found.X[:], extract(photos).X[:])


def test_copies_are_run_once_but_counted(photos: Path, tmp_path: Path) -> None:
    for name in ("a.png", "b.png", "c.png"):
        (tmp_path / name).write_bytes((photos / "kind0" / "000.png").read_bytes())
    for config in (Config(), Config(cache=None)):
        m = counting()
        found = extract(tmp_path, m, config)
        assert (len(found), sum(m.runs)) == (3, 1)
        assert (found.X[:] == found.X[:1]).all()


def test_a_class_that_is_lost_is_named(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_text("no image")
    paths = [*sorted((photos / "kind0").iterdir())[:2], tmp_path / "bad.png"]
    samples = Samples(paths, np.asarray(["a", "a", "b"]), ("c",))
    found = Extractor.make(get_backbone("pixels"), Config()).features(samples)
    assert found.labels is not None
    assert found.labels.tolist() == ["a", "a"]
    assert sorted(found.empty) == ["b", "c"]
    with pytest.raises(InputError, match="class"):
        procure(samples, backbone="pixels", method="mixture")


def test_progress_is_shown_where_there_is_a_text(photos: Path, cache: Path) -> None:
    shown: list[tuple[int, str, str]] = []
    done: list[int] = []

    class Bar:
        def __enter__(self) -> Any:
            return done.append

        def __exit__(self, *_: object) -> None: ...

    def bar(total: int, text: str, unit: str) -> Any:
        shown.append((total, text, unit))
        return Bar()

    extractor = Extractor.make(get_backbone("pixels"), Config(cache=cache, progress=bar))
    extractor.features(samples_of(photos), "source")
    assert shown == [(48, "source", "images")]
    assert sum(done) == 48
    extractor.features(samples_of(photos))
    assert shown[1:] == [(0, "", "images")]


def vectors_in(cache: Path) -> int:
    return sum(store["vectors"] for store in cache_info(cache)["caches"].values())


def test_procure_goes_on_after_sigkill(tmp_path: Path, cache: Path) -> None:
    source = write_photos(tmp_path / "source", [0, 1, 2], 400)
    call = [sys.executable, "-m", "usfda", "procure", str(source), "-o", str(tmp_path / "m.usfda"), "--for", "mixture"]
    call += ["--backbone", "pixels", "--cache", str(cache)]
    process = subprocess.Popen(call, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while vectors_in(cache) < 64:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    done = vectors_in(cache)
    assert 64 <= done < 1200, "killed in the middle of extraction"
    assert not (tmp_path / "m.usfda").exists()
    m = counting()
    assert len(extract(source, m, Config(cache=cache))) == 1200
    assert sum(m.runs) == 1200 - done
    assert subprocess.run(call, stderr=subprocess.DEVNULL, check=False).returncode == 0
    assert (tmp_path / "m.usfda").exists()


def test_a_model_predicts_where_nothing_can_be_written(
    photos: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model: Model = procure(photos, backbone="pixels", method="mixture", config=Config(cache=None))
    (tmp_path / "file").touch()
    with_store = model.predict_proba(photos)
    without = model.predict_proba(photos, config=Config(cache=None))
    assert caplog.text == ""
    nowhere = model.predict_proba(photos, config=Config(cache=tmp_path / "file"))
    assert "not kept" in caplog.text
    assert np.array_equal(with_store, without)
    assert np.array_equal(with_store, nowhere)

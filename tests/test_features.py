import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import write_photos

from usfda.backbones import Backbone, get_backbone
from usfda.data import read
from usfda.features import KEY, Store, extract, store_clear, store_info
from usfda.runtime import runtime


def keys_of(*numbers: int) -> list[bytes]:
    return [bytes([n]) * 32 for n in numbers]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "s", 4)
    store.append(keys_of(1, 2, 3), np.arange(12, dtype=np.float32).reshape(3, 4))
    return store


def test_store_gives_back_what_it_got(store: Store) -> None:
    rows, vectors = store.find(keys_of(3, 9, 1))
    assert rows.tolist() == [2, -1, 0]
    assert vectors[rows[[0, 2]]].tolist() == [[8, 9, 10, 11], [0, 1, 2, 3]]
    assert isinstance(vectors, np.memmap)
    assert Store(store.folder, 4).find(keys_of(2))[0].tolist() == [1]
    assert store.find([])[0].tolist() == []
    assert Store(store.folder.parent / "new", 4).find(keys_of(2))[0].tolist() == [-1]


def test_the_newest_row_of_a_key_counts(store: Store) -> None:
    store.append(keys_of(2), np.full((1, 4), 7, np.float32))
    row, vectors = store.find(keys_of(2))
    assert vectors[row].tolist() == [[7, 7, 7, 7]]


def test_an_older_row_serves_where_the_newest_is_damaged(store: Store) -> None:
    store.append(keys_of(2, 2), np.arange(8, dtype=np.float32).reshape(2, 4))
    file = store.folder / "vectors"
    file.write_bytes(file.read_bytes()[:-20] + bytes(20))
    row, vectors = store.find(keys_of(2))
    assert vectors[row].tolist() == [[4, 5, 6, 7]]


def test_a_damaged_vector_is_absent_and_can_be_redone(store: Store) -> None:
    file = store.folder / "vectors"
    content = bytearray(file.read_bytes())
    content[17] ^= 1
    file.write_bytes(content)
    assert store.find(keys_of(1, 2, 3))[0].tolist() == [0, -1, 2]
    store.append(keys_of(2), np.full((1, 4), 5, np.float32))
    assert store.find(keys_of(1, 2, 3))[0].tolist() == [0, 3, 2]


@pytest.mark.parametrize("cut", ["keys", "vectors"])
@pytest.mark.parametrize("left", [0, 5, 40, 75])
def test_what_a_kill_leaves_of_a_row_does_no_harm(store: Store, cut: str, left: int) -> None:
    file = store.folder / cut
    file.write_bytes(file.read_bytes()[:left])
    before, _ = store.find(keys_of(1, 2, 3))
    for n in (1, 2, 3):
        if before[n - 1] < 0:
            store.append(keys_of(n), np.full((1, 4), n, np.float32))
    rows, vectors = store.find(keys_of(1, 2, 3))
    assert (rows >= 0).all()
    for n, row in zip((1, 2, 3), rows, strict=True):
        vector = vectors[row].tolist()
        assert vector in ([n] * 4, np.arange(4 * (n - 1), 4 * n).tolist())


def test_clearing_under_a_reader(photos: Path) -> None:
    m = get_backbone("pixels")
    found, _, _ = extract(read(photos), m)
    before = found.X[:3]
    store_clear()
    assert np.array_equal(found.X[:3], before)
    assert store_info()["bytes"] == 0
    again, _, _ = extract(read(photos), m)
    assert np.array_equal(again.X[:3], before)


def test_clearing_under_a_writer(photos: Path) -> None:
    """What another process clears while we extract is made again, and no sound image is lost."""

    class Cleared(Backbone):
        def run(self, images: np.ndarray) -> np.ndarray:
            if len(runs) < 2:
                store_clear()
            runs.append(len(images))
            return super().run(images)

    runs.clear()
    pixels = get_backbone("pixels")
    found, kept, _ = extract(read(photos), Cleared(pixels.name, pixels.onnx, pixels.record))
    assert len(kept) == 48
    assert np.array_equal(found.X[:], extract(read(photos), pixels)[0].X[:])


class Counting(Backbone):
    def run(self, images: np.ndarray) -> np.ndarray:
        runs.append(len(images))
        return super().run(images)


runs: list[int] = []


def test_nothing_is_computed_twice_and_new_images_cost_only_themselves(photos: Path, tmp_path: Path) -> None:
    runs.clear()
    pixels = get_backbone("pixels")
    m = Counting(pixels.name, pixels.onnx, pixels.record)
    first, kept, _ = extract(read(photos), m)
    assert sum(runs) == 48
    write_photos(tmp_path / "more", [4], 3, seed=5)
    (tmp_path / "more" / "same").symlink_to(photos / "kind0")
    more, _, _ = extract(read(tmp_path / "more"), m)
    assert sum(runs) == 48 + 3
    assert np.array_equal(more.X[3:], first.X[:12])
    assert kept.tolist() == list(range(48))


def test_rows_are_read_when_asked(photos: Path) -> None:
    found, _, _ = extract(read(photos), get_backbone("pixels"))
    assert found.X.shape == (48, 256)
    assert found.X[[2, 0]].shape == (2, 256)
    assert np.asarray(found.X).dtype == np.float32


WORK = """
import sys
from pathlib import Path
import numpy as np
from usfda.features import Store
store = Store(Path(sys.argv[1]), 8)
for n in range(int(sys.argv[2]), 200, 2):
    store.append([bytes([n]) * 32], np.full((1, 8), n, np.float32))
"""


def test_two_processes_fill_one_store(tmp_path: Path) -> None:
    both = [subprocess.Popen([sys.executable, "-c", WORK, tmp_path / "s", str(n)]) for n in (0, 1)]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    store = Store(tmp_path / "s", 8)
    rows, vectors = store.find(keys_of(*range(200)))
    assert sorted(rows.tolist()) == list(range(200))
    assert np.array_equal(vectors[rows][:, 0], np.arange(200))


def test_procure_goes_on_after_sigkill(tmp_path: Path) -> None:
    source = write_photos(tmp_path / "source", [0, 1, 2], 700)
    call = [sys.executable, "-m", "usfda", "procure", str(source), "-o", str(tmp_path / "m.usfda")]
    call += ["--backbone", "pixels", "--set", "iterations=10", "--set", "composites=50", "--cache", str(runtime.cache)]
    process = subprocess.Popen(call, stderr=subprocess.DEVNULL)
    keys = runtime.cache / "features" / get_backbone("pixels").key[:32] / "keys"
    deadline = time.monotonic() + 120
    while not (keys.exists() and keys.stat().st_size >= 64 * KEY.itemsize):
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    done = keys.stat().st_size // KEY.itemsize
    assert 64 <= done < 2100, "killed in the middle of extraction"
    assert not (tmp_path / "m.usfda").exists()
    runs.clear()
    pixels = get_backbone("pixels")
    found, _, _ = extract(read(source), Counting(pixels.name, pixels.onnx, pixels.record))
    assert len(found) == 2100
    assert sum(runs) == 2100 - done
    assert subprocess.run(call, stderr=subprocess.DEVNULL, check=False).returncode == 0
    assert (tmp_path / "m.usfda").exists()

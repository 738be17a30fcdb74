import logging
import os
import pickle
import random
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from usfda.data.samples import Mapped, Rows
from usfda.errors import InputError
from usfda.features.store import Store, clear_store, store_info

DIM = 8
NAME = "a store #1?%41"  # what a database's address would take for something else
HEAD = """
import sys
from itertools import count
from pathlib import Path
import numpy as np
from usfda.features.store import Store, clear_store
def keys(numbers): return [n.to_bytes(32, "big") for n in numbers]
def vectors(numbers): return np.repeat(np.asarray(numbers, np.float32)[:, None], 8, 1)
store, start = Store(Path(sys.argv[1]), 8), int(sys.argv[2])
"""


def keys(*numbers: int) -> list[bytes]:
    return [n.to_bytes(32, "big") for n in numbers]


def vectors(*numbers: float) -> np.ndarray:
    """What the tests keep for these keys, so that a wrong vector shows itself."""
    return np.repeat(np.asarray(numbers, np.float32)[:, None], DIM, 1)


def found(store: Store, *numbers: int) -> list[int]:
    """Those of the keys that the store has, after a look at what it has for them."""
    rows, X = store.find(keys(*numbers))
    there = np.flatnonzero(rows >= 0)
    assert np.array_equal(X[rows[there]], vectors(*np.asarray(numbers)[there].tolist()))
    return [numbers[i] for i in there]


def start(work: str, folder: Path, number: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", HEAD + work, str(folder), str(number)], stderr=subprocess.PIPE)


def file_of(store: Store, pattern: str) -> Path:
    (file,) = store.folder.glob(pattern)
    return file


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "features" / NAME, DIM)
    store.append(keys(1, 2, 3), vectors(1, 2, 3))
    return store


def test_it_gives_back_what_it_got(store: Store) -> None:
    rows, X = store.find(keys(3, 9, 1))
    assert rows.tolist() == [2, -1, 0]
    assert np.array_equal(X[rows[[0, 2]]], vectors(3, 1))
    assert isinstance(X, Mapped)
    assert found(Store(store.folder, DIM), 2) == [2]
    assert store.find([])[0].tolist() == []
    rows, X = Store(store.folder.parent / "new", DIM).find(keys(2))
    assert (rows.tolist(), X.shape) == ([-1], (0, DIM))


def test_what_it_cannot_keep_is_an_error(store: Store) -> None:
    store.append([], np.empty((0, DIM)))
    with pytest.raises(ValueError, match="2 keys"):
        store.append(keys(4, 5), vectors(4))
    with pytest.raises(ValueError, match="2 keys"):
        store.append(keys(4, 5), vectors(4, 5)[:, :-1])
    assert found(store, 4, 5) == []


def test_the_newest_vector_of_a_key_counts(store: Store) -> None:
    store.append(keys(2, 2), vectors(7, 8))
    row, X = store.find(keys(2))
    assert np.array_equal(X[row], vectors(8))


def test_a_damaged_vector_is_absent_and_can_be_redone(store: Store) -> None:
    file = file_of(store, "vectors-*")
    content = bytearray(file.read_bytes())
    content[4 * DIM + 1] ^= 1
    file.write_bytes(content)
    assert found(store, 1, 2, 3) == [1, 3]
    store.append(keys(2), vectors(2))
    assert found(store, 1, 2, 3) == [1, 2, 3]


@pytest.mark.parametrize("left", [0, 5, 4 * DIM, 4 * DIM + 1, None])
def test_lost_vectors_are_absent_and_never_mistaken(store: Store, left: int | None) -> None:
    """Also where the rows that were lost now hold vectors of other keys."""
    file = file_of(store, "vectors-*")
    if left is None:
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:left])
    whole = (left or 0) // (4 * DIM)
    assert found(store, 1, 2, 3) == [1, 2, 3][:whole]
    store.append(keys(4, 5, 6), vectors(4, 5, 6))
    assert found(store, *range(1, 7)) == [*range(1, whole + 1), 4, 5, 6]
    store.append(keys(1, 2, 3), vectors(1, 2, 3))
    assert found(store, *range(1, 7)) == [*range(1, 7)]


def test_a_damaged_index_is_left_behind(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    file_of(store, "index-*").write_bytes(b"garbage" * 1000)
    assert found(store, 1) == []
    assert "damaged" in caplog.text
    assert "starts anew" in caplog.text
    caplog.clear()
    store.append(keys(1, 2), vectors(1, 2))
    assert found(Store(store.folder, DIM), 1, 2, 3) == [1, 2]
    assert not caplog.text
    assert len(list(store.folder.iterdir())) == 2, "nothing of the old one is left"


def test_no_damage_of_the_index_gives_a_wrong_vector_or_an_error(store: Store) -> None:
    """A lost key is made again; ``found`` looks at each vector."""
    numbers = range(1, 200)
    rng = random.Random(0)
    for i in range(60):
        clear_store(store.folder.parent.parent)
        store.append(keys(*numbers), vectors(*numbers))
        file = file_of(store, "index-*")
        content = bytearray(file.read_bytes())
        if i % 3 == 0:
            content = content[: rng.randrange(len(content))]
        for _ in range(0 if i % 3 == 0 else 4 ** (i % 7)):
            content[rng.randrange(100 if i % 3 == 1 else len(content))] ^= 1 << rng.randrange(8)
        file.write_bytes(content)
        found(store, *numbers)
        store.append(keys(500), vectors(500))
        assert found(store, *numbers, 500)[-1] == 500, "what is kept after the damage is there"


def test_an_index_with_another_table_is_left_behind(store: Store) -> None:
    with sqlite3.connect(file_of(store, "index-*")) as db:
        db.execute("DROP TABLE vectors")
        db.execute("CREATE TABLE vectors (a, b)")
    db.close()
    assert found(store, 1) == []
    store.append(keys(1), vectors(1))
    assert found(store, 1) == [1]


def test_lookups_use_the_index(store: Store) -> None:
    db = sqlite3.connect(file_of(store, "index-*"))
    plan = db.execute("EXPLAIN QUERY PLAN SELECT row, crc FROM vectors WHERE key = ?", keys(1)).fetchall()
    db.close()
    assert len(plan) == 1
    assert "SEARCH vectors USING PRIMARY KEY" in plan[0][3]


def test_a_place_that_cannot_hold_a_store(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "s"):
        with pytest.raises(InputError, match=r"file.*: cannot hold the feature store \("):
            Store(folder, DIM)
    (tmp_path / "t" / "index-1.sqlite").mkdir(parents=True)
    with pytest.raises(InputError, match="store"):
        Store(tmp_path / "t", DIM)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(InputError, match="Permission denied"):
        Store(store.folder, DIM)


def test_a_store_that_was_deleted_is_made_again(store: Store) -> None:
    for file in store.folder.iterdir():
        file.unlink()
    store.folder.rmdir()
    assert found(store, 1) == []
    store.append(keys(1), vectors(1))
    assert found(store, 1) == [1]


def test_a_kill_does_no_harm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    work = "for n in count(start, 50): store.append(keys(range(n, n + 50)), vectors(range(n, n + 50)))"
    store, rng, total = Store(tmp_path / "s", DIM), random.Random(0), 0
    for number in (10_000, 20_000, 30_000, 40_000):
        process = start(work, store.folder, number)
        deadline = time.monotonic() + 60
        while not found(store, number):
            assert time.monotonic() < deadline
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.05))
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        numbers = range(number, number + 10_000)
        there = found(store, *numbers)
        assert there == [*numbers[: len(there)]], "what was kept before the kill"
        assert len(there) % 50 == 0
        total += len(there)
    assert len(found(store, *range(10_000, 50_000))) == total
    assert not caplog.text


def test_two_processes_fill_one_store(tmp_path: Path) -> None:
    work = "for n in range(start, 200, 2): store.append(keys([n]), vectors([n]))"
    both = [start(work, tmp_path / "s", n) for n in (0, 1)]
    assert [process.wait(timeout=60) for process in both] == [0, 0]
    store = Store(tmp_path / "s", DIM)
    assert found(store, *range(200)) == [*range(200)]
    assert sorted(store.find(keys(*range(200)))[0].tolist()) == [*range(200)]


def test_two_processes_leave_a_damaged_index_behind_together(store: Store) -> None:
    file_of(store, "index-*").write_bytes(b"garbage" * 1000)
    work = "for n in range(start, 60, 2): store.append(keys([n]), vectors([n]))"
    both = [start(work, store.folder, n) for n in (10, 11)]
    assert [process.wait(timeout=60) for process in both] == [0, 0]
    assert found(store, *range(60)) == [*range(10, 60)]


def test_threads_share_a_store(store: Store) -> None:
    def work(n: int) -> list[int]:
        store.append(keys(n, n + 1), vectors(n, n + 1))
        return found(store, n, n + 1, 1)

    with ThreadPoolExecutor(8) as pool:
        assert all(len(there) == 3 for there in pool.map(work, range(100, 300, 2)))
    assert found(store, *range(100, 300)) == [*range(100, 300)]


def test_clearing_and_filling_changes_nothing_under_a_reader(store: Store, tmp_path: Path) -> None:
    """The vectors of a running comparison are those it began with, whatever another process does to the store."""
    rows, mapped = store.find(keys(1, 2, 3))
    X = Rows(mapped, rows)
    work = "clear_store(store.folder.parent.parent); store.append(keys([7, 8, 9, 1]), vectors([7, 8, 9, 1]))"
    process = start(work, store.folder, 0)
    assert process.wait(timeout=60) == 0
    assert np.array_equal(X[:], vectors(1, 2, 3))
    assert np.array_equal(mapped[rows], vectors(1, 2, 3))
    assert found(store, 1, 2, 3, 7, 8, 9) == [1, 7, 8, 9]
    store.append(keys(2), vectors(2))
    assert np.array_equal(X[:], vectors(1, 2, 3))


def test_clearing_under_writers(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    work = "for n in range(start, start + 100): store.append(keys([n]), vectors([n])); store.find(keys([n]))"
    both = [start(work, store.folder, n) for n in (1000, 2000)]
    cleared = 0
    while any(process.poll() is None for process in both):
        clear_store(store.folder.parent.parent)
        found(store, *range(1000, 1300), *range(2000, 2300))
        cleared += 1
        time.sleep(0.01)
    assert [process.wait(timeout=60) for process in both] == [0, 0], [process.communicate() for process in both]
    assert cleared > 1
    assert not caplog.text
    clear_store(store.folder.parent.parent)
    assert store_info(store.folder.parent.parent)["bytes"] == 0
    assert len(list(store.folder.iterdir())) == 1


def test_a_store_goes_to_another_process_as_its_folder(store: Store) -> None:
    again = pickle.loads(pickle.dumps(store))
    again.append(keys(4), vectors(4))
    assert found(store, 1, 4) == [1, 4]


def test_rows_are_read_when_asked_for(store: Store) -> None:
    rows, mapped = store.find(keys(3, 1, 2))
    X = Rows(mapped, rows)
    assert X.shape == (3, DIM)
    assert len(X) == 3
    for index in ([2, 0], slice(1, 3), np.asarray([True, False, True])):
        assert np.array_equal(X[index], vectors(3, 1, 2)[index])
        assert X[index].dtype == np.float32
        assert type(X[index]) is np.ndarray
    assert X[1].tolist() == [1] * DIM
    assert np.asarray(X).dtype == np.float32
    assert np.asarray(X, np.float64).dtype == np.float64


def test_pickled_rows_are_an_array_of_their_own(store: Store) -> None:
    store.append(keys(*range(10, 2010)), vectors(*range(10, 2010)))
    rows, mapped = store.find(keys(3, 500))
    sent = pickle.dumps(Rows(mapped, rows))
    assert len(sent) < 2 * 4 * DIM + 500
    clear_store(store.folder.parent.parent)
    received = pickle.loads(sent)
    assert type(received) is np.ndarray
    assert np.array_equal(received, vectors(3, 500))


def test_info_and_clear(store: Store, tmp_path: Path) -> None:
    other = Store(tmp_path / "features" / "b", DIM)
    other.append(keys(*range(50)), vectors(*range(50)))
    (tmp_path / "vendors").mkdir()
    (tmp_path / "vendors" / "m.usfda").write_bytes(b"model")
    (tmp_path / "features" / "b" / "notes.txt").touch()
    info = store_info(tmp_path)
    assert info["folder"] == str(tmp_path)
    assert {name: kept["vectors"] for name, kept in info["stores"].items()} == {NAME: 3, "b": 50}
    assert info["stores"]["b"]["bytes"] >= 50 * 4 * DIM
    assert info["models"] == {"count": 1, "bytes": 5}
    assert info["bytes"] == 5 + sum(kept["bytes"] for kept in info["stores"].values())
    clear_store(tmp_path)
    assert store_info(tmp_path) == {
        "folder": str(tmp_path), "bytes": 0, "stores": {}, "models": {"count": 0, "bytes": 0},
    }  # fmt: skip
    assert (tmp_path / "features" / "b" / "notes.txt").exists(), "not ours"
    assert found(store, 1, 2, 3) == []
    assert store_info(tmp_path / "nowhere")["bytes"] == 0
    clear_store(tmp_path / "nowhere")


def test_info_of_a_damaged_store(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    file_of(store, "index-*").write_bytes(b"garbage")
    with caplog.at_level(logging.WARNING, "usfda"):
        assert store_info(store.folder.parent.parent)["stores"][NAME]["vectors"] == 0
    clear_store(store.folder.parent.parent)
    assert store_info(store.folder.parent.parent)["bytes"] == 0

"""The short version of the fault campaign (`make soak`), and what each fault that it found has taught."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

import pytest
from conftest import write_photos
from serving import client, running, write_grainy_photos

from soak.work import BASELINE, Command, Place, journal
from usfda import Config, procure
from usfda.backbones.zoo import get_backbone
from usfda.cli.ending import INTERRUPTED, explain
from usfda.data.images import read_file
from usfda.data.reading import read
from usfda.data.samples import Samples
from usfda.features.extract import Extractor
from usfda.features.store import clear_store
from usfda.files import atomic_write


def test_the_short_campaign() -> None:
    """In a process of its own: a fork of this one would have threads of libraries that other tests have used."""
    path = os.pathsep.join(filter(None, sys.path))
    call = [sys.executable, "-m", "soak", "--short", "--kills", "12"]
    ended = subprocess.run(call, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    for row in ("SIGKILL | procure", "SIGKILL | adapt", "SIGKILL | predict", "SIGKILL | teach"):
        assert f"| {row} |" in ended.stdout
    for row in ("from the start | procure", "during the work | procure", "during the work | adapt"):
        assert f"| little memory {row} |" in ended.stdout
    for said in ("error: interrupted", "File too large", "memory ran out", "adaptation failed: its process was killed"):
        assert said in ended.stdout


# Files


def test_the_next_call_removes_what_a_kill_left(tmp_path: Path) -> None:
    file = tmp_path / "m.bin"
    code = (
        "import os, sys; from pathlib import Path; from usfda.files import atomic_write\n"
        "with atomic_write(Path(sys.argv[1])) as out:\n out.write(b'half'); out.flush(); os.kill(os.getpid(), 9)"
    )
    for _ in range(2):
        assert subprocess.run([sys.executable, "-c", code, file], check=False).returncode == -signal.SIGKILL
        assert [left.name for left in tmp_path.iterdir()] == [".m.bin.part1"]
    with atomic_write(file) as out:
        out.write(b"whole")
    assert {left.name: left.read_bytes() for left in tmp_path.iterdir()} == {"m.bin": b"whole"}


def test_two_writers_of_one_file_do_not_meet(tmp_path: Path) -> None:
    file = tmp_path / "m.bin"
    with atomic_write(file) as first:
        first.write(b"first")
        with atomic_write(file) as second:
            second.write(b"second")
        assert file.read_bytes() == b"second"
    assert file.read_bytes() == b"first"

    def write(i: int) -> None:
        for _ in range(50):
            with atomic_write(file) as out:
                out.write(bytes([i]) * 1000)

    threads = [Thread(target=write, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(file.read_bytes())) == 1
    assert [left.name for left in tmp_path.iterdir()] == ["m.bin"]


def test_what_others_put_in_its_way_is_not_written_to(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"mine")
    (tmp_path / ".m.bin.part1").symlink_to(precious)
    (tmp_path / ".n.bin.part1").symlink_to(tmp_path / "nowhere")
    (tmp_path / ".n.bin.part2").mkdir()
    for name in ("m.bin", "n.bin"):
        with atomic_write(tmp_path / name) as out:
            out.write(b"new")
        assert (tmp_path / name).read_bytes() == b"new"
    assert precious.read_bytes() == b"mine"


def test_an_error_says_which_file_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space") as caught, atomic_write(tmp_path / "m.bin"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert explain(caught.value).startswith(f"{tmp_path / 'm.bin'}: No space left on device; make room there")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (MemoryError(), "memory ran out; close other programs"),
        (RuntimeError("std::bad_alloc"), "memory ran out"),
        (OSError(errno.EMFILE, "Too many open files", "a.jpg"), "a.jpg: Too many open files; raise the limit"),
        (ValueError("odd"), "ValueError: odd"),
    ],
)
def test_what_the_machine_lacks_is_said(error: Exception, says: str) -> None:
    assert explain(error).startswith(says)


def test_ctrl_c_that_a_library_wrapped_is_ctrl_c() -> None:
    error = ImportError("cannot be loaded")
    error.__context__ = KeyboardInterrupt()
    assert explain(error) == INTERRUPTED


@pytest.mark.parametrize("late", [False, True])
def test_an_interrupt_anywhere_gives_its_exit_code(tmp_path: Path, late: bool) -> None:
    """Faults: within an `exec` that a library calls, Python ended as if killed; at the very end, with a traceback."""
    (tmp_path / "interrupted.py").write_text(
        "import os, signal, sys, usfda.__main__, usfda.cli.main\n"
        "def work():\n"
        "    try: exec('os.kill(os.getpid(), signal.SIGINT)')\n"
        "    except KeyboardInterrupt: return 130\n"
        "def end(sign, what, real=signal.signal):\n"
        "    if what is signal.SIG_IGN: os.kill(os.getpid(), signal.SIGINT)\n"
        "    return real(sign, what)\n"
        + ("usfda.__main__.signal.signal = end\nwork = lambda: 1\n" if late else "")
        + "usfda.cli.main.main = work\nsys.exit(usfda.__main__.main())"
    )
    ended = subprocess.run([sys.executable, "-m", "interrupted"], cwd=tmp_path, capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, b"")


def test_an_image_is_not_skipped_for_want_of_file_handles(tmp_path: Path) -> None:
    write_photos(tmp_path / "photos", [0], 1)
    code = (
        "import resource, sys; from pathlib import Path; from usfda.data.images import read_file\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
        "try: read_file(Path(sys.argv[1]))\n"
        "except OSError as error: sys.exit(error.errno)"
    )
    image = next((tmp_path / "photos").rglob("*.png"))
    assert read_file(image)
    ended = subprocess.run([sys.executable, "-c", code, image], check=False)
    assert ended.returncode == errno.EMFILE


# Memory

LIMIT = """
import resource, sys
from pathlib import Path

def leave(kib):
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + (kib << 10),) * 2)
"""


def in_little_memory(code: str, *args: object) -> subprocess.CompletedProcess[str]:
    """Run code that leaves itself so many KiB; the faults of these tests were waits for ever."""
    call = [sys.executable, "-c", LIMIT + code, *map(str, args)]
    return subprocess.run(call, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.skipif(sys.platform != "linux", reason="a limit of address space")
@pytest.mark.parametrize("most", [100, 250, 450])  # MiB, in which OpenBLAS ended Python, waited, or a library failed
def test_a_command_that_cannot_load_its_libraries_says_so(most: int) -> None:
    code = (
        "resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]) << 20,) * 2)\n"
        "from usfda.__main__ import main\n"
        "sys.argv = ['mixture', 'predict', 'm.usfda', 'photos']; sys.exit(main())"
    )
    ended = in_little_memory(code, most)
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: memory ran out")
    assert ended.stderr.count("error") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="a limit of address space")
def test_linear_algebra_does_not_wait_for_memory() -> None:
    """Fault: SciPy's OpenBLAS asks for its first buffer for ever."""
    code = (
        "import numpy as np; from scipy.linalg import cholesky; from usfda.stages.common import take_buffers\n"
        "X = np.eye(200)\n"
        "if sys.argv[1] == 'early': take_buffers(1)\n"
        "leave(4096)\n"
        "if sys.argv[1] == 'late': take_buffers(1)\n"
        "assert (cholesky(X) == X).all()"
    )
    early, late = in_little_memory(code, "early"), in_little_memory(code, "late")
    assert early.returncode == 0, early.stderr
    assert "MemoryError: 80 MiB" in late.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="a limit of address space")
def test_a_thread_without_memory_is_not_waited_for() -> None:
    """Fault: it got its stack, but nothing to begin with, and Python waits for its beginning for ever."""
    code = (
        "from usfda.features.engines import Threads\n"
        "leave((resource.getrlimit(resource.RLIMIT_STACK)[0] >> 10) + 8)\n"
        "list(Threads(1).map(int, '1'))"
    )
    assert "MemoryError: 16 MiB" in in_little_memory(code).stderr


@pytest.mark.skipif(sys.platform != "linux", reason="a limit of address space")
def test_no_image_is_begun_without_memory_to_give_up_with() -> None:
    """Fault: a thread that had not a byte left could not leave a block after the error, and tried for ever."""
    code = (
        "from usfda.backbones.zoo import get_backbone; from usfda.features.jobs import run\n"
        "class Job:\n"
        "    backbone = get_backbone('pixels')\n"
        "    def load(self, item): leave(8192); return b'key', lambda: print('begun')\n"
        "run(Job(), [(0, None)], lambda keys: [False])"
    )
    ended = in_little_memory(code)
    assert "MemoryError: 16 MiB" in ended.stderr
    assert not ended.stdout


# The store


def test_a_store_that_others_clear_all_the_time(tmp_path: Path, cache: Path) -> None:
    found = read(write_photos(tmp_path / "photos", [0, 1], 20))
    assert isinstance(found, Samples)
    extractor = Extractor.make(get_backbone("pixels"), Config(cache=cache, threads=1))
    expected = extractor.features(found)

    class Cleared(type(extractor.engine)):  # type: ignore[misc]
        def map(self, function, items):  # type: ignore[no-untyped-def]
            yield from super().map(function, items)
            clear_store(cache)

    clear_store(cache)
    object.__setattr__(extractor, "engine", Cleared(1))
    assert (extractor.features(found).X[:] == expected.X[:]).all()


# The processes of a comparison


def test_processes_leave_with_a_comparison_that_is_killed(tmp_path: Path) -> None:
    place, own = Place(tmp_path / "killed"), tmp_path / "own.py"
    own.write_text(BASELINE)
    source = write_photos(tmp_path / "source", [0, 1, 2, 3], 10)
    target = write_photos(tmp_path / "target", [0, 1, 4, 5], 10, seed=1, invert=True)
    args = ("compare", str(source), str(target), "--backbone", "pixels", "-o", ".", "--seeds", "3")
    process = place.start(Command("compare", (*args, "--methods", f"{own}:Nearest"), {}))
    deadline = time.monotonic() + 120
    while not (place.out / "runs.jsonl").exists() or not journal(place.out / "runs.jsonl"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert process.poll() is None
    assert len(place.running()) > 1
    process.kill()
    place.finish(process)  # raises an error where any is left


# The service


def test_a_service_answers_where_vectors_cannot_be_kept(tmp_path: Path) -> None:
    vendor, source = tmp_path / "vendor.usfda", write_photos(tmp_path / "source", [0, 1], 10)
    procure(source, method="mixture", backbone="pixels").save(vendor)
    photos = write_grainy_photos(tmp_path / "photos", [0, 1], 4)
    with running(vendor, tmp_path / "data") as port, client(port) as web:
        assert web.send_images(photos).status_code == 200
        shutil.rmtree(tmp_path / "data" / "features")
        (tmp_path / "data" / "features").write_bytes(b"in its way")
        assert web.send_images(photos).status_code == 200
        assert web.get("/model").status_code == 200
        (tmp_path / "data" / "features").unlink()
        assert web.send_images(photos).status_code == 200

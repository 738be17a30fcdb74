"""What the machine can do to a command: a full disk, a read-only place, others who clear the store, a clock that jumps,
no file handles, no memory, a process that is killed.
"""

from __future__ import annotations

import datetime
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event, Thread

from serving import write_grainy_photos

from . import service
from .kills import check_words
from .process import Process
from .report import Outcome
from .work import OLD, PATIENCE, Command, Finished, Place, Unsound, Work, journal

DISK = 4 << 20  # bytes of the small disk
ROOM = (0, 8)  # KiB that are left on it
HANDLES = (4, 8, 12, 20)
MEMORY = (128, 256, 512, 768, 1024)  # MiB of address space that a command may take from its start on
MORE = (1, 16, 64, 256)  # MiB that it may still take once its workers have begun
CLEARER = (
    "import sys; from pathlib import Path; from usfda.features.store import clear_store\n"
    "while True: clear_store(Path(sys.argv[1]))"
)


def root() -> bool:
    """Whether a disk can be mounted here."""
    with tempfile.TemporaryDirectory() as folder:
        return _mount(folder, "size=1m") and not subprocess.call(["umount", folder])


def _mount(folder: object, options: str) -> bool:
    try:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0
    except OSError:
        return False


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A disk of a few megabytes."""
    folder.mkdir(parents=True, exist_ok=True)
    if not _mount(folder, f"size={DISK}"):
        raise RuntimeError(f"{folder}: no disk can be mounted")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(disk: Path, room: int = 0) -> None:
    """Leave so many KiB."""
    with (disk / "filled").open("wb", buffering=0) as file:
        free = os.statvfs(disk)
        file.write(bytes(max(0, free.f_bavail * free.f_frsize - (room << 10))))


def judge(
    work: Work, fault: str, command: Command, place: Place, mend: Callable[[], object], ended: Finished
) -> Outcome:
    """Either it was done, with the same result, or it said in one line why not; then it works once more."""
    try:
        mend()  # to look at the store is to write to it
        if ended.code == 0:
            check_silence(ended.said)
            work.check_equal(command, place)
        elif ended.code not in (1, 2):
            raise Unsound(f"exit code {ended.code}: {ended.said[-300:]}")
        else:
            check_words(ended.said)
            work.check_whole(command, place)
        if (after := place.run(command, fork=True)).code:
            raise Unsound(f"the next call fails: {after.message}")
        work.check_equal(command, place)
        found = [line for line in ended.said.splitlines() if line.startswith(("error:", "warning:"))]
        return Outcome(fault, command.name, True, found[0] if found else "")
    except Unsound as error:
        return Outcome(fault, command.name, False, str(error))


def check_silence(said: str) -> None:
    """Where it was done, it may have warned."""
    if "Traceback" in said or "Exception ignored" in said:
        raise Unsound(f"a traceback is shown: …{said[-600:]}")


def full_disk(work: Work) -> Iterator[Outcome]:
    """Of the results, and of the store."""
    for command in work.commands.values():
        for name in ("out", "store"):
            if name == "store" and command.name == "teach":  # which needs no feature
                continue
            for room in ROOM if command.forks else ROOM[:1]:
                folder = work.place(f"full-{name}").folder
                with small_disk(folder / name) as disk:
                    place = Place(folder)
                    for output in command.outputs if name == "out" and command.name != "compare" else ():
                        (place.out / output).write_bytes(OLD)
                    fill(disk, room)
                    mend = (disk / "filled").unlink
                    where = "results" if name == "out" else "store"
                    yield judge(work, f"full disk, of the {where}", command, place, mend, place.run(command, fork=True))
    with small_disk(work.place("full-serve").folder) as disk:
        yield from service.full_disk(work, disk / "data", partial(fill, disk), (disk / "filled").unlink)


def limited_files(work: Work) -> Iterator[Outcome]:
    """In place of a full disk, where none can be mounted: no file may be larger than so much."""
    for command in work.commands.values():
        place = work.place("limited")
        ended = place.run(command, before=partial(limit, resource.RLIMIT_FSIZE, max(ROOM) << 10), fork=True)
        yield judge(work, "no file may grow", command, place, int, ended)
        place.remove()


def limit(kind: int, most: int) -> None:
    """For a process that is about to start."""
    resource.setrlimit(kind, (most, most))


def read_only(work: Work) -> Iterator[Outcome]:
    """A store, and a folder of results, that cannot be written."""
    for command in work.commands.values():
        for name in ("out", "store"):
            if name == "store" and command.name == "teach":
                continue
            folder = work.place(f"read-only-{name}").folder
            with small_disk(folder / name) as disk:
                place = Place(folder)
                if name == "store":
                    place.run(command, fork=True)
                subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
                mend = partial(subprocess.run, ["mount", "-o", "remount,rw", disk], check=True)
                where = "results" if name == "out" else "store"
                yield judge(work, f"read-only {where}", command, place, mend, place.run(command, fork=True))


def shared_store(work: Work, rounds: int) -> Iterator[Outcome]:
    """Four processes share a store that a fifth clears without pause."""
    shared = work.place("shared")
    names = ("procure", "adapt", "predict", "compare")
    clearer = subprocess.Popen(
        [sys.executable, "-c", CLEARER, shared.store], env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    )
    try:
        for _ in range(rounds):
            places = [work.place("one-of-four") for _ in names]
            env = {"USFDA_CACHE": str(shared.store)}
            begun = [place.start(work.commands[name], env) for name, place in zip(names, places, strict=True)]
            ended = [place.finish(process) for place, process in zip(places, begun, strict=True)]
            for name, place, end in zip(names, places, ended, strict=True):
                try:
                    check_silence(end.said)
                    if end.code:
                        raise Unsound(end.message)
                    work.check_equal(work.commands[name], place)
                    warned = [line for line in end.said.splitlines() if line.startswith("warning:")]
                    yield Outcome("store cleared by others", name, True, warned[0] if warned else "")
                except Unsound as error:
                    yield Outcome("store cleared by others", name, False, str(error))
                place.remove()
            if clearer.poll() is not None:
                yield Outcome("store cleared by others", "cache clear", False, f"exit code {clearer.returncode}")
    finally:
        clearer.kill()
        clearer.wait()
    shared.remove()


@contextmanager
def jumping_clock(folder: Path, rng: random.Random) -> Iterator[dict[str, str] | None]:
    """An environment in which the time of day jumps by up to ten years, twenty times a second; monotonic time does not.

    None where libfaketime is not installed.
    """
    found = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
    if found is None:
        yield None
        return
    file, stop = folder / "now", Event()

    def jump() -> None:
        while not stop.is_set():
            now = datetime.datetime.now() + datetime.timedelta(days=rng.uniform(-3650, 3650))
            file.with_suffix(".new").write_text(now.strftime("@%Y-%m-%d %H:%M:%S"))
            file.with_suffix(".new").replace(file)
            time.sleep(0.05)

    thread = Thread(target=jump)
    thread.start()
    try:
        yield {
            "LD_PRELOAD": str(found), "FAKETIME_TIMESTAMP_FILE": str(file), "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }  # fmt: skip
    finally:
        stop.set()
        thread.join()


def clock(work: Work, rng: random.Random) -> Iterator[Outcome]:
    """The time of day jumps while a command runs."""
    place = work.place("clock")
    with jumping_clock(place.folder, rng) as env:
        if env is None:
            return
        time.sleep(0.2)
        for command in work.commands.values():
            here = work.place("jumps")
            yield judge(work, "clock that jumps", command, here, int, here.run(command, env))
            here.remove()
        os.environ |= env
        try:
            photos = write_grainy_photos(place.folder / "photos", [0, 1, 4, 5], 10)
            episode = service.Episode(work, place.out / "data", iter(photos))
            with service.serving(work, episode.data) as (_, web):
                episode.send(web, 24)
                episode.adapt(web)
                episode.models = {web.post("/adapt/accept").json()["model"]}
            with service.serving(work, episode.data) as (_, web):
                episode.check(web)
            yield Outcome("clock that jumps", "serve", True)
        except Unsound as error:
            yield Outcome("clock that jumps", "serve", False, str(error))
        finally:
            for name in env:
                del os.environ[name]
    place.remove()


def handles(work: Work) -> Iterator[Outcome]:
    """Few file handles."""
    for most in HANDLES:
        yield from _limited(work, "few file handles", partial(limit, resource.RLIMIT_NOFILE, most), fork=True)
    yield from service.few_handles(work)


def memory(work: Work, from_start: Sequence[int] = MEMORY, later: Sequence[int] = MORE) -> Iterator[Outcome]:
    """Little address space, for programs of their own: a fork has the stacks of threads that are no more."""
    for most in from_start:
        before = partial(limit, resource.RLIMIT_AS, most << 20)
        yield from _limited(work, "little memory from the start", before, fork=False)
    for more in later:
        for command in work.commands.values():
            if command.forks and command.name != "teach":  # which needs no feature
                place = work.place("limited")
                process = place.start(command)
                limit_memory(process, place, more << 20)
                yield judge(work, "little memory during the work", command, place, int, place.finish(process))
                place.remove()


def limit_memory(process: Process, place: Place, more: int) -> None:
    """To what the process has when its workers have begun, and a little more.

    A thread is started where there was room for it a moment before. A limit that comes from outside in that very moment
    is not what happens to a user, and Python waits for such a thread for ever.
    """
    until, before = time.monotonic() + PATIENCE, 0
    tasks = Path(f"/proc/{process.pid}/task")
    with suppress(OSError, ProcessLookupError):  # it may be done
        while process.poll() is None and time.monotonic() < until:
            threads = sum(1 for _ in tasks.iterdir())
            if not any(place.store.rglob("*.sqlite")):
                before = threads
            elif threads >= before + 3:  # the bar's, and two workers
                time.sleep(0.02)  # in which the last one takes what it begins with
                break
            time.sleep(0.001)
        pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + more
        resource.prlimit(process.pid, resource.RLIMIT_AS, (most, most))


def _limited(work: Work, fault: str, before: Callable[[], object], *, fork: bool) -> Iterator[Outcome]:
    for command in work.commands.values():
        if command.forks:
            place = work.place("limited")
            yield judge(work, fault, command, place, int, place.run(command, before=before, fork=fork))
            place.remove()


def worker_killed(work: Work, rng: random.Random) -> Iterator[Outcome]:
    """A process of compare is killed, once from outside and then by every run of a method; and the one of serve."""
    command, own = work.commands["compare"], work.folder / "own.py"
    place = work.place("worker")
    process = place.start(command)
    until = time.monotonic() + PATIENCE
    while process.poll() is None and not (place.out / "runs.jsonl").exists() and time.monotonic() < until:
        time.sleep(0.01)
    for _ in range(200):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        for pid in children.read_text().split() if children.exists() else ():
            with Path(f"/proc/{pid}/cmdline").open("rb") as line:
                if b"LokyProcess" in line.read():
                    os.kill(int(pid), 9)
                    break
        else:
            time.sleep(0.05)
            continue
        break
    yield judge(work, "worker killed for memory", command, place, int, place.finish(process))
    place.remove()
    place = work.place("worker")
    args = tuple(f"{own}:Killed,{own}:Nearest" if "own.py" in arg else arg for arg in command.args)
    ended = place.run(Command("compare", args, command.outputs))
    records = journal(place.out / "runs.jsonl")
    failed = [record for record in records if "error" in record]
    sound = ended.code == 1 and len(records) == 4 and {r["key"]["method"] for r in failed} == {f"{own}:Killed"}
    message = next((line for line in ended.said.splitlines() if line.startswith("warning:")), ended.message)
    sound = sound and "Traceback" not in ended.said
    yield Outcome("worker killed for memory", "compare", sound, message.replace(str(work.folder), "…"))
    place.remove()
    yield from service.worker_killed(work, rng)

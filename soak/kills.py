"""Signals at random moments: SIGKILL, Ctrl-C and SIGTERM to procure, adapt, predict, teach and compare."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle
from pathlib import Path

from .process import Process
from .report import Outcome
from .work import OLD, PATIENCE, Command, Place, Unsound, Work

WHOLE = 0.15  # of the commands are started as a user does; the others are forks
LOADING = 4.0  # seconds in which such a command is met: while it loads libraries and begins
CHAIN = 5  # signals in a row at most
WRITES = 4  # changes of files after one of which an aimed signal is sent


def state(place: Place) -> dict[str, int]:
    """Files and their sizes."""
    found = {}
    for part in (place.out, place.store):
        for folder, _, names in os.walk(part):
            for name in names:
                with suppress(FileNotFoundError):
                    found[f"{folder}/{name}"] = Path(folder, name).stat().st_size
    return found


def wait_until_it_listens(process: Process) -> None:
    """Until the program has taken over SIGTERM: before that, on a busy machine for seconds, it is Python that ends."""
    status = Path(f"/proc/{process.pid}/status")
    while process.poll() is None:
        (caught,) = (line.split()[1] for line in status.read_text().splitlines() if line.startswith("SigCgt"))
        if int(caught, 16) >> (signal.SIGTERM - 1) & 1:
            return
        time.sleep(0.001)


def wait_uniformly(process: Process, seconds: float, rng: random.Random) -> None:
    """Until a moment anywhere in its running time."""
    until = time.monotonic() + rng.uniform(0, seconds)
    while process.poll() is None and time.monotonic() < until:
        time.sleep(0.001)


def wait_for_writing(process: Process, place: Place, rng: random.Random) -> None:
    """Until a file has just changed, for the first to the fourth time."""
    before, until = state(place), time.monotonic() + PATIENCE
    for _ in range(rng.randint(1, WRITES)):
        while process.poll() is None and (now := state(place)) == before and time.monotonic() < until:
            time.sleep(0.0005)
        before = now
    time.sleep(rng.uniform(0, 0.002))


def default_signals() -> None:
    """As from a shell: one that runs things in the background lets them ignore Ctrl-C."""
    for sign in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sign, signal.default_int_handler if sign == signal.SIGINT else signal.SIG_DFL)


def strike(work: Work, command: Command, place: Place, sign: signal.Signals, rng: random.Random) -> str | None:
    """Start the command, send a signal at a random moment, check; what it said, or None where it was done before."""
    if command.name != "compare" and rng.random() < 0.5:
        for name in command.outputs:
            (place.out / name).write_bytes(OLD)
    before = (place.out / "runs.jsonl").read_bytes() if (place.out / "runs.jsonl").exists() else b""
    whole = rng.random() < WHOLE
    process = place.start(command, before=default_signals, fork=not whole)
    try:
        if sign != signal.SIGKILL:
            wait_until_it_listens(process)
        if whole:
            wait_uniformly(process, LOADING, rng)
        elif rng.random() < 0.5:
            wait_uniformly(process, work.seconds[command.name], rng)
        else:
            wait_for_writing(process, place, rng)
        struck = process.poll() is None
        process.send_signal(sign)
        ended = place.finish(process)
    finally:
        process.kill()
        process.wait(PATIENCE)
    if not struck or (ended.code == 0 and sign != signal.SIGKILL):  # it was done, or as good as done
        return None
    work.check_whole(command, place)
    if before and not (place.out / "runs.jsonl").read_bytes().startswith(before.rpartition(b"\n")[0]):
        raise Unsound("finished runs were lost")
    if sign != signal.SIGKILL:
        check_farewell(sign, ended.code, ended.said)
    return ended.message if sign != signal.SIGKILL else ""


def check_farewell(sign: signal.Signals, code: int, said: str) -> None:
    """An exit code that says why, and one line."""
    if code != 128 + sign:
        raise Unsound(f"exit code {code} after {sign.name}: {said[-300:]}")
    check_words(said)


def check_words(said: str) -> None:
    """One line that begins with *error*, and no trace of Python."""
    if "Traceback" in said or "Exception ignored" in said:
        raise Unsound(f"a traceback is shown: …{said[-600:]}")
    if said.count("error:") != 1:
        raise Unsound(f"not one message: {said[-300:]!r}")


def signals(work: Work, sign: signal.Signals, count: int, rng: random.Random) -> Iterator[Outcome]:
    """So many signals over the commands, some in a row before a command is let through."""
    names = {signal.SIGKILL: "SIGKILL", signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}
    quick = [command for command in work.commands.values() if command.forks]
    slow = [command for command in work.commands.values() if not command.forks]
    sent = 0
    for command in cycle([*quick, *quick, *slow]):
        if sent >= count:
            return
        place = work.place(command.name)
        messages: list[str] = []
        try:
            for _ in range(min(rng.randint(1, CHAIN), count - sent)):
                said = strike(work, command, place, sign, rng)
                if said is not None:
                    messages.append(said)
            ended = place.run(command, fork=True)
            if ended.code:
                raise Unsound(f"the next call fails: {ended.message}")
            work.check_equal(command, place)
            place.remove()
        except Unsound as error:
            yield Outcome(names[sign], command.name, False, str(error), max(1, len(messages)))
            sent += max(1, len(messages))
            continue
        for said in messages:
            yield Outcome(names[sign], command.name, True, said)
        sent += len(messages)

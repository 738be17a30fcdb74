"""Faults of `usfda serve`: killed while it receives, adapts, accepts and teaches; a full disk; few file handles."""

from __future__ import annotations

import hashlib
import os
import random
import resource
import secrets
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread, Timer
from typing import Any

import httpx
from serving import Client, Program, client, program, write_grainy_photos

from .report import Outcome
from .work import MARK, PATIENCE, Unsound, Work, model

MOMENTS = ("sending", "sending", "adapting", "accepting", "teaching")
TAUGHT = "something new"


def sha256(file: Path) -> str:
    """Of a file's content."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


@contextmanager
def serving(work: Work, data: Path) -> Iterator[tuple[Program, Client]]:
    """A service, killed in the end if it still runs; nothing that it started may outlast it."""
    mark = secrets.token_hex(8)
    os.environ[MARK] = mark  # which the service inherits
    try:
        with program(work.vendor, "--data", data, "--threads", "2") as started, client(started.port) as web:
            yield started, web
    finally:
        del os.environ[MARK]
    until = time.monotonic() + PATIENCE
    while any(_has(file, mark) for file in Path("/proc").glob("[0-9]*/environ")):
        if time.monotonic() > until:
            raise Unsound("a process of the service is left behind")
        time.sleep(0.05)


def _has(environ: Path, mark: str) -> bool:
    with suppress(OSError):
        return f"{MARK}={mark}".encode() in environ.read_bytes()
    return False


class Episode:
    """One folder of data, and what the service has acknowledged of it."""

    def __init__(self, work: Work, data: Path, photos: Iterator[Path]):
        self.work, self.data, self.photos = work, data, photos
        self.acknowledged: list[str] = []
        self.models = {sha256(work.vendor)}  # one of which must serve

    def check(self, web: Client) -> dict[str, Any]:
        """After a restart all that was acknowledged is there and whole, and nothing else; the model that serves."""
        for key in self.acknowledged:
            if web.get(f"/kept/{key}").status_code != 200:
                raise Unsound("an image that was acknowledged is lost")
        for file in (self.data / "images").iterdir():
            if not file.name.partition("-")[2].startswith(sha256(file)):
                raise Unsound(f"images/{file.name} is half-written or left behind")
        for file in (self.data / "models").iterdir():
            if (file.suffix == ".usfda" and file.stem != sha256(file)) or file.name.startswith("."):
                raise Unsound(f"models/{file.name} is half-written or left behind")
        found: dict[str, Any] = web.get("/model").json()
        if found["hash"] not in self.models:
            raise Unsound("neither the model before nor the one after the kill serves")
        self.models = {found["hash"]}
        return found

    def send(self, web: Client, count: int) -> None:
        """Images one by one, each acknowledged."""
        for _ in range(count):
            file = next(self.photos)
            answer = web.send_images([file])
            if answer.status_code != 200:
                raise Unsound(f"{answer.status_code}: {answer.text}")
            self.acknowledged.append(sha256(file))

    def adapt(self, web: Client) -> None:
        """Until the adapted model can be accepted."""
        if web.post("/adapt").status_code != 202 or web.wait("ready", "failed")["state"] != "ready":
            raise Unsound("the adaptation fails")

    def until_killed(self, started: Program, seconds: float, work: Any) -> None:
        """Do something, and kill the service meanwhile."""
        killer = Timer(seconds, started.process.kill)
        killer.start()
        with suppress(httpx.TransportError):
            work()
        killer.join()
        started.wait()

    def kill(self, moment: str, rng: random.Random) -> None:
        """Start, check, do something, and be killed."""
        with serving(self.work, self.data) as (started, web):
            now = self.check(web)
            if moment == "sending":
                self.send(web, 8)
                self.until_killed(started, rng.uniform(0, 0.3), lambda: self.send(web, 1000))
                return
            if moment == "adapting":
                web.post("/adapt")
                self.until_killed(started, rng.uniform(0, 4), lambda: web.wait("ready"))
                return
            if moment == "accepting":
                self.adapt(web)
                self.models |= {sha256(self.data / "models" / "candidate.usfda")}
                action: tuple[str, Any] = "/adapt/accept", None
            else:
                if now["hash"] == sha256(self.work.vendor):
                    self.adapt(web)
                    self.models = {web.post("/adapt/accept").json()["model"]}
                action = "/teach", {"1": TAUGHT}

            def change() -> None:
                self.models = {web.post(action[0], json=action[1]).json()["model"]}

            before = set(self.models)
            self.until_killed(started, rng.uniform(0, 0.1), change)
            if (
                self.models == before and moment == "teaching"
            ):  # unanswered: what it made is one of those that may serve
                self.models |= {file.stem for file in (self.data / "models").glob("*.usfda")}

    def end(self) -> tuple[Any, Any]:
        """Finish undisturbed what was begun: the model, and what it answers."""
        with serving(self.work, self.data) as (started, web):
            now = self.check(web)
            if now["hash"] == sha256(self.work.vendor):
                self.adapt(web)
                now["hash"] = web.post("/adapt/accept").json()["model"]
            if TAUGHT not in now["classes"]:
                taught = web.post("/teach", json={"1": TAUGHT})
                if taught.status_code != 200:
                    raise Unsound(f"teach: {taught.text}")
                now["hash"] = taught.json()["model"]
            files = sorted(self.work.target.rglob("*.png"))[::10]
            answers = web.send_images(files, keep="false").json()["results"]
            if started.end(signal.SIGTERM) != 0:
                raise Unsound("SIGTERM: the exit code is not 0")
        return model(self.data / "models" / f"{now['hash']}.usfda"), answers


def kills(work: Work, count: int, rng: random.Random) -> Iterator[Outcome]:
    """So many kills, five to an episode, which ends as a service that was sent the same images undisturbed."""
    done = 0
    while done < count:
        place = work.place("serve")
        photos = iter(write_grainy_photos(place.folder / "photos", [0, 1, 4, 5], 100))
        episode = Episode(work, place.out / "data", photos)
        moments = MOMENTS[: count - done]
        done += len(moments)
        try:
            for moment in moments:
                episode.kill(moment, rng)
            if len(episode.acknowledged) < 16:
                raise Unsound("too few images were acknowledged to adapt to")
            disturbed = episode.end()
            kept = iter(sorted((episode.data / "images").iterdir()))
            other = Episode(work, place.out / "other", kept)
            with serving(work, other.data) as (_, web):
                other.send(web, len(list((episode.data / "images").iterdir())))
            if other.end() != disturbed:
                raise Unsound("the model or its answers are not those of an undisturbed service")
            place.remove()
            yield from (Outcome("SIGKILL", f"serve, {moment}", True) for moment in moments)
        except Unsound as error:
            yield Outcome("SIGKILL", "serve", False, str(error), len(moments))


def worker_killed(work: Work, rng: random.Random) -> Iterator[Outcome]:
    """The process that adapts is killed, as the kernel does where memory runs out."""
    place = work.place("worker")
    photos = iter(write_grainy_photos(place.folder / "photos", [0, 1, 4, 5], 20))
    episode = Episode(work, place.out / "data", photos)
    sound, message = False, ""
    with serving(work, episode.data) as (started, web):
        episode.send(web, 24)
        web.post("/adapt")
        time.sleep(rng.uniform(0, 0.5))
        for child in Path(f"/proc/{started.process.pid}/task").glob("*/children"):
            for pid in child.read_text().split():
                os.kill(int(pid), signal.SIGKILL)
        state = web.wait("failed", "ready")["state"]
        episode.send(web, 1)
        episode.adapt(web)
        started.end(signal.SIGTERM)
        message = next((line for line in started.said.splitlines() if "adaptation failed" in line), "")
        sound = state == "failed" and "memory" in message
    yield Outcome("worker killed for memory", "serve", sound, message)
    place.remove()


def full_disk(work: Work, data: Path, fill: Any, free: Any) -> Iterator[Outcome]:
    """The disk of the data folder fills up while it serves: it answers, says so, and goes on when there is room."""
    place = work.place("full")
    photos = write_grainy_photos(place.folder / "photos", [0, 1, 4, 5], 40)
    episode = Episode(work, data, iter(photos))
    message = "the answers fail"
    try:
        with serving(work, data) as (started, web):
            episode.send(web, 24)
            fill()
            codes = {web.send_images([file]).status_code for file in photos[30:40] + photos[:4]}
            codes |= {web.get("/model").status_code, web.get("/metrics").status_code}
            if codes != {200}:
                raise Unsound(f"answers on a full disk: {sorted(codes)}")
            web.post("/adapt")
            failed = web.wait("failed", "ready")["state"]
            free()
            episode.send(web, 2)
            episode.adapt(web)
            if web.post("/adapt/accept").status_code != 200:
                raise Unsound("accepting fails when there is room again")
            episode.models = {web.get("/model").json()["hash"]}
            started.end(signal.SIGKILL)
            said = started.said
        with serving(work, data) as (_, web):
            episode.check(web)
        lines = [line for line in said.splitlines() if "warning" in line or "error" in line]
        if "Traceback" in said or not lines:
            raise Unsound(f"what it said: {said}")
        message = "; ".join(dict.fromkeys([lines[0], lines[-1]])) + f" (adaptation meanwhile: {failed})"
        yield Outcome("full disk", "serve", True, message.replace(str(data), "…"))
    except Unsound as error:
        yield Outcome("full disk", "serve", False, str(error))
    place.remove()


def few_handles(work: Work) -> Iterator[Outcome]:
    """A service that is left with few file handles refuses some connections and lives on."""
    place = work.place("handles")
    photos = iter(write_grainy_photos(place.folder / "photos", [0, 1, 4, 5], 20))
    episode = Episode(work, place.out / "data", photos)
    try:
        with serving(work, episode.data) as (started, web):
            episode.send(web, 18)
            pid = started.process.pid
            used, most = len(list(Path(f"/proc/{pid}/fd").iterdir())), resource.prlimit(pid, resource.RLIMIT_NOFILE)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 1, most[1]))
            threads = [Thread(target=_ask, args=(started.port,)) for _ in range(20)]
            for thread in threads:
                thread.start()
            with suppress(httpx.TransportError):  # it may wait for a handle
                web.post("/adapt", timeout=10)
            for thread in threads:
                thread.join()
            resource.prlimit(pid, resource.RLIMIT_NOFILE, most)
            if web.get("/healthz").status_code != 200:
                raise Unsound("it does not answer any more")
            if web.get("/adapt").json()["state"] == "running":
                web.post("/adapt/discard")
            episode.send(web, 2)
            episode.adapt(web)
            code = started.end(signal.SIGTERM)
            lines = [line for line in started.said.splitlines() if "Too many" in line or "out of" in line]
            if code or "Traceback" in started.said:
                raise Unsound(f"exit code {code}: {started.said[-500:]}")
        yield Outcome("few file handles", "serve", True, lines[0] if lines else "")
    except (Unsound, httpx.TransportError) as error:
        yield Outcome("few file handles", "serve", False, str(error))
    place.remove()


def _ask(port: int) -> None:
    with suppress(httpx.TransportError), client(port) as web:
        web.get("/healthz", timeout=5)

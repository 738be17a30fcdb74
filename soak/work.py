"""The commands on small made images: how each is called, what it writes, and what counts as the same result."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import secrets
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from conftest import write_photos

from usfda.backbones.zoo import get_backbone
from usfda.errors import InputError
from usfda.features.store import FILES, Store
from usfda.modelfile import read_model_file

from .process import Process, start

BACKBONE = "pixels"
OLD = b"an older file of this name"
PATIENCE = 300  # seconds after which something that should happen has not, which is unsound
MARK = "USFDA_SOAK"  # in the environment of a command and of all that it starts
TIMES = ("seconds", "_seconds")  # ends of names of values that differ from run to run

BASELINE = """
import os, signal, time
import numpy as np
from usfda.experiments.baselines.api import Baseline, Decision


class Nearest(Baseline):
    source_free = True
    rejects = "never"

    def learn(self, source):
        X = source.X[:]
        self.means = np.stack([X[source.y == c].mean(0) for c in range(len(source.classes))])

    def adapt(self, X, source):
        time.sleep(0.2)

    def decide(self, X):
        distance = np.linalg.norm(X[:][:, None] - self.means, axis=2)
        return Decision(distance.argmin(1), np.ones(len(X), bool), 1 / (1 + distance.min(1)))


class Again(Nearest):
    pass


class Killed(Nearest):
    def adapt(self, X, source):
        os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does where memory runs out
"""


class Unsound(Exception):
    """Something is damaged, lost or left behind; the message says what."""


def without_times(value: Any) -> Any:
    """A JSON value without what was measured with a clock."""
    if isinstance(value, Mapping):
        return {k: without_times(v) for k, v in value.items() if not k.endswith(TIMES)}
    return [without_times(v) for v in value] if isinstance(value, list) else value


def model(file: Path) -> Any:
    """All of a model file but the seconds in its card."""
    found = read_model_file(file)
    tensors = {name: (t.dtype.str, t.shape, t.tobytes()) for name, t in found.tensors.items()}
    return without_times(found.card), tensors, hashlib.sha256(found.backbone or b"").hexdigest()


def document(file: Path) -> Any:
    """A JSON file; the runs of a comparison in an order that does not depend on which was finished first."""
    content = without_times(json.loads(file.read_bytes()))
    if "runs" in content:
        content["runs"].sort(key=lambda run: json.dumps(run["key"]))
    return content


def rows(file: Path) -> Any:
    """A CSV file."""
    with file.open(newline="") as lines:
        return [without_times(row) for row in csv.DictReader(lines)]


def lines(file: Path) -> Any:
    """How many lines a text has, in which seconds stand; the last one is complete."""
    content = file.read_text()
    if not content.endswith("\n"):
        raise ValueError("its last line is cut off")
    return content.count("\n")


def journal(file: Path) -> Any:
    """The records of a comparison; what a kill left of the last line does not count."""
    whole = file.read_bytes().rpartition(b"\n")[0].splitlines()
    records = [json.loads(line) for line in whole if line]
    if len({json.dumps(record["key"]) for record in records}) != len(records):
        raise ValueError("a finished run was repeated")
    return sorted((without_times(record) for record in records), key=lambda record: json.dumps(record["key"]))


@dataclass(frozen=True)
class Command:
    """A command, what it writes, and how each file is read to be compared."""

    name: str
    args: tuple[str, ...]
    outputs: Mapping[str, Callable[[Path], Any]]
    forks: bool = True  # whether a fork can run it: one cannot start joblib's processes


@dataclass
class Finished:
    """How a command ended, and what it said."""

    code: int
    said: str

    @property
    def message(self) -> str:
        """The last thing that it said, without the place of this campaign."""
        found = [line.strip() for line in self.said.splitlines() if line.strip()]
        return found[-1] if found else ""


@dataclass
class Place:
    """A folder of its own for one trial: what the command writes, and the feature store."""

    folder: Path
    mark: str = field(default_factory=lambda: secrets.token_hex(8))

    def __post_init__(self) -> None:
        for part in (self.out, self.store):
            part.mkdir(parents=True, exist_ok=True)

    @property
    def out(self) -> Path:
        """Where the command runs and writes."""
        return self.folder / "out"

    @property
    def store(self) -> Path:
        """Its features."""
        return self.folder / "store"

    def start(
        self,
        command: Command,
        env: Mapping[str, str] | None = None,
        *,
        before: Callable[[], object] | None = None,
        fork: bool = False,
    ) -> Process:
        """Begin; what it says goes to a file."""
        given = {"USFDA_CACHE": str(self.store), MARK: self.mark, "COLUMNS": "1000"}
        given |= {"PYTHONPATH": os.pathsep.join(sys.path), **(env or {})}  # relative ones would not be found
        with (self.folder / "said").open("wb") as said:
            fork = fork and command.forks
            return start(("--threads", "2", *command.args), given, self.out, said.fileno(), before, fork)

    def finish(self, process: Process) -> Finished:
        """Wait for the end, also of all processes that it started."""
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            return Finished(process.wait(), f"it does not end within {PATIENCE} seconds")
        until = time.monotonic() + PATIENCE
        while found := self.running():
            if time.monotonic() > until:
                raise Unsound(f"processes are left behind: {', '.join(found)}")
            time.sleep(0.05)
        said = (self.folder / "said").read_text(errors="replace")
        for place in (str(self.folder), sys.prefix):
            said = said.replace(place, "…")
        return Finished(code, said)

    def run(self, command: Command, env: Mapping[str, str] | None = None, **how: Any) -> Finished:
        """From the beginning to the end."""
        return self.finish(self.start(command, env, **how))

    def running(self) -> list[str]:
        """What still runs of it."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if f"{MARK}={self.mark}".encode() in (process / "environ").read_bytes():
                    found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:80])
        return found

    def remove(self) -> None:
        """When all was well."""
        shutil.rmtree(self.folder)


class Work:
    """Images, models and the results of undisturbed runs."""

    def __init__(self, folder: Path, names: Sequence[str] = ("procure", "adapt", "predict", "teach", "compare")):
        self.folder = folder
        self.source = write_photos(folder / "source", [0, 1, 2, 3], 40)
        self.target = write_photos(folder / "target", [0, 1, 4, 5], 40, seed=1, invert=True)
        self.backbone = get_backbone(BACKBONE)
        self.vendor, self.client = folder / "vendor.usfda", folder / "client.usfda"
        own = folder / "own.py"
        own.write_text(BASELINE)
        vendor = (str(self.source), "--for", "mixture", "--backbone", BACKBONE)
        compared = (str(self.source), str(self.target), "--backbone", BACKBONE, "-o", ".", "--seeds", "2")
        tables = {"results.json": document, "results.csv": rows, "results.md": lines, "runs.jsonl": journal}
        made = (
            Command("procure", ("procure", *vendor, "-o", "m.usfda"), {"m.usfda": model}),
            Command(
                "adapt",
                ("adapt", str(self.vendor), str(self.target), "-o", "m.usfda", "--json", "m.json"),
                {"m.usfda": model, "m.json": document},
            ),
            Command("predict", ("predict", str(self.client), str(self.target), "-o", "p.csv"), {"p.csv": rows}),
            Command("teach", ("teach", str(self.client), "--name", "1=new", "-o", "m.usfda"), {"m.usfda": model}),
            Command(
                "compare",
                ("compare", *compared, "--methods", f"{own}:Nearest,{own}:Again"),
                tables,
                forks=False,
            ),
        )
        self.commands = {command.name: command for command in made if command.name in names}
        self.results: dict[str, Any] = {}
        self.seconds: dict[str, float] = {}  # of a fork
        self.vectors: dict[bytes, bytes] = {}
        for command in self.commands.values():
            place, begun = Place(folder / "undisturbed" / command.name), time.monotonic()
            ended = place.run(command, fork=True)
            self.seconds[command.name] = time.monotonic() - begun
            if ended.code:
                raise RuntimeError(f"{command.name} fails undisturbed: {ended.said}")
            self.results[command.name] = self.read(command, place)
            kept = {"procure": self.vendor, "adapt": self.client}.get(command.name)
            if kept is not None:
                shutil.copy(place.out / "m.usfda", kept)
            self.vectors |= self.stored(place)
            place.remove()

    def place(self, name: str) -> Place:
        """A fresh folder."""
        return Place(self.folder / "trials" / f"{name}-{secrets.token_hex(4)}")

    def read(self, command: Command, place: Place) -> dict[str, Any]:
        """What the command wrote, to be compared."""
        return {name: read(place.out / name) for name, read in command.outputs.items() if (place.out / name).exists()}

    def check_whole(self, command: Command, place: Place) -> None:
        """Every file under its final name is absent, as it was before, or complete; the store is sound."""
        for name, read in command.outputs.items():
            file = place.out / name
            if not file.exists() or file.read_bytes() == OLD:
                continue
            try:
                found = read(file)
            except (ValueError, KeyError) as error:  # also InputError
                raise Unsound(f"{name} is half-written: {error}") from None
            if found != self.results[command.name][name] and read is not journal:
                raise Unsound(f"{name} is not that of an undisturbed run")
        self.stored(place)

    def check_equal(self, command: Command, place: Place) -> None:
        """The command is done: all is as after an undisturbed run, and nothing else is there."""
        for name, value in self.results[command.name].items():
            file = place.out / name
            if not file.exists():
                raise Unsound(f"{name} is missing")
            if command.outputs[name](file) != value:
                raise Unsound(f"{name} is not that of an undisturbed run")
        self.stored(place)
        if found := self.litter(command, place):
            raise Unsound(f"left behind: {', '.join(found)}")

    def litter(self, command: Command, place: Place) -> list[str]:
        """Files that are neither results nor parts of a store."""
        found = [
            str(file.relative_to(place.folder)) for file in place.out.rglob("*") if file.name not in command.outputs
        ]
        for file in (place.store / "features").rglob("*"):
            if file.is_file() and not FILES.fullmatch(file.name):
                found.append(str(file.relative_to(place.folder)))
        return found

    def stored(self, place: Place) -> dict[bytes, bytes]:
        """The vectors of the store; all that have a key are sound, and those of an undisturbed run."""
        folder = place.store / "features" / self.backbone.key[:32]
        newest = max(folder.glob("index-*.sqlite"), default=None)
        if newest is None:
            return {}
        try:
            store = Store(folder, self.backbone.dim)
            with closing(sqlite3.connect(newest)) as db:
                keys = [key for (key,) in db.execute("SELECT key FROM vectors")]
            found, vectors = store.find(keys)
        except (InputError, sqlite3.Error) as error:
            raise Unsound(f"the feature store is damaged: {error}") from None
        if (found < 0).any():
            raise Unsound(f"the feature store has keys without a vector: {int((found < 0).sum())}")
        content = {key: np.asarray(vectors[row]).tobytes() for key, row in zip(keys, found.tolist(), strict=True)}
        if any(self.vectors.get(key, vector) != vector for key, vector in content.items()):
            raise Unsound("the feature store has a wrong vector")
        return content

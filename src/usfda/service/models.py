"""The model that serves, and those before it: files by their sha256, and a small file that names the current one.

``models/SHA256.usfda`` are the models; ``models/state.json`` has, for each model that the service was started with,
what was accepted since. Both appear when they are complete, the model first: after a kill the state is the old or the
new one.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ..backbones.backbone import Backbone
from ..errors import InputError
from ..files import atomic_write, clear_parts, sha256_of
from ..methods.heads import updatable_head
from ..model import Model, load
from ..modelcard import model_file
from ..signing import verify


@dataclass(frozen=True)
class Entry:
    """A model by its file's sha256, and the number of the last kept image that it was adapted to."""

    sha256: str
    seen: int


@dataclass(frozen=True)
class Served:
    """A model that is ready to answer, and its entry."""

    model: Model
    entry: Entry


class Models:
    """The model that serves, ``current``, and those before it.

    Parameters
    ----------
    file : Path
        The model that the service is started with.
    folder : Path
        Where models and state lie; a state that it has of this model is taken up again.
    most : int
        Earlier models that are kept for a rollback.
    signed_by : Path, optional
        The key or certificate that ``file`` must be signed with; those that were made of it later are the service's.
    """

    def __init__(self, file: Path, folder: Path, most: int, signed_by: Path | None = None):
        file = self.given = model_file(file)
        self._folder, self._most = folder / "models", most
        self._folder.mkdir(parents=True, exist_ok=True)
        clear_parts(self._folder, r"(state\.json|[0-9a-z]+\.usfda)")
        self.candidate.unlink(missing_ok=True)
        first = Entry(self._take(file, signed_by), 0)
        self.base = first.sha256
        self._state = self._read()
        self._history = self._state.setdefault(first.sha256, [first])
        entry = self._history[-1]
        serving = self._file(entry.sha256)
        if not serving.is_file() or sha256_of(serving) != entry.sha256:
            raise InputError(f"{serving}: missing or damaged; move {folder / 'models'} away to begin with {file} again")
        try:
            model = self._load(serving, None)
        except InputError as error:
            raise InputError(str(error).replace(str(self._file(first.sha256)), str(file))) from None
        if entry is first:  # it is new to this folder
            entry = self._history[0] = Entry(entry.sha256, self._seen_by(model))
        self.current = Served(model, entry)

    @property
    def backbone(self) -> Backbone:
        """M, which all models of the service share."""
        assert self.current.model.backbone is not None
        return self.current.model.backbone

    @property
    def earlier(self) -> int:
        """How many models a rollback can return to."""
        return len(self._history) - 1

    @property
    def seen(self) -> int:
        """The highest number of an image that any model of the folder was adapted to."""
        return max(entry.seen for entries in self._state.values() for entry in entries)

    @property
    def candidate(self) -> Path:
        """Where a model is written that may be accepted."""
        return self._folder / "candidate.usfda"

    def file(self) -> Path:
        """Of the model that serves."""
        return self._file(self.current.entry.sha256)

    def accept(self, seen: int) -> Served:
        """Make the candidate the model that serves."""
        sha256 = sha256_of(self.candidate)
        served = Served(self._load(self.candidate, self.backbone), Entry(sha256, seen))
        self.candidate.replace(self._file(sha256))
        return self._serve([*self._history, served.entry][-1 - self._most :], served)

    def add(self, model: Model) -> Served:
        """Make a model that was made of the present one the model that serves."""
        model.save(self.candidate)
        return self.accept(self.current.entry.seen)

    def rollback(self) -> Served:
        """Return to the model before the present one."""
        entry = self._history[-2]
        return self._serve(self._history[:-1], Served(self._load(self._file(entry.sha256), self.backbone), entry))

    def _serve(self, history: list[Entry], served: Served) -> Served:
        self._state[self.base] = history
        with atomic_write(self._folder / "state.json") as out:
            state = {base: [asdict(entry) for entry in entries] for base, entries in self._state.items()}
            out.write(json.dumps(state, indent=1).encode())
        self._history, self.current = history, served
        named = {entry.sha256 for entries in self._state.values() for entry in entries} | set(self._state)
        for file in self._folder.glob("*.usfda"):
            if file.stem not in named:
                file.unlink()
        return served

    def _seen_by(self, model: Model) -> int:
        """The last kept image that a model new here has had: as of an accepted one with the same coreset."""
        if (served := updatable_head(model.head)) is not None:
            # Teaching changes all but the coreset.
            for entry in {entry for entries in self._state.values() for entry in entries if entry.seen}:
                with suppress(InputError):  # a file that is damaged or gone is left out
                    head = updatable_head(load(self._file(entry.sha256)).head)
                    if head is not None and np.array_equal(head.coreset, served.coreset):
                        return entry.seen
        return 0

    def _take(self, file: Path, signed_by: Path | None) -> str:
        """Copy the model to the others, so that a rollback finds it even if its file is gone; its sha256."""
        if not file.is_file():
            raise InputError(f"{file}: no such model file")
        signed = None if signed_by is None else verify(file, signed_by)
        content = file.read_bytes()
        sha256 = hashlib.sha256(content).hexdigest()
        if signed not in (None, sha256):
            raise InputError(f"{file}: was exchanged while its signature was checked")
        if not self._file(sha256).exists():
            with atomic_write(self._file(sha256)) as out:
                out.write(content)
        return sha256

    def _read(self) -> dict[str, list[Entry]]:
        file = self._folder / "state.json"
        if not file.exists():
            return {}
        try:
            state = json.loads(file.read_bytes())
            return {base: [Entry(**entry) for entry in entries] for base, entries in state.items()}
        except (ValueError, TypeError, AttributeError):
            raise InputError(f"{file}: damaged; move it away to begin with the model that is given") from None

    def _load(self, file: Path, backbone: Backbone | None) -> Model:
        model = load(file)
        if model.backbone is None:
            raise InputError(f"{file}: was saved without its backbone, which a service needs")
        if backbone is not None:
            model.use_backbone(backbone)  # whose session is there already
        return model

    def _file(self, sha256: str) -> Path:
        return self._folder / f"{sha256}.usfda"

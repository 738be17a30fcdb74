"""A model in a folder that a hub can hold: the names of its file and of its page."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import InputError

FILE = "model.usfda"  # the model in a folder that a hub can hold
PAGE = "README.md"  # its page there


def model_file(path: Path) -> Path:
    """The model file: the path itself, or what lies in a folder that can be handed to a hub."""
    if not os.path.isdir(path):  # noqa: PTH112 (Path.is_dir raises OSError for a name that is too long)
        return path
    if not (path / FILE).is_file():
        raise InputError(f"{path}: a folder, and no {FILE} is in it; name a .usfda file")
    return path / FILE

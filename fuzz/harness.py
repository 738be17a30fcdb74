"""What every harness is: inputs to begin with, one input tried, and a way to change an input that keeps it whole."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from random import Random

NAMES = ("model_file", "graph", "lists", "images", "uploads")
# Beside usfda: whose code the input leads through as well.
INSTRUMENTED = {"images": ["PIL"], "uploads": ["python_multipart", "starlette.formparsers"]}
Change = Callable[[bytes, int], bytes]  # of an input, into one of at most so many bytes; by libFuzzer, or by a test


class Harness(ABC):
    """A part of the project that takes a stranger's bytes.

    Parameters
    ----------
    folder : Path
        Where it may write.
    """

    longest = 2**14  # bytes of an input
    memory = 128  # MiB that an input may take beyond what the process holds after the seeds

    def __init__(self, folder: Path):
        self.folder = folder

    @abstractmethod
    def seeds(self) -> list[bytes]:
        """Small valid inputs."""

    @abstractmethod
    def one_input(self, data: bytes) -> None:
        """Return for a result or for an error that is the input's fault; anything that is raised is a finding."""

    def mutate(self, data: bytes, most: int, random: Random, change: Change) -> bytes:
        """Change an input so that it gets past checksums and sizes."""
        return change(data, most)

    def close(self) -> None:  # noqa: B027 (most have nothing to end)
        """End what runs."""


def make(name: str, folder: Path) -> Harness:
    """The harness of a name."""
    found: Harness = import_module(f"fuzz.{name}").Fuzzed(folder)
    return found

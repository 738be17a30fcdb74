"""What a client may ask of the service, and what it may hold."""

from __future__ import annotations

from dataclasses import dataclass

from ..methods.settings import FEW

MiB = 2**20


@dataclass(frozen=True)
class Limits:
    """Bounds; those on the pixels and the decoded bytes of an image are of ``data/images.py``.

    Parameters
    ----------
    body : int
        Bytes of an upload.
    command : int
        Bytes of any other body.
    files : int
        Files in an upload.
    pieces : int
        Of a body that may be smaller than 256 bytes on average: each of them costs as much time as a large one.
    held : int
        Bytes of all uploads that are read or worked on at the same time.
    waiting : int
        Images of all requests that wait for their vector.
    seconds : float
        In which a body must have arrived.
    idle : float
        Seconds in which a connection must have sent the head of a request, and in which it must take in an answer.
    connections : int
        At the same time.
    memory_images, memory_bytes : int
        Images that are kept in memory; the oldest make way.
    disk_images, disk_bytes : int
        Images that are kept on disk, likewise.
    forgotten : int
        Images that made way after an adaptation to them and are known by their sha256 when they come again.
    needed : int
        Images without which no adaptation starts: fewer say too little about their domain.
    models : int
        Earlier models that a rollback can return to.
    """

    body: int = 64 * MiB
    command: int = MiB // 16
    files: int = 256
    pieces: int = 4096
    held: int = 512 * MiB
    waiting: int = 2048
    seconds: float = 60
    idle: float = 15
    connections: int = 512
    memory_images: int = 5000
    memory_bytes: int = 512 * MiB
    disk_images: int = 100_000
    disk_bytes: int = 16 * 1024 * MiB
    forgotten: int = 100_000
    needed: int = FEW
    models: int = 10

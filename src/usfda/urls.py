"""Files behind URLs, as ``s3://bucket/photo.jpg``: whatever fsspec can reach. No message shows a password."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import unquote

from .errors import InputError, UnreadableImage

SCHEME = re.compile(r"([a-z][a-z0-9+.-]+)://")
EXTRAS = {"s3": "s3", "s3a": "s3"}  # what we install for a scheme; for others fsspec names the package
WEB = ("http", "https")


@dataclass(frozen=True)
class Url:
    """A file, or a folder, that fsspec reaches by a URL. As text it is without a password or a signature."""

    url: str

    def __str__(self) -> str:
        scheme, _, rest = self.url.partition("://")
        place, slash, path = rest.partition("/")
        if scheme in ("http", "https"):  # elsewhere these are characters like any others
            path = path.partition("?")[0].partition("#")[0]
        return f"{scheme}://{place.rpartition('@')[2]}{slash}{path}"

    @property
    def name(self) -> str:
        """What follows the last slash."""
        return PurePosixPath(str(self)).name

    @property
    def suffix(self) -> str:
        """The suffix of its name."""
        return PurePosixPath(str(self)).suffix

    @property
    def parent(self) -> Url:
        """The folder that it lies in."""
        return Url(self.url.rsplit("/", 1)[0])

    def __truediv__(self, name: str) -> Url:
        return Url(f"{self.url.rstrip('/')}/{name}")


def is_url(source: Any) -> bool:
    """Whether a text is a URL."""
    return isinstance(source, str) and SCHEME.match(source) is not None


def place_of(text: str | PathLike[str] | Url, folder: Path | Url | None = None) -> Path | Url:
    """What a text names: a URL, or a path, which may be relative to a folder.

    A list that came from a URL names no file of this machine.
    """
    if isinstance(text, Url):
        return text
    if isinstance(text, str) and text.startswith("file://") and not isinstance(folder, Url):
        return Path(unquote(text.removeprefix("file://")))
    if isinstance(text, str) and is_url(text):
        return Url(text)
    return Path(text) if folder is None else folder / str(text)


def filesystem(url: Url) -> tuple[Any, str]:
    """Fsspec's view of a URL: its file system, and the path there."""
    scheme = url.url.partition("://")[0]
    try:
        from fsspec.core import url_to_fs

        fs, path = url_to_fs(url.url)
    except ImportError as error:
        wanted = f"pip install 'usfda[{EXTRAS[scheme]}]'" if scheme in EXTRAS else str(error)
        raise InputError(f"{scheme}:// needs: {wanted}") from None
    except ValueError:
        raise InputError(f"{url}: {scheme}:// is no kind of URL that fsspec knows") from None
    return fs, path


def read_url(url: Url, most: int) -> bytes:
    """The content of a file of at most ``most`` bytes; ``UnreadableImage`` has the reason if there is none."""
    fs, path = filesystem(url)
    try:
        if url.url.startswith(WEB):  # where a server need not heed the range that is asked for
            with fs.open(path, "rb") as file:
                content: bytes = file.read(most + 1)
        else:
            content = fs.cat_file(path, start=0, end=most + 1)
    except MemoryError:
        raise
    except Exception as error:
        raise UnreadableImage(_reason(error, "file")) from None
    if len(content) > most:
        raise UnreadableImage(f"refused: a file of more than {most >> 20} MiB")
    if not content:
        raise UnreadableImage("empty file")
    return content


@contextmanager
def _asking(url: Url) -> Iterator[None]:
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:
        raise InputError(f"{url}: {_reason(error, 'file or folder')}") from None


def _reason(error: Exception, what: str) -> str:
    """Every file system has errors of its own, by their kind alone: the text of one may quote a signed URL."""
    if isinstance(error, FileNotFoundError):
        if not isinstance(error.__cause__, OSError):
            return f"no such {what}"
        error = error.__cause__  # on the web, fsspec takes a host that cannot be reached for a missing file
    return f"cannot be reached ({type(error).__name__})"


def files_below(url: Url) -> list[str]:
    """The paths of all files below a folder, relative to it."""
    fs, path = filesystem(url)
    with _asking(url):
        found = fs.find(path)
        if not found and url.url.startswith(WEB):
            fs.ls(path)  # an error that find, which goes on without what cannot be listed, does not raise
    return [name.removeprefix(path.rstrip("/")).lstrip("/") for name in found]


@contextmanager
def fetched(url: Url, most: int) -> Iterator[Path]:
    """A local copy of a file of at most ``most`` bytes, for as long as the context lasts."""
    fs, path = filesystem(url)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "copy")
        with _asking(url):
            if (fs.size(path) or 0) > most:
                raise InputError(f"{url}: refused, a file of more than {most >> 20} MiB")
            fs.get_file(path, str(copy))
        yield copy


@contextmanager
def sent(url: Url) -> Iterator[IO[bytes]]:
    """A local file that is sent, as a whole, at the end of the context; after an error nothing is."""
    fs, path = filesystem(url)
    with tempfile.NamedTemporaryFile() as file:
        yield file
        file.flush()
        with _asking(url):
            fs.put_file(file.name, path)

"""Images: the bytes of a file in, upright RGB pixels out, within a bound on what they may take.

What decoding takes is reckoned from the header before anything is decoded. A large image is then converted strip by
strip and made smaller on the way, so that there is never a second copy of it in full size.
"""

from __future__ import annotations

import errno
import io
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import BinaryIO, Literal

import numpy as np
from PIL import ExifTags, Image, ImageFile
from PIL import TiffImagePlugin as Tiff

from ..errors import InputError, UnreadableImage
from ..urls import Url, read_url
from .containers import check_container
from .samples import Held, Place

FORMATS = {
    "JPEG": (".jpg", ".jpeg", ".jpe", ".jfif"),
    "PNG": (".png",),
    "BMP": (".bmp", ".dib"),
    "GIF": (".gif",),
    "TIFF": (".tif", ".tiff"),
    "WEBP": (".webp",),
    "PPM": (".ppm", ".pgm", ".pbm"),
    "AVIF": (".avif",),
    "HEIF": (".heic", ".heif"),  # with the library that the extra `heic` installs
}
SUFFIXES = {suffix for suffixes in FORMATS.values() for suffix in suffixes}
# What else may be meant as a picture, and is not read: a folder with such files gives a warning.
OTHER_PICTURES = {
    ".pdf", ".svg", ".psd", ".ai", ".eps", ".xcf", ".jxl", ".jp2", ".ico", ".tga",
    ".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".raf", ".rw2",
    ".mp4", ".mov", ".avi", ".mkv", ".webm",
}  # fmt: skip

ARCHIVES = {".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z", ".rar"}  # nothing is unpacked here

MAX_PIXELS = 89_478_485  # of a decoded image; beyond it parts of Pillow warn of a bomb on their own account
MAX_FILE = 2**28  # bytes on disk beyond which a file is not even read: those pixels in RGB without compression
MAX_DECODED = 384 * 2**20  # bytes that an image may take while it is decoded: 24 million pixels of WebP
LARGE = 32 * 2**20  # bytes of RGB beyond which an image is made smaller right after it is decoded
STRIP = 2**20  # pixels that are converted at once
PIXEL = 4  # bytes of a pixel in Pillow: some modes have fewer, none has more
# WebP's decoder has two canvases and hands over a third; the decoders written in Python hold their bytes twice; that of
# AVIF has planes of up to 8 bytes a pixel and hands over two copies.
COPIES = {"webp": 4, "ppm": 4, "ppm_plain": 4, "avif": 5}
MAX_TAGS = 2**19  # numbers in the tags of a TIFF or in EXIF: each takes a hundred bytes once it is read
MAX_SCANS = 100  # of a JPEG, each of which passes over the whole image; a progressive one has about ten
MAX_EXIF = 16  # segments of EXIF in a JPEG: one has room for 64 KiB, and they are joined
MAX_COMMENTS = 1000  # in a plain PNM: for each of them Pillow copies a MiB
EXIF = b"Exif\0\0"  # which may stand before EXIF
AS_BYTES = (1, 2, 7)  # types of tags that stay as they are: bytes, text, undefined
NUMBERS = (258, 273, 320, 324)  # tags that Pillow takes for numbers even so: bits, strips, colours, tiles
DIRECTORIES = (0x8769, 0x8825, 0xA005)  # tags that lead to further ones: EXIF, GPS, interoperability
TURNS = ["FLIP_LEFT_RIGHT", "ROTATE_180", "FLIP_TOP_BOTTOM", "TRANSPOSE", "ROTATE_270", "TRANSVERSE", "ROTATE_90"]
UPRIGHT = {orientation: Image.Transpose[name] for orientation, name in enumerate(TURNS, 2)}  # by EXIF orientation
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # not the fault of the image that is read just then


def read_file(path: Place) -> bytes:
    """The whole content of a file; ``UnreadableImage`` has the reason if there is none."""
    if isinstance(path, Held):
        return path.content
    if isinstance(path, Url):
        return read_url(path, MAX_FILE)
    try:
        if not path.exists():
            raise UnreadableImage("no such file")
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableImage("not a regular file")  # a pipe would never end
        if status.st_size > MAX_FILE:
            raise UnreadableImage(f"refused: a file of {status.st_size >> 20} MiB, at most {MAX_FILE >> 20} are read")
        with path.open("rb") as file:
            content = file.read(status.st_size)
    except OSError as error:
        if error.errno in EXHAUSTED:
            raise
        raise UnreadableImage(error.strerror or str(error)) from None
    if not content:
        raise UnreadableImage("empty file")
    return content


def decode(content: bytes | BinaryIO | Image.Image, least: int | None = None) -> Image.Image:
    """The first frame of an image as upright RGB pixels; what is transparent is white.

    ``UnreadableImage`` is for no sound image, or too large a one. ``MemoryError`` is not its fault, and passes.

    Parameters
    ----------
    content : bytes, binary file or Image
        The content of an image file, or an image that Pillow has opened or made.
    least : int or None
        The side that is needed. It lets a JPEG be decoded at a half, a quarter or an eighth, and any other large image
        be averaged to a size of which both sides are still twice as long. With None all pixels are kept.
    """
    image = content if isinstance(content, Image.Image) else _open(content, least)
    with _reading():
        image.load()
        _check_tags(image.info.get("exif") or b"")
        turn = UPRIGHT.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    factor = _factor(image, least)
    if factor > 1 or image.mode != "RGB" or "transparency" in image.info:
        image = _converted(image, factor)
    return image if turn is None else image.transpose(turn)


@contextmanager
def _reading() -> Iterator[None]:
    """Around Pillow's work on a content: for a damaged one its plugins raise nearly every kind of exception."""
    try:
        yield
    except (MemoryError, UnreadableImage):
        raise
    except Exception as error:
        raise UnreadableImage(str(error).split("\n")[0] or type(error).__name__) from error


def format_of(content: bytes) -> str | None:
    """The format, a key of ``FORMATS``, that the first bytes of a file tell."""
    _register()
    accepts = ((name, Image.OPEN[name][1]) for name in FORMATS if name in Image.OPEN)
    return next((name for name, accept in accepts if accept and accept(content[:16]) is True), None)


def _open(content: bytes | BinaryIO, least: int | None) -> Image.Image:
    """The image, not decoded yet; not ``Image.open``, which bounds the pixels of the full size and warns of them."""
    file = io.BytesIO(content) if isinstance(content, bytes) else content
    with _reading():
        prefix = file.read(16)
        name = format_of(prefix)
        if name is None:
            if prefix[4:8] == b"ftyp" and "HEIF" not in Image.OPEN:
                raise UnreadableImage("HEIC, which needs: pip install 'usfda[heic]'")
            raise UnreadableImage(f"not an image of a known format ({', '.join(FORMATS)})")
        file.seek(0)
        _check_content(name, file.read())
        file.seek(0)
        image = Image.OPEN[name][0](file, "")
        codec = image.tile[0][0] if image.tile else "webp"  # which has none before it is decoded
        codec = "avif" if name == "AVIF" else codec
        if codec == "bmp_rle":  # a few bytes of it can skip to any place, for which memory is filled
            raise UnreadableImage("a BMP with run-length compression, which is not read; save it as PNG")
        size, extra = image.size, _extra(image, codec, file)
        if least is not None:
            image.draft(None, (least, least))  # does nothing but to JPEG
    pixels, factor = image.width * image.height, _factor(image, least)
    converting = PIXEL * (pixels + -(-image.width // factor) * -(-image.height // factor))
    need = max(converting, PIXEL * pixels * COPIES.get(codec, 1) + extra)
    if need > MAX_DECODED or pixels > MAX_PIXELS:
        found = f"{size[0]}×{size[1]} pixels that take {need >> 20} MiB to decode"
        raise UnreadableImage(
            f"refused: {found}; at most {MAX_PIXELS:,} pixels and {MAX_DECODED >> 20} MiB: make it smaller"
        )
    return image


def _check_content(name: str, content: bytes) -> None:
    """Refuse what takes Pillow far more time or memory than its size: before it is opened, which reads the tags."""
    check_container(name, content)
    if name == "TIFF":
        _check_tags(content)
    # Within a JPEG's data these bytes stand for nothing else.
    if name == "JPEG" and (content.count(b"\xff\xda") > MAX_SCANS or content.count(b"Exif\0\0") > MAX_EXIF):
        raise UnreadableImage(f"refused: a JPEG of more than {MAX_SCANS} scans, or of {MAX_EXIF} pieces of EXIF")
    if name == "PPM" and content[1:2] in b"123" and content.count(b"#") > MAX_COMMENTS:
        raise UnreadableImage(f"refused: a plain PNM with more than {MAX_COMMENTS} comments")


def _check_tags(content: bytes) -> None:
    """Refuse a TIFF, or EXIF, whose tags hold very many numbers: a few bytes of them become a hundred when read."""
    content = content[6 * content.startswith(EXIF) :]
    content = content[6 * content.startswith(EXIF) :]  # Pillow skips it twice as well
    order: Literal["little", "big"] = "little" if content.startswith(b"II") else "big"
    big = 43 in content[2:4]  # BigTIFF
    count, entry, size = (8, 20, 8) if big else (2, 12, 4)

    def number(at: int, length: int) -> int:
        return int.from_bytes(content[at : at + length], order)

    total, seen = 0, set()
    directories = [number(size, size)]
    while directories:
        start = directories.pop()
        if start in seen:
            continue
        seen.add(start)
        first = start + count
        for at in range(first, min(first + entry * number(start, count), len(content) - entry + 1), entry):
            tag, kind, held = number(at, 2), number(at + 2, 2), number(at + 4, size)
            if tag in DIRECTORIES:
                directories.append(number(at + 4 + size, size))
            if kind not in AS_BYTES or tag in NUMBERS:
                total += min(held, len(content))  # what is not there is not read
        if total > MAX_TAGS:
            raise UnreadableImage(f"refused: its tags hold more than {MAX_TAGS} numbers")


@cache
def _register() -> None:
    """Make Pillow's own formats known, and HEIC where its library is there."""
    Image.init()
    with suppress(ImportError):
        from pillow_heif import register_heif_opener

        register_heif_opener(thumbnails=False)


def picture(image: Image.Image | np.ndarray, name: str) -> Held:
    """An image of Pillow, or an array (height, width) or (height, width, 3 or 4) of bytes, as a file without loss."""
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[2] not in (3, 4)):
            raise InputError(
                f"{name}: an image is an array of uint8, (height, width) or (height, width, 3 or 4), "
                f"not {image.dtype} {image.shape}"
            )
        image = Image.fromarray(image)
    try:
        rgb = decode(image)
    except UnreadableImage as error:
        raise InputError(f"{name}: {error}") from None
    return Held(name, b"P6 %d %d 255\n" % rgb.size + rgb.tobytes())


def _extra(image: ImageFile.ImageFile, codec: str, file: BinaryIO) -> int:
    """Bytes that a decoder takes besides the pixels it gives."""
    width, height = image.size
    if isinstance(image, Tiff.TiffImageFile):
        tags = image.tag_v2
        part = width * min(height, tags.get(Tiff.ROWSPERSTRIP, height))  # which libtiff holds, up to 8 bytes a pixel
        if Tiff.TILEWIDTH in tags or Tiff.TILELENGTH in tags:
            part = tags.get(Tiff.TILEWIDTH, width) * tags.get(Tiff.TILELENGTH, height)
        turned = tags.get(ExifTags.Base.Orientation, 1) != 1  # by Pillow, into another copy
        return int(8 * part * (codec == "libtiff") + PIXEL * width * height * turned)
    if codec != "jpeg":
        return 0
    # Of a JPEG in several scans libjpeg holds all coefficients in full size. Those are the progressive ones, and those
    # whose first scan, at the end of whose header the file now stands, has not all components.
    components = len(image.getbands())
    file.seek(max(0, file.tell() - 2 * components - 8))
    at_once = file.read(5) == bytes([0xFF, 0xDA, 0, 2 * components + 6, components])
    return 0 if at_once and "progressive" not in image.info else 2 * width * height * components


def _factor(image: Image.Image, least: int | None) -> int:
    """How many times smaller an image is made when it is converted."""
    large = PIXEL * image.width * image.height > LARGE
    return max(1, min(image.size) // (2 * least)) if large and least is not None else 1


def _converted(image: Image.Image, factor: int) -> Image.Image:
    """RGB on white, ``factor`` times smaller, strip by strip."""
    rows = factor * max(1, STRIP // (factor * image.width))
    boxes = [(0, top, image.width, min(top + rows, image.height)) for top in range(0, image.height, rows)]
    # Modes I and F do not say how bright white is: the next usual limit above what there is.
    limits = {"I;16": (65535.0,), "I": (255.0, 65535.0), "F": (1.0, 255.0, 65535.0)}.get(image.mode[:4], ())
    brightest = max(_values(image.crop(box)).max() for box in boxes) if limits else 0.0
    white = next((limit for limit in limits if brightest <= limit), brightest)
    whole = Image.new("RGB", (-(-image.width // factor), -(-image.height // factor)))
    for box in boxes:
        strip = image.crop(box)
        if limits:
            strip = Image.fromarray((_values(strip) / white * 255).clip(0, 255).astype(np.uint8))
        clear = strip.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in strip.info
        with _reading():
            strip = strip.convert("RGBA" if clear else "RGB")
        if clear:
            strip = Image.alpha_composite(Image.new("RGBA", strip.size, "white"), strip).convert("RGB")
        whole.paste(strip.reduce(factor), (0, box[1] // factor))
    return whole


def _values(strip: Image.Image) -> np.ndarray:
    values = np.asarray(strip, dtype=np.float32)
    if not np.isfinite(values).all():
        raise UnreadableImage("NaN or infinite pixels")
    return values

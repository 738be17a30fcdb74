import io
import os
import struct
import subprocess
import sys
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from usfda.data import images
from usfda.data.images import FORMATS, MAX_DECODED, MAX_FILE, SUFFIXES, decode, read_file
from usfda.errors import UnreadableImage

RED_OVER_BLUE = np.zeros((8, 6, 3), np.uint8)
RED_OVER_BLUE[:4, :, 0] = 255
RED_OVER_BLUE[4:, :, 2] = 255
GREY = np.tile(np.linspace(0, 255, 8).astype(np.uint8), (8, 1))


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def noise(side: int, channels: int = 3) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (side, side, channels), dtype=np.uint8))


def png(side: int, depth: int, colour: int, row: int, *chunks: tuple[bytes, bytes]) -> bytes:
    """A black PNG of any size, of ``row`` bytes a row, made without ever holding its pixels."""
    packer = zlib.compressobj(1)
    data = b"".join(packer.compress(bytes(1 + row)) for _ in range(side)) + packer.flush()
    header = struct.pack(">IIBBBBB", side, side, depth, colour, 0, 0, 0)
    parts = [(b"IHDR", header), *chunks, (b"IDAT", data), (b"IEND", b"")]
    made = [struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in parts]
    return b"\x89PNG\r\n\x1a\n" + b"".join(made)


def tiff(side: int, rows: int, more: dict[int, int] | None = None) -> bytes:
    """A black TIFF of 32-bit floats, all strips of which are the same bytes of the file."""
    strip = zlib.compress(bytes(4 * side * min(rows, 100)), 1)  # larger ones are cut
    n = side // rows
    place = 8 + len(strip)
    strips = struct.pack(f"<{2 * n}I", *[8] * n, *[len(strip)] * n)
    offsets, lengths = (place, place + 4 * n) if n > 1 else (8, len(strip))
    tags = {256: side, 257: side, 258: 32, 259: 8, 262: 1, 273: offsets, 277: 1, 278: rows, 279: lengths, 339: 3}
    tags = dict(sorted((tags | (more or {})).items()))
    entries = [struct.pack("<HHII", tag, 4, n if tag in (273, 279) else 1, value) for tag, value in tags.items()]
    header = struct.pack("<2sHI", b"II", 42, place + len(strips))
    return header + strip + strips + struct.pack("<H", len(tags)) + b"".join(entries) + bytes(4)


def jpeg(side: int, progressive: bool = False, one_at_a_time: bool = False) -> bytes:
    """A JPEG that claims to be of this size."""
    content = bytearray(saved(noise(16), "JPEG", progressive=progressive))
    place = content.index(b"\xff\xc2" if progressive else b"\xff\xc0") + 5
    content[place : place + 4] = struct.pack(">HH", side, side)
    if one_at_a_time:
        place = content.index(b"\xff\xda\x00\x0c\x03")
        content[place : place + 14] = bytes.fromhex("ffda0008010100003f00")
    return bytes(content)


def test_suffixes_and_formats() -> None:
    assert {".jpg", ".png", ".tif", ".webp"} < SUFFIXES
    for kind in FORMATS:
        assert decode(saved(noise(20), kind)).size == (20, 20)
    with pytest.raises(UnreadableImage, match="format"):
        decode(saved(noise(20), "ICO"))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(kind: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    lossless = {"lossless": True} if kind == "WEBP" else {}
    picture = RED_OVER_BLUE.repeat(16, 0).repeat(16, 1)
    picture[:16, :16, 1] = 255
    content = saved(Image.fromarray(picture), kind, exif=exif, **lossless)
    turned = {
        1: picture, 2: picture[:, ::-1], 3: picture[::-1, ::-1], 4: picture[::-1], 5: picture.transpose(1, 0, 2),
        6: np.rot90(picture, -1), 7: np.rot90(picture, 2).transpose(1, 0, 2), 8: np.rot90(picture),
    }[orientation]  # fmt: skip
    upright = np.asarray(decode(content))
    assert upright.shape == turned.shape
    assert np.abs(upright.astype(int) - turned).mean() < (10 if kind == "JPEG" else 1e-9)


def test_all_kinds_of_pixels() -> None:
    kinds = {
        "L": saved(Image.fromarray(GREY), "PNG"),
        "16": saved(Image.fromarray(GREY.astype(np.uint16) * 257), "PNG"),
        "16 TIFF": saved(Image.fromarray(GREY.astype(np.uint16) * 257), "TIFF"),
        "32": saved(Image.fromarray(GREY.astype(np.int32) * 257), "TIFF"),
        "float": saved(Image.fromarray((GREY / 255).astype(np.float32)), "TIFF"),
        "bright float": saved(Image.fromarray(GREY.astype(np.float32) * 1000), "TIFF"),
        "P": saved(Image.fromarray(GREY).convert("P"), "GIF"),
        "1": saved(Image.fromarray(GREY > 127), "PNG"),
    }
    for name, content in kinds.items():
        seen = np.asarray(decode(content))
        expected = np.where(GREY > 127, 255, 0) if name == "1" else GREY
        assert seen.shape == (8, 8, 3), name
        assert np.abs(seen[..., 0].astype(int) - expected).max() <= 1, name
    red = saved(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG", quality=95)
    assert np.asarray(decode(red))[4, 4, 0] > 200


def test_pixels_that_are_no_numbers() -> None:
    for value in (np.nan, np.inf, -np.inf):
        values = GREY.astype(np.float32)
        values[3, 3] = value
        with pytest.raises(UnreadableImage, match="NaN"):
            decode(saved(Image.fromarray(values), "TIFF"))


def test_transparent_pixels_are_white() -> None:
    palette = Image.new("P", (4, 4), 0)
    palette.putpalette([0, 0, 0] * 256)
    for content in (
        saved(Image.new("RGBA", (4, 4), (10, 20, 30, 0)), "PNG"),
        saved(Image.new("LA", (4, 4), (10, 0)), "PNG"),
        saved(Image.new("RGBA", (4, 4), (10, 20, 30, 0)), "WEBP", lossless=True),
        saved(palette, "PNG", transparency=0),
        saved(palette, "PNG", transparency=bytes(10)),
        saved(palette, "GIF", transparency=0),
        saved(Image.new("RGB", (4, 4), (10, 20, 30)), "PNG", transparency=(10, 20, 30)),
    ):
        assert np.asarray(decode(content)).min() == 255


def test_the_first_frame_counts() -> None:
    red, blue = Image.new("RGB", (8, 8), "red"), Image.new("RGB", (8, 8), "blue")
    for kind in ("GIF", "PNG", "TIFF", "WEBP", "MPO"):
        content = saved(red, kind, save_all=True, append_images=[blue])
        assert np.asarray(decode(content))[4, 4].tolist() == pytest.approx([255, 0, 0], abs=5), kind


def test_an_image_that_pillow_opened_or_made() -> None:
    image = noise(40, 4)
    assert decode(image) == decode(saved(image, "PNG"))
    assert decode(io.BytesIO(saved(image, "PNG"))) == decode(image)
    opened = Image.open(io.BytesIO(saved(noise(40), "JPEG")))
    assert decode(opened, least=5).size == opened.size == (40, 40)


def test_a_jpeg_is_decoded_no_larger_than_needed() -> None:
    for kind in ("JPEG", "MPO"):
        more = {"save_all": True, "append_images": [noise(64)]} if kind == "MPO" else {}
        content = saved(noise(640), kind, **more)
        assert decode(content).size == (640, 640)
        assert decode(content, least=100).size == (160, 160)
    assert decode(saved(noise(640), "PNG"), least=100).size == (640, 640), "small images stay as they are"


@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGB", "RGBA", "CMYK", "1", "I;16", "I", "F"])
def test_a_large_image_is_averaged_strip_by_strip(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it had been converted whole and then averaged."""
    monkeypatch.setattr(images, "LARGE", 100_000)
    image = noise(30, 4).resize((351, 251))  # neither side is a multiple of the factor
    if mode in ("CMYK", "P"):
        image = image.convert("RGB")
    if mode in ("I;16", "I", "F"):
        grey = np.asarray(image.convert("L"))
        image = Image.fromarray(grey.astype({"I;16": np.uint16, "I": np.int32, "F": np.float32}[mode]) * 257)
    else:
        image = image.convert(mode)
    whole = decode(image)
    monkeypatch.setattr(images, "STRIP", 4000)
    small = decode(image, least=25)
    assert small.size == (71, 51), "a fifth: both sides are still twice as long as needed"
    assert small == whole.reduce(5)
    assert decode(image) == whole


TOO_MUCH: dict[str, Callable[[], bytes]] = {
    "bits": lambda: png(30000, 1, 0, 0),
    "rgba": lambda: png(12000, 8, 6, 0),
    "one strip": lambda: tiff(9000, 9000),
    "tile": lambda: tiff(100, 100, {322: 30000, 323: 30000}),
    "progressive": lambda: jpeg(20000, progressive=True),
    "scans": lambda: jpeg(20000, one_at_a_time=True),
    "ppm": lambda: b"P6 20000 20000 255\n",
    "plain ppm": lambda: b"P3 6000 6000 100\n",
    "webp": lambda: b"RIFF\x64\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00\xff\x3f\x00\xff\x3f\x00" + bytes(80),
    "gif": lambda: b"GIF89a" + struct.pack("<HHBBB", 30000, 30000, 0, 0, 0) + b",\0\0\0\0\1\0\1\0\0\2\2\x44\1\0;",
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_what_would_take_too_much_is_refused(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Pillow's about bombs would say so too, and end in UnreadableImage
        with pytest.raises(UnreadableImage, match=r"refused|exceeds limit"):
            decode(TOO_MUCH[name](), least=256)


def test_a_refusal_says_the_sizes_and_a_draft_counts_as_such() -> None:
    with pytest.raises(
        UnreadableImage, match=rf"20000×20000 pixels .* 2312 MiB .* at most .* pixels and {MAX_DECODED >> 20} MiB: make"
    ):
        decode(jpeg(20000, progressive=True), least=256)
    with pytest.raises(UnreadableImage, match="20000×20000 pixels"):
        decode(jpeg(20000))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Pillow would warn of a bomb
        assert decode(jpeg(20000), least=256).size == (2500, 2500)


PEAK = """
import sys
from pathlib import Path
from usfda.data.images import decode, read_file
from usfda.errors import UnreadableImage

def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 1024

contents = [read_file(Path(name)) for name in sys.argv[1:]]
decode(contents[0], least=16)
before = peak()
for content in contents[1:]:
    try:
        print("decoded" if min(decode(content, least=256).size) >= 512 else "too small", end=" ")
    except UnreadableImage:
        print("refused", end=" ")
    print(peak() - before)
"""
PROC = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux what a process takes")


@PROC
def test_memory(tmp_path: Path) -> None:
    """81 million pixels in files of about a MiB. (Not by ru_maxrss, which begins with what the parent has taken.)"""
    side = 9000
    contents = {
        "small": ("", 0, saved(noise(32, 4), "PNG")),
        "float in one strip": ("refused", 5, tiff(side, side)),
        "P": ("decoded", 60, png(6000, 8, 3, 6000, (b"PLTE", bytes(768)), (b"tRNS", bytes(9)))),
        "LA": ("decoded", 170, png(6000, 8, 4, 2 * 6000)),
        "16 bits": ("decoded", 190, png(side, 16, 0, 2 * side)),
        "WebP": ("decoded", 190, saved(noise(16).resize((3000, 3000)), "WEBP", quality=1, method=0)),
        "RGBA": ("decoded", 350, png(side, 8, 6, 4 * side)),
        "float": ("decoded", 350, tiff(side, 100)),
    }
    for name, (_, _, content) in contents.items():
        (tmp_path / name).write_bytes(content)
    call = [sys.executable, "-c", PEAK, *contents]
    ran = subprocess.run(call, capture_output=True, text=True, check=True, timeout=120, cwd=tmp_path)
    for (name, (outcome, most, _)), line in zip(list(contents.items())[1:], ran.stdout.splitlines(), strict=True):
        found, grown = line.rsplit(" ", 1)
        assert (name, found) == (name, outcome)
        assert float(grown) < most, f"MiB for {name}"


def test_out_of_memory_is_not_the_images_fault() -> None:
    class Exhausted(io.BytesIO):
        left = 0

        def read(self, size: int | None = -1, /) -> bytes:
            self.left -= 1
            if self.left < 0:
                raise MemoryError
            return super().read(size)

    for kind in FORMATS:
        content = saved(noise(64), kind)
        for reads in (0, 1) if kind in ("AVIF", "HEIF") else (0, 1, 2):  # these read a file at once
            file = Exhausted(content)
            file.left = reads
            with pytest.raises(MemoryError):
                decode(file)


SHORTAGE = """
import resource, sys
from pathlib import Path
from usfda.data.images import decode, read_file
contents = [read_file(Path(name)) for name in sys.argv[1:]]
decode(contents[0], least=256)
now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + 2**26, now + 2**26))
try:
    decode(contents[1], least=256)
except MemoryError:
    print("passed")
"""


@PROC
def test_a_real_shortage_of_memory_passes(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(saved(noise(32, 4), "PNG"))
    (tmp_path / "large").write_bytes(png(8000, 8, 6, 32000))
    call = [sys.executable, "-c", SHORTAGE, "small", "large"]
    ran = subprocess.run(call, capture_output=True, text=True, check=True, timeout=60, cwd=tmp_path)
    assert ran.stdout == "passed\n"


def test_files_that_are_not_read(tmp_path: Path) -> None:
    with (tmp_path / "large.png").open("wb") as file:
        file.truncate(MAX_FILE + 1)
    (tmp_path / "empty.png").touch()
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    os.mkfifo(tmp_path / "pipe.png")
    says = {
        "large.png": f"refused: a file of {MAX_FILE >> 20} MiB",
        "empty.png": "empty file",
        "folder.png": "not a regular file",
        "pipe.png": "not a regular file",
        "missing.png": "no such file",
        "empty.png/x.png": "no such file",
        "loop.png": "no such file",
        "zero\0.png": "no such file",
        "x" * 300: "File name too long",
    }
    for name, why in says.items():
        with pytest.raises(UnreadableImage, match=why):
            read_file(tmp_path / name)
    content = saved(noise(8), "PNG")
    (tmp_path / "sound.png").write_bytes(content)
    assert read_file(tmp_path / "sound.png") == content


KINDS: list[tuple[str, int, dict[str, Any]]] = [
        ("PNG", 3, {}), ("PNG", 4, {}), ("JPEG", 3, {}), ("JPEG", 3, {"progressive": True}), ("GIF", 3, {}),
        ("WEBP", 4, {}), ("WEBP", 3, {"lossless": True}), ("TIFF", 3, {}), ("TIFF", 4, {"compression": "tiff_lzw"}),
        ("BMP", 3, {}), ("PPM", 3, {}),
]  # fmt: skip
SOUND = [
    *(saved(noise(24, channels), kind, **options) for kind, channels, options in KINDS),
    saved(Image.fromarray(GREY).convert("P"), "PNG", transparency=bytes(range(9))),
    saved(Image.fromarray(GREY), "PNG", transparency=3),
    saved(Image.fromarray(GREY.astype(np.float32)), "TIFF"),
    saved(noise(24), "GIF", save_all=True, append_images=[noise(20)]),
    saved(Image.fromarray(GREY), "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\6\0\0\0\0\0\0"),
    b"P3 2 2 100\n1 2 3 4 5 6 7 8 9 10 11 12\n",
]  # fmt: skip


def check(content: bytes) -> None:
    """An image or a refusal, nothing else."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's about odd metadata
        try:
            image = decode(content, least=16)
        except UnreadableImage as error:
            image = Image.new("RGB" if str(error) else "L", (1, 1))  # a refusal says why
        assert image.mode == "RGB"


@given(st.binary(max_size=200), st.sampled_from([b"", *{content[:16] for content in SOUND}]))
@settings(max_examples=200, deadline=None)
def test_any_bytes(content: bytes, start: bytes) -> None:
    check(start + content)


@given(st.sampled_from(SOUND), st.data())
@settings(max_examples=400, deadline=None)
def test_damaged_images(content: bytes, data: st.DataObject) -> None:
    damaged = bytearray(content)
    for _ in range(data.draw(st.integers(1, 8))):
        end = data.draw(st.sampled_from([min(64, len(damaged)), len(damaged)]))  # the header matters most
        damaged[data.draw(st.integers(0, end - 1))] ^= 1 << data.draw(st.integers(0, 7))
    check(bytes(damaged[: data.draw(st.sampled_from([None, len(damaged) // 2, len(damaged) - 3]))]))


def test_a_bmp_with_run_lengths_is_refused() -> None:
    """1,086 bytes of it took four gigabytes with Pillow 10: it can skip ahead by any number of rows."""
    head = struct.pack("<2sLHHLLLlHHLLllLL", b"BM", 1086, 0, 0, 1078, 40, 800, 1, 1, 8, 1, 8, 0, 0, 0, 0)
    with pytest.raises(UnreadableImage, match="compression"):
        decode(head + bytes(1024) + b"\0\2\xff\xff\0\1")

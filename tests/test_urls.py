"""Images, features, models and results behind URLs: a real server of the S3 protocol, on this machine."""

import http.server
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow.parquet as parquet
import pytest
import s3fs
from conftest import blobs
from moto.server import ThreadedMotoServer

import usfda
from usfda import Config, InputError, Model, Samples, load, procure
from usfda.cli.main import main
from usfda.data.images import MAX_FILE, read_file
from usfda.data.reading import read
from usfda.errors import UnreadableImage
from usfda.files import atomic_write
from usfda.urls import Url, place_of

SECRET = "hidden-from-all"


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    """A server with a bucket ``bkt``, which boto finds by the environment."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "someone")
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        s3fs.S3FileSystem.clear_instance_cache()
        fs = fsspec.filesystem("s3")
        fs.mkdir("bkt")
        yield fs
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


@pytest.fixture(scope="module")
def bucket(s3: Any, photos: Path, new_photos: Path) -> str:
    s3.put(str(photos), "bkt/source", recursive=True)
    s3.put(str(new_photos), "bkt/deep/target", recursive=True)
    s3.pipe_file("bkt/source/.hidden/x.png", b"no image")
    s3.pipe_file("bkt/deep/target/kind0/.x.png", b"no image")
    return "s3://bkt"


@pytest.fixture(scope="module")
def vendor(photos: Path) -> Model:
    return procure(photos, backbone="pixels", method="mixture", config=Config(cache=None))


def samples_of(source: Any, **options: Any) -> Samples:
    found = read(source, **options)
    assert isinstance(found, Samples)
    return found


@pytest.mark.parametrize("labelled", [True, False])
def test_a_folder_is_read_as_a_local_one(bucket: str, photos: Path, new_photos: Path, labelled: bool) -> None:
    """The same images in the same order with the same labels, also where class folders lie one level deeper."""
    for here, there in ((photos, f"{bucket}/source/"), (new_photos.parent, f"{bucket}/deep")):
        ours, theirs = (samples_of(str(place), labelled=labelled) for place in (here, there))
        assert [Path(str(path)).parts[-2:] for path in theirs.paths] == [
            Path(str(path)).parts[-2:] for path in ours.paths
        ]
        assert ours.labels is not None
        assert theirs.labels is not None
        assert theirs.labels.tolist() == ours.labels.tolist()
    assert all(str(path).startswith("s3://bkt/") for path in theirs.paths)


def test_what_a_folder_lacks_or_has_too_much(s3: Any, caplog: pytest.LogCaptureFixture, photos: Path) -> None:
    image = (photos / "kind0" / "000.png").read_bytes()
    for name in ("a/1.png", "a/2.png", "b/1.png", "b/doc.pdf", "c/notes.md", "d/e/1.png", "loose.png"):
        s3.pipe_file(f"bkt/mixed/{name}", image)
    with caplog.at_level(logging.WARNING, "usfda"):
        found = samples_of("s3://bkt/mixed", labelled=True)
    assert [str(path) for path in found.paths] == [
        f"s3://bkt/mixed/{name}" for name in ("a/1.png", "a/2.png", "b/1.png")
    ]
    assert found.empty == ("c", "d")
    assert "left out 2 images not directly in a class folder: s3://bkt/mixed (1), s3://bkt/mixed/d/e (1)" in (
        caplog.text
    )
    for name in ("a/1.png", "b/1.png", "b/2.png", "stray.png"):
        s3.pipe_file(f"bkt/above/photos/{name}", image)
    labels = samples_of("s3://bkt/above", labelled=True).labels
    assert labels is not None
    assert labels.tolist() == ["a", "b", "b"], "a stray image makes no class of the folder above the classes"
    assert ".pdf" in caplog.text
    assert samples_of("s3://bkt/mixed", labelled=True, classes="a").empty == ()
    order = [str(path).removeprefix("s3://bkt/mixed/") for path in samples_of("s3://bkt/mixed").paths]
    assert order == ["loose.png", "a/1.png", "a/2.png", "b/1.png", "d/e/1.png"]
    with pytest.raises(InputError, match="bkt/nothing"):
        read("s3://bkt/nothing")
    with pytest.raises(InputError, match="level"):
        read("s3://bkt/mixed/a", labelled=True)


def test_from_vendor_to_predictions(
    bucket: str, s3: Any, vendor: Model, new_photos: Path, tmp_path: Path, cache: Path
) -> None:
    """Model, images and results at URLs give what local ones give."""
    vendor.save(tmp_path / "vendor.usfda")
    vendor.save("s3://bkt/models/vendor.usfda")
    assert s3.cat_file("bkt/models/vendor.usfda") == (tmp_path / "vendor.usfda").read_bytes()
    for form in ("parquet", "csv", "jsonl"):
        for model, images, out in (
            (tmp_path / "vendor.usfda", new_photos, tmp_path / f"out.{form}"),
            ("s3://bkt/models/vendor.usfda", f"{bucket}/deep/target", f"s3://bkt/out/out.{form}"),
        ):
            call = ["--quiet", "--cache", str(cache), "predict", str(model), str(images), "-o", str(out)]
            assert main(call) == 0
        s3.get_file(f"bkt/out/out.{form}", str(tmp_path / f"fetched.{form}"))
    here, there = (parquet.read_table(tmp_path / f"{name}.parquet") for name in ("out", "fetched"))
    assert there.num_rows == 40
    assert there.drop_columns(["path"]).equals(here.drop_columns(["path"]))
    assert there["path"][0].as_py() == "s3://bkt/deep/target/kind0/000.png"
    for form in ("csv", "jsonl"):
        text = (tmp_path / f"fetched.{form}").read_text().replace("s3://bkt/deep/target", str(new_photos))
        assert text == (tmp_path / f"out.{form}").read_text()
    client = ["adapt", "s3://bkt/models/vendor.usfda", f"{bucket}/deep/target", "-o", "s3://bkt/models/client.usfda"]
    assert main(["--quiet", "--cache", str(cache), *client]) == 0
    assert load("s3://bkt/models/client.usfda").adapted


def test_lists_and_features(bucket: str, s3: Any, photos: Path, tmp_path: Path) -> None:
    s3.pipe_file("bkt/source/list.txt", b"kind0/000.png a\nkind1/001.png b\nfile:///etc/x.png c\n")
    found = samples_of("s3://bkt/source/list.txt")
    assert str(found.paths[0]) == "s3://bkt/source/kind0/000.png"
    assert not any(isinstance(path, Path) for path in found.paths), "it names no file of this machine"
    (tmp_path / "list.csv").write_text(f"path,label\ns3://bkt/source/kind0/000.png,a\n{photos}/kind1/000.png,b\n")
    mixed = samples_of(tmp_path / "list.csv")
    assert mixed.paths == [Url("s3://bkt/source/kind0/000.png"), photos / "kind1" / "000.png"]
    assert read_file(mixed.paths[0]) == (photos / "kind0" / "000.png").read_bytes()
    assert samples_of(f"file://{photos}/kind0").paths == samples_of(photos / "kind0").paths
    X, y = blobs([0, 1], 5)
    np.savez(tmp_path / "f.npz", X=X, y=y)
    s3.put_file(str(tmp_path / "f.npz"), "bkt/f.npz")
    features = read("s3://bkt/f.npz")
    assert np.array_equal(features.X[:], X)  # type: ignore[union-attr]
    with pytest.raises(InputError, match=r"none\.npz"):
        read("s3://bkt/none.npz")


def test_bad_files_are_named(s3: Any, photos: Path, caplog: pytest.LogCaptureFixture, vendor: Model) -> None:
    for name, content in {"good.png": (photos / "kind0" / "000.png").read_bytes(), "text.png": b"no image"}.items():
        s3.pipe_file(f"bkt/bad/{name}", content)
    paths = ["s3://bkt/bad/good.png", "s3://bkt/bad/text.png", "s3://bkt/bad/gone.png", "s3://nobody/x.png"]
    with caplog.at_level(logging.WARNING, "usfda"):
        assert [record.path for record in vendor.predictions(paths)] == ["s3://bkt/bad/good.png"]
    assert "3 of 4" in caplog.text
    assert all(f"s3://bkt/bad/{name}.png" in caplog.text for name in ("text", "gone"))
    assert SECRET not in caplog.text


def test_what_is_written_is_whole_or_not_there(s3: Any) -> None:

    def half() -> None:
        with atomic_write(Url("s3://bkt/half.csv")) as file:
            file.write(b"x" * 10_000)
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        half()
    assert not s3.exists("bkt/half.csv")
    with pytest.raises(InputError, match=r"s3://nobody/x\.csv: "), atomic_write(Url("s3://nobody/x.csv")) as file:
        file.write(b"x")


class Guarded(http.server.SimpleHTTPRequestHandler):
    """Serves files to those who sign their request."""

    def send_head(self) -> Any:
        if "signature=" not in self.path:
            self.send_error(403)
            return None
        return super().send_head()

    def log_message(self, *args: object) -> None: ...


def test_signatures_and_passwords_are_not_shown(
    photos: Path, vendor: Model, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    handler = partial(Guarded, directory=str(photos))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        base = f"http://127.0.0.1:{server.server_port}"
        try:
            records = list(vendor.predictions([f"{base}/kind0/000.png?signature={SECRET}"]))
            with caplog.at_level(logging.WARNING, "usfda"), pytest.raises(InputError, match="none"):
                vendor.predict([f"{base}/kind0/000.png?sig={SECRET}"])
            vendor.save(tmp_path / "m.usfda")
            assert main(["predict", str(tmp_path / "m.usfda"), f"{base}/list.csv?x={SECRET}"]) == 2
            page, image = tmp_path / "page.html", f"{base}/kind0/000.png?signature={SECRET}"
            assert main(["report", str(tmp_path / "m.usfda"), image, "-o", str(page)]) == 0
        finally:
            server.shutdown()
    assert [record.path for record in records] == [f"{base}/kind0/000.png"]
    assert "kind0/000.png" in caplog.text
    said = capsys.readouterr()
    assert SECRET not in caplog.text + said.out + said.err + page.read_text()
    assert str(Url(f"https://me:{SECRET}@host/a.png?x={SECRET}#y")) == "https://host/a.png"


def test_a_host_that_cannot_be_reached(vendor: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(tmp_path / "m.usfda")
    vendor.save(model)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        base = f"http://127.0.0.1:{taken.getsockname()[1]}"  # where nobody listens
        for name in ("list.csv", "features.npz", "photos/", "photo.jpg", "m.usfda"):
            call = [f"{base}/{name}", model] if name == "m.usfda" else [model, f"{base}/{name}"]
            assert main(["predict", *call]) == 2
            said = capsys.readouterr().err
            assert f"{base}/{name}" in said
            assert "reached" in said


def test_bounds_hold(photos: Path) -> None:
    fs = fsspec.filesystem("memory")
    fs.pipe_file("/usfda/huge.png", bytes(MAX_FILE + 1))
    fs.pipe_file("/usfda/empty.png", b"")
    try:
        with pytest.raises(UnreadableImage, match="refused"):
            read_file(Url("memory://usfda/huge.png"))
        with pytest.raises(UnreadableImage, match="empty"):
            read_file(Url("memory://usfda/empty.png"))
    finally:
        fs.rm("/usfda", recursive=True)


def test_what_is_not_installed_is_named() -> None:
    with pytest.raises(InputError, match="nosuch"):
        read("nosuch://place/x")
    code = "import sys; sys.modules['s3fs'] = None; from usfda.data.reading import read; read('s3://bkt/x')"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "usfda[s3]" in ran.stderr


def test_a_path_stays_a_path(tmp_path: Path) -> None:
    assert place_of("a/b.png") == Path("a/b.png")
    assert place_of("b.png", tmp_path) == tmp_path / "b.png"
    assert place_of(Path("s3://bkt/x")) == Path("s3:/bkt/x")


def test_ray_workers_read_urls(bucket: str, new_photos: Path, vendor: Model, tmp_path: Path, cache: Path) -> None:
    """In a process of its own, with a cluster of its own: paths go out, and the workers read the bucket."""
    vendor.save(tmp_path / "m.usfda")
    call = [sys.executable, "-m", "usfda", "--threads", "1", "predict", str(tmp_path / "m.usfda")]
    call += [f"{bucket}/deep/target", "--engine", "ray", "-o", "s3://bkt/ray.csv"]
    subprocess.run(call, check=True, env=os.environ | {"USFDA_CACHE": str(cache)}, timeout=300)
    here = list(usfda.load(tmp_path / "m.usfda").predictions(new_photos))
    lines = fsspec.filesystem("s3").cat_file("bkt/ray.csv").decode().splitlines()[1:]
    assert [line.split(",")[1] for line in lines] == [record.label for record in here]
